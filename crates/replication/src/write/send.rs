//! Sends a write to one replica: into the storage of the shard that has the tablet.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use model::mutation::MutationView;
use reactor::{Deadline, Group, mesh};
use storage::ApplyAs;
use wire::node::frame::{Verb, WorkGroup};
use wire::node::mutate::{self, Entry, Mutate};

use crate::admission::{self, Operation};
use crate::error::ReplicaFailure;
use crate::peers::PeerCall;
use crate::plan::{Distance, Planned};
use crate::replicator::{Replicator, here as local_replicator};

/// A write on its way to one replica.
pub(crate) type Sent = Pin<Box<dyn Future<Output = Result<(), ReplicaFailure>>>>;

/// This shard has it: no copy, no task switch.
#[inline]
pub(crate) async fn here(
    replicator: &Replicator,
    mutation: &MutationView<'_>,
    deadline: Deadline,
) -> Result<(), ReplicaFailure> {
    match reactor::in_place!(replicator.storage().apply_checked(mutation, deadline)) {
        Ok(()) => Ok(()),
        Err(error) => Err(ReplicaFailure::from(error)),
    }
}

/// Another shard of this node has it. With `since` a tablet of another tenancy refuses it.
pub(crate) async fn to_shard(
    shard: usize,
    mutation: Vec<u8>,
    since: Option<u64>,
    deadline: Deadline,
) -> Result<(), ReplicaFailure> {
    mesh::call(shard, Group::STATEMENT, move || async move {
        let replicator = local_replicator().ok_or_else(ReplicaFailure::starting)?;
        // No caller waits for it any more: it is not begun.
        if deadline.instant() <= reactor::coarse_now() {
            return Err(ReplicaFailure::TimedOut);
        }
        let mutation = MutationView::trusted(&mutation)?;
        check_rate(&replicator, &mutation)?;
        let how = ApplyAs { since, synced: false };
        let applied = replicator.storage().apply_as(&mutation, how, deadline).await;
        applied.map_err(ReplicaFailure::from)
    })
    .await
    .unwrap_or_else(|error| Err(error.into()))
}

/// Wherever it is. `version` is the one of the routing by which the replica was found, `born_us` the time at
/// which the write began.
pub(crate) fn to(
    replicator: &Replicator,
    (replica, version): (&Planned, u64),
    mutation: &Rc<[u8]>,
    born_us: i64,
    deadline: Deadline,
) -> Sent {
    match replica.distance {
        Distance::Here => {
            let (storage, mutation) = (replicator.storage().clone(), Rc::clone(mutation));
            let how = ApplyAs { since: Some(replica.since), synced: false };
            Box::pin(async move {
                let view = MutationView::trusted(&mutation)?;
                storage.apply_as(&view, how, deadline).await.map_err(ReplicaFailure::from)
            })
        }
        Distance::Node => {
            let (shard, since) = (usize::from(replica.replica.shard), Some(replica.since));
            Box::pin(to_shard(shard, mutation.to_vec(), since, deadline))
        }
        Distance::Rack | Distance::DataCenter | Distance::Far => {
            let how = (Verb::Mutate, WorkGroup::Statement);
            to_node(replicator, (replica, version), how, mutation, born_us, deadline)
        }
    }
}

/// Another node has it.
pub(crate) fn to_node(
    replicator: &Replicator,
    (replica, version): (&Planned, u64),
    (verb, group): (Verb, WorkGroup),
    mutation: &[u8],
    born_us: i64,
    deadline: Deadline,
) -> Sent {
    let mut body = Vec::with_capacity(mutation.len() + 64);
    match MutationView::trusted(mutation) {
        Ok(mutation) => {
            let entry = Entry { version, since: replica.since, mutation };
            let message = Mutate { born_us, entries: vec![entry], forward: Vec::new() };
            mutate::encode(&message, &mut body);
        }
        Err(error) => return Box::pin(async move { Err(error.into()) }),
    }
    let answer = replicator.peers().call(PeerCall { to: replica.replica, verb, group, deadline, body });
    let node = replica.replica.node;
    storage::note(|| format!("Sending the write to node {node}"));
    Box::pin(async move {
        let answer = answer.await;
        storage::note(|| match &answer {
            Ok(_) => format!("Node {node} has the write"),
            Err(error) => format!("Node {node} failed: {error}"),
        });
        answer.map(|_| ()).map_err(ReplicaFailure::of_peer)
    })
}

/// Counts a write that came from another shard or node. Counters are not limited.
pub(crate) fn check_rate(replicator: &Replicator, view: &MutationView<'_>) -> Result<(), ReplicaFailure> {
    let schema = replicator.storage().borrow_schema();
    match schema.table_by_id(view.table) {
        Some(table) if admission::may_be_limited(table) && !table.is_counter() => {
            replicator.limiter().check(table, view.token, Operation::Write, false)
        }
        _ => Ok(()),
    }
}
