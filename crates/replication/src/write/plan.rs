//! The destinations of a write, and the number of acknowledgements it needs.

use model::tablet::Replica;
use model::{Table, Token};

use crate::replicator::Replicator;

/// The replicas of one write. Small, because each pending write carries it.
#[derive(Debug, Clone, Copy)]
pub(super) struct WritePlan {
    /// Has the partition.
    pub(super) replica: Replica,
    /// Answers to wait for.
    pub(super) required: u32,
}

impl WritePlan {
    #[inline]
    pub(super) fn new(replicator: &Replicator, table: &Table, token: Token, required: u32) -> Self {
        Self { replica: replicator.replica_of(table, token), required }
    }

    /// A write of a partition that this shard has.
    #[inline]
    pub(super) fn here(replicator: &Replicator, required: u32) -> Self {
        Self { replica: replicator.own(), required }
    }
}
