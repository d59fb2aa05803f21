//! One shard's settings of tracing: the share of requests that is traced by chance, and the limits from which
//! on a request is slow.
//!
//! The quick road asks [`Watch::looks_at_each`] once per request: one load while nothing is traced by chance.
//! Traced requests are counted down, so that each request costs a subtraction and the chance is drawn once
//! per traced request. Invariant: each request counts once, on the road that answers it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use reactor::metrics::{self, Counter};

/// How long records of slow requests are kept if nobody says otherwise, in seconds.
const SLOW_TTL_SECONDS: u32 = 24 * 3600;
/// From which time on a request is recorded as slow if nobody says otherwise.
const SLOW_AFTER: Duration = Duration::from_millis(500);
/// Limits below this are compared with a clock that is read for each request; longer ones with the clock of
/// the slice, which is up to a slice behind.
const COARSE_FROM: Duration = Duration::from_millis(10);

/// The settings of `system_traces.node_slow_log`, by ScyllaDB's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowTable {
    /// Whether slow requests are recorded.
    pub enable: bool,
    /// Whether a record goes without the events of the request. Otherwise all requests are traced, and the
    /// traces of slow ones are written.
    pub fast: bool,
    /// From which time on a request is slow.
    pub threshold: Duration,
    /// How long a record is kept, in seconds.
    pub ttl_seconds: u32,
}

impl Default for SlowTable {
    fn default() -> Self {
        Self { enable: false, fast: false, threshold: SLOW_AFTER, ttl_seconds: SLOW_TTL_SECONDS }
    }
}

/// The settings of one shard.
#[derive(Debug)]
pub struct Watch {
    /// Whether requests are counted down, or all are traced.
    looks_at_each: Cell<bool>,
    /// The share of requests that is traced by chance.
    probability: Cell<f64>,
    /// Requests that pass before one is traced by chance.
    passing: Cell<u64>,
    /// From which time on the log has a line of a request.
    log_after: Cell<Option<Duration>>,
    table: Cell<SlowTable>,
    /// From which time on a request is slow for the log or the table; the longest time for never.
    slow_after: Cell<Duration>,
    /// Slow requests, for the log or the table.
    pub(crate) slow: Rc<Counter>,
}

impl Watch {
    /// Nothing is traced; requests that take longer than `log_after` get a line in the log.
    pub fn new(log_after: Option<Duration>) -> Self {
        let watch = Self {
            looks_at_each: Cell::new(false),
            probability: Cell::new(0.0),
            passing: Cell::new(u64::MAX),
            log_after: Cell::new(log_after),
            table: Cell::new(SlowTable::default()),
            slow_after: Cell::new(Duration::MAX),
            slow: metrics::counter(
                "ceto_slow_requests_total",
                "Requests that took longer than the limit of the slow-query log or of node_slow_log.",
                &[],
            ),
        };
        watch.follow();
        watch
    }

    /// The share of requests that is traced by chance.
    pub fn probability(&self) -> f64 {
        self.probability.get()
    }

    /// Has this share of requests traced, from 0 to 1.
    ///
    /// # Panics
    /// If it is no share.
    pub fn set_probability(&self, probability: f64) {
        assert!((0.0..=1.0).contains(&probability), "{probability} is no share");
        self.probability.set(probability);
        self.draw();
        self.follow();
    }

    /// The settings of `system_traces.node_slow_log`.
    pub fn slow_table(&self) -> SlowTable {
        self.table.get()
    }

    /// Sets them.
    pub fn set_slow_table(&self, table: SlowTable) {
        self.table.set(table);
        self.follow();
    }

    /// From which time on the log has a line of a request.
    pub fn log_after(&self) -> Option<Duration> {
        self.log_after.get()
    }

    fn follow(&self) {
        let table = self.table.get();
        self.looks_at_each.set(self.probability.get() > 0.0 || self.collects());
        let recorded = table.enable.then_some(table.threshold);
        let slow_after = recorded.into_iter().chain(self.log_after.get()).min();
        self.slow_after.set(slow_after.unwrap_or(Duration::MAX));
    }

    /// Whether every request is traced because it may turn out to be slow.
    pub fn collects(&self) -> bool {
        let table = self.table.get();
        table.enable && !table.fast
    }

    /// Whether [`Self::takes_next`] has to be asked for each request.
    #[inline]
    pub fn looks_at_each(&self) -> bool {
        self.looks_at_each.get()
    }

    /// Whether the next request is traced, and so cannot take the quick road.
    #[cold]
    pub fn takes_next(&self) -> bool {
        self.passing.get() == 0 || self.collects()
    }

    /// A request was answered on the quick road while [`Self::looks_at_each`] held.
    #[cold]
    pub fn passed(&self) {
        // Another request may have been drawn anew since.
        self.passing.set(self.passing.get().saturating_sub(1));
    }

    /// Whether the request that begins on the plain road is traced by chance.
    #[inline]
    pub fn chosen(&self) -> bool {
        self.looks_at_each.get() && self.chosen_by_chance()
    }

    #[cold]
    fn chosen_by_chance(&self) -> bool {
        if self.passing.get() > 0 {
            self.passed();
            return false;
        }
        self.draw();
        true
    }

    /// Draws how many requests pass before the next one that is traced: each is traced with the same chance.
    fn draw(&self) {
        let probability = self.probability.get();
        let passing = if probability <= 0.0 {
            u64::MAX
        } else {
            // The 53 bits of a fraction above 0 and up to 1.
            let chance = ((reactor::random_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
            // A share of 1 gives minus infinity below the line, and so 0 requests that pass.
            (chance.ln() / (-probability).ln_1p()) as u64
        };
        self.passing.set(passing);
    }

    /// Whether the limits are so short that the clock of the slice does not do.
    pub fn is_exact(&self) -> bool {
        self.slow_after.get() < COARSE_FROM
    }

    /// Whether `system_traces.node_slow_log` gets a row of a request that took so long.
    pub fn records(&self, took: Duration) -> bool {
        let table = self.table.get();
        table.enable && took >= table.threshold
    }

    /// Whether a request that took so long is slow.
    #[inline]
    pub fn is_slow(&self, took: Duration) -> bool {
        took >= self.slow_after.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `requests` are traced, if every other one of the rest takes the quick road.
    fn traced(watch: &Watch, requests: u32) -> u32 {
        let mut traced = 0;
        for request in 0..requests {
            if !watch.looks_at_each() {
                continue;
            }
            if request % 2 == 0 && !watch.takes_next() {
                watch.passed();
            } else {
                traced += u32::from(watch.chosen());
            }
        }
        traced
    }

    #[test]
    fn the_share_that_is_asked_for_is_traced_on_both_roads() {
        reactor::sim::run_one(1, || async {
            let watch = Watch::new(None);
            assert_eq!((watch.looks_at_each(), traced(&watch, 1000)), (false, 0));
            watch.set_probability(1.0);
            assert_eq!(traced(&watch, 1000), 1000);
            for (probability, expected) in [(0.5, 9_500..10_500), (0.1, 1_800..2_200), (0.001, 5..40)] {
                watch.set_probability(probability);
                let traced = traced(&watch, 20_000);
                assert!(expected.contains(&traced), "{traced} of 20000 at {probability}");
            }
            watch.set_probability(0.0);
            assert_eq!((watch.looks_at_each(), traced(&watch, 1000)), (false, 0));
        });
    }

    #[test]
    fn the_shorter_limit_counts_and_short_ones_are_exact() {
        reactor::sim::run_one(1, || async {
            let millis = Duration::from_millis;
            let watch = Watch::new(Some(millis(500)));
            assert_eq!((watch.is_slow(millis(499)), watch.is_slow(millis(500))), (false, true));
            let table = SlowTable { enable: true, fast: true, threshold: millis(2), ttl_seconds: 9 };
            watch.set_slow_table(table);
            assert!(watch.is_slow(millis(2)) && watch.is_exact() && !watch.looks_at_each());
            watch.set_slow_table(SlowTable { fast: false, ..table });
            assert!(watch.looks_at_each() && watch.takes_next() && !watch.chosen());
            watch.set_slow_table(SlowTable { enable: false, ..table });
            assert!(!watch.is_slow(millis(2)) && !watch.is_exact() && !watch.looks_at_each());
            assert!(!Watch::new(None).is_slow(Duration::from_secs(1 << 40)));
        });
    }
}
