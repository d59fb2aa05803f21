//! Writes that were kept for a while before they go to replicas: hints, and batches that a keeper writes out.
//!
//! Such a write carries the time at which its first coordinator began it. Invariant: no replica applies one
//! that lies before the purge horizon of its table, because a deletion that shadows it may be forgotten
//! there; it is counted and logged instead.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use model::Table;
use model::mutation::MutationView;
use reactor::metrics::{self, Counter};
use reactor::{Deadline, Group, mesh};
use smallvec::SmallVec;
use storage::ApplyAs;
use wire::node::frame::{Verb, WorkGroup};

use super::send::{self, Sent};
use crate::error::ReplicaFailure;
use crate::plan::{Distance, Planned};
use crate::replicator::{Replicator, here as local_replicator};

/// By how much a write that was not kept may lie before the horizon: clocks of nodes differ, and a write
/// takes as long as its client waits.
const ON_THE_WAY_US: i64 = 10_000_000;

/// How long a hint may take to be durable, where somebody waits for it.
const SYNC_WITHIN: Duration = Duration::from_secs(5);

/// Whether a write that was kept since `born_us` must not be applied any more.
pub(crate) fn is_too_late(replicator: &Replicator, table: &Table, born_us: i64) -> bool {
    let horizon = replicator.storage().purge_horizon(table, now_seconds());
    born_us < i64::from(horizon) * 1_000_000
}

/// Whether a write must not be applied that was never kept, and was on its way all the time: a node or a
/// network may stand still for long.
pub(crate) fn is_lost_on_the_way(replicator: &Replicator, table: &Table, born_us: i64) -> bool {
    is_too_late(replicator, table, born_us.saturating_add(ON_THE_WAY_US))
}

/// The wall clock in whole seconds, as deletions count them.
pub(crate) fn now_seconds() -> u32 {
    u32::try_from(reactor::wall_clock_us() / 1_000_000).unwrap_or(0)
}

/// Registers this shard's counter, so that it is published as 0 before the first late write.
pub(crate) fn register() {
    drop(dropped());
}

fn dropped() -> Rc<Counter> {
    let help = "Writes that were not applied, because they are older than deletions are kept.";
    metrics::counter("ceto_late_writes_dropped", help, &[])
}

/// Counts and logs a write that is dropped because it comes too late.
#[cold]
pub(crate) fn note_dropped(table: &Table, born_us: i64) {
    dropped().inc();
    reactor::warn_limited!("a write came too late and is dropped: what deleted its data may be forgotten";
        keyspace = table.keyspace(), table = table.name(), born_us = born_us);
}

/// This shard has the tablet, since the command `since`.
pub(crate) async fn here(
    replicator: &Replicator,
    mutation: &MutationView<'_>,
    (born_us, since): (i64, u64),
    deadline: Deadline,
) -> Result<(), ReplicaFailure> {
    let table = replicator.storage().borrow_schema().table_by_id(mutation.table).cloned();
    let table = table.ok_or(ReplicaFailure::TableGone(mutation.table))?;
    // It may have come from another node, which kept it for this one.
    mutation.check(&table)?;
    if is_too_late(replicator, &table, born_us) {
        note_dropped(&table, born_us);
        return Ok(());
    }
    let how = ApplyAs { since: Some(since), synced: false };
    replicator.storage().apply_as(mutation, how, deadline).await.map_err(ReplicaFailure::from)
}

/// To one replica, wherever it is. `version` is the one of the routing by which it was found.
pub(crate) fn to(
    replicator: &Replicator,
    (planned, version): (&Planned, u64),
    mutation: &Rc<[u8]>,
    born_us: i64,
    deadline: Deadline,
) -> Sent {
    let origin = (born_us, planned.since);
    match planned.distance {
        Distance::Here => {
            let (replicator, mutation) = (replicator.clone(), Rc::clone(mutation));
            Box::pin(async move {
                let view = MutationView::parse(&mutation)?;
                here(&replicator, &view, origin, deadline).await
            })
        }
        Distance::Node => {
            let (shard, mutation) = (usize::from(planned.replica.shard), mutation.to_vec());
            let called = mesh::call(shard, Group::BACKGROUND, move || async move {
                let replicator = local_replicator().ok_or_else(ReplicaFailure::starting)?;
                let view = MutationView::parse(&mutation)?;
                here(&replicator, &view, origin, deadline).await
            });
            Box::pin(async move { called.await.unwrap_or_else(|error| Err(error.into())) })
        }
        Distance::Rack | Distance::DataCenter | Distance::Far => {
            let how = (Verb::Hint, WorkGroup::Background);
            send::to_node(replicator, (planned, version), how, mutation, born_us, deadline)
        }
    }
}

/// To all of today's replicas, of which those on other nodes that do not take it are left durable hints,
/// whatever the settings of hints say.
///
/// # Errors
/// The failure of a replica that has neither the write nor a hint.
pub(crate) async fn everywhere(
    replicator: &Replicator,
    table: &Table,
    mutation: &Rc<[u8]>,
    born_us: i64,
    deadline: Deadline,
) -> Result<(), ReplicaFailure> {
    let token = MutationView::parse(mutation)?.token;
    let plan = replicator.plan_unchecked(table, token);
    let mut missed: SmallVec<[(Planned, ReplicaFailure); 5]> = SmallVec::new();
    let mut under_way: SmallVec<[(Planned, Sent); 5]> = SmallVec::new();
    for planned in &plan.replicas {
        if planned.is_up {
            let sent = to(replicator, (planned, plan.version()), mutation, born_us, deadline);
            under_way.push((*planned, sent));
        } else {
            missed.push((*planned, ReplicaFailure::Unreachable("its node is down".to_owned())));
        }
    }
    let finished = poll_fn(|context| {
        under_way.retain(|(planned, sent)| match sent.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(Ok(())) => false,
            Poll::Ready(Err(failure)) => {
                missed.push((*planned, failure));
                false
            }
        });
        if under_way.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    });
    let _in_time = reactor::timeout(deadline, finished).await;
    missed.extend(under_way.into_iter().map(|(planned, _)| (planned, ReplicaFailure::TimedOut)));
    for (planned, failure) in missed {
        // The table is gone for all.
        if matches!(failure, ReplicaFailure::TableGone(_)) {
            return Err(failure);
        }
        keep_durably(replicator, (&planned, plan.version()), mutation, born_us, failure).await?;
    }
    Ok(())
}

/// Leaves a durable hint for a replica that did not take a write; returns `failure` if that fails too.
async fn keep_durably(
    replicator: &Replicator,
    to: (&Planned, u64),
    mutation: &Rc<[u8]>,
    born_us: i64,
    failure: ReplicaFailure,
) -> Result<(), ReplicaFailure> {
    let Some(hints) = replicator.hints() else { return Err(failure) };
    let Ok(host) = hints.keep(replicator, to, mutation, born_us) else { return Err(failure) };
    hints.synced(host, Deadline::after(SYNC_WITHIN)).await.map_err(|_| failure)
}
