//! Asks the replicas of a plan for one page: contents of some, digests of the others.
//!
//! As many are asked as the level needs, the nearest first. One that fails is replaced by one that was not
//! asked, as long as there is one. Invariant: the replies are those of as many replicas as the level needs.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use model::reconcile::DIGEST_VERSION;
use reactor::{Deadline, Group};
use smallvec::SmallVec;
use storage::{PartitionBound, PartitionRange, ReadCommand, call_and_note};
use wire::node::answer;
use wire::node::frame::{Verb, WorkGroup};
use wire::node::read::{Bound, Partitions, Read, SliceList};

use super::raw_page::PageOf;
use super::replica::{Reply, Want, check_tenancies, checked, page_here};
use crate::error::ReplicaFailure;
use crate::peers::{PeerCall, PeerError};
use crate::plan::{Distance, Plan, Planned};
use crate::replicator::{Replicator, here};
use crate::tally::Ended;

type Asked = Pin<Box<dyn Future<Output = Result<Reply, ReplicaFailure>>>>;

/// One page that is asked for.
pub(super) struct Question<'a> {
    pub(super) replicator: &'a Replicator,
    pub(super) plan: &'a Plan,
    /// What is read, within the tablets of the plan.
    pub(super) command: &'a ReadCommand,
    pub(super) page: PageOf,
    pub(super) deadline: Deadline,
}

/// The replies, each with its replica.
pub(super) type Replies = SmallVec<[(Planned, Reply); 5]>;

impl Question<'_> {
    /// Asks `readers`, and `spares` in the place of those that fail. `held` are replies that are there
    /// already; they count.
    pub(super) async fn ask(
        &self,
        held: Replies,
        readers: &[(Planned, Want)],
        spares: &[Planned],
    ) -> Result<Replies, Ended> {
        let mut tally = self.plan.tally();
        for (planned, reply) in &held {
            tally.asked(planned.share);
            tally.received(planned.share);
            if matches!(reply, Reply::Contents(..)) {
                tally.has_data();
            }
        }
        let (mut replies, mut spares) = (held, spares.iter());
        let mut under_way: SmallVec<[(Planned, Want, Asked); 5]> = SmallVec::new();
        for (planned, want) in readers {
            tally.asked(planned.share);
            under_way.push((*planned, *want, self.of(planned, *want)));
        }
        let all = poll_fn(|context| {
            // A stand-in comes behind those that are polled, and is polled in the same round.
            let mut at = 0;
            while at < under_way.len() {
                let (planned, want, asked) = &mut under_way[at];
                let Poll::Ready(answer) = asked.as_mut().poll(context) else {
                    at += 1;
                    continue;
                };
                let (planned, want) = (*planned, *want);
                drop(under_way.remove(at));
                match answer {
                    Ok(reply) => {
                        tally.received(planned.share);
                        if want != Want::Digest {
                            tally.has_data();
                        }
                        replies.push((planned, reply));
                    }
                    Err(failure) => {
                        if let Some(spare) = spares.find(|spare| spare.share == planned.share) {
                            tally.asked(spare.share);
                            under_way.push((*spare, want, self.of(spare, want)));
                        }
                        tally.failed(planned.share, planned.replica.into(), failure);
                    }
                }
            }
            let decided = tally.is_reached() || tally.is_out_of_reach();
            if decided { Poll::Ready(()) } else { Poll::Pending }
        });
        let in_time = reactor::timeout(self.deadline, all).await.is_ok();
        if tally.is_reached() { Ok(replies) } else { Err(tally.end(in_time)) }
    }

    /// The request to one replica.
    fn of(&self, planned: &Planned, want: Want) -> Asked {
        let verb = if want == Want::Digest { Verb::Digest } else { Verb::Read };
        let (deadline, page) = (self.deadline, self.page);
        if planned.distance == Distance::Here {
            let (replicator, command, since) = (self.replicator.clone(), self.command.clone(), planned.since);
            return Box::pin(async move {
                check_tenancies(&replicator, &command, since)?;
                page_here(&replicator, &command, page, want).await
            });
        }
        let mut body = Vec::new();
        self.encode(planned, want, &mut body);
        if planned.distance == Distance::Node {
            let shard = self.replicator.shard_of(planned.replica);
            let call = call_and_note(shard, reactor::current_group(), move || async move {
                let replicator = here().ok_or_else(ReplicaFailure::starting)?;
                let served = replicator.serve(verb, &body, deadline).await;
                served.map_err(|fault| ReplicaFailure::of_peer(PeerError::from(fault)))
            });
            let command = self.command.clone();
            return Box::pin(async move {
                reply(&command, want, call.await.unwrap_or_else(|error| Err(error.into())))
            });
        }
        let is_scan = reactor::current_group() == Group::SCAN;
        let group = if is_scan { WorkGroup::Scan } else { WorkGroup::Statement };
        let call = PeerCall { to: planned.replica, verb, group, deadline, body };
        let answer = self.replicator.peers().call(call);
        let command = self.command.clone();
        Box::pin(async move { reply(&command, want, answer.await.map_err(ReplicaFailure::of_peer)) })
    }

    fn encode(&self, planned: &Planned, want: Want, out: &mut Vec<u8>) {
        let ReadCommand { table, range, slices, reversed, now, bypass_cache } = self.command;
        let mut slice_bytes = Vec::new();
        let slices = slices.iter().map(|slice| (slice.start.as_ref(), slice.end.as_ref()));
        let limit = |limit: Option<usize>| limit.map(|limit| limit as u64);
        let read = Read {
            table: table.id(),
            version: self.plan.version(),
            since: planned.since,
            now: *now,
            gc_before: self.page.gc_before,
            digest: if want == Want::Contents { 0 } else { DIGEST_VERSION as u8 },
            reversed: *reversed,
            bypass_cache: *bypass_cache,
            counted: false,
            rows: limit(self.page.limits.rows),
            rows_per_partition: limit(self.page.limits.rows_per_partition),
            partitions: match range {
                PartitionRange::Key(key) => Partitions::Key(&key.key),
                PartitionRange::Between { from, to } => Partitions::Between(bound(from), bound(to)),
            },
            slices: SliceList::new(slices, &mut slice_bytes),
        };
        read.encode(out);
    }
}

fn bound(bound: &PartitionBound) -> Bound<'_> {
    Bound { token: bound.token, key: bound.key.as_deref(), inclusive: bound.inclusive }
}

/// Makes a reply of an answer's bytes: a replica whose bytes are not an answer has failed.
fn reply(
    command: &ReadCommand,
    want: Want,
    answer: Result<Vec<u8>, ReplicaFailure>,
) -> Result<Reply, ReplicaFailure> {
    let answer = answer?;
    if want != Want::Digest {
        let digest = checked(command, &answer)?.digest;
        return Ok(Reply::Contents(answer, digest));
    }
    let digest = answer::decode_digest(&answer);
    digest.map(Reply::Digest).map_err(|error| ReplicaFailure::Failed(error.to_string()))
}
