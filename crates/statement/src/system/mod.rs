//! The keyspaces that every node has: their tables, in the words of CREATE TABLE.
//!
//! Tables of `system`, `system_schema`, `system_views` and `system_virtual_schema` are made of a node's own
//! state (`query::system` fills them); the others are stored and replicated like tables of clients.

use std::rc::Rc;

use cql::ast::Statement;
use model::schema::{Keyspace, KeyspaceOptions, SchemaChange, TableDefinition};
use model::{Schema, Table};

use crate::StatementError;
use crate::ddl::plan::PlanContext;
use crate::ddl::table_create;

const SYSTEM: &str = include_str!("definitions/system.cql");
const SYSTEM_SCHEMA: &str = include_str!("definitions/system_schema.cql");
const SYSTEM_VIEWS: &str = include_str!("definitions/system_views.cql");
const SYSTEM_VIRTUAL_SCHEMA: &str = include_str!("definitions/system_virtual_schema.cql");
const SYSTEM_AUTH: &str = include_str!("definitions/system_auth.cql");
const SYSTEM_DISTRIBUTED: &str = include_str!("definitions/system_distributed.cql");
const SYSTEM_TRACES: &str = include_str!("definitions/system_traces.cql");

/// The keyspaces of virtual tables, with their definitions.
pub const LOCAL: [(&str, &str); 4] = [
    ("system", SYSTEM),
    ("system_schema", SYSTEM_SCHEMA),
    ("system_views", SYSTEM_VIEWS),
    ("system_virtual_schema", SYSTEM_VIRTUAL_SCHEMA),
];

/// The stored system keyspaces with their replication factors and definitions.
pub const STORED: [(&str, &str, &str); 3] = [
    ("system_auth", "1", SYSTEM_AUTH),
    ("system_distributed", "3", SYSTEM_DISTRIBUTED),
    ("system_traces", "2", SYSTEM_TRACES),
];

/// Whether a keyspace is shown as virtual (in `system_virtual_schema` instead of `system_schema`), as in
/// Cassandra.
pub fn is_virtual(keyspace: &str) -> bool {
    matches!(keyspace, "system_views" | "system_virtual_schema")
}

/// The definitions of the virtual tables.
#[derive(Debug)]
pub struct Catalog {
    schema: Schema,
}

impl Catalog {
    /// The catalog of this version.
    ///
    /// # Errors
    /// Only of a definition that is wrong; tests parse all of them.
    pub fn new() -> Result<Self, StatementError> {
        let mut catalog = Self::empty()?;
        Self::statements().try_for_each(|statement| catalog.add(statement))?;
        Ok(catalog)
    }

    /// A catalog with the keyspaces, without tables.
    ///
    /// # Errors
    /// As [`Catalog::new`].
    pub fn empty() -> Result<Self, StatementError> {
        let mut schema = Schema::empty();
        for (keyspace, _) in LOCAL {
            let replication = [("class".to_owned(), "org.apache.cassandra.locator.LocalStrategy".to_owned())];
            let options =
                KeyspaceOptions { replication: replication.into(), durable_writes: true, tablets: None };
            apply(&mut schema, &SchemaChange::CreateKeyspace { name: keyspace.to_owned(), options })?;
        }
        Ok(Self { schema })
    }

    /// The statements that define the tables, one each.
    pub fn statements() -> impl Iterator<Item = &'static str> {
        LOCAL.into_iter().flat_map(|(_, text)| statements(text))
    }

    /// Adds the table that a statement of [`Catalog::statements`] defines.
    ///
    /// # Errors
    /// As [`Catalog::new`].
    pub fn add(&mut self, statement: &str) -> Result<(), StatementError> {
        apply(&mut self.schema, &SchemaChange::CreateTable(Box::new(definition(statement, 1)?)))
    }

    /// The keyspaces, sorted by name.
    pub fn keyspaces(&self) -> impl Iterator<Item = &Keyspace> {
        self.schema.keyspaces()
    }

    /// The keyspace with this name.
    pub fn keyspace(&self, name: &str) -> Option<&Keyspace> {
        self.schema.keyspace(name)
    }

    /// The table with this name.
    pub fn table(&self, keyspace: &str, name: &str) -> Option<Rc<Table>> {
        self.schema.table(keyspace, name).cloned()
    }
}

/// The changes that add missing keyspaces and tables of the stored system tables to a schema. They are logged
/// at a node's first start, and when a later version brings a new table.
///
/// # Errors
/// As [`Catalog::new`].
pub fn first_changes(schema: &Schema, shards: usize) -> Result<Vec<SchemaChange>, StatementError> {
    let mut changes = Vec::new();
    for (keyspace, factor, text) in STORED {
        if schema.keyspace(keyspace).is_none() {
            let replication = [
                ("class".to_owned(), "org.apache.cassandra.locator.SimpleStrategy".to_owned()),
                ("replication_factor".to_owned(), factor.to_owned()),
            ];
            let options =
                KeyspaceOptions { replication: replication.into(), durable_writes: true, tablets: None };
            changes.push(SchemaChange::CreateKeyspace { name: keyspace.to_owned(), options });
        }
        for statement in statements(text) {
            let table = definition(statement, shards)?;
            if schema.table(keyspace, &table.name).is_none() {
                changes.push(SchemaChange::CreateTable(Box::new(table)));
            }
        }
    }
    Ok(changes)
}

/// The CREATE TABLE statements of a file; each ends with a semicolon at the end of a line.
fn statements(text: &str) -> impl Iterator<Item = &str> {
    text.split(";\n").map(str::trim).filter(|statement| !statement.is_empty())
}

fn definition(statement: &str, shards: usize) -> Result<TableDefinition, StatementError> {
    let schema = Schema::empty();
    let context = PlanContext {
        schema: &schema,
        keyspace: None,
        data_centers: &[],
        shards,
        now_us: 0,
        // Every definition carries its id, so no random one is needed.
        chance: [0, 0],
        user_functions: true,
        guardrails: &crate::guardrails::Guardrails::default(),
    };
    let parsed = cql::parse_statement(statement)?;
    let Statement::CreateTable(create) = &parsed.statement else {
        return Err(StatementError::Internal(format!("a definition is no CREATE TABLE: {statement}")));
    };
    table_create::own_table(create, &context)
}

fn apply(schema: &mut Schema, change: &SchemaChange) -> Result<(), StatementError> {
    schema
        .apply(change)
        .map_err(|error| StatementError::Internal(format!("a system table cannot be: {error}")))
}
