//! `/column_family`: tables and their sizes; a table is named `keyspace:table`.

use axum::extract::{Path, State};
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use serde_json::{Value, json};
use storage::TableReport;

use super::Answer;
use crate::admin::bridge::Bridge;
use crate::admin::error::ApiError;
use crate::admin::node;
use crate::admin::params::Params;

/// The name of a figure, and how to compute it from a table's report.
type Figure = (&'static str, fn(&TableReport) -> Value);

/// Figures under `/column_family/metrics/`: for one table or, without a name, for all tables together.
const FIGURES: &[Figure] = &[
    ("live_disk_space_used", |r| r.file_bytes.into()),
    ("total_disk_space_used", |r| r.file_bytes.into()),
    ("live_ss_table_count", |r| r.files.into()),
    ("memtable_live_data_size", |r| r.memtable_bytes.into()),
    ("memtable_off_heap_size", |r| r.memtable_bytes.into()),
    ("all_memtables_live_data_size", |r| r.memtable_bytes.into()),
    ("all_memtables_off_heap_size", |r| r.memtable_bytes.into()),
    ("memtable_columns_count", |r| r.memtable_partitions.into()),
    ("estimated_row_count", |r| (r.file_partitions + r.memtable_partitions as u64).into()),
    ("mean_row_size", |r| mean_partition_bytes(r).into()),
    ("compression_ratio", |r| compression_ratio(r).into()),
    ("pending_flushes", |r| r.pending_flushes.into()),
    ("bloom_filter_off_heap_memory_used", |r| r.resident_bytes.into()),
    ("index_summary_off_heap_memory_used", |_| 0.into()),
    ("compression_metadata_off_heap_memory_used", |_| 0.into()),
    ("max_sstable_size", |r| r.file_bytes_max.into()),
    ("tablet_count", |r| r.tablets.into()),
];

pub(super) fn routes() -> Router<Bridge> {
    let mut router = Router::new()
        .route("/column_family", get(tables))
        .route("/column_family/", get(tables))
        .route("/column_family/name", get(names))
        .route("/column_family/name/keyspace", get(keyspaces))
        .route("/column_family/compaction_strategy/{name}", get(compaction_strategy))
        .route("/column_family/sstables/per_level/{name}", get(files_by_level))
        .route("/column_family/sstables/by_key/{name}", get(files_by_key))
        .route("/column_family/report/{name}", get(report));
    for (figure, read) in FIGURES {
        let read = *read;
        let of_one = async move |State(bridge): State<Bridge>, Path(name): Path<String>| -> Answer<Value> {
            let report = bridge
                .call(move || async move { node::report_of(&node::table_called(&name)?).await })
                .await?;
            Ok(Json(read(&report)))
        };
        let of_all = async move |State(bridge): State<Bridge>| -> Answer<Value> {
            let reports = bridge.call(node::reports).await?;
            let mut sum = TableReport::default();
            reports.iter().for_each(|report| sum.add(report));
            Ok(Json(read(&sum)))
        };
        router = router
            .route(&format!("/column_family/metrics/{figure}/{{name}}"), get(of_one))
            .route(&format!("/column_family/metrics/{figure}"), get(of_all));
    }
    router
}

#[derive(Debug, Serialize)]
struct Listed {
    ks: String,
    cf: String,
    #[serde(rename = "type")]
    kind: &'static str,
}

async fn tables(State(bridge): State<Bridge>) -> Answer<Vec<Listed>> {
    let tables = bridge.call(|| async { node::all_tables() }).await?;
    let listed =
        |table: node::TableName| Listed { ks: table.keyspace, cf: table.name, kind: "ColumnFamilies" };
    Ok(Json(tables.into_iter().map(listed).collect()))
}

async fn names(State(bridge): State<Bridge>) -> Answer<Vec<String>> {
    let tables = bridge.call(|| async { node::all_tables() }).await?;
    Ok(Json(tables.into_iter().map(|table| format!("{}:{}", table.keyspace, table.name)).collect()))
}

async fn keyspaces(State(bridge): State<Bridge>) -> Answer<Vec<String>> {
    bridge.call(|| async { node::keyspaces(false) }).await.map(Json)
}

async fn compaction_strategy(State(bridge): State<Bridge>, Path(name): Path<String>) -> Answer<String> {
    bridge
        .call(move || async move {
            let named = node::table_called(&name)?;
            let schema = node::schema()?;
            let class = schema
                .table_by_id(named.id)
                .and_then(|table| table.options().compaction.get("class").cloned())
                .unwrap_or_default();
            Ok(class.rsplit('.').next().unwrap_or_default().to_owned())
        })
        .await
        .map(Json)
}

async fn files_by_level(State(bridge): State<Bridge>, Path(name): Path<String>) -> Answer<Vec<usize>> {
    let report =
        bridge.call(move || async move { node::report_of(&node::table_called(&name)?).await }).await?;
    Ok(Json(report.files_by_level))
}

/// Parameters: `key`, a partition key as text (see `query::partition_key_text`); `format`, `hex` if the key
/// is given as the hexadecimal digits of its bytes. Returns the paths of the table files that contain the
/// partition.
async fn files_by_key(
    State(bridge): State<Bridge>,
    Path(name): Path<String>,
    params: Params,
) -> Answer<Vec<String>> {
    let is_hex = match params.get("format").map(str::to_ascii_lowercase).as_deref() {
        None | Some("text") => false,
        Some("hex") => true,
        Some(other) => return Err(ApiError::bad(format!("format has to be text or hex, not '{other}'"))),
    };
    let key = params.required("key")?.to_owned();
    bridge
        .call(move || async move { node::files_with(&node::table_called(&name)?, &key, is_hex).await })
        .await
        .map(Json)
}

/// All figures of a table at once, which saves tools one request for each. An extension.
async fn report(State(bridge): State<Bridge>, Path(name): Path<String>) -> Answer<Value> {
    let report =
        bridge.call(move || async move { node::report_of(&node::table_called(&name)?).await }).await?;
    Ok(Json(json!({
        "keyspace": report.keyspace,
        "table": report.name,
        "tablets": report.tablets,
        "sstables": report.files,
        "sstables_in_each_level": report.files_by_level,
        "max_sstable_size": report.file_bytes_max,
        "live_disk_space_used": report.file_bytes,
        "compression_ratio": compression_ratio(&report),
        "partitions_estimate": report.file_partitions + report.memtable_partitions as u64,
        "rows_estimate": report.file_rows,
        "mean_partition_bytes": mean_partition_bytes(&report),
        "memtable_partitions": report.memtable_partitions,
        "memtable_bytes": report.memtable_bytes,
        "pending_flushes": report.pending_flushes,
        "resident_bytes": report.resident_bytes,
    })))
}

fn mean_partition_bytes(report: &TableReport) -> u64 {
    if report.file_partitions == 0 {
        0
    } else {
        (report.partition_bytes / report.file_partitions as f64) as u64
    }
}

/// Bytes of table files per byte of rows; 0 without files, as in Cassandra.
fn compression_ratio(report: &TableReport) -> f64 {
    if report.data_bytes == 0 { 0.0 } else { report.file_bytes as f64 / report.data_bytes as f64 }
}
