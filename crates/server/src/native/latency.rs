//! Measures how long requests of clients take, from admission to the answer in the connection's output.
//!
//! The first requests of a shard are measured and then one in [`EVERY`]: a request that is not measured pays
//! a few instructions.

use std::cell::Cell;
use std::rc::Rc;

use reactor::Instant;
use reactor::metrics::{self, Counter, Sampled};

/// One request in so many is measured, after the first so many.
const EVERY: u64 = 64;

/// The histogram of one shard.
pub(super) struct Latency {
    begun: Cell<u64>,
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
        Self { begun: Cell::new(0), served: Rc::clone(served), microseconds: Sampled::new(histogram) }
    }

    /// When the request that begins now began, if it is one to be measured.
    #[inline]
    pub(super) fn begin(&self) -> Option<Instant> {
        let begun = self.begun.get();
        self.begun.set(begun + 1);
        (begun < EVERY || begun.is_multiple_of(EVERY)).then(reactor::now)
    }

    /// The last request that began has to begin again.
    #[inline]
    pub(super) fn not_begun(&self) {
        self.begun.set(self.begun.get() - 1);
    }

    /// A request that began so is answered, and counted as served.
    #[inline]
    pub(super) fn end(&self, began: Option<Instant>) {
        if let Some(began) = began {
            self.record(began);
        }
    }

    #[cold]
    fn record(&self, began: Instant) {
        let took = reactor::now().since(began).as_micros();
        self.microseconds.record(u64::try_from(took).unwrap_or(u64::MAX), self.served.get());
    }

    /// Adds the requests that were not measured to the histogram. Call before the metrics are read.
    pub(super) fn settle(&self) {
        self.microseconds.settle(self.served.get());
    }
}
