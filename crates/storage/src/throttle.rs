//! Holds writers back, a little each, so that memory and commit log fill no faster than flushes empty them.
//!
//! What counts is *dirty* memory: what memtables take, less what the files of the flushes at work have of them already.
//! Beyond the soft mark each write waits for its turn; turns are given out at the rate at which flushes have worked
//! of late, times a factor that falls from two at the soft mark to an eighth at the hard mark. So the dirty memory
//! settles where as much comes as goes, whatever the disk does, and no write waits for the end of a flush. The flush's
//! shares grow with the same measure. Short and long writes stand in two lines, each with half of the rate while the other
//! has somebody: a write of a hundred bytes does not wait for megabytes of others.
//! A commit log that is nearly full counts too: writers then get what is left of it spread over the time that the flushes at work
//! still need, instead of all of it at once and then nothing.
//! Invariant: what a flush is credited with never exceeds its memtable, and is taken back when it ends.
//! `shard` asks before each write, `flush` reports; memory that is full for real is `shard`'s last resort.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use memory::Budget;
use reactor::metrics::{self, Counter, Gauge};
use reactor::{Deadline, Group, Instant};

use crate::commitlog::room::LogRoom;

/// Dirty memory beyond which writers are held and memtables flushed, in tenths of the budget.
const SOFT_TENTHS: usize = 4;
/// Dirty memory at which writers are held most, in tenths of the budget. A memtable of the soft mark that is almost
/// written, beside one that has grown to the middle between the marks, is nine tenths.
const HARD_TENTHS: usize = 6;
/// Memory in use, dirty or not, from which writers are held too, in hundredths of the budget: it comes to this only
/// where files are credited with more than their memtables give back.
const FULL_HUNDREDTHS: usize = 92;
/// Bytes a second that flushes are taken to manage before one was measured.
const RATE_AT_FIRST: u64 = 32 << 20;
/// Turns never come slower than this many bytes a second: a disk that stands still must be found out by full memory.
const RATE_MIN: u64 = 1 << 20;
/// Time between two looks at what a flush has done.
const SAMPLE_EVERY: Duration = Duration::from_millis(20);
/// Time over which the rate of flushes is taken.
const RATE_MEMORY_NS: u64 = 1_000_000_000;
/// A write above this is a long one.
const SHORT_WRITE_BYTES: usize = 16 << 10;
/// What a row and a partition take in memory beside their bytes, about.
const ROW_OVERHEAD: usize = 48;
const PARTITION_OVERHEAD: usize = 160;
/// Shares of flushes with nothing dirty beyond what they write, at the soft mark, and at the hard mark.
const SHARES_LEAST: u64 = 100;
const SHARES_SOFT: u64 = 400;
const SHARES_HARD: u64 = 1600;

/// The controller of one shard.
pub(crate) struct Throttle {
    budget: Budget,
    log: Rc<LogRoom>,
    /// What memtables that are being flushed will give back, as far as their files have it.
    spooled: Cell<usize>,
    /// Bytes of writes that were let in and are not in a memtable yet: thousands may wait for the commit log.
    coming: Cell<usize>,
    /// Flushes at work.
    spools: Cell<u32>,
    /// What they have still to write.
    left: Cell<usize>,
    /// Bytes a second, of late.
    rate: Cell<u64>,
    sampled_at: Cell<Instant>,
    sampled_bytes: Cell<usize>,
    /// When the next write that is held has its turn: of the short ones, and of the long ones.
    turns: [Cell<Instant>; 2],
    blocked: Rc<Counter>,
    blocked_now: Rc<Gauge>,
    dirty: Rc<Gauge>,
}

impl Throttle {
    pub(crate) fn new(budget: Budget, log: Rc<LogRoom>) -> Self {
        Self {
            budget,
            log,
            spooled: Cell::new(0),
            coming: Cell::new(0),
            spools: Cell::new(0),
            left: Cell::new(0),
            rate: Cell::new(RATE_AT_FIRST),
            sampled_at: Cell::new(Instant::default()),
            sampled_bytes: Cell::new(0),
            turns: Default::default(),
            blocked: metrics::counter(
                "scylla_database_requests_blocked_memory",
                "Writes that were held back because memory or the commit log filled faster than it was flushed",
                &[],
            ),
            blocked_now: metrics::gauge(
                "scylla_database_requests_blocked_memory_current",
                "Writes that are held back now",
                &[],
            ),
            dirty: metrics::gauge(
                "scylla_memory_virtual_dirty_bytes",
                "Bytes of memtables that no table file has yet, when last looked at",
                &[],
            ),
        }
    }

    /// Dirty memory at which memtables begin to be flushed, and writers to be held.
    pub(crate) fn soft(&self) -> usize {
        self.budget.limit() / 10 * SOFT_TENTHS
    }

    fn hard(&self) -> usize {
        self.budget.limit() / 10 * HARD_TENTHS
    }

    fn full(&self) -> usize {
        self.budget.limit() / 100 * FULL_HUNDREDTHS
    }

    /// Bytes of memtables that are in no file yet, and of writes on their way there.
    #[inline]
    pub(crate) fn dirty(&self) -> usize {
        (self.budget.used() + self.coming.get()).saturating_sub(self.spooled.get())
    }

    /// Counts a write of `bytes` as dirty until what is returned is dropped: it is in a memtable then, or nowhere.
    #[inline]
    pub(crate) fn coming(&self, bytes: usize) -> Coming<'_> {
        self.comes(bytes);
        Coming { throttle: self, bytes }
    }

    /// Counts a write of `bytes` as dirty until [`Throttle::came`] with as many.
    #[inline]
    pub(crate) fn comes(&self, bytes: usize) {
        self.coming.set(self.coming.get() + bytes);
    }

    /// The write that [`Throttle::comes`] counted is in a memtable, or nowhere.
    #[inline]
    pub(crate) fn came(&self, bytes: usize) {
        self.coming.set(self.coming.get() - bytes);
    }

    /// Whether the next write has to wait for its turn.
    #[inline]
    pub(crate) fn holds(&self) -> bool {
        self.memory_holds() || self.log.is_scarce()
    }

    /// As [`Throttle::holds`], for want of memory and not of room in the commit log.
    #[inline]
    pub(crate) fn memory_holds(&self) -> bool {
        self.dirty() > self.soft() || self.budget.used() > self.full()
    }

    /// How far memory is between its marks, in thousandths.
    fn pressure(&self) -> u64 {
        let between = |value: usize, low: usize, high: usize| {
            (value.saturating_sub(low) as u64 * 1000 / (high - low).max(1) as u64).min(1000)
        };
        let dirty = between(self.dirty(), self.soft(), self.hard());
        dirty.max(between(self.budget.used(), self.full(), self.budget.limit()))
    }

    /// Bytes a second at which writers get their turns under `pressure`.
    fn admitted(&self, pressure: u64) -> u64 {
        // 2,000 thousandths at the soft mark, 1,000 in the middle, an eighth from there on.
        let factor = (2000 - 2 * pressure.min(1000)).max(125);
        (self.rate.get().saturating_mul(factor) / 1000).max(RATE_MIN)
    }

    /// Bytes a second that writers may take of the commit log: what is left of it, over the time that the flushes at work need.
    fn log_rate(&self) -> u64 {
        let left = self.left.get() as u128;
        if left == 0 {
            return u64::MAX;
        }
        let rate = u128::from(self.log.left()) * u128::from(self.rate.get()) / left;
        u64::try_from(rate).unwrap_or(u64::MAX).max(RATE_MIN)
    }

    /// Bytes a second at which writers get their turns now.
    fn turn_rate(&self) -> u64 {
        let memory = if self.memory_holds() { self.admitted(self.pressure()) } else { u64::MAX };
        let log = if self.log.is_scarce() { self.log_rate() } else { u64::MAX };
        memory.min(log)
    }

    /// When a write of `bytes` that comes now may go.
    pub(crate) fn take_turn(&self, bytes: usize, now: Instant) -> Instant {
        let own = usize::from(bytes > SHORT_WRITE_BYTES);
        let turn = self.turns[own].get().max(now);
        let mut rate = self.turn_rate();
        if self.turns[1 - own].get() > now {
            rate /= 2;
        }
        let bytes = (bytes + ROW_OVERHEAD) as u64;
        self.turns[own].set(turn + Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / rate));
        turn
    }

    /// Waits for the turn of a write of `bytes`; false where it would come behind the deadline.
    pub(crate) async fn wait(&self, bytes: usize, deadline: Deadline) -> bool {
        let now = reactor::now();
        if self.turns[usize::from(bytes > SHORT_WRITE_BYTES)].get() > deadline.instant() {
            return false;
        }
        let turn = self.take_turn(bytes, now);
        if turn > now {
            self.blocked.inc();
            let _held = Held::new(&self.blocked_now);
            reactor::sleep_until(turn).await;
        }
        true
    }

    /// A flush of a memtable of `bytes` and `partitions` begins.
    pub(crate) fn spool(self: &Rc<Self>, bytes: usize, partitions: usize) -> Rc<Spool> {
        if self.spools.replace(self.spools.get() + 1) == 0 {
            self.sampled_at.set(reactor::now());
            self.sampled_bytes.set(0);
        }
        self.left.set(self.left.get() + bytes);
        self.set_shares();
        Rc::new(Spool {
            throttle: Rc::clone(self),
            bytes,
            partitions: partitions.max(1),
            done: Cell::new(0),
            written: Cell::new(0),
            credited: Cell::new(0),
        })
    }

    /// Takes the time that flushes needed for what they did since the last look.
    fn sample(&self, now: Instant) {
        let passed = now.since(self.sampled_at.get());
        let nanos = u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX).max(1);
        let nanos = nanos.min(RATE_MEMORY_NS);
        let bytes = self.sampled_bytes.replace(0) as u128;
        // A mean over time: what was is forgotten as fast as time passes, whatever the number of looks.
        let before = u128::from(self.rate.get()) * u128::from(RATE_MEMORY_NS - nanos);
        let rate = (before + bytes * 1_000_000_000) / u128::from(RATE_MEMORY_NS);
        self.rate.set(u64::try_from(rate).unwrap_or(u64::MAX));
        self.sampled_at.set(now);
        self.set_shares();
        self.dirty.set(i64::try_from(self.dirty()).unwrap_or(i64::MAX));
    }

    /// The flush's weight follows what waits for it.
    fn set_shares(&self) {
        let soft = self.soft().max(1) as u64;
        let below = (self.dirty() as u64).min(soft);
        let shares = SHARES_LEAST
            + (SHARES_SOFT - SHARES_LEAST) * below / soft
            + (SHARES_HARD - SHARES_SOFT) * self.pressure().max(self.log.pressure()) / 1000;
        Group::MEMTABLE.set_shares(u32::try_from(shares).unwrap_or(u32::MAX));
    }
}

/// A write on its way to a memtable.
pub(crate) struct Coming<'t> {
    throttle: &'t Throttle,
    bytes: usize,
}

impl Drop for Coming<'_> {
    #[inline]
    fn drop(&mut self) {
        self.throttle.came(self.bytes);
    }
}

/// A write that is counted as held.
struct Held<'g>(&'g Gauge);

impl<'g> Held<'g> {
    fn new(gauge: &'g Gauge) -> Self {
        gauge.add(1);
        Self(gauge)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}

/// One flush at work: what its file has counts as clean already.
pub(crate) struct Spool {
    throttle: Rc<Throttle>,
    /// What the memtable gives back in the end.
    bytes: usize,
    partitions: usize,
    done: Cell<usize>,
    /// Memory of what was written, by its rows.
    written: Cell<usize>,
    credited: Cell<usize>,
}

impl Spool {
    /// A row or a range tombstone of `bytes` is written.
    #[inline]
    pub(crate) fn row(&self, bytes: usize) {
        self.written.set(self.written.get() + bytes + ROW_OVERHEAD);
        // Often enough for a partition that is most of the memtable.
        if self.written.get() - self.credited.get().min(self.written.get()) > self.bytes / 256 {
            self.credit();
        }
    }

    /// A partition is written, rows and all.
    pub(crate) fn partition(&self, key_bytes: usize) {
        self.written.set(self.written.get() + key_bytes + PARTITION_OVERHEAD);
        self.done.set(self.done.get() + 1);
        self.credit();
    }

    /// Partitions tell exactly where they are many, rows about where they are few: the larger of both.
    fn credit(&self) {
        let by_partitions = self.bytes as u128 * self.done.get() as u128 / self.partitions as u128;
        let by_partitions = usize::try_from(by_partitions).unwrap_or(usize::MAX);
        let credit = by_partitions.max(self.written.get()).min(self.bytes);
        self.credit_up_to(credit);
        let throttle = &self.throttle;
        // The slice's clock is good enough and costs no call.
        let now = reactor::coarse_now();
        if now.since(throttle.sampled_at.get()) >= SAMPLE_EVERY {
            throttle.sample(now);
        }
    }
}

impl Spool {
    fn credit_up_to(&self, credit: usize) {
        let more = credit.saturating_sub(self.credited.get());
        self.credited.set(self.credited.get() + more);
        let throttle = &self.throttle;
        throttle.spooled.set(throttle.spooled.get() + more);
        throttle.sampled_bytes.set(throttle.sampled_bytes.get() + more);
        throttle.left.set(throttle.left.get() - more);
    }

    /// The file has all of the memtable. What follows until the memtable goes is not part of the rate.
    pub(crate) fn complete(&self) {
        self.credit_up_to(self.bytes);
        self.throttle.sample(reactor::now());
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        let throttle = &self.throttle;
        throttle.spooled.set(throttle.spooled.get() - self.credited.get());
        throttle.left.set(throttle.left.get() - (self.bytes - self.credited.get()));
        throttle.spools.set(throttle.spools.get() - 1);
        throttle.set_shares();
    }
}

#[cfg(test)]
mod tests;
