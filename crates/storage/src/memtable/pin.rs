//! Keeps the versions of a partition that a paused reader stands on, and folds them together afterwards.
//!
//! Folding moves a few rows and range tombstones at a time, from a version that is not pinned into the first
//! one that is not pinned. Until the version is empty, reads merge both, so a reader that comes in between
//! sees the same rows. The next pin that goes moves the next ones.

use std::rc::Rc;

use memory::{Handle, Kind};
use model::clustering::{ClusteringOrder, Position};
use model::{RowView, Table};

use super::{Inner, Memtable, PartitionRef, Rows, Version, hint, split_row};

/// Most rows and range tombstones moved in one go.
const FOLD_MAX: usize = 256;
/// A row that is longer counts as several.
const ROW_BYTES: usize = 1024;

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

    /// Folds the last version into an earlier one if neither is pinned, [`FOLD_MAX`] at a time. Returns
    /// whether there may be more to fold.
    pub(super) fn fold(&mut self, table: &Table, at: u32) -> bool {
        let mut left = FOLD_MAX;
        while left > 0 {
            let partition = self.partition(at);
            let Some(last) = partition.newer.last() else { return false };
            let (from, into) = (last.id, partition.versions().find(|v| v.pins == 0).map(|v| v.id));
            let Some(into) = into.filter(|into| last.pins == 0 && *into != from) else { return false };
            let (gone, before) = (last.deletion(), left);
            self.partition_mut(at).version_mut(into).delete(gone);
            if !self.fold_ranges(table.clustering_orders(), at, (from, into), &mut left) {
                // A range over too many others: it stays in a version of its own until the flush writes both.
                return false;
            }
            self.fold_rows(table, at, (from, into), &mut left);
            let emptied = self.partition(at).version(from);
            if emptied.ranges.is_empty() && matches!(emptied.rows, Rows::None) && emptied.static_row.is_none()
            {
                self.drop_last_version(at);
                if left == before {
                    left -= 1;
                }
            }
        }
        true
    }

    /// Moves rows from one version to another, the static one first, while some of `left` are left.
    fn fold_rows(&mut self, table: &Table, at: u32, (from, into): (u32, u32), left: &mut usize) {
        let version = self.partition_mut(at).version_mut(from);
        let static_row = std::mem::replace(&mut version.static_row, Handle::NONE);
        if !static_row.is_none() {
            *left = left.saturating_sub(self.move_row(table, at, into, static_row, true));
        }
        while *left > 0
            && let Some(row) = self.take_first_row(table.clustering_orders(), at, from)
        {
            *left = left.saturating_sub(self.move_row(table, at, into, row, false));
        }
    }

    /// Takes the first row out of a version.
    fn take_first_row(&mut self, orders: &[ClusteringOrder], at: u32, version: u32) -> Option<Handle> {
        let (row, rows) = match self.partition(at).version(version).rows {
            Rows::None => return None,
            Rows::One(only) => (only, Rows::None),
            Rows::Many(mut tree) => {
                let first = self.trees.value(self.trees.first(&tree)).map(Handle)?;
                let region = &self.region;
                let clustering = Position::row(split_row(region.get(first)).0);
                let removed = self.trees.remove(&mut tree, hint::of_position(clustering, orders), |other| {
                    Position::row(split_row(region.get(Handle(other))).0).compare(clustering, orders)
                });
                assert_eq!(removed, Some(first.0), "the first row of a version");
                (first, if tree.is_empty() { Rows::None } else { Rows::Many(tree) })
            }
        };
        self.partition_mut(at).version_mut(version).rows = rows;
        Some(row)
    }

    /// Moves a row to another version; returns its share of [`FOLD_MAX`].
    fn move_row(&mut self, table: &Table, at: u32, into: u32, handle: Handle, is_static: bool) -> usize {
        let object = self.region.get(handle).to_vec();
        self.region.free(handle);
        let (clustering, row) = split_row(&object);
        if is_static {
            self.write_static(table, at, into, RowView::trusted(row));
        } else {
            self.write_row(table, at, into, clustering, RowView::trusted(row));
        }
        1 + object.len() / ROW_BYTES
    }
}
