//! Which nodes are alive, in the opinion of this one.
//!
//! Shard 0 pings shard 0 of every other member ([`ping`]) and forms an opinion ([`opinion`]), which every
//! shard has a copy of: [`Liveness::is_up`], [`Liveness::shard_is_stalled`]. It is private: nodes do not
//! agree on who is down. Those who act on it register with [`Liveness::on_change`]; the network acts first:
//! connections with a node that is down end, and one that is back is connected to at once. Invariant: a
//! shard's copy follows shard 0's in order, a message behind; a node without other members has no timer.

pub mod opinion;
pub mod ping;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use reactor::metrics::{self, Gauge};
use reactor::{Event, Gate, Group, Instant, Semaphore, mesh};
use wire::node::control::{NodeState, Ping, Pong, StateHash};
use wire::node::fault::{Fault, FaultKind};
use wire::node::frame::Verb;

use crate::NodeNumber;
use crate::net::{NetError, Network, Request};
use opinion::{Change, NodeView, Opinion, Skew};

/// A shard that has not turned its loop for this long is stalled.
const STALL_MIN: Duration = Duration::from_secs(1);

/// What a node says of itself in answers to pings, beyond clocks and stalls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnFacts {
    /// Its state.
    pub state: NodeState,
    /// The last command of the control plane that all shards have applied.
    pub applied: u64,
    /// A hash of that state, where nodes compare it.
    pub hash: Option<StateHash>,
    /// Bytes of data.
    pub load_bytes: u64,
    /// Bytes free on its disk.
    pub free_bytes: u64,
    /// Whether the port for clients is open.
    pub serves_clients: bool,
}

type Listener = Rc<dyn Fn(&Change)>;
type FactsSource = Box<dyn Fn() -> OwnFacts>;

/// A shard's copy of what shard 0 thinks of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Copy {
    is_up: bool,
    /// When this shard heard that it went down.
    down_since: Option<Instant>,
    serves_clients: bool,
    stalled: BTreeSet<u16>,
}

/// One shard's part of liveness.
pub struct Liveness {
    network: Rc<Network>,
    copies: RefCell<BTreeMap<NodeNumber, Copy>>,
    listeners: RefCell<Vec<Listener>>,
    /// On shard 0.
    opinion: RefCell<Opinion>,
    /// When time was told to pass last.
    ticked: Cell<Option<Instant>>,
    /// Changes reach the other shards one after the other.
    publishing: Semaphore,
    /// Since when each shard of this node has owed a sign of life; on shard 0.
    owed: RefCell<Vec<Option<Instant>>>,
    skews: RefCell<BTreeMap<NodeNumber, Rc<Gauge>>>,
    /// Numbers of other nodes that are up and that are not; on shard 0.
    counts: Option<[Rc<Gauge>; 2]>,
    gate: Gate,
    stopping: Event,
    is_stopped: Cell<bool>,
}

impl Liveness {
    /// Starts this shard's part and makes it the one that `reactor::local` finds. `facts` is asked with each
    /// ping of another node, on shard 0.
    pub fn start(network: &Rc<Network>, facts: impl Fn() -> OwnFacts + 'static) -> Rc<Self> {
        let liveness = Rc::new(Self {
            network: Rc::clone(network),
            copies: RefCell::default(),
            listeners: RefCell::default(),
            opinion: RefCell::default(),
            ticked: Cell::new(None),
            publishing: Semaphore::new(1),
            owed: RefCell::new(vec![None; reactor::shard_count()]),
            skews: RefCell::default(),
            counts: (reactor::shard_id() == 0)
                .then(|| COUNT_METRICS.map(|(name, help)| metrics::gauge(name, help, &[]))),
            gate: Gate::new(),
            stopping: Event::new(),
            is_stopped: Cell::new(false),
        });
        reactor::set_local(Rc::clone(&liveness));
        if reactor::shard_id() == 0 {
            let facts: Rc<FactsSource> = Rc::new(Box::new(facts));
            let answering = Rc::downgrade(&liveness);
            network.register(Verb::Ping, move |request| {
                let (liveness, facts) = (answering.upgrade(), Rc::clone(&facts));
                async move {
                    let ended = || Fault::new(FaultKind::NotServed, "the node ends");
                    liveness.ok_or_else(ended)?.pong(&request, facts())
                }
            });
            let hold = liveness.gate.enter().expect("a new gate is open");
            let running = Rc::clone(&liveness);
            reactor::spawn(Group::CONTROL, async move {
                ping::run(running).await;
                drop(hold);
            })
            .detach();
        }
        liveness
    }

    /// Whether a node is up; this node itself is no matter of opinion, and not up.
    pub fn is_up(&self, node: NodeNumber) -> bool {
        self.copies.borrow().get(&node).is_some_and(|copy| copy.is_up)
    }

    /// Since when a node that was up has been down, as this shard heard of it.
    pub fn down_since(&self, node: NodeNumber) -> Option<Instant> {
        self.copies.borrow().get(&node)?.down_since
    }

    /// Whether a node is up and its port for clients is open.
    pub fn serves_clients(&self, node: NodeNumber) -> bool {
        self.copies.borrow().get(&node).is_some_and(|copy| copy.is_up && copy.serves_clients)
    }

    /// Whether a shard of a node that is up stands still: its replicas are as good as down.
    pub fn shard_is_stalled(&self, node: NodeNumber, shard: u16) -> bool {
        self.copies.borrow().get(&node).is_some_and(|copy| copy.is_up && copy.stalled.contains(&shard))
    }

    /// Tells `listener` every change from now on, on this shard, once this shard's answers follow it.
    pub fn on_change(&self, listener: impl Fn(&Change) + 'static) {
        self.listeners.borrow_mut().push(Rc::new(listener));
    }

    /// What is known of each other member; on shard 0, empty elsewhere.
    pub fn views(&self) -> Vec<(NodeNumber, NodeView)> {
        self.opinion.borrow().views().map(|(node, view)| (node, view.clone())).collect()
    }

    /// Stops pinging and waits for what is under way.
    pub async fn stop(&self) {
        self.is_stopped.set(true);
        self.stopping.notify_all();
        self.network.members_changed().notify_all();
        self.gate.close().await;
        let listeners = self.listeners.take();
        drop(listeners);
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.get()
    }

    /// The answer to a ping.
    fn pong(&self, request: &Request, facts: OwnFacts) -> crate::net::Answer {
        let ping =
            Ping::decode(&request.body).map_err(|error| Fault::new(FaultKind::Invalid, error.to_string()))?;
        self.network.hear(&ping.heard);
        let OwnFacts { state, applied, hash, load_bytes, free_bytes, serves_clients } = facts;
        let now = reactor::now();
        let owed = self.owed.borrow();
        let is_stalled = |shard: usize| owed[shard].is_some_and(|since| now.since(since) >= STALL_MIN);
        let pong = Pong {
            generation: self.network.own().generation,
            state,
            applied,
            hash,
            stalled: Pong::bitmap(owed.len(), is_stalled),
            clock_us: reactor::wall_clock_us(),
            load_bytes,
            free_bytes,
            serves_clients,
            heard: self.network.heard(ping::HEARD_IN_PING),
        };
        let mut body = Vec::new();
        pong.encode(&mut body);
        Ok(body)
    }

    /// Asks each other shard of this node for a sign of life, unless it still owes one.
    fn look_at_shards(self: &Rc<Self>) {
        for shard in 1..reactor::shard_count() {
            if self.owed.borrow()[shard].is_some() {
                continue;
            }
            let Ok(hold) = self.gate.enter() else { return };
            self.owed.borrow_mut()[shard] = Some(reactor::now());
            let liveness = Rc::clone(self);
            reactor::spawn(Group::CONTROL, async move {
                // A shard that has stopped owes for ever, and is stalled in the eyes of others.
                if mesh::call(shard, Group::CONTROL, || async {}).await.is_ok() {
                    liveness.owed.borrow_mut()[shard] = None;
                }
                drop(hold);
            })
            .detach();
        }
    }

    async fn set_nodes(&self, nodes: &BTreeSet<NodeNumber>) {
        let gone: Vec<NodeNumber> = {
            let opinion = self.opinion.borrow();
            opinion.views().map(|(node, _)| node).filter(|node| !nodes.contains(node)).collect()
        };
        self.opinion.borrow_mut().set_nodes(nodes);
        self.show_counts();
        for node in gone {
            self.skews.borrow_mut().remove(&node);
            metrics::remove(SKEW_METRIC, &[("node", &node.to_string())]);
            everywhere(move |liveness| {
                liveness.copies.borrow_mut().remove(&node);
            })
            .await;
        }
    }

    async fn answered(&self, node: NodeNumber, sent: Instant, pong: Pong) {
        let mut changes = Vec::new();
        let answer = ping::with_clocks(sent, pong);
        let skew_us = {
            let mut opinion = self.opinion.borrow_mut();
            opinion.answered(node, answer, &mut changes);
            opinion.view(node).map_or(0, |view| view.skew_us)
        };
        if let Some(gauge) = self.skews.borrow().get(&node) {
            gauge.set(skew_us);
        }
        self.publish(changes).await;
    }

    async fn unanswered(&self, node: NodeNumber, error: &NetError) {
        let mut changes = Vec::new();
        {
            let mut opinion = self.opinion.borrow_mut();
            match error {
                NetError::Unreachable { is_refused: true, .. } => {
                    opinion.refused(node, reactor::now(), &mut changes);
                }
                _ => opinion.missed(node),
            }
        }
        self.publish(changes).await;
    }

    async fn tick(&self) {
        let mut changes = Vec::new();
        let now = reactor::now();
        let passed = self.ticked.replace(Some(now)).map_or(Duration::ZERO, |before| now.since(before));
        let stood_still = if passed > STALL_MIN { passed } else { Duration::ZERO };
        self.opinion.borrow_mut().tick(now, stood_still, &mut changes);
        self.publish(changes).await;
    }

    /// Acts on changes and tells every shard, in order.
    async fn publish(&self, changes: Vec<Change>) {
        if changes.is_empty() {
            return;
        }
        let Ok(_turn) = self.publishing.acquire(1).await else { return };
        self.show_counts();
        for change in changes {
            self.report(&change);
            if let Change::Up { node } | Change::Down { node, .. } = change {
                self.network.set_reachable(node, matches!(change, Change::Up { .. })).await;
            }
            everywhere(move |liveness| liveness.follow(&change)).await;
        }
    }

    fn show_counts(&self) {
        let Some([live, down]) = &self.counts else { return };
        let opinion = self.opinion.borrow();
        let (up, all) = (opinion.views().filter(|(_, view)| view.is_up).count(), opinion.views().count());
        live.set(up as i64);
        down.set((all - up) as i64);
    }

    /// Writes what operators have to know, and keeps the metric of a clock that is off.
    fn report(&self, change: &Change) {
        match *change {
            Change::Up { node } => reactor::info!("a node is up"; node = node, address = self.address(node)),
            Change::Down { node, cause } => {
                let cause = format!("{cause:?}");
                reactor::warn!("a node is down"; node = node, address = self.address(node), cause = cause);
            }
            Change::Stalled { node, shard, is_stalled: true } => {
                reactor::warn!("a shard of a node stands still"; node = node, shard = shard);
            }
            Change::Stalled { node, shard, is_stalled: false } => {
                reactor::info!("a shard of a node goes on"; node = node, shard = shard);
            }
            Change::Clients { node, is_served } => {
                reactor::debug!("the port for clients of node {node} is open: {is_served}");
            }
            Change::Clock { node, skew, skew_us } => {
                let mut skews = self.skews.borrow_mut();
                if skew == Skew::Small {
                    skews.remove(&node);
                    metrics::remove(SKEW_METRIC, &[("node", &node.to_string())]);
                } else {
                    let help = "By how many microseconds the node's clock is ahead, if by more than 100 ms";
                    let gauge = skews
                        .entry(node)
                        .or_insert_with(|| metrics::gauge(SKEW_METRIC, help, &[("node", &node.to_string())]));
                    gauge.set(skew_us);
                }
                if skew >= Skew::Large {
                    reactor::warn!("the clocks of this node and another differ"; node = node, ahead_us = skew_us);
                }
            }
        }
    }

    /// Where a node listens, for people: they know nodes by their addresses.
    fn address(&self, node: NodeNumber) -> String {
        let members = self.network.members();
        members.all().find(|member| member.node == node).map_or_else(String::new, |m| m.address.to_string())
    }

    /// Makes this shard's copy follow a change, then tells its listeners.
    fn follow(&self, change: &Change) {
        let mut copies = self.copies.borrow_mut();
        match *change {
            Change::Up { node } => {
                let copy = copies.entry(node).or_default();
                (copy.is_up, copy.down_since) = (true, None);
            }
            Change::Down { node, .. } => {
                let down_since = Some(reactor::now());
                *copies.entry(node).or_default() = Copy { down_since, ..Copy::default() };
            }
            Change::Stalled { node, shard, is_stalled } => {
                let stalled = &mut copies.entry(node).or_default().stalled;
                let _changed = if is_stalled { stalled.insert(shard) } else { stalled.remove(&shard) };
            }
            Change::Clients { node, is_served } => {
                copies.entry(node).or_default().serves_clients = is_served;
            }
            Change::Clock { .. } => {}
        }
        drop(copies);
        let listeners = self.listeners.borrow().clone();
        listeners.iter().for_each(|listener| listener(change));
    }
}

/// Names of the metrics of nodes that are up and that are not, with their help.
const COUNT_METRICS: [(&str, &str); 2] = [
    ("scylla_gossip_live", "Other nodes that this one takes for up"),
    ("scylla_gossip_unreachable", "Other nodes that this one takes for down"),
];

/// Name of the metric of a clock that is off.
const SKEW_METRIC: &str = "ceto_node_clock_ahead_us";

/// Runs `work` with each shard's part, shard 0's first.
async fn everywhere<F>(work: F)
where
    F: Fn(&Liveness) + Clone + Send + 'static,
{
    for shard in 0..reactor::shard_count() {
        let work = work.clone();
        let told = mesh::call(shard, Group::CONTROL, move || async move {
            if let Some(liveness) = reactor::local::<Liveness>() {
                work(&liveness);
            }
        });
        // A shard that has stopped routes nothing.
        let _told = told.await;
    }
}
