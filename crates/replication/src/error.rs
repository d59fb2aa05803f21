//! Errors of writing and reading replicas, as facts; `query` converts them to its own errors.
//!
//! A replica's error takes one way, wherever the replica is: [`ReplicaFailure::from`] decides on each error
//! of storage what it means for a request, [`ReplicaFailure::into_fault`] and [`ReplicaFailure::of_peer`]
//! carry it from node to node, and [`ReplicaFailure::at`] adds the facts of the plan. Invariant: the same
//! error of a replica gives the same error of the request on every shard.

use std::fmt;

use model::TableId;
use model::mutation::{MutationCorrupt, MutationMisfit};
use model::tablet::Replica;
use reactor::mesh::MeshError;
use storage::StorageError;
use wire::node::fault::{Fault, FaultKind};

use crate::peers::{PeerError, PeerErrorKind};

/// A replica as errors name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// The node.
    pub node: u16,
    /// The shard of that node.
    pub shard: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} shard {}", self.node, self.shard)
    }
}

impl From<Replica> for Endpoint {
    fn from(replica: Replica) -> Self {
        Self { node: replica.node, shard: replica.shard }
    }
}

/// Why a replica failed, in the words of Cassandra's `RequestFailureReason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureReason {
    /// Any other reason.
    Unknown,
    /// It did not answer in time.
    Timeout,
    /// It does not know the table as the coordinator does.
    IncompatibleSchema,
    /// It cannot be reached.
    NodeDown,
}

/// Requests that are not done yet where partitions have several replicas, or replicas on other nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotYet {
    /// Conditional statements and serial reads.
    Conditions,
    /// Logged batches.
    LoggedBatches,
}

impl fmt::Display for NotYet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Conditions => "conditional statements (IF) and serial reads",
            Self::LoggedBatches => "logged batches (UNLOGGED ones are)",
        })
    }
}

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
        /// Whether one of those who answered a read sent the data.
        data_present: bool,
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
    #[error("{endpoint}: {reason}")]
    Failed {
        /// The replica that failed last.
        endpoint: Endpoint,
        /// The text of its error.
        reason: String,
        /// Answers received.
        received: u32,
        /// Answers needed.
        required: u32,
        /// The replicas that failed; there is one.
        failures: Vec<(Endpoint, FailureReason)>,
        /// Whether one of those who answered a read sent the data.
        data_present: bool,
    },
    /// The replica's shard accepted no more writes before the deadline, or has too many waiting reads.
    #[error("{endpoint} is overloaded: {reason}")]
    Overloaded {
        /// The replica.
        endpoint: Endpoint,
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
    /// Nothing was done: the request is not done yet with the replicas that its partition has.
    #[error("{what} is not done yet where partitions have several replicas, or replicas on other nodes")]
    NotYet {
        /// The kind of request.
        what: NotYet,
    },
    /// The replica's node is stopping.
    #[error("{endpoint} is stopping")]
    Stopping {
        /// The replica.
        endpoint: Endpoint,
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
    /// The replica has not, or not any more, what the request was planned with; nothing was done.
    Stale(String),
    /// The replica cannot be reached.
    Unreachable(String),
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

    /// The error of a request that waits for `required` answers and got none, after the only replica it asked
    /// failed.
    #[cold]
    pub(crate) fn at(self, replica: Replica, required: u32) -> ReplicationError {
        let endpoint = Endpoint::from(replica);
        let why = self.reason();
        match self {
            Self::TableGone(table) => ReplicationError::TableGone(table),
            Self::Misfit(table) => ReplicationError::Misfit(table),
            Self::Overloaded(reason) => ReplicationError::Overloaded { endpoint, reason },
            Self::RateLimited { keyspace, table, is_write, by_coordinator } => {
                ReplicationError::RateLimited { keyspace, table, is_write, by_coordinator }
            }
            Self::TooLarge { bytes, bytes_max } => ReplicationError::TooLarge { bytes, bytes_max },
            Self::TimedOut => ReplicationError::timed_out(0, required),
            Self::Stopping => ReplicationError::Stopping { endpoint },
            Self::Failed(reason) | Self::Stale(reason) | Self::Unreachable(reason) => {
                ReplicationError::Failed {
                    endpoint,
                    reason,
                    received: 0,
                    required,
                    failures: vec![(endpoint, why)],
                    data_present: false,
                }
            }
        }
    }

    /// The reason that clients are told.
    pub(crate) fn reason(&self) -> FailureReason {
        match self {
            Self::TimedOut => FailureReason::Timeout,
            Self::TableGone(_) | Self::Misfit(_) => FailureReason::IncompatibleSchema,
            Self::Unreachable(_) => FailureReason::NodeDown,
            Self::Overloaded(_)
            | Self::RateLimited { .. }
            | Self::TooLarge { .. }
            | Self::Stale(_)
            | Self::Stopping
            | Self::Failed(_) => FailureReason::Unknown,
        }
    }

    /// Whether the replica has refused the request before it did anything.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::TableGone(_)
            | Self::Misfit(_)
            | Self::TooLarge { .. }
            | Self::RateLimited { .. }
            | Self::Overloaded(_)
            | Self::Stopping => true,
            Self::TimedOut | Self::Stale(_) | Self::Unreachable(_) | Self::Failed(_) => false,
        }
    }

    /// Whether the same request may succeed with a later plan, because nodes or shards know different states.
    pub(crate) fn asks_for_a_later_plan(&self) -> bool {
        matches!(self, Self::Stale(_))
    }

    /// The failure for the coordinator on another node.
    #[cold]
    pub(crate) fn into_fault(self) -> Fault {
        let kind = match &self {
            Self::TableGone(_) | Self::Misfit(_) | Self::Stale(_) => FaultKind::Stale,
            Self::Overloaded(_) | Self::RateLimited { .. } => FaultKind::Overloaded,
            Self::TooLarge { .. } => FaultKind::Invalid,
            Self::TimedOut => FaultKind::TimedOut,
            Self::Stopping => FaultKind::NotServed,
            Self::Failed(_) | Self::Unreachable(_) => FaultKind::Failed,
        };
        Fault::new(kind, self.text())
    }

    /// The failure for people, without who it was.
    #[cold]
    pub(crate) fn text(self) -> String {
        match self {
            Self::Overloaded(text) | Self::Stale(text) | Self::Failed(text) | Self::Unreachable(text) => text,
            other => other.here(1).to_string(),
        }
    }

    /// What a call to another node without an answer means.
    #[cold]
    pub(crate) fn of_peer(PeerError { kind, reason }: PeerError) -> Self {
        match kind {
            PeerErrorKind::Unreachable => Self::Unreachable(reason),
            PeerErrorKind::TimedOut => Self::TimedOut,
            PeerErrorKind::Overloaded => Self::Overloaded(reason),
            PeerErrorKind::Stale => Self::Stale(reason),
            PeerErrorKind::Failed => Self::Failed(reason),
        }
    }

    /// As [`Self::at`], of this shard's replica.
    #[cold]
    pub(crate) fn here(self, required: u32) -> ReplicationError {
        self.at(cluster::View::here().own(), required)
    }
}

impl ReplicationError {
    /// The replica on a shard of this node failed, and was the only one asked.
    #[cold]
    pub fn of_shard(shard: usize, reason: String, required: u32) -> Self {
        let replica = Replica { shard: shard as u16, ..cluster::View::here().own() };
        ReplicaFailure::Failed(reason).at(replica, required)
    }

    /// The deadline passed with so many answers, none of them data.
    #[cold]
    pub fn timed_out(received: u32, required: u32) -> Self {
        Self::TimedOut { received, required, data_present: false }
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
            StorageError::WrongShard { .. } | StorageError::OtherTenancy { .. } => {
                Self::Stale(error.to_string())
            }
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
            | StorageError::ClusterName { .. }
            | StorageError::IdentityCorrupt { .. }
            | StorageError::Shard { .. } => Self::Failed(error.to_string()),
        }
    }
}

impl From<MutationMisfit> for ReplicaFailure {
    #[cold]
    fn from(error: MutationMisfit) -> Self {
        match error {
            MutationMisfit::UnknownColumn { .. } => Self::Stale(error.to_string()),
            MutationMisfit::Shape(_) => Self::Failed(error.to_string()),
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
