//! The simulated network: listeners, connections, latency, partitions and resets.
//!
//! Fault model: bytes of a connection arrive in order, whole, after a random latency, in pieces of random
//! size; a connection can be reset; while two nodes are parted nothing passes between them, or from one to
//! the other, and a connection request times out. A link has a latency and a bandwidth of its own if told so.
//! Each direction holds a bounded number of bytes, then the sender waits, as with TCP.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::task::Waker;

use super::core::{Core, Event, Port};
use crate::driver::{Connection, Handle, HandleKind, ListenOptions, Op, OpId, Output};

/// How long a connection request without an answer waits.
const CONNECT_TIMEOUT_NS: u64 = 30_000_000_000;
/// While nodes are parted an arrival is looked at again after this time.
pub(super) const PARTED_RETRY_NS: u64 = 10_000_000;
const FIRST_EPHEMERAL_PORT: u16 = 32_768;

/// The faults of the simulated network, and its latency.
#[derive(Debug, Clone)]
pub struct NetFaults {
    /// Shortest and longest time a piece of bytes travels, in nanoseconds.
    pub latency_ns: (u64, u64),
    /// Probability, per send, that the connection breaks.
    pub reset: f64,
    /// Whether a receive brings pieces of random size rather than all that is there.
    pub split: bool,
}

impl Default for NetFaults {
    /// No resets, 20 to 200 µs, split receives.
    fn default() -> Self {
        Self { latency_ns: (20_000, 200_000), reset: 0.0, split: true }
    }
}

/// What is special about the way from one node to another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Link {
    /// Shortest and longest time a piece of bytes travels, in nanoseconds; `None` for the network's.
    pub latency_ns: Option<(u64, u64)>,
    /// Bytes that pass in a second, all connections together; `None` for no limit.
    pub bytes_per_second: Option<u64>,
}

pub(super) struct LinkState {
    pub(super) link: Link,
    /// When what was sent before has passed.
    pub(super) free_ns: u64,
}

pub(super) type Waiter = (Rc<Port>, OpId);

struct Listener {
    node: usize,
    address: SocketAddr,
    reuse_port: bool,
    backlog_max: usize,
    /// Connections that nobody has accepted yet.
    backlog: VecDeque<i32>,
    waiters: VecDeque<Waiter>,
}

pub(super) struct Stream {
    pub(super) node: usize,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    /// The other end; `None` once it is closed.
    pub(super) peer: Option<i32>,
    /// Bytes sent to this end: the first `arrived` of them may be read.
    pub(super) inbox: VecDeque<u8>,
    pub(super) arrived: usize,
    /// Earliest time of the next arrival here: bytes do not overtake each other.
    pub(super) last_arrival_ns: u64,
    /// Until then everything on its way here is held back, in its order, because the nodes were parted.
    pub(super) held_until_ns: u64,
    pub(super) finished: bool,
    pub(super) reset: bool,
    pub(super) receiver: Option<(Rc<Port>, Waker)>,
    /// A send of this end that waits for room at the other.
    pub(super) sender: Option<Waiter>,
}

enum Socket {
    Listener(Listener),
    Stream(Stream),
}

pub(super) struct Net {
    pub(super) faults: NetFaults,
    sockets: BTreeMap<i32, Socket>,
    next_socket: i32,
    next_port: u16,
    next_listener: usize,
    /// From the first to the second nothing passes.
    pub(super) parted: BTreeSet<(usize, usize)>,
    pub(super) links: BTreeMap<(usize, usize), LinkState>,
}

/// The address of a node.
pub(super) fn address_of(node: usize) -> IpAddr {
    let number = node + 1;
    IpAddr::V4(Ipv4Addr::new(10, 0, (number >> 8) as u8, number as u8))
}

pub(super) fn node_of(address: IpAddr, from: usize) -> Option<usize> {
    match address {
        IpAddr::V4(v4) if v4.is_loopback() || v4.is_unspecified() => Some(from),
        IpAddr::V4(v4) => {
            let [a, b, high, low] = v4.octets();
            let number = usize::from(high) << 8 | usize::from(low);
            (a == 10 && b == 0 && number > 0).then(|| number - 1)
        }
        IpAddr::V6(v6) => v6.is_loopback().then_some(from),
    }
}

pub(super) fn error(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

impl Net {
    pub(super) fn new(faults: NetFaults) -> Self {
        Self {
            faults,
            sockets: BTreeMap::new(),
            next_socket: 1,
            next_port: FIRST_EPHEMERAL_PORT,
            next_listener: 0,
            parted: BTreeSet::new(),
            links: BTreeMap::new(),
        }
    }

    /// Whether nothing passes from one node to the other.
    pub(super) fn is_cut(&self, from: usize, to: usize) -> bool {
        self.parted.contains(&(from, to))
    }

    fn are_parted(&self, left: usize, right: usize) -> bool {
        self.is_cut(left, right) || self.is_cut(right, left)
    }

    /// When what sets out now arrives.
    pub(super) fn arrival_ns(&mut self, core: &Core, (from, to): (usize, usize), bytes: usize) -> u64 {
        let mut begin = core.now_ns.get();
        let mut latency = self.faults.latency_ns;
        if let Some(state) = self.links.get_mut(&(from, to)) {
            latency = state.link.latency_ns.unwrap_or(latency);
            if let Some(bandwidth) = state.link.bytes_per_second {
                let time = (bytes as u128 * 1_000_000_000 / u128::from(bandwidth.max(1))) as u64;
                state.free_ns = state.free_ns.max(begin) + time;
                begin = state.free_ns;
            }
        }
        begin + core.between(latency.0, latency.1)
    }

    fn insert(&mut self, socket: Socket) -> i32 {
        let number = self.next_socket;
        self.next_socket = number.checked_add(1).expect("fewer than 2^31 sockets in one simulation");
        self.sockets.insert(number, socket);
        number
    }

    pub(super) fn stream(&mut self, socket: i32) -> Option<&mut Stream> {
        match self.sockets.get_mut(&socket) {
            Some(Socket::Stream(stream)) => Some(stream),
            _ => None,
        }
    }

    /// The nodes at the near and the far end of a connection.
    pub(super) fn link_from(&mut self, socket: i32) -> Option<(usize, usize)> {
        let stream = self.stream(socket)?;
        Some((stream.node, node_of(stream.remote.ip(), stream.node)?))
    }

    fn ephemeral(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = if port == u16::MAX { FIRST_EPHEMERAL_PORT } else { port + 1 };
        port
    }

    pub(super) fn listen(
        &mut self,
        node: usize,
        mut address: SocketAddr,
        options: ListenOptions,
    ) -> io::Result<(Handle, SocketAddr)> {
        if node_of(address.ip(), node) != Some(node) {
            return Err(error(libc::EADDRNOTAVAIL));
        }
        if address.port() == 0 {
            address.set_port(self.ephemeral());
        }
        let taken = self.sockets.values().any(|socket| match socket {
            Socket::Listener(other) => {
                let same_ip = other.address.ip() == address.ip()
                    || other.address.ip().is_unspecified()
                    || address.ip().is_unspecified();
                other.node == node
                    && other.address.port() == address.port()
                    && same_ip
                    && !(other.reuse_port && options.reuse_port)
            }
            Socket::Stream(_) => false,
        });
        if taken {
            return Err(error(libc::EADDRINUSE));
        }
        let socket = self.insert(Socket::Listener(Listener {
            node,
            address,
            reuse_port: options.reuse_port,
            backlog_max: options.backlog as usize,
            backlog: VecDeque::new(),
            waiters: VecDeque::new(),
        }));
        Ok((Handle::new(socket, HandleKind::SimSocket), address))
    }

    /// The listeners that take connections to `peer`.
    fn listeners(&self, node: usize, peer: SocketAddr) -> Vec<i32> {
        self.sockets
            .iter()
            .filter_map(|(number, socket)| match socket {
                Socket::Listener(listener)
                    if listener.node == node
                        && listener.address.port() == peer.port()
                        && (listener.address.ip().is_unspecified() || listener.address.ip() == peer.ip()) =>
                {
                    Some(*number)
                }
                _ => None,
            })
            .collect()
    }
}

/// A connection request sets out.
pub(super) fn connect(
    core: &Core,
    port: &Rc<Port>,
    id: OpId,
    from: Option<IpAddr>,
    peer: SocketAddr,
) -> Option<io::Result<Output>> {
    if from.is_some_and(|from| node_of(from, port.node) != Some(port.node)) {
        return Some(Err(error(libc::EADDRNOTAVAIL)));
    }
    let mut net = core.net.borrow_mut();
    match node_of(peer.ip(), port.node).filter(|node| !net.are_parted(port.node, *node)) {
        None => core.schedule(CONNECT_TIMEOUT_NS, Event::ConnectTimeout { port: port.clone(), id }),
        Some(node) => {
            let arrival = net.arrival_ns(core, (port.node, node), 0);
            core.schedule(arrival - core.now_ns.get(), Event::Connect { port: port.clone(), id });
        }
    }
    None
}

/// A connection request arrives: the connection is made or refused.
pub(super) fn arrive_connect(core: &Core, port: &Rc<Port>, id: OpId) {
    let (from, peer) = match port.flights.borrow().get(id.slot()) {
        Some(Some((held, Op::Connect { from, peer }, _))) if *held == id => (*from, *peer),
        _ => return,
    };
    let Some(node) = node_of(peer.ip(), port.node) else { return };
    let accepted = {
        let mut net = core.net.borrow_mut();
        let listeners = net.listeners(node, peer);
        if listeners.is_empty() {
            None
        } else {
            let chosen = listeners[net.next_listener % listeners.len()];
            net.next_listener += 1;
            let reached = if peer.ip().is_loopback() { peer.ip() } else { address_of(port.node) };
            let own_ip = from.filter(|from| !from.is_unspecified()).unwrap_or(reached);
            let local = SocketAddr::new(own_ip, net.ephemeral());
            let full = matches!(&net.sockets[&chosen], Socket::Listener(listener)
                if listener.backlog.len() >= listener.backlog_max.max(1));
            if full {
                None
            } else {
                let near = net.insert(Socket::Stream(Stream::new(port.node, local, peer)));
                let far = net.insert(Socket::Stream(Stream::new(node, peer, local)));
                if let Some(stream) = net.stream(near) {
                    stream.peer = Some(far);
                }
                if let Some(stream) = net.stream(far) {
                    stream.peer = Some(near);
                }
                let waiter = match net.sockets.get_mut(&chosen) {
                    Some(Socket::Listener(listener)) => match listener.waiters.pop_front() {
                        Some(waiter) => Some(waiter),
                        None => {
                            listener.backlog.push_back(far);
                            None
                        }
                    },
                    _ => None,
                };
                Some((near, far, local, waiter))
            }
        }
    };
    match accepted {
        None => core.complete(port, id, Err(error(libc::ECONNREFUSED))),
        Some((near, far, local, waiter)) => {
            let handle = Handle::new(near, HandleKind::SimSocket);
            core.complete(port, id, Ok(Output::Connection(Box::new(Connection { handle, local, peer }))));
            if let Some((acceptor, accept)) = waiter {
                let handle = Handle::new(far, HandleKind::SimSocket);
                let connection = Connection { handle, local: peer, peer: local };
                core.complete(&acceptor, accept, Ok(Output::Connection(Box::new(connection))));
            }
        }
    }
}

impl Stream {
    fn new(node: usize, local: SocketAddr, remote: SocketAddr) -> Self {
        Self {
            node,
            local,
            remote,
            peer: None,
            inbox: VecDeque::new(),
            arrived: 0,
            last_arrival_ns: 0,
            held_until_ns: 0,
            finished: false,
            reset: false,
            receiver: None,
            sender: None,
        }
    }

    /// Whether a receiver finds bytes, the end, or that the connection is broken.
    pub(super) fn has_news(&self) -> bool {
        self.reset || self.finished || self.arrived > 0
    }
}

/// A connection that waits to be accepted, or a place in line.
pub(super) fn accept(core: &Core, port: &Rc<Port>, id: OpId, listener: i32) -> Option<io::Result<Output>> {
    let mut net = core.net.borrow_mut();
    let Some(Socket::Listener(found)) = net.sockets.get_mut(&listener) else {
        return Some(Err(error(libc::EBADF)));
    };
    match found.backlog.pop_front() {
        Some(socket) => {
            let stream = net.stream(socket)?;
            let (local, peer) = (stream.local, stream.remote);
            let handle = Handle::new(socket, HandleKind::SimSocket);
            Some(Ok(Output::Connection(Box::new(Connection { handle, local, peer }))))
        }
        None => {
            found.waiters.push_back((port.clone(), id));
            None
        }
    }
}

/// Both ends learn that the connection is broken.
pub(super) fn break_connection(core: &Core, socket: i32) {
    let peer = core.net.borrow_mut().stream(socket).and_then(|stream| stream.peer);
    core.schedule(0, Event::Reset { socket });
    if let Some(peer) = peer {
        core.schedule(0, Event::Reset { socket: peer });
    }
}

/// This end will send no more; with `gone` it is closed and unread bytes make it a reset.
pub(super) fn finish(core: &Core, socket: i32, gone: bool) {
    let mut net = core.net.borrow_mut();
    let (peer, unread, backlog) = match net.sockets.get_mut(&socket) {
        Some(Socket::Stream(stream)) => (stream.peer, !stream.inbox.is_empty(), VecDeque::new()),
        Some(Socket::Listener(listener)) => (None, false, std::mem::take(&mut listener.backlog)),
        None => return,
    };
    let link = net.link_from(socket);
    if let (Some(peer), Some(link)) = (peer, link) {
        let arrival = net.arrival_ns(core, link, 0);
        let Some(far) = net.stream(peer) else { return };
        let arrival = arrival.max(far.last_arrival_ns);
        far.last_arrival_ns = arrival;
        let delay = arrival - core.now_ns.get();
        let event =
            if gone && unread { Event::Reset { socket: peer } } else { Event::Finish { socket: peer } };
        core.schedule(delay, event);
        if gone {
            far.peer = None;
        }
    }
    if gone {
        net.sockets.remove(&socket);
    } else if let Some(stream) = net.stream(socket) {
        // Shut down in both directions: this end reads nothing any more either.
        stream.peer = None;
        stream.finished = true;
        stream.arrived = 0;
        stream.inbox.clear();
        core.schedule(0, Event::Finish { socket });
    }
    drop(net);
    for pending in backlog {
        finish(core, pending, true);
    }
}

/// Has whoever waits for bytes look again.
pub(super) fn wake(receiver: Option<(Rc<Port>, Waker)>) {
    if let Some((port, waker)) = receiver {
        port.woken.borrow_mut().push(waker);
    }
}

/// Takes an operation out of every line it may stand in.
pub(super) fn forget(core: &Core, port: &Rc<Port>, id: OpId, socket: i32) {
    let is_it = |waiter: &Waiter| Rc::ptr_eq(&waiter.0, port) && waiter.1 == id;
    match core.net.borrow_mut().sockets.get_mut(&socket) {
        Some(Socket::Listener(listener)) => listener.waiters.retain(|waiter| !is_it(waiter)),
        Some(Socket::Stream(stream)) => {
            stream.sender.take_if(|waiter| is_it(waiter));
        }
        None => {}
    }
}

/// All sockets of a node vanish; their peers are reset.
pub(super) fn crash(core: &Core, node: usize) {
    let mut net = core.net.borrow_mut();
    let mut gone = Vec::new();
    let mut peers = Vec::new();
    for (number, socket) in &net.sockets {
        match socket {
            Socket::Listener(listener) if listener.node == node => gone.push(*number),
            Socket::Stream(stream) if stream.node == node => {
                gone.push(*number);
                peers.extend(stream.peer);
            }
            _ => {}
        }
    }
    let (low, high) = net.faults.latency_ns;
    for number in gone {
        if let Some(Socket::Stream(stream)) = net.sockets.remove(&number) {
            wake(stream.receiver);
        }
    }
    drop(net);
    for socket in peers {
        core.schedule(core.between(low, high), Event::Reset { socket });
    }
}

/// Breaks every connection between two nodes.
pub(super) fn reset_between(core: &Core, left: usize, right: usize) {
    let broken: Vec<i32> = core
        .net
        .borrow()
        .sockets
        .iter()
        .filter_map(|(number, socket)| match socket {
            Socket::Stream(stream) => {
                let far = node_of(stream.remote.ip(), stream.node)?;
                ((stream.node, far) == (left, right)).then_some(*number)
            }
            Socket::Listener(_) => None,
        })
        .collect();
    for socket in broken {
        break_connection(core, socket);
    }
}
