//! Appends entries to the group that gathers, and waits until the group is written.
//!
//! Nothing here does I/O: an entry is copied once, into the buffer that will be written. A group belongs to
//! one segment. When an entry does not fit the segment any more, an `End` entry closes it and a spare one
//! takes over. Entries longer than half a segment go into the log in pieces (`long`).

use std::rc::Rc;
use std::task::{Context, Poll};

use reactor::Deadline;

use super::format::{EntryKind, HEADER_BYTES, Position, encode_entry_with, encode_position, entry_bytes};
use super::group::{Group, GroupState};
use super::patience::Waiting;
use super::{Active, Commitlog, Health, Hold, Inner, State};
use crate::error::StorageError;

/// Most bytes gathered in one group, but for a single larger entry.
pub(super) const GROUP_BYTES_MAX: usize = 1 << 20;
/// Most groups that wait for the one being written.
const GROUPS_MAX: usize = 2;

/// An entry that is on its way to the disk.
pub(crate) struct Pending {
    hold: Hold,
    waiting: Waiting,
}

impl Pending {
    /// Waits until the entry is as safe as the log's mode promises.
    ///
    /// The hold keeps its segment. Dropping the future leaves open whether the entry is in the log.
    ///
    /// # Errors
    /// Those of the write; the entry then does not count.
    async fn finished(self) -> Result<Hold, StorageError> {
        self.waiting.finished().await?;
        Ok(self.hold)
    }

    /// As [`Pending::finished`], no longer than until `deadline`.
    ///
    /// # Errors
    /// Those of the write; [`StorageError::CommitlogTimedOut`] at the deadline: the entry may or may not be
    /// in the log.
    #[inline]
    pub(crate) fn poll_finished(
        &mut self,
        deadline: Deadline,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), StorageError>> {
        self.waiting.poll_until(&self.hold.log.patience, deadline, context)
    }

    /// Another claim on the entry's segment.
    pub(super) fn again(&self) -> Hold {
        self.hold.again()
    }

    /// Whether the write has failed by now.
    ///
    /// # Errors
    /// Those of the write.
    pub(super) fn failure(&self) -> Result<(), StorageError> {
        self.waiting.failure()
    }

    /// The claim on the entry's segment.
    #[inline]
    pub(crate) fn held(&self) -> &Hold {
        &self.hold
    }
}

impl Commitlog {
    /// Appends an entry; returns once it is as safe as the log's mode promises.
    ///
    /// # Errors
    /// Those of [`Commitlog::try_append`] and [`Pending::finished`]; [`StorageError::CommitlogTimedOut`] when
    /// there was no room until the deadline.
    pub(crate) async fn append(
        &self,
        kind: EntryKind,
        payload: &[u8],
        deadline: Deadline,
    ) -> Result<Hold, StorageError> {
        if self.is_long(payload.len()) {
            return Box::pin(self.append_long(kind, payload, deadline)).await;
        }
        loop {
            if let Some(pending) = self.try_append(kind, payload)? {
                return pending.finished().await;
            }
            self.wait_for_room(deadline).await?;
        }
    }

    /// Puts an entry into the group that gathers; `None` if there is no room now, or if the entry needs
    /// pieces.
    ///
    /// # Errors
    /// [`StorageError::Draining`], and the errors that keep the log from being written:
    /// [`StorageError::DiskFull`] and [`StorageError::Io`] until it can be written again,
    /// [`StorageError::CommitlogDead`] for ever after a failed flush.
    pub(crate) fn try_append(
        &self,
        kind: EntryKind,
        payload: &[u8],
    ) -> Result<Option<Pending>, StorageError> {
        if self.is_long(payload.len()) {
            return Ok(None);
        }
        self.try_put_with(kind, payload.len(), |state| state.put(kind, payload))
    }

    /// Waits until it is worth trying again.
    ///
    /// # Errors
    /// [`StorageError::CommitlogTimedOut`] at the deadline.
    pub(crate) async fn wait_for_room(&self, deadline: Deadline) -> Result<(), StorageError> {
        reactor::timeout(deadline, self.0.room.wait()).await.map_err(|_| StorageError::CommitlogTimedOut)
    }

    /// A position behind every entry so far and before every later one.
    pub(crate) fn end(&self) -> Position {
        let state = self.0.state.borrow();
        match &state.active {
            Some(active) => Position { segment: active.segment.header.id, offset: active.offset as u32 },
            None => Position { segment: state.last_active, offset: u32::MAX },
        }
    }

    /// Closes the active segment, so that the next start finds a clean end.
    pub(super) async fn put_end(&self) -> Result<(), StorageError> {
        let group = {
            let mut state = self.0.state.borrow_mut();
            if !matches!(state.health, Health::Good) {
                return Ok(());
            }
            state.end_active()
        };
        self.0.work.notify_all();
        match group {
            Some(group) => group.finished().await,
            None => Ok(()),
        }
    }

    /// Checks that the log takes entries at all.
    ///
    /// # Errors
    /// [`StorageError::Draining`]; [`StorageError::CommitlogDead`] after [`Commitlog::stop_for_good`].
    #[inline]
    pub(crate) fn check_taking(&self) -> Result<(), StorageError> {
        if self.0.closing.get() {
            return Err(StorageError::Draining);
        }
        if self.0.ended.get() {
            return Err(StorageError::CommitlogDead { path: self.0.options.directory.clone() });
        }
        Ok(())
    }

    /// Checks that the last write and flush of the log did not fail. If they did, the next start may find
    /// entries that were reported as failed; once the log can be written again it has none of them.
    ///
    /// # Errors
    /// The failure.
    pub(crate) fn check_health(&self) -> Result<(), StorageError> {
        self.0.state.borrow().health.check()
    }

    /// Ends the time without a limit: the old entries are applied, and the log keeps to its limit from now
    /// on.
    pub(crate) fn keep_to_limit(&self) {
        self.0.unlimited.set(false);
        self.0.pressure.notify_all();
    }

    /// As [`Commitlog::try_append`], with `put` to write the entry; its payload will take `payload_bytes`.
    #[inline]
    pub(super) fn try_put_with(
        &self,
        kind: EntryKind,
        payload_bytes: usize,
        put: impl FnOnce(&mut State),
    ) -> Result<Option<Pending>, StorageError> {
        self.check_taking()?;
        let mut state = self.0.state.borrow_mut();
        let state = &mut *state;
        state.health.check()?;
        let bytes = entry_bytes(payload_bytes);
        // A new group may begin with a mark, and a segment has to have room for its end.
        let reserve = entry_bytes(12) + entry_bytes(0);
        let fits = |active: &Active| active.offset + bytes + reserve <= self.0.options.segment_bytes;
        if !state.active.as_ref().is_some_and(fits) {
            // A piece is not checked: room for it was reserved with its long entry. Only mutations and
            // batches leave that reserved room (`wanted`) alone.
            let piece = kind == EntryKind::Piece;
            let waits = matches!(kind, EntryKind::Mutation | EntryKind::Batch);
            let wanted = if waits { state.wanted } else { 0 };
            // The other kinds let segments be freed, so they must not wait for room: they may take a segment
            // beyond the limit.
            let beyond = usize::from(!waits);
            if !piece && !self.0.fits(state.live.len() - beyond.min(state.live.len()), 1 + wanted) {
                self.0.pressure.notify_all();
                self.0.counts.limit_exceeded.update(|count| count + 1);
                return Ok(None);
            }
            let Some(segment) = state.spares.pop_front() else {
                self.0.keep.notify_all();
                return match &state.keeper_failure {
                    Some(error) => Err(error.clone()),
                    None => Ok(None),
                };
            };
            if piece {
                state.wanted = state.wanted.saturating_sub(1);
            }
            state.end_active();
            state.last_active = segment.header.id;
            state.live.insert(segment.header.id, Rc::clone(&segment));
            state.active = Some(Active { segment, offset: HEADER_BYTES });
            self.0.keep.notify_all();
            self.0.pressure.notify_all();
        }
        let Some(group) = state.open_group(bytes) else { return Ok(None) };
        put(state);
        state.dirty = true;
        let active = state.active.as_ref().expect("a group has an active segment");
        let hold = Hold::new(&self.0, &active.segment);
        self.0.work.notify_all();
        Ok(Some(Pending { hold, waiting: Waiting::new(group) }))
    }

    /// Writes a mark of the durable position into the log, unless another group is about to do so.
    pub(super) fn put_mark(&self) {
        let mut state = self.0.state.borrow_mut();
        let room = entry_bytes(12) * 2 + entry_bytes(0);
        let fits = state.active.as_ref().is_some_and(|a| a.offset + room <= self.0.options.segment_bytes);
        if fits
            && state.durable > state.marked
            && state.groups.is_empty()
            && matches!(state.health, Health::Good)
        {
            let _ = state.open_group(0);
            drop(state);
            self.0.work.notify_all();
        }
    }
}

impl Inner {
    /// Whether `more` segments beside `live` ones stay within the limit. A log of at most one live segment
    /// always does.
    pub(super) fn fits(&self, live: usize, more: usize) -> bool {
        let bytes = (live + more) as u64 * self.options.segment_bytes as u64;
        live <= 1 || bytes <= self.options.bytes_max || self.unlimited.get()
    }
}

impl State {
    /// The group that takes an entry of `bytes` for the active segment; `None` when too much is waiting.
    fn open_group(&mut self, bytes: usize) -> Option<Rc<GroupState>> {
        let active = self.active.as_ref().expect("a group is opened for an active segment");
        if let Some(group) = self.groups.back()
            && Rc::ptr_eq(&group.segment, &active.segment)
            && !group.closes
            && group.used() + bytes <= GROUP_BYTES_MAX
        {
            return Some(Rc::clone(&group.state));
        }
        if self.groups.len() >= GROUPS_MAX {
            return None;
        }
        Some(self.begin_group())
    }

    fn begin_group(&mut self) -> Rc<GroupState> {
        let active = self.active.as_ref().expect("a group begins in an active segment");
        let group = Group::new(Rc::clone(&active.segment), active.offset, self.take_group_state());
        let waiting = Rc::clone(&group.state);
        self.groups.push_back(group);
        if self.durable > self.marked {
            self.marked = self.durable;
            self.put(EntryKind::Synced, &encode_position(self.durable));
        }
        waiting
    }

    /// Position of the entry that is put next.
    pub(super) fn next_place(&self) -> Position {
        let active = self.active.as_ref().expect("a group has an active segment");
        Position { segment: active.segment.header.id, offset: active.offset as u32 }
    }

    /// Appends to the last group, which has been opened for it.
    pub(super) fn put(&mut self, kind: EntryKind, payload: &[u8]) {
        let active = self.active.as_mut().expect("a group has an active segment");
        let group = self.groups.back_mut().expect("a group is open");
        let bytes = entry_bytes(payload.len());
        let seed = active.segment.seed;
        encode_entry_with(&self.checksums, group.room(bytes), seed, active.offset as u32, kind, payload);
        active.offset += bytes;
    }

    /// Ends the active segment, if any, in its last group.
    fn end_active(&mut self) -> Option<Rc<GroupState>> {
        let segment = Rc::clone(&self.active.as_ref()?.segment);
        let open = self.groups.back().is_some_and(|g| Rc::ptr_eq(&g.segment, &segment) && !g.closes);
        // The group that ends a segment may exceed `GROUPS_MAX` by one; there is one such group at a time.
        let state = if open {
            Rc::clone(&self.groups.back().expect("a group is open").state)
        } else {
            self.begin_group()
        };
        self.put(EntryKind::End, &[]);
        self.groups.back_mut().expect("a group is open").closes = true;
        self.active = None;
        Some(state)
    }

    fn take_group_state(&mut self) -> Rc<GroupState> {
        if let Some(at) = self.group_states.iter().position(|state| Rc::strong_count(state) == 1) {
            let state = self.group_states.swap_remove(at);
            state.reset();
            return state;
        }
        Rc::new(GroupState::default())
    }

    /// Position of the group's end, as handed to the kernel.
    pub(super) fn group_end(group: &Group) -> Position {
        Position { segment: group.segment.header.id, offset: (group.offset + group.used()) as u32 }
    }
}
