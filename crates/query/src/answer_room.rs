//! The memory of a shard for answers: answers that are being made and answers that wait for their clients,
//! under one limit.
//!
//! A small answer ([`SMALL_BYTES`]) does not count until it waits for its client: the number of running
//! requests limits those. A larger answer reserves room before it takes memory. An answer that finds no room
//! fails alone, and leaves the others and the node unaffected. `execute::rows` and `execute::point` reserve;
//! the listeners count answers that clients have not read yet. Small answers may exceed the limit by an
//! eighth, so that clients that read slowly cannot take everybody's room.
//!
//! In a small shard the room is larger than the part of the memory that is set aside for it. Answers beyond
//! that part take memory from the caches, as long as they are there ([`AnswerRoom::share`]).

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use memory::Charge;

use crate::QueryError;

/// Bytes of rows after which a page ends, whatever its size in rows.
pub const PAGE_BYTES_MAX: usize = 1 << 20;
/// Most bytes of rows in one answer without pages; a shard's room may allow less.
pub const UNPAGED_BYTES_MAX: usize = 128 << 20;

/// Bytes of an answer that nothing is asked for.
pub const SMALL_BYTES: usize = 16 << 10;

/// Part of the limit that small answers may go beyond it.
const BEYOND_PART: usize = 8;

/// The part of a shard's memory that is set aside for answers: a quarter.
pub fn own_bytes_for(shard_bytes: u64) -> usize {
    usize::try_from(shard_bytes / 4).unwrap_or(usize::MAX)
}

/// A shard's room: a quarter of its memory, and at least a value of the largest frame.
pub fn bytes_max_for(shard_bytes: u64) -> usize {
    own_bytes_for(shard_bytes).max(32 << 20)
}

/// Bytes of answers, and their limit.
#[derive(Debug)]
pub struct AnswerRoom {
    bytes_max: usize,
    bytes: Cell<usize>,
    shared: OnceCell<Shared>,
}

/// The memory of others that answers take beyond their own.
#[derive(Debug)]
struct Shared {
    own_bytes: usize,
    charge: RefCell<Charge>,
}

impl AnswerRoom {
    /// Room for `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, bytes: Cell::new(0), shared: OnceCell::new() }
    }

    /// Has answers beyond `own_bytes` counted in `charge`.
    ///
    /// # Panics
    /// If called twice.
    pub fn share(&self, own_bytes: usize, charge: Charge) {
        let shared = Shared { own_bytes, charge: RefCell::new(charge) };
        assert!(self.shared.set(shared).is_ok(), "the memory of others is shared once");
        self.charge_others(0, self.bytes.get());
    }

    /// Bytes that one answer may have.
    pub fn one_max(&self) -> usize {
        self.bytes_max.min(UNPAGED_BYTES_MAX)
    }

    /// Bytes that all answers may have, but for small ones.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Bytes that are taken.
    pub fn taken(&self) -> usize {
        self.bytes.get()
    }

    /// Whether `more` bytes are free.
    pub fn has(&self, more: usize) -> bool {
        self.bytes.get().saturating_add(more) <= self.bytes_max
    }

    /// Whether not even a small answer has room: clients have to read some first.
    pub fn is_full(&self) -> bool {
        self.bytes.get() > self.bytes_max + self.bytes_max / BEYOND_PART
    }

    /// Changes the count of a user from `before` bytes to `after`, without refusing.
    #[inline]
    pub fn count(&self, before: usize, after: usize) {
        let were = self.bytes.get();
        self.bytes.set(were - before + after);
        self.charge_others(were, self.bytes.get());
    }

    #[inline]
    fn charge_others(&self, before: usize, after: usize) {
        if let Some(shared) = self.shared.get()
            && before.max(after) > shared.own_bytes
        {
            shared.charge.borrow_mut().set(after.saturating_sub(shared.own_bytes));
        }
    }
}

/// The part of a room that one answer has reserved; dropping it frees the part.
#[derive(Debug)]
pub struct Grant {
    room: Rc<AnswerRoom>,
    taken: usize,
}

impl Grant {
    /// A grant in that room, which has reserved nothing.
    pub fn new(room: Rc<AnswerRoom>) -> Self {
        Self { room, taken: 0 }
    }

    /// Bytes that the answer may have without asking.
    #[inline]
    pub fn bytes(&self) -> usize {
        SMALL_BYTES.max(self.taken)
    }

    /// Bytes that it may have at most.
    pub fn most(&self) -> usize {
        self.room.one_max()
    }

    /// Makes the grant cover `bytes`, and some more if there is room, so that it is not extended for each
    /// row.
    ///
    /// # Errors
    /// [`QueryError::Invalid`] if no answer may be so large, [`QueryError::Overloaded`] if other answers have
    /// the room.
    #[cold]
    pub fn cover(&mut self, bytes: usize) -> Result<(), QueryError> {
        if bytes > self.most() {
            return Err(too_large(self.most()));
        }
        let (others, bytes_max) = (self.room.taken() - self.taken, self.room.bytes_max);
        let free = bytes_max.saturating_sub(others);
        if bytes > free {
            return Err(overloaded(bytes, &self.room));
        }
        // The buffer of a page grows by doubling; a longer answer must not reserve room that it may not need.
        let margin = if bytes < PAGE_BYTES_MAX { bytes } else { bytes / 4 };
        let wanted = (bytes + margin).min(self.most()).min(free);
        self.room.count(self.taken, wanted);
        self.taken = wanted;
        Ok(())
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.room.count(self.taken, 0);
    }
}

/// The error of an answer that finds no room.
pub fn overloaded(bytes: usize, room: &AnswerRoom) -> QueryError {
    let (taken, bytes_max) = (room.taken(), room.bytes_max);
    QueryError::Overloaded(format!(
        "No memory for an answer of {bytes} bytes: {taken} of {bytes_max} are taken; ask again later, or for less at once in pages"
    ))
}

/// The error for an answer that is too large.
pub fn too_large(bytes_max: usize) -> QueryError {
    QueryError::Invalid(format!("The result is larger than {bytes_max} bytes; ask for it in pages"))
}

#[cfg(test)]
mod tests {
    use memory::{Budget, Kind};

    use super::*;

    #[test]
    fn large_answers_share_the_room_and_one_that_finds_none_is_refused() {
        let room = Rc::new(AnswerRoom::new(32 << 20));
        let (mut first, mut second) = (Grant::new(Rc::clone(&room)), Grant::new(Rc::clone(&room)));
        assert_eq!((first.bytes(), room.taken()), (SMALL_BYTES, 0));
        first.cover(20 << 20).expect("room");
        assert!(first.bytes() >= 20 << 20);
        assert!(matches!(second.cover(20 << 20), Err(QueryError::Overloaded(_))));
        second.cover(5 << 20).expect("as much is left");
        assert!(matches!(second.cover(33 << 20), Err(QueryError::Invalid(_))), "alone, too, it is too large");
        drop(first);
        second.cover(32 << 20).expect("the room of the first one");
        drop(second);
        assert_eq!(room.taken(), 0);
    }

    #[test]
    fn a_grant_never_takes_more_than_is_free_and_gives_all_of_it_back() {
        let room = Rc::new(AnswerRoom::new(32 << 20));
        for others in [0, 1 << 20, 31 << 20, 32 << 20, 33 << 20] {
            room.count(0, others);
            let mut grant = Grant::new(Rc::clone(&room));
            let mut bytes = SMALL_BYTES + 1;
            while grant.cover(bytes).is_ok() {
                assert!(grant.bytes() >= bytes && room.taken() <= 32 << 20, "{grant:?}");
                bytes = grant.bytes() + 1;
            }
            assert!(room.taken() >= others && bytes > (32usize << 20).saturating_sub(others), "{grant:?}");
            drop(grant);
            assert_eq!(room.taken(), others);
            room.count(others, 0);
        }
    }

    #[test]
    fn answers_beyond_their_own_memory_take_that_of_others_and_give_it_back() {
        let budget = Budget::shared(64 << 20, 32 << 20);
        let room = AnswerRoom::new(32 << 20);
        room.count(0, 20 << 20);
        room.share(16 << 20, budget.hold(Kind::Work, 0));
        assert_eq!(budget.work(), 4 << 20);
        room.count(20 << 20, 30 << 20);
        assert_eq!(budget.work(), 14 << 20);
        room.count(30 << 20, 16 << 20);
        assert_eq!(budget.work(), 0);
        room.count(16 << 20, 10 << 20);
        room.count(0, 7 << 20);
        assert_eq!(budget.work(), 1 << 20);
    }

    #[test]
    fn small_answers_find_room_where_large_ones_have_taken_theirs() {
        let room = AnswerRoom::new(32 << 20);
        room.count(0, 32 << 20);
        assert!(!room.has(1) && !room.is_full());
        room.count(0, (4 << 20) + 1);
        assert!(room.is_full());
    }

    #[test]
    fn what_clients_have_not_read_takes_room() {
        let room = Rc::new(AnswerRoom::new(32 << 20));
        room.count(0, 30 << 20);
        assert!(matches!(Grant::new(Rc::clone(&room)).cover(8 << 20), Err(QueryError::Overloaded(_))));
        room.count(30 << 20, 0);
        Grant::new(room).cover(8 << 20).expect("room");
    }
}
