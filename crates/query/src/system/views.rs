//! `system_views`: the node's present activity, collected from all shards when it is read.
//!
//! `registry` lists the tables. `Views::load` collects only the data of one table; `fill` makes rows of it,
//! with Cassandra 5.0.6's columns, kinds and units. Tables of figures that this node does not measure are
//! empty; docs/compatibility.md lists them.

mod fill;
mod registry;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;

use model::Token;
use model::token::murmur3_token;
use reactor::{Group, mesh};
use replication::Replicator;
use storage::{LargeDataOf, SizeEstimate, SnapshotInfo, SnapshotsOf, TableReport};

use super::node::{self, NodeFacts};
use super::rows::Rows;
use super::runtime_info::Runtime;
use crate::load::{Of, Told, Weights};
use crate::prepared_cache::StatementId;
use crate::{Engine, QueryError};

pub(super) use fill::{client, fill};
use registry::View;

/// Clients whose rows are made before other tasks get a turn: one address may have tens of thousands.
pub(super) const CLIENTS_PER_PIECE: usize = 64;

/// A connected client, for `system_views.clients`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientRow {
    /// The address from which it connects.
    pub address: IpAddr,
    /// The port from which it connects.
    pub port: u16,
    /// The phase of its connection: `established`, `authenticating` or `ready`.
    pub stage: &'static str,
    /// The version of its protocol.
    pub version: u8,
    /// The options of its STARTUP, by name.
    pub options: BTreeMap<String, String>,
    /// The number of its requests.
    pub requests: u64,
    /// Its current keyspace.
    pub keyspace: Option<String>,
    /// Its user.
    pub user: String,
}

/// Prepared statements of one shard, and counts of its statements, for `system_views.cql_metrics`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Statements {
    ids: Vec<StatementId>,
    evicted: u64,
    prepared: u64,
    regular: u64,
}

type Make = dyn Fn(&mut Rows<'_>, &NodeFacts);

/// Makes the rows of a table of data that was collected for it.
pub(crate) struct MakeRows(Box<Make>);

impl std::fmt::Debug for MakeRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MakeRows")
    }
}

/// The data of one table.
#[derive(Debug, Default)]
pub(crate) enum Views {
    /// No data, for a table that is empty or made from the schema and the facts about the node alone.
    #[default]
    Nothing,
    /// Data of a table of `system_views`, and how its rows are made.
    Rows(MakeRows),
    /// Clients, in the order of their rows.
    Clients(Vec<ClientRow>),
    /// Snapshots, for `system.snapshots`.
    Snapshots(Vec<SnapshotInfo>),
    /// Names of settings and their values, for `system.config`.
    Settings(Vec<(String, String)>),
    /// Large data of table files, for tables of `system`.
    LargeData(Vec<LargeDataOf>),
    /// Clients with their shards, in the order of their rows, for `system.clients`.
    ClientsOfShards(Vec<(usize, ClientRow)>),
    /// Who has which tablet, for `system.tablets`.
    Tablets(Replicator),
    /// Uses of memory and other figures, for `system.runtime_info`.
    Runtime(Runtime),
    /// Sizes of tables by parts of the ring, in the order of their rows, for tables of `system`.
    Estimates(Vec<SizeEstimate>),
}

impl Views {
    /// Collects the data of `table` of `system_views` from the shards.
    ///
    /// # Errors
    /// [`QueryError::Internal`] if a shard does not answer; errors of listing snapshots.
    pub(super) async fn load(engine: &Engine, table: &str) -> Result<Self, QueryError> {
        let Some(view) = registry::view(table) else {
            return Err(QueryError::Internal(format!("system_views.{table} is defined and not registered")));
        };
        Ok(match *view {
            View::Empty => Self::Nothing,
            View::Facts(fill) => Self::rows(fill),
            View::Settings => {
                let settings = engine.settings();
                Self::rows(move |rows, facts| node::settings(rows, facts, &settings))
            }
            View::Clients => {
                Self::Clients(clients(engine).await?.into_iter().map(|(_, client)| client).collect())
            }
            View::Tables(fill) => {
                let reports: Vec<_> = reports(engine).await?.into_values().collect();
                Self::rows(move |rows, _| fill(rows, &reports))
            }
            View::Loads(of, fill) => {
                let loads = loads(engine, of).await?;
                Self::rows(move |rows, _| fill(rows, &loads))
            }
            View::Samples(fill) => {
                let sample = |engine: &Engine| {
                    (reactor::metrics::snapshot(), engine.storage().stats().memory_bytes_max as u64)
                };
                let shards = each_shard(engine, sample).await?;
                Self::rows(move |rows, _| fill(rows, &shards))
            }
            View::Batches => {
                let sizes = batch_sizes(engine).await?;
                Self::rows(move |rows, _| fill::batches(rows, &sizes))
            }
            View::Statements => {
                let shards = each_shard(engine, Statements::of_shard).await?;
                Self::rows(move |rows, _| fill::statements(rows, &shards))
            }
            View::Requests => {
                let mut requests = Vec::new();
                for shard in 0..engine.config().shards {
                    requests.extend(of_shard(shard, async |engine| engine.running_rows().await).await?);
                }
                Self::rows(move |rows, _| requests.iter().for_each(|one| fill::request(rows, one)))
            }
            View::Hints => {
                let hints = each_shard(engine, |engine| engine.replicator().pending_hints()).await?;
                let waiting = fill::waiting(engine.replicator(), hints.concat());
                Self::rows(move |rows, _| waiting.iter().for_each(|one| fill::hints(rows, one)))
            }
            View::Compactions => {
                let tasks = each_shard(engine, |engine| engine.storage().compactions()).await?;
                Self::rows(move |rows, _| {
                    tasks.iter().flatten().for_each(|task| fill::compaction(rows, task))
                })
            }
            View::Snapshots => {
                let snapshots = engine.storage().snapshots(&SnapshotsOf::default()).await?;
                Self::rows(move |rows, _| snapshots.iter().for_each(|one| fill::snapshot(rows, one)))
            }
        })
    }

    fn rows(make: impl Fn(&mut Rows<'_>, &NodeFacts) + 'static) -> Self {
        Self::Rows(MakeRows(Box::new(make)))
    }
}

impl Statements {
    fn of_shard(engine: &Engine) -> Self {
        let (prepared, regular) = engine.executed();
        Self { ids: engine.prepared().ids(), evicted: engine.prepared().evicted(), prepared, regular }
    }
}

impl Views {
    /// Large data in the table files of all shards.
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

    /// Collects the data of `table`, one of ScyllaDB's tables of `system`, from the shards.
    ///
    /// # Errors
    /// As [`Views::load`].
    pub(super) async fn of_system(engine: &Engine, table: &str) -> Result<Self, QueryError> {
        Ok(match table {
            "clients" => Self::ClientsOfShards(clients(engine).await?),
            "tablets" => Self::Tablets(engine.replicator().clone()),
            "config" => Self::Settings(engine.settings()),
            "snapshots" => Self::Snapshots(engine.storage().snapshots(&SnapshotsOf::default()).await?),
            "runtime_info" => {
                let shards = each_shard(engine, Runtime::of_shard).await?;
                let mut sum = Runtime::default();
                shards.iter().for_each(|shard| sum.add(shard));
                sum.load_bytes = reports(engine).await?.values().map(|report| report.file_bytes).sum();
                Self::Runtime(sum)
            }
            _ => Self::Nothing,
        })
    }

    /// Estimated sizes of all tables, summed over the shards, in the order of `system.size_estimates`.
    ///
    /// # Errors
    /// As [`Views::load`].
    pub(super) async fn estimates(engine: &Engine) -> Result<Self, QueryError> {
        let mut sums: BTreeMap<(Token, String, String), SizeEstimate> = BTreeMap::new();
        for shard in 0..engine.config().shards {
            let ring = node::ring_parts();
            let ask = async move |engine: Rc<Engine>| engine.storage().size_estimates(ring).await;
            for estimate in of_shard(shard, ask).await? {
                let token = murmur3_token(estimate.keyspace.as_bytes());
                let place = (token, estimate.keyspace.clone(), estimate.name.clone());
                match sums.get_mut(&place) {
                    // A table of the same name may have been created between two shards' answers.
                    Some(sum) if sum.id == estimate.id => sum.add(&estimate),
                    Some(_) => {}
                    None => drop(sums.insert(place, estimate)),
                }
                reactor::maybe_yield().await;
            }
        }
        Ok(Self::Estimates(sums.into_values().collect()))
    }
}

/// The loads of all tables by one kind of request, summed over the shards.
async fn loads(engine: &Engine, of: Of) -> Result<Vec<(TableReport, Told)>, QueryError> {
    let mut sums: BTreeMap<[u8; 16], Told> = BTreeMap::new();
    for shard in 0..engine.config().shards {
        for (id, told) in of_shard(shard, async move |engine| engine.told(of).await).await? {
            sums.entry(id.0).or_default().add(&told);
        }
    }
    let tables = reports(engine).await?.into_values();
    let with_load = |table: TableReport| {
        let told = sums.remove(&table.id).unwrap_or_default();
        (table, told)
    };
    Ok(tables.map(with_load).collect())
}

/// Sizes of batches by name, summed over the shards.
async fn batch_sizes(engine: &Engine) -> Result<Vec<(&'static str, Weights)>, QueryError> {
    let shards = each_shard(engine, |engine| engine.loads().batches.told()).await?;
    let mut sums: Vec<(&'static str, Weights)> = Vec::new();
    for (at, (name, weights)) in shards.into_iter().flat_map(|shard| shard.into_iter().enumerate()) {
        match sums.get_mut(at) {
            Some((_, sum)) => sum.add(&weights),
            None => sums.push((name, weights)),
        }
    }
    Ok(sums)
}

/// The clients of all shards with the ids of their shards, in the order of their rows.
async fn clients(engine: &Engine) -> Result<Vec<(usize, ClientRow)>, QueryError> {
    let mut sorted = BTreeMap::new();
    for shard in 0..engine.config().shards {
        for client in of_shard(shard, async |engine| engine.clients().await).await? {
            sorted.insert(place_of_client(&client), (shard, client));
            if sorted.len() % CLIENTS_PER_PIECE == 0 {
                reactor::maybe_yield().await;
            }
        }
    }
    Ok(sorted.into_values().collect())
}

/// Reports of all tables, summed over the shards.
async fn reports(engine: &Engine) -> Result<BTreeMap<[u8; 16], TableReport>, QueryError> {
    let mut tables: BTreeMap<[u8; 16], TableReport> = BTreeMap::new();
    for shard in 0..engine.config().shards {
        for report in of_shard(shard, async |engine| engine.storage().report().await).await? {
            tables.entry(report.id).and_modify(|sum| sum.add(&report)).or_insert(report);
        }
    }
    Ok(tables)
}

/// Runs `ask` on a shard.
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

/// The sort key of a client's row: the token of its partition, the partition key, and the port.
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
