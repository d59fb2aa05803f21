//! `/storage_service`: keyspaces, flushes, the ring of a single node, its transport and its mode.

use axum::Json;
use axum::Router;
use axum::extract::{Path, State};
use axum::routing::{get, post};
use model::tablet::TabletMap;
use serde_json::{Value, json};

use super::{Answer, Pair, uuid_text};
use crate::admin::bridge::Bridge;
use crate::admin::error::ApiError;
use crate::admin::node::{self, NodeState};
use crate::admin::params::Params;

/// The version of Cassandra that this node behaves like, as `system.local` shows it.
const RELEASE_VERSION: &str = "5.0.6";
const PARTITIONER: &str = "org.apache.cassandra.dht.Murmur3Partitioner";
/// Base-2 logarithm of the number of tokens that the node shows; the same as in `system.local`.
const RING_TOKENS_LOG2: u8 = 4;

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
        .route("/storage_service/tokens", get(tokens))
        .route("/storage_service/tokens/{endpoint}", get(tokens_of))
        .route("/storage_service/tokens_endpoint", get(tokens_endpoint))
        .route("/storage_service/describe_ring", get(describe_ring))
        .route("/storage_service/describe_ring/{keyspace}", get(describe_ring_of))
        .route("/storage_service/range_to_endpoint_map/{keyspace}", get(range_to_endpoint_map))
        .route("/storage_service/natural_endpoints/{keyspace}", get(natural_endpoints))
        .route("/storage_service/ownership", get(ownership))
        .route("/storage_service/ownership/{keyspace}", get(ownership_of))
        .route("/storage_service/load", get(load))
        .route("/storage_service/load_map", get(load_map))
        .route("/storage_service/nodes/leaving", get(nobody))
        .route("/storage_service/nodes/moving", get(nobody))
        .route("/storage_service/nodes/joining", get(nobody))
        .route("/storage_service/data_file/locations", get(data_directories))
        .route("/storage_service/trace_probability", get(trace_probability).post(set_trace_probability))
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

/// The node's properties from which all answers about the cluster are made.
struct Me {
    host_id: String,
    address: String,
    rpc_address: String,
    data_center: String,
    rack: String,
    cluster_name: String,
}

async fn me(bridge: &Bridge) -> Result<Me, ApiError> {
    bridge
        .call(|| async {
            let shard = node::here()?;
            let config = shard.native.engine().config();
            Ok(Me {
                host_id: uuid_text(config.host_id),
                address: config.listen_address.ip().to_string(),
                rpc_address: config.native_address.ip().to_string(),
                data_center: config.data_center.clone(),
                rack: config.rack.clone(),
                cluster_name: config.cluster_name.clone(),
            })
        })
        .await
}

async fn host_id(State(bridge): State<Bridge>) -> Answer<String> {
    Ok(Json(me(&bridge).await?.host_id))
}

async fn host_ids(State(bridge): State<Bridge>) -> Answer<Vec<Pair<String, String>>> {
    let me = me(&bridge).await?;
    Ok(Json(vec![Pair { key: me.address, value: me.host_id }]))
}

async fn cluster_name(State(bridge): State<Bridge>) -> Answer<String> {
    Ok(Json(me(&bridge).await?.cluster_name))
}

async fn schema_version(State(bridge): State<Bridge>) -> Answer<String> {
    bridge.call(|| async { Ok(uuid_text(node::schema()?.version())) }).await.map(Json)
}

async fn mode(bridge: &Bridge) -> Result<node::Mode, ApiError> {
    bridge.call(|| async { Ok(NodeState::here().map_or(node::Mode::Starting, |node| node.mode.get())) }).await
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
    bridge.call(|| async { Ok(!NodeState::here()?.listeners.borrow().is_empty()) }).await.map(Json)
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

/// The start (exclusive) and the end token of each part of the ring that the node shows.
fn ring() -> impl Iterator<Item = (i64, i64)> {
    let parts = TabletMap::new(RING_TOKENS_LOG2);
    parts.tablets().map(move |part| {
        let (first, last) = parts.range(part);
        // A ring range excludes its start token. The part before the first token wraps around to the last
        // one.
        (first.0.wrapping_sub(1), last.0)
    })
}

async fn tokens() -> Json<Vec<String>> {
    Json(ring().map(|(_, end)| end.to_string()).collect())
}

async fn tokens_of(State(bridge): State<Bridge>, Path(endpoint): Path<String>) -> Answer<Vec<String>> {
    let me = me(&bridge).await?;
    if endpoint != me.address && endpoint != me.rpc_address && endpoint != me.host_id {
        return Err(ApiError::bad(format!("there is no node {endpoint}")));
    }
    Ok(tokens().await)
}

async fn tokens_endpoint(State(bridge): State<Bridge>) -> Answer<Vec<Pair<String, String>>> {
    let me = me(&bridge).await?;
    Ok(Json(ring().map(|(_, end)| Pair { key: end.to_string(), value: me.address.clone() }).collect()))
}

fn described_ring(me: &Me) -> Vec<Value> {
    ring()
        .map(|(start, end)| {
            json!({
                "start_token": start.to_string(),
                "end_token": end.to_string(),
                "endpoints": [me.address],
                "rpc_endpoints": [me.rpc_address],
                "endpoint_details": [{ "host": me.address, "datacenter": me.data_center, "rack": me.rack }],
            })
        })
        .collect()
}

async fn describe_ring(State(bridge): State<Bridge>) -> Answer<Vec<Value>> {
    Ok(Json(described_ring(&me(&bridge).await?)))
}

async fn describe_ring_of(State(bridge): State<Bridge>, Path(keyspace): Path<String>) -> Answer<Vec<Value>> {
    bridge.call(move || async move { node::check_keyspace(&keyspace) }).await?;
    describe_ring(State(bridge)).await
}

async fn range_to_endpoint_map(
    State(bridge): State<Bridge>,
    Path(keyspace): Path<String>,
) -> Answer<Vec<Pair<[String; 2], [String; 1]>>> {
    bridge.call(move || async move { node::check_keyspace(&keyspace) }).await?;
    let me = me(&bridge).await?;
    let pair = |(start, end): (i64, i64)| Pair {
        key: [start.to_string(), end.to_string()],
        value: [me.address.clone()],
    };
    Ok(Json(ring().map(pair).collect()))
}

async fn natural_endpoints(
    State(bridge): State<Bridge>,
    Path(keyspace): Path<String>,
    params: Params,
) -> Answer<Vec<String>> {
    let (table, _key) = (params.required("cf")?.to_owned(), params.required("key")?);
    bridge.call(move || async move { node::tables_of(&keyspace, &[table]).map(drop) }).await?;
    Ok(Json(vec![me(&bridge).await?.address]))
}

async fn ownership(State(bridge): State<Bridge>) -> Answer<Vec<Pair<String, String>>> {
    Ok(Json(vec![Pair { key: me(&bridge).await?.address, value: "1.0".to_owned() }]))
}

async fn ownership_of(
    State(bridge): State<Bridge>,
    Path(keyspace): Path<String>,
) -> Answer<Vec<Pair<String, String>>> {
    bridge.call(move || async move { node::check_keyspace(&keyspace) }).await?;
    ownership(State(bridge)).await
}

async fn bytes_on_disk(bridge: &Bridge) -> Result<u64, ApiError> {
    bridge.call(|| async { Ok(node::reports().await?.iter().map(|report| report.file_bytes).sum()) }).await
}

async fn load(State(bridge): State<Bridge>) -> Answer<u64> {
    bytes_on_disk(&bridge).await.map(Json)
}

async fn load_map(State(bridge): State<Bridge>) -> Answer<Vec<Pair<String, u64>>> {
    Ok(Json(vec![Pair { key: me(&bridge).await?.address, value: bytes_on_disk(&bridge).await? }]))
}

/// Leaving, moving or joining nodes: a single node has none.
async fn nobody() -> Json<[String; 0]> {
    Json([])
}

async fn data_directories(State(bridge): State<Bridge>) -> Answer<[String; 1]> {
    bridge
        .call(|| async { Ok([node::here()?.storage().config().data_dir.display().to_string()]) })
        .await
        .map(Json)
}

async fn trace_probability() -> Json<f64> {
    Json(0.0)
}

async fn set_trace_probability(params: Params) -> Answer<()> {
    let text = params.required("probability")?;
    match text.parse::<f64>() {
        Ok(0.0) => Ok(Json(())),
        Ok(share) if (0.0..=1.0).contains(&share) => Err(ApiError::unsupported(
            "tracing by chance is not supported: trace requests by the driver or with TRACING ON",
        )),
        _ => Err(ApiError::bad(format!("probability has to be between 0 and 1, not '{text}'"))),
    }
}
