//! What is left of a read, how long it may take, and how the reading of one part of it ended.

use std::cell::Cell;

use reactor::Deadline;
use storage::{PartitionRange, Slices};

use super::merge::Inside;
use crate::error::ReplicationError;

/// How long a read may take.
#[derive(Debug, Clone, Copy)]
pub(super) enum Time<'t> {
    /// Until then.
    Until(Deadline),
    /// Until the deadline of the fetch under way, which later fetches replace.
    Fetch(&'t Cell<Deadline>),
}

impl Time<'_> {
    /// The deadline of a page that is asked for now.
    pub(super) fn of_page(self) -> Deadline {
        match self {
            Self::Until(deadline) => deadline,
            Self::Fetch(current) => current.get(),
        }
    }
}

/// What is left of a read.
#[derive(Debug, Clone)]
pub(super) struct Rest {
    pub(super) range: PartitionRange,
    pub(super) slices: Slices,
    /// Set within a partition of which the reader has had a part: `range` is the partition.
    pub(super) inside: Option<Inside>,
    /// The range behind `range`.
    pub(super) then: Option<PartitionRange>,
}

/// How the reading of a part ended.
pub(super) enum Part {
    /// All was read that lies in the part.
    Done,
    /// The reader has enough.
    Stopped,
    /// This is left, of the part and behind it.
    Left(Rest),
    /// A later plan may have this.
    Again(Rest, ReplicationError),
}
