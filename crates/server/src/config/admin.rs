//! The keys of administration: its ports, snapshots, and reactions to full or failing disks.

use std::net::IpAddr;
use std::time::Duration;

use storage::FailurePolicy;

use super::keys::{Setter, address, choice, flag, port};
use super::value::Value;

/// Default share of a disk in use above which writes are refused.
pub const CRITICAL_DISK_UTILIZATION: f64 = 0.98;

/// A port, and whether it was configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// The default port.
    Default(u16),
    /// A port from the configuration file or the command line; 0 for no port.
    Given(u16),
}

impl Port {
    /// The port number.
    pub fn number(self) -> u16 {
        match self {
            Self::Default(number) | Self::Given(number) => number,
        }
    }
}

/// The settings of administration.
#[derive(Debug, Clone, PartialEq)]
pub struct AdminConfig {
    /// `api_address`; `None` for the CQL address if that is a loopback address, else 127.0.0.1.
    pub api_address: Option<IpAddr>,
    /// `api_port`.
    pub api_port: Port,
    /// `prometheus_address`; `None` as for the API.
    pub prometheus_address: Option<IpAddr>,
    /// `prometheus_port`.
    pub prometheus_port: Port,
    /// `api_allowed_hosts`: names allowed in the `Host` of requests to both ports, besides addresses and the
    /// machine's own name.
    pub allowed_hosts: Vec<String>,
    /// `auto_snapshot`: whether tables are snapshotted before they are truncated or dropped.
    pub auto_snapshot: bool,
    /// `slow_query_log_timeout`: requests that take longer get a line in the log; `None` for none.
    pub slow_query_log_timeout: Option<Duration>,
    /// `log_format`: whether lines of the log are objects of JSON.
    pub log_is_json: bool,
    /// `critical_disk_utilization_level`: the share of the disk in use above which writes are refused; `None`
    /// for [`CRITICAL_DISK_UTILIZATION`], or in developer mode for no limit.
    pub critical_disk_utilization: Option<f64>,
    /// `takeover_keeps_files`: whether the files of a Cassandra node stay after its data was taken over.
    pub takeover_keeps_files: bool,
    /// `disk_failure_policy`.
    pub disk_failure_policy: FailurePolicy,
    /// `commit_failure_policy`.
    pub commit_failure_policy: FailurePolicy,
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self {
            api_address: None,
            api_port: Port::Default(10_000),
            prometheus_address: None,
            prometheus_port: Port::Default(9180),
            allowed_hosts: Vec::new(),
            auto_snapshot: true,
            slow_query_log_timeout: Some(Duration::from_millis(500)),
            log_is_json: false,
            takeover_keeps_files: true,
            critical_disk_utilization: None,
            disk_failure_policy: FailurePolicy::Ignore,
            commit_failure_policy: FailurePolicy::StopCommit,
        }
    }
}

pub(super) const SETTERS: &[(&str, Setter)] = &[
    ("api_address", |c, v| address(v).map(|v| c.admin.api_address = Some(v))),
    ("api_port", |c, v| port_or_none(v).map(|v| c.admin.api_port = v)),
    ("prometheus_address", |c, v| address(v).map(|v| c.admin.prometheus_address = Some(v))),
    ("prometheus_port", |c, v| port_or_none(v).map(|v| c.admin.prometheus_port = v)),
    ("api_allowed_hosts", |c, v| names(v).map(|v| c.admin.allowed_hosts = v)),
    ("auto_snapshot", |c, v| flag(v).map(|v| c.admin.auto_snapshot = v)),
    ("takeover_keeps_files", |c, v| flag(v).map(|v| c.admin.takeover_keeps_files = v)),
    ("critical_disk_utilization_level", |c, v| share(v).map(|v| c.admin.critical_disk_utilization = Some(v))),
    ("disk_failure_policy", |c, v| disk_policy(v).map(|v| c.admin.disk_failure_policy = v)),
    ("commit_failure_policy", |c, v| commit_policy(v).map(|v| c.admin.commit_failure_policy = v)),
];

fn port_or_none(value: &Value) -> Result<Port, String> {
    if *value == Value::Integer(0) { Ok(Port::Given(0)) } else { port(value).map(Port::Given) }
}

/// A list of host names, or a single one.
fn names(value: &Value) -> Result<Vec<String>, String> {
    let name = |value: &Value| match value {
        Value::Text(name) if !name.is_empty() && !name.contains([':', '/', ' ']) => Ok(name.clone()),
        _ => Err(format!("expected names of hosts without a port, such as [db1.example.org], found {value}")),
    };
    match value {
        Value::List(list) => list.iter().map(name).collect(),
        _ => name(value).map(|name| vec![name]),
    }
}

fn share(value: &Value) -> Result<f64, String> {
    let found = match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        Value::Text(text) => text.parse().ok(),
        _ => None,
    };
    found
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| format!("expected a share from 0.0 to 1.0, found {value}"))
}

fn disk_policy(value: &Value) -> Result<FailurePolicy, String> {
    choice(
        value,
        &[
            ("die", FailurePolicy::Die),
            ("stop_paranoid", FailurePolicy::StopParanoid),
            ("stop", FailurePolicy::Stop),
            ("best_effort", FailurePolicy::BestEffort),
            ("ignore", FailurePolicy::Ignore),
        ],
    )
}

fn commit_policy(value: &Value) -> Result<FailurePolicy, String> {
    choice(
        value,
        &[
            ("die", FailurePolicy::Die),
            ("stop", FailurePolicy::Stop),
            ("stop_commit", FailurePolicy::StopCommit),
            ("ignore", FailurePolicy::Ignore),
        ],
    )
}
