//! System tables: the node and its schema as rows, with the columns of Cassandra 5.0.6.
//!
//! Definitions are CQL texts (`definitions/*.cql`) that go through the same planner as a user's tables, so
//! name resolution, metadata and SELECT see ordinary tables. The tables of `system`, `system_schema`,
//! `system_views` and `system_virtual_schema` are virtual: their rows are made when they are read. Those of
//! `system_auth`, `system_distributed` and `system_traces` are stored tables that a node creates at its first
//! start (`first_changes`).
//! Invariant: a read sees one snapshot of the schema. Statements use the tables through `VirtualTables`,
//! `describe` uses the definitions.

mod estimates;
mod large;
mod node;
mod read;
mod rows;
mod runtime_info;
mod schema_tables;
mod scylla;
mod views;

use std::pin::Pin;
use std::rc::Rc;

use cql::ast::Statement;
use model::schema::{Keyspace, KeyspaceOptions, SchemaChange, TableDefinition};
use model::{Schema, Table};

use storage::{ReadCommand, RowConsumer};

use crate::ddl::plan::PlanContext;
use crate::ddl::table_create;
use crate::{Engine, QueryError, VirtualTables};

pub use node::NodeFacts;
pub(crate) use node::ring_tokens;
pub(crate) use read::World;
pub use views::ClientRow;
use views::Views;

const SYSTEM: &str = include_str!("definitions/system.cql");
const SYSTEM_SCHEMA: &str = include_str!("definitions/system_schema.cql");
const SYSTEM_VIEWS: &str = include_str!("definitions/system_views.cql");
const SYSTEM_VIRTUAL_SCHEMA: &str = include_str!("definitions/system_virtual_schema.cql");
const SYSTEM_AUTH: &str = include_str!("definitions/system_auth.cql");
const SYSTEM_DISTRIBUTED: &str = include_str!("definitions/system_distributed.cql");
const SYSTEM_TRACES: &str = include_str!("definitions/system_traces.cql");

/// The keyspaces of virtual tables, with their definitions.
pub(crate) const LOCAL: [(&str, &str); 4] = [
    ("system", SYSTEM),
    ("system_schema", SYSTEM_SCHEMA),
    ("system_views", SYSTEM_VIEWS),
    ("system_virtual_schema", SYSTEM_VIRTUAL_SCHEMA),
];

/// The stored system keyspaces with their replication factors and definitions.
pub(crate) const STORED: [(&str, &str, &str); 3] = [
    ("system_auth", "1", SYSTEM_AUTH),
    ("system_distributed", "3", SYSTEM_DISTRIBUTED),
    ("system_traces", "2", SYSTEM_TRACES),
];

/// Whether a keyspace is shown as virtual (in `system_virtual_schema` instead of `system_schema`), as in
/// Cassandra.
pub(crate) fn is_virtual(keyspace: &str) -> bool {
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
    pub fn new() -> Result<Self, QueryError> {
        let mut catalog = Self::empty()?;
        for (_, text) in LOCAL {
            statements(text).try_for_each(|statement| catalog.add(statement))?;
        }
        Ok(catalog)
    }

    /// As [`Catalog::new`]; other tasks run after each table, because a node starts while it has clients.
    async fn new_in_steps() -> Result<Self, QueryError> {
        let mut catalog = Self::empty()?;
        for (_, text) in LOCAL {
            for statement in statements(text) {
                catalog.add(statement)?;
                reactor::maybe_yield().await;
            }
        }
        Ok(catalog)
    }

    /// A catalog with the keyspaces, without tables.
    fn empty() -> Result<Self, QueryError> {
        let mut schema = Schema::empty();
        for (keyspace, _) in LOCAL {
            let replication = [("class".to_owned(), "org.apache.cassandra.locator.LocalStrategy".to_owned())];
            let options =
                KeyspaceOptions { replication: replication.into(), durable_writes: true, tablets: None };
            apply(&mut schema, &SchemaChange::CreateKeyspace { name: keyspace.to_owned(), options })?;
        }
        Ok(Self { schema })
    }

    fn add(&mut self, statement: &str) -> Result<(), QueryError> {
        apply(&mut self.schema, &SchemaChange::CreateTable(Box::new(definition(statement, 1)?)))
    }

    /// The catalog of the current shard.
    ///
    /// # Errors
    /// [`QueryError::NotReady`] before the shard's engine has its tables.
    pub(crate) fn here() -> Result<Rc<Self>, QueryError> {
        reactor::local::<Self>()
            .ok_or_else(|| QueryError::NotReady("the node has not started yet".to_owned()))
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

/// The engine's access to the virtual tables of a shard.
#[derive(Debug)]
pub struct SystemTables {
    catalog: Rc<Catalog>,
    generation: u32,
}

impl SystemTables {
    /// The virtual tables of this shard, which DESCRIBE also finds through the shard from now on. The current
    /// time is shown as the start of the node.
    ///
    /// # Errors
    /// As [`Catalog::new`].
    pub async fn new() -> Result<Self, QueryError> {
        let catalog = Rc::new(Catalog::new_in_steps().await?);
        reactor::set_local(Rc::clone(&catalog));
        let seconds = reactor::wall_clock_us() / 1_000_000;
        Ok(Self { catalog, generation: u32::try_from(seconds).unwrap_or(0) })
    }
}

impl VirtualTables for SystemTables {
    fn has_keyspace(&self, keyspace: &str) -> bool {
        self.catalog.keyspace(keyspace).is_some()
    }

    fn table(&self, keyspace: &str, name: &str) -> Option<Rc<Table>> {
        self.catalog.table(keyspace, name)
    }

    fn read<'a>(
        &'a self,
        engine: &'a Engine,
        command: &'a ReadCommand,
        consumer: &'a mut dyn RowConsumer,
    ) -> Pin<Box<dyn Future<Output = Result<(), QueryError>> + 'a>> {
        Box::pin(async move {
            let of_compactions =
                command.table.keyspace() == "system" && command.table.name() == "compaction_history";
            let world = World {
                schema: engine.storage().schema(),
                node: NodeFacts::of(engine.config(), self.generation),
                nodes: cluster::View::here().nodes(),
                compactions: if of_compactions {
                    engine.storage().compaction_history_of_node().await?
                } else {
                    Vec::new()
                },
                views: match (command.table.keyspace(), command.table.name()) {
                    ("system_views", name) => Views::load(engine, name).await?,
                    ("system", name) if large::is_large_data(name) => Views::large_data(engine).await?,
                    ("system", name @ ("config" | "snapshots" | "clients" | "tablets" | "runtime_info")) => {
                        Views::of_system(engine, name).await?
                    }
                    ("system", name) if estimates::is_estimates(name) => Views::estimates(engine).await?,
                    _ => Views::default(),
                },
            };
            self.catalog.read_world(&world, command, consumer).await;
            Ok(())
        })
    }
}

/// The changes that add missing keyspaces and tables of the stored system tables to a schema. They are logged
/// at a node's first start, and when a later version brings a new table.
///
/// # Errors
/// As [`Catalog::new`].
pub fn first_changes(schema: &Schema, shards: usize) -> Result<Vec<SchemaChange>, QueryError> {
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

fn definition(statement: &str, shards: usize) -> Result<TableDefinition, QueryError> {
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
        return Err(QueryError::Internal(format!("a definition is no CREATE TABLE: {statement}")));
    };
    table_create::own_table(create, &context)
}

fn apply(schema: &mut Schema, change: &SchemaChange) -> Result<(), QueryError> {
    schema.apply(change).map_err(|error| QueryError::Internal(format!("a system table cannot be: {error}")))
}

#[cfg(test)]
mod tests;
