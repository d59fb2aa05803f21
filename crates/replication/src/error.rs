//! Errors of writing and reading replicas, as facts; `query` converts them to its own errors.
//!
//! A replica's error takes one way, wherever the replica is: [`ReplicaFailure::from`] decides on each error
//! of storage what it means for a request, and [`ReplicaFailure::at`] adds the facts of the plan. Invariant:
//! the same error of a replica gives the same error of the request on every shard.

use model::TableId;
use model::mutation::MutationCorrupt;
use reactor::mesh::MeshError;
use storage::StorageError;

/// Why a write or a read did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ReplicationError {
    /// Fewer replicas are alive than the consistency level needs; nothing was done.
    #[error("{required} replicas are needed, {alive} are alive")]
    Unavailable {
        /// Replicas the level needs.
        required: u32,
        /// Replicas alive.
        alive: u32,
    },
    /// Too few replicas answered in time; a write may still have happened.
    #[error("{received} of {required} replicas answered in time")]
    TimedOut {
        /// Answers received.
        received: u32,
        /// Answers needed.
        required: u32,
    },
    /// A conditional write was proposed and not acknowledged in time: it may have been written, or may still
    /// be.
    #[error("{received} of {required} replicas accepted the proposal in time")]
    Undecided {
        /// Replicas that are known to have accepted it.
        received: u32,
        /// Replicas needed.
        required: u32,
    },
    /// Replicas failed, and too few are left for the consistency level.
    #[error("shard {shard}: {reason}")]
    Failed {
        /// The shard of the replica that failed last.
        shard: usize,
        /// The text of its error.
        reason: String,
        /// Answers received.
        received: u32,
        /// Answers needed.
        required: u32,
        /// Replicas that failed.
        failed: u32,
    },
    /// The replica's shard accepted no more writes before the deadline, or has too many waiting reads.
    #[error("shard {shard} is overloaded: {reason}")]
    Overloaded {
        /// The shard.
        shard: usize,
        /// The text of its error.
        reason: String,
    },
    /// The partition is used more often than its table allows.
    #[error(
        "Per-partition rate limit reached for {} in table {keyspace}.{table}, rejected by {}",
        if *is_write { "writes" } else { "reads" },
        if *by_coordinator { "coordinator" } else { "replicas" }
    )]
    RateLimited {
        /// Keyspace of the table.
        keyspace: String,
        /// Name of the table.
        table: String,
        /// Whether the operation was a write.
        is_write: bool,
        /// Whether the shard that coordinates refused it, and not the one that has the partition.
        by_coordinator: bool,
    },
    /// The mutation is longer than allowed.
    #[error("a mutation of {bytes} bytes is larger than {bytes_max}")]
    TooLarge {
        /// Bytes of the mutation.
        bytes: usize,
        /// Most bytes it may have.
        bytes_max: usize,
    },
    /// The table does not exist any more.
    #[error("there is no table {0}")]
    TableGone(TableId),
    /// The mutation does not have the shape of the table's rows.
    #[error("a mutation does not fit table {0}")]
    Misfit(TableId),
    /// The cluster has several nodes: nothing was done.
    #[error(
        "ceto does not read or write data of keyspace {keyspace} yet where its cluster has several nodes: they agree on the \
         schema and on each other, and have no copies of rows"
    )]
    SeveralNodes {
        /// The keyspace.
        keyspace: String,
    },
    /// The replica's node is stopping.
    #[error("shard {shard} is stopping")]
    Stopping {
        /// The shard.
        shard: usize,
    },
}

/// Why a replica could not do its part, in a form that can be sent between shards.
#[derive(Debug, Clone)]
pub(crate) enum ReplicaFailure {
    /// As [`ReplicationError::TableGone`].
    TableGone(TableId),
    /// As [`ReplicationError::Misfit`].
    Misfit(TableId),
    /// As [`ReplicationError::Overloaded`].
    Overloaded(String),
    /// As [`ReplicationError::RateLimited`].
    RateLimited {
        /// Keyspace of the table.
        keyspace: String,
        /// Name of the table.
        table: String,
        /// Whether the operation was a write.
        is_write: bool,
        /// Whether the coordinator itself refused it.
        by_coordinator: bool,
    },
    /// As [`ReplicationError::TooLarge`].
    TooLarge {
        /// Bytes of the mutation.
        bytes: usize,
        /// Most bytes it may have.
        bytes_max: usize,
    },
    /// The replica's own deadline passed.
    TimedOut,
    /// As [`ReplicationError::Stopping`].
    Stopping,
    /// As [`ReplicationError::Failed`]; the text of the error.
    Failed(String),
}

impl ReplicaFailure {
    /// The shard has not opened its data yet.
    pub(crate) fn starting() -> Self {
        Self::Failed("the shard is starting".to_owned())
    }

    /// The error of a request that waits for `required` answers and got none, after the only replica it
    /// asked, on `shard`, failed.
    #[cold]
    pub(crate) fn at(self, shard: usize, required: u32) -> ReplicationError {
        match self {
            Self::TableGone(table) => ReplicationError::TableGone(table),
            Self::Misfit(table) => ReplicationError::Misfit(table),
            Self::Overloaded(reason) => ReplicationError::Overloaded { shard, reason },
            Self::RateLimited { keyspace, table, is_write, by_coordinator } => {
                ReplicationError::RateLimited { keyspace, table, is_write, by_coordinator }
            }
            Self::TooLarge { bytes, bytes_max } => ReplicationError::TooLarge { bytes, bytes_max },
            Self::TimedOut => ReplicationError::TimedOut { received: 0, required },
            Self::Stopping => ReplicationError::Stopping { shard },
            Self::Failed(reason) => {
                ReplicationError::Failed { shard, reason, received: 0, required, failed: 1 }
            }
        }
    }

    /// As [`Self::at`], of this shard's replica.
    #[cold]
    pub(crate) fn here(self, required: u32) -> ReplicationError {
        self.at(reactor::shard_id(), required)
    }
}

impl From<StorageError> for ReplicaFailure {
    #[cold]
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::UnknownTable { table } => Self::TableGone(table),
            StorageError::MutationMisfit { table } => Self::Misfit(table),
            StorageError::MutationTooLarge { bytes, bytes_max } => Self::TooLarge { bytes, bytes_max },
            StorageError::CommitlogTimedOut | StorageError::TabletBusy { .. } => Self::TimedOut,
            StorageError::Overloaded { .. }
            | StorageError::TooManyReads { .. }
            | StorageError::DiskNearlyFull { .. } => Self::Overloaded(error.to_string()),
            StorageError::Draining => Self::Stopping,
            StorageError::Io { .. }
            | StorageError::DiskFull { .. }
            | StorageError::NoRoomToCompact { .. }
            | StorageError::CommitlogDead { .. }
            | StorageError::CommitlogCorrupt { .. }
            | StorageError::SchemaLogCorrupt { .. }
            | StorageError::ControlPlane(_)
            | StorageError::TwoSchemas { .. }
            | StorageError::ManifestCorrupt { .. }
            | StorageError::Missing { .. }
            | StorageError::TableFileCorrupt { .. }
            | StorageError::Import { .. }
            | StorageError::Snapshot { .. }
            | StorageError::Schema(_)
            | StorageError::Mutation(_)
            | StorageError::WrongShard { .. }
            | StorageError::ClusterName { .. }
            | StorageError::IdentityCorrupt { .. }
            | StorageError::Shard { .. } => Self::Failed(error.to_string()),
        }
    }
}

impl From<MutationCorrupt> for ReplicaFailure {
    #[cold]
    fn from(error: MutationCorrupt) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<MeshError> for ReplicaFailure {
    #[cold]
    fn from(error: MeshError) -> Self {
        Self::Failed(error.to_string())
    }
}
