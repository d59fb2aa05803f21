//! The configuration: a YAML file with the keys of `cassandra.yaml` and `scylla.yaml`, overridden by the
//! command line.
//!
//! A key has the meaning that it has in those files. Known keys that have no effect here are named in one
//! line of the log; those that ask for something that the node does not do give a warning each. An unknown
//! key, or an invalid value, stops the start with file, line and column and, for a key, the nearest known
//! one.

mod admin;
mod guardrails;
mod hints;
pub(crate) mod io_properties;
mod keys;
mod known;
pub(crate) mod reference;
mod security;
pub(crate) mod settings;
mod topology;
mod value;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use admin::{AdminConfig, CRITICAL_DISK_UTILIZATION, Port};
pub use hints::HintsConfig;
pub(crate) use keys::{parse_address, parse_size};
use query::MarkerOptions;
use query::guardrails::Guardrails;
use reactor::log::Level;
use storage::LargeLimits;
pub use topology::{InternodeCompression, Seed, Snitch, TopologyConfig};
pub(crate) use topology::{parse_reachable_address, parse_seeds};
use value::{Document, Entry, Value};

/// All settings of the process.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `cluster_name`.
    pub cluster_name: String,
    /// `data_center`.
    pub data_center: String,
    /// `rack`.
    pub rack: String,
    /// `workdir`: the directory of everything that has no path of its own.
    pub workdir: PathBuf,
    /// Words of refused starts whose losses are accepted; only on the command line (`--accept-missing`).
    pub accept_missing: Vec<String>,
    /// `data_file_directories`; at most one.
    pub data_dir: Option<PathBuf>,
    /// `commitlog_directory`.
    pub commitlog_dir: Option<PathBuf>,
    /// `rpc_address`: the address for CQL clients.
    pub rpc_address: IpAddr,
    /// `broadcast_rpc_address`: the address sent to drivers.
    pub broadcast_rpc_address: Option<IpAddr>,
    /// `listen_address`: the address for other nodes; `None` for the one for clients.
    pub listen_address: Option<IpAddr>,
    /// Seeds, snitch and the like.
    pub topology: TopologyConfig,
    /// `storage_port`, shown to drivers in `system.local`.
    pub storage_port: u16,
    /// `native_transport_port`.
    pub native_port: u16,
    /// `native_shard_aware_transport_port`; `None` if there is no such port.
    pub shard_aware_port: Option<u16>,
    /// `native_transport_max_frame_size`, bytes.
    pub frame_bytes_max: usize,
    /// `native_transport_max_concurrent_connections`; `None` for no limit.
    pub connections_max: Option<usize>,
    /// `native_transport_max_concurrent_connections_per_ip`; `None` for no limit.
    pub connections_per_ip_max: Option<usize>,
    /// `native_transport_timeout`: a request that could not start within this time is refused.
    pub native_timeout: Duration,
    /// `native_transport_max_requests_per_connection`: limit to the requests in flight of one connection.
    pub requests_per_connection_max: usize,
    /// `max_concurrent_requests_per_shard`: limit to the requests in flight of one shard.
    pub requests_per_shard_max: usize,
    /// `native_transport_max_concurrent_requests_in_bytes`: limit to the bytes of requests in flight of one
    /// shard.
    pub request_bytes_per_shard_max: usize,
    /// `commitlog_sync`: whether its value is `batch`.
    pub commitlog_batch: bool,
    /// `commitlog_sync_period`.
    pub commitlog_sync_period: Duration,
    /// `commitlog_segment_size`, bytes.
    pub commitlog_segment_bytes: u64,
    /// `max_mutation_size`, bytes; `None` for half a commit-log segment.
    pub mutation_bytes_max: Option<u64>,
    /// `commitlog_total_space`, bytes for the whole node; `None` leaves it to the storage engine.
    pub commitlog_bytes_max: Option<u64>,
    /// `commitlog_replay_ignore_errors`: replay continues after a corrupt entry instead of stopping the
    /// start.
    pub commitlog_replay_ignore_errors: bool,
    /// `sstable_summary_ratio`, from 0 to 1.
    pub sstable_summary_ratio: f64,
    /// `components_memory_reclaim_threshold`, from 0 to 1: the share of memory for the resident components of
    /// open table files.
    pub components_share: f64,
    /// `column_index_size`, bytes.
    pub column_index_bytes: u32,
    /// `memtable_total_space`, bytes for the whole node.
    pub memtable_bytes: Option<u64>,
    /// `compaction_throughput`, bytes per second for the whole node; 0 for no limit.
    pub compaction_bytes_per_second: u64,
    /// `compaction_static_shares`; with 0 the shares of compactions follow their backlog.
    pub compaction_static_shares: u32,
    /// `concurrent_compactors`: most compactions of a shard at a time.
    pub concurrent_compactors: Option<usize>,
    /// `read_request_timeout`.
    pub read_timeout: Duration,
    /// `range_request_timeout`.
    pub range_timeout: Duration,
    /// `write_request_timeout`.
    pub write_timeout: Duration,
    /// `cas_contention_timeout`
    pub cas_contention_timeout: Duration,
    /// `truncate_request_timeout`.
    pub truncate_timeout: Duration,
    /// `request_timeout`: the timeout of all other requests.
    pub request_timeout: Duration,
    /// `smp`: shards; `None` for one per processor this process may use.
    pub shards: Option<usize>,
    /// `memory`, bytes for the whole node.
    pub memory_bytes: Option<u64>,
    /// `developer_mode`: no pinning of threads, no demands on the machine.
    pub developer_mode: bool,
    /// `overprovisioned`: no pinning of threads, and more shards than processors are allowed.
    pub overprovisioned: bool,
    /// `ignore_authentication`: start even if an unsupported `authenticator`, `authorizer` or similar is
    /// configured.
    pub ignores_authentication: bool,
    /// `ignore_encryption`: start even if unsupported encryption of connections or files is configured.
    pub ignores_encryption: bool,
    /// `ignore_audit`: start even if an unsupported record of clients' actions is configured.
    pub ignores_audit: bool,
    /// `reactor_spin_us`: how long an idle shard polls for work before it sleeps.
    pub spin_us: u32,
    /// `reactor_driver`: `auto`, `uring` or `poll`.
    pub driver: Driver,
    /// `user_defined_functions_enabled`.
    pub user_functions: bool,
    /// `user_defined_functions_warn_timeout`, `user_defined_functions_fail_timeout`
    pub user_function_times: query::CallTimes,
    /// Guardrails: limits at which requests give warnings or are refused.
    pub guardrails: Guardrails,
    /// `compaction_large_*_warning_threshold_mb` and similar: sizes from which data in table files is listed
    /// as large.
    pub large_limits: LargeLimits,
    /// Administration: its ports, snapshots, and reactions to disk failures.
    pub admin: AdminConfig,
    /// `saved_caches_directory`: for lists of the row caches' contents; `None` for one in the work directory.
    pub saved_caches_dir: Option<PathBuf>,
    /// `row_cache_save_period`: time between two such lists; zero to write them only at the end.
    pub cache_save_period: Duration,
    /// `row_cache_keys_to_save`: most partitions in the list of one shard; zero for no lists.
    pub cache_keys_to_save: usize,
    /// `cql_duplicate_bind_variable_names_refer_to_same_variable`,
    /// `cql_in_bind_variable_name_uses_uppercase_operator`: both off by default, as in Cassandra.
    pub markers: MarkerOptions,
    /// `alternator_ttl_period_in_seconds`: time between two scans for rows that have expired by their TTL
    /// column; zero for no scans.
    pub row_expiry_period: Duration,
    /// Hinted handoff.
    pub hints: HintsConfig,
    /// `io_properties_file`: figures of the disks; `None` for `io_properties.yaml` in the work directory, if
    /// it exists.
    pub io_properties_file: Option<PathBuf>,
    /// `blocked_reactor_notify_ms`: a task that occupies its core for longer is reported; zero for never.
    pub blocked_reactor_notify: Duration,
    /// `blocked_reactor_reports_per_minute`, per shard.
    pub blocked_reactor_reports_per_minute: u32,
    /// `shutdown_timeout`: how long the node may take to stop before it ends without a drain; zero for no
    /// limit.
    pub shutdown_timeout: Duration,
    /// `default_log_level`: `error`, `warn`, `info`, `debug`.
    pub log_level: Level,
}

/// How a shard talks to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Driver {
    /// io_uring where the kernel allows it, else poll.
    Auto,
    /// io_uring or no start.
    Uring,
    /// epoll and a file thread.
    Poll,
}

impl Config {
    /// The address by which other nodes know this node.
    pub fn own_address(&self) -> IpAddr {
        self.topology.broadcast_address.unwrap_or_else(|| self.bind_address())
    }

    /// The address on which this node listens for other nodes.
    pub fn bind_address(&self) -> IpAddr {
        // The unspecified address (all interfaces) is not one that others can connect to.
        let told = [self.listen_address, Some(self.rpc_address)];
        let mut told = told.into_iter().flatten().filter(|address| !address.is_unspecified());
        told.next().unwrap_or(IpAddr::from([127, 0, 0, 1]))
    }
}

impl Default for Config {
    fn default() -> Self {
        let localhost = IpAddr::from([127, 0, 0, 1]);
        Self {
            cluster_name: "Test Cluster".into(),
            data_center: "datacenter1".into(),
            rack: "rack1".into(),
            workdir: "ceto-data".into(),
            accept_missing: Vec::new(),
            data_dir: None,
            commitlog_dir: None,
            rpc_address: localhost,
            broadcast_rpc_address: None,
            listen_address: None,
            topology: TopologyConfig::default(),
            storage_port: 7000,
            native_port: 9042,
            shard_aware_port: Some(19042),
            frame_bytes_max: 16 << 20,
            connections_max: None,
            connections_per_ip_max: None,
            native_timeout: Duration::from_secs(12),
            requests_per_connection_max: 2048,
            requests_per_shard_max: 16_384,
            request_bytes_per_shard_max: 64 << 20,
            commitlog_batch: false,
            commitlog_sync_period: Duration::from_secs(10),
            commitlog_segment_bytes: 32 << 20,
            mutation_bytes_max: None,
            commitlog_bytes_max: None,
            commitlog_replay_ignore_errors: false,
            sstable_summary_ratio: 0.0005,
            components_share: storage::COMPONENTS_SHARE_DEFAULT,
            column_index_bytes: 64 << 10,
            memtable_bytes: None,
            compaction_bytes_per_second: 0,
            compaction_static_shares: 0,
            concurrent_compactors: None,
            read_timeout: Duration::from_secs(5),
            range_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(2),
            cas_contention_timeout: Duration::from_millis(1800),
            truncate_timeout: Duration::from_secs(60),
            request_timeout: Duration::from_secs(10),
            shards: None,
            memory_bytes: None,
            developer_mode: false,
            overprovisioned: false,
            ignores_authentication: false,
            ignores_encryption: false,
            ignores_audit: false,
            spin_us: 0,
            driver: Driver::Auto,
            user_functions: true,
            user_function_times: query::CallTimes::default(),
            guardrails: Guardrails::default(),
            large_limits: LargeLimits::default(),
            admin: AdminConfig::default(),
            saved_caches_dir: None,
            cache_save_period: Duration::from_secs(600),
            cache_keys_to_save: 100_000,
            markers: MarkerOptions::default(),
            row_expiry_period: Duration::from_secs(24 * 3600),
            hints: HintsConfig::default(),
            io_properties_file: None,
            blocked_reactor_notify: Duration::from_millis(5),
            blocked_reactor_reports_per_minute: 5,
            shutdown_timeout: Duration::from_secs(60),
            log_level: Level::Info,
        }
    }
}

/// Why a configuration is rejected.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is not YAML, or not a map of keys.
    #[error("{}:{line}:{column}: {message}", path.display())]
    Yaml {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// Column, from 1.
        column: u64,
        /// The parser's error.
        message: String,
    },
    /// An unknown key.
    #[error("{}:{line}:{column}: unknown key '{key}'{}", path.display(), nearest.as_ref().map(|n| format!("; did you mean '{n}'?")).unwrap_or_default())]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// Column, from 1.
        column: u64,
        /// The key.
        key: String,
        /// The nearest known key, if one is near.
        nearest: Option<&'static str>,
    },
    /// An invalid value.
    #[error("{}:{line}:{column}: {key}: {message}", path.display())]
    BadValue {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// Column, from 1.
        column: u64,
        /// The key of the value.
        key: String,
        /// Why the value is invalid, and which values are valid.
        message: String,
    },
}

/// Remarks about a configuration file that the node follows.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Remarks {
    /// Keys that ask for something that the node does not do, each with file and line.
    pub warnings: Vec<String>,
    /// One line that names the keys without effect and without consequences, if there are any.
    pub without_effect: Option<String>,
}

/// Largest settings file that is read, in bytes.
pub(crate) const TEXT_BYTES_MAX: u64 = 16 << 20;

/// The keys of a configuration file, as they are written.
#[derive(Debug, Default)]
pub(crate) struct Written(BTreeMap<String, Value>);

impl Written {
    /// Keys that a running node applies when it reloads its configuration.
    const FOLLOWED: [&str; 3] = ["default_log_level", "io_properties_file", "shutdown_timeout"];

    /// Reads the keys of the file at `path`; none without a path.
    ///
    /// # Errors
    /// [`ConfigError`] if the file cannot be read or is not valid YAML.
    pub(crate) fn of(path: Option<&Path>) -> Result<Self, ConfigError> {
        let Some(path) = path else { return Ok(Self::default()) };
        let text = reactor::file::read_text_now(path, TEXT_BYTES_MAX)
            .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
        let entries = Document::parse(path, &text)?.entries.into_iter();
        Ok(Self(entries.map(|entry| (entry.key, entry.value)).collect()))
    }

    /// Keys whose values differ from those in `before` and take effect only with a restart.
    pub(crate) fn changed(&self, before: &Self) -> Vec<String> {
        let mut keys: Vec<&String> = self.0.keys().chain(before.0.keys()).collect();
        keys.sort();
        keys.dedup();
        keys.retain(|key| self.0.get(*key) != before.0.get(*key) && !Self::FOLLOWED.contains(&key.as_str()));
        keys.into_iter().cloned().collect()
    }
}

fn bad_value(path: &Path, entry: &Entry, message: String) -> ConfigError {
    let (line, column) = entry.value_at;
    ConfigError::BadValue { path: path.to_owned(), line, column, key: entry.key.clone(), message }
}

impl Config {
    /// The defaults, overridden by the YAML file at `path`, and remarks about keys that have no effect yet.
    ///
    /// # Errors
    /// [`ConfigError`] names file, line and column.
    pub fn from_file(path: &Path) -> Result<(Self, Remarks), ConfigError> {
        let text = reactor::file::read_text_now(path, TEXT_BYTES_MAX)
            .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
        Self::from_yaml(path, &text)
    }

    /// As [`Config::from_file`], from text; `path` is for messages.
    ///
    /// # Errors
    /// [`ConfigError`] names file, line and column.
    pub fn from_yaml(path: &Path, text: &str) -> Result<(Self, Remarks), ConfigError> {
        let (mut config, remarks) = Self::from_keys(path, text)?;
        config.read_rack(path)?;
        Ok((config, remarks))
    }

    /// As [`Config::from_yaml`], by the keys in the text alone.
    fn from_keys(path: &Path, text: &str) -> Result<(Self, Remarks), ConfigError> {
        let mut config = Self::default();
        let mut remarks = Remarks::default();
        let mut without_effect = Vec::new();
        let mut places = BTreeMap::new();
        let mut open = Vec::new();
        for entry in Document::parse(path, text)?.entries {
            let (line, column) = entry.key_at;
            places.insert(entry.key.clone(), entry.value_at);
            if let Some(set) = keys::setter(&entry.key) {
                set(&mut config, &entry.value).map_err(|message| bad_value(path, &entry, message))?;
            } else if known::KEYS.binary_search(&entry.key.as_str()).is_ok() {
                let why = match known::meaning(&entry.key, &entry.value) {
                    known::Meaning::Kept => continue,
                    known::Meaning::NoEffect(Some(consequence)) => consequence.to_owned(),
                    known::Meaning::NoEffect(None) => match known::absent(&entry.key, &entry.value) {
                        Some(what) => format!("{what} not supported"),
                        None => {
                            without_effect.push(entry.key);
                            continue;
                        }
                    },
                    known::Meaning::Refused(expected) => {
                        return Err(bad_value(path, &entry, format!("{expected}, found {}", entry.value)));
                    }
                    known::Meaning::Open(lack, consequence) => {
                        let message = format!(
                            "not there yet, so {consequence}; a node that is to start all the same has {}: true",
                            lack.key()
                        );
                        open.push((lack, bad_value(path, &entry, message)));
                        consequence.to_owned()
                    }
                };
                let warning = format!("{}:{line}: '{}' has no effect yet: {why}", path.display(), entry.key);
                remarks.warnings.push(warning);
            } else {
                let nearest = known::nearest(&entry.key);
                return Err(ConfigError::UnknownKey {
                    path: path.to_owned(),
                    line,
                    column,
                    key: entry.key,
                    nearest,
                });
            }
        }
        // The `ignore_` keys may come last in the file, so missing features are checked at the end.
        if let Some((_, error)) = open.into_iter().find(|(lack, _)| !lack.is_accepted(&config)) {
            return Err(error);
        }
        guardrails::check(&config).map_err(|(key, message)| {
            // The file may contain only the other of the two thresholds, which conflicts with the default of
            // this one.
            let other = key.replace("_warn_", "_fail_");
            let (line, column) = places.get(&key).or_else(|| places.get(&other)).copied().unwrap_or((1, 1));
            ConfigError::BadValue { path: path.to_owned(), line, column, key, message }
        })?;
        if !without_effect.is_empty() {
            let keys = without_effect.join(", ");
            remarks.without_effect = Some(format!("{}: keys without effect here: {keys}", path.display()));
        }
        Ok((config, remarks))
    }
}

#[cfg(test)]
mod tests;
