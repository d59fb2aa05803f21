//! Writes groups of entries, one at a time, and makes them durable.
//!
//! While one write runs the next group gathers, so the number of writes follows the device and not the
//! clients. Invariant: `written` and `durable` only grow, and a group is acknowledged after all groups before
//! it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use reactor::Event;
use reactor::file::AlignedBuf;

use super::format::{EntryKind, HEADER_BYTES, Position, encode_entry, entry_bytes};
use super::{Commitlog, Health, Segment, State};
use crate::config::CommitlogSync;
use crate::error::StorageError;

/// First size of a group's buffer; it doubles as entries come.
const BUFFER_BYTES: usize = 16 << 10;
/// Time between two attempts to go on after a failed write.
pub(super) const RETRY_EVERY: Duration = Duration::from_millis(100);
/// Group states kept for reuse.
const GROUP_STATES_MAX: usize = 4;

/// Entries that are written together.
pub(super) struct Group {
    pub(super) segment: Rc<Segment>,
    pub(super) offset: usize,
    pub(super) closes: bool,
    pub(super) state: Rc<GroupState>,
    buf: AlignedBuf,
    used: usize,
}

/// The outcome of a group, shared with the writes that wait for it.
#[derive(Default)]
pub(super) struct GroupState {
    outcome: RefCell<Option<Result<(), StorageError>>>,
    done: Event,
    finished: Cell<bool>,
}

impl GroupState {
    pub(super) fn reset(&self) {
        self.finished.set(false);
        *self.outcome.borrow_mut() = None;
    }

    /// Completes when the group is as safe as the mode promises, or failed.
    pub(super) async fn finished(&self) -> Result<(), StorageError> {
        self.done.wait_until(|| self.finished.get()).await;
        self.outcome()
    }

    #[inline]
    pub(super) fn is_finished(&self) -> bool {
        self.finished.get()
    }

    /// The outcome of a finished group.
    #[inline]
    pub(super) fn outcome(&self) -> Result<(), StorageError> {
        match &*self.outcome.borrow() {
            Some(Err(error)) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// The event that is notified when the group is finished, or when a waiting write's deadline has come.
    #[inline]
    pub(super) fn news(&self) -> &Event {
        &self.done
    }

    /// Wakes all waiting writes, so that they check their deadlines.
    pub(super) fn tell(&self) {
        self.done.notify_all();
    }

    fn finish(&self, outcome: Result<(), StorageError>) {
        *self.outcome.borrow_mut() = Some(outcome);
        self.finished.set(true);
        self.done.notify_all();
    }
}

impl Group {
    pub(super) fn new(segment: Rc<Segment>, offset: usize, state: Rc<GroupState>) -> Self {
        Self { segment, offset, closes: false, state, buf: AlignedBuf::with_len(BUFFER_BYTES), used: 0 }
    }

    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// The next `bytes` of the buffer.
    pub(super) fn room(&mut self, bytes: usize) -> &mut [u8] {
        let end = self.used + bytes;
        if end > self.buf.len() {
            let mut larger = AlignedBuf::with_len(end.next_power_of_two());
            larger[..self.used].copy_from_slice(&self.buf[..self.used]);
            self.buf = larger;
        }
        let start = std::mem::replace(&mut self.used, end);
        &mut self.buf[start..end]
    }
}

impl Commitlog {
    /// The writer's task.
    pub(super) async fn write_groups(&self) {
        loop {
            let next = self.0.state.borrow_mut().groups.pop_front();
            match next {
                Some(group) => {
                    self.0.room.notify_all();
                    reactor::in_place!(self.write_group(group));
                }
                None if self.0.closing.get() => return,
                None => {
                    let failed = matches!(self.0.state.borrow().health, Health::WriteFailed { .. });
                    if failed {
                        self.try_to_go_on().await;
                    } else {
                        self.0.work.wait().await;
                    }
                }
            }
        }
    }

    async fn write_group(&self, group: Group) {
        let end = State::group_end(&group);
        let Group { segment, offset, closes, state, mut buf, used, .. } = group;
        buf.set_len(used);
        self.0.state.borrow_mut().writing = Some(Rc::clone(&state));
        let written = match segment.reserve(self.0.options.segment_bytes).await {
            Ok(()) => {
                let (written, _) = segment.file.write_at(offset as u64, buf).await;
                written.map_err(StorageError::of("write", &segment.path))
            }
            Err(error) => Err(error),
        };
        let outcome = match written {
            Err(error) => {
                self.fail(&segment, offset, &error);
                Err(error)
            }
            Ok(()) => {
                let behind = {
                    let mut log = self.0.state.borrow_mut();
                    log.written = end;
                    log.is_behind()
                };
                self.0.note_room();
                self.0.counts.written_bytes.update(|bytes| bytes + used as u64);
                match self.0.options.sync {
                    CommitlogSync::Batch => self.make_group_durable(&segment, end).await,
                    CommitlogSync::Periodic { .. } => {
                        if behind {
                            self.0.behind.notify_all();
                        }
                        if closes {
                            self.0.state.borrow_mut().unsynced.push_back(Rc::clone(&segment));
                        }
                        Ok(())
                    }
                }
            }
        };
        let another = self.0.state.borrow().wants_spare(self.0.options.segment_bytes);
        if another {
            self.0.keep.notify_all();
        }
        if closes && outcome.is_ok() {
            segment.closed.set(true);
            self.0.free_unused();
        }
        state.finish(outcome);
        let mut log = self.0.state.borrow_mut();
        log.writing = None;
        if log.group_states.len() < GROUP_STATES_MAX {
            log.group_states.push(state);
        }
    }

    /// Fails every waiting group with the error, and has the segment end at the last acknowledged entry.
    fn fail(&self, segment: &Rc<Segment>, offset: usize, error: &StorageError) {
        let mut state = self.0.state.borrow_mut();
        reactor::error!("the commit log cannot be written, writes fail until it can"; error = error);
        state.active = None;
        if matches!(state.health, Health::Good) {
            let begun = state.live.range(segment.header.id + 1..);
            let begun = begun.map(|(_, later)| (Rc::clone(later), HEADER_BYTES));
            let ends = [(Rc::clone(segment), offset)].into_iter().chain(begun).collect();
            state.health = Health::WriteFailed { error: error.clone(), ends };
        }
        let waiting = std::mem::take(&mut state.groups);
        drop(state);
        for group in waiting {
            group.state.finish(Err(error.clone()));
        }
        self.0.room.notify_all();
    }

    /// After a failed write: closes the segment behind its last good entry, so that the log can go on in
    /// another segment. Segments that were begun behind it are closed too: one without entries and without an
    /// end would be a hole in the log, before entries that are durable.
    async fn try_to_go_on(&self) {
        let ends = match &self.0.state.borrow().health {
            Health::WriteFailed { ends, .. } => ends.clone(),
            _ => return,
        };
        let bytes = entry_bytes(0);
        for (segment, offset) in &ends {
            let mut buf = AlignedBuf::with_len(bytes);
            encode_entry(&mut buf, segment.seed, *offset as u32, EntryKind::End, &[]);
            if segment.file.write_at(*offset as u64, buf).await.0.is_err() {
                let _ = reactor::timeout(reactor::Deadline::after(RETRY_EVERY), self.0.stopped.wait()).await;
                return;
            }
        }
        for (segment, offset) in &ends {
            let end = Position { segment: segment.header.id, offset: (offset + bytes) as u32 };
            // A failed flush has marked the log dead by itself.
            if self.make_group_durable(segment, end).await.is_err() {
                return;
            }
        }
        reactor::info!("the commit log can be written again"; segment = ends[0].0.path.display());
        self.0.state.borrow_mut().health = Health::Good;
        ends.iter().for_each(|(segment, _)| segment.closed.set(true));
        self.0.free_unused();
        self.0.room.notify_all();
    }

    /// Makes a group durable, unless another flush of the device has covered it meanwhile.
    ///
    /// One flush of the device at a time: a second one beside it would wait for the first and do its work
    /// twice.
    async fn make_group_durable(&self, segment: &Rc<Segment>, upto: Position) -> Result<(), StorageError> {
        let Ok(_turn) = self.0.syncing.acquire(1).await else { return Err(StorageError::Draining) };
        {
            let state = self.0.state.borrow();
            if let Health::Dead(path) = &state.health {
                return Err(StorageError::CommitlogDead { path: path.clone() });
            }
            if upto <= state.durable {
                return Ok(());
            }
        }
        self.make_closed_durable(upto).await?;
        self.make_durable(segment, upto).await
    }

    /// Takes no more entries until a restart. Those it has are still written and made durable, so that
    /// memtables can be flushed and a drain finds a clean end.
    pub(crate) fn stop_for_good(&self) {
        self.0.ended.set(true);
        self.0.room.notify_all();
    }

    /// Makes the segments durable that were closed before `upto` and are not durable yet: the durable part of
    /// the log has no holes.
    async fn make_closed_durable(&self, upto: Position) -> Result<(), StorageError> {
        let closed = std::mem::take(&mut self.0.state.borrow_mut().unsynced);
        for segment in closed {
            let end = Position { segment: segment.header.id, offset: u32::MAX };
            self.make_durable(&segment, end.min(upto)).await?;
        }
        Ok(())
    }

    async fn make_durable(&self, segment: &Rc<Segment>, upto: Position) -> Result<(), StorageError> {
        self.0.counts.device_flushes.update(|count| count + 1);
        match segment.file.fdatasync().await {
            Ok(()) => {
                let mut state = self.0.state.borrow_mut();
                state.durable = state.durable.max(upto);
                Ok(())
            }
            Err(source) => {
                reactor::error!("the device failed to make the commit log durable; writing stops until a restart";
                    segment = segment.path.display(), error = source);
                let path = segment.path.clone();
                self.0.state.borrow_mut().health = Health::Dead(path.clone());
                let waiting = std::mem::take(&mut self.0.state.borrow_mut().groups);
                for group in waiting {
                    group.state.finish(Err(StorageError::CommitlogDead { path: path.clone() }));
                }
                self.0.room.notify_all();
                Err(StorageError::CommitlogDead { path })
            }
        }
    }

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// [`StorageError::CommitlogDead`] when the device failed, now or before.
    pub(crate) async fn sync(&self) -> Result<(), StorageError> {
        self.sync_upto(Position { segment: u64::MAX, offset: u32::MAX }).await
    }

    /// As [`Commitlog::sync`], but only entries before `upto` have to be durable. If they are already, the
    /// device is not flushed.
    ///
    /// # Errors
    /// As [`Commitlog::sync`].
    pub(crate) async fn sync_upto(&self, upto: Position) -> Result<(), StorageError> {
        let Ok(_turn) = self.0.syncing.acquire(1).await else {
            return Err(StorageError::Draining);
        };
        let (last, written) = {
            let mut state = self.0.state.borrow_mut();
            if let Health::Dead(path) = &state.health {
                return Err(StorageError::CommitlogDead { path: path.clone() });
            }
            if state.written.min(upto) <= state.durable {
                return Ok(());
            }
            state.dirty = !state.groups.is_empty();
            let last = state.live.get(&state.written.segment).map(Rc::clone);
            (last, state.written)
        };
        self.make_closed_durable(written).await?;
        if let Some(segment) = last {
            self.make_durable(&segment, written).await?;
        }
        let mut state = self.0.state.borrow_mut();
        state.durable = state.durable.max(written);
        Ok(())
    }

    /// The task that bounds how long a write stays in the page cache alone.
    pub(super) async fn sync_periodically(&self, period: Duration) {
        while !self.0.closing.get() {
            let idle = {
                let state = self.0.state.borrow();
                !state.dirty || matches!(state.health, Health::Dead(_))
            };
            if idle {
                // Nothing to sync: sleep until something is appended, not for a period.
                self.0.work.wait().await;
                continue;
            }
            let _ = reactor::timeout(reactor::Deadline::after(period), self.0.stopped.wait()).await;
            // `sync` logs a failure and keeps it.
            if self.sync().await.is_ok() {
                self.put_mark();
            }
        }
    }
}
