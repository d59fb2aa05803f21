//! Sends a write to all living replicas of a plan and waits for enough answers, or for the deadline.
//!
//! The replicas are written to side by side, within the caller's future. What is under way when the level is
//! reached goes on in a task of its own, and is counted. Replicas that are down, failed, or did not answer in
//! time are left hints, once it is clear that the write is not planned again. Invariant: the bytes of writes
//! that go on are bounded on each shard; where they would be more, the caller waits for all of its replicas.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use model::tablet::Replica;
use reactor::{Deadline, Group};
use smallvec::SmallVec;

use super::follow::{Followed, Follower};
use super::send::{self, Sent};
use crate::error::ReplicationError;
use crate::plan::{Plan, Planned};
use crate::replicator::Replicator;
use crate::tally::{Ended, Tally};

/// How long a hint may take to be durable that is the only answer, where no time is left.
const SYNC_WITHIN: Duration = Duration::from_millis(500);

/// A write on its way to several replicas.
struct Sends {
    under_way: SmallVec<[(Planned, Sent); 5]>,
    /// Replicas that did not take it, and may get a hint.
    missed: SmallVec<[Planned; 5]>,
    tally: Tally,
    /// Replicas that have it.
    have_it: usize,
    /// Hosts that are left hints.
    hinted: SmallVec<[[u8; 16]; 3]>,
    /// Replicas that neither have it nor are left a hint.
    without: usize,
}

impl Sends {
    fn new(tally: Tally) -> Self {
        Self {
            under_way: SmallVec::new(),
            missed: SmallVec::new(),
            tally,
            have_it: 0,
            hinted: SmallVec::new(),
            without: 0,
        }
    }

    /// Takes the answers that have come.
    fn poll_all(&mut self, context: &mut Context<'_>) {
        let (tally, missed) = (&mut self.tally, &mut self.missed);
        let (have_it, without) = (&mut self.have_it, &mut self.without);
        self.under_way.retain(|(planned, sent)| match sent.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(Ok(())) => {
                *have_it += 1;
                tally.received(planned.share);
                false
            }
            Poll::Ready(Err(failure)) => {
                match failure.leaves_a_hint() {
                    true => missed.push(*planned),
                    false => *without += 1,
                }
                tally.failed(planned.share, planned.replica.into(), failure);
                false
            }
        });
    }

    /// Waits until the level is reached, or cannot be any more.
    async fn decided(&mut self) {
        poll_fn(|context| {
            self.poll_all(context);
            let decided = self.tally.is_reached() || self.tally.is_out_of_reach();
            if decided { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Waits for all answers.
    async fn finished(&mut self) {
        poll_fn(|context| {
            self.poll_all(context);
            if self.under_way.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Those who have not answered count as missed.
    fn give_up(&mut self) {
        let given_up = std::mem::take(&mut self.under_way);
        self.missed.extend(given_up.into_iter().map(|(planned, _)| planned));
    }

    fn end(self, follower: Option<Follower>) {
        if let Some(follower) = follower {
            follower.ended(self.have_it, &self.hinted, self.without);
        }
    }

    /// Leaves hints for the replicas that missed it by now.
    fn leave_hints(&mut self, leaving: &Leaving) {
        for planned in std::mem::take(&mut self.missed) {
            match leaving.leave(&planned) {
                Some(host) => self.hinted.push(host),
                None => self.without += 1,
            }
        }
    }
}

/// What a hint of a write takes.
struct Leaving {
    replicator: Replicator,
    mutation: Rc<[u8]>,
    version: u64,
    born_us: i64,
}

impl Leaving {
    /// Leaves a hint for a replica; returns its host, if the hint was kept.
    fn leave(&self, planned: &Planned) -> Option<[u8; 16]> {
        let hints = self.replicator.hints()?;
        let is_kept = hints.leave(&self.replicator, (planned, self.version), &self.mutation, self.born_us);
        if is_kept { self.replicator.host_id_of(planned.replica.node) } else { None }
    }
}

/// Writes to the replicas of a plan, but for `written`, which has the mutation already and counts as one that
/// answered. A write that reached its level is followed by `followed` from there on.
pub(crate) async fn collect(
    replicator: &Replicator,
    plan: &Plan,
    (mutation, written): (&[u8], Option<Replica>),
    deadline: Deadline,
    followed: Option<&Rc<Followed>>,
) -> Result<(), Ended> {
    let mutation: Rc<[u8]> = mutation.into();
    let born_us = reactor::wall_clock_us();
    let mut sends = Sends::new(plan.tally());
    // The farthest first, so that this shard's own work delays no other's.
    for planned in plan.replicas.iter().rev() {
        if !planned.is_up {
            sends.missed.push(*planned);
            continue;
        }
        sends.tally.asked(planned.share);
        if written == Some(planned.replica) {
            sends.tally.received(planned.share);
            sends.have_it += 1;
            continue;
        }
        let sent = send::to(replicator, (planned, plan.version()), &mutation, born_us, deadline);
        sends.under_way.push((*planned, sent));
    }
    let leaving = Leaving { replicator: replicator.clone(), mutation, version: plan.version(), born_us };
    let in_time = reactor::timeout(deadline, sends.decided()).await.is_ok();
    if sends.tally.is_reached() {
        sends.leave_hints(&leaving);
        go_on(replicator, sends, leaving, deadline, followed.map(Followed::follow)).await;
        return Ok(());
    }
    let ended = if plan.is_out_of_reach() {
        // Only a plan that counts hints is made where no replica lives.
        Ended::Failed(ReplicationError::Unavailable { required: plan.required, alive: 0 })
    } else {
        std::mem::replace(&mut sends.tally, plan.tally()).end(in_time)
    };
    if matches!(ended, Ended::Again(_)) && !deadline.is_past() {
        return Err(ended);
    }
    // Those that have not answered may have it or not.
    sends.give_up();
    sends.leave_hints(&leaving);
    match (sends.hinted.first(), replicator.hints()) {
        // An answer to the client: the hint is to be as safe as a write is.
        (Some(host), Some(hints)) if plan.counts_hints => {
            let until = if deadline.is_past() { Deadline::after(SYNC_WITHIN) } else { deadline };
            hints.synced(*host, until).await.map_err(|_| ended)
        }
        _ => Err(ended),
    }
}

/// Lets the writes that are still under way end behind the client's answer, or waits for them.
async fn go_on(
    replicator: &Replicator,
    mut sends: Sends,
    leaving: Leaving,
    deadline: Deadline,
    follower: Option<Follower>,
) {
    let (left, bytes) = (sends.under_way.len(), leaving.mutation.len());
    if left == 0 {
        return sends.end(follower);
    }
    let rest = async move {
        // Those who have not answered by the deadline are given up.
        let _in_time = reactor::timeout(deadline, sends.finished()).await;
        sends.give_up();
        sends.leave_hints(&leaving);
        sends.end(follower);
    };
    let room = replicator.late_room(bytes, left);
    let (Some(room), Some(hold)) = (room, replicator.storage().enter()) else {
        return rest.await;
    };
    let users = replicator.hints().and_then(|hints| hints.enter());
    let rest = async move {
        rest.await;
        drop((room, hold, users));
    };
    reactor::spawn(Group::STATEMENT, rest).detach();
}
