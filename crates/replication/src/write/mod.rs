//! A write: planned, sent to its replicas, acknowledged when enough of them have it.
//!
//! `pending` is a write that this shard alone has and that no task waits for; `send` brings a write to one
//! replica, wherever it is; `collect` to several, and waits for the level; `follow` tells when it is safe
//! behind that; `late` are writes that were kept
//! for a while. A replica that knows another state than the plan has the write planned again, until the
//! deadline.

pub(crate) mod collect;
pub(crate) mod follow;
pub(crate) mod late;
mod pending;
pub(crate) mod send;

use std::rc::Rc;
use std::time::Duration;

use cluster::maps::Routing;
use model::mutation::MutationView;
use model::tablet::Replica;
use model::{Table, Token};
use reactor::Deadline;
use reactor::{Cold, cold};

use crate::admission::{self, Operation};
use crate::consistency::Consistency;
use crate::error::{ReplicaFailure, ReplicationError};
use crate::replicator::Replicator;
use crate::tally::Ended;
use follow::Followed;

pub use pending::Pending;

/// Longest wait for a later routing before a request is planned again: what a replica lacked may be something
/// else, such as a schema that it did not have yet.
const REPLAN_EVERY: Duration = Duration::from_millis(100);

impl Replicator {
    /// Writes one mutation of `table` to enough replicas for `consistency`. Others that are alive get it as
    /// well, and may have it later. Dropping the future leaves open which of them do.
    ///
    /// # Errors
    /// [`ReplicationError::RateLimited`], [`ReplicationError::TooLarge`] and
    /// [`ReplicationError::Unavailable`] before anything is done; [`ReplicationError::TimedOut`] when the
    /// write may or may not have happened; otherwise the error of the replicas that failed.
    #[inline]
    pub async fn write(
        &self,
        table: &Table,
        mutation: &[u8],
        consistency: Consistency,
        deadline: Deadline,
    ) -> Result<(), ReplicationError> {
        self.check_size(mutation)?;
        if self.view().is_shared() {
            return Box::pin(self.write_copies(table, mutation, consistency, deadline, (None, None))).await;
        }
        let required = self.required_alone(table, consistency)?;
        let view =
            MutationView::trusted(mutation).map_err(|error| ReplicaFailure::from(error).here(required))?;
        let token = view.token;
        let (replica, version) =
            self.view().with_routing(table, |routing| (routing.replica_of(token), routing.version()));
        self.check_rate(table, token, replica)?;
        let written = if replica == self.own() {
            // Storage keeps the deadline wherever it waits: no timer here.
            reactor::in_place!(send::here(self, &view, deadline))
        } else {
            // Boxed, so that a write of this shard does not carry the space of a call.
            let call =
                Box::pin(send::to_shard(usize::from(replica.shard), mutation.to_vec(), None, deadline));
            reactor::timeout(deadline, call).await.unwrap_or(Err(ReplicaFailure::TimedOut))
        };
        match written {
            Ok(()) => Ok(()),
            Err(failure) if failure.asks_for_a_later_plan() => {
                Box::pin(self.write_copies(table, mutation, consistency, deadline, (Some(version), None)))
                    .await
            }
            Err(failure) => Err(failure.at(replica, required)),
        }
    }

    /// As [`Replicator::write`]; `followed` says what becomes of the write behind its end.
    ///
    /// # Errors
    /// As [`Replicator::write`].
    pub(crate) async fn write_followed(
        &self,
        table: &Table,
        mutation: &[u8],
        consistency: Consistency,
        deadline: Deadline,
        followed: &Rc<Followed>,
    ) -> Result<(), ReplicationError> {
        self.check_size(mutation)?;
        self.write_copies(table, mutation, consistency, deadline, (None, Some(followed))).await
    }

    /// Writes by a plan; `earlier` is the version of a routing that has been tried.
    #[cold]
    #[inline(never)]
    fn write_copies<'a>(
        &'a self,
        table: &'a Table,
        mutation: &'a [u8],
        consistency: Consistency,
        deadline: Deadline,
        (mut earlier, followed): (Option<u64>, Option<&'a Rc<Followed>>),
    ) -> Cold<'a, Result<(), ReplicationError>> {
        cold(async move {
            let view =
                MutationView::trusted(mutation).map_err(|error| ReplicaFailure::from(error).here(1))?;
            let token = view.token;
            // Bounded by the deadline.
            loop {
                if let Some(version) = earlier {
                    self.wait_for_later_plan(table, version, deadline).await;
                }
                let plan = self.plan_write(table, token, consistency)?;
                self.check_rate(table, token, plan.replicas[0].replica)?;
                let written = match &plan.replicas[..] {
                    [only] if only.replica == self.own() => {
                        let written = reactor::in_place!(send::here(self, &view, deadline));
                        written.map_err(|failure| Ended::of_one(failure, only.replica, plan.required))
                    }
                    _ => collect::collect(self, &plan, (mutation, None), deadline, followed).await,
                };
                match written {
                    Ok(()) => return Ok(()),
                    Err(Ended::Again(error)) if deadline.is_past() => return Err(error),
                    Err(Ended::Again(_)) => earlier = Some(plan.version()),
                    Err(Ended::Failed(error)) => return Err(error),
                }
            }
        })
    }

    /// Waits until a table has a later routing than `version`, at most [`REPLAN_EVERY`] and not longer than
    /// until the deadline.
    pub(crate) async fn wait_for_later_plan(&self, table: &Table, version: u64, deadline: Deadline) {
        let until =
            if deadline.remaining() < REPLAN_EVERY { deadline } else { Deadline::after(REPLAN_EVERY) };
        self.view().wait_for_later(table, version, until).await;
    }

    /// Counts a write of a partition of which this shard has the nearest replica, if its table has limits.
    #[inline]
    fn check_rate(&self, table: &Table, token: Token, nearest: Replica) -> Result<(), ReplicationError> {
        if admission::may_be_limited(table) && nearest == self.own() {
            let checked = self.limiter().check(table, token, Operation::Write, true);
            checked.map_err(|failure| failure.here(1))?;
        }
        Ok(())
    }

    /// Refuses a mutation that is longer than any replica takes.
    #[inline]
    pub(crate) fn check_size(&self, mutation: &[u8]) -> Result<(), ReplicationError> {
        let checked = self.storage().check_mutation_size(mutation);
        checked.map_err(|error| ReplicaFailure::from(error).here(1))
    }

    /// Whether a write may begin without waiting for memory.
    #[inline]
    pub fn can_begin_writes(&self) -> bool {
        !self.storage().holds_writers()
    }

    /// Begins [`Replicator::write`] if this shard has the partition's only replica and nothing has to be
    /// waited for before the commit log has the write; otherwise returns `None`, and nothing was begun. The
    /// caller has checked [`Replicator::can_begin_writes`] and not waited since.
    ///
    /// # Errors
    /// As [`Replicator::write`].
    #[inline]
    pub fn begin_write(
        &self,
        table: &Table,
        (mutation, token): (&[u8], Token),
        consistency: Consistency,
        deadline: Deadline,
    ) -> Result<Option<Pending>, ReplicationError> {
        debug_assert!(self.can_begin_writes());
        if admission::may_be_limited(table) {
            return Ok(None);
        }
        self.check_size(mutation)?;
        let (required, routing) = if self.view().is_shared() {
            match self.plan_alone(table, token, consistency)? {
                Some((required, routing)) => (required, Some(routing)),
                None => return Ok(None),
            }
        } else {
            (self.required_alone(table, consistency)?, None)
        };
        // Storage finds the tablet anyway, and begins nothing if another shard has it.
        match self.storage().begin_made(mutation, table, token, deadline) {
            Ok(begun) => Ok(begun.map(|local| Pending::new(local, required, routing))),
            Err(error) => Err(ReplicaFailure::from(error).here(required)),
        }
    }

    /// What a level needs, and the routing it was planned with, if this shard has the only replica of a
    /// token's tablet.
    #[inline(never)]
    fn plan_alone(
        &self,
        table: &Table,
        token: Token,
        level: Consistency,
    ) -> Result<Option<(u32, Rc<Routing>)>, ReplicationError> {
        let is_alone = self.view().with_routing(table, |routing| {
            routing.replicas(routing.tablets().tablet_of(token)) == [self.own()]
        });
        if !is_alone {
            return Ok(None);
        }
        let plan = self.plan_write(table, token, level)?;
        Ok(Some((plan.required, Rc::clone(plan.routing()))))
    }
}
