//! Decides which write wins. No other code decides it.
//!
//! Merging is commutative, associative and idempotent (the tests check those laws), so replicas, memtables
//! and table files may be merged in any order and any number of times. Rules are those of Cassandra 5's
//! `Cells.resolveRegular`, `LivenessInfo.supersedes` and `DeletionTime.supersedes`. `partition` merges whole
//! partitions and finds what a replica lacks, `digest` compares replicas that compacted differently.

mod digest;
mod partition;

use std::cmp::Ordering;

use crate::counter;
use crate::deletion::{DeletionTime, EXPIRED_LIVENESS_TTL, Liveness, LocalSeconds, NO_TIMESTAMP};
use crate::row::{CellKind, CellView, RowBuilder, RowView};
use crate::schema::Table;

pub use digest::{DIGEST_VERSION, Digest, UnknownDigestVersion};
pub use partition::{PartitionContents, diff};

/// The winning cell of two with the same column and path. The merge of two counters is neither of them:
/// [`merge_rows`] merges them.
#[inline]
pub fn cell<'a>(left: CellView<'a>, right: CellView<'a>) -> CellView<'a> {
    if right_wins(&left, &right) { right } else { left }
}

/// Whether of two cells with the same column and path the second wins.
#[inline]
fn right_wins(left: &CellView<'_>, right: &CellView<'_>) -> bool {
    match left.timestamp.cmp(&right.timestamp) {
        Ordering::Greater => false,
        Ordering::Less => true,
        Ordering::Equal => right_wins_tie(left, right),
    }
}

#[inline(never)]
fn right_wins_tie(left: &CellView<'_>, right: &CellView<'_>) -> bool {
    // At the same timestamp a tombstone wins over an expiring value, and that over a plain one, so that the
    // outcome does not depend on the time of the merge; then the later local time, the smaller TTL, the
    // greater value.
    let rank = |cell: &CellView<'_>| match cell.kind {
        CellKind::Live(_) | CellKind::Counter(_) => 0u8,
        CellKind::Expiring { .. } => 1,
        CellKind::Tombstone { .. } | CellKind::CollectionDeletion { .. } => 2,
    };
    let order =
        rank(left)
            .cmp(&rank(right))
            .then_with(|| {
                if rank(left) == 0 { Ordering::Equal } else { left.local_time().cmp(&right.local_time()) }
            })
            .then_with(|| right.ttl().cmp(&left.ttl()))
            .then_with(|| left.value().cmp(&right.value()));
    order == Ordering::Less
}

/// The row marker that wins.
#[inline]
pub fn liveness(left: Liveness, right: Liveness) -> Liveness {
    if right.supersedes(left) { right } else { left }
}

/// The deletion that wins.
#[inline]
pub fn deletion(left: DeletionTime, right: DeletionTime) -> DeletionTime {
    if right.supersedes(left) { right } else { left }
}

/// Appends the merge of two versions of one row, without what its own deletions shadow.
pub fn merge_rows(table: &Table, left: RowView<'_>, right: RowView<'_>, out: &mut Vec<u8>) {
    if left.is_rewritten_by(right) {
        out.extend_from_slice(right.as_bytes());
    } else {
        merge_cells(table, left, right, out);
    }
}

/// As [`merge_rows`], cell by cell.
fn merge_cells(table: &Table, left: RowView<'_>, right: RowView<'_>, out: &mut Vec<u8>) {
    let row_deletion = deletion(left.deletion(), right.deletion());
    let mut marker = liveness(left.liveness(), right.liveness());
    if row_deletion.deletes(marker.timestamp) {
        marker = Liveness::NONE;
    }
    let mut builder = RowBuilder::new(out, marker, row_deletion);
    let mut shadow = Shadow::new(row_deletion);
    let (mut lefts, mut rights) = (left.cells(), right.cells());
    // Most cells are plain values: while the next cell of both rows is plain, there is less to check.
    while let (Some(a), Some(b)) = (lefts.peek_plain(), rights.peek_plain()) {
        let order = a.column.cmp(&b.column);
        if order.is_le() {
            lefts.pass(&a);
        }
        if order.is_ge() {
            rights.pass(&b);
        }
        let winner = match order {
            Ordering::Less => a,
            Ordering::Greater => b,
            Ordering::Equal => match a.timestamp.cmp(&b.timestamp) {
                Ordering::Less => b,
                Ordering::Equal if a.value() < b.value() => b,
                Ordering::Equal | Ordering::Greater => a,
            },
        };
        if !row_deletion.deletes(winner.timestamp) {
            builder.copy_plain(&winner);
        }
    }
    // Buffer for the merge of two counters.
    let mut counted = Vec::new();
    let (mut l, mut r) = (lefts.next_with_bytes(), rights.next_with_bytes());
    loop {
        let order = match (&l, &r) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((a, _)), Some((b, _))) => compare_cells(table, a, b),
        };
        let left = if order.is_le() { std::mem::replace(&mut l, lefts.next_with_bytes()) } else { None };
        let right = if order.is_ge() { std::mem::replace(&mut r, rights.next_with_bytes()) } else { None };
        let winner = match (left, right) {
            (Some(a), Some(b)) if is_counter(&a.0) || is_counter(&b.0) => {
                let winner = counters(row_deletion, a.0, b.0, &mut counted);
                if shadow.lets_pass(&winner) {
                    builder.cell(winner);
                }
                continue;
            }
            (Some(a), Some(b)) if right_wins(&a.0, &b.0) => b,
            (Some(one), _) | (None, Some(one)) => one,
            (None, None) => break,
        };
        if shadow.lets_pass(&winner.0) {
            builder.copy(&winner.0, winner.1);
        }
    }
    builder.finish();
}

#[inline]
fn is_counter(cell: &CellView<'_>) -> bool {
    matches!(cell.kind, CellKind::Counter(_))
}

/// Merges two counters under the deletion of their row, or a counter with its own deletion (Cassandra's
/// `Cells.resolveCounter`); `counted` is a buffer for the merge of two counters.
#[cold]
#[inline(never)]
fn counters<'c>(
    row: DeletionTime,
    left: CellView<'c>,
    right: CellView<'c>,
    counted: &'c mut Vec<u8>,
) -> CellView<'c> {
    // Counts that the row's deletion removed do not return with the other cell's timestamp.
    if row.deletes(left.timestamp) {
        return right;
    }
    if row.deletes(right.timestamp) {
        return left;
    }
    match (left.kind, right.kind) {
        (CellKind::Counter(x), CellKind::Counter(y)) => {
            counted.clear();
            counter::merge(x, y, counted);
            let timestamp = left.timestamp.max(right.timestamp);
            CellView { timestamp, kind: CellKind::Counter(counted), ..left }
        }
        // A counter does not return after its deletion.
        (CellKind::Tombstone { .. }, _) => left,
        (_, CellKind::Tombstone { .. }) => right,
        _ => cell(left, right),
    }
}

/// Order of cells within a row: column, then the collection's deletion, then paths by their type.
#[inline]
pub fn compare_cells(table: &Table, a: &CellView<'_>, b: &CellView<'_>) -> Ordering {
    a.column.cmp(&b.column).then_with(|| match (a.path, b.path) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        (Some(x), Some(y)) => table.compare_paths(a.column, x, y),
    })
}

/// The deletions in force while the cells of a row are read in order.
#[derive(Debug)]
struct Shadow {
    row: DeletionTime,
    collection: Option<(crate::schema::ColumnId, DeletionTime)>,
}

impl Shadow {
    fn new(row: DeletionTime) -> Self {
        Self { row, collection: None }
    }

    #[inline]
    fn lets_pass(&mut self, cell: &CellView<'_>) -> bool {
        if self.row.deletes(cell.timestamp) {
            return false;
        }
        if let Some(deletion) = cell.collection_deletion() {
            self.collection = Some((cell.column, deletion));
            return true;
        }
        !matches!(self.collection, Some((column, deletion))
            if column == cell.column && deletion.deletes(cell.timestamp))
    }
}

/// Which tombstones may be forgotten.
#[derive(Debug, Clone, Copy)]
pub struct Purge {
    /// The present time, seconds: data that expires at or before it is gone.
    pub now: LocalSeconds,
    /// Tombstones with a local time before this are past their grace period.
    pub gc_before: LocalSeconds,
    /// Only tombstones with a timestamp below this shadow nothing outside the merge.
    pub timestamp_limit: i64,
}

impl Purge {
    /// For reads, which return live data only: every tombstone is purged.
    pub fn everything(now: LocalSeconds) -> Self {
        Self { now, gc_before: LocalSeconds::MAX, timestamp_limit: i64::MAX }
    }

    /// For a flush: expired data stays, and no tombstone is purged.
    pub fn nothing() -> Self {
        Self { now: 0, gc_before: 0, timestamp_limit: NO_TIMESTAMP }
    }

    /// Whether a tombstone may go.
    #[inline]
    pub fn may_go(&self, timestamp: i64, local_time: LocalSeconds) -> bool {
        (timestamp < self.timestamp_limit || self.timestamp_limit == i64::MAX) && local_time < self.gc_before
    }

    /// The deletion, or none if it may be purged.
    pub fn deletion(&self, deletion: DeletionTime) -> DeletionTime {
        if !deletion.is_live() && self.may_go(deletion.timestamp, deletion.local_time) {
            DeletionTime::LIVE
        } else {
            deletion
        }
    }
}

/// Appends the row as visible under `active` (the deletion of the partition or of a range that covers it),
/// with expired values turned into tombstones, and without purgeable tombstones.
///
/// Returns false and appends nothing if nothing is left. An expired value becomes a tombstone whose local
/// time is `expires_at − ttl`, as in Cassandra's `BufferCell.purge`, so that its grace period counts from the
/// write.
pub fn compact_row(row: RowView<'_>, active: DeletionTime, purge: &Purge, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let full_deletion = deletion(row.deletion(), active);
    // A deletion covered by a wider one is already represented by that.
    let kept_deletion =
        if row.deletion().supersedes(active) { purge.deletion(row.deletion()) } else { DeletionTime::LIVE };
    let mut marker = row.liveness();
    if full_deletion.deletes(marker.timestamp) {
        marker = Liveness::NONE;
    } else if !marker.is_none() && !marker.is_live(purge.now) {
        let local_time = marker.expires_at.saturating_sub(marker.ttl);
        if marker.ttl == EXPIRED_LIVENESS_TTL || purge.may_go(marker.timestamp, local_time) {
            marker = Liveness::NONE;
        }
    }
    out.reserve(row.as_bytes().len());
    let mut builder = RowBuilder::new(out, marker, kept_deletion);
    let mut shadow = Shadow::new(full_deletion);
    let mut any = false;
    let mut cells = row.cells();
    while let Some((mut cell, bytes)) = cells.next_with_bytes() {
        if !shadow.lets_pass(&cell) {
            continue;
        }
        let mut expired = false;
        if let CellKind::Expiring { ttl, expires_at, .. } = cell.kind
            && expires_at <= purge.now
        {
            expired = true;
            cell.kind = CellKind::Tombstone { local_time: expires_at.saturating_sub(ttl) };
        }
        if let CellKind::Tombstone { local_time } | CellKind::CollectionDeletion { local_time } = cell.kind
            && purge.may_go(cell.timestamp, local_time)
        {
            continue;
        }
        any = true;
        if expired {
            builder.cell(cell);
        } else {
            builder.copy(&cell, bytes);
        }
    }
    builder.finish();
    if any || !marker.is_none() || !kept_deletion.is_live() {
        true
    } else {
        out.truncate(start);
        false
    }
}

/// Whether a reader at `now` sees the row: a live marker or any live cell (of a row already compacted).
pub fn is_live(row: RowView<'_>, now: LocalSeconds) -> bool {
    row.liveness().is_live(now) || row.cells().any(|cell| cell.is_live(now))
}

#[cfg(test)]
mod tests;
