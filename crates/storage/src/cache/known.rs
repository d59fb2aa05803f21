//! Reads the cached contents of a partition, up to the first gap that is not complete.
//!
//! There are two ways. [`TabletCache::walk`] hands rows over in place, without a pause and without an
//! allocation: for a read that finds nothing of its partition in memtables. [`Place`] is a source of a merge:
//! it comes back after each pause with a position, and copies what it finds.

use memory::Handle;
use model::clustering::{ClusteringOrder, OwnedPosition, Position, Slice};
use model::{DeletionTime, RowView};

use super::object::{Kind, Object, touch};
use super::partition::{Partition, Spot, is_near};
use super::{Claim, Inner, Sought, TabletCache};
use crate::memtable::Shape;
use crate::read::{Flow, Slices};

/// Rows handed over between two checks whether another task should run.
const ROWS_PER_LOOK: u32 = 64;

/// Deletion and static row of a partition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head<'a> {
    pub(crate) deletion: DeletionTime,
    pub(crate) static_row: Option<RowView<'a>>,
}

/// Takes a row, by clustering and contents; at the end of the partition no row.
type Visit<'v> = dyn FnMut(Head<'_>, Option<(&[u8], RowView<'_>)>) -> Flow + 'v;

/// How far a walk came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Walked {
    /// The cache has nothing useful of the partition.
    Unknown,
    /// All slices were walked, or the visitor ended the walk.
    Done(Flow),
    /// These slices are left, to be read by other means.
    Left(Slices),
}

/// The result of a step of a [`Place`]; clustering and row are in the caller's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// A row.
    Row,
    /// Another range deletion is in force from here on; the weight belongs to the clustering.
    Change(i8, DeletionTime),
    /// The cache does not have the next part.
    Gap,
    /// The slices are at their end.
    End,
}

/// Position of a walk that may be paused.
#[derive(Debug)]
pub(crate) struct Place {
    /// Number of the slice in reading order.
    slice: usize,
    entered: bool,
    /// The last position that was passed, in reading order.
    at: OwnedPosition,
    active: DeletionTime,
}

enum View<'a> {
    Whole(Option<(&'a [u8], RowView<'a>)>),
    Partition(&'a Partition),
}

/// The next entry of a view, if any, and whether the cache has every row up to it (or to the view's end).
struct Next<'a> {
    entry: Option<(Position<'a>, Option<RowView<'a>>)>,
    known: bool,
}

impl<'a> View<'a> {
    fn of(inner: &'a Inner, handle: Handle) -> Self {
        let object = Object::of(&inner.region, handle);
        match object.kind() {
            Kind::Whole => Self::Whole(object.only_row()),
            _ => Self::Partition(inner.partitions.get(object.number())),
        }
    }

    fn next(&self, inner: &'a Inner, at: Position<'_>, shape: Shape<'_>) -> Next<'a> {
        let Shape { orders, reversed, .. } = shape;
        let partition = match self {
            Self::Whole(row) => {
                let row = row.map(|(clustering, row)| (Position::row(clustering), Some(row)));
                let entry = row.filter(|(position, _)| {
                    let order = position.compare(at, orders);
                    if reversed { order.is_lt() } else { order.is_gt() }
                });
                return Next { entry, known: true };
            }
            Self::Partition(partition) => partition,
        };
        let (entries, forest, region) = (&partition.entries, &inner.forest, &inner.region);
        let (mut spot, found) = entries.seek(forest, region, at, orders);
        if found && !reversed {
            spot = entries.next(forest, spot);
        }
        let known = partition.is_known_before(forest, region, spot);
        let spot = if reversed { entries.previous(forest, spot) } else { Some(spot) };
        let entry = spot.and_then(|spot| entries.at(forest, spot)).map(|handle| {
            let object = Object::of(region, handle);
            (object.position(), object.row())
        });
        let near = entry.is_some_and(|(position, _)| {
            if reversed { is_near(position, at, orders) } else { is_near(at, position, orders) }
        });
        Next { entry, known: known || near }
    }

    /// The range deletion in force behind a position, in reading order.
    fn deletion_behind(&self, at: Position<'_>, shape: Shape<'_>) -> DeletionTime {
        match self {
            Self::Whole(_) => DeletionTime::LIVE,
            Self::Partition(partition) if shape.reversed => partition.deletion_before(at, shape.orders),
            Self::Partition(partition) => partition.deletion_after(at, shape.orders),
        }
    }

    fn change_behind(&self, at: Position<'_>, shape: Shape<'_>) -> Option<&'a OwnedPosition> {
        match self {
            Self::Whole(_) => None,
            Self::Partition(partition) if shape.reversed => partition.change_before(at, shape.orders),
            Self::Partition(partition) => partition.change_behind(at, shape.orders),
        }
    }
}

/// Whether `a` comes before `b` in reading order.
fn is_before(a: Position<'_>, b: Position<'_>, shape: Shape<'_>) -> bool {
    let order = a.compare(b, shape.orders);
    if shape.reversed { order.is_gt() } else { order.is_lt() }
}

/// The ends of a slice in reading order.
fn ends(slice: &Slice, reversed: bool) -> (&OwnedPosition, &OwnedPosition) {
    if reversed { (&slice.end, &slice.start) } else { (&slice.start, &slice.end) }
}

/// The slice of that number in reading order.
fn slice_of(slices: &[Slice], number: usize, reversed: bool) -> Option<&Slice> {
    if reversed { slices.get(slices.len().checked_sub(number + 1)?) } else { slices.get(number) }
}

fn set(position: &mut OwnedPosition, to: Position<'_>) {
    position.prefix.clear();
    position.prefix.extend_from_slice(to.prefix.0);
    position.weight = to.weight;
}

/// The bound just behind a position, in reading order.
fn behind(at: Position<'_>, reversed: bool) -> Position<'_> {
    let weight = if at.weight != 0 {
        at.weight
    } else if reversed {
        -1
    } else {
        1
    };
    Position { weight, ..at }
}

/// The rest of `slices` behind a position in the slice of that number.
fn left(slices: &[Slice], number: usize, at: Position<'_>, reversed: bool) -> Slices {
    let Some(slice) = slice_of(slices, number, reversed) else { return Slices::new() };
    let at = behind(at, reversed).to_owned();
    if reversed {
        let cut = Slice { start: slice.start.clone(), end: at };
        slices[..slices.len() - number - 1].iter().cloned().chain([cut]).collect()
    } else {
        let cut = Slice { start: at, end: slice.end.clone() };
        std::iter::once(cut).chain(slices[number + 1..].iter().cloned()).collect()
    }
}

impl Place {
    /// Before the first slice.
    pub(crate) fn new() -> Self {
        let at = Position::START.to_owned();
        Self { slice: 0, entered: false, at, active: DeletionTime::LIVE }
    }

    /// The slices that are left to be read.
    pub(crate) fn left(&self, shape: Shape<'_>) -> Slices {
        let Shape { slices, reversed, .. } = shape;
        match slice_of(slices, self.slice, reversed) {
            Some(_) if self.entered => left(slices, self.slice, self.at.as_ref(), reversed),
            Some(_) if reversed => slices[..slices.len() - self.slice].iter().cloned().collect(),
            Some(_) => slices[self.slice..].iter().cloned().collect(),
            None => Slices::new(),
        }
    }

    fn next(
        &mut self,
        inner: &Inner,
        view: &View<'_>,
        shape: Shape<'_>,
        clustering: &mut Vec<u8>,
        row: &mut Vec<u8>,
    ) -> Step {
        let mut change = |position: Position<'_>, deletion: DeletionTime| {
            clustering.clear();
            clustering.extend_from_slice(position.prefix.0);
            Step::Change(position.weight, deletion)
        };
        // Bounded: each turn passes an entry, a change or a slice.
        loop {
            let Some(slice) = slice_of(shape.slices, self.slice, shape.reversed) else { return Step::End };
            let (start, end) = ends(slice, shape.reversed);
            if !self.entered {
                self.entered = true;
                set(&mut self.at, start.as_ref());
            }
            let at = self.at.as_ref();
            if !is_before(at, end.as_ref(), shape) {
                (self.entered, self.slice) = (false, self.slice + 1);
                continue;
            }
            let next = view.next(inner, at, shape);
            let entry = next.entry.filter(|(position, _)| is_before(*position, end.as_ref(), shape));
            let turn = view.change_behind(at, shape).map(OwnedPosition::as_ref);
            let turn = turn
                .filter(|turn| is_before(*turn, entry.map_or(end.as_ref(), |(position, _)| position), shape));
            let target = turn.or(entry.map(|(position, _)| position)).unwrap_or(end.as_ref());
            let near = if shape.reversed {
                is_near(target, at, shape.orders)
            } else {
                is_near(at, target, shape.orders)
            };
            if !(next.known || near) {
                if self.active.is_live() {
                    return Step::Gap;
                }
                self.active = DeletionTime::LIVE;
                return change(behind(at, shape.reversed), DeletionTime::LIVE);
            }
            // The deletion in force is reported once a cached entry lies behind the place.
            let active = view.deletion_behind(at, shape);
            if active != self.active {
                self.active = active;
                return change(behind(at, shape.reversed), active);
            }
            if let Some(turn) = turn {
                set(&mut self.at, turn);
            } else if let Some((position, found)) = entry {
                set(&mut self.at, position);
                if let Some(found) = found {
                    clustering.clear();
                    clustering.extend_from_slice(position.prefix.0);
                    row.clear();
                    row.extend_from_slice(found.as_bytes());
                    return Step::Row;
                }
            } else {
                (self.entered, self.slice) = (false, self.slice + 1);
                if !self.active.is_live() {
                    self.active = DeletionTime::LIVE;
                    return change(end.as_ref(), DeletionTime::LIVE);
                }
            }
        }
    }
}

impl TabletCache {
    /// Deletion and static row (appended to `static_row`) of a partition that is cached at least in part.
    pub(crate) fn head(
        &self,
        claim: Claim,
        sought: Sought<'_>,
        static_row: &mut Vec<u8>,
    ) -> Option<DeletionTime> {
        let mut inner = self.cache.inner.borrow_mut();
        self.cache.metrics.reads.inc();
        let found = inner.find(sought.of(claim)).filter(|_| self.is_current(claim));
        let Some(handle) = found else {
            self.cache.metrics.partition_misses.inc();
            return None;
        };
        self.cache.metrics.partition_hits.inc();
        touch(&mut inner.region, handle);
        let head = inner.head(handle);
        static_row.extend(head.static_row.into_iter().flat_map(|row| row.as_bytes()));
        Some(head.deletion)
    }

    /// The next element of a partition; [`Step::Gap`] also if the claim is not current any more.
    pub(crate) fn step(
        &self,
        claim: Claim,
        sought: Sought<'_>,
        place: &mut Place,
        shape: Shape<'_>,
        clustering: &mut Vec<u8>,
        row: &mut Vec<u8>,
    ) -> Step {
        let mut inner = self.cache.inner.borrow_mut();
        let found = inner.find(sought.of(claim)).filter(|_| self.is_current(claim));
        let step = match found {
            Some(handle) => {
                let view = View::of(&inner, handle);
                place.next(&inner, &view, shape, clustering, row)
            }
            None if place.active.is_live() => Step::Gap,
            None => {
                place.active = DeletionTime::LIVE;
                clustering.clear();
                let at = behind(place.at.as_ref(), shape.reversed);
                clustering.extend_from_slice(at.prefix.0);
                Step::Change(at.weight, DeletionTime::LIVE)
            }
        };
        match step {
            Step::Row => {
                self.cache.metrics.row_hits.inc();
                self.cache.metrics.met(RowView::trusted(row));
                if let Some(handle) = found {
                    inner.touch_entry(handle, Position::row(clustering), shape.orders);
                }
            }
            Step::Gap => self.cache.metrics.reads_with_misses.inc(),
            Step::Change(_, deletion) if !deletion.is_live() => {
                self.cache.metrics.range_tombstone_reads.inc();
            }
            _ => {}
        }
        step
    }

    /// Hands the rows of a partition to `visit`, until it wants no more, a gap comes or another task should
    /// run. Behind the last row it is called without one. A partition with range tombstones is left to a
    /// merge.
    #[inline]
    pub(crate) fn walk(
        &self,
        claim: Claim,
        sought: Sought<'_>,
        shape: Shape<'_>,
        visit: &mut Visit<'_>,
    ) -> Walked {
        let mut inner = self.cache.inner.borrow_mut();
        let Some(handle) = inner.find(sought.of(claim)) else { return Walked::Unknown };
        touch(&mut inner.region, handle);
        let object = Object::of(&inner.region, handle);
        let metrics = &self.cache.metrics;
        if object.kind() == Kind::Whole {
            metrics.reads.inc();
            metrics.partition_hits.inc();
            let head = Head { deletion: object.deletion(), static_row: None };
            if let Some((clustering, row)) = object.only_row()
                && shape.slices.iter().any(|slice| slice.contains(clustering, shape.orders))
            {
                metrics.row_hits.inc();
                metrics.met(row);
                let flow = visit(head, Some((clustering, row)));
                if flow != Flow::Continue {
                    return Walked::Done(flow);
                }
            }
            return Walked::Done(visit(head, None));
        }
        let number = object.number();
        if !inner.partitions.get(number).tombstones.is_empty() {
            return Walked::Unknown;
        }
        metrics.reads.inc();
        metrics.partition_hits.inc();
        let walked = inner.walk_entries(handle, number, shape, &mut |head, row| {
            if let Some((_, row)) = row {
                metrics.row_hits.inc();
                metrics.met(row);
            }
            visit(head, row)
        });
        if let Walked::Left(_) = walked {
            metrics.reads_with_misses.inc();
        }
        walked
    }
}

impl Inner {
    fn head(&self, handle: Handle) -> Head<'_> {
        let object = Object::of(&self.region, handle);
        if object.kind() == Kind::Whole {
            return Head { deletion: object.deletion(), static_row: None };
        }
        let partition = self.partitions.get(object.number());
        let row = partition.static_row;
        let static_row = (!row.is_none()).then(|| Object::of(&self.region, row).static_row());
        Head { deletion: partition.deletion, static_row }
    }

    fn touch_entry(&mut self, handle: Handle, position: Position<'_>, orders: &[ClusteringOrder]) {
        let object = Object::of(&self.region, handle);
        if object.kind() == Kind::Partition {
            let entries = self.partitions.get(object.number()).entries;
            let (spot, found) = entries.seek(&self.forest, &self.region, position, orders);
            if let Some(entry) = entries.at(&self.forest, spot).filter(|_| found) {
                touch(&mut self.region, entry);
            }
        }
    }

    fn walk_entries(
        &mut self,
        handle: Handle,
        number: u32,
        shape: Shape<'_>,
        visit: &mut Visit<'_>,
    ) -> Walked {
        let Shape { orders, slices, reversed } = shape;
        let mut rows = 0;
        for turn in 0..slices.len() {
            let Some(slice) = slice_of(slices, turn, reversed) else { break };
            let (start, end) = ends(slice, reversed);
            // Entries are not added or removed below, so a copy of their list is valid.
            let partition = self.partitions.get(number);
            let entries = partition.entries;
            let (mut spot, found) = entries.seek(&self.forest, &self.region, start.as_ref(), orders);
            if found && !reversed {
                spot = entries.next(&self.forest, spot);
            }
            let mut last = None;
            loop {
                let partition = self.partitions.get(number);
                let known = partition.is_known_before(&self.forest, &self.region, spot);
                let candidate: Option<Spot> =
                    if reversed { entries.previous(&self.forest, spot) } else { Some(spot) };
                let entry = candidate.and_then(|spot| entries.at(&self.forest, spot));
                let at = match last {
                    Some(last) => Object::of(&self.region, last).position(),
                    None => start.as_ref(),
                };
                let object = entry.map(|entry| Object::of(&self.region, entry));
                let object = object.filter(|object| is_before(object.position(), end.as_ref(), shape));
                let target = object.map_or(end.as_ref(), Object::position);
                let near =
                    || if reversed { is_near(target, at, orders) } else { is_near(at, target, orders) };
                if !known && !near() {
                    return Walked::Left(left(slices, turn, at, reversed));
                }
                let (Some(entry), Some(object)) = (entry, object) else { break };
                last = Some(entry);
                if object.row().is_some() {
                    touch(&mut self.region, entry);
                    let object = Object::of(&self.region, entry);
                    let row = object.row().map(|row| (object.position().prefix.0, row));
                    let flow = visit(self.head(handle), row);
                    if flow != Flow::Continue {
                        return Walked::Done(flow);
                    }
                    rows += 1;
                    if rows % ROWS_PER_LOOK == 0 && reactor::need_preempt() {
                        let at = Object::of(&self.region, entry).position();
                        return Walked::Left(left(slices, turn, at, reversed));
                    }
                }
                spot = match candidate {
                    Some(candidate) if reversed => candidate,
                    Some(candidate) => entries.next(&self.forest, candidate),
                    None => break,
                };
            }
        }
        Walked::Done(visit(self.head(handle), None))
    }
}
