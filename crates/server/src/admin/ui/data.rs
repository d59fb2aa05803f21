//! `GET /ui/data` and `GET /ui/tables`: the figures of the page, from the samples that `/metrics` has too.
//!
//! One poll of the page is one request. Of a shard's samples only those in [`FAMILIES`] leave the shard, and
//! no table is looked at for them. Counters are given as they are: the page subtracts.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use reactor::metrics::{Sample, Value};
use serde::Serialize;
use serde_json::{Map, json};

use crate::admin::bridge::Bridge;
use crate::admin::error::ApiError;
use crate::admin::members;
use crate::admin::node::{self, NodeState};
use crate::admin::node_samples::{self, Extent};

/// The families of metrics that the page draws, in ascending order.
const FAMILIES: [&str; 39] = [
    "ceto_commitlog_disk_bytes_max",
    "ceto_coordinator_range_latency",
    "reactor_cpu_ns_total",
    "reactor_stalls_total",
    "scylla_cache_bytes_total",
    "scylla_cache_row_evictions",
    "scylla_cache_row_hits",
    "scylla_cache_row_insertions",
    "scylla_cache_row_misses",
    "scylla_cache_rows_merged_from_memtable",
    "scylla_commitlog_bytes_written",
    "scylla_commitlog_disk_active_bytes",
    "scylla_commitlog_disk_total_bytes",
    "scylla_compaction_manager_bytes_read",
    "scylla_compaction_manager_bytes_written",
    "scylla_compaction_manager_compactions",
    "scylla_compaction_manager_pending_compactions",
    "scylla_cql_batches",
    "scylla_cql_deletes",
    "scylla_cql_inserts",
    "scylla_cql_reads",
    "scylla_cql_updates",
    "scylla_io_queue_consumption",
    "scylla_io_queue_disk_queue_length",
    "scylla_io_queue_queue_length",
    "scylla_io_queue_total_read_bytes",
    "scylla_io_queue_total_write_bytes",
    "scylla_memory_dirty_bytes",
    "scylla_memory_total_memory",
    "scylla_sstables_bloom_filter_memory_size",
    "scylla_sstables_index_page_cache_bytes",
    "scylla_storage_proxy_coordinator_cas_read_latency",
    "scylla_storage_proxy_coordinator_cas_write_latency",
    "scylla_storage_proxy_coordinator_read_latency",
    "scylla_storage_proxy_coordinator_write_latency",
    "scylla_transport_cql_errors_total",
    "scylla_transport_cql_request_latency_histogram",
    "scylla_transport_current_connections",
    "scylla_transport_requests_served",
];
/// Labels that the page has no use for: one node has one work directory.
const LEFT_OUT: &str = "mountpoint";

pub(super) fn routes() -> Router<Bridge> {
    Router::new().route("/ui/data", get(data)).route("/ui/tables", get(tables))
}

/// The head of the page.
#[derive(Debug, Serialize)]
struct About {
    cluster: String,
    address: String,
    native_address: String,
    host_id: String,
    version: &'static str,
    data_center: String,
    rack: String,
    mode: &'static str,
    uptime_ms: u64,
    time_ms: i64,
    nodes: usize,
    nodes_up: usize,
}

/// Call on shard 0.
fn about() -> Result<About, ApiError> {
    let state = NodeState::here()?;
    let all = members::known()?;
    let shard = node::here()?;
    let config = shard.native.engine().config();
    let own = members::own()?;
    Ok(About {
        cluster: config.cluster_name.clone(),
        address: own.address().to_string(),
        native_address: own.record.native.to_string(),
        host_id: own.host_id(),
        version: env!("CARGO_PKG_VERSION"),
        data_center: own.record.data_center.clone(),
        rack: own.record.rack.clone(),
        mode: state.mode.get().name(),
        uptime_ms: u64::try_from(state.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        time_ms: reactor::wall_clock_us() / 1000,
        nodes: all.len(),
        nodes_up: all.iter().filter(|member| member.is_up).count(),
    })
}

fn is_drawn(name: &str) -> bool {
    FAMILIES.binary_search(&name).is_ok()
}

async fn data(State(bridge): State<Bridge>) -> Result<Json<serde_json::Value>, ApiError> {
    let (about, shards) = bridge
        .call(async || Ok((about()?, node_samples::of_every_shard(Extent::Shards, is_drawn).await?)))
        .await?;
    let shards: Vec<Map<String, serde_json::Value>> = shards.iter().map(|shard| figures(shard)).collect();
    Ok(Json(json!({ "node": about, "shards": shards })))
}

/// A shard's samples by name and labels. A histogram is `[sum, count, end, count, end, count, ...]` of the
/// buckets that are not empty.
fn figures(samples: &[Sample]) -> Map<String, serde_json::Value> {
    let named = samples.iter().map(|sample| {
        let labels = sample.labels.iter().filter(|(name, _)| name != LEFT_OUT);
        let labels: Vec<String> = labels.map(|(name, value)| format!("{name}={value}")).collect();
        let key = match &labels[..] {
            [] => sample.name.clone(),
            labels => format!("{}{{{}}}", sample.name, labels.join(",")),
        };
        let value = match &sample.value {
            Value::Counter(count) => json!(count),
            Value::Gauge(level) => json!(level),
            Value::Seconds(time) => json!(time.as_secs_f64()),
            Value::Histogram(histogram) => {
                let buckets = histogram.buckets.iter().flat_map(|(end, count)| [*end, *count]);
                let all: Vec<u64> = [histogram.sum, histogram.count].into_iter().chain(buckets).collect();
                json!(all)
            }
        };
        (key, value)
    });
    named.collect()
}

async fn tables(State(bridge): State<Bridge>) -> Result<Json<serde_json::Value>, ApiError> {
    let is_of_table = |name: &str| name.contains("_table_") || name.contains("_column_family_");
    let shards = bridge
        .call(async move || node_samples::of_every_shard(Extent::Everything, is_of_table).await)
        .await?;
    Ok(Json(json!(by_table(&shards))))
}

/// Figures of each table, `keyspace.table`, summed over the shards; of quantiles and sizes of the largest
/// partition the greatest.
fn by_table(shards: &[Vec<Sample>]) -> BTreeMap<String, BTreeMap<String, f64>> {
    let mut all: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
    for sample in shards.iter().flatten() {
        let label = |name: &str| sample.labels.iter().find(|label| label.0 == name).map(|label| &*label.1);
        let (Some(keyspace), Some(table)) = (label("ks"), label("cf")) else { continue };
        let value = match &sample.value {
            Value::Counter(count) => *count as f64,
            Value::Gauge(level) => *level as f64,
            Value::Seconds(time) => time.as_secs_f64(),
            Value::Histogram(_) => continue,
        };
        let quantile = label("quantile");
        let name = quantile.map_or_else(|| sample.name.clone(), |part| format!("{}_{part}", sample.name));
        let is_greatest = quantile.is_some() || name.ends_with("_max");
        let figure = all.entry(format!("{keyspace}.{table}")).or_default().entry(name).or_default();
        *figure = if is_greatest { figure.max(value) } else { *figure + value };
    }
    all
}

#[cfg(test)]
mod tests {
    use reactor::metrics::HistogramSnapshot;

    use super::*;

    fn sample(name: &str, labels: &[(&str, &str)], value: Value) -> Sample {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Sample { name: name.to_owned(), help: String::new(), labels, value }
    }

    #[test]
    fn families_can_be_searched() {
        assert!(FAMILIES.is_sorted(), "{FAMILIES:?}");
        assert!(is_drawn("scylla_cql_reads") && !is_drawn("scylla_cql_read"));
    }

    #[test]
    fn samples_are_named_by_their_labels() {
        let histogram = HistogramSnapshot { buckets: vec![(1, 2), (3, 1)], sum: 5, count: 3 };
        let found = figures(&[
            sample("reads", &[], Value::Counter(7)),
            sample("io", &[("class", "admin"), ("mountpoint", "/d")], Value::Gauge(-1)),
            sample("took", &[], Value::Histogram(histogram)),
        ]);
        let expected = json!({ "reads": 7, "io{class=admin}": -1, "took": [5, 3, 1, 2, 3, 1] });
        assert_eq!(serde_json::Value::Object(found), expected);
    }

    #[test]
    fn tables_are_summed_and_quantiles_are_not() {
        let shard = |bytes, p99| {
            let labels = [("cf", "t"), ("ks", "k")];
            let quantile = [("cf", "t"), ("ks", "k"), ("quantile", "0.99")];
            vec![
                sample("ceto_table_memtable_bytes", &labels, Value::Gauge(bytes)),
                sample("ceto_table_read_latency", &quantile, Value::Gauge(p99)),
                sample("ceto_table_none", &[], Value::Gauge(1)),
            ]
        };
        let found = by_table(&[shard(3, 10), shard(4, 9)]);
        let expected =
            json!({ "k.t": { "ceto_table_memtable_bytes": 7.0, "ceto_table_read_latency_0.99": 10.0 } });
        assert_eq!(json!(found), expected);
    }
}
