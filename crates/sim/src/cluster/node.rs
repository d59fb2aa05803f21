//! The program of a simulated node: opens it as the server does, has clients work on every shard, and closes
//! it when it is told to end.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use cluster::ControlPlane;
use query::Engine;
use reactor::{Event, Group, ShardInfo, mesh};
use server::config::{Config, Seed};
use server::inproc::Node;

use super::check;
use super::client::Client;
use super::{Phase, Shared, below};

/// Memory for the memtables of a shard, small enough that they are flushed.
const MEMTABLE_BYTES: u64 = 1 << 20;
const SEGMENT_BYTES: u64 = 64 << 10;
const COMMITLOG_BYTES: u64 = 640 << 10;
/// Memory of a shard as the layers above storage take it.
const SHARD_BYTES: u64 = 64 << 20;
/// Clients of each shard.
const CLIENTS: u64 = 2;
/// Longest time between two requests of a client.
const THINK_MS_MAX: u64 = 2_000;

/// How far a shard of the node is.
#[derive(Default)]
pub(super) struct Stage {
    open: Cell<bool>,
    stopping: Cell<bool>,
    ended: Cell<bool>,
    clients: Cell<u64>,
    changed: Event,
}

impl Stage {
    fn set(&self, flag: impl FnOnce(&Self) -> &Cell<bool>) {
        flag(self).set(true);
        self.changed.notify_all();
    }

    /// Whether clients go on.
    pub(super) fn goes_on(&self) -> bool {
        !self.stopping.get()
    }
}

/// A client that works, for those who wait until there is none.
struct AtWork(Rc<Stage>);

impl AtWork {
    fn new(stage: &Rc<Stage>) -> Self {
        stage.clients.set(stage.clients.get() + 1);
        Self(Rc::clone(stage))
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.clients.set(self.0.clients.get() - 1);
        self.0.changed.notify_all();
    }
}

/// Node `at` at `address`, one shard of it.
pub(super) async fn main(info: ShardInfo, at: usize, address: IpAddr, shared: Rc<Shared>) {
    let stage = Rc::new(Stage::default());
    reactor::set_local(Rc::clone(&stage));
    if info.id == 0 {
        let stop = reactor::spawn(Group::ADMIN, reactor::signal::terminated());
        let node = match Node::open(&config(&shared, address, at, info.count)).await {
            Ok(node) => node,
            Err(error) => {
                shared.note(|| format!("node {at} does not start: {error}"));
                // The nemesis puts another disk in its place, and starts it again.
                if !shared.bad.borrow().contains(&at) {
                    shared.fail(format!("node {at} does not start: {error}"));
                }
                return std::future::pending().await;
            }
        };
        open(at, &shared, info.count).await;
        serve(at, &stage, &shared);
        // Only a broken task would be an error, and it ends the world.
        let _ = stop.await;
        shared.open.borrow_mut().remove(&at);
        each(info.count, async |stage| {
            stage.set(|stage| &stage.stopping);
            stage.changed.wait_until(|| stage.clients.get() == 0).await;
        })
        .await;
        if let Err(error) = node.close().await
            && !shared.bad.borrow().contains(&at)
        {
            shared.fail(format!("node {at} does not close: {error}"));
        }
        each(info.count, async |stage| stage.set(|stage| &stage.ended)).await;
        return;
    }
    stage.changed.wait_until(|| stage.open.get() || stage.ended.get()).await;
    serve(at, &stage, &shared);
    stage.changed.wait_until(|| stage.ended.get()).await;
}

/// Notes that a node is open, and has its shards begin.
async fn open(at: usize, shared: &Rc<Shared>, shards: usize) {
    let control = ControlPlane::here().expect("a node that has opened has a control plane");
    *shared.lives.borrow_mut().entry(at).or_default() += 1;
    shared.note(|| format!("node {at} is open, with {shards} shard(s)"));
    shared.open.borrow_mut().insert(at, control);
    each(shards, async |stage| stage.set(|stage| &stage.open)).await;
}

/// Does something with the stage of each shard.
async fn each<F>(shards: usize, work: F)
where
    F: AsyncFn(Rc<Stage>) + Copy + Send + 'static,
{
    for shard in 0..shards {
        let called = mesh::call(shard, Group::ADMIN, move || async move {
            work(reactor::local::<Stage>().expect("a shard begins with its stage")).await;
        });
        called.await.expect("every shard of the node runs");
    }
}

/// Starts the clients of a shard, and on shard 0 the one that checks.
fn serve(at: usize, stage: &Rc<Stage>, shared: &Rc<Shared>) {
    let life = (at, shared.lives.borrow().get(&at).copied().unwrap_or_default());
    let engine = (*Engine::here().expect("a shard that is open has an engine")).clone();
    let client = |name| Client { name, engine: engine.clone(), shared: Rc::clone(shared), life };
    for number in 0..CLIENTS {
        let (client, at_work) = (client((reactor::shard_id(), number)), AtWork::new(stage));
        reactor::spawn(Group::STATEMENT, async move { work(&client, &at_work.0).await }).detach();
    }
    if reactor::shard_id() == 0 {
        let (client, at_work) = (client((0, CLIENTS)), AtWork::new(stage));
        reactor::spawn(Group::STATEMENT, async move { look(&client, &at_work.0).await }).detach();
    }
}

/// Sends requests, one after the other.
async fn work(client: &Client, stage: &Stage) {
    let shared = &client.shared;
    while stage.goes_on() && shared.failure.borrow().is_none() {
        reactor::sleep(Duration::from_millis(1 + below(THINK_MS_MAX))).await;
        if shared.phase.get() != Phase::Work || shared.left.get() == 0 || !stage.goes_on() {
            continue;
        }
        shared.left.set(shared.left.get() - 1);
        if let Err(wrong) = client.operate().await {
            shared.fail(format!("node {} shard {}: {wrong}", client.life.0, client.name.0));
        }
    }
}

/// Makes the tables, and looks at everything in the end, when it is this node's turn.
async fn look(client: &Client, stage: &Stage) {
    let shared = &client.shared;
    while stage.goes_on() && shared.failure.borrow().is_none() {
        reactor::sleep(Duration::from_millis(100)).await;
        let done = match shared.phase.get() {
            Phase::Prepare
                if client.life.0 == 0 && shared.open.borrow().len() >= shared.seeds.borrow().len() =>
            {
                check::prepare(client).await.map(|()| shared.phase.set(Phase::Work))
            }
            Phase::Check(step) if step.node == client.life.0 && shared.checked.get() != Some(step) => {
                check::everything(client, step).await.map(|()| shared.checked.set(Some(step)))
            }
            _ => continue,
        };
        if let Err(wrong) = done {
            shared.fail(format!("node {}, {:?}: {wrong}", client.life.0, shared.phase.get()));
        }
    }
}

fn config(shared: &Shared, address: IpAddr, at: usize, shards: usize) -> Config {
    let shards = shards as u64;
    let seeds = shared.seeds.borrow().iter().map(|address| Seed { address: *address, port: None }).collect();
    let mut config = Config {
        workdir: "/ceto".into(),
        rack: format!("rack{}", at as u64 % shared.racks + 1),
        listen_address: Some(address),
        rpc_address: address,
        // The machine that simulates has nothing to do with the node's disk and memory.
        developer_mode: true,
        memory_bytes: Some(shards * SHARD_BYTES),
        memtable_bytes: Some(shards * MEMTABLE_BYTES),
        commitlog_batch: shared.batch,
        commitlog_segment_bytes: SEGMENT_BYTES,
        commitlog_bytes_max: Some(shards * COMMITLOG_BYTES),
        ..Config::default()
    };
    config.topology.seeds = seeds;
    config
}
