//! Measures how long requests of clients take, from admission to the answer in the connection's output.
//!
//! The first requests of a shard are measured and then one in [`EVERY`]: a request that is not measured pays
//! a few instructions. Where requests are slow from a short time on, all are measured
//! ([`Latency::measure_all`]).

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use reactor::Instant;
use reactor::metrics::{self, Counter, Sampled};

/// One request in so many is measured, after the first so many.
const EVERY: u32 = 64;

/// The histogram of one shard.
pub(super) struct Latency {
    /// The number of requests until the next one that is measured, this one included.
    left: Cell<u32>,
    /// Requests of the first ones that are not measured yet.
    first: Cell<u32>,
    /// One request in so many is measured after the first ones.
    every: Cell<u32>,
    served: Rc<Counter>,
    microseconds: Sampled,
}

impl Latency {
    /// `served` counts the requests that were answered.
    pub(super) fn new(served: &Rc<Counter>) -> Self {
        let histogram = metrics::histogram(
            "scylla_transport_cql_request_latency_histogram",
            "Microseconds of a request, from its admission to its answer.",
            &[],
        );
        Self {
            left: Cell::new(1),
            first: Cell::new(EVERY),
            every: Cell::new(EVERY),
            served: Rc::clone(served),
            microseconds: Sampled::new(histogram),
        }
    }

    /// Whether every request is measured from now on, or one in [`EVERY`].
    pub(super) fn measure_all(&self, all: bool) {
        self.every.set(if all { 1 } else { EVERY });
        self.left.set(self.left.get().min(self.every.get()));
    }

    /// When the request that begins now began, if it is one to be measured.
    #[inline]
    pub(super) fn begin(&self) -> Option<Instant> {
        self.left.set(self.left.get() - 1);
        if self.left.get() == 0 { Some(self.begin_measured()) } else { None }
    }

    #[cold]
    fn begin_measured(&self) -> Instant {
        let first = self.first.get();
        self.left.set(if first > 0 { 1 } else { self.every.get() });
        self.first.set(first.saturating_sub(1));
        reactor::now()
    }

    /// The last request that began has to begin again; `began` is what [`Self::begin`] returned for it.
    pub(super) fn not_begun(&self, began: Option<Instant>) {
        if began.is_none() {
            self.left.set(self.left.get() + 1);
            return;
        }
        if self.left.replace(1) == 1 {
            self.first.set(self.first.get() + 1);
        }
    }

    /// A request that began so is answered, and counted as served. Returns how long it took, if it was
    /// measured.
    #[inline]
    pub(super) fn end(&self, began: Option<Instant>) -> Option<Duration> {
        began.map(|began| self.record(began))
    }

    #[cold]
    fn record(&self, began: Instant) -> Duration {
        let took = reactor::now().since(began);
        let microseconds = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.microseconds.record(microseconds, self.served.get());
        took
    }

    /// Adds the requests that were not measured to the histogram. Call before the metrics are read.
    pub(super) fn settle(&self) {
        self.microseconds.settle(self.served.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_of_many_is_measured_and_all_are_counted() {
        reactor::sim::run_one(1, || async {
            let served = Rc::new(Counter::default());
            let latency = Latency::new(&served);
            let mut measured = 0;
            for _ in 0..1000 {
                latency.not_begun(latency.begin());
                let began = latency.begin();
                measured += usize::from(began.is_some());
                served.inc();
                latency.end(began);
            }
            assert_eq!(measured, 64 + (1000_usize - 64).div_ceil(64));
            latency.measure_all(true);
            for _ in 0..100 {
                latency.not_begun(latency.begin());
                let began = latency.begin();
                served.inc();
                assert!(latency.end(began).is_some(), "all are measured now");
            }
            latency.measure_all(false);
            assert_eq!((0..640).filter(|_| latency.begin().is_some()).count(), 10);
            latency.settle();
            let name = "scylla_transport_cql_request_latency_histogram";
            assert_eq!(metrics::histogram(name, "", &[]).snapshot().count, 1100);
        });
    }
}
