//! `/storage_service/snapshots`: takes, lists, measures and clears snapshots.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use storage::{SnapshotInfo, SnapshotRequest, SnapshotsOf};

use super::{Answer, Pair};
use crate::admin::bridge::Bridge;
use crate::admin::error::ApiError;
use crate::admin::node::{self, TableName};
use crate::admin::params::Params;

pub(super) fn routes() -> Router<Bridge> {
    Router::new()
        .route("/storage_service/snapshots", get(list).post(take).delete(clear))
        .route("/storage_service/snapshots/size/true", get(true_size))
        .route("/column_family/metrics/snapshots_size/{name}", get(size_of_table))
}

/// One table's part of a snapshot. `created_at` and `expires_at` are extensions.
#[derive(Debug, Serialize)]
struct Part {
    ks: String,
    cf: String,
    total: u64,
    live: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
}

async fn all(bridge: &Bridge, of: SnapshotsOf) -> Result<Vec<SnapshotInfo>, ApiError> {
    bridge.call(move || async move { Ok(node::here()?.storage().snapshots(&of).await?) }).await
}

async fn list(State(bridge): State<Bridge>) -> Answer<Vec<Pair<String, Vec<Part>>>> {
    let mut by_tag: BTreeMap<String, Vec<Part>> = BTreeMap::new();
    for info in all(&bridge, SnapshotsOf::default()).await? {
        by_tag.entry(info.tag).or_default().push(Part {
            ks: info.keyspace,
            cf: info.table,
            total: info.disk_bytes,
            live: info.true_bytes,
            created_at: info.created_at,
            expires_at: info.expires_at,
        });
    }
    Ok(Json(by_tag.into_iter().map(|(key, value)| Pair { key, value }).collect()))
}

async fn true_size(State(bridge): State<Bridge>) -> Answer<u64> {
    let infos = all(&bridge, SnapshotsOf::default()).await?;
    Ok(Json(infos.iter().map(|info| info.true_bytes).sum()))
}

async fn size_of_table(
    State(bridge): State<Bridge>,
    axum::extract::Path(name): axum::extract::Path<String>,
) -> Answer<u64> {
    let table = bridge.call(move || async move { node::table_called(&name) }).await?;
    let of = SnapshotsOf { tag: None, keyspaces: vec![table.keyspace], table: Some(table.name) };
    Ok(Json(all(&bridge, of).await?.iter().map(|info| info.disk_bytes).sum()))
}

/// Parameters: `tag`; `kn`, keyspaces, all if it is missing; `cf`, tables of one keyspace; `sf`, whether
/// memtables are not flushed first; and as an extension `ttl` in seconds, after which the snapshot is
/// removed.
async fn take(State(bridge): State<Bridge>, params: Params) -> Answer<()> {
    let tag = params.required("tag")?.to_owned();
    let (keyspaces, tables) = (params.list("kn"), params.list("cf"));
    if !tables.is_empty() && keyspaces.len() != 1 {
        return Err(ApiError::bad("Only one keyspace allowed when specifying a table"));
    }
    let skip_flush = params.flag("sf")?;
    let ttl = match params.get("ttl").map(str::parse::<u64>) {
        None => None,
        Some(Ok(seconds)) if seconds > 0 => Some(Duration::from_secs(seconds)),
        Some(_) => return Err(ApiError::bad("ttl has to be a number of seconds above 0")),
    };
    if !storage::is_tag(&tag) {
        return Err(ApiError::bad(format!("'{tag}' cannot be the name of a snapshot: it names a folder")));
    }
    bridge
        .call(move || async move {
            let tables = named(&keyspaces, &tables)?.into_iter().map(|table| table.id).collect();
            let request = SnapshotRequest { tag, tables, skip_flush, ttl };
            node::here()?.storage().take_snapshot(&request).await.map_err(|error| match error {
                storage::StorageError::Snapshot { reason, .. } => ApiError::bad(reason),
                other => other.into(),
            })
        })
        .await
        .map(Json)
}

fn named(keyspaces: &[String], tables: &[String]) -> Result<Vec<TableName>, ApiError> {
    if keyspaces.is_empty() {
        return node::all_tables();
    }
    let mut found = Vec::new();
    for keyspace in keyspaces {
        found.extend(node::tables_of(keyspace, tables)?);
    }
    Ok(found)
}

async fn clear(State(bridge): State<Bridge>, params: Params) -> Answer<()> {
    let of = SnapshotsOf {
        tag: params.get("tag").map(str::to_owned),
        keyspaces: params.list("kn"),
        table: params.get("cf").map(str::to_owned),
    };
    bridge
        .call(move || async move { Ok(node::here()?.storage().clear_snapshots(&of).await.map(drop)?) })
        .await
        .map(Json)
}
