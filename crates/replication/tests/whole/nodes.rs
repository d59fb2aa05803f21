//! Three nodes of a cluster with two tables, each row on all of them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use cluster::net::InternodeCompression;
use cluster::nodes::{NodeState, OwnFacts};
use cluster::{ClusterOptions, ControlPlane};
use model::counter;
use model::mutation::MutationBuilder;
use model::partition_key::DecoratedKey;
use model::row::{CellKind, CellView};
use model::schema::{KeyspaceOptions, SchemaChange, TableDefinition, TableOptions};
use model::{
    Column, ColumnId, ColumnKind, CqlType, DeletionTime, Liveness, RowBuilder, RowView, Table, TableId, Token,
};
use reactor::sim::{DiskFaults, NodeId, World};
use reactor::{Deadline, Event, Group};
use replication::{Consistency, ReadLimits, ReplicationError, Replicator};
use storage::{CommitlogSync, Flow, PartitionRange, ReadCommand, RowConsumer, StorageConfig};

const PORT: u16 = 7000;
pub(crate) const SHARDS: usize = 2;
pub(crate) const NODES: usize = 3;
/// A table of counters.
pub(crate) const COUNTERS: TableId = TableId([1; 16]);
/// A table of numbers.
pub(crate) const NUMBERS: TableId = TableId([2; 16]);
const COLUMN: ColumnId = ColumnId(1);

/// What a client does on each shard of each node: it gets the node's place.
pub(crate) type Client = Rc<dyn Fn(usize, Replicator) -> std::pin::Pin<Box<dyn Future<Output = ()>>>>;

/// What the test sees of all nodes.
#[derive(Default)]
pub(crate) struct Shared {
    seeds: RefCell<Vec<SocketAddr>>,
    /// The first shard of each node that is open.
    pub(crate) open: RefCell<BTreeMap<usize, Replicator>>,
    /// Whether writes are on the disk when they are acknowledged: a loss of power takes none of them.
    pub(crate) syncs_writes: Cell<bool>,
    /// Whether clients rest.
    pub(crate) quiet: Cell<bool>,
    refused: RefCell<Vec<String>>,
    /// Work for nodes, and how much of it is left.
    jobs: RefCell<BTreeMap<usize, Job>>,
    left: Cell<usize>,
    changed: Event,
}

type Job = std::pin::Pin<Box<dyn Future<Output = ()>>>;

fn definition(id: TableId, name: &str, ty: CqlType) -> SchemaChange {
    let column = |number: u16, name: &str, ty: CqlType, kind| Column {
        id: ColumnId(number),
        name: name.to_owned(),
        ty,
        kind,
        position: 0,
        reversed: false,
    };
    SchemaChange::CreateTable(Box::new(TableDefinition {
        id,
        keyspace: "k".to_owned(),
        name: name.to_owned(),
        columns: vec![
            column(0, "k", CqlType::Blob, ColumnKind::PartitionKey),
            column(COLUMN.0, "n", ty, ColumnKind::Regular),
        ],
        dropped: BTreeMap::new(),
        options: TableOptions::default(),
        next_column_id: 2,
        tablets_log2: 3,
        revision: 0,
    }))
}

fn schema() -> Vec<SchemaChange> {
    let replication = [("class", "SimpleStrategy"), ("replication_factor", "3")];
    let replication = replication.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let options = KeyspaceOptions { replication, durable_writes: true, tablets: None };
    vec![
        SchemaChange::CreateKeyspace { name: "k".to_owned(), options },
        definition(COUNTERS, "c", CqlType::Counter),
        definition(NUMBERS, "t", CqlType::Bigint),
    ]
}

async fn node(at: usize, address: SocketAddr, shared: Rc<Shared>, client: Client) {
    let facts = OwnFacts {
        host_id: [at as u8 + 1; 16],
        listen: address,
        native: SocketAddr::new(address.ip(), 9042),
        ..OwnFacts::unnamed(SHARDS)
    };
    let options = ClusterOptions {
        bind: None,
        cluster_name: "c".to_owned(),
        seeds: shared.seeds.borrow().clone(),
        founds: false,
        compression: InternodeCompression::default(),
        folder: PathBuf::from("/ceto/schema"),
    };
    let shard = reactor::shard_id();
    if shard == 0 {
        reactor::file::create_dir_all("/ceto").await.expect("a folder");
        reactor::file::sync_dir("/").await.expect("a folder");
    }
    let mut config = StorageConfig::new("/ceto", 4 << 20);
    config.segment_bytes = 1 << 20;
    if shared.syncs_writes.get() {
        config.commitlog_sync = CommitlogSync::Batch;
    }
    let storage = match cluster::open_node(config, facts, Some(options), shard).await {
        Ok(storage) => storage,
        Err(error) => return shared.refused.borrow_mut().push(error.to_string()),
    };
    let replicator = Replicator::new(storage, "datacenter1");
    if shard == 0 {
        shared.open.borrow_mut().insert(at, replicator.clone());
        reactor::spawn(Group::STATEMENT, work(at, Rc::clone(&shared))).detach();
        make_tables().await;
    }
    client(at, replicator).await;
    shared.changed.wait_until(|| false).await;
}

/// Does the work that the test has for a node.
async fn work(at: usize, shared: Rc<Shared>) {
    loop {
        reactor::sleep(Duration::from_millis(50)).await;
        let job = shared.jobs.borrow_mut().remove(&at);
        if let Some(job) = job {
            job.await;
            shared.left.set(shared.left.get() - 1);
        }
    }
}

/// Makes the tables once all nodes are there, on the leader.
async fn make_tables() {
    let control = ControlPlane::here().expect("an open control plane");
    loop {
        let state = control.group().state();
        if state.schema().table_by_id(NUMBERS).is_some() {
            return;
        }
        let normal = state.nodes().values().filter(|node| node.state == NodeState::Normal).count();
        if normal == NODES && control.may_plan() {
            let turn = ControlPlane::turn().await.expect("a turn");
            // Another leader may have been faster.
            let _ = turn.change(&schema()).await;
        }
        reactor::sleep(Duration::from_millis(100)).await;
    }
}

/// Three nodes.
pub(crate) struct Nodes {
    pub(crate) world: World,
    pub(crate) ids: Vec<NodeId>,
    pub(crate) shared: Rc<Shared>,
    of: String,
}

impl Nodes {
    pub(crate) fn new(seed: u64, shared: Rc<Shared>, client: Client) -> Self {
        let mut world = World::new(seed);
        let addresses: Vec<SocketAddr> =
            (1..=NODES as u8).map(|at| SocketAddr::new([10, 0, 0, at].into(), PORT)).collect();
        shared.seeds.replace(addresses.clone());
        let ids = addresses.into_iter().enumerate().map(|(at, address)| {
            let (of_node, client) = (Rc::clone(&shared), Rc::clone(&client));
            // Power is lost, not the process: what was not synced is gone.
            world.add_node_with(SHARDS, DiskFaults::default(), move |_| {
                node(at, address, Rc::clone(&of_node), Rc::clone(&client))
            })
        });
        let ids = ids.collect();
        let mut nodes = Self { world, ids, shared, of: format!("seed {seed}") };
        nodes.wait("the tables", |shared| {
            let open = shared.open.borrow();
            let knows = |node: &Replicator| node.storage().schema().table_by_id(NUMBERS).is_some();
            open.len() == NODES && open.values().all(knows)
        });
        nodes
    }

    /// Runs for a while, and panics where a node did.
    pub(crate) fn run_for(&mut self, time: Duration) {
        self.world.run_for(time).unwrap_or_else(|stuck| panic!("{}: {stuck:?}", self.of));
        for (at, id) in self.ids.iter().enumerate() {
            match self.world.outcome(*id) {
                Some(Err(problem)) if problem != "crashed" => {
                    panic!("{}: node {at}: {problem}\n{}", self.of, self.world.log().join("\n"))
                }
                _ => {}
            }
        }
        assert_eq!(*self.shared.refused.borrow(), Vec::<String>::new(), "{}", self.of);
    }

    /// Runs until something is so.
    pub(crate) fn wait(&mut self, what: &str, is_so: impl Fn(&Shared) -> bool) {
        for _ in 0..600 {
            if is_so(&self.shared) {
                return;
            }
            self.run_for(Duration::from_millis(200));
        }
        panic!("{}: no end of waiting for {what}\n{}", self.of, self.world.log().join("\n"));
    }

    pub(crate) fn crash(&mut self, at: usize) {
        self.shared.open.borrow_mut().remove(&at);
        self.world.crash(self.ids[at]);
    }

    pub(crate) fn restart(&mut self, at: usize) {
        self.world.restart(self.ids[at]);
    }

    /// One random trouble, and some time.
    pub(crate) fn trouble(&mut self) {
        let at = (self.world.random_u64() % NODES as u64) as usize;
        let (node, other) = (self.ids[at], self.ids[(at + 1) % NODES]);
        match self.world.random_u64() % 6 {
            0 | 1 => {
                self.crash(at);
                let down = Duration::from_millis(self.world.random_u64() % 6_000);
                self.run_for(down);
                self.restart(at);
            }
            2 => self.world.part(node, other),
            3 => self.world.part_one_way(node, other),
            4 => self.world.heal(node, other),
            _ => self.world.reset_connections(node, other),
        }
        let time = Duration::from_millis(self.world.random_u64() % 3_000);
        self.run_for(time);
    }

    /// Ends all trouble and all clients, and waits until the nodes are one cluster again.
    pub(crate) fn settle(&mut self) {
        for at in 0..NODES {
            self.world.heal(self.ids[at], self.ids[(at + 1) % NODES]);
        }
        self.shared.quiet.set(true);
        self.run_for(Duration::from_secs(30));
        self.wait("all nodes", |shared| shared.open.borrow().len() == NODES);
        self.run_for(Duration::from_secs(15));
    }

    /// Runs `work` in each node, on its first shard, to its end.
    pub(crate) fn in_each<F: Future<Output = ()> + 'static>(
        &mut self,
        work: impl Fn(usize, Replicator) -> F,
    ) {
        let nodes: Vec<_> = self.shared.open.borrow().iter().map(|(at, node)| (*at, node.clone())).collect();
        self.shared.left.set(nodes.len());
        let jobs = nodes.into_iter().map(|(at, replicator)| (at, Box::pin(work(at, replicator)) as Job));
        self.shared.jobs.replace(jobs.collect());
        self.wait("work in each node", |shared| shared.left.get() == 0);
    }
}

pub(crate) fn table(replicator: &Replicator, id: TableId) -> Option<Rc<Table>> {
    replicator.storage().schema().table_by_id(id).cloned()
}

pub(crate) fn key(number: u64) -> DecoratedKey {
    DecoratedKey::new(number.to_be_bytes().to_vec())
}

pub(crate) fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(2))
}

fn mutation(table: TableId, number: u64, timestamp: i64, kind: CellKind<'_>) -> Vec<u8> {
    let key = key(number);
    let mut out = Vec::new();
    let live = DeletionTime::LIVE;
    let mut rows = MutationBuilder::new(&mut out, table, key.token, &key.key, live, |_| {}).rows();
    rows.row(&[], |out| {
        let marker = Liveness { timestamp, ..Liveness::NONE };
        let liveness = if matches!(kind, CellKind::Counter(_)) { Liveness::NONE } else { marker };
        let mut row = RowBuilder::new(out, liveness, live);
        row.cell(CellView { column: COLUMN, timestamp, path: None, kind });
        row.finish();
    });
    rows.finish();
    out
}

/// A mutation that adds to a counter.
pub(crate) fn delta(number: u64, by: i64) -> Vec<u8> {
    mutation(COUNTERS, number, reactor::wall_clock_us(), CellKind::Counter(&by.to_be_bytes()))
}

/// A mutation that sets a number.
pub(crate) fn value(number: u64, value: i64) -> Vec<u8> {
    mutation(NUMBERS, number, reactor::wall_clock_us(), CellKind::Live(&value.to_be_bytes()))
}

/// The number of a row, if there is one.
#[derive(Default)]
struct Number(Option<i64>);

impl RowConsumer for Number {
    fn partition(&mut self, _: &[u8], _: Token, _: Option<RowView<'_>>) -> Flow {
        Flow::Continue
    }

    fn row(&mut self, _: &[u8], row: RowView<'_>) -> Flow {
        self.0 = row.cell(COLUMN).and_then(|cell| match cell.kind {
            CellKind::Counter(context) => Some(counter::total(context)),
            CellKind::Live(bytes) => bytes.try_into().ok().map(i64::from_be_bytes),
            _ => None,
        });
        Flow::Continue
    }

    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

/// Reads the number of a key.
pub(crate) async fn read(
    replicator: &Replicator,
    id: TableId,
    number: u64,
    level: Consistency,
) -> Result<Option<i64>, ReplicationError> {
    let table = table(replicator, id).expect("the table");
    let command = ReadCommand {
        table,
        range: PartitionRange::Key(key(number)),
        slices: [model::clustering::Slice::all()].into_iter().collect(),
        reversed: false,
        now: (reactor::wall_clock_us() / 1_000_000) as u32,
        bypass_cache: false,
    };
    let mut found = Number::default();
    let limits = ReadLimits { rows: None, rows_per_partition: None };
    replicator.read(&command, limits, level, soon(), &mut found).await?;
    Ok(found.0)
}

/// Keys whose first replica differ: enough for all tablets.
pub(crate) fn keys() -> BTreeSet<u64> {
    (0..24).collect()
}
