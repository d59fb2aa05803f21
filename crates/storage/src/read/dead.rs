//! Counts dead data that a read passes, as Cassandra does (`ReadCommand.MetricRecording`).
//!
//! Only a row that loses something on the way to its reader has anything to count, so rows without deletions
//! cost nothing here. Tombstones past their grace period are not counted, though they have to be passed as
//! well.

use std::cell::Cell;

use model::clustering::Position;
use model::deletion::LocalSeconds;
use model::reconcile::{Purge, compact_row};
use model::row::CellKind;
use model::{DeletionTime, RowView, Table, Token};

use super::command::{Dead, Flow, Place, RowConsumer};

/// Counts the dead data of one partition.
#[derive(Debug)]
pub(crate) struct Graves {
    grace: Purge,
    /// The range deletion in force, if it counts.
    told: DeletionTime,
    /// Counts that were not reported yet.
    found: Cell<Dead>,
}

impl Graves {
    pub(crate) fn new(table: &Table, now: LocalSeconds) -> Self {
        let gc_before = now.saturating_sub(table.definition().options.gc_grace_seconds);
        Self {
            grace: Purge { now, gc_before, timestamp_limit: i64::MAX },
            told: DeletionTime::LIVE,
            found: Cell::default(),
        }
    }

    /// Counts a row that lost something; `seen` is whether anything of it is visible.
    #[cold]
    #[inline(never)]
    pub(crate) fn row(&self, row: RowView<'_>, active: DeletionTime, seen: bool) {
        let mut found = self.found.get();
        if !seen {
            found.passed += 1;
        }
        let mut left = Vec::new();
        if compact_row(row, active, &self.grace, &mut left) {
            let left = RowView::trusted(&left);
            let dead_cells =
                left.cells().filter(|cell| matches!(cell.kind, CellKind::Tombstone { .. })).count();
            let dead_cells = u32::try_from(dead_cells).unwrap_or(u32::MAX);
            // If no dead cell was counted, the row's own deletion, its expired marker or a collection's
            // deletion counts.
            found.tombstones = found.tombstones.saturating_add(match (dead_cells, seen) {
                (0, false) => 1,
                (cells, _) => cells,
            });
        }
        self.found.set(found);
    }

    /// Notes that the range deletion in force changes to `active`, in a partition with its own deletion.
    pub(crate) fn change(&mut self, active: DeletionTime, partition: DeletionTime) {
        let told =
            if active.supersedes(partition) { self.grace.deletion(active) } else { DeletionTime::LIVE };
        let found = self.found.get_mut();
        found.passed += 1;
        if told != self.told {
            found.tombstones += 1;
        }
        self.told = told;
    }

    /// Whether there are counts to report.
    #[inline]
    pub(crate) fn found_any(&self) -> bool {
        self.found.get() != Dead::default()
    }

    /// Reports the counts before `position` of a partition.
    #[cold]
    #[inline(never)]
    pub(crate) fn say(
        &self,
        (token, key): (Token, &[u8]),
        position: Option<Position<'_>>,
        consumer: &mut dyn RowConsumer,
    ) -> Flow {
        consumer.dead(self.found.take(), Place { token, key, position })
    }

    /// Reports a partition that ended with nothing visible.
    pub(crate) fn partition(&self, key: (Token, &[u8]), consumer: &mut dyn RowConsumer) -> Flow {
        self.pass();
        self.say(key, None, consumer)
    }

    /// Counts a partition that ended with nothing visible.
    pub(super) fn pass(&self) {
        let mut found = self.found.get();
        found.passed += 1;
        self.found.set(found);
    }

    /// Takes the counts.
    pub(super) fn take(&self) -> Dead {
        self.found.take()
    }
}
