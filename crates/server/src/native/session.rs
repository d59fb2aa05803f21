//! The requests' view of a connection, independent of the transport: its state, and the output for answers.
//!
//! `connection` moves the bytes of a socket; benches and tests use a session without a socket.
//! Invariant: an answer is appended to `Output` as a whole or not at all.

use std::cell::{Cell, OnceCell, RefCell};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};

use query::ClientState;
use query::system::ClientRow;
use reactor::{Permit, Signal};
use wire::extensions::Extensions;
use wire::frame::FrameHeader;
use wire::request::EventTypes;
use wire::response::BodyCompression;
use wire::version::ProtocolVersion;

use super::Native;
use super::connection::Connection;
use super::framing::Output;

/// The phase of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Only OPTIONS and STARTUP are allowed.
    New,
    /// STARTUP was received; AUTH_RESPONSE has to follow.
    Authenticating,
    /// All requests are allowed.
    Ready,
}

/// Names and values; connections of one driver send the same ones and share them.
pub(super) type StartupOptions = Rc<[(Box<str>, Box<str>)]>;

/// The session of one client.
pub(super) struct Session {
    pub(super) native: Rc<Native>,
    /// Shared with running requests: a change replaces it.
    pub(super) client: RefCell<Rc<ClientState>>,
    pub(super) phase: Cell<Phase>,
    pub(super) extensions: Cell<Extensions>,
    /// Whether the client wants OVERLOADED instead of waiting if memory for requests is short.
    pub(super) throws_on_overload: Cell<bool>,
    /// The version of the first frame; all others must have it too.
    pub(super) version: Cell<Option<ProtocolVersion>>,
    /// The options of the client's STARTUP.
    pub(super) startup: RefCell<Option<StartupOptions>>,
    /// Number of requests received.
    pub(super) requests: Cell<u64>,
    /// The kinds of events that the client registered for.
    pub(super) events: Cell<EventTypes>,
    pub(super) output: RefCell<Output>,
    /// The connection that sends `output`; empty for a client without a socket.
    pub(super) carrier: OnceCell<Weak<Connection>>,
    /// Whether the connection is sending.
    pub(super) sending: Cell<bool>,
    /// Number of requests that have begun and are not answered.
    pub(super) in_flight: Cell<usize>,
    /// Number of these that have to be parsed and prepared, or are long.
    pub(super) heavy: Cell<usize>,
    /// Notified when a request was answered or output was sent: the reader then checks whether it may
    /// continue.
    pub(super) drained: Signal,
}

impl Session {
    pub(super) fn new(native: Rc<Native>, peer: Option<SocketAddr>) -> Self {
        let client = ClientState::new(peer, Rc::clone(&native.anonymous));
        let output = RefCell::new(Output::new(Rc::clone(&native.limits.answers), Rc::clone(&native.codecs)));
        Self {
            native,
            client: RefCell::new(Rc::new(client)),
            phase: Cell::new(Phase::New),
            extensions: Cell::new(Extensions::default()),
            throws_on_overload: Cell::new(false),
            version: Cell::new(None),
            startup: RefCell::default(),
            requests: Cell::new(0),
            events: Cell::new(EventTypes::default()),
            output,
            carrier: OnceCell::new(),
            sending: Cell::new(false),
            in_flight: Cell::new(0),
            heavy: Cell::new(0),
            drained: Signal::new(),
        }
    }

    /// The client's row of `system_views.clients`; `None` for a client without a socket.
    pub(super) fn row(&self) -> Option<ClientRow> {
        let client = self.client.borrow();
        let peer = client.peer?;
        let options = self.startup.borrow();
        Some(ClientRow {
            address: peer.ip(),
            port: peer.port(),
            stage: match self.phase.get() {
                Phase::New => "established",
                Phase::Authenticating => "authenticating",
                Phase::Ready => "ready",
            },
            version: client.version as u8,
            options: options
                .iter()
                .flat_map(|all| &**all)
                .map(|(name, value)| (name.to_string(), value.to_string()))
                .collect(),
            requests: self.requests.get(),
            keyspace: client.keyspace.as_deref().map(str::to_owned),
            user: client.user.to_string(),
        })
    }

    /// Appends the answer that a request succeeded without a result.
    #[inline]
    pub(super) fn write_void(&self, header: &FrameHeader) {
        let mut output = self.output.borrow_mut();
        if output.wants_buffer() {
            output.lend(self.native.take_buffer());
        }
        output.append_void(header.version, header.stream);
        drop(output);
        self.send_soon();
    }

    /// Lets `write` append complete frames to the output.
    pub(super) fn write(&self, write: impl FnOnce(&mut Vec<u8>, BodyCompression<'_>)) {
        let mut output = self.output.borrow_mut();
        if output.wants_buffer() {
            output.lend(self.native.take_buffer());
        }
        output.append(write);
        drop(output);
        self.send_soon();
    }

    /// As [`Self::write`], for a frame with a long body: `write` appends the part before the body, which is
    /// not copied if possible.
    pub(super) fn write_long(&self, write: impl FnOnce(&mut Vec<u8>), body: Vec<u8>) {
        let mut output = self.output.borrow_mut();
        if output.wants_buffer() {
            output.lend(self.native.take_buffer());
        }
        output.append_long(write, body);
        drop(output);
        self.send_soon();
    }

    /// Keeps the room of an answer until the answer is sent.
    #[inline]
    pub(super) fn keep_room(&self, room: Option<Permit>) {
        if let Some(room) = room {
            self.output.borrow_mut().keep_room(room);
        }
    }

    /// Starts the task that sends pending output, unless it runs already.
    #[inline]
    fn send_soon(&self) {
        if !self.sending.get()
            && let Some(connection) = self.carrier.get().and_then(Weak::upgrade)
        {
            connection.begin_sending();
        }
    }
}

/// A request that has begun; dropping it counts it as finished.
pub(super) struct Working {
    session: Rc<Session>,
    heavy: bool,
}

impl Working {
    /// Counts a request; `heavy` if it has to be parsed and prepared, or is long.
    #[inline]
    pub(super) fn begin(session: &Rc<Session>, heavy: bool) -> Self {
        session.in_flight.set(session.in_flight.get() + 1);
        session.heavy.set(session.heavy.get() + usize::from(heavy));
        Self { session: Rc::clone(session), heavy }
    }

    /// The session of the request.
    #[inline]
    pub(super) fn session(&self) -> &Session {
        &self.session
    }
}

impl Drop for Working {
    #[inline]
    fn drop(&mut self) {
        self.session.in_flight.set(self.session.in_flight.get() - 1);
        self.session.heavy.set(self.session.heavy.get() - usize::from(self.heavy));
        self.session.drained.notify();
    }
}
