//! Decaying histograms of the last minutes, with buckets as wide as those of Cassandra's reservoirs.
//!
//! A value's weight falls to 1/e within a minute (Cassandra's `DecayingEstimatedHistogramReservoir`), and a
//! negligible weight is dropped after half an hour. Buckets end at 0, 1, 2 and so on, each a fifth beyond the
//! previous one.

use reactor::Instant;

/// Number of buckets: the last one ends beyond two hours in nanoseconds.
const BUCKETS: usize = 165;
/// The end of each bucket.
const ENDS: [u64; BUCKETS] = ends();
/// Seconds in which a weight falls to 1/e.
const LIFETIME_S: f64 = 60.0;
/// Seconds between two decays.
const FADE_EVERY_S: f64 = 1.0;
/// A weight below this, as after half an hour, is dropped.
const WEIGHT_MIN: f32 = 1e-13;

const fn ends() -> [u64; BUCKETS] {
    let mut ends = [0; BUCKETS];
    ends[1] = 1;
    let mut bucket = 2;
    while bucket < BUCKETS {
        let last = ends[bucket - 1];
        let next = (last * 12 + 5) / 10;
        ends[bucket] = if next > last { next } else { last + 1 };
        bucket += 1;
    }
    ends
}

/// Weights of values by bucket.
#[derive(Debug, Clone)]
pub(crate) struct Decaying {
    weights: Box<[f32; BUCKETS]>,
    faded: Instant,
}

impl Decaying {
    /// Nothing so far.
    pub(super) fn new(now: Instant) -> Self {
        Self { weights: Box::new([0.0; BUCKETS]), faded: now }
    }

    /// Counts `value` with a weight.
    pub(super) fn record(&mut self, value: u64, weight: u32, now: Instant) {
        self.fade(now);
        let bucket = ENDS.partition_point(|end| *end < value).min(BUCKETS - 1);
        self.weights[bucket] += weight as f32;
    }

    fn fade(&mut self, now: Instant) {
        let elapsed = now.since(self.faded).as_secs_f64();
        if elapsed < FADE_EVERY_S {
            return;
        }
        self.faded = now;
        let share = (-elapsed / LIFETIME_S).exp() as f32;
        for weight in self.weights.iter_mut() {
            *weight *= share;
            if *weight < WEIGHT_MIN {
                *weight = 0.0;
            }
        }
    }

    /// The weights at this moment.
    pub(super) fn weights(&mut self, now: Instant) -> Weights {
        self.fade(now);
        Weights(self.weights.to_vec())
    }
}

/// Weights at one moment, of one shard or of all.
#[derive(Debug, Clone, Default)]
pub(crate) struct Weights(Vec<f32>);

impl Weights {
    /// Adds another shard's.
    pub(crate) fn add(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0.0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(sum, weight)| *sum += weight);
    }

    /// The end of the bucket up to which the share `quantile` (0 to 1) of all values lies; 0 if there are no
    /// values.
    pub(crate) fn quantile(&self, quantile: f64) -> u64 {
        let all: f64 = self.0.iter().map(|weight| f64::from(*weight)).sum();
        let mut seen = 0.0;
        for (end, weight) in ENDS.iter().zip(&self.0).filter(|(_, weight)| **weight > 0.0) {
            seen += f64::from(*weight);
            if seen >= all * quantile {
                return *end;
            }
        }
        self.max()
    }

    /// The end of the last bucket that is not empty; 0 if all are.
    pub(crate) fn max(&self) -> u64 {
        self.0.iter().rposition(|weight| *weight > 0.0).map_or(0, |bucket| ENDS[bucket])
    }
}
