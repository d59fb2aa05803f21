//! CREATE TABLE LIKE: a new table with the columns and options of another (Cassandra 5.1's statement).
//!
//! Dropped columns stay behind: the new table has no files that could hold their cells. User types must be in
//! the new table's keyspace too, and there have the same fields.

use std::collections::BTreeMap;

use cql::ast::{CopyOption, CreateTableLike};
use model::schema::{Keyspace, SchemaChange, TableDefinition};
use model::types::UserType;
use model::{Column, ColumnId, CqlType};

use super::mistake::{config, invalid, unsupported};
use super::names::{Action, check_content, check_keyspace_name, check_table_name};
use super::options::{self, Draft, extension};
use super::plan::{PlanContext, Planned, existing_keyspace, keyspace_of, table_event};
use super::properties::Properties;
use super::table_create::{already_there, random_id};
use crate::StatementError;
use crate::schema_events::Change;

/// Plans CREATE TABLE LIKE.
pub(super) fn create(
    statement: &CreateTableLike,
    context: &PlanContext<'_>,
    warnings: &mut Vec<String>,
) -> Result<Planned, StatementError> {
    let keyspace_name = keyspace_of(&statement.name, context)?;
    let source_keyspace = keyspace_of(&statement.source, context)?;
    let (name, source_name) = (statement.name.name.as_str(), statement.source.name.as_str());
    check_content(keyspace_name, Action::Create, &format!("<all tables in {keyspace_name}>"))?;
    check_keyspace_name(keyspace_name)?;
    let mut properties = Vec::new();
    for option in &statement.options {
        match option {
            CopyOption::Property(property) => properties.push(property),
            CopyOption::Include(what) => match what.name.to_lowercase().as_str() {
                "indexes" | "all" => return Err(unsupported("Secondary indexes are")),
                _ => return Err(invalid(format!("Unknown option '{}' of CREATE TABLE LIKE", what.name))),
            },
        }
    }
    let mut properties = Properties::new(properties)?;
    let mut names = options::NAMES.to_vec();
    names.push("id");
    properties.check_names(&names)?;
    if properties.has("id") {
        return Err(config("Cannot alter table id."));
    }
    let source = context.schema.keyspace(source_keyspace);
    let source = source
        .ok_or_else(|| invalid(format!("Source Keyspace '{source_keyspace}' doesn't exist")))?
        .tables
        .get(source_name)
        // So spelt by Cassandra.
        .ok_or_else(|| invalid(format!("Souce Table '{source_keyspace}.{source_name}' doesn't exist")))?;
    let keyspace = existing_keyspace(keyspace_name, context)?;
    let event = table_event(Change::Created, keyspace_name, name);
    if keyspace.tables.contains_key(name) {
        return already_there(keyspace_name, name, statement.if_not_exists, event);
    }
    check_table_name(keyspace_name, name)?;
    let guardrails = context.guardrails;
    for ignored in guardrails.properties(&properties.names(), warnings)? {
        properties.remove(&ignored);
    }
    guardrails.columns(name, source.columns().count(), warnings)?;
    let tables: usize = context.user_keyspaces().map(|keyspace| keyspace.tables.len()).sum();
    guardrails.table(name, tables + 1, warnings)?;
    let table_options = Draft::alter(&properties, source.options())?.finish()?;
    let tablets_log2 =
        extension::tablets(&table_options, keyspace.options.tablets.as_ref(), context.shards).log2();
    let table = TableDefinition {
        id: random_id(context.chance),
        keyspace: keyspace_name.to_owned(),
        name: name.to_owned(),
        columns: columns(&source.definition().columns, source_keyspace, keyspace)?,
        dropped: BTreeMap::new(),
        options: table_options,
        next_column_id: u16::try_from(source.definition().columns.len())
            .expect("a table's columns are numbered"),
        tablets_log2,
        revision: 0,
    };
    guardrails.given_options(&table.options, warnings)?;
    guardrails.options(&table.options)?;
    Ok(Planned::change(SchemaChange::CreateTable(Box::new(table)), event))
}

/// The columns with ids from zero, and the user types of the new keyspace in them.
fn columns(source: &[Column], from: &str, keyspace: &Keyspace) -> Result<Vec<Column>, StatementError> {
    let mut missing = Vec::new();
    let mut different = Vec::new();
    let columns = source
        .iter()
        .enumerate()
        .map(|(id, column)| Column {
            id: ColumnId(u16::try_from(id).expect("a table's columns are numbered")),
            ty: moved(&column.ty, keyspace, &mut missing, &mut different),
            ..column.clone()
        })
        .collect();
    if !missing.is_empty() {
        return Err(invalid(format!(
            "UDTs {} do not exist in target keyspace '{}'.",
            missing.join(", "),
            keyspace.name
        )));
    }
    if !different.is_empty() {
        return Err(invalid(format!(
            "Target keyspace '{}' has same UDT name '{}' as source keyspace '{from}' but with different structure.",
            keyspace.name,
            different.join(", ")
        )));
    }
    Ok(columns)
}

/// A type as it is in the new keyspace; user types that it lacks, or that differ there, are collected.
fn moved(
    ty: &CqlType,
    keyspace: &Keyspace,
    missing: &mut Vec<String>,
    different: &mut Vec<String>,
) -> CqlType {
    let mut inner = |ty: &CqlType| moved(ty, keyspace, missing, different);
    match ty {
        CqlType::List { element, frozen } => {
            CqlType::List { element: Box::new(inner(element)), frozen: *frozen }
        }
        CqlType::Set { element, frozen } => {
            CqlType::Set { element: Box::new(inner(element)), frozen: *frozen }
        }
        CqlType::Map { key, value, frozen } => {
            CqlType::Map { key: Box::new(inner(key)), value: Box::new(inner(value)), frozen: *frozen }
        }
        CqlType::Vector { element, dimension } => {
            CqlType::Vector { element: Box::new(inner(element)), dimension: *dimension }
        }
        CqlType::Tuple(types) => CqlType::Tuple(types.iter().map(inner).collect()),
        CqlType::Udt(udt) => {
            let fields: Vec<(String, CqlType)> =
                udt.fields.iter().map(|(name, ty)| (name.clone(), inner(ty))).collect();
            match keyspace.types.get(&udt.name) {
                None if !missing.contains(&udt.name) => missing.push(udt.name.clone()),
                Some(there) => {
                    let freeze = |fields: &[(String, CqlType)]| -> Vec<(String, CqlType)> {
                        fields.iter().map(|(name, ty)| (name.clone(), ty.clone().freeze())).collect()
                    };
                    if freeze(&there.fields) != freeze(&fields) && !different.contains(&udt.name) {
                        different.push(udt.name.clone());
                    }
                }
                None => {}
            }
            CqlType::Udt(Box::new(UserType {
                keyspace: keyspace.name.clone(),
                name: udt.name.clone(),
                fields,
                frozen: udt.frozen,
            }))
        }
        scalar => scalar.clone(),
    }
}
