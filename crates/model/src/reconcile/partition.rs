//! Whole partitions with their deletions: merges what several replicas answered, and finds what one of them
//! lacks.
//!
//! An answer travels as a mutation, which writes just the contents it names. Here contents are in normal
//! form: rows and ranges in clustering order, nothing that a deletion shadows, no row without anything in it,
//! and no two ranges that touch and have one deletion. Invariant: contents with equal effect on every write
//! are equal values, so that comparing two replicas is comparing values.

use std::cmp::Ordering;

use super::{Purge, compact_row, compare_cells, deletion, merge_rows};
use crate::clustering::{ClusteringOrder, OwnedPosition, Position, compare_clusterings};
use crate::deletion::{DeletionTime, Liveness};
use crate::mutation::{MutationBuilder, MutationView};
use crate::row::{CellKind, CellView, RowBuilder, RowView};
use crate::schema::{Table, TableId};
use crate::token::Token;
use crate::tombstones::{RangeTombstone, RangeTombstones};

/// The contents of one partition, or of slices of it, in normal form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionContents {
    deletion: DeletionTime,
    /// Empty for none.
    static_row: Vec<u8>,
    /// Disjoint, in clustering order.
    ranges: Vec<RangeTombstone>,
    rows: Vec<Row>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    clustering: Vec<u8>,
    bytes: Vec<u8>,
}

impl PartitionContents {
    /// Merges mutations of one partition, each of which [`MutationView::fits`] the table. Their order does
    /// not matter. No tombstone is purged and nothing expires.
    pub fn merge(table: &Table, mutations: &[MutationView<'_>]) -> Self {
        let orders = table.clustering_orders();
        let mut whole = DeletionTime::LIVE;
        let (mut statics, mut ranges) = (Vec::new(), Vec::new());
        let mut rows = Vec::with_capacity(mutations.iter().map(MutationView::row_count).sum());
        for mutation in mutations {
            whole = deletion(whole, mutation.deletion);
            statics.extend(mutation.static_row());
            rows.extend(mutation.rows());
            ranges.extend(mutation.tombstones().map(|(start, end, deletion)| RangeTombstone {
                start: start.to_owned(),
                end: end.to_owned(),
                deletion,
            }));
        }
        let ranges = RangeTombstones::union(ranges, orders);
        rows.sort_by(|(a, _), (b, _)| compare_clusterings(orders, a, b));
        let mut kept = Vec::new();
        for same in rows.chunk_by(|(a, _), (b, _)| compare_clusterings(orders, a, b).is_eq()) {
            let clustering = same[0].0;
            let active = deletion(whole, ranges.covering(clustering, orders));
            let bytes = merge_all(table, same.iter().map(|(_, row)| *row), active);
            if !bytes.is_empty() {
                kept.push(Row { clustering: clustering.to_vec(), bytes });
            }
        }
        let static_row = merge_all(table, statics.into_iter(), whole);
        let ranges = joined(ranges.iter().filter(|range| range.deletion.supersedes(whole)), orders);
        Self { deletion: whole, static_row, ranges, rows: kept }
    }

    /// Whether there is nothing, not even a deletion.
    pub fn is_empty(&self) -> bool {
        self.deletion.is_live()
            && self.static_row.is_empty()
            && self.ranges.is_empty()
            && self.rows.is_empty()
    }

    /// The deletion of the partition.
    pub fn deletion(&self) -> DeletionTime {
        self.deletion
    }

    /// The static row.
    pub fn static_row(&self) -> Option<RowView<'_>> {
        (!self.static_row.is_empty()).then(|| RowView::trusted(&self.static_row))
    }

    /// Disjoint range tombstones in clustering order.
    pub fn ranges(&self) -> &[RangeTombstone] {
        &self.ranges
    }

    /// Rows with their clusterings, in clustering order.
    pub fn rows(&self) -> impl DoubleEndedIterator<Item = (&[u8], RowView<'_>)> {
        self.rows.iter().map(|row| (row.clustering.as_slice(), RowView::trusted(&row.bytes)))
    }

    /// Appends the mutation that writes these contents.
    pub fn append_mutation(&self, out: &mut Vec<u8>, table: TableId, token: Token, key: &[u8]) {
        let mut builder = MutationBuilder::new(out, table, token, key, self.deletion, |out| {
            out.extend_from_slice(&self.static_row);
        });
        for range in &self.ranges {
            builder.range_tombstone(range.start.as_ref(), range.end.as_ref(), range.deletion);
        }
        let mut rows = builder.rows();
        for row in &self.rows {
            rows.row(&row.clustering, |out| out.extend_from_slice(&row.bytes));
        }
        rows.finish();
    }
}

impl PartitionContents {
    /// Two halves that together have the same effect.
    ///
    /// # Errors
    /// The contents, if they have one row at most.
    pub fn halves(mut self) -> Result<(Self, Self), Self> {
        if self.rows.len() < 2 {
            return Err(self);
        }
        let rows = self.rows.split_off(self.rows.len() / 2);
        let behind = Self { deletion: DeletionTime::LIVE, static_row: Vec::new(), ranges: Vec::new(), rows };
        Ok((self, behind))
    }

    /// Forgets all behind `end` in reading order; `end` is a bound, never a row. Answers of replicas that
    /// ended at several places are comparable up to the first of these.
    pub fn cut(&mut self, end: Position<'_>, reversed: bool, orders: &[ClusteringOrder]) {
        assert!(end.weight != 0, "contents are cut between rows, not at {end:?}");
        let behind = if reversed { Ordering::Less } else { Ordering::Greater };
        let lies_behind = |at: &OwnedPosition| at.as_ref().compare(end, orders) == behind;
        self.rows.retain(|row| Position::row(&row.clustering).compare(end, orders) != behind);
        self.ranges.retain_mut(|range| {
            let (near, far) = match reversed {
                false => (&range.start, &mut range.end),
                true => (&range.end, &mut range.start),
            };
            let is_left = !lies_behind(near) && near.as_ref().compare(end, orders).is_ne();
            if is_left && lies_behind(far) {
                *far = end.to_owned();
            }
            is_left
        });
    }

    /// The contents without what a purge would forget: tombstones past their grace period, and data that
    /// expired so long ago. What stays keeps its form: data that expired does not become a tombstone.
    #[must_use]
    pub fn without_purgeable(&self, purge: &Purge) -> Self {
        let range_stays = |range: &&RangeTombstone| !purge.deletion(range.deletion).is_live();
        let row = |row: &Row| {
            let bytes = row_without_purgeable(&row.bytes, purge);
            (!bytes.is_empty()).then(|| Row { clustering: row.clustering.clone(), bytes })
        };
        Self {
            deletion: purge.deletion(self.deletion),
            static_row: row_without_purgeable(&self.static_row, purge),
            ranges: self.ranges.iter().filter(range_stays).cloned().collect(),
            rows: self.rows.iter().filter_map(row).collect(),
        }
    }
}

/// See [`PartitionContents::without_purgeable`]; empty if nothing stays.
fn row_without_purgeable(bytes: &[u8], purge: &Purge) -> Vec<u8> {
    if bytes.is_empty() {
        return Vec::new();
    }
    let row = RowView::trusted(bytes);
    if row.is_plain() {
        return bytes.to_vec();
    }
    let expired_may_go = |timestamp, ttl: u32, expires_at: u32| {
        expires_at <= purge.now && purge.may_go(timestamp, expires_at.saturating_sub(ttl))
    };
    let mut marker = row.liveness();
    if marker.ttl != 0 && expired_may_go(marker.timestamp, marker.ttl, marker.expires_at) {
        marker = Liveness::NONE;
    }
    let deletion = purge.deletion(row.deletion());
    let mut out = Vec::new();
    let mut builder = RowBuilder::new(&mut out, marker, deletion);
    let mut any = false;
    for cell in row.cells() {
        let goes = match cell.kind {
            CellKind::Expiring { ttl, expires_at, .. } => expired_may_go(cell.timestamp, ttl, expires_at),
            CellKind::Tombstone { local_time } | CellKind::CollectionDeletion { local_time } => {
                purge.may_go(cell.timestamp, local_time)
            }
            CellKind::Live(_) | CellKind::Counter(_) => false,
        };
        if !goes {
            builder.cell(cell);
            any = true;
        }
    }
    builder.finish();
    if !any && marker.is_none() && deletion.is_live() {
        out.clear();
    }
    out
}

/// The writes that a replica lacks: merging `replica` with them gives `merged`. Empty if the replica has all.
///
/// Precondition: `merged` is a merge that `replica` is part of, over the same slices.
pub fn diff(table: &Table, merged: &PartitionContents, replica: &PartitionContents) -> PartitionContents {
    let orders = table.clustering_orders();
    let deletion = if merged.deletion == replica.deletion { DeletionTime::LIVE } else { merged.deletion };
    let mut rows = Vec::new();
    let mut stored = replica.rows.iter().peekable();
    for row in &merged.rows {
        let order = |other: &&Row| compare_clusterings(orders, &other.clustering, &row.clustering);
        while stored.next_if(|other| order(other).is_lt()).is_some() {}
        let same = stored.next_if(|other| order(other).is_eq());
        let bytes = row_diff(table, &row.bytes, same.map_or(&[], |same| &same.bytes));
        if !bytes.is_empty() {
            rows.push(Row { clustering: row.clustering.clone(), bytes });
        }
    }
    PartitionContents {
        deletion,
        static_row: row_diff(table, &merged.static_row, &replica.static_row),
        ranges: ranges_diff(&merged.ranges, &replica.ranges, orders),
        rows,
    }
}

/// The merge of versions of one row under a deletion; empty if nothing is left.
fn merge_all<'a>(table: &Table, rows: impl Iterator<Item = RowView<'a>>, active: DeletionTime) -> Vec<u8> {
    let mut merged: Vec<u8> = Vec::new();
    for row in rows {
        if merged.is_empty() {
            merged.extend_from_slice(row.as_bytes());
            continue;
        }
        let mut both = Vec::new();
        merge_rows(table, RowView::trusted(&merged), row, &mut both);
        merged = both;
    }
    let mut left = Vec::new();
    if !merged.is_empty() {
        compact_row(RowView::trusted(&merged), active, &Purge::nothing(), &mut left);
    }
    left
}

/// The ranges, those joined that touch and have one deletion.
fn joined<'a>(
    ranges: impl Iterator<Item = &'a RangeTombstone>,
    orders: &[ClusteringOrder],
) -> Vec<RangeTombstone> {
    let mut out: Vec<RangeTombstone> = Vec::new();
    for range in ranges {
        match out.last_mut() {
            Some(last)
                if last.deletion == range.deletion
                    && last.end.as_ref().compare(range.start.as_ref(), orders).is_eq() =>
            {
                last.end = range.end.clone();
            }
            _ => out.push(range.clone()),
        }
    }
    out
}

/// The marker, deletion and cells of `merged` that `stored` does not have; empty if it has all.
fn row_diff(table: &Table, merged: &[u8], stored: &[u8]) -> Vec<u8> {
    if merged.is_empty() || stored.is_empty() || merged == stored {
        return if merged == stored { Vec::new() } else { merged.to_vec() };
    }
    let (merged, stored) = (RowView::trusted(merged), RowView::trusted(stored));
    let marker = if merged.liveness() == stored.liveness() { Liveness::NONE } else { merged.liveness() };
    let deletion =
        if merged.deletion() == stored.deletion() { DeletionTime::LIVE } else { merged.deletion() };
    let mut out = Vec::new();
    let mut builder = RowBuilder::new(&mut out, marker, deletion);
    let mut others = stored.cells().peekable();
    let mut any = false;
    for cell in merged.cells() {
        let order = |other: &CellView<'_>| compare_cells(table, other, &cell);
        while others.next_if(|other| order(other).is_lt()).is_some() {}
        if others.next_if(|other| order(other).is_eq()) != Some(cell) {
            builder.cell(cell);
            any = true;
        }
    }
    builder.finish();
    if !any && marker.is_none() && deletion.is_live() {
        out.clear();
    }
    out
}

/// The parts of `merged` over which `stored` has another deletion or none.
fn ranges_diff(
    merged: &[RangeTombstone],
    stored: &[RangeTombstone],
    orders: &[ClusteringOrder],
) -> Vec<RangeTombstone> {
    let less =
        |a: &OwnedPosition, b: &OwnedPosition| a.as_ref().compare(b.as_ref(), orders) == Ordering::Less;
    let mut out = Vec::new();
    for range in merged {
        let first = stored.partition_point(|other| !less(&range.start, &other.end));
        let (mut at, deletion) = (&range.start, range.deletion);
        for other in stored[first..].iter().take_while(|other| less(&other.start, &range.end)) {
            if other.deletion != deletion {
                continue;
            }
            if less(at, &other.start) {
                out.push(RangeTombstone { start: at.clone(), end: other.start.clone(), deletion });
            }
            at = &other.end;
        }
        if less(at, &range.end) {
            out.push(RangeTombstone { start: at.clone(), end: range.end.clone(), deletion });
        }
    }
    out
}

#[cfg(test)]
mod tests;
