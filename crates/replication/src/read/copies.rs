//! Reads one page of a part from several replicas, or from one on another node.
//!
//! Of one partition the nearest replica sends contents and the others digests; unless those agree, contents
//! are taken from all. Of a range all send contents. Where they take too long one replica more is asked
//! (`speculation`), and one more for contents behind digests. What the merge shows that a replica lacks is
//! written to it before the read goes on, so that a value that was read at a level is not lost to the next
//! reader at it.

use model::reconcile::Purge;
use reactor::Deadline;
use smallvec::SmallVec;
use storage::{PartitionRange, ReadCommand};
use wire::node::NodeError;
use wire::node::answer::Answer;

use super::ask::{More, Question, Replies};
use super::collect::{Reading, Watched};
use super::merge::{Merge, Merged, Next};
use super::position::behind;
use super::raw_page::PageOf;
use super::replica::{Reply, Want};
use super::rest::{Part, Rest};
use super::{ReadLimits, repair};
use crate::error::{ReplicaFailure, ReplicationError};
use crate::plan::{Distance, Plan, Planned};
use crate::speculation::{Kind, Retry};
use crate::tally::Ended;

/// The table option `read_repair` that leaves replicas as they are.
const NO_REPAIR: &str = "NONE";

/// Reads the next page of `part`; `rest` is what is left of the read, with that part at its beginning.
pub(super) async fn read(
    reading: &Reading<'_>,
    plan: &Plan,
    part: &ReadCommand,
    rest: Rest,
    watched: &mut Watched<'_>,
) -> Result<Part, ReplicationError> {
    let page = page_of(part, reading.limits, &rest);
    let deadline = reading.time.of_page();
    let question = Question { replicator: reading.replicator, plan, command: part, page, deadline };
    let replies = match contents(&question).await {
        Ok(replies) => replies,
        Err(Ended::Again(error)) => return Ok(Part::Again(rest, error)),
        Err(Ended::Failed(error)) => return Err(error),
    };
    let contents = replies.iter().filter_map(|(planned, reply)| match reply {
        Reply::Contents(bytes, _) => Some((*planned, bytes.as_slice())),
        Reply::Digest(_) => None,
    });
    let contents: Contents<'_> = contents.collect();
    hand_over(reading, plan, (part, page), rest, (&contents, deadline), watched).await
}

/// What is asked of the next page of what is left of a read.
pub(super) fn page_of(part: &ReadCommand, limits: ReadLimits, rest: &Rest) -> PageOf {
    let now_s = u32::try_from(reactor::wall_clock_us() / 1_000_000).unwrap_or(0);
    let gc_before = now_s.saturating_sub(part.table.options().gc_grace_seconds);
    let had = rest.inside.map_or(0, |inside| inside.rows);
    let of_partition = |most: usize| most.max(1).saturating_sub(had).max(1);
    let limits =
        ReadLimits { rows: limits.rows, rows_per_partition: limits.rows_per_partition.map(of_partition) };
    let (table, reversed, now) = (part.table.id(), part.reversed, part.now);
    PageOf { table, reversed, limits, now, gc_before, contents: true }
}

/// Contents that replicas sent, as bytes.
pub(super) type Contents<'r> = SmallVec<[(Planned, &'r [u8]); 5]>;

/// Merges a page of several replicas, hands it over, and writes to each what it lacks.
pub(super) async fn hand_over(
    reading: &Reading<'_>,
    plan: &Plan,
    (part, page): (&ReadCommand, PageOf),
    rest: Rest,
    (contents, deadline): (&Contents<'_>, Deadline),
    watched: &mut Watched<'_>,
) -> Result<Part, ReplicationError> {
    let mut answers: SmallVec<[(Planned, Answer<'_>); 5]> = SmallVec::new();
    for (planned, bytes) in contents {
        // What came from another replica was checked when it came.
        let broken =
            |error: NodeError| ReplicaFailure::Failed(error.to_string()).at(planned.replica, plan.required);
        answers.push((*planned, Answer::decode(bytes).map_err(broken)?));
    }
    let is_wanted = reading.all_of.is_some() || reading.command.table.options().read_repair != NO_REPAIR;
    let repairs = answers.len() > 1 && is_wanted;
    let PageOf { now, gc_before, .. } = page;
    let merge = Merge {
        command: part,
        rows_per_partition: reading.limits.rows_per_partition,
        purge: Purge { now, gc_before, timestamp_limit: i64::MAX },
        repairs: repairs.then(|| reading.replicator.storage().mutation_bytes_max()),
        answers: &answers,
        inside: rest.inside,
    };
    let Merged { next, lacking } = merge.hand_over(watched).await;
    if !lacking.is_empty() {
        let table = &reading.command.table;
        let lacking = lacking.into_iter().map(|(at, mutation)| (answers[at].0, mutation)).collect();
        // A copy for one replica is of no use to another.
        let spares = if reading.all_of.is_some() { SmallVec::new() } else { spares(plan, contents) };
        repair::write(reading.replicator, (plan, table), lacking, spares, deadline).await?;
    }
    let makes_no_progress = match (&next, &rest.range) {
        (Next::Within(_, slices, _), PartitionRange::Key(_)) => *slices == rest.slices,
        _ => false,
    };
    if makes_no_progress {
        let reason = "its answer ends where it begins".to_owned();
        return Err(ReplicaFailure::Failed(reason).at(answers[0].0.replica, plan.required));
    }
    Ok(go_on(next, rest))
}

/// The replicas that live and have sent no contents.
fn spares(plan: &Plan, contents: &Contents<'_>) -> SmallVec<[Planned; 5]> {
    let has_answered =
        |planned: &&Planned| contents.iter().any(|(other, _)| other.replica == planned.replica);
    plan.replicas.iter().filter(|planned| planned.is_up && !has_answered(planned)).copied().collect()
}

/// What is left of a read behind a page.
fn go_on(next: Next, rest: Rest) -> Part {
    match next {
        Next::Stopped => Part::Stopped,
        Next::Done => Part::Done,
        Next::Behind(key) => match behind(&rest.range, &key) {
            Some(range) => Part::Left(Rest { range, ..rest }),
            None => Part::Done,
        },
        Next::Within(key, slices, inside) => {
            let then = match &rest.range {
                PartitionRange::Key(_) => rest.then,
                range @ PartitionRange::Between { .. } => behind(range, &key),
            };
            Part::Left(Rest { range: PartitionRange::Key(key), slices, inside: Some(inside), then })
        }
    }
}

/// Contents of as many replicas as the level needs, or of one with whose contents the others agree.
async fn contents(question: &Question<'_>) -> Result<Replies, Ended> {
    let Question { replicator, plan, command, deadline, .. } = question;
    let (mut readers, mut spares) = plan.readers(replicator.speeds());
    let needed = readers.len();
    let kind = question.kind();
    let asks_others = readers.iter().any(|planned| planned.distance > Distance::Node);
    let begin = reactor::now();
    let retry = match spares.first() {
        Some(_) if asks_others => {
            let (schema, may_take) = (replicator.storage().borrow_schema(), deadline.instant() - begin);
            replicator.speculation().retry(&schema, &command.table, kind, may_take)
        }
        _ => Retry::Never,
    };
    let more = match retry {
        Retry::Never => More::No,
        Retry::AtOnce => {
            readers.push(spares.remove(0));
            More::LastReader
        }
        Retry::After(time) => More::At(Deadline::at(begin + time)),
    };
    let compares = needed > 1 && kind == Kind::Partition;
    // Of one replica more than needed any may be left out, so that two send contents.
    let of_data = 1 + readers.len() - needed;
    let want = |at: usize| match (compares, at < of_data) {
        (false, _) => Want::Contents,
        (true, true) => Want::ContentsAndDigest,
        (true, false) => Want::Digest,
    };
    let readers: SmallVec<[(Planned, Want); 5]> =
        readers.iter().enumerate().map(|(at, planned)| (*planned, want(at))).collect();
    let replies = question.ask(Replies::new(), &readers, &spares, more).await?;
    if !compares || agree(&replies) {
        return Ok(replies);
    }
    // Those that were asked and have not answered come last.
    let has_replied = |planned: &Planned| replies.iter().any(|(of, _)| of.replica == planned.replica);
    let asked = readers.iter().map(|(planned, _)| planned);
    let mut spares: SmallVec<[Planned; 5]> =
        spares.iter().chain(asked).filter(|planned| !has_replied(planned)).copied().collect();
    let (held, digests): (Replies, Replies) =
        replies.into_iter().partition(|(_, reply)| matches!(reply, Reply::Contents(..)));
    let mut again: SmallVec<[(Planned, Want); 5]> =
        digests.iter().map(|(planned, _)| (*planned, Want::Contents)).collect();
    let more = match retry {
        Retry::After(time) => More::At(Deadline::after(time)),
        Retry::AtOnce if !again.is_empty() && !spares.is_empty() => {
            again.push((spares.remove(0), Want::Contents));
            More::LastReader
        }
        Retry::AtOnce | Retry::Never => More::No,
    };
    question.ask(held, &again, &spares, more).await
}

/// Whether all digests are those of the contents.
fn agree(replies: &Replies) -> bool {
    let mut digests = replies.iter().map(|(_, reply)| match reply {
        Reply::Digest(digest) => Some(*digest),
        Reply::Contents(_, digest) => *digest,
    });
    let Some(Some(first)) = digests.next() else { return false };
    digests.all(|digest| digest == Some(first))
}
