//! `/storage_service/repair_async` and `/task_manager`: background work, for tools that start it and poll its
//! status.
//!
//! A single node has no peer to repair from: a repair checks the names of its tables and is done. With
//! several nodes it is refused. Tasks are the running compactions.

use axum::extract::{Path, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::{Answer, uuid_text};
use crate::admin::bridge::Bridge;
use crate::admin::compactions;
use crate::admin::error::ApiError;
use crate::admin::members;
use crate::admin::node::{self, NodeState};
use crate::admin::params::Params;

/// Modules that have tasks; here only the first ever has some.
const MODULES: [&str; 4] = ["compaction", "node_ops", "repair", "snapshot"];

pub(super) fn routes() -> Router<Bridge> {
    Router::new()
        .route("/storage_service/repair_async/{keyspace}", get(repaired).post(repair))
        .route("/storage_service/repair_status", get(repair_status))
        .route("/storage_service/repair_status/", get(repair_status))
        .route("/storage_service/active_repair", get(async || Json([0u32; 0])))
        .route("/storage_service/active_repair/", get(async || Json([0u32; 0])))
        .route("/storage_service/force_terminate_repair", post(async || Json(())))
        .route("/task_manager/list_modules", get(async || Json(MODULES)))
        .route("/task_manager/list_module_tasks/{module}", get(tasks))
        .route("/task_manager/task_status/{id}", get(no_task))
        .route("/task_manager/task_status_recursive/{id}", get(no_task))
        .route("/task_manager/wait_task/{id}", get(no_task))
        .route("/task_manager/abort_task/{id}", post(no_task))
}

/// Parameter: `columnFamilies`, names separated by commas. Returns the number that asks for the repair's
/// status.
async fn repair(State(bridge): State<Bridge>, Path(keyspace): Path<String>, params: Params) -> Answer<u32> {
    let names = params.list("columnFamilies");
    bridge
        .call(move || async move {
            node::tables_of(&keyspace, &names)?;
            let state = NodeState::here()?;
            if members::known()?.len() > 1 {
                return Err(ApiError::unsupported(
                    "repair is not done yet: reads at a quorum repair what they find to differ",
                ));
            }
            state.repairs.set(state.repairs.get().wrapping_add(1));
            Ok(state.repairs.get())
        })
        .await
        .map(Json)
}

async fn repaired(
    State(bridge): State<Bridge>,
    Path(keyspace): Path<String>,
    params: Params,
) -> Answer<&'static str> {
    bridge.call(move || async move { node::check_keyspace(&keyspace) }).await?;
    repair_status(State(bridge), params).await
}

async fn repair_status(State(bridge): State<Bridge>, params: Params) -> Answer<&'static str> {
    let text = params.required("id")?;
    let id =
        text.parse::<u32>().map_err(|_| ApiError::bad(format!("id has to be a number, not '{text}'")))?;
    let repairs = bridge.call(|| async { Ok(NodeState::here()?.repairs.get()) }).await?;
    if (1..=repairs).contains(&id) {
        Ok(Json("SUCCESSFUL"))
    } else {
        Err(ApiError::bad(format!("unknown repair id {id}")))
    }
}

async fn tasks(State(bridge): State<Bridge>, Path(module): Path<String>) -> Answer<Vec<Value>> {
    if !MODULES.contains(&module.as_str()) {
        return Err(ApiError::bad(format!("there is no module {module}")));
    }
    if module != MODULES[0] {
        return Ok(Json(Vec::new()));
    }
    let running = bridge.call(compactions::running).await?.into_iter().enumerate();
    let shown = running.map(|(number, compaction)| {
        json!({
            "task_id": uuid_text(compaction.id),
            "state": "running",
            "type": compaction.kind.name(),
            "kind": "node",
            "scope": "table",
            "keyspace": compaction.keyspace,
            "table": compaction.table_name,
            "entity": "",
            "sequence_number": number,
        })
    });
    Ok(Json(shown.collect()))
}

async fn no_task(Path(id): Path<String>) -> ApiError {
    ApiError::bad(format!("task with id {id} not found"))
}
