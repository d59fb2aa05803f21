//! CREATE TABLE.
//!
//! Three steps in Cassandra's order, because the order decides which of two mistakes is reported: the
//! statement by itself (`Shape`), existing tables, and the meaning of columns and options (`build`).

use std::collections::{BTreeMap, BTreeSet};

use cql::ast::{ColumnMask, CreateTable, Direction, Ident, QualifiedName, TableElement, TableOption};
use model::schema::{SchemaChange, TableDefinition};
use model::tablet::TabletMap;
use model::{Column, ColumnId, ColumnKind, CqlType, Schema, TableId};
use uuid::Uuid;

use super::compact;
use super::mistake::{config, invalid};
use super::names::{Action, check_content, check_keyspace_name, check_table_name};
use super::options::{self, Draft, extension};
use super::plan::{PlanContext, Planned, existing_keyspace, keyspace_of, table_event};
use super::properties::Properties;
use super::row_expiry;
use super::types::{RawType, ResolvedType, UserTypes};
use crate::StatementError;
use crate::schema_events::{Change, SchemaEvent};

/// Most columns a table may have.
pub(super) const COLUMNS_MAX: usize = 8192;

/// Plans CREATE TABLE.
pub(super) fn create(
    statement: &CreateTable,
    context: &PlanContext<'_>,
    warnings: &mut Vec<String>,
) -> Result<Planned, StatementError> {
    let keyspace_name = keyspace_of(&statement.name, context)?;
    let name = statement.name.name.as_str();
    let mut shape = Shape::new(statement)?;
    check_content(keyspace_name, Action::Create, &format!("<all tables in {keyspace_name}>"))?;
    let guardrails = context.guardrails;
    for ignored in guardrails.properties(&shape.properties.names(), warnings)? {
        shape.properties.remove(&ignored);
    }
    guardrails.columns(name, shape.columns.len(), warnings)?;
    let tables: usize = context.user_keyspaces().map(|keyspace| keyspace.tables.len()).sum();
    guardrails.table(name, tables + 1, warnings)?;
    if shape.compact {
        guardrails.compact_table()?;
    }
    let draft = Draft::create(&shape.properties)?;
    check_keyspace_name(keyspace_name)?;
    let keyspace = existing_keyspace(keyspace_name, context)?;
    let event = table_event(Change::Created, keyspace_name, name);
    if keyspace.tables.contains_key(name) {
        return already_there(keyspace_name, name, statement.if_not_exists, event);
    }
    let mut table = build(shape, draft, keyspace_name, name, &keyspace.types, context)?;
    check_table_name(keyspace_name, name)?;
    check_id(&table, context.schema)?;
    table.tablets_log2 =
        extension::tablets(&table.options, keyspace.options.tablets.as_ref(), context.shards).log2();
    guardrails.given_options(&table.options, warnings)?;
    for column in &table.columns {
        guardrails.vectors(&format!("Column {}", column.name), &column.ty, warnings)?;
    }
    guardrails.options(&table.options)?;
    Ok(Planned::change(SchemaChange::CreateTable(Box::new(table)), event))
}

/// Checks the statement by itself, independent of the schema.
pub(super) fn check(statement: &CreateTable) -> Result<(), StatementError> {
    Shape::new(statement).map(drop)
}

/// The definition for a CREATE TABLE of the node itself, for tables that clients may not create.
pub(crate) fn own_table(
    statement: &CreateTable,
    context: &PlanContext<'_>,
) -> Result<TableDefinition, StatementError> {
    let keyspace = keyspace_of(&statement.name, context)?;
    let shape = Shape::new(statement)?;
    let draft = Draft::create(&shape.properties)?;
    let mut table = build(shape, draft, keyspace, statement.name.name.as_str(), &UserTypes::new(), context)?;
    table.tablets_log2 = TabletMap::for_shards(context.shards).log2();
    Ok(table)
}

/// The contents of a CREATE TABLE, before types are looked up.
struct Shape<'a> {
    columns: BTreeMap<&'a str, RawColumn<'a>>,
    order: Vec<&'a str>,
    partition: Vec<Ident>,
    clustering: Vec<Ident>,
    directions: Vec<(&'a str, Direction)>,
    properties: Properties,
    compact: bool,
}

struct RawColumn<'a> {
    raw: RawType,
    is_static: bool,
    is_row_expiry: bool,
    mask: Option<&'a ColumnMask>,
}

impl<'a> Shape<'a> {
    fn new(statement: &'a CreateTable) -> Result<Self, StatementError> {
        let full_name = name_as_written(&statement.name);
        let mut columns = BTreeMap::new();
        let mut order = Vec::new();
        let mut key = None;
        for element in &statement.elements {
            let new_key = match element {
                TableElement::Column(column) => {
                    let name = column.name.as_str();
                    let raw = RawColumn {
                        raw: RawType::new(&column.type_name)?,
                        is_static: column.is_static,
                        is_row_expiry: column.is_row_expiry,
                        mask: column.mask.as_ref(),
                    };
                    if columns.insert(name, raw).is_some() {
                        return Err(invalid(format!(
                            "Duplicate column '{name}' declaration for table '{full_name}'"
                        )));
                    }
                    order.push(name);
                    column.is_primary_key.then(|| (vec![column.name.clone()], Vec::new()))
                }
                TableElement::PrimaryKey(key) => Some((key.partition.clone(), key.clustering.clone())),
            };
            if new_key.is_some() && key.is_some() {
                return Err(invalid(format!(
                    "Multiple PRIMARY KEY specified for table '{full_name}' (exactly one required)"
                )));
            }
            key = key.or(new_key);
        }
        let (properties, directions, compact) = read_options(statement, &full_name)?;
        let Some((partition, clustering)) = key else {
            return Err(invalid(format!(
                "No PRIMARY KEY specifed for table '{full_name}' (exactly one required)"
            )));
        };
        Ok(Self { columns, order, partition, clustering, directions, properties, compact })
    }
}

type Options<'a> = (Properties, Vec<(&'a str, Direction)>, bool);

fn read_options<'a>(statement: &'a CreateTable, full_name: &str) -> Result<Options<'a>, StatementError> {
    let mut properties = Vec::new();
    let mut directions: Vec<(&str, Direction)> = Vec::new();
    let mut compact = false;
    for option in &statement.options {
        match option {
            TableOption::Property(property) => properties.push(property),
            TableOption::CompactStorage => compact = true,
            TableOption::ClusteringOrder(columns) => {
                for (column, direction) in columns {
                    if directions.iter().any(|(known, _)| *known == column.as_str()) {
                        return Err(invalid(format!(
                            "Duplicate column '{}' in CLUSTERING ORDER BY clause for table '{full_name}'",
                            column.name
                        )));
                    }
                    directions.push((column.as_str(), *direction));
                }
            }
        }
    }
    Ok((Properties::new(properties)?, directions, compact))
}

/// A table of that name exists: nothing to do, or an error.
pub(super) fn already_there(
    keyspace: &str,
    name: &str,
    if_not_exists: bool,
    event: SchemaEvent,
) -> Result<Planned, StatementError> {
    if if_not_exists {
        return Ok(Planned::nothing(event));
    }
    Err(StatementError::AlreadyExists {
        keyspace: keyspace.to_owned(),
        table: name.to_owned(),
        message: format!("Cannot add already existing table \"{name}\" to keyspace \"{keyspace}\""),
    })
}

fn build(
    shape: Shape<'_>,
    draft: Draft,
    keyspace: &str,
    name: &str,
    types: &UserTypes,
    context: &PlanContext<'_>,
) -> Result<TableDefinition, StatementError> {
    let mut names = options::NAMES.to_vec();
    names.push("id");
    shape.properties.check_names(&names)?;
    let time_to_live = draft.default_time_to_live();
    let mut table_options = draft.finish()?;

    let mut resolved = BTreeMap::new();
    for (column, raw) in &shape.columns {
        check_mask(raw.mask.is_some())?;
        resolved.insert(*column, raw.raw.resolve(keyspace, types)?);
    }
    for ResolvedType { ty, .. } in resolved.values() {
        check_nesting(ty, "")?;
    }
    check_key(&shape, &resolved, keyspace, name)?;
    check_directions(&shape)?;
    let statics = shape.columns.iter().filter(|(_, column)| column.is_static).count();
    if shape.compact {
        let is_key =
            |name: &str| shape.partition.iter().chain(&shape.clustering).any(|key| key.as_str() == name);
        let values: Vec<(&str, &CqlType)> = resolved
            .iter()
            .filter(|(name, _)| !is_key(name))
            .map(|(name, resolved)| (*name, &resolved.ty))
            .collect();
        compact::check(&values, statics, !shape.clustering.is_empty())?;
    } else if shape.clustering.is_empty() && statics > 0 {
        return Err(statics_need_clustering());
    }
    check_counters(&shape, &resolved, time_to_live)?;
    if shape.columns.len() > COLUMNS_MAX {
        return Err(too_many_columns());
    }
    let id = match shape.properties.text("id")? {
        Some(text) => parse_id(text)?,
        None => random_id(context.chance),
    };
    let mut columns = columns(&shape, &resolved);
    if shape.compact {
        table_options.compact = Some(compact::complete(&mut columns));
    }
    let mut definition = TableDefinition {
        id,
        keyspace: keyspace.to_owned(),
        name: name.to_owned(),
        next_column_id: u16::try_from(columns.len()).expect("checked against COLUMNS_MAX"),
        columns,
        dropped: BTreeMap::new(),
        options: table_options,
        tablets_log2: 0,
        revision: 0,
    };
    for name in shape.order.iter().filter(|name| shape.columns[*name].is_row_expiry) {
        row_expiry::enable(&mut definition, name)?;
    }
    Ok(definition)
}

fn columns(shape: &Shape<'_>, resolved: &BTreeMap<&str, ResolvedType>) -> Vec<Column> {
    let place = |idents: &[Ident], name: &str| idents.iter().position(|ident| ident.as_str() == name);
    let mut columns = Vec::with_capacity(shape.order.len());
    for (id, name) in shape.order.iter().enumerate() {
        let ResolvedType { ty, reversed } = &resolved[name];
        let (kind, position) = if let Some(position) = place(&shape.partition, name) {
            (ColumnKind::PartitionKey, position)
        } else if let Some(position) = place(&shape.clustering, name) {
            (ColumnKind::Clustering, position)
        } else if shape.columns[name].is_static {
            (ColumnKind::Static, 0)
        } else {
            (ColumnKind::Regular, 0)
        };
        let descending = shape
            .directions
            .iter()
            .any(|(column, direction)| column == name && *direction == Direction::Descending);
        columns.push(Column {
            id: ColumnId(u16::try_from(id).expect("checked against COLUMNS_MAX")),
            name: (*name).to_owned(),
            ty: ty.clone(),
            kind,
            position: u16::try_from(position).expect("checked against COLUMNS_MAX"),
            reversed: kind == ColumnKind::Clustering && (*reversed || descending),
        });
    }
    columns
}

fn check_key(
    shape: &Shape<'_>,
    resolved: &BTreeMap<&str, ResolvedType>,
    keyspace: &str,
    table: &str,
) -> Result<(), StatementError> {
    let mut seen = BTreeSet::new();
    for column in shape.partition.iter().chain(&shape.clustering) {
        let name = column.as_str();
        let Some(ResolvedType { ty, .. }) = resolved.get(name) else {
            return Err(invalid(format!(
                "Unknown column '{name}' referenced in PRIMARY KEY for table '{table}'"
            )));
        };
        if !seen.insert(name) {
            return Err(invalid(format!(
                "Duplicate column '{name}' in PRIMARY KEY clause for table '{table}'"
            )));
        }
        if ty.is_multi_cell() {
            return Err(invalid(match ty {
                CqlType::Udt(udt) => format!(
                    "Invalid non-frozen user-defined type \"{keyspace}.{}\" for PRIMARY KEY column '{name}'",
                    udt.name
                ),
                _ => format!("Invalid non-frozen collection type {ty} for PRIMARY KEY column '{name}'"),
            }));
        }
        if super::types::is_composite(ty) {
            return Err(invalid(format!("{ty} type is not supported for PRIMARY KEY column '{name}'")));
        }
        if ty.is_counter() {
            return Err(invalid(format!("counter type is not supported for PRIMARY KEY column '{name}'")));
        }
        if ty.references_duration() {
            return Err(invalid(format!("duration type is not supported for PRIMARY KEY column '{name}'")));
        }
        if shape.columns[name].is_static {
            return Err(invalid(format!("Static column '{name}' cannot be part of the PRIMARY KEY")));
        }
    }
    Ok(())
}

fn check_directions(shape: &Shape<'_>) -> Result<(), StatementError> {
    let is_clustering = |name: &str| shape.clustering.iter().any(|column| column.as_str() == name);
    let others: Vec<&str> =
        shape.directions.iter().map(|(name, _)| *name).filter(|name| !is_clustering(name)).collect();
    if !others.is_empty() {
        return Err(invalid(format!(
            "Only clustering key columns can be defined in CLUSTERING ORDER directive: [{}] are not clustering columns",
            others.join(", ")
        )));
    }
    for ((name, _), column) in shape.directions.iter().zip(&shape.clustering) {
        let expected = column.as_str();
        if *name != expected {
            return Err(invalid(if shape.directions.iter().any(|(known, _)| *known == expected) {
                format!(
                    "The order of columns in the CLUSTERING ORDER directive must match that of the clustering columns \
                     ({expected} must appear before {name})"
                )
            } else {
                format!("Missing CLUSTERING ORDER for column {expected}")
            }));
        }
    }
    Ok(())
}

fn check_counters(
    shape: &Shape<'_>,
    resolved: &BTreeMap<&str, ResolvedType>,
    time_to_live: i32,
) -> Result<(), StatementError> {
    if !resolved.values().any(|resolved| resolved.ty.is_counter()) {
        return Ok(());
    }
    let is_key =
        |name: &str| shape.partition.iter().chain(&shape.clustering).any(|column| column.as_str() == name);
    if resolved.iter().any(|(name, resolved)| !is_key(name) && !resolved.ty.is_counter()) {
        return Err(invalid("Cannot mix counter and non counter columns in the same table"));
    }
    if time_to_live > 0 {
        return Err(invalid("Cannot set default_time_to_live on a table with counters"));
    }
    Ok(())
}

/// Refuses masks of columns, as a Cassandra with its default configuration does.
pub(super) fn check_mask(is_masked: bool) -> Result<(), StatementError> {
    if !is_masked {
        return Ok(());
    }
    Err(invalid(
        "Cannot mask columns because dynamic data masking is not enabled. You can enable it with the \
         dynamic_data_masking_enabled property on cassandra.yaml",
    ))
}

/// Refuses user types whose fields are separate cells if they contain collections of separate cells.
pub(super) fn check_nesting(ty: &CqlType, whose: &str) -> Result<(), StatementError> {
    match ty {
        CqlType::Udt(udt) if !udt.frozen && udt.fields.iter().any(|(_, field)| field.is_multi_cell()) => Err(
            invalid(format!("Non-frozen UDTs with nested non-frozen collections are not supported{whose}")),
        ),
        _ => Ok(()),
    }
}

/// The error for a static column in a table without clustering columns.
pub(super) fn statics_need_clustering() -> StatementError {
    invalid(
        "Static columns are only useful (and thus allowed) if the table has at least one clustering column",
    )
}

/// The mistake of a table that is too wide.
pub(super) fn too_many_columns() -> StatementError {
    invalid(format!("A table cannot have more than {COLUMNS_MAX} columns"))
}

/// The table's name in messages about the statement itself: with its keyspace only if the statement names it.
fn name_as_written(name: &QualifiedName) -> String {
    match &name.keyspace {
        Some(keyspace) => super::plan::qualified(keyspace.as_str(), name.name.as_str()),
        None => name.name.as_str().to_owned(),
    }
}

fn parse_id(text: &str) -> Result<TableId, StatementError> {
    Uuid::try_parse(text).map(|id| TableId(id.into_bytes())).map_err(|_| config("Invalid table id"))
}

/// A version-4 UUID.
pub(super) fn random_id([high, low]: [u64; 2]) -> TableId {
    let bytes = ((u128::from(high) << 64) | u128::from(low)).to_be_bytes();
    TableId(uuid::Builder::from_random_bytes(bytes).into_uuid().into_bytes())
}

fn check_id(table: &TableDefinition, schema: &Schema) -> Result<(), StatementError> {
    match schema.table_by_id(table.id) {
        Some(other) => {
            Err(config(format!("The table id {} belongs to {}", table.id, super::plan::table_text(other))))
        }
        None => Ok(()),
    }
}
