//! Asks the replicas of a plan for one page: contents of some, digests of the others.
//!
//! As many are asked as the level needs, the nearest first, and one more where they take too long
//! (`speculation`). One that fails is replaced by one that was not asked, as long as there is one. Invariant:
//! the replies are those of as many replicas as the level needs, and one of them has contents.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use model::reconcile::DIGEST_VERSION;
use model::tablet::Replica;
use reactor::{Deadline, Group, Instant};
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
use crate::speculation::Kind;
use crate::tally::{Ended, Share, Tally};

type Asked<'q> = Pin<Box<dyn Future<Output = Result<Reply, ReplicaFailure>> + 'q>>;

/// Room for the request of a page of one row.
const REQUEST_BYTES: usize = 192;

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

/// Whether one replica more than the level needs is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum More {
    /// None.
    No,
    /// The last of the readers is it.
    LastReader,
    /// One of the spares, if too few have answered by then.
    At(Deadline),
}

impl<'a> Question<'a> {
    /// The kind of the read.
    pub(super) fn kind(&self) -> Kind {
        match self.command.range {
            PartitionRange::Key(_) => Kind::Partition,
            PartitionRange::Between { .. } => Kind::Range,
        }
    }

    /// Asks `readers`, spares in the place of those that fail, and `more`. `held` are replies that are there
    /// already; they count.
    pub(super) async fn ask(
        &self,
        held: Replies,
        readers: &[(Planned, Want)],
        spares: &[Planned],
        more: More,
    ) -> Result<Replies, Ended> {
        let mut asking = Asking::new(self, held, readers, spares);
        match more {
            More::At(time) if time < self.deadline => {
                // One timer at a time: few reads come to the second one.
                let all = poll_fn(|context| asking.poll(context));
                if reactor::timeout(time, all).await.is_ok() {
                    return asking.end(true);
                }
                asking.ask_one_more();
            }
            More::LastReader => asking.count_more(readers.last()),
            More::At(_) | More::No => {}
        }
        let all = poll_fn(|context| asking.poll(context));
        let in_time = reactor::timeout(self.deadline, all).await.is_ok();
        asking.end(in_time)
    }

    /// The request to one replica.
    fn of(&self, planned: &Planned, want: Want) -> Asked<'a> {
        let planned = *planned;
        let verb = if want == Want::Digest { Verb::Digest } else { Verb::Read };
        let (deadline, page) = (self.deadline, self.page);
        if planned.distance == Distance::Here {
            let (replicator, command, since) = (self.replicator, self.command, planned.since);
            return Box::pin(async move {
                check_tenancies(replicator, command, since)?;
                page_here(replicator, command, page, want).await
            });
        }
        let mut body = Vec::with_capacity(REQUEST_BYTES);
        let digest = if want == Want::Contents { 0 } else { DIGEST_VERSION as u8 };
        encode(self.command, &self.page, (self.plan.version(), planned.since), digest, &mut body);
        if planned.distance == Distance::Node {
            let shard = self.replicator.shard_of(planned.replica);
            let call = call_and_note(shard, reactor::current_group(), move || async move {
                let replicator = here().ok_or_else(ReplicaFailure::starting)?;
                let served = replicator.serve(verb, &body, deadline).await;
                served.map_err(|fault| ReplicaFailure::of_peer(PeerError::from(fault)))
            });
            let command = self.command;
            return Box::pin(async move {
                reply(command, want, call.await.unwrap_or_else(|error| Err(error.into())))
            });
        }
        let is_scan = reactor::current_group() == Group::SCAN;
        let group = if is_scan { WorkGroup::Scan } else { WorkGroup::Statement };
        let call = PeerCall { to: planned.replica, verb, group, deadline, body };
        let answer = self.replicator.peers().call(call);
        let node = planned.replica.node;
        storage::note(|| {
            format!("Asking node {node} for {}", if verb == Verb::Digest { "a digest" } else { "rows" })
        });
        let (command, speeds) = (self.command, self.replicator.speeds());
        // Pages of ranges take as long as there is to read: they tell nothing of the node.
        let is_timed = self.kind() == Kind::Partition;
        Box::pin(async move {
            let timed = is_timed.then(|| speeds.begin(planned.replica.node));
            let answer = answer.await;
            storage::note(|| match &answer {
                Ok(bytes) => format!("Node {node} answered with {} bytes", bytes.len()),
                Err(error) => format!("Node {node} failed: {error}"),
            });
            if let Some(timed) = timed {
                timed.end(answer.as_ref().map(drop).map_err(|error| error.kind));
            }
            reply(command, want, answer.map_err(ReplicaFailure::of_peer))
        })
    }
}

/// A request to one replica.
struct Request<'a> {
    planned: Planned,
    want: Want,
    begun: Instant,
    answer: Asked<'a>,
}

/// A question that some replicas have answered. Requests to others are given up with it.
struct Asking<'q, 'a> {
    question: &'q Question<'a>,
    tally: Tally,
    replies: Replies,
    spares: SmallVec<[Planned; 5]>,
    under_way: SmallVec<[Request<'a>; 5]>,
    /// The replica that was asked beyond those that the level needs.
    more: Option<Replica>,
}

impl<'q, 'a> Asking<'q, 'a> {
    fn new(
        question: &'q Question<'a>,
        held: Replies,
        readers: &[(Planned, Want)],
        spares: &[Planned],
    ) -> Self {
        let mut tally = question.plan.tally();
        for (planned, reply) in &held {
            tally.asked(planned.share);
            tally.received(planned.share);
            if matches!(reply, Reply::Contents(..)) {
                tally.has_data();
            }
        }
        let (spares, under_way) = (spares.iter().copied().collect(), SmallVec::new());
        let mut asking = Self { question, tally, replies: held, spares, under_way, more: None };
        readers.iter().for_each(|(planned, want)| asking.begin(*planned, *want));
        asking
    }

    fn begin(&mut self, planned: Planned, want: Want) {
        self.tally.asked(planned.share);
        let answer = self.question.of(&planned, want);
        self.under_way.push(Request { planned, want, begun: reactor::now(), answer });
    }

    /// Takes a spare that counts in `share`: those of other shares stay for readers of theirs.
    fn take_spare(&mut self, share: Share) -> Option<Planned> {
        let at = self.spares.iter().position(|spare| spare.share == share)?;
        Some(self.spares.remove(at))
    }

    /// Ready once the level is reached or out of reach. Replies behind the one that reached it are not looked
    /// at: only replies that count are compared and repaired.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        // A stand-in comes behind those that are polled, and is polled in the same round.
        let mut at = 0;
        while at < self.under_way.len() && !self.tally.is_reached() {
            let Poll::Ready(answer) = self.under_way[at].answer.as_mut().poll(context) else {
                at += 1;
                continue;
            };
            let Request { planned, want, begun, .. } = self.under_way.remove(at);
            match answer {
                Ok(reply) => {
                    if planned.distance > Distance::Node {
                        self.note(begun.elapsed());
                    }
                    self.tally.received(planned.share);
                    if want != Want::Digest {
                        self.tally.has_data();
                    }
                    self.replies.push((planned, reply));
                }
                Err(failure) => {
                    if let Some(spare) = self.take_spare(planned.share) {
                        self.begin(spare, want);
                    }
                    self.tally.failed(planned.share, planned.replica.into(), failure);
                }
            }
        }
        let decided = self.tally.is_reached() || self.tally.is_out_of_reach();
        if decided { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Asks a spare for what one of those that have not answered was asked for: for data, if that is missing.
    #[cold]
    fn ask_one_more(&mut self) {
        let late = |of_data: bool| {
            let late = self.under_way.iter().filter(move |late| (late.want != Want::Digest) == of_data);
            late.map(|late| (late.planned.share, late.want))
        };
        let late: SmallVec<[(Share, Want); 5]> = late(true).chain(late(false)).collect();
        for (share, want) in late {
            if let Some(spare) = self.take_spare(share) {
                self.begin(spare, want);
                return self.count_more(Some(&(spare, want)));
            }
        }
    }

    /// Notes how long another node took: what is usual does not depend on how long this read waited before.
    fn note(&self, took: Duration) {
        let Question { replicator, command, .. } = self.question;
        replicator.speculation().note(&command.table, self.question.kind(), took);
    }

    fn count_more(&mut self, more: Option<&(Planned, Want)>) {
        let Some((planned, want)) = more else { return };
        self.more = Some(planned.replica);
        self.question.replicator.speculation().sent(*want == Want::Digest);
    }

    fn end(self, in_time: bool) -> Result<Replies, Ended> {
        let Self { tally, replies, under_way, more, .. } = self;
        if !tally.is_reached() {
            return Err(tally.end(in_time));
        }
        let has_contents = replies.iter().any(|(_, reply)| matches!(reply, Reply::Contents(..)));
        assert!(has_contents, "{} replies to a read, all of them digests", replies.len());
        let answered = |replica| replies.iter().any(|(planned, _)| planned.replica == replica);
        if !under_way.is_empty() && more.is_some_and(answered) {
            let replicator = self.question.replicator;
            replicator.speculation().helped();
            // Pages of one partition are timed by themselves.
            if self.question.kind() == Kind::Range {
                let others = under_way.iter().filter(|late| late.planned.distance > Distance::Node);
                others.for_each(|late| replicator.speeds().late(late.planned.replica.node, late.begun));
            }
        }
        Ok(replies)
    }
}

/// Appends the request for a page; `digest` is the version of the digest that is asked for, 0 for contents.
pub(super) fn encode(
    command: &ReadCommand,
    page: &PageOf,
    (version, since): (u64, u64),
    digest: u8,
    out: &mut Vec<u8>,
) {
    let ReadCommand { table, range, slices, reversed, now, bypass_cache } = command;
    let mut slice_bytes = Vec::new();
    let slices = slices.iter().map(|slice| (slice.start.as_ref(), slice.end.as_ref()));
    let limit = |limit: Option<usize>| limit.map(|limit| limit as u64);
    let read = Read {
        table: table.id(),
        version,
        since,
        now: *now,
        gc_before: page.gc_before,
        digest,
        reversed: *reversed,
        bypass_cache: *bypass_cache,
        counted: false,
        rows: limit(page.limits.rows),
        rows_per_partition: limit(page.limits.rows_per_partition),
        partitions: match range {
            PartitionRange::Key(key) => Partitions::Key(&key.key),
            PartitionRange::Between { from, to } => Partitions::Between(bound(from), bound(to)),
        },
        slices: SliceList::new(slices, &mut slice_bytes),
    };
    read.encode(out);
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
