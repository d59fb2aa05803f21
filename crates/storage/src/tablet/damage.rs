//! What becomes of table files that cannot be read, by `disk_failure_policy`.
//!
//! A damaged file stays where it is and in its tablet's set: whoever needs what is damaged fails, others are served, and
//! a scrub finds it. Only `best_effort` goes on without a file: at the start without one that cannot be opened, later
//! without one that the disk does not read; both are told in the log and counted. Invariant: no other policy ever
//! answers without the rows of a file that is there, and no policy forgets tombstones while one is left out.

use std::rc::Rc;

use reactor::Event;
use reactor::metrics::{self, Counter};
use sstable::{Descriptor, SstableError};

use crate::disk::{FailurePolicy, is_shortage};
use crate::error::StorageError;

/// A shard's damaged files: who waits for them, and what the policy makes of them.
pub(crate) struct Damage {
    policy: FailurePolicy,
    /// There is a file to be set aside, or an end to it.
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

    /// What to do about a file that cannot be opened at the start.
    pub(super) fn at_start(&self, error: &StorageError) -> AtStart {
        match (self.policy, error) {
            (_, StorageError::Io { source, .. }) if is_shortage(source) => AtStart::End,
            (FailurePolicy::BestEffort, _) => AtStart::SetAside,
            (FailurePolicy::Ignore, _) => AtStart::RefuseReads,
            _ => AtStart::End,
        }
    }

    /// Whether reads go on without a file after this error of reading it.
    pub(super) fn gives_up(&self, error: &SstableError) -> bool {
        // Damage is found in one place of a file; a disk that fails is not asked again.
        let is_disk = matches!(error, SstableError::Io { source, .. } if !is_shortage(source));
        is_disk && self.policy == FailurePolicy::BestEffort
    }

    /// Counts a file that reads go on without.
    pub(crate) fn count_set_aside(&self) {
        self.set_aside.inc();
    }
}

/// What becomes of a start that cannot open a table file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AtStart {
    /// It ends.
    End,
    /// The file is moved out of the way, and reads go on without it.
    SetAside,
    /// It goes on; reads of the tablet fail and name the file.
    RefuseReads,
}

/// A table file on the disk that is in no set, and is not to be removed.
#[derive(Debug, Clone)]
pub(crate) struct LeftOut {
    pub(crate) descriptor: Descriptor,
    /// Why, where reads of the tablet fail for it.
    pub(crate) refuses: Option<StorageError>,
}
