//! One run after the other, with ever more threads.

use std::time::Duration;

use super::{Action, Outcome, Which};
use crate::stress::StressError;
use crate::stress::console::tell;
use crate::stress::report::{HEADER, row};
use crate::stress::settings::{End, Truncate};

/// Time between runs that write, for flushes and compactions of the data they wrote.
const PAUSE_AFTER_WRITES: Duration = Duration::from_secs(15);

impl Action {
    /// Runs with more and more threads, until throughput stops growing or the number of threads is `max`.
    pub(super) async fn run_range(&mut self, min: u32, max: u32) -> Result<bool, StressError> {
        let target = match self.settings.command.end {
            End::Uncertainty { target, .. } => {
                self.console.line(
                    "WARNING: uncertainty mode (err<) results in uneven workload between thread runs, so should be \
                     used for high level analysis only",
                );
                target
            }
            _ => -1.0,
        };
        let (mut threads, mut outcomes): (u32, Vec<(u32, Outcome)>) = (min, Vec::new());
        loop {
            self.console.line("");
            self.console.line(&format!("Running with {threads} threadCount"));
            if self.settings.command.truncate == Truncate::Always {
                self.truncate().await?;
            }
            let end = self.settings.command.end.clone();
            let outcome = self.run_once(Which::All, threads, &end, false).await?;
            if !outcome.is_well {
                return Ok(false);
            }
            let before = outcomes.last().map(|(threads, _)| *threads);
            outcomes.push((threads, outcome));
            let rates: Vec<f64> =
                outcomes.iter().map(|(_, outcome)| outcome.total.operation_rate()).collect();
            if let Some(before) = before {
                let improvement = 100.0 * improvement(&rates, 1);
                tell(&format!("Improvement over {before} threadCount: {improvement:.0}%"));
            }
            threads = if threads < 16 { threads * 2 } else { (f64::from(threads) * 1.5) as u32 };
            if threads > max {
                break;
            }
            let grows =
                |count: usize, least: f64| rates.len() < count + 1 || improvement(&rates, count) >= least;
            if self.settings.rate.auto && !(grows(3, 0.0) && grows(5, target)) {
                break;
            }
            if self.settings.command.work.updates() {
                self.console.line("Sleeping for 15s");
                reactor::sleep(PAUSE_AFTER_WRITES).await;
            }
        }
        let width = outcomes.last().map_or(0, |(threads, _)| format!("{threads} threadCount").len());
        self.console.line(&format!("{:>width$}, {HEADER}", "id"));
        for (threads, outcome) in &outcomes {
            let id = format!("{:>width$}, ", format!("{threads} threadCount"));
            for (name, kind) in &outcome.kinds {
                self.console.line(&format!("{id}{}", row(name, kind, kind, &outcome.uncertainty)));
            }
            let total = &outcome.total;
            self.console.line(&format!("{id}{}", row("total", total, total, &outcome.uncertainty)));
        }
        Ok(true)
    }
}

/// By how much the last `count` rates grew, on average.
fn improvement(rates: &[f64], count: usize) -> f64 {
    let from = rates.len().saturating_sub(count + 1);
    let growths = rates[from..].windows(2).map(|pair| (pair[1] - pair[0]) / pair[0]);
    growths.sum::<f64>() / count as f64
}

#[cfg(test)]
mod tests {
    use super::improvement;

    #[test]
    fn improvement_is_the_mean_of_the_last_growths() {
        assert_eq!(improvement(&[100.0, 200.0], 1), 1.0);
        assert_eq!(improvement(&[1.0, 100.0, 200.0, 200.0], 2), 0.5);
    }
}
