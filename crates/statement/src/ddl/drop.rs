//! DROP KEYSPACE, TABLE and TYPE.

use cql::ast::{DropKeyspace, DropTable, DropType};
use model::schema::SchemaChange;

use super::mistake::invalid;
use super::names::{Action, check_content, check_keyspace_name};
use super::plan::{PlanContext, Planned, keyspace_event, keyspace_of, table_event, type_event};
use crate::StatementError;
use crate::schema_events::Change;

/// Plans DROP KEYSPACE.
pub(super) fn keyspace(
    statement: &DropKeyspace,
    context: &PlanContext<'_>,
) -> Result<Planned, StatementError> {
    let name = statement.name.as_str();
    check_content(name, Action::Drop, &format!("<keyspace {name}>"))?;
    check_keyspace_name(name)?;
    context.guardrails.drop_keyspace()?;
    let event = keyspace_event(Change::Dropped, name);
    if context.schema.keyspace(name).is_some() {
        return Ok(Planned::change(SchemaChange::DropKeyspace { name: name.to_owned() }, event));
    }
    if statement.if_exists {
        return Ok(Planned::nothing(event));
    }
    Err(invalid(format!("Keyspace '{name}' doesn't exist")))
}

/// Plans DROP TABLE.
pub(super) fn table(statement: &DropTable, context: &PlanContext<'_>) -> Result<Planned, StatementError> {
    let keyspace = keyspace_of(&statement.name, context)?;
    let name = statement.name.name.as_str();
    check_content(keyspace, Action::Drop, &format!("<table {keyspace}.{name}>"))?;
    check_keyspace_name(keyspace)?;
    context.guardrails.drop_truncate_table()?;
    let event = table_event(Change::Dropped, keyspace, name);
    if let Some(table) = context.schema.table(keyspace, name) {
        let change =
            SchemaChange::DropTable { keyspace: keyspace.to_owned(), name: name.to_owned(), id: table.id() };
        return Ok(Planned::change(change, event));
    }
    if statement.if_exists {
        return Ok(Planned::nothing(event));
    }
    Err(invalid(format!("Table '{keyspace}.{name}' doesn't exist")))
}

/// Plans DROP TYPE.
pub(super) fn user_type(statement: &DropType, context: &PlanContext<'_>) -> Result<Planned, StatementError> {
    let keyspace_name = keyspace_of(&statement.name, context)?;
    let name = statement.name.name.as_str();
    check_content(keyspace_name, Action::Drop, &format!("<all tables in {keyspace_name}>"))?;
    check_keyspace_name(keyspace_name)?;
    let event = type_event(Change::Dropped, keyspace_name, name);
    let keyspace = context.schema.keyspace(keyspace_name);
    let Some(keyspace) = keyspace.filter(|keyspace| keyspace.types.contains_key(name)) else {
        return if statement.if_exists {
            Ok(Planned::nothing(event))
        } else {
            Err(invalid(format!("Type '{keyspace_name}.{name}' doesn't exist")))
        };
    };
    let still_used = |by: &str, users: &[&str]| {
        Err(invalid(format!(
            "Cannot drop user type '{keyspace_name}.{name}' as it is still used by {by} {}",
            users.join(", ")
        )))
    };
    let functions: Vec<&str> = keyspace
        .functions
        .iter()
        .filter(|function| function.references_udt(keyspace_name, name))
        .map(|function| function.name.as_str())
        .chain(
            keyspace
                .aggregates
                .iter()
                .filter(|aggregate| aggregate.references_udt(keyspace_name, name))
                .map(|aggregate| aggregate.name.as_str()),
        )
        .collect();
    if !functions.is_empty() {
        let qualified: Vec<String> = functions.iter().map(|name| format!("{keyspace_name}.{name}")).collect();
        return still_used("functions", &qualified.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let types: Vec<&str> = keyspace
        .types
        .values()
        .filter(|other| other.name != name)
        .filter(|other| other.fields.iter().any(|(_, ty)| ty.references_udt(keyspace_name, name)))
        .map(|other| other.name.as_str())
        .collect();
    if !types.is_empty() {
        return still_used("user types", &types);
    }
    let tables: Vec<&str> = keyspace
        .tables
        .values()
        .filter(|table| table.columns().any(|column| column.ty.references_udt(keyspace_name, name)))
        .map(|table| table.name())
        .collect();
    if !tables.is_empty() {
        return still_used("tables", &tables);
    }
    let change = SchemaChange::DropType { keyspace: keyspace_name.to_owned(), name: name.to_owned() };
    Ok(Planned::change(change, event))
}
