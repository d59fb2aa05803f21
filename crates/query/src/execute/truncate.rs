//! TRUNCATE: every shard forgets the table's rows.

use model::{Table, TableId};
use reactor::{Deadline, Group, mesh};

use crate::engine::Engine;
use crate::{QueryError, Response, results};

/// Truncates on all shards and appends VOID.
///
/// # Errors
/// [`QueryError::Truncate`] where a shard fails or does not answer in time; others may have truncated.
pub(super) async fn execute(engine: &Engine, table: &Table, out: &mut Response) -> Result<(), QueryError> {
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
    let deadline = Deadline::after(engine.config().truncate_timeout);
    let all = async {
        for shard in 0..reactor::shard_count() {
            on_shard(shard, table.id()).await?;
        }
        Ok(())
    };
    reactor::timeout(deadline, all)
        .await
        .unwrap_or_else(|_| Err(QueryError::Truncate("Timeout waiting for all shards".to_owned())))?;
    results::append_void(&mut out.body);
    Ok(())
}

async fn on_shard(shard: usize, table: TableId) -> Result<(), QueryError> {
    let answer = mesh::call(shard, Group::STATEMENT, move || async move {
        let engine = Engine::here().ok_or_else(|| "the shard is starting".to_owned())?;
        engine.storage().truncate(table).await.map_err(|error| error.to_string())
    });
    match answer.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(reason)) => Err(QueryError::Truncate(reason)),
        Err(error) => Err(QueryError::Truncate(error.to_string())),
    }
}
