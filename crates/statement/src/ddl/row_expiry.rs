//! The column that holds the time at which a row expires: `c timestamp TTL` in CREATE TABLE, `ALTER TABLE …
//! TTL c` and `TTL NULL`.
//!
//! Its name is kept as an extension of the table; [`crate::row_expiry`] removes the rows. Invariant: the
//! column is a regular one with a type that is a time, and it stays as long as the extension names it. (CQL:
//! cql-extensions.md "Per-row TTL".)

use model::CqlType;
use model::schema::{Column, ColumnKind, TableDefinition, TableOptions};

use super::mistake::invalid;
use crate::StatementError;

/// Name of the extension; its bytes are the column's name.
pub const EXTENSION: &str = "row_expiry";

/// The column of a table with these options, if there is one.
pub fn column(options: &TableOptions) -> Option<&str> {
    options.extensions.get(EXTENSION).and_then(|name| std::str::from_utf8(name).ok())
}

/// Milliseconds in one step of a column of that type; `None` for types that are no time.
pub fn unit_ms(ty: &CqlType) -> Option<i64> {
    match ty {
        CqlType::Timestamp => Some(1),
        CqlType::Bigint | CqlType::Int => Some(1000),
        _ => None,
    }
}

/// Makes `name` the column that holds the time at which a row expires.
///
/// # Errors
/// [`StatementError::Invalid`] where another column does, or this one cannot.
pub(super) fn enable(table: &mut TableDefinition, name: &str) -> Result<(), StatementError> {
    if let Some(known) = column(&table.options) {
        return Err(invalid(format!(
            "Cannot use column {name} for the TTL of rows: column {known} is used already; ALTER TABLE … TTL NULL ends that"
        )));
    }
    let Some(Column { kind, ty, .. }) = table.columns.iter().find(|column| column.name == name) else {
        return Err(invalid(format!(
            "Column {name} was not found in table '{}.{}'",
            table.keyspace, table.name
        )));
    };
    if *kind != ColumnKind::Regular {
        return Err(invalid(format!(
            "Cannot use column {name} for the TTL of rows: it must be neither static nor of the primary key"
        )));
    }
    if unit_ms(ty).is_none() {
        return Err(invalid(format!(
            "Cannot use column {name} for the TTL of rows: its type must be timestamp, bigint or int (got {ty})"
        )));
    }
    if table.options.compact.is_some() {
        return Err(invalid("Rows of a COMPACT STORAGE table cannot have a TTL column"));
    }
    table.options.extensions.insert(EXTENSION.to_owned(), name.as_bytes().to_vec());
    Ok(())
}

/// Rows do not expire any more.
///
/// # Errors
/// [`StatementError::Invalid`] if the table's rows did not expire.
pub(super) fn disable(table: &mut TableDefinition) -> Result<(), StatementError> {
    match table.options.extensions.remove(EXTENSION) {
        Some(_) => Ok(()),
        None => Err(invalid(format!("Table {}.{} has no TTL column", table.keyspace, table.name))),
    }
}

/// Refuses to drop the column that rows expire by.
pub(super) fn check_drop(options: &TableOptions, name: &str) -> Result<(), StatementError> {
    if column(options) == Some(name) {
        return Err(invalid(format!(
            "Cannot drop column {name}: rows expire by it; ALTER TABLE … TTL NULL ends that"
        )));
    }
    Ok(())
}
