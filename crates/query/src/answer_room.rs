//! The memory of a shard for large answers: those that are being made and those that wait for their clients, under one limit.
//!
//! An answer up to the size of a few pages is free of it: how many of those there are is bounded by the requests at work.
//! What goes beyond takes its room before it takes its memory, so that an answer that finds none fails by itself and leaves the
//! others, and the node, alone. `execute::rows` asks; the listeners count what clients have not read yet.

use std::cell::Cell;
use std::rc::Rc;

use crate::QueryError;
use crate::execute::rows::{PAGE_BYTES_MAX, UNPAGED_BYTES_MAX};

/// Bytes of an answer that nothing is asked for.
const FREE_BYTES: usize = 2 * PAGE_BYTES_MAX;

/// What a shard has room for: a quarter of its memory, and a value of the largest frame in any case.
pub fn bytes_max_for(shard_bytes: u64) -> usize {
    usize::try_from(shard_bytes / 4).unwrap_or(usize::MAX).max(32 << 20)
}

/// Bytes of large answers against their limit.
#[derive(Debug)]
pub struct AnswerRoom {
    bytes_max: usize,
    bytes: Cell<usize>,
}

impl AnswerRoom {
    /// Room for so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, bytes: Cell::new(0) }
    }

    /// Bytes that one answer may have.
    pub fn one_max(&self) -> usize {
        self.bytes_max.min(UNPAGED_BYTES_MAX)
    }

    /// Bytes that are taken.
    pub fn taken(&self) -> usize {
        self.bytes.get()
    }

    /// Somebody who had `before` bytes has `after`: counted without being refused.
    pub fn count(&self, before: usize, after: usize) {
        self.bytes.set(self.bytes.get() - before + after);
    }
}

/// The part of a room that one answer has; dropping it gives it back.
#[derive(Debug)]
pub struct Grant {
    room: Rc<AnswerRoom>,
    taken: usize,
}

impl Grant {
    /// A grant of what is free.
    pub fn new(room: Rc<AnswerRoom>) -> Self {
        Self { room, taken: 0 }
    }

    /// Bytes that the answer may have without asking.
    #[inline]
    pub fn bytes(&self) -> usize {
        FREE_BYTES + self.taken
    }

    /// Bytes that it may have at most.
    pub fn most(&self) -> usize {
        self.room.one_max()
    }

    /// Has the grant cover `bytes`, and a part more so that it is not asked for each row.
    ///
    /// # Errors
    /// [`QueryError::Invalid`] where no answer may be so large, [`QueryError::Overloaded`] where others have the room.
    #[cold]
    pub fn cover(&mut self, bytes: usize) -> Result<(), QueryError> {
        if bytes > self.most() {
            return Err(too_large(self.most()));
        }
        let wanted = (bytes + bytes / 4).min(self.most()).saturating_sub(FREE_BYTES);
        let (others, bytes_max) = (self.room.taken() - self.taken, self.room.bytes_max);
        if others + wanted > bytes_max {
            return Err(QueryError::Overloaded(format!(
                "No memory for an answer of {bytes} bytes: others take {others} of {bytes_max}; ask for it in pages"
            )));
        }
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

/// What is said of an answer that may not be so large.
pub fn too_large(bytes_max: usize) -> QueryError {
    QueryError::Invalid(format!("The result is larger than {bytes_max} bytes; ask for it in pages"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_answers_share_the_room_and_one_that_finds_none_is_refused() {
        let room = Rc::new(AnswerRoom::new(32 << 20));
        let (mut first, mut second) = (Grant::new(Rc::clone(&room)), Grant::new(Rc::clone(&room)));
        assert_eq!((first.bytes(), room.taken()), (FREE_BYTES, 0));
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
    fn what_clients_have_not_read_takes_room() {
        let room = Rc::new(AnswerRoom::new(32 << 20));
        room.count(0, 30 << 20);
        assert!(matches!(Grant::new(Rc::clone(&room)).cover(8 << 20), Err(QueryError::Overloaded(_))));
        room.count(30 << 20, 0);
        Grant::new(room).cover(8 << 20).expect("room");
    }
}
