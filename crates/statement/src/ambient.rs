//! The shard's clock and chance as statements see them: timestamps that only grow, UUIDs that never repeat.
//!
//! One per shard. Write timestamps and time UUIDs are strictly increasing on a shard even where the clock
//! stands still or steps back, so that a client that writes twice through one connection never loses the
//! second write.

use std::cell::Cell;

use model::deletion::LocalSeconds;
use model::timeuuid;
use uuid::Uuid;

/// Most work of functions over the numbers of one row, or in the terms of one statement, before others run.
pub const WORK_MAX: u64 = 8_000_000;
/// Most work of one function, which nothing can interrupt.
pub const CALL_WORK_MAX: u64 = WORK_MAX / 2;

/// Milliseconds since the Unix epoch at 2010-01-01. The time UUIDs of prepended list elements mirror the
/// clock around this moment, so that a later one sorts before an earlier one, and all of them before appended
/// elements (as in Cassandra's `Lists.Prepender`).
const PREPEND_REFERENCE_MILLIS: i64 = 1_262_304_000_000;

/// The shard's clock and source of random numbers.
#[derive(Debug)]
pub struct Ambient {
    node: [u8; 6],
    clock_sequence: u16,
    last_timestamp_us: Cell<i64>,
    /// The slice of the core whose first write read the wall clock, and the time it read.
    slice_clock: Cell<(Option<reactor::Instant>, i64)>,
    last_ticks: Cell<u64>,
    last_prepend_ticks: Cell<u64>,
    /// The slice of the core in which long numbers were last computed with, and the work counted since the
    /// last row began.
    work: Cell<(Option<reactor::Instant>, u64)>,
    /// Calls of functions and operators since the last row began.
    calls: Cell<u32>,
}

/// The work and the calls that were counted since a row or a statement's terms began.
#[derive(Debug, Clone, Copy, Default)]
pub struct Work {
    charged: u64,
    calls: u32,
}

/// Calls for one row after which the loop over rows looks whether others wait: a call takes about 100 ns.
const CALLS_AT_ONCE: u32 = 32;

impl Ambient {
    /// A clock whose UUIDs carry a random node, so that shards and restarts never make the same one.
    pub fn new() -> Self {
        let chance = reactor::random_u64().to_be_bytes();
        let mut node = [0; 6];
        node.copy_from_slice(&chance[..6]);
        // The multicast bit marks the node as one that is not the address of a network card (RFC 9562 §6.10).
        node[0] |= 1;
        Self {
            node,
            clock_sequence: u16::from_be_bytes([chance[6], chance[7]]),
            last_timestamp_us: Cell::new(i64::MIN),
            slice_clock: Cell::new((None, 0)),
            last_ticks: Cell::new(0),
            last_prepend_ticks: Cell::new(u64::MAX),
            work: Cell::new((None, 0)),
            calls: Cell::new(0),
        }
    }

    /// Another row begins: the work and the calls that were counted for the last one are forgotten.
    #[inline]
    pub fn begin_row(&self) {
        self.work.set((None, 0));
        self.calls.set(0);
    }

    /// Whether computing the last row took so much work that other tasks should run before the next row.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.work.get().1 > 0 || self.calls.get() > CALLS_AT_ONCE
    }

    /// The work that was counted in this slice of the core.
    pub fn work(&self) -> Work {
        let (counted_in, charged) = self.work.get();
        let charged = if counted_in == Some(reactor::coarse_now()) { charged } else { 0 };
        Work { charged, calls: self.calls.get() }
    }

    /// Counts on behind `work`, in another slice of the core.
    pub fn go_on_with(&self, work: Work) {
        self.work.set((Some(reactor::coarse_now()), work.charged));
        self.calls.set(work.calls);
    }

    /// Counts a call of a function or operator for this row.
    #[inline]
    pub fn count_call(&self) {
        self.calls.set(self.calls.get().saturating_add(1));
    }

    /// Counts work that is about to be done for the numbers of one row, or of a statement's terms, in one
    /// slice of the core.
    ///
    /// # Errors
    /// That it is more than [`CALL_WORK_MAX`], or more than [`WORK_MAX`] with what was counted before; then
    /// it must not be done.
    pub fn charge(&self, work: u64) -> Result<(), String> {
        if work == 0 {
            return Ok(());
        }
        let slice = reactor::coarse_now();
        let (counted_in, before) = self.work.get();
        let before = if counted_in.is_none_or(|counted_in| counted_in == slice) { before } else { 0 };
        let all = before.saturating_add(work);
        let (steps, of, most) = match work > CALL_WORK_MAX {
            true => (work, "call", CALL_WORK_MAX),
            false => (all, "row", WORK_MAX),
        };
        if steps > most {
            return Err(format!(
                "The values are too long to compute with: about {steps} steps for one {of}, at most {most} are allowed"
            ));
        }
        self.work.set((Some(slice), all));
        Ok(())
    }

    /// A write timestamp in microseconds, greater than every one given before.
    pub fn timestamp_us(&self) -> i64 {
        let timestamp = self.slice_clock_us().max(self.last_timestamp_us.get().saturating_add(1));
        self.last_timestamp_us.set(timestamp);
        timestamp
    }

    /// The wall clock as the first write of this slice of the core read it. Whatever is written in a slice
    /// was asked for before it began, so that a client that had the answer of one shard and writes through
    /// another still has the later timestamp there; within a slice writes follow each other by a microsecond,
    /// which is less than each takes.
    #[inline]
    fn slice_clock_us(&self) -> i64 {
        let slice = reactor::coarse_now();
        let (read_in, micros) = self.slice_clock.get();
        if read_in == Some(slice) {
            return micros;
        }
        let micros = reactor::wall_clock_us();
        self.slice_clock.set((Some(slice), micros));
        micros
    }

    /// Milliseconds since the epoch.
    pub fn now_ms(&self) -> i64 {
        reactor::wall_clock_us().div_euclid(1000)
    }

    /// Seconds since the epoch, to a millisecond or two: each request asks.
    #[inline]
    pub fn now_seconds(&self) -> LocalSeconds {
        LocalSeconds::try_from(reactor::coarse_wall_clock_us() / 1_000_000).unwrap_or(0)
    }

    /// A time UUID, later than every one given before.
    pub fn timeuuid(&self) -> Uuid {
        let now = timeuuid::ticks_of_unix_micros(reactor::wall_clock_us());
        let ticks = now.max(self.last_ticks.get() + 1);
        self.last_ticks.set(ticks);
        timeuuid::from_ticks(ticks, self.clock_sequence, self.node)
    }

    /// A time UUID that sorts before every one this function gave before.
    pub fn prepend_timeuuid(&self) -> Uuid {
        let reference = timeuuid::ticks_of_unix_millis(PREPEND_REFERENCE_MILLIS);
        let now = timeuuid::ticks_of_unix_micros(reactor::wall_clock_us());
        let mirrored = (2 * reference).saturating_sub(now);
        let ticks = mirrored.min(self.last_prepend_ticks.get() - 1);
        self.last_prepend_ticks.set(ticks);
        timeuuid::from_ticks(ticks, self.clock_sequence, self.node)
    }

    /// A random UUID of version 4.
    pub fn random_uuid(&self) -> Uuid {
        let bits = u128::from(reactor::random_u64()) << 64 | u128::from(reactor::random_u64());
        uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid()
    }
}

impl Default for Ambient {
    fn default() -> Self {
        Self::new()
    }
}
