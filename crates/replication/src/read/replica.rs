//! A replica's part in a read of several: one page of contents, or its digest; and the check of such a page
//! by its coordinator.

use std::cmp::Ordering;
use std::rc::Rc;

use model::clustering::Slice;
use model::partition_key::{DecoratedKey, compare_decorated};
use model::reconcile::{DIGEST_VERSION, Digest};
use model::tablet::TabletId;
use model::{Position, Table, Token};
use reactor::Deadline;
use storage::{PartitionBound, PartitionRange, ReadCommand};
use wire::node::answer::{self, Answer};
use wire::node::frame::Verb;
use wire::node::read::{Bound, Partitions, Read};

use super::ReadLimits;
use super::raw_page::{PageOf, RawPage};
use crate::error::ReplicaFailure;
use crate::replicator::Replicator;

/// Room for an answer of one row.
const ANSWER_BYTES: usize = 1024;

/// What one replica sent.
pub(super) enum Reply {
    /// Contents, as `wire::node::answer` has them, and their digest if it was asked for.
    Contents(Vec<u8>, Option<u128>),
    /// A digest.
    Digest(u128),
}

/// What is asked of one replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// Contents.
    Contents,
    /// Contents and their digest.
    ContentsAndDigest,
    /// The digest.
    Digest,
}

/// Reads a page of this shard.
pub(super) async fn page_here(
    replicator: &Replicator,
    command: &ReadCommand,
    page: PageOf,
    want: Want,
) -> Result<Reply, ReplicaFailure> {
    let digest = match want {
        Want::Contents => None,
        Want::ContentsAndDigest | Want::Digest => {
            let digest = Digest::new(DIGEST_VERSION, page.gc_before, page.now);
            Some(digest.map_err(|error| ReplicaFailure::Failed(error.to_string()))?)
        }
    };
    let mut out = Vec::with_capacity(if want == Want::Digest { 0 } else { ANSWER_BYTES });
    let mut raw = RawPage::new(PageOf { contents: want != Want::Digest, ..page }, digest, &mut out);
    replicator.storage().read_raw(command, &mut raw).await?;
    let digest = raw.finish();
    Ok(match (want, digest) {
        (Want::Digest, Some(digest)) => Reply::Digest(digest),
        (_, digest) => Reply::Contents(out, digest),
    })
}

/// Reads a page for a coordinator on another shard or node.
pub(crate) async fn serve(
    replicator: &Replicator,
    verb: Verb,
    read: &Read<'_>,
    deadline: Deadline,
) -> Result<Vec<u8>, ReplicaFailure> {
    let table = replicator.table_at(read.table, read.version, deadline).await?;
    let range = range_of(read);
    if let PartitionRange::Between { from, to } = &range
        && from.token > to.token
    {
        return Err(ReplicaFailure::Failed("the range that is asked for ends before it begins".to_owned()));
    }
    // Held until the read has ended: those who take the tablet away wait for it.
    let mut _routing = None;
    for tablet in tablets_of(&table, &range) {
        _routing = Some(replicator.check_replica(&table, tablet, (read.since, read.version))?);
    }
    if !read.fits(&table) {
        return Err(ReplicaFailure::Misfit(read.table));
    }
    let want = match (verb, read.digest) {
        (Verb::Digest, version) if u32::from(version) == DIGEST_VERSION => Want::Digest,
        (Verb::Read, version) if u32::from(version) == DIGEST_VERSION => Want::ContentsAndDigest,
        (Verb::Read, 0) => Want::Contents,
        (_, version) => {
            return Err(ReplicaFailure::Failed(format!("version {version} of digests is not known")));
        }
    };
    let limit = |limit: Option<u64>| limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let limits = ReadLimits { rows: limit(read.rows), rows_per_partition: limit(read.rows_per_partition) };
    let page = PageOf {
        table: read.table,
        reversed: read.reversed,
        limits,
        now: read.now,
        gc_before: read.gc_before,
        contents: want != Want::Digest,
    };
    let slice =
        |(start, end): (Position<'_>, Position<'_>)| Slice { start: start.to_owned(), end: end.to_owned() };
    let command = ReadCommand {
        table: Rc::clone(&table),
        range,
        slices: read.slices.iter().map(slice).collect(),
        reversed: read.reversed,
        now: read.now,
        bypass_cache: read.bypass_cache,
    };
    Ok(match page_here(replicator, &command, page, want).await? {
        Reply::Contents(bytes, _) => bytes,
        Reply::Digest(digest) => {
            let mut out = Vec::new();
            answer::encode_digest(digest, &mut out);
            out
        }
    })
}

/// Checks that the tablets of a range on this shard are of the tenancy that a read was planned with.
///
/// # Errors
/// [`ReplicaFailure::Stale`].
pub(super) fn check_tenancies(
    replicator: &Replicator,
    command: &ReadCommand,
    since: u64,
) -> Result<(), ReplicaFailure> {
    for tablet in tablets_of(&command.table, &command.range) {
        replicator.storage().check_tenancy(command.table.id(), tablet, since)?;
    }
    Ok(())
}

fn tablets_of(table: &Table, range: &PartitionRange) -> impl Iterator<Item = TabletId> + use<> {
    let (from, to) = match range {
        PartitionRange::Key(key) => (key.token, key.token),
        PartitionRange::Between { from, to } => (from.token, to.token),
    };
    let tablets = table.tablets();
    (tablets.tablet_of(from).0..=tablets.tablet_of(to).0).map(TabletId)
}

fn range_of(read: &Read<'_>) -> PartitionRange {
    let bound = |bound: Bound<'_>| PartitionBound {
        token: bound.token,
        key: bound.key.map(<[u8]>::to_vec),
        inclusive: bound.inclusive,
    };
    match read.partitions {
        Partitions::Key(key) => PartitionRange::Key(DecoratedKey::new(key.to_vec())),
        Partitions::Between(from, to) => PartitionRange::Between { from: bound(from), to: bound(to) },
    }
}

/// The answer in the bytes of another replica, which has nothing that was not asked for.
///
/// # Errors
/// [`ReplicaFailure::Stale`] where the replica knows a later definition of the table than this node.
pub(super) fn checked<'b>(command: &ReadCommand, bytes: &'b [u8]) -> Result<Answer<'b>, ReplicaFailure> {
    let broken = |what: String| ReplicaFailure::Failed(format!("its answer is broken: {what}"));
    let answer = Answer::decode(bytes).map_err(|error| broken(error.to_string()))?;
    answer.check(&command.table)?;
    let places = answer.partitions.iter().map(|partition| (partition.mutation.token, partition.mutation.key));
    let end = answer.end.map(|end| (end.token, end.key));
    for place in places.chain(end) {
        let is_asked = match &command.range {
            PartitionRange::Key(key) => place.1 == key.key,
            PartitionRange::Between { from, to } => {
                !is_beyond(place, from, Ordering::Less) && !is_beyond(place, to, Ordering::Greater)
            }
        };
        if !is_asked {
            return Err(broken("it has a partition that was not asked for".to_owned()));
        }
    }
    Ok(answer)
}

/// Whether a partition lies on the far side of a bound.
fn is_beyond(place: (Token, &[u8]), bound: &PartitionBound, far: Ordering) -> bool {
    let order = match &bound.key {
        Some(key) => compare_decorated(place, (bound.token, key)),
        None => place.0.cmp(&bound.token),
    };
    order == far || (order.is_eq() && !bound.inclusive)
}
