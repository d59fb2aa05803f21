//! Snapshots: one is taken now and then, and what it holds taken in again later changes nothing.
//!
//! That is so as long as the table was not truncated in between and keeps its tombstones: rows know their
//! timestamps. A snapshot whose taking failed may be there in part; its name is not used again.

use storage::{ImportSource, SnapshotRequest};

use super::{Worker, config};
use crate::table::forgets;

/// A snapshot of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Snapshot {
    /// The table.
    id: u128,
    /// Its name.
    number: u32,
}

impl Worker {
    /// Takes a snapshot of a table; a later one takes its place.
    pub(super) async fn snapshot(&self, slot: usize) -> Result<(), String> {
        let (Some(table), Some(id)) = (self.table_id(slot), self.shared.borrow().tables[slot]) else {
            return Ok(());
        };
        let number = {
            let mut shared = self.shared.borrow_mut();
            shared.next += 1;
            shared.snapshots[slot] = None;
            shared.next
        };
        let request =
            SnapshotRequest { tag: number.to_string(), tables: vec![table], skip_flush: false, ttl: None };
        match self.storage.take_snapshot(&request).await {
            Ok(()) => {
                self.shared.borrow_mut().snapshots[slot] = Some(Snapshot { id, number });
                Ok(())
            }
            Err(error) => self.unless_faulty(&format!("a snapshot failed: {error}")),
        }
    }

    /// Takes in what a snapshot holds, and leaves the snapshot.
    pub(super) async fn take_in_again(&self, slot: usize) -> Result<(), String> {
        let (Some(table), Some(snapshot)) = (self.table(slot), self.shared.borrow().snapshots[slot]) else {
            return Ok(());
        };
        if forgets(slot) || self.shared.borrow().tables[slot] != Some(snapshot.id) {
            return Ok(());
        }
        let folder = config(true)
            .data_dir
            .join(format!("sim/t{slot}-{:032x}/snapshots/{}", snapshot.id, snapshot.number));
        let directory = Some(folder);
        let from = ImportSource { directory, keep: true };
        match self.storage.import(table.id(), &from).await {
            Ok(_) => self.scan(slot).await,
            Err(error) => self.unless_faulty(&format!("a snapshot was not taken in again: {error}")),
        }
    }

    /// The table was truncated: what a snapshot holds is not in it any more.
    pub(super) fn forget_snapshot(&self, slot: usize) {
        self.shared.borrow_mut().snapshots[slot] = None;
    }
}
