//! What open files of a shard keep in memory to be found in: filters and summaries, within a share of the shard's memory.
//!
//! With what cannot be spared (places of chunks, dictionaries) they stay below a limit. Beyond it the largest filter goes:
//! reads then look for each key in that file's index. Summaries get a part of the limit; beyond that every other entry of
//! the largest goes: each read of that file's index takes twice as much. What went comes back from the disk as files that are closed
//! leave room for it, the smallest first ([`ComponentMemory::restore`]). ScyllaDB does so with filters
//! (`components_memory_reclaim_threshold`).
//!
//! Invariant: what a file keeps counts as fixed in the shard's budget, for as long as a reader holds it.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use memory::{Budget, Charge, Kind};
use reactor::Event;

use crate::filter::Filter;
use crate::summary::Summary;
use crate::table_file::Open;

/// Part of the limit that is for summaries.
const SUMMARIES_PART: usize = 4;

/// The memory of a shard for what its open files are found in.
#[derive(Clone)]
pub struct ComponentMemory(Rc<Shared>);

struct Shared {
    budget: Budget,
    bytes_max: usize,
    /// Bytes of summaries.
    summaries: Cell<usize>,
    files: RefCell<Vec<Weak<Open>>>,
    /// Whether a file may lack something, and whether a file has left since that was looked at.
    short: Cell<bool>,
    left: Cell<bool>,
    room: Event,
}

impl std::fmt::Debug for ComponentMemory {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Shared { budget, bytes_max, summaries, .. } = &*self.0;
        write!(formatter, "ComponentMemory({} of {bytes_max}, summaries {})", budget.fixed(), summaries.get())
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

/// What one file keeps.
#[derive(Debug)]
pub(crate) struct Resident {
    filter: RefCell<Option<Counted<Filter>>>,
    /// None where partitions are not found by an index.
    summary: RefCell<Option<Rc<Counted<Summary>>>>,
    /// Bytes of both when nothing is left out.
    filter_bytes: usize,
    summary_bytes: usize,
    /// What it keeps besides.
    other_bytes: usize,
    _other: Option<Charge>,
    /// Whether what is left out could not be read again.
    failed: Cell<bool>,
    memory: Option<ComponentMemory>,
}

impl Resident {
    /// Takes what was read of a file, with `other_bytes` that it keeps besides.
    pub(crate) fn new(
        filter: Option<Filter>,
        summary: Option<Summary>,
        other_bytes: usize,
        memory: Option<&ComponentMemory>,
    ) -> Self {
        let (filter_bytes, summary_bytes) =
            (filter.as_ref().map_or(0, Filter::size), summary.as_ref().map_or(0, Summary::size));
        if let Some(ComponentMemory(shared)) = memory {
            shared.summaries.set(shared.summaries.get() + summary_bytes);
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

    /// Whether the file may have this key, as far as the filter tells.
    #[inline]
    pub(crate) fn may_contain(&self, key: &[u8]) -> bool {
        self.filter.borrow().as_ref().is_none_or(|filter| filter.may_contain(key))
    }

    /// The summary, as it is now.
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
        let filter = filter.map(|filter| counted(self.memory.as_ref(), filter, Filter::size));
        let _ = self.filter.replace(filter);
    }

    fn set_summary(&self, summary: Summary) {
        let (before, now) = (self.summary_size(), summary.size());
        let summary = Rc::new(counted(self.memory.as_ref(), summary, Summary::size));
        let _ = self.summary.replace(Some(summary));
        if let Some(ComponentMemory(shared)) = &self.memory {
            shared.summaries.set(shared.summaries.get() - before + now);
        }
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        let Some(ComponentMemory(shared)) = &self.memory else { return };
        shared.summaries.set(shared.summaries.get() - self.summary_size());
        shared.left.set(true);
        if shared.short.get() {
            shared.room.notify_all();
        }
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
            summaries: Cell::new(0),
            files: RefCell::default(),
            short: Cell::new(false),
            left: Cell::new(false),
            room: Event::new(),
        }))
    }

    /// Bytes of filters and summaries that are left out for now.
    pub fn lacking_bytes(&self) -> usize {
        if !self.0.short.get() {
            return 0;
        }
        self.open_files()
            .iter()
            .map(|file| {
                let (filter, summary) = file.resident.lacking();
                filter + summary
            })
            .sum()
    }

    /// Completes once a file was closed while another lacks something, or when it is woken for [`ComponentMemory::wake`].
    pub async fn wait_for_room(&self) {
        self.0.room.wait().await;
    }

    /// Wakes who waits for room.
    pub fn wake(&self) {
        self.0.room.notify_all();
    }

    fn open_files(&self) -> Vec<Rc<Open>> {
        let mut files = self.0.files.borrow_mut();
        files.retain(|file| file.strong_count() > 0);
        files.iter().filter_map(Weak::upgrade).collect()
    }

    /// The summaries' part of the limit.
    fn summaries_max(&self) -> usize {
        self.0.bytes_max / SUMMARIES_PART
    }

    fn enter(&self, file: &Rc<Open>) {
        let mut files = self.0.files.borrow_mut();
        if files.len() == files.capacity() {
            files.retain(|file| file.strong_count() > 0);
        }
        files.push(Rc::downgrade(file));
    }

    /// Takes a file in that was opened; what that is too much for goes.
    pub(crate) async fn admit(&self, file: &Rc<Open>) {
        self.enter(file);
        while self.0.summaries.get() > self.summaries_max() {
            // Below two entries nothing is left to be left out.
            let largest = self
                .open_files()
                .into_iter()
                .filter(|file| file.resident.summary().is_some_and(|summary| summary.len() > 1))
                .max_by_key(|file| file.resident.summary_size());
            let Some(summary) = largest.as_ref().and_then(|file| file.resident.summary()) else { break };
            let thinned = summary.thinned().await;
            if let Some(file) = largest {
                // Somebody else may have thinned it meanwhile.
                if file.resident.summary_size() > thinned.size() {
                    file.resident.set_summary(thinned);
                }
            }
            self.0.short.set(true);
        }
        while self.0.budget.fixed() > self.0.bytes_max {
            let largest = self.open_files().into_iter().max_by_key(|file| file.resident.filter_size());
            let Some(file) = largest.filter(|file| file.resident.filter_size() > 0) else { break };
            reactor::warn_limited!("there is no memory for the filter of a table file: reads look for each key in its index; \
                    a greater components_memory_reclaim_threshold or more memory gives it back";
                file = file.descriptor, bytes = file.resident.filter_size());
            file.resident.set_filter(None);
            self.0.short.set(true);
        }
    }

    /// Reads again what was left out, as far as there is room now: filters first, the smallest first.
    pub async fn restore(&self) {
        while self.0.left.replace(false) {
            while let Some((file, part)) = self.next_to_restore() {
                let restored = match part {
                    Part::Filter => {
                        file.read_filter().await.map(|filter| file.resident.set_filter(Some(filter)))
                    }
                    Part::Summary => {
                        file.read_summary().await.map(|summary| file.resident.set_summary(summary))
                    }
                };
                if let Err(error) = &restored {
                    reactor::warn!("what was left out of memory cannot be read again; reads go on without it";
                        error = error);
                }
                let (filter, summary) = file.resident.lacking();
                let lacks = match part {
                    Part::Filter => filter > 0,
                    Part::Summary => summary > 0,
                };
                // What was made anew from a damaged file is not what the file gives.
                file.resident.failed.set(restored.is_err() || lacks);
            }
        }
    }

    fn next_to_restore(&self) -> Option<(Rc<Open>, Part)> {
        let files = self.open_files();
        let lacking = || files.iter().filter(|file| !file.resident.failed.get());
        let room = self.0.bytes_max.saturating_sub(self.0.budget.fixed());
        let of_summaries = room.min(self.summaries_max().saturating_sub(self.0.summaries.get()));
        let filter = lacking()
            .filter(|file| (1..=room).contains(&file.resident.lacking().0))
            .min_by_key(|file| file.resident.filter_bytes);
        let summary = || {
            lacking()
                .filter(|file| (1..=of_summaries).contains(&file.resident.lacking().1))
                .min_by_key(|file| file.resident.summary_bytes)
        };
        let next = filter
            .map(|file| (Rc::clone(file), Part::Filter))
            .or_else(|| summary().map(|file| (Rc::clone(file), Part::Summary)));
        if next.is_none() {
            self.0.short.set(lacking().any(|file| file.resident.lacking() != (0, 0)));
        }
        next
    }
}

/// What of a file is read again.
#[derive(Clone, Copy)]
enum Part {
    Filter,
    Summary,
}
