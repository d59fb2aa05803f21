//! The destinations of a write, and the number of acknowledgements it needs.

use model::{Table, Token};

use crate::replicator::Replicator;

/// The replicas of one write.
#[derive(Debug, Clone, Copy)]
pub(super) struct WritePlan {
    /// Shard of this node that has the partition.
    pub(super) shard: usize,
    /// Answers to wait for.
    pub(super) required: u32,
}

impl WritePlan {
    #[inline]
    pub(super) fn new(replicator: &Replicator, table: &Table, token: Token, required: u32) -> Self {
        Self { shard: replicator.shard_of(table, token), required }
    }
}
