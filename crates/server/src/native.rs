//! The native protocol on one shard: its connections, their limits, and the events for registered clients.
//!
//! Shard 0 accepts connections (`listener`) and hands each socket to a shard; from then on the connection
//! lives there. `connection` reads and writes, `framing` turns bytes into frames and back, `dispatch` answers
//! a request, `writes` completes writes that wait for the commit log. All requests and answers in flight are
//! counted (`limits`), so that a shard sheds load instead of growing. `roads`, a test, compares the answers
//! of the two roads that a request may take.

pub mod auth;
mod connection;
mod dispatch;
mod error;
mod events;
mod framing;
mod handshakes;
pub mod inproc;
mod kinds;
mod latency;
mod limits;
mod listener;
mod recorder;
#[cfg(test)]
mod roads;
mod session;
mod slow;
mod supported;
mod traced;
mod writes;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::time::Duration;

use query::system::ClientRow;
use query::{Engine, QueryError};
use reactor::metrics::{self, Counter, Gauge};
use reactor::net::DetachedStream;
use reactor::{Deadline, Gate, Group, Permit, mesh};
use wire::frame::Opcode;

use crate::boot::{BootError, Pages, Shard};
use crate::config::Config;
use auth::{AllowAll, Authenticator};
use connection::Connection;
use framing::Codecs;
use handshakes::Handshakes;
use kinds::Kinds;
use latency::Latency;
use limits::ShardLimits;
use listener::NodeConnections;
pub use listener::OpenListener;
use recorder::Recorder;
use session::StartupOptions;
use writes::WriteLine;

/// Limits to the pool of buffers: its bytes, its fraction of the memory for answers, and the bytes of one
/// buffer.
const POOLED_BYTES_MAX: usize = 16 << 20;
const POOLED_PART: usize = 16;
const POOLED_BUFFER_BYTES_MAX: usize = 256 << 10;

/// Interval of checks whether a burst of large allocations is over, and the number of checks after which it
/// has lasted long.
const QUIET_LOOK: Duration = Duration::from_secs(1);
const BURST_LOOKS_MAX: u32 = 8;

/// Clients listed before other tasks get a turn.
const CLIENTS_PER_LOOK: usize = 64;

/// How long a closing shard waits for clients to receive their answers.
const DRAIN_TIME: Duration = Duration::from_secs(10);

/// The native protocol service of one shard.
pub struct Native {
    engine: Engine,
    config: NativeConfig,
    authenticator: Rc<dyn Authenticator>,
    /// The user name of clients that do not authenticate.
    anonymous: Rc<str>,
    /// The options of the last STARTUP.
    startup: RefCell<StartupOptions>,
    limits: Rc<ShardLimits>,
    codecs: Rc<Codecs>,
    handshakes: Handshakes,
    connections: RefCell<BTreeMap<u64, Weak<Connection>>>,
    next_connection: Cell<u64>,
    /// Connections open on the whole node; kept on shard 0.
    node_connections: NodeConnections,
    /// Holds the tasks of all connections.
    gate: Gate,
    /// Writes that wait for the commit log.
    writes: Rc<WriteLine>,
    buffers: RefCell<Vec<Vec<u8>>>,
    /// Bytes of the pooled buffers, and the limit to them.
    pooled_bytes: Cell<usize>,
    pooled_max: usize,
    served: Rc<Counter>,
    latency: Latency,
    /// Writes traces that no client waits for.
    recorder: Recorder,
    kinds: Kinds,
    errors: error::Counters,
    open: Rc<Gauge>,
}

/// The settings that connections need.
#[derive(Debug, Clone)]
struct NativeConfig {
    frame_bytes_max: usize,
    requests_per_connection_max: usize,
    shard_aware_port: Option<u16>,
    request_timeout: Duration,
}

impl Native {
    /// A service that answers with `engine`; no port is open yet.
    pub fn new(config: &Config, engine: Engine) -> Rc<Self> {
        let room = engine.answers();
        let pooled_max = (room.bytes_max() / POOLED_PART).min(POOLED_BYTES_MAX);
        let served = metrics::counter("scylla_transport_requests_served", "CQL requests answered", &[]);
        let native = Rc::new(Self {
            engine,
            config: NativeConfig {
                frame_bytes_max: config.frame_bytes_max,
                requests_per_connection_max: config.requests_per_connection_max,
                shard_aware_port: config.shard_aware_port,
                request_timeout: config.native_timeout,
            },
            anonymous: AllowAll.anonymous().into(),
            authenticator: Rc::new(AllowAll),
            startup: RefCell::new(Rc::from([])),
            limits: ShardLimits::new(config.requests_per_shard_max, config.request_bytes_per_shard_max, room),
            codecs: Codecs::new(),
            handshakes: Handshakes::new(),
            connections: RefCell::default(),
            next_connection: Cell::new(0),
            node_connections: NodeConnections::default(),
            gate: Gate::new(),
            writes: WriteLine::open(),
            buffers: RefCell::default(),
            pooled_bytes: Cell::new(0),
            pooled_max,
            latency: Latency::new(&served),
            recorder: Recorder::new(),
            kinds: Kinds::new(),
            served,
            errors: error::Counters::new(),
            open: metrics::gauge("scylla_transport_current_connections", "CQL connections open", &[]),
        });
        native.watch_slow_requests();
        native.give_back_after_bursts();
        let listener = Rc::downgrade(&native);
        native.engine.on_schema_change(Rc::new(move |event| {
            if let Some(native) = listener.upgrade() {
                events::schema_changed(&native, event);
            }
        }));
        events::follow_nodes(&native);
        let lister = Rc::downgrade(&native);
        native.engine.list_clients_with(Rc::new(move || {
            let native = lister.upgrade();
            Box::pin(async move {
                match native {
                    Some(native) => native.list_clients().await,
                    None => Vec::new(),
                }
            })
        }));
        native
    }

    /// Measures requests as the limits of slow ones need it. Call after a change of these.
    pub(crate) fn watch_slow_requests(&self) {
        self.latency.measure_all(self.engine.watch().is_exact());
    }

    /// Returns pooled and unused memory to the system once a burst of large allocations, by whatever task, is
    /// over or has lasted long.
    fn give_back_after_bursts(self: &Rc<Self>) {
        let Some(pages) = reactor::local::<Pages>() else { return };
        let watched = Rc::downgrade(self);
        reactor::spawn(Group::ADMIN, async move {
            let (mut given_back_at, mut known, mut looks) = (0, 0, 0);
            // Loops until the service is dropped.
            loop {
                reactor::sleep(QUIET_LOOK).await;
                let Some(native) = watched.upgrade() else { return };
                let large = memory::large_allocations();
                let is_quiet = known == large;
                known = large;
                looks += 1;
                if large == given_back_at {
                    looks = 0;
                } else if is_quiet || looks >= BURST_LOOKS_MAX {
                    (given_back_at, looks) = (large, 0);
                    native.buffers.take();
                    native.pooled_bytes.set(0);
                    (pages.tidy)();
                }
            }
        })
        .detach();
    }

    /// The connected clients. Other tasks get turns, because ten thousand clients take milliseconds.
    async fn list_clients(&self) -> Vec<ClientRow> {
        let mut rows = Vec::new();
        let mut next = 0;
        // The loop ends: ids only grow, and later connections are left out.
        let behind = self.next_connection.get();
        while next < behind {
            let mut looked_at = 0;
            for (id, connection) in self.connections.borrow().range(next..behind).take(CLIENTS_PER_LOOK) {
                (next, looked_at) = (id + 1, looked_at + 1);
                rows.extend(connection.upgrade().and_then(|connection| connection.client_row()));
            }
            if looked_at < CLIENTS_PER_LOOK {
                break;
            }
            reactor::maybe_yield().await;
        }
        rows
    }

    /// Opens the ports of `config`. Call on shard 0.
    ///
    /// # Errors
    /// [`BootError::Listen`] with an address that is in use or not this machine's.
    pub fn listen(self: &Rc<Self>, config: &Config) -> Result<Vec<OpenListener>, BootError> {
        listener::open(config, self)
    }

    /// Serves a new connection.
    fn serve(self: &Rc<Self>, socket: DetachedStream) {
        let Ok(hold) = self.gate.enter() else { return };
        let native = Rc::clone(self);
        let address = socket.peer_addr().ip();
        reactor::spawn(Group::STATEMENT, async move {
            if let Some(place) = native.handshakes.place().await
                && let Some((id, connection)) = native.open_connection(socket, place)
            {
                connection.run().await;
                native.open.add(-1);
                native.connections.borrow_mut().remove(&id);
            }
            // Shard 0 counts the connections of the whole node.
            let closed = mesh::call(0, Group::STATEMENT, move || async move {
                if let Some(shard) = reactor::local::<Shard>() {
                    shard.native.node_connections.closed(address);
                }
            });
            if let Err(error) = closed.await {
                reactor::debug!("a closed connection was not counted: {error}");
            }
            drop(hold);
        })
        .detach();
    }

    /// Registers a connection. Not a future, for which each connection would keep memory.
    fn open_connection(
        self: &Rc<Self>,
        socket: DetachedStream,
        place: Permit,
    ) -> Option<(u64, Rc<Connection>)> {
        let stream = match socket.attach() {
            Ok(stream) => stream,
            Err(error) => {
                reactor::warn!("cannot take over a connection: {error}");
                return None;
            }
        };
        let id = self.next_connection.get();
        self.next_connection.set(id + 1);
        let connection = Connection::new(id, stream, Rc::clone(self), place);
        self.connections.borrow_mut().insert(id, Rc::downgrade(&connection));
        self.open.add(1);
        Some((id, connection))
    }

    /// The engine of this shard.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The number of open connections, and of requests being served.
    pub(crate) fn open_now(&self) -> (usize, usize) {
        (self.connections.borrow().len(), self.limits.serving())
    }

    /// Ends every connection after its requests in flight; new connections are allowed.
    pub(crate) fn disconnect(&self) {
        let open: Vec<_> = self.connections.borrow().values().filter_map(Weak::upgrade).collect();
        open.iter().for_each(|connection| connection.stop_reading());
    }

    /// Lets requests in flight end, then closes every connection.
    pub async fn close(&self) {
        let open: Vec<_> = self.connections.borrow().values().filter_map(Weak::upgrade).collect();
        for connection in &open {
            connection.stop_reading();
        }
        if reactor::timeout(Deadline::after(DRAIN_TIME), self.gate.close()).await.is_err() {
            let open: Vec<_> = open.iter().filter(|connection| Rc::strong_count(connection) > 1).collect();
            reactor::warn!("clients do not take their answers and are given up"; connections = open.len());
            open.iter().for_each(|connection| connection.give_up());
        }
        drop(open);
        self.gate.close().await;
    }

    /// Counts an answered request.
    #[inline]
    fn count(&self, result: &Result<(), QueryError>) {
        self.served.inc();
        if let Err(error) = result {
            self.errors.count(error);
        }
    }

    /// As [`Self::count`], for a request that may be of any kind.
    fn count_kind(&self, opcode: Opcode, result: &Result<(), QueryError>) {
        self.kinds.count(opcode);
        self.count(result);
    }

    /// Brings this shard's metrics up to date. Call before the metrics are read.
    pub(crate) async fn settle_metrics(&self) {
        self.latency.settle();
        self.kinds.settle(self.served.get());
        self.engine.settle_metrics().await;
    }

    /// An empty buffer, from the pool if it has one.
    fn take_buffer(&self) -> Vec<u8> {
        let buffer = self.buffers.borrow_mut().pop().unwrap_or_default();
        self.pooled_bytes.set(self.pooled_bytes.get() - buffer.capacity());
        buffer
    }

    /// Returns a buffer to the pool, unless it is too large or the pool is full.
    fn give_buffer(&self, mut buffer: Vec<u8>) {
        let pooled = self.pooled_bytes.get() + buffer.capacity();
        let is_worth_it = (1..=POOLED_BUFFER_BYTES_MAX).contains(&buffer.capacity());
        if pooled <= self.pooled_max && is_worth_it {
            buffer.clear();
            self.pooled_bytes.set(pooled);
            self.buffers.borrow_mut().push(buffer);
        }
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        self.writes.close();
    }
}
