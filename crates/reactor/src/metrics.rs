//! Counters, gauges and histograms of one shard: plain cells, read out as samples.
//!
//! A metric is registered once, by name and labels, and its user then keeps it as an `Rc`; registering the
//! same again returns the same metric. The publisher collects every shard's samples and adds or labels them.

mod own;
mod sampled;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;
use std::time::Duration;

use crate::shard;
pub(crate) use own::Load;
pub use sampled::Sampled;

/// Sub-buckets per power of two: 16, so a bucket's width is at most 1/16 of its value.
const SUB_BITS: u32 = 4;
const SUB: u64 = 1 << SUB_BITS;
/// Buckets of a histogram over the whole range of `u64`.
pub const HISTOGRAM_BUCKETS: usize = ((64 - SUB_BITS as usize) + 1) * SUB as usize;
/// Most metrics of a shard; beyond it a metric counts but is not published.
pub const METRICS_MAX: usize = 1 << 16;
/// Registered metrics that [`collect`] copies before it asks whether other tasks wait.
const SAMPLES_PER_SLICE: usize = 32;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(Cell<u64>);

impl Counter {
    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Adds `count`.
    pub fn add(&self, count: u64) {
        self.0.set(self.0.get().wrapping_add(count));
    }

    /// The present value.
    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(Cell<i64>);

impl Gauge {
    /// Sets it.
    pub fn set(&self, value: i64) {
        self.0.set(value);
    }

    /// Adds `difference`, which may be negative.
    pub fn add(&self, difference: i64) {
        self.0.set(self.0.get().wrapping_add(difference));
    }

    /// The present value.
    pub fn get(&self) -> i64 {
        self.0.get()
    }
}

/// Counts values in buckets whose width grows with the value: 16 per power of two, an error of 1/16 at most.
pub struct Histogram {
    buckets: Box<[Cell<u64>]>,
    sum: Cell<u64>,
    count: Cell<u64>,
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Histogram")
            .field("sum", &self.sum)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: vec![Cell::new(0); HISTOGRAM_BUCKETS].into_boxed_slice(),
            sum: Cell::new(0),
            count: Cell::new(0),
        }
    }
}

fn bucket_of(value: u64) -> usize {
    if value < SUB {
        return value as usize;
    }
    let exponent = 63 - value.leading_zeros();
    let sub = (value >> (exponent - SUB_BITS)) & (SUB - 1);
    ((exponent - SUB_BITS + 1) as usize) * SUB as usize + sub as usize
}

/// Least value of a bucket.
fn bucket_begin(bucket: usize) -> u64 {
    let (row, sub) = ((bucket / SUB as usize) as u32, (bucket % SUB as usize) as u64);
    if row == 0 { sub } else { (SUB + sub) << (row - 1) }
}

/// Greatest value of a bucket.
fn bucket_end(bucket: usize) -> u64 {
    if bucket + 1 >= HISTOGRAM_BUCKETS { u64::MAX } else { bucket_begin(bucket + 1) - 1 }
}

impl Histogram {
    /// Counts one value.
    pub fn record(&self, value: u64) {
        self.record_many(value, 1);
    }

    /// Counts a value so many times.
    pub fn record_many(&self, value: u64, times: u64) {
        let bucket = &self.buckets[bucket_of(value)];
        bucket.set(bucket.get() + times);
        self.sum.set(self.sum.get().wrapping_add(value.wrapping_mul(times)));
        self.count.set(self.count.get() + times);
    }

    /// The counts so far.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let buckets = self
            .buckets
            .iter()
            .enumerate()
            .filter(|(_, count)| count.get() > 0)
            .map(|(bucket, count)| (bucket_end(bucket), count.get()))
            .collect();
        HistogramSnapshot { buckets, sum: self.sum.get(), count: self.count.get() }
    }
}

/// A histogram's content at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HistogramSnapshot {
    /// Greatest value of each bucket that is not empty, and its count; ascending.
    pub buckets: Vec<(u64, u64)>,
    /// Sum of all values.
    pub sum: u64,
    /// Number of values.
    pub count: u64,
}

impl HistogramSnapshot {
    /// The value at or below which the share `quantile` (0 to 1) of all values lies; 0 if there is none.
    pub fn quantile(&self, quantile: f64) -> u64 {
        let rank = ((self.count as f64) * quantile.clamp(0.0, 1.0)).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (end, count) in &self.buckets {
            seen += count;
            if seen >= rank {
                return *end;
            }
        }
        0
    }

    /// Adds another shard's values.
    pub fn merge(&mut self, other: &HistogramSnapshot) {
        let mut merged: BTreeMap<u64, u64> = self.buckets.iter().copied().collect();
        for (end, count) in &other.buckets {
            *merged.entry(*end).or_default() += count;
        }
        self.buckets = merged.into_iter().collect();
        self.sum = self.sum.wrapping_add(other.sum);
        self.count += other.count;
    }
}

/// A metric's value in a [`Sample`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Of a counter.
    Counter(u64),
    /// Of a gauge.
    Gauge(i64),
    /// Of a histogram.
    Histogram(HistogramSnapshot),
    /// A counter of time, published in seconds.
    Seconds(Duration),
}

/// One metric at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Its name, as published.
    pub name: String,
    /// Its description, in a sentence.
    pub help: String,
    /// Names and values, sorted.
    pub labels: Vec<(String, String)>,
    /// Its value.
    pub value: Value,
}

#[derive(Clone)]
enum Metric {
    Counter(Rc<Counter>),
    Gauge(Rc<Gauge>),
    Histogram(Rc<Histogram>),
}

type Key = (String, Vec<(String, String)>);

pub(crate) struct Registry(RefCell<BTreeMap<Key, (String, Metric)>>);

impl Registry {
    pub(crate) fn new() -> Self {
        Self(RefCell::new(BTreeMap::new()))
    }

    fn register(&self, name: &str, help: &str, labels: &[(&str, &str)], fresh: Metric) -> Metric {
        let mut labels: Vec<(String, String)> =
            labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        labels.sort();
        let mut metrics = self.0.borrow_mut();
        let full = metrics.len() >= METRICS_MAX;
        let key = (name.to_owned(), labels);
        if let Some((_, metric)) = metrics.get(&key) {
            return metric.clone();
        }
        if !full {
            metrics.insert(key, (help.to_owned(), fresh.clone()));
        }
        fresh
    }
}

fn register(name: &str, help: &str, labels: &[(&str, &str)], fresh: Metric) -> Metric {
    shard::with(|shard| shard.metrics.register(name, help, labels, fresh))
}

/// This shard's counter of that name and those labels.
///
/// # Panics
/// If a metric of another kind has that name and those labels.
pub fn counter(name: &str, help: &str, labels: &[(&str, &str)]) -> Rc<Counter> {
    match register(name, help, labels, Metric::Counter(Rc::default())) {
        Metric::Counter(counter) => counter,
        _ => panic!("metric {name} is not a counter"),
    }
}

/// This shard's gauge of that name and those labels.
///
/// # Panics
/// If a metric of another kind has that name and those labels.
pub fn gauge(name: &str, help: &str, labels: &[(&str, &str)]) -> Rc<Gauge> {
    match register(name, help, labels, Metric::Gauge(Rc::default())) {
        Metric::Gauge(gauge) => gauge,
        _ => panic!("metric {name} is not a gauge"),
    }
}

/// This shard's histogram of that name and those labels.
///
/// # Panics
/// If a metric of another kind has that name and those labels.
pub fn histogram(name: &str, help: &str, labels: &[(&str, &str)]) -> Rc<Histogram> {
    match register(name, help, labels, Metric::Histogram(Rc::default())) {
        Metric::Histogram(histogram) => histogram,
        _ => panic!("metric {name} is not a histogram"),
    }
}

/// Removes this shard's metric with that name and those labels from the published ones.
pub fn remove(name: &str, labels: &[(&str, &str)]) {
    let mut labels: Vec<(String, String)> =
        labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    labels.sort();
    shard::with(|shard| shard.metrics.0.borrow_mut().remove(&(name.to_owned(), labels)));
}

/// Polls of this shard's tasks so far, without the cost of a snapshot.
pub fn polls() -> u64 {
    shard::with(|shard| shard.polls())
}

/// All metrics of this shard: the reactor's own, then those that are registered, by name and labels.
pub fn snapshot() -> Vec<Sample> {
    let mut samples = Vec::new();
    (0..own::PARTS).for_each(|part| own::append_part(part, &mut samples));
    append_registered(None, usize::MAX, &mut samples);
    samples
}

/// As [`snapshot`], in slices: other tasks that wait run in between, so that requests do not feel a scrape.
pub async fn collect() -> Vec<Sample> {
    let mut samples = Vec::new();
    for part in 0..own::PARTS {
        own::append_part(part, &mut samples);
        crate::maybe_yield().await;
    }
    let mut after = None;
    loop {
        after = append_registered(after.as_ref(), SAMPLES_PER_SLICE, &mut samples);
        if after.is_none() {
            return samples;
        }
        crate::maybe_yield().await;
    }
}

/// Appends registered metrics that come after the key `after`, at most `count`. Returns the last one's key,
/// or `None` if no more come after it.
fn append_registered(after: Option<&Key>, count: usize, samples: &mut Vec<Sample>) -> Option<Key> {
    shard::with(|shard| {
        let metrics = shard.metrics.0.borrow();
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut left = metrics.range((begin, Bound::Unbounded));
        let mut last = None;
        for (key, (help, metric)) in left.by_ref().take(count) {
            let value = match metric {
                Metric::Counter(counter) => Value::Counter(counter.get()),
                Metric::Gauge(gauge) => Value::Gauge(gauge.get()),
                Metric::Histogram(histogram) => Value::Histogram(histogram.snapshot()),
            };
            let (name, labels) = key.clone();
            samples.push(Sample { name, help: help.clone(), labels, value });
            last = Some(key);
        }
        left.next().and(last).cloned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket_and_buckets_meet() {
        for bucket in 0..HISTOGRAM_BUCKETS {
            assert_eq!(bucket_of(bucket_begin(bucket)), bucket);
            assert_eq!(bucket_of(bucket_end(bucket)), bucket);
            assert!(bucket_end(bucket) - bucket_begin(bucket) <= bucket_begin(bucket) / SUB);
        }
        assert_eq!(bucket_of(u64::MAX), HISTOGRAM_BUCKETS - 1);
    }

    #[test]
    fn quantiles_come_from_merged_counts() {
        let (left, right) = (Histogram::default(), Histogram::default());
        (1..=50).for_each(|value| left.record(value));
        (51..=100).for_each(|value| right.record(value));
        let mut both = left.snapshot();
        both.merge(&right.snapshot());
        assert_eq!((both.count, both.sum), (100, 5050));
        assert_eq!(both.quantile(0.0), 1);
        assert!((50..=53).contains(&both.quantile(0.5)), "{}", both.quantile(0.5));
        assert!((100..=103).contains(&both.quantile(1.0)));
        assert_eq!(HistogramSnapshot::default().quantile(0.5), 0);
    }
}
