//! Output of a measurement.

use serde_json::json;

use super::PerfError;
use super::closed_loop::Measured;
use crate::output::Output;

/// The measured workload, in the words of the command line.
pub(super) struct Subject {
    /// For example `read` or `echo`.
    pub(super) workload: &'static str,
    /// Connections.
    pub(super) connections: usize,
    /// Requests in flight on each connection.
    pub(super) depth: u16,
    /// Whether the output is one line of JSON.
    pub(super) json: bool,
}

/// Prints the result.
///
/// # Errors
/// [`PerfError::Failed`] if some requests failed, after printing; [`PerfError::Io`] if the output is closed.
pub(super) fn print(subject: &Subject, measured: &Measured) -> Result<(), PerfError> {
    let rate = measured.answers as f64 / measured.seconds.max(1e-9);
    let [p50, p99, p999, max] = measured.latency_ns.map(|ns| ns as f64 / 1000.0);
    let Subject { workload, connections, depth, json } = subject;
    let line = if *json {
        let round = |value: f64| (value * 10.0).round() / 10.0;
        json!({
            "workload": workload, "connections": connections, "depth": depth,
            "seconds": measured.seconds, "requests": measured.answers, "errors": measured.failed,
            "requests_per_second": rate.round(),
            "p50_us": round(p50), "p99_us": round(p99), "p999_us": round(p999), "max_us": round(max),
            "client_busy": (measured.client_busy * 1000.0).round() / 1000.0,
        })
        .to_string()
    } else {
        format!(
            "{workload}: {connections} connections x {depth}: {rate:.0} requests/s \
             ({requests} in {seconds:.2} s), latency us p50 {p50:.1} p99 {p99:.1} p99.9 {p999:.1} max {max:.1}, \
             {failed} errors, client {busy:.0} % busy",
            requests = measured.answers,
            seconds = measured.seconds,
            failed = measured.failed,
            busy = measured.client_busy * 100.0,
        )
    };
    let mut output = Output::new();
    output.line(&line).and_then(|()| output.finish()).map_err(PerfError::io("standard output"))?;
    match &measured.first_failure {
        None => Ok(()),
        Some(first) => {
            Err(PerfError::Failed { failed: measured.failed, all: measured.answers, first: first.clone() })
        }
    }
}
