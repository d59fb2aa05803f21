//! Sends a write to all living replicas of a plan and waits for enough answers, or for the deadline.
//!
//! The replicas are written to side by side, within the caller's future. What is under way when the level is
//! reached goes on in a task of its own, and is counted. Invariant: the bytes of such writes are bounded on
//! each shard; where they would be more, the caller waits for all of its replicas.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use model::tablet::Replica;
use reactor::{Deadline, Group};
use smallvec::SmallVec;

use super::send::{self, Sent};
use crate::plan::{Plan, Planned};
use crate::replicator::Replicator;
use crate::tally::{Ended, Tally};

/// A write on its way to several replicas.
struct Sends {
    under_way: SmallVec<[(Planned, Sent); 5]>,
    tally: Tally,
}

impl Sends {
    /// Takes the answers that have come.
    fn poll_all(&mut self, context: &mut Context<'_>) {
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
}

/// Writes to the replicas of a plan, but for `written`, which has the mutation already and counts as one that
/// answered.
pub(crate) async fn collect(
    replicator: &Replicator,
    plan: &Plan,
    (mutation, written): (&[u8], Option<Replica>),
    deadline: Deadline,
) -> Result<(), Ended> {
    let mutation: Rc<[u8]> = mutation.into();
    let born_us = reactor::wall_clock_us();
    let mut sends = Sends { under_way: SmallVec::new(), tally: plan.tally() };
    // The farthest first, so that this shard's own work delays no other's.
    for planned in plan.replicas.iter().rev().filter(|planned| planned.is_up) {
        sends.tally.asked(planned.share);
        if written == Some(planned.replica) {
            sends.tally.received(planned.share);
            continue;
        }
        let sent = send::to(replicator, (planned, plan.version()), &mutation, born_us, deadline);
        sends.under_way.push((*planned, sent));
    }
    let in_time = reactor::timeout(deadline, sends.decided()).await.is_ok();
    if sends.tally.is_reached() {
        go_on(replicator, sends, mutation.len(), deadline).await;
        return Ok(());
    }
    Err(sends.tally.end(in_time))
}

/// Lets the writes that are still under way end behind the client's answer, or waits for them.
async fn go_on(replicator: &Replicator, mut sends: Sends, bytes: usize, deadline: Deadline) {
    let left = sends.under_way.len();
    if left == 0 {
        return;
    }
    let room = replicator.late_bytes().try_acquire(bytes.saturating_mul(left));
    let (Some(room), Some(hold)) = (room, replicator.storage().enter()) else {
        // Those who have not answered by the deadline are given up.
        let _in_time = reactor::timeout(deadline, sends.finished()).await;
        return;
    };
    let rest = async move {
        let _in_time = reactor::timeout(deadline, sends.finished()).await;
        drop((room, hold));
    };
    reactor::spawn(Group::STATEMENT, rest).detach();
}
