//! Caches stretches of `Index.db`: the page cache of a shard's indexes.
//!
//! A page is the bytes of one request of a lookup, identified by its file and offset: a whole stretch between
//! two samples of the summary, or a piece of a wide one. All files of a shard share one LRU order. Pages are
//! clean memory of the shard's budget (`memory::Budget`): the code that reclaims for the budget calls
//! [`IndexPages::give_back`]. Readers of a page that is being read wait for that read.
//!
//! Invariant: a slot is in the LRU order, in the list of its file and, while the file is open, in the file's
//! map; or in none of them. The pages of a closed file are not found any more and are removed a few at a
//! time, so that closing a large file does not block other tasks. A page that is evicted while a reader holds
//! it lives on, uncounted, until that lookup ends.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;

use hashbrown::HashMap;
use memory::{Budget, Kind};
use reactor::Event;
use reactor::file::File;
use reactor::metrics::{Counter, Gauge, counter, gauge};

use crate::data::chunks::ReadCounter;
use crate::error::SstableError;

/// Bytes of a page besides its contents: its slot, its entry in the file's map and the allocator's overhead.
const OVERHEAD_BYTES: usize = 128;
/// A page may be at most this part (one in so many) of all memory.
const PAGE_PART: usize = 16;
/// While other users want the memory, pages keep so many of [`SHARES`] parts of the evictable memory: the
/// least, which they begin with, and the most. In between, the share depends on the requests saved per byte
/// by pages and by other users ([`IndexPages::balance`]).
const SHARE_MIN: usize = 3;
const SHARE_MAX: usize = 15;
const SHARES: usize = 16;
/// Disk requests that were saved between two adjustments of the shares.
const BALANCE_EVERY: u64 = 512;
/// Disk requests saved when a read of a row is answered without pages: one of the index and one of the data.
const SAVED_BY_ROW: u64 = 2;
/// Pages of closed files that are removed at once; the others follow one by one as pages are added.
const SWEPT_AT_ONCE: usize = 16;
/// No slot.
const NONE: u32 = u32::MAX;

/// The index pages of one shard. Clones are the same pages.
#[derive(Clone)]
pub struct IndexPages(Rc<Inner>);

struct Inner {
    budget: Budget,
    state: RefCell<State>,
    share: Cell<usize>,
    /// Hits, and reads that other users answered, at the last adjustment of the shares.
    balanced_at: Cell<(u64, u64)>,
    hits: Rc<Counter>,
    misses: Rc<Counter>,
    populations: Rc<Counter>,
    evictions: Rc<Counter>,
    bytes: Rc<Gauge>,
}

#[derive(Default)]
struct State {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// The LRU order, the oldest first.
    used: List,
    files: Vec<OpenFile>,
    free_files: Vec<u32>,
    /// Closed files that still have pages.
    closed: Vec<u32>,
    /// Running reads; there are few at a time.
    loading: HashMap<(u32, u64), Rc<Loading>, foldhash::fast::FixedState>,
    pages: usize,
    bytes: usize,
}

#[derive(Default)]
struct OpenFile {
    by_start: HashMap<u64, u32, foldhash::fast::FixedState>,
    slots: List,
}

struct Slot {
    page: Option<Rc<[u8]>>,
    file: u32,
    start: u64,
    /// Neighbours in the LRU order and in the list of the file.
    links: [(u32, u32); 2],
}

/// Index of a slot's links.
const BY_USE: usize = 0;
const BY_FILE: usize = 1;

#[derive(Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

impl Default for List {
    fn default() -> Self {
        Self { first: NONE, last: NONE }
    }
}

impl List {
    fn push(&mut self, slots: &mut [Slot], which: usize, slot: u32) {
        slots[slot as usize].links[which] = (self.last, NONE);
        match self.last {
            NONE => self.first = slot,
            last => slots[last as usize].links[which].1 = slot,
        }
        self.last = slot;
    }

    fn take(&mut self, slots: &mut [Slot], which: usize, slot: u32) {
        let (before, behind) = slots[slot as usize].links[which];
        match before {
            NONE => self.first = behind,
            before => slots[before as usize].links[which].1 = behind,
        }
        match behind {
            NONE => self.last = before,
            behind => slots[behind as usize].links[which].0 = before,
        }
    }
}

/// A running read, and its result.
#[derive(Default)]
struct Loading {
    page: RefCell<Option<Rc<[u8]>>>,
    ended: Cell<bool>,
    changed: Event,
}

impl State {
    /// Removes a page and frees its slot; returns the bytes it was counted for.
    fn remove(&mut self, number: u32) -> usize {
        self.used.take(&mut self.slots, BY_USE, number);
        let (file, start) = (self.slots[number as usize].file, self.slots[number as usize].start);
        let open = &mut self.files[file as usize];
        open.slots.take(&mut self.slots, BY_FILE, number);
        open.by_start.remove(&start);
        let page = self.slots[number as usize].page.take().expect("a slot in the order of use has a page");
        self.free.push(number);
        self.pages -= 1;
        let bytes = page.len() + OVERHEAD_BYTES;
        self.bytes -= bytes;
        bytes
    }

    fn insert(&mut self, file: u32, start: u64, page: Rc<[u8]>) {
        self.pages += 1;
        self.bytes += page.len() + OVERHEAD_BYTES;
        let slot = Slot { page: Some(page), file, start, links: [(NONE, NONE); 2] };
        let number = match self.free.pop() {
            Some(number) => {
                self.slots[number as usize] = slot;
                number
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        };
        self.used.push(&mut self.slots, BY_USE, number);
        let open = &mut self.files[file as usize];
        open.slots.push(&mut self.slots, BY_FILE, number);
        open.by_start.insert(start, number);
    }

    /// Drops up to `most` pages of closed files; returns the bytes they were counted for.
    fn sweep(&mut self, most: usize) -> usize {
        let mut given = 0;
        for _ in 0..most {
            let Some(file) = self.closed.last().copied() else { break };
            match self.files[file as usize].slots.first {
                NONE => {
                    self.closed.pop();
                    self.free_files.push(file);
                }
                slot => given += self.remove(slot),
            }
        }
        given
    }
}

/// The next share, from the requests that pages saved with their bytes and other users with the rest of `all`
/// bytes.
fn balanced(share: usize, (pages_saved, pages): (u64, usize), (others_saved, all): (u64, usize)) -> usize {
    let others = all.saturating_sub(pages);
    // Compared per byte: the requests saved by each times the bytes of the other. A difference of a quarter
    // is needed to move the share.
    let by_pages = u128::from(pages_saved) * others as u128;
    let by_others = u128::from(others_saved) * pages as u128;
    if 4 * by_pages > 5 * by_others {
        (share + 1).min(SHARE_MAX)
    } else if 4 * by_others > 5 * by_pages {
        share.saturating_sub(1).max(SHARE_MIN)
    } else {
        share
    }
}

impl IndexPages {
    /// No pages yet, within `budget`.
    pub fn new(budget: &Budget) -> Self {
        let count = |name: &str, help: &str| counter(name, help, &[]);
        Self(Rc::new(Inner {
            budget: budget.clone(),
            state: RefCell::default(),
            share: Cell::new(SHARE_MIN),
            balanced_at: Cell::new((0, 0)),
            hits: count(
                "scylla_sstables_index_page_cache_hits",
                "Index pages that were in memory or being read",
            ),
            misses: count("scylla_sstables_index_page_cache_misses", "Index pages that were read from disk"),
            populations: count(
                "scylla_sstables_index_page_cache_populations",
                "Index pages that were kept in memory",
            ),
            evictions: count(
                "scylla_sstables_index_page_cache_evictions",
                "Index pages that left memory for want of it",
            ),
            bytes: gauge("scylla_sstables_index_page_cache_bytes", "Bytes of index pages in memory", &[]),
        }))
    }

    /// Bytes of all pages.
    pub fn bytes(&self) -> usize {
        self.0.state.borrow().bytes
    }

    /// Number of pages.
    pub fn count(&self) -> usize {
        self.0.state.borrow().pages
    }

    /// Bytes beyond their share, for when other users want memory.
    pub fn excess(&self) -> usize {
        self.bytes().saturating_sub(self.0.budget.clean() / SHARES * self.0.share.get())
    }

    /// Moves the share towards the user that saves more requests per byte; `answered` is the number of reads
    /// that other users of the budget have answered so far. Called when memory is wanted.
    ///
    /// Of uniform reads of small rows a page of 2 KiB serves 50 rows, and the same memory as rows six; for
    /// hot rows the ratio is the reverse.
    pub fn balance(&self, answered: u64) {
        let inner = &*self.0;
        let ((hits_before, answered_before), hits) = (inner.balanced_at.get(), inner.hits.get());
        let pages_saved = hits.saturating_sub(hits_before);
        let others_saved = SAVED_BY_ROW * answered.saturating_sub(answered_before);
        if pages_saved + others_saved < BALANCE_EVERY {
            return;
        }
        inner.balanced_at.set((hits, answered));
        let share =
            balanced(inner.share.get(), (pages_saved, self.bytes()), (others_saved, inner.budget.clean()));
        inner.share.set(share);
    }

    /// Evicts until `bytes` are freed or no page is left; returns the freed bytes.
    pub fn give_back(&self, bytes: usize) -> usize {
        let mut state = self.0.state.borrow_mut();
        let mut given = 0;
        // Pages that cannot be found any more go first.
        while given < bytes && !state.closed.is_empty() {
            given += state.sweep(SWEPT_AT_ONCE);
        }
        while given < bytes && state.used.first != NONE {
            let oldest = state.used.first;
            given += state.remove(oldest);
            self.0.evictions.inc();
        }
        self.refund(&state, given);
        given
    }

    fn refund(&self, state: &State, bytes: usize) {
        self.0.budget.refund(Kind::Clean, bytes);
        self.0.bytes.set(i64::try_from(state.bytes).unwrap_or(i64::MAX));
    }

    /// Makes room for `bytes` more: from rows if pages have less than their share, otherwise from pages.
    fn make_room(&self, bytes: usize) -> bool {
        let budget = &self.0.budget;
        if bytes > budget.total_limit() / PAGE_PART {
            return false;
        }
        if budget.room() < bytes && self.excess() > 0 {
            self.give_back(bytes - budget.room());
        }
        budget.make_room(bytes)
    }

    fn keep(&self, file: u32, start: u64, page: Rc<[u8]>) {
        let swept = self.0.state.borrow_mut().sweep(2);
        let bytes = page.len() + OVERHEAD_BYTES;
        let has_room = self.make_room(bytes);
        let mut state = self.0.state.borrow_mut();
        // A page that was too short for a later reader.
        let replaced = state.files[file as usize].by_start.get(&start).copied();
        let given = swept + replaced.map_or(0, |slot| state.remove(slot));
        if has_room {
            self.0.budget.charge(Kind::Clean, bytes);
            state.insert(file, start, page);
            self.0.populations.inc();
        }
        self.refund(&state, given);
    }
}

impl std::fmt::Debug for IndexPages {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("IndexPages")
            .field("count", &self.count())
            .field("bytes", &self.bytes())
            .finish()
    }
}

/// The pages of one open file, which are dropped with it.
#[derive(Debug)]
pub(crate) struct FilePages {
    pages: IndexPages,
    file: u32,
}

enum Look {
    Here(Rc<[u8]>),
    /// Another lookup reads it.
    Coming(Rc<Loading>),
    /// The caller reads it.
    Absent(Load),
}

/// A read that other lookups may wait for; it ends when dropped, with any result.
struct Load {
    pages: IndexPages,
    file: u32,
    start: u64,
    loading: Rc<Loading>,
}

impl Drop for Load {
    fn drop(&mut self) {
        self.pages.0.state.borrow_mut().loading.remove(&(self.file, self.start));
        self.loading.ended.set(true);
        self.loading.changed.notify_all();
    }
}

impl FilePages {
    pub(crate) fn new(pages: &IndexPages) -> Self {
        let mut state = pages.0.state.borrow_mut();
        let file = match state.free_files.pop() {
            Some(file) => file,
            None => {
                state.files.push(OpenFile::default());
                (state.files.len() - 1) as u32
            }
        };
        drop(state);
        Self { pages: pages.clone(), file }
    }

    /// `length` bytes or more of the index from `start` on, fewer only at its end; from memory if they are
    /// there.
    ///
    /// # Errors
    /// [`SstableError::Io`].
    pub(crate) async fn read(
        &self,
        (file, path): (&File, &Path),
        counter: &ReadCounter,
        (start, length): (u64, usize),
    ) -> Result<Rc<[u8]>, SstableError> {
        loop {
            let load = match self.look(start, length) {
                Look::Here(page) => return Ok(page),
                Look::Coming(loading) => {
                    loading.changed.wait_until(|| loading.ended.get()).await;
                    // There is no page if its reader failed or gave up, or the page is too short: then this
                    // lookup reads.
                    match &*loading.page.borrow() {
                        Some(page) if page.len() >= length => {
                            self.pages.0.hits.inc();
                            return Ok(Rc::clone(page));
                        }
                        _ => continue,
                    }
                }
                Look::Absent(load) => load,
            };
            self.pages.0.misses.inc();
            let bytes = counter.read(file, path, start, length).await?;
            let page: Rc<[u8]> = Rc::from(&*bytes);
            self.pages.keep(self.file, start, Rc::clone(&page));
            *load.loading.page.borrow_mut() = Some(Rc::clone(&page));
            return Ok(page);
        }
    }

    fn look(&self, start: u64, length: usize) -> Look {
        let mut state = self.pages.0.state.borrow_mut();
        let State { slots, used, files, .. } = &mut *state;
        if let Some(number) = files[self.file as usize].by_start.get(&start).copied() {
            let page = slots[number as usize].page.clone().expect("a slot in a map has a page");
            if page.len() >= length {
                used.take(slots, BY_USE, number);
                used.push(slots, BY_USE, number);
                self.pages.0.hits.inc();
                return Look::Here(page);
            }
        }
        match state.loading.get(&(self.file, start)) {
            Some(loading) => Look::Coming(Rc::clone(loading)),
            None => {
                let loading = Rc::new(Loading::default());
                state.loading.insert((self.file, start), Rc::clone(&loading));
                Look::Absent(Load { pages: self.pages.clone(), file: self.file, start, loading })
            }
        }
    }
}

impl Drop for FilePages {
    fn drop(&mut self) {
        let mut state = self.pages.0.state.borrow_mut();
        state.files[self.file as usize].by_start = HashMap::default();
        state.closed.push(self.file);
        let given = state.sweep(SWEPT_AT_ONCE);
        self.pages.refund(&state, given);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_to_whoever_saves_more_by_a_byte() {
        let check = |share, pages, others, expected| assert_eq!(balanced(share, pages, others), expected);
        check(3, (500, 20), (100, 100), 4);
        check(3, (100, 20), (500, 100), 3);
        check(8, (100, 50), (500, 100), 7);
        check(8, (300, 50), (300, 100), 8);
        check(15, (512, 90), (0, 100), 15);
        check(3, (0, 0), (512, 100), 3);
        check(8, (0, 50), (512, 100), 7);
    }
}
