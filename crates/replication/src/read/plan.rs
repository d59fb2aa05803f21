//! Which shards a read goes to, in which order.

use std::ops::RangeInclusive;

use storage::{PartitionRange, ReadCommand};

use crate::placement::shard_of;

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
    pub(super) fn new(command: &ReadCommand, required: u32) -> Self {
        let shards = match &command.range {
            PartitionRange::Key(key) => {
                let shard = shard_of(&command.table, key.token);
                shard..=shard
            }
            PartitionRange::Between { from, to } => {
                shard_of(&command.table, from.token)..=shard_of(&command.table, to.token)
            }
        };
        Self { shards, required }
    }
}
