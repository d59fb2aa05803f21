//! The coordinator's half of logged batches over several nodes: finds keepers, writes, and tells them the
//! end.
//!
//! Keepers are two other nodes of this data center that are up, in different racks and not in this node's
//! where there are such; fewer where there are fewer, and this node itself where there is no other. A keeper
//! that fails gives way to another node. From the moment on at which the keepers have the batch it happens,
//! whoever dies then: the writes here are only the quick way. Invariant: keepers are told the end only after
//! each write reached the level, and is safe without this node (`write::follow`).

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use cluster::nodes::{NodeRecord, NodeState};
use model::mutation::MutationView;
use model::tablet::Replica;
use model::token::murmur3_token;
use reactor::{Deadline, Group};
use storage::BatchOrigin;
use wire::node::batch::{self, BatchLog};
use wire::node::frame::{Verb, WorkGroup};

use super::keep::NewBatch;
use super::{BatchFailure, BatchWrite};
use crate::consistency::Consistency;
use crate::error::{ReplicaFailure, ReplicationError};
use crate::peers::{PeerAnswer, PeerCall, PeerError, PeerErrorKind};
use crate::replicator::Replicator;
use crate::write::follow::Followed;

/// Nodes that keep a batch, where there are as many.
const KEEPERS: usize = 2;
/// How long keepers are told that a batch is done; one that was not writes it once more, which changes
/// nothing.
const TELL_WITHIN: Duration = Duration::from_secs(2);
/// Bytes of a batch in the log beyond its mutations, and beyond each.
const BATCH_BYTES: usize = 24;
const EACH_BYTES: usize = 4;
/// Bytes of a batch whose end keepers are told later.
const FOLLOWED_BYTES: usize = 512;
/// Writes of a batch that are on their way at once.
const WRITES_AT_ONCE: usize = 64;

/// Who keeps a batch.
enum Keepers {
    /// Shards of other nodes; all that may have it.
    Others(Vec<Replica>),
    /// This shard.
    Own,
}

impl Replicator {
    /// Writes a batch whose partitions have several replicas, or replicas on other nodes.
    pub(super) async fn write_kept_batch(
        &self,
        id: [u8; 16],
        writes: &[BatchWrite],
        consistency: Consistency,
        deadline: Deadline,
    ) -> Result<(), BatchFailure> {
        for (at, write) in writes.iter().enumerate() {
            let failed = |error| BatchFailure::Write { at, error };
            let view = MutationView::trusted(&write.mutation);
            let token = view.map_err(|error| failed(ReplicaFailure::from(error).here(1)))?.token;
            self.plan_write(&write.table, token, consistency).map_err(failed)?;
        }
        let bytes = writes.iter().map(|write| write.mutation.len() + EACH_BYTES).sum::<usize>() + BATCH_BYTES;
        let bytes_max = self.storage().mutation_bytes_max();
        if bytes > bytes_max {
            return Err(BatchFailure::Log(ReplicationError::TooLarge { bytes, bytes_max }));
        }
        let keepers = self.log_batch(id, writes, deadline).await.map_err(BatchFailure::Log)?;
        let followed = Rc::new(Followed::default());
        let written = self.write_each(writes, consistency, deadline, &followed).await;
        written.map_err(|(at, error)| {
            let required = self.with_counts(&writes[at].table, |counts| consistency.required(counts));
            BatchFailure::Write { at, error: late(error, required) }
        })?;
        self.tell_when_safe((id, keepers), followed, deadline).await;
        Ok(())
    }

    /// Tells keepers that a batch is done once its writes are safe without them and without this node, behind
    /// the client's answer. Keepers of one that is not write it out.
    async fn tell_when_safe(
        &self,
        (id, keepers): ([u8; 16], Keepers),
        followed: Rc<Followed>,
        deadline: Deadline,
    ) {
        if followed.are_safe_now() {
            return self.tell_done(id, keepers).await;
        }
        let replicator = self.clone();
        let rest = async move {
            if followed.are_safe(&replicator).await {
                replicator.tell_done(id, keepers).await;
            } else {
                reactor::debug!("keepers write out what replicas of a logged batch lack";
                    id = model::hex::text(&id));
            }
        };
        let (Some(room), Some(hold)) = (self.late_room(FOLLOWED_BYTES, 1), self.storage().enter()) else {
            let _in_time = reactor::timeout(deadline, rest).await;
            return;
        };
        let users = self.hints().and_then(|hints| hints.enter());
        reactor::spawn(Group::STATEMENT, async move {
            rest.await;
            drop((room, hold, users));
        })
        .detach();
    }

    /// Writes each write of a batch at the level, side by side; the error is that of the first that failed.
    async fn write_each(
        &self,
        writes: &[BatchWrite],
        consistency: Consistency,
        deadline: Deadline,
        followed: &Rc<Followed>,
    ) -> Result<(), (usize, ReplicationError)> {
        for (window, some) in writes.chunks(WRITES_AT_ONCE).enumerate() {
            let writing = some.iter().map(|write| {
                self.write_followed(&write.table, &write.mutation, consistency, deadline, followed)
            });
            let failed = |(at, error)| (window * WRITES_AT_ONCE + at, error);
            reactor::side_by_side(writing).await.map_err(failed)?;
        }
        Ok(())
    }

    /// Has keepers keep a batch.
    async fn log_batch(
        &self,
        id: [u8; 16],
        writes: &[BatchWrite],
        deadline: Deadline,
    ) -> Result<Keepers, ReplicationError> {
        let versions = writes.iter().map(|write| self.routing(&write.table).version());
        let agreed = versions.max().unwrap_or(0);
        let born_us = reactor::wall_clock_us();
        let usual = self.hints().map_or(Duration::ZERO, |hints| hints.config().batch_patience);
        let patience = usual.max(deadline.remaining().saturating_mul(2));
        let candidates = self.keepers(&id);
        if candidates.is_empty() {
            let mutations = writes.iter().map(|write| Rc::from(write.mutation.as_slice())).collect();
            let batch = NewBatch { id, origin: BatchOrigin { born_us, agreed }, patience, mutations };
            let kept = reactor::timeout(deadline, self.keep(batch, deadline)).await;
            kept.unwrap_or(Err(ReplicaFailure::TimedOut)).map_err(|failure| failure.here(1))?;
            return Ok(Keepers::Own);
        }
        let after_ms = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
        let mutations = writes.iter().map(|write| MutationView::trusted(&write.mutation));
        let mutations: Result<Vec<_>, _> = mutations.collect();
        let mutations = mutations.map_err(|error| ReplicaFailure::from(error).here(1))?;
        let mut body = Vec::new();
        batch::encode(&BatchLog { id, born_us, agreed, after_ms, mutations }, &mut body);
        self.ask_keepers(candidates, body, deadline).await
    }

    /// Asks the first of the candidates, and others in place of those that fail. None is told that it has
    /// kept a batch in vain: it writes out what would be written anyway.
    async fn ask_keepers(
        &self,
        candidates: Vec<Replica>,
        body: Vec<u8>,
        deadline: Deadline,
    ) -> Result<Keepers, ReplicationError> {
        let wanted = candidates.len().min(KEEPERS);
        let mut others = candidates.into_iter();
        let (mut under_way, mut asked, mut kept) = (Vec::<PeerAnswer>::new(), Vec::new(), 0);
        // A silent one leaves time for another in its place.
        let until = Deadline::after(deadline.remaining() / 2);
        let mut ask = |others: &mut dyn Iterator<Item = Replica>, deadline| -> Option<PeerAnswer> {
            let to = others.next()?;
            asked.push(to);
            let (verb, group, body) = (Verb::BatchLog, WorkGroup::Statement, body.clone());
            let answer = self.peers().call(PeerCall { to, verb, group, deadline, body });
            Some(Box::pin(async move {
                let late = |_| PeerError { kind: PeerErrorKind::TimedOut, reason: "it is silent".to_owned() };
                reactor::timeout(deadline, answer).await.map_err(late)?
            }))
        };
        while under_way.len() < wanted {
            under_way.extend(ask(&mut others, until));
        }
        let answers = poll_fn(|context| {
            let mut at = 0;
            while at < under_way.len() {
                match under_way[at].as_mut().poll(context) {
                    Poll::Pending => at += 1,
                    Poll::Ready(answer) => {
                        drop(under_way.swap_remove(at));
                        match answer {
                            Ok(_) => kept += 1,
                            Err(error) => {
                                reactor::warn_limited!("a node does not keep a logged batch"; error = error);
                                under_way.extend(ask(&mut others, deadline));
                            }
                        }
                    }
                }
            }
            if under_way.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        });
        let _in_time = reactor::timeout(deadline, answers).await;
        // Where no other is left, one that has it is enough: the rest are as good as down.
        let is_kept = kept > 0 && under_way.is_empty();
        drop(under_way);
        if !is_kept {
            return Err(ReplicationError::timed_out(kept.min(wanted as u32 - 1), wanted as u32));
        }
        Ok(Keepers::Others(asked))
    }

    /// Shards of other nodes that may keep a batch, the best first.
    fn keepers(&self, id: &[u8; 16]) -> Vec<Replica> {
        let nodes = self.view().nodes();
        let own = nodes.get(&self.own().node);
        let hash = murmur3_token(id).0.cast_unsigned();
        let shard_of = |node: &NodeRecord| (hash % u64::from(node.shards.max(1))) as u16;
        let place = |node: &NodeRecord| Replica { node: node.number, shard: shard_of(node) };
        let mut able: Vec<(u64, &NodeRecord)> = nodes
            .values()
            .filter(|node| node.number != self.own().node && node.state == NodeState::Normal)
            .filter(|node| node.data_center == self.data_center() && self.peers().is_up(place(node)))
            .map(|node| (reactor::random_u64(), node))
            .collect();
        able.sort_unstable_by_key(|(drawn, node)| (*drawn, node.number));
        let mut racks: Vec<&str> = own.map(|own| own.rack.as_str()).into_iter().collect();
        let mut order = Vec::new();
        while !able.is_empty() {
            let of_new_rack = able.iter().position(|(_, node)| !racks.contains(&node.rack.as_str()));
            let (_, node) = able.remove(of_new_rack.unwrap_or(0));
            racks.push(&node.rack);
            order.push(place(node));
        }
        order
    }

    /// Tells keepers that a batch is done, behind the client's answer.
    async fn tell_done(&self, id: [u8; 16], keepers: Keepers) {
        let Keepers::Others(keepers) = keepers else { return self.forget(id).await };
        // While the shard drains the keepers find out themselves.
        let Some(hold) = self.storage().enter() else { return };
        let mut body = Vec::new();
        batch::encode_done(id, &mut body);
        for to in keepers {
            let (verb, group, deadline) =
                (Verb::BatchDone, WorkGroup::Statement, Deadline::after(TELL_WITHIN));
            let told = self.peers().call(PeerCall { to, verb, group, deadline, body: body.clone() });
            let hold = hold.clone();
            reactor::spawn(Group::STATEMENT, async move {
                if let Ok(Err(error)) = reactor::timeout(deadline, told).await {
                    reactor::debug!("a keeper was not told that a batch is done"; error = error);
                }
                drop(hold);
            })
            .detach();
        }
    }
}

/// The error of a write of a batch that keepers have: never one that says that nothing was done, since they
/// write the batch out.
fn late(error: ReplicationError, required: u32) -> ReplicationError {
    match error {
        ReplicationError::Unavailable { .. }
        | ReplicationError::Overloaded { .. }
        | ReplicationError::RateLimited { .. }
        | ReplicationError::Stopping { .. } => ReplicationError::timed_out(0, required),
        error => error,
    }
}
