//! The destinations of a write, and the number of acknowledgements it needs.

use model::{Table, Token};

use crate::replicator::Replicator;

/// The replicas of one write. Small, because each pending write carries it.
#[derive(Debug, Clone, Copy)]
pub(super) struct WritePlan {
    /// Shard of this node that has the partition.
    shard: u16,
    /// Answers to wait for.
    pub(super) required: u32,
}

impl WritePlan {
    #[inline]
    pub(super) fn new(replicator: &Replicator, table: &Table, token: Token, required: u32) -> Self {
        Self { shard: replicator.shard_of(table, token) as u16, required }
    }

    /// A write of a partition that this shard has.
    #[inline]
    pub(super) fn here(required: u32) -> Self {
        Self { shard: reactor::shard_id() as u16, required }
    }

    /// Shard of this node that has the partition.
    #[inline]
    pub(super) fn shard(&self) -> usize {
        usize::from(self.shard)
    }
}
