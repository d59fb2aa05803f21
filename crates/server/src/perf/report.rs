//! Results of a run: a line per second, the summary at the end, and JSON to store.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::PerfError;
use super::run::Slice;

/// The figures of one second of a run; allocations, tasks, instructions and cycles are per operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Second {
    operations: u64,
    errors: u64,
    rate: f64,
    allocations: f64,
    tasks: f64,
    /// Instructions and cycles, if they are counted.
    cpu: Option<(f64, f64)>,
}

impl Second {
    /// The figures of a slice.
    pub(super) fn of(slice: &Slice) -> Self {
        let operations = slice.operations.max(1) as f64;
        let each = |count: u64| count as f64 / operations;
        Self {
            operations: slice.operations,
            errors: slice.errors,
            rate: slice.operations as f64 / (slice.elapsed_ns.max(1) as f64 / 1e9),
            allocations: each(slice.used.allocations),
            tasks: each(slice.used.tasks),
            cpu: slice.used.cpu.map(|cpu| (each(cpu.instructions), each(cpu.cycles))),
        }
    }

    /// The figures as a line, without those that are not counted.
    pub(super) fn line(&self) -> String {
        let cpu = self.cpu.map_or_else(String::new, |(instructions, cycles)| {
            format!(" {instructions:7.0} insns/op, {cycles:7.0} cycles/op,")
        });
        format!(
            "{:.2} tps ({:5.1} allocs/op, {:5.1} tasks/op,{cpu} {:8} errors)",
            self.rate, self.allocations, self.tasks, self.errors
        )
    }

    fn json(&self) -> Value {
        json!({
            "tps": self.rate, "allocs_per_op": self.allocations, "tasks_per_op": self.tasks,
            "instructions_per_op": self.cpu.map(|cpu| cpu.0), "cpu_cycles_per_op": self.cpu.map(|cpu| cpu.1),
            "operations": self.operations, "errors": self.errors,
        })
    }
}

/// The summary of a run.
#[derive(Debug, Clone)]
pub(super) struct Summary {
    name: &'static str,
    parameters: Map<String, Value>,
    /// In the order of measurement; never empty.
    seconds: Vec<Second>,
    median: Second,
    deviation: f64,
    most: f64,
    least: f64,
}

impl Summary {
    /// Summarizes a run of at least one second.
    pub(super) fn of(name: &'static str, parameters: Map<String, Value>, seconds: Vec<Second>) -> Self {
        let mut sorted = seconds.clone();
        sorted.sort_by(|a, b| a.rate.total_cmp(&b.rate));
        let (least, most) = (sorted[0].rate, sorted[sorted.len() - 1].rate);
        let median = sorted[sorted.len() / 2];
        let mut deviations: Vec<f64> =
            sorted.iter().map(|second| (second.rate - median.rate).abs()).collect();
        deviations.sort_by(f64::total_cmp);
        let deviation = deviations[deviations.len() / 2];
        Self { name, parameters, seconds, median, deviation, most, least }
    }

    pub(super) fn errors(&self) -> u64 {
        self.seconds.iter().map(|second| second.errors).sum()
    }

    pub(super) fn operations(&self) -> u64 {
        self.seconds.iter().map(|second| second.operations).sum()
    }

    /// The lines of the summary.
    pub(super) fn lines(&self) -> Vec<String> {
        vec![
            String::new(),
            format!("median {}", self.median.line()),
            format!("median absolute deviation: {:.2}", self.deviation),
            format!("maximum: {:.2}", self.most),
            format!("minimum: {:.2}", self.least),
        ]
    }

    /// The run as JSON.
    pub(super) fn json(&self) -> Value {
        json!({
            "bench": self.name,
            "parameters": self.parameters,
            "versions": { "ceto": env!("CARGO_PKG_VERSION") },
            "results": {
                "median tps": self.median.rate,
                "mad tps": self.deviation,
                "max tps": self.most,
                "min tps": self.least,
                "allocs_per_op": self.median.allocations,
                "tasks_per_op": self.median.tasks,
                "instructions_per_op": self.median.cpu.map(|cpu| cpu.0),
                "cpu_cycles_per_op": self.median.cpu.map(|cpu| cpu.1),
                "operations": self.operations(),
                "errors": self.errors(),
            },
            "seconds": self.seconds.iter().map(Second::json).collect::<Vec<_>>(),
        })
    }
}

/// Stores a run in a file.
///
/// # Errors
/// [`PerfError::Io`].
pub(super) async fn keep(path: &Path, summary: &Summary) -> Result<(), PerfError> {
    let text = format!("{:#}\n", summary.json());
    let written = reactor::file::write_all_atomic(path, text.as_bytes()).await;
    written.map_err(PerfError::io(format!("write {}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::super::meter::Used;
    use super::*;
    use reactor::cpu_counters::CpuCounts;

    fn second(operations: u64, elapsed_ns: u64) -> Second {
        let cpu = Some(CpuCounts { instructions: operations * 5000, cycles: operations * 2500 });
        let used = Used { allocations: operations / 2, tasks: operations * 3, cpu };
        Second::of(&Slice { operations, errors: 1, elapsed_ns, used })
    }

    #[test]
    fn a_line_has_the_field_s_form() {
        assert_eq!(
            second(200, 1_000_000_000).line(),
            "200.00 tps (  0.5 allocs/op,   3.0 tasks/op,    5000 insns/op,    2500 cycles/op,        1 errors)"
        );
        let uncounted = Second { cpu: None, ..second(200, 500_000_000) };
        assert_eq!(uncounted.line(), "400.00 tps (  0.5 allocs/op,   3.0 tasks/op,        1 errors)");
    }

    #[test]
    fn a_summary_has_the_median_second_and_how_far_the_others_are() {
        let seconds = [100, 400, 200, 210, 190].map(|operations| second(operations, 1_000_000_000)).to_vec();
        let summary = Summary::of("simple-query", Map::new(), seconds);
        assert_eq!(
            summary.lines()[1..],
            [
                "median 200.00 tps (  0.5 allocs/op,   3.0 tasks/op,    5000 insns/op,    2500 cycles/op,        1 errors)",
                "median absolute deviation: 10.00",
                "maximum: 400.00",
                "minimum: 100.00",
            ]
        );
        let kept = summary.json();
        assert_eq!(kept["results"]["median tps"], 200.0);
        assert_eq!(kept["results"]["operations"], 1100);
        assert_eq!(kept["seconds"].as_array().unwrap().len(), 5);
    }
}
