//! Every shard's metrics in Prometheus' text form, version 0.0.4.
//!
//! Each shard takes a copy of its samples; the administration thread turns them into text. Each sample
//! carries the label `shard`. The `prometheus-client` crate is not used: it would add `_total` to counters,
//! and dashboards expect the names without it.
//! Source: "Exposition formats", prometheus.io/docs/instrumenting/exposition_formats.

use std::fmt::Write as _;

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use reactor::metrics::{HistogramSnapshot, Sample, Value};

use super::bridge::Bridge;
use super::error::ApiError;
use super::node_samples::{self, Extent};

/// The bounds of a histogram's buckets are the powers of two up to this one: in microseconds, 67 seconds.
const GREATEST_BOUND: u32 = 26;
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) fn router(bridge: Bridge) -> Router {
    Router::new().route("/metrics", get(metrics)).fallback(super::rest::unknown_path).with_state(bridge)
}

async fn metrics(State(bridge): State<Bridge>) -> Result<Response, ApiError> {
    let shards = bridge.call(|| node_samples::of_every_shard(Extent::Everything, |_| true)).await?;
    Ok(([(CONTENT_TYPE, TEXT)], render(shards)).into_response())
}

/// Families of metrics one after the other, each under its HELP and TYPE.
fn render(shards: Vec<Vec<Sample>>) -> String {
    let mut samples: Vec<(usize, Sample)> = shards
        .into_iter()
        .enumerate()
        .flat_map(|(shard, samples)| samples.into_iter().map(move |sample| (shard, sample)))
        .collect();
    samples.sort_by(|(left_shard, left), (right_shard, right)| {
        (&left.name, &left.labels, left_shard).cmp(&(&right.name, &right.labels, right_shard))
    });
    let mut text = String::new();
    let mut family = "";
    for (shard, sample) in &samples {
        if sample.name != family {
            family = &sample.name;
            let kind = match sample.value {
                Value::Counter(_) | Value::Seconds(_) => "counter",
                Value::Gauge(_) => "gauge",
                Value::Histogram(_) => "histogram",
            };
            let help = sample.help.replace('\\', "\\\\").replace('\n', "\\n");
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# HELP {family} {help}\n# TYPE {family} {kind}");
        }
        let mut labels = String::new();
        for (name, value) in &sample.labels {
            let _ = write!(labels, "{name}=\"{}\",", escaped(value));
        }
        let _ = write!(labels, "shard=\"{shard}\"");
        let _ = match &sample.value {
            Value::Counter(count) => writeln!(text, "{family}{{{labels}}} {count}"),
            Value::Gauge(level) => writeln!(text, "{family}{{{labels}}} {level}"),
            Value::Seconds(time) => writeln!(text, "{family}{{{labels}}} {}", time.as_secs_f64()),
            Value::Histogram(histogram) => {
                buckets(&mut text, family, &labels, histogram);
                Ok(())
            }
        };
    }
    text
}

/// Appends a histogram. The bounds are the same whatever the values: the sum over shards of one bound would
/// lack the shards that do not have it.
fn buckets(text: &mut String, family: &str, labels: &str, histogram: &HistogramSnapshot) {
    let mut seen = 0;
    let mut left = histogram.buckets.iter().peekable();
    for exponent in 0..=GREATEST_BOUND {
        let end = 1u64 << exponent;
        while let Some((_, count)) = left.next_if(|(bucket_end, _)| *bucket_end <= end) {
            seen += count;
        }
        let _ = writeln!(text, "{family}_bucket{{{labels},le=\"{end}\"}} {seen}");
    }
    let _ = writeln!(text, "{family}_bucket{{{labels},le=\"+Inf\"}} {}", histogram.count);
    let _ = writeln!(text, "{family}_sum{{{labels}}} {}", histogram.sum);
    let _ = writeln!(text, "{family}_count{{{labels}}} {}", histogram.count);
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sample(name: &str, labels: &[(&str, &str)], value: Value) -> Sample {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Sample { name: name.to_owned(), help: format!("What {name} says."), labels, value }
    }

    #[test]
    fn a_family_has_one_head_and_each_sample_its_shard() {
        let shard = |count| {
            vec![
                sample("requests", &[("group", "a\"b\\c\n")], Value::Counter(count)),
                sample("open", &[], Value::Gauge(-1)),
                sample("busy_seconds", &[], Value::Seconds(Duration::from_millis(1500))),
            ]
        };
        assert_eq!(
            render(vec![shard(3), shard(4)]),
            "# HELP busy_seconds What busy_seconds says.\n# TYPE busy_seconds counter\n\
             busy_seconds{shard=\"0\"} 1.5\nbusy_seconds{shard=\"1\"} 1.5\n\
             # HELP open What open says.\n# TYPE open gauge\nopen{shard=\"0\"} -1\nopen{shard=\"1\"} -1\n\
             # HELP requests What requests says.\n# TYPE requests counter\n\
             requests{group=\"a\\\"b\\\\c\\n\",shard=\"0\"} 3\nrequests{group=\"a\\\"b\\\\c\\n\",shard=\"1\"} 4\n"
        );
    }

    #[test]
    fn buckets_are_cumulative_and_end_with_all() {
        let histogram =
            HistogramSnapshot { buckets: vec![(1, 2), (3, 1), (4, 1), (1 << 63, 1)], sum: 12, count: 5 };
        let bounds = |text: &str| text.lines().filter(|line| line.contains("_bucket{")).count();
        let text = render(vec![vec![sample("took", &[], Value::Histogram(histogram))]]);
        for line in [
            "took_bucket{shard=\"0\",le=\"1\"} 2",
            "took_bucket{shard=\"0\",le=\"2\"} 2",
            "took_bucket{shard=\"0\",le=\"4\"} 4",
            "took_bucket{shard=\"0\",le=\"+Inf\"} 5",
            "took_sum{shard=\"0\"} 12",
            "took_count{shard=\"0\"} 5",
            "# TYPE took histogram",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        let empty = render(vec![vec![sample("took", &[], Value::Histogram(HistogramSnapshot::default()))]]);
        assert!(empty.contains("took_bucket{shard=\"0\",le=\"+Inf\"} 0"), "{empty}");
        assert_eq!((bounds(&text), bounds(&empty)), (28, 28), "the same for all values");
    }
}
