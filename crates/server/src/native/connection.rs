//! One connection: reads frames, starts a task for each request, and writes answers in the order in which
//! they are ready.
//!
//! Requests before the end of the handshake, and those that change the connection, are answered one by one.
//! All others run concurrently, bounded per connection and per shard; requests that memory can answer need no
//! task. Connections take turns: each starts a number of requests, then the next one continues. Answers
//! gather in one buffer while the previous one is being sent, so many answers share a send. If a client does
//! not read its answers, no more of its requests are read. For a long frame, memory is reserved before more
//! of it is received; a client that does not send the rest within the request timeout loses its connection if
//! other requests wait for memory.

mod admission;

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use query::Left;
use query::system::ClientRow;
use reactor::net::Stream;
use reactor::{Deadline, Group, Instant, Permit, Signal};
use wire::frame::{FrameError, FrameHeader, Opcode};
use wire::protocol_error::ProtocolError;

use super::framing::{Input, Next};
use super::limits::{Demand, InFlight, Refusal};
use super::session::{Phase, Session, Working};
use super::{Native, dispatch};

/// Requests that a connection starts before it yields, and its answers are sent. A client with this many
/// requests in flight gets all answers in one piece; each piece costs a system call.
const REQUESTS_PER_TURN: u32 = 32;
/// Requests between two checks whether other tasks wait: a check reads the clock.
const REQUESTS_PER_LOOK: u32 = 8;

/// Bytes of an incomplete frame that a connection may receive without reserving memory.
const UNCOUNTED_BYTES: usize = 16 << 10;

/// Interval of checks on a connection that is not ready yet, or that sends a long request slowly.
const HANDSHAKE_LOOK: Duration = Duration::from_secs(1);

/// A connection on its shard.
pub(super) struct Connection {
    id: u64,
    stream: Stream,
    pub(super) session: Rc<Session>,
    stop: Signal,
    stopping: Cell<bool>,
    /// When the connection was opened.
    since: Instant,
    /// Its place among the connections in handshake, until the handshake is over.
    shaking: Cell<Option<Permit>>,
}

/// The state of receiving requests.
struct Reading {
    input: Input,
    /// Memory reserved for the frame that is being received, the frame's bytes, and the deadline for
    /// receiving all of it.
    reserved: Option<Permit>,
    reserved_bytes: usize,
    reserved_until: Deadline,
    /// Number of requests begun.
    turn: u32,
}

/// The condition for cutting the next frame.
enum Step {
    /// More bytes are needed.
    Receive,
    /// Other tasks get a turn first.
    GiveWay,
    /// The client leaves too many answers unread, or too many of its heavy requests are running.
    Drain,
    /// A slow step. Rare, and boxed: ten thousand idle connections would keep memory for it.
    Later(Box<Later>),
    /// Nothing more is read.
    End,
}

/// A slow step between two frames.
enum Later {
    /// Answer a request that runs alone.
    InTurn(FrameHeader, Vec<u8>),
    /// Admit a request that found no memory.
    Admit(FrameHeader, Vec<u8>),
    /// Wait for room for the answer of an admitted request, which is likely to be long.
    Room(FrameHeader, Vec<u8>, InFlight),
    /// Reserve memory for a long frame.
    Reserve(Demand),
}

impl Connection {
    pub(super) fn new(id: u64, stream: Stream, native: Rc<Native>, shaking: Permit) -> Rc<Self> {
        let session = Rc::new(Session::new(native, Some(stream.peer_addr())));
        let connection = Rc::new(Self {
            id,
            stream,
            session,
            stop: Signal::new(),
            stopping: Cell::new(false),
            since: reactor::now(),
            shaking: Cell::new(Some(shaking)),
        });
        let carrier = connection.session.carrier.set(Rc::downgrade(&connection));
        carrier.expect("a new session has no carrier");
        connection
    }

    /// Serves until the client closes, breaks the protocol, or the shard stops. Every request that was read
    /// is answered if the client still receives answers.
    pub(super) async fn run(self: Rc<Self>) {
        self.read_loop().await;
        let session = &self.session;
        session.drained.wait_until(|| session.in_flight.get() == 0 && !session.sending.get()).await;
        self.stream.shutdown();
    }

    /// The client's row of `system_views.clients`.
    pub(super) fn client_row(&self) -> Option<ClientRow> {
        self.session.row()
    }

    /// Stops reading; requests in flight end and are answered.
    pub(super) fn stop_reading(&self) {
        self.stopping.set(true);
        self.stop.notify();
        self.session.drained.notify();
    }

    /// Drops the answers that the client has not received, so that tasks waiting for the client end.
    pub(super) fn give_up(&self) {
        self.session.output.borrow_mut().set_broken();
        self.stream.shutdown();
    }

    async fn read_loop(self: &Rc<Self>) {
        let mut reading = Reading {
            input: Input::new(self.session.native.config.frame_bytes_max),
            reserved: None,
            reserved_bytes: 0,
            reserved_until: Deadline::NEVER,
            turn: 0,
        };
        loop {
            match self.begin_requests(&mut reading) {
                Step::GiveWay => reactor::yield_now().await,
                Step::Drain => self.session.drained.wait_until(|| self.may_go_on()).await,
                Step::Receive => {
                    if !self.receive(&mut reading).await {
                        return;
                    }
                }
                Step::Later(later) => {
                    if !Box::pin(self.go_on_later(*later, &mut reading)).await {
                        return;
                    }
                }
                Step::End => return,
            }
        }
    }

    /// Begins the requests of complete frames, and answers those that need no task.
    fn begin_requests(self: &Rc<Self>, reading: &mut Reading) -> Step {
        let native = &self.session.native;
        loop {
            if self.stopping.get() {
                return Step::End;
            }
            if !self.may_go_on() {
                return Step::Drain;
            }
            let full = native.limits.answers.are_full();
            let at_once = |header: &FrameHeader, body: &[u8]| match full {
                true => Err(Left::Untried),
                false => self.answer_at_once(header, body),
            };
            match reading.input.next_frame(at_once, || native.take_buffer()) {
                Ok(Some(Next::Taken)) => {}
                Ok(Some(Next::Frame(header, body, left))) => {
                    let step = self.take_frame((header, body, left), reading.reserved.take());
                    if let Some(step) = step {
                        return step;
                    }
                }
                Ok(None) => return self.want_more(reading),
                Err(error) => {
                    if !self.refuse_frame(&error, &mut reading.input) {
                        return Step::End;
                    }
                }
            }
            reading.turn = reading.turn.wrapping_add(1);
            let looks = reading.turn.is_multiple_of(REQUESTS_PER_LOOK);
            if reading.turn.is_multiple_of(REQUESTS_PER_TURN) || (looks && reactor::need_preempt()) {
                return Step::GiveWay;
            }
        }
    }

    /// The step if no complete frame is there: receive more, after reserving memory if the frame is long.
    fn want_more(&self, reading: &Reading) -> Step {
        let awaited = reading.input.awaited_bytes();
        let reserved = reading.reserved.as_ref().map_or(UNCOUNTED_BYTES, |_| reading.reserved_bytes);
        if awaited <= reserved {
            return Step::Receive;
        }
        let is_text = reading.input.awaits_text();
        Step::Later(Box::new(Later::Reserve(Demand { bytes: awaited, is_text })))
    }

    /// Performs a slow step; returns false if that ends the connection.
    async fn go_on_later(self: &Rc<Self>, later: Later, reading: &mut Reading) -> bool {
        match later {
            Later::InTurn(header, body) => {
                let goes_on = dispatch::answer_in_turn(&self.session, header, body, &mut reading.input).await;
                if self.session.phase.get() == Phase::Ready {
                    self.shaking.take();
                }
                goes_on
            }
            Later::Admit(header, body) => {
                let demand = Demand::of(header.opcode, body.len() + wire::frame::HEADER_BYTES);
                if let Some(admitted) = self.admit_later(header, demand).await
                    && let Some(Step::Later(later)) = self.begin((header, body, Left::Untried), admitted)
                    && let Later::Room(header, body, admitted) = *later
                    && let Some(room) = self.wait_for_room(header).await
                {
                    self.begin_with((header, body, Left::Untried), (admitted, Some(room)));
                }
                true
            }
            Later::Room(header, body, admitted) => {
                if let Some(room) = self.wait_for_room(header).await {
                    self.begin_with((header, body, Left::Untried), (admitted, Some(room)));
                }
                true
            }
            Later::Reserve(demand) => {
                let reserved = self.reserve(demand, &mut reading.reserved).await;
                reading.input.expect_bytes(demand.bytes);
                reading.reserved_bytes = demand.bytes;
                reading.reserved_until = Deadline::after(self.session.native.config.request_timeout);
                reserved
            }
        }
    }

    /// Receives the next bytes. Returns false at the end of the stream, on an error, or when told to stop.
    async fn receive(&self, reading: &mut Reading) -> bool {
        let Reading { input, reserved, reserved_until, .. } = reading;
        if self.session.phase.get() != Phase::Ready {
            return Box::pin(self.receive_in_time(input)).await;
        }
        if reserved.is_some() {
            return Box::pin(self.receive_reserved(input, *reserved_until)).await;
        }
        input.release().into_iter().flatten().for_each(|buffer| self.session.native.give_buffer(buffer));
        self.receive_some(input).await
    }

    /// As `receive`, for a frame with reserved memory. Returns false if the deadline has passed and others
    /// wait for memory.
    async fn receive_reserved(&self, input: &mut Input, until: Deadline) -> bool {
        let mut received = pin!(self.receive_some(input));
        let mut look = until;
        // Bounded only if others wait for memory; until then the client may take its time.
        loop {
            match reactor::timeout(look, received.as_mut()).await {
                Ok(some) => return some,
                Err(_) if self.session.native.limits.is_memory_wanted() => {
                    self.session.native.limits.count_shed();
                    reactor::warn_limited!(
                        "a client does not send the rest of a long request while others wait for its memory: its connection is closed"
                    );
                    return false;
                }
                Err(_) => look = Deadline::after(HANDSHAKE_LOOK),
            }
        }
    }

    /// As `receive`, before the end of the handshake: the client has a limited time for all of it, and less
    /// while many clients are in handshake.
    async fn receive_in_time(&self, input: &mut Input) -> bool {
        let mut received = pin!(self.receive_some(input));
        // Bounded by the time limit of the handshake.
        loop {
            match reactor::timeout(Deadline::after(HANDSHAKE_LOOK), received.as_mut()).await {
                Ok(some) => return some,
                Err(_) if self.session.native.handshakes.is_over(self.since) => {
                    reactor::debug!("connection {} does not shake hands", self.id);
                    return false;
                }
                Err(_) => {}
            }
        }
    }

    async fn receive_some(&self, input: &mut Input) -> bool {
        let mut received = pin!(self.stream.recv());
        let chunk = poll_fn(|context| {
            if self.stop.poll_until(context, || self.stopping.get()).is_ready() {
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
        .await;
        let Some(chunk) = chunk else { return false };
        if input.wants_buffer() {
            input.lend(self.session.native.take_buffer());
        }
        input.feed(&chunk);
        true
    }

    /// Answers or begins a request that needs no task, from its frame in the receive buffer.
    ///
    /// # Errors
    /// For other requests, how far the attempt came.
    #[inline]
    fn answer_at_once(&self, header: &FrameHeader, body: &[u8]) -> Result<(), Left> {
        let bytes = body.len() + wire::frame::HEADER_BYTES;
        if self.session.phase.get() != Phase::Ready || self.session.version.get() != Some(header.version) {
            return Err(Left::Untried);
        }
        dispatch::answer_at_once(&self.session, header, body, || self.admit_at_once(bytes))
    }

    /// Begins the request of a frame. `None` if the next frame may be cut.
    fn take_frame(
        self: &Rc<Self>,
        (header, body, left): (FrameHeader, Vec<u8>, Left),
        reserved: Option<Permit>,
    ) -> Option<Step> {
        let expected = self.session.version.get().unwrap_or(header.version);
        self.session.version.set(Some(expected));
        if header.version != expected {
            let error = ProtocolError::VersionChanged { received: header.version, expected };
            dispatch::protocol_error(&self.session, header.stream, &error);
            return Some(Step::End);
        }
        if self.session.phase.get() != Phase::Ready || changes_connection(header.opcode) {
            return Some(Step::Later(Box::new(Later::InTurn(header, body))));
        }
        let limits = &self.session.native.limits;
        if limits.answers.are_full() {
            limits.count_shed();
            dispatch::overloaded(&self.session, header, &limits.answers_text());
            return None;
        }
        if self.session.in_flight.get() >= self.session.native.config.requests_per_connection_max {
            limits.count_shed();
            let text = format!(
                "Too many requests in flight on this connection: {} (native_transport_max_requests_per_connection)",
                self.session.in_flight.get()
            );
            dispatch::overloaded(&self.session, header, &text);
            return None;
        }
        let demand = Demand::of(header.opcode, body.len() + wire::frame::HEADER_BYTES);
        // A request that came in segments may turn out to be a text, which needs more memory: what was
        // reserved is given back first.
        let admitted = match reserved.filter(|memory| limits.covers(memory, demand)) {
            Some(memory) => limits.admit_with(memory),
            None => limits.admit(demand),
        };
        match admitted {
            Ok(admitted) => return self.begin((header, body, left), admitted),
            Err(Refusal::Memory) => return Some(Step::Later(Box::new(Later::Admit(header, body)))),
            Err(refusal) => self.shed(header, &refusal),
        }
        None
    }

    /// Starts the task of an admitted request, unless its answer has to wait for room.
    fn begin(&self, (header, body, left): (FrameHeader, Vec<u8>, Left), admitted: InFlight) -> Option<Step> {
        let usual = self.session.output.borrow().usual_bytes();
        match self.session.native.limits.answer_now(usual) {
            Some(room) => self.begin_with((header, body, left), (admitted, room)),
            None => return Some(Step::Later(Box::new(Later::Room(header, body, admitted)))),
        }
        None
    }

    /// Starts the task of a request that has all its permits.
    fn begin_with(
        &self,
        (header, body, left): (FrameHeader, Vec<u8>, Left),
        (admitted, room): (InFlight, Option<Permit>),
    ) {
        let mut held = self.hold(admitted, room);
        let heavy = dispatch::is_heavy(&header);
        let working = Working::begin(&self.session, heavy);
        let began = self.session.native.latency.begin();
        let since = began.unwrap_or_else(reactor::coarse_now);
        if heavy {
            let deadline = Deadline::after(self.session.native.config.request_timeout);
            reactor::spawn_now(Group::STATEMENT, move || async move {
                dispatch::answer_heavy(working.session(), (header, body, since), deadline).await;
                let _ = working.session().native.latency.end(began);
                working.session().keep_room(held.take_room());
                drop((held, working));
            });
            return;
        }
        reactor::spawn_now(Group::STATEMENT, move || async move {
            reactor::in_place!(dispatch::answer(working.session(), (header, body, since), left));
            let _ = working.session().native.latency.end(began);
            working.session().keep_room(held.take_room());
            drop((held, working));
        });
    }

    /// Answers an invalid frame. Returns false if the following bytes cannot be parsed.
    fn refuse_frame(&self, error: &FrameError, input: &mut Input) -> bool {
        dispatch::protocol_error(&self.session, error.stream, &error.error);
        error.discard_bytes.is_some_and(|bytes| {
            input.discard(bytes);
            true
        })
    }

    /// Starts the task that sends pending output, if there is any.
    pub(super) fn begin_sending(self: &Rc<Self>) {
        if !self.session.output.borrow().has_pending() {
            return;
        }
        self.session.sending.set(true);
        let sending = Sending(Rc::clone(self));
        reactor::spawn(Group::STATEMENT, async move { sending.0.send_all().await }).detach();
    }

    /// Sends pending output, including output that is added meanwhile.
    async fn send_all(&self) {
        loop {
            let taken = self.session.output.borrow_mut().take();
            let Some(bytes) = taken else { return };
            let (sent, bytes) = self.stream.send(bytes).await;
            self.session.output.borrow_mut().sent();
            self.session.native.give_buffer(bytes);
            self.session.drained.notify();
            if let Err(error) = sent {
                reactor::debug!("connection {} takes no answers: {error}", self.id);
                self.session.output.borrow_mut().set_broken();
                self.stop_reading();
                return;
            }
        }
    }
}

/// Marks a connection's sending task as running, until dropped.
struct Sending(Rc<Connection>);

impl Drop for Sending {
    fn drop(&mut self) {
        let session = &self.0.session;
        if session.output.borrow().is_sending() {
            // The task was dropped while it sent: the client may have received part of an answer.
            session.output.borrow_mut().set_broken();
            self.0.stop_reading();
        }
        session.sending.set(false);
        session.drained.notify();
    }
}

/// Whether the requests before and after one with this opcode must not run beside it.
fn changes_connection(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Startup | Opcode::Register | Opcode::AuthResponse | Opcode::Credentials)
}
