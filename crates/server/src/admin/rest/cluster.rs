//! `/gossiper`, `/failure_detector`, `/snitch`, `/storage_proxy`: the state of the cluster, which has one
//! node.

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

use super::{Answer, Pair, uuid_text};
use crate::admin::bridge::Bridge;
use crate::admin::node::{self, NodeState};
use crate::config::Config;

pub(super) fn routes() -> Router<Bridge> {
    Router::new()
        .route("/gossiper/endpoint/live", get(live))
        .route("/gossiper/endpoint/live/", get(live))
        .route("/gossiper/endpoint/down", get(nobody))
        .route("/gossiper/endpoint/down/", get(nobody))
        .route("/failure_detector/endpoints", get(endpoints))
        .route("/failure_detector/endpoints/", get(endpoints))
        .route("/failure_detector/simple_states", get(simple_states))
        .route("/failure_detector/count/endpoint/up", get(async || Json(1)))
        .route("/failure_detector/count/endpoint/down", get(async || Json(0)))
        .route("/snitch/name", get(async || Json("org.apache.cassandra.locator.SimpleSnitch")))
        .route("/snitch/datacenter", get(data_center))
        .route("/snitch/rack", get(rack))
        .route("/storage_proxy/schema_versions", get(schema_versions))
        .route("/storage_proxy/read_rpc_timeout", get(async |s| timeout(s, |c| c.read_timeout).await))
        .route("/storage_proxy/range_rpc_timeout", get(async |s| timeout(s, |c| c.range_timeout).await))
        .route("/storage_proxy/write_rpc_timeout", get(async |s| timeout(s, |c| c.write_timeout).await))
        .route("/storage_proxy/truncate_rpc_timeout", get(async |s| timeout(s, |c| c.truncate_timeout).await))
        .route("/storage_proxy/rpc_timeout", get(async |s| timeout(s, |c| c.request_timeout).await))
}

/// One of the configured timeouts in seconds.
async fn timeout(State(bridge): State<Bridge>, pick: fn(&Config) -> std::time::Duration) -> Answer<f64> {
    bridge.call(move || async move { Ok(pick(&NodeState::here()?.config).as_secs_f64()) }).await.map(Json)
}

async fn live(State(bridge): State<Bridge>) -> Answer<[String; 1]> {
    bridge
        .call(|| async { Ok([node::here()?.native.engine().config().listen_address.ip().to_string()]) })
        .await
        .map(Json)
}

async fn nobody() -> Json<[String; 0]> {
    Json([])
}

async fn simple_states(State(bridge): State<Bridge>) -> Answer<[Pair<String, &'static str>; 1]> {
    let Json([address]) = live(State(bridge)).await?;
    Ok(Json([Pair { key: address, value: "UP" }]))
}

async fn endpoints(State(bridge): State<Bridge>) -> Answer<[Value; 1]> {
    bridge
        .call(|| async {
            let shard = node::here()?;
            let config = shard.native.engine().config();
            Ok([json!({
                "addrs": config.listen_address.ip().to_string(),
                "is_alive": true,
                "update_time": reactor::wall_clock_us() / 1000,
                // Grows with each start, as in gossip: the second in which the node began to serve.
                "generation": NodeState::here()?.generation,
                "version": 0,
                "application_state": [
                    { "application_state": 3, "value": config.data_center, "version": 0 },
                    { "application_state": 4, "value": config.rack, "version": 0 },
                    { "application_state": 12, "value": uuid_text(config.host_id), "version": 0 },
                ],
            })])
        })
        .await
        .map(Json)
}

async fn data_center(State(bridge): State<Bridge>) -> Answer<String> {
    bridge.call(|| async { Ok(node::here()?.native.engine().config().data_center.clone()) }).await.map(Json)
}

async fn rack(State(bridge): State<Bridge>) -> Answer<String> {
    bridge.call(|| async { Ok(node::here()?.native.engine().config().rack.clone()) }).await.map(Json)
}

async fn schema_versions(State(bridge): State<Bridge>) -> Answer<[Pair<String, [String; 1]>; 1]> {
    let Json([address]) = live(State(bridge.clone())).await?;
    let version = bridge.call(|| async { Ok(uuid_text(node::schema()?.version())) }).await?;
    Ok(Json([Pair { key: version, value: [address] }]))
}
