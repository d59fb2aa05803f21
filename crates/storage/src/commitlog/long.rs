//! Appends entries that are longer than half a segment, in pieces.
//!
//! One such entry is written at a time, so that a start keeps at most one in memory. Its segments are
//! reserved before its first piece is put. From then on it never waits for a flush, which may itself be
//! waiting for this write to end. Invariant: a piece is put only while no piece before it has failed, so an
//! intact log never lacks a piece before one that it has.

use std::future::poll_fn;
use std::rc::Rc;

use reactor::{Deadline, Permit, timeout};

use super::append::{GROUP_BYTES_MAX, Pending};
use super::format::{EntryKind, HEADER_BYTES, Position, entry_bytes};
use super::pieces::{PIECE_HEAD_BYTES, Piece};
use super::{Commitlog, Hold, Inner};
use crate::error::StorageError;

/// Least number of pieces that fit a segment; it decides the size of a piece.
const PIECES_PER_SEGMENT: usize = 3;

/// The right to append a long entry, with its room reserved.
pub(crate) struct LongTurn {
    log: Rc<Inner>,
    _turn: Permit,
}

/// A long entry whose first pieces were put.
pub(crate) struct LongEntry {
    turn: LongTurn,
    kind: EntryKind,
    place: Position,
    /// The claim on the segment of the first piece, which keeps all later segments too.
    hold: Hold,
    /// The piece that was put last.
    pending: Pending,
    /// Number of pieces that were put.
    put: u32,
}

impl Commitlog {
    /// Whether an entry with a payload of `bytes` has to be written in pieces.
    #[inline]
    pub(crate) fn is_long(&self, bytes: usize) -> bool {
        bytes > self.0.options.segment_bytes / 2
    }

    /// Waits until a long entry with a payload of `bytes` can be begun.
    ///
    /// # Errors
    /// [`StorageError::CommitlogTimedOut`] at the deadline, or if too many entries wait; the errors that keep
    /// the log from being written.
    pub(crate) async fn long_turn(&self, bytes: usize, deadline: Deadline) -> Result<LongTurn, StorageError> {
        let turn = timeout(deadline, self.0.long.acquire(1)).await;
        let turn = turn.ok().and_then(Result::ok).ok_or(StorageError::CommitlogTimedOut)?;
        let turn = LongTurn { log: Rc::clone(&self.0), _turn: turn };
        let pieces = bytes.div_ceil(self.0.piece_bytes());
        let segments = pieces.div_ceil(pieces_per_segment(self.0.options.segment_bytes)) + 1;
        self.0.state.borrow_mut().wanted = segments;
        loop {
            self.check_taking()?;
            let live = {
                let state = self.0.state.borrow();
                state.health.check()?;
                state.live.len()
            };
            if self.0.fits(live, segments) {
                return Ok(turn);
            }
            self.0.pressure.notify_all();
            self.0.counts.limit_exceeded.update(|count| count + 1);
            self.wait_for_room(deadline).await?;
        }
    }

    /// As [`Commitlog::append`], for a long entry.
    pub(super) async fn append_long(
        &self,
        kind: EntryKind,
        payload: &[u8],
        deadline: Deadline,
    ) -> Result<Hold, StorageError> {
        let mut turn = self.long_turn(payload.len(), deadline).await?;
        loop {
            match turn.begin(kind, payload)? {
                Ok(entry) => return entry.finish(payload, deadline).await,
                Err(again) => turn = again,
            }
            self.wait_for_room(deadline).await?;
        }
    }
}

impl Inner {
    /// Most bytes of an entry in one of its pieces.
    fn piece_bytes(&self) -> usize {
        piece_bytes(self.options.segment_bytes)
    }
}

impl LongTurn {
    /// Puts the first piece; gives the turn back if there is no room for the piece now.
    ///
    /// # Errors
    /// As [`Commitlog::try_append`].
    pub(crate) fn begin(
        self,
        kind: EntryKind,
        payload: &[u8],
    ) -> Result<Result<LongEntry, LongTurn>, StorageError> {
        let Some((place, pending)) = self.put(kind, payload, None, 0)? else { return Ok(Err(self)) };
        let hold = pending.again();
        Ok(Ok(LongEntry { turn: self, kind, place, hold, pending, put: 1 }))
    }

    /// Puts a piece of the entry that began at `place`, or of one that begins now.
    fn put(
        &self,
        kind: EntryKind,
        payload: &[u8],
        place: Option<Position>,
        number: u32,
    ) -> Result<Option<(Position, Pending)>, StorageError> {
        let bytes_max = self.log.piece_bytes();
        let part = payload.chunks(bytes_max).nth(number as usize).unwrap_or_default();
        let count = payload.len().div_ceil(bytes_max) as u32;
        let mut stands = place;
        let log = Commitlog(Rc::clone(&self.log));
        let pending = log.try_put_with(EntryKind::Piece, PIECE_HEAD_BYTES + part.len(), |state| {
            let place = *stands.get_or_insert_with(|| state.next_place());
            state.put(EntryKind::Piece, &Piece { place, number, count, kind, bytes: part }.encode());
        })?;
        Ok(stands.zip(pending))
    }
}

impl Drop for LongTurn {
    fn drop(&mut self) {
        self.log.state.borrow_mut().wanted = 0;
        self.log.room.notify_all();
    }
}

impl LongEntry {
    /// Puts the remaining pieces of `payload`; returns once all are as safe as the log's mode promises.
    ///
    /// # Errors
    /// Those of the writes, and [`StorageError::CommitlogTimedOut`] at the deadline. The entry then does not
    /// count; if its last piece was put, it may or may not be in the log.
    pub(crate) async fn finish(mut self, payload: &[u8], deadline: Deadline) -> Result<Hold, StorageError> {
        let count = payload.len().div_ceil(self.turn.log.piece_bytes()) as u32;
        while self.put < count {
            self.pending.failure()?;
            let Some((_, next)) = self.turn.put(self.kind, payload, Some(self.place), self.put)? else {
                Commitlog(Rc::clone(&self.turn.log)).wait_for_room(deadline).await?;
                continue;
            };
            self.put += 1;
            let mut before = std::mem::replace(&mut self.pending, next);
            poll_fn(|context| before.poll_finished(deadline, context)).await?;
        }
        poll_fn(|context| self.pending.poll_finished(deadline, context)).await?;
        Ok(self.hold)
    }
}

/// Most bytes of an entry in one of its pieces: [`PIECES_PER_SEGMENT`] fit a segment, and each fits a group.
fn piece_bytes(segment_bytes: usize) -> usize {
    let entry = (segment_bytes / (PIECES_PER_SEGMENT + 1)).min(GROUP_BYTES_MAX);
    // The size of an entry is rounded up.
    (entry - (entry_bytes(PIECE_HEAD_BYTES) + 8)).max(1)
}

/// Pieces that fit a segment, each in a group that begins with a mark.
fn pieces_per_segment(segment_bytes: usize) -> usize {
    let piece = entry_bytes(PIECE_HEAD_BYTES + piece_bytes(segment_bytes)) + entry_bytes(12);
    // `try_put_with` keeps this room free for a mark and the segment's end.
    let room = segment_bytes - HEADER_BYTES - (entry_bytes(12) + entry_bytes(0));
    (room / piece).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_pieces_as_are_promised_fit_a_segment() {
        for (segment, pieces) in
            [(48 << 10, 3), (64 << 10, 3), (1 << 20, 3), (32 << 20, 31), (256 << 20, 255)]
        {
            assert_eq!(pieces_per_segment(segment), pieces, "segments of {segment}");
            let taken = entry_bytes(PIECE_HEAD_BYTES + piece_bytes(segment));
            assert!(taken <= GROUP_BYTES_MAX && pieces >= PIECES_PER_SEGMENT);
        }
    }
}
