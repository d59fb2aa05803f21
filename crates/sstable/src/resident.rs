//! Memory of a shard's open files for finding partitions: filters and summaries, within a share of the
//! shard's memory.
//!
//! Together with components that cannot be spared (chunk offsets, dictionaries) they stay below a limit.
//! Summaries have a part of it: beyond that every other entry of the largest is dropped, down to one for each
//! [`STRETCH_BYTES_MAX`] of index, and each read of that file's index takes twice as much. Beyond the whole
//! limit the largest filter is dropped. Reads then look for each key in that file's index, compactions of
//! other files keep tombstones of keys that it may have, and flushes do not put new partitions into the row
//! cache. When closed files leave room, dropped components are read again, the smallest first
//! ([`ComponentMemory::restore`]). ScyllaDB does so with filters (`components_memory_reclaim_threshold`).
//! Files that are being written take their part too (`making`).
//!
//! Invariant: the components of a file count as fixed memory in the shard's budget for as long as a reader
//! holds them; against the limit count the components that a new reader would find.

mod making;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use memory::{Budget, Charge, Kind};
use reactor::Event;

use crate::error::SstableError;
use crate::filter::Filter;
use crate::summary::Summary;
use crate::table_file::Open;

pub(crate) use making::Making;

/// Part of the limit (one in so many) that is for summaries.
const SUMMARIES_PART: usize = 4;
/// Most bytes of index between two entries of a thinned summary: half of what a lookup reads, and so
/// verifies, at once.
const STRETCH_BYTES_MAX: u64 = 32 << 10;

/// The memory of a shard for the filters and summaries of its open files.
#[derive(Clone)]
pub struct ComponentMemory(Rc<Shared>);

struct Shared {
    budget: Budget,
    bytes_max: usize,
    /// Bytes of all components in memory, and of summaries alone.
    held: Cell<usize>,
    summaries: Cell<usize>,
    files: RefCell<Vec<Weak<Open>>>,
    /// Whether a file may lack a component, whether a file was closed since that was last examined, and
    /// whether it is being examined.
    short: Cell<bool>,
    left: Cell<bool>,
    looking: Cell<bool>,
    room: Event,
    looked: Event,
}

impl std::fmt::Debug for ComponentMemory {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Shared { held, bytes_max, summaries, .. } = &*self.0;
        write!(formatter, "ComponentMemory({} of {bytes_max}, summaries {})", held.get(), summaries.get())
    }
}

/// A value whose bytes are counted.
#[derive(Debug)]
pub(crate) struct Counted<T> {
    value: T,
    _charge: Option<Charge>,
}

impl<T> std::ops::Deref for Counted<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

/// The components of one file that are in memory.
#[derive(Debug)]
pub(crate) struct Resident {
    filter: RefCell<Option<Counted<Filter>>>,
    /// `None` if partitions are not found by an index.
    summary: RefCell<Option<Rc<Counted<Summary>>>>,
    /// Bytes of both if nothing is left out.
    filter_bytes: usize,
    summary_bytes: usize,
    /// Bytes of its other components.
    other_bytes: usize,
    _other: Option<Charge>,
    /// Whether reading dropped components again has failed.
    failed: Cell<bool>,
    memory: Option<ComponentMemory>,
}

impl Resident {
    /// Takes the filter and the summary read from a file, with `other_bytes` for its other components.
    pub(crate) fn new(
        filter: Option<Filter>,
        summary: Option<Summary>,
        other_bytes: usize,
        memory: Option<&ComponentMemory>,
    ) -> Self {
        let (filter_bytes, summary_bytes) =
            (filter.as_ref().map_or(0, Filter::size), summary.as_ref().map_or(0, Summary::size));
        if let Some(memory) = memory {
            memory.count((0, 0), (filter_bytes + summary_bytes + other_bytes, summary_bytes));
        }
        Self {
            filter: RefCell::new(filter.map(|filter| counted(memory, filter, Filter::size))),
            summary: RefCell::new(summary.map(|summary| Rc::new(counted(memory, summary, Summary::size)))),
            filter_bytes,
            summary_bytes,
            other_bytes,
            _other: memory.map(|memory| memory.0.budget.hold(Kind::Fixed, other_bytes)),
            failed: Cell::new(false),
            memory: memory.cloned(),
        }
    }

    /// Whether the file may have this key, by the filter.
    #[inline]
    pub(crate) fn may_contain(&self, key: &[u8]) -> bool {
        self.filter.borrow().as_ref().is_none_or(|filter| filter.may_contain(key))
    }

    /// The present summary.
    #[inline]
    pub(crate) fn summary(&self) -> Option<Rc<Counted<Summary>>> {
        self.summary.borrow().clone()
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.filter_size() + self.summary_size() + self.other_bytes
    }

    fn filter_size(&self) -> usize {
        self.filter.borrow().as_ref().map_or(0, |filter| filter.size())
    }

    fn summary_size(&self) -> usize {
        self.summary.borrow().as_ref().map_or(0, |summary| summary.size())
    }

    /// Bytes of filter and summary that were left out.
    fn lacking(&self) -> (usize, usize) {
        (
            self.filter_bytes.saturating_sub(self.filter_size()),
            self.summary_bytes.saturating_sub(self.summary_size()),
        )
    }

    fn set_filter(&self, filter: Option<Filter>) {
        let before = self.counts();
        let filter = filter.map(|filter| counted(self.memory.as_ref(), filter, Filter::size));
        let _ = self.filter.replace(filter);
        self.recount(before);
    }

    fn set_summary(&self, summary: Summary) {
        let before = self.counts();
        let summary = Rc::new(counted(self.memory.as_ref(), summary, Summary::size));
        let _ = self.summary.replace(Some(summary));
        self.recount(before);
    }

    /// Bytes of everything, and of the summary.
    fn counts(&self) -> (usize, usize) {
        (self.bytes(), self.summary_size())
    }

    fn recount(&self, before: (usize, usize)) {
        if let Some(memory) = &self.memory {
            memory.count(before, self.counts());
        }
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        let Some(memory) = &self.memory else { return };
        memory.count(self.counts(), (0, 0));
        memory.note_left();
    }
}

fn counted<T>(memory: Option<&ComponentMemory>, value: T, size: impl Fn(&T) -> usize) -> Counted<T> {
    let charge = memory.map(|memory| memory.0.budget.hold(Kind::Fixed, size(&value)));
    Counted { value, _charge: charge }
}

impl ComponentMemory {
    /// Up to `bytes_max` of a shard's memory, counted in its budget.
    pub fn new(budget: &Budget, bytes_max: usize) -> Self {
        Self(Rc::new(Shared {
            budget: budget.clone(),
            bytes_max,
            held: Cell::new(0),
            summaries: Cell::new(0),
            files: RefCell::default(),
            short: Cell::new(false),
            left: Cell::new(false),
            looking: Cell::new(false),
            room: Event::new(),
            looked: Event::new(),
        }))
    }

    /// Bytes of filters and summaries that are left out for now.
    pub fn lacking_bytes(&self) -> usize {
        if !self.0.short.get() {
            return 0;
        }
        let lacking = |file: &Rc<Open>| {
            let (filter, summary) = file.resident.lacking();
            filter + summary
        };
        self.open_files().iter().map(lacking).sum()
    }

    /// Completes once a file was closed while another lacks a component, or at [`ComponentMemory::wake`].
    pub async fn wait_for_room(&self) {
        self.0.room.wait().await;
    }

    /// Wakes tasks in [`ComponentMemory::wait_for_room`].
    pub fn wake(&self) {
        self.0.room.notify_all();
    }

    /// Completes when [`ComponentMemory::restore`] has examined the room of every file that was closed.
    pub async fn restored(&self) {
        self.0.looked.wait_until(|| !self.0.left.get() && !self.0.looking.get()).await;
    }

    fn count(&self, before: (usize, usize), now: (usize, usize)) {
        let Shared { held, summaries, .. } = &*self.0;
        held.set(held.get() - before.0 + now.0);
        summaries.set(summaries.get() - before.1 + now.1);
    }

    /// Notes that memory was freed, so that dropped components may be read again.
    fn note_left(&self) {
        if self.0.short.get() {
            self.0.left.set(true);
            self.wake();
        }
    }

    fn enter(&self, file: &Rc<Open>) {
        let mut files = self.0.files.borrow_mut();
        if files.len() == files.capacity() {
            files.retain(|file| file.strong_count() > 0);
        }
        files.push(Rc::downgrade(file));
    }

    fn open_files(&self) -> Vec<Rc<Open>> {
        self.0.files.borrow().iter().filter_map(Weak::upgrade).collect()
    }

    /// The summaries' part of the limit.
    fn summaries_max(&self) -> usize {
        self.0.bytes_max / SUMMARIES_PART
    }

    /// Registers a file that was opened; drops components if there are too many.
    pub(crate) async fn admit(&self, file: &Rc<Open>) {
        self.enter(file);
        self.leave_out().await;
    }

    /// Drops components of open files while they exceed their limits.
    async fn leave_out(&self) {
        while self.0.summaries.get() > self.summaries_max() {
            let files = self.open_files().into_iter();
            let largest = files
                .filter(|file| file.may_be_thinned(STRETCH_BYTES_MAX))
                .max_by_key(|file| file.resident.summary_size());
            let Some(file) = largest else { break };
            let Some(summary) = file.resident.summary() else { break };
            // Before the first wait, so that a file that is closed meanwhile is noted.
            self.0.short.set(true);
            let thinned = summary.thinned().await;
            // Another task may have thinned it meanwhile.
            if file.resident.summary_size() > thinned.size() {
                file.resident.set_summary(thinned);
            }
        }
        if self.0.held.get() <= self.0.bytes_max {
            return;
        }
        let mut files = self.open_files();
        files.sort_by_key(|file| file.resident.filter_size());
        while self.0.held.get() > self.0.bytes_max {
            let Some(file) = files.pop().filter(|file| file.resident.filter_size() > 0) else { break };
            reactor::warn_limited!("there is no memory for the filter of a table file: reads look for each key in its index; \
                    a greater components_memory_reclaim_threshold or more memory gives it back";
                directory = file.dir.display(), file = file.descriptor, bytes = file.resident.filter_size());
            self.0.short.set(true);
            file.resident.set_filter(None);
            reactor::maybe_yield().await;
        }
    }

    /// Reads dropped components again, as far as there is room and while `go_on` returns true: filters first,
    /// the smallest first.
    pub async fn restore(&self, go_on: impl Fn() -> bool) {
        while self.0.left.replace(false) {
            self.0.looking.set(true);
            // Components that could not be read before may be readable now.
            self.open_files().iter().for_each(|file| file.resident.failed.set(false));
            while go_on()
                && let Some((file, part)) = self.next_to_restore()
            {
                self.restore_one(&file, part).await;
            }
            self.0.short.set(self.open_files().iter().any(|file| file.resident.lacking() != (0, 0)));
            self.0.looking.set(false);
        }
        self.0.looked.notify_all();
    }

    async fn restore_one(&self, file: &Rc<Open>, part: Part) {
        let resident = &file.resident;
        // False if other components took the room meanwhile.
        let restored = match part {
            Part::Filter => file.read_filter().await.map(|filter| {
                let fits = resident.lacking().0 <= self.rooms().0;
                if fits {
                    resident.set_filter(Some(filter));
                }
                fits
            }),
            Part::Summary => file.read_summary().await.map(|summary| {
                let fits = resident.lacking().1 <= self.rooms().1;
                if fits {
                    resident.set_summary(summary);
                }
                fits
            }),
        };
        match restored {
            Ok(true) => {}
            Ok(false) => return,
            // The file was compacted away and is still being read.
            Err(SstableError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                reactor::warn_limited!("what was left out of memory cannot be read again; reads go on without it";
                    error = error);
            }
        }
        // Otherwise a component that was rebuilt from a damaged file, and is smaller, would be read again and
        // again.
        let (filter, summary) = resident.lacking();
        resident.failed.set(match part {
            Part::Filter => filter > 0,
            Part::Summary => summary > 0,
        });
    }

    /// Free bytes for all components, and for summaries.
    fn rooms(&self) -> (usize, usize) {
        let room = self.0.bytes_max.saturating_sub(self.0.held.get());
        (room, room.min(self.summaries_max().saturating_sub(self.0.summaries.get())))
    }

    fn next_to_restore(&self) -> Option<(Rc<Open>, Part)> {
        let files = self.open_files();
        let (room, of_summaries) = self.rooms();
        let readable = || files.iter().filter(|file| !file.resident.failed.get());
        let filter = readable()
            .filter(|file| (1..=room).contains(&file.resident.lacking().0))
            .min_by_key(|file| file.resident.filter_bytes);
        let summary = || {
            readable()
                .filter(|file| (1..=of_summaries).contains(&file.resident.lacking().1))
                .min_by_key(|file| file.resident.summary_bytes)
        };
        filter
            .map(|file| (Rc::clone(file), Part::Filter))
            .or_else(|| summary().map(|file| (Rc::clone(file), Part::Summary)))
    }
}

/// The component of a file that is read again.
#[derive(Clone, Copy)]
enum Part {
    Filter,
    Summary,
}
