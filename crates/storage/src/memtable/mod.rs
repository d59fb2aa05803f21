//! The newest writes of one tablet, in memory, ordered by token and clustering.
//!
//! Keys, rows and range tombstones are flat bytes in a [`Region`]; a partition of one row needs no tree. A
//! memtable is dropped as a whole when its table file is durable. Invariant: all memory that grows with the
//! writes is charged, as part of the region, of a forest, or as a record.
//!
//! **A read of a partition sees all of a mutation or nothing of it.** A mutation is applied without a pause,
//! or in versions that no reader finds before they are whole (`steps`). So a read that does not pause sees
//! all of it. A read that must pause pins every version the partition has
//! at that moment; a pinned version is never written again. A write goes to the first version that is not
//! pinned, or to a new one if all are pinned. Merging is commutative, so it does not matter to which version
//! a write went. Versions are folded together when nobody pins them (`pin`). `tablet` keeps memtables, `read`
//! walks them, `flush` writes them out.

pub(crate) mod hint;
mod insert;
mod pin;
mod ranges;
mod read;
mod steps;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use memory::{Budget, Forest, Handle, Kind, Region, Tree};
use model::deletion::{LocalSeconds, NO_LOCAL_TIME, NO_TIMESTAMP};
use model::reconcile::deletion;
use model::{DeletionTime, Token};
use reactor::Event;
use sstable::EncodingMinima;

use crate::commitlog::Hold;
use crate::commitlog::format::Position;

use ranges::Ranges;

pub(crate) use pin::Pin;
pub(crate) use read::{Contents, PartitionRef, Shape, VersionCursor, Walk};

/// Partition records made at a time.
const PARTITIONS_PER_CHUNK: usize = 256;

/// One generation of a tablet's newest writes.
pub(crate) struct Memtable {
    inner: RefCell<Inner>,
    memory_freed: Rc<Event>,
    /// `Some` once the memtable is sealed, with the commit-log position if that is known.
    sealed: Cell<Option<Option<Position>>>,
}

#[derive(Debug)]
struct Inner {
    region: Region,
    index: Forest,
    tree: Tree,
    /// Trees of rows and of range tombstones.
    trees: Forest,
    partitions: Vec<Vec<Partition>>,
    budget: Budget,
    /// Bytes of `partitions` with all their versions, charged.
    records_bytes: usize,
    next_version: u32,
    scratch: Vec<u8>,
    timestamp_min: i64,
    local_time_min: u32,
    mutations: u64,
    /// Commit-log segments that must stay until this memtable is durable.
    holds: BTreeMap<u64, Hold>,
    /// The segment in `holds` that the last entry needed: almost every next entry needs the same.
    held: Option<u64>,
}

#[derive(Debug)]
struct Partition {
    token: Token,
    key: Handle,
    first: Version,
    /// Versions made while the earlier ones were pinned; almost always none.
    newer: Box<[Version]>,
}

#[derive(Debug)]
struct Version {
    id: u32,
    pins: u32,
    /// The partition's deletion in its two parts: a `DeletionTime` would leave four bytes of each record
    /// unused.
    deleted_at: i64,
    deleted_local: LocalSeconds,
    static_row: Handle,
    rows: Rows,
    ranges: Ranges,
}

// There is one record for each partition, so its size counts.
const _: () = assert!(size_of::<Partition>() == 104);

#[derive(Debug, Clone, Copy)]
enum Rows {
    None,
    One(Handle),
    Many(Tree),
}

impl Version {
    fn new(id: u32) -> Self {
        Self {
            id,
            pins: 0,
            deleted_at: DeletionTime::LIVE.timestamp,
            deleted_local: DeletionTime::LIVE.local_time,
            static_row: Handle::NONE,
            rows: Rows::None,
            ranges: Ranges::None,
        }
    }

    #[inline]
    fn deletion(&self) -> DeletionTime {
        DeletionTime { timestamp: self.deleted_at, local_time: self.deleted_local }
    }

    /// Deletes the partition as of `by`, unless a later deletion is in force.
    fn delete(&mut self, by: DeletionTime) {
        let deletion = deletion(self.deletion(), by);
        (self.deleted_at, self.deleted_local) = (deletion.timestamp, deletion.local_time);
    }
}

impl Partition {
    fn versions(&self) -> impl DoubleEndedIterator<Item = &Version> {
        std::iter::once(&self.first).chain(self.newer.iter())
    }

    #[inline]
    fn version(&self, id: u32) -> &Version {
        // Almost always there is but one.
        if self.first.id == id {
            return &self.first;
        }
        self.versions().find(|v| v.id == id).expect("a version that is read is kept")
    }

    #[inline]
    fn version_mut(&mut self, id: u32) -> &mut Version {
        if self.first.id == id {
            return &mut self.first;
        }
        self.newer.iter_mut().find(|v| v.id == id).expect("a version that is pinned is kept")
    }
}

impl std::fmt::Debug for Memtable {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Memtable").field("sealed", &self.sealed).finish_non_exhaustive()
    }
}

impl Memtable {
    /// An empty memtable that charges `budget`.
    pub(crate) fn new(budget: &Budget, memory_freed: &Rc<Event>) -> Self {
        let inner = Inner {
            region: Region::new(budget.clone()),
            index: Forest::new(budget.clone()),
            tree: Tree::EMPTY,
            trees: Forest::new(budget.clone()),
            partitions: Vec::new(),
            budget: budget.clone(),
            records_bytes: 0,
            next_version: 0,
            scratch: Vec::new(),
            timestamp_min: i64::MAX,
            local_time_min: NO_LOCAL_TIME,
            mutations: 0,
            holds: BTreeMap::new(),
            held: None,
        };
        Self { inner: RefCell::new(inner), memory_freed: Rc::clone(memory_freed), sealed: Cell::new(None) }
    }

    /// Whether nothing was written.
    pub(crate) fn is_empty(&self) -> bool {
        self.inner.borrow().mutations == 0
    }

    /// Partitions written.
    pub(crate) fn partition_count(&self) -> usize {
        self.inner.borrow().tree.len()
    }

    /// Bytes that a flush would free, roughly.
    pub(crate) fn bytes(&self) -> usize {
        let inner = self.inner.borrow();
        inner.region.live_bytes() + inner.records_bytes
    }

    /// The least timestamp in the memtable, `i64::MAX` if it is empty.
    pub(crate) fn timestamp_min(&self) -> i64 {
        self.inner.borrow().timestamp_min
    }

    /// The least timestamp and local time in the memtable, for short encodings in a table file.
    pub(crate) fn minima(&self) -> EncodingMinima {
        let inner = self.inner.borrow();
        let default = EncodingMinima::default();
        let known = |seconds: u32| i32::try_from(seconds).unwrap_or(default.local_deletion_time);
        EncodingMinima {
            timestamp: if inner.timestamp_min == i64::MAX { default.timestamp } else { inner.timestamp_min },
            local_deletion_time: known(inner.local_time_min).min(default.local_deletion_time),
            ttl: 0,
        }
    }

    /// Ends writing: from now on the memtable is only read. It has every log entry of this tablet before
    /// `upto` that earlier memtables do not have.
    pub(crate) fn seal(&self, upto: Option<Position>) {
        self.sealed.set(Some(upto));
    }

    /// The commit-log position at which it was sealed, if known.
    pub(crate) fn sealed_at(&self) -> Option<Position> {
        self.sealed.get().flatten()
    }

    fn is_sealed(&self) -> bool {
        self.sealed.get().is_some()
    }

    /// The oldest commit-log segment it needs.
    pub(crate) fn oldest_segment(&self) -> Option<u64> {
        self.inner.borrow().holds.keys().next().copied()
    }

    /// Gives up its claim on commit-log segments: its contents are durable elsewhere, or are not wanted any
    /// more.
    pub(crate) fn release_log(&self) {
        let holds = {
            let mut inner = self.inner.borrow_mut();
            inner.held = None;
            std::mem::take(&mut inner.holds)
        };
        drop(holds);
    }
}

impl Drop for Memtable {
    /// A memtable that still has its holds was not made durable: its commit-log segments stay for the next
    /// start.
    fn drop(&mut self) {
        for (_, hold) in std::mem::take(&mut self.inner.get_mut().holds) {
            hold.keep();
        }
        let inner = self.inner.get_mut();
        // Refunded at once although the records are freed in steps: tasks that wait for memory are notified
        // now.
        inner.budget.refund(Kind::Dirty, inner.records_bytes);
        reactor::drop_in_steps(std::mem::take(&mut inner.partitions));
        // The notified tasks run after this function. A reader may have kept the memtable alive beyond its
        // flush.
        self.memory_freed.notify_all();
    }
}

impl Inner {
    #[inline]
    fn partition(&self, at: u32) -> &Partition {
        &self.partitions[at as usize / PARTITIONS_PER_CHUNK][at as usize % PARTITIONS_PER_CHUNK]
    }

    #[inline]
    fn partition_mut(&mut self, at: u32) -> &mut Partition {
        &mut self.partitions[at as usize / PARTITIONS_PER_CHUNK][at as usize % PARTITIONS_PER_CHUNK]
    }

    fn new_version(&mut self) -> Version {
        self.next_version = self.next_version.wrapping_add(1);
        Version::new(self.next_version)
    }

    fn note(&mut self, timestamp: i64, local_time: LocalSeconds) {
        if timestamp != NO_TIMESTAMP {
            self.timestamp_min = self.timestamp_min.min(timestamp);
            self.local_time_min = self.local_time_min.min(local_time);
        }
    }
}

/// A stored row: its clustering and its bytes.
#[inline]
fn split_row(object: &[u8]) -> (&[u8], &[u8]) {
    let (length, rest) = object.split_first_chunk::<4>().expect("a row object begins with a length");
    rest.split_at(u32::from_le_bytes(*length) as usize)
}
