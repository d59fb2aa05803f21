//! Delays each write a little, so that memory and commit log fill no faster than flushes empty them.
//!
//! The measure is *dirty* memory: the memory of memtables, less the part that running flushes have already
//! written to their files. Beyond the soft mark each write waits for its turn. Turns are granted at the
//! recent rate of flushes, times a factor that falls from two at the soft mark to an eighth at the hard mark.
//! So dirty memory settles where as much comes in as goes out, whatever the speed of the disk, and no write
//! waits for the end of a flush. The flush's shares grow with the same measure. Short and long writes wait in
//! two queues, each with half of the rate while the other is not empty: a write of a hundred bytes does not
//! wait for megabytes of others. A commit log that is nearly full delays writes too: its remaining room is
//! spread over the time that the running flushes still need, instead of being used up at once. Invariant: the
//! bytes credited to a flush never exceed its memtable, and are taken back when it ends. `shard` asks before
//! each write and `flush` reports; when memory is really full, `shard` makes writes wait for free memory.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use memory::Budget;
use reactor::metrics::{self, Counter, Gauge};
use reactor::{Deadline, Group, Instant};

use crate::commitlog::room::LogRoom;

/// Dirty memory beyond which writes are delayed and memtables flushed, in tenths of the budget.
const SOFT_TENTHS: usize = 4;
/// Dirty memory at which writes are delayed most, in tenths of the budget. A memtable of the soft mark that
/// is almost written, and a second one that has grown to halfway between the marks, are nine tenths together.
const HARD_TENTHS: usize = 6;
/// Memory in use, dirty or not, from which writes are delayed too, in hundredths of the budget. It is reached
/// only if flushes are credited with more than their memtables free.
const FULL_HUNDREDTHS: usize = 92;
/// Assumed rate of flushes in bytes per second, before one was measured.
const RATE_AT_FIRST: u64 = 32 << 20;
/// Turns are never slower than this many bytes per second: only full memory shows that a disk makes no
/// progress.
const RATE_MIN: u64 = 1 << 20;
/// Time between two samples of a flush's progress.
const SAMPLE_EVERY: Duration = Duration::from_millis(20);
/// Time over which the rate of flushes is averaged.
const RATE_MEMORY_NS: u64 = 1_000_000_000;
/// A longer write counts as long.
const SHORT_WRITE_BYTES: usize = 16 << 10;
/// Approximate memory of a row and of a partition besides their bytes.
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
    /// Bytes that memtables being flushed will free, as far as they are in the files already.
    spooled: Cell<usize>,
    /// Bytes of admitted writes that are not in a memtable yet: thousands may wait for the commit log.
    coming: Cell<usize>,
    /// Number of running flushes.
    spools: Cell<u32>,
    /// Bytes they have still to write.
    left: Cell<usize>,
    /// Recent rate of flushes, bytes per second.
    rate: Cell<u64>,
    sampled_at: Cell<Instant>,
    sampled_bytes: Cell<usize>,
    /// When the next delayed write has its turn: of the short ones, and of the long ones.
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

    /// Dirty memory at which memtables begin to be flushed, and writes to be delayed.
    pub(crate) fn soft(&self) -> usize {
        self.budget.limit() / 10 * SOFT_TENTHS
    }

    fn hard(&self) -> usize {
        self.budget.limit() / 10 * HARD_TENTHS
    }

    fn full(&self) -> usize {
        self.budget.limit() / 100 * FULL_HUNDREDTHS
    }

    /// Bytes of memtables that are in no file yet, and of writes on their way to a memtable.
    #[inline]
    pub(crate) fn dirty(&self) -> usize {
        (self.budget.used() + self.coming.get()).saturating_sub(self.spooled.get())
    }

    /// Counts a write of `bytes` as dirty until the returned guard is dropped: then it is in a memtable, or
    /// was given up.
    #[inline]
    pub(crate) fn coming(&self, bytes: usize) -> Coming<'_> {
        self.comes(bytes);
        Coming { throttle: self, bytes }
    }

    /// Counts a write of `bytes` as dirty until [`Throttle::came`] with the same number.
    #[inline]
    pub(crate) fn comes(&self, bytes: usize) {
        self.coming.set(self.coming.get() + bytes);
    }

    /// Ends the count of [`Throttle::comes`]: the write is in a memtable, or was given up.
    #[inline]
    pub(crate) fn came(&self, bytes: usize) {
        self.coming.set(self.coming.get() - bytes);
    }

    /// Whether the next write has to wait for its turn.
    #[inline]
    pub(crate) fn holds(&self) -> bool {
        self.memory_holds() || self.log.is_scarce()
    }

    /// As [`Throttle::holds`], but only for want of memory, not of room in the commit log.
    #[inline]
    pub(crate) fn memory_holds(&self) -> bool {
        self.dirty() > self.soft() || self.budget.used() > self.full()
    }

    /// Position of the dirty memory between its marks, in thousandths.
    fn pressure(&self) -> u64 {
        let between = |value: usize, low: usize, high: usize| {
            (value.saturating_sub(low) as u64 * 1000 / (high - low).max(1) as u64).min(1000)
        };
        let dirty = between(self.dirty(), self.soft(), self.hard());
        dirty.max(between(self.budget.used(), self.full(), self.budget.limit()))
    }

    /// Rate of turns under `pressure`, bytes per second.
    fn admitted(&self, pressure: u64) -> u64 {
        // 2,000 thousandths at the soft mark, 1,000 in the middle, an eighth from there on.
        let factor = (2000 - 2 * pressure.min(1000)).max(125);
        (self.rate.get().saturating_mul(factor) / 1000).max(RATE_MIN)
    }

    /// Rate at which writes may fill the commit log, bytes per second: its remaining room, over the time that
    /// the running flushes need.
    fn log_rate(&self) -> u64 {
        let left = self.left.get() as u128;
        if left == 0 {
            return u64::MAX;
        }
        let rate = u128::from(self.log.left()) * u128::from(self.rate.get()) / left;
        u64::try_from(rate).unwrap_or(u64::MAX).max(RATE_MIN)
    }

    /// Present rate of turns, bytes per second.
    fn turn_rate(&self) -> u64 {
        let memory = if self.memory_holds() { self.admitted(self.pressure()) } else { u64::MAX };
        let log = if self.log.is_scarce() { self.log_rate() } else { u64::MAX };
        memory.min(log)
    }

    /// When a write of `bytes` that arrives now has its turn.
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

    /// Waits for the turn of a write of `bytes`; returns false if the turn would come after the deadline.
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

    /// Begins a flush of a memtable with `bytes` and `partitions`.
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

    /// Updates the rate by the flushes' work and time since the last sample.
    fn sample(&self, now: Instant) {
        let passed = now.since(self.sampled_at.get());
        let nanos = u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX).max(1);
        let nanos = nanos.min(RATE_MEMORY_NS);
        let bytes = self.sampled_bytes.replace(0) as u128;
        // An average over time: old values fade as fast as time passes, however many samples there are.
        let before = u128::from(self.rate.get()) * u128::from(RATE_MEMORY_NS - nanos);
        let rate = (before + bytes * 1_000_000_000) / u128::from(RATE_MEMORY_NS);
        self.rate.set(u64::try_from(rate).unwrap_or(u64::MAX));
        self.sampled_at.set(now);
        self.set_shares();
        self.dirty.set(i64::try_from(self.dirty()).unwrap_or(i64::MAX));
    }

    /// Sets the flush's shares by the amount of dirty memory.
    fn set_shares(&self) {
        let soft = self.soft().max(1) as u64;
        let below = (self.dirty() as u64).min(soft);
        let shares = SHARES_LEAST
            + (SHARES_SOFT - SHARES_LEAST) * below / soft
            + (SHARES_HARD - SHARES_SOFT) * self.pressure().max(self.log.pressure()) / 1000;
        Group::MEMTABLE.set_shares(u32::try_from(shares).unwrap_or(u32::MAX));
    }
}

/// The guard of a write on its way to a memtable.
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

/// A write that is counted as delayed.
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

/// One running flush: the part that its file has counts as clean already.
pub(crate) struct Spool {
    throttle: Rc<Throttle>,
    /// Bytes that the memtable frees at the end.
    bytes: usize,
    partitions: usize,
    done: Cell<usize>,
    /// Estimated memory of the written rows and partitions.
    written: Cell<usize>,
    credited: Cell<usize>,
}

impl Spool {
    /// Counts a row or a range tombstone of `bytes` that was written.
    #[inline]
    pub(crate) fn row(&self, bytes: usize) {
        self.written.set(self.written.get() + bytes + ROW_OVERHEAD);
        // Often enough for a partition that is most of the memtable.
        if self.written.get() - self.credited.get().min(self.written.get()) > self.bytes / 256 {
            self.credit();
        }
    }

    /// Counts a partition that was written with all its rows.
    pub(crate) fn partition(&self, key_bytes: usize) {
        self.written.set(self.written.get() + key_bytes + PARTITION_OVERHEAD);
        self.done.set(self.done.get() + 1);
        self.credit();
    }

    /// The number of partitions is exact if there are many, the rows' bytes are an estimate if there are few:
    /// the larger counts.
    fn credit(&self) {
        let by_partitions = self.bytes as u128 * self.done.get() as u128 / self.partitions as u128;
        let by_partitions = usize::try_from(by_partitions).unwrap_or(usize::MAX);
        let credit = by_partitions.max(self.written.get()).min(self.bytes);
        self.credit_up_to(credit);
        let throttle = &self.throttle;
        // The slice's cached clock is good enough and costs no call.
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

    /// Credits the whole memtable: the file has all of it. Time after this until the memtable is dropped is
    /// not part of the rate.
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
