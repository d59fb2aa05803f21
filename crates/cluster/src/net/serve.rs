//! The accepting end of a connection: requests come in, each is served as a task, answers go back.
//!
//! Invariant: what one peer can make this node hold is bounded: requests at work by number and bytes, answers
//! that it does not read by bytes, after which nothing more is read from it. Requests beyond a bound are
//! answered Overloaded at once. A request's sender is the connection's, never one that its body names.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use reactor::net::Stream;
use reactor::{Deadline, GateHold, Permit, Signal, mesh};
use wire::node::fault::{Fault, FaultKind};
use wire::node::frame::{FrameFlags, FrameHeader, Verb};
use wire::node::hello::{Class, Uuid};

use super::Network;
use super::door::Process;
use super::metrics::PeerMetrics;
use super::pipe::{Encoder, Ended, FrameReader, Pipe};
use super::provisional::Claim;
use super::verbs::{self, Answer};
use crate::NodeNumber;

/// Requests of a connection at work: as many as an honest caller has outstanding, and as many again that it
/// has given up.
const REQUESTS_MAX: usize = 2 * super::call::REQUESTS_MAX;
/// Bytes of requests of a connection at work, but for one request that is alone.
const BYTES_MAX: usize = 2 * super::call::BYTES_MAX;
/// Bytes of answers that may wait to be sent; above, nothing is read and no answer is added.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Longest time that a request can ask for.
const TIME_MAX: Duration = Duration::from_secs(3600);

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    /// Its number; `None` for a node that is no member.
    pub node: Option<NodeNumber>,
    /// The number that it claims, if it is a provisional member: one that this node's state does not name
    /// yet. Only messages of group 0 may go by it.
    pub provisional: Option<NodeNumber>,
    /// Its host id.
    pub host_id: Uuid,
    /// How often its data directory was started.
    pub generation: u64,
    /// The shard of it that asks.
    pub shard: u16,
    /// The far end of its connection.
    pub address: SocketAddr,
}

/// Where parts of an answer go before its end.
enum Parts {
    /// To the connection, which is this shard's.
    Here(Rc<Incoming>),
    /// To the connection of that number, which is another shard's.
    Shard { shard: usize, connection: u64 },
}

/// A request of another node.
pub struct Request {
    /// Who asks.
    pub from: Asker,
    /// What.
    pub verb: Verb,
    /// When nobody waits for the answer any more; the work is dropped then, and when the asker gives up.
    pub deadline: Deadline,
    /// The body.
    pub body: Vec<u8>,
    header: FrameHeader,
    parts: Parts,
}

impl Request {
    /// Sends a part of the answer; the handler's own result is its last part. Waits while the asker does not
    /// read.
    ///
    /// # Errors
    /// [`Fault`] when nobody waits for the answer any more.
    pub async fn send_part(&self, part: Vec<u8>) -> Result<(), Fault> {
        let gone = || Fault::new(FaultKind::Failed, "the connection of the asker has ended");
        let header = self.header;
        match &self.parts {
            Parts::Here(incoming) => {
                if incoming.room().await {
                    incoming.append(header, FrameFlags::MORE_FOLLOWS, &part);
                    return Ok(());
                }
                Err(gone())
            }
            Parts::Shard { shard, connection } => {
                let connection = *connection;
                let sent = mesh::call(*shard, reactor::current_group(), move || async move {
                    let Some(network) = reactor::local::<Network>() else { return false };
                    let Some(incoming) = network.incoming(connection) else { return false };
                    let open = incoming.room().await;
                    if open {
                        incoming.append(header, FrameFlags::MORE_FOLLOWS, &part);
                    }
                    open
                });
                if sent.await == Ok(true) { Ok(()) } else { Err(gone()) }
            }
        }
    }
}

/// A request at work.
#[derive(Default)]
struct Running {
    cancelled: Cell<bool>,
    signal: Signal,
}

/// A connection that was admitted.
pub(super) struct Arrival {
    pub(super) asker: Asker,
    pub(super) class: Class,
    pub(super) process: Process,
    pub(super) claim: Option<Claim>,
}

/// The accepting end of one connection.
pub(super) struct Incoming {
    pub(super) number: u64,
    pub(super) asker: Asker,
    pub(super) class: Class,
    pub(super) process: Process,
    /// The claim to be a member, of a node that was none when its connection was admitted.
    pub(super) claim: Option<Claim>,
    network: Rc<Network>,
    encoder: Encoder,
    pipe: Pipe,
    metrics: Rc<PeerMetrics>,
    running: RefCell<BTreeMap<u32, Rc<Running>>>,
    /// Requests at work, those without an answer too, and their bytes.
    requests: Cell<usize>,
    bytes: Cell<usize>,
}

/// A request's place, until dropped.
struct Place {
    incoming: Rc<Incoming>,
    stream: Option<u32>,
    running: Rc<Running>,
    bytes: usize,
    _memory: Permit,
    _hold: GateHold,
}

impl Drop for Place {
    fn drop(&mut self) {
        let incoming = &self.incoming;
        incoming.requests.set(incoming.requests.get() - 1);
        incoming.bytes.set(incoming.bytes.get() - self.bytes);
        if let Some(stream) = self.stream {
            let mut running = incoming.running.borrow_mut();
            if running.get(&stream).is_some_and(|running| Rc::ptr_eq(running, &self.running)) {
                running.remove(&stream);
            }
        }
    }
}

impl Incoming {
    pub(super) fn new(
        network: Rc<Network>,
        (number, Arrival { asker, class, process, claim }): (u64, Arrival),
        stream: Rc<Stream>,
        encoder: Encoder,
        metrics: Rc<PeerMetrics>,
    ) -> Rc<Self> {
        let pipe = Pipe::new(stream, Rc::clone(&metrics));
        let (requests, bytes) = (Cell::new(0), Cell::new(0));
        let running = RefCell::default();
        Rc::new(Self {
            number,
            asker,
            class,
            process,
            claim,
            network,
            encoder,
            pipe,
            metrics,
            running,
            requests,
            bytes,
        })
    }

    pub(super) fn end(&self, why: Ended) {
        self.pipe.end(why);
    }

    /// The number of the node that asks, now: a stranger when its connection was admitted may be a member
    /// since.
    pub(super) fn node(&self) -> Option<NodeNumber> {
        let host_id = &self.asker.host_id;
        self.asker.node.or_else(|| self.network.members.borrow().of(host_id).map(|member| member.node))
    }

    /// The asker as it is known now, for a request that it may make.
    fn asker(&self, verb: Verb) -> Asker {
        let node = self.node();
        let claim = self.claim.as_ref().filter(|_| node.is_none() && verbs::is_for_provisional(verb));
        Asker { node, provisional: claim.map(|claim| claim.node), ..self.asker.clone() }
    }

    /// Whether the node may make a request.
    fn may_ask(&self, verb: Verb, for_strangers: bool) -> bool {
        let may_provisionally = |claim| self.network.takes_provisionally(claim);
        for_strangers
            || self.node().is_some()
            || verbs::is_for_provisional(verb) && self.claim.as_ref().is_some_and(may_provisionally)
    }

    /// Sends this node's first message, then serves until the connection ends.
    pub(super) async fn run(self: Rc<Self>, hello: (FrameHeader, Vec<u8>), mut reader: FrameReader) {
        self.pipe.append(hello.0, None, &[&hello.1]);
        let sender = {
            let incoming = Rc::clone(&self);
            reactor::spawn(verbs::carrier(self.class), async move { incoming.pipe.send_on().await })
        };
        let why = self.receive(&mut reader).await;
        if !matches!(why, Ended::Closed | Ended::Io(_)) && !self.pipe.has_ended() {
            reactor::warn_limited!("a connection is closed: {why}"; peer = self.asker.address);
        }
        self.pipe.end(why);
        let _sent = sender.await;
        let running = self.running.take();
        running.values().for_each(|running| running.cancel());
    }

    async fn receive(self: &Rc<Self>, reader: &mut FrameReader) -> Ended {
        loop {
            loop {
                match reader.cut() {
                    Ok(Some((header, body))) => {
                        if let Err(why) = self.requested(header, body) {
                            return why;
                        }
                    }
                    Ok(None) => break,
                    Err(error) => return error.into(),
                }
                // A flood is read no faster than its refusals are.
                if !self.room().await {
                    return Ended::Closed;
                }
                reactor::maybe_yield().await;
            }
            if let Err(why) = reader.fill().await {
                return why;
            }
        }
    }

    /// Waits until answers have left; false if the connection has ended.
    async fn room(&self) -> bool {
        self.pipe.drained.wait_until(|| self.pipe.has_ended() || self.pipe.unsent() < ANSWER_BYTES_MAX).await;
        !self.pipe.has_ended()
    }

    fn append(&self, request: FrameHeader, flags: FrameFlags, body: &[u8]) {
        let header = FrameHeader {
            flags: flags.with(FrameFlags::REPLY),
            version: self.encoder.version,
            left_ms: 0,
            ..request
        };
        self.encoder.with(|compressor| self.pipe.append(header, compressor, &[body]));
    }

    fn refuse(&self, request: FrameHeader, fault: &Fault) {
        self.metrics.errors.inc();
        if !request.flags.has(FrameFlags::ONE_WAY) {
            let mut body = Vec::new();
            fault.encode(&mut body);
            self.append(request, FrameFlags::ERROR, &body);
        }
    }

    /// A frame has come.
    fn requested(self: &Rc<Self>, header: FrameHeader, mut body: Vec<u8>) -> Result<(), Ended> {
        let flags = header.flags;
        if flags.has(FrameFlags::REPLY) {
            return Err(Ended::Protocol("an answer came over a connection that this node did not open"));
        }
        if header.version != self.encoder.version {
            return Err(Ended::Protocol("a frame is of another version than was agreed on"));
        }
        let Some(facts) = verbs::facts(header.verb) else {
            return Err(Ended::Protocol("a second first message came"));
        };
        if flags.has(FrameFlags::CANCEL) {
            if let Some(running) = self.running.borrow_mut().remove(&header.stream) {
                running.cancel();
            }
            return Ok(());
        }
        let stream = (!flags.has(FrameFlags::ONE_WAY)).then_some(header.stream);
        if stream.is_some_and(|stream| self.running.borrow().contains_key(&stream)) {
            return Err(Ended::Protocol("two requests of one stream are at work"));
        }
        let mut shard = None;
        if flags.has(FrameFlags::FOR_SHARD) {
            let Some((number, rest)) = body.split_first_chunk::<2>() else {
                return Err(Ended::Protocol("a request for a shard names none"));
            };
            shard = Some(usize::from(u16::from_le_bytes(*number)));
            body = rest.to_vec();
        }
        let is_control = self.class == Class::Control;
        if facts.class.map_or(is_control, |class| class != self.class) {
            return Err(Ended::Protocol("a request came over a connection of another kind"));
        }
        if !self.may_ask(header.verb, facts.for_strangers) {
            self.refuse(header, &Fault::new(FaultKind::Forbidden, "the node is no member of the cluster"));
            return Ok(());
        }
        match self.admit(stream, body.len()) {
            Ok(place) => self.start(header, body, shard, place),
            Err(fault) => self.refuse(header, &fault),
        }
        Ok(())
    }

    fn admit(self: &Rc<Self>, stream: Option<u32>, bytes: usize) -> Result<Place, Fault> {
        let overloaded = |what: &str| Err(Fault::new(FaultKind::Overloaded, what));
        if self.requests.get() >= REQUESTS_MAX {
            return overloaded("too many requests of this connection are at work");
        }
        if self.bytes.get() > 0 && self.bytes.get() + bytes > BYTES_MAX {
            return overloaded("requests of this connection take too much memory");
        }
        let Some(memory) = self.network.memory.try_acquire(bytes.min(self.network.memory_bytes_max)) else {
            return overloaded("requests of other nodes take all memory for them on this shard");
        };
        let Ok(hold) = self.network.gate.enter() else {
            return Err(Fault::new(FaultKind::NotServed, "the node ends"));
        };
        self.requests.set(self.requests.get() + 1);
        self.bytes.set(self.bytes.get() + bytes);
        let running = Rc::new(Running::default());
        if let Some(stream) = stream {
            self.running.borrow_mut().insert(stream, Rc::clone(&running));
        }
        Ok(Place { incoming: Rc::clone(self), stream, running, bytes, _memory: memory, _hold: hold })
    }

    /// Serves an admitted request as a task of its group.
    fn start(self: &Rc<Self>, header: FrameHeader, body: Vec<u8>, shard: Option<usize>, place: Place) {
        let left = Duration::from_millis(u64::from(header.left_ms)).min(TIME_MAX);
        let deadline = Deadline::after(left);
        let incoming = Rc::clone(self);
        let group = verbs::group_of(header.group, self.class);
        reactor::spawn(group, async move {
            if deadline.is_past() {
                incoming.metrics.late.inc();
                return;
            }
            incoming.metrics.served.inc();
            let own = reactor::shard_id();
            let answer = async {
                match shard.filter(|shard| *shard != own) {
                    None => incoming.network.serve(incoming.request(header, body, deadline)).await,
                    Some(shard) => incoming.elsewhere(shard, header, body, deadline).await,
                }
            };
            let Some(answer) = incoming.until_unwanted(answer, &place.running, deadline).await else {
                return;
            };
            if header.flags.has(FrameFlags::ONE_WAY) {
                return;
            }
            match answer {
                Ok(body) if incoming.room().await => incoming.append(header, FrameFlags::NONE, &body),
                Ok(_) => {}
                Err(fault) => incoming.refuse(header, &fault),
            }
            drop(place);
        })
        .detach();
    }

    fn request(self: &Rc<Self>, header: FrameHeader, body: Vec<u8>, deadline: Deadline) -> Request {
        let parts = Parts::Here(Rc::clone(self));
        Request { from: self.asker(header.verb), verb: header.verb, deadline, body, header, parts }
    }

    /// Serves a request on another shard of this node.
    async fn elsewhere(
        &self,
        shard: usize,
        header: FrameHeader,
        body: Vec<u8>,
        deadline: Deadline,
    ) -> Answer {
        let (from, connection, home) = (self.asker(header.verb), self.number, reactor::shard_id());
        let group = verbs::group_of(header.group, self.class);
        let served = mesh::call(shard, group, move || async move {
            let parts = Parts::Shard { shard: home, connection };
            let request = Request { from, verb: header.verb, deadline, body, header, parts };
            let Some(network) = reactor::local::<Network>() else {
                return Err(Fault::new(FaultKind::NotServed, "the shard is not open"));
            };
            // The asker's shard gives up at the deadline, and cannot stop the work here before.
            match reactor::timeout(deadline, network.serve(request)).await {
                Ok(answer) => answer,
                Err(_) => Err(Fault::new(FaultKind::TimedOut, "the time is over")),
            }
        });
        match served.await {
            Ok(answer) => answer,
            Err(mesh::MeshError::NoSuchShard { shard }) => {
                Err(Fault::new(FaultKind::Stale, format!("this node has no shard {shard}")))
            }
            Err(error) => Err(Fault::new(FaultKind::Failed, error.to_string())),
        }
    }

    /// The answer, unless nobody waits for it any more.
    async fn until_unwanted(
        &self,
        answer: impl Future<Output = Answer>,
        running: &Running,
        deadline: Deadline,
    ) -> Option<Answer> {
        let mut answer = pin!(reactor::timeout(deadline, answer));
        poll_fn(|context| {
            if running.signal.poll_until(context, || running.cancelled.get()).is_ready() {
                return Poll::Ready(None);
            }
            answer.as_mut().poll(context).map(Result::ok)
        })
        .await
    }
}

impl Running {
    fn cancel(&self) {
        self.cancelled.set(true);
        self.signal.notify();
    }
}
