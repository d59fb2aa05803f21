//! Populates the cache with the rows that a reader of all files of a tablet found.
//!
//! A [`Learner`] follows the reader and hands over batches: the rows and range tombstones between two
//! positions, and nothing else is there. Each batch counts only while the reader's claim is current, so that
//! nothing overwrites what a flush has merged since.

use std::ops::Range;
use std::rc::Rc;

use memory::Handle;
use model::clustering::{ClusteringOrder, OwnedPosition, Position, Slice};
use model::tombstones::RangeTombstone;
use model::{Clustering, DeletionTime, Table, Token, Unfiltered};

use super::object::{
    Kind, Name, Object, entry_bytes, set_continuous, store_entry, store_partition, store_static, store_whole,
    whole_bytes,
};
use super::partition::{FEW_MAX, Partition, is_full, is_near};
use super::{Claim, Inner, Sought, TOMBSTONES_MAX, TabletCache};
use crate::read::Slices;

/// Rows of a batch.
const BATCH_ROWS: usize = 64;
/// Bytes of rows at which a batch ends.
const BATCH_BYTES: usize = 32 << 10;
/// A batch is no larger than this fraction of all memory: one part in so many.
const BATCH_PART: usize = 128;
/// Bytes of an object besides its contents: header and padding.
const OBJECT_BYTES: usize = 16;

/// All rows and range tombstones between two positions.
#[derive(Debug)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    rows: Vec<(Range<usize>, Range<usize>)>,
    pub(super) tombstones: Vec<RangeTombstone>,
}

impl Batch {
    pub(super) fn new() -> Self {
        Self { bytes: Vec::new(), rows: Vec::new(), tombstones: Vec::new() }
    }

    pub(super) fn push(&mut self, clustering: &[u8], row: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(clustering);
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(row);
        self.rows.push((start..middle, middle..self.bytes.len()));
    }

    pub(super) fn is_full(&self, total_limit: usize) -> bool {
        self.rows.len() >= BATCH_ROWS
            || self.tombstones.len() >= BATCH_ROWS
            || self.bytes.len() >= BATCH_BYTES.min(total_limit / BATCH_PART)
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
        self.tombstones.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Clustering and contents of the row with that number.
    pub(super) fn row(&self, number: usize) -> (&[u8], &[u8]) {
        let (clustering, row) = self.rows[number].clone();
        (&self.bytes[clustering], &self.bytes[row])
    }
}

/// Deletion and static row of a partition, as its reader found them.
#[derive(Debug, Clone)]
pub(super) struct KnownHead {
    pub(super) deletion: DeletionTime,
    pub(super) static_row: Vec<u8>,
}

/// Follows a reader of one partition and populates the cache.
pub(crate) struct Learner {
    cache: Rc<TabletCache>,
    claim: Claim,
    table: Rc<Table>,
    token: Token,
    key: Vec<u8>,
    head: KnownHead,
    slices: Slices,
    reversed: bool,
    /// Number of the current slice, in reading order.
    slice: usize,
    /// The batch has everything behind this position up to `last`.
    from: OwnedPosition,
    last: OwnedPosition,
    batch: Batch,
    active: DeletionTime,
    active_from: OwnedPosition,
    /// Whether the source is a memtable that was flushed.
    of_flush: bool,
}

impl Learner {
    /// For a reader of `slices` whose claim was taken together with its files.
    #[allow(clippy::too_many_arguments, reason = "all of what a reader knows of its partition")]
    pub(crate) fn new(
        cache: &Rc<TabletCache>,
        claim: Claim,
        table: &Rc<Table>,
        (token, key): (Token, &[u8]),
        (deletion, static_row): (DeletionTime, Vec<u8>),
        slices: Slices,
        reversed: bool,
    ) -> Self {
        let first = if reversed { slices.last() } else { slices.first() };
        let from = first.map(|slice| if reversed { slice.end.clone() } else { slice.start.clone() });
        let from = from.unwrap_or(Position::START.to_owned());
        Self {
            cache: Rc::clone(cache),
            claim,
            table: Rc::clone(table),
            token,
            key: key.to_vec(),
            head: KnownHead { deletion, static_row },
            slices,
            reversed,
            slice: 0,
            last: from.clone(),
            active_from: from.clone(),
            from,
            batch: Batch::new(),
            active: DeletionTime::LIVE,
            of_flush: false,
        }
    }

    /// For the walk of a flush, which reads memory: its rows do not count as misses.
    pub(crate) fn of_flush(mut self) -> Self {
        self.of_flush = true;
        self
    }

    /// Takes a row or a change of the range deletion that the reader found.
    pub(crate) fn unfiltered(&mut self, found: Unfiltered<'_>) {
        match found {
            Unfiltered::Row { clustering, row } => self.row(clustering, row.as_bytes()),
            Unfiltered::Change { position, deletion } => self.change(position, deletion),
        }
    }

    fn current(&self) -> Option<&Slice> {
        if self.reversed {
            self.slices.get(self.slices.len().checked_sub(self.slice + 1)?)
        } else {
            self.slices.get(self.slice)
        }
    }

    /// Takes a row that the reader found.
    pub(crate) fn row(&mut self, clustering: &[u8], row: &[u8]) {
        if !self.of_flush {
            self.cache.cache.metrics.row_misses.inc();
        }
        self.reach(Position::row(clustering));
        self.batch.push(clustering, row);
        self.look();
    }

    /// Takes a change of the range deletion in force that the reader found.
    pub(crate) fn change(&mut self, position: Position<'_>, deletion: DeletionTime) {
        self.reach(position);
        self.end_range(position);
        self.active = deletion;
        self.look();
    }

    /// Ends all slices: the reader came to the end of them.
    pub(crate) fn end(&mut self) {
        while self.current().is_some() {
            self.end_slice();
        }
    }

    /// Closes the slices before a position, and makes the position the last one read.
    fn reach(&mut self, position: Position<'_>) {
        while let Some(slice) = self.current() {
            let end = if self.reversed { &slice.start } else { &slice.end };
            let order = position.compare(end.as_ref(), self.table.clustering_orders());
            let beyond = if self.reversed { order.is_lt() } else { order.is_gt() };
            if !beyond {
                break;
            }
            self.end_slice();
        }
        let weight = match (position.weight, self.reversed) {
            (0, false) => 1,
            (0, true) => -1,
            (weight, _) => weight,
        };
        self.last.prefix.clear();
        self.last.prefix.extend_from_slice(position.prefix.0);
        self.last.weight = weight;
    }

    fn end_slice(&mut self) {
        let Some(slice) = self.current() else { return };
        let end = if self.reversed { slice.start.clone() } else { slice.end.clone() };
        self.last = end;
        self.hand_over();
        self.slice += 1;
        if let Some(next) = self.current() {
            let start = if self.reversed { next.end.clone() } else { next.start.clone() };
            self.active_from = start.clone();
            self.from = start;
        }
    }

    /// Adds the range deletion in force, up to a position, to the batch.
    fn end_range(&mut self, position: Position<'_>) {
        let to = position.to_owned();
        let from = std::mem::replace(&mut self.active_from, to.clone());
        if !self.active.is_live() {
            let (start, end) = if self.reversed { (to, from) } else { (from, to) };
            self.batch.tombstones.push(RangeTombstone { start, end, deletion: self.active });
        }
    }

    fn look(&mut self) {
        if self.batch.is_full(self.cache.cache.total_limit()) {
            self.hand_over();
        }
    }

    /// Hands the batch over to the cache: everything found up to `last`.
    fn hand_over(&mut self) {
        let last = self.last.clone();
        self.end_range(last.as_ref());
        let from = std::mem::replace(&mut self.from, last);
        if self.cache.is_current(self.claim) {
            let (low, high) = if self.reversed { (&self.last, &from) } else { (&from, &self.last) };
            if self.reversed {
                self.batch.rows.reverse();
            }
            let orders = self.table.clustering_orders();
            let sought = Sought { token: self.token, key: &self.key, orders };
            let name = sought.of(self.claim);
            let mut inner = self.cache.cache.inner.borrow_mut();
            let learned = Known { low: low.as_ref(), high: high.as_ref(), batch: &self.batch };
            inner.learn(name, orders, &self.head, &learned);
            drop(inner);
            self.cache.cache.count();
        }
        self.batch.clear();
    }
}

impl Drop for Learner {
    /// A reader that stops early hands over the rows it has read.
    fn drop(&mut self) {
        if self.current().is_some() && self.from != self.last {
            self.hand_over();
        }
    }
}

/// A batch, and the two positions between which it is complete.
struct Known<'b> {
    low: Position<'b>,
    high: Position<'b>,
    batch: &'b Batch,
}

impl Known<'_> {
    /// Whether this is a partition that fits one object.
    fn is_whole(&self) -> bool {
        self.low == Position::START
            && self.high == Position::END
            && self.batch.len() <= 1
            && self.batch.tombstones.is_empty()
    }
}

impl Inner {
    /// Most bytes that `objects` of `bytes` in all take from the budget, most of them entries of one
    /// partition.
    pub(super) fn growth(&self, partition: Option<Handle>, objects: usize, bytes: usize) -> usize {
        let number = partition.map(|handle| Object::of(&self.region, handle));
        let number = number.filter(|object| object.kind() == Kind::Partition).map(Object::number);
        let entries = number.map_or(0, |number| self.partitions.get(number).entries.len());
        let forest = if entries + objects > FEW_MAX { self.forest.growth(objects + FEW_MAX) } else { 0 };
        let shared = bytes + objects * OBJECT_BYTES;
        let region = shared + 2 * self.region.segment_bytes() + self.region.handles_growth(objects);
        region + forest + self.partitions.growth() + self.index.growth()
    }

    /// Most bytes that a partition in one object takes from the budget.
    pub(super) fn whole_growth(&self, key: usize, clustering: usize, row: usize) -> usize {
        self.region.growth(whole_bytes(key, clustering, row)) + self.index.growth()
    }

    /// Caches that a partition is empty, as no file has it.
    pub(super) fn learn_absent(&mut self, name: Name<'_>, orders: &[ClusteringOrder]) {
        let head = KnownHead { deletion: DeletionTime::LIVE, static_row: Vec::new() };
        if let Some(handle) = self.find(name)
            && Object::of(&self.region, handle).kind() == Kind::Partition
        {
            self.remove(handle);
        }
        self.learn_all(name, orders, &head, &Batch::new());
    }

    /// Caches a partition as complete and empty.
    pub(super) fn learn_all(
        &mut self,
        name: Name<'_>,
        orders: &[ClusteringOrder],
        head: &KnownHead,
        batch: &Batch,
    ) {
        self.learn(name, orders, head, &Known { low: Position::START, high: Position::END, batch });
    }

    fn learn(&mut self, name: Name<'_>, orders: &[ClusteringOrder], head: &KnownHead, known: &Known<'_>) {
        let batch = known.batch;
        let tombstones: usize =
            batch.tombstones.iter().map(|t| t.start.prefix.len() + t.end.prefix.len()).sum();
        let tombstones = tombstones + batch.tombstones.len() * 2 * size_of::<RangeTombstone>();
        let is_whole = known.is_whole() && head.static_row.is_empty();
        let bytes = if is_whole {
            let (clustering, row) = if batch.len() == 1 { batch.row(0) } else { Default::default() };
            self.whole_growth(name.key.len(), clustering.len(), row.len())
        } else {
            let heads = whole_bytes(name.key.len(), 0, 0) + head.static_row.len() + 8;
            let bounds = known.low.prefix.0.len() + known.high.prefix.0.len();
            let rows = batch.bytes.len() + entry_bytes(0, 0) * (batch.len() + 3);
            self.growth(self.find(name), batch.len() + 5, heads + bounds + rows) + tombstones
        };
        if !self.make_room(bytes) {
            return;
        }
        let number = match self.find(name) {
            Some(handle) if Object::of(&self.region, handle).kind() == Kind::Whole => return,
            Some(handle) => Object::of(&self.region, handle).number(),
            None if is_whole => {
                let row = (batch.len() == 1).then(|| batch.row(0));
                let handle = store_whole(&mut self.region, None, name, head.deletion, row);
                self.index.insert(&mut self.region, handle);
                self.count_partition(name.owner, true);
                self.rows += u64::from(row.is_some());
                self.tally.inserted_partitions += 1;
                self.tally.inserted_rows += u64::from(row.is_some());
                return;
            }
            None => self.add_partition(name, head),
        };
        self.add_known(number, orders, known);
    }

    fn add_partition(&mut self, name: Name<'_>, head: &KnownHead) -> u32 {
        let number = self.partitions.add(Partition::new(Handle::NONE, name.owner));
        let handle = store_partition(&mut self.region, None, name, number);
        self.index.insert(&mut self.region, handle);
        self.count_partition(name.owner, true);
        self.tally.inserted_partitions += 1;
        let static_row = if head.static_row.is_empty() {
            Handle::NONE
        } else {
            store_static(&mut self.region, Handle::NONE, number, &head.static_row)
        };
        let partition = self.partitions.get_mut(number);
        partition.handle = handle;
        partition.deletion = head.deletion;
        partition.static_row = static_row;
        number
    }

    fn add_known(&mut self, number: u32, orders: &[ClusteringOrder], known: &Known<'_>) {
        let Known { low, high, batch } = *known;
        let partition = self.partitions.get_mut(number);
        partition.add_tombstones(&self.budget, batch.tombstones.iter().cloned(), orders);
        if partition.tombstones.len() > TOMBSTONES_MAX {
            let head = partition.handle;
            self.tally.evicted_partitions += 1;
            self.remove(head);
            return;
        }
        let first = (batch.len() > 0).then(|| Position::row(batch.row(0).0));
        let is_point = low.prefix == high.prefix && low.weight < high.weight && is_full(low.prefix, orders);
        let anchored = self.anchor(number, orders, low, first, is_point);
        for at in 0..batch.len() {
            let (clustering, row) = batch.row(at);
            self.add_entry(number, orders, Position::row(clustering), row);
        }
        if is_point && batch.len() == 0 {
            self.add_entry(number, orders, Position { prefix: Clustering(low.prefix.0), weight: 0 }, &[]);
        }
        let last = self.end_known(number, orders, high);
        self.join(number, orders, low, last, anchored);
    }

    /// Makes sure that the range that begins at `low` has an entry at its beginning, if it needs one. Returns
    /// whether the gap up to the next entry is complete from there.
    fn anchor(
        &mut self,
        number: u32,
        orders: &[ClusteringOrder],
        low: Position<'_>,
        first: Option<Position<'_>>,
        is_point: bool,
    ) -> bool {
        if low == Position::START {
            return true;
        }
        let partition = self.partitions.get(number);
        let (forest, region) = (&self.forest, &self.region);
        let (spot, found) = partition.entries.seek(forest, region, low, orders);
        if found || partition.is_known_before(forest, region, spot) {
            return true;
        }
        let before = partition.entries.previous(forest, spot);
        let before = before.and_then(|spot| partition.entries.at(forest, spot));
        if before.is_some_and(|before| is_near(Object::of(region, before).position(), low, orders)) {
            return true;
        }
        if is_point || first.is_some_and(|first| is_near(low, first, orders)) {
            return false;
        }
        self.add_entry(number, orders, low, &[]);
        true
    }

    /// Adds an entry at a position without one; if the gap it splits is complete, both parts stay so.
    pub(super) fn add_entry(
        &mut self,
        number: u32,
        orders: &[ClusteringOrder],
        position: Position<'_>,
        row: &[u8],
    ) {
        let partition = self.partitions.get(number);
        let (spot, found) = partition.entries.seek(&self.forest, &self.region, position, orders);
        if found {
            return;
        }
        let known = partition.is_known_before(&self.forest, &self.region, spot);
        let handle = store_entry(&mut self.region, number, position, row, known);
        let partition = self.partitions.get_mut(number);
        partition.entries.insert(&mut self.forest, &self.region, handle, orders);
        self.rows += u64::from(!row.is_empty());
        self.tally.inserted_rows += u64::from(!row.is_empty());
    }

    /// Makes sure that the range that ends at `high` has an entry to end at. Returns the last entry whose gap
    /// before it becomes complete, `None` for the partition's end.
    fn end_known(
        &mut self,
        number: u32,
        orders: &[ClusteringOrder],
        high: Position<'_>,
    ) -> Option<OwnedPosition> {
        if high == Position::END {
            return None;
        }
        let partition = self.partitions.get(number);
        let (forest, region) = (&self.forest, &self.region);
        let (spot, found) = partition.entries.seek(forest, region, high, orders);
        let position = |handle: Handle| Object::of(region, handle).position();
        let behind = partition.entries.at(forest, spot).map(position);
        if let Some(behind) = behind.filter(|behind| is_near(high, *behind, orders)) {
            return Some(behind.to_owned());
        }
        let before = partition.entries.previous(forest, spot);
        let before = before.and_then(|spot| partition.entries.at(forest, spot)).map(position);
        let is_told = found
            || partition.is_known_before(forest, region, spot)
            || before.is_some_and(|before| is_near(before, high, orders));
        if !is_told {
            self.add_entry(number, orders, high, &[]);
        }
        Some(high.to_owned())
    }

    /// Marks every gap between `low` and `last` as complete; the first one only if it is `anchored`.
    fn join(
        &mut self,
        number: u32,
        orders: &[ClusteringOrder],
        low: Position<'_>,
        last: Option<OwnedPosition>,
        anchored: bool,
    ) {
        let entries = self.partitions.get(number).entries;
        let (mut spot, found) = entries.seek(&self.forest, &self.region, low, orders);
        if found {
            spot = entries.next(&self.forest, spot);
        }
        let mut known = anchored;
        while let Some(handle) = entries.at(&self.forest, spot) {
            let position = Object::of(&self.region, handle).position();
            if last.as_ref().is_some_and(|last| position.compare(last.as_ref(), orders).is_gt()) {
                return;
            }
            if known {
                set_continuous(&mut self.region, handle, true);
            }
            known = true;
            spot = entries.next(&self.forest, spot);
        }
        if last.is_none() && known {
            self.partitions.get_mut(number).to_end = true;
        }
    }
}

impl TabletCache {
    /// Caches that no file has the partition.
    pub(crate) fn learn_absent(&self, claim: Claim, sought: Sought<'_>) {
        if self.is_current(claim) {
            self.cache.inner.borrow_mut().learn_absent(sought.of(claim), sought.orders);
            self.cache.count();
        }
    }
}
