//! The one place where errors get their protocol codes (native_protocol_v5.spec §9).

mod counters;

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use cluster::liveness::Liveness;
use cluster::nodes::{NodeRecord, NodeState};
use cluster::{Nodes, View};
use query::{Endpoint, QueryError};
use storage::StorageError;
use wire::error::{ErrorBody, ErrorKind, FailureReason, PlainError, ReplicaFailure, WriteType};
use wire::extensions::Extensions;
use wire::response::{CompleteResponse, ResponseBuilder};
use wire::version::ProtocolVersion;

pub(super) use counters::Counters;

/// Most nodes that one message names as down.
const DOWN_NAMED_MAX: usize = 3;

/// The nodes around, as errors name them.
pub(super) struct Around {
    own: SocketAddr,
    nodes: Rc<Nodes>,
    /// Nodes that are down, and for how long.
    down: Vec<(IpAddr, Duration)>,
}

impl Around {
    /// As this shard sees them; `own` is this node's address for other nodes.
    #[cold]
    pub(super) fn here(own: SocketAddr) -> Self {
        let nodes = View::here().nodes();
        let Some(liveness) = reactor::local::<Liveness>() else {
            return Self { own, nodes, down: Vec::new() };
        };
        let is_member = |node: &&NodeRecord| node.state != NodeState::Left;
        let down = nodes
            .values()
            .filter(is_member)
            .filter_map(|node| Some((node.listen.ip(), liveness.down_since(node.number)?.elapsed())));
        let down = down.collect();
        Self { own, nodes, down }
    }

    fn address(&self, endpoint: Endpoint) -> SocketAddr {
        self.nodes.get(&endpoint.node).map_or(self.own, |node| node.listen)
    }

    /// The end of a message of an error that nodes which are down may explain.
    fn down(&self) -> String {
        let mut text = String::new();
        for (at, (address, time)) in self.down.iter().take(DOWN_NAMED_MAX).enumerate() {
            let begin = if at == 0 { "; down: " } else { ", " };
            text.push_str(&format!("{begin}{address} for {} s", time.as_secs()));
        }
        match self.down.len().saturating_sub(DOWN_NAMED_MAX) {
            0 => text,
            more => format!("{text} and {more} more"),
        }
    }
}

/// Writes the ERROR message of `error`.
pub(super) fn write<'b>(
    builder: ResponseBuilder<'b>,
    extensions: &Extensions,
    around: &Around,
    error: &QueryError,
) -> CompleteResponse<'b> {
    let message = message(error, builder.version(), around);
    let arguments: Vec<&str> = match error {
        QueryError::FunctionFailure { arguments, .. } => arguments.iter().map(String::as_str).collect(),
        _ => Vec::new(),
    };
    let failures = failures(error, around);
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

/// The replicas that failed, as versions before 5 count them and version 5 lists them.
fn failures(error: &QueryError, around: &Around) -> Vec<ReplicaFailure> {
    match error {
        QueryError::WriteFailure { failures, .. } | QueryError::ReadFailure { failures, .. } => {
            let failure = |(of, reason): &_| (around.address(*of).ip(), failure_reason(*reason).0);
            failures.iter().map(failure).collect()
        }
        QueryError::TooManyTombstones { address, .. } => {
            vec![(address.ip(), FailureReason::ReadTooManyTombstones)]
        }
        _ => Vec::new(),
    }
}

/// A reason as the protocol and as Cassandra's messages have it.
fn failure_reason(reason: query::FailureReason) -> (FailureReason, &'static str) {
    match reason {
        query::FailureReason::Unknown => (FailureReason::Unknown, "UNKNOWN"),
        query::FailureReason::Timeout => (FailureReason::Timeout, "TIMEOUT"),
        query::FailureReason::IncompatibleSchema => {
            (FailureReason::IncompatibleSchema, "INCOMPATIBLE_SCHEMA")
        }
        query::FailureReason::NodeDown => (FailureReason::NodeDown, "NODE_DOWN"),
    }
}

/// The error's text, as in Cassandra for that version: an error that a version lacks is sent as another one,
/// with the other one's text (`ErrorMessage.getBackwardsCompatibleException`). Nodes that are down are named
/// behind it where they may be the cause.
fn message(error: &QueryError, version: ProtocolVersion, around: &Around) -> String {
    let down = || around.down();
    let timed_out =
        |received: &u32| format!("Operation timed out - received only {received} responses.{}", down());
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
            let failure =
                |(of, reason): &_| format!("{} from /{}", failure_reason(*reason).1, around.address(*of));
            let failures: Vec<String> = failures.iter().map(failure).collect();
            format!("{error}: {}{}", failures.join(", "), down())
        }
        QueryError::Unavailable { .. }
        | QueryError::WriteTimeout { .. }
        | QueryError::ReadTimeout { .. }
        | QueryError::CasTimeout { .. }
        | QueryError::CasUnknown { .. } => format!("{error}{}", down()),
        error => error.to_string(),
    }
}

fn count(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests;
