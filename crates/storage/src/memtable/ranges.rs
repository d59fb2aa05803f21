//! Range tombstones of a version: disjoint and in order, each an object, from the second one on in a tree.
//!
//! ```text
//! object := start_bytes:u32 start_weight:i8 end_weight:i8 timestamp:i64 local_time:u32 start end
//! ```
//! Numbers are little endian. As objects in a tree, ranges count against the shard's memory as rows do, and
//! adding one to a million others moves none of them. `model::tombstones` defines how overlapping ranges are
//! cut. A range that would cut more than [`CUT_MAX`] others goes to another version, and reads merge the
//! ranges of both. `insert` adds ranges, `pin` folds them, `read` walks them.

use std::cmp::Ordering;

use memory::{Cursor, Handle, Region, Tree};
use model::DeletionTime;
use model::clustering::{Clustering, ClusteringOrder, Position};
use model::tombstones::{RangeTombstone, RangeTombstones};

use super::{Inner, Version, hint};

/// Most ranges that are cut at once: a range over a million others must not occupy the core.
const CUT_MAX: usize = 256;
/// Bytes of an object before its positions.
const HEAD_BYTES: usize = 18;

/// A range tombstone as it stands in memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range<'a> {
    pub(super) start: Position<'a>,
    pub(super) end: Position<'a>,
    pub(super) deletion: DeletionTime,
}

impl<'a> From<&'a RangeTombstone> for Range<'a> {
    fn from(range: &'a RangeTombstone) -> Self {
        Self { start: range.start.as_ref(), end: range.end.as_ref(), deletion: range.deletion }
    }
}

impl<'a> Range<'a> {
    fn stored(region: &'a Region, at: u32) -> Self {
        let object = region.get(Handle(at)).split_first_chunk::<HEAD_BYTES>();
        let (head, positions) = object.expect("a range object begins with its head");
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let (start, end) = positions.split_at(word(0) as usize);
        let timestamp = i64::from_le_bytes(head[6..14].try_into().expect("eight bytes"));
        Self {
            start: Position { prefix: Clustering(start), weight: head[4] as i8 },
            end: Position { prefix: Clustering(end), weight: head[5] as i8 },
            deletion: DeletionTime { timestamp, local_time: word(14) },
        }
    }

    fn store(self, region: &mut Region) -> Handle {
        let (start, end) = (self.start.prefix.0, self.end.prefix.0);
        let mut head = [0; HEAD_BYTES];
        head[..4].copy_from_slice(&(start.len() as u32).to_le_bytes());
        head[4..6].copy_from_slice(&[self.start.weight as u8, self.end.weight as u8]);
        head[6..14].copy_from_slice(&self.deletion.timestamp.to_le_bytes());
        head[14..].copy_from_slice(&self.deletion.local_time.to_le_bytes());
        region.alloc(&[&head, start, end])
    }

    fn to_owned(self) -> RangeTombstone {
        RangeTombstone { start: self.start.to_owned(), end: self.end.to_owned(), deletion: self.deletion }
    }
}

/// The range tombstones of a version; a single one needs no tree.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ranges {
    None,
    One(Handle),
    Many(Tree),
}

/// A place among the ranges of a version, good until one of them comes or goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// At the only one.
    One,
    /// In their tree, or behind the last one.
    In(Cursor),
}

impl Place {
    pub(super) const END: Place = Place::In(Cursor::END);
}

impl Ranges {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Ranges::None)
    }
}

impl Inner {
    pub(super) fn first_range(&self, ranges: &Ranges) -> Place {
        match ranges {
            Ranges::None => Place::END,
            Ranges::One(_) => Place::One,
            Ranges::Many(tree) => Place::In(self.trees.first(tree)),
        }
    }

    pub(super) fn next_range(&self, place: Place) -> Place {
        match place {
            Place::One => Place::END,
            Place::In(cursor) => Place::In(self.trees.next(cursor)),
        }
    }

    pub(super) fn previous_range(&self, ranges: &Ranges, place: Place) -> Option<Place> {
        match (ranges, place) {
            (Ranges::Many(tree), Place::In(cursor)) => self.trees.previous(tree, cursor).map(Place::In),
            (Ranges::One(_), Place::In(_)) => Some(Place::One),
            (Ranges::None, _) | (_, Place::One) => None,
        }
    }

    /// The range at a place; `None` behind the last one.
    pub(super) fn range_at(&self, ranges: &Ranges, place: Place) -> Option<Range<'_>> {
        self.range_handle(ranges, place).map(|handle| Range::stored(&self.region, handle.0))
    }

    /// The object of the range at a place.
    pub(super) fn range_handle(&self, ranges: &Ranges, place: Place) -> Option<Handle> {
        match (ranges, place) {
            (Ranges::One(only), Place::One) => Some(*only),
            (Ranges::Many(_), Place::In(cursor)) => self.trees.value(cursor).map(Handle),
            _ => None,
        }
    }

    /// The first range that does not begin before `position`.
    pub(super) fn first_range_from(
        &self,
        ranges: &Ranges,
        position: Position<'_>,
        orders: &[ClusteringOrder],
    ) -> Place {
        let compare = |at| Range::stored(&self.region, at).start.compare(position, orders);
        match ranges {
            Ranges::One(only) if compare(only.0).is_ge() => Place::One,
            Ranges::None | Ranges::One(_) => Place::END,
            Ranges::Many(tree) => {
                Place::In(self.trees.lower_bound(tree, hint::of_position(position, orders), compare).0)
            }
        }
    }

    /// The first range that ends behind `position`.
    pub(super) fn first_range_behind(
        &self,
        ranges: &Ranges,
        position: Position<'_>,
        orders: &[ClusteringOrder],
    ) -> Place {
        let from = self.first_range_from(ranges, position, orders);
        // They are disjoint: of those that begin before, only the last can reach so far.
        let before = self.previous_range(ranges, from);
        let reaches = |at: &Place| {
            self.range_at(ranges, *at).is_some_and(|range| range.end.compare(position, orders).is_gt())
        };
        before.filter(reaches).unwrap_or(from)
    }

    /// Adds a range tombstone to a version, or to another one that takes writes if it would cut too many
    /// ranges of the first.
    pub(super) fn write_range(
        &mut self,
        orders: &[ClusteringOrder],
        at: u32,
        version: u32,
        added: Range<'_>,
    ) {
        let takes = |version: &Version| self.overlapped(&version.ranges, added, CUT_MAX, orders) <= CUT_MAX;
        let partition = self.partition(at);
        let taker = if takes(partition.version(version)) {
            Some(version)
        } else {
            partition.versions().find(|version| version.pins == 0 && takes(version)).map(|version| version.id)
        };
        let taker = taker.unwrap_or_else(|| self.add_version(at));
        self.put_range(orders, at, taker, added);
    }

    fn put_range(&mut self, orders: &[ClusteringOrder], at: u32, version: u32, added: Range<'_>) {
        let mut ranges = self.partition(at).version(version).ranges;
        self.add_range(&mut ranges, added, orders);
        self.partition_mut(at).version_mut(version).ranges = ranges;
    }

    /// Moves ranges from one version to another while some of `left` are left, each with those that it cuts.
    /// Returns false at a range that would cut too many.
    pub(super) fn fold_ranges(
        &mut self,
        orders: &[ClusteringOrder],
        at: u32,
        (from, into): (u32, u32),
        left: &mut usize,
    ) -> bool {
        while *left > 0 {
            let partition = self.partition(at);
            let (mut ranges, others) = (partition.version(from).ranges, partition.version(into).ranges);
            let Some(handle) = self.range_handle(&ranges, self.first_range(&ranges)) else { break };
            let cut = self.overlapped(&others, Range::stored(&self.region, handle.0), CUT_MAX, orders);
            if cut > CUT_MAX {
                return false;
            }
            let range = self.take_range(&mut ranges, handle, orders);
            self.partition_mut(at).version_mut(from).ranges = ranges;
            self.put_range(orders, at, into, Range::from(&range));
            *left = left.saturating_sub(1 + cut);
        }
        true
    }

    /// How many of some ranges `range` overlaps; beyond `most` they are not counted.
    fn overlapped(
        &self,
        ranges: &Ranges,
        range: Range<'_>,
        most: usize,
        orders: &[ClusteringOrder],
    ) -> usize {
        let mut place = self.first_range_behind(ranges, range.start, orders);
        let begins_inside = |other: Range<'_>| other.start.compare(range.end, orders).is_lt();
        let mut count = 0;
        while count <= most && self.range_at(ranges, place).is_some_and(begins_inside) {
            (count, place) = (count + 1, self.next_range(place));
        }
        count
    }

    fn add_range(&mut self, ranges: &mut Ranges, added: Range<'_>, orders: &[ClusteringOrder]) {
        if added.start.compare(added.end, orders).is_ge() {
            return;
        }
        let mut cut = RangeTombstones::new();
        while let Some(old) = self.take_overlapped(ranges, added, orders) {
            cut.add(old, orders);
        }
        if cut.is_empty() {
            self.plant_range(ranges, added, orders);
            return;
        }
        cut.add(added.to_owned(), orders);
        for range in cut.iter() {
            self.plant_range(ranges, Range::from(range), orders);
        }
    }

    /// Takes the first range out that `added` overlaps.
    fn take_overlapped(
        &mut self,
        ranges: &mut Ranges,
        added: Range<'_>,
        orders: &[ClusteringOrder],
    ) -> Option<RangeTombstone> {
        let first = self.first_range_behind(ranges, added.start, orders);
        let handle = self.range_handle(ranges, first)?;
        let begins_inside = Range::stored(&self.region, handle.0).start.compare(added.end, orders).is_lt();
        begins_inside.then(|| self.take_range(ranges, handle, orders))
    }

    /// Takes a range out.
    fn take_range(
        &mut self,
        ranges: &mut Ranges,
        handle: Handle,
        orders: &[ClusteringOrder],
    ) -> RangeTombstone {
        let range = Range::stored(&self.region, handle.0).to_owned();
        let mut any_left = false;
        if let Ranges::Many(tree) = ranges {
            let (start, region) = (range.start.as_ref(), &self.region);
            let removed = self.trees.remove(tree, hint::of_position(start, orders), |at| {
                Range::stored(region, at).start.compare(start, orders)
            });
            assert_eq!(removed, Some(handle.0), "a range that was found");
            any_left = !tree.is_empty();
        }
        if !any_left {
            *ranges = Ranges::None;
        }
        self.region.free(handle);
        range
    }

    /// Adds a range that overlaps none.
    fn plant_range(&mut self, ranges: &mut Ranges, range: Range<'_>, orders: &[ClusteringOrder]) {
        let handle = range.store(&mut self.region);
        let mut tree = match *ranges {
            Ranges::None => {
                *ranges = Ranges::One(handle);
                return;
            }
            Ranges::One(only) => {
                let (mut tree, start) = (Tree::EMPTY, Range::stored(&self.region, only.0).start);
                self.trees.insert(&mut tree, hint::of_position(start, orders), only.0, |_| Ordering::Equal);
                tree
            }
            Ranges::Many(tree) => tree,
        };
        let region = &self.region;
        self.trees.insert(&mut tree, hint::of_position(range.start, orders), handle.0, |at| {
            Range::stored(region, at).start.compare(range.start, orders)
        });
        *ranges = Ranges::Many(tree);
    }
}

#[cfg(test)]
mod tests;
