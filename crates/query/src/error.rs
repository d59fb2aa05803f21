//! Errors of requests, as facts; `server/native/error.rs` gives them protocol codes.
//!
//! Texts inside are those of Cassandra 5 for the same mistake.

use std::net::SocketAddr;

use cluster::ClusterError;
use cluster::group0::Group0Error;
use model::TableId;
use statement::StatementError;
use storage::StorageError;
use wire::consistency::Consistency;
use wire::error::{FailureReason, WriteType};

/// A replica that failed, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedReplica {
    /// Where other nodes reach its node; `None` for this one.
    pub address: Option<SocketAddr>,
    /// The reason that clients are told.
    pub reason: FailureReason,
}

/// Why a statement was not, or not completely, executed.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The text is not CQL.
    #[error("{0}")]
    Syntax(#[from] cql::SyntaxError),
    /// Invalid data that no client of the protocol may send, such as a broken paging state.
    #[error("{0}")]
    Protocol(String),
    /// The statement is CQL but has no valid meaning.
    #[error("{0}")]
    Invalid(String),
    /// A guardrail forbids it. Clients have the text as a warning, too.
    #[error("{0}")]
    Guardrail(String),
    /// A schema option that cannot be.
    #[error("{0}")]
    Config(String),
    /// The client may not do this.
    #[error("{0}")]
    Unauthorized(String),
    /// CREATE of a keyspace (`table` empty) or of a table or type that exists.
    #[error("{message}")]
    AlreadyExists {
        /// Keyspace in question.
        keyspace: String,
        /// Table in question, empty for a keyspace.
        table: String,
        /// Text for people.
        message: String,
    },
    /// EXECUTE or BATCH of an id that is not prepared on this node.
    #[error("Prepared query with ID {} not found (either the query was not prepared on this host (maybe the host has been restarted?) or you have prepared too many queries and it has been evicted from the internal cache)", model::hex::text(.id))]
    Unprepared {
        /// The id the client sent.
        id: Vec<u8>,
    },
    /// Fewer replicas are alive than the consistency level needs.
    #[error("Cannot achieve consistency level {consistency}")]
    Unavailable {
        /// Level asked for.
        consistency: Consistency,
        /// Replicas it needs.
        required: u32,
        /// Replicas alive.
        alive: u32,
    },
    /// Too few replicas answered a write in time.
    #[error("Operation timed out - received only {received} responses.")]
    WriteTimeout {
        /// Level asked for.
        consistency: Consistency,
        /// Answers received.
        received: u32,
        /// Answers needed.
        required: u32,
        /// The kind of write, as in native_protocol_v5.spec §9.
        write_type: WriteType,
    },
    /// A conditional write did not get its turn in time; nothing was written.
    #[error(
        "CAS operation timed out: received {received} of {required} required responses after 0 contention retries"
    )]
    CasTimeout {
        /// Serial level asked for.
        consistency: Consistency,
        /// Answers received.
        received: u32,
        /// Answers needed.
        required: u32,
    },
    /// A conditional write was proposed, and whether it happened is not known.
    #[error("CAS operation result is unknown - proposal accepted by {received} but not a quorum.")]
    CasUnknown {
        /// Serial level asked for.
        consistency: Consistency,
        /// Replicas known to have accepted it.
        received: u32,
        /// Replicas needed.
        required: u32,
    },
    /// Too few replicas answered a read in time.
    #[error("Operation timed out - received only {received} responses.")]
    ReadTimeout {
        /// Level asked for.
        consistency: Consistency,
        /// Answers received.
        received: u32,
        /// Answers needed.
        required: u32,
        /// Whether the replica asked for data was among them.
        data_present: bool,
    },
    /// A replica met an error while writing.
    #[error("Operation failed - received {received} responses and {} failures", failures.len())]
    WriteFailure {
        /// Level asked for.
        consistency: Consistency,
        /// Answers received.
        received: u32,
        /// Answers needed.
        required: u32,
        /// Replicas that failed.
        failures: Vec<FailedReplica>,
        /// Which kind of write.
        write_type: WriteType,
    },
    /// A replica met an error while reading.
    #[error("Operation failed - received {received} responses and {} failures", failures.len())]
    ReadFailure {
        /// Level asked for.
        consistency: Consistency,
        /// Answers received.
        received: u32,
        /// Answers needed.
        required: u32,
        /// Replicas that failed.
        failures: Vec<FailedReplica>,
        /// Whether the replica asked for data was among them.
        data_present: bool,
    },
    /// A read passed more tombstones than allowed.
    #[error(
        "Operation failed - received 0 responses and 1 failures: READ_TOO_MANY_TOMBSTONES from /{address}"
    )]
    TooManyTombstones {
        /// Level asked for.
        consistency: Consistency,
        /// Answers needed.
        required: u32,
        /// The replica that gave up.
        address: std::net::SocketAddr,
    },
    /// TRUNCATE did not get through.
    #[error("Error during truncate: {0}")]
    Truncate(String),
    /// The node has too much work to accept the request.
    #[error("{0}")]
    Overloaded(String),
    /// The node is not ready, or is stopping.
    #[error("{0}")]
    NotReady(String),
    /// A function failed while it ran.
    #[error("{message}")]
    FunctionFailure {
        /// Keyspace of the function.
        keyspace: String,
        /// Its name.
        function: String,
        /// Types of its arguments.
        arguments: Vec<String>,
        /// Text for people.
        message: String,
    },
    /// The partition is used more often than its table allows.
    #[error("{message}")]
    RateLimited {
        /// Text for people.
        message: String,
        /// Whether the operation was a write.
        is_write: bool,
        /// Whether the coordinator refused it, and not the replica.
        by_coordinator: bool,
    },
    /// The storage engine failed; counted and logged with its error.
    #[error("{0}")]
    Storage(#[from] StorageError),
    /// The table was altered or dropped while the statement ran.
    #[error("the table {0} changed or was dropped while the statement ran")]
    TableGone(TableId),
    /// A surprise inside this process.
    #[error("{0}")]
    Internal(String),
}

impl QueryError {
    /// An [`QueryError::Invalid`] from a text.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid(message.into())
    }
}

impl From<ClusterError> for QueryError {
    fn from(error: ClusterError) -> Self {
        match error {
            ClusterError::Misfit(error) => Self::Storage(error.into()),
            ClusterError::Storage(error)
            | ClusterError::Effect(error)
            | ClusterError::Group0(Group0Error::NoRoom(error)) => Self::Storage(error),
            ClusterError::NotOpen => Self::NotReady("the node has not started yet".to_owned()),
            ClusterError::TooManyWaiting => {
                Self::Overloaded("Too many schema changes are waiting for their turn".to_owned())
            }
            ClusterError::Group0(
                Group0Error::NotLeader(_) | Group0Error::NoMajority | Group0Error::Members(_),
            ) => Self::Overloaded(error.to_string()),
            ClusterError::Group0(
                Group0Error::TooLong { .. } | Group0Error::Stopped(_) | Group0Error::Undecided,
            )
            | ClusterError::Refused(_)
            | ClusterError::Leader { .. }
            | ClusterError::Shard { .. } => Self::Internal(error.to_string()),
        }
    }
}

impl From<StatementError> for QueryError {
    fn from(error: StatementError) -> Self {
        match error {
            StatementError::Syntax(error) => Self::Syntax(error),
            StatementError::Invalid(message) => Self::Invalid(message),
            StatementError::Guardrail(message) => Self::Guardrail(message),
            StatementError::Config(message) => Self::Config(message),
            StatementError::Unauthorized(message) => Self::Unauthorized(message),
            StatementError::AlreadyExists { keyspace, table, message } => {
                Self::AlreadyExists { keyspace, table, message }
            }
            StatementError::FunctionFailure { keyspace, function, arguments, message } => {
                Self::FunctionFailure { keyspace, function, arguments, message }
            }
            StatementError::Internal(message) => Self::Internal(message),
        }
    }
}
