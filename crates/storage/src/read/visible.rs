//! The visible part of a row, without copying if all of it is visible.

use model::deletion::LocalSeconds;
use model::reconcile::{Purge, compact_row, is_live};
use model::row::CellView;
use model::{DeletionTime, RowBuilder, RowView, Table};

use super::dead::Graves;

/// Buffers for rows of which only a part is visible.
#[derive(Debug, Default)]
pub struct VisibleScratch {
    compacted: Vec<u8>,
    kept: Vec<u8>,
    /// For a row that is merged from two.
    pub(super) pair: Pair,
}

/// Buffers for one row of the row cache and its merge with a memtable's row.
#[derive(Debug, Default)]
pub(super) struct Pair {
    pub(super) clustering: Vec<u8>,
    pub(super) cached: Vec<u8>,
    pub(super) merged: Vec<u8>,
}

/// The part of the row that is visible at `now` under `active`, or `None` if no live cell or marker is left;
/// `graves` counts the rest.
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
    // Anything that was left out made the row shorter.
    if scratch.compacted.len() != seen.as_bytes().len() {
        graves.row(seen, active, left);
    }
    left.then(|| RowView::trusted(&scratch.compacted))
}

/// Whether no row of the table can have cells that [`drop_dropped`] would remove.
#[inline]
pub(crate) fn drop_dropped_is_needless(table: &Table) -> bool {
    table.definition().dropped.is_empty()
}

/// Appends the row without cells of dropped columns and returns true; if it has none, appends nothing and
/// returns false.
///
/// A column that was dropped and created again under its name has its old id, and table files name columns:
/// cells up to the time of the drop belong to the old one.
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
