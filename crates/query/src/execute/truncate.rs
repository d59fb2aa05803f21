//! TRUNCATE: every replica forgets the table's rows.

use std::time::Duration;

use model::Table;
use reactor::Deadline;
use replication::ReplicationError;
use statement::results;

use crate::engine::Engine;
use crate::{QueryError, Response};

/// Truncates on all nodes and appends VOID; `timeout` is the statement's own.
///
/// # Errors
/// [`QueryError::Truncate`] if a node is down, which changes nothing, or if one fails or does not answer in
/// time: others may have truncated.
pub(super) async fn execute(
    engine: &Engine,
    table: &Table,
    timeout: Option<Duration>,
    out: &mut Response,
) -> Result<(), QueryError> {
    if engine.stored_table(table.id()).is_none() {
        if crate::system::is_virtual(table.keyspace()) {
            return Err(QueryError::Invalid(format!(
                "Truncation is not supported by table {}.{}",
                table.keyspace(),
                table.name()
            )));
        }
        return Err(QueryError::Invalid(format!(
            "Cannot modify keyspace: {} is made of the node's own state",
            table.keyspace()
        )));
    }
    engine.config().guardrails.drop_truncate_table()?;
    let deadline = Deadline::after(timeout.unwrap_or(engine.config().truncate_timeout));
    engine.replicator().truncate(table, deadline).await.map_err(|error| match error {
        ReplicationError::TimedOut { required: 1, .. } => {
            QueryError::Truncate("Timeout waiting for all shards".to_owned())
        }
        ReplicationError::TimedOut { received, .. } => {
            QueryError::Truncate(format!("Truncate timed out - received only {received} responses"))
        }
        // Cassandra's words: a node that is down keeps a table from being truncated, whatever the level.
        ReplicationError::Unavailable { .. } => {
            QueryError::Truncate("Cannot achieve consistency level ALL".to_owned())
        }
        error => QueryError::Truncate(error.to_string()),
    })?;
    results::append_void(&mut out.body);
    Ok(())
}
