//! Keeps the moves of a table away while an operation goes over all shards of it.
//!
//! A truncation, a snapshot or an import goes from shard to shard: it would miss a tablet that is at none of
//! them when it comes by, or meet one twice. Invariant: while an operation holds, no step of a move of the
//! table is being taken. A move that waits keeps requests waiting at the tablet's new shard, so imports,
//! which may be long, give up when they see that the node was told of other tablets.

use std::time::Duration;

use model::TableId;
use reactor::{Deadline, Group, mesh};

use crate::error::StorageError;
use crate::shard::Storage;
use crate::tablet::Counts;

/// How long an operation waits for the moves of its table to pause.
const HOLD_WITHIN: Duration = Duration::from_secs(60);

/// No tablet of the table moves while this lives.
pub(crate) struct MovesHold {
    storage: Storage,
    table: TableId,
}

/// A step of a move of the table is being taken.
pub(super) struct Step {
    storage: Storage,
    table: TableId,
}

impl Storage {
    /// Waits until no tablet of the table is moving, and keeps it so while the value lives. May be called on
    /// any shard.
    ///
    /// # Errors
    /// [`StorageError::TabletBusy`] if a step of a move takes too long; [`StorageError::Shard`].
    pub(crate) async fn hold_moves(&self, table: TableId) -> Result<MovesHold, StorageError> {
        // In a task of its own: if this caller is dropped, the hold is given back once it is granted.
        let storage = self.clone();
        let holding = reactor::spawn(reactor::current_group(), async move {
            let deadline = Deadline::after(HOLD_WITHIN);
            let called = mesh::call(0, Group::ADMIN, move || async move {
                let Some(storage) = reactor::local::<Storage>() else { return false };
                storage.count(table, |counts| counts.holds += 1);
                let moves = &storage.0.moves;
                let has_steps = || moves.tables.borrow().get(&table).is_some_and(|counts| counts.steps > 0);
                let paused = reactor::timeout(deadline, moves.changed.wait_until(|| !has_steps())).await;
                if paused.is_err() {
                    storage.count(table, |counts| counts.holds -= 1);
                }
                paused.is_ok()
            });
            match called.await {
                Ok(true) => Ok(MovesHold { storage, table }),
                Ok(false) => Err(StorageError::TabletBusy { table }),
                Err(error) => Err(StorageError::Shard { shard: 0, reason: error.to_string() }),
            }
        });
        let held = holding.await;
        held.unwrap_or_else(|panicked| Err(StorageError::Shard { shard: 0, reason: panicked.to_string() }))
    }

    /// Waits until nothing keeps the moves of the table away, and begins a step; `None` if the shard stops.
    pub(super) async fn begin_step(&self, table: TableId) -> Option<Step> {
        let moves = &self.0.moves;
        let is_held = || moves.tables.borrow().get(&table).is_some_and(|counts| counts.holds > 0);
        moves.changed.wait_until(|| !is_held() || self.0.draining.get()).await;
        if self.0.draining.get() {
            return None;
        }
        self.count(table, |counts| counts.steps += 1);
        Some(Step { storage: self.clone(), table })
    }

    /// Changes the counts of a table. On shard 0.
    fn count(&self, table: TableId, change: impl FnOnce(&mut Counts)) {
        assert_eq!(self.0.shard, 0, "shard 0 moves the tablets");
        let mut tables = self.0.moves.tables.borrow_mut();
        let counts = tables.entry(table).or_default();
        change(counts);
        if counts.holds == 0 && counts.steps == 0 {
            tables.remove(&table);
        }
        drop(tables);
        self.0.moves.changed.notify_all();
    }
}

impl Drop for MovesHold {
    fn drop(&mut self) {
        let table = self.table;
        if self.storage.0.shard == 0 {
            self.storage.count(table, |counts| counts.holds -= 1);
        } else if let Ok(gate) = self.storage.0.tasks.enter() {
            drop(reactor::spawn(Group::ADMIN, async move {
                let released = mesh::call(0, Group::ADMIN, move || async move {
                    if let Some(storage) = reactor::local::<Storage>() {
                        storage.count(table, |counts| counts.holds -= 1);
                    }
                });
                // Without shard 0 nothing moves any more.
                let _ = released.await;
                drop(gate);
            }));
        }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        self.storage.count(self.table, |counts| counts.steps -= 1);
    }
}
