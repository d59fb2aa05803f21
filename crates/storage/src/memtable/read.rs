//! Walks one version of a partition as a stream of rows and deletion changes, slice by slice.
//!
//! A cursor holds numbers only. It stays valid across a pause as long as its version is pinned (`pin`),
//! because a pinned version does not change and trees of other partitions do not move its nodes.

use std::cell::Ref;
use std::cmp::Ordering;

use memory::{Cursor, Handle};
use model::clustering::{ClusteringOrder, Position, Slice};
use model::{DeletionTime, RowView, Token, Unfiltered};
use smallvec::SmallVec;

use super::ranges::{Place, Range, Ranges};
use super::{Inner, Memtable, Rows, Version, hint, split_row};
use crate::read::PartitionBound;

/// Borrowed contents of a memtable; not to be held across a pause.
pub(crate) struct Contents<'m>(Ref<'m, Inner>);

/// A partition of one memtable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartitionRef(pub(super) u32);

/// Position of a walk over partitions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Walk {
    cursor: Cursor,
    /// Entries of the tree when the cursor was taken. The tree only grows, so an equal number means it is
    /// unchanged.
    length: usize,
}

impl Memtable {
    pub(crate) fn contents(&self) -> Contents<'_> {
        Contents(self.inner.borrow())
    }
}

impl Contents<'_> {
    /// The partition of that key.
    #[inline]
    pub(crate) fn find(&self, token: Token, key: &[u8]) -> Option<PartitionRef> {
        self.0.find(token, key).map(PartitionRef)
    }

    /// Positions a walk at the first partition within a range that begins at `from`.
    pub(crate) fn seek(&self, from: &PartitionBound) -> Walk {
        let inner = &*self.0;
        let (cursor, _) = inner.index.lower_bound(&inner.tree, hint::of_token(from.token), |at| {
            let partition = inner.partition(at);
            if from.begins_before(partition.token, inner.region.get(partition.key)) {
                Ordering::Greater
            } else {
                Ordering::Less
            }
        });
        Walk { cursor, length: inner.tree.len() }
    }

    /// The partition a walk stands at; if the tree has grown, the walk is positioned again from `from`.
    pub(crate) fn at(&self, walk: &mut Walk, from: &PartitionBound) -> Option<PartitionRef> {
        if walk.length != self.0.tree.len() {
            *walk = self.seek(from);
        }
        self.0.index.value(walk.cursor).map(PartitionRef)
    }

    /// Steps to the next partition. Does nothing if the tree has grown since: [`Contents::at`] then positions
    /// the walk.
    pub(crate) fn step(&self, walk: &mut Walk) {
        if walk.length == self.0.tree.len() {
            walk.cursor = self.0.index.next(walk.cursor);
        }
    }

    /// The version of a partition that has only one, as almost all partitions do.
    #[inline]
    pub(crate) fn only_version(&self, partition: PartitionRef) -> Option<u32> {
        let partition = self.0.partition(partition.0);
        partition.newer.is_empty().then_some(partition.first.id)
    }

    /// Clustering and columns of a partition's only row, if the partition has nothing else and nothing of the
    /// row is deleted or expires.
    pub(crate) fn sole_plain_row(&self, partition: PartitionRef) -> Option<(&[u8], RowView<'_>)> {
        let partition = self.0.partition(partition.0);
        let version = &partition.first;
        let Rows::One(row) = version.rows else { return None };
        let is_sole = partition.newer.is_empty()
            && version.ranges.is_empty()
            && version.static_row.is_none()
            && version.deletion().is_live();
        let (clustering, row) = split_row(self.0.region.get(row));
        let row = RowView::trusted(row);
        (is_sole && row.is_plain()).then_some((clustering, row))
    }

    /// The version of a partition that has only one, if that has neither a static row nor range tombstones.
    pub(crate) fn plain_version(&self, partition: PartitionRef) -> Option<u32> {
        let partition = self.0.partition(partition.0);
        let version = &partition.first;
        let is_plain =
            partition.newer.is_empty() && version.ranges.is_empty() && version.static_row.is_none();
        is_plain.then_some(version.id)
    }

    /// Token and key of a partition.
    #[inline]
    pub(crate) fn key(&self, partition: PartitionRef) -> (Token, &[u8]) {
        let partition = self.0.partition(partition.0);
        (partition.token, self.0.region.get(partition.key))
    }

    /// The versions a partition has now.
    pub(crate) fn versions(&self, partition: PartitionRef) -> SmallVec<[u32; 2]> {
        self.0.partition(partition.0).versions().map(|v| v.id).collect()
    }

    /// Deletion and static row of a version.
    #[inline]
    pub(crate) fn head(&self, partition: PartitionRef, version: u32) -> (DeletionTime, Option<RowView<'_>>) {
        let version = self.0.partition(partition.0).version(version);
        let row = (!version.static_row.is_none())
            .then(|| RowView::trusted(split_row(self.0.region.get(version.static_row)).1));
        (version.deletion(), row)
    }
}

/// Deletion of a partition, and clustering and contents of one of its rows, if the row is there.
pub(crate) type OnlyRow<'a> = (DeletionTime, Option<(&'a [u8], RowView<'a>)>);

impl Contents<'_> {
    /// One row of a partition that has one version, no static row and no range tombstones: the partition's
    /// deletion, and the row if it is there. `None` if the partition is not of that kind. `shape` selects one
    /// row.
    #[inline]
    pub(crate) fn only_row(&self, partition: PartitionRef, shape: Shape<'_>) -> Option<OnlyRow<'_>> {
        let inner = &*self.0;
        let partition = inner.partition(partition.0);
        let version = &partition.first;
        if !partition.newer.is_empty() || !version.ranges.is_empty() || !version.static_row.is_none() {
            return None;
        }
        let sought = shape.slices.first()?.start.prefix.as_slice();
        let row = match version.rows {
            Rows::None => None,
            Rows::One(handle) => Some(split_row(inner.region.get(handle)))
                .filter(|(found, _)| sought.is_empty() || is_same(found, sought, shape.orders)),
            Rows::Many(tree) => {
                let hint = hint::of_position(Position::row(sought), shape.orders);
                let (at, found) =
                    inner.trees.lower_bound(&tree, hint, |at| inner.compare_row(shape.orders, at, sought));
                let row = if found { inner.trees.value(at) } else { None };
                row.map(|row| split_row(inner.region.get(Handle(row))))
            }
        };
        Some((version.deletion(), row.map(|(clustering, row)| (clustering, RowView::trusted(row)))))
    }
}

/// Whether two clusterings name the same row; their bytes may differ (decimals 1.5 and 1.50).
#[inline]
fn is_same(a: &[u8], b: &[u8], orders: &[ClusteringOrder]) -> bool {
    a == b || Position::row(a).compare(Position::row(b), orders).is_eq()
}

#[derive(Debug, Clone, Copy)]
enum RowsAt {
    None,
    One(Handle),
    Tree { at: Cursor, end: Cursor },
}

/// The stream of one version.
#[derive(Debug)]
pub(crate) struct VersionCursor {
    partition: u32,
    version: u32,
    /// Number of the slice in reading order.
    slice: usize,
    entered: bool,
    rows: RowsAt,
    /// Begin and end of the range tombstones still to come; a reversed read takes them from the end.
    ranges: (Place, Place),
    inside: bool,
}

/// The parameters of the read that a cursor needs at each step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape<'a> {
    pub(crate) orders: &'a [ClusteringOrder],
    pub(crate) slices: &'a [Slice],
    pub(crate) reversed: bool,
}

impl VersionCursor {
    /// A cursor before the first slice.
    pub(crate) fn new(partition: PartitionRef, version: u32) -> Self {
        Self {
            partition: partition.0,
            version,
            slice: 0,
            entered: false,
            rows: RowsAt::None,
            ranges: (Place::END, Place::END),
            inside: false,
        }
    }

    /// Which partition and version it walks.
    pub(crate) fn place(&self) -> (PartitionRef, u32) {
        (PartitionRef(self.partition), self.version)
    }

    /// The next element in reading order.
    pub(crate) fn next<'a>(
        &mut self,
        contents: &'a Contents<'_>,
        shape: Shape<'a>,
    ) -> Option<Unfiltered<'a>> {
        let inner = &*contents.0;
        loop {
            let at =
                if shape.reversed { shape.slices.len().checked_sub(self.slice + 1)? } else { self.slice };
            let slice = shape.slices.get(at)?;
            let version = inner.partition(self.partition).version(self.version);
            if !self.entered {
                self.enter(inner, version, slice, shape);
            }
            let row = self.peek_row(inner, shape.reversed);
            let change = self.peek_change(inner, &version.ranges, slice, shape);
            match (row, change) {
                (None, None) => {
                    self.slice += 1;
                    self.entered = false;
                }
                (Some(row), None) => return Some(self.take_row(inner, version, row, shape.reversed)),
                (None, Some(change)) => {
                    return Some(self.take_change(inner, &version.ranges, change, shape.reversed));
                }
                (Some(row), Some(change)) => {
                    let (clustering, _) = split_row(inner.region.get(row));
                    let order = Position::row(clustering).compare(change.position, shape.orders);
                    let row_first = if shape.reversed { order.is_gt() } else { order.is_lt() };
                    return Some(if row_first {
                        self.take_row(inner, version, row, shape.reversed)
                    } else {
                        self.take_change(inner, &version.ranges, change, shape.reversed)
                    });
                }
            }
        }
    }

    fn enter(&mut self, inner: &Inner, version: &Version, slice: &Slice, shape: Shape<'_>) {
        self.entered = true;
        self.inside = false;
        let clustering = |at: u32| split_row(inner.region.get(Handle(at))).0;
        self.rows = match version.rows {
            Rows::None => RowsAt::None,
            Rows::One(handle) if slice.contains(clustering(handle.0), shape.orders) => RowsAt::One(handle),
            Rows::One(_) => RowsAt::None,
            Rows::Many(tree) => {
                let bound = |position: Position<'_>| {
                    let hint = hint::of_position(position, shape.orders);
                    let compare = |at| Position::row(clustering(at)).compare(position, shape.orders);
                    inner.trees.lower_bound(&tree, hint, compare).0
                };
                let (start, end) = (bound(slice.start.as_ref()), bound(slice.end.as_ref()));
                if shape.reversed {
                    RowsAt::Tree { at: end, end: start }
                } else {
                    RowsAt::Tree { at: start, end }
                }
            }
        };
        let (start, end) = (slice.start.as_ref(), slice.end.as_ref());
        self.ranges = if version.ranges.is_empty() || start.compare(end, shape.orders).is_ge() {
            (Place::END, Place::END)
        } else {
            (
                inner.first_range_behind(&version.ranges, start, shape.orders),
                inner.first_range_from(&version.ranges, end, shape.orders),
            )
        };
    }

    fn peek_row(&mut self, inner: &Inner, reversed: bool) -> Option<Handle> {
        match self.rows {
            RowsAt::None => None,
            RowsAt::One(handle) => Some(handle),
            RowsAt::Tree { at, end } if at == end => None,
            RowsAt::Tree { at, .. } if reversed => {
                let Rows::Many(tree) = inner.partition(self.partition).version(self.version).rows else {
                    return None;
                };
                let before = inner.trees.previous(&tree, at)?;
                inner.trees.value(before).map(Handle)
            }
            RowsAt::Tree { at, .. } => inner.trees.value(at).map(Handle),
        }
    }

    fn take_row<'a>(
        &mut self,
        inner: &'a Inner,
        version: &Version,
        row: Handle,
        reversed: bool,
    ) -> Unfiltered<'a> {
        self.rows = match (self.rows, version.rows) {
            (RowsAt::Tree { at, end }, Rows::Many(tree)) => {
                let at = if reversed {
                    inner.trees.previous(&tree, at).unwrap_or(end)
                } else {
                    inner.trees.next(at)
                };
                RowsAt::Tree { at, end }
            }
            _ => RowsAt::None,
        };
        let (clustering, row) = split_row(inner.region.get(row));
        Unfiltered::Row { clustering, row: RowView::trusted(row) }
    }

    #[inline]
    fn peek_change<'a>(
        &self,
        inner: &'a Inner,
        ranges: &Ranges,
        slice: &'a Slice,
        shape: Shape<'_>,
    ) -> Option<Change<'a>> {
        let (from, to) = self.ranges;
        if from == to {
            return None;
        }
        let at = if shape.reversed { inner.previous_range(ranges, to)? } else { from };
        let range = inner.range_at(ranges, at)?;
        let first = later(range.start, slice.start.as_ref(), shape.orders);
        let last = earlier(range.end, slice.end.as_ref(), shape.orders);
        let (opens, closes) = if shape.reversed { (last, first) } else { (first, last) };
        if !self.inside {
            return Some(Change { position: opens, deletion: range.deletion, leaves: false, enters: true });
        }
        let next = if shape.reversed {
            inner.previous_range(ranges, at).filter(|_| at != from)
        } else {
            Some(inner.next_range(at)).filter(|next| *next != to)
        };
        let touches = |next: &Range<'_>| {
            if shape.reversed { range.start == next.end } else { range.end == next.start }
        };
        let touching = next.and_then(|next| inner.range_at(ranges, next)).filter(touches);
        let deletion = touching.map_or(DeletionTime::LIVE, |next| next.deletion);
        Some(Change { position: closes, deletion, leaves: true, enters: touching.is_some() })
    }

    fn take_change<'a>(
        &mut self,
        inner: &Inner,
        ranges: &Ranges,
        change: Change<'a>,
        reversed: bool,
    ) -> Unfiltered<'a> {
        if change.leaves {
            let (from, to) = self.ranges;
            self.ranges = if reversed {
                (from, inner.previous_range(ranges, to).unwrap_or(from))
            } else {
                (inner.next_range(from), to)
            };
        }
        self.inside = change.enters;
        Unfiltered::Change { position: change.position, deletion: change.deletion }
    }
}

/// The next change of the deletion in force, and its effect on the cursor.
#[derive(Debug, Clone, Copy)]
struct Change<'a> {
    position: Position<'a>,
    deletion: DeletionTime,
    leaves: bool,
    enters: bool,
}

fn later<'a>(a: Position<'a>, b: Position<'a>, orders: &[ClusteringOrder]) -> Position<'a> {
    if a.compare(b, orders).is_lt() { b } else { a }
}

fn earlier<'a>(a: Position<'a>, b: Position<'a>, orders: &[ClusteringOrder]) -> Position<'a> {
    if a.compare(b, orders).is_gt() { b } else { a }
}
