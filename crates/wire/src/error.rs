//! The ERROR message: a code, a text and the facts by which a driver decides on a retry
//! (native_protocol_v5.spec §9).
//!
//! An older version lacks some codes and some fields; `append_error` sends Cassandra's substitutes, so that
//! callers describe an error once for all versions.

use std::net::IpAddr;

use crate::consistency::Consistency;
use crate::error_code::ErrorCode;
use crate::extensions::{Extensions, rate_limit_error_code};
use crate::protocol_error::ProtocolError;
use crate::version::ProtocolVersion;
use crate::writer::{
    append_inetaddr, append_int, append_int_length, append_short, append_short_bytes, append_string,
    append_string_list,
};

/// An ERROR message: the text and the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorBody<'a> {
    /// For people; cut at 64 KiB.
    pub message: &'a str,
    /// For drivers.
    pub kind: ErrorKind<'a>,
}

/// The kind of write that failed or timed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteType {
    /// One partition.
    Simple,
    /// A logged batch, after the batch log was written.
    Batch,
    /// An unlogged batch.
    UnloggedBatch,
    /// A counter update.
    Counter,
    /// Writing the batch log.
    BatchLog,
    /// The Paxos phase of a conditional write.
    Cas,
    /// Updating a materialized view.
    View,
    /// Change data capture.
    Cdc,
}

impl WriteType {
    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Simple => "SIMPLE",
            Self::Batch => "BATCH",
            Self::UnloggedBatch => "UNLOGGED_BATCH",
            Self::Counter => "COUNTER",
            Self::BatchLog => "BATCH_LOG",
            Self::Cas => "CAS",
            Self::View => "VIEW",
            Self::Cdc => "CDC",
        }
    }
}

/// Why a replica refused (Cassandra 5.0 `RequestFailureReason`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum FailureReason {
    /// Not given.
    Unknown = 0,
    /// The read passed more tombstones than the guardrail allows.
    ReadTooManyTombstones = 1,
    /// The replica gave up in time.
    Timeout = 2,
    /// The replica has another schema.
    IncompatibleSchema = 3,
    /// More bytes read than the guardrail allows.
    ReadSize = 4,
    /// The replica is down.
    NodeDown = 5,
    /// The index is not built there.
    IndexNotAvailable = 6,
    /// The read would need more table files than the index allows.
    ReadTooManyIndexes = 7,
}

impl FailureReason {
    /// The name that texts for people give it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::ReadTooManyTombstones => "READ_TOO_MANY_TOMBSTONES",
            Self::Timeout => "TIMEOUT",
            Self::IncompatibleSchema => "INCOMPATIBLE_SCHEMA",
            Self::ReadSize => "READ_SIZE",
            Self::NodeDown => "NODE_DOWN",
            Self::IndexNotAvailable => "INDEX_NOT_AVAILABLE",
            Self::ReadTooManyIndexes => "READ_TOO_MANY_INDEXES",
        }
    }
}

/// One replica's refusal.
pub type ReplicaFailure = (IpAddr, FailureReason);

/// Codes with their fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind<'a> {
    /// A code without further fields. For a code that has fields use its own variant.
    Plain(PlainError),
    /// [`ErrorCode::Unavailable`].
    Unavailable {
        /// Level asked for.
        consistency: Consistency,
        /// Replicas needed.
        required: i32,
        /// Replicas alive.
        alive: i32,
    },
    /// [`ErrorCode::WriteTimeout`].
    WriteTimeout {
        /// Level asked for.
        consistency: Consistency,
        /// Replicas that acknowledged.
        received: i32,
        /// Replicas needed.
        block_for: i32,
        /// The kind of write.
        write_type: WriteType,
        /// Rounds lost to other proposers; sent in version 5 for [`WriteType::Cas`] only.
        contentions: u16,
    },
    /// [`ErrorCode::ReadTimeout`].
    ReadTimeout {
        /// Level asked for.
        consistency: Consistency,
        /// Replicas that answered.
        received: i32,
        /// Replicas needed.
        block_for: i32,
        /// Whether the replica asked for data, and not for a digest, answered.
        data_present: bool,
    },
    /// [`ErrorCode::ReadFailure`]; a read timeout in version 3.
    ReadFailure {
        /// Level asked for.
        consistency: Consistency,
        /// Replicas that answered.
        received: i32,
        /// Replicas needed.
        block_for: i32,
        /// The replicas that refused, with their reasons; only their number before version 5.
        failures: &'a [ReplicaFailure],
        /// Whether the replica asked for data answered.
        data_present: bool,
    },
    /// [`ErrorCode::WriteFailure`]; a write timeout in version 3.
    WriteFailure {
        /// Level asked for.
        consistency: Consistency,
        /// Replicas that acknowledged.
        received: i32,
        /// Replicas needed.
        block_for: i32,
        /// The replicas that refused, with their reasons; only their number before version 5.
        failures: &'a [ReplicaFailure],
        /// The kind of write.
        write_type: WriteType,
    },
    /// [`ErrorCode::FunctionFailure`]; INVALID in version 3.
    FunctionFailure {
        /// Keyspace of the function.
        keyspace: &'a str,
        /// Its name.
        function: &'a str,
        /// Its argument types, as CQL.
        argument_types: &'a [&'a str],
    },
    /// [`ErrorCode::CasWriteUnknown`]; a write timeout of type CAS before version 5.
    CasWriteUnknown {
        /// Level asked for.
        consistency: Consistency,
        /// Replicas that acknowledged.
        received: i32,
        /// Replicas needed.
        block_for: i32,
    },
    /// [`ErrorCode::AlreadyExists`].
    AlreadyExists {
        /// Keyspace that exists, or that holds the table.
        keyspace: &'a str,
        /// Table that exists; empty when it is the keyspace.
        table: &'a str,
    },
    /// [`ErrorCode::Unprepared`].
    Unprepared {
        /// The unknown id.
        id: &'a [u8],
    },
    /// The rate limit error of the protocol extensions; CONFIG_ERROR for clients without it.
    RateLimit {
        /// Whether a write was refused, and not a read.
        is_write: bool,
        /// Whether the coordinator refused, and not the replicas.
        rejected_by_coordinator: bool,
    },
}

/// Codes without fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlainError {
    /// [`ErrorCode::ServerError`].
    Server,
    /// [`ErrorCode::ProtocolError`].
    Protocol,
    /// [`ErrorCode::BadCredentials`].
    BadCredentials,
    /// [`ErrorCode::Overloaded`].
    Overloaded,
    /// [`ErrorCode::IsBootstrapping`].
    IsBootstrapping,
    /// [`ErrorCode::TruncateError`].
    Truncate,
    /// [`ErrorCode::SyntaxError`].
    Syntax,
    /// [`ErrorCode::Unauthorized`].
    Unauthorized,
    /// [`ErrorCode::Invalid`].
    Invalid,
    /// [`ErrorCode::ConfigError`].
    Config,
    /// [`ErrorCode::CdcWriteFailure`]; INVALID in version 3.
    CdcWriteFailure,
}

impl PlainError {
    /// The number's name.
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::Server => ErrorCode::ServerError,
            Self::Protocol => ErrorCode::ProtocolError,
            Self::BadCredentials => ErrorCode::BadCredentials,
            Self::Overloaded => ErrorCode::Overloaded,
            Self::IsBootstrapping => ErrorCode::IsBootstrapping,
            Self::Truncate => ErrorCode::TruncateError,
            Self::Syntax => ErrorCode::SyntaxError,
            Self::Unauthorized => ErrorCode::Unauthorized,
            Self::Invalid => ErrorCode::Invalid,
            Self::Config => ErrorCode::ConfigError,
            Self::CdcWriteFailure => ErrorCode::CdcWriteFailure,
        }
    }
}

impl<'a> ErrorBody<'a> {
    /// An error without fields.
    pub const fn plain(kind: PlainError, message: &'a str) -> Self {
        Self { message, kind: ErrorKind::Plain(kind) }
    }

    /// The answer to a request that broke the protocol; `message` is the error's text.
    pub fn protocol(error: &ProtocolError, message: &'a str) -> Self {
        match error.error_code() {
            ErrorCode::Invalid => Self::plain(PlainError::Invalid, message),
            _ => Self::plain(PlainError::Protocol, message),
        }
    }
}

/// The form of `kind` in `version`, with the fallbacks of Cassandra 5.0.
fn for_version(kind: ErrorKind<'_>, version: ProtocolVersion) -> ErrorKind<'_> {
    let write_timeout = |consistency, received, block_for, write_type| ErrorKind::WriteTimeout {
        consistency,
        received,
        block_for,
        write_type,
        contentions: 0,
    };
    match kind {
        ErrorKind::CasWriteUnknown { consistency, received, block_for } if version < ProtocolVersion::V5 => {
            write_timeout(consistency, received, block_for, WriteType::Cas)
        }
        ErrorKind::ReadFailure { consistency, received, block_for, data_present, .. }
            if version < ProtocolVersion::V4 =>
        {
            ErrorKind::ReadTimeout { consistency, received, block_for, data_present }
        }
        ErrorKind::WriteFailure { consistency, received, block_for, write_type, .. }
            if version < ProtocolVersion::V4 =>
        {
            write_timeout(consistency, received, block_for, write_type)
        }
        ErrorKind::FunctionFailure { .. } | ErrorKind::Plain(PlainError::CdcWriteFailure)
            if version < ProtocolVersion::V4 =>
        {
            ErrorKind::Plain(PlainError::Invalid)
        }
        kind => kind,
    }
}

fn append_counts(out: &mut Vec<u8>, consistency: Consistency, received: i32, block_for: i32) {
    append_short(out, consistency.code());
    append_int(out, received);
    append_int(out, block_for);
}

fn append_failures(out: &mut Vec<u8>, version: ProtocolVersion, failures: &[ReplicaFailure]) {
    append_int_length(out, failures.len());
    if version >= ProtocolVersion::V5 {
        for (address, reason) in failures {
            append_inetaddr(out, *address);
            append_short(out, *reason as u16);
        }
    }
}

/// Appends the body of an ERROR message.
pub fn append_error(
    out: &mut Vec<u8>,
    version: ProtocolVersion,
    extensions: &Extensions,
    error: &ErrorBody<'_>,
) {
    let head = |out: &mut Vec<u8>, code: i32| {
        append_int(out, code);
        append_string(out, error.message);
    };
    match for_version(error.kind, version) {
        ErrorKind::Plain(plain) => head(out, plain.code().code()),
        ErrorKind::Unavailable { consistency, required, alive } => {
            head(out, ErrorCode::Unavailable.code());
            append_counts(out, consistency, required, alive);
        }
        ErrorKind::WriteTimeout { consistency, received, block_for, write_type, contentions } => {
            head(out, ErrorCode::WriteTimeout.code());
            append_counts(out, consistency, received, block_for);
            append_string(out, write_type.name());
            if version >= ProtocolVersion::V5 && write_type == WriteType::Cas {
                append_short(out, contentions);
            }
        }
        ErrorKind::ReadTimeout { consistency, received, block_for, data_present } => {
            head(out, ErrorCode::ReadTimeout.code());
            append_counts(out, consistency, received, block_for);
            out.push(u8::from(data_present));
        }
        ErrorKind::ReadFailure { consistency, received, block_for, failures, data_present } => {
            head(out, ErrorCode::ReadFailure.code());
            append_counts(out, consistency, received, block_for);
            append_failures(out, version, failures);
            out.push(u8::from(data_present));
        }
        ErrorKind::WriteFailure { consistency, received, block_for, failures, write_type } => {
            head(out, ErrorCode::WriteFailure.code());
            append_counts(out, consistency, received, block_for);
            append_failures(out, version, failures);
            append_string(out, write_type.name());
        }
        ErrorKind::FunctionFailure { keyspace, function, argument_types } => {
            head(out, ErrorCode::FunctionFailure.code());
            append_string(out, keyspace);
            append_string(out, function);
            append_string_list(out, argument_types.iter().copied());
        }
        ErrorKind::CasWriteUnknown { consistency, received, block_for } => {
            head(out, ErrorCode::CasWriteUnknown.code());
            append_counts(out, consistency, received, block_for);
        }
        ErrorKind::AlreadyExists { keyspace, table } => {
            head(out, ErrorCode::AlreadyExists.code());
            append_string(out, keyspace);
            append_string(out, table);
        }
        ErrorKind::Unprepared { id } => {
            head(out, ErrorCode::Unprepared.code());
            append_short_bytes(out, id);
        }
        ErrorKind::RateLimit { is_write, rejected_by_coordinator } => {
            head(out, rate_limit_error_code(extensions));
            if extensions.rate_limit_error {
                out.push(u8::from(is_write));
                out.push(u8::from(rejected_by_coordinator));
            }
        }
    }
}
