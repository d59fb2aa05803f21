//! The keys of hinted handoff and of batches that are written out late.

use std::path::PathBuf;
use std::time::Duration;

use super::keys::{self, Setter, count, duration, flag, milliseconds, rate, size};
use super::value::Value;

/// The settings of hints, as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HintsConfig {
    /// `hints_directory`; `None` for one in the work directory.
    pub folder: Option<PathBuf>,
    /// `hinted_handoff_enabled`.
    pub is_on: bool,
    /// `hinted_handoff_disabled_datacenters`.
    pub data_centers_without: Vec<String>,
    /// `max_hint_window`.
    pub window: Duration,
    /// `max_hints_size_per_host`, bytes of the whole node; 0 for no limit of its own.
    pub host_bytes_max: u64,
    /// `max_hints_file_size`, bytes.
    pub file_bytes_max: u64,
    /// `hints_flush_period`.
    pub sync_every: Duration,
    /// `hinted_handoff_throttle`, bytes per second; 0 for no limit.
    pub bytes_per_second: u64,
    /// `max_hints_delivery_threads`.
    pub hosts_at_once: usize,
    /// `batchlog_replay_throttle`, bytes per second; 0 for no limit.
    pub batch_bytes_per_second: u64,
}

impl Default for HintsConfig {
    fn default() -> Self {
        let usual = replication::HintsConfig::new("");
        Self {
            folder: None,
            is_on: usual.is_on,
            data_centers_without: usual.data_centers_without,
            window: usual.window,
            host_bytes_max: usual.host_bytes_max,
            file_bytes_max: usual.file_bytes_max,
            sync_every: usual.sync_every,
            bytes_per_second: usual.bytes_per_second,
            hosts_at_once: usual.hosts_at_once,
            batch_bytes_per_second: usual.batch_bytes_per_second,
        }
    }
}

pub(super) const SETTERS: &[(&str, Setter)] = &[
    ("hints_directory", |c, v| keys::path(v).map(|v| c.hints.folder = Some(v))),
    ("hinted_handoff_enabled", |c, v| flag(v).map(|v| c.hints.is_on = v)),
    ("hinted_handoff_disabled_datacenters", |c, v| names(v).map(|v| c.hints.data_centers_without = v)),
    ("max_hint_window", |c, v| duration(v).map(|v| c.hints.window = v)),
    ("max_hint_window_in_ms", |c, v| milliseconds(v).map(|v| c.hints.window = v)),
    ("max_hints_size_per_host", |c, v| size_or_none(v).map(|v| c.hints.host_bytes_max = v)),
    ("max_hints_file_size", |c, v| file_bytes(size(v)?).map(|v| c.hints.file_bytes_max = v)),
    ("max_hints_file_size_in_mb", |c, v| {
        file_bytes(count(v, 1, 2047)? << 20).map(|v| c.hints.file_bytes_max = v)
    }),
    ("hints_flush_period", |c, v| duration(v).map(|v| c.hints.sync_every = v)),
    ("hints_flush_period_in_ms", |c, v| milliseconds(v).map(|v| c.hints.sync_every = v)),
    ("hinted_handoff_throttle", |c, v| throttle(v).map(|v| c.hints.bytes_per_second = v)),
    ("hinted_handoff_throttle_in_kb", |c, v| {
        count(v, 0, 1 << 30).map(|v| c.hints.bytes_per_second = v << 10)
    }),
    ("max_hints_delivery_threads", |c, v| count(v, 1, 1 << 10).map(|v| c.hints.hosts_at_once = v as usize)),
    ("batchlog_replay_throttle", |c, v| throttle(v).map(|v| c.hints.batch_bytes_per_second = v)),
    ("batchlog_replay_throttle_in_kb", |c, v| {
        count(v, 0, 1 << 30).map(|v| c.hints.batch_bytes_per_second = v << 10)
    }),
];

/// Bytes, or 0 for no limit.
fn size_or_none(value: &Value) -> Result<u64, String> {
    match value {
        Value::Integer(0) => Ok(0),
        Value::Text(text) if text.trim_end_matches(char::is_alphabetic) == "0" => Ok(0),
        value => size(value),
    }
}

/// Bytes per second; Cassandra's file has a size here, which is meant by the second.
fn throttle(value: &Value) -> Result<u64, String> {
    size_or_none(value).or_else(|_| rate(value))
}

fn file_bytes(bytes: u64) -> Result<u64, String> {
    if (1 << 20..=2047 << 20).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(format!("expected 1MiB to 2047MiB, found {bytes} bytes"))
    }
}

/// A list of names.
fn names(value: &Value) -> Result<Vec<String>, String> {
    let Value::List(values) = value else {
        return Err(format!("expected a list of data centers, found {value}"));
    };
    values.iter().map(keys::text).collect()
}
