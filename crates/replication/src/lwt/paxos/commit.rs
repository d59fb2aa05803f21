//! Shows a chosen write to readers: every living replica gets it, and the request waits for its level.
//!
//! Acceptors are told to commit the proposal; replicas that take no part in the agreement get it as a plain
//! write. What is under way when the level is reached goes on in a task whose bytes are bounded on each
//! shard. Invariant: whatever happens here, the write happened: a later round finishes it.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use model::Table;
use model::partition_key::DecoratedKey;
use reactor::{Deadline, Group};
use smallvec::SmallVec;
use wire::node::frame::Verb;

use super::super::ballot::Ballot;
use super::message::propose;
use super::votes::{acceptors, ask};
use crate::consistency::Consistency;
use crate::error::ReplicationError;
use crate::plan::{Plan, Planned};
use crate::replicator::Replicator;
use crate::tally::Tally;
use crate::write::send::{self, Sent};

/// A chosen write on its way to replicas.
struct Commits {
    under_way: SmallVec<[(Planned, Sent); 5]>,
    tally: Tally,
}

impl Commits {
    /// Waits until the level is reached or cannot be, or with `all` for every answer.
    async fn wait(&mut self, all: bool) {
        poll_fn(|context| {
            let tally = &mut self.tally;
            self.under_way.retain(|(planned, sent)| match sent.as_mut().poll(context) {
                Poll::Pending => true,
                Poll::Ready(Ok(())) => {
                    tally.received(planned.share);
                    false
                }
                Poll::Ready(Err(failure)) => {
                    tally.failed(planned.share, planned.replica.into(), failure);
                    false
                }
            });
            let decided = self.tally.is_reached() || self.tally.is_out_of_reach();
            let ends = self.under_way.is_empty() || (decided && !all);
            if ends { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl Replicator {
    /// Commits a chosen write at a level.
    ///
    /// # Errors
    /// [`ReplicationError::Uncommitted`] if too few replicas have it in time.
    pub(super) async fn commit_chosen(
        &self,
        (table, key): (&Table, &DecoratedKey),
        round: &Plan,
        (ballot, mutation): (Ballot, Vec<u8>),
        level: Consistency,
        deadline: Deadline,
    ) -> Result<(), ReplicationError> {
        let required = self.with_counts(table, |counts| level.required(counts));
        let mutation: Rc<[u8]> = mutation.into();
        // Bounded by the deadline.
        let mut commits = loop {
            let Ok(plan) = self.plan_write(table, key.token, level) else {
                // Too few live by now. Those that agreed still have it as accepted.
                return Err(ReplicationError::Uncommitted { received: 0, required });
            };
            let mut commits = self.commits((&plan, round), (ballot, &mutation), deadline);
            if level == Consistency::Any {
                break commits;
            }
            let _in_time = reactor::timeout(deadline, commits.wait(false)).await;
            if commits.tally.is_reached() || !commits.tally.wants_later_plan() || deadline.is_past() {
                break commits;
            }
            // Those that have it take it once more.
            drop(commits);
            self.wait_for_later_plan(table, plan.version(), deadline).await;
        };
        let (is_reached, received) = (commits.tally.is_reached(), commits.tally.received_in_all());
        let room = self.late_room(mutation.len(), commits.under_way.len());
        match (room, self.storage().enter()) {
            (Some(room), Some(hold)) => {
                let rest = async move {
                    let _in_time = reactor::timeout(deadline, commits.wait(true)).await;
                    drop((room, hold));
                };
                reactor::spawn(Group::STATEMENT, rest).detach();
            }
            _ => drop(reactor::timeout(deadline, commits.wait(true)).await),
        }
        if is_reached || level == Consistency::Any {
            return Ok(());
        }
        Err(ReplicationError::Uncommitted { received: received.min(required.saturating_sub(1)), required })
    }

    fn commits(
        &self,
        (plan, round): (&Plan, &Plan),
        (ballot, mutation): (Ballot, &Rc<[u8]>),
        deadline: Deadline,
    ) -> Commits {
        let mut commits = Commits { under_way: SmallVec::new(), tally: plan.tally() };
        let born_us = ballot.micros;
        // The farthest first, so that this shard's own work delays no other's.
        for planned in plan.replicas.iter().rev().filter(|planned| planned.is_up) {
            commits.tally.asked(planned.share);
            let agrees = acceptors(round).any(|acceptor| acceptor.replica == planned.replica);
            let sent: Sent = if agrees {
                let body = propose(plan, planned, (ballot, mutation), Some(false));
                let asked = ask(self, planned, (Verb::Learn, body), deadline);
                Box::pin(async move { asked.await.map(|_| ()) })
            } else {
                send::to(self, (planned, plan.version()), mutation, born_us, deadline)
            };
            commits.under_way.push((*planned, sent));
        }
        commits
    }
}
