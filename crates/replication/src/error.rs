//! Errors of writing and reading replicas, as facts; `query` converts them to its own errors.

use model::TableId;
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
    /// The local replica failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The replica's shard failed.
    #[error("shard {shard}: {reason}")]
    Shard {
        /// Which.
        shard: usize,
        /// The text of its error.
        reason: String,
    },
    /// The replica's shard accepted no more writes before the deadline, or has too many waiting reads.
    #[error("shard {shard} is overloaded: {reason}")]
    Overloaded {
        /// The shard.
        shard: usize,
        /// The text of its error.
        reason: String,
    },
    /// The table does not exist any more.
    #[error("there is no table {0}")]
    TableGone(TableId),
    /// The other shard could not be called.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// An answer of another shard is broken.
    #[error("an answer of shard {shard} is broken")]
    BrokenAnswer {
        /// The shard.
        shard: usize,
    },
}

/// A failure on its way between shards.
#[derive(Debug, Clone)]
pub(crate) enum RemoteFailure {
    /// As [`ReplicationError::TableGone`].
    TableGone(TableId),
    /// As [`ReplicationError::Overloaded`].
    Overloaded(String),
    /// As [`StorageError::RateLimited`].
    RateLimited {
        /// Keyspace.
        keyspace: String,
        /// Table.
        table: String,
        /// Whether the operation was a write.
        is_write: bool,
    },
    /// As [`StorageError::MutationTooLarge`].
    TooLarge {
        /// Bytes of the mutation.
        bytes: usize,
        /// Most bytes it may have.
        bytes_max: usize,
    },
    /// The replica's own deadline passed.
    TimedOut,
    /// As [`ReplicationError::Shard`].
    Failed(String),
}

impl RemoteFailure {
    pub(crate) fn of(error: &StorageError) -> Self {
        match error {
            StorageError::UnknownTable { table } => Self::TableGone(*table),
            StorageError::Overloaded { .. }
            | StorageError::TooManyReads { .. }
            | StorageError::DiskNearlyFull { .. } => Self::Overloaded(error.to_string()),
            StorageError::RateLimited { keyspace, table, is_write, .. } => {
                Self::RateLimited { keyspace: keyspace.clone(), table: table.clone(), is_write: *is_write }
            }
            StorageError::MutationTooLarge { bytes, bytes_max } => {
                Self::TooLarge { bytes: *bytes, bytes_max: *bytes_max }
            }
            StorageError::CommitlogTimedOut | StorageError::TabletBusy { .. } => Self::TimedOut,
            _ => Self::Failed(error.to_string()),
        }
    }

    pub(crate) fn at(self, shard: usize, required: u32) -> ReplicationError {
        match self {
            Self::TableGone(table) => ReplicationError::TableGone(table),
            Self::Overloaded(reason) => ReplicationError::Overloaded { shard, reason },
            Self::RateLimited { keyspace, table, is_write } => {
                StorageError::RateLimited { keyspace, table, is_write, by_coordinator: false }.into()
            }
            Self::TooLarge { bytes, bytes_max } => StorageError::MutationTooLarge { bytes, bytes_max }.into(),
            Self::TimedOut => ReplicationError::TimedOut { received: 0, required },
            Self::Failed(reason) => ReplicationError::Shard { shard, reason },
        }
    }
}
