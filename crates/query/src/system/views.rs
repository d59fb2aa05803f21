//! `system_views`: what the node does at the moment, asked of all shards when it is read.
//!
//! `Views::load` asks for no more than the one table needs; `fill` makes rows of it, with Cassandra 5.0.6's columns, kinds
//! and units. What this node does not measure has no rows; docs/compatibility.md lists it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;

use model::Token;
use model::token::murmur3_token;
use reactor::metrics::{Sample, Value};
use reactor::{Group, mesh};
use storage::{CompactionStats, LargeDataOf, SnapshotInfo, SnapshotsOf, TableReport};

use super::node::{self, NodeFacts};
use super::rows::Rows;
use crate::load::{Of, Told, Weights};
use crate::prepared_cache::StatementId;
use crate::running::RunningRow;
use crate::terms::time::parse_timestamp;
use crate::{Engine, QueryError};

/// Clients whose rows are made before others have their turn: there may be tens of thousands, all of one address.
pub(super) const CLIENTS_PER_PIECE: usize = 64;

/// A connected client, for `system_views.clients`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientRow {
    /// Where it connected from.
    pub address: IpAddr,
    /// Its port there.
    pub port: u16,
    /// How far it has come: `established`, `authenticating` or `ready`.
    pub stage: &'static str,
    /// Version of the protocol it speaks.
    pub version: u8,
    /// What it said in STARTUP, by name.
    pub options: BTreeMap<String, String>,
    /// Requests it has sent.
    pub requests: u64,
    /// The keyspace it uses.
    pub keyspace: Option<String>,
    /// Who is logged in.
    pub user: String,
}

/// Statements of one shard, for `system_views.cql_metrics`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Statements {
    ids: Vec<StatementId>,
    evicted: u64,
    prepared: u64,
    regular: u64,
}

/// What a table of `system_views` is made of.
#[derive(Debug, Default)]
pub(crate) enum Views {
    /// The node's settings, or nothing.
    #[default]
    Nothing,
    /// Reports of all tables.
    Reports(Vec<TableReport>),
    /// Compactions at work.
    Compactions(Vec<CompactionStats>),
    /// Clients, in the order of their rows.
    Clients(Vec<ClientRow>),
    /// Snapshots.
    Snapshots(Vec<SnapshotInfo>),
    /// Metrics of each shard, and what its memory may hold in bytes.
    Samples(Vec<(Vec<Sample>, u64)>),
    /// Statements of each shard.
    Statements(Vec<Statements>),
    /// What each table is asked for.
    Loads(Vec<(TableReport, Told)>),
    /// Sizes of batches, by name.
    Batches(Vec<(&'static str, Weights)>),
    /// Requests that run.
    Running(Vec<RunningRow>),
    /// Names of settings and their values.
    Settings(Vec<(String, String)>),
    /// What is large in table files, for tables of `system`.
    LargeData(Vec<LargeDataOf>),
}

impl Views {
    /// Asks the shards for what `table` of `system_views` shows.
    ///
    /// # Errors
    /// [`QueryError::Internal`] where a shard does not answer; those of listing snapshots.
    pub(super) async fn load(engine: &Engine, table: &str) -> Result<Self, QueryError> {
        Ok(match table {
            "disk_usage" | "max_partition_size" | "max_sstable_duration" | "max_sstable_size" => {
                Self::Reports(reports(engine).await?.into_values().collect())
            }
            "coordinator_read_latency" | "local_read_latency" => Self::loads(engine, Of::Reads).await?,
            "coordinator_scan_latency" | "local_scan_latency" => Self::loads(engine, Of::Scans).await?,
            "coordinator_write_latency" | "local_write_latency" => Self::loads(engine, Of::Writes).await?,
            "rows_per_read" => Self::loads(engine, Of::Rows).await?,
            "tombstones_per_read" => Self::loads(engine, Of::Tombstones).await?,
            "queries" => {
                let mut rows = Vec::new();
                for shard in 0..engine.config().shards {
                    rows.extend(of_shard(shard, async |engine| engine.running_rows().await).await?);
                }
                Self::Running(rows)
            }
            "batch_metrics" => {
                let shards = each_shard(engine, |engine| engine.loads().batches.told()).await?;
                let mut sums: Vec<(&'static str, Weights)> = Vec::new();
                for (at, (name, weights)) in
                    shards.into_iter().flat_map(|shard| shard.into_iter().enumerate())
                {
                    match sums.get_mut(at) {
                        Some((_, sum)) => sum.add(&weights),
                        None => sums.push((name, weights)),
                    }
                }
                Self::Batches(sums)
            }
            "sstable_tasks" => {
                let tasks = each_shard(engine, |engine| engine.storage().compactions()).await?;
                Self::Compactions(tasks.into_iter().flatten().collect())
            }
            "clients" => {
                let mut sorted = BTreeMap::new();
                for shard in 0..engine.config().shards {
                    for client in of_shard(shard, async |engine| engine.clients().await).await? {
                        sorted.insert(place_of_client(&client), client);
                        if sorted.len() % CLIENTS_PER_PIECE == 0 {
                            reactor::maybe_yield().await;
                        }
                    }
                }
                Self::Clients(sorted.into_values().collect())
            }
            "snapshots" => Self::Snapshots(engine.storage().snapshots(&SnapshotsOf::default()).await?),
            "caches" | "thread_pools" => Self::Samples(
                each_shard(engine, |engine| {
                    (reactor::metrics::snapshot(), engine.storage().stats().memory_bytes_max as u64)
                })
                .await?,
            ),
            "cql_metrics" => Self::Statements(
                each_shard(engine, |engine| {
                    let (prepared, regular) = engine.executed();
                    Statements {
                        ids: engine.prepared().ids(),
                        evicted: engine.prepared().evicted(),
                        prepared,
                        regular,
                    }
                })
                .await?,
            ),
            "settings" => Self::Settings(engine.config().settings.clone()),
            _ => Self::Nothing,
        })
    }
}

impl Views {
    /// What is large in the table files of all shards.
    ///
    /// # Errors
    /// As [`Views::load`].
    pub(super) async fn large_data(engine: &Engine) -> Result<Self, QueryError> {
        let mut files = Vec::new();
        for shard in 0..engine.config().shards {
            files.extend(of_shard(shard, async |engine| engine.storage().large_data().await).await?);
        }
        Ok(Self::LargeData(files))
    }

    /// What all shards tell of one kind of request.
    async fn loads(engine: &Engine, of: Of) -> Result<Self, QueryError> {
        let mut sums: BTreeMap<[u8; 16], Told> = BTreeMap::new();
        for shard in 0..engine.config().shards {
            for (id, told) in of_shard(shard, async move |engine| engine.told(of).await).await? {
                sums.entry(id.0).or_default().add(&told);
            }
        }
        let tables = reports(engine).await?.into_values();
        Ok(Self::Loads(
            tables
                .map(|table| {
                    let told = sums.remove(&table.id).unwrap_or_default();
                    (table, told)
                })
                .collect(),
        ))
    }
}

/// Reports of all tables, the shards' added up.
async fn reports(engine: &Engine) -> Result<BTreeMap<[u8; 16], TableReport>, QueryError> {
    let mut tables: BTreeMap<[u8; 16], TableReport> = BTreeMap::new();
    for shard in 0..engine.config().shards {
        for report in of_shard(shard, async |engine| engine.storage().report().await).await? {
            tables.entry(report.id).and_modify(|sum| sum.add(&report)).or_insert(report);
        }
    }
    Ok(tables)
}

/// Asks one shard.
async fn of_shard<T: Send + 'static>(
    shard: usize,
    ask: impl AsyncFnOnce(Rc<Engine>) -> T + Send + 'static,
) -> Result<T, QueryError> {
    let asked = mesh::call(shard, Group::ADMIN, move || async move {
        match Engine::here() {
            Some(engine) => Some(ask(engine).await),
            None => None,
        }
    });
    let answer = asked.await.map_err(|error| QueryError::Internal(error.to_string()))?;
    answer.ok_or_else(|| QueryError::NotReady(format!("shard {shard} has not started")))
}

/// Where the row of a client stands among the others: the token of its partition, the partition, its port.
fn place_of_client(client: &ClientRow) -> (Token, Vec<u8>, u16) {
    let address = match client.address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    (murmur3_token(&address), address, client.port)
}

async fn each_shard<T: Send + 'static>(engine: &Engine, ask: fn(&Engine) -> T) -> Result<Vec<T>, QueryError> {
    let mut answers = Vec::with_capacity(engine.config().shards);
    for shard in 0..engine.config().shards {
        answers.push(of_shard(shard, async move |engine| ask(&engine)).await?);
    }
    Ok(answers)
}

/// Fills a table of `system_views`.
pub(super) fn fill(rows: &mut Rows<'_>, table: &str, views: &Views, facts: &NodeFacts) {
    match (table, views) {
        ("settings", Views::Settings(settings)) => node::settings(rows, facts, settings),
        ("gossip_info", _) => gossip(rows, facts),
        ("disk_usage", Views::Reports(reports)) => sizes(rows, reports, |report| report.file_bytes),
        ("max_partition_size", Views::Reports(reports)) => {
            sizes(rows, reports, |report| report.partition_bytes_max);
        }
        ("max_sstable_duration", Views::Reports(reports)) => durations(rows, reports),
        ("max_sstable_size", Views::Reports(reports)) => sizes(rows, reports, |report| report.file_bytes_max),
        ("sstable_tasks", Views::Compactions(tasks)) => tasks.iter().for_each(|task| compaction(rows, task)),
        ("snapshots", Views::Snapshots(snapshots)) => snapshots.iter().for_each(|one| snapshot(rows, one)),
        ("caches", Views::Samples(shards)) => row_cache(rows, shards),
        ("thread_pools", Views::Samples(shards)) => groups(rows, shards),
        ("cql_metrics", Views::Statements(shards)) => statements(rows, shards),
        ("rows_per_read" | "tombstones_per_read", Views::Loads(loads)) => past(rows, loads),
        (_, Views::Loads(loads)) => latencies(rows, loads),
        ("queries", Views::Running(requests)) => requests.iter().for_each(|one| request(rows, one)),
        ("batch_metrics", Views::Batches(sizes)) => batches(rows, sizes),
        // What the others would tell of has not happened on this node, or is not measured.
        _ => {}
    }
}

/// Sizes in MiB, rounded up.
fn sizes(rows: &mut Rows<'_>, reports: &[TableReport], bytes: fn(&TableReport) -> u64) {
    for report in reports {
        rows.row(|row| {
            row.text("keyspace_name", &report.keyspace);
            row.text("table_name", &report.name);
            row.bigint("mebibytes", bigint(bytes(report).div_ceil(1 << 20)));
        });
    }
}

/// Milliseconds that requests took, and requests a second. What a replica takes is not told apart from what the
/// coordinator does: on one node there is nobody else to wait for.
fn latencies(rows: &mut Rows<'_>, loads: &[(TableReport, Told)]) {
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

/// Rows or tombstones that each read went past.
fn past(rows: &mut Rows<'_>, loads: &[(TableReport, Told)]) {
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

/// A request that runs; it has waited for nothing before, but for what its connection waited.
fn request(rows: &mut Rows<'_>, request: &RunningRow) {
    rows.row(|row| {
        row.text("thread_id", &request.thread);
        row.bigint("queued_micros", 0);
        row.bigint("running_micros", bigint(request.running_us));
        row.text("task", &request.task);
    });
}

/// Partitions that each batch writes.
fn batches(rows: &mut Rows<'_>, sizes: &[(&'static str, Weights)]) {
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

/// To three digits, as Cassandra shows such numbers.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Milliseconds between the first and the last write of a table file, of each table the most.
fn durations(rows: &mut Rows<'_>, reports: &[TableReport]) {
    for report in reports {
        rows.row(|row| {
            row.text("keyspace_name", &report.keyspace);
            row.text("table_name", &report.name);
            row.bigint("max_sstable_duration", bigint(report.timestamps_us_max / 1000));
        });
    }
}

fn compaction(rows: &mut Rows<'_>, task: &CompactionStats) {
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
pub(super) fn client(rows: &mut Rows<'_>, client: &ClientRow) {
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

fn snapshot(rows: &mut Rows<'_>, snapshot: &SnapshotInfo) {
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
fn sum(shards: &[(Vec<Sample>, u64)], name: &str, group: Option<&str>) -> u64 {
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

/// The one cache there is: rows.
fn row_cache(rows: &mut Rows<'_>, shards: &[(Vec<Sample>, u64)]) {
    let sum = |name| sum(shards, name, None);
    let (hits, misses) = (sum("scylla_cache_row_hits"), sum("scylla_cache_row_misses"));
    let requests = hits + misses;
    rows.row(|row| {
        row.text("name", "rows");
        row.bigint("capacity_bytes", bigint(shards.iter().map(|(_, most)| most).sum()));
        row.int("entry_count", int(sum("scylla_cache_rows")));
        row.bigint("hit_count", bigint(hits));
        // As Cassandra shows the ratio of a cache that was never asked.
        row.double("hit_ratio", if requests == 0 { f64::NAN } else { hits as f64 / requests as f64 });
        row.bigint("request_count", bigint(requests));
        row.bigint("size_bytes", bigint(sum("scylla_cache_bytes_total")));
    });
}

/// Scheduling groups are what pools of threads are elsewhere: each shard runs one task at a time.
fn groups(rows: &mut Rows<'_>, shards: &[(Vec<Sample>, u64)]) {
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

fn statements(rows: &mut Rows<'_>, shards: &[Statements]) {
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

/// The node itself: it has no peers to gossip with.
fn gossip(rows: &mut Rows<'_>, node: &NodeFacts) {
    let host_id = uuid::Uuid::from_bytes(node.host_id).to_string();
    let token = node::ring_tokens().next().unwrap_or_default();
    let status = format!("NORMAL,{token}");
    let (listen, rpc) = (node.listen_address.to_string(), node.rpc_address.to_string());
    rows.row(|row| {
        row.inet("address", node.listen_address);
        row.int("port", i32::from(node.listen_port));
        row.text("hostname", &listen);
        row.int("generation", i32::try_from(node.generation).unwrap_or(i32::MAX));
        row.int("heartbeat", 0);
        for (column, value) in [
            ("dc", node.data_center.as_str()),
            ("rack", &node.rack),
            ("host_id", &host_id),
            ("internal_ip", &listen),
            ("internal_address_and_port", &format!("{listen}:{}", node.listen_port)),
            ("rpc_address", &rpc),
            ("native_address_and_port", &format!("{rpc}:{}", node.rpc_port)),
            ("release_version", node::RELEASE_VERSION),
            ("rpc_ready", "true"),
            ("sstable_versions", "big-me"),
            ("status", &status),
            ("status_with_port", &status),
        ] {
            row.text(column, value);
        }
    });
}

fn bigint(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn int(value: u64) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}
