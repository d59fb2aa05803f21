//! Sends a write to one replica: into the storage of the shard that has the tablet.

use model::mutation::MutationView;
use reactor::{Deadline, Group, mesh};

use crate::admission::{self, Operation};
use crate::error::{ReplicaFailure, ReplicationError};
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
        Err(error) => Err(ReplicaFailure::from(error).here(required)),
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
        let replicator = local_replicator().ok_or_else(ReplicaFailure::starting)?;
        // No caller waits for it any more: it is not begun.
        if deadline.instant() <= reactor::coarse_now() {
            return Err(ReplicaFailure::TimedOut);
        }
        let mutation = MutationView::trusted(&mutation)?;
        check_rate(&replicator, &mutation)?;
        let applied = replicator.storage().apply_checked(&mutation, deadline).await;
        applied.map_err(ReplicaFailure::from)
    })
    .await
    .unwrap_or_else(|error| Err(error.into()));
    answer.map_err(|failure: ReplicaFailure| failure.at(shard, required))
}

/// Counts a write that came from another shard.
fn check_rate(replicator: &Replicator, view: &MutationView<'_>) -> Result<(), ReplicaFailure> {
    let schema = replicator.storage().schema();
    match schema.table_by_id(view.table) {
        Some(table) if admission::may_be_limited(table) => {
            replicator.limiter().check(table, view.token, Operation::Write, false)
        }
        _ => Ok(()),
    }
}
