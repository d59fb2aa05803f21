//! A listener that has a bounded number of connections open; more wait in the kernel's line.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// Connections of one port.
const CONNECTIONS_MAX: usize = 64;

/// A port with its free places: a place is a message that goes back when the connection is dropped.
pub(super) struct Limited {
    listener: TcpListener,
    free: mpsc::Receiver<()>,
    give_back: mpsc::Sender<()>,
}

/// A connection and its place.
pub(super) struct Connection {
    stream: TcpStream,
    place: mpsc::Sender<()>,
}

impl Limited {
    pub(super) fn new(listener: TcpListener) -> Self {
        let (give_back, free) = mpsc::channel(CONNECTIONS_MAX);
        for _ in 0..CONNECTIONS_MAX {
            give_back.try_send(()).expect("a new channel has room for all places");
        }
        Self { listener, free, give_back }
    }
}

impl Listener for Limited {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        // Cannot end: this value holds a sender.
        let _ = self.free.recv().await;
        let (stream, peer) = Listener::accept(&mut self.listener).await;
        // Answers are short and come at once.
        let _ = stream.set_nodelay(true);
        (Connection { stream, place: self.give_back.clone() }, peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Full never: as many places as were taken. Closed when the port is.
        let _ = self.place.try_send(());
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
