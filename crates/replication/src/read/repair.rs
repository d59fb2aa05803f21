//! Writes to replicas what a read has shown that they lack.
//!
//! Invariant: a read at a level is answered only after as many replicas as it counts have what it returns, so
//! that later reads at that level never go back behind it (Cassandra's blocking read repair).

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use model::Table;
use model::mutation::MutationView;
use model::tablet::Replica;
use reactor::Deadline;
use reactor::metrics::{self, Counter};
use smallvec::SmallVec;

use crate::error::{ReplicaFailure, ReplicationError};
use crate::plan::{Plan, Planned};
use crate::replicator::Replicator;
use crate::write::send::{self, Sent};

/// Registers this shard's counters, so that they are published as 0 before the first repair.
pub(crate) fn register() {
    drop((repairs(), failures()));
}

fn repairs() -> Rc<Counter> {
    let help = "Writes to replicas of what a read showed that they lack";
    metrics::counter("ceto_coordinator_read_repairs", help, &[])
}

fn failures() -> Rc<Counter> {
    let help = "Reads that failed because a replica did not get what it lacks";
    metrics::counter("ceto_coordinator_read_repairs_failed", help, &[])
}

/// A write to one replica.
struct Repair {
    planned: Planned,
    mutation: Rc<[u8]>,
    sent: Sent,
}

/// Replicas that a read did not ask, in the place of those that take no writes.
struct StandIns {
    spares: SmallVec<[Planned; 5]>,
    /// Which one each replica got. It stays the same for all mutations: two replicas that lack the same row
    /// have two stand-ins.
    taken: SmallVec<[(Replica, Planned); 5]>,
}

impl StandIns {
    fn of(&mut self, failed: &Planned) -> Option<Planned> {
        if let Some((_, taken)) = self.taken.iter().find(|(replica, _)| *replica == failed.replica) {
            return Some(*taken);
        }
        let at = self.spares.iter().position(|spare| spare.share == failed.share)?;
        let spare = self.spares.remove(at);
        self.taken.push((failed.replica, spare));
        Some(spare)
    }
}

/// Writes each mutation to its replica, and waits until all have them that still are replicas then: others
/// count for no later read. A spare gets what one that fails lacks, and counts in its place: what the read
/// returns is then on as many replicas as the level needs, although they are other ones.
///
/// # Errors
/// [`ReplicationError::TimedOut`] if some of them did not get it by the deadline and had no spare: the data
/// was read, and may be lost to the next reader. It counts those that failed, as Cassandra's
/// `BlockingReadRepair`.
pub(super) async fn write(
    replicator: &Replicator,
    (plan, table): (&Plan, &Rc<Table>),
    lacking: Vec<(Planned, Vec<u8>)>,
    spares: SmallVec<[Planned; 5]>,
    deadline: Deadline,
) -> Result<(), ReplicationError> {
    let born_us = reactor::wall_clock_us();
    repairs().add(lacking.len() as u64);
    let begin = |planned: Planned, mutation: Rc<[u8]>| {
        let (replicator, table, version) = (replicator.clone(), table.clone(), plan.version());
        let of_task = Rc::clone(&mutation);
        let sent: Sent = Box::pin(async move {
            to_replica(&replicator, &table, (planned, version), &of_task, (born_us, deadline)).await
        });
        Repair { planned, mutation, sent }
    };
    let mut under_way: SmallVec<[Repair; 5]> =
        lacking.into_iter().map(|(planned, mutation)| begin(planned, mutation.into())).collect();
    let mut stand_ins = StandIns { spares, taken: SmallVec::new() };
    let mut failed: SmallVec<[Replica; 5]> = SmallVec::new();
    let finished = poll_fn(|context| {
        // A stand-in comes behind those that are polled, and is polled in the same round.
        let mut at = 0;
        while at < under_way.len() {
            let Poll::Ready(ended) = under_way[at].sent.as_mut().poll(context) else {
                at += 1;
                continue;
            };
            let Repair { planned, mutation, .. } = under_way.remove(at);
            let Err(failure) = ended else { continue };
            let error = failure.at(planned.replica, plan.required);
            reactor::warn_limited!("a replica was not told what a read has shown that it lacks"; error = error);
            match stand_ins.of(&planned) {
                Some(spare) => under_way.push(begin(spare, mutation)),
                None => failed.push(planned.replica),
            }
        }
        if under_way.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    });
    // Those that do not answer in time have failed as well.
    let _in_time = reactor::timeout(deadline, finished).await;
    failed.extend(under_way.iter().map(|repair| repair.planned.replica));
    failed.sort_unstable();
    failed.dedup();
    if failed.is_empty() {
        return Ok(());
    }
    failures().inc();
    let required = plan.required;
    let received = required.saturating_sub(failed.len() as u32);
    Err(ReplicationError::TimedOut { received, required, data_present: true })
}

/// Writes to a replica, by later plans where its own is one of before, as long as it is a replica.
async fn to_replica(
    replicator: &Replicator,
    table: &Table,
    (planned, mut version): (Planned, u64),
    mutation: &Rc<[u8]>,
    (born_us, deadline): (i64, Deadline),
) -> Result<(), ReplicaFailure> {
    // Bounded by the deadline.
    loop {
        let sent = send::to(replicator, (&planned, version), mutation, born_us, deadline).await;
        match sent {
            Err(failure) if failure.asks_for_a_later_plan() && !deadline.is_past() => {}
            sent => return sent,
        }
        replicator.wait_for_later_plan(table, version, deadline).await;
        let token = MutationView::trusted(mutation)?.token;
        let plan = replicator.plan_unchecked(table, token);
        let is_same = |now: &Planned| (now.replica, now.since) == (planned.replica, planned.since);
        if !plan.replicas.iter().any(is_same) {
            return Ok(());
        }
        version = plan.version();
    }
}
