//! Which shards a read goes to, in which order.

use std::ops::RangeInclusive;

use storage::{PartitionRange, ReadCommand};

use crate::replicator::Replicator;

/// The replicas of one read. Small, because what a read leaves unread carries it.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadPlan {
    /// First and last shard of this node, in token order: they have contiguous runs of tablets.
    first: u16,
    last: u16,
    /// Answers to wait for.
    pub(super) required: u32,
}

impl ReadPlan {
    #[inline]
    pub(super) fn new(replicator: &Replicator, command: &ReadCommand, required: u32) -> Self {
        let table = &command.table;
        match &command.range {
            PartitionRange::Key(key) => Self::of_shard(replicator.shard_of(table, key.token), required),
            PartitionRange::Between { from, to } => {
                let shard_of = |token| replicator.shard_of(table, token) as u16;
                // The tokens of a range that is empty may be the other way round: then there is no shard.
                Self { first: shard_of(from.token), last: shard_of(to.token), required }
            }
        }
    }

    /// A read of one partition.
    #[inline]
    pub(super) fn of_shard(shard: usize, required: u32) -> Self {
        Self { first: shard as u16, last: shard as u16, required }
    }

    /// The shards, in token order.
    #[inline]
    pub(super) fn shards(&self) -> RangeInclusive<usize> {
        usize::from(self.first)..=usize::from(self.last)
    }
}
