//! One connection: reads frames, starts a task for each request, writes answers in whatever order they come.
//!
//! Requests before the handshake is over, and those that change the connection itself, are answered one by one; all
//! others run side by side, bounded per connection and per shard. Answers gather in one buffer while the previous one
//! is on its way, so many answers share a send. A client that does not read is not read from either.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use reactor::net::{RecvChunk, Stream};
use reactor::{Event, Gate, Group};
use wire::frame::{FrameError, FrameHeader, Opcode};
use wire::protocol_error::ProtocolError;

use super::framing::Input;
use super::limits::Answers;
use super::session::{Phase, Session};
use super::{Native, dispatch};

/// Answers waiting for a client that does not read, or about to: beyond it no further request of it starts.
const OUTPUT_BYTES_MAX: usize = 4 << 20;

/// One connection of one shard.
pub(super) struct Connection {
    id: u64,
    stream: Stream,
    pub(super) session: Session,
    in_flight: Cell<usize>,
    requests: Gate,
    /// Some of the output is gone.
    drained: Event,
    stop: Event,
    stopping: Cell<bool>,
    finished: Cell<bool>,
}

impl Connection {
    pub(super) fn new(id: u64, stream: Stream, native: Rc<Native>) -> Rc<Self> {
        let session = Session::new(native, Some(stream.peer_addr()));
        Rc::new(Self {
            id,
            stream,
            session,
            in_flight: Cell::new(0),
            requests: Gate::new(),
            drained: Event::new(),
            stop: Event::new(),
            stopping: Cell::new(false),
            finished: Cell::new(false),
        })
    }

    /// Serves until the client closes, breaks the protocol, or the shard stops; every request that was read is answered
    /// where the client still takes answers.
    pub(super) async fn run(self: Rc<Self>) {
        let connection = Rc::clone(&self);
        let writer = reactor::spawn(Group::STATEMENT, async move { connection.write_loop().await });
        self.read_loop().await;
        self.requests.close().await;
        self.finished.set(true);
        self.session.written.notify_all();
        if writer.await.is_err() {
            reactor::error!("the writer of connection {} broke", self.id);
        }
        self.stream.shutdown();
    }

    /// Reads no further; requests in flight end and are answered.
    pub(super) fn stop_reading(&self) {
        self.stopping.set(true);
        self.stop.notify_all();
        self.drained.notify_all();
    }

    /// Whether the client is so far behind with reading that events for it would only pile up.
    pub(super) fn is_far_behind(&self) -> bool {
        self.session.output.borrow().pending_bytes() > OUTPUT_BYTES_MAX
    }

    /// Takes back the answers that the client has not taken, so that what waits for it ends.
    pub(super) fn give_up(&self) {
        self.session.output.borrow_mut().set_broken();
        self.stream.shutdown();
    }

    async fn read_loop(self: &Rc<Self>) {
        let mut input = Input::new(self.session.native.config.frame_bytes_max);
        while let Some(chunk) = self.receive().await {
            input.feed(&chunk);
            drop(chunk);
            loop {
                let mut body = self.session.native.take_buffer();
                match input.next_frame(&mut body) {
                    Ok(Some(header)) => {
                        if !self.take_frame(header, body, &mut input).await {
                            return;
                        }
                    }
                    Ok(None) => {
                        self.session.native.give_buffer(body);
                        break;
                    }
                    Err(error) => {
                        if !self.refuse_frame(&error, &mut input) {
                            return;
                        }
                    }
                }
                self.wait_for_reader().await;
                if self.stopping.get() {
                    return;
                }
                reactor::maybe_yield().await;
            }
        }
    }

    /// The next bytes, or `None` at the end, on an error, or when told to stop.
    async fn receive(&self) -> Option<RecvChunk> {
        let mut stopped = pin!(self.stop.wait_until(|| self.stopping.get()));
        let mut received = pin!(self.stream.recv());
        poll_fn(|context| {
            if stopped.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            received.as_mut().poll(context).map(|received| match received {
                Ok(chunk) => chunk,
                Err(error) => {
                    reactor::debug!("connection {} ended: {error}", self.id);
                    None
                }
            })
        })
        .await
    }

    /// Answers a frame, or starts a task that will. False ends the connection.
    async fn take_frame(self: &Rc<Self>, header: FrameHeader, body: Vec<u8>, input: &mut Input) -> bool {
        let bytes = body.len() + wire::frame::HEADER_BYTES;
        let expected = self.session.version.get().unwrap_or(header.version);
        self.session.version.set(Some(expected));
        if header.version != expected {
            let error = ProtocolError::VersionChanged { received: header.version, expected };
            dispatch::protocol_error(&self.session, header.stream, &error);
            return false;
        }
        if self.session.phase.get() != Phase::Ready || changes_connection(header.opcode) {
            return dispatch::answer_in_turn(&self.session, header, body, input).await;
        }
        if self.in_flight.get() >= self.session.native.config.requests_per_connection_max {
            self.session.native.limits.count_shed();
            let text = format!(
                "Too many requests in flight on this connection: {} (native_transport_max_requests_per_connection)",
                self.in_flight.get()
            );
            dispatch::overloaded(&self.session, header, &text);
            return true;
        }
        let admitted = match self.session.native.limits.admit(bytes) {
            Ok(admitted) => admitted,
            Err(text) => {
                dispatch::overloaded(&self.session, header, &text);
                return true;
            }
        };
        let Ok(hold) = self.requests.enter() else { return false };
        self.in_flight.set(self.in_flight.get() + 1);
        let connection = Rc::clone(self);
        let expected = self.session.output.borrow().usual_bytes();
        let answer = Answers::expect(&self.session.native.limits.answers, expected);
        reactor::spawn_now(Group::STATEMENT, move || async move {
            reactor::in_place!(dispatch::answer(&connection.session, header, body));
            connection.in_flight.set(connection.in_flight.get() - 1);
            drop((answer, admitted, hold));
            connection.drained.notify_all();
        });
        true
    }

    /// Answers what is not a frame. False where the bytes cannot be followed any further.
    fn refuse_frame(&self, error: &FrameError, input: &mut Input) -> bool {
        dispatch::protocol_error(&self.session, error.stream, &error.error);
        error.discard_bytes.is_some_and(|bytes| {
            input.discard(bytes);
            true
        })
    }

    /// Waits while the client leaves too many answers unread: too many of its own, or any while those of all clients of
    /// the shard are too many. Requests that run count as answers of the usual size, so that thousands that started
    /// together do not all answer at length into memory.
    async fn wait_for_reader(&self) {
        let drained = || {
            let (waiting, usual) = {
                let output = self.session.output.borrow();
                (output.pending_bytes(), output.usual_bytes())
            };
            let running = self.in_flight.get();
            if self.stopping.get() || (waiting == 0 && running == 0) {
                return true;
            }
            !self.session.native.limits.answers.are_too_many()
                && waiting.saturating_add(running.saturating_mul(usual)) <= OUTPUT_BYTES_MAX
        };
        if !drained() {
            self.drained.wait_until(drained).await;
        }
    }

    async fn write_loop(&self) {
        loop {
            self.session
                .written
                .wait_until(|| self.finished.get() || self.session.output.borrow().pending_bytes() > 0)
                .await;
            let Some(bytes) = self.session.output.borrow_mut().take() else { return };
            let (sent, bytes) = self.stream.send(bytes).await;
            self.session.output.borrow_mut().give_back(bytes);
            self.drained.notify_all();
            if let Err(error) = sent {
                reactor::debug!("connection {} takes no answers: {error}", self.id);
                self.session.output.borrow_mut().set_broken();
                self.stop_reading();
                self.drained.notify_all();
                return;
            }
        }
    }
}

/// Requests that must be over before the next one is looked at.
fn changes_connection(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Startup | Opcode::Register | Opcode::AuthResponse | Opcode::Credentials)
}
