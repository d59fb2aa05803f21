//! The memory that reads take for long rows: a row is in memory as a whole while it is read, whatever its
//! length.
//!
//! A row up to [`LONG_BYTES`] is free, because the number of readers bounds how many of that size are in
//! memory. A longer one takes its memory from a [`LongRows`] before it is read, and waits in line for it. One
//! read may meet long rows in several files at once and must not wait for itself. So only its first long row
//! waits, and its [`RowRoom`] takes the memory for the others as far as there is some. Invariant: a reader
//! that waits here holds none of this memory.
//!
//! A compaction cannot wait until others have read: the rows it reads are charged to the shard's budget
//! ([`RowRoom::charged`]), which takes their memory from the caches.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use memory::{Budget, Charge, Kind};
use reactor::{Permit, Semaphore};

/// Bytes of a row that nothing is asked for.
const LONG_BYTES: usize = 64 << 10;
/// Times that a row is in memory while it is read: as it is stored, decoded, and as the row cache or a merge
/// keeps it.
const COPIES: usize = 3;

/// Memory of a shard for long rows that are being read.
#[derive(Clone)]
pub struct LongRows {
    free: Semaphore,
    bytes_max: usize,
}

impl LongRows {
    /// At most `bytes_max` bytes; a row that alone takes more takes all of it.
    pub fn new(bytes_max: usize) -> Self {
        Self { free: Semaphore::new(bytes_max), bytes_max }
    }

    /// The account of one read, which holds nothing yet.
    pub fn room(&self) -> Rc<RowRoom> {
        Rc::new(RowRoom { memory: Source::Line(self.clone(), RefCell::default()), beyond: Cell::new(0) })
    }

    /// Bytes that are free.
    pub fn available(&self) -> usize {
        self.free.available()
    }
}

/// Memory that one read holds for long rows, until it is dropped.
pub struct RowRoom {
    memory: Source,
    /// Bytes that the read has beyond its permits, or is charged with.
    beyond: Cell<usize>,
}

/// Where a read has its memory from.
enum Source {
    /// A line, in which it waits.
    Line(LongRows, RefCell<Vec<Permit>>),
    /// The budget of the shard.
    Budget(RefCell<Charge>),
}

impl std::fmt::Debug for RowRoom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let held: usize = match &self.memory {
            Source::Line(_, permits) => permits.borrow().iter().map(Permit::count).sum(),
            Source::Budget(_) => 0,
        };
        f.debug_struct("RowRoom").field("held", &held).field("beyond", &self.beyond.get()).finish()
    }
}

impl RowRoom {
    /// The account of a read that never waits: its long rows are charged to `budget`.
    pub fn charged(budget: &Budget) -> Rc<Self> {
        let charge = RefCell::new(budget.hold(Kind::Work, 0));
        Rc::new(Self { memory: Source::Budget(charge), beyond: Cell::new(0) })
    }

    /// Takes memory for a row's `bytes`, and waits for it where the read holds none yet.
    async fn take(&self, bytes: usize) {
        let bytes = bytes.saturating_mul(COPIES);
        let (memory, permits) = match &self.memory {
            Source::Line(memory, permits) => (memory, permits),
            Source::Budget(charge) => {
                self.beyond.set(self.beyond.get().saturating_add(bytes));
                charge.borrow_mut().set(self.beyond.get());
                return;
            }
        };
        let bytes = bytes.min(memory.bytes_max);
        if permits.borrow().is_empty() {
            let permit = memory.free.acquire(bytes).await.expect("the line has no bound but the tasks");
            permits.borrow_mut().push(permit);
            return;
        }
        match memory.free.try_acquire(bytes) {
            Some(permit) => permits.borrow_mut().push(permit),
            None => self.beyond.set(self.beyond.get() + bytes),
        }
    }
}

/// The part of a [`RowRoom`] that one reader has: enough for the longest row it met.
#[derive(Debug)]
pub(crate) struct RowShare {
    room: Rc<RowRoom>,
    covered: usize,
}

impl RowShare {
    pub(crate) fn new(room: &Rc<RowRoom>) -> Self {
        Self { room: Rc::clone(room), covered: LONG_BYTES }
    }

    /// Sees to it that the share is enough for a row of `bytes`.
    pub(crate) async fn cover(&mut self, bytes: usize) {
        let more = bytes.saturating_sub(self.covered);
        if more > 0 {
            self.room.take(more).await;
            self.covered = bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use reactor::{Deadline, sim};

    use super::*;

    #[test]
    fn long_rows_wait_for_memory_and_short_ones_take_none() {
        sim::run_one(1, || async {
            let memory = LongRows::new(1 << 20);
            let (first, second) = (memory.room(), memory.room());
            let mut share = RowShare::new(&first);
            share.cover(LONG_BYTES).await;
            assert_eq!(memory.available(), 1 << 20);
            share.cover(usize::MAX).await;
            assert_eq!(memory.available(), 0, "a row beyond all there is takes all");
            let mut other = RowShare::new(&second);
            let waits = reactor::timeout(Deadline::after(Duration::ZERO), other.cover(LONG_BYTES + 1));
            assert!(waits.await.is_err());
            // Other files of the same read do not wait, because the read would wait for itself.
            RowShare::new(&first).cover(1 << 20).await;
            drop((share, first));
            other.cover(LONG_BYTES + 1000).await;
            assert_eq!(memory.available(), (1 << 20) - 1000 * COPIES);
            other.cover(LONG_BYTES).await;
            other.cover(LONG_BYTES + 2000).await;
            assert_eq!(memory.available(), (1 << 20) - 2000 * COPIES, "a longer row takes what is missing");
            drop((other, second));
            assert_eq!(memory.available(), 1 << 20);
        });
    }

    #[test]
    fn rows_of_a_compaction_are_charged_and_never_waited_for() {
        sim::run_one(1, || async {
            let budget = Budget::shared(1 << 20, 1 << 19);
            let room = RowRoom::charged(&budget);
            let (mut one, mut other) = (RowShare::new(&room), RowShare::new(&room));
            one.cover(LONG_BYTES).await;
            assert_eq!(budget.work(), 0);
            one.cover(LONG_BYTES + 1000).await;
            one.cover(LONG_BYTES + 500).await;
            other.cover(LONG_BYTES + (4 << 20)).await;
            assert_eq!(budget.work(), (1000 + (4 << 20)) * COPIES, "also beyond all there is");
            drop((one, other, room));
            assert_eq!(budget.work(), 0);
        });
    }
}
