//! Request statistics of tables as samples for the metrics.
//!
//! Requests are counted on their coordinator, as everything in [`super`]. Latencies come from decaying
//! histograms, which cannot be published as Prometheus's: their counts do not only grow. So two quantiles of
//! each are published, of this shard; of several shards only the greatest can be shown.

use model::Table;
use reactor::metrics::{Sample, Value};

use super::{Requests, Sizes, TableLoad};
use crate::engine::Engine;

/// Published quantiles, as the values of the label `quantile`.
const QUANTILES: [(&str, f64); 2] = [("0.5", 0.5), ("0.99", 0.99)];
const NS_PER_US: u64 = 1000;

impl Engine {
    /// Samples of each table that this shard had a request for. There may be a thousand, so other tasks run
    /// in between.
    pub async fn table_samples(&self) -> Vec<Sample> {
        let mut samples = Vec::new();
        for (id, load) in self.each_load() {
            if let Some(table) = self.stored_table(id) {
                append(&table, &load, &mut samples);
            }
            reactor::maybe_yield().await;
        }
        samples
    }
}

fn append(table: &Table, load: &TableLoad, samples: &mut Vec<Sample>) {
    let mut push = |name: &str, help: &str, quantile: Option<&str>, value: Value| {
        let mut labels =
            vec![("cf".to_owned(), table.name().to_owned()), ("ks".to_owned(), table.keyspace().to_owned())];
        labels.extend(quantile.map(|quantile| ("quantile".to_owned(), quantile.to_owned())));
        samples.push(Sample { name: name.to_owned(), help: help.to_owned(), labels, value });
    };
    for (name, help, requests) in [
        ("ceto_table_reads", "Reads of one partition of the table.", &load.reads),
        ("ceto_table_range_reads", "Reads of ranges of partitions of the table, each page.", &load.scans),
        ("ceto_table_writes", "Writes to the table; a batch counts once.", &load.writes),
    ] {
        push(name, help, None, Value::Counter(requests.count.get()));
    }
    for (label, quantile) in QUANTILES {
        for (name, help, requests) in [
            ("ceto_table_read_latency", "Microseconds of recent reads of one partition.", &load.reads),
            ("ceto_table_write_latency", "Microseconds of recent writes to the table.", &load.writes),
        ] {
            push(name, help, Some(label), gauge(latency_us(requests, quantile)));
        }
        for (name, help, sizes) in [
            ("ceto_table_read_rows", "Rows that a recent read of the table passed.", &load.rows),
            ("ceto_table_read_tombstones", "Tombstones that a recent read passed.", &load.tombstones),
        ] {
            push(name, help, Some(label), gauge(size(sizes, quantile)));
        }
    }
}

fn gauge(value: u64) -> Value {
    Value::Gauge(i64::try_from(value).unwrap_or(i64::MAX))
}

fn latency_us(requests: &Requests, quantile: f64) -> u64 {
    requests.told().weights.quantile(quantile) / NS_PER_US
}

fn size(sizes: &Sizes, quantile: f64) -> u64 {
    sizes.weights().quantile(quantile)
}
