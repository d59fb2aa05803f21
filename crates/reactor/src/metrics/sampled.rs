//! Feeds a histogram from events of which only some are measured, so that the others cost next to nothing.
//!
//! Each measured event stands for itself and for those since the one before it; [`Sampled::settle`] adds the
//! rest, at the last measured value, before the histogram is published.
//! Invariant: the histogram's count only grows, and after `settle` it is the number of events, except for
//! events before the first measured one.

use std::cell::Cell;
use std::rc::Rc;

use super::Histogram;

/// One stream of events. Several streams may feed one histogram.
pub struct Sampled {
    histogram: Rc<Histogram>,
    /// Events that the histogram has.
    counted: Cell<u64>,
    last: Cell<u64>,
}

impl Sampled {
    /// A stream without events.
    pub fn new(histogram: Rc<Histogram>) -> Self {
        Self { histogram, counted: Cell::new(0), last: Cell::new(0) }
    }

    /// Records the value of an event that was measured, the last of `events` so far.
    pub fn record(&self, value: u64, events: u64) {
        self.last.set(value);
        self.count_to(value, events);
    }

    /// Adds the events that were not measured since the last measured one, if there was one.
    pub fn settle(&self, events: u64) {
        if self.counted.get() > 0 {
            self.count_to(self.last.get(), events);
        }
    }

    fn count_to(&self, value: u64, events: u64) {
        let fresh = events.saturating_sub(self.counted.get());
        self.histogram.record_many(value, fresh);
        self.counted.set(self.counted.get() + fresh);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_event_stands_for_those_before_it_and_the_rest_is_settled() {
        let histogram = Rc::new(Histogram::default());
        let stream = Sampled::new(Rc::clone(&histogram));
        stream.settle(0);
        stream.record(3, 1);
        stream.record(100, 11);
        let counts = |histogram: &Histogram| (histogram.snapshot().count, histogram.snapshot().sum);
        assert_eq!(counts(&histogram), (11, 1003));
        stream.settle(15);
        stream.settle(15);
        assert_eq!(counts(&histogram), (15, 1403));
        stream.record(7, 15);
        assert_eq!(counts(&histogram), (15, 1403), "an event that was settled is not counted again");
        stream.record(7, 16);
        assert_eq!(counts(&histogram), (16, 1410));
    }
}
