//! Accepts connections on shard 0 and hands each to its shard.
//!
//! On the plain port the shards take turns. On the shard-aware port the client chooses: shard = source port
//! modulo shards (ScyllaDB's protocol extension). Whatever the configuration says, connections leave a
//! quarter of the process's descriptors to files.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use reactor::net::{ListenOptions, Listener, Stream};
use reactor::{Gate, Group, mesh};

use super::Native;
use crate::boot::{BootError, Shard};
use crate::config::Config;

/// Connections that the kernel may queue before they are accepted.
const BACKLOG: u32 = 4096;

/// Pause in accepting after an error such as too many open files.
const ACCEPT_REST: Duration = Duration::from_millis(50);

/// Number of descriptors below which the start warns: the need of some hundred tables and a few thousand
/// clients.
const DESCRIPTORS_FEW: usize = 10_000;

/// Connections accepted in one go while established ones wait.
const ACCEPTS_PER_TURN: u32 = 8;

/// Number of open connections of the node, in total and by client address.
#[derive(Debug, Default)]
pub(super) struct NodeConnections {
    open: Cell<usize>,
    by_address: RefCell<BTreeMap<IpAddr, usize>>,
}

impl NodeConnections {
    /// Counts a new connection; if a limit is exceeded, logs that and returns false.
    fn opened(&self, address: IpAddr, most: Option<usize>, most_per_address: Option<usize>) -> bool {
        let open = self.open.get() + 1;
        let descriptors = reactor::descriptors_max();
        if open > descriptors / 4 * 3 {
            reactor::warn_limited!(
                "A connection was refused: with {open} of them more than three quarters of the {descriptors} descriptors \
                 that the process may have would be taken, and files need some too; raise its limit (ulimit -n)"
            );
            return false;
        }
        if let Some(limit) = most.filter(|limit| open > *limit) {
            reactor::warn_limited!(
                "Exceeded maximum native connection limit of {limit} by using {open} connections \
                 (see native_transport_max_concurrent_connections in cassandra.yaml)"
            );
            return false;
        }
        let mut by_address = self.by_address.borrow_mut();
        let here = by_address.get(&address).copied().unwrap_or(0) + 1;
        if let Some(limit) = most_per_address.filter(|limit| here > *limit) {
            reactor::warn_limited!(
                "Exceeded maximum native connection limit per ip of {limit} by using {here} connections \
                 (see native_transport_max_concurrent_connections_per_ip)"
            );
            return false;
        }
        by_address.insert(address, here);
        self.open.set(open);
        true
    }

    /// Counts a closed connection.
    pub(super) fn closed(&self, address: IpAddr) {
        self.open.set(self.open.get() - 1);
        let mut by_address = self.by_address.borrow_mut();
        if let Some(here) = by_address.get_mut(&address) {
            *here -= 1;
            if *here == 0 {
                by_address.remove(&address);
            }
        }
    }
}

/// How the shard of a new connection is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    Turns,
    SourcePort,
}

/// A port that accepts connections until it is closed.
pub struct OpenListener {
    address: SocketAddr,
    choice: Choice,
    gate: Gate,
    stop: Rc<reactor::Event>,
    stopped: Rc<Cell<bool>>,
}

impl OpenListener {
    /// The text for the line that reports the node as ready.
    pub fn description(&self) -> String {
        match self.choice {
            Choice::Turns => format!("{} (CQL)", self.address),
            Choice::SourcePort => format!("{} (CQL, shard-aware)", self.address),
        }
    }

    /// Stops accepting.
    pub async fn close(self) {
        self.stopped.set(true);
        self.stop.notify_all();
        self.gate.close().await;
    }
}

/// Opens the ports of `config`.
pub(super) fn open(config: &Config, native: &Rc<Native>) -> Result<Vec<OpenListener>, BootError> {
    let descriptors = reactor::descriptors_max();
    if descriptors < DESCRIPTORS_FEW {
        reactor::warn!("the process may have few descriptors, three quarters of them for connections; raise its limit \
            (ulimit -n)"; descriptors = descriptors, connections_max = descriptors / 4 * 3);
    }
    let mut listeners = vec![open_one(config, config.native_port, Choice::Turns, native)?];
    if let Some(port) = config.shard_aware_port {
        listeners.push(open_one(config, port, Choice::SourcePort, native)?);
    }
    Ok(listeners)
}

fn open_one(
    config: &Config,
    port: u16,
    choice: Choice,
    native: &Rc<Native>,
) -> Result<OpenListener, BootError> {
    let address = SocketAddr::new(config.rpc_address, port);
    let options = ListenOptions { backlog: BACKLOG, ..ListenOptions::default() };
    let listener =
        Listener::bind(address, options).map_err(|source| BootError::Listen { address, source })?;
    let gate = Gate::new();
    let (stop, stopped) = (Rc::new(reactor::Event::new()), Rc::new(Cell::new(false)));
    let opened = OpenListener {
        address: listener.local_addr(),
        choice,
        gate: gate.clone(),
        stop: Rc::clone(&stop),
        stopped: Rc::clone(&stopped),
    };
    let hold = gate.enter().expect("a new gate is open");
    let acceptor = Acceptor {
        listener,
        choice,
        turn: Cell::new(0),
        native: Rc::clone(native),
        connections_max: config.connections_max,
        connections_per_ip_max: config.connections_per_ip_max,
    };
    reactor::spawn(Group::STATEMENT, async move {
        let mut until_stopped = pin!(stop.wait_until(|| stopped.get()));
        let mut accepting = pin!(acceptor.run());
        poll_fn(|context| match until_stopped.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => accepting.as_mut().poll(context),
        })
        .await;
        drop(hold);
    })
    .detach();
    Ok(opened)
}

struct Acceptor {
    listener: Listener,
    choice: Choice,
    turn: Cell<usize>,
    native: Rc<Native>,
    connections_max: Option<usize>,
    connections_per_ip_max: Option<usize>,
}

impl Acceptor {
    async fn run(&self) {
        let mut turn = 0;
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    self.hand_over(stream, peer);
                    turn += 1;
                    if turn % ACCEPTS_PER_TURN == 0 {
                        reactor::yield_now().await;
                    }
                }
                Err(error) => {
                    reactor::warn_limited!("cannot accept connections: {error}");
                    reactor::sleep(ACCEPT_REST).await;
                }
            }
        }
    }

    fn hand_over(&self, stream: Stream, peer: SocketAddr) {
        if !self.native.node_connections.opened(peer.ip(), self.connections_max, self.connections_per_ip_max)
        {
            return;
        }
        let shards = reactor::shard_count();
        let shard = match self.choice {
            Choice::SourcePort => usize::from(peer.port()) % shards,
            Choice::Turns => {
                let turn = self.turn.get();
                self.turn.set(turn.wrapping_add(1));
                turn % shards
            }
        };
        let socket = stream.detach();
        reactor::spawn(Group::STATEMENT, async move {
            let handed = mesh::call(shard, Group::STATEMENT, move || async move {
                if let Some(shard) = reactor::local::<Shard>() {
                    shard.native.serve(socket);
                }
            });
            if let Err(error) = handed.await {
                reactor::warn!("cannot hand a connection to shard {shard}: {error}");
            }
        })
        .detach();
    }
}
