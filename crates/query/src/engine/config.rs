//! Settings of the query engine.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use replication::HintsConfig;
use statement::functions::user::CallTimes;
use statement::guardrails::Guardrails;
use statement::terms::MarkerOptions;

/// Settings of the query engine; the same on every shard of a node.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// `cluster_name`
    pub cluster_name: String,
    /// Data center of the node.
    pub data_center: String,
    /// Rack of the node.
    pub rack: String,
    /// Address by which other nodes know this one.
    pub listen_address: SocketAddr,
    /// Address on which it listens for them.
    pub bind_address: IpAddr,
    /// Address for clients.
    pub native_address: SocketAddr,
    /// Port on which connections choose their shard; `None` if there is none.
    pub shard_aware_port: Option<u16>,
    /// Shards of the node.
    pub shards: usize,
    /// Identity of the node, a UUID.
    pub host_id: [u8; 16],
    /// `read_request_timeout`
    pub read_timeout: Duration,
    /// `range_request_timeout`
    pub range_timeout: Duration,
    /// `write_request_timeout`
    pub write_timeout: Duration,
    /// `cas_contention_timeout`: how long contention with other conditional writes may delay one.
    pub cas_contention_timeout: Duration,
    /// `truncate_request_timeout`
    pub truncate_timeout: Duration,
    /// `prepared_statements_cache_size`, of each shard.
    pub prepared_bytes_max: usize,
    /// Bytes of large answers that a shard has in memory ([`crate::answer_room::bytes_max_for`]).
    pub answers_bytes_max: usize,
    /// Longest text of a statement in bytes.
    pub statement_bytes_max: usize,
    /// `user_defined_functions_enabled`
    pub user_functions: bool,
    /// How long a function of the user's may run.
    pub user_function_times: CallTimes,
    /// How bind markers are named and identified.
    pub markers: MarkerOptions,
    /// Limits that operators set, with warnings and refusals.
    pub guardrails: Guardrails,
    /// `slow_query_log_timeout`: requests that take longer get a line in the log; `None` for none.
    pub slow_query_log_timeout: Option<Duration>,
    /// Whether statements about one row may take the quick road (`engine::at_once`), which answers as the
    /// plain one does. Tests turn it off to compare the two.
    pub quick_road: bool,
    /// Hinted handoff, and batches that are kept for coordinators; `None` for a node that does neither.
    pub hints: Option<HintsConfig>,
    /// Names and values for `system_views.settings`, besides those that follow from the other settings here.
    pub settings: Vec<(String, String)>,
}

impl EngineConfig {
    /// Cassandra's defaults for one node on the loopback address.
    pub fn new(host_id: [u8; 16], shards: usize) -> Self {
        Self {
            cluster_name: "Test Cluster".to_owned(),
            data_center: "datacenter1".to_owned(),
            rack: "rack1".to_owned(),
            listen_address: SocketAddr::from(([127, 0, 0, 1], 7000)),
            bind_address: IpAddr::from([127, 0, 0, 1]),
            native_address: SocketAddr::from(([127, 0, 0, 1], 9042)),
            shard_aware_port: None,
            shards,
            host_id,
            read_timeout: Duration::from_secs(5),
            range_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(2),
            cas_contention_timeout: Duration::from_millis(1800),
            truncate_timeout: Duration::from_secs(60),
            prepared_bytes_max: 10 << 20,
            answers_bytes_max: 128 << 20,
            statement_bytes_max: 16 << 20,
            user_functions: true,
            user_function_times: CallTimes::default(),
            markers: MarkerOptions::default(),
            guardrails: Guardrails::default(),
            slow_query_log_timeout: Some(Duration::from_millis(500)),
            quick_road: true,
            hints: None,
            settings: Vec::new(),
        }
    }
}
