//! Sends a write to its replicas and waits for enough answers, or for the deadline.

use model::mutation::MutationView;
use reactor::Deadline;

use super::plan::WritePlan;
use super::send;
use crate::error::ReplicationError;
use crate::replicator::Replicator;

#[inline]
pub(super) async fn collect(
    replicator: &Replicator,
    plan: &WritePlan,
    mutation: &MutationView<'_>,
    deadline: Deadline,
) -> Result<(), ReplicationError> {
    if plan.replica == replicator.own() {
        // Storage keeps the deadline wherever it waits: no timer here.
        return reactor::in_place!(send::here(replicator, mutation, deadline, plan.required));
    }
    // Boxed, so that a write of this shard does not carry the space of a call.
    let shard = replicator.shard_of(plan.replica);
    let applying = Box::pin(send::there(shard, mutation.as_bytes().to_vec(), deadline, plan.required));
    let answer = reactor::timeout(deadline, applying).await;
    answer.unwrap_or(Err(ReplicationError::TimedOut { received: 0, required: plan.required }))
}
