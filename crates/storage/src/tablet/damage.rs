//! Handles table files that cannot be read, by `disk_failure_policy`.
//!
//! A damaged file stays in its place and in its tablet's set: reads of the damaged part fail, others are
//! served, and a scrub finds the file. Only `best_effort` goes on without a file: at the start, without one
//! that cannot be opened; later, without one that the disk cannot read. Both are logged and counted.
//! Invariant: no other policy ever answers without the rows of a file that exists, and no policy purges
//! tombstones while a file is left out.

use std::rc::Rc;

use reactor::Event;
use reactor::metrics::{self, Counter};
use sstable::{Descriptor, SstableError};

use crate::disk::{FailurePolicy, is_shortage};
use crate::error::StorageError;

/// The policy for a shard's damaged files, and the event for the task that sets them aside.
pub(crate) struct Damage {
    policy: FailurePolicy,
    /// Notified when there is a file to be set aside, or when that task has to end.
    pub(crate) found: Event,
    set_aside: Rc<Counter>,
}

impl Damage {
    pub(crate) fn new(policy: FailurePolicy) -> Self {
        Self {
            policy,
            found: Event::new(),
            set_aside: metrics::counter(
                "scylla_sstables_set_aside",
                "Table files that reads go on without, because they cannot be read (disk_failure_policy: best_effort).",
                &[],
            ),
        }
    }

    /// Decides how to go on when a file cannot be opened at the start.
    pub(crate) fn at_start(&self, error: &StorageError) -> AtStart {
        match (self.policy, error) {
            (_, StorageError::Io { source, .. }) if is_shortage(source) => AtStart::End,
            (FailurePolicy::BestEffort, _) => AtStart::SetAside,
            (FailurePolicy::Ignore, _) => AtStart::RefuseReads,
            _ => AtStart::End,
        }
    }

    /// Whether reads go on without a file after this error of reading it.
    pub(super) fn gives_up(&self, error: &SstableError) -> bool {
        // Damage concerns one place of a file; a disk that fails is not asked again.
        let is_disk = matches!(error, SstableError::Io { source, .. } if !is_shortage(source));
        is_disk && self.policy == FailurePolicy::BestEffort
    }

    /// Counts a file that reads go on without.
    pub(crate) fn count_set_aside(&self) {
        self.set_aside.inc();
    }
}

/// How a start goes on that cannot open a table file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtStart {
    /// The start ends with the error.
    End,
    /// The file is moved out of the way, and reads go on without it.
    SetAside,
    /// The start goes on; reads of the tablet fail and name the file.
    RefuseReads,
}

/// A table file on the disk that is in no set and must not be removed.
#[derive(Debug, Clone)]
pub(crate) struct LeftOut {
    pub(crate) descriptor: Descriptor,
    /// The error of the tablet's reads, if they fail because of this file.
    pub(crate) refuses: Option<StorageError>,
    /// Whether the file is left out of every tablet of its table, because its tablet is unknown; shard 0 then
    /// has it in its part of the manifest.
    pub(crate) is_shared: bool,
}
