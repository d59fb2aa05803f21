//! One shard's storage: its state, and the write path from bytes to memtable.
//!
//! `open` makes it, `ddl` changes its tables, `flush` and `compaction` move data to table files, `read` reads
//! it. Invariant: a write is in a memtable only after it is in the commit log. While a `Hold` counts the
//! write in the log, the write is in a memtable too, so no segment is freed before its writes are elsewhere.

use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;

use hashbrown::HashMap;
use memory::Budget;
use model::mutation::MutationView;
use model::schema::{Schema, TableId};
use reactor::{Deadline, Event, Gate};

use crate::cache::RowCache;
use crate::clock::FutureWrites;
use crate::commitlog::{Commitlog, CommitlogStats, Hold, KeptBatch};
use crate::compaction::Compactions;
use crate::config::StorageConfig;
use crate::disk::DiskWatch;
use crate::error::StorageError;
use crate::import::Imports;
use crate::manifest::Manifest;
use crate::read::kept::KeptScans;
use crate::read::permit::Permits;
use crate::read::visible::VisibleScratch;
use crate::sampling::{Sampled, Samplings};
use crate::snapshot::Snapshots;
use crate::tablet::{Damage, Moves, TableStore, Tablet};
use crate::throttle::Throttle;

/// Read buffers kept for the next read.
const SCRATCHES_MAX: usize = 64;

/// Tables by id, in a hash order that is the same in each run.
type Tables = HashMap<TableId, Rc<TableStore>, foldhash::fast::FixedState>;

/// One shard's storage. Clones are the same storage.
#[derive(Clone)]
pub struct Storage(pub(crate) Rc<Inner>);

pub(crate) struct Inner {
    pub(crate) config: StorageConfig,
    /// Computed once from `config`, since every write needs it.
    mutation_bytes_max: usize,
    pub(crate) shard: usize,
    pub(crate) shards: usize,
    pub(crate) schema: RefCell<Rc<Schema>>,
    pub(crate) tables: RefCell<Tables>,
    pub(crate) log: Commitlog,
    pub(crate) budget: Budget,
    pub(crate) cache: Rc<RowCache>,
    pub(crate) throttle: Rc<Throttle>,
    pub(crate) permits: Permits,
    pub(crate) kept_scans: KeptScans,
    pub(crate) manifest: Manifest,
    /// Notified when memory of memtables was freed.
    pub(crate) memory_freed: Rc<Event>,
    pub(crate) flush_wanted: Event,
    pub(crate) compaction_wanted: Event,
    /// Notified when the greatest age of a memtable may have changed.
    pub(crate) ages_changed: Event,
    pub(crate) compactions: Rc<Compactions>,
    pub(crate) damage: Rc<Damage>,
    pub(crate) stopped: Event,
    /// Whether reading back the partitions cached before the start has ended.
    pub(crate) prefetched: Cell<bool>,
    pub(crate) prefetch_ended: Event,
    pub(crate) draining: Cell<bool>,
    /// Whether old logs are still being replayed, here or on another shard: no flush covers all of their
    /// entries.
    pub(crate) replaying: Cell<bool>,
    pub(crate) samplings: Samplings,
    pub(crate) tasks: Gate,
    pub(crate) snapshots: Snapshots,
    pub(crate) imports: Imports,
    /// Used on shard 0.
    pub(crate) moves: Moves,
    pub(crate) disk: DiskWatch,
    pub(crate) future_writes: FutureWrites,
    /// Batches that a start found kept for coordinators, until they are taken.
    pub(crate) kept: RefCell<Vec<KeptBatch>>,
    scratches: RefCell<Vec<VisibleScratch>>,
}

/// Memory and files of one table on this shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableStats {
    /// The table.
    pub table: TableId,
    /// Bytes in memtables.
    pub memtable_bytes: usize,
    /// Partitions in memtables.
    pub memtable_partitions: usize,
    /// Table files.
    pub files: usize,
    /// Bytes of them.
    pub file_bytes: u64,
}

/// Memory and files of storage on this shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageStats {
    /// By table id.
    pub tables: Vec<TableStats>,
    /// Bytes charged to memtables.
    pub memtable_bytes: usize,
    /// Their limit.
    pub memtable_bytes_max: usize,
    /// Partitions in the row cache.
    pub cache_partitions: u64,
    /// Rows in the row cache.
    pub cache_rows: u64,
    /// Bytes of objects in the row cache.
    pub cache_bytes_used: usize,
    /// Bytes the row cache holds.
    pub cache_bytes: usize,
    /// Bytes of index pages in memory.
    pub index_page_bytes: usize,
    /// Bytes of components of open table files in memory, such as filters and summaries.
    pub resident_bytes: usize,
    /// Bytes of filters and summaries that are left out of memory for want of room.
    pub left_out_bytes: usize,
    /// Limit of all these together.
    pub memory_bytes_max: usize,
    /// The commit log.
    pub commitlog: CommitlogStats,
}

impl Inner {
    pub(crate) fn new(
        config: StorageConfig,
        (shard, shards): (usize, usize),
        schema: Rc<Schema>,
        log: Commitlog,
        cache: Rc<RowCache>,
        manifest: Manifest,
        damage: Rc<Damage>,
    ) -> Self {
        let compactions = Rc::new(Compactions::new(&config));
        let throttle = Rc::new(Throttle::new(cache.budget(), log.room()));
        Self {
            shard,
            shards,
            schema: RefCell::new(schema),
            tables: RefCell::new(Tables::default()),
            log,
            permits: Permits::new(config.memtable_bytes_max),
            kept_scans: KeptScans::new(cache.budget(), config.memtable_bytes_max),
            throttle,
            budget: cache.budget(),
            memory_freed: Rc::clone(cache.memory_freed()),
            cache,
            manifest,
            flush_wanted: Event::new(),
            compaction_wanted: Event::new(),
            ages_changed: Event::new(),
            compactions,
            damage,
            stopped: Event::new(),
            prefetched: Cell::new(false),
            prefetch_ended: Event::new(),
            draining: Cell::new(false),
            replaying: Cell::new(true),
            samplings: Samplings::default(),
            tasks: Gate::new(),
            snapshots: Snapshots::default(),
            imports: Imports::default(),
            moves: Moves::default(),
            disk: DiskWatch::new(),
            future_writes: FutureWrites::new(),
            kept: RefCell::default(),
            mutation_bytes_max: config.mutation_bytes_max(),
            config,
            scratches: RefCell::new(Vec::new()),
        }
    }

    /// Notes for each table whether its writes are in the commit log, by the present schema. Those of
    /// counters are, whatever the keyspace says: a node that lost its share of a counter would count on from
    /// a smaller one under the same name, and other replicas would take that for the later sum.
    pub(crate) fn note_durability(&self) {
        let schema = self.schema.borrow();
        for store in self.tables.borrow().values() {
            let table = store.table();
            let keyspace = schema.keyspace(table.keyspace());
            let is_asked_for = keyspace.is_none_or(|keyspace| keyspace.options.durable_writes);
            store.set_durable(is_asked_for || table.is_counter());
        }
    }

    /// Whether dirty memory is so large that memtables have to be flushed.
    #[inline]
    pub(crate) fn wants_flush(&self) -> bool {
        self.throttle.dirty() > self.throttle.soft()
    }
}

impl Storage {
    /// The settings.
    pub fn config(&self) -> &StorageConfig {
        &self.0.config
    }

    /// The present schema on this shard.
    pub fn schema(&self) -> Rc<Schema> {
        Rc::clone(&self.0.schema.borrow())
    }

    /// As [`Storage::schema`], borrowed; not to be held across an await.
    #[inline]
    pub fn borrow_schema(&self) -> Ref<'_, Rc<Schema>> {
        self.0.schema.borrow()
    }

    /// Applies a mutation (`model::mutation` bytes) to this shard.
    ///
    /// Returns once the commit log has it as safely as its mode promises and reads see it. Keyspaces without
    /// `durable_writes` skip the log. Waits for memory and for room in the log until `deadline`. A future
    /// that is dropped leaves open whether the write happened.
    ///
    /// # Errors
    /// [`StorageError::Mutation`], [`StorageError::MutationMisfit`];
    /// [`StorageError::UnknownTable`], [`StorageError::WrongShard`]; [`StorageError::Overloaded`] and
    /// [`StorageError::CommitlogTimedOut`] at the deadline; [`StorageError::DiskNearlyFull`],
    /// [`StorageError::DiskFull`], [`StorageError::Io`], [`StorageError::CommitlogDead`] when the log could
    /// not be written: the write did not happen.
    pub async fn apply(&self, mutation: &[u8], deadline: Deadline) -> Result<(), StorageError> {
        let view = MutationView::parse(mutation)?;
        reactor::in_place!(self.apply_checked(&view, deadline))
    }

    /// A charge of the shard's budget for work, which holds nothing yet. Bytes that it counts are taken
    /// from the caches.
    pub fn charge_work(&self) -> memory::Charge {
        self.0.budget.hold(memory::Kind::Work, 0)
    }

    /// Most bytes of a client's mutation.
    pub fn mutation_bytes_max(&self) -> usize {
        self.0.mutation_bytes_max
    }

    /// Checks that a mutation is within the limit for clients. Entries of a commit log are applied whatever
    /// their size: the limit may have been another then.
    ///
    /// # Errors
    /// [`StorageError::MutationTooLarge`].
    #[inline]
    pub fn check_mutation_size(&self, mutation: &[u8]) -> Result<(), StorageError> {
        let bytes_max = self.mutation_bytes_max();
        if mutation.len() > bytes_max {
            return Err(StorageError::MutationTooLarge { bytes: mutation.len(), bytes_max });
        }
        Ok(())
    }

    /// Applies a checked mutation to the memtable, where reads see it.
    #[inline]
    pub(crate) fn insert(&self, tablet: &Tablet, view: &MutationView<'_>, hold: Option<&Hold>) {
        tablet.apply(view, hold);
        self.note_inserted(view);
    }

    /// As [`Storage::insert`]; a long mutation is applied in steps, between which others run. The caller has
    /// begun a write of the tablet.
    pub(crate) async fn insert_soon(&self, tablet: &Tablet, view: &MutationView<'_>, hold: Option<&Hold>) {
        if !Tablet::takes_steps(view) {
            self.insert(tablet, view, hold);
            return;
        }
        Box::pin(reactor::in_slices(&(), || tablet.apply_in_steps(view, hold))).await;
        self.note_inserted(view);
    }

    #[inline]
    fn note_inserted(&self, view: &MutationView<'_>) {
        self.0.samplings.note(Sampled::Write, view.table, view.key);
        if self.0.wants_flush() {
            self.0.flush_wanted.notify_all();
        }
    }

    /// The tablet of a mutation, after checking that the mutation fits its table and belongs to this shard;
    /// and whether its keyspace has writes in the commit log. `None` if the tablet is on its way here.
    #[inline]
    pub(crate) fn owner_of(
        &self,
        view: &MutationView<'_>,
    ) -> Result<Option<(Rc<Tablet>, bool)>, StorageError> {
        let tables = self.0.tables.borrow();
        let Some(store) = tables.get(&view.table) else {
            return Err(StorageError::UnknownTable { table: view.table });
        };
        let Some(tablet) = store.tablet(store.map().tablet_of(view.token)) else {
            return self.elsewhere(store, store.map().tablet_of(view.token)).map(|()| None);
        };
        if !store.is_of(view) {
            return Err(StorageError::MutationMisfit { table: view.table });
        }
        Ok(Some((tablet, store.is_durable())))
    }

    /// Called when memory fills faster than it is flushed: a write of `bytes` waits for its turn, and for
    /// free memory if the disk makes no progress at all.
    #[cold]
    pub(crate) async fn wait_for_turn(&self, bytes: usize, deadline: Deadline) -> Result<(), StorageError> {
        let budget = &self.0.budget;
        self.0.flush_wanted.notify_all();
        if !self.0.throttle.wait(bytes, deadline).await {
            if !self.0.throttle.memory_holds() {
                return Err(StorageError::CommitlogTimedOut);
            }
            return Err(StorageError::Overloaded { used: budget.used(), limit: budget.limit() });
        }
        if budget.is_exhausted() {
            self.wait_for_memory(deadline).await?;
        }
        if self.0.draining.get() {
            return Err(StorageError::Draining);
        }
        Ok(())
    }

    pub(crate) async fn wait_for_memory(&self, deadline: Deadline) -> Result<(), StorageError> {
        let budget = &self.0.budget;
        self.0.flush_wanted.notify_all();
        let freed = self.0.memory_freed.wait_until(|| !budget.is_exhausted() || self.0.draining.get());
        reactor::timeout(deadline, freed)
            .await
            .map_err(|_| StorageError::Overloaded { used: budget.used(), limit: budget.limit() })
    }

    #[inline]
    pub(crate) fn table_store(&self, table: TableId) -> Result<Rc<TableStore>, StorageError> {
        self.0.tables.borrow().get(&table).cloned().ok_or(StorageError::UnknownTable { table })
    }

    /// All tablets of this shard, tables by id.
    pub(crate) fn tablets(&self) -> Vec<Rc<Tablet>> {
        let tables = self.0.tables.borrow();
        let mut stores: Vec<_> = tables.iter().collect();
        stores.sort_by_key(|(id, _)| **id);
        stores.into_iter().flat_map(|(_, store)| store.tablets()).collect()
    }

    /// Memory and files of each table on this shard.
    pub fn stats(&self) -> StorageStats {
        let tables = self.0.tables.borrow();
        let mut stats: Vec<TableStats> = tables
            .iter()
            .map(|(id, store)| {
                let tablets = store.tablets();
                let memtables = tablets.iter().flat_map(|t| t.memtables());
                let files: Vec<_> = tablets.iter().map(|t| t.files()).collect();
                TableStats {
                    table: *id,
                    memtable_bytes: tablets.iter().map(|t| t.memtable_bytes()).sum(),
                    memtable_partitions: memtables.map(|m| m.partition_count()).sum(),
                    files: files.iter().map(|files| files.len()).sum(),
                    file_bytes: files
                        .iter()
                        .flat_map(|f| f.iter())
                        .map(|f| f.sstable().bytes_on_disk())
                        .sum(),
                }
            })
            .collect();
        stats.sort_by_key(|s| s.table);
        StorageStats {
            tables: stats,
            memtable_bytes: self.0.budget.used(),
            memtable_bytes_max: self.0.budget.limit(),
            cache_partitions: self.0.cache.counts().0,
            cache_rows: self.0.cache.counts().1,
            cache_bytes_used: self.0.cache.used_bytes(),
            cache_bytes: self.0.cache.held_bytes(),
            index_page_bytes: self.0.cache.pages().bytes(),
            resident_bytes: self.0.budget.fixed(),
            left_out_bytes: self.0.cache.components().lacking_bytes(),
            memory_bytes_max: self.0.budget.total_limit(),
            commitlog: self.0.log.stats(),
        }
    }

    /// Empties this shard's row cache.
    pub fn evict_cache(&self) {
        self.0.cache.evict_all();
    }

    /// Evicts the present contents of this shard's row cache, and lets other tasks run meanwhile.
    pub async fn evict_cache_in_steps(&self) {
        self.0.cache.evict_all_in_steps().await;
    }

    /// Drops this shard's index pages.
    pub fn evict_index_pages(&self) {
        self.0.cache.pages().give_back(usize::MAX);
    }

    pub(crate) fn take_scratch(&self) -> VisibleScratch {
        self.0.scratches.borrow_mut().pop().unwrap_or_default()
    }

    pub(crate) fn return_scratch(&self, scratch: VisibleScratch) {
        let mut scratches = self.0.scratches.borrow_mut();
        if scratches.len() < SCRATCHES_MAX {
            scratches.push(scratch);
        }
    }
}
