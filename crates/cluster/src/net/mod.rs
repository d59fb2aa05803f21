//! The transport between nodes: requests with answers, over few connections, on every shard.
//!
//! Use: each shard starts its [`Network`] with a [`NetworkConfig`], and `reactor::local` finds it. Calls
//! begin when shard 0's is open. Layers above [`Network::register`] one handler per verb and call others with
//! [`Network::call`], [`Network::call_in_parts`] and [`Network::send`]; [`Network::ask`] reaches a node of
//! which only the address is known. Group 0 hands every change of the members to [`Network::set_members`] on
//! each shard, and what changes about this node to [`Network::set_own`] on shard 0. Liveness tells
//! [`Network::set_reachable`].
//!
//! Connections are of three classes, so that a long message never stands before a short one: control between
//! the shards 0, statement between two shards, bulk between a shard and one of the other's. Requests go over
//! the connection that the asking node opened, answers come back over it. Map: `line` (the way to a shard,
//! opened on use) → `reach` (which line, dialing) → `dial` (first messages) → `call` (the opening end) and,
//! at the other node, `listen` → `door` (shard 0: who is admitted) → `serve` (the accepting end); `pipe` has
//! the bytes, `provisional` the nodes whose membership this node has not heard of yet.
//!
//! Invariants: every queue is bounded and every wait has a deadline; no peer can make this node hold more
//! than its share; a request's sender is its connection's. Errors tell whether the request was certainly not
//! done ([`NetError::is_definite`]). Format: docs/formats/node.md.

mod book;
mod call;
mod dial;
mod door;
mod error;
mod line;
mod listen;
mod members;
mod metrics;
mod pipe;
mod provisional;
mod reach;
mod serve;
mod verbs;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;

use reactor::net::{DetachedStream, ListenOptions, Listener};
use reactor::{Deadline, Event, Gate, Group, Semaphore};
use wire::Compressor;
use wire::node::fault::{Fault, FaultKind};
use wire::node::frame::{FrameFlags, Verb, WorkGroup};
use wire::node::hello::{Class, Heard, Hello, Uuid};

pub use call::Answers;
pub use error::{NetError, PeerName};
pub use members::{Member, Members};
pub use pipe::BODY_BYTES_MAX;
pub use serve::{Asker, Request};
pub use verbs::{Answer, Work};

use crate::NodeNumber;
use book::Book;
use call::Question;
use door::Door;
use line::{Line, LineName};
use metrics::PeerMetrics;
use pipe::{Encoder, Ended, FrameReader};
use serve::{Arrival, Incoming};

/// Statement connections that a node opens, over all its shards and peers.
pub const STATEMENT_CONNECTIONS_MAX: usize = 4096;
/// Bytes of requests of other nodes that a shard works on, unless the configuration says otherwise.
pub const REQUEST_BYTES_MAX: usize = 64 << 20;

/// Which bodies are compressed (`internode_compression`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InternodeCompression {
    /// None.
    None,
    /// Those between data centers.
    #[default]
    Dc,
    /// All.
    All,
}

/// How a node's transport is set up; the same on each shard.
#[derive(Debug, Clone)]
pub struct NetworkConfig {
    /// What the node says of itself; the fields of one connection are filled in at each.
    pub own: Hello,
    /// Where it listens for other nodes, and from where it connects; without it, the port stays closed.
    pub listen: Option<SocketAddr>,
    /// Which bodies are compressed.
    pub compression: InternodeCompression,
    /// The file in which shard 0 keeps the addresses of other nodes.
    pub address_book: Option<PathBuf>,
    /// Statement connections that the node opens, over all its shards and peers.
    pub statement_connections_max: usize,
    /// Bytes of requests of other nodes that a shard works on.
    pub request_bytes_max: usize,
}

impl NetworkConfig {
    /// The usual limits.
    pub fn new(own: Hello, listen: Option<SocketAddr>) -> Self {
        Self {
            own,
            listen,
            compression: InternodeCompression::default(),
            address_book: None,
            statement_connections_max: STATEMENT_CONNECTIONS_MAX,
            request_bytes_max: REQUEST_BYTES_MAX,
        }
    }
}

/// A member as this shard sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerStatus {
    /// The member.
    pub member: Member,
    /// Open connections of this shard with it, in both directions.
    pub connections: usize,
}

/// What a connection was admitted with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Admission {
    version: u8,
    node: Option<NodeNumber>,
    is_compressed: bool,
}

/// One shard's transport.
pub struct Network {
    config: NetworkConfig,
    /// On shard 0.
    door: Option<Rc<Door>>,
    members: RefCell<Rc<Members>>,
    registry: verbs::Registry,
    lines: RefCell<BTreeMap<LineName, Rc<Line>>>,
    incoming: RefCell<BTreeMap<u64, Rc<Incoming>>>,
    next_incoming: Cell<u64>,
    /// Shards of other nodes, as their first messages said.
    shards: RefCell<BTreeMap<NodeNumber, u16>>,
    peers: RefCell<BTreeMap<Option<NodeNumber>, Rc<PeerMetrics>>>,
    compressor: Rc<RefCell<Compressor>>,
    /// Bytes for requests of other nodes.
    memory: Semaphore,
    memory_bytes_max: usize,
    gate: Gate,
    stopping: Event,
    members_changed: Event,
}

impl Network {
    /// Starts this shard's transport and makes it the one that `reactor::local` finds. Shard 0 opens the
    /// port.
    ///
    /// # Errors
    /// As bind(2) and listen(2).
    pub async fn start(config: NetworkConfig) -> io::Result<Rc<Self>> {
        let door = if reactor::shard_id() == 0 {
            let book = match &config.address_book {
                Some(path) => Book::read(path).await,
                None => Book::default(),
            };
            Some(Rc::new(Door::new(config.own.clone(), book)))
        } else {
            None
        };
        let listener = match (&door, config.listen) {
            (Some(_), Some(address)) => {
                let options = ListenOptions { backlog: listen::BACKLOG, ..ListenOptions::default() };
                Some(Listener::bind(address, options)?)
            }
            _ => None,
        };
        let memory_bytes_max = config.request_bytes_max.max(1);
        let network = Rc::new(Self {
            config,
            door: door.clone(),
            members: RefCell::default(),
            registry: verbs::Registry::default(),
            lines: RefCell::default(),
            incoming: RefCell::default(),
            next_incoming: Cell::new(0),
            shards: RefCell::default(),
            peers: RefCell::default(),
            compressor: Rc::default(),
            memory: Semaphore::new(memory_bytes_max),
            memory_bytes_max,
            gate: Gate::new(),
            stopping: Event::new(),
            members_changed: Event::new(),
        });
        reactor::set_local(Rc::clone(&network));
        if let Some(door) = door {
            if let Some(listener) = listener {
                let door = Rc::clone(&door);
                network.spawn_held(Group::CONTROL, move |network| listen::accept(network, door, listener));
            }
            if let Some(path) = network.config.address_book.clone() {
                network
                    .spawn_held(Group::CONTROL, move |_| async move { book::keep_file(&door, path).await });
            }
        }
        Ok(network)
    }

    /// This shard's transport, once it has started.
    ///
    /// # Errors
    /// [`NetError::NotOpen`].
    pub fn here() -> Result<Rc<Self>, NetError> {
        reactor::local::<Self>().filter(|network| !network.gate.is_closed()).ok_or(NetError::NotOpen)
    }

    /// Has `handler` serve a verb on this shard from now on. Its work is dropped when the request's time is
    /// over or the asker gives up: what must go on then runs in a task of its own.
    ///
    /// # Panics
    /// For first messages, and for a verb that has a handler.
    pub fn register<F, Fut>(&self, verb: Verb, handler: F)
    where
        F: Fn(Request) -> Fut + 'static,
        Fut: Future<Output = Answer> + 'static,
    {
        self.registry.register(verb, handler);
    }

    /// Replaces the members, on this shard. Connections with nodes that are none any more, or are banned, or
    /// whose claim to be a member was wrong, end.
    pub fn set_members(&self, members: Members) {
        let dropped = self.door.as_ref().map(|door| door.set_members(members.clone()));
        let members = Rc::new(members);
        self.members.replace(Rc::clone(&members));
        dropped.unwrap_or_default().into_iter().for_each(|node| self.forget_provisional(node));
        let is_gone = |node: NodeNumber, host_id: &Uuid| {
            self.host_of(node).as_ref() != Some(host_id) || members.banned.contains(host_id)
        };
        let why = Ended::Here("the node is no member any more");
        let mut lines = self.lines.borrow_mut();
        let ended = lines.extract_if(.., |name, line| match line.caller() {
            Some(caller) => is_gone(name.node, &caller.process.host_id),
            None => self.host_of(name.node).is_none(),
        });
        ended.for_each(|(_, line)| line.end(why.clone()));
        drop(lines);
        for incoming in self.incoming.borrow().values() {
            let Asker { node, host_id, .. } = &incoming.asker;
            let is_wrong = incoming.claim.as_ref().is_some_and(|claim| claim.is_wrong(&members));
            let is_banned = members.banned.contains(host_id);
            if is_wrong || is_banned || node.is_some_and(|node| is_gone(node, host_id)) {
                incoming.end(why.clone());
            }
        }
        self.peers.borrow_mut().retain(|node, _| {
            let stays = node.is_none_or(|node| self.host_of(node).is_some());
            if !stays {
                PeerMetrics::forget(&peer_label(*node));
            }
            stays
        });
        self.members_changed.notify_all();
    }

    /// Replaces what this node says of itself in first messages from now on; on shard 0.
    ///
    /// # Panics
    /// On another shard.
    pub fn set_own(&self, own: Hello) {
        self.door().set_own(own);
    }

    /// What this node says of itself; on shard 0.
    ///
    /// # Panics
    /// On another shard.
    pub fn own(&self) -> Hello {
        self.door().own()
    }

    /// The addresses of other nodes that this one passes on; on shard 0.
    ///
    /// # Panics
    /// On another shard.
    pub fn heard(&self, count: usize) -> Vec<Heard> {
        self.door().newest(count)
    }

    /// Notes addresses that another node passed on; on shard 0.
    ///
    /// # Panics
    /// On another shard.
    pub fn hear(&self, heard: &[Heard]) {
        self.door().hear_all(heard);
    }

    fn door(&self) -> &Rc<Door> {
        self.door.as_ref().expect("shard 0 has the door")
    }

    /// Notified when this shard's members have changed.
    pub fn members_changed(&self) -> &Event {
        &self.members_changed
    }

    /// The members as this shard has them.
    pub fn members(&self) -> Rc<Members> {
        Rc::clone(&self.members.borrow())
    }

    /// The members with this shard's connections to them.
    pub fn peers(&self) -> Vec<PeerStatus> {
        let (lines, incoming) = (self.lines.borrow(), self.incoming.borrow());
        let status = |member: &Member| {
            let opened =
                lines.values().filter(|line| line.name.node == member.node && line.caller().is_some());
            let accepted = incoming.values().filter(|incoming| incoming.node() == Some(member.node));
            PeerStatus { member: member.clone(), connections: opened.count() + accepted.count() }
        };
        self.members.borrow().all().map(status).collect()
    }

    /// Asks a shard of a member and waits for the answer.
    ///
    /// # Errors
    /// [`NetError`], which tells whether the request was certainly not done.
    pub async fn call(
        self: &Rc<Self>,
        peer: (NodeNumber, u16),
        verb: Verb,
        group: WorkGroup,
        deadline: Deadline,
        body: Vec<u8>,
    ) -> Result<Vec<u8>, NetError> {
        if verbs::class_of(verb, group) == Class::Control && reactor::shard_id() != 0 {
            let called = reactor::mesh::call(0, Group::CONTROL, move || async move {
                let network = Self::here()?;
                Box::pin(network.call_here(peer, verb, group, deadline, body)).await
            });
            return called.await.map_err(|_| NetError::NotOpen)?;
        }
        self.call_here(peer, verb, group, deadline, body).await
    }

    async fn call_here(
        self: &Rc<Self>,
        peer: (NodeNumber, u16),
        verb: Verb,
        group: WorkGroup,
        deadline: Deadline,
        body: Vec<u8>,
    ) -> Result<Vec<u8>, NetError> {
        let question = Question { verb, group, for_shard: None, deadline, body };
        self.begin(peer, question).await?.whole().await
    }

    /// As [`Network::call`], for an answer in parts. Calls over control connections begin on shard 0.
    ///
    /// # Errors
    /// As [`Network::call`].
    ///
    /// # Panics
    /// For a verb of control connections on another shard.
    pub async fn call_in_parts(
        self: &Rc<Self>,
        peer: (NodeNumber, u16),
        verb: Verb,
        group: WorkGroup,
        deadline: Deadline,
        body: Vec<u8>,
    ) -> Result<Answers, NetError> {
        let is_control = verbs::class_of(verb, group) == Class::Control;
        assert!(!is_control || reactor::shard_id() == 0, "{verb:?} begins on shard 0");
        let question = Question { verb, group, for_shard: None, deadline, body };
        self.begin(peer, question).await
    }

    async fn begin(
        self: &Rc<Self>,
        peer: (NodeNumber, u16),
        mut question: Question,
    ) -> Result<Answers, NetError> {
        let (caller, for_shard) = self.reach(peer, &question).await?;
        question.for_shard = for_shard;
        let called = caller.call(question).await;
        if called.is_err() {
            self.metrics(Some(peer.0)).errors.inc();
        }
        called
    }

    /// Sends a message that has no answer, and waits only until it is on its way. Two messages may overtake
    /// each other, and both may be lost with their connection. Messages over control connections begin on
    /// shard 0.
    ///
    /// # Errors
    /// [`NetError`] if it was certainly not sent.
    ///
    /// # Panics
    /// For a verb of control connections on another shard.
    pub async fn send(
        self: &Rc<Self>,
        peer: (NodeNumber, u16),
        verb: Verb,
        group: WorkGroup,
        deadline: Deadline,
        body: Vec<u8>,
    ) -> Result<(), NetError> {
        let is_control = verbs::class_of(verb, group) == Class::Control;
        assert!(!is_control || reactor::shard_id() == 0, "{verb:?} begins on shard 0");
        let mut question = Question { verb, group, for_shard: None, deadline, body };
        let (caller, for_shard) = self.reach(peer, &question).await?;
        question.for_shard = for_shard;
        caller.send(question).await
    }

    /// Serves a request with this shard's handler.
    async fn serve(&self, request: Request) -> Answer {
        match self.registry.handler(request.verb) {
            Some(handler) => handler(request).await,
            None => {
                let text = format!("this node does not serve {:?} requests yet", request.verb);
                Err(Fault::new(FaultKind::NotServed, text))
            }
        }
    }

    /// Serves a connection that shard 0 has admitted, until it ends. False if it cannot be taken over.
    fn serve_connection(
        self: &Rc<Self>,
        socket: DetachedStream,
        arrival: Arrival,
        admission: Admission,
        hello: Vec<u8>,
    ) -> bool {
        if self.gate.is_closed() {
            return false;
        }
        let stream = match socket.attach() {
            Ok(stream) => Rc::new(stream),
            Err(error) => {
                reactor::warn_limited!("cannot take over a connection of a node: {error}");
                return false;
            }
        };
        let number = self.next_incoming.get();
        self.next_incoming.set(number + 1);
        let (class, process) = (arrival.class, arrival.process);
        let metrics = self.metrics(arrival.asker.node);
        metrics.connections.add(1);
        let reader = FrameReader::new(Rc::clone(&stream), BODY_BYTES_MAX, Some(Rc::clone(&metrics)));
        let encoder = self.encoder(admission);
        let facts = (number, arrival);
        let incoming = Incoming::new(Rc::clone(self), facts, stream, encoder, Rc::clone(&metrics));
        self.incoming.borrow_mut().insert(number, Rc::clone(&incoming));
        self.spawn_held(verbs::carrier(class), move |network| async move {
            incoming.run((dial::header(FrameFlags::REPLY), hello), reader).await;
            network.incoming.borrow_mut().remove(&number);
            metrics.connections.add(-1);
            network.departed(process).await;
        })
    }

    fn incoming(&self, number: u64) -> Option<Rc<Incoming>> {
        self.incoming.borrow().get(&number).cloned()
    }

    fn encoder(&self, admission: Admission) -> Encoder {
        let compressor = admission.is_compressed.then(|| Rc::clone(&self.compressor));
        Encoder { version: admission.version, compressor }
    }

    fn metrics(&self, node: Option<NodeNumber>) -> Rc<PeerMetrics> {
        let mut peers = self.peers.borrow_mut();
        Rc::clone(peers.entry(node).or_insert_with(|| PeerMetrics::of(&peer_label(node))))
    }

    /// Spawns a task that [`Network::stop`] waits for; false if it stops already.
    fn spawn_held<F, Fut>(self: &Rc<Self>, group: Group, work: F) -> bool
    where
        F: FnOnce(Rc<Self>) -> Fut,
        Fut: Future<Output = ()> + 'static,
    {
        let Ok(hold) = self.gate.enter() else { return false };
        let work = work(Rc::clone(self));
        reactor::spawn(group, async move {
            work.await;
            drop(hold);
        })
        .detach();
        true
    }

    async fn until_stopped(&self) {
        self.stopping.wait_until(|| self.gate.is_closed()).await;
    }

    /// Ends all connections of this shard and waits for its tasks.
    pub async fn stop(&self) {
        let closing = self.gate.close();
        let mut closing = std::pin::pin!(closing);
        // The first poll closes the gate; from then on nothing new begins.
        let closed = std::future::poll_fn(|context| std::task::Poll::Ready(closing.as_mut().poll(context)));
        if closed.await.is_ready() {
            self.registry.clear();
            return;
        }
        self.stopping.notify_all();
        let why = Ended::Here("this node's transport stops");
        for line in self.lines.borrow().values() {
            line.end(why.clone());
        }
        for incoming in self.incoming.borrow().values() {
            incoming.end(why.clone());
        }
        if let Some(door) = &self.door {
            door.stop();
        }
        closing.await;
        self.registry.clear();
    }
}

fn peer_label(node: Option<NodeNumber>) -> String {
    node.map_or_else(|| "none".to_owned(), |node| node.to_string())
}
