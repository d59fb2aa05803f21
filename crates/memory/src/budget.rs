//! The memory of one shard, counted in one place, and its segments: `arena` has them, those kept for reuse count too.
//!
//! What is counted is dirty, clean or fixed. **Dirty** is what writers took: only a flush gives it back, so it has a limit of
//! its own. The budget never refuses it: who writes asks [`Budget::is_exhausted`] before starting and waits, because a
//! write that has begun must be able to end. **Clean** is what can be had again from disk; whoever holds it registers
//! a [`Reclaim`] and gives memory back when dirty memory needs the room, so that both together stay within the whole limit.
//! Whoever takes clean memory asks [`Budget::room`] first. **Fixed** is what open files need to be found in (summaries, filters):
//! a reclaim cannot take it, so it is counted to leave clean memory less, and holds no writer. Whoever opens files keeps it within bounds.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use crate::arena::{Arena, Block};
use crate::region::SEGMENT_BYTES;

/// The range for segments has room for this part more than the limit: a write that has begun goes beyond it.
const RANGE_BEYOND: usize = 16;

/// Gives clean memory back.
pub trait Reclaim {
    /// Gives back at least `bytes` where there is as much; called while a writer needs them.
    ///
    /// Must not take memory of the same budget beyond what it gives back, and must stand being called at any moment a
    /// memtable is written.
    fn reclaim(&self, bytes: usize);
}

/// Which limit memory counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only a flush gives it back.
    Dirty,
    /// It can be evicted.
    Clean,
    /// It stays as long as whoever opened what it describes keeps it.
    Fixed,
}

/// A shared count of bytes against limits.
#[derive(Clone)]
pub struct Budget(Rc<Inner>);

struct Inner {
    total_limit: usize,
    dirty_limit: usize,
    dirty: Cell<usize>,
    clean: Cell<usize>,
    fixed: Cell<usize>,
    reserve: Cell<usize>,
    arena: Rc<Arena>,
    reclaimer: RefCell<Option<Weak<dyn Reclaim>>>,
}

impl std::fmt::Debug for Budget {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Budget")
            .field("total_limit", &self.0.total_limit)
            .field("dirty_limit", &self.0.dirty_limit)
            .field("dirty", &self.0.dirty)
            .field("clean", &self.0.clean)
            .field("fixed", &self.0.fixed)
            .finish_non_exhaustive()
    }
}

impl Budget {
    /// A budget of `limit` bytes, all of which writers may take.
    pub fn new(limit: usize) -> Self {
        Self::shared(limit, limit)
    }

    /// A budget of `total_limit` bytes, of which writers may take `dirty_limit`.
    pub fn shared(total_limit: usize, dirty_limit: usize) -> Self {
        let range = total_limit.max(dirty_limit);
        Self(Rc::new(Inner {
            total_limit: range,
            dirty_limit,
            dirty: Cell::new(0),
            clean: Cell::new(0),
            fixed: Cell::new(0),
            reserve: Cell::new(0),
            arena: Arena::new(range.saturating_add(range / RANGE_BEYOND)),
            reclaimer: RefCell::new(None),
        }))
    }

    /// Says who gives clean memory back, and how much of the whole limit it needs to move things about meanwhile. One for
    /// a budget; a later one takes the place of an earlier one.
    pub fn set_reclaimer(&self, reclaimer: Weak<dyn Reclaim>, reserve: usize) {
        self.0.reserve.set(reserve);
        *self.0.reclaimer.borrow_mut() = Some(reclaimer);
    }

    /// Bytes that writers may take: the hard mark.
    pub fn limit(&self) -> usize {
        self.0.dirty_limit
    }

    /// Bytes that writers have taken.
    pub fn used(&self) -> usize {
        self.0.dirty.get()
    }

    /// Whether writers have all they may take.
    pub fn is_exhausted(&self) -> bool {
        self.used() >= self.limit()
    }

    /// Bytes that everybody together may take.
    pub fn total_limit(&self) -> usize {
        self.0.total_limit
    }

    /// Bytes that everybody together has taken.
    pub fn total_used(&self) -> usize {
        self.0.dirty.get() + self.0.clean.get() + self.0.fixed.get()
    }

    /// Bytes that stay as long as their files are open.
    pub fn fixed(&self) -> usize {
        self.0.fixed.get()
    }

    /// Counts bytes as taken until what is returned is dropped.
    pub fn hold(&self, kind: Kind, bytes: usize) -> Charge {
        self.charge(kind, bytes);
        Charge { budget: self.clone(), kind, bytes }
    }

    /// Has clean memory given back until `bytes` are free; says no where they cannot be had.
    pub fn make_room(&self, bytes: usize) -> bool {
        if self.room() < bytes && self.clean() > 0 {
            self.reclaim(bytes - self.room());
        }
        self.room() >= bytes
    }

    /// Bytes that can be evicted.
    pub fn clean(&self) -> usize {
        self.0.clean.get()
    }

    /// Bytes that are still free, but for the reclaimer's reserve.
    pub fn room(&self) -> usize {
        self.0.total_limit.saturating_sub(self.total_used() + self.0.reserve.get())
    }

    /// Counts bytes as taken; makes room for those that are not clean where clean memory stands in the way.
    pub fn charge(&self, kind: Kind, bytes: usize) {
        if kind != Kind::Clean && self.room() < bytes && self.clean() > 0 {
            self.reclaim(bytes - self.room());
        }
        let count = self.count(kind);
        count.set(count.get() + bytes);
        if bytes != SEGMENT_BYTES {
            // A segment may be one of those that are kept.
            self.cool();
        }
    }

    /// Counts bytes as given back.
    ///
    /// # Panics
    /// When they were not taken.
    pub fn refund(&self, kind: Kind, bytes: usize) {
        let count = self.count(kind);
        let used = count.get();
        assert!(bytes <= used, "a refund of {bytes} bytes of {used} in use");
        count.set(used - bytes);
    }

    fn count(&self, kind: Kind) -> &Cell<usize> {
        match kind {
            Kind::Dirty => &self.0.dirty,
            Kind::Clean => &self.0.clean,
            Kind::Fixed => &self.0.fixed,
        }
    }

    #[cold]
    fn reclaim(&self, bytes: usize) {
        // Not borrowed during the call: it gives segments back.
        let reclaimer = self.0.reclaimer.borrow().as_ref().and_then(Weak::upgrade);
        if let Some(reclaimer) = reclaimer {
            reclaimer.reclaim(bytes);
        }
    }

    /// Memory for a segment, charged.
    pub(crate) fn take_segment(&self, kind: Kind, bytes: usize) -> Block {
        self.charge(kind, bytes);
        self.0.arena.take(bytes)
    }

    /// Memory for an object that has its segment to itself, charged: its head, its parts, and zeros up to `bytes`.
    pub(crate) fn take_filled(&self, kind: Kind, bytes: usize, head: &[u8], parts: &[&[u8]]) -> Block {
        self.charge(kind, bytes);
        self.0.arena.take_filled(bytes, head, parts)
    }

    /// Takes a segment back.
    pub(crate) fn return_segment(&self, kind: Kind, segment: Block) {
        self.refund(kind, segment.len());
        drop(segment);
        self.cool();
    }

    /// What is kept for reuse takes memory too: together with what is in use it stays within the limit.
    fn cool(&self) {
        let warm = self.0.arena.warm_bytes();
        if warm > 0 && warm > self.room() {
            self.0.arena.cool(self.room());
        }
    }
}

/// Bytes that are counted while it lives.
#[derive(Debug)]
pub struct Charge {
    budget: Budget,
    kind: Kind,
    bytes: usize,
}

impl Charge {
    /// Counts so many bytes from now on.
    pub fn set(&mut self, bytes: usize) {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.budget.charge(self.kind, more),
            None => self.budget.refund(self.kind, self.bytes - bytes),
        }
        self.bytes = bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.refund(self.kind, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clean memory in pieces of 100 bytes.
    struct Pieces {
        budget: Budget,
        count: Cell<usize>,
    }

    impl Reclaim for Pieces {
        fn reclaim(&self, bytes: usize) {
            let given = bytes.div_ceil(100).min(self.count.get());
            self.count.set(self.count.get() - given);
            self.budget.refund(Kind::Clean, given * 100);
        }
    }

    #[test]
    fn dirty_memory_takes_the_place_of_clean_memory() {
        let budget = Budget::shared(1000, 600);
        let pieces = Rc::new(Pieces { budget: budget.clone(), count: Cell::new(9) });
        budget.charge(Kind::Clean, 900);
        let weak: Weak<dyn Reclaim> = {
            let strong: Rc<dyn Reclaim> = pieces.clone();
            Rc::downgrade(&strong)
        };
        budget.set_reclaimer(weak, 0);
        for step in 1..=6 {
            budget.charge(Kind::Dirty, 100);
            assert_eq!(budget.used(), step * 100);
            assert!(budget.total_used() <= 1000, "{budget:?}");
        }
        assert!(budget.is_exhausted());
        assert_eq!(pieces.count.get(), 4, "and no more than needed");
        drop(pieces);
        budget.charge(Kind::Dirty, 100);
        assert_eq!(budget.total_used(), 1100, "what has begun ends, also where nobody gives");
    }

    #[test]
    fn fixed_memory_leaves_clean_memory_less_and_holds_no_writer() {
        let budget = Budget::shared(1000, 600);
        let pieces = Rc::new(Pieces { budget: budget.clone(), count: Cell::new(9) });
        budget.charge(Kind::Clean, 900);
        let strong: Rc<dyn Reclaim> = pieces.clone();
        budget.set_reclaimer(Rc::downgrade(&strong), 0);
        let mut held = budget.hold(Kind::Fixed, 300);
        held.set(600);
        assert_eq!((budget.fixed(), budget.clean(), budget.room()), (600, 400, 0));
        held.set(500);
        assert_eq!((budget.fixed(), budget.clean(), budget.room()), (500, 400, 100));
        budget.charge(Kind::Dirty, 500);
        assert!(!budget.is_exhausted(), "{budget:?}");
        assert!(!budget.make_room(1), "nothing is left to be given back: {budget:?}");
        drop(held);
        assert!(budget.make_room(500) && budget.fixed() == 0, "{budget:?}");
    }
}
