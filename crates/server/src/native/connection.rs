//! One connection: reads frames, starts a task for each request, writes answers in whatever order they come.
//!
//! Requests before the handshake is over, and those that change the connection itself, are answered one by one; all
//! others run side by side, bounded per connection and per shard; what memory answers needs no task for that. Connections take turns: each starts so many requests, then
//! the next goes on. Answers gather in one buffer while the previous one
//! is on its way, so many answers share a send. A client that does not read is not read from either.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use query::system::ClientRow;
use reactor::net::{RecvChunk, Stream};
use reactor::{Deadline, Event, Gate, Group, Instant, Permit};
use wire::frame::{FrameError, FrameHeader, Opcode};
use wire::protocol_error::ProtocolError;

use super::framing::{Input, Next};
use super::limits::{Answers, Held, InFlight, Refusal};
use super::session::{Phase, Session};
use super::{Native, dispatch};

/// Answers waiting for a client that does not read, or about to: beyond it no further request of it starts.
const OUTPUT_BYTES_MAX: usize = 4 << 20;

/// Requests a connection starts before other connections go on, and their answers go out: a client that has so many in
/// flight gets them all in one piece, and each piece costs a call of the kernel.
const REQUESTS_PER_TURN: u32 = 32;
/// Requests after which it is asked whether others wait: that reads the clock.
const REQUESTS_PER_LOOK: u32 = 8;

/// Requests of one connection that have to be parsed and prepared, or are long, at work at once; no further one is
/// read until one of them is done, so that other connections' come between.
const HEAVY_PER_CONNECTION_MAX: usize = 32;

/// What a connection may have received of a frame that is not whole without its being counted.
const UNCOUNTED_BYTES: usize = 128 << 10;

/// Within this a connection that is not ready yet is looked at again.
const HANDSHAKE_LOOK: Duration = Duration::from_secs(1);

/// One connection of one shard.
pub(super) struct Connection {
    id: u64,
    stream: Stream,
    pub(super) session: Rc<Session>,
    /// Those of them that are heavy.
    heavy: Cell<usize>,
    requests: Gate,
    stop: Event,
    stopping: Cell<bool>,
    finished: Cell<bool>,
    /// When it came.
    since: Instant,
    /// Its place among those that have not shaken hands, until it has.
    shaking: RefCell<Option<Permit>>,
}

impl Connection {
    pub(super) fn new(id: u64, stream: Stream, native: Rc<Native>, shaking: Permit) -> Rc<Self> {
        let session = Rc::new(Session::new(native, Some(stream.peer_addr())));
        Rc::new(Self {
            id,
            stream,
            session,
            heavy: Cell::new(0),
            requests: Gate::new(),
            stop: Event::new(),
            stopping: Cell::new(false),
            finished: Cell::new(false),
            since: reactor::now(),
            shaking: RefCell::new(Some(shaking)),
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

    /// The client as `system_views.clients` shows it.
    pub(super) fn client_row(&self) -> Option<ClientRow> {
        self.session.row()
    }

    /// Reads no further; requests in flight end and are answered.
    pub(super) fn stop_reading(&self) {
        self.stopping.set(true);
        self.stop.notify_all();
        self.session.drained.notify_all();
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
        let native = &self.session.native;
        let mut input = Input::new(native.config.frame_bytes_max);
        let mut turn = 0;
        // Memory set aside for the frame that is being received.
        let mut reserved = None;
        while let Some(chunk) = self.receive(&mut input).await {
            if input.wants_buffer() {
                input.lend(native.take_buffer());
            }
            input.feed(&chunk);
            drop(chunk);
            loop {
                let at_once = |header: &FrameHeader, body: &[u8]| self.answer_at_once(header, body);
                match input.next_frame(at_once, || native.take_buffer()) {
                    Ok(Some(Next::Taken)) => {}
                    Ok(Some(Next::Frame(header, body))) => {
                        if !self.take_frame(header, body, &mut input, reserved.take()).await {
                            return;
                        }
                    }
                    Ok(None) => {
                        let awaited = input.awaited_bytes();
                        if awaited > UNCOUNTED_BYTES && !Box::pin(self.reserve(awaited, &mut reserved)).await
                        {
                            return;
                        }
                        break;
                    }
                    Err(error) => {
                        if !self.refuse_frame(&error, &mut input) {
                            return;
                        }
                    }
                }
                if !self.may_read_on() {
                    self.session.drained.wait_until(|| self.may_read_on()).await;
                }
                if self.stopping.get() {
                    return;
                }
                turn += 1;
                if turn % REQUESTS_PER_TURN == 0 {
                    reactor::yield_now().await;
                } else if turn % REQUESTS_PER_LOOK == 0 {
                    reactor::maybe_yield().await;
                }
            }
        }
    }

    /// The next bytes, or `None` at the end, on an error, or when told to stop.
    async fn receive(&self, input: &mut Input) -> Option<RecvChunk> {
        if self.session.phase.get() != Phase::Ready {
            return Box::pin(self.receive_in_time()).await;
        }
        input.release().into_iter().flatten().for_each(|buffer| self.session.native.give_buffer(buffer));
        self.receive_some().await
    }

    /// As `receive`, from a client that has not shaken hands yet: it has so long in all, and less while many do not.
    async fn receive_in_time(&self) -> Option<RecvChunk> {
        let mut received = pin!(self.receive_some());
        // Bounded by the time for the handshake.
        loop {
            match reactor::timeout(Deadline::after(HANDSHAKE_LOOK), received.as_mut()).await {
                Ok(chunk) => return chunk,
                Err(_) if self.session.native.handshakes.is_over(self.since) => {
                    reactor::debug!("connection {} does not shake hands", self.id);
                    return None;
                }
                Err(_) => {}
            }
        }
    }

    async fn receive_some(&self) -> Option<RecvChunk> {
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

    /// Sets memory aside for a long frame before more of it is received. False ends the connection.
    async fn reserve(&self, bytes: usize, reserved: &mut Option<Permit>) -> bool {
        if reserved.as_ref().is_some_and(|permit| permit.count() >= bytes) {
            return true;
        }
        // First given back: whoever held a part while waiting for more would wait for others who do the same.
        drop(reserved.take());
        *reserved = self.wait_for_memory(bytes).await;
        if reserved.is_none() && !self.stopping.get() {
            self.session.native.limits.count_shed();
            reactor::warn_limited!(
                "no memory for a long request came free in its time: its connection is closed"
            );
        }
        reserved.is_some()
    }

    /// Waits in line for memory of a request, not longer than its client does.
    async fn wait_for_memory(&self, bytes: usize) -> Option<Permit> {
        let native = &self.session.native;
        let deadline = Deadline::after(native.config.request_timeout);
        let mut stopped = pin!(self.stop.wait_until(|| self.stopping.get()));
        let mut waited = pin!(reactor::timeout(deadline, native.limits.wait_for_memory(bytes)));
        poll_fn(|context| {
            if stopped.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            waited.as_mut().poll(context).map(|waited| waited.ok().flatten())
        })
        .await
    }

    /// Lets a request in that found no memory: after a while, or not at all.
    async fn admit_later(&self, header: FrameHeader, bytes: usize) -> Option<InFlight> {
        let limits = &self.session.native.limits;
        if self.session.throws_on_overload.get() {
            limits.count_shed();
            dispatch::overloaded(&self.session, header, &limits.memory_text());
            return None;
        }
        let Some(memory) = self.wait_for_memory(bytes).await else {
            limits.count_shed();
            dispatch::overloaded(&self.session, header, dispatch::TOO_LATE);
            return None;
        };
        match limits.admit_with(memory) {
            Ok(admitted) => Some(admitted),
            Err(refusal) => {
                self.shed(header, &refusal);
                None
            }
        }
    }

    fn shed(&self, header: FrameHeader, refusal: &Refusal) {
        let text = match refusal {
            Refusal::Shed(text) => text.clone(),
            Refusal::Memory => self.session.native.limits.memory_text(),
        };
        dispatch::overloaded(&self.session, header, &text);
    }

    /// Answers or begins a request that needs no task, while its frame stands where it was received. False where it is not one.
    #[inline]
    fn answer_at_once(&self, header: &FrameHeader, body: &[u8]) -> bool {
        let bytes = body.len() + wire::frame::HEADER_BYTES;
        self.session.phase.get() == Phase::Ready
            && self.session.version.get() == Some(header.version)
            && dispatch::answer_at_once(&self.session, header, body, || self.admit_at_once(bytes))
    }

    /// Answers a frame, or starts a task that will. False ends the connection.
    async fn take_frame(
        self: &Rc<Self>,
        header: FrameHeader,
        body: Vec<u8>,
        input: &mut Input,
        reserved: Option<Permit>,
    ) -> bool {
        let bytes = body.len() + wire::frame::HEADER_BYTES;
        let expected = self.session.version.get().unwrap_or(header.version);
        self.session.version.set(Some(expected));
        if header.version != expected {
            let error = ProtocolError::VersionChanged { received: header.version, expected };
            dispatch::protocol_error(&self.session, header.stream, &error);
            return false;
        }
        if self.session.phase.get() != Phase::Ready || changes_connection(header.opcode) {
            // Rare, and long: ten thousand idle connections would keep room for it.
            let goes_on = Box::pin(dispatch::answer_in_turn(&self.session, header, body, input)).await;
            if self.session.phase.get() == Phase::Ready {
                self.shaking.take();
            }
            return goes_on;
        }
        if self.session.in_flight.get() >= self.session.native.config.requests_per_connection_max {
            self.session.native.limits.count_shed();
            let text = format!(
                "Too many requests in flight on this connection: {} (native_transport_max_requests_per_connection)",
                self.session.in_flight.get()
            );
            dispatch::overloaded(&self.session, header, &text);
            return true;
        }
        let limits = &self.session.native.limits;
        let admitted = match reserved {
            Some(memory) => limits.admit_with(memory),
            None => limits.admit(bytes),
        };
        let admitted = match admitted {
            Ok(admitted) => admitted,
            Err(Refusal::Memory) => match Box::pin(self.admit_later(header, bytes)).await {
                Some(admitted) => admitted,
                None => return true,
            },
            Err(refusal) => {
                self.shed(header, &refusal);
                return true;
            }
        };
        let Some(held) = self.hold(admitted) else { return false };
        self.session.begins_one();
        let connection = Rc::clone(self);
        if dispatch::is_heavy(&header) {
            self.start_heavy(header, body, held).await;
            return true;
        }
        reactor::spawn_now(Group::STATEMENT, move || async move {
            reactor::in_place!(dispatch::answer(&connection.session, header, body));
            drop(held);
            connection.session.ends_one();
        });
        true
    }

    /// What a request that was let in counts against; `None` where the connection ends.
    #[inline]
    fn hold(&self, admitted: InFlight) -> Option<Held> {
        let hold = self.requests.enter().ok()?;
        let expected = self.session.output.borrow().usual_bytes();
        Some(Held::new(Answers::expect(&self.session.native.limits.answers, expected), admitted, hold))
    }

    /// Lets a request in that begins where its frame was cut; `None` where that is not to be decided there.
    fn admit_at_once(&self, bytes: usize) -> Option<Option<Held>> {
        if self.session.in_flight.get() >= self.session.native.config.requests_per_connection_max {
            return None;
        }
        self.hold(self.session.native.limits.admit_now(bytes)?).map(Some)
    }

    /// Starts a request that has to be parsed and prepared, or is long.
    async fn start_heavy(self: &Rc<Self>, header: FrameHeader, body: Vec<u8>, held: Held) {
        let deadline = Deadline::after(self.session.native.config.request_timeout);
        self.heavy.set(self.heavy.get() + 1);
        let connection = Rc::clone(self);
        reactor::spawn_now(Group::STATEMENT, move || async move {
            dispatch::answer_heavy(&connection.session, header, body, deadline).await;
            connection.heavy.set(connection.heavy.get() - 1);
            drop(held);
            connection.session.ends_one();
        });
        if self.heavy.get() >= HEAVY_PER_CONNECTION_MAX {
            let few = || self.heavy.get() < HEAVY_PER_CONNECTION_MAX || self.stopping.get();
            self.session.drained.wait_until(few).await;
        }
    }

    /// Answers what is not a frame. False where the bytes cannot be followed any further.
    fn refuse_frame(&self, error: &FrameError, input: &mut Input) -> bool {
        dispatch::protocol_error(&self.session, error.stream, &error.error);
        error.discard_bytes.is_some_and(|bytes| {
            input.discard(bytes);
            true
        })
    }

    /// Whether the client does not leave too many answers unread: too many of its own, or any while those of all clients
    /// of the shard are too many. Requests that run count as answers of the usual size, so that thousands that started
    /// together do not all answer at length into memory.
    fn may_read_on(&self) -> bool {
        let (waiting, usual) = {
            let output = self.session.output.borrow();
            (output.pending_bytes(), output.usual_bytes())
        };
        let running = self.session.in_flight.get();
        if self.stopping.get() || (waiting == 0 && running == 0) {
            return true;
        }
        !self.session.native.limits.answers.are_too_many()
            && waiting.saturating_add(running.saturating_mul(usual)) <= OUTPUT_BYTES_MAX
    }

    async fn write_loop(&self) {
        loop {
            self.session
                .written
                .wait_until(|| self.finished.get() || self.session.output.borrow().pending_bytes() > 0)
                .await;
            let Some(bytes) = self.session.output.borrow_mut().take() else { return };
            let (sent, bytes) = self.stream.send(bytes).await;
            let spare = self.session.output.borrow_mut().give_back(bytes);
            if let Some(buffer) = spare {
                self.session.native.give_buffer(buffer);
            }
            self.session.drained.notify_all();
            if let Err(error) = sent {
                reactor::debug!("connection {} takes no answers: {error}", self.id);
                self.session.output.borrow_mut().set_broken();
                self.stop_reading();
                self.session.drained.notify_all();
                return;
            }
        }
    }
}

/// Requests that must be over before the next one is looked at.
fn changes_connection(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Startup | Opcode::Register | Opcode::AuthResponse | Opcode::Credentials)
}
