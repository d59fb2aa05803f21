//! The one place where errors get their protocol codes (native_protocol_v5.spec §9).

use std::net::SocketAddr;

use query::{FailedReplica, QueryError};
use storage::StorageError;
use wire::error::{ErrorBody, ErrorKind, FailureReason, PlainError, WriteType};
use wire::extensions::Extensions;
use wire::response::{CompleteResponse, ResponseBuilder};
use wire::version::ProtocolVersion;

/// Writes the ERROR message of `error`. `own` is this node's address, which is sent as that of the failed
/// replica.
pub(super) fn write<'b>(
    builder: ResponseBuilder<'b>,
    extensions: &Extensions,
    own: SocketAddr,
    error: &QueryError,
) -> CompleteResponse<'b> {
    let message = message(error, builder.version(), own);
    let arguments: Vec<&str> = match error {
        QueryError::FunctionFailure { arguments, .. } => arguments.iter().map(String::as_str).collect(),
        _ => Vec::new(),
    };
    let failures = match error {
        QueryError::WriteFailure { failures, .. } | QueryError::ReadFailure { failures, .. } => {
            failures.iter().map(|failed| (failed.address.unwrap_or(own).ip(), failed.reason)).collect()
        }
        QueryError::TooManyTombstones { address, .. } => {
            vec![(address.ip(), FailureReason::ReadTooManyTombstones)]
        }
        _ => Vec::new(),
    };
    let kind = match error {
        QueryError::Protocol(_) => ErrorKind::Plain(PlainError::Protocol),
        QueryError::Syntax(_) => ErrorKind::Plain(PlainError::Syntax),
        QueryError::Invalid(_) | QueryError::Guardrail(_) => ErrorKind::Plain(PlainError::Invalid),
        QueryError::Config(_) => ErrorKind::Plain(PlainError::Config),
        QueryError::Unauthorized(_) => ErrorKind::Plain(PlainError::Unauthorized),
        QueryError::AlreadyExists { keyspace, table, .. } => ErrorKind::AlreadyExists { keyspace, table },
        QueryError::Unprepared { id } => ErrorKind::Unprepared { id },
        QueryError::Unavailable { consistency, required, alive } => ErrorKind::Unavailable {
            consistency: *consistency,
            required: count(*required),
            alive: count(*alive),
        },
        QueryError::WriteTimeout { consistency, received, required, write_type } => ErrorKind::WriteTimeout {
            consistency: *consistency,
            received: count(*received),
            block_for: count(*required),
            write_type: *write_type,
            contentions: 0,
        },
        QueryError::CasTimeout { consistency, received, required } => ErrorKind::WriteTimeout {
            consistency: *consistency,
            received: count(*received),
            block_for: count(*required),
            write_type: WriteType::Cas,
            contentions: 0,
        },
        QueryError::CasUnknown { consistency, received, required } => ErrorKind::CasWriteUnknown {
            consistency: *consistency,
            received: count(*received),
            block_for: count(*required),
        },
        QueryError::ReadTimeout { consistency, received, required, data_present } => ErrorKind::ReadTimeout {
            consistency: *consistency,
            received: count(*received),
            block_for: count(*required),
            data_present: *data_present,
        },
        QueryError::WriteFailure { consistency, received, required, write_type, .. } => {
            ErrorKind::WriteFailure {
                consistency: *consistency,
                received: count(*received),
                block_for: count(*required),
                failures: &failures,
                write_type: *write_type,
            }
        }
        QueryError::ReadFailure { consistency, received, required, data_present, .. } => {
            ErrorKind::ReadFailure {
                consistency: *consistency,
                received: count(*received),
                block_for: count(*required),
                failures: &failures,
                data_present: *data_present,
            }
        }
        QueryError::TooManyTombstones { consistency, required, .. } => ErrorKind::ReadFailure {
            consistency: *consistency,
            received: 0,
            block_for: count(*required),
            failures: &failures,
            data_present: false,
        },
        QueryError::Truncate(_) => ErrorKind::Plain(PlainError::Truncate),
        QueryError::Overloaded(_) => ErrorKind::Plain(PlainError::Overloaded),
        QueryError::NotReady(_) => ErrorKind::Plain(PlainError::IsBootstrapping),
        QueryError::FunctionFailure { keyspace, function, .. } => {
            ErrorKind::FunctionFailure { keyspace, function, argument_types: &arguments }
        }
        QueryError::RateLimited { is_write, by_coordinator, .. } => {
            ErrorKind::RateLimit { is_write: *is_write, rejected_by_coordinator: *by_coordinator }
        }
        QueryError::Storage(error) => ErrorKind::Plain(storage_code(error)),
        QueryError::TableGone(_) => ErrorKind::Plain(PlainError::Invalid),
        QueryError::Internal(_) => ErrorKind::Plain(PlainError::Server),
    };
    builder.error(extensions, &ErrorBody { message: &message, kind })
}

/// The codes of storage errors for which no consistency level matters.
fn storage_code(error: &StorageError) -> PlainError {
    match error {
        StorageError::MutationTooLarge { .. }
        | StorageError::MutationMisfit { .. }
        | StorageError::UnknownTable { .. } => PlainError::Invalid,
        StorageError::Overloaded { .. }
        | StorageError::TooManyReads { .. }
        | StorageError::CommitlogTimedOut
        | StorageError::DiskFull { .. }
        | StorageError::DiskNearlyFull { .. } => PlainError::Overloaded,
        StorageError::Draining => PlainError::IsBootstrapping,
        StorageError::Io { .. }
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
        | StorageError::TabletBusy { .. }
        | StorageError::WrongShard { .. }
        | StorageError::OtherTenancy { .. }
        | StorageError::ClusterName { .. }
        | StorageError::IdentityCorrupt { .. }
        | StorageError::Shard { .. } => PlainError::Server,
    }
}

/// The error's text, as in Cassandra for that version: an error that a version lacks is sent as another one,
/// with the other one's text (`ErrorMessage.getBackwardsCompatibleException`).
fn message(error: &QueryError, version: ProtocolVersion, own: SocketAddr) -> String {
    let timed_out = |received: &u32| format!("Operation timed out - received only {received} responses.");
    match error {
        QueryError::WriteFailure { received, .. } | QueryError::ReadFailure { received, .. }
            if version < ProtocolVersion::V4 =>
        {
            timed_out(received)
        }
        QueryError::TooManyTombstones { .. } if version < ProtocolVersion::V4 => timed_out(&0),
        QueryError::FunctionFailure { message, .. } if version < ProtocolVersion::V4 => {
            format!("ERROR FUNCTION_FAILURE: {message}")
        }
        QueryError::CasTimeout { received, .. } | QueryError::CasUnknown { received, .. }
            if version < ProtocolVersion::V5 =>
        {
            timed_out(received)
        }
        QueryError::WriteFailure { failures, .. } | QueryError::ReadFailure { failures, .. }
            if !failures.is_empty() =>
        {
            let of_one = |failed: &FailedReplica| {
                format!("{} from /{}", failed.reason.name(), failed.address.unwrap_or(own))
            };
            format!("{error}: {}", failures.iter().map(of_one).collect::<Vec<_>>().join(", "))
        }
        error => error.to_string(),
    }
}

fn count(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests;
