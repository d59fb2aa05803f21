//! Three nodes with a storage each, whose table has a replica on all of them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use cluster::View;
use cluster::maps::Placed;
use cluster::maps::map::MapParts;
use cluster::nodes::NodeRecord;
use model::partition_key::DecoratedKey;
use model::schema::{KeyspaceOptions, SchemaChange, TableDefinition, TableOptions};
use model::{Column, ColumnId, ColumnKind, CqlType, Table, TableId};
use reactor::sim::{DiskFaults, NodeId, World};
use reactor::{Group, ShardInfo};
use replication::Replicator;
use storage::StorageConfig;

use super::post::{Job, Others, Post};

/// The table: a key and two values.
pub(crate) const TABLE: TableId = TableId([7; 16]);
pub(crate) const V: ColumnId = ColumnId(1);
pub(crate) const W: ColumnId = ColumnId(2);
/// The version of the routing that the test pretends.
pub(crate) const VERSION: u64 = 1_000_000;

const STEPS_MAX: u64 = 20_000_000;

fn definition() -> TableDefinition {
    let column = |id: u16, name: &str, kind| Column {
        id: ColumnId(id),
        name: name.to_owned(),
        ty: CqlType::Blob,
        kind,
        position: 0,
        reversed: false,
    };
    TableDefinition {
        id: TABLE,
        keyspace: "k".to_owned(),
        name: "t".to_owned(),
        columns: vec![
            column(0, "p", ColumnKind::PartitionKey),
            column(1, "v", ColumnKind::Regular),
            column(2, "w", ColumnKind::Regular),
        ],
        dropped: BTreeMap::new(),
        // Agreement does not lean on reads that mend replicas.
        options: TableOptions { read_repair: "NONE".to_owned(), ..TableOptions::default() },
        next_column_id: 3,
        tablets_log2: 1,
        revision: 0,
    }
}

async fn make_schema(data_centers: usize) {
    let own = |(k, v): (&str, &str)| (k.to_owned(), v.to_owned());
    let replication: BTreeMap<String, String> = match data_centers {
        1 => [("class", "SimpleStrategy"), ("replication_factor", "3")].map(own).into(),
        _ => [("class", "NetworkTopologyStrategy"), ("dc1", "3"), ("dc2", "3")].map(own).into(),
    };
    let options = KeyspaceOptions { replication, durable_writes: true, tablets: None };
    let keyspace = SchemaChange::CreateKeyspace { name: "k".to_owned(), options };
    cluster::change_schema(&keyspace).await.expect("a keyspace");
    let table = SchemaChange::CreateTable(Box::new(definition()));
    cluster::change_schema(&table).await.expect("a table");
}

/// The nodes of a test.
pub(crate) struct Nodes {
    pub(crate) world: World,
    pub(crate) ids: Vec<NodeId>,
    pub(crate) post: Rc<Post>,
    /// Number of starts that came to their end.
    started: Rc<Cell<usize>>,
    shards: usize,
}

/// The setting of a test.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    pub(crate) seed: u64,
    pub(crate) shards: usize,
    /// Of three nodes each.
    pub(crate) data_centers: usize,
}

impl Setting {
    pub(crate) fn of_seed(seed: u64) -> Self {
        Self { seed, shards: 1, data_centers: 1 }
    }

    fn nodes(self) -> u16 {
        3 * self.data_centers as u16
    }
}

fn data_center(node: u16) -> String {
    format!("dc{}", (node - 1) / 3 + 1)
}

fn pretend(own: u16, setting: Setting) {
    let record = |number: u16| {
        let (data_center, rack) = (data_center(number), "r".to_owned());
        let shards = setting.shards as u16;
        (number, NodeRecord { number, data_center, rack, shards, ..NodeRecord::default() })
    };
    let placed = |tablet: usize| {
        let shard = (tablet % setting.shards) as u16;
        (1..=setting.nodes())
            .map(|node| Placed { node, shard, since: 0, ..Placed::default() })
            .collect::<Vec<_>>()
    };
    let map =
        MapParts { version: VERSION, log2: 1, tablets: (0..2).map(placed).collect(), ..MapParts::default() };
    View::here().pretend_to_be(own, (1..=setting.nodes()).map(record).collect(), TABLE, map);
}

impl Nodes {
    /// Starts the nodes and waits until they are open.
    pub(crate) fn start(setting: Setting) -> Self {
        let mut world = World::new(setting.seed);
        let (post, started): (Rc<Post>, Rc<Cell<usize>>) = Default::default();
        let mut ids = Vec::new();
        for own in 1..=setting.nodes() {
            let (post, started) = (Rc::clone(&post), Rc::clone(&started));
            let main = move |info: ShardInfo| {
                let (post, started) = (Rc::clone(&post), Rc::clone(&started));
                async move {
                    let mut config = StorageConfig::new("/ceto", 1 << 20);
                    config.segment_bytes = 64 << 10;
                    config.commitlog_bytes_max = 1 << 20;
                    let storage =
                        cluster::open_storage(config, info.id, info.count).await.expect("a storage");
                    if info.id == 0 && storage.schema().table_by_id(TABLE).is_none() {
                        make_schema(setting.data_centers).await;
                    }
                    while storage.schema().table_by_id(TABLE).is_none() {
                        reactor::sleep(Duration::from_millis(1)).await;
                    }
                    let table = storage.schema().table_by_id(TABLE).cloned().expect("the table");
                    pretend(own, setting);
                    let others = Rc::new(Others { own, post: Rc::clone(&post) });
                    let replicator = Replicator::with_peers(storage, data_center(own), others);
                    let place = (own, info.id as u16);
                    reactor::spawn(Group::STATEMENT, post.serve(place, replicator, table)).detach();
                    started.set(started.get() + 1);
                    std::future::pending::<()>().await;
                }
            };
            ids.push(world.add_node_with(setting.shards, DiskFaults::default(), main));
        }
        let mut nodes = Self { world, ids, post, started, shards: setting.shards };
        nodes.wait_for(setting.shards * usize::from(setting.nodes()));
        nodes
    }

    fn wait_for(&mut self, starts: usize) {
        let started = Rc::clone(&self.started);
        self.run_until("the nodes to start", move || started.get() >= starts);
    }

    /// Runs until `condition` holds, and no node fails.
    pub(crate) fn run_until(&mut self, what: &str, condition: impl Fn() -> bool) {
        let ids = self.ids.clone();
        let failed = |world: &World, id: NodeId| match world.outcome(id) {
            Some(Err(problem)) if problem != "crashed" => Some(problem),
            _ => None,
        };
        let ended = self
            .world
            .run_steps(STEPS_MAX, |world| condition() || ids.iter().any(|id| failed(world, *id).is_some()));
        for id in &ids {
            if let Some(problem) = failed(&self.world, *id) {
                panic!("node {}: {problem}\n{}", id.number() + 1, self.world.log().join("\n"));
            }
        }
        ended.unwrap_or_else(|stuck| panic!("waiting for {what}: {stuck}"));
    }

    /// Cuts a node's power; everybody knows.
    pub(crate) fn crash(&mut self, node: u16) {
        self.post.down.borrow_mut().insert(node);
        self.world.crash(self.ids[usize::from(node) - 1]);
    }

    /// Starts it again, and waits until it is open.
    pub(crate) fn restart(&mut self, node: u16) {
        let starts = self.started.get() + self.shards;
        self.world.restart(self.ids[usize::from(node) - 1]);
        self.wait_for(starts);
        self.post.down.borrow_mut().remove(&node);
    }

    /// Has shard 0 of a node begin `work`.
    pub(crate) fn give<F: Future<Output = ()> + 'static>(
        &self,
        node: u16,
        work: impl FnOnce(Replicator, Rc<Table>) -> F + 'static,
    ) {
        let job: Job = Box::new(move |replicator, table| Box::pin(work(replicator, table)));
        self.post.jobs.borrow_mut().push((node, job));
    }

    /// Runs `work` on shard 0 of a node to its end.
    pub(crate) fn on<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        node: u16,
        work: impl FnOnce(Replicator, Rc<Table>) -> F + 'static,
    ) -> T {
        let result: Rc<RefCell<Option<T>>> = Rc::default();
        let of_work = Rc::clone(&result);
        self.give(node, move |replicator, table| {
            let future = work(replicator, table);
            async move { drop(of_work.replace(Some(future.await))) }
        });
        let of_wait = Rc::clone(&result);
        self.run_until("a script", move || of_wait.borrow().is_some());
        result.take().expect("a result")
    }
}

/// A key of the table.
pub(crate) fn key(number: u8) -> DecoratedKey {
    DecoratedKey::new(vec![number])
}
