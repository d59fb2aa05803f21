//! Sends a write to one replica: into the storage of the shard that has the tablet.

use model::mutation::MutationView;
use reactor::{Deadline, Group, mesh};
use storage::StorageError;

use crate::admission::{self, Operation};
use crate::error::{RemoteFailure, ReplicationError};
use crate::replicator::{Replicator, here as local_replicator};

/// This shard has it: no copy, no task switch.
#[inline]
pub(super) async fn here(
    replicator: &Replicator,
    mutation: &MutationView<'_>,
    deadline: Deadline,
    required: u32,
) -> Result<(), ReplicationError> {
    match reactor::in_place!(replicator.storage().apply_checked(mutation, deadline)) {
        Ok(()) => Ok(()),
        Err(error) => Err(storage_error(error, required)),
    }
}

/// Converts an error of this shard's storage for a write.
#[cold]
pub(crate) fn storage_error(error: StorageError, required: u32) -> ReplicationError {
    match error {
        StorageError::UnknownTable { table } => ReplicationError::TableGone(table),
        StorageError::CommitlogTimedOut | StorageError::TabletBusy { .. } => {
            ReplicationError::TimedOut { received: 0, required }
        }
        error @ (StorageError::Overloaded { .. } | StorageError::DiskNearlyFull { .. }) => {
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
        // No caller waits for it any more: it is not begun.
        if deadline.instant() <= reactor::coarse_now() {
            return Err(RemoteFailure::TimedOut);
        }
        let mutation = MutationView::trusted(&mutation).map_err(|error| RemoteFailure::of(&error.into()))?;
        check_rate(&replicator, &mutation).map_err(|error| RemoteFailure::of(&error))?;
        let applied = replicator.storage().apply_checked(&mutation, deadline).await;
        applied.map_err(|error| RemoteFailure::of(&error))
    })
    .await?;
    answer.map_err(|failure: RemoteFailure| failure.at(shard, required))
}

/// Counts a write that came from another shard.
fn check_rate(replicator: &Replicator, view: &MutationView<'_>) -> Result<(), StorageError> {
    let schema = replicator.storage().schema();
    match schema.table_by_id(view.table) {
        Some(table) if admission::may_be_limited(table) => {
            replicator.limiter().check(table, view.token, Operation::Write, false)
        }
        _ => Ok(()),
    }
}
