//! Nodes for the tests: each shard runs a network with a few handlers, and then what the test asks of it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use cluster::NodeNumber;
use cluster::net::{Answer, InternodeCompression, Member, Members, Network, NetworkConfig, Request};
use reactor::sim::{NodeId, World};
use reactor::{Deadline, ShardInfo};
use wire::node::fault::{Fault, FaultKind};
use wire::node::frame::{Verb, WorkGroup};
use wire::node::hello::{Class, Epoch, Hello, Uuid};

pub(crate) const PORT: u16 = 7000;

pub(crate) fn host_id(node: NodeNumber) -> Uuid {
    [node as u8; 16]
}

pub(crate) fn address(node: NodeNumber) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, node as u8], PORT))
}

/// What a node says of itself.
pub(crate) fn hello(node: NodeNumber, shards: usize, generation: u64) -> Hello {
    Hello {
        version_min: 1,
        version_max: 1,
        cluster_id: Some([0xcc; 16]),
        cluster_name: "Test Cluster".to_owned(),
        partitioner: "org.apache.cassandra.dht.Murmur3Partitioner".to_owned(),
        host_id: host_id(node),
        expected: None,
        node,
        generation,
        boot: reactor::random_u64(),
        shard: 0,
        shards: shards as u16,
        features: Vec::new(),
        epoch: Some(Epoch { number: 1, id: [1; 16] }),
        to_shard: None,
        class: Class::Control,
        data_center: "dc1".to_owned(),
        rack: "rack1".to_owned(),
        address: address(node).to_string(),
        heard: Vec::new(),
    }
}

/// Nodes 1 to `count`, the first of the world's nodes being 1.
pub(crate) fn members(count: usize, shards: usize) -> Members {
    let member = |node: usize| Member {
        node: node as NodeNumber,
        host_id: host_id(node as NodeNumber),
        address: address(node as NodeNumber),
        shards: shards as u16,
        generation: 1,
        data_center: "dc1".to_owned(),
        rack: "rack1".to_owned(),
    };
    Members::new((1..=count).map(member).collect(), BTreeSet::new(), Vec::new())
}

/// What the handlers of all nodes have seen.
#[derive(Default)]
pub(crate) struct Seen {
    /// Echoes that were served, by body.
    pub(crate) echoed: RefCell<Vec<Vec<u8>>>,
    /// Naps that began, and that came to their end.
    pub(crate) begun: Cell<u64>,
    pub(crate) ended: Cell<u64>,
}

pub(crate) type Work = Pin<Box<dyn Future<Output = ()>>>;

/// What a shard does once its network is open; its node goes on serving afterwards.
pub(crate) type Task = Rc<dyn Fn(Rc<Network>, NodeNumber, ShardInfo) -> Work>;

/// Several nodes in a world.
pub(crate) struct Nodes {
    pub(crate) world: World,
    pub(crate) ids: Vec<NodeId>,
    pub(crate) seen: Rc<Seen>,
    done: Rc<Cell<usize>>,
    tasks: usize,
}

/// How the nodes are set up.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) nodes: usize,
    pub(crate) shards: usize,
    pub(crate) change: Rc<dyn Fn(&mut NetworkConfig)>,
    pub(crate) members: Rc<dyn Fn() -> Members>,
    /// Whether pings are echoed; liveness answers them itself.
    pub(crate) serves_pings: bool,
}

impl Setup {
    pub(crate) fn new(nodes: usize, shards: usize) -> Self {
        Self {
            nodes,
            shards,
            change: Rc::new(|_| {}),
            members: Rc::new(move || members(nodes, shards)),
            serves_pings: true,
        }
    }

    pub(crate) fn with(mut self, change: impl Fn(&mut NetworkConfig) + 'static) -> Self {
        self.change = Rc::new(change);
        self
    }
}

impl Nodes {
    /// Starts the nodes; each shard of each does `task`.
    pub(crate) fn start<F, Fut>(world: World, setup: &Setup, task: F) -> Self
    where
        F: Fn(Rc<Network>, NodeNumber, ShardInfo) -> Fut + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        let mut world = world;
        let task: Task = Rc::new(move |network, node, info| Box::pin(task(network, node, info)));
        let seen = Rc::new(Seen::default());
        let done = Rc::new(Cell::new(0));
        // Shards whose network has ever been open: tasks begin once all are.
        let open = Rc::new(Cell::new(0));
        let tasks = setup.nodes * setup.shards;
        let mut ids = Vec::new();
        for node in 1..=setup.nodes as NodeNumber {
            let (setup_of, task, seen, done) = (setup.clone(), task.clone(), seen.clone(), done.clone());
            let open = open.clone();
            let starts: Rc<RefCell<Vec<u64>>> = Rc::default();
            ids.push(world.add_node(setup.shards, move |info| {
                let (setup, task, seen, done) = (setup_of.clone(), task.clone(), seen.clone(), done.clone());
                let open = open.clone();
                let mut starts = starts.borrow_mut();
                // A shard that is new at a restart is of the same start as the others.
                let before = starts.first().map_or(0, |first| first - u64::from(info.id > 0));
                let shards = starts.len().max(info.count);
                starts.resize(shards, before);
                starts[info.id] += 1;
                let generation = starts[info.id];
                async move {
                    let mut config =
                        NetworkConfig::new(hello(node, info.count, generation), Some(address(node)));
                    (setup.change)(&mut config);
                    let network = Network::start(config).await.expect("a free port");
                    register(&network, node, &seen, setup.serves_pings);
                    network.set_members((setup.members)());
                    open.set(open.get() + 1);
                    while open.get() < tasks {
                        reactor::sleep(Duration::from_millis(1)).await;
                    }
                    task(Rc::clone(&network), node, info).await;
                    done.set(done.get() + 1);
                    std::future::pending::<()>().await;
                }
            }));
        }
        Self { world, ids, seen, done, tasks }
    }

    /// Runs until every shard has done its task.
    pub(crate) fn run(&mut self) {
        let (done, tasks, ids) = (Rc::clone(&self.done), self.tasks, self.ids.clone());
        let ran =
            self.world.run_until(|world| done.get() >= tasks || ids.iter().any(|id| failed(world, *id)));
        for id in &self.ids {
            if let Some(Err(message)) = self.world.outcome(*id) {
                panic!("node {}: {message}\n{}", id.number() + 1, self.world.log().join("\n"));
            }
        }
        ran.unwrap_or_else(|stuck| panic!("{stuck}\n{}", self.world.log().join("\n")));
    }

    /// Runs until `condition` holds.
    pub(crate) fn run_until(&mut self, condition: impl Fn() -> bool) {
        let ran = self.world.run_until(|_| condition());
        ran.unwrap_or_else(|stuck| panic!("{stuck}\n{}", self.world.log().join("\n")));
    }
}

fn failed(world: &World, id: NodeId) -> bool {
    matches!(world.outcome(id), Some(Err(_)))
}

/// The handlers: `Mutate` echoes, `Read` naps, `Digest` answers in parts, `Status` tells strangers who asks.
fn register(network: &Rc<Network>, node: NodeNumber, seen: &Rc<Seen>, serves_pings: bool) {
    let of_echo = Rc::clone(seen);
    network.register(Verb::Mutate, move |request| {
        let seen = Rc::clone(&of_echo);
        async move { echo(node, &seen, request) }
    });
    let of_nap = Rc::clone(seen);
    network.register(Verb::Read, move |request| {
        let seen = Rc::clone(&of_nap);
        async move {
            seen.begun.set(seen.begun.get() + 1);
            let ms = u64::from(u32::from_le_bytes(request.body[..4].try_into().expect("a time")));
            reactor::sleep(Duration::from_millis(ms)).await;
            seen.ended.set(seen.ended.get() + 1);
            Ok(request.body)
        }
    });
    network.register(Verb::Digest, |request: Request| async move {
        let count = u32::from_le_bytes(request.body[..4].try_into().expect("a count"));
        let bytes = u32::from_le_bytes(request.body[4..8].try_into().expect("a length")) as usize;
        for number in 0..count {
            request.send_part(vec![number as u8; bytes]).await?;
        }
        Ok(b"end".to_vec())
    });
    if reactor::shard_id() == 0 {
        network.register(Verb::Status, |request: Request| async move {
            Ok(format!("{:?}", request.from.node).into_bytes())
        });
        if serves_pings {
            network.register(Verb::Ping, |request: Request| async move { Ok(request.body) });
        }
    }
}

/// The answer of an echo: node, shard, the asker's node and shard, and the body.
pub(crate) fn echoed(node: NodeNumber, shard: usize, from: (NodeNumber, u16), body: &[u8]) -> Vec<u8> {
    let mut answer = format!("{node}.{shard} to {}.{}: ", from.0, from.1).into_bytes();
    answer.extend_from_slice(body);
    answer
}

fn echo(node: NodeNumber, seen: &Seen, request: Request) -> Answer {
    let Some(from) = request.from.node else {
        return Err(Fault::new(FaultKind::Forbidden, "a stranger was let through"));
    };
    seen.echoed.borrow_mut().push(request.body.clone());
    Ok(echoed(node, reactor::shard_id(), (from, request.from.shard), &request.body))
}

pub(crate) fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(5))
}

/// Calls an echo of another node's shard.
pub(crate) async fn call_echo(
    network: &Rc<Network>,
    peer: (NodeNumber, u16),
    deadline: Deadline,
    body: Vec<u8>,
) -> Result<Vec<u8>, cluster::net::NetError> {
    network.call(peer, Verb::Mutate, WorkGroup::Statement, deadline, body).await
}

/// A metric of this shard about a node, 0 without it.
pub(crate) fn metric(name: &str, node: NodeNumber) -> u64 {
    let label = ("node".to_owned(), node.to_string());
    let found = reactor::metrics::snapshot()
        .into_iter()
        .find(|sample| sample.name == name && sample.labels.contains(&label));
    match found.map(|sample| sample.value) {
        Some(reactor::metrics::Value::Counter(value)) => value,
        Some(reactor::metrics::Value::Gauge(value)) => value as u64,
        _ => 0,
    }
}

/// Compresses everything.
pub(crate) fn compress_all(config: &mut NetworkConfig) {
    config.compression = InternodeCompression::All;
}
