//! `/storage_service/keyspace_compaction` and `/compaction_manager`: compactions by request, and what is going on.

use axum::extract::{Path, State};
use axum::http::Uri;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::Answer;
use crate::admin::bridge::Bridge;
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
        .route("/storage_service/keyspace_scrub/{keyspace}", get(not_built).post(not_built))
        .route("/storage_service/keyspace_upgrade_sstables/{keyspace}", get(not_built).post(not_built))
        .route("/storage_service/auto_compaction/{keyspace}", post(not_built).delete(not_built))
        .route("/column_family/autocompaction/{name}", get(not_built).post(not_built).delete(not_built))
        .route("/compaction_manager/compaction_history", get(not_built))
        .route("/compaction_manager/stop_compaction", post(not_built))
        .route("/compaction_manager/compactions", get(compactions))
        .route("/compaction_manager/metrics/pending_tasks", get(pending_tasks))
}

/// What others of these paths do and this node does not.
async fn not_built(uri: Uri) -> ApiError {
    ApiError::unsupported(format!("{} is not supported", uri.path()))
}

async fn compact_keyspace(
    State(bridge): State<Bridge>,
    Path(keyspace): Path<String>,
    params: Params,
) -> Answer<()> {
    let names = params.list("cf");
    bridge
        .call(move || async move { node::compact(node::tables_of(&keyspace, &names)?).await })
        .await
        .map(Json)
}

async fn compact_all(State(bridge): State<Bridge>) -> Answer<()> {
    bridge.call(|| async { node::compact(node::all_tables()?).await }).await.map(Json)
}

async fn compact_table(State(bridge): State<Bridge>, Path(name): Path<String>) -> Answer<()> {
    bridge.call(move || async move { node::compact(vec![node::table_called(&name)?]).await }).await.map(Json)
}

/// A node alone owns every token, so nothing is left over for a cleanup; what is asked is checked all the same.
async fn cleanup(State(bridge): State<Bridge>, Path(keyspace): Path<String>, params: Params) -> Answer<u32> {
    let names = params.list("cf");
    bridge
        .call(move || async move {
            if node::is_system(&keyspace) {
                return Err(ApiError::bad(format!(
                    "keyspace {keyspace} is the node's own: it needs no cleanup"
                )));
            }
            node::tables_of(&keyspace, &names).map(|_| 0)
        })
        .await
        .map(Json)
}

async fn cleanup_all(State(bridge): State<Bridge>) -> Answer<u32> {
    bridge.call(|| async { node::all_tables().map(|_| 0) }).await.map(Json)
}

/// Compactions that were asked for and run.
async fn compactions(State(bridge): State<Bridge>) -> Answer<Vec<Value>> {
    bridge
        .call(|| async {
            let node = node::NodeState::here()?;
            let running = node.compactions.borrow();
            Ok(running
                .iter()
                .map(|(id, table)| {
                    json!({
                        "id": id.to_string(),
                        "status": 0,
                        "unit": "keys",
                        "task_type": "COMPACTION",
                        "completed": 0,
                        "total": 0,
                        "ks": table.keyspace,
                        "cf": table.name,
                    })
                })
                .collect())
        })
        .await
        .map(Json)
}

async fn pending_tasks(State(bridge): State<Bridge>) -> Answer<usize> {
    bridge.call(|| async { Ok(node::NodeState::here()?.compactions.borrow().len()) }).await.map(Json)
}
