//! How far a long reading has come, on standard error every few seconds.

use std::time::Duration;

use reactor::{Instant, now};

/// Time between two lines.
const EVERY: Duration = Duration::from_secs(2);

/// Reports the progress of a read whose size is known.
pub(super) struct Progress {
    what: String,
    total: u64,
    next: Instant,
}

impl Progress {
    pub(super) fn new(what: String, total: u64) -> Self {
        Self { what, total, next: now() + EVERY }
    }

    /// Prints the progress, if the last report was long ago.
    pub(super) fn at(&mut self, done: u64) {
        if now() >= self.next {
            self.next = now() + EVERY;
            let share = 100.0 * done as f64 / self.total.max(1) as f64;
            eprintln!("{}: {done} of {} ({share:.0} %)", self.what, self.total);
        }
    }
}
