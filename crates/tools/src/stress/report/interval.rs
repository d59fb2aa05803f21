//! Measurements over an interval of time.

use hdrhistogram::Histogram;

/// Significant digits of latencies.
const DIGITS: u8 = 3;

/// Counts and latencies of one kind's operations in an interval.
#[derive(Debug, Clone)]
pub(in crate::stress) struct Interval {
    /// Nanoseconds from sending to the answer.
    pub(in crate::stress) service: Histogram<u64>,
    /// Nanoseconds from the scheduled begin to the answer.
    pub(in crate::stress) response: Histogram<u64>,
    /// Nanoseconds from the scheduled begin to sending.
    pub(in crate::stress) wait: Histogram<u64>,
    pub(in crate::stress) partitions: u64,
    pub(in crate::stress) rows: u64,
    pub(in crate::stress) errors: u64,
    /// Nanoseconds since the run began.
    pub(in crate::stress) start_ns: u64,
    pub(in crate::stress) end_ns: u64,
    /// Whether latency is that of responses, if there are any.
    is_fixed: bool,
}

impl Interval {
    pub(in crate::stress) fn new(is_fixed: bool) -> Self {
        let histogram = || Histogram::new(DIGITS).expect("three digits are in range");
        Self {
            service: histogram(),
            response: histogram(),
            wait: histogram(),
            partitions: 0,
            rows: 0,
            errors: 0,
            start_ns: u64::MAX,
            end_ns: 0,
            is_fixed,
        }
    }

    /// Clears the measurements.
    pub(in crate::stress) fn reset(&mut self) {
        for histogram in [&mut self.service, &mut self.response, &mut self.wait] {
            if !histogram.is_empty() {
                histogram.reset();
            }
        }
        (self.partitions, self.rows, self.errors, self.start_ns, self.end_ns) = (0, 0, 0, u64::MAX, 0);
    }

    /// Adds another interval, or another kind of the same one.
    pub(in crate::stress) fn add(&mut self, other: &Self) {
        self.partitions += other.partitions;
        self.rows += other.rows;
        self.errors += other.errors;
        self.start_ns = self.start_ns.min(other.start_ns);
        self.end_ns = self.end_ns.max(other.end_ns);
        for (own, more) in [
            (&mut self.service, &other.service),
            (&mut self.response, &other.response),
            (&mut self.wait, &other.wait),
        ] {
            if !more.is_empty() {
                own.add(more).expect("histograms that grow take any value");
            }
        }
    }

    pub(in crate::stress) fn latency(&self) -> &Histogram<u64> {
        if self.is_fixed && !self.response.is_empty() { &self.response } else { &self.service }
    }

    pub(in crate::stress) fn operations(&self) -> u64 {
        self.latency().len()
    }

    pub(in crate::stress) fn seconds(&self) -> f64 {
        self.end_ns.saturating_sub(self.start_ns) as f64 * 1e-9
    }

    pub(in crate::stress) fn operation_rate(&self) -> f64 {
        self.operations() as f64 / self.seconds()
    }

    pub(in crate::stress) fn partition_rate(&self) -> f64 {
        self.partitions as f64 / self.seconds()
    }

    pub(in crate::stress) fn row_rate(&self) -> f64 {
        self.rows as f64 / self.seconds()
    }

    /// Rows per second of the time in which rows could arrive.
    pub(in crate::stress) fn adjusted_row_rate(&self) -> f64 {
        self.rows as f64 / (self.seconds() - self.latency().max() as f64 * 1e-9)
    }

    pub(in crate::stress) fn mean_ms(&self) -> f64 {
        self.latency().mean() * 1e-6
    }

    pub(in crate::stress) fn quantile_ms(&self, share: f64) -> f64 {
        self.latency().value_at_quantile(share) as f64 * 1e-6
    }

    pub(in crate::stress) fn max_ms(&self) -> f64 {
        self.latency().max() as f64 * 1e-6
    }
}

/// How well the rate is known: the standard error of its mean over the intervals, as a share of the mean.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::stress) struct Uncertainty {
    pub(in crate::stress) measurements: u32,
    squares: f64,
    sum: f64,
    pub(in crate::stress) value: f64,
}

impl Uncertainty {
    pub(in crate::stress) fn update(&mut self, rate: f64) {
        self.measurements += 1;
        self.squares += rate * rate;
        self.sum += rate;
        let count = f64::from(self.measurements);
        let mean = self.sum / count;
        let deviation = (self.squares / count - mean * mean).sqrt();
        self.value = deviation / count.sqrt() / mean;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_add_up_and_fixed_rates_count_from_the_schedule() {
        let mut total = Interval::new(true);
        for (start_ns, service) in [(0, 1_000_000), (1_000_000_000, 3_000_000)] {
            let mut interval = Interval::new(true);
            interval.service.record(service).unwrap();
            interval.response.record(2 * service).unwrap();
            (interval.partitions, interval.rows, interval.errors) = (1, 2, 0);
            (interval.start_ns, interval.end_ns) = (start_ns, start_ns + 1_000_000_000);
            total.add(&interval);
        }
        assert_eq!((total.operations(), total.partitions, total.rows), (2, 2, 4));
        assert_eq!((total.seconds(), total.operation_rate(), total.row_rate()), (2.0, 1.0, 2.0));
        assert!((total.mean_ms() - 4.0).abs() < 0.01 && (total.max_ms() - 6.0).abs() < 0.01);
        total.reset();
        assert_eq!(total.operations(), 0);
    }

    #[test]
    fn the_uncertainty_of_a_steady_rate_vanishes() {
        let mut steady = Uncertainty::default();
        (0..10).for_each(|_| steady.update(100.0));
        assert_eq!(steady.value, 0.0);
        let mut unsteady = Uncertainty::default();
        [50.0, 150.0].into_iter().for_each(|rate| unsteady.update(rate));
        assert!((unsteady.value - 0.5 / 2_f64.sqrt()).abs() < 1e-12, "{}", unsteady.value);
    }
}
