//! Tables about the node itself: `system.local`, `system.versions` and similar.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use cluster::maps::placement::{self, RingRange};
use cluster::nodes::{NodeRecord, NodeState};
use cluster::{NodeNumber, Nodes};
use model::schema::Keyspace;
use model::tablet::TabletMap;
use storage::CompactionRecord;

use super::rows::Rows;
use crate::EngineConfig;

/// The version of Cassandra whose behaviour and tables this node has.
pub(crate) const RELEASE_VERSION: &str = "5.0.6";
/// The version of CQL.
pub(crate) const CQL_VERSION: &str = "3.4.7";
/// The highest supported version of the native protocol.
pub(crate) const NATIVE_PROTOCOL_VERSION: &str = "5";
/// The class name of the partitioner in Cassandra.
pub(crate) const PARTITIONER: &str = "org.apache.cassandra.dht.Murmur3Partitioner";

/// Base-2 logarithm of the number of tokens that the node shows: drivers that route by a ring need some.
/// Tablets do not depend on them.
const RING_TOKENS_LOG2: u8 = 4;

/// Identity and addresses of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    /// Name of the cluster.
    pub cluster_name: String,
    /// Data center of the node.
    pub data_center: String,
    /// Rack of the node.
    pub rack: String,
    /// Id of the node, a UUID.
    pub host_id: [u8; 16],
    /// Address by which other nodes know it.
    pub listen_address: IpAddr,
    /// Address on which it listens for them.
    pub bind_address: IpAddr,
    /// Port for other nodes.
    pub listen_port: u16,
    /// Address for clients.
    pub rpc_address: IpAddr,
    /// Port for clients.
    pub rpc_port: u16,
    /// When the node started, in seconds since the epoch.
    pub generation: u32,
}

impl NodeFacts {
    /// Facts from the engine's settings, for a node that started `generation` seconds after the epoch.
    pub fn of(config: &EngineConfig, generation: u32) -> Self {
        Self {
            cluster_name: config.cluster_name.clone(),
            data_center: config.data_center.clone(),
            rack: config.rack.clone(),
            host_id: config.host_id,
            listen_address: config.listen_address.ip(),
            bind_address: config.bind_address,
            listen_port: config.listen_address.port(),
            rpc_address: config.native_address.ip(),
            rpc_port: config.native_address.port(),
            generation,
        }
    }
}

/// The other nodes of the cluster that have data, also while they give it away.
fn others<'n>(nodes: &'n Nodes, own: &NodeFacts) -> impl Iterator<Item = &'n NodeRecord> {
    let own = own.host_id;
    let is_member = |node: &&NodeRecord| matches!(node.state, NodeState::Normal | NodeState::Draining);
    nodes.values().filter(is_member).filter(move |node| node.host_id != own)
}

/// The nodes that have tokens, this one always among them.
pub(crate) fn on_ring(nodes: &Nodes, own: &NodeFacts) -> Vec<NodeRecord> {
    let has_tokens = |node: &&NodeRecord| node.host_id == own.host_id || node.state != NodeState::Joining;
    let is_there = |node: &&NodeRecord| node.state != NodeState::Left;
    let mut all: Vec<NodeRecord> = nodes.values().filter(is_there).filter(has_tokens).cloned().collect();
    if !all.iter().any(|node| node.host_id == own.host_id) {
        all.push(NodeRecord {
            host_id: own.host_id,
            data_center: own.data_center.clone(),
            rack: own.rack.clone(),
            listen: SocketAddr::new(own.listen_address, own.listen_port),
            native: SocketAddr::new(own.rpc_address, own.rpc_port),
            tokens: ring_tokens().collect(),
            ..NodeRecord::default()
        });
    }
    all
}

/// The ranges between the tokens of `nodes`, with the replicas of a keyspace. Every node keeps the keyspaces
/// with `LocalStrategy` for itself.
pub(crate) fn ring_of(keyspace: &Keyspace, nodes: &[NodeRecord], own: &NodeFacts) -> Vec<RingRange> {
    let replication = &keyspace.options.replication;
    let mut ranges = placement::ring_ranges(replication, nodes);
    if placement::is_local(replication) {
        let own = nodes.iter().filter(|node| node.host_id == own.host_id);
        let own: Vec<NodeNumber> = own.map(|node| node.number).collect();
        ranges.iter_mut().for_each(|range| range.replicas.clone_from(&own));
    }
    ranges
}

fn token_texts(tokens: &[i64]) -> impl Iterator<Item = String> {
    tokens.iter().map(ToString::to_string)
}

/// Fills `system.peers`.
pub(super) fn peers(rows: &mut Rows<'_>, nodes: &Nodes, own: &NodeFacts, schema_version: [u8; 16]) {
    for node in others(nodes, own) {
        rows.row(|row| {
            row.inet("peer", node.listen.ip());
            row.text("data_center", &node.data_center);
            row.uuid("host_id", node.host_id);
            row.text("rack", &node.rack);
            row.text("release_version", RELEASE_VERSION);
            row.inet("rpc_address", node.native.ip());
            row.uuid("schema_version", schema_version);
            row.cells_of_set("tokens", token_texts(&node.tokens));
        });
    }
}

/// Fills `system.peers_v2`.
pub(super) fn peers_v2(rows: &mut Rows<'_>, nodes: &Nodes, own: &NodeFacts, schema_version: [u8; 16]) {
    for node in others(nodes, own) {
        rows.row(|row| {
            row.inet("peer", node.listen.ip());
            row.int("peer_port", i32::from(node.listen.port()));
            row.text("data_center", &node.data_center);
            row.uuid("host_id", node.host_id);
            row.inet("native_address", node.native.ip());
            row.int("native_port", i32::from(node.native.port()));
            row.text("rack", &node.rack);
            row.text("release_version", RELEASE_VERSION);
            row.uuid("schema_version", schema_version);
            row.cells_of_set("tokens", token_texts(&node.tokens));
        });
    }
}

/// The equal parts of the ring, whose last tokens are the node's tokens.
pub(super) fn ring_parts() -> TabletMap {
    TabletMap::new(RING_TOKENS_LOG2)
}

/// The tokens shown for the node: the ends of equal parts of the ring.
fn ring_tokens() -> impl Iterator<Item = i64> {
    let parts = ring_parts();
    parts.tablets().map(move |part| parts.range(part).1.0)
}

/// Adds a compaction to `system.compaction_history`.
pub(super) fn compaction(rows: &mut Rows<'_>, record: &CompactionRecord) {
    let bigint = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    rows.row(|row| {
        row.timeuuid("id", record.id);
        row.bigint("bytes_in", bigint(record.bytes_in));
        row.bigint("bytes_out", bigint(record.bytes_out));
        row.text("columnfamily_name", &record.table_name);
        row.timestamp("compacted_at", record.compacted_at_us / 1_000);
        row.map("compaction_properties", [("compaction_type", record.kind.name().as_bytes())]);
        row.text("keyspace_name", &record.keyspace);
        let merged = record.partitions_merged.iter();
        row.cells_of_counts(
            "rows_merged",
            merged.map(|(files, count)| (i32::try_from(*files).unwrap_or(i32::MAX), bigint(*count))),
        );
    });
}

/// Fills `system.local`.
pub(super) fn local(rows: &mut Rows<'_>, nodes: &Nodes, node: &NodeFacts, schema_version: [u8; 16]) {
    let own = nodes.values().find(|known| known.host_id == node.host_id);
    let tokens: Vec<i64> = own.map_or_else(|| ring_tokens().collect(), |own| own.tokens.clone());
    rows.row(|row| {
        row.text("key", "local");
        row.text("bootstrapped", "COMPLETED");
        row.inet("broadcast_address", node.listen_address);
        row.int("broadcast_port", i32::from(node.listen_port));
        row.text("cluster_name", &node.cluster_name);
        row.text("cql_version", CQL_VERSION);
        row.text("data_center", &node.data_center);
        row.int("gossip_generation", i32::try_from(node.generation).unwrap_or(i32::MAX));
        row.uuid("host_id", node.host_id);
        row.inet("listen_address", node.bind_address);
        row.int("listen_port", i32::from(node.listen_port));
        row.text("native_protocol_version", NATIVE_PROTOCOL_VERSION);
        row.text("partitioner", PARTITIONER);
        row.text("rack", &node.rack);
        row.text("release_version", RELEASE_VERSION);
        row.inet("rpc_address", node.rpc_address);
        row.int("rpc_port", i32::from(node.rpc_port));
        row.uuid("schema_version", schema_version);
        row.cells_of_set("tokens", token_texts(&tokens));
    });
}

/// Fills `system.versions`.
pub(super) fn versions(rows: &mut Rows<'_>) {
    rows.row(|row| {
        row.text("key", "local");
        row.text("build_id", "");
        row.text("build_mode", if cfg!(debug_assertions) { "dev" } else { "release" });
        row.text("version", env!("CARGO_PKG_VERSION"));
    });
}

/// All settings of this node by name: those of `node`, overridden by `more`.
pub(super) fn all_settings<'s>(
    node: &NodeFacts,
    more: &'s [(String, String)],
) -> BTreeMap<Cow<'s, str>, Cow<'s, str>> {
    let own = [
        ("cluster_name", node.cluster_name.clone()),
        ("listen_address", node.bind_address.to_string()),
        ("native_transport_port", node.rpc_port.to_string()),
        ("partitioner", PARTITIONER.to_owned()),
        ("rpc_address", node.rpc_address.to_string()),
        ("storage_port", node.listen_port.to_string()),
    ];
    let mut all: BTreeMap<Cow<'s, str>, Cow<'s, str>> =
        own.into_iter().map(|(name, value)| (Cow::Borrowed(name), Cow::Owned(value))).collect();
    all.extend(more.iter().map(|(name, value)| (Cow::Borrowed(&**name), Cow::Borrowed(&**value))));
    all
}

/// Fills `system_views.settings`.
pub(super) fn settings(rows: &mut Rows<'_>, node: &NodeFacts, more: &[(String, String)]) {
    for (name, value) in all_settings(node, more) {
        rows.row(|row| {
            row.text("name", &name);
            row.text("value", &value);
        });
    }
}
