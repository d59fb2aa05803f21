//! The replica's half of a write: into the storage of the shard that has the tablet.

use reactor::{Deadline, Group, mesh};
use storage::StorageError;

use crate::error::{RemoteFailure, ReplicationError};
use crate::replicator::{Replicator, here as local_replicator};

/// This shard has it: no copy, no task switch.
#[inline]
pub(super) async fn here(
    replicator: &Replicator,
    mutation: &[u8],
    deadline: Deadline,
    required: u32,
) -> Result<(), ReplicationError> {
    match reactor::in_place!(replicator.storage().apply(mutation, deadline)) {
        Ok(()) => Ok(()),
        Err(error) => Err(storage_error(error, required)),
    }
}

/// What this shard's storage says to a write.
#[cold]
pub(crate) fn storage_error(error: StorageError, required: u32) -> ReplicationError {
    match error {
        StorageError::UnknownTable { table } => ReplicationError::TableGone(table),
        StorageError::CommitlogTimedOut | StorageError::TabletBusy { .. } => {
            ReplicationError::TimedOut { received: 0, required }
        }
        error @ StorageError::Overloaded { .. } => {
            ReplicationError::Overloaded { shard: reactor::shard_id(), reason: error.to_string() }
        }
        error => error.into(),
    }
}

/// Another shard has it.
pub(super) async fn there(
    shard: usize,
    mutation: Vec<u8>,
    deadline: Deadline,
    required: u32,
) -> Result<(), ReplicationError> {
    let answer = mesh::call(shard, Group::STATEMENT, move || async move {
        let replicator =
            local_replicator().ok_or_else(|| RemoteFailure::Failed("the shard is starting".to_owned()))?;
        let applied = replicator.storage().apply(&mutation, deadline).await;
        applied.map_err(|error| RemoteFailure::of(&error))
    })
    .await?;
    answer.map_err(|failure: RemoteFailure| failure.at(shard, required))
}
