//! Range tombstones of one partition, kept sorted and disjoint.
//!
//! Adding a tombstone cuts the ranges it overlaps, so that at each place only the superseding deletion
//! remains: memtables add to it, reads walk it as deletion changes.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::clustering::{ClusteringOrder, OwnedPosition, Position};
use crate::deletion::DeletionTime;

/// A deletion of all rows between two positions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeTombstone {
    /// First position, weight ±1.
    pub start: OwnedPosition,
    /// Last position, weight ±1.
    pub end: OwnedPosition,
    /// The deletion of the range.
    pub deletion: DeletionTime,
}

/// Disjoint range tombstones in clustering order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeTombstones {
    ranges: Vec<RangeTombstone>,
}

impl RangeTombstones {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The union of ranges in any order; where several overlap the superseding deletion stays. Takes time
    /// proportional to n log n at most, and less where the ranges are a few runs in clustering order.
    pub fn union(mut ranges: Vec<RangeTombstone>, orders: &[ClusteringOrder]) -> Self {
        let compare = |a: &OwnedPosition, b: &OwnedPosition| a.as_ref().compare(b.as_ref(), orders);
        ranges.retain(|range| compare(&range.start, &range.end).is_lt());
        ranges.sort_by(|a, b| compare(&a.start, &b.start));
        let mut ends: Vec<&OwnedPosition> = ranges.iter().map(|range| &range.end).collect();
        ends.sort_by(|a, b| compare(a, b));
        let (mut starts, mut ends) = (ranges.iter().enumerate().peekable(), ends.into_iter().peekable());
        let mut out = Vec::new();
        // Ranges that have begun, the superseding one on top; those that have ended are left in it until they
        // come up.
        let mut begun: BinaryHeap<(DeletionTime, usize)> = BinaryHeap::new();
        let mut at: Option<&OwnedPosition> = None;
        loop {
            let (next, is_start) = match (starts.peek(), ends.peek()) {
                (Some((_, range)), Some(end)) if compare(&range.start, end).is_lt() => (&range.start, true),
                (_, Some(end)) => (*end, false),
                (_, None) => break,
            };
            if let (Some(from), Some((deletion, _))) = (at, begun.peek())
                && compare(from, next).is_lt()
            {
                push(&mut out, from.clone(), next.clone(), *deletion);
            }
            if is_start {
                begun.extend(starts.next().map(|(number, range)| (range.deletion, number)));
            } else {
                ends.next();
            }
            while begun.peek().is_some_and(|(_, number)| compare(&ranges[*number].end, next).is_le()) {
                begun.pop();
            }
            at = Some(next);
        }
        Self { ranges: out }
    }

    /// Whether there are no tombstones.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many disjoint ranges there are.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// In clustering order.
    pub fn iter(&self) -> std::slice::Iter<'_, RangeTombstone> {
        self.ranges.iter()
    }

    /// The ranges that reach into the slice from `start` to `end`, uncut.
    pub fn overlapping(
        &self,
        start: Position<'_>,
        end: Position<'_>,
        orders: &[ClusteringOrder],
    ) -> &[RangeTombstone] {
        let from =
            self.ranges.partition_point(|r| r.end.as_ref().compare(start, orders) != Ordering::Greater);
        let to = self.ranges.partition_point(|r| r.start.as_ref().compare(end, orders) == Ordering::Less);
        &self.ranges[from.min(to)..to]
    }

    /// The deletion that covers a row, or [`DeletionTime::LIVE`].
    pub fn covering(&self, clustering: &[u8], orders: &[ClusteringOrder]) -> DeletionTime {
        let row = Position::row(clustering);
        match self.overlapping(row, row, orders) {
            [range, ..] => range.deletion,
            [] => DeletionTime::LIVE,
        }
    }

    /// Adds a tombstone; if ranges overlap the superseding deletion stays.
    pub fn add(&mut self, added: RangeTombstone, orders: &[ClusteringOrder]) {
        let less =
            |a: &OwnedPosition, b: &OwnedPosition| a.as_ref().compare(b.as_ref(), orders) == Ordering::Less;
        if !less(&added.start, &added.end) {
            return;
        }
        let from = self.ranges.partition_point(|r| !less(&added.start, &r.end));
        let to = self.ranges.partition_point(|r| less(&r.start, &added.end));
        if from >= to {
            self.ranges.insert(from, added);
            return;
        }
        let mut cut = Vec::with_capacity(to - from + 2);
        let mut at = added.start.clone();
        for old in self.ranges.drain(from..to) {
            if less(&old.start, &at) {
                // The part of the old range before the added one.
                push(&mut cut, old.start.clone(), at.clone(), old.deletion);
            } else if less(&at, &old.start) {
                push(&mut cut, at.clone(), old.start.clone(), added.deletion);
                at = old.start.clone();
            }
            let overlap_end = if less(&old.end, &added.end) { old.end.clone() } else { added.end.clone() };
            push(&mut cut, at, overlap_end.clone(), old.deletion.max(added.deletion));
            at = overlap_end;
            if less(&added.end, &old.end) {
                push(&mut cut, added.end.clone(), old.end, old.deletion);
            }
        }
        if less(&at, &added.end) {
            push(&mut cut, at, added.end, added.deletion);
        }
        self.ranges.splice(from..from, cut);
    }
}

/// Appends a range, joining it to the previous one if they touch and have the same deletion.
fn push(ranges: &mut Vec<RangeTombstone>, start: OwnedPosition, end: OwnedPosition, deletion: DeletionTime) {
    match ranges.last_mut() {
        Some(last) if last.deletion == deletion && last.end == start => last.end = end,
        _ => ranges.push(RangeTombstone { start, end, deletion }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clustering::append_component;
    use crate::types::CqlType;
    use proptest::prelude::*;

    fn position(at: u8, weight: i8) -> OwnedPosition {
        let mut prefix = Vec::new();
        append_component(&mut prefix, Some(&[at]));
        OwnedPosition { prefix, weight }
    }

    proptest! {
        /// Compared with the plain model: the superseding deletion of each row is the greatest of those that
        /// cover it.
        #[test]
        fn the_greatest_covering_deletion_wins(
            tombstones in proptest::collection::vec((0u8..12, 0u8..12, any::<bool>(), any::<bool>(), 0i64..5), 0..12)
        ) {
            let orders = [ClusteringOrder { ty: CqlType::Blob, reversed: false }];
            let mut list = RangeTombstones::new();
            let mut all = Vec::new();
            for (start, end, start_after, end_after, timestamp) in tombstones {
                let weight = |after: bool| if after { 1 } else { -1 };
                let t = RangeTombstone {
                    start: position(start, weight(start_after)),
                    end: position(end, weight(end_after)),
                    deletion: DeletionTime { timestamp, local_time: 1 },
                };
                all.push(t.clone());
                list.add(t, &orders);
            }
            let union = RangeTombstones::union(all.clone(), &orders);
            for pair in [&list, &union].iter().flat_map(|ranges| ranges.ranges.windows(2)) {
                prop_assert!(pair[0].end.as_ref().compare(pair[1].start.as_ref(), &orders) != Ordering::Greater);
            }
            for row in 0u8..12 {
                let clustering = position(row, 0).prefix;
                let at = Position::row(&clustering);
                let expected = all
                    .iter()
                    .filter(|t| t.start.as_ref().compare(at, &orders) == Ordering::Less
                        && at.compare(t.end.as_ref(), &orders) == Ordering::Less)
                    .map(|t| t.deletion)
                    .fold(DeletionTime::LIVE, DeletionTime::max);
                prop_assert_eq!(list.covering(&clustering, &orders), expected);
                prop_assert_eq!(union.covering(&clustering, &orders), expected);
            }
        }
    }
}
