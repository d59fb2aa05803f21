//! A write that the replica on this shard has begun, and that no task waits for yet.
//!
//! The write is a small value, so that whoever began it can keep it beside the mutation's bytes and poll it.
//! Invariant: a write of which this exists is planned, and its level was available.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use storage::Applying;

use super::plan::WritePlan;
use crate::error::{ReplicaFailure, ReplicationError};

/// A write in progress. Dropping it leaves open whether the write happened.
#[derive(Debug)]
#[must_use = "a write that is not finished is not seen"]
pub struct Pending {
    /// The replica of this shard.
    local: Applying,
    plan: WritePlan,
}

impl Pending {
    #[inline]
    pub(super) fn new(local: Applying, plan: WritePlan) -> Self {
        debug_assert_eq!(
            usize::from(plan.replica.shard),
            reactor::shard_id(),
            "a write that this shard's replica has begun"
        );
        Self { local, plan }
    }

    /// Completes once enough replicas have the write; `mutation` is the one that was begun.
    ///
    /// # Errors
    /// As [`crate::Replicator::write`].
    pub async fn finish(mut self, mutation: &[u8]) -> Result<(), ReplicationError> {
        poll_fn(|context| self.poll_finish(mutation, context)).await
    }

    /// As [`Pending::finish`], for futures that own the mutation. Not to be polled again once it is ready.
    #[inline]
    pub fn poll_finish(
        &mut self,
        mutation: &[u8],
        context: &mut Context<'_>,
    ) -> Poll<Result<(), ReplicationError>> {
        match ready!(self.local.poll_finish(mutation, context)) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(ReplicaFailure::from(error).here(self.plan.required))),
        }
    }
}
