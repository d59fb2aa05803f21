//! A read: planned over the shards that have its partitions, answered in token order.

mod answer;
mod collect;
mod paced;
mod plan;
pub mod position;

use std::pin::pin;

use model::Table;
use reactor::Deadline;
use storage::{PartitionRange, ReadCommand, RowConsumer};

use crate::admission::{self, Operation};
use crate::consistency::Consistency;
use crate::error::{ReplicaFailure, ReplicationError};
use crate::replicator::Replicator;
use plan::ReadPlan;

/// The most of a read that the receiver can use; other shards need not send more.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadLimits {
    /// Rows in all; `None` if rows are filtered after they were read.
    pub rows: Option<usize>,
    /// Rows of each partition; 0 for partitions without rows.
    pub rows_per_partition: Option<usize>,
}

/// How far a read came without waiting.
#[derive(Debug)]
pub enum FromMemory {
    /// Everything requested was handed over.
    Done,
    /// Nothing was handed over: call [`Replicator::read`].
    NotBegun,
    /// Memory lacks some of it: continue with [`Replicator::read_unread`].
    Partial(Unread),
}

/// The part of a planned read that memory lacks.
#[derive(Debug)]
pub struct Unread {
    /// Of the replica on this shard.
    local: Box<storage::Unread>,
    /// Answers to wait for.
    required: u32,
}

impl Replicator {
    /// Feeds `consumer` the rows that `command` finds, at `consistency`.
    ///
    /// Partitions come in token order over all shards. The consumer can end the read at once by its return
    /// value. The time until `deadline` is for one partition's read, or for each fetch of a range, however
    /// many there are.
    ///
    /// # Errors
    /// [`ReplicationError::Unavailable`] before anything is read; later errors come after the consumer may
    /// have taken rows.
    #[inline]
    pub async fn read(
        &self,
        command: &ReadCommand,
        limits: ReadLimits,
        consistency: Consistency,
        deadline: Deadline,
        consumer: &mut dyn RowConsumer,
    ) -> Result<(), ReplicationError> {
        let required = self.required(command.table.keyspace(), consistency)?;
        let plan = ReadPlan::new(self, command, required);
        if matches!(command.range, PartitionRange::Between { .. }) {
            // Boxed, so that a read of one partition does not carry the space of a range's.
            return Box::pin(paced::in_fetches(self, &plan, command, limits, deadline, consumer)).await;
        }
        if admission::may_be_limited(&command.table)
            && let PartitionRange::Key(key) = &command.range
            && self.replica_of(&command.table, key.token) == self.own()
        {
            let checked = self.limiter().check(&command.table, key.token, Operation::Read, true);
            checked.map_err(|failure| failure.here(required))?;
        }
        let collecting = pin!(collect::collect(self, &plan, command, limits, consumer));
        let answer = reactor::timeout(deadline, collecting).await;
        answer.unwrap_or(Err(ReplicationError::TimedOut { received: 0, required }))
    }

    /// Feeds `consumer` the rows that `command` finds in the replicas of this shard alone.
    ///
    /// # Errors
    /// The error of the shard's storage.
    pub async fn read_own(
        &self,
        command: &ReadCommand,
        consumer: &mut dyn RowConsumer,
    ) -> Result<(), ReplicationError> {
        let read = self.storage().read(command, consumer).await;
        read.map_err(|error| ReplicaFailure::from(error).here(1))
    }

    /// As [`Replicator::read`], if the partition is this shard's, as far as the read does not have to wait. A
    /// caller that takes the answer calls [`Replicator::note_read`].
    ///
    /// # Errors
    /// [`ReplicationError::Unavailable`]; nothing was read then.
    #[inline]
    pub fn read_from_memory(
        &self,
        command: &ReadCommand,
        consistency: Consistency,
        consumer: &mut dyn RowConsumer,
    ) -> Result<FromMemory, ReplicationError> {
        let PartitionRange::Key(key) = &command.range else { return Ok(FromMemory::NotBegun) };
        let table = &command.table;
        if self.replica_of(table, key.token) != self.own() || admission::may_be_limited(table) {
            return Ok(FromMemory::NotBegun);
        }
        let required = self.required_of(table, consistency)?;
        Ok(match self.storage().read_from_memory(command, consumer) {
            storage::FromMemory::Done => FromMemory::Done,
            storage::FromMemory::NotBegun => FromMemory::NotBegun,
            storage::FromMemory::Partial(local) => FromMemory::Partial(Unread { local, required }),
        })
    }

    /// Notes that a client gets what [`Replicator::read_from_memory`] handed over, for those who count which
    /// partitions are used.
    #[inline]
    pub fn note_read(&self, table: &Table, key: &[u8]) {
        self.storage().note_read(table.id(), key);
    }

    /// Continues a read that [`Replicator::read_from_memory`] began.
    ///
    /// # Errors
    /// As [`Replicator::read`].
    pub async fn read_unread(
        &self,
        command: &ReadCommand,
        Unread { local, required }: Unread,
        deadline: Deadline,
        consumer: &mut dyn RowConsumer,
    ) -> Result<(), ReplicationError> {
        let reading = pin!(self.storage().read_unread(command, local, consumer));
        match reactor::timeout(deadline, reading).await {
            Ok(read) => read.map_err(|error| ReplicaFailure::from(error).here(required)),
            Err(_) => Err(ReplicationError::TimedOut { received: 0, required }),
        }
    }
}
