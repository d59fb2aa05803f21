//! Follows a run, interval by interval: lines of progress, the log of histograms, and in the end the page.

use std::collections::BTreeMap;

use reactor::{Deadline, now};

use super::{Action, Outcome};
use crate::stress::StressError;
use crate::stress::report::{HEADER, Interval, Sample, Uncertainty, page, row};
use crate::stress::settings::End;

/// Longest page of graphs that is added to.
const PAGE_BYTES_MAX: usize = 64 << 20;

impl Action {
    /// Follows a run to its end, telling of each interval.
    pub(super) async fn watch(
        &mut self,
        begin: reactor::Instant,
        end: &End,
        is_fixed: bool,
        is_warm_up: bool,
    ) -> Result<Outcome, StressError> {
        let step = self.settings.log.interval;
        let mut outcome = Outcome {
            total: Interval::new(is_fixed),
            kinds: BTreeMap::new(),
            uncertainty: Uncertainty::default(),
            is_well: true,
        };
        let (mut start_ns, mut next, mut lines) = (0, begin + step, 0_u32);
        let stop_at = match end {
            End::Duration { time, .. } => Some(begin + *time),
            _ => None,
        };
        let mut is_stopped = false;
        loop {
            let wake = stop_at.filter(|_| !is_stopped).map_or(next, |stop_at| stop_at.min(next));
            let left = wake.since(now().min(wake));
            let is_done = reactor::timeout(Deadline::after(left), self.engine.wait_done()).await.is_ok();
            let at = now();
            if stop_at.is_some_and(|stop_at| at >= stop_at) && !is_stopped {
                is_stopped = true;
                self.engine.stop();
            }
            if !is_done && at < next {
                continue;
            }
            self.engine.give_up_late();
            let end_ns = at.since(begin).as_nanos() as u64;
            let kinds = self.engine.collect(start_ns, end_ns);
            let mut current = Interval::new(is_fixed);
            kinds.values().for_each(|kind| current.add(kind));
            (current.start_ns, current.end_ns) = (start_ns, end_ns);
            outcome.total.add(&current);
            outcome.uncertainty.update(current.adjusted_row_rate());
            for (name, kind) in &kinds {
                let total = outcome.kinds.entry(name.clone()).or_insert_with(|| Interval::new(is_fixed));
                total.add(kind);
                if kinds.len() > 1 {
                    self.console.line(&row(name, kind, total, &outcome.uncertainty));
                }
                if let Some((log, file)) = self.histograms.as_mut().filter(|_| !is_warm_up) {
                    log.lines(name, kind).iter().for_each(|line| file.line(line));
                }
            }
            if current.operations() > 0 {
                lines += 1;
                let every = self.settings.reporting.output_every();
                if every == 0 || lines.is_multiple_of(every) {
                    self.console.line(&row("total", &current, &outcome.total, &outcome.uncertainty));
                }
                let every = self.settings.reporting.header_every();
                if every != 0 && lines.is_multiple_of(every) {
                    self.console.line(&format!("\n{HEADER}"));
                }
                if !is_warm_up {
                    self.samples.push(sample(&current));
                }
            }
            self.console.flush().await?;
            if let Some((_, file)) = &mut self.histograms {
                file.flush().await?;
            }
            if let End::Uncertainty { target, min, max } = *end {
                let known = &outcome.uncertainty;
                let is_known = known.value < target && known.measurements >= min;
                if is_known || known.measurements >= max {
                    self.engine.stop();
                }
            }
            if is_done {
                outcome.is_well = !self.engine.is_failed();
                return Ok(outcome);
            }
            start_ns = end_ns;
            next = next + step;
            if next < at {
                next = at + step;
            }
        }
    }

    /// Writes the page, if one is wanted.
    pub(super) async fn write_page(&self) -> Result<(), StressError> {
        let graph = &self.settings.graph;
        let Some(path) = &graph.file else { return Ok(()) };
        let old = match reactor::file::read_all(path, PAGE_BYTES_MAX).await {
            Ok(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(StressError::io(path)(error)),
        };
        let date = jiff::Timestamp::from_second(reactor::wall_clock_us() / 1_000_000)
            .map(|time| time.strftime("%Y-%m-%d %H:%M:%S").to_string())
            .unwrap_or_default();
        let title = graph.title.clone().unwrap_or_else(|| format!("cassandra-stress - {date}"));
        let text =
            page(old.as_deref(), &title, &graph.revision, &graph.operation, &self.samples, &self.results);
        reactor::file::write_all_atomic(path, text.as_bytes()).await.map_err(StressError::io(path))
    }
}

fn sample(interval: &Interval) -> Sample {
    let quantile = |share| interval.quantile_ms(share);
    Sample {
        time: interval.end_ns as f64 * 1e-9,
        rate: interval.operation_rate(),
        latency_ms: [
            interval.mean_ms(),
            quantile(0.5),
            quantile(0.95),
            quantile(0.99),
            quantile(0.999),
            interval.max_ms(),
        ],
        errors: interval.errors,
    }
}
