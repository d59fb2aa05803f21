//! `/storage_service`: keyspaces, flushes, the nodes of the cluster, this node's transport and mode. Tokens
//! and ranges are in `ring`.

use axum::Json;
use axum::Router;
use axum::extract::{Path, State};
use axum::routing::{get, post};
use cluster::nodes::NodeState;

use super::{Answer, Pair, tracing, uuid_text};
use crate::admin::bridge::Bridge;
use crate::admin::error::ApiError;
use crate::admin::members::{self, Member};
use crate::admin::node;
use crate::admin::params::Params;

/// The version of Cassandra that this node behaves like, as `system.local` shows it.
const RELEASE_VERSION: &str = "5.0.6";
const PARTITIONER: &str = "org.apache.cassandra.dht.Murmur3Partitioner";

pub(super) fn routes() -> Router<Bridge> {
    Router::new()
        .route("/storage_service/keyspaces", get(keyspaces))
        .route("/storage_service/keyspace_flush/{keyspace}", post(keyspace_flush))
        .route("/storage_service/flush", post(flush_all))
        .route("/storage_service/hostid/local", get(host_id))
        .route("/storage_service/host_id", get(host_ids))
        .route("/storage_service/release_version", get(async || Json(RELEASE_VERSION)))
        .route("/storage_service/scylla_release_version", get(async || Json(env!("CARGO_PKG_VERSION"))))
        .route("/storage_service/schema_version", get(schema_version))
        .route("/storage_service/cluster_name", get(cluster_name))
        .route("/storage_service/partitioner_name", get(async || Json(PARTITIONER)))
        .route("/storage_service/operation_mode", get(operation_mode))
        .route("/storage_service/is_starting", get(is_starting))
        .route("/storage_service/is_initialized", get(is_initialized))
        .route("/storage_service/join_ring", get(is_initialized))
        .route("/storage_service/gossiping", get(gossiping))
        .route("/storage_service/rpc_server", get(async || Json(false)))
        .route(
            "/storage_service/native_transport",
            get(native_transport).post(enable_native_transport).delete(disable_native_transport),
        )
        .route("/storage_service/drain", get(drain_progress).post(drain))
        .route("/storage_service/load", get(load))
        .route("/storage_service/load_map", get(load_map))
        .route("/storage_service/nodes/leaving", get(leaving))
        .route("/storage_service/nodes/moving", get(moving))
        .route("/storage_service/nodes/joining", get(joining))
        .route("/storage_service/data_file/locations", get(data_directories))
        .merge(tracing::routes())
        .route("/storage_service/incremental_backups", get(async || Json(false)))
        .route("/storage_service/truncate/{keyspace}", post(truncate))
}

async fn keyspaces(State(bridge): State<Bridge>, params: Params) -> Answer<Vec<String>> {
    let user_only = match params.get("type") {
        None | Some("all") => false,
        Some("user") => true,
        // All keyspaces of the node itself count as local ones.
        Some("non_local_strategy") => true,
        Some(other) => return Err(ApiError::bad(format!("unknown type of keyspaces '{other}'"))),
    };
    bridge.call(move || async move { node::keyspaces(user_only) }).await.map(Json)
}

async fn keyspace_flush(
    State(bridge): State<Bridge>,
    Path(keyspace): Path<String>,
    params: Params,
) -> Answer<()> {
    let names = params.list("cf");
    bridge.call(move || async move { node::flush(node::tables_of(&keyspace, &names)?).await }).await.map(Json)
}

async fn flush_all(State(bridge): State<Bridge>) -> Answer<()> {
    bridge.call(|| async { node::flush(node::all_tables()?).await }).await.map(Json)
}

async fn truncate(State(bridge): State<Bridge>, Path(keyspace): Path<String>, params: Params) -> Answer<()> {
    let names = params.list("cf");
    bridge
        .call(move || async move { node::truncate(node::tables_of(&keyspace, &names)?).await })
        .await
        .map(Json)
}

async fn host_id(State(bridge): State<Bridge>) -> Answer<String> {
    bridge.call(|| async { Ok(members::own()?.host_id()) }).await.map(Json)
}

async fn host_ids(State(bridge): State<Bridge>) -> Answer<Vec<Pair<String, String>>> {
    let pair = |member: &Member| Pair { key: member.address().to_string(), value: member.host_id() };
    bridge.call(move || async move { Ok(members::known()?.iter().map(pair).collect()) }).await.map(Json)
}

async fn cluster_name(State(bridge): State<Bridge>) -> Answer<String> {
    bridge.call(|| async { Ok(node::here()?.native.engine().config().cluster_name.clone()) }).await.map(Json)
}

async fn schema_version(State(bridge): State<Bridge>) -> Answer<String> {
    bridge.call(|| async { Ok(uuid_text(node::schema()?.version())) }).await.map(Json)
}

async fn mode(bridge: &Bridge) -> Result<node::Mode, ApiError> {
    bridge
        .call(|| async { Ok(node::NodeState::here().map_or(node::Mode::Starting, |node| node.mode.get())) })
        .await
}

async fn operation_mode(State(bridge): State<Bridge>) -> Answer<&'static str> {
    Ok(Json(mode(&bridge).await?.name()))
}

async fn is_starting(State(bridge): State<Bridge>) -> Answer<bool> {
    Ok(Json(mode(&bridge).await? == node::Mode::Starting))
}

async fn is_initialized(State(bridge): State<Bridge>) -> Answer<bool> {
    Ok(Json(mode(&bridge).await? != node::Mode::Starting))
}

async fn gossiping(State(bridge): State<Bridge>) -> Answer<bool> {
    Ok(Json(mode(&bridge).await? == node::Mode::Normal))
}

async fn native_transport(State(bridge): State<Bridge>) -> Answer<bool> {
    bridge.call(|| async { Ok(node::NodeState::here()?.is_open()) }).await.map(Json)
}

async fn enable_native_transport(State(bridge): State<Bridge>) -> Answer<()> {
    bridge.call(node::enable_native_transport).await.map(Json)
}

async fn disable_native_transport(State(bridge): State<Bridge>) -> Answer<()> {
    bridge.call(node::disable_native_transport).await.map(Json)
}

async fn drain(State(bridge): State<Bridge>) -> Answer<()> {
    bridge.call(node::drain).await.map(Json)
}

async fn drain_progress(State(bridge): State<Bridge>) -> Answer<String> {
    Ok(Json(match mode(&bridge).await? {
        node::Mode::Drained => "Drained 1/1 ColumnFamilies".to_owned(),
        _ => "Drained 0/1 ColumnFamilies".to_owned(),
    }))
}

async fn bytes_on_disk(bridge: &Bridge) -> Result<u64, ApiError> {
    bridge.call(|| async { Ok(node::reports().await?.iter().map(|report| report.file_bytes).sum()) }).await
}

async fn load(State(bridge): State<Bridge>) -> Answer<u64> {
    bytes_on_disk(&bridge).await.map(Json)
}

async fn load_map(State(bridge): State<Bridge>) -> Answer<Vec<Pair<String, u64>>> {
    let pair = |member: &Member| Some(Pair { key: member.address().to_string(), value: member.load_bytes? });
    bridge
        .call(move || async move { Ok(members::all().await?.iter().filter_map(pair).collect()) })
        .await
        .map(Json)
}

/// Addresses of nodes in a state.
async fn in_state(bridge: Bridge, state: NodeState) -> Answer<Vec<String>> {
    let addresses = move |all: Vec<Member>| {
        let found = all.into_iter().filter(|member| member.record.state == state);
        found.map(|member| member.address().to_string()).collect()
    };
    bridge.call(move || async move { members::known().map(addresses) }).await.map(Json)
}

async fn leaving(State(bridge): State<Bridge>) -> Answer<Vec<String>> {
    in_state(bridge, NodeState::Draining).await
}

async fn joining(State(bridge): State<Bridge>) -> Answer<Vec<String>> {
    in_state(bridge, NodeState::Joining).await
}

/// Nodes that change their tokens: none does.
async fn moving() -> Json<[String; 0]> {
    Json([])
}

async fn data_directories(State(bridge): State<Bridge>) -> Answer<[String; 1]> {
    bridge
        .call(|| async { Ok([node::here()?.storage().config().data_dir.display().to_string()]) })
        .await
        .map(Json)
}
