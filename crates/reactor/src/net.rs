//! TCP: listeners and streams, receiving into a pool shared by the shard's connections.
//!
//! `recv` hands out chunks of the pool (no buffer per idle connection); `send` takes a buffer and gives it back once
//! every byte is with the kernel. Sends on one stream go out whole and in order of asking.

use std::io;
use std::net::SocketAddr;

pub use crate::driver::{ListenOptions, RecvChunk};

use crate::driver::{Handle, HandleKind, Op, Output};
use crate::op::OpFuture;
use crate::shard;
use crate::sync::semaphore::Semaphore;

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
    sending: Semaphore,
    received: std::cell::Cell<bool>,
}

impl Stream {
    fn new(handle: Handle, local: SocketAddr, peer: SocketAddr) -> Self {
        Self { handle, local, peer, sending: Semaphore::new(1), received: std::cell::Cell::new(false) }
    }

    /// Connects to `peer`.
    ///
    /// # Errors
    /// As connect(2). There is no time limit but the kernel's: wrap it in `timeout`.
    pub async fn connect(peer: SocketAddr) -> io::Result<Stream> {
        match OpFuture::new(Op::Connect { peer }).await.1? {
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
    pub async fn recv(&self) -> io::Result<Option<RecvChunk>> {
        self.received.set(true);
        let ready = shard::with(|shard| shard.with_driver(|driver| driver.try_recv(&self.handle)));
        let output = match ready {
            Some(result) => result?,
            None => OpFuture::new(Op::Recv { socket: self.handle.clone() }).await.1?,
        };
        match output {
            Output::Chunk(chunk) => Ok(Some(chunk)),
            Output::End => Ok(None),
            other => Err(unexpected(&other)),
        }
    }

    /// Sends the whole buffer, and gives it back. Dropping the future leaves the stream in an unknown state: shut it
    /// down then.
    ///
    /// # Errors
    /// As send(2); some of the bytes may then have gone.
    pub async fn send(&self, buf: Vec<u8>) -> (io::Result<()>, Vec<u8>) {
        let _turn = match self.sending.try_acquire(1) {
            Some(turn) => turn,
            None => match self.sending.acquire(1).await {
                Ok(turn) => turn,
                Err(_) => return (Err(io::ErrorKind::ResourceBusy.into()), buf),
            },
        };
        if buf.is_empty() {
            return (Ok(()), buf);
        }
        let mut buf = buf;
        let mut at = 0;
        // Each round sends at least one byte or ends.
        loop {
            let (op, result) = OpFuture::new(Op::Send { socket: self.handle.clone(), buf, at }).await;
            let Op::Send { buf: back, .. } = op else { panic!("the driver gave back another operation") };
            buf = back;
            match result {
                Ok(Output::Number(sent)) if sent as usize <= at => {
                    return (Err(io::ErrorKind::WriteZero.into()), buf);
                }
                Ok(Output::Number(sent)) => at = sent as usize,
                Ok(other) => return (Err(unexpected(&other)), buf),
                Err(error) => return (Err(error), buf),
            }
            if at >= buf.len() {
                return (Ok(()), buf);
            }
        }
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
        shard::with(|shard| shard.with_driver(|driver| driver.release(&self.handle)));
        let (descriptor, kind) = self.handle.disown();
        DetachedStream { descriptor, kind, local: self.local, peer: self.peer }
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
