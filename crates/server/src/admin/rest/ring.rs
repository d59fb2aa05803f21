//! `/storage_service`: tokens, and which nodes have which ranges.
//!
//! A keyspace's ranges are those between the nodes' tokens, with the replicas that drivers without tablets
//! compute; with a table they are its tablets and their replicas, which is where the rows are. Shares of a
//! keyspace's data come from its tablets, too, where it has tables.

use std::collections::BTreeMap;

use axum::extract::{Path, State};
use axum::routing::get;
use axum::{Json, Router};
use cluster::NodeNumber;
use cluster::maps::placement::{self, RingRange, is_local};
use cluster::nodes::NodeRecord;
use model::{Table, Token};
use serde_json::{Value, json};

use super::{Answer, Pair};
use crate::admin::bridge::Bridge;
use crate::admin::error::ApiError;
use crate::admin::members::{self, Member};
use crate::admin::node;
use crate::admin::params::Params;

pub(super) fn routes() -> Router<Bridge> {
    Router::new()
        .route("/storage_service/tokens", get(tokens))
        .route("/storage_service/tokens/{endpoint}", get(tokens_of))
        .route("/storage_service/tokens_endpoint", get(tokens_endpoint))
        .route("/storage_service/describe_ring", get(describe_ring))
        .route("/storage_service/describe_ring/{keyspace}", get(describe_ring_of))
        .route("/storage_service/range_to_endpoint_map/{keyspace}", get(range_to_endpoint_map))
        .route("/storage_service/natural_endpoints/{keyspace}", get(natural_endpoints))
        .route("/storage_service/ownership", get(ownership))
        .route("/storage_service/ownership/{keyspace}", get(ownership_of))
}

/// A range, without its first token, and the nodes that have it.
struct Range {
    start: Token,
    end: Token,
    replicas: Vec<NodeNumber>,
}

impl From<RingRange> for Range {
    fn from(range: RingRange) -> Self {
        Self { start: range.start, end: range.end, replicas: range.replicas }
    }
}

impl Range {
    /// The part of all tokens that it has.
    fn share(&self) -> f64 {
        match (self.end.0 as u64).wrapping_sub(self.start.0 as u64) {
            // From a token around the ring to itself.
            0 => 1.0,
            width => width as f64 / 2f64.powi(64),
        }
    }
}

fn records(members: &[Member]) -> Vec<NodeRecord> {
    members.iter().filter(|member| member.has_tokens()).map(|member| member.record.clone()).collect()
}

/// The options of a keyspace's replication; `None` for one that each node keeps for itself.
fn replication(keyspace: &str) -> Result<Option<BTreeMap<String, String>>, ApiError> {
    node::check_keyspace(keyspace)?;
    let schema = node::schema()?;
    let stored = schema.keyspace(keyspace).map(|found| found.options.replication.clone());
    Ok(stored.filter(|replication| !is_local(replication)))
}

/// The ranges between tokens, with the replicas of a keyspace.
fn ranges_of(keyspace: &str, members: &[Member]) -> Result<Vec<Range>, ApiError> {
    let replication = replication(keyspace)?;
    let ring = placement::ring_ranges(&replication.clone().unwrap_or_default(), &records(members));
    let mut ranges: Vec<Range> = ring.into_iter().map(Range::from).collect();
    if replication.is_none() {
        let own = members.iter().filter(|member| member.is_own);
        let own: Vec<NodeNumber> = own.map(|member| member.record.number).collect();
        ranges.iter_mut().for_each(|range| range.replicas.clone_from(&own));
    }
    Ok(ranges)
}

/// The tablets of a table.
fn tablets_of(table: &Table) -> Result<Vec<Range>, ApiError> {
    let shard = node::here()?;
    let routing = shard.replicator().routing(table);
    let tablets = routing.tablets();
    let range = |tablet| {
        let (first, last) = tablets.range(tablet);
        let replicas = routing.whole(tablet).iter().map(|replica| replica.node).collect();
        Range { start: Token(first.0.wrapping_sub(1)), end: last, replicas }
    };
    Ok(tablets.tablets().map(range).collect())
}

/// The ranges of a keyspace, or the tablets of a table of it.
fn ranges(keyspace: &str, table: Option<&str>, members: &[Member]) -> Result<Vec<Range>, ApiError> {
    let Some(name) = table else { return ranges_of(keyspace, members) };
    let found = node::tables_of(keyspace, &[name.to_owned()])?;
    let schema = node::schema()?;
    match found.first().and_then(|table| schema.table_by_id(table.id)) {
        Some(table) => tablets_of(table),
        None => Err(ApiError::bad(format!("Unknown keyspace/cf pair ({keyspace}.{name})"))),
    }
}

fn texts(tokens: &[i64]) -> Vec<String> {
    tokens.iter().map(ToString::to_string).collect()
}

async fn tokens(State(bridge): State<Bridge>) -> Answer<Vec<String>> {
    bridge.call(|| async { Ok(texts(&members::own()?.record.tokens)) }).await.map(Json)
}

async fn tokens_of(State(bridge): State<Bridge>, Path(endpoint): Path<String>) -> Answer<Vec<String>> {
    bridge
        .call(move || async move { Ok(texts(&members::called(Some(&endpoint))?.record.tokens)) })
        .await
        .map(Json)
}

async fn tokens_endpoint(State(bridge): State<Bridge>) -> Answer<Vec<Pair<String, String>>> {
    bridge
        .call(|| async {
            let members = members::known()?;
            let all = members.iter().filter(|member| member.has_tokens());
            let mut pairs: Vec<(i64, String)> = all
                .flat_map(|of| of.record.tokens.iter().map(|token| (*token, of.address().to_string())))
                .collect();
            pairs.sort_unstable();
            Ok(pairs.into_iter().map(|(token, of)| Pair { key: token.to_string(), value: of }).collect())
        })
        .await
        .map(Json)
}

fn addresses(range: &Range, members: &[Member]) -> Vec<String> {
    let found = range.replicas.iter().filter_map(|node| members::numbered(members, *node));
    found.map(|member| member.address().to_string()).collect()
}

fn described(range: &Range, members: &[Member]) -> Value {
    let replicas: Vec<&Member> =
        range.replicas.iter().filter_map(|node| members::numbered(members, *node)).collect();
    let details = replicas.iter().map(|member| {
        json!({
            "host": member.address().to_string(),
            "datacenter": member.record.data_center,
            "rack": member.record.rack,
        })
    });
    let rpc: Vec<String> = replicas.iter().map(|member| member.record.native.ip().to_string()).collect();
    json!({
        "start_token": range.start.0.to_string(),
        "end_token": range.end.0.to_string(),
        "endpoints": addresses(range, members),
        "rpc_endpoints": rpc,
        "endpoint_details": details.collect::<Vec<Value>>(),
    })
}

async fn describe(bridge: Bridge, keyspace: String, table: Option<String>) -> Answer<Vec<Value>> {
    bridge
        .call(move || async move {
            let members = members::known()?;
            let ranges = ranges(&keyspace, table.as_deref(), &members)?;
            Ok(ranges.iter().map(|range| described(range, &members)).collect())
        })
        .await
        .map(Json)
}

/// Without a keyspace: of the one that nodetool takes for `status`, whose copies are two.
async fn describe_ring(State(bridge): State<Bridge>) -> Answer<Vec<Value>> {
    describe(bridge, "system_traces".to_owned(), None).await
}

async fn describe_ring_of(
    State(bridge): State<Bridge>,
    Path(keyspace): Path<String>,
    params: Params,
) -> Answer<Vec<Value>> {
    describe(bridge, keyspace, params.get("table").map(str::to_owned)).await
}

async fn range_to_endpoint_map(
    State(bridge): State<Bridge>,
    Path(keyspace): Path<String>,
    params: Params,
) -> Answer<Vec<Pair<[String; 2], Vec<String>>>> {
    let table = params.get("cf").map(str::to_owned);
    let pair = |range: &Range, members: &[Member]| Pair {
        key: [range.start.0.to_string(), range.end.0.to_string()],
        value: addresses(range, members),
    };
    bridge
        .call(move || async move {
            let members = members::known()?;
            let ranges = ranges(&keyspace, table.as_deref(), &members)?;
            Ok(ranges.iter().map(|range| pair(range, &members)).collect())
        })
        .await
        .map(Json)
}

async fn natural_endpoints(
    State(bridge): State<Bridge>,
    Path(keyspace): Path<String>,
    params: Params,
) -> Answer<Vec<String>> {
    let (name, key) = (params.required("cf")?.to_owned(), params.required("key")?.to_owned());
    bridge
        .call(move || async move {
            let members = members::known()?;
            let schema = node::schema()?;
            let ranges = ranges(&keyspace, Some(&name), &members)?;
            let table = schema.table(&keyspace, &name).expect("its tablets were found");
            let token = node::key_of(table, &key, false)?.token;
            let has = |range: &&Range| range.end >= token;
            Ok(ranges.iter().find(has).map_or_else(Vec::new, |range| addresses(range, &members)))
        })
        .await
        .map(Json)
}

/// Each node's share by its address.
fn shares(members: &[Member], of: &[Vec<Range>]) -> Vec<Pair<String, String>> {
    let mut shares: BTreeMap<NodeNumber, f64> = BTreeMap::new();
    for range in of.iter().flatten() {
        for node in &range.replicas {
            *shares.entry(*node).or_default() += range.share() / of.len() as f64;
        }
    }
    let all = members.iter().filter(|member| member.has_tokens());
    let share = |of: &Member| shares.get(&of.record.number).copied().unwrap_or(0.0);
    all.map(|of| Pair { key: of.address().to_string(), value: format!("{:?}", share(of)) }).collect()
}

/// The parts of the ring that end with each node's tokens.
async fn ownership(State(bridge): State<Bridge>) -> Answer<Vec<Pair<String, String>>> {
    bridge
        .call(|| async {
            let members = members::known()?;
            let ring = placement::ring_ranges(&BTreeMap::new(), &records(&members));
            let owned = |range: RingRange| Range { replicas: vec![range.owner], ..Range::from(range) };
            Ok(shares(&members, &[ring.into_iter().map(owned).collect()]))
        })
        .await
        .map(Json)
}

/// The part of a keyspace's data that each node has a copy of: the mean over its tables, or of one of them.
async fn ownership_of(
    State(bridge): State<Bridge>,
    Path(keyspace): Path<String>,
    params: Params,
) -> Answer<Vec<Pair<String, String>>> {
    let table = params.get("cf").map(str::to_owned);
    bridge
        .call(move || async move {
            let members = members::known()?;
            let schema = node::schema()?;
            let tables = node::tables_of(&keyspace, &Vec::from_iter(table))?;
            let tables = tables.iter().filter_map(|table| schema.table_by_id(table.id));
            let is_shared = replication(&keyspace)?.is_some();
            let mut all: Vec<Vec<Range>> = Vec::new();
            for table in tables.filter(|_| is_shared) {
                all.push(tablets_of(table)?);
                reactor::maybe_yield().await;
            }
            if all.is_empty() {
                all.push(ranges_of(&keyspace, &members)?);
            }
            Ok(shares(&members, &all))
        })
        .await
        .map(Json)
}
