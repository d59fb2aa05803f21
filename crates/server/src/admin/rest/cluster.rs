//! `/gossiper`, `/failure_detector`, `/snitch`, `/storage_proxy`: the nodes on which the cluster agreed,
//! and who of them is up in this node's opinion.

use axum::extract::{Path, State};
use axum::routing::get;
use axum::{Json, Router};
use cluster::nodes::NodeState as Part;
use serde_json::{Value, json};

use super::{Answer, Pair, uuid_text};
use crate::admin::bridge::Bridge;
use crate::admin::error::ApiError;
use crate::admin::members::{self, Member};
use crate::admin::node::{self, NodeState};
use crate::admin::params::Params;
use crate::config::{Config, Snitch};

/// What nodes that are down have in the place of a version of the schema, in Cassandra's words.
const UNREACHABLE: &str = "UNREACHABLE";
/// The release of Cassandra that all nodes show.
const RELEASE_VERSION: &str = "5.0.6";

pub(super) fn routes() -> Router<Bridge> {
    Router::new()
        .route("/gossiper/endpoint/live", get(live))
        .route("/gossiper/endpoint/live/", get(live))
        .route("/gossiper/endpoint/down", get(down))
        .route("/gossiper/endpoint/down/", get(down))
        .route("/gossiper/downtime/{address}", get(downtime))
        .route("/gossiper/generation_number/{address}", get(generation_number))
        .route("/failure_detector/endpoints", get(endpoints))
        .route("/failure_detector/endpoints/", get(endpoints))
        .route("/failure_detector/simple_states", get(simple_states))
        .route("/failure_detector/count/endpoint/up", get(count_up))
        .route("/failure_detector/count/endpoint/down", get(count_down))
        .route("/snitch/name", get(snitch_name))
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

async fn known(bridge: &Bridge) -> Result<Vec<Member>, ApiError> {
    bridge.call(|| async { members::known() }).await
}

/// Addresses of the nodes that are up, or of those that are not.
async fn which(bridge: &Bridge, is_up: bool) -> Result<Vec<String>, ApiError> {
    let members = known(bridge).await?;
    let found = members.iter().filter(|member| member.is_up == is_up);
    Ok(found.map(|member| member.address().to_string()).collect())
}

async fn live(State(bridge): State<Bridge>) -> Answer<Vec<String>> {
    which(&bridge, true).await.map(Json)
}

async fn down(State(bridge): State<Bridge>) -> Answer<Vec<String>> {
    which(&bridge, false).await.map(Json)
}

async fn count_up(State(bridge): State<Bridge>) -> Answer<usize> {
    Ok(Json(which(&bridge, true).await?.len()))
}

async fn count_down(State(bridge): State<Bridge>) -> Answer<usize> {
    Ok(Json(which(&bridge, false).await?.len()))
}

/// For how many milliseconds a node has been down.
async fn downtime(State(bridge): State<Bridge>, Path(address): Path<String>) -> Answer<u64> {
    let member = bridge.call(move || async move { members::called(Some(&address)) }).await?;
    Ok(Json(member.down_ms.unwrap_or(0)))
}

/// How often a node's directory was started; of a node without a network, when it was.
async fn generation_number(State(bridge): State<Bridge>, Path(address): Path<String>) -> Answer<u64> {
    let generation = move || async move { Ok(generation(&members::called(Some(&address))?)) };
    bridge.call(generation).await.map(Json)
}

/// A number that grows with each start of a node. Call on shard 0.
fn generation(member: &Member) -> u64 {
    match member.record.generation {
        0 => NodeState::here().map_or(0, |node| node.generation.max(0) as u64),
        starts => starts,
    }
}

async fn simple_states(State(bridge): State<Bridge>) -> Answer<Vec<Pair<String, &'static str>>> {
    let state = |member: &Member| Pair {
        key: member.address().to_string(),
        value: if member.is_up { "UP" } else { "DOWN" },
    };
    Ok(Json(known(&bridge).await?.iter().map(state).collect()))
}

/// The word that gossip has for a node's part in the cluster.
fn status(part: Part) -> &'static str {
    match part {
        Part::Joining => "BOOT",
        Part::Normal => "NORMAL",
        Part::Draining => "LEAVING",
        Part::Left => "LEFT",
    }
}

/// What gossip would say of a node, by ScyllaDB's numbers of the states, the first of which are Cassandra's.
fn application_states(member: &Member, schema: &str) -> Vec<Value> {
    let record = &member.record;
    let token = record.tokens.first().map_or_else(String::new, |token| format!(",{token}"));
    let load = member.load_bytes.map(|bytes| format!("{bytes}.0"));
    let states = [
        (0, Some(format!("{}{token}", status(record.state)))),
        (1, load),
        (2, member.is_up.then(|| schema.to_owned())),
        (3, Some(record.data_center.clone())),
        (4, Some(record.rack.clone())),
        (5, Some(RELEASE_VERSION.to_owned())),
        (8, Some(record.native.ip().to_string())),
        (12, Some(member.host_id())),
        (17, Some(member.serves_clients.to_string())),
        (19, Some(record.shards.to_string())),
    ];
    let state = |(number, value): (u32, Option<String>)| {
        Some(json!({ "application_state": number, "value": value?, "version": 0 }))
    };
    states.into_iter().filter_map(state).collect()
}

async fn endpoints(State(bridge): State<Bridge>) -> Answer<Vec<Value>> {
    bridge
        .call(|| async {
            let schema = uuid_text(node::schema()?.version());
            let endpoint = |member: &Member| {
                json!({
                    "addrs": member.address().to_string(),
                    "is_alive": member.is_up,
                    "update_time": reactor::wall_clock_us() / 1000,
                    "generation": generation(member),
                    "version": 0,
                    "application_state": application_states(member, &schema),
                })
            };
            Ok(members::all().await?.iter().map(endpoint).collect())
        })
        .await
        .map(Json)
}

async fn snitch_name(State(bridge): State<Bridge>) -> Answer<&'static str> {
    bridge
        .call(|| async {
            Ok(match NodeState::here()?.config.topology.snitch {
                Snitch::Simple => "org.apache.cassandra.locator.SimpleSnitch",
                Snitch::PropertyFile => "org.apache.cassandra.locator.GossipingPropertyFileSnitch",
            })
        })
        .await
        .map(Json)
}

/// The node that the parameter `host` names, or this one.
async fn host(bridge: &Bridge, params: &Params) -> Result<Member, ApiError> {
    let name = params.get("host").map(str::to_owned);
    bridge.call(move || async move { members::called(name.as_deref()) }).await
}

async fn data_center(State(bridge): State<Bridge>, params: Params) -> Answer<String> {
    Ok(Json(host(&bridge, &params).await?.record.data_center))
}

async fn rack(State(bridge): State<Bridge>, params: Params) -> Answer<String> {
    Ok(Json(host(&bridge, &params).await?.record.rack))
}

/// Nodes by the version of their schema: those that are up have this node's, since a change is answered once
/// they applied it.
async fn schema_versions(State(bridge): State<Bridge>) -> Answer<Vec<Pair<String, Vec<String>>>> {
    let version = bridge.call(|| async { Ok(uuid_text(node::schema()?.version())) }).await?;
    let mut versions = vec![Pair { key: version, value: which(&bridge, true).await? }];
    let down = which(&bridge, false).await?;
    if !down.is_empty() {
        versions.push(Pair { key: UNREACHABLE.to_owned(), value: down });
    }
    Ok(Json(versions))
}
