//! CREATE and ALTER TYPE.
//!
//! A table's columns hold their user types by value, so altering a type makes new definitions of the tables
//! that use it, all in the same schema change.

use cql::ast::{AlterType, AlterTypeChange, CreateType, Ident, TypeName};
use model::schema::{Keyspace, SchemaChange, TableDefinition, TypeDefinition};
use model::{CqlType, Table};

use super::mistake::invalid;
use super::names::{Action, check_content, check_keyspace_name};
use super::plan::{PlanContext, Planned, existing_keyspace, keyspace_of, quote, table_text, type_event};
use super::types::RawType;
use crate::StatementError;
use crate::schema_events::Change;

/// Most fields a user type may have: a field's position is a 16-bit number with a sign.
const FIELDS_MAX: usize = 4096;

/// Plans CREATE TYPE.
pub(super) fn create(
    statement: &CreateType,
    context: &PlanContext<'_>,
    warnings: &mut Vec<String>,
) -> Result<Planned, StatementError> {
    let keyspace_name = keyspace_of(&statement.name, context)?;
    let name = statement.name.name.as_str();
    check_content(keyspace_name, Action::Create, &format!("<all tables in {keyspace_name}>"))?;
    check_keyspace_name(keyspace_name)?;
    let keyspace = existing_keyspace(keyspace_name, context)?;
    let event = type_event(Change::Created, keyspace_name, name);
    if keyspace.types.contains_key(name) {
        return if statement.if_not_exists {
            Ok(Planned::nothing(event))
        } else {
            Err(invalid(format!("A user type with name '{name}' already exists")))
        };
    }
    context.guardrails.fields(name, statement.fields.len(), warnings)?;
    for (index, (field, _)) in statement.fields.iter().enumerate() {
        if statement.fields[..index].iter().any(|(known, _)| known == field) {
            return Err(invalid(format!("Duplicate field name '{}' in type '{name}'", field.name)));
        }
    }
    if statement.fields.len() > FIELDS_MAX {
        return Err(too_many_fields());
    }
    let mut raws = Vec::with_capacity(statement.fields.len());
    for (_, ty) in &statement.fields {
        raws.push(raw_field(ty)?);
    }
    let mut fields = Vec::with_capacity(raws.len());
    for ((field, _), raw) in statement.fields.iter().zip(&raws) {
        fields.push((field.name.clone(), raw.resolve(keyspace_name, &keyspace.types)?.ty));
    }
    for (field, ty) in &fields {
        context.guardrails.vectors(&format!("Field {field}"), ty, warnings)?;
    }
    let definition = TypeDefinition { name: name.to_owned(), fields };
    let change = SchemaChange::CreateType { keyspace: keyspace_name.to_owned(), definition };
    Ok(Planned::change(change, event))
}

/// Plans ALTER TYPE.
pub(super) fn alter(
    statement: &AlterType,
    context: &PlanContext<'_>,
    warnings: &mut Vec<String>,
) -> Result<Planned, StatementError> {
    let keyspace_name = keyspace_of(&statement.name, context)?;
    let name = statement.name.name.as_str();
    check_content(keyspace_name, Action::Alter, &format!("<all tables in {keyspace_name}>"))?;
    check_keyspace_name(keyspace_name)?;
    let event = type_event(Change::Updated, keyspace_name, name);
    let keyspace = context.schema.keyspace(keyspace_name);
    let Some((keyspace, before)) =
        keyspace.and_then(|keyspace| keyspace.types.get(name).map(|before| (keyspace, before)))
    else {
        return if statement.if_exists {
            Ok(Planned::nothing(event))
        } else {
            Err(invalid(format!("Type {keyspace_name}.{name} doesn't exist")))
        };
    };
    let after = match &statement.change {
        AlterTypeChange::FieldType { .. } => {
            return Err(invalid("Altering field types is no longer supported"));
        }
        AlterTypeChange::Add { if_not_exists, field, type_name } => {
            add_field(keyspace, before, field, type_name, *if_not_exists)?
        }
        AlterTypeChange::Rename { if_exists, fields } => rename_fields(keyspace, before, fields, *if_exists)?,
    };
    if after == *before {
        return Ok(Planned::nothing(event));
    }
    if after.fields.len() > before.fields.len() {
        context.guardrails.fields(name, after.fields.len(), warnings)?;
        for (field, ty) in after.fields.iter().skip(before.fields.len()) {
            context.guardrails.vectors(&format!("Field {field}"), ty, warnings)?;
        }
    }
    let tables = tables_with(keyspace, &after);
    for table in &tables {
        for column in &table.columns {
            super::table_create::check_nesting(&column.ty, &format!(" for column {}", column.name))?;
        }
    }
    let change = SchemaChange::AlterType {
        keyspace: keyspace_name.to_owned(),
        name: name.to_owned(),
        definition: after,
        tables,
    };
    Ok(Planned::change(change, event))
}

fn raw_field(ty: &TypeName) -> Result<RawType, StatementError> {
    let raw = RawType::new(ty)?;
    if raw.is_counter() {
        return Err(invalid("A user type cannot contain counters"));
    }
    if raw.is_open_user_type() {
        return Err(invalid("A user type cannot contain non-frozen UDTs"));
    }
    Ok(raw)
}

fn add_field(
    keyspace: &Keyspace,
    before: &TypeDefinition,
    field: &Ident,
    ty: &TypeName,
    if_not_exists: bool,
) -> Result<TypeDefinition, StatementError> {
    let raw = raw_field(ty)?;
    let field = field.as_str();
    let type_text = type_text(keyspace, before);
    if before.fields.iter().any(|(known, _)| known == field) {
        return if if_not_exists {
            Ok(before.clone())
        } else {
            Err(invalid(format!(
                "Cannot add field {field} to type {type_text}: a field with name {field} already exists"
            )))
        };
    }
    let resolved = raw.resolve(&keyspace.name, &keyspace.types)?.ty;
    let shown = raw.qualified(&keyspace.name);
    if resolved.references_udt(&keyspace.name, &before.name) {
        return Err(invalid(format!(
            "Cannot add new field {field} of type {shown} to user type {type_text} as it would create a circular \
             reference"
        )));
    }
    let in_partition_key = |table: &&std::rc::Rc<Table>| {
        table.partition_key().iter().any(|column| column.ty.references_udt(&keyspace.name, &before.name))
    };
    let users: Vec<String> =
        keyspace.tables.values().filter(in_partition_key).map(|table| table_text(table)).collect();
    if !users.is_empty() {
        return Err(invalid(format!(
            "Cannot add new field {field} of type {shown} to user type {type_text} as the type is being used in \
             partition key by the following tables: {}",
            users.join(", ")
        )));
    }
    if before.fields.len() >= FIELDS_MAX {
        return Err(too_many_fields());
    }
    let mut after = before.clone();
    after.fields.push((field.to_owned(), resolved));
    Ok(after)
}

fn rename_fields(
    keyspace: &Keyspace,
    before: &TypeDefinition,
    renames: &[(Ident, Ident)],
    if_exists: bool,
) -> Result<TypeDefinition, StatementError> {
    let mut after = before.clone();
    for (from, to) in renames {
        match before.fields.iter().position(|(known, _)| known == from.as_str()) {
            Some(position) => after.fields[position].0.clone_from(&to.name),
            None if if_exists => {}
            None => {
                return Err(invalid(format!(
                    "Unkown field {} in user type {}",
                    from.name,
                    type_text(keyspace, before)
                )));
            }
        }
    }
    for (index, (field, _)) in after.fields.iter().enumerate() {
        if after.fields[..index].iter().any(|(known, _)| known == field) {
            return Err(invalid(format!("Duplicate field name {field} in type {}", keyspace.name)));
        }
    }
    Ok(after)
}

/// The tables that use the type, with the new one in their columns.
fn tables_with(keyspace: &Keyspace, after: &TypeDefinition) -> Vec<TableDefinition> {
    let uses = |ty: &CqlType| ty.references_udt(&keyspace.name, &after.name);
    let mut tables = Vec::new();
    for table in keyspace.tables.values() {
        if !table.columns().any(|column| uses(&column.ty)) {
            continue;
        }
        let mut definition = table.definition().clone();
        for column in &mut definition.columns {
            column.ty = model::schema::with_type(&column.ty, &keyspace.name, after);
        }
        definition.revision += 1;
        tables.push(definition);
    }
    tables
}

fn type_text(keyspace: &Keyspace, definition: &TypeDefinition) -> String {
    format!("{}.{}", quote(&keyspace.name), quote(&definition.name))
}

fn too_many_fields() -> StatementError {
    invalid(format!("A user type cannot have more than {FIELDS_MAX} fields"))
}
