//! Compactions: `/storage_service/keyspace_*`, auto compaction, and `/compaction_manager`.

use axum::extract::{Path, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use model::TableId;
use serde_json::{Value, json};
use sstable::VerifyDepth;
use storage::{CompactionFilter, CompactionKind, ScrubMode, SnapshotRequest, VerifyOptions};

use super::{Answer, uuid_text};
use crate::admin::bridge::Bridge;
use crate::admin::compactions::{self, Rewrite};
use crate::admin::error::ApiError;
use crate::admin::node;
use crate::admin::params::Params;

pub(super) fn routes() -> Router<Bridge> {
    Router::new()
        .route("/storage_service/keyspace_compaction/{keyspace}", post(compact_keyspace))
        .route("/storage_service/compact", post(compact_all))
        .route("/column_family/major_compaction/{name}", post(compact_table))
        .route("/storage_service/keyspace_cleanup/{keyspace}", post(cleanup))
        .route("/storage_service/cleanup_all", post(cleanup_all))
        .route("/storage_service/keyspace_upgrade_sstables/{keyspace}", get(upgrade).post(upgrade))
        .route("/storage_service/keyspace_garbage_collect/{keyspace}", post(garbage_collect))
        .route("/storage_service/keyspace_scrub/{keyspace}", get(scrub).post(scrub))
        .route("/storage_service/keyspace_verify/{keyspace}", post(verify))
        .route("/storage_service/auto_compaction/{keyspace}", post(enable).delete(disable))
        .route(
            "/column_family/autocompaction/{name}",
            get(is_automatic).post(enable_table).delete(disable_table),
        )
        .route("/storage_service/compaction_throughput", get(throughput).post(set_throughput))
        .route("/compaction_manager/compactions", get(running))
        .route("/compaction_manager/compaction_history", get(history))
        .route("/compaction_manager/stop_compaction", post(stop))
        .route("/compaction_manager/stop_keyspace_compaction/{keyspace}", post(stop_of_keyspace))
        .route("/compaction_manager/metrics/pending_tasks", get(pending_tasks))
        .route("/compaction_manager/metrics/pending_tasks_by_table", get(pending_tasks_by_table))
        .route("/column_family/metrics/pending_compactions/{name}", get(pending_of_table))
        .route("/column_family/metrics/pending_compactions", get(pending_tasks))
}

/// ScyllaDB's status for damage found by a scrub with VALIDATE.
const VALIDATION_ERRORS: u32 = 3;

/// Parameters: `scrub_mode`, ABORT (the default), SKIP, SEGREGATE or VALIDATE; `skip_corrupted`, an older way
/// to say SKIP; `disable_snapshot`, to rewrite tables without taking a snapshot first; `cf`. Returns 0, or 3
/// if VALIDATE found damage; with `report` an object that describes the findings.
async fn scrub(State(bridge): State<Bridge>, Path(keyspace): Path<String>, params: Params) -> Answer<Value> {
    let mode = match params.get("scrub_mode").map(str::to_ascii_uppercase).as_deref() {
        None if params.flag("skip_corrupted")? => ScrubMode::Skip,
        None | Some("ABORT") => ScrubMode::Abort,
        Some("SKIP") => ScrubMode::Skip,
        Some("SEGREGATE") => ScrubMode::Segregate,
        Some("VALIDATE") => ScrubMode::Validate,
        Some(other) => {
            return Err(ApiError::bad(format!("Unknown argument for 'scrub_mode' parameter: {other}")));
        }
    };
    // Quarantined files lie in a directory of their own and are never scrubbed with the others.
    match params.get("quarantine_mode").map(str::to_ascii_uppercase).as_deref() {
        None | Some("INCLUDE" | "EXCLUDE") => {}
        Some("ONLY") => {
            return Err(ApiError::unsupported(
                "quarantine_mode=ONLY is not supported: take files back with `ceto ctl import` from the folder quarantine",
            ));
        }
        Some(other) => {
            return Err(ApiError::bad(format!("Unknown argument for 'quarantine_mode' parameter: {other}")));
        }
    }
    let snapshot = mode != ScrubMode::Validate && !params.flag("disable_snapshot")?;
    let (names, reports) = (params.list("cf"), params.flag("report")?);
    let report = bridge
        .call(move || async move {
            let tables = node::tables_of(&keyspace, &names)?;
            if snapshot {
                let request = SnapshotRequest {
                    tag: format!("pre-scrub-{}", reactor::wall_clock_us() / 1000),
                    tables: tables.iter().map(|table| table.id).collect(),
                    skip_flush: false,
                    ttl: None,
                };
                node::here()?.storage().take_snapshot(&request).await?;
            }
            compactions::scrub(tables, mode).await
        })
        .await?;
    let found = report.gaps > 0 || report.out_of_order > 0 || report.damaged_files > 0;
    let status = if mode == ScrubMode::Validate && found { VALIDATION_ERRORS } else { 0 };
    if !reports {
        return Ok(Json(status.into()));
    }
    Ok(Json(json!({
        "status": status,
        "sstables": report.files,
        "damaged_sstables": report.damaged_files,
        "partitions": report.partitions,
        "gaps": report.gaps,
        "out_of_order": report.out_of_order,
    })))
}

/// Parameters: `quick`, to leave the data unread; `extended`, to read every row; `dfp`, to apply
/// `disk_failure_policy` to damage; `cf`. Returns the number of files checked and the damaged ones.
async fn verify(State(bridge): State<Bridge>, Path(keyspace): Path<String>, params: Params) -> Answer<Value> {
    let depth = match (params.flag("quick")?, params.flag("extended")?) {
        (true, true) => return Err(ApiError::bad("quick and extended exclude each other".to_owned())),
        (true, false) => VerifyDepth::Quick,
        (false, true) => VerifyDepth::Rows,
        (false, false) => VerifyDepth::Digest,
    };
    let options = VerifyOptions { depth, tells_policy: params.flag("dfp")? };
    let names = params.list("cf");
    let report = bridge
        .call(move || async move { compactions::verify(node::tables_of(&keyspace, &names)?, options).await })
        .await?;
    let damaged: Vec<Value> = report
        .damaged
        .iter()
        .map(|file| json!({"file": file.path.display().to_string(), "reason": file.reason}))
        .collect();
    Ok(Json(json!({"sstables": report.files, "damaged": damaged, "stopped": report.stopped})))
}

/// Rewrites the tables `names` of a keyspace; all its tables if `names` is empty.
async fn rewrite(
    bridge: &Bridge,
    keyspace: String,
    names: Vec<String>,
    what: Rewrite,
) -> Result<storage::CompactOutcome, ApiError> {
    bridge
        .call(move || async move { compactions::rewrite(node::tables_of(&keyspace, &names)?, what).await })
        .await
}

/// Parameters of major compactions: `split_output`; `flush_memtables`, false to leave out rows that are only
/// in memtables.
fn major(params: &Params) -> Result<Rewrite, ApiError> {
    Ok(Rewrite::Major {
        split_output: params.flag("split_output")?,
        skips_flush: !params.flag_or("flush_memtables", true)?,
    })
}

/// Returns nothing; with the extension `report` the damaged table files, which were left as they are.
async fn compact_keyspace(
    State(bridge): State<Bridge>,
    Path(keyspace): Path<String>,
    params: Params,
) -> Answer<Value> {
    let what = major(&params)?;
    let reports = params.flag("report")?;
    let outcome = rewrite(&bridge, keyspace, params.list("cf"), what).await?;
    let damaged: Vec<String> = outcome.damaged.iter().map(|path| path.display().to_string()).collect();
    Ok(Json(if reports { json!({ "damaged": damaged }) } else { Value::Null }))
}

async fn compact_all(State(bridge): State<Bridge>, params: Params) -> Answer<()> {
    let what = major(&params)?;
    let done = bridge.call(move || async move { compactions::rewrite(node::all_tables()?, what).await });
    done.await.map(drop).map(Json)
}

async fn compact_table(State(bridge): State<Bridge>, Path(name): Path<String>, params: Params) -> Answer<()> {
    let what = major(&params)?;
    bridge
        .call(move || async move { compactions::rewrite(vec![node::table_called(&name)?], what).await })
        .await
        .map(drop)
        .map(Json)
}

/// Returns 0, or 1 if a compaction was stopped.
async fn cleanup(State(bridge): State<Bridge>, Path(keyspace): Path<String>, params: Params) -> Answer<u32> {
    if query::is_system(&keyspace) {
        return Err(ApiError::bad(format!("keyspace {keyspace} is the node's own: it needs no cleanup")));
    }
    let outcome = rewrite(&bridge, keyspace, params.list("cf"), Rewrite::Cleanup).await?;
    Ok(Json(u32::from(outcome.stopped > 0)))
}

async fn cleanup_all(State(bridge): State<Bridge>) -> Answer<u32> {
    let done = bridge.call(|| async { compactions::rewrite(node::all_tables()?, Rewrite::Cleanup).await });
    Ok(Json(u32::from(done.await?.stopped > 0)))
}

/// Returns 0, or 1 if a compaction was stopped.
async fn upgrade(State(bridge): State<Bridge>, Path(keyspace): Path<String>, params: Params) -> Answer<u32> {
    let what = Rewrite::Upgrade { all: !params.flag_or("exclude_current_version", true)? };
    let outcome = rewrite(&bridge, keyspace, params.list("cf"), what).await?;
    Ok(Json(u32::from(outcome.stopped > 0)))
}

/// An extension: nodetool's `garbagecollect`.
async fn garbage_collect(
    State(bridge): State<Bridge>,
    Path(keyspace): Path<String>,
    params: Params,
) -> Answer<()> {
    rewrite(&bridge, keyspace, params.list("cf"), Rewrite::GarbageCollect).await.map(drop).map(Json)
}

async fn set_automatic(bridge: &Bridge, keyspace: String, names: Vec<String>, on: bool) -> Answer<()> {
    bridge
        .call(
            move || async move { compactions::set_automatic(node::tables_of(&keyspace, &names)?, on).await },
        )
        .await
        .map(Json)
}

async fn enable(State(bridge): State<Bridge>, Path(keyspace): Path<String>, params: Params) -> Answer<()> {
    set_automatic(&bridge, keyspace, params.list("cf"), true).await
}

async fn disable(State(bridge): State<Bridge>, Path(keyspace): Path<String>, params: Params) -> Answer<()> {
    set_automatic(&bridge, keyspace, params.list("cf"), false).await
}

async fn is_automatic(State(bridge): State<Bridge>, Path(name): Path<String>) -> Answer<bool> {
    bridge
        .call(move || async move { compactions::automatic(node::table_called(&name)?).await })
        .await
        .map(Json)
}

async fn set_table_automatic(bridge: &Bridge, name: String, on: bool) -> Answer<()> {
    bridge
        .call(move || async move { compactions::set_automatic(vec![node::table_called(&name)?], on).await })
        .await
        .map(Json)
}

async fn enable_table(State(bridge): State<Bridge>, Path(name): Path<String>) -> Answer<()> {
    set_table_automatic(&bridge, name, true).await
}

async fn disable_table(State(bridge): State<Bridge>, Path(name): Path<String>) -> Answer<()> {
    set_table_automatic(&bridge, name, false).await
}

/// Limit in MiB per second; 0 means no limit.
async fn throughput(State(bridge): State<Bridge>) -> Answer<u64> {
    Ok(Json(bridge.call(compactions::throughput).await? >> 20))
}

async fn set_throughput(State(bridge): State<Bridge>, params: Params) -> Answer<()> {
    let text = params.required("value")?;
    let bytes = text.parse::<u64>().ok().and_then(|mebibytes| mebibytes.checked_mul(1 << 20));
    let Some(bytes) = bytes else {
        return Err(ApiError::bad(format!("value has to be a number of MiB per second, not '{text}'")));
    };
    bridge.call(move || compactions::set_throughput(bytes)).await.map(Json)
}

async fn running(State(bridge): State<Bridge>) -> Answer<Vec<Value>> {
    let running = bridge.call(compactions::running).await?;
    let shown = running.into_iter().map(|compaction| {
        json!({
            "id": uuid_text(compaction.id),
            "status": 0,
            "unit": "bytes",
            "task_type": compaction.kind.name(),
            "completed": compaction.completed,
            "total": compaction.total,
            "ks": compaction.keyspace,
            "cf": compaction.table_name,
        })
    });
    Ok(Json(shown.collect()))
}

async fn history(State(bridge): State<Bridge>) -> Answer<Vec<Value>> {
    let records = bridge.call(compactions::history).await?;
    let shown = records.into_iter().map(|record| {
        let merged: Vec<Value> = record
            .partitions_merged
            .iter()
            .map(|(files, partitions)| json!({ "key": files, "value": partitions }))
            .collect();
        json!({
            "id": uuid_text(record.id),
            "ks": record.keyspace,
            "cf": record.table_name,
            "compaction_type": record.kind.name(),
            "compacted_at": record.compacted_at_us / 1000,
            "bytes_in": record.bytes_in,
            "bytes_out": record.bytes_out,
            "rows_merged": merged,
        })
    });
    Ok(Json(shown.collect()))
}

/// Parameter: `type`, as in nodetool's `stop`; all types if it is missing.
async fn stop(State(bridge): State<Bridge>, params: Params) -> Answer<()> {
    stop_kinds(&bridge, &params, vec![None]).await
}

/// As [`stop`], for the tables of a keyspace that the parameter `tables` names; all its tables if it is
/// missing.
async fn stop_of_keyspace(
    State(bridge): State<Bridge>,
    Path(keyspace): Path<String>,
    params: Params,
) -> Answer<()> {
    let names = params.list("tables");
    let tables = bridge.call(move || async move { node::tables_of(&keyspace, &names) }).await?;
    stop_kinds(&bridge, &params, tables.into_iter().map(|table| Some(table.id)).collect()).await
}

async fn stop_kinds(bridge: &Bridge, params: &Params, tables: Vec<Option<TableId>>) -> Answer<()> {
    let kind = match params.get("type") {
        None => None,
        Some(name) => Some(
            CompactionKind::parse(name)
                .ok_or_else(|| ApiError::bad(format!("unknown type of compactions '{name}'")))?,
        ),
    };
    // For nodetool, major and tombstone compactions are compactions as well.
    let kinds = match kind {
        Some(CompactionKind::Compaction) => {
            vec![
                Some(CompactionKind::Compaction),
                Some(CompactionKind::Major),
                Some(CompactionKind::Tombstones),
            ]
        }
        other => vec![other],
    };
    for table in tables {
        for kind in &kinds {
            let filter = CompactionFilter { kind: *kind, table, ..CompactionFilter::default() };
            bridge.call(move || compactions::stop(filter)).await?;
        }
    }
    Ok(Json(()))
}

async fn pending_tasks(State(bridge): State<Bridge>) -> Answer<usize> {
    Ok(Json(bridge.call(compactions::pending).await?.into_values().sum()))
}

async fn pending_tasks_by_table(State(bridge): State<Bridge>) -> Answer<Vec<Value>> {
    bridge
        .call(|| async {
            let pending = compactions::pending().await?;
            let tables = node::all_tables()?.into_iter();
            let of = |table: &node::TableName| pending.get(&table.id.0).copied().unwrap_or(0);
            let shown = tables.filter(|table| of(table) > 0);
            Ok(shown.map(|t| json!({ "ks": t.keyspace, "cf": t.name, "task": of(&t) })).collect())
        })
        .await
        .map(Json)
}

async fn pending_of_table(State(bridge): State<Bridge>, Path(name): Path<String>) -> Answer<usize> {
    bridge
        .call(move || async move {
            let table = node::table_called(&name)?;
            Ok(compactions::pending().await?.get(&table.id.0).copied().unwrap_or(0))
        })
        .await
        .map(Json)
}
