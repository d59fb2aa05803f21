//! Simulation: many nodes and shards in one thread, virtual time, faults, all from one seed.
//!
//! The same seed and the same calls give the same run, byte for byte: [`World::trace_hash`] covers every
//! operation's submission and completion with its virtual time, every byte that moves, every log line and
//! every choice of who runs. Time passes only when nobody can run, and by a little with every poll of a task,
//! so that a loop that waits for the clock ends. Invariant: nothing in here reads a clock, a random source or
//! an address of memory.

mod content;
mod core;
mod disk;
mod flow;
mod names;
mod net;
mod outside;
mod shard_driver;
mod stepping;
mod trouble;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

pub use disk::{DiskFaults, TakenAway};
pub use net::{Link, NetFaults};

use crate::driver::Op;
use crate::driver::chunk::{ChunkPool, FreeList};
use crate::io::{DiskModel, Disks, is_scheduled};
use crate::mesh::MeshEnd;
use crate::sched::Group;
use crate::shard::{Parts, Shard};
use crate::start::ShardInfo;
use crate::waker::Remote;
use core::{Clock, Core, Port};
use disk::{Chance, Disk};
use net::Net;
use shard_driver::SimDriver;

/// Virtual time one poll of a task takes.
const POLL_COST_NS: u64 = 500;
/// Bytes of file buffers a simulated shard keeps.
const POOL_BYTES_MAX: usize = 4 << 20;

/// Names a node of a [`World`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(usize);

impl NodeId {
    /// The node's address on the simulated network; its own shards also reach it as 127.0.0.1.
    pub fn ip(self) -> IpAddr {
        net::address_of(self.0)
    }

    /// From 0, in the order of adding.
    pub fn number(self) -> usize {
        self.0
    }
}

/// What `run_until` waited for did not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Stuck {
    /// Nothing can run, no timer is set, nothing is on its way.
    #[error("deadlock at {at:?}: nobody can run and nothing is on its way")]
    Deadlock {
        /// The virtual time.
        at: Duration,
    },
    /// The number of steps was spent.
    #[error("{steps} steps were not enough, virtual time {at:?}")]
    Steps {
        /// How many.
        steps: u64,
        /// The virtual time.
        at: Duration,
    },
}

type Main = Rc<dyn Fn(ShardInfo) -> Pin<Box<dyn Future<Output = ()>>>>;
type Outcome = Rc<RefCell<Option<Result<(), String>>>>;

struct SimShard {
    shard: Rc<Shard>,
    port: Rc<Port>,
    outcome: Outcome,
    /// Until then it does not run.
    paused_until_ns: Cell<u64>,
}

struct Node {
    shards: Vec<SimShard>,
    count: usize,
    main: Main,
    /// What its shards take its disk to be able to do.
    model: Option<DiskModel>,
    disks: Disks,
    /// How its last run ended, once it has.
    ended: Option<Result<(), String>>,
}

/// How a world behaves beyond its seed.
#[derive(Debug, Clone)]
pub struct WorldOptions {
    /// The network.
    pub net: NetFaults,
    /// Whether the scheduler's order is left to chance now and then.
    pub shuffle: bool,
    /// Whether bytes that move are part of the trace.
    pub trace_content: bool,
}

impl Default for WorldOptions {
    fn default() -> Self {
        Self { net: NetFaults::default(), shuffle: true, trace_content: true }
    }
}

impl WorldOptions {
    /// No latency, no chance, no trace of content: for benches that count instructions.
    pub fn null() -> Self {
        let net = NetFaults { latency_ns: (0, 0), reset: 0.0, split: false };
        Self { net, shuffle: false, trace_content: false }
    }
}

/// Nodes, their disks, the network between them, and virtual time.
pub struct World {
    core: Rc<Core>,
    nodes: Vec<Node>,
    options: WorldOptions,
}

impl Chance for &Core {
    fn below(&mut self, limit: u64) -> u64 {
        Core::below(self, limit)
    }

    fn chance(&mut self, probability: f64) -> bool {
        Core::chance(self, probability)
    }
}

impl World {
    /// A world without nodes.
    pub fn new(seed: u64) -> World {
        Self::with_options(seed, WorldOptions::default())
    }

    /// A world without nodes that behaves as told.
    pub fn with_options(seed: u64, options: WorldOptions) -> World {
        let core = Core::new(seed, options.trace_content, Net::new(options.net.clone()));
        World { core, nodes: Vec::new(), options }
    }

    /// Adds a node with an empty, faultless disk and starts `main` on each of its shards.
    pub fn add_node<F, Fut>(&mut self, shards: usize, main: F) -> NodeId
    where
        F: Fn(ShardInfo) -> Fut + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        self.add_node_with(shards, DiskFaults::default(), main)
    }

    /// As `add_node`, with a disk that behaves as told.
    ///
    /// # Panics
    /// When `shards` is zero.
    pub fn add_node_with<F, Fut>(&mut self, shards: usize, faults: DiskFaults, main: F) -> NodeId
    where
        F: Fn(ShardInfo) -> Fut + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        assert!(shards > 0, "a node without shards");
        let id = NodeId(self.nodes.len());
        self.core.disks.borrow_mut().push(Disk::new(faults));
        self.core.clocks.borrow_mut().push(Clock::default());
        let main: Main = Rc::new(move |info| Box::pin(main(info)));
        let disks = Disks::new([], shards);
        self.nodes.push(Node { shards: Vec::new(), count: shards, main, model: None, disks, ended: None });
        self.start(id);
        id
    }

    fn start(&mut self, id: NodeId) {
        self.core.note("start", [id.0 as u64, 0, 0]);
        let node = &mut self.nodes[id.0];
        node.ended = None;
        // A fresh one: what was in flight at a crash does not come back.
        node.disks = Disks::new([], node.count);
        if let Some(model) = node.model {
            node.disks.0[0].set("sim", model);
        }
        let remotes: Vec<_> = (0..node.count).map(|_| Remote::new(None)).collect();
        for (number, seed) in MeshEnd::full(&remotes).into_iter().enumerate() {
            let port = Rc::new(Port {
                node: id.0,
                shard: number,
                flights: RefCell::new(Vec::new()),
                ready: RefCell::new(VecDeque::new()),
                woken: RefCell::default(),
                dead: Cell::new(false),
            });
            let driver = SimDriver {
                core: self.core.clone(),
                port: port.clone(),
                pool: ChunkPool::new(FreeList::full()),
                poll_cost_ns: POLL_COST_NS,
                shuffle: self.options.shuffle,
            };
            let shard = Shard::new(Parts {
                id: number,
                count: node.count,
                driver: Box::new(driver),
                remote: remotes[number].clone(),
                mesh: seed.plant(),
                pool_bytes_max: POOL_BYTES_MAX,
                spin_us: 0,
                disks: node.disks.clone(),
            });
            let outcome: Outcome = Rc::default();
            let main = (node.main)(ShardInfo { id: number, count: node.count });
            {
                let _entered = shard.enter();
                let task = shard.spawn(Group::ADMIN, main);
                let place = outcome.clone();
                drop(shard.spawn(Group::ADMIN, async move {
                    let result = task.await.map_err(|panicked| panicked.message);
                    place.replace(Some(result));
                }));
            }
            let paused_until_ns = Cell::new(0);
            node.shards.push(SimShard { shard, port, outcome, paused_until_ns });
        }
    }

    /// Cuts the node's power: its tasks vanish, its disk keeps what a crash leaves, its connections break.
    pub fn crash(&mut self, id: NodeId) {
        self.core.note("crash", [id.0 as u64, 0, 0]);
        let shards = std::mem::take(&mut self.nodes[id.0].shards);
        for sim in &shards {
            sim.port.dead.set(true);
        }
        {
            let flights: Vec<_> = shards.iter().map(|sim| sim.port.flights.borrow_mut()).collect();
            let mut writes: Vec<&Op> = Vec::new();
            for flight in flights.iter().flat_map(|flights| flights.iter()).flatten() {
                if matches!(flight.1, Op::Write { .. }) {
                    writes.push(&flight.1);
                }
            }
            self.core.disks.borrow_mut()[id.0].crash(&writes, &mut &*self.core);
        }
        net::crash(&self.core, id.0);
        for sim in &shards {
            let _entered = sim.shard.enter();
            sim.shard.tear_down();
        }
        drop(shards);
        let node = &mut self.nodes[id.0];
        node.ended.get_or_insert_with(|| Err("crashed".to_owned()));
    }

    /// Starts a node that has crashed or ended again, with its disk as it is.
    ///
    /// # Panics
    /// When the node is running.
    pub fn restart(&mut self, id: NodeId) {
        assert!(self.nodes[id.0].shards.is_empty(), "node {} is running", id.0);
        self.start(id);
    }

    /// As [`World::restart`], with another number of shards.
    ///
    /// # Panics
    /// When the node is running, or `shards` is zero.
    pub fn restart_with(&mut self, id: NodeId, shards: usize) {
        assert!(shards > 0, "a node without shards");
        self.nodes[id.0].count = shards;
        self.restart(id);
    }

    /// Asks a node to end, as SIGTERM does.
    pub fn terminate(&mut self, id: NodeId) {
        self.core.note("terminate", [id.0 as u64, 0, 0]);
        for sim in &self.nodes[id.0].shards {
            let _entered = sim.shard.enter();
            sim.shard.signals.deliver();
        }
    }

    /// Whether every shard's main has ended, or the node has crashed.
    pub fn is_ended(&self, id: NodeId) -> bool {
        self.nodes[id.0].ended.is_some()
    }

    /// How the node's run ended: the message of the first panic of a shard's main or of a task that nobody
    /// waited for, or `crashed`. `None` while it runs, but for a panic.
    pub fn outcome(&self, id: NodeId) -> Option<Result<(), String>> {
        let node = &self.nodes[id.0];
        let lost = node.shards.iter().find_map(|sim| sim.shard.lost_panic());
        lost.map(Err).or_else(|| node.ended.clone())
    }

    /// Changes how a node's disk behaves from now on.
    pub fn set_disk_faults(&mut self, id: NodeId, faults: DiskFaults) {
        self.core.disks.borrow_mut()[id.0].faults = faults;
    }

    /// Tells a node's I/O scheduler what its disk can do, from now on and when it starts again.
    pub fn set_disk_model(&mut self, id: NodeId, model: DiskModel) {
        let node = &mut self.nodes[id.0];
        node.model = Some(model);
        node.disks.0[0].set("sim", model);
    }

    /// Reads, writes and syncs that a node's disk has been given and has not served yet.
    pub fn disk_depth(&self, id: NodeId) -> usize {
        let shards = &self.nodes[id.0].shards;
        shards
            .iter()
            .map(|sim| {
                sim.port.flights.borrow().iter().flatten().filter(|(_, op, _)| is_scheduled(op)).count()
            })
            .sum()
    }

    /// The last log lines of all nodes.
    pub fn log(&self) -> Vec<String> {
        self.core.log.borrow().iter().cloned().collect()
    }

    /// Virtual time passed.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.core.now_ns.get())
    }

    /// A number from the world's seed, for whoever drives it.
    pub fn random_u64(&mut self) -> u64 {
        self.core.random()
    }

    /// A hash over everything that has happened.
    pub fn trace_hash(&self) -> u64 {
        self.core.trace_hash()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for number in 0..self.nodes.len() {
            for sim in &self.nodes[number].shards {
                sim.port.dead.set(true);
            }
            for sim in std::mem::take(&mut self.nodes[number].shards) {
                let _entered = sim.shard.enter();
                sim.shard.tear_down();
            }
        }
    }
}

/// Runs `main` on the one shard of a node of its own, in a world of `seed`, to its end; its output.
///
/// # Panics
/// When `main` panics or cannot end.
pub fn run_one<T, Fut>(seed: u64, main: impl FnOnce() -> Fut + 'static) -> T
where
    T: 'static,
    Fut: Future<Output = T> + 'static,
{
    let mut world = World::new(seed);
    let main = RefCell::new(Some(main));
    let output: Rc<RefCell<Option<T>>> = Rc::default();
    let place = output.clone();
    let node = world.add_node(1, move |_| {
        let future = main.borrow_mut().take().map(|main| main());
        let place = place.clone();
        async move {
            if let Some(future) = future {
                let value = future.await;
                place.replace(Some(value));
            }
        }
    });
    if let Err(stuck) = world.run() {
        panic!("seed {seed}: {stuck}");
    }
    if let Some(Err(message)) = world.outcome(node) {
        panic!("seed {seed}: {message}");
    }
    let output = output.take();
    output.unwrap_or_else(|| panic!("seed {seed}: no output"))
}
