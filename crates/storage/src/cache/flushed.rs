//! Merges a memtable into the row cache when its table file is there, without reading anything from disk.
//!
//! A partition of one plain row, as most are, is inserted or merged directly; any other is merged as a read
//! merges it.

use std::rc::Rc;

use model::clustering::Slice;
use model::reconcile::Purge;
use model::{DeletionTime, Table, Token, Unfiltered};

use super::learn::{Batch, KnownHead};
use super::{Claim, Learner, Sought, TabletCache, Update};
use crate::error::StorageError;
use crate::memtable::{Contents, Memtable, PartitionRef, Shape, Walk};
use crate::read::PartitionBound;
use crate::read::merge::Merge;
use crate::read::source::Source;
use crate::read::visible::drop_dropped_is_needless;
use crate::shard::Storage;
use crate::tablet::{TableFile, Tablet};

/// Rows and changes merged between two checks whether another task should run.
const STEPS_PER_LOOK: u32 = 32;

impl Storage {
    /// Merges a memtable whose file is there into the row cache.
    pub(crate) async fn update_cache(
        &self,
        tablet: &Rc<Tablet>,
        memtable: &Rc<Memtable>,
        file: Option<&Rc<TableFile>>,
    ) {
        let Some(claim) = tablet.cache().claim() else { return };
        let table = tablet.table();
        let from = PartitionBound { token: Token::MINIMUM, key: None, inclusive: true };
        let walk = memtable.contents().seek(&from);
        let mut flushed = Flushed { tablet, memtable, file, claim, table, from, walk, sole: SoleRow::new() };
        // When its table changes, the tablet's cached contents are dropped: then there is nothing to keep
        // current.
        while !tablet.is_dropped() && tablet.cache().is_current(claim) {
            let stop = flushed.walk();
            tablet.cache().count();
            match stop {
                Stop::End => return,
                Stop::Pause => {}
                Stop::Merge(partition) => {
                    if let Err(error) = flushed.merge(partition).await {
                        // Reading memory does not fail. If it did, a partition that was merged in part is
                        // removed from the cache.
                        reactor::warn_limited!("a flushed partition is not cached"; error = error);
                    }
                }
            }
            reactor::maybe_yield().await;
        }
    }
}

/// The walk over one memtable.
struct Flushed<'f> {
    tablet: &'f Rc<Tablet>,
    memtable: &'f Rc<Memtable>,
    file: Option<&'f Rc<TableFile>>,
    claim: Claim,
    table: Rc<Table>,
    from: PartitionBound,
    walk: Walk,
    sole: SoleRow,
}

/// Why the walk stopped.
enum Stop {
    End,
    /// Another task should run.
    Pause,
    Merge(Left),
}

/// A partition that cannot be inserted or merged as a single row.
struct Left {
    token: Token,
    key: Vec<u8>,
    sources: Vec<Source>,
    known: bool,
}

impl Flushed<'_> {
    fn walk(&mut self) -> Stop {
        let memtable = self.memtable;
        let contents = memtable.contents();
        while let Some(partition) = contents.at(&mut self.walk, &self.from) {
            self.from.token = contents.key(partition).0;
            let left = self.partition(&contents, partition);
            contents.step(&mut self.walk);
            match left {
                Some(left) => return Stop::Merge(left),
                None if reactor::need_preempt() => return Stop::Pause,
                None => {}
            }
        }
        Stop::End
    }

    /// Inserts or merges a partition of one plain row, or returns the partition that has to be merged. A
    /// partition that is not cached is inserted only if no other file can have it.
    fn partition(&mut self, contents: &Contents<'_>, partition: PartitionRef) -> Option<Left> {
        let cache = self.tablet.cache();
        let (token, key) = contents.key(partition);
        let sought = Sought { token, key, orders: self.table.clustering_orders() };
        let known = cache.has(self.claim, sought);
        if !known && !self.is_new(token, key) {
            return None;
        }
        // Rows of a table that lost columns must have those columns removed first.
        if drop_dropped_is_needless(&self.table)
            && let Some((clustering, row)) = contents.sole_plain_row(partition)
        {
            self.sole.batch.clear();
            self.sole.batch.push(clustering, row.as_bytes());
            cache.take_row(self.claim, &self.table, sought, &self.sole, known);
            return None;
        }
        let versions = contents.versions(partition).into_iter();
        let sources = versions.map(|version| Source::memory(self.memtable, partition, version)).collect();
        Some(Left { token, key: key.to_vec(), sources, known })
    }

    fn is_new(&self, token: Token, key: &[u8]) -> bool {
        let files = self.tablet.files();
        let mut others = files.iter().filter(|other| !self.file.is_some_and(|file| Rc::ptr_eq(file, other)));
        !others.any(|other| other.sstable().may_contain(token, key))
    }

    /// Merges one partition into its cached contents, or inserts it if it is not cached.
    async fn merge(&self, left: Left) -> Result<(), StorageError> {
        let Left { token, key, sources, known } = left;
        let (cache, table) = (self.tablet.cache(), &self.table);
        let mut merge = Merge::new(Rc::clone(table), sources, Purge::nothing());
        let slices = [Slice::all()];
        let shape = Shape { orders: table.clustering_orders(), slices: &slices, reversed: false };
        let head = (merge.partition_deletion(), merge.take_static_row());
        let mut steps = 0;
        if known {
            let mut update = Update::new(cache, self.claim, table, (token, &key), head);
            while let Some(next) = merge.next(shape).await? {
                match next {
                    Unfiltered::Row { clustering, row } => update.row(clustering, row.as_bytes()),
                    Unfiltered::Change { position, deletion } => update.change(position, deletion),
                }
                look(&mut steps, &mut merge).await;
            }
            update.end();
        } else {
            let (slices, reversed) = (slices.clone().into(), false);
            let learner = Learner::new(cache, self.claim, table, (token, &key), head, slices, reversed);
            let mut learner = learner.of_flush();
            while let Some(next) = merge.next(shape).await? {
                learner.unfiltered(next);
                look(&mut steps, &mut merge).await;
            }
            learner.end();
        }
        Ok(())
    }
}

/// Called after each row or change: lets other tasks run, and pins the merged versions for that time.
async fn look(steps: &mut u32, merge: &mut Merge) {
    *steps += 1;
    if steps.is_multiple_of(STEPS_PER_LOOK) && reactor::need_preempt() {
        merge.pin();
        reactor::yield_now().await;
    }
}

/// Buffers for the only row of a partition in the flushed memtable.
struct SoleRow {
    head: KnownHead,
    batch: Batch,
}

impl SoleRow {
    fn new() -> Self {
        let head = KnownHead { deletion: DeletionTime::LIVE, static_row: Vec::new() };
        Self { head, batch: Batch::new() }
    }
}

impl TabletCache {
    /// Merges a row into its partition if that is `known` (cached); otherwise the row becomes the whole
    /// partition.
    fn take_row(&self, claim: Claim, table: &Rc<Table>, sought: Sought<'_>, row: &SoleRow, known: bool) {
        let SoleRow { head, batch } = row;
        let mut inner = self.cache.inner.borrow_mut();
        if known {
            inner.merge(sought.of(claim), table, head, batch, true);
        } else {
            inner.learn_all(sought.of(claim), sought.orders, head, batch);
        }
    }

    fn count(&self) {
        self.cache.count();
    }
}
