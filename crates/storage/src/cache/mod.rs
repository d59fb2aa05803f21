//! The row cache of a shard: the merged contents of all table files of a tablet, as far as they are cached.
//!
//! Memtables are no part of it: a read merges them with it. The cached contents of a partition have gaps, and
//! every step through them says where one begins (`known`). Readers of files add what they read (`learn`), a
//! flush what it wrote (`update`). `docs/decisions/0005-row-cache.md` has the whole design.
//!
//! Invariants. Between two pauses, cached contents agree with the tablet's set of files, but for tombstones
//! that files have purged. Nothing here is pinned: a reader that paused looks up its place again, and only
//! while its [`Claim`] is current. Room is made before memory is taken, so that the budget holds.

mod flushed;
mod index;
mod known;
mod learn;
mod metrics;
mod object;
mod partition;
mod saved;
mod update;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use hashbrown::HashMap;
use memory::{Budget, Forest, Handle, Kind as Memory, Reclaim, Region, SEGMENT_BYTES};
use model::clustering::ClusteringOrder;
use model::{Table, Token};
use reactor::Event;
use reactor::metrics::Counter;
use sstable::{ComponentMemory, IndexPages};

pub(crate) use known::{Place, Step, Walked};
pub(crate) use learn::Learner;
pub(crate) use saved::{List, SAVED_BYTES_MAX, Saved, Taken, decode};
pub(crate) use update::Update;

use index::Index;
use metrics::Metrics;
use object::{Kind, Name, Object, untouch};
use partition::Partitions;

/// A budget holds at least this many segments, so that cleaning one never empties the cache.
const SEGMENTS_MIN: usize = 32;
/// After this many segments were cleaned in a row without gain, nothing is spared any more.
const SPARED_MAX: u32 = 8;
/// Segments cleaned to make room for one insertion; if more were needed, the insertion does not happen.
const ROUNDS_MAX: u32 = 64;
/// Most range tombstones of a cached partition.
const TOMBSTONES_MAX: usize = 1024;
/// One insertion may take this fraction of all memory: one part in so many.
const INSERTION_PART: usize = 2;

/// The cache of one shard.
pub(crate) struct RowCache {
    inner: RefCell<Inner>,
    /// Notified when a memtable gives its share of the budget back.
    memory_freed: Rc<Event>,
    /// Index pages, which can be evicted as well.
    pages: IndexPages,
    /// Other components of table files that stay in memory.
    components: ComponentMemory,
    metrics: Metrics,
}

struct Inner {
    budget: Budget,
    /// Index pages give way to rows if they have more than their share.
    pages: IndexPages,
    /// Counters of reads that found their partition, and of reads that came to a gap.
    asked: (Rc<Counter>, Rc<Counter>),
    region: Region,
    forest: Forest,
    index: Index,
    partitions: Partitions,
    owners: HashMap<u32, Owner, foldhash::fast::FixedState>,
    last_owner: u32,
    /// Number of entries and single rows.
    rows: u64,
    /// Segments cleaned in a row without gain.
    spared: u32,
    tally: Tally,
    cleaned: Vec<Handle>,
    row: Vec<u8>,
}

/// Events since the last publication.
#[derive(Debug, Default)]
struct Tally {
    inserted_partitions: u64,
    inserted_rows: u64,
    merged_partitions: u64,
    merged_rows: u64,
    evicted_partitions: u64,
    evicted_rows: u64,
    removed_partitions: u64,
    removed_rows: u64,
}

impl Tally {
    /// Counts a partition that leaves: evicted if its contents are `true_still`, else removed as stale.
    fn partition(&mut self, true_still: bool) {
        *(if true_still { &mut self.evicted_partitions } else { &mut self.removed_partitions }) += 1;
    }

    /// Counts rows that leave, likewise.
    fn rows(&mut self, true_still: bool, count: u64) {
        *(if true_still { &mut self.evicted_rows } else { &mut self.removed_rows }) += count;
    }
}

/// A tablet at one state of its table and its files, to which cached partitions belong.
struct Owner {
    table: Rc<Table>,
    /// Whether its partitions may be found; otherwise they wait to be swept.
    alive: bool,
    partitions: u64,
}

/// The state of the tablet's cache, taken by a reader together with the set of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim {
    owner: u32,
    phase: u64,
}

/// A tablet's part of the cache.
pub(crate) struct TabletCache {
    cache: Rc<RowCache>,
    owner: Cell<u32>,
    /// How often the tablet's files gained or lost writes.
    phase: Cell<u64>,
    enabled: Cell<bool>,
}

impl RowCache {
    /// An empty cache within `budget`, which evicts when writers need memory. Components of open files may
    /// take `components_bytes_max` of it.
    pub(crate) fn new(budget: &Budget, components_bytes_max: usize) -> Rc<Self> {
        let segment_bytes = (budget.total_limit() / SEGMENTS_MIN).min(SEGMENT_BYTES);
        let region = Region::of_kind(budget.clone(), Memory::Clean, segment_bytes);
        let reserve = 2 * region.segment_bytes();
        let pages = IndexPages::new(budget);
        let components = ComponentMemory::new(budget, components_bytes_max);
        let metrics = Metrics::new();
        let inner = Inner {
            budget: budget.clone(),
            pages: pages.clone(),
            asked: (Rc::clone(&metrics.partition_hits), Rc::clone(&metrics.reads_with_misses)),
            region,
            forest: Forest::of_kind(budget.clone(), Memory::Clean),
            index: Index::new(budget.clone()),
            partitions: Partitions::new(budget.clone()),
            owners: HashMap::default(),
            last_owner: 0,
            rows: 0,
            spared: 0,
            tally: Tally::default(),
            cleaned: Vec::new(),
            row: Vec::new(),
        };
        let cache = Rc::new(Self {
            inner: RefCell::new(inner),
            memory_freed: Rc::new(Event::new()),
            pages,
            components,
            metrics,
        });
        let strong: Rc<dyn Reclaim> = Rc::clone(&cache) as Rc<dyn Reclaim>;
        let weak: Weak<dyn Reclaim> = Rc::downgrade(&strong);
        budget.set_reclaimer(weak, reserve);
        cache
    }

    /// Notified when a memtable, which shares the budget, gives its memory back.
    pub(crate) fn memory_freed(&self) -> &Rc<Event> {
        &self.memory_freed
    }

    /// The memory of open files' components, within the budget.
    pub(crate) fn components(&self) -> &ComponentMemory {
        &self.components
    }

    /// The index pages of the shard, which share the budget too.
    pub(crate) fn pages(&self) -> &IndexPages {
        &self.pages
    }

    /// Bytes that rows hold, including holes and tables.
    pub(crate) fn held_bytes(&self) -> usize {
        self.budget().clean() - self.pages.bytes()
    }

    /// The budget it shares with memtables.
    pub(crate) fn budget(&self) -> Budget {
        self.inner.borrow().budget.clone()
    }

    fn total_limit(&self) -> usize {
        self.inner.borrow().budget.total_limit()
    }

    /// Partitions and rows that are cached.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let inner = self.inner.borrow();
        (inner.index.len(), inner.rows)
    }

    /// Bytes of cached rows, without holes and tables.
    pub(crate) fn used_bytes(&self) -> usize {
        self.inner.borrow().region.live_bytes()
    }

    /// Evicts everything that can be evicted.
    pub(crate) fn evict_all(&self) {
        let mut inner = self.inner.borrow_mut();
        // Each round empties a segment, since nothing is spared.
        while inner.region.live_bytes() > 0 && inner.clean_one(false) {}
        drop(inner);
        self.count();
    }

    /// As [`RowCache::evict_all`] for the present contents, one segment at a time: evicting 600,000
    /// partitions at once took up to 18 ms. Rows cached meanwhile may stay.
    pub(crate) async fn evict_all_in_steps(&self) {
        let mut left = self.inner.borrow().region.live_bytes();
        // Each round empties a segment, so there are fewer bytes after it, or the cache is empty.
        while left > 0 {
            let freed = {
                let mut inner = self.inner.borrow_mut();
                let before = inner.region.live_bytes();
                if !inner.clean_one(false) {
                    break;
                }
                before.saturating_sub(inner.region.live_bytes())
            };
            left = left.saturating_sub(freed.max(1));
            self.count();
            reactor::yield_now().await;
        }
    }

    /// Publishes counts of evictions and of the contents.
    fn count(&self) {
        self.metrics.update(&mut self.inner.borrow_mut());
    }
}

impl Reclaim for RowCache {
    /// Evicts index pages beyond their share first, then rows, then the other pages.
    fn reclaim(&self, bytes: usize) {
        let mut given = 0;
        let (found, gaps) = (self.metrics.partition_hits.get(), self.metrics.reads_with_misses.get());
        self.pages.balance(found.saturating_sub(gaps));
        let excess = self.pages.excess();
        if excess > 0 {
            given += self.pages.give_back(excess.min(bytes));
        }
        // If the cache is in use at this moment, it makes its own room.
        if given < bytes
            && let Ok(mut inner) = self.inner.try_borrow_mut()
        {
            let before = inner.budget.clean();
            let rows_given = |inner: &Inner| before.saturating_sub(inner.budget.clean());
            while given + rows_given(&inner) < bytes {
                let spares = inner.spared < SPARED_MAX;
                if !inner.clean_one(spares) {
                    break;
                }
            }
            given += rows_given(&inner);
            drop(inner);
            self.count();
        }
        if given < bytes {
            self.pages.give_back(bytes - given);
        }
    }
}

impl TabletCache {
    /// An empty cache for one tablet.
    pub(crate) fn new(cache: &Rc<RowCache>, table: &Rc<Table>) -> Self {
        let owner = cache.inner.borrow_mut().add_owner(table);
        let enabled = Cell::new(is_enabled(table));
        Self { cache: Rc::clone(cache), owner: Cell::new(owner), phase: Cell::new(0), enabled }
    }

    /// Notified when a memtable gives its share of the budget back.
    pub(crate) fn memory_freed(&self) -> &Rc<Event> {
        &self.cache.memory_freed
    }

    /// The claim of a reader, taken together with the tablet's memtables and files; `None` if the table is
    /// not cached.
    #[inline]
    pub(crate) fn claim(&self) -> Option<Claim> {
        self.enabled.get().then(|| Claim { owner: self.owner.get(), phase: self.phase.get() })
    }

    /// Whether the cache still agrees with the files that were taken together with the claim.
    #[inline]
    pub(crate) fn is_current(&self, claim: Claim) -> bool {
        self.claim() == Some(claim)
    }

    /// Ends the claims so far: the tablet's files have gained the writes of a memtable, which is still in the
    /// tablet.
    pub(crate) fn advance(&self) {
        self.phase.set(self.phase.get() + 1);
    }

    /// Drops all cached contents of the tablet: its files have other contents now, or its table has changed.
    pub(crate) fn forget(&self, table: &Rc<Table>) {
        let mut inner = self.cache.inner.borrow_mut();
        inner.retire(self.owner.get());
        self.owner.set(inner.add_owner(table));
        self.enabled.set(is_enabled(table));
        self.advance();
    }
}

impl Drop for TabletCache {
    fn drop(&mut self) {
        self.cache.inner.borrow_mut().retire(self.owner.get());
    }
}

/// Whether a table's rows are cached: not if its options say `caching = {'enabled': 'false'}`.
fn is_enabled(table: &Table) -> bool {
    table.options().caching.enabled != Some(false)
}

impl Inner {
    fn add_owner(&mut self, table: &Rc<Table>) -> u32 {
        self.last_owner += 1;
        self.owners.insert(self.last_owner, Owner { table: Rc::clone(table), alive: true, partitions: 0 });
        self.last_owner
    }

    /// Makes the partitions of an owner impossible to find.
    fn retire(&mut self, owner: u32) {
        let Some(record) = self.owners.get_mut(&owner) else { return };
        record.alive = false;
        if record.partitions == 0 {
            self.owners.remove(&owner);
        }
    }

    fn is_alive(&self, owner: u32) -> bool {
        self.owners.get(&owner).is_some_and(|owner| owner.alive)
    }

    fn table(&self, owner: u32) -> Rc<Table> {
        Rc::clone(&self.owners.get(&owner).expect("an owner stays as long as its partitions").table)
    }

    #[inline]
    fn find(&self, name: Name<'_>) -> Option<Handle> {
        self.index.find(&self.region, name)
    }

    /// Counts one more or one less partition of an owner.
    fn count_partition(&mut self, owner: u32, comes: bool) {
        let record = self.owners.get_mut(&owner).expect("an owner stays as long as its partitions");
        record.partitions = if comes { record.partitions + 1 } else { record.partitions - 1 };
        if record.partitions == 0 && !record.alive {
            self.owners.remove(&owner);
        }
    }

    /// Evicts until `bytes` can be taken; returns false if that is impossible.
    fn make_room(&mut self, bytes: usize) -> bool {
        if bytes > self.budget.total_limit() / INSERTION_PART {
            return false;
        }
        if self.budget.room() >= bytes {
            return true;
        }
        let (found, gaps) = &self.asked;
        self.pages.balance(found.get().saturating_sub(gaps.get()));
        for _ in 0..ROUNDS_MAX {
            if self.budget.room() >= bytes {
                return true;
            }
            let excess = self.pages.excess();
            if excess > 0 && self.pages.give_back(excess.min(bytes - self.budget.room())) > 0 {
                continue;
            }
            let spares = self.spared < SPARED_MAX;
            if !self.clean_one(spares) {
                return false;
            }
        }
        false
    }

    /// Empties the oldest segment; returns false if there is none. With `spares`, objects that were read
    /// lately are moved instead of evicted.
    fn clean_one(&mut self, spares: bool) -> bool {
        let before = self.budget.clean();
        let mut handles = std::mem::take(&mut self.cleaned);
        let any = self.region.oldest_objects(&mut handles);
        for handle in handles.drain(..) {
            // Evicting an earlier object may have freed this one too.
            if self.region.contains(handle) {
                self.clean(handle, spares);
            }
        }
        self.cleaned = handles;
        self.spared = if self.budget.clean() < before { 0 } else { self.spared.saturating_add(1) };
        any
    }

    fn clean(&mut self, handle: Handle, spares: bool) {
        let object = Object::of(&self.region, handle);
        let spared = spares && object.is_touched();
        match object.kind() {
            Kind::Whole => {
                let alive = self.is_alive(object.owner());
                if !(spared && alive) {
                    let rows = u64::from(object.only_row().is_some());
                    self.tally.partition(alive);
                    self.tally.rows(alive, rows);
                    self.remove(handle);
                    return;
                }
            }
            Kind::Entry => {
                let partition = self.partitions.get(object.number());
                let alive = self.is_alive(partition.owner) && !partition.untrue;
                if partition.handle.is_none() || !(spared && alive) {
                    let rows = u64::from(object.row().is_some());
                    self.tally.rows(alive, rows);
                    self.evict_entry(handle);
                    return;
                }
            }
            Kind::Partition | Kind::Static => {
                let partition = self.partitions.get(object.number());
                let is_needed = spares && !partition.entries.is_empty() || spared;
                let alive = self.is_alive(partition.owner);
                if !(is_needed && alive) {
                    let head = partition.handle;
                    self.tally.partition(alive);
                    self.remove(head);
                    return;
                }
            }
        }
        untouch(&mut self.region, handle);
        self.region.renew(handle);
    }

    /// Takes a partition out of the index. Its entries wait to be swept.
    fn remove(&mut self, handle: Handle) {
        let object = Object::of(&self.region, handle);
        match object.kind() {
            Kind::Whole => {
                let owner = object.owner();
                self.rows -= u64::from(object.only_row().is_some());
                self.index.remove(&mut self.region, handle);
                self.region.free(handle);
                self.count_partition(owner, false);
            }
            Kind::Partition => {
                let number = object.number();
                self.index.remove(&mut self.region, handle);
                self.region.free(handle);
                let partition = self.partitions.get_mut(number);
                partition.handle = Handle::NONE;
                partition.drop_tombstones(&self.budget);
                let static_row = std::mem::replace(&mut partition.static_row, Handle::NONE);
                if !static_row.is_none() {
                    self.region.free(static_row);
                }
                self.sweep(number);
            }
            Kind::Entry | Kind::Static => panic!("{handle:?} is no partition"),
        }
    }

    /// Frees the record of a partition that is out of the index and has no entries.
    fn sweep(&mut self, number: u32) {
        let partition = self.partitions.get(number);
        if partition.handle.is_none() && partition.entries.is_empty() {
            let owner = partition.owner;
            self.partitions.remove(number);
            self.count_partition(owner, false);
        }
    }

    /// Evicts an entry; the gaps beside it are not complete any more.
    fn evict_entry(&mut self, handle: Handle) {
        let object = Object::of(&self.region, handle);
        let number = object.number();
        let table = self.table(self.partitions.get(number).owner);
        let orders = table.clustering_orders();
        let partition = self.partitions.get_mut(number);
        let (spot, _) = partition.entries.seek(&self.forest, &self.region, object.position(), orders);
        // Removing an entry without a row joins two gaps, and the joined gap stays complete if both were.
        let behind = partition.entries.next(&self.forest, spot);
        let stays_known = object.row().is_none()
            && object.is_continuous()
            && partition.is_known_before(&self.forest, &self.region, behind);
        partition.set_known_before(&self.forest, &mut self.region, behind, stays_known);
        self.rows -= u64::from(Object::of(&self.region, handle).row().is_some());
        partition.entries.remove(&mut self.forest, &self.region, handle, orders);
        self.region.free(handle);
        let partition = self.partitions.get(number);
        if partition.entries.is_empty() {
            let head = partition.handle;
            if head.is_none() {
                self.sweep(number);
            } else if !partition.to_end {
                self.tally.evicted_partitions += 1;
                self.remove(head);
            }
        }
    }

    /// Removes a partition because its contents would be stale.
    fn invalidate(&mut self, name: Name<'_>) {
        if let Some(handle) = self.find(name) {
            self.tally.partition(false);
            let object = Object::of(&self.region, handle);
            match object.kind() {
                Kind::Whole => self.tally.rows(false, u64::from(object.only_row().is_some())),
                // Its rows are counted when they are swept.
                _ => self.partitions.get_mut(object.number()).untrue = true,
            }
            self.remove(handle);
        }
    }
}

/// A partition's key and its table's clustering order, which every operation on a partition takes.
#[derive(Clone, Copy)]
pub(crate) struct Sought<'a> {
    pub(crate) token: Token,
    pub(crate) key: &'a [u8],
    pub(crate) orders: &'a [ClusteringOrder],
}

impl<'a> Sought<'a> {
    fn of(self, claim: Claim) -> Name<'a> {
        Name { owner: claim.owner, token: self.token, key: self.key }
    }
}
