//! A write that the replica on this shard has begun, and that no task waits for yet.
//!
//! The write is a small value, so that whoever began it can keep it beside the mutation's bytes and poll it.
//! Invariant: it waits for this shard's commit log alone, so that several of them become ready in the order
//! in which they were begun; a write that waits for other replicas too is never one of these.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use cluster::maps::Routing;
use storage::Applying;

use crate::error::{ReplicaFailure, ReplicationError};

/// A write in progress. Dropping it leaves open whether the write happened.
#[derive(Debug)]
#[must_use = "a write that is not finished is not seen"]
pub struct Pending {
    /// The replica of this shard.
    local: Applying,
    /// Answers that the level waits for: this one.
    required: u32,
    /// The routing it was planned with, where there are other nodes: held until the write has ended.
    _routing: Option<Rc<Routing>>,
}

impl Pending {
    #[inline]
    pub(super) fn new(local: Applying, required: u32, routing: Option<Rc<Routing>>) -> Self {
        Self { local, required, _routing: routing }
    }

    /// Completes once the replica has the write; `mutation` is the one that was begun.
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
            Err(error) => Poll::Ready(Err(ReplicaFailure::from(error).here(self.required))),
        }
    }
}
