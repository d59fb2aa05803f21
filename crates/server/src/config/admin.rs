//! The keys of administration: its ports, snapshots, and what happens when disks fill or fail.

use std::net::IpAddr;

use storage::FailurePolicy;

use super::keys::{Setter, address, choice, flag, port};
use super::value::Value;

/// The share of a disk in use above which writes are refused, where nobody says otherwise.
pub const CRITICAL_DISK_UTILIZATION: f64 = 0.98;

/// A port, and whether somebody asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// Nobody named another.
    Default(u16),
    /// Named in the configuration file or on the command line; 0 for none.
    Given(u16),
}

impl Port {
    /// Its number.
    pub fn number(self) -> u16 {
        match self {
            Self::Default(number) | Self::Given(number) => number,
        }
    }
}

/// What administration is told.
#[derive(Debug, Clone, PartialEq)]
pub struct AdminConfig {
    /// `api_address`; `None` for the CQL address where that is a loopback one, else 127.0.0.1.
    pub api_address: Option<IpAddr>,
    /// `api_port`.
    pub api_port: Port,
    /// `prometheus_address`; `None` as for the API.
    pub prometheus_address: Option<IpAddr>,
    /// `prometheus_port`.
    pub prometheus_port: Port,
    /// `api_allowed_hosts`: names that requests to both ports may have in `Host`, besides addresses and the machine's own.
    pub allowed_hosts: Vec<String>,
    /// `auto_snapshot`: whether truncated and dropped tables are snapshotted first.
    pub auto_snapshot: bool,
    /// `critical_disk_utilization_level`: the share of the disk in use above which writes are refused; `None` for
    /// [`CRITICAL_DISK_UTILIZATION`], and for no such level in developer mode.
    pub critical_disk_utilization: Option<f64>,
    /// `takeover_keeps_files`: whether the table files of a Cassandra node that is taken over stay.
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

/// A list of names, or one.
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
