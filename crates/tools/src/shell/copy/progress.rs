//! How far a COPY is, told on standard error at most once a second.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use reactor::Instant;

const EVERY: Duration = Duration::from_secs(1);

/// The count of rows, and when it was last told.
pub(super) struct Progress {
    began: Instant,
    told_at: Instant,
    /// Whether the line is written again in its place.
    is_terminal: bool,
    was_told: bool,
}

impl Progress {
    pub(super) fn new() -> Self {
        let now = reactor::now();
        Self { began: now, told_at: now, is_terminal: std::io::stderr().is_terminal(), was_told: false }
    }

    /// Tells the count, unless the last time was less than a second ago.
    pub(super) fn tell(&mut self, rows: u64) {
        let now = reactor::now();
        if now.since(self.told_at) < EVERY {
            return;
        }
        self.told_at = now;
        self.was_told = true;
        let rate = rows as f64 / now.since(self.began).as_secs_f64();
        let end = if self.is_terminal { '\r' } else { '\n' };
        let _ = write!(std::io::stderr(), "Processed: {rows} rows; Rate: {rate:7.0} rows/s{end}");
    }

    /// Ends the line; returns the time since the beginning in words.
    pub(super) fn end(&self) -> String {
        if self.was_told && self.is_terminal {
            eprintln!();
        }
        words(self.began.elapsed())
    }
}

fn words(time: Duration) -> String {
    let (minutes, seconds) = (time.as_secs() / 60, time.as_secs_f64() % 60.0);
    match minutes {
        0 => format!("{seconds:.3} seconds"),
        1 => format!("1 minute and {seconds:.3} seconds"),
        _ => format!("{minutes} minutes and {seconds:.3} seconds"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_words() {
        assert_eq!(words(Duration::from_millis(1500)), "1.500 seconds");
        assert_eq!(words(Duration::from_secs(61)), "1 minute and 1.000 seconds");
        assert_eq!(words(Duration::from_secs(7205)), "120 minutes and 5.000 seconds");
    }
}
