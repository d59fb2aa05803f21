//! How long pages of one table took lately: a histogram whose weights halve as time passes.
//!
//! Eight buckets for each power of two of microseconds, so that a percentile is at most an eighth too late.
//! As in Cassandra's reservoirs a weight falls to 1/e within a minute. The percentile is taken anew each
//! second at most, and as often as the number of values has doubled, so that the first one does not decide
//! alone; where all weights are gone the last one stays.

use std::time::Duration;

use reactor::Instant;

const SUB_BITS: u32 = 3;
const SUB: u64 = 1 << SUB_BITS;
/// The last bucket begins beyond half a minute.
const BUCKETS: usize = 184;
/// The weight of one value: it is halved this many times before it is gone.
const WEIGHT: u32 = 1 << 8;
/// One minute times ln 2.
const HALVED_EVERY: Duration = Duration::from_millis(41_589);
const TAKEN_EVERY: Duration = Duration::from_secs(1);

/// Times of reads, and one percentile of them.
#[derive(Debug)]
pub(super) struct Latencies {
    weights: Box<[u32; BUCKETS]>,
    halved: Instant,
    /// Values in all.
    count: u64,
    percentile: Option<Duration>,
    taken: Instant,
}

impl Latencies {
    /// No times so far.
    pub(super) fn new(now: Instant) -> Self {
        Self { weights: Box::new([0; BUCKETS]), halved: now, count: 0, percentile: None, taken: now }
    }

    /// Counts the time of a read that ended now, where `percentile` is wanted.
    pub(super) fn record(&mut self, took: Duration, percentile: f64, now: Instant) {
        self.fade(now);
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let weight = &mut self.weights[bucket_of(us)];
        *weight = weight.saturating_add(WEIGHT);
        self.count += 1;
        if self.count.is_power_of_two() || now.since(self.taken) >= TAKEN_EVERY {
            self.taken = now;
            self.take(percentile);
        }
    }

    /// The time in which the share of reads ended that was wanted last; `None` before the first read.
    pub(super) fn percentile(&self) -> Option<Duration> {
        self.percentile
    }

    /// Takes another percentile.
    pub(super) fn take(&mut self, percentile: f64) {
        let all: u64 = self.weights.iter().map(|weight| u64::from(*weight)).sum();
        let rank = (all as f64 * percentile / 100.0).ceil() as u64;
        let mut seen = 0;
        for (bucket, weight) in self.weights.iter().enumerate().filter(|(_, weight)| **weight > 0) {
            seen += u64::from(*weight);
            if seen >= rank {
                self.percentile = Some(Duration::from_micros(end_of(bucket)));
                return;
            }
        }
    }

    fn fade(&mut self, now: Instant) {
        let times = now.since(self.halved).as_nanos() / HALVED_EVERY.as_nanos();
        if times == 0 {
            return;
        }
        self.halved = now;
        let times = u32::try_from(times).unwrap_or(u32::MAX);
        self.weights.iter_mut().for_each(|weight| *weight = weight.checked_shr(times).unwrap_or(0));
    }
}

fn bucket_of(us: u64) -> usize {
    if us < SUB {
        return us as usize;
    }
    let shift = 63 - us.leading_zeros() - SUB_BITS;
    let sub = (us >> shift) & (SUB - 1);
    ((u64::from(shift) + 1) * SUB + sub).min(BUCKETS as u64 - 1) as usize
}

/// The greatest number of microseconds in a bucket.
fn end_of(bucket: usize) -> u64 {
    let (row, sub) = (bucket as u64 / SUB, bucket as u64 % SUB);
    if row == 0 { sub } else { ((SUB + sub + 1) << (row - 1)) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::from_nanos(0);

    fn of(times_ms: impl IntoIterator<Item = u64>, percentile: f64) -> Latencies {
        let mut latencies = Latencies::new(START);
        for time in times_ms {
            latencies.record(Duration::from_millis(time), percentile, START);
        }
        latencies.take(percentile);
        latencies
    }

    /// Whether a percentile is `ms` or as much more as a bucket is wide.
    fn check(latencies: &Latencies, ms: u64) {
        let found = latencies.percentile().expect("a percentile").as_micros() as u64;
        assert!(found >= ms * 1000 && found <= ms * 1125, "{found} us where {ms} ms are expected");
    }

    #[test]
    fn buckets_meet_and_hold_half_a_minute() {
        for bucket in 1..BUCKETS {
            assert_eq!(bucket_of(end_of(bucket - 1) + 1), bucket);
            assert_eq!(bucket_of(end_of(bucket)), bucket);
        }
        assert!(end_of(BUCKETS - 1) > 30_000_000, "{}", end_of(BUCKETS - 1));
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_percentile_is_the_time_in_which_so_many_ended() {
        assert_eq!(Latencies::new(START).percentile(), None);
        check(&of(1..=1000, 99.0), 990);
        check(&of(1..=1000, 50.0), 500);
        check(&of([7], 1.0), 7);
        // One of a hundred is beyond the percentile, two are not.
        check(&of([vec![3; 99], vec![800; 1]].concat(), 99.0), 3);
        check(&of([vec![3; 98], vec![800; 2]].concat(), 99.0), 800);
    }

    #[test]
    fn old_times_count_for_less_and_the_last_percentile_stays() {
        let mut latencies = of(vec![800; 100], 50.0);
        let later = START + HALVED_EVERY * 3;
        (0..20).for_each(|_| latencies.record(Duration::from_millis(2), 50.0, later));
        latencies.take(50.0);
        check(&latencies, 2);
        latencies.fade(later + HALVED_EVERY * 100);
        assert!(latencies.weights.iter().all(|weight| *weight == 0));
        latencies.take(50.0);
        check(&latencies, 2);
    }
}
