//! Turns a schema statement into at most one change of the schema, or an error.
//!
//! Pure: it depends only on the schema, the time and random numbers it is given, and has no other effect.
//! `agreement` runs it where changes are made one at a time, and logs the result. Messages and their order
//! are Cassandra 5's (`org.apache.cassandra.cql3.statements.schema`).

use cql::ast::{AlterTableChange, QualifiedName, Statement, TypeName};
use model::schema::{Keyspace, SchemaChange};
use model::{Schema, Table};

use super::mistake::{invalid, unsupported};
use super::properties::Properties;
use super::types::RawType;
use super::{aggregate, drop, function, keyspace, table_alter, table_create, table_like, trigger, user_type};
use crate::StatementError;
use crate::guardrails::Guardrails;
use crate::schema_events::{Change, SchemaEvent, Target};

/// The inputs of planning a change besides the statement.
#[derive(Debug, Clone, Copy)]
pub struct PlanContext<'a> {
    /// The schema that the change applies to.
    pub schema: &'a Schema,
    /// The session's keyspace.
    pub keyspace: Option<&'a str>,
    /// Existing data centers, with their numbers of nodes.
    pub data_centers: &'a [(String, usize)],
    /// Shards of this node: a table has a tablet for each at least.
    pub shards: usize,
    /// Microseconds since the epoch.
    pub now_us: i64,
    /// 128 bits of chance, for ids.
    pub chance: [u64; 2],
    /// Whether functions may be made.
    pub user_functions: bool,
    /// Limits that operators set, with warnings and refusals.
    pub guardrails: &'a Guardrails,
}

impl<'a> PlanContext<'a> {
    /// Keyspaces of users, without the node's and the cluster's own.
    pub(super) fn user_keyspaces(&self) -> impl Iterator<Item = &'a Keyspace> {
        self.schema.keyspaces().filter(|keyspace| !super::is_system(&keyspace.name))
    }
}

/// The result of planning a statement.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// The change; `None` if the schema is already as the statement wants it.
    pub change: Option<SchemaChange>,
    /// The event for clients if there is a change.
    pub event: SchemaEvent,
}

/// A planned change, or why it cannot be.
pub(super) type Outcome = Result<Planned, StatementError>;

impl Planned {
    /// A plan without a change.
    pub(super) fn nothing(event: SchemaEvent) -> Self {
        Self { change: None, event }
    }

    /// One change.
    pub(super) fn change(change: SchemaChange, event: SchemaEvent) -> Self {
        Self { change: Some(change), event }
    }
}

/// Plans `statement` and appends warnings for the client, also if the statement is refused.
///
/// # Errors
/// The statement's error, in Cassandra's words.
pub fn plan(
    statement: &Statement,
    context: &PlanContext<'_>,
    warnings: &mut Vec<String>,
) -> Result<Planned, StatementError> {
    match statement {
        Statement::CreateKeyspace(create) => keyspace::create(create, context, warnings),
        Statement::AlterKeyspace(alter) => keyspace::alter(alter, context, warnings),
        Statement::DropKeyspace(statement) => drop::keyspace(statement, context),
        Statement::CreateTable(create) => table_create::create(create, context, warnings),
        Statement::AlterTable(alter) => table_alter::alter(alter, context, warnings),
        Statement::DropTable(statement) => drop::table(statement, context),
        Statement::CreateType(create) => user_type::create(create, context, warnings),
        Statement::AlterType(alter) => user_type::alter(alter, context, warnings),
        Statement::DropType(statement) => drop::user_type(statement, context),
        Statement::CreateTableLike(create) => table_like::create(create, context, warnings),
        Statement::CreateIndex(_) | Statement::DropIndex(_) => Err(unsupported("Secondary indexes are")),
        Statement::CreateMaterializedView(_)
        | Statement::AlterMaterializedView(_)
        | Statement::DropMaterializedView(_) => Err(unsupported("Materialized views are")),
        Statement::CreateFunction(create) => function::create(create, context),
        Statement::DropFunction(statement) => function::drop(statement, context),
        Statement::CreateAggregate(create) => aggregate::create(create, context),
        Statement::DropAggregate(statement) => aggregate::drop(statement, context),
        Statement::CreateTrigger(create) => trigger::create(create, context),
        Statement::DropTrigger(statement) => trigger::drop(statement, context),
        Statement::CreateServiceLevel(_)
        | Statement::AlterServiceLevel(_)
        | Statement::DropServiceLevel(_)
        | Statement::AttachServiceLevel(_)
        | Statement::DetachServiceLevel(_)
        | Statement::ListServiceLevel(_) => Err(unsupported("Service levels are")),
        // Rows are no schema; roles were refused before (`ddl::roles`).
        _ => Err(StatementError::Internal("a statement that changes no schema was to be planned".to_owned())),
    }
}

/// Checks a schema statement independent of the schema; preparing it fails with the same errors.
///
/// # Errors
/// As [`plan`].
pub fn check(statement: &Statement, session: Option<&str>) -> Result<(), StatementError> {
    let known = |ty: &TypeName| RawType::new(ty).map(drop);
    let name = match statement {
        Statement::CreateTable(create) => {
            table_create::check(create)?;
            &create.name
        }
        Statement::AlterTable(alter) => {
            match &alter.change {
                AlterTableChange::Add { columns, .. } => {
                    columns.iter().try_for_each(|column| known(&column.type_name))?;
                }
                AlterTableChange::Options(properties) => drop(Properties::new(properties)?),
                _ => {}
            }
            &alter.name
        }
        Statement::CreateType(create) => {
            create.fields.iter().try_for_each(|(_, ty)| known(ty))?;
            &create.name
        }
        Statement::DropTable(statement) => &statement.name,
        Statement::AlterType(alter) => &alter.name,
        Statement::DropType(statement) => &statement.name,
        Statement::CreateTableLike(create) => &create.name,
        Statement::CreateFunction(create) => &create.name,
        Statement::DropFunction(statement) => &statement.name,
        Statement::CreateAggregate(create) => &create.name,
        Statement::DropAggregate(statement) => &statement.name,
        Statement::CreateTrigger(create) => &create.table,
        Statement::DropTrigger(statement) => &statement.table,
        Statement::CreateKeyspace(create) => return Properties::new(&create.properties).map(drop),
        Statement::AlterKeyspace(alter) => return Properties::new(&alter.properties).map(drop),
        _ => return Ok(()),
    };
    keyspace_or(name, session).map(drop)
}

/// The keyspace a name means: its own, or the session's.
pub(super) fn keyspace_of<'a>(
    name: &'a QualifiedName,
    context: &PlanContext<'a>,
) -> Result<&'a str, StatementError> {
    keyspace_or(name, context.keyspace)
}

fn keyspace_or<'a>(name: &'a QualifiedName, session: Option<&'a str>) -> Result<&'a str, StatementError> {
    match &name.keyspace {
        Some(keyspace) => Ok(keyspace.as_str()),
        None => session.ok_or_else(|| {
            invalid(
                "No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename",
            )
        }),
    }
}

/// The keyspace something is to be made in.
pub(super) fn existing_keyspace<'a>(
    name: &str,
    context: &PlanContext<'a>,
) -> Result<&'a Keyspace, StatementError> {
    context.schema.keyspace(name).ok_or_else(|| invalid(format!("Keyspace '{name}' doesn't exist")))
}

/// The event for a table.
pub(super) fn table_event(change: Change, keyspace: &str, name: &str) -> SchemaEvent {
    SchemaEvent {
        change,
        target: Target::Table,
        keyspace: keyspace.to_owned(),
        name: name.to_owned(),
        arguments: Vec::new(),
    }
}

/// The event for a user type.
pub(super) fn type_event(change: Change, keyspace: &str, name: &str) -> SchemaEvent {
    SchemaEvent {
        change,
        target: Target::Type,
        keyspace: keyspace.to_owned(),
        name: name.to_owned(),
        arguments: Vec::new(),
    }
}

/// The event for a keyspace.
pub(super) fn keyspace_event(change: Change, keyspace: &str) -> SchemaEvent {
    SchemaEvent {
        change,
        target: Target::Keyspace,
        keyspace: keyspace.to_owned(),
        name: String::new(),
        arguments: Vec::new(),
    }
}

/// A table's name in messages, quoted if necessary.
pub fn table_text(table: &Table) -> String {
    qualified(table.keyspace(), table.name())
}

/// `keyspace.name`, each quoted if necessary.
pub fn qualified(keyspace: &str, name: &str) -> String {
    format!("{}.{}", quote(keyspace), quote(name))
}

/// A name as CQL writes it.
pub fn quote(name: &str) -> std::borrow::Cow<'_, str> {
    model::type_parser::quote_identifier(name)
}
