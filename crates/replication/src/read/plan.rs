//! Which shards a read goes to, in which order.

use std::ops::RangeInclusive;

use storage::{PartitionRange, ReadCommand};

use crate::replicator::Replicator;

/// The replicas of one read.
#[derive(Debug, Clone)]
pub(super) struct ReadPlan {
    /// Shards of this node, in token order: they have contiguous runs of tablets.
    pub(super) shards: RangeInclusive<usize>,
    /// Answers to wait for.
    pub(super) required: u32,
}

impl ReadPlan {
    #[inline]
    pub(super) fn new(replicator: &Replicator, command: &ReadCommand, required: u32) -> Self {
        let shards = match &command.range {
            PartitionRange::Key(key) => {
                let shard = replicator.shard_of(&command.table, key.token);
                shard..=shard
            }
            PartitionRange::Between { from, to } => {
                let shard_of = |token| replicator.shard_of(&command.table, token);
                shard_of(from.token)..=shard_of(to.token)
            }
        };
        Self { shards, required }
    }
}
