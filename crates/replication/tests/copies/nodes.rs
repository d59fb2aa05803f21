//! Several nodes on one shard: node `n` keeps its copy of the one table of the test in a table of its own.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::pending;
use std::rc::Rc;
use std::time::Duration;

use cluster::View;
use cluster::maps::map::MapParts;
use cluster::maps::{Placed, Step};
use cluster::nodes::NodeRecord;
use model::mutation::MutationBuilder;
use model::partition_key::DecoratedKey;
use model::schema::{KeyspaceOptions, SchemaChange, TableOptions};
use model::tablet::Replica;
use model::{RowView, Table, TableId, Token};
use reactor::Deadline;
use reactor::sim::{DiskFaults, World};
use replication::peers::{NodeChange, NodeListener, PeerAnswer, PeerCall, PeerError, PeerErrorKind, Peers};
use replication::{HintsConfig, Replicator};
use storage::{Dead, Flow, Place, RowConsumer, Storage, StorageConfig};
use wire::node::answer::{Answer, AnswerBuilder, End};
use wire::node::frame::Verb;
use wire::node::mutate::{self, Entry, Mutate};
use wire::node::read::{Partitions, Read};

use super::writes;

/// The table that requests name.
pub(crate) const TABLE: TableId = id_of(1);
/// A table with all writes, for comparison.
pub(crate) const ALL: TableId = id_of(99);

const STEPS_MAX: u64 = 50_000_000;
/// The version of the routing that the test pretends.
const VERSION: u64 = 1_000_000;

/// The table in which a node has its copy.
pub(crate) const fn id_of(node: u16) -> TableId {
    TableId([node as u8; 16])
}

/// The host id of a node.
pub(crate) fn host_of(node: u16) -> [u8; 16] {
    [node as u8; 16]
}

/// What a node does with requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    /// It serves them.
    Serves,
    /// It is down, as everybody knows.
    Down,
    /// It does not answer.
    Silent,
    /// It answers all but requests for data.
    KeepsData,
    /// It answers after so long.
    Late(Duration),
    /// Its connection breaks.
    Breaks,
    /// The same, after those of others.
    BreaksLate,
    /// It has no room.
    Overloaded,
    /// It answers reads and takes no writes, as a node with a full disk does.
    Full,
}

/// Node number, data center and rack.
pub(crate) type Site = (u16, &'static str, &'static str);

/// The other nodes.
#[derive(Default)]
pub(crate) struct Others {
    replicator: RefCell<Option<Replicator>>,
    moods: RefCell<BTreeMap<u16, Mood>>,
    /// Requests that reached each node, by verb.
    pub(crate) calls: RefCell<Vec<(u16, Verb)>>,
    /// So many requests are answered as stale.
    pub(crate) stale: Cell<u32>,
    /// Whether no node takes writes.
    pub(crate) refuse_writes: Cell<bool>,
    /// Whether answers have nothing, and end at the beginning of what is asked for.
    pub(crate) lies: Cell<bool>,
    /// How long each request takes.
    pub(crate) slow: Cell<Option<Duration>>,
    listeners: RefCell<Vec<NodeListener>>,
}

impl Others {
    pub(crate) fn set(&self, node: u16, mood: Mood) {
        let was_up = self.mood(node) != Mood::Down;
        self.moods.borrow_mut().insert(node, mood);
        let is_up = mood != Mood::Down;
        if was_up != is_up {
            let change = if is_up { NodeChange::Up(node) } else { NodeChange::Down(node) };
            let listeners = self.listeners.borrow().clone();
            listeners.iter().for_each(|listener| listener(change));
        }
    }

    fn mood(&self, node: u16) -> Mood {
        self.moods.borrow().get(&node).copied().unwrap_or(Mood::Serves)
    }
}

impl Peers for Others {
    fn is_up(&self, replica: Replica) -> bool {
        self.mood(replica.node) != Mood::Down
    }

    fn on_change(&self, listener: NodeListener) {
        self.listeners.borrow_mut().push(listener);
    }

    fn call(&self, call: PeerCall) -> PeerAnswer {
        let node = call.to.node;
        let fault = |kind| -> PeerAnswer {
            Box::pin(async move { Err(PeerError { kind, reason: format!("node {node}") }) })
        };
        if self.stale.get() > 0 {
            self.stale.set(self.stale.get() - 1);
            return fault(PeerErrorKind::Stale);
        }
        match self.mood(node) {
            Mood::Serves | Mood::Late(_) => {}
            Mood::Full if !matches!(call.verb, Verb::Mutate | Verb::Hint) => {}
            Mood::KeepsData if call.verb != Verb::Read => {}
            Mood::Down => panic!("node {node} is down and was asked"),
            Mood::Silent | Mood::KeepsData => return Box::pin(pending()),
            Mood::Breaks => return fault(PeerErrorKind::Unreachable),
            Mood::BreaksLate => {
                let broken = fault(PeerErrorKind::Unreachable);
                return Box::pin(async move {
                    reactor::sleep(Duration::from_millis(10)).await;
                    broken.await
                });
            }
            Mood::Overloaded | Mood::Full => return fault(PeerErrorKind::Overloaded),
        }
        if self.refuse_writes.get() && matches!(call.verb, Verb::Mutate | Verb::Hint) {
            return fault(PeerErrorKind::Failed);
        }
        self.calls.borrow_mut().push((node, call.verb));
        let slow = match self.mood(node) {
            Mood::Late(time) => Some(time),
            _ => self.slow.get(),
        };
        let lies = self.lies.get();
        let replicator = self.replicator.borrow().clone().expect("the test has begun");
        Box::pin(async move {
            if let Some(time) = slow {
                reactor::sleep(time).await;
            }
            let body = to_node(&replicator, node, call.verb, &call.body);
            let answer = replicator.serve(call.verb, &body, call.deadline).await.map_err(PeerError::from)?;
            match call.verb {
                Verb::Read if lies => Ok(no_progress(&call.body)),
                Verb::Read => Ok(of_table(&answer, TABLE)),
                _ => Ok(answer),
            }
        })
    }
}

/// A mutation of another table.
pub(crate) fn renamed(mutation: &[u8], table: TableId) -> Vec<u8> {
    let mut bytes = mutation.to_vec();
    bytes[1..17].copy_from_slice(&table.0);
    bytes
}

/// A request of the test's table as one of a node's own.
fn to_node(replicator: &Replicator, node: u16, verb: Verb, body: &[u8]) -> Vec<u8> {
    if matches!(verb, Verb::BatchLog | Verb::BatchDone) {
        // All nodes keep batches in one place here.
        let mut body = body.to_vec();
        body[15] ^= node as u8;
        return body;
    }
    let table = replicator.storage().schema().table_by_id(id_of(node)).cloned().expect("a node's table");
    let routing = replicator.routing(&table);
    let (version, since) = (routing.version(), routing.since(model::tablet::TabletId(0))[0]);
    if !matches!(verb, Verb::Mutate | Verb::Hint) {
        let mut body = body.to_vec();
        body[..16].copy_from_slice(&table.id().0);
        body[16..24].copy_from_slice(&version.to_le_bytes());
        body[24..32].copy_from_slice(&since.to_le_bytes());
        return body;
    }
    let message = mutate::decode(body).expect("a message");
    let bytes: Vec<_> =
        message.entries.iter().map(|entry| renamed(entry.mutation.as_bytes(), table.id())).collect();
    let entry = |bytes| {
        let mutation = model::mutation::MutationView::parse(bytes).expect("a mutation");
        Entry { version, since, mutation }
    };
    let entries = bytes.iter().map(|bytes| entry(bytes)).collect();
    let mut out = Vec::new();
    mutate::encode(&Mutate { entries, ..message }, &mut out);
    out
}

/// An answer to a read of one partition that has nothing of it and promises more.
fn no_progress(body: &[u8]) -> Vec<u8> {
    let read = Read::decode(body).expect("a read");
    let Partitions::Key(key) = read.partitions else { panic!("one partition is asked for") };
    let key = DecoratedKey::new(key.to_vec());
    let position = Some(model::Position::START);
    let mut mutation = Vec::new();
    let live = model::DeletionTime::LIVE;
    MutationBuilder::new(&mut mutation, TABLE, key.token, &key.key, live, |_| {}).finish();
    let mut out = Vec::new();
    let mut builder = AnswerBuilder::new(&mut out);
    builder.partition(position, |out| out.extend_from_slice(&mutation));
    builder.finish(Some(End { token: key.token, key: &key.key, position }), None);
    out
}

/// An answer as one of another table.
fn of_table(answer: &[u8], table: TableId) -> Vec<u8> {
    let answer = Answer::decode(answer).expect("an answer");
    let mut out = Vec::new();
    let mut builder = AnswerBuilder::new(&mut out);
    for partition in &answer.partitions {
        let bytes = renamed(partition.mutation.as_bytes(), table);
        builder.partition(partition.until, |out| out.extend_from_slice(&bytes));
    }
    builder.finish(answer.end, answer.digest);
    out
}

/// The nodes of a test, seen from the first.
pub(crate) struct Nodes {
    pub(crate) replicator: Replicator,
    pub(crate) others: Rc<Others>,
    pub(crate) table: Rc<Table>,
}

impl Nodes {
    /// Opens the nodes. `replicas` are those that have the table; the first node, which coordinates, may be
    /// none of them.
    pub(crate) async fn open(
        replication: &[(&str, &str)],
        sites: &[Site],
        replicas: &[u16],
        gc_grace_seconds: u32,
    ) -> Self {
        let mut config = StorageConfig::new("/ceto", 1 << 20);
        config.segment_bytes = 64 << 10;
        // Replicas keep what they are given.
        config.auto_compaction = false;
        config.commitlog_bytes_max = 1 << 20;
        let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
        let replication = replication.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let options = KeyspaceOptions { replication, durable_writes: true, tablets: None };
        let keyspace = SchemaChange::CreateKeyspace { name: "k".to_owned(), options };
        // A later life of the node has them already.
        let is_new = storage.schema().keyspace("k").is_none();
        if is_new {
            cluster::change_schema(&keyspace).await.expect("a keyspace");
        }
        let mut ids: Vec<TableId> = replicas.iter().map(|node| id_of(*node)).collect();
        ids.extend([TABLE, ALL]);
        ids.sort();
        ids.dedup();
        for mut change in writes::changes(&ids).into_iter().skip(1).filter(|_| is_new) {
            if let SchemaChange::CreateTable(definition) = &mut change {
                definition.options.gc_grace_seconds = gc_grace_seconds;
            }
            cluster::change_schema(&change).await.expect("a table");
        }
        let record = |(number, data_center, rack): &Site| {
            let (data_center, rack) = ((*data_center).to_owned(), (*rack).to_owned());
            let host_id = host_of(*number);
            (*number, NodeRecord { number: *number, host_id, data_center, rack, ..NodeRecord::default() })
        };
        let placed: Vec<_> = replicas
            .iter()
            .map(|node| Placed { node: *node, shard: 0, since: 0, ..Placed::default() })
            .collect();
        let map = MapParts { version: VERSION, log2: 1, tablets: vec![placed; 2], ..MapParts::default() };
        let records: cluster::Nodes = sites.iter().map(record).collect();
        View::here().pretend(records, TABLE, map);
        let others = Rc::new(Others::default());
        let replicator = Replicator::with_peers(storage, sites[0].1, Rc::clone(&others) as Rc<dyn Peers>);
        others.replicator.replace(Some(replicator.clone()));
        let table = replicator.storage().schema().table_by_id(TABLE).cloned().expect("the table");
        Self { replicator, others, table }
    }

    pub(crate) fn storage(&self) -> &Storage {
        self.replicator.storage()
    }

    /// As [`Nodes::open`], with hints and kept batches.
    pub(crate) async fn open_late(replicas: &[u16], gc_grace_seconds: u32, config: HintsConfig) -> Self {
        let nodes = Self::open(&RF3, &THREE, replicas, gc_grace_seconds).await;
        nodes.replicator.start_late(config).await.expect("hints");
        // The first look at what is to be delivered is over before the test begins.
        reactor::sleep(Duration::from_millis(100)).await;
        nodes
    }

    /// Has other replicas from now on.
    pub(crate) fn move_to(&self, replicas: &[u16]) {
        let version = self.replicator.routing(&self.table).version() + 1;
        // The storage of this test has had its tablets from the beginning.
        let since = |node| if node == 1 { 0 } else { version };
        let placed: Vec<_> = replicas
            .iter()
            .map(|node| Placed { node: *node, shard: 0, since: since(*node), ..Placed::default() })
            .collect();
        let map = MapParts { version, log2: 1, tablets: vec![placed; 2], ..MapParts::default() };
        let nodes = (*View::here().nodes()).clone();
        View::here().pretend(nodes, TABLE, map);
    }

    /// Has these replicas from now on, of which the last one joins or leaves, and is fenced against requests
    /// of before; `changing` while the factors of the keyspace are on their way.
    pub(crate) fn step(&self, replicas: &[u16], last: Step, changing: bool) {
        let version = self.replicator.routing(&self.table).version() + 1;
        let placed = |node: &u16| Placed { node: *node, ..Placed::default() };
        let mut placed: Vec<Placed> = replicas.iter().map(placed).collect();
        placed.last_mut().expect("there is a replica").step = last;
        let map = MapParts {
            version,
            log2: 1,
            tablets: vec![placed; 2],
            fence: version,
            changing,
            ..MapParts::default()
        };
        let nodes = (*View::here().nodes()).clone();
        View::here().pretend(nodes, TABLE, map);
    }

    /// Has no read repair what it finds.
    pub(crate) async fn repair_nothing(&mut self) {
        self.alter(|options| options.read_repair = "NONE".to_owned()).await;
    }

    /// Gives the table another `speculative_retry`.
    pub(crate) async fn speculate(&mut self, policy: &str) {
        self.alter(|options| options.speculative_retry = policy.to_owned()).await;
    }

    /// Gives the table other options.
    async fn alter(&mut self, change: impl FnOnce(&mut TableOptions)) {
        let mut definition = self.table.definition().clone();
        change(&mut definition.options);
        definition.revision += 1;
        let change = SchemaChange::AlterTable(Box::new(definition));
        cluster::change_schema(&change).await.expect("an altered table");
        self.table = self.storage().schema().table_by_id(TABLE).cloned().expect("the table");
    }

    /// Gives a write to one node.
    pub(crate) async fn give(&self, node: u16, mutation: &[u8]) {
        let given = self.storage().apply(&renamed(mutation, id_of(node)), Deadline::NEVER).await;
        given.expect("a write");
    }

    /// Ends the test: the nodes know each other no more.
    pub(crate) fn close(self) {
        self.others.replicator.take();
    }
}

/// Three nodes in one rack.
pub(crate) const THREE: [Site; 3] = [(1, "dc", "r"), (2, "dc", "r"), (3, "dc", "r")];
/// Factor three, wherever.
pub(crate) const RF3: [(&str, &str); 2] = [("class", "SimpleStrategy"), ("replication_factor", "3")];

/// A reader that keeps live rows, up to limits, and what was dead.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Reader {
    pub(crate) partitions: Vec<super::heard::Live>,
    /// Rows that are still wanted, in all and of each partition.
    pub(crate) rows: Option<usize>,
    pub(crate) per_partition: Option<usize>,
    ended: bool,
    pub(crate) dead: u32,
}

impl Reader {
    pub(crate) fn new(rows: Option<usize>, per_partition: Option<usize>) -> Self {
        Self { rows, per_partition, ended: true, ..Self::default() }
    }
}

impl RowConsumer for Reader {
    fn partition(&mut self, key: &[u8], _: Token, static_row: Option<RowView<'_>>) -> Flow {
        // A read of memory alone ends no partition of which its reader wants the static row only.
        assert!(self.ended || self.per_partition == Some(0), "a partition begins within another");
        self.ended = false;
        self.partitions.push((key.to_vec(), static_row.map(|row| row.as_bytes().to_vec()), Vec::new()));
        if self.per_partition == Some(0) { Flow::SkipPartition } else { Flow::Continue }
    }

    fn row(&mut self, clustering: &[u8], row: RowView<'_>) -> Flow {
        assert!(!self.ended, "a row without a partition");
        let rows = &mut self.partitions.last_mut().expect("a partition is announced").2;
        rows.push((clustering.to_vec(), row.as_bytes().to_vec()));
        if let Some(left) = &mut self.rows {
            *left -= 1;
            if *left == 0 {
                return Flow::Stop;
            }
        }
        if self.per_partition.is_some_and(|most| rows.len() >= most) {
            return Flow::SkipPartition;
        }
        Flow::Continue
    }

    fn partition_end(&mut self) -> Flow {
        assert!(!self.ended, "a partition ends twice");
        self.ended = true;
        Flow::Continue
    }

    fn dead(&mut self, dead: Dead, _: Place<'_>) -> Flow {
        self.dead += dead.tombstones;
        Flow::Continue
    }
}

/// Runs `work` in several lives of one simulated node, which forgets at each end what was not synced. A life
/// ends when its work says so.
pub(crate) fn run_lives<F: Future<Output = ()> + 'static>(
    seed: u64,
    lives: usize,
    work: impl Fn(usize) -> F + 'static,
) -> Result<(), String> {
    let mut world = World::new(seed);
    let (life, done) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (of_life, of_done) = (Rc::clone(&life), Rc::clone(&done));
    let work = Rc::new(work);
    let id = world.add_node_with(1, DiskFaults::default(), move |_| {
        let (work, done, life) = (Rc::clone(&work), Rc::clone(&of_done), of_life.get());
        async move {
            work(life).await;
            done.set(done.get() + 1);
            pending::<()>().await;
        }
    });
    for number in 1..=lives {
        let ended = world.run_steps(STEPS_MAX, |world| done.get() == number || world.outcome(id).is_some());
        match world.outcome(id) {
            Some(Err(problem)) => return Err(problem),
            _ if done.get() == number => {}
            _ => return Err(format!("life {number} does not end: {ended:?}")),
        }
        if number < lives {
            life.set(number);
            world.crash(id);
            world.restart(id);
        }
    }
    Ok(())
}

/// Runs `work` on one simulated node.
pub(crate) fn run<F: Future<Output = ()> + 'static>(
    seed: u64,
    work: impl FnOnce() -> F + 'static,
) -> Result<(), String> {
    let mut world = World::new(seed);
    let (done, work) = (Rc::new(Cell::new(false)), Cell::new(Some(work)));
    let of_node = Rc::clone(&done);
    let faults = DiskFaults { lose_unsynced: false, ..DiskFaults::default() };
    let id = world.add_node_with(1, faults, move |_| {
        let (done, work) = (Rc::clone(&of_node), work.take().expect("a node that starts once"));
        async move {
            work().await;
            done.set(true);
        }
    });
    let ended = world.run_steps(STEPS_MAX, |world| done.get() || world.outcome(id).is_some());
    match world.outcome(id) {
        Some(Err(problem)) => Err(problem),
        _ if done.get() => Ok(()),
        _ => Err(format!("it does not end: {ended:?}")),
    }
}
