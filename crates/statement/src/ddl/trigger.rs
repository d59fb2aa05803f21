//! CREATE and DROP TRIGGER: triggers are Java classes, so no class can be loaded and no table has one.
//!
//! Each mistake gets the answer of a node that can load classes. That is enough for `IF EXISTS` in a script.

use cql::ast::{CreateTrigger, DropTrigger, QualifiedName};

use super::mistake::invalid;
use super::names::{check_keyspace_name, is_local_system};
use super::plan::{PlanContext, Planned, existing_keyspace, keyspace_of, table_event};
use crate::StatementError;
use crate::schema_events::Change;

/// Refuses CREATE TRIGGER.
///
/// # Errors
/// [`StatementError::Invalid`] always: for the table, or for the class.
pub(super) fn create(
    statement: &CreateTrigger,
    context: &PlanContext<'_>,
) -> Result<Planned, StatementError> {
    let keyspace = table_keyspace(&statement.table, context)?;
    existing_keyspace(keyspace, context)?;
    let table = statement.table.name.as_str();
    if context.schema.table(keyspace, table).is_none() {
        return Err(invalid(format!("Table '{table}' doesn't exist")));
    }
    Err(invalid(format!("Trigger class '{}' couldn't be loaded", statement.class)))
}

/// Plans DROP TRIGGER, which has nothing to drop.
///
/// # Errors
/// [`StatementError::Invalid`] without IF EXISTS.
pub(super) fn drop(statement: &DropTrigger, context: &PlanContext<'_>) -> Result<Planned, StatementError> {
    let keyspace = table_keyspace(&statement.table, context)?;
    let table = statement.table.name.as_str();
    if statement.if_exists {
        return Ok(Planned::nothing(table_event(Change::Updated, keyspace, table)));
    }
    Err(invalid(format!("Trigger '{}' on '{keyspace}.{table}' doesn't exist", statement.name.as_str())))
}

fn table_keyspace<'a>(
    table: &'a QualifiedName,
    context: &PlanContext<'a>,
) -> Result<&'a str, StatementError> {
    let keyspace = keyspace_of(table, context)?;
    if is_local_system(keyspace) {
        return Err(invalid(format!("System keyspace '{keyspace}' is not user-modifiable")));
    }
    check_keyspace_name(keyspace)?;
    Ok(keyspace)
}
