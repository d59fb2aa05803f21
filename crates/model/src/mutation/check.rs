//! Checks a mutation of another node against a table.
//!
//! What this node's own statements make is right by construction. A mutation of another node is parsed and
//! may still name columns that this node does not know yet, or have a form that a table file cannot hold: it
//! must not get into the commit log, from which no flush would get it out.

use super::MutationView;
use crate::clustering::Clustering;
use crate::row::{CellKind, CellView, RowView};
use crate::schema::{Column, ColumnKind, Table};

/// The longest partition key and the longest part of a clustering key that a table file holds.
const KEY_BYTES_MAX: usize = u16::MAX as usize;

/// Why a mutation is not one of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MutationMisfit {
    /// The sender knows a later definition of the table.
    #[error("column {id} of the table is not known here")]
    UnknownColumn {
        /// Number of the column.
        id: u16,
    },
    /// No definition of the table has such a mutation.
    #[error("{0}")]
    Shape(&'static str),
}

impl MutationView<'_> {
    /// Checks that a table file can hold everything this mutation writes to `table`. Cells of dropped columns
    /// pass: they are never read.
    ///
    /// # Errors
    /// [`MutationMisfit`].
    pub fn check(&self, table: &Table) -> Result<(), MutationMisfit> {
        if !self.fits(table) {
            return Err(MutationMisfit::Shape("a position does not have the shape of the clustering key"));
        }
        if self.key.is_empty() || self.key.len() > KEY_BYTES_MAX {
            return Err(MutationMisfit::Shape("a partition key has 1 to 65535 bytes"));
        }
        if let Some(row) = self.static_row() {
            check_row(row, ColumnKind::Static, table)?;
        }
        for (start, end, _) in self.tombstones() {
            check_clustering(start.prefix)?;
            check_clustering(end.prefix)?;
        }
        for (clustering, row) in self.rows() {
            check_clustering(Clustering(clustering))?;
            check_row(row, ColumnKind::Regular, table)?;
        }
        Ok(())
    }
}

fn check_clustering(prefix: Clustering<'_>) -> Result<(), MutationMisfit> {
    let is_short = |component: Option<&[u8]>| component.is_none_or(|bytes| bytes.len() <= KEY_BYTES_MAX);
    if prefix.components().all(is_short) {
        return Ok(());
    }
    Err(MutationMisfit::Shape("a part of a clustering key has more than 65535 bytes"))
}

fn check_row(row: RowView<'_>, kind: ColumnKind, table: &Table) -> Result<(), MutationMisfit> {
    let mut last: Option<CellView<'_>> = None;
    for cell in row.cells() {
        let Some(column) = table.column_by_id(cell.column) else {
            if cell.column.0 >= table.definition().next_column_id {
                return Err(MutationMisfit::UnknownColumn { id: cell.column.0 });
            }
            continue;
        };
        if column.kind != kind {
            return Err(MutationMisfit::Shape("a cell is in a row of another kind than its column"));
        }
        check_cell(&cell, column)?;
        if let Some(last) = last
            && last.column == cell.column
            && !ascends(table, &last, &cell)
        {
            return Err(MutationMisfit::Shape("cells of a column are not in the order of their paths"));
        }
        last = Some(cell);
    }
    Ok(())
}

/// Whether one cell of a column may follow another: a collection's deletion comes first, then its elements.
fn ascends(table: &Table, last: &CellView<'_>, next: &CellView<'_>) -> bool {
    match (last.path, next.path) {
        (None, Some(_)) => true,
        (Some(last), Some(path)) => table.compare_paths(next.column, last, path).is_lt(),
        (_, None) => false,
    }
}

fn check_cell(cell: &CellView<'_>, column: &Column) -> Result<(), MutationMisfit> {
    let has_elements = column.ty.is_multi_cell();
    let is_of_kind = match cell.kind {
        CellKind::CollectionDeletion { .. } => has_elements && cell.path.is_none(),
        CellKind::Counter(_) => column.ty.is_counter() && cell.path.is_none(),
        CellKind::Tombstone { .. } => cell.path.is_some() == has_elements,
        CellKind::Live(_) | CellKind::Expiring { .. } => {
            cell.path.is_some() == has_elements && !column.ty.is_counter()
        }
    };
    if !is_of_kind {
        return Err(MutationMisfit::Shape("a cell has not the form of its column's type"));
    }
    let fixed = if has_elements { None } else { column.ty.fixed_value_length() };
    let is_empty_or = |length| cell.value().is_none_or(|value| value.is_empty() || value.len() == length);
    if fixed.is_some_and(|length| !is_empty_or(length)) {
        return Err(MutationMisfit::Shape("a value has not the length of its column's type"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
