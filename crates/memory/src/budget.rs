//! The memory of one shard, counted in one place, with its segments: they are in `arena`, and those kept for
//! reuse count too.
//!
//! Counted memory is dirty, clean or fixed. **Dirty** memory is taken by writers and freed only by a flush,
//! so it has its own limit. The budget never refuses it: writers check [`Budget::is_exhausted`] before
//! starting and wait, because a write that has begun must be able to finish. **Clean** memory holds data that
//! can be read from disk again. Its owner registers a [`Reclaim`] and frees memory when dirty memory needs
//! it, so that both together stay within the whole limit; it checks [`Budget::room`] before taking clean
//! memory. **Fixed** memory holds the components by which open files are read (summaries, filters): a reclaim
//! cannot free it, so counting it leaves less for clean memory, and it does not delay writers. The code that
//! opens files keeps it within its limit.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use crate::arena::{Arena, Block};
use crate::region::SEGMENT_BYTES;

/// The range for segments exceeds the limit by this part (one in so many): a write that has begun may exceed
/// the limit.
const RANGE_BEYOND: usize = 16;

/// Frees clean memory.
pub trait Reclaim {
    /// Frees at least `bytes` if there is as much; called while a writer needs them.
    ///
    /// It must not take memory of the same budget beyond the memory it frees, and may be called at any moment
    /// a memtable is written.
    fn reclaim(&self, bytes: usize);
}

/// The limit that memory counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Memory that only a flush frees.
    Dirty,
    /// Memory that can be evicted.
    Clean,
    /// Memory that stays as long as the file it describes is kept open.
    Fixed,
    /// Memory of work that has begun, until it ends.
    Work,
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
    work: Cell<usize>,
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
            .field("work", &self.0.work)
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
            work: Cell::new(0),
            reserve: Cell::new(0),
            arena: Arena::new(range.saturating_add(range / RANGE_BEYOND)),
            reclaimer: RefCell::new(None),
        }))
    }

    /// Registers the reclaimer of clean memory, and the part of the whole limit it needs for moving objects
    /// meanwhile. A budget has one; a later one replaces an earlier one.
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
        self.0.dirty.get() + self.0.clean.get() + self.0.fixed.get() + self.0.work.get()
    }

    /// Bytes that stay as long as their files are open.
    pub fn fixed(&self) -> usize {
        self.0.fixed.get()
    }

    /// Bytes of work that has begun.
    pub fn work(&self) -> usize {
        self.0.work.get()
    }

    /// Counts bytes as taken until the returned value is dropped.
    pub fn hold(&self, kind: Kind, bytes: usize) -> Charge {
        self.charge(kind, bytes);
        Charge { budget: self.clone(), kind, bytes }
    }

    /// Reclaims clean memory until `bytes` are free; returns false if that is impossible.
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

    /// Counts bytes as taken; reclaims clean memory for kinds that are not clean, if necessary. That includes
    /// what an earlier charge could not reclaim because the reclaimer was at work.
    pub fn charge(&self, kind: Kind, bytes: usize) {
        if kind != Kind::Clean && self.clean() > 0 {
            let wanted = self.total_used() + self.0.reserve.get() + bytes;
            if wanted > self.0.total_limit {
                self.reclaim(wanted - self.0.total_limit);
            }
        }
        let count = self.count(kind);
        count.set(count.get() + bytes);
        if bytes != SEGMENT_BYTES {
            // The segment may be one of those kept for reuse.
            self.cool();
        }
    }

    /// Counts bytes as freed.
    ///
    /// # Panics
    /// If they were not taken.
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
            Kind::Work => &self.0.work,
        }
    }

    #[cold]
    fn reclaim(&self, bytes: usize) {
        // Not borrowed during the call, which returns segments.
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

    /// Memory for an object that has its segment to itself, charged: its head, its parts, and zeros up to
    /// `bytes`.
    pub(crate) fn take_filled(&self, kind: Kind, bytes: usize, head: &[u8], parts: &[&[u8]]) -> Block {
        self.charge(kind, bytes);
        self.0.arena.take_filled(bytes, head, parts)
    }

    /// Takes a returned segment.
    pub(crate) fn return_segment(&self, kind: Kind, segment: Block) {
        self.refund(kind, segment.len());
        drop(segment);
        self.cool();
    }

    /// Segments kept for reuse take memory too: together with memory in use they stay within the limit.
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
    /// Changes the number of bytes that are counted.
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
