//! TCP: listeners and streams, receiving into a pool shared by the shard's connections.
//!
//! `recv` hands out chunks of the pool, so an idle connection has no buffer. `send` takes a buffer and
//! returns it once the kernel has every byte. One task receives at a time and one sends; they may be
//! different tasks.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

pub use crate::driver::{ListenOptions, RecvChunk};

use crate::driver::{Handle, HandleKind, Op, Output};
use crate::op::OpFuture;
use crate::shard;

fn unexpected(output: &Output) -> io::Error {
    io::Error::other(format!("the driver answered with {output:?}"))
}

/// A listening socket.
pub struct Listener {
    handle: Handle,
    local: SocketAddr,
}

impl Listener {
    /// Listens on `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// As bind(2) and listen(2).
    pub fn bind(address: SocketAddr, options: ListenOptions) -> io::Result<Listener> {
        let (handle, local) = shard::with(|shard| shard.listen(address, options))?;
        Ok(Listener { handle, local })
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The next connection, with no delay set (TCP_NODELAY).
    ///
    /// # Errors
    /// As accept(2): out of descriptors or memory; try again after a pause.
    pub async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        match OpFuture::new(Op::Accept { socket: self.handle.clone() }).await.1? {
            Output::Connection(connection) => {
                let peer = connection.peer;
                Ok((Stream::new(connection.handle, connection.local, peer), peer))
            }
            other => Err(unexpected(&other)),
        }
    }
}

/// A connection.
pub struct Stream {
    handle: Handle,
    local: SocketAddr,
    peer: SocketAddr,
    sending: Cell<bool>,
    receiving: Cell<bool>,
    received: Cell<bool>,
}

impl Stream {
    fn new(handle: Handle, local: SocketAddr, peer: SocketAddr) -> Self {
        Self {
            handle,
            local,
            peer,
            sending: Cell::new(false),
            receiving: Cell::new(false),
            received: Cell::new(false),
        }
    }

    /// Connects to `peer`.
    ///
    /// # Errors
    /// As connect(2). There is no time limit but the kernel's: wrap it in `timeout`.
    pub async fn connect(peer: SocketAddr) -> io::Result<Stream> {
        Self::connect_from(None, peer).await
    }

    /// As [`Stream::connect`], from one of this machine's addresses: rules of firewalls then see which of
    /// several nodes it is.
    ///
    /// # Errors
    /// As bind(2) and connect(2).
    pub async fn connect_from(from: Option<IpAddr>, peer: SocketAddr) -> io::Result<Stream> {
        match OpFuture::new(Op::Connect { from, peer }).await.1? {
            Output::Connection(connection) => {
                Ok(Stream::new(connection.handle, connection.local, connection.peer))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// The other end's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// This end's address.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The next bytes, as many as are there; `None` once the peer has ended its side in order.
    ///
    /// Dropping the future loses nothing. One task receives at a time.
    ///
    /// # Errors
    /// As recv(2); `ResourceBusy` when another task is receiving.
    pub fn recv(&self) -> Recv<'_> {
        Recv { stream: self, waiting: false }
    }

    /// Sends the whole buffer and returns it. Dropping the future leaves the stream in an unknown state: shut
    /// it down then.
    ///
    /// # Errors
    /// As send(2); some of the bytes may have been sent. `ResourceBusy` if another task is sending, or was
    /// dropped while it sent.
    pub async fn send(&self, mut buf: Vec<u8>) -> (io::Result<()>, Vec<u8>) {
        if buf.is_empty() {
            return (Ok(()), buf);
        }
        if self.sending.replace(true) {
            return (Err(io::ErrorKind::ResourceBusy.into()), buf);
        }
        let sent = self.send_all(&mut buf).await;
        self.sending.set(false);
        (sent, buf)
    }

    async fn send_all(&self, buf: &mut Vec<u8>) -> io::Result<()> {
        let mut at = 0;
        // Each round sends at least one byte or ends.
        while at < buf.len() {
            let op = Op::Send { socket: self.handle.clone(), buf: std::mem::take(buf), at };
            let (op, result) = OpFuture::new(op).await;
            let Op::Send { buf: back, .. } = op else { panic!("the driver gave back another operation") };
            *buf = back;
            at = match result? {
                Output::Number(sent) if sent as usize > at => sent as usize,
                Output::Number(_) => return Err(io::ErrorKind::WriteZero.into()),
                other => return Err(unexpected(&other)),
            };
        }
        Ok(())
    }

    /// Ends the connection in both directions; a pending `recv` completes.
    pub fn shutdown(&self) {
        shard::with(|shard| shard.with_driver(|driver| driver.shutdown(&self.handle)));
    }

    /// Takes a fresh connection off this shard, to be attached on another one.
    ///
    /// # Panics
    /// When `recv` has been called: received bytes belong to this shard's driver.
    pub fn detach(self) -> DetachedStream {
        assert!(!self.received.get(), "a stream that has received cannot change its shard");
        self.release()
    }

    /// As [`Stream::detach`], for a stream that has received all that its other end sends before it is
    /// answered. Bytes that come before the stream is attached may be lost: the other end has then broken the
    /// rule, and whoever reads on must be able to tell.
    pub fn detach_silent(self) -> DetachedStream {
        let detached = self.release();
        // A receive that is still armed is called off before another shard can have the descriptor.
        shard::with(|shard| shard.flush_driver());
        detached
    }

    fn release(self) -> DetachedStream {
        shard::with(|shard| shard.with_driver(|driver| driver.release(&self.handle)));
        let (descriptor, kind) = self.handle.disown();
        DetachedStream { descriptor, kind, local: self.local, peer: self.peer }
    }
}

/// Future of [`Stream::recv`].
#[must_use = "nothing is received until it is awaited"]
pub struct Recv<'stream> {
    stream: &'stream Stream,
    waiting: bool,
}

impl Future for Recv<'_> {
    type Output = io::Result<Option<RecvChunk>>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.waiting && self.stream.receiving.replace(true) {
            return Poll::Ready(Err(io::ErrorKind::ResourceBusy.into()));
        }
        self.waiting = true;
        self.stream.received.set(true);
        let received = shard::with(|shard| {
            let group = shard.sched.current.get();
            shard.with_driver(|driver| driver.poll_recv(&self.stream.handle, context.waker(), group))
        });
        if received.is_ready() {
            self.stop_waiting();
        }
        received
    }
}

impl Recv<'_> {
    fn stop_waiting(&mut self) {
        if std::mem::take(&mut self.waiting) {
            self.stream.receiving.set(false);
        }
    }
}

impl Drop for Recv<'_> {
    fn drop(&mut self) {
        self.stop_waiting();
    }
}

/// A connection on its way to another shard; dropping it closes the connection.
#[derive(Debug)]
pub struct DetachedStream {
    descriptor: i32,
    kind: HandleKind,
    local: SocketAddr,
    peer: SocketAddr,
}

impl DetachedStream {
    /// Address of the other side.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Makes it a stream of the current shard.
    ///
    /// # Errors
    /// When the kernel refuses to watch the descriptor.
    pub fn attach(self) -> io::Result<Stream> {
        let handle = Handle::new(self.descriptor, self.kind);
        let (local, peer) = (self.local, self.peer);
        std::mem::forget(self);
        shard::with(|shard| shard.with_driver(|driver| driver.adopt(&handle)))?;
        Ok(Stream::new(handle, local, peer))
    }
}

impl Drop for DetachedStream {
    fn drop(&mut self) {
        drop(Handle::new(self.descriptor, self.kind));
    }
}
