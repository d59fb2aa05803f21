//! What a reader sees of a row, without copying it where all of it is seen.

use model::deletion::LocalSeconds;
use model::reconcile::{Purge, compact_row, is_live};
use model::row::CellView;
use model::{DeletionTime, RowBuilder, RowView, Table};

use super::dead::Graves;

/// Buffers for rows that are not seen as they are stored.
#[derive(Debug, Default)]
pub(crate) struct VisibleScratch {
    compacted: Vec<u8>,
    kept: Vec<u8>,
    /// For a row that is merged of two.
    pub(super) pair: Pair,
}

/// Buffers for one row of the row cache and what it becomes with a memtable's.
#[derive(Debug, Default)]
pub(super) struct Pair {
    pub(super) clustering: Vec<u8>,
    pub(super) cached: Vec<u8>,
    pub(super) merged: Vec<u8>,
}

/// The row as seen at `now` under `active`, or nothing where no live cell or marker is left; `graves` counts what went.
#[inline]
pub(crate) fn visible<'a>(
    table: &Table,
    row: RowView<'a>,
    active: DeletionTime,
    now: LocalSeconds,
    graves: &Graves,
    scratch: &'a mut VisibleScratch,
) -> Option<RowView<'a>> {
    let mut seen = row;
    scratch.kept.clear();
    if drop_dropped(table, seen, &mut scratch.kept) {
        seen = RowView::trusted(&scratch.kept);
    }
    if active.is_live() && seen.is_plain() {
        return (!seen.is_empty()).then_some(seen);
    }
    scratch.compacted.clear();
    let left = compact_row(seen, active, &Purge::everything(now), &mut scratch.compacted)
        && is_live(RowView::trusted(&scratch.compacted), now);
    // Whatever went made the row shorter.
    if scratch.compacted.len() != seen.as_bytes().len() {
        graves.row(seen, active, left);
    }
    left.then(|| RowView::trusted(&scratch.compacted))
}

/// Whether no row of the table has cells that [`drop_dropped`] would take.
#[inline]
pub(crate) fn drop_dropped_is_needless(table: &Table) -> bool {
    table.definition().dropped.is_empty()
}

/// Appends the row without cells of dropped columns; says whether there were any, else nothing is appended.
///
/// A column that was dropped and made anew under its name has the id it had, and table files name columns: cells up to
/// the time of the drop are of the old one.
pub(crate) fn drop_dropped(table: &Table, row: RowView<'_>, out: &mut Vec<u8>) -> bool {
    if table.definition().dropped.is_empty() {
        return false;
    }
    let keeps = |cell: &CellView<'_>| {
        table.column_by_id(cell.column).is_some_and(|column| {
            let dropped = table.definition().dropped.get(&column.name);
            dropped.is_none_or(|dropped| cell.timestamp > dropped.dropped_at_us)
        })
    };
    if row.cells().all(|cell| keeps(&cell)) {
        return false;
    }
    let mut builder = RowBuilder::new(out, row.liveness(), row.deletion());
    row.cells().filter(keeps).for_each(|cell| builder.cell(cell));
    builder.finish();
    true
}
