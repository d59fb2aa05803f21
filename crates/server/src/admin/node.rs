//! Administration's work on the shards: it asks all shards, adds up their answers, and returns plain values.
//!
//! All of it runs on shard 0 (see `bridge`) and reaches the other shards over the mesh, in group `admin`;
//! flushes and compactions run in their own groups. A shard that is not open yet returns the error that the
//! node is starting.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use cluster::{ControlPlane, Measured};
use model::partition_key::DecoratedKey;
use model::schema::Schema;
use model::{Table, TableId};
use query::is_system;
use query::partition_key_text;
use query::system::Catalog;
use reactor::{Deadline, Group, mesh};
use replication::ReplicationError;
use storage::TableReport;

use super::error::ApiError;
use super::sampling::Samplings;
use crate::boot::Shard;
use crate::config::Config;
use crate::native::OpenListener;

/// How long a truncation that an operator asks for may take, with its snapshots.
const TRUNCATE_WITHIN: Duration = Duration::from_secs(600);

/// The mode of a node, in Cassandra's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Starting,
    Normal,
    Draining,
    Drained,
}

impl Mode {
    /// ScyllaDB's number for the mode, as metrics show it.
    pub(crate) fn number(self) -> i64 {
        match self {
            Self::Starting => 1,
            Self::Normal => 3,
            Self::Draining => 6,
            Self::Drained => 7,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Starting => "STARTING",
            Self::Normal => "NORMAL",
            Self::Draining => "DRAINING",
            Self::Drained => "DRAINED",
        }
    }
}

/// State of the whole node, kept on shard 0 while the node runs.
pub(crate) struct NodeState {
    pub(crate) mode: Cell<Mode>,
    pub(crate) started: reactor::Instant,
    /// When the node began to serve, in seconds since 1970.
    pub(crate) generation: i64,
    /// The number of repairs requested. With a single node each is done at once.
    pub(crate) repairs: Cell<u32>,
    /// The open ports for CQL clients; empty while the native transport is off.
    pub(crate) listeners: RefCell<Vec<OpenListener>>,
    /// Held by a change of the transport or of the mode: one at a time.
    pub(crate) changing: reactor::Semaphore,
    /// Partition samplings that run, and the limit to their number.
    pub(super) samplings: Samplings,
    pub(crate) config: Config,
}

impl NodeState {
    /// The state of a node that serves.
    pub(crate) fn new(config: &Config, started: reactor::Instant, listeners: Vec<OpenListener>) -> Self {
        Self {
            mode: Cell::new(Mode::Normal),
            started,
            generation: reactor::wall_clock_us() / 1_000_000,
            repairs: Cell::new(0),
            listeners: RefCell::new(listeners),
            changing: reactor::Semaphore::new(1),
            samplings: Samplings::default(),
            config: config.clone(),
        }
    }

    /// Whether the port for clients is open.
    pub(crate) fn is_open(&self) -> bool {
        !self.listeners.borrow().is_empty()
    }

    /// The state of this node. Call on shard 0.
    ///
    /// # Errors
    /// [`ApiError::unavailable`] before the node serves.
    pub(crate) fn here() -> Result<Rc<Self>, ApiError> {
        reactor::local::<Self>().ok_or_else(|| ApiError::unavailable("the node is starting"))
    }
}

/// The current shard.
pub(crate) fn here() -> Result<Rc<Shard>, ApiError> {
    reactor::local::<Shard>().ok_or_else(|| ApiError::unavailable("the node is starting"))
}

/// Runs `work` on all shards at once. Returns the results in the order of the shards, or the first error.
pub(crate) async fn on_each<F, Fut, R>(group: Group, work: F) -> Result<Vec<R>, ApiError>
where
    F: FnOnce(Rc<Shard>) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Result<R, ApiError>> + 'static,
    R: Send + 'static,
{
    let calls: Vec<_> = (0..reactor::shard_count())
        .map(|shard| {
            let work = work.clone();
            mesh::call(shard, group, move || async move { work(here()?).await })
        })
        .collect();
    let mut results = Vec::new();
    let mut first = Ok(());
    for call in calls {
        match call.await {
            Ok(Ok(result)) => results.push(result),
            Ok(Err(error)) => first = first.and(Err(error)),
            Err(error) => first = first.and(Err(ApiError::failed(error))),
        }
    }
    first.map(|()| results)
}

/// The names and the id of a table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TableName {
    pub(crate) keyspace: String,
    pub(crate) name: String,
    pub(crate) id: TableId,
}

/// Shard 0's schema.
pub(crate) fn schema() -> Result<Rc<Schema>, ApiError> {
    Ok(here()?.storage().schema())
}

/// Names of keyspaces, virtual ones included, sorted; with `user_only` without those of the node itself.
pub(crate) fn keyspaces(user_only: bool) -> Result<Vec<String>, ApiError> {
    let schema = schema()?;
    let mut names: Vec<String> = schema.keyspaces().map(|keyspace| keyspace.name.clone()).collect();
    if let Some(catalog) = reactor::local::<Catalog>() {
        names.extend(catalog.keyspaces().map(|keyspace| keyspace.name.clone()));
    }
    names.retain(|name| !user_only || !is_system(name));
    names.sort();
    names.dedup();
    Ok(names)
}

/// Fails if the keyspace does not exist.
pub(crate) fn check_keyspace(keyspace: &str) -> Result<(), ApiError> {
    if keyspaces(false)?.iter().any(|name| name == keyspace) {
        return Ok(());
    }
    Err(ApiError::bad(format!("Keyspace {keyspace} does not exist")))
}

/// The stored tables of a keyspace with these names; all of them if `names` is empty.
pub(crate) fn tables_of(keyspace: &str, names: &[String]) -> Result<Vec<TableName>, ApiError> {
    check_keyspace(keyspace)?;
    let schema = schema()?;
    let table = |table: &model::Table| TableName {
        keyspace: keyspace.to_owned(),
        name: table.name().to_owned(),
        id: table.id(),
    };
    if names.is_empty() {
        let tables = schema.keyspace(keyspace).map(|k| k.tables.values().map(|t| table(t)).collect());
        return Ok(tables.unwrap_or_default());
    }
    let mut tables = Vec::new();
    for name in names {
        match schema.table(keyspace, name) {
            Some(found) => tables.push(table(found)),
            None => return Err(ApiError::bad(format!("Unknown keyspace/cf pair ({keyspace}.{name})"))),
        }
    }
    Ok(tables)
}

/// All stored tables, sorted by keyspace and name.
pub(crate) fn all_tables() -> Result<Vec<TableName>, ApiError> {
    let schema = schema()?;
    let mut tables: Vec<TableName> = schema
        .tables()
        .map(|t| TableName { keyspace: t.keyspace().to_owned(), name: t.name().to_owned(), id: t.id() })
        .collect();
    tables.sort();
    Ok(tables)
}

/// The table that `keyspace:name` or `keyspace.name` denotes.
pub(crate) fn table_called(name: &str) -> Result<TableName, ApiError> {
    let (keyspace, table) = name
        .split_once(':')
        .or_else(|| name.split_once('.'))
        .ok_or_else(|| ApiError::bad(format!("expected keyspace:table, found '{name}'")))?;
    let mut tables = tables_of(keyspace, &[table.to_owned()])?;
    tables.pop().ok_or_else(|| ApiError::bad(format!("Unknown keyspace/cf pair ({keyspace}.{table})")))
}

/// Reports of all tables, summed over the shards and sorted by keyspace and name.
pub(crate) async fn reports() -> Result<Vec<TableReport>, ApiError> {
    let shards =
        on_each(Group::ADMIN, |shard: Rc<Shard>| async move { Ok(shard.storage().report().await) }).await?;
    let mut sums: BTreeMap<(String, String), TableReport> = BTreeMap::new();
    for report in shards.into_iter().flatten() {
        let key = (report.keyspace.clone(), report.name.clone());
        sums.entry(key).and_modify(|sum| sum.add(&report)).or_insert(report);
    }
    Ok(sums.into_values().collect())
}

/// The report of one table.
pub(crate) async fn report_of(table: &TableName) -> Result<TableReport, ApiError> {
    let found = reports().await?.into_iter().find(|report| report.id == table.id.0);
    found
        .ok_or_else(|| ApiError::bad(format!("Unknown keyspace/cf pair ({}.{})", table.keyspace, table.name)))
}

/// Paths of the table files that contain the partition with the key `text`. The shard that owns the partition
/// answers.
pub(crate) async fn files_with(table: &TableName, text: &str, is_hex: bool) -> Result<Vec<String>, ApiError> {
    let schema = schema()?;
    let gone = || ApiError::bad(format!("Unknown keyspace/cf pair ({}.{})", table.keyspace, table.name));
    let found = schema.table_by_id(table.id).ok_or_else(gone)?;
    let key = key_of(found, text, is_hex)?;
    let shard = here()?;
    let replicator = shard.replicator();
    let replica = replicator.replica_of(found, key.token);
    if replica.node != replicator.own().node {
        return Err(ApiError::bad(format!("node {} has the partition: ask it", replica.node)));
    }
    let owner = replicator.shard_of(replica);
    let id = table.id;
    let asked = mesh::call(owner, Group::ADMIN, move || async move {
        let files = here()?.storage().files_with(id, &key).await?;
        Ok(files.iter().map(|path| path.display().to_string()).collect())
    });
    asked.await.map_err(ApiError::failed)?
}

/// The partition key that `text` denotes: values with `:` between, or bytes in hex.
pub(crate) fn key_of(table: &Table, text: &str, is_hex: bool) -> Result<DecoratedKey, ApiError> {
    let key = if is_hex {
        partition_key_text::parse_hex(table, text)
    } else {
        partition_key_text::parse(table, text, reactor::wall_clock_us() / 1000)
    };
    Ok(DecoratedKey::new(key.map_err(ApiError::bad)?))
}

/// Flushes tables on every shard; returns once their contents are in table files.
pub(crate) async fn flush(tables: Vec<TableName>) -> Result<(), ApiError> {
    let flushed = on_each(Group::MEMTABLE, move |shard: Rc<Shard>| async move {
        let tables: Vec<TableId> = tables.iter().map(|table| table.id).collect();
        Ok(shard.storage().flush_tables(&tables).await?)
    });
    flushed.await.map(drop)
}

/// Removes all rows of the tables on every node. If one table fails, those before it have lost their rows.
pub(crate) async fn truncate(tables: Vec<TableName>) -> Result<(), ApiError> {
    let (shard, schema) = (here()?, schema()?);
    for table in tables {
        let found = schema.table_by_id(table.id).ok_or_else(|| ApiError::bad("the table is gone"))?;
        let truncated = shard.replicator().truncate(found, Deadline::after(TRUNCATE_WITHIN)).await;
        truncated.map_err(|error| match error {
            ReplicationError::Unavailable { required, alive } => ApiError::unavailable(format!(
                "all nodes have to be up for a truncation: {alive} of {required} are"
            )),
            error => ApiError::failed(error),
        })?;
    }
    Ok(())
}

/// Turns the native transport on: the configured ports listen again.
pub(crate) async fn enable_native_transport() -> Result<(), ApiError> {
    let node = NodeState::here()?;
    let Ok(_turn) = node.changing.acquire(1).await else { return Err(ApiError::unavailable("busy")) };
    if node.mode.get() != Mode::Normal {
        return Err(ApiError::unavailable(format!("the node is {}", node.mode.get().name())));
    }
    if node.listeners.borrow().is_empty() {
        let opened = here()?.native.listen(&node.config).map_err(ApiError::failed)?;
        *node.listeners.borrow_mut() = opened;
        serves_clients(true);
    }
    Ok(())
}

/// Turns the native transport off: new clients are refused, and connections end after their requests in
/// flight.
pub(crate) async fn disable_native_transport() -> Result<(), ApiError> {
    let node = NodeState::here()?;
    let Ok(_turn) = node.changing.acquire(1).await else { return Err(ApiError::unavailable("busy")) };
    close_transport(&node).await
}

/// Has other nodes learn that this one serves clients, and how much data it has.
pub(crate) fn tell_others() {
    if let Some(control) = ControlPlane::here() {
        control.measure_with(Rc::new(|| Box::pin(measured())));
    }
    serves_clients(true);
}

/// What other nodes hear of this one's data; what cannot be measured now counts as nothing.
async fn measured() -> Measured {
    let load_bytes = reports().await.map_or(0, |all| all.iter().map(|report| report.file_bytes).sum());
    let data_dir = here().map(|shard| shard.storage().config().data_dir.clone());
    let free_bytes = match data_dir {
        Ok(data_dir) => reactor::file::available_space(&data_dir).await.unwrap_or(0),
        Err(_) => 0,
    };
    Measured { load_bytes, free_bytes }
}

/// Has other nodes learn whether this one's port for clients is open.
pub(crate) fn serves_clients(serves: bool) {
    if let Some(control) = ControlPlane::here() {
        control.set_serves_clients(serves);
    }
}

async fn close_transport(node: &NodeState) -> Result<(), ApiError> {
    serves_clients(false);
    let listeners = node.listeners.take();
    for listener in listeners {
        listener.close().await;
    }
    let disconnected = on_each(Group::ADMIN, |shard: Rc<Shard>| async move {
        shard.native.disconnect();
        Ok(())
    });
    disconnected.await.map(drop)
}

/// Ends the native transport, connections with other nodes, and writing: memtables are flushed and the commit
/// log is closed. Only a restart undoes it.
pub(crate) async fn drain() -> Result<(), ApiError> {
    let node = NodeState::here()?;
    let Ok(_turn) = node.changing.acquire(1).await else { return Err(ApiError::unavailable("busy")) };
    if node.mode.get() == Mode::Drained {
        return Ok(());
    }
    node.mode.set(Mode::Draining);
    reactor::info!("draining by request");
    close_transport(&node).await?;
    // A node that answered reads of others and refused their writes would fail reads that have to repair it.
    on_each(Group::ADMIN, |shard: Rc<Shard>| async move { shard.leave().await.map_err(ApiError::failed) })
        .await?;
    on_each(Group::ADMIN, |shard: Rc<Shard>| async move { shard.drain().await.map_err(ApiError::failed) })
        .await?;
    node.mode.set(Mode::Drained);
    reactor::info!("drained");
    Ok(())
}
