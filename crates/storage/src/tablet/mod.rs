//! A tablet's data on this shard: its memtables, its table files, and how they replace each other.
//!
//! A tablet is the unit of flush and compaction. Invariant: the sets of memtables and files change together
//! and without a pause, so that a reader that takes both sees each write at least once, which the merge
//! allows. A table file belongs to the tablet that its own mark names (`found`). Tablets come and go while
//! the node runs (`moves`): one that has left this shard keeps its last sets for the reads that entered it
//! before, and takes neither writes nor flushes nor compactions. `moving` counts what is on its way.

mod damage;
mod file;
mod found;
mod moving;
mod numbers;
mod opening;
mod store;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use memory::Budget;
use model::Table;
use model::Token;
use model::mutation::MutationView;
use model::tablet::TabletId;
use reactor::{Event, Instant, Permit, Semaphore};
use smallvec::SmallVec;
use sstable::{Component, Descriptor};

use crate::cache::{RowCache, TabletCache};
use crate::commitlog::format::Position;
use crate::commitlog::{Commitlog, Hold};
use crate::compaction::{Chooser, Facts};
use crate::error::StorageError;
use crate::memtable::Memtable;

pub(crate) use damage::{AtStart, Damage, LeftOut};
pub(crate) use file::{QUARANTINE, TableFile, quarantine, to_storage_error};
pub(crate) use found::{FileMark, Folder, Found, MISNUMBERED, Unplaced, find, set_misnumbered_aside};
pub(crate) use moving::{Counts, Moves};
pub(crate) use numbers::Numbers;
pub(crate) use opening::{Keepers, open};
pub(crate) use store::{TableStore, directory_of};

/// Most compactions of one tablet at a time.
pub(crate) const COMPACTIONS_MAX: usize = 16;

/// One tablet of one table.
pub(crate) struct Tablet {
    pub(crate) id: TabletId,
    /// The number of the command that gave this node the tablet, or that truncated it last; its files carry
    /// it.
    since: Cell<u64>,
    pub(crate) directory: PathBuf,
    /// One flush at a time.
    pub(crate) flushing: Semaphore,
    /// A compaction takes one of [`COMPACTIONS_MAX`] permits; all of them are taken while files leave for
    /// another reason.
    pub(crate) compacting: Semaphore,
    /// Held while the files of one compaction are exchanged and removed.
    pub(crate) exchanging: Semaphore,
    /// Chooses the next compaction by the table's present options.
    chooser: RefCell<Chooser>,
    /// Whether files have changed since there was nothing to compact.
    to_look_at: Cell<bool>,
    /// Whether operators let files be compacted automatically.
    compacts_itself: Cell<bool>,
    /// Whether operators want compactions to keep all tombstones.
    operators_keep_tombstones: Cell<bool>,
    /// Whether a replica of it joins or leaves, on some node.
    is_in_transition: Cell<bool>,
    /// Bytes still to be rewritten and due compactions, if computed since the last change of files.
    debt: Cell<Option<(f64, usize)>>,
    table: RefCell<Rc<Table>>,
    budget: Budget,
    /// Oldest first; the last one takes writes, the others are sealed and being flushed.
    memtables: RefCell<SmallVec<[Rc<Memtable>; 2]>>,
    /// When the last memtable began to take writes, or was last found empty.
    active_since: Cell<Instant>,
    files: RefCell<Rc<Vec<Rc<TableFile>>>>,
    /// The tablet's part of the row cache.
    cache: Rc<TabletCache>,
    numbers: NumberSource,
    /// Number of writes between the commit log and the memtable.
    writing: Cell<u32>,
    /// Tasks that seal a memtable or have the tablet to themselves: writes wait for them.
    closers: Cell<u32>,
    /// Tasks that have the tablet to themselves: a compaction ends early for them.
    claims: Cell<u32>,
    /// Whether a truncation failed that the next start may find in the commit log.
    truncation_in_doubt: Cell<bool>,
    marked: Cell<bool>,
    /// Generations of files that are in no set any more but may still be on the disk, so that the next start
    /// would read them. Until they are removed no tombstone may be purged, and every truncation has to name
    /// them.
    orphans: RefCell<BTreeMap<u64, Descriptor>>,
    /// Files that are not read and must not be removed.
    left_out: RefCell<Vec<LeftOut>>,
    /// Whether one of `left_out` may have data that reads need, so that reads fail.
    refuses_reads: Cell<bool>,
    /// Whether rows may have been left out since the start; tombstones are kept from then on.
    lacks_rows: Cell<bool>,
    /// Whether this process has made the folder's name durable; that the folder exists does not prove it.
    has_directory: Cell<bool>,
    changed: Event,
    /// Whether the table was dropped: nothing more is written.
    dropped: Cell<bool>,
    /// Whether the tablet left this shard: nothing more is written, and its files belong to another shard.
    left: Cell<bool>,
}

/// The numbers of a table's files that this shard gives out; all of the table's tablets here share them.
#[derive(Clone)]
pub(crate) struct NumberSource {
    numbers: Rc<RefCell<Numbers>>,
    /// The shard, and how many there are.
    place: (usize, usize),
}

impl NumberSource {
    pub(crate) fn new(numbers: Numbers, place: (usize, usize)) -> Self {
        Self { numbers: Rc::new(RefCell::new(numbers)), place }
    }

    /// Keeps a number from being given out.
    pub(crate) fn take(&self, number: u64) {
        self.numbers.borrow_mut().take(number);
    }

    fn next(&self) -> u64 {
        self.numbers.borrow_mut().next(self.place.0, self.place.1)
    }
}

impl Tablet {
    pub(crate) fn new(
        (id, since): (TabletId, u64),
        table: Rc<Table>,
        directory: &Path,
        cache: &Rc<RowCache>,
        files: Vec<Rc<TableFile>>,
        numbers: NumberSource,
    ) -> Self {
        let budget = cache.budget();
        Self {
            cache: Rc::new(TabletCache::new(cache, &table)),
            id,
            since: Cell::new(since),
            directory: directory.to_owned(),
            flushing: Semaphore::new(1),
            compacting: Semaphore::new(COMPACTIONS_MAX),
            exchanging: Semaphore::new(1),
            chooser: RefCell::new(Chooser::new(&table.options().compaction)),
            to_look_at: Cell::new(true),
            compacts_itself: Cell::new(true),
            operators_keep_tombstones: Cell::new(false),
            is_in_transition: Cell::new(false),
            debt: Cell::new(None),
            table: RefCell::new(table),
            memtables: RefCell::new(SmallVec::from_iter([Rc::new(Memtable::new(
                &budget,
                cache.memory_freed(),
            ))])),
            active_since: Cell::new(reactor::now()),
            files: RefCell::new(Rc::new(files)),
            numbers,
            writing: Cell::new(0),
            closers: Cell::new(0),
            claims: Cell::new(0),
            truncation_in_doubt: Cell::new(false),
            marked: Cell::new(true),
            budget,
            orphans: RefCell::new(BTreeMap::new()),
            left_out: RefCell::new(Vec::new()),
            refuses_reads: Cell::new(false),
            lacks_rows: Cell::new(false),
            has_directory: Cell::new(false),
            changed: Event::new(),
            dropped: Cell::new(false),
            left: Cell::new(false),
        }
    }

    /// Completes when writes may begin.
    pub(crate) async fn opened(&self) {
        self.changed.wait_until(|| !self.is_closed()).await;
    }

    /// The guard of a write that is in the commit log and not yet in the memtable.
    pub(crate) fn begin_write(self: &Rc<Self>) -> WriteGuard {
        self.writing.set(self.writing.get() + 1);
        WriteGuard(Rc::clone(self))
    }

    /// Seals the newest memtable at a moment when every write in the log before `end` is in a memtable. `end`
    /// returns `None` if no such position is known.
    ///
    /// Writes wait for it, no longer than a write of the commit log takes.
    pub(crate) async fn seal_at(self: &Rc<Self>, end: impl FnOnce() -> Option<Position>) {
        self.closers.set(self.closers.get() + 1);
        let quiet = Alone { tablet: Rc::clone(self), claims: false, _turns: SmallVec::new() };
        self.changed.wait_until(|| self.writing.get() == 0).await;
        self.seal(end());
        drop(quiet);
    }

    /// Waits until no write, flush or compaction runs in this tablet, and keeps them out while the value
    /// lives.
    ///
    /// A running compaction is asked to give up. `None` if too many tasks wait for a permit.
    pub(crate) async fn alone(self: &Rc<Self>) -> Option<Alone> {
        self.closers.set(self.closers.get() + 1);
        self.claims.set(self.claims.get() + 1);
        // From here on, dropping the future opens the tablet again.
        let mut alone = Alone { tablet: Rc::clone(self), claims: true, _turns: SmallVec::new() };
        alone._turns.push(self.flushing.acquire(1).await.ok()?);
        alone._turns.push(self.compacting.acquire(COMPACTIONS_MAX).await.ok()?);
        self.changed.wait_until(|| self.writing.get() == 0).await;
        Some(alone)
    }

    /// Whether writes wait: a task wants the tablet to itself, or a memtable is being sealed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closers.get() > 0
    }

    /// Whether a task wants the tablet to itself, so that compactions give up.
    pub(crate) fn is_claimed(&self) -> bool {
        self.claims.get() > 0
    }

    /// Notes that a truncation failed which the next start may find in the commit log. That start would
    /// remove the files that the truncation names: until then no file may be made of their rows, or of rows
    /// in memory.
    pub(crate) fn doubt_truncation(&self) {
        if !self.truncation_in_doubt.replace(true) {
            self.claims.set(self.claims.get() + 1);
        }
    }

    /// Ends the doubt about a truncation if `log` has none of its failed entries any more.
    ///
    /// # Errors
    /// The log's failure: the doubt goes on.
    pub(crate) fn check_truncation(&self, log: &Commitlog) -> Result<(), StorageError> {
        if self.truncation_in_doubt.get() {
            log.check_health()?;
            self.truncation_in_doubt.set(false);
            self.claims.set(self.claims.get() - 1);
            self.look_again();
        }
        Ok(())
    }

    /// The present revision of the table.
    pub(crate) fn table(&self) -> Rc<Table> {
        Rc::clone(&self.table.borrow())
    }

    fn new_memtable(&self) -> Memtable {
        Memtable::new(&self.budget, self.cache.memory_freed())
    }

    /// Takes a new revision of the table.
    pub(crate) fn set_table(&self, table: &Rc<Table>) {
        *self.table.borrow_mut() = Rc::clone(table);
        if !self.chooser.borrow().is_of(&table.options().compaction) {
            *self.chooser.borrow_mut() = Chooser::new(&table.options().compaction);
        }
        self.look_again();
        self.files.borrow().iter().for_each(|file| file.set_table(table));
        self.cache.forget(table);
    }

    /// The tablet's part of the row cache.
    #[inline]
    pub(crate) fn cache(&self) -> &Rc<TabletCache> {
        &self.cache
    }

    /// Drops the tablet's cached contents: its files have other contents than before, or may have.
    pub(crate) fn forget_cached(&self) {
        self.cache.forget(&self.table());
    }

    /// Applies a checked mutation to the newest memtable.
    #[inline]
    pub(crate) fn apply(&self, mutation: &MutationView<'_>, hold: Option<&Hold>) {
        let memtables = self.memtables.borrow();
        let active = memtables.last().expect("a tablet has a memtable that takes writes");
        active.apply(&self.table.borrow(), mutation, hold);
    }

    /// Rows and deletions of ranges that a memtable takes in one go; more are applied in steps.
    const PARTS_AT_ONCE: usize = 1000;
    /// A mutation of fewer bytes has fewer parts.
    pub(crate) const BYTES_AT_ONCE: usize = 8 * Self::PARTS_AT_ONCE;

    /// Whether a mutation is applied in steps.
    #[inline]
    pub(crate) fn takes_steps(mutation: &MutationView<'_>) -> bool {
        mutation.part_count() > Self::PARTS_AT_ONCE
    }

    /// As [`Tablet::apply`], in steps: see [`Memtable::apply_in_steps`].
    pub(crate) fn apply_in_steps(&self, mutation: &MutationView<'_>, hold: Option<&Hold>) {
        let active = self.memtables.borrow().last().map(Rc::clone);
        let active = active.expect("a tablet has a memtable that takes writes");
        active.apply_in_steps(&self.table(), mutation, hold);
    }

    /// All memtables, oldest first.
    pub(crate) fn memtables(&self) -> SmallVec<[Rc<Memtable>; 2]> {
        self.memtables.borrow().clone()
    }

    /// The memtable, if there is only one and reads are answered.
    pub(crate) fn only_memtable(&self) -> Option<Rc<Memtable>> {
        match self.memtables.borrow().as_slice() {
            [only] if !self.refuses_reads.get() => Some(Rc::clone(only)),
            _ => None,
        }
    }

    /// All table files.
    pub(crate) fn files(&self) -> Rc<Vec<Rc<TableFile>>> {
        Rc::clone(&self.files.borrow())
    }

    /// Bytes of all memtables.
    pub(crate) fn memtable_bytes(&self) -> usize {
        self.memtables.borrow().iter().map(|m| m.bytes()).sum()
    }

    /// Bytes of the memtable that takes writes.
    pub(crate) fn active_bytes(&self) -> usize {
        self.memtables.borrow().last().map_or(0, |m| if m.is_empty() { 0 } else { m.bytes() })
    }

    /// Time until the memtable that takes writes is as old as its table allows
    /// (`memtable_flush_period_in_ms`); `None` if there is no limit. The age of a memtable without a write
    /// starts again.
    pub(crate) fn until_too_old(&self) -> Option<Duration> {
        let period = match self.table.borrow().options().memtable_flush_period_in_ms {
            0 => return None,
            milliseconds => Duration::from_millis(u64::from(milliseconds)),
        };
        let left = period.saturating_sub(self.active_since.get().elapsed());
        if left > Duration::ZERO || self.active_bytes() > 0 {
            return Some(left);
        }
        self.active_since.set(reactor::now());
        Some(period)
    }

    /// The oldest commit-log segment its memtables need.
    pub(crate) fn oldest_segment(&self) -> Option<u64> {
        self.memtables.borrow().iter().filter_map(|m| m.oldest_segment()).min()
    }

    fn seal(&self, upto: Option<Position>) {
        let mut memtables = self.memtables.borrow_mut();
        let active = memtables.last().expect("a tablet has a memtable that takes writes");
        if !active.is_empty() {
            active.seal(upto);
            memtables.push(Rc::new(self.new_memtable()));
            self.active_since.set(reactor::now());
        }
    }

    /// The oldest sealed memtable.
    pub(crate) fn sealed(&self) -> Option<Rc<Memtable>> {
        let memtables = self.memtables.borrow();
        (memtables.len() > 1).then(|| Rc::clone(&memtables[0]))
    }

    /// Adds the file that a sealed memtable was written to, if anything was; the memtable stays until
    /// [`Tablet::remove_memtable`], and readers see its writes twice.
    pub(crate) fn add_flushed(&self, file: Option<Rc<TableFile>>) {
        // The table may have been altered while the file was written.
        file.iter().for_each(|file| file.set_table(&self.table.borrow()));
        let mut files = self.files.borrow_mut();
        Rc::make_mut(&mut files).extend(file);
        drop(files);
        self.cache.advance();
        self.look_again();
    }

    /// Removes a memtable whose writes are in a file and in the cache.
    pub(crate) fn remove_memtable(&self, old: &Rc<Memtable>) {
        self.memtables.borrow_mut().retain(|memtable| !Rc::ptr_eq(memtable, old));
    }

    /// Replaces files by others.
    pub(crate) fn replace_files(&self, old: &[Rc<TableFile>], new: impl IntoIterator<Item = Rc<TableFile>>) {
        let table = self.table();
        let mut files = self.files.borrow_mut();
        let files = Rc::make_mut(&mut files);
        files.retain(|file| !old.iter().any(|gone| Rc::ptr_eq(gone, file)));
        // The table may have been altered while they were written.
        files.extend(new.into_iter().inspect(|file| file.set_table(&table)));
        self.look_again();
    }

    /// First and last token, both included.
    pub(crate) fn tokens(&self) -> (Token, Token) {
        self.table.borrow().tablets().range(self.id)
    }

    /// Calls `ask` with the tablet's chooser of compactions.
    pub(crate) fn with_chooser<R>(&self, ask: impl FnOnce(&mut Chooser) -> R) -> R {
        ask(&mut self.chooser.borrow_mut())
    }

    /// Whether there may be something to compact.
    pub(crate) fn is_to_look_at(&self) -> bool {
        self.to_look_at.get()
    }

    /// Notes that there may be something to compact.
    pub(crate) fn look_again(&self) {
        self.to_look_at.set(true);
        self.debt.set(None);
    }

    /// Notes that there was nothing to compact.
    pub(crate) fn looked(&self) {
        self.to_look_at.set(false);
    }

    /// Whether operators let files be compacted automatically.
    pub(crate) fn compacts_itself(&self) -> bool {
        self.compacts_itself.get()
    }

    pub(crate) fn set_compacts_itself(&self, on: bool) {
        self.compacts_itself.set(on);
    }

    /// Whether compactions keep all tombstones: operators want it, or a replica that joins may get the data
    /// that they shadow later than them.
    #[inline]
    pub(crate) fn keeps_tombstones(&self) -> bool {
        self.operators_keep_tombstones.get() || self.is_in_transition.get()
    }

    pub(crate) fn operators_keep_tombstones(&self) -> bool {
        self.operators_keep_tombstones.get()
    }

    pub(crate) fn let_operators_keep_tombstones(&self, keep: bool) {
        self.operators_keep_tombstones.set(keep);
    }

    pub(crate) fn set_in_transition(&self, is_in_transition: bool) {
        self.is_in_transition.set(is_in_transition);
    }

    /// Bytes that compactions have still to rewrite, and the number of due compactions; computed again from
    /// `facts` if files have changed.
    pub(crate) fn debt(&self, facts: impl FnOnce() -> Facts) -> (f64, usize) {
        if let Some(known) = self.debt.get() {
            return known;
        }
        if self.files.borrow().len() < 2 {
            return (0.0, 0);
        }
        let facts = facts();
        let chooser = self.chooser.borrow();
        let debt = (chooser.backlog(&facts.view()), chooser.pending(&facts.view()));
        self.debt.set(Some(debt));
        debt
    }

    /// Removes all writes and files from the tablet. Returns the files, for removal, and the memtables, which
    /// still have their holds on the log.
    pub(crate) fn clear(&self) -> (Vec<Rc<Memtable>>, Vec<Rc<TableFile>>) {
        let fresh = SmallVec::from_iter([Rc::new(self.new_memtable())]);
        let memtables = std::mem::replace(&mut *self.memtables.borrow_mut(), fresh);
        let files = std::mem::take(&mut *self.files.borrow_mut());
        // Shard 0 removes those that have rows of other tablets too.
        let is_kept = |file: &LeftOut| file.is_shared && self.numbers.place.0 != 0;
        let (kept, gone): (Vec<_>, Vec<_>) = self.left_out.take().into_iter().partition(is_kept);
        gone.iter().for_each(|file| self.add_orphan_file(file.descriptor));
        self.refuses_reads.set(kept.iter().any(|file| file.refuses.is_some()));
        self.lacks_rows.set(!kept.is_empty());
        self.left_out.replace(kept);
        self.forget_cached();
        (memtables.into_vec(), files.to_vec())
    }

    /// The number of the command that gave this node the tablet, or that truncated it last.
    #[inline]
    pub(crate) fn since(&self) -> u64 {
        self.since.get()
    }

    /// Begins another tenancy of the tablet, which was truncated. The caller has the tablet to itself.
    pub(crate) fn begin_tenancy(&self, since: u64) {
        assert!(
            self.claims.get() > 0,
            "a tenancy begins while a task has the tablet to itself: {:?}",
            self.id
        );
        assert!(
            self.files.borrow().is_empty(),
            "a tenancy begins with a file of an earlier one: {:?}",
            self.id
        );
        self.since.set(since);
    }

    /// Whether the commit log records how far the tablet is flushed; otherwise no tombstone may be purged.
    pub(crate) fn is_marked(&self) -> bool {
        self.marked.get()
    }

    pub(crate) fn set_marked(&self, marked: bool) {
        self.marked.set(marked);
    }

    /// Notes a file of this node's version that should be removed from the disk and may not be.
    pub(crate) fn add_orphan(&self, generation: u64) {
        self.add_orphan_file(Descriptor::new(generation));
    }

    /// Notes a file that should be removed from the disk and may not be.
    pub(crate) fn add_orphan_file(&self, descriptor: Descriptor) {
        self.orphans.borrow_mut().insert(descriptor.generation(), descriptor);
    }

    /// Notes a file that is on the disk and is not read.
    pub(crate) fn leave_out(&self, file: LeftOut) {
        self.refuses_reads.set(self.refuses_reads.get() || file.refuses.is_some());
        self.lacks_rows.set(true);
        self.left_out.borrow_mut().push(file);
    }

    /// Notes that reads go on without the rows of a file.
    pub(crate) fn set_lacks_rows(&self) {
        self.lacks_rows.set(true);
    }

    /// Whether there may be rows that neither files nor memtables have.
    pub(crate) fn lacks_rows(&self) -> bool {
        self.lacks_rows.get()
    }

    /// Files that are on the disk and are not read.
    pub(crate) fn left_out(&self) -> Vec<LeftOut> {
        self.left_out.borrow().clone()
    }

    /// Removes a file from those that are left out: it is gone from the disk.
    pub(crate) fn forget_left_out(&self, generation: u64) {
        let mut left_out = self.left_out.borrow_mut();
        left_out.retain(|file| file.descriptor.generation() != generation);
        self.refuses_reads.set(left_out.iter().any(|file| file.refuses.is_some()));
    }

    /// Checks that reads can be answered.
    ///
    /// # Errors
    /// The reason why a file could not be opened that may have data a read needs.
    #[inline]
    pub(crate) fn check_readable(&self) -> Result<(), StorageError> {
        if self.refuses_reads.get() { Err(self.refusal()) } else { Ok(()) }
    }

    #[cold]
    fn refusal(&self) -> StorageError {
        let left_out = self.left_out.borrow();
        let refusal = left_out.iter().find_map(|file| file.refuses.clone());
        refusal.expect("a tablet that refuses reads knows why")
    }

    /// Notes that an orphan is gone from the disk.
    pub(crate) fn remove_orphan(&self, generation: u64) {
        self.orphans.borrow_mut().remove(&generation);
    }

    /// Numbers of its files.
    pub(crate) fn generations(&self) -> Vec<u64> {
        self.files.borrow().iter().map(|file| file.generation()).collect()
    }

    /// Generations of orphans: files that should be gone from the disk.
    pub(crate) fn orphans(&self) -> Vec<u64> {
        self.orphans.borrow().keys().copied().collect()
    }

    /// Descriptors of orphans: files that should be gone from the disk.
    pub(crate) fn orphan_files(&self) -> Vec<Descriptor> {
        self.orphans.borrow().values().copied().collect()
    }

    /// Whether the folder's name is durable.
    pub(crate) fn has_directory(&self) -> bool {
        self.has_directory.get()
    }

    pub(crate) fn set_directory(&self) {
        self.has_directory.set(true);
    }

    /// Marks the tablet as dropped with its table.
    pub(crate) fn mark_dropped(&self) {
        self.dropped.set(true);
    }

    /// Whether its table is gone.
    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.get()
    }

    /// Marks the tablet as having left this shard, whose files another shard has from now on. The caller has
    /// the tablet to itself, and has flushed it.
    pub(crate) fn mark_left(&self) {
        assert!(self.claims.get() > 0, "a tablet leaves while a task has it to itself: {:?}", self.id);
        let unflushed = self.memtables.borrow().iter().filter(|memtable| !memtable.is_empty()).count();
        assert_eq!(unflushed, 0, "a tablet leaves with all of its writes in files: {:?}", self.id);
        let busy: Vec<u64> =
            self.files.borrow().iter().filter(|file| file.is_busy()).map(|file| file.generation()).collect();
        assert!(busy.is_empty(), "a tablet leaves while nothing has its files: {:?}: {busy:?}", self.id);
        self.left.set(true);
        self.forget_cached();
    }

    /// Whether it left this shard.
    pub(crate) fn has_left(&self) -> bool {
        self.left.get()
    }

    /// Whether nothing more is to be written here: it left this shard, or its table was dropped.
    pub(crate) fn is_gone(&self) -> bool {
        self.left.get() || self.dropped.get()
    }

    /// The generation of the next table file, skipping generations of existing files: a file that was put
    /// there meanwhile is not overwritten.
    ///
    /// # Errors
    /// Those of looking for the files.
    pub(crate) async fn free_generation(&self) -> Result<u64, StorageError> {
        loop {
            let generation = self.numbers.next();
            let path = Descriptor::new(generation).path(&self.directory, Component::Data);
            let is_there = reactor::file::exists(&path).await;
            if !is_there.map_err(StorageError::of("look for", &path))? {
                return Ok(generation);
            }
            reactor::warn!("a table file was put into a table's folder while the node runs: it is left alone, and read from the \
                next start on"; file = path.display());
        }
    }
}

/// The guard of a write between the commit log and the memtable.
pub(crate) struct WriteGuard(Rc<Tablet>);

impl WriteGuard {
    /// The tablet that is written to.
    #[inline]
    pub(crate) fn tablet(&self) -> &Rc<Tablet> {
        &self.0
    }
}

impl Drop for WriteGuard {
    fn drop(&mut self) {
        self.0.writing.set(self.0.writing.get() - 1);
        if self.0.is_closed() {
            self.0.changed.notify_all();
        }
    }
}

/// A tablet that a task has to itself.
pub(crate) struct Alone {
    tablet: Rc<Tablet>,
    claims: bool,
    _turns: SmallVec<[Permit; 2]>,
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.tablet.closers.set(self.tablet.closers.get() - 1);
        if self.claims {
            self.tablet.claims.set(self.tablet.claims.get() - 1);
        }
        self.tablet.changed.notify_all();
    }
}
