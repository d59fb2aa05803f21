//! The rows of each view, from the shards' data.

use std::collections::BTreeMap;

use cluster::View;
use cluster::liveness::Liveness;
use cluster::nodes::{NodeRecord, NodeState};
use reactor::Group;
use reactor::metrics::{Sample, Value};
use replication::{PendingHints, Replicator};
use statement::terms::time::parse_timestamp;
use storage::{CompactionStats, SnapshotInfo, TableReport};

use super::super::node::{self, NodeFacts};
use super::super::rows::Rows;
use super::registry::ShardSamples;
use super::{ClientRow, Statements, Views};
use crate::load::{Told, Weights};
use crate::running::RunningRow;

/// Fills a table of `system_views` with the rows of its data; clients come in pieces, by [`client`].
pub(in super::super) fn fill(rows: &mut Rows<'_>, views: &Views, facts: &NodeFacts) {
    if let Views::Rows(make) = views {
        make.0(rows, facts);
    }
}

/// Adds the sizes of tables in MiB, rounded up.
pub(super) fn sizes(rows: &mut Rows<'_>, reports: &[TableReport], bytes: fn(&TableReport) -> u64) {
    for report in reports {
        rows.row(|row| {
            row.text("keyspace_name", &report.keyspace);
            row.text("table_name", &report.name);
            row.bigint("mebibytes", bigint(bytes(report).div_ceil(1 << 20)));
        });
    }
}

/// Adds the latencies of requests in milliseconds, and requests per second. Replica and coordinator have the
/// same figures: a single node waits for no other one.
pub(super) fn latencies(rows: &mut Rows<'_>, loads: &[(TableReport, Told)]) {
    let ms = |nanos: u64| rounded(nanos as f64 / 1e6);
    for (table, told) in loads {
        rows.row(|row| {
            row.text("keyspace_name", &table.keyspace);
            row.text("table_name", &table.name);
            row.bigint("count", bigint(told.count));
            row.double("p50th_ms", ms(told.weights.quantile(0.5)));
            row.double("p99th_ms", ms(told.weights.quantile(0.99)));
            row.double("max_ms", ms(told.weights.max()));
            row.double("per_second", rounded(told.per_second));
        });
    }
}

/// Adds the numbers of rows or tombstones that reads scanned.
pub(super) fn past(rows: &mut Rows<'_>, loads: &[(TableReport, Told)]) {
    for (table, told) in loads {
        rows.row(|row| {
            row.text("keyspace_name", &table.keyspace);
            row.text("table_name", &table.name);
            row.bigint("count", bigint(told.count));
            row.double("p50th", told.weights.quantile(0.5) as f64);
            row.double("p99th", told.weights.quantile(0.99) as f64);
            row.double("max", told.weights.max() as f64);
        });
    }
}

/// Adds a running request. It has not been queued, except on its connection.
pub(super) fn request(rows: &mut Rows<'_>, request: &RunningRow) {
    rows.row(|row| {
        row.text("thread_id", &request.thread);
        row.bigint("queued_micros", 0);
        row.bigint("running_micros", bigint(request.running_us));
        row.text("task", &request.task);
    });
}

/// Adds the numbers of partitions that batches write.
pub(super) fn batches(rows: &mut Rows<'_>, sizes: &[(&'static str, Weights)]) {
    for (name, partitions) in sizes {
        rows.row(|row| {
            row.text("name", name);
            row.double("p50th", partitions.quantile(0.5) as f64);
            row.double("p99th", partitions.quantile(0.99) as f64);
            row.double("p999th", partitions.quantile(0.999) as f64);
            row.bigint("max", bigint(partitions.max()));
        });
    }
}

/// Rounds to three digits after the point, as Cassandra does for such numbers.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Adds for each table the longest time in milliseconds between the first and the last write of one of its
/// files.
pub(super) fn durations(rows: &mut Rows<'_>, reports: &[TableReport]) {
    for report in reports {
        rows.row(|row| {
            row.text("keyspace_name", &report.keyspace);
            row.text("table_name", &report.name);
            row.bigint("max_sstable_duration", bigint(report.timestamps_us_max / 1000));
        });
    }
}

pub(super) fn compaction(rows: &mut Rows<'_>, task: &CompactionStats) {
    rows.row(|row| {
        row.text("keyspace_name", &task.keyspace);
        row.text("table_name", &task.table_name);
        row.timeuuid("task_id", task.id);
        let ratio = if task.total == 0 { 1.0 } else { task.completed as f64 / task.total as f64 };
        row.double("completion_ratio", ratio);
        row.text("kind", &task.kind.name().to_lowercase());
        row.bigint("progress", bigint(task.completed));
        row.int("sstables", int(task.files as u64));
        row.bigint("total", bigint(task.total));
        row.text("unit", "bytes");
    });
}

/// Adds the row of a client.
pub(in super::super) fn client(rows: &mut Rows<'_>, client: &ClientRow) {
    rows.row(|row| {
        row.inet("address", client.address);
        row.int("port", i32::from(client.port));
        row.map(
            "client_options",
            client.options.iter().map(|(name, value)| (name.as_str(), value.as_bytes())),
        );
        row.text("connection_stage", client.stage);
        for (column, option) in [("driver_name", "DRIVER_NAME"), ("driver_version", "DRIVER_VERSION")] {
            if let Some(value) = client.options.get(option) {
                row.text(column, value);
            }
        }
        row.text("hostname", &client.address.to_string());
        if let Some(keyspace) = &client.keyspace {
            row.text("keyspace_name", keyspace);
        }
        row.int("protocol_version", i32::from(client.version));
        row.bigint("request_count", bigint(client.requests));
        row.boolean("ssl_enabled", false);
        row.text("username", &client.user);
    });
}

/// Hints for a node, from all shards.
pub(super) struct WaitingHints {
    pending: PendingHints,
    node: Option<NodeRecord>,
    is_up: bool,
}

/// The sums of the shards' hints, by host.
pub(super) fn waiting(replicator: &Replicator, shards: Vec<PendingHints>) -> Vec<WaitingHints> {
    let mut sums: BTreeMap<[u8; 16], PendingHints> = BTreeMap::new();
    for hints in shards {
        let sum = sums.entry(hints.host_id).or_insert(PendingHints { files: 0, ..hints });
        sum.files += hints.files;
        sum.newest_us = sum.newest_us.max(hints.newest_us);
        sum.oldest_us = sum.oldest_us.min(hints.oldest_us);
    }
    let nodes = replicator.view().nodes();
    let with_node = |pending: PendingHints| {
        let node = nodes.values().find(|node| node.host_id == pending.host_id).cloned();
        let is_up = node.as_ref().is_some_and(|node| replicator.is_up(node.number));
        WaitingHints { pending, node, is_up }
    };
    sums.into_values().map(with_node).collect()
}

pub(super) fn hints(rows: &mut Rows<'_>, waiting: &WaitingHints) {
    let WaitingHints { pending, node, is_up } = waiting;
    rows.row(|row| {
        row.uuid("host_id", pending.host_id);
        row.int("files", int(pending.files));
        row.timestamp("newest", pending.newest_us / 1000);
        row.timestamp("oldest", pending.oldest_us / 1000);
        // Of a node that has left nothing more is known.
        row.text("status", if *is_up { "UP" } else { "DOWN" });
        if let Some(node) = node {
            row.inet("address", node.listen.ip());
            row.int("port", i32::from(node.listen.port()));
            row.text("dc", &node.data_center);
            row.text("rack", &node.rack);
        }
    });
}

pub(super) fn snapshot(rows: &mut Rows<'_>, snapshot: &SnapshotInfo) {
    rows.row(|row| {
        row.text("name", &snapshot.tag);
        row.text("keyspace_name", &snapshot.keyspace);
        row.text("table_name", &snapshot.table);
        for (column, instant) in [("created_at", &snapshot.created_at), ("expires_at", &snapshot.expires_at)]
        {
            if let Some(at) = instant.as_ref().and_then(|text| parse_timestamp(text, 0).ok()) {
                row.timestamp(column, at);
            }
        }
        row.boolean("ephemeral", false);
        row.bigint("size_on_disk", bigint(snapshot.disk_bytes));
        row.bigint("true_size", bigint(snapshot.true_bytes));
    });
}

/// The sum of a metric over all shards.
fn sum(shards: &[ShardSamples], name: &str, group: Option<&str>) -> u64 {
    let wanted = |sample: &&Sample| {
        sample.name == name && group.is_none_or(|group| sample.labels.iter().any(|(_, value)| value == group))
    };
    let samples = shards.iter().flat_map(|(samples, _)| samples).filter(wanted);
    samples
        .map(|sample| match &sample.value {
            Value::Counter(count) => *count,
            Value::Gauge(value) => u64::try_from(*value).unwrap_or(0),
            _ => 0,
        })
        .sum()
}

/// Adds the row cache, which is the only cache.
pub(super) fn row_cache(rows: &mut Rows<'_>, shards: &[ShardSamples]) {
    let sum = |name| sum(shards, name, None);
    let (hits, misses) = (sum("scylla_cache_row_hits"), sum("scylla_cache_row_misses"));
    let requests = hits + misses;
    rows.row(|row| {
        row.text("name", "rows");
        row.bigint("capacity_bytes", bigint(shards.iter().map(|(_, most)| most).sum()));
        row.int("entry_count", int(sum("scylla_cache_rows")));
        row.bigint("hit_count", bigint(hits));
        // Cassandra shows NaN too for a cache without requests.
        row.double("hit_ratio", if requests == 0 { f64::NAN } else { hits as f64 / requests as f64 });
        row.bigint("request_count", bigint(requests));
        row.bigint("size_bytes", bigint(sum("scylla_cache_bytes_total")));
    });
}

/// Scheduling groups stand for thread pools; each shard runs one task at a time.
pub(super) fn groups(rows: &mut Rows<'_>, shards: &[ShardSamples]) {
    for group in Group::all() {
        let sum = |name| sum(shards, name, Some(group.name()));
        rows.row(|row| {
            row.text("name", group.name());
            row.int("active_tasks", 0);
            row.int("active_tasks_limit", int(shards.len() as u64));
            row.bigint("blocked_tasks", 0);
            row.bigint("blocked_tasks_all_time", 0);
            row.bigint("completed_tasks", bigint(sum("scylla_scheduler_tasks_processed")));
            row.int("pending_tasks", int(sum("scylla_scheduler_queue_length")));
        });
    }
}

pub(super) fn statements(rows: &mut Rows<'_>, shards: &[Statements]) {
    let mut ids: Vec<_> = shards.iter().flat_map(|shard| &shard.ids).collect();
    ids.sort_unstable();
    ids.dedup();
    let sum = |of: fn(&Statements) -> u64| shards.iter().map(of).sum::<u64>() as f64;
    let (prepared, regular) = (sum(|shard| shard.prepared), sum(|shard| shard.regular));
    let all = prepared + regular;
    for (name, value) in [
        ("prepared_statements_count", ids.len() as f64),
        ("prepared_statements_evicted", sum(|shard| shard.evicted)),
        ("prepared_statements_executed", prepared),
        ("prepared_statements_ratio", if all == 0.0 { 0.0 } else { prepared / all }),
        ("regular_statements_executed", regular),
    ] {
        rows.row(|row| {
            row.text("name", name);
            row.double("value", value);
        });
    }
}

/// Adds the nodes with what Cassandra's nodes would have heard of each other.
pub(super) fn gossip(rows: &mut Rows<'_>, own: &NodeFacts) {
    let liveness = reactor::local::<Liveness>();
    for of in node::on_ring(&View::here().nodes(), own) {
        let is_own = of.host_id == own.host_id;
        let is_ready = is_own || liveness.as_ref().is_some_and(|liveness| liveness.serves_clients(of.number));
        // A node without a network does not count its starts.
        let generation = if of.generation == 0 { u64::from(own.generation) } else { of.generation };
        let host_id = uuid::Uuid::from_bytes(of.host_id).to_string();
        let token = of.tokens.first().copied().unwrap_or_default();
        let part = if of.state == NodeState::Draining { "LEAVING" } else { "NORMAL" };
        let status = format!("{part},{token}");
        let listen = of.listen.ip().to_string();
        rows.row(|row| {
            row.inet("address", of.listen.ip());
            row.int("port", i32::from(of.listen.port()));
            row.text("hostname", &listen);
            row.int("generation", int(generation));
            row.int("heartbeat", 0);
            for (column, value) in [
                ("dc", of.data_center.as_str()),
                ("rack", &of.rack),
                ("host_id", &host_id),
                ("internal_ip", &listen),
                ("internal_address_and_port", &of.listen.to_string()),
                ("rpc_address", &of.native.ip().to_string()),
                ("native_address_and_port", &of.native.to_string()),
                ("release_version", node::RELEASE_VERSION),
                ("rpc_ready", if is_ready { "true" } else { "false" }),
                ("sstable_versions", "big-me"),
                ("status", &status),
                ("status_with_port", &status),
            ] {
                row.text(column, value);
            }
        });
    }
}

fn bigint(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn int(value: u64) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}
