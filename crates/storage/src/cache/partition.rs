//! A partition of more than one object: its head, and its entries in clustering order.
//!
//! Up to [`FEW_MAX`] entries stand in the record itself, more in a tree. The entry behind a gap says whether
//! the gap is complete (the cache has every row in it); for the gap behind the last entry the record does.
//! Invariant: an entry's object names its partition's number, and is in the record or its tree until it is
//! freed.

use memory::{Budget, Cursor, Forest, Handle, Kind, Region, Tree};
use model::clustering::{ClusteringOrder, OwnedPosition, Position};
use model::tombstones::{RangeTombstone, RangeTombstones};
use model::{Clustering, DeletionTime};

use super::object::{Object, set_continuous};
use crate::memtable::hint;

/// Entries kept without a tree.
pub(super) const FEW_MAX: usize = 6;
/// Records made at a time.
const CHUNK: usize = 64;
/// Bytes charged for one range tombstone besides its prefixes.
const TOMBSTONE_BYTES: usize = size_of::<RangeTombstone>();

/// The cached contents of a partition of more than one object.
#[derive(Debug)]
pub(super) struct Partition {
    /// Its object in the index; [`Handle::NONE`] once it is out of the index and waits for its entries to be
    /// swept.
    pub(super) handle: Handle,
    pub(super) owner: u32,
    pub(super) deletion: DeletionTime,
    /// [`Handle::NONE`]: the partition has no static row.
    pub(super) static_row: Handle,
    pub(super) tombstones: RangeTombstones,
    /// Bytes charged for the tombstones.
    pub(super) tombstone_bytes: usize,
    pub(super) entries: Entries,
    /// Whether the gap behind the last entry is complete.
    pub(super) to_end: bool,
    /// Whether the partition was taken out of the index because it became stale.
    pub(super) untrue: bool,
}

/// Handles of entries in clustering order.
#[derive(Debug, Clone, Copy)]
pub(super) enum Entries {
    Few { count: u8, handles: [u32; FEW_MAX] },
    Many(Tree),
}

/// A place among entries, valid until an entry is added or removed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Spot {
    Few(u8),
    Many(Cursor),
}

impl Entries {
    pub(super) const EMPTY: Entries = Entries::Few { count: 0, handles: [0; FEW_MAX] };

    pub(super) fn len(&self) -> usize {
        match self {
            Entries::Few { count, .. } => usize::from(*count),
            Entries::Many(tree) => tree.len(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry at a place; `None` behind the last one.
    #[inline]
    pub(super) fn at(&self, forest: &Forest, spot: Spot) -> Option<Handle> {
        match (self, spot) {
            (Entries::Few { count, handles }, Spot::Few(at)) => {
                (at < *count).then(|| Handle(handles[usize::from(at)]))
            }
            (_, Spot::Many(cursor)) => forest.value(cursor).map(Handle),
            (Entries::Many(_), Spot::Few(_)) => None,
        }
    }

    #[inline]
    pub(super) fn next(&self, forest: &Forest, spot: Spot) -> Spot {
        match spot {
            Spot::Few(at) => Spot::Few(at.saturating_add(1)),
            Spot::Many(cursor) => Spot::Many(forest.next(cursor)),
        }
    }

    /// The place before; `None` at the first entry.
    pub(super) fn previous(&self, forest: &Forest, spot: Spot) -> Option<Spot> {
        match (self, spot) {
            (_, Spot::Few(at)) => at.checked_sub(1).map(Spot::Few),
            (Entries::Many(tree), Spot::Many(cursor)) => forest.previous(tree, cursor).map(Spot::Many),
            (Entries::Few { .. }, Spot::Many(_)) => None,
        }
    }

    /// The first entry not before `position`, and whether it is at `position`.
    #[inline]
    pub(super) fn seek(
        &self,
        forest: &Forest,
        region: &Region,
        position: Position<'_>,
        orders: &[ClusteringOrder],
    ) -> (Spot, bool) {
        let compare = |at: u32| Object::of(region, Handle(at)).position().compare(position, orders);
        match self {
            Entries::Few { count, handles } => {
                for at in 0..*count {
                    let order = compare(handles[usize::from(at)]);
                    if order.is_ge() {
                        return (Spot::Few(at), order.is_eq());
                    }
                }
                (Spot::Few(*count), false)
            }
            Entries::Many(tree) => {
                let (cursor, found) = forest.lower_bound(tree, hint::of_position(position, orders), compare);
                (Spot::Many(cursor), found)
            }
        }
    }

    /// Adds an entry at a position without one.
    pub(super) fn insert(
        &mut self,
        forest: &mut Forest,
        region: &Region,
        handle: Handle,
        orders: &[ClusteringOrder],
    ) {
        let position = Object::of(region, handle).position();
        if let Entries::Few { count, handles } = self {
            let before =
                |at: &u32| Object::of(region, Handle(*at)).position().compare(position, orders).is_lt();
            let used = usize::from(*count);
            let at = handles[..used].iter().take_while(|at| before(at)).count();
            if used < FEW_MAX {
                handles.copy_within(at..used, at + 1);
                handles[at] = handle.0;
                *count += 1;
                return;
            }
            let mut tree = Tree::EMPTY;
            for old in handles {
                plant(forest, &mut tree, region, Handle(*old), orders);
            }
            *self = Entries::Many(tree);
        }
        if let Entries::Many(tree) = self {
            plant(forest, tree, region, handle, orders);
        }
    }

    /// Removes an entry; its object must still exist.
    pub(super) fn remove(
        &mut self,
        forest: &mut Forest,
        region: &Region,
        handle: Handle,
        orders: &[ClusteringOrder],
    ) {
        match self {
            Entries::Few { count, handles } => {
                let used = usize::from(*count);
                let at = handles[..used].iter().position(|at| *at == handle.0);
                let at = at.expect("an entry is in its partition");
                handles.copy_within(at + 1..used, at);
                *count -= 1;
            }
            Entries::Many(tree) => {
                let position = Object::of(region, handle).position();
                let removed = forest.remove(tree, hint::of_position(position, orders), |at| {
                    Object::of(region, Handle(at)).position().compare(position, orders)
                });
                assert_eq!(removed, Some(handle.0), "an entry is in its partition");
                if tree.is_empty() {
                    *self = Entries::EMPTY;
                }
            }
        }
    }
}

fn plant(forest: &mut Forest, tree: &mut Tree, region: &Region, handle: Handle, orders: &[ClusteringOrder]) {
    let position = Object::of(region, handle).position();
    forest.insert(tree, hint::of_position(position, orders), handle.0, |at| {
        Object::of(region, Handle(at)).position().compare(position, orders)
    });
}

impl Partition {
    pub(super) fn new(handle: Handle, owner: u32) -> Self {
        Self {
            handle,
            owner,
            deletion: DeletionTime::LIVE,
            static_row: Handle::NONE,
            tombstones: RangeTombstones::new(),
            tombstone_bytes: 0,
            entries: Entries::EMPTY,
            to_end: false,
            untrue: false,
        }
    }

    /// Whether the gap before the entry at `spot` is complete; for the spot behind the last entry, the gap up
    /// to the end.
    #[inline]
    pub(super) fn is_known_before(&self, forest: &Forest, region: &Region, spot: Spot) -> bool {
        match self.entries.at(forest, spot) {
            Some(handle) => Object::of(region, handle).is_continuous(),
            None => self.to_end,
        }
    }

    /// Marks the gap before the entry at `spot`, or the gap behind the last one, as complete or not.
    pub(super) fn set_known_before(&mut self, forest: &Forest, region: &mut Region, spot: Spot, known: bool) {
        match self.entries.at(forest, spot) {
            Some(handle) => set_continuous(region, handle, known),
            None => self.to_end = known,
        }
    }

    /// Adds range tombstones and charges them.
    pub(super) fn add_tombstones(
        &mut self,
        budget: &Budget,
        added: impl Iterator<Item = RangeTombstone>,
        orders: &[ClusteringOrder],
    ) {
        added.for_each(|tombstone| self.tombstones.add(tombstone, orders));
        let bytes = self
            .tombstones
            .iter()
            .map(|t| TOMBSTONE_BYTES + t.start.prefix.capacity() + t.end.prefix.capacity())
            .sum();
        budget.charge(Kind::Clean, bytes);
        budget.refund(Kind::Clean, self.tombstone_bytes);
        self.tombstone_bytes = bytes;
    }

    /// Drops the range tombstones and refunds their bytes.
    pub(super) fn drop_tombstones(&mut self, budget: &Budget) {
        budget.refund(Kind::Clean, std::mem::take(&mut self.tombstone_bytes));
        self.tombstones = RangeTombstones::new();
    }

    /// The range deletion in force just behind `position`.
    pub(super) fn deletion_after(&self, position: Position<'_>, orders: &[ClusteringOrder]) -> DeletionTime {
        match self.first_ending_behind(position, orders) {
            Some(range) if range.start.as_ref().compare(position, orders).is_le() => range.deletion,
            _ => DeletionTime::LIVE,
        }
    }

    /// The range deletion in force just before `position`.
    pub(super) fn deletion_before(&self, position: Position<'_>, orders: &[ClusteringOrder]) -> DeletionTime {
        match self.last_starting_before(position, orders) {
            Some(range) if range.end.as_ref().compare(position, orders).is_ge() => range.deletion,
            _ => DeletionTime::LIVE,
        }
    }

    /// The first place behind `position` where the range deletion in force may change.
    pub(super) fn change_behind(
        &self,
        position: Position<'_>,
        orders: &[ClusteringOrder],
    ) -> Option<&OwnedPosition> {
        let range = self.first_ending_behind(position, orders)?;
        let inside = range.start.as_ref().compare(position, orders).is_le();
        Some(if inside { &range.end } else { &range.start })
    }

    /// The last place before `position` where the range deletion in force may change.
    pub(super) fn change_before(
        &self,
        position: Position<'_>,
        orders: &[ClusteringOrder],
    ) -> Option<&OwnedPosition> {
        let range = self.last_starting_before(position, orders)?;
        let inside = range.end.as_ref().compare(position, orders).is_ge();
        Some(if inside { &range.start } else { &range.end })
    }

    fn first_ending_behind(
        &self,
        position: Position<'_>,
        orders: &[ClusteringOrder],
    ) -> Option<&RangeTombstone> {
        let all = self.tombstones.iter().as_slice();
        all.get(all.partition_point(|range| range.end.as_ref().compare(position, orders).is_le()))
    }

    fn last_starting_before(
        &self,
        position: Position<'_>,
        orders: &[ClusteringOrder],
    ) -> Option<&RangeTombstone> {
        let all = self.tombstones.iter().as_slice();
        let behind = all.partition_point(|range| range.start.as_ref().compare(position, orders).is_lt());
        all.get(behind.checked_sub(1)?)
    }
}

/// Whether no row can stand between two positions, of which `a` is not behind `b`.
///
/// Returns false if equal bytes do not suffice to decide.
pub(super) fn is_near(a: Position<'_>, b: Position<'_>, orders: &[ClusteringOrder]) -> bool {
    a.prefix == b.prefix && (a.weight == b.weight || b.weight - a.weight == 1 && is_full(a.prefix, orders))
}

/// Whether a prefix names one row.
pub(super) fn is_full(prefix: Clustering<'_>, orders: &[ClusteringOrder]) -> bool {
    prefix.components().count() == orders.len()
}

/// All records, by number.
#[derive(Debug)]
pub(super) struct Partitions {
    budget: Budget,
    chunks: Vec<Vec<Option<Partition>>>,
    free: Vec<u32>,
}

impl Partitions {
    pub(super) fn new(budget: Budget) -> Self {
        Self { budget, chunks: Vec::new(), free: Vec::new() }
    }

    /// Most bytes that adding one takes from the budget.
    pub(super) fn growth(&self) -> usize {
        if self.free.is_empty() { CHUNK * size_of::<Option<Partition>>() } else { 0 }
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<Option<Partition>>()
    }

    pub(super) fn add(&mut self, partition: Partition) -> u32 {
        if self.free.is_empty() {
            self.budget.charge(Kind::Clean, CHUNK * size_of::<Option<Partition>>());
            let first = (self.chunks.len() * CHUNK) as u32;
            self.chunks.push((0..CHUNK).map(|_| None).collect());
            self.free.extend((first..first + CHUNK as u32).rev());
        }
        let number = self.free.pop().expect("a free record was made");
        self.chunks[number as usize / CHUNK][number as usize % CHUNK] = Some(partition);
        number
    }

    pub(super) fn remove(&mut self, number: u32) {
        let mut gone = self.chunks[number as usize / CHUNK][number as usize % CHUNK].take();
        if let Some(partition) = &mut gone {
            partition.drop_tombstones(&self.budget);
        }
        self.free.push(number);
    }

    #[inline]
    pub(super) fn get(&self, number: u32) -> &Partition {
        let record = &self.chunks[number as usize / CHUNK][number as usize % CHUNK];
        record.as_ref().expect("a partition that is named is there")
    }

    pub(super) fn get_mut(&mut self, number: u32) -> &mut Partition {
        let record = &mut self.chunks[number as usize / CHUNK][number as usize % CHUNK];
        record.as_mut().expect("a partition that is named is there")
    }
}

impl Drop for Partitions {
    fn drop(&mut self) {
        let tombstones: usize =
            self.chunks.iter().flatten().flatten().map(|partition| partition.tombstone_bytes).sum();
        self.budget.refund(Kind::Clean, self.held_bytes() + tombstones);
    }
}
