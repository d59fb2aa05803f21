//! The log as the library reads it: entries behind the last snapshot, in memory.
//!
//! Invariant: entries are contiguous and begin right behind the snapshot; `raft` appends them as they are
//! handed out to be synced, so that the library finds here everything it no longer holds itself.

use std::collections::VecDeque;

use raft::eraftpb as lib;
use raft::{GetEntriesContext, RaftState, StorageError};

use super::convert;
use super::{Entry, HardState, Members, Recovered, Snapshot};

/// The log in memory.
pub(super) struct MemoryLog {
    hard_state: lib::HardState,
    snapshot: Snapshot,
    entries: VecDeque<lib::Entry>,
}

impl MemoryLog {
    pub(super) fn new(recovered: &Recovered) -> Self {
        let mut log = Self {
            hard_state: convert::hard_state_to_lib(&recovered.hard_state),
            snapshot: recovered.snapshot.clone(),
            entries: VecDeque::new(),
        };
        log.append(recovered.entries.iter().map(convert::entry_to_lib));
        log
    }

    pub(super) fn last(&self) -> u64 {
        self.snapshot.index + self.entries.len() as u64
    }

    /// Appends entries in place of those that have their indexes, and of all behind them.
    pub(super) fn append(&mut self, entries: impl IntoIterator<Item = lib::Entry>) {
        for entry in entries {
            let (first, last) = (self.snapshot.index, self.last());
            assert!(
                first < entry.index && entry.index <= last + 1,
                "entry {} does not follow a log of {first} to {last}",
                entry.index
            );
            self.entries.truncate((entry.index - first - 1) as usize);
            self.entries.push_back(entry);
        }
    }

    /// Begins anew behind a snapshot of another node.
    pub(super) fn install(&mut self, snapshot: Snapshot) {
        self.entries.clear();
        self.snapshot = snapshot;
    }

    /// Forgets entries that a snapshot of this node covers.
    pub(super) fn compact(&mut self, snapshot: Snapshot) {
        let (first, last) = (self.snapshot.index, self.last());
        assert!(
            first <= snapshot.index && snapshot.index <= last,
            "a snapshot of {} for a log of {first} to {last}",
            snapshot.index
        );
        self.entries.drain(..(snapshot.index - first) as usize);
        self.snapshot = snapshot;
    }

    pub(super) fn term_at(&self, index: u64) -> Option<u64> {
        if index == self.snapshot.index {
            return Some(self.snapshot.term);
        }
        let place = index.checked_sub(self.snapshot.index + 1)?;
        self.entries.get(place as usize).map(|entry| entry.term)
    }

    pub(super) fn entries_after(&self, index: u64) -> Vec<Entry> {
        let skipped = index.saturating_sub(self.snapshot.index) as usize;
        self.entries.iter().skip(skipped).map(convert::entry_from_lib).collect()
    }

    pub(super) fn members(&self) -> &Members {
        &self.snapshot.members
    }

    pub(super) fn set_hard_state(&mut self, state: &HardState) {
        self.hard_state = convert::hard_state_to_lib(state);
    }
}

impl raft::Storage for MemoryLog {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.hard_state.clone(), convert::members_to_lib(&self.snapshot.members)))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<lib::Entry>> {
        if low <= self.snapshot.index {
            return Err(StorageError::Compacted.into());
        }
        assert!(high <= self.last() + 1, "entries up to {high} of a log that ends at {}", self.last());
        let bytes_max = max_size.into().unwrap_or(u64::MAX);
        let mut bytes = 0u64;
        let skipped = (low - self.snapshot.index - 1) as usize;
        let wanted = self.entries.iter().skip(skipped).take((high - low) as usize);
        // The first entry is always given, so that a long one gets through.
        let within = wanted.enumerate().take_while(|(number, entry)| {
            bytes += (entry.data.len() + entry.context.len()) as u64;
            *number == 0 || bytes <= bytes_max
        });
        Ok(within.map(|(_, entry)| entry.clone()).collect())
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index < self.snapshot.index {
            return Err(StorageError::Compacted.into());
        }
        self.term_at(index).ok_or_else(|| StorageError::Unavailable.into())
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.snapshot.index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, _: u64) -> raft::Result<lib::Snapshot> {
        if self.snapshot.index < request_index {
            return Err(StorageError::SnapshotTemporarilyUnavailable.into());
        }
        Ok(convert::snapshot_to_lib(&self.snapshot))
    }
}
