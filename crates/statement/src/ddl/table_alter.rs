//! ALTER TABLE: columns come, go and are renamed; options change.
//!
//! Invariant: a column id is never given twice, so a column that comes back under an old name is another
//! column and cells written before do not return.

use cql::ast::{AlterTable, AlterTableChange, ColumnDefinition, Ident};
use model::schema::{DroppedColumn, Keyspace, SchemaChange, TableDefinition};
use model::{Column, ColumnId, ColumnKind, CqlType, Table};

use super::mistake::{config, invalid, syntax, unsupported};
use super::names::{Action, check_content, check_keyspace_name};
use super::options::{self, Draft, extension};
use super::plan::{PlanContext, Planned, keyspace_of, table_event, table_text};
use super::properties::Properties;
use super::row_expiry;
use super::table_create::{
    COLUMNS_MAX, check_mask, check_nesting, statics_need_clustering, too_many_columns,
};
use super::types::RawType;
use crate::StatementError;
use crate::schema_events::Change;

/// Plans ALTER TABLE.
pub(super) fn alter(
    statement: &AlterTable,
    context: &PlanContext<'_>,
    warnings: &mut Vec<String>,
) -> Result<Planned, StatementError> {
    let keyspace_name = keyspace_of(&statement.name, context)?;
    let name = statement.name.name.as_str();
    let mut properties = match &statement.change {
        AlterTableChange::Options(properties) => Some(Properties::new(properties)?),
        _ => None,
    };
    check_content(keyspace_name, Action::Alter, &format!("<table {keyspace_name}.{name}>"))?;
    if let Some(properties) = &properties {
        Draft::create(properties)?;
    }
    check_keyspace_name(keyspace_name)?;
    check_mask(matches!(&statement.change, AlterTableChange::ColumnMask { mask: Some(_), .. }))?;
    let event = table_event(Change::Updated, keyspace_name, name);
    let keyspace = context.schema.keyspace(keyspace_name);
    let Some((keyspace, table)) =
        keyspace.and_then(|keyspace| keyspace.tables.get(name).map(|table| (keyspace, table)))
    else {
        return if statement.if_exists {
            Ok(Planned::nothing(event))
        } else {
            Err(invalid(format!("Table '{keyspace_name}.{name}' doesn't exist")))
        };
    };
    let mut after = table.definition().clone();
    let guardrails = context.guardrails;
    if let Some(properties) = &mut properties {
        for ignored in guardrails.properties(&properties.names(), warnings)? {
            properties.remove(&ignored);
        }
    }
    match &statement.change {
        AlterTableChange::Add { .. } | AlterTableChange::Drop { .. } | AlterTableChange::Rename { .. } => {
            guardrails.alter_table()?;
        }
        _ => {}
    }
    match &statement.change {
        AlterTableChange::ColumnType { .. } => {
            return Err(invalid("Altering column types is no longer supported"));
        }
        AlterTableChange::ColumnMask { if_exists, column, .. } => {
            if table.column(column.as_str()).is_none() && !if_exists {
                return Err(invalid(format!(
                    "Column with name '{}' doesn't exist on table '{name}'",
                    column.name
                )));
            }
        }
        AlterTableChange::Add { if_not_exists, columns } => {
            for column in columns {
                add(&mut after, column, *if_not_exists, keyspace, table)?;
            }
            guardrails.columns(name, after.columns.len(), warnings)?;
            for column in after.columns.iter().skip(table.columns().count()) {
                guardrails.vectors(&format!("Column {}", column.name), &column.ty, warnings)?;
            }
        }
        AlterTableChange::Drop { if_exists, columns, timestamp } => {
            let at = match timestamp {
                None => context.now_us,
                Some(text) => text.parse().map_err(|_| syntax(format!("For input string: \"{text}\"")))?,
            };
            for column in columns {
                drop_column(&mut after, column, *if_exists, at, table)?;
            }
        }
        AlterTableChange::Rename { columns, .. } => {
            for (from, to) in columns {
                rename(&mut after, from, to, table)?;
            }
        }
        AlterTableChange::DropCompactStorage => {
            if !guardrails.drop_compact_storage {
                return Err(invalid("DROP COMPACT STORAGE is disabled. Enable in cassandra.yaml to use."));
            }
            if after.options.compact.take().is_none() {
                return Err(invalid("Cannot DROP COMPACT STORAGE on table without COMPACT STORAGE"));
            }
        }
        AlterTableChange::RowExpiry(Some(column)) => row_expiry::enable(&mut after, column.as_str())?,
        AlterTableChange::RowExpiry(None) => row_expiry::disable(&mut after)?,
        AlterTableChange::Options(_) => {
            let properties = properties.as_ref().expect("read above for this change");
            let mut names = options::NAMES.to_vec();
            names.push("id");
            properties.check_names(&names)?;
            if properties.has("id") {
                return Err(config("Cannot alter table id."));
            }
            after.options = Draft::alter(properties, table.options())?.finish()?;
            if table.is_counter() && after.options.default_time_to_live > 0 {
                return Err(invalid("Cannot set default_time_to_live on a table with counters"));
            }
            if properties.has("tablets")
                && extension::tablets(&after.options, None, context.shards).log2() > table.tablets().log2()
            {
                return Err(unsupported("More tablets for a table that is there are"));
            }
            guardrails.given_options(&Draft::create(properties)?.finish()?, warnings)?;
            guardrails.options(&after.options)?;
        }
    }
    if after == *table.definition() {
        return Ok(Planned::nothing(event));
    }
    after.revision += 1;
    let change = SchemaChange::AlterTable(Box::new(after));
    Ok(Planned::change(change, event))
}

fn add(
    after: &mut TableDefinition,
    column: &ColumnDefinition,
    if_not_exists: bool,
    keyspace: &Keyspace,
    table: &Table,
) -> Result<(), StatementError> {
    let name = column.name.as_str();
    let ty = RawType::new(&column.type_name)?.resolve(&keyspace.name, &keyspace.types)?.ty;
    if after.columns.iter().any(|known| known.name == name) {
        return if if_not_exists {
            Ok(())
        } else {
            Err(invalid(format!("Column with name '{name}' already exists")))
        };
    }
    if table.compact().is_some() {
        return Err(invalid("Cannot add new column to a COMPACT STORAGE table"));
    }
    if column.is_static && table.clustering().is_empty() {
        return Err(statics_need_clustering());
    }
    check_nesting(&ty, &format!(" for column {name}"))?;
    let kind = if column.is_static { ColumnKind::Static } else { ColumnKind::Regular };
    if let Some(dropped) = after.dropped.get(name) {
        check_return(&dropped.column, name, &ty, kind)?;
        if table.is_counter() {
            return Err(invalid(format!("Cannot re-add previously dropped counter column {name}")));
        }
    }
    if ty.is_counter() != table.is_counter() {
        let (column, of) =
            if ty.is_counter() { ("counter", "non counter") } else { ("non counter", "counter") };
        return Err(config(format!(
            "{}.{}: Cannot have a {column} column (\"{name}\") in a {of} table",
            table.keyspace(),
            table.name()
        )));
    }
    check_mask(column.mask.is_some())?;
    if after.columns.len() >= COLUMNS_MAX {
        return Err(too_many_columns());
    }
    let id = match after.dropped.get(name) {
        // Cells in memory carry the id; those from before the drop are recognised by their timestamps.
        Some(dropped) => dropped.column.id,
        None => next_id(after, table)?,
    };
    after.columns.push(Column { id, name: name.to_owned(), ty, kind, position: 0, reversed: false });
    Ok(())
}

fn next_id(after: &mut TableDefinition, table: &Table) -> Result<ColumnId, StatementError> {
    let id = after.next_column_id;
    after.next_column_id = id.checked_add(1).ok_or_else(|| {
        invalid(format!(
            "Table '{}' had {} columns in its life, which is the most there may be; create it anew to go on",
            table_text(table),
            u16::MAX
        ))
    })?;
    Ok(ColumnId(id))
}

fn check_return(before: &Column, name: &str, ty: &CqlType, kind: ColumnKind) -> Result<(), StatementError> {
    if !reads_values_of(ty, &before.ty) {
        return Err(invalid(format!(
            "Cannot re-add previously dropped column '{name}' of type {ty}, incompatible with previous type {}",
            before.ty
        )));
    }
    if before.kind != kind {
        return Err(invalid(format!(
            "Cannot re-add previously dropped column '{name}' of kind {}, incompatible with previous kind {}",
            kind_text(kind),
            kind_text(before.kind)
        )));
    }
    Ok(())
}

/// Whether values stored as `old` are values of `new`, and stand in table files the same way: files written
/// before the drop are read by the column's name (Cassandra's `isSerializationCompatibleWith`).
fn reads_values_of(new: &CqlType, old: &CqlType) -> bool {
    let same_form = new.is_multi_cell() == old.is_multi_cell()
        && new.fixed_value_length() == old.fixed_value_length()
        && match (new, old) {
            (CqlType::List { element: new, .. }, CqlType::List { element: old, .. })
            | (CqlType::Map { value: new, .. }, CqlType::Map { value: old, .. }) => reads_values_of(new, old),
            _ => true,
        };
    same_form && means_values_of(new, old)
}

/// Whether bytes of `old` can be taken for values of `new` (Cassandra's `isValueCompatibleWith`).
fn means_values_of(new: &CqlType, old: &CqlType) -> bool {
    if new == old {
        return true;
    }
    match (new, old) {
        (CqlType::Blob, _)
        | (CqlType::Text, CqlType::Ascii)
        | (CqlType::Bigint, CqlType::Timestamp)
        | (CqlType::Timestamp | CqlType::Time, CqlType::Bigint)
        | (CqlType::Date, CqlType::Int)
        | (CqlType::Varint, CqlType::Int | CqlType::Bigint | CqlType::Timestamp)
        | (CqlType::Uuid, CqlType::Timeuuid) => true,
        (CqlType::List { element: new, .. }, CqlType::List { element: old, .. }) => means_values_of(new, old),
        (CqlType::Set { element: new, .. }, CqlType::Set { element: old, .. }) => sorts_as(new, old),
        (CqlType::Map { key: k, value: v, .. }, CqlType::Map { key: old_k, value: old_v, .. }) => {
            sorts_as(k, old_k) && means_values_of(v, old_v)
        }
        // The new tuple may be longer than the old one: values written before have nulls at their end.
        (CqlType::Tuple(new), CqlType::Tuple(old)) => {
            new.len() >= old.len() && new.iter().zip(old).all(|(new, old)| means_values_of(new, old))
        }
        _ => false,
    }
}

/// Whether values that are sorted by the order of `old` are sorted by that of `new` too: elements of sets and
/// keys of maps (Cassandra's `isCompatibleWith`).
fn sorts_as(new: &CqlType, old: &CqlType) -> bool {
    if new == old {
        return true;
    }
    match (new, old) {
        (CqlType::Blob, CqlType::Ascii | CqlType::Text) | (CqlType::Text, CqlType::Ascii) => true,
        (CqlType::Tuple(new), CqlType::Tuple(old)) => {
            new.len() >= old.len() && new.iter().zip(old).all(|(new, old)| sorts_as(new, old))
        }
        _ => false,
    }
}

fn drop_column(
    after: &mut TableDefinition,
    column: &Ident,
    if_exists: bool,
    at: i64,
    table: &Table,
) -> Result<(), StatementError> {
    let name = column.as_str();
    let Some(column) = table.column(name) else {
        return if if_exists {
            Ok(())
        } else {
            Err(invalid(format!("Column {name} was not found in table '{}'", table_text(table))))
        };
    };
    if matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering) {
        return Err(invalid(format!("Cannot drop PRIMARY KEY column {name}")));
    }
    row_expiry::check_drop(table.options(), name)?;
    if table.compact().is_some() && column.kind == ColumnKind::Regular {
        return Err(invalid(format!(
            "Cannot drop column {name}: it is the value of a COMPACT STORAGE table"
        )));
    }
    if let CqlType::Udt(udt) = &column.ty
        && !udt.frozen
    {
        return Err(invalid(format!("Cannot drop non-frozen column {name} of user type {}", column.ty)));
    }
    after.columns.retain(|known| known.id != column.id);
    let column = Column { ty: without_user_types(&column.ty), ..column.clone() };
    after.dropped.insert(name.to_owned(), DroppedColumn { column, dropped_at_us: at });
    Ok(())
}

/// The type with tuples in place of user types, so that a dropped column does not hold on to them.
fn without_user_types(ty: &CqlType) -> CqlType {
    let inner = |ty: &CqlType| Box::new(without_user_types(ty));
    match ty {
        CqlType::List { element, frozen } => CqlType::List { element: inner(element), frozen: *frozen },
        CqlType::Set { element, frozen } => CqlType::Set { element: inner(element), frozen: *frozen },
        CqlType::Map { key, value, frozen } => {
            CqlType::Map { key: inner(key), value: inner(value), frozen: *frozen }
        }
        CqlType::Vector { element, dimension } => {
            CqlType::Vector { element: inner(element), dimension: *dimension }
        }
        CqlType::Tuple(components) => CqlType::Tuple(components.iter().map(without_user_types).collect()),
        CqlType::Udt(udt) => {
            CqlType::Tuple(udt.fields.iter().map(|(_, field)| without_user_types(field)).collect())
        }
        scalar => scalar.clone(),
    }
}

fn rename(
    after: &mut TableDefinition,
    from: &Ident,
    to: &Ident,
    table: &Table,
) -> Result<(), StatementError> {
    let (from, to) = (from.as_str(), to.as_str());
    let Some(column) = table.column(from).filter(|column| !table.hides(column)) else {
        return Err(invalid(format!("Undefined column name {from} in table {}", table_text(table))));
    };
    if !matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering) {
        return Err(invalid(format!("Cannot rename non PRIMARY KEY column {from}")));
    }
    if table.column(to).is_some() || after.columns.iter().any(|known| known.name == to) {
        return Err(invalid(format!(
            "Cannot rename column {from} to {to} in table '{}'; another column with that name already exists",
            table_text(table)
        )));
    }
    for renamed in after.columns.iter_mut().filter(|known| known.id == column.id) {
        renamed.name = to.to_owned();
    }
    Ok(())
}

fn kind_text(kind: ColumnKind) -> &'static str {
    match kind {
        ColumnKind::PartitionKey => "PARTITION_KEY",
        ColumnKind::Clustering => "CLUSTERING",
        ColumnKind::Static => "STATIC",
        ColumnKind::Regular => "REGULAR",
    }
}
