//! Decides which table files a read of one row need not open, because the data read so far is newer than all
//! they hold.
//!
//! Files are read newest first. Nothing in the remaining files can be visible in two cases: every column of
//! the row has a cell, and the row its own timestamp, above the greatest timestamp of those files; or a
//! deletion covers that timestamp. Equal timestamps are settled by value, so only greater ones count.
//! Collections merge by element and counters by shard, so a row with such a column is settled by deletions
//! only. In a table with static columns only a deletion of the whole partition settles anything.

use std::rc::Rc;

use model::row::{CellKind, RowView};
use model::{DeletionTime, Table};
use sstable::Sstable;

use super::source::Source;
use super::told;
use crate::memtable::Shape;
use crate::tablet::TableFile;

/// Orders files so that those with the newest data come first.
pub(super) fn newest_first(files: &mut [Rc<TableFile>]) {
    files.sort_by_key(|file| std::cmp::Reverse(file.sstable().max_timestamp()));
}

/// Whether a read asks for exactly one row.
pub(super) fn asks_for_one_row(table: &Table, shape: Shape<'_>) -> bool {
    let [slice] = shape.slices else { return false };
    let (start, end) = (slice.start.as_ref(), slice.end.as_ref());
    start.weight < 0
        && end.weight > 0
        && start.prefix.0 == end.prefix.0
        && start.prefix.components().count() == table.clustering().len()
}

/// Whether nothing in `file` can be visible, given the data of `sources`, which stand at the row.
pub(super) fn is_older_than_all(table: &Table, sources: &[Source], file: &Sstable) -> bool {
    let is_older = are_settled(table, sources, file);
    if is_older {
        told::older(file);
    }
    is_older
}

fn are_settled(table: &Table, sources: &[Source], file: &Sstable) -> bool {
    let newest = file.max_timestamp();
    let covers = |deletion: DeletionTime| !deletion.is_live() && deletion.timestamp >= newest;
    if sources.iter().any(|source| covers(source.partition_deletion())) {
        return true;
    }
    // The static row depends on its own cells and on the partition's deletion, and either may be in any file.
    if !table.statics().is_empty() {
        return false;
    }
    let rows = || sources.iter().filter_map(Source::row);
    if rows().any(|row| covers(row.deletion())) {
        return true;
    }
    rows().any(|row| !row.liveness().is_none() && row.liveness().timestamp > newest)
        && table.regulars().iter().all(|column| {
            let settled = |row: RowView<'_>| {
                row.cells().any(|cell| {
                    cell.column == column.id
                        && match cell.kind {
                            CellKind::CollectionDeletion { .. } => cell.timestamp >= newest,
                            CellKind::Counter(_) => false,
                            _ => cell.timestamp > newest && !column.ty.is_multi_cell(),
                        }
                })
            };
            rows().any(settled)
        })
}
