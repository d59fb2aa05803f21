//! Limits on how often one partition is read and written: the table option `per_partition_rate_limit`.
//!
//! The shard that has a partition counts its operations, including refused ones. A count is halved each
//! second, so that under a steady rate it equals the rate. Beyond the limit an operation is admitted with the
//! probability limit / rate, so that about as many as the limit are admitted, and clients that retry at once
//! gain nothing by it. Counts are in a table of fixed size, made when the first table with a limit is used: a
//! seldom used partition makes room for others. So a limit is never applied below its rate, and may be missed
//! if thousands of partitions are hot at once. Reads of ranges, batches, counters and conditional writes are
//! not limited. (ScyllaDB's documented extension, CQL: cql-extensions.md, dev/per-partition-rate-limit.md.)

use std::cell::RefCell;

use model::{Table, TableId, Token};

use crate::error::ReplicaFailure;

/// The entry of the table options' extensions that has the limits.
pub const EXTENSION: &str = "per_partition_rate_limit";

/// Buckets of counters, a power of two, and counters of each.
const BUCKETS: usize = 4096;
const WAYS: usize = 4;
const SECOND_NS: u64 = 1_000_000_000;

/// The limited kinds of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Read,
    Write,
}

/// The limits of one table, operations a second on each partition; `None` for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RateLimits {
    /// `max_reads_per_second`.
    pub reads: Option<u32>,
    /// `max_writes_per_second`.
    pub writes: Option<u32>,
}

impl RateLimits {
    /// Reads the limits from the bytes of the extension; invalid bytes mean no limits.
    pub fn decode(bytes: &[u8]) -> Self {
        let number = |at: usize| {
            let bytes = bytes.get(at..at + 4)?.try_into().ok()?;
            u32::try_from(i32::from_be_bytes(bytes)).ok()
        };
        Self { reads: number(0), writes: number(4) }
    }

    /// The bytes of the extension: two numbers of four bytes, big-endian, -1 for no limit.
    pub fn encode(self) -> Vec<u8> {
        let number = |limit: Option<u32>| limit.and_then(|limit| i32::try_from(limit).ok()).unwrap_or(-1);
        [number(self.reads), number(self.writes)].iter().flat_map(|number| number.to_be_bytes()).collect()
    }

    fn of(self, operation: Operation) -> Option<u32> {
        match operation {
            Operation::Read => self.reads,
            Operation::Write => self.writes,
        }
    }
}

/// Whether a table may have limits: all that tables without them pay.
#[inline]
pub(crate) fn may_be_limited(table: &Table) -> bool {
    !table.options().extensions.is_empty()
}

#[derive(Debug, Clone, Copy, Default)]
struct Counter {
    /// Of the table, the partition and the operation; zero for nothing.
    label: u64,
    count: u32,
    /// The second in which it was last halved.
    second: u32,
}

impl Counter {
    fn aged(&self, second: u32) -> u32 {
        self.count.checked_shr(second.wrapping_sub(self.second)).unwrap_or(0)
    }
}

/// The counters of one shard.
#[derive(Debug, Default)]
pub(crate) struct RateLimiter {
    counters: RefCell<Vec<[Counter; WAYS]>>,
}

impl RateLimiter {
    /// Counts an operation on a partition of `table`; refuses it if there are too many.
    ///
    /// # Errors
    /// [`ReplicaFailure::RateLimited`].
    #[cold]
    pub(crate) fn check(
        &self,
        table: &Table,
        token: Token,
        operation: Operation,
        by_coordinator: bool,
    ) -> Result<(), ReplicaFailure> {
        let Some(bytes) = table.options().extensions.get(EXTENSION) else { return Ok(()) };
        let Some(limit) = RateLimits::decode(bytes).of(operation) else { return Ok(()) };
        let now_ns = reactor::now().as_nanos();
        let rate = self.count(label(table.id(), token, operation), now_ns);
        if lets_in(rate, u64::from(limit), reactor::random_u64) {
            return Ok(());
        }
        Err(ReplicaFailure::RateLimited {
            keyspace: table.keyspace().to_owned(),
            table: table.name().to_owned(),
            is_write: operation == Operation::Write,
            by_coordinator,
        })
    }

    /// Counts one operation; returns the recent number of operations per second.
    fn count(&self, label: u64, now_ns: u64) -> u64 {
        let (second, within_ns) = ((now_ns / SECOND_NS) as u32, now_ns % SECOND_NS);
        let mut counters = self.counters.borrow_mut();
        if counters.is_empty() {
            counters.resize(BUCKETS, [Counter::default(); WAYS]);
        }
        let bucket = &mut counters[label as usize % BUCKETS];
        let way = bucket.iter().position(|counter| counter.label == label).unwrap_or_else(|| {
            let ages = bucket.iter().map(|counter| counter.aged(second));
            let least = ages.enumerate().min_by_key(|(_, count)| *count).map_or(0, |(way, _)| way);
            bucket[least] = Counter { label, count: 0, second };
            least
        });
        let counter = &mut bucket[way];
        let count = counter.aged(second).saturating_add(1);
        *counter = Counter { label, count, second };
        // Under a steady rate a count is the rate after it was halved, and twice that before it is halved
        // again.
        u64::from(count) * SECOND_NS / (SECOND_NS + within_ns)
    }
}

/// Whether one more operation is admitted at a rate of `rate` per second: always up to the limit, beyond it
/// with the probability limit / rate. A limit of zero admits nothing, even a lone operation late in a second,
/// when the rate is below one.
fn lets_in(rate: u64, limit: u64, chance: impl FnOnce() -> u64) -> bool {
    limit > 0 && (rate <= limit || chance() % rate < limit)
}

/// Identifies a counter; not zero.
fn label(table: TableId, token: Token, operation: Operation) -> u64 {
    let (high, low) = table.0.split_at(8);
    let word = |bytes: &[u8]| bytes.iter().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
    let mut hash = word(high) ^ word(low).rotate_left(32) ^ (token.0 as u64).rotate_left(7);
    hash ^= if operation == Operation::Write { 0x9e37_79b9_7f4a_7c15 } else { 0 };
    // The finalizer of MurmurHash3, so that neighbours do not share buckets.
    hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    (hash ^ hash >> 33) | 1 << 63
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operations let in out of `per_second` in each of `seconds`, with the limit's chance exactly kept.
    fn let_in(per_second: u64, limit: u64, seconds: u64) -> Vec<u64> {
        let limiter = RateLimiter::default();
        let mut chance = 0;
        let second = |second| {
            (0..per_second)
                .filter(|at| {
                    let rate = limiter.count(7, second * SECOND_NS + at * SECOND_NS / per_second);
                    chance += limit;
                    let inside = limit > 0 && (rate <= limit || chance >= rate);
                    chance = if inside { 0 } else { chance };
                    inside
                })
                .count() as u64
        };
        (10..10 + seconds).map(second).collect()
    }

    #[test]
    fn what_is_below_the_limit_is_let_in() {
        assert_eq!(let_in(90, 100, 5), [90; 5]);
        assert_eq!(let_in(1, 1, 5), [1; 5]);
    }

    #[test]
    fn about_the_limit_is_let_in_of_more() {
        let counts = let_in(10_000, 100, 6);
        // A count starts at zero, so that the first second admits more; after that it approaches the limit.
        for (second, count) in counts.iter().enumerate().skip(1) {
            assert!((80..170).contains(count), "second {second}: {count} of {counts:?}");
        }
        assert!(counts[5] < 115, "{counts:?}");
    }

    #[test]
    fn nothing_passes_a_limit_of_nothing_and_a_pause_is_forgotten() {
        assert_eq!(let_in(1000, 0, 3), [0; 3]);
        let limiter = RateLimiter::default();
        for _ in 0..1_000_000 {
            limiter.count(1, SECOND_NS);
        }
        assert!(limiter.count(1, SECOND_NS) > 500_000);
        assert_eq!(limiter.count(1, 60 * SECOND_NS), 1);
    }

    #[test]
    fn a_limit_of_nothing_refuses_the_first_operation_whenever_in_a_second_it_comes() {
        for within in [0, 1, SECOND_NS / 2, SECOND_NS - 1] {
            let rate = RateLimiter::default().count(7, 10 * SECOND_NS + within);
            assert!(!lets_in(rate, 0, || 0), "{within} ns into the second");
            assert!(lets_in(rate, 1, || u64::MAX), "{within} ns into the second");
        }
        assert!(lets_in(10, 5, || 4) && !lets_in(10, 5, || 5));
    }

    #[test]
    fn hot_partitions_keep_their_counters_among_many_cold_ones() {
        let limiter = RateLimiter::default();
        let hot = label(TableId([1; 16]), Token(5), Operation::Write);
        for turn in 0..200_000u64 {
            limiter.count(hot, turn * 1000);
            limiter.count(label(TableId([1; 16]), Token(turn as i64), Operation::Read), turn * 1000);
        }
        assert!(limiter.count(hot, SECOND_NS / 5) > 100_000);
        let size = limiter.counters.borrow().len();
        assert_eq!(size, BUCKETS);
    }

    #[test]
    fn limits_are_kept_as_they_are_given() {
        for limits in [
            RateLimits::default(),
            RateLimits { reads: Some(0), writes: Some(i32::MAX as u32) },
            RateLimits { reads: None, writes: Some(7) },
        ] {
            assert_eq!(RateLimits::decode(&limits.encode()), limits);
        }
        assert_eq!(RateLimits::decode(b"x"), RateLimits::default());
    }
}
