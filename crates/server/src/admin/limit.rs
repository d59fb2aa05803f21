//! A listener with a bounded number of connections, each with time limits; further clients wait in the
//! kernel's backlog.
//!
//! A connection either waits for its client (for a request or the rest of one) or serves a request. A waiting
//! connection is closed after the time in [`Times`]. If all places are taken and another client comes, the
//! connection that has waited longest is closed to free its place. So clients that send nothing, or half a
//! request, cannot lock others out. Requests being served have no time limit, because a compaction takes
//! hours; their number is limited: [`AtWork`].
//! Invariant: a place is a message in a channel, sent back when its connection is dropped.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, Sleep};

/// Most connections of one port.
const CONNECTIONS_MAX: usize = 64;
/// Most long requests that one port serves at a time; the remaining places are for short ones.
const AT_WORK_MAX: usize = 48;

/// How long a connection waits for its client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// From the connection, or the first byte of a request, to the end of its head.
    pub(super) head: Duration,
    /// From the head of a request to the end of its body.
    pub(super) body: Duration,
    /// From the end of an answer to the next request.
    pub(super) idle: Duration,
    /// How long a write may go without progress.
    pub(super) write: Duration,
}

impl Default for Times {
    fn default() -> Self {
        let (head, body) = (Duration::from_secs(10), Duration::from_secs(10));
        // Longer than the interval between two scrapes of a monitoring system.
        Self { head, body, idle: Duration::from_secs(75), write: Duration::from_secs(30) }
    }
}

/// A listening port with its free places.
pub(super) struct Limited {
    listener: TcpListener,
    free: mpsc::Receiver<()>,
    port: Arc<Port>,
}

/// State shared by the connections of a port.
struct Port {
    times: Times,
    give_back: mpsc::Sender<()>,
    /// Notified when a connection begins to wait for its client.
    waits: Notify,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    next: u64,
    connections: BTreeMap<u64, State>,
}

/// The port's view of a connection.
struct State {
    phase: Phase,
    since: Instant,
    /// The connection is to be closed to free its place.
    evicted: bool,
    waker: Option<Waker>,
}

/// The phase of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The last request was answered, and no byte of another has come.
    Idle,
    /// The head of a request is being received.
    Head,
    /// A request is being served; `long` ones count towards `AT_WORK_MAX`.
    Working { long: bool },
}

/// A request's view of its connection.
#[derive(Clone)]
pub(super) struct Place {
    port: Arc<Port>,
    id: u64,
}

/// A request being served; dropping it makes its connection idle.
pub(super) struct AtWork(Place);

/// A connection and its place.
pub(super) struct Connection {
    stream: TcpStream,
    place: Place,
    /// Timers of the current wait to read and of the current wait to write.
    reading: Option<Pin<Box<Sleep>>>,
    writing: Option<Pin<Box<Sleep>>>,
}

impl Limited {
    pub(super) fn new(listener: TcpListener, times: Times) -> Self {
        Self::with_places(listener, times, CONNECTIONS_MAX)
    }

    fn with_places(listener: TcpListener, times: Times, places: usize) -> Self {
        let (give_back, free) = mpsc::channel(places);
        for _ in 0..places {
            give_back.try_send(()).expect("a new channel has room for all places");
        }
        let port = Port { times, give_back, waits: Notify::new(), open: Mutex::default() };
        Self { listener, free, port: Arc::new(port) }
    }
}

impl Listener for Limited {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let (stream, peer) = Listener::accept(&mut self.listener).await;
        // Loops until a place is free: each round waits for a place, or for a connection that can be evicted.
        while self.free.try_recv().is_err() {
            self.port.evict_one();
            tokio::select! {
                // Never `None`: the port holds a sender.
                _ = self.free.recv() => break,
                () = self.port.waits.notified() => {}
            }
        }
        // Responses are short and sent at once.
        let _ = stream.set_nodelay(true);
        let place = self.port.open_one();
        (Connection { stream, place, reading: None, writing: None }, peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Port {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_one(self: &Arc<Self>) -> Place {
        let mut open = self.open();
        let id = open.next;
        open.next += 1;
        let state = State { phase: Phase::Head, since: Instant::now(), evicted: false, waker: None };
        open.connections.insert(id, state);
        Place { port: Arc::clone(self), id }
    }

    /// Evicts the connection that has waited longest for its client, if one waits.
    fn evict_one(&self) {
        let mut open = self.open();
        let waiting =
            open.connections.values_mut().filter(|state| !matches!(state.phase, Phase::Working { .. }));
        if let Some(state) = waiting.filter(|state| !state.evicted).min_by_key(|state| state.since) {
            state.evicted = true;
            if let Some(waker) = state.waker.take() {
                waker.wake();
            }
        }
    }
}

impl Place {
    /// The time limits of the port.
    pub(super) fn times(&self) -> Times {
        self.port.times
    }

    /// Marks the head of a request as complete and begins serving it; `None` if the request may take long and
    /// `AT_WORK_MAX` such requests are being served.
    pub(super) fn begin(&self, long: bool) -> Option<AtWork> {
        let mut open = self.port.open();
        let works = |state: &&State| state.phase == Phase::Working { long: true };
        if long && open.connections.values().filter(works).count() >= AT_WORK_MAX {
            return None;
        }
        if let Some(state) = open.connections.get_mut(&self.id) {
            state.phase = Phase::Working { long };
        }
        Some(AtWork(self.clone()))
    }

    /// Notes that bytes have come. On an idle connection they begin a request.
    fn heard(&self) {
        if let Some(state) = self.port.open().connections.get_mut(&self.id)
            && state.phase == Phase::Idle
        {
            (state.phase, state.since) = (Phase::Head, Instant::now());
        }
    }

    /// How long the client may keep the connection waiting; `None` while a request is being served. An error
    /// if the connection is evicted.
    fn waits_until(&self, waker: &Waker) -> io::Result<Option<Instant>> {
        let mut open = self.port.open();
        let Some(state) = open.connections.get_mut(&self.id) else { return Ok(None) };
        if state.evicted && !matches!(state.phase, Phase::Working { .. }) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        state.waker = Some(waker.clone());
        Ok(match state.phase {
            Phase::Idle => Some(state.since + self.port.times.idle),
            Phase::Head => Some(state.since + self.port.times.head),
            Phase::Working { .. } => None,
        })
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let Place { port, id } = &self.0;
        if let Some(state) = port.open().connections.get_mut(id) {
            (state.phase, state.since) = (Phase::Idle, Instant::now());
            // Wakes the reader, so that its timer follows the new phase.
            if let Some(waker) = state.waker.take() {
                waker.wake();
            }
        }
        port.waits.notify_one();
    }
}

impl Connected<IncomingStream<'_, Limited>> for Place {
    fn connect_info(stream: IncomingStream<'_, Limited>) -> Self {
        stream.io().place.clone()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.place.port.open().connections.remove(&self.place.id);
        // The channel has one place per permit, so it is never full; it is closed when the port is.
        let _ = self.place.port.give_back.try_send(());
    }
}

/// Whether `until` has passed; if not, `context` is woken then.
fn is_over(sleep: &mut Option<Pin<Box<Sleep>>>, until: Instant, context: &mut Context<'_>) -> bool {
    let sleep = sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
    if sleep.deadline() != until {
        sleep.as_mut().reset(until);
    }
    sleep.as_mut().poll(context).is_ready()
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let until = this.place.waits_until(context.waker())?;
        let before = buffer.filled().len();
        if let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(context, buffer) {
            if buffer.filled().len() > before {
                this.place.heard();
            }
            return Poll::Ready(read);
        }
        match until {
            Some(until) if is_over(&mut this.reading, until, context) => {
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            _ => Poll::Pending,
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if let Poll::Ready(written) = Pin::new(&mut this.stream).poll_write(context, bytes) {
            this.writing = None;
            return Poll::Ready(written);
        }
        let until = this
            .writing
            .as_ref()
            .map_or_else(|| Instant::now() + this.place.port.times.write, |s| s.deadline());
        if is_over(&mut this.writing, until, context) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::Router;
    use axum::routing::{get, post};
    use tokio::sync::Semaphore;

    use super::*;
    use crate::admin::guard::{self, Guard};

    /// A time limit that no test reaches if all is well.
    const LONG: Duration = Duration::from_secs(600);

    /// Long requests: the test releases them one by one and counts those that began.
    #[derive(Clone)]
    struct Long {
        go: Arc<Notify>,
        begun: Arc<Semaphore>,
    }

    impl Long {
        /// Waits until another request has begun.
        async fn begins(&self) {
            self.begun.acquire().await.unwrap().forget();
        }
    }

    /// Serves a port with this many places, and runs `test` as its client.
    fn with_port<F: Future<Output = ()>>(
        times: Times,
        places: usize,
        test: impl FnOnce(SocketAddr, Long) -> F,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let long = Long { go: Arc::new(Notify::new()), begun: Arc::new(Semaphore::new(0)) };
            let held = long.clone();
            let router = Router::new().route("/now", get(async || "now")).route(
                "/long",
                post(async move || {
                    held.begun.add_permits(1);
                    held.go.notified().await;
                    "done"
                }),
            );
            let router = guard::around(router, Guard::new(address.ip(), &[], true));
            let limited = Limited::with_places(listener, times, places);
            let service = router.into_make_service_with_connect_info::<Place>();
            let server = tokio::spawn(async move { axum::serve(limited, service).await });
            test(address, long).await;
            server.abort();
        });
    }

    const GET: &[u8] = b"GET /now HTTP/1.1\r\nHost: localhost\r\n\r\n";

    async fn send(address: SocketAddr, bytes: &[u8]) -> TcpStream {
        let stream = TcpStream::connect(address).await.unwrap();
        send_more(&stream, bytes).await;
        stream
    }

    /// Sends a short request; the empty buffer of the socket takes it whole.
    async fn send_more(stream: &TcpStream, bytes: &[u8]) {
        stream.writable().await.unwrap();
        assert_eq!(stream.try_write(bytes).unwrap(), bytes.len());
    }

    /// Bytes received; empty at the end of the stream or if the connection is broken.
    async fn receive(stream: &TcpStream) -> Vec<u8> {
        let mut bytes = [0; 512];
        // Repeats if the socket was reported readable without data.
        loop {
            stream.readable().await.unwrap();
            match stream.try_read(&mut bytes) {
                Ok(count) => return bytes[..count].to_vec(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Vec::new(),
            }
        }
    }

    /// A response of the port, up to the end of its body.
    async fn answer(stream: &TcpStream, end: &str) -> String {
        let mut text = String::new();
        while !text.ends_with(end) {
            let bytes = receive(stream).await;
            assert!(!bytes.is_empty(), "closed after {text:?}");
            text.push_str(std::str::from_utf8(&bytes).unwrap());
        }
        text
    }

    /// Waits until the port closes the connection; at most a 408 comes before.
    async fn is_closed(stream: TcpStream) {
        let mut text = String::new();
        loop {
            let bytes = receive(&stream).await;
            if bytes.is_empty() {
                break;
            }
            text.push_str(std::str::from_utf8(&bytes).unwrap());
        }
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 408"), "{text}");
    }

    fn times(set: impl FnOnce(&mut Times)) -> Times {
        let mut times = Times { head: LONG, body: LONG, idle: LONG, write: LONG };
        set(&mut times);
        times
    }

    #[test]
    fn clients_that_send_nothing_or_half_a_request_are_closed_after_their_time() {
        let short = Duration::from_millis(20);
        for sent in [&b""[..], b"GET /now HTTP/1.1\r\nHo"] {
            with_port(times(|times| times.head = short), 4, |address, _| async move {
                is_closed(send(address, sent).await).await;
            });
        }
        with_port(times(|times| times.body = short), 4, |address, _| async move {
            let half = b"POST /long HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n[";
            is_closed(send(address, half).await).await;
        });
        with_port(times(|times| times.idle = short), 4, |address, _| async move {
            let stream = send(address, GET).await;
            answer(&stream, "now").await;
            is_closed(stream).await;
        });
    }

    #[test]
    fn the_connection_that_has_waited_longest_goes_for_one_that_comes() {
        with_port(times(|_| ()), 3, |address, long| async move {
            // The connection that serves a request stays. The one with half a request and the idle one are
            // evicted, the older first.
            let working =
                send(address, b"POST /long HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n").await;
            long.begins().await;
            let half = send(address, b"GET /n").await;
            let idle = send(address, GET).await;
            answer(&idle, "now").await;
            let third = send(address, GET).await;
            answer(&third, "now").await;
            is_closed(half).await;
            let fourth = send(address, GET).await;
            answer(&fourth, "now").await;
            is_closed(idle).await;
            send_more(&third, GET).await;
            answer(&third, "now").await;
            long.go.notify_one();
            answer(&working, "done").await;
        });
    }

    #[test]
    fn requests_that_may_take_long_leave_places_to_others() {
        with_port(times(|_| ()), CONNECTIONS_MAX, |address, long| async move {
            let request = b"POST /long HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n";
            let mut working = Vec::new();
            for _ in 0..AT_WORK_MAX {
                working.push(send(address, request).await);
                long.begins().await;
            }
            let refused = answer(&send(address, request).await, "}").await;
            assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
            answer(&send(address, GET).await, "now").await;
            long.go.notify_one();
            answer(&working[0], "done").await;
            working.push(send(address, request).await);
            long.begins().await;
        });
    }
}
