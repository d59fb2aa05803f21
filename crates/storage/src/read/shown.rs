//! What clients see of contents that were read raw and merged, by the rules of this crate's own reads.
//!
//! Contents of several replicas are merged above this crate; what of a row is live, and what counts as dead
//! data, is decided here, as for rows of one shard.

use model::deletion::LocalSeconds;
use model::{DeletionTime, RowView, Table};

use super::command::Dead;
use super::dead::Graves;
use super::visible::{VisibleScratch, visible};

/// Shows the rows of merged contents, and counts what is dead in them.
#[derive(Debug)]
pub struct Shown<'t> {
    table: &'t Table,
    now: LocalSeconds,
    graves: Graves,
}

impl<'t> Shown<'t> {
    /// For a reader of `table` at `now`.
    pub fn new(table: &'t Table, now: LocalSeconds) -> Self {
        Self { table, now, graves: Graves::new(table, now) }
    }

    /// The live part of a row that no deletion but its own shadows; `None` if nothing of it is live.
    pub fn row<'a>(&self, row: RowView<'a>, scratch: &'a mut VisibleScratch) -> Option<RowView<'a>> {
        visible(self.table, row, DeletionTime::LIVE, self.now, &self.graves, scratch)
    }

    /// Counts a place at which the range deletion in force changes.
    pub fn change(&mut self, deletion: DeletionTime) {
        self.graves.change(deletion, DeletionTime::LIVE);
    }

    /// Counts a partition of which nothing is live.
    pub fn dead_partition(&self) {
        self.graves.pass();
    }

    /// The dead data since the last call.
    pub fn take_dead(&self) -> Dead {
        self.graves.take()
    }
}
