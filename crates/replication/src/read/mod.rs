//! A read: planned over the shards that have its partitions, answered in token order.

mod answer;
mod paced;
mod plan;
pub mod position;
mod quorum;

use std::pin::pin;

use reactor::Deadline;
use storage::{Now, PartitionRange, ReadCommand, Rest, RowConsumer};

use crate::admission::{self, Operation};
use crate::consistency::Consistency;
use crate::error::ReplicationError;
use crate::placement::shard_of;
use crate::replicator::Replicator;

/// The most of a read that the receiver can use; other shards need not send more.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadLimits {
    /// Rows in all; `None` if rows are filtered after they were read.
    pub rows: Option<usize>,
    /// Rows of each partition; 0 for partitions without rows.
    pub rows_per_partition: Option<usize>,
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
        let plan = plan::ReadPlan::new(command, required);
        if matches!(command.range, PartitionRange::Between { .. }) {
            // Boxed, so that a read of one partition does not carry the space of a range's.
            return Box::pin(paced::collect(self, &plan, command, limits, deadline, consumer)).await;
        }
        if admission::may_be_limited(&command.table)
            && let PartitionRange::Key(key) = &command.range
            && *plan.shards.start() == reactor::shard_id()
        {
            self.limiter().check(&command.table, key.token, Operation::Read, true)?;
        }
        let collecting = pin!(quorum::collect(self, &plan, command, limits, consumer));
        let answer = reactor::timeout(deadline, collecting).await;
        answer.unwrap_or(Err(ReplicationError::TimedOut { received: 0, required }))
    }

    /// As [`Replicator::read`], if the partition is this shard's and the read does not have to wait.
    ///
    /// # Errors
    /// [`ReplicationError::Unavailable`]; nothing was read then.
    #[inline]
    pub fn read_now(
        &self,
        command: &ReadCommand,
        consistency: Consistency,
        consumer: &mut dyn RowConsumer,
    ) -> Result<Now, ReplicationError> {
        let PartitionRange::Key(key) = &command.range else { return Ok(Now::NotBegun) };
        let table = &command.table;
        if shard_of(table, key.token) != reactor::shard_id() || admission::may_be_limited(table) {
            return Ok(Now::NotBegun);
        }
        self.required_of(table, consistency)?;
        Ok(self.storage().read_now(command, consumer))
    }

    /// Goes on where [`Replicator::read_now`] has left something.
    ///
    /// # Errors
    /// As [`Replicator::read`].
    pub async fn read_rest(
        &self,
        command: &ReadCommand,
        rest: Box<Rest>,
        consistency: Consistency,
        deadline: Deadline,
        consumer: &mut dyn RowConsumer,
    ) -> Result<(), ReplicationError> {
        let required = self.required(command.table.keyspace(), consistency)?;
        let reading = pin!(self.storage().read_rest(command, rest, consumer));
        match reactor::timeout(deadline, reading).await {
            Ok(read) => read.map_err(quorum::storage_error),
            Err(_) => Err(ReplicationError::TimedOut { received: 0, required }),
        }
    }
}
