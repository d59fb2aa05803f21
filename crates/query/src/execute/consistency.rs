//! Consistency levels of requests: the valid levels for each kind, and the errors when replicas do not
//! answer.

use model::mutation::MutationView;
use model::{Clustering, Column, CqlType, Table};
use replication::{Consistency, ReplicationError};
use statement::functions::cast;
use statement::restrictions::keys;
use statement::terms::constant::literal_text;
use wire::consistency::Consistency as Wire;
use wire::error::WriteType;

use crate::QueryError;
use crate::engine::Engine;
use crate::statements::Refused;

/// The level of a read.
///
/// # Errors
/// [`QueryError::Invalid`] for levels that reads do not have.
#[inline]
pub fn for_read(consistency: Wire) -> Result<Consistency, QueryError> {
    match consistency {
        Wire::Any => Err(QueryError::invalid("ANY ConsistencyLevel is only supported for writes")),
        Wire::NodeLocal => Err(node_local()),
        other => Ok(other.into()),
    }
}

/// The level of a write.
///
/// # Errors
/// [`QueryError::Invalid`] for levels that unconditional writes do not have.
#[inline]
pub fn for_write(consistency: Wire) -> Result<Consistency, QueryError> {
    match consistency {
        Wire::Serial | Wire::LocalSerial => {
            Err(QueryError::invalid("You must use conditional updates for serializable writes"))
        }
        Wire::NodeLocal => Err(node_local()),
        other => Ok(other.into()),
    }
}

/// The serial level of a conditional write; SERIAL if the client gave none.
///
/// # Errors
/// [`QueryError::Invalid`] for other levels.
pub fn for_serial(consistency: Option<Wire>) -> Result<Consistency, QueryError> {
    match consistency {
        None | Some(Wire::Serial) => Ok(Consistency::Serial),
        Some(Wire::LocalSerial) => Ok(Consistency::LocalSerial),
        Some(_) => Err(QueryError::invalid(
            "Invalid consistency for conditional update. Must be one of SERIAL or LOCAL_SERIAL",
        )),
    }
}

/// The level at which a conditional write is shown to plain reads.
///
/// # Errors
/// [`QueryError::Invalid`] for serial levels.
pub fn for_commit(consistency: Wire) -> Result<Consistency, QueryError> {
    match consistency {
        Wire::Serial | Wire::LocalSerial => Err(QueryError::Invalid(format!(
            "{consistency} is not supported as conditional update commit consistency. Use ANY if you mean \"make sure \
             it is accepted but I don't care how many replicas commit it for non-SERIAL reads\""
        ))),
        Wire::NodeLocal => Err(node_local()),
        other => Ok(other.into()),
    }
}

fn node_local() -> QueryError {
    QueryError::invalid(
        "NODE_LOCAL consistency level is highly dangerous and should be used only for debugging purposes",
    )
}

/// The client's error for a read that ran out of time in user-defined functions.
#[cold]
pub fn late(engine: &Engine, keyspace: &str, level: Consistency) -> QueryError {
    match engine.replicator().required(keyspace, level) {
        Ok(required) => read_error(ReplicationError::timed_out(required.saturating_sub(1), required), level),
        Err(error) => read_error(error, level),
    }
}

/// The client's error for a failed write to the partition of `key`.
#[cold]
pub fn write_error(
    error: ReplicationError,
    level: Consistency,
    write_type: WriteType,
    table: &Table,
    key: &[u8],
) -> QueryError {
    let oversized = |bytes, bytes_max| oversized(table, key, bytes, bytes_max);
    failed_write(error, level.into(), write_type, oversized)
}

/// The client's error for a logged batch that could not be put into the batch log.
#[cold]
pub fn batch_log_error(error: ReplicationError, id: uuid::Uuid) -> QueryError {
    failed_write(error, Wire::One, WriteType::BatchLog, |bytes, bytes_max| {
        format!(
            "Rejected an oversized mutation ({bytes}/{bytes_max}) for keyspace: system. Top keys are: batches.{id}"
        )
    })
}

fn failed_write(
    error: ReplicationError,
    consistency: Wire,
    write_type: WriteType,
    oversized: impl FnOnce(usize, usize) -> String,
) -> QueryError {
    let kind = if write_type == WriteType::Cas { Refused::CasWrite } else { Refused::Write };
    match error {
        ReplicationError::TooLarge { bytes, bytes_max } => QueryError::Invalid(oversized(bytes, bytes_max)),
        ReplicationError::TimedOut { received, required, .. } if write_type == WriteType::Cas => {
            QueryError::CasTimeout { consistency, received, required }
        }
        ReplicationError::TimedOut { received, required, .. } => {
            QueryError::WriteTimeout { consistency, received, required, write_type }
        }
        ReplicationError::Undecided { received, required } => {
            QueryError::CasUnknown { consistency, received, required }
        }
        // As Cassandra's: agreement was reached, and the write itself is late.
        ReplicationError::Uncommitted { received, required } => {
            QueryError::WriteTimeout { consistency, received, required, write_type: WriteType::Simple }
        }
        ReplicationError::Failed { received, required, ref failures, .. } => {
            let failures = failures.clone();
            reactor::error_limited!("a write failed"; kind = write_type.name(), error = error);
            QueryError::WriteFailure { consistency, received, required, failures, write_type }
        }
        ReplicationError::Unavailable { .. }
        | ReplicationError::Overloaded { .. }
        | ReplicationError::RateLimited { .. }
        | ReplicationError::TableGone(_)
        | ReplicationError::Misfit(_)
        | ReplicationError::ClockAhead { .. }
        | ReplicationError::ClockBehind { .. }
        | ReplicationError::OtherScope
        | ReplicationError::WrittenAhead { .. }
        | ReplicationError::Stopping { .. } => refused(error, consistency, kind),
    }
}

/// The key a mutation writes to; empty if the bytes are not a mutation.
pub fn mutation_key(mutation: &[u8]) -> Vec<u8> {
    MutationView::trusted(mutation).map_or_else(|_| Vec::new(), |view| view.key.to_vec())
}

/// The text of Cassandra's `MutationExceededMaxSizeException`.
fn oversized(table: &Table, key: &[u8], bytes: usize, bytes_max: usize) -> String {
    format!(
        "Rejected an oversized mutation ({bytes}/{bytes_max}) for keyspace: {}. Top keys are: {}.{}",
        table.keyspace(),
        table.name(),
        key_text(table, key)
    )
}

/// A partition key as operators read it: the values of its columns, with colons between them.
pub fn key_text(table: &Table, key: &[u8]) -> String {
    let columns = table.partition_key().iter().zip(keys::split(table, key));
    columns.map(|(column, value)| value_text(column, value)).collect::<Vec<_>>().join(":")
}

fn value_text(column: &Column, value: &[u8]) -> String {
    match &column.ty {
        CqlType::Text | CqlType::Ascii => String::from_utf8_lossy(value).into_owned(),
        ty => cast::text(ty, value).unwrap_or_else(|_| model::hex::text(value)),
    }
}

/// A stored partition key and a clustering as the values of CQL that name the row; without a clustering the
/// partition.
pub fn row_text(table: &Table, key: &[u8], clustering: &[u8]) -> String {
    let keys = table.partition_key().iter().zip(keys::split(table, key).into_iter().map(Some));
    let clusterings = table.clustering().iter().zip(Clustering(clustering).components());
    let values: Vec<String> =
        keys.chain(clusterings).map(|(column, value)| literal_text(&column.ty, value)).collect();
    if values.len() == 1 { values.concat() } else { format!("({})", values.join(", ")) }
}

/// A clustering as an operator reads it: values with colons between them.
pub fn clustering_text(table: &Table, clustering: &[u8]) -> String {
    let values = table.clustering().iter().zip(Clustering(clustering).components());
    values.map(|(column, value)| value_text(column, value.unwrap_or_default())).collect::<Vec<_>>().join(":")
}

/// The client's error for a failed read.
pub fn read_error(error: ReplicationError, level: Consistency) -> QueryError {
    let consistency = Wire::from(level);
    let serial = matches!(level, Consistency::Serial | Consistency::LocalSerial);
    let kind = if serial { Refused::CasRead } else { Refused::Read };
    match error {
        ReplicationError::TimedOut { received, required, data_present } => {
            QueryError::ReadTimeout { consistency, received, required, data_present }
        }
        ReplicationError::Failed { received, required, data_present, ref failures, .. } => {
            let failures = failures.clone();
            reactor::error_limited!("a read failed"; error = error);
            QueryError::ReadFailure { consistency, received, required, failures, data_present }
        }
        ReplicationError::Unavailable { .. }
        | ReplicationError::Overloaded { .. }
        | ReplicationError::RateLimited { .. }
        | ReplicationError::TableGone(_)
        | ReplicationError::Misfit(_)
        | ReplicationError::ClockAhead { .. }
        | ReplicationError::ClockBehind { .. }
        | ReplicationError::OtherScope
        | ReplicationError::WrittenAhead { .. }
        | ReplicationError::Stopping { .. } => refused(error, consistency, kind),
        // Writes alone have these.
        ReplicationError::Undecided { .. }
        | ReplicationError::Uncommitted { .. }
        | ReplicationError::TooLarge { .. } => QueryError::Internal(error.to_string()),
    }
}

/// The client's error for a request of which nothing was done, whether it reads or writes.
fn refused(error: ReplicationError, consistency: Wire, kind: Refused) -> QueryError {
    match error {
        ReplicationError::Unavailable { required, alive } => {
            if let Some(engine) = Engine::here() {
                engine.statements().unavailable(kind);
            }
            // A serial level is reached when a quorum is, and Cassandra reports the quorum.
            let consistency = match consistency {
                Wire::Serial => Wire::Quorum,
                Wire::LocalSerial => Wire::LocalQuorum,
                level => level,
            };
            QueryError::Unavailable { consistency, required, alive }
        }
        ReplicationError::Overloaded { reason, .. } => QueryError::Overloaded(reason),
        ReplicationError::RateLimited { is_write, by_coordinator, .. } => {
            QueryError::RateLimited { message: error.to_string(), is_write, by_coordinator }
        }
        ReplicationError::TableGone(table) | ReplicationError::Misfit(table) => QueryError::TableGone(table),
        ReplicationError::ClockAhead { .. }
        | ReplicationError::ClockBehind { .. }
        | ReplicationError::OtherScope
        | ReplicationError::WrittenAhead { .. } => QueryError::Invalid(error.to_string()),
        ReplicationError::Stopping { .. } => QueryError::NotReady("the node is stopping".to_owned()),
        ReplicationError::TimedOut { .. }
        | ReplicationError::Undecided { .. }
        | ReplicationError::Uncommitted { .. }
        | ReplicationError::Failed { .. }
        | ReplicationError::TooLarge { .. } => QueryError::Internal(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditional_writes_tell_what_was_not_done_from_what_is_not_known() {
        reactor::run_one(reactor::Config::default(), async {
            let tables = crate::system::SystemTables::new().await.unwrap();
            let table = crate::engine::VirtualTables::table(&tables, "system", "local").unwrap();
            let said =
                |error| write_error(error, Consistency::Serial, WriteType::Cas, &table, b"local").to_string();
            assert_eq!(
                said(ReplicationError::timed_out(0, 1)),
                "CAS operation timed out: received 0 of 1 required responses after 0 contention retries"
            );
            assert_eq!(
                said(ReplicationError::Undecided { received: 0, required: 1 }),
                "CAS operation result is unknown - proposal accepted by 0 but not a quorum."
            );
        });
    }
}
