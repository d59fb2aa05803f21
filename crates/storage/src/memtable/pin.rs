//! Keeps the versions of a partition that a paused reader stands on, and folds them together afterwards.
//!
//! Folding copies at most [`FOLD_ROWS_MAX`] rows and range tombstones at a time, from a version that is not
//! pinned into the first one that is not pinned. Until the whole version is copied, reads merge both; merging
//! the same data twice changes nothing, so a reader that comes in between sees the same rows.

use std::rc::Rc;

use memory::{Handle, Kind};
use model::{RowView, Table};

use super::{Inner, Memtable, PartitionRef, Rows, Version, split_row};

/// Most rows and range tombstones copied when a pin goes.
const FOLD_ROWS_MAX: usize = 256;

/// One pinned version; unpins when dropped.
#[derive(Debug)]
pub(crate) struct Pin {
    memtable: Rc<Memtable>,
    table: Rc<Table>,
    partition: u32,
    version: u32,
}

impl Pin {
    /// Pins a version that is there.
    pub(crate) fn new(
        memtable: &Rc<Memtable>,
        table: &Rc<Table>,
        PartitionRef(partition): PartitionRef,
        version: u32,
    ) -> Self {
        memtable.inner.borrow_mut().partition_mut(partition).version_mut(version).pins += 1;
        Self { memtable: Rc::clone(memtable), table: Rc::clone(table), partition, version }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut inner = self.memtable.inner.borrow_mut();
        inner.partition_mut(self.partition).version_mut(self.version).pins -= 1;
        inner.fold(&self.table, self.partition);
    }
}

impl Inner {
    /// Begins a version that takes writes; returns its number.
    pub(super) fn add_version(&mut self, at: u32) -> u32 {
        let version = self.new_version();
        let id = version.id;
        let newer = &mut self.partition_mut(at).newer;
        let mut versions = std::mem::take(newer).into_vec();
        versions.reserve_exact(1);
        versions.push(version);
        *newer = versions.into_boxed_slice();
        self.budget.charge(Kind::Dirty, size_of::<Version>());
        self.records_bytes += size_of::<Version>();
        id
    }

    /// Drops the last version, which is folded into another.
    fn drop_last_version(&mut self, at: u32) {
        let newer = &mut self.partition_mut(at).newer;
        let mut versions = std::mem::take(newer).into_vec();
        versions.pop().expect("a version that was folded");
        *newer = versions.into_boxed_slice();
        self.budget.refund(Kind::Dirty, size_of::<Version>());
        self.records_bytes -= size_of::<Version>();
    }

    /// Folds the last version into an earlier one if neither is pinned.
    pub(super) fn fold(&mut self, table: &Table, at: u32) {
        let mut rows_left = FOLD_ROWS_MAX;
        while rows_left > 0 {
            let partition = self.partition(at);
            let Some(last) = partition.newer.last() else { return };
            let (from, into) = (last.id, partition.versions().find(|v| v.pins == 0).map(|v| v.id));
            let Some(into) = into.filter(|into| last.pins == 0 && *into != from) else { return };
            let (rows, ranges, static_row, gone) = (last.rows, last.ranges, last.static_row, last.deletion());
            let count = ranges.len()
                + match rows {
                    Rows::None => 0,
                    Rows::One(_) => 1,
                    Rows::Many(tree) => tree.len(),
                };
            let others = self.partition(at).version(into).ranges;
            let orders = table.clustering_orders();
            if count > FOLD_ROWS_MAX || !self.overlap_few(&ranges, &others, FOLD_ROWS_MAX, orders) {
                // Too much for one go: it stays a version of its own until the flush writes both.
                return;
            }
            rows_left = rows_left.saturating_sub(count.max(1));
            self.partition_mut(at).version_mut(into).delete(gone);
            self.move_ranges(orders, at, into, &ranges);
            if !static_row.is_none() {
                self.move_row(table, at, into, static_row, true);
            }
            match rows {
                Rows::None => {}
                Rows::One(handle) => self.move_row(table, at, into, handle, false),
                Rows::Many(tree) => {
                    let mut cursor = self.trees.first(&tree);
                    while let Some(handle) = self.trees.value(cursor).map(Handle) {
                        cursor = self.trees.next(cursor);
                        self.move_row(table, at, into, handle, false);
                    }
                }
            }
            self.drop_last_version(at);
        }
    }

    fn move_row(&mut self, table: &Table, at: u32, into: u32, handle: Handle, is_static: bool) {
        let object = self.region.get(handle).to_vec();
        self.region.free(handle);
        let (clustering, row) = split_row(&object);
        if is_static {
            self.write_static(table, at, into, RowView::trusted(row));
        } else {
            self.write_row(table, at, into, clustering, RowView::trusted(row));
        }
    }
}
