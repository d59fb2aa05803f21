//! The metrics of every shard, and on shard 0 those of the whole node: its version and mode, its process, and
//! its part in group 0.
//!
//! They are taken at each scrape. Those of the process have the names of Prometheus's client libraries, which
//! dashboards and alerts of any program use. What the kernel does not tell is left out.

use std::time::Duration;

use cluster::ControlPlane;
use cluster::consensus::Role;
use cluster::group0::Group0;
use reactor::metrics::{Sample, Value};
use reactor::{Group, mesh};

use super::error::ApiError;
use super::node::{Mode, NodeState};
use super::storage_samples;
use crate::boot::Shard;

/// Most bytes of a file of `/proc/self`; each takes about one and a half kilobytes.
const PROC_BYTES_MAX: usize = 64 << 10;
/// The unit of times in `/proc/self/stat`, on every Linux: USER_HZ is 100.
const TICK_MS: u64 = 10;

/// How much is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    Everything,
    /// Neither single tables nor the kernel's files on the process.
    Shards,
}

/// The metrics of every shard whose names `is_wanted` accepts.
pub(super) async fn of_every_shard(
    extent: Extent,
    is_wanted: fn(&str) -> bool,
) -> Result<Vec<Vec<Sample>>, ApiError> {
    let of_wanted = move || async move {
        let mut samples = of_shard(extent).await;
        samples.retain(|sample| is_wanted(&sample.name));
        samples
    };
    let calls: Vec<_> =
        (0..reactor::shard_count()).map(|shard| mesh::call(shard, Group::ADMIN, of_wanted)).collect();
    let mut all = Vec::new();
    for call in calls {
        all.push(call.await.map_err(ApiError::failed)?);
    }
    Ok(all)
}

async fn of_shard(extent: Extent) -> Vec<Sample> {
    if let Some(shard) = reactor::local::<Shard>() {
        shard.native.settle_metrics().await;
    }
    let mut samples = reactor::metrics::collect().await;
    if let Some(shard) = reactor::local::<Shard>() {
        if extent == Extent::Shards {
            samples.extend(storage_samples::of_shard(&shard));
            return samples;
        }
        samples.extend(storage_samples::all(&shard).await);
        if reactor::shard_id() == 0 {
            samples.extend(of_node().await);
        }
    }
    samples
}

async fn of_node() -> Vec<Sample> {
    let version = ("version".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    let node = NodeState::here().ok();
    let mode = node.as_ref().map_or(Mode::Starting, |node| node.mode.get());
    let mut samples = vec![
        Sample {
            labels: vec![version],
            ..sample("scylla_scylladb_current_version", "The version that runs.", Value::Gauge(0))
        },
        sample(
            "scylla_node_operation_mode",
            "1 starting, 3 normal, 6 draining, 7 drained.",
            Value::Gauge(mode.number()),
        ),
    ];
    if let Some(node) = node {
        let help = "Unix time in seconds at which the node began to serve.";
        samples.push(sample("process_start_time_seconds", help, Value::Gauge(node.generation)));
    }
    if let Some(bytes) = read("status").await.as_deref().and_then(resident_bytes) {
        let help = "Bytes of memory that the process has of the machine.";
        samples.push(sample("process_resident_memory_bytes", help, gauge(bytes)));
    }
    if let Some(time) = read("stat").await.as_deref().and_then(processor_time) {
        let help = "Processor time of all threads.";
        samples.push(sample("process_cpu_seconds_total", help, Value::Seconds(time)));
    }
    if let Some(control) = ControlPlane::here() {
        append_group0(&control.group(), &mut samples);
    }
    samples
}

fn append_group0(group: &Group0, samples: &mut Vec<Sample>) {
    let status = group.status();
    for (name, help, level) in [
        (
            "ceto_raft_is_leader",
            "1 on the node that leads group 0, else 0.",
            u64::from(status.role == Role::Leader),
        ),
        (
            "ceto_raft_knows_leader",
            "1 while the node knows a leader of group 0, else 0.",
            u64::from(status.leader.is_some()),
        ),
        ("ceto_raft_term", "The term of group 0, which grows with each election.", status.term),
        ("ceto_raft_last_index", "Index of the last entry in this node's log of group 0.", status.last),
        ("ceto_raft_committed_index", "Index of the last committed entry of group 0.", status.committed),
        ("ceto_raft_applied_index", "Index of the last applied entry of group 0.", group.applied()),
    ] {
        samples.push(sample(name, help, gauge(level)));
    }
}

fn sample(name: &str, help: &str, value: Value) -> Sample {
    Sample { name: name.to_owned(), help: help.to_owned(), labels: Vec::new(), value }
}

fn gauge(level: u64) -> Value {
    Value::Gauge(i64::try_from(level).unwrap_or(i64::MAX))
}

async fn read(name: &str) -> Option<String> {
    let content = reactor::file::read_all(format!("/proc/self/{name}"), PROC_BYTES_MAX).await.ok()?;
    String::from_utf8(content).ok()
}

/// The line `VmRSS:` of `/proc/self/status`, proc(5).
fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// User and system time, fields 14 and 15 of `/proc/self/stat`, proc(5). The name in field 2 may have spaces
/// and parentheses, so fields are counted from its end.
fn processor_time(stat: &str) -> Option<Duration> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    let (user, system) = (ticks()?, ticks()?);
    Some(Duration::from_millis(user.checked_add(system)?.checked_mul(TICK_MS)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_words_are_understood() {
        let status = "Name:\tceto\nVmHWM:\t  80000 kB\nVmRSS:\t   65536 kB\nThreads:\t5\n";
        assert_eq!(resident_bytes(status), Some(64 << 20));
        assert_eq!(resident_bytes("Name:\tceto\n"), None);
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 3 0 250 50 9 9 20 0 5 0 100 1 2";
        assert_eq!(processor_time(stat), Some(Duration::from_secs(3)));
        assert_eq!(processor_time("7 (ceto) S 1 2"), None);
    }
}
