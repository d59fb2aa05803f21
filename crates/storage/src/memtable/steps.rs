//! Applies a long mutation to a memtable in steps, between which others run.
//!
//! Its rows go to the record of a partition that no reader finds. When the record is whole it becomes the
//! partition, or its versions become versions of the partition that is there, in one go; then they are folded
//! (`pin`). Work that is dropped in between leaves a record that nobody finds, until the memtable is dropped.

use memory::{Handle, Kind};
use model::Table;
use model::mutation::MutationView;
use reactor::give_way;

use super::ranges::Range;
use super::{Inner, Memtable, Version};
use crate::commitlog::Hold;

impl Memtable {
    /// As [`Memtable::apply`], giving way between the rows: to be called below `reactor::in_slices`, by a
    /// caller that keeps the memtable from being sealed meanwhile.
    pub(crate) fn apply_in_steps(&self, table: &Table, mutation: &MutationView<'_>, hold: Option<&Hold>) {
        let (at, version) = {
            let mut inner = self.inner.borrow_mut();
            let at = inner.add_record(mutation.token, mutation.key);
            let version = inner.partition(at).first.id;
            inner.write_head(table, at, version, mutation);
            (at, version)
        };
        for (start, end, deletion) in mutation.tombstones() {
            self.inner.borrow_mut().write_tombstone(table, at, version, Range { start, end, deletion });
            give_way();
        }
        for (clustering, row) in mutation.rows() {
            self.inner.borrow_mut().write_row(table, at, version, clustering, row);
            give_way();
        }
        assert!(!self.is_sealed(), "a memtable that a write goes to is not sealed");
        let shown = self.inner.borrow_mut().show(at, mutation, hold);
        while self.inner.borrow_mut().fold(table, shown) {
            give_way();
        }
    }
}

impl Inner {
    /// Shows readers all of a record that they did not find; returns the partition that has it now.
    fn show(&mut self, at: u32, mutation: &MutationView<'_>, hold: Option<&Hold>) -> u32 {
        self.note_mutation(hold);
        let Some(there) = self.find(mutation.token, mutation.key) else {
            self.link(at);
            return at;
        };
        assert_ne!(there, at, "a record that readers do not find");
        let nothing = self.new_version();
        let record = self.partition_mut(at);
        let key = std::mem::replace(&mut record.key, Handle::NONE);
        let first = std::mem::replace(&mut record.first, nothing);
        let newer = std::mem::take(&mut record.newer).into_vec();
        self.region.free(key);
        let partition = self.partition_mut(there);
        let mut versions = std::mem::take(&mut partition.newer).into_vec();
        versions.reserve_exact(1 + newer.len());
        versions.push(first);
        versions.extend(newer);
        partition.newer = versions.into_boxed_slice();
        // The others were charged when they were made.
        self.budget.charge(Kind::Dirty, size_of::<Version>());
        self.records_bytes += size_of::<Version>();
        there
    }
}

#[cfg(test)]
mod tests;
