//! The keys that have an effect: the name, the parser of the value, and the field that it sets.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use cql::SameNames;
use reactor::log::Level;

use super::value::Value;
use super::{Config, Driver, admin, guardrails, hints, topology};

pub(super) type Setter = fn(&mut Config, &Value) -> Result<(), String>;

/// The setter of a key; `None` for a key without effect here.
pub(super) fn setter(key: &str) -> Option<Setter> {
    all().find(|(name, _)| *name == key).map(|(_, set)| *set)
}

/// The names of all keys that have an effect.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    all().map(|(name, _)| *name)
}

fn all() -> impl Iterator<Item = &'static (&'static str, Setter)> {
    SETTERS
        .iter()
        .chain(guardrails::SETTERS)
        .chain(admin::SETTERS)
        .chain(topology::SETTERS)
        .chain(hints::SETTERS)
}

const SETTERS: &[(&str, Setter)] = &[
    ("cluster_name", |c, v| text(v).map(|v| c.cluster_name = v)),
    ("data_center", |c, v| text(v).map(|v| c.data_center = v)),
    ("rack", |c, v| text(v).map(|v| c.rack = v)),
    ("workdir", |c, v| path(v).map(|v| c.workdir = v)),
    ("data_file_directories", |c, v| one_path(v).map(|v| c.data_dir = Some(v))),
    ("commitlog_directory", |c, v| path(v).map(|v| c.commitlog_dir = Some(v))),
    ("rpc_address", |c, v| address(v).map(|v| c.rpc_address = v)),
    ("broadcast_rpc_address", |c, v| address(v).map(|v| c.broadcast_rpc_address = Some(v))),
    ("listen_address", |c, v| address(v).map(|v| c.listen_address = Some(v))),
    ("storage_port", |c, v| port(v).map(|v| c.storage_port = v)),
    ("native_transport_port", |c, v| port(v).map(|v| c.native_port = v)),
    ("native_shard_aware_transport_port", |c, v| port(v).map(|v| c.shard_aware_port = Some(v))),
    ("native_transport_max_frame_size", |c, v| frame_bytes(size(v)?).map(|v| c.frame_bytes_max = v)),
    ("native_transport_max_frame_size_in_mb", |c, v| {
        frame_bytes(count(v, 1, 256)? << 20).map(|v| c.frame_bytes_max = v)
    }),
    ("native_transport_max_concurrent_connections", |c, v| optional_limit(v).map(|v| c.connections_max = v)),
    ("native_transport_max_concurrent_connections_per_ip", |c, v| {
        optional_limit(v).map(|v| c.connections_per_ip_max = v)
    }),
    ("native_transport_timeout", |c, v| duration(v).map(|v| c.native_timeout = v)),
    ("native_transport_max_requests_per_connection", |c, v| {
        limit(v).map(|v| c.requests_per_connection_max = v)
    }),
    ("max_concurrent_requests_per_shard", |c, v| limit(v).map(|v| c.requests_per_shard_max = v)),
    ("native_transport_max_concurrent_requests_in_bytes", |c, v| {
        limit(v).map(|v| c.request_bytes_per_shard_max = v)
    }),
    ("native_transport_max_request_data_in_flight", |c, v| {
        size(v).map(|v| c.request_bytes_per_shard_max = v as usize)
    }),
    ("commitlog_sync", |c, v| {
        choice(v, &[("periodic", false), ("batch", true)]).map(|v| c.commitlog_batch = v)
    }),
    ("commitlog_sync_period", |c, v| duration(v).map(|v| c.commitlog_sync_period = v)),
    ("commitlog_sync_period_in_ms", |c, v| milliseconds(v).map(|v| c.commitlog_sync_period = v)),
    ("commitlog_segment_size", |c, v| segment_bytes(size(v)?).map(|v| c.commitlog_segment_bytes = v)),
    ("commitlog_segment_size_in_mb", |c, v| {
        segment_bytes(count(v, 1, 2047)? << 20).map(|v| c.commitlog_segment_bytes = v)
    }),
    ("max_mutation_size", |c, v| mutation_bytes(size(v)?).map(|v| c.mutation_bytes_max = Some(v))),
    ("max_mutation_size_in_kb", |c, v| {
        mutation_bytes(count(v, 1, 1 << 21)? << 10).map(|v| c.mutation_bytes_max = Some(v))
    }),
    ("commitlog_total_space", |c, v| size(v).map(|v| c.commitlog_bytes_max = Some(v))),
    ("commitlog_total_space_in_mb", |c, v| {
        // ScyllaDB's file has -1, which leaves it to the node.
        if matches!(v, Value::Integer(-1)) {
            c.commitlog_bytes_max = None;
            return Ok(());
        }
        count(v, 1, 1 << 40).map(|v| c.commitlog_bytes_max = Some(v << 20))
    }),
    ("commitlog_replay_ignore_errors", |c, v| flag(v).map(|v| c.commitlog_replay_ignore_errors = v)),
    ("sstable_summary_ratio", |c, v| ratio(v).map(|v| c.sstable_summary_ratio = v)),
    ("components_memory_reclaim_threshold", |c, v| ratio(v).map(|v| c.components_share = v)),
    ("column_index_size", |c, v| index_bytes(size(v)?).map(|v| c.column_index_bytes = v)),
    ("column_index_size_in_kb", |c, v| {
        index_bytes(count(v, 1, 1 << 20)? << 10).map(|v| c.column_index_bytes = v)
    }),
    ("memtable_total_space", |c, v| size(v).map(|v| c.memtable_bytes = Some(v))),
    ("memtable_total_space_in_mb", |c, v| count(v, 1, 1 << 40).map(|v| c.memtable_bytes = Some(v << 20))),
    ("compaction_throughput", |c, v| rate(v).map(|v| c.compaction_bytes_per_second = v)),
    ("compaction_throughput_mb_per_sec", |c, v| {
        count(v, 0, 1 << 30).map(|v| c.compaction_bytes_per_second = v << 20)
    }),
    ("compaction_static_shares", |c, v| count(v, 0, 1 << 20).map(|v| c.compaction_static_shares = v as u32)),
    ("concurrent_compactors", |c, v| {
        count(v, 1, 1 << 10).map(|v| c.concurrent_compactors = Some(v as usize))
    }),
    ("read_request_timeout", |c, v| duration(v).map(|v| c.read_timeout = v)),
    ("read_request_timeout_in_ms", |c, v| milliseconds(v).map(|v| c.read_timeout = v)),
    ("range_request_timeout", |c, v| duration(v).map(|v| c.range_timeout = v)),
    ("range_request_timeout_in_ms", |c, v| milliseconds(v).map(|v| c.range_timeout = v)),
    ("write_request_timeout", |c, v| duration(v).map(|v| c.write_timeout = v)),
    ("write_request_timeout_in_ms", |c, v| milliseconds(v).map(|v| c.write_timeout = v)),
    ("cas_contention_timeout", |c, v| duration(v).map(|v| c.cas_contention_timeout = v)),
    ("user_defined_functions_warn_timeout", |c, v| period(v).map(|v| c.user_function_times.warn = v)),
    ("user_defined_function_warn_timeout", |c, v| milliseconds(v).map(|v| c.user_function_times.warn = v)),
    ("user_defined_functions_fail_timeout", |c, v| duration(v).map(|v| c.user_function_times.fail = v)),
    ("user_defined_function_fail_timeout", |c, v| milliseconds(v).map(|v| c.user_function_times.fail = v)),
    ("cas_contention_timeout_in_ms", |c, v| milliseconds(v).map(|v| c.cas_contention_timeout = v)),
    ("truncate_request_timeout", |c, v| duration(v).map(|v| c.truncate_timeout = v)),
    ("truncate_request_timeout_in_ms", |c, v| milliseconds(v).map(|v| c.truncate_timeout = v)),
    ("request_timeout", |c, v| duration(v).map(|v| c.request_timeout = v)),
    ("request_timeout_in_ms", |c, v| milliseconds(v).map(|v| c.request_timeout = v)),
    ("smp", |c, v| count(v, 1, 1024).map(|v| c.shards = Some(v as usize))),
    ("memory", |c, v| size(v).map(|v| c.memory_bytes = Some(v))),
    ("developer_mode", |c, v| flag(v).map(|v| c.developer_mode = v)),
    ("overprovisioned", |c, v| flag(v).map(|v| c.overprovisioned = v)),
    ("ignore_authentication", |c, v| flag(v).map(|v| c.ignores_authentication = v)),
    ("ignore_encryption", |c, v| flag(v).map(|v| c.ignores_encryption = v)),
    ("ignore_audit", |c, v| flag(v).map(|v| c.ignores_audit = v)),
    ("reactor_spin_us", |c, v| count(v, 0, 100_000).map(|v| c.spin_us = v as u32)),
    ("saved_caches_directory", |c, v| path(v).map(|v| c.saved_caches_dir = Some(v))),
    ("row_cache_save_period", |c, v| period(v).map(|v| c.cache_save_period = v)),
    ("row_cache_keys_to_save", |c, v| count(v, 0, 100_000_000).map(|v| c.cache_keys_to_save = v as usize)),
    ("cql_duplicate_bind_variable_names_refer_to_same_variable", |c, v| {
        flag(v).map(|same| c.markers.same_names = if same { SameNames::One } else { SameNames::Apart })
    }),
    ("cql_in_bind_variable_name_uses_uppercase_operator", |c, v| flag(v).map(|v| c.markers.uppercase_in = v)),
    ("alternator_ttl_period_in_seconds", |c, v| period(v).map(|v| c.row_expiry_period = v)),
    ("io_properties_file", |c, v| path(v).map(|v| c.io_properties_file = Some(v))),
    ("blocked_reactor_notify_ms", |c, v| {
        count(v, 0, 3_600_000).map(|ms| c.blocked_reactor_notify = Duration::from_millis(ms))
    }),
    ("blocked_reactor_reports_per_minute", |c, v| {
        count(v, 0, 1_000_000).map(|n| c.blocked_reactor_reports_per_minute = n as u32)
    }),
    ("shutdown_timeout", |c, v| period(v).map(|v| c.shutdown_timeout = v)),
    ("reactor_driver", |c, v| {
        choice(v, &[("auto", Driver::Auto), ("uring", Driver::Uring), ("poll", Driver::Poll)])
            .map(|v| c.driver = v)
    }),
    ("slow_query_log_timeout", |c, v| period(v).map(|v| c.admin.slow_query_log_timeout = unless_zero(v))),
    ("slow_query_log_timeout_in_ms", |c, v| {
        count(v, 0, 1 << 40).map(|ms| c.admin.slow_query_log_timeout = unless_zero(Duration::from_millis(ms)))
    }),
    ("log_format", |c, v| choice(v, &[("text", false), ("json", true)]).map(|v| c.admin.log_is_json = v)),
    ("default_log_level", |c, v| {
        let levels =
            [("error", Level::Error), ("warn", Level::Warn), ("info", Level::Info), ("debug", Level::Debug)];
        choice(v, &levels).map(|v| c.log_level = v)
    }),
];

/// The meaning of one of the given words.
pub(super) fn choice<T: Copy>(value: &Value, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(word, _)| matches!(value, Value::Text(text) if text == word));
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let words: Vec<String> = words.iter().map(|(word, _)| format!("'{word}'")).collect();
        format!("expected {}, found {value}", words.join(" or "))
    })
}

pub(super) fn text(value: &Value) -> Result<String, String> {
    match value {
        Value::Text(text) if !text.is_empty() => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        _ => Err(format!("expected a text, found {value}")),
    }
}

pub(super) fn path(value: &Value) -> Result<PathBuf, String> {
    match value {
        Value::Text(text) if !text.is_empty() => Ok(PathBuf::from(text)),
        _ => Err(format!("expected a path, found {value}")),
    }
}

fn one_path(value: &Value) -> Result<PathBuf, String> {
    match value {
        Value::List(paths) if paths.len() == 1 => path(&paths[0]),
        Value::List(paths) => {
            Err(format!("expected one directory, found {}; several are not supported yet", paths.len()))
        }
        _ => path(value),
    }
}

pub(super) fn address(value: &Value) -> Result<IpAddr, String> {
    match value {
        Value::Text(text) => parse_address(text),
        value => Err(format!("expected an IP address or localhost, found {value}")),
    }
}

/// An address as written on the command line and in the file.
pub(crate) fn parse_address(text: &str) -> Result<IpAddr, String> {
    if text == "localhost" {
        return Ok(IpAddr::from([127, 0, 0, 1]));
    }
    text.parse().map_err(|_| format!("expected an IP address or localhost, found '{text}'"))
}

pub(super) fn flag(value: &Value) -> Result<bool, String> {
    match value {
        Value::Bool(flag) => Ok(*flag),
        Value::Text(text) if ["yes", "on"].contains(&text.as_str()) => Ok(true),
        Value::Text(text) if ["no", "off"].contains(&text.as_str()) => Ok(false),
        _ => Err(format!("expected true or false, found {value}")),
    }
}

pub(super) fn count(value: &Value, least: u64, most: u64) -> Result<u64, String> {
    match value {
        Value::Integer(number) => u64::try_from(*number).ok().filter(|n| (least..=most).contains(n)),
        _ => None,
    }
    .ok_or_else(|| format!("expected a whole number from {least} to {most}, found {value}"))
}

/// A count, or −1 for no limit, as in `cassandra.yaml`.
fn limit(value: &Value) -> Result<usize, String> {
    if *value == Value::Integer(-1) { Ok(usize::MAX) } else { count(value, 1, 1 << 40).map(|n| n as usize) }
}

/// A limit, or -1 for none.
fn optional_limit(value: &Value) -> Result<Option<usize>, String> {
    limit(value).map(|limit| (limit != usize::MAX).then_some(limit))
}

pub(super) fn port(value: &Value) -> Result<u16, String> {
    match value {
        Value::Integer(number) => u16::try_from(*number).ok().filter(|port| *port != 0),
        _ => None,
    }
    .ok_or_else(|| format!("expected a port, 1 to 65535, found {value}"))
}

pub(super) fn duration(value: &Value) -> Result<Duration, String> {
    match value {
        Value::Text(text) => parse_duration(text).filter(|duration| !duration.is_zero()),
        _ => None,
    }
    .ok_or_else(|| format!("expected a duration such as 5000ms or 10s, found {value}"))
}

/// A duration that may be zero; a bare number is in seconds, as in old `cassandra.yaml` files.
fn period(value: &Value) -> Result<Duration, String> {
    match value {
        Value::Text(text) => parse_duration(text),
        Value::Integer(seconds) => u64::try_from(*seconds).ok().map(Duration::from_secs),
        _ => None,
    }
    .ok_or_else(|| format!("expected a duration such as 10m or 0s, found {value}"))
}

/// A limit for which zero means that there is none.
fn unless_zero(duration: Duration) -> Option<Duration> {
    (!duration.is_zero()).then_some(duration)
}

fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let unit_ms = match text[digits..].trim() {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.checked_mul(unit_ms).map(Duration::from_millis)
}

/// A number from 0 to 1.
fn ratio(value: &Value) -> Result<f64, String> {
    match value {
        Value::Integer(number @ 0..=1) => Ok(*number as f64),
        Value::Float(number) if (0.0..=1.0).contains(number) => Ok(*number),
        _ => Err(format!("expected a number from 0 to 1, found {value}")),
    }
}

/// Bytes between entries of a partition's index.
fn index_bytes(bytes: u64) -> Result<u32, String> {
    u32::try_from(bytes)
        .ok()
        .filter(|bytes| (1 << 10..=1 << 30).contains(bytes))
        .ok_or_else(|| format!("expected from 1KiB to 1GiB, found {bytes} bytes"))
}

pub(super) fn milliseconds(value: &Value) -> Result<Duration, String> {
    count(value, 1, 1 << 40).map(Duration::from_millis)
}

/// A size in bytes, such as `32MiB`, `512M` or `1024`; see [`parse_size`].
pub(super) fn size(value: &Value) -> Result<u64, String> {
    match value {
        Value::Integer(number) => u64::try_from(*number).ok().filter(|bytes| *bytes > 0),
        Value::Text(text) => parse_size(text),
        _ => None,
    }
    .ok_or_else(|| format!("expected a size such as 32MiB, found {value}"))
}

/// Bytes per second, such as `64MiB/s`; 0 for no limit.
pub(super) fn rate(value: &Value) -> Result<u64, String> {
    let bytes = match value {
        Value::Integer(0) => Some(0),
        Value::Text(text) => text.trim().strip_suffix("/s").and_then(|size| {
            let size = size.trim();
            if size.trim_end_matches(char::is_alphabetic) == "0" { Some(0) } else { parse_size(size) }
        }),
        _ => None,
    };
    bytes.ok_or_else(|| format!("expected a rate such as 64MiB/s, found {value}"))
}

/// Bytes of a number with a unit: B, K/KiB, M/MiB, G/GiB or T/TiB; a bare number is in bytes. `None` for 0.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let shift = match text[digits..].trim() {
        "" | "B" => 0,
        "K" | "k" | "KiB" => 10,
        "M" | "m" | "MiB" => 20,
        "G" | "g" | "GiB" => 30,
        "T" | "t" | "TiB" => 40,
        _ => return None,
    };
    number.checked_mul(1 << shift).filter(|bytes| *bytes > 0)
}

fn frame_bytes(bytes: u64) -> Result<usize, String> {
    if (1 << 10..=256 << 20).contains(&bytes) {
        Ok(bytes as usize)
    } else {
        Err(format!("expected 1KiB to 256MiB, found {bytes} bytes"))
    }
}

fn mutation_bytes(bytes: u64) -> Result<u64, String> {
    if (1 << 10..=2047 << 20).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(format!("expected 1KiB to 2047MiB, found {bytes} bytes"))
    }
}

fn segment_bytes(bytes: u64) -> Result<u64, String> {
    if (1 << 20..=2047 << 20).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(format!("expected 1MiB to 2047MiB, found {bytes} bytes"))
    }
}
