//! `tombstone_gc`: whether compactions may drop tombstones of a table, or of a keyspace's tables; it lasts
//! until the node restarts.

use axum::extract::{Path, State};
use axum::routing::{get, post};
use axum::{Json, Router};

use super::Answer;
use crate::admin::bridge::Bridge;
use crate::admin::compactions;
use crate::admin::node;
use crate::admin::params::Params;

pub(super) fn routes() -> Router<Bridge> {
    Router::new()
        .route("/column_family/tombstone_gc/{name}", get(is_on).post(enable_table).delete(disable_table))
        .route("/storage_service/tombstone_gc/{keyspace}", post(enable).delete(disable))
}

async fn is_on(State(bridge): State<Bridge>, Path(name): Path<String>) -> Answer<bool> {
    bridge
        .call(move || async move { compactions::tombstone_gc(node::table_called(&name)?).await })
        .await
        .map(Json)
}

async fn set_of_table(bridge: &Bridge, name: String, on: bool) -> Answer<()> {
    bridge
        .call(
            move || async move { compactions::set_tombstone_gc(vec![node::table_called(&name)?], on).await },
        )
        .await
        .map(Json)
}

async fn enable_table(State(bridge): State<Bridge>, Path(name): Path<String>) -> Answer<()> {
    set_of_table(&bridge, name, true).await
}

async fn disable_table(State(bridge): State<Bridge>, Path(name): Path<String>) -> Answer<()> {
    set_of_table(&bridge, name, false).await
}

/// Sets it for the tables that the parameter `cf` names; for all tables of the keyspace if it is missing.
async fn set(bridge: &Bridge, keyspace: String, names: Vec<String>, on: bool) -> Answer<()> {
    bridge
        .call(move || async move {
            compactions::set_tombstone_gc(node::tables_of(&keyspace, &names)?, on).await
        })
        .await
        .map(Json)
}

async fn enable(State(bridge): State<Bridge>, Path(keyspace): Path<String>, params: Params) -> Answer<()> {
    set(&bridge, keyspace, params.list("cf"), true).await
}

async fn disable(State(bridge): State<Bridge>, Path(keyspace): Path<String>, params: Params) -> Answer<()> {
    set(&bridge, keyspace, params.list("cf"), false).await
}
