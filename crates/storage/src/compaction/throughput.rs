//! The cap on the bytes per second that compactions write, if one is configured (`compaction_throughput`).
//!
//! It is a token bucket that fills at the configured rate and holds a tenth of a second of it. A compaction
//! that takes more than the bucket has waits until the rest has come in. Without a cap nothing is counted.

use std::cell::Cell;
use std::time::Duration;

use reactor::Instant;

/// Part of a second the bucket holds.
const BURST: f64 = 0.1;
/// Longest single wait, so that a waiting compaction still notices soon that it is to stop.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// The token bucket of bytes that may be written.
pub(super) struct Throughput {
    bytes_per_second: Cell<u64>,
    available: Cell<f64>,
    since: Cell<Option<Instant>>,
}

impl Throughput {
    /// So many bytes per second; 0 for any number.
    pub(super) fn new(bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second: Cell::new(bytes_per_second),
            available: Cell::new(0.0),
            since: Cell::new(None),
        }
    }

    pub(super) fn bytes_per_second(&self) -> u64 {
        self.bytes_per_second.get()
    }

    pub(super) fn set(&self, bytes_per_second: u64) {
        self.bytes_per_second.set(bytes_per_second);
    }

    /// Counts `bytes` as written. Returns how long to wait before writing more, at most a tenth of a second.
    pub(super) fn take(&self, bytes: u64) -> Option<Duration> {
        let rate = self.bytes_per_second.get() as f64;
        if rate == 0.0 {
            return None;
        }
        let now = reactor::now();
        let passed = self.since.replace(Some(now)).map_or(BURST, |since| now.since(since).as_secs_f64());
        let available = (self.available.get() + passed * rate).min(rate * BURST) - bytes as f64;
        self.available.set(available);
        (available < 0.0).then(|| Duration::from_secs_f64(-available / rate).min(WAIT_MAX))
    }

    /// Whether more was written than the rate allows until now.
    pub(super) fn owes(&self) -> bool {
        self.bytes_per_second.get() > 0 && self.available.get() < 0.0
    }
}
