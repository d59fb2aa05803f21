//! Request statistics of each table on this shard: the number of reads, scans and writes, their times, and
//! the rows that reads pass.
//!
//! Counts are exact. Times and sizes are measured for the first requests and then for one in [`EVERY`], which
//! represents the others, so that a point read pays a few instructions. A request is counted on its
//! coordinator. `system::views` shows the statistics. The times of all tables together are histograms in the
//! metrics, fed by the same measurements: see [`LATENCIES`].

mod decaying;
mod published;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use hashbrown::HashMap;
use model::{Table, TableId};
use reactor::Instant;
use reactor::metrics::{self, Histogram, Sampled};
use storage::PartitionRange;
use wire::request::BatchKind;

use self::decaying::Decaying;
pub(crate) use self::decaying::Weights;
use crate::engine::Engine;

/// One request in so many is measured, after the first [`FIRST`].
const EVERY: u64 = 256;
/// So many first requests are all measured.
const FIRST: u64 = 64;
/// Seconds that a rate is averaged over, and the least seconds between two updates of it.
const RATE_OVER_S: f64 = 300.0;
const RATE_EVERY_S: f64 = 5.0;
/// Number of tables beyond which statistics of dropped tables are removed.
const TABLES_BEFORE_SWEEP: usize = 64;

/// Name and description of a histogram of times.
type Latency = (&'static str, &'static str);

/// Histograms of the times of reads of one partition, reads of ranges, and writes, in microseconds.
const LATENCIES: [Latency; 3] = [
    ("scylla_storage_proxy_coordinator_read_latency", "Microseconds of a read of one partition."),
    ("ceto_coordinator_range_latency", "Microseconds of a read of a range of partitions."),
    ("scylla_storage_proxy_coordinator_write_latency", "Microseconds of a write without a condition."),
];
const CAS_READ_LATENCY: Latency =
    ("scylla_storage_proxy_coordinator_cas_read_latency", "Microseconds of a read at a serial level.");
const CAS_WRITE_LATENCY: Latency =
    ("scylla_storage_proxy_coordinator_cas_write_latency", "Microseconds of a conditional write.");

/// This shard's histogram of that name.
fn histogram((name, help): Latency) -> Rc<Histogram> {
    metrics::histogram(name, help, &[])
}

/// Request statistics of one table.
#[derive(Debug)]
pub(crate) struct TableLoad {
    /// Reads of one partition.
    pub(crate) reads: Requests,
    /// Reads of ranges of partitions, each page or fetch.
    pub(crate) scans: Requests,
    /// Writes; a batch counts once for each table.
    pub(crate) writes: Requests,
    /// Rows that reads and scans passed.
    pub(crate) rows: Sizes,
    /// Tombstones that reads and scans passed.
    pub(crate) tombstones: Sizes,
}

impl Default for TableLoad {
    fn default() -> Self {
        let [reads, scans, writes] = LATENCIES.map(Requests::new);
        Self { reads, scans, writes, rows: Sizes::default(), tombstones: Sizes::default() }
    }
}

impl TableLoad {
    /// Counts a point read that was answered at once; `rows` returns the number of rows it found.
    #[inline]
    pub(crate) fn point_read(&self, began: Option<Instant>, rows: impl FnOnce() -> usize) {
        self.reads.end(began);
        if began.is_some() {
            let stands_for = stands_for(self.reads.count.get() - 1);
            self.rows.record(rows() as u64, stands_for);
            self.tombstones.record(0, stands_for);
        }
    }

    /// The statistics for reads of such a range.
    #[inline]
    pub(crate) fn requests(&self, range: &PartitionRange) -> &Requests {
        match range {
            PartitionRange::Key(_) => &self.reads,
            PartitionRange::Between { .. } => &self.scans,
        }
    }

    /// Counts the rows and tombstones that a read passed.
    fn went_past(&self, rows: u64, tombstones: u64) {
        self.rows.record(rows, 1);
        self.tombstones.record(tombstones, 1);
    }

    fn told_of(&self, sizes: &Sizes) -> Told {
        let count = self.reads.count.get() + self.scans.count.get();
        Told { count, per_second: 0.0, weights: sizes.weights() }
    }
}

/// A write that is under way.
#[derive(Debug)]
pub struct Timed {
    load: Rc<TableLoad>,
    began: Option<Instant>,
}

impl Timed {
    /// Counts a write that begins.
    #[inline]
    pub(crate) fn new(load: &Rc<TableLoad>) -> Self {
        Self { load: Rc::clone(load), began: load.writes.begin() }
    }

    /// It is over.
    #[inline]
    pub fn end(&self) {
        self.load.writes.end(self.began);
    }

    /// Nothing was written: the write begins anew, with a [`Timed`] of its own.
    #[cold]
    pub fn not_begun(&self) {
        self.load.writes.not_begun(self.began);
    }
}

/// How long requests take, in nanoseconds.
pub(crate) struct Requests {
    count: Cell<u64>,
    /// The number of requests from which on the next one that begins is measured.
    next: Cell<u64>,
    latency: Latency,
    looked_at: RefCell<Option<Box<LookedAt>>>,
}

/// Measured requests.
struct LookedAt {
    times: Decaying,
    rate: Rate,
    published: Sampled,
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Requests").field(&self.count.get()).finish()
    }
}

impl Requests {
    fn new(latency: Latency) -> Self {
        Self { count: Cell::new(0), next: Cell::new(0), latency, looked_at: RefCell::new(None) }
    }

    /// When the next request begins, if it is one to be measured.
    #[inline]
    pub(crate) fn begin(&self) -> Option<Instant> {
        if self.count.get() < self.next.get() { None } else { self.begin_measured() }
    }

    /// One of [`EVERY`] requests is measured also where many are under way: the fastest of several would
    /// stand for all that were not measured.
    #[cold]
    fn begin_measured(&self) -> Option<Instant> {
        let (count, next) = (self.count.get(), self.next.get());
        if count + 1 >= FIRST {
            self.next.set((count / EVERY + 1) * EVERY);
        }
        (count < FIRST || next > 0).then(reactor::now)
    }

    /// A request that [`Self::begin`] was called for begins anew: the next one is measured in its place.
    #[cold]
    pub(crate) fn not_begun(&self, began: Option<Instant>) {
        if began.is_some() && self.next.get() > 0 {
            self.next.set(self.count.get());
        }
    }

    /// Publishes the requests that were not measured.
    fn settle(&self) {
        if let Some(looked_at) = self.looked_at.borrow().as_deref() {
            looked_at.published.settle(self.count.get());
        }
    }

    /// A request is over that began so.
    #[inline]
    pub(crate) fn end(&self, began: Option<Instant>) {
        let count = self.count.get();
        self.count.set(count + 1);
        if let Some(began) = began {
            self.look(began, count);
        }
    }

    #[cold]
    fn look(&self, began: Instant, count: u64) {
        let now = reactor::now();
        let mut looked_at = self.looked_at.borrow_mut();
        let looked_at = looked_at.get_or_insert_with(|| {
            let published = Sampled::new(histogram(self.latency));
            Box::new(LookedAt { times: Decaying::new(now), rate: Rate::new(began), published })
        });
        let LookedAt { times, rate, published } = &mut **looked_at;
        let took = u64::try_from(now.since(began).as_nanos()).unwrap_or(u64::MAX);
        published.record(took / 1000, self.count.get());
        times.record(took, stands_for(count), now);
        rate.look(now, self.count.get());
    }

    /// The present statistics.
    fn told(&self) -> Told {
        let count = self.count.get();
        let mut looked_at = self.looked_at.borrow_mut();
        let Some(LookedAt { times, rate, .. }) = looked_at.as_deref_mut() else {
            return Told { count, ..Told::default() };
        };
        let now = reactor::now();
        rate.look(now, count);
        Told { count, per_second: rate.per_second, weights: times.weights(now) }
    }
}

/// Number of requests that the request number `count` represents.
fn stands_for(count: u64) -> u32 {
    if count < FIRST { 1 } else { EVERY as u32 }
}

/// How many of something each request meant.
#[derive(Debug, Default)]
pub(crate) struct Sizes(RefCell<Option<Decaying>>);

impl Sizes {
    /// Records `value` for a request that represents `stands_for` requests.
    pub(crate) fn record(&self, value: u64, stands_for: u32) {
        let now = reactor::coarse_now();
        self.0.borrow_mut().get_or_insert_with(|| Decaying::new(now)).record(value, stands_for, now);
    }

    fn weights(&self) -> Weights {
        let now = reactor::coarse_now();
        self.0.borrow_mut().as_mut().map(|values| values.weights(now)).unwrap_or_default()
    }
}

/// Requests per second, weighted towards the last five minutes (as Cassandra's meters).
struct Rate {
    per_second: f64,
    count: u64,
    at: Instant,
    known: bool,
}

impl Rate {
    fn new(at: Instant) -> Self {
        Self { per_second: 0.0, count: 0, at, known: false }
    }

    fn look(&mut self, now: Instant, count: u64) {
        let elapsed = now.since(self.at).as_secs_f64();
        if elapsed < RATE_EVERY_S {
            return;
        }
        let since = (count - self.count) as f64 / elapsed;
        let kept = if self.known { (-elapsed / RATE_OVER_S).exp() } else { 0.0 };
        self.per_second = since + (self.per_second - since) * kept;
        (self.count, self.at, self.known) = (count, now, true);
    }
}

/// Statistics of one kind of request, of one shard or of all.
#[derive(Debug, Clone, Default)]
pub(crate) struct Told {
    /// Number of requests.
    pub(crate) count: u64,
    /// Requests per second.
    pub(crate) per_second: f64,
    /// Their times or sizes.
    pub(crate) weights: Weights,
}

impl Told {
    /// Adds another shard's statistics.
    pub(crate) fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.per_second += other.per_second;
        self.weights.add(&other.weights);
    }
}

/// A kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    Reads,
    Scans,
    Writes,
    Rows,
    Tombstones,
}

/// Sizes of batches: partitions that each writes.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    logged: Sizes,
    unlogged: Sizes,
    counter: Sizes,
}

impl Batches {
    /// Counts a batch that writes so many partitions.
    pub(crate) fn record(&self, kind: BatchKind, partitions: usize) {
        let sizes = match kind {
            BatchKind::Logged => &self.logged,
            BatchKind::Unlogged => &self.unlogged,
            BatchKind::Counter => &self.counter,
        };
        sizes.record(partitions as u64, 1);
    }

    /// The present statistics, under the names of Cassandra's `batch_metrics`.
    pub(crate) fn told(&self) -> [(&'static str, Weights); 3] {
        [
            ("partitions_per_logged_batch", self.logged.weights()),
            ("partitions_per_unlogged_batch", self.unlogged.weights()),
            ("partitions_per_counter_batch", self.counter.weights()),
        ]
    }
}

/// Request statistics of a shard's tables.
#[derive(Debug)]
pub(crate) struct Loads {
    tables: RefCell<HashMap<TableId, Rc<TableLoad>, foldhash::fast::FixedState>>,
    pub(crate) batches: Batches,
    cas_reads: Rc<Histogram>,
    cas_writes: Rc<Histogram>,
}

impl Loads {
    /// No requests so far. The histograms are registered, since they are published without a request too.
    pub(crate) fn new() -> Self {
        LATENCIES.into_iter().for_each(|latency| drop(histogram(latency)));
        Self {
            tables: RefCell::default(),
            batches: Batches::default(),
            cas_reads: histogram(CAS_READ_LATENCY),
            cas_writes: histogram(CAS_WRITE_LATENCY),
        }
    }

    /// Records a serial read that began at `began`.
    pub(crate) fn cas_read_ended(&self, began: Instant) {
        self.cas_reads.record(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
    }

    /// Records a conditional write that began at `began`.
    pub(crate) fn cas_write_ended(&self, began: Instant) {
        self.cas_writes.record(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
}

impl Engine {
    /// Request statistics of a table.
    pub(crate) fn load_of(&self, table: &Table) -> Rc<TableLoad> {
        let mut tables = self.loads().tables.borrow_mut();
        if let Some(load) = tables.get(&table.id()) {
            return Rc::clone(load);
        }
        let count = tables.len();
        if count >= TABLES_BEFORE_SWEEP && count.is_power_of_two() {
            tables.retain(|id, _| self.stored_table(*id).is_some());
        }
        Rc::clone(tables.entry(table.id()).or_default())
    }

    /// Brings the metrics up to date, latencies with the requests that were not measured. There may be
    /// thousands of tables, so other tasks run in between. Call before the metrics are read.
    pub async fn settle_metrics(&self) {
        self.settle_statements();
        for (_, load) in self.each_load() {
            [&load.reads, &load.scans, &load.writes].into_iter().for_each(Requests::settle);
            reactor::maybe_yield().await;
        }
    }

    fn each_load(&self) -> Vec<(TableId, Rc<TableLoad>)> {
        self.loads().tables.borrow().iter().map(|(id, load)| (*id, Rc::clone(load))).collect()
    }

    /// Counts the rows and tombstones that a read of the table passed.
    pub(crate) fn went_past(&self, table: &Table, rows: u64, tombstones: u64) {
        self.load_of(table).went_past(rows, tombstones);
        self.statements().tombstones_read(tombstones);
    }

    /// The statistics of one kind of request, for each table that had any request. There may be thousands, so
    /// other tasks run in between.
    pub(crate) async fn told(&self, of: Of) -> Vec<(TableId, Told)> {
        let tables = self.each_load();
        let told = |load: &TableLoad| match of {
            Of::Reads => load.reads.told(),
            Of::Scans => load.scans.told(),
            Of::Writes => load.writes.told(),
            Of::Rows => load.told_of(&load.rows),
            Of::Tombstones => load.told_of(&load.tombstones),
        };
        let mut all = Vec::with_capacity(tables.len());
        for (id, load) in tables {
            all.push((id, told(&load)));
            reactor::maybe_yield().await;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_histogram_has_every_request_and_one_of_many_is_measured() {
        reactor::sim::run_one(1, || async {
            let requests = Requests::new(LATENCIES[0]);
            for _ in 0..1000 {
                requests.end(requests.begin());
            }
            let count = || histogram(LATENCIES[0]).snapshot().count;
            assert_eq!(count(), 769, "up to the last one that was measured");
            requests.settle();
            assert_eq!(count(), 1000);
            let begun: Vec<_> = (0..100).map(|_| requests.begin()).collect();
            assert_eq!(begun.iter().flatten().count(), 0);
            for began in begun {
                requests.end(began);
            }
            let began = requests.begin();
            assert!(began.is_some(), "the first beyond 1024");
            assert!(requests.begin().is_none());
            requests.not_begun(began);
            assert!(requests.begin().is_some(), "in its place");
        });
    }

    #[test]
    fn quantiles_are_ends_of_cassandras_buckets_and_fade() {
        let start = Instant::default();
        let mut values = Decaying::new(start);
        (1..=100).for_each(|value| values.record(value, 1, start));
        let told = values.weights(start);
        assert_eq!((told.quantile(0.5), told.quantile(0.99), told.max()), (50, 103, 103));
        let later = start + Duration::from_secs(120);
        (0..100).for_each(|_| values.record(7, 1, later));
        let told = values.weights(later);
        assert_eq!((told.quantile(0.5), told.quantile(0.99), told.max()), (7, 103, 103));
        let told = values.weights(later + Duration::from_secs(7200));
        assert_eq!((told.quantile(0.5), told.max()), (0, 0));
    }

    #[test]
    fn none_is_zero_and_the_greatest_has_a_bucket() {
        let mut values = Decaying::new(Instant::default());
        values.record(0, 1, Instant::default());
        assert_eq!(values.weights(Instant::default()).max(), 0);
        values.record(u64::MAX, 1, Instant::default());
        assert!(values.weights(Instant::default()).max() > 7_200_000_000_000);
    }

    #[test]
    fn a_rate_follows_what_came_last() {
        let start = Instant::default();
        let mut rate = Rate::new(start);
        rate.look(start + Duration::from_secs(4), 400);
        assert_eq!(rate.per_second, 0.0);
        rate.look(start + Duration::from_secs(10), 1000);
        assert_eq!(rate.per_second, 100.0);
        rate.look(start + Duration::from_secs(310), 1000);
        assert!((36.0..37.0).contains(&rate.per_second), "{}", rate.per_second);
    }
}
