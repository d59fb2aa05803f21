//! What a connection is to its requests, whatever carries its bytes: state, and a place for answers.
//!
//! `connection` moves the bytes of a socket; benches and tests drive a session without one.
//! Invariant: an answer is appended to `Output` whole or not at all.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

use query::ClientState;
use query::system::ClientRow;
use reactor::Event;
use wire::extensions::Extensions;
use wire::frame::FrameHeader;
use wire::request::EventTypes;
use wire::response::BodyCompression;
use wire::version::ProtocolVersion;

use super::Native;
use super::framing::Output;

/// How far a session has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing but OPTIONS and STARTUP.
    New,
    /// STARTUP came; AUTH_RESPONSE has to follow.
    Authenticating,
    /// Anything goes.
    Ready,
}

/// Names and values.
pub(super) type StartupOptions = Box<[(Box<str>, Box<str>)]>;

/// One client.
pub(super) struct Session {
    pub(super) native: Rc<Native>,
    /// Shared with the requests that run: a change makes another.
    pub(super) client: RefCell<Rc<ClientState>>,
    pub(super) phase: Cell<Phase>,
    pub(super) extensions: Cell<Extensions>,
    /// Whether the client wants OVERLOADED rather than to wait where memory for requests is short.
    pub(super) throws_on_overload: Cell<bool>,
    /// The version of the first frame; all others have to have it.
    pub(super) version: Cell<Option<ProtocolVersion>>,
    /// What the client said in STARTUP, as it stood there.
    pub(super) startup: RefCell<StartupOptions>,
    /// Requests that came.
    pub(super) requests: Cell<u64>,
    /// Kinds of events the client registered for.
    pub(super) events: Cell<EventTypes>,
    pub(super) output: RefCell<Output>,
    /// Something was appended to `output`, or it will not be any more.
    pub(super) written: Event,
    /// Requests that have begun and are not answered.
    pub(super) in_flight: Cell<usize>,
    /// A request was answered, or some of the output is gone.
    pub(super) drained: Event,
}

impl Session {
    pub(super) fn new(native: Rc<Native>, peer: Option<SocketAddr>) -> Self {
        let client = ClientState::new(peer, native.authenticator.anonymous());
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
            written: Event::new(),
            in_flight: Cell::new(0),
            drained: Event::new(),
        }
    }

    /// The client as `system_views.clients` shows it; `None` for one without a socket.
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
            options: options.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
            requests: self.requests.get(),
            keyspace: client.keyspace.as_deref().map(str::to_owned),
            user: client.user.to_string(),
        })
    }

    /// One more request has begun.
    #[inline]
    pub(super) fn begins_one(&self) {
        self.in_flight.set(self.in_flight.get() + 1);
    }

    /// A request that [`Session::begins_one`] counted has ended.
    #[inline]
    pub(super) fn ends_one(&self) {
        self.in_flight.set(self.in_flight.get() - 1);
        self.drained.notify_all();
    }

    /// Appends the answer of a request that has none but that it was carried out.
    #[inline]
    pub(super) fn write_void(&self, header: &FrameHeader) {
        let mut output = self.output.borrow_mut();
        if output.wants_buffer() {
            output.lend(self.native.take_buffer());
        }
        output.append_void(header.version, header.stream);
        drop(output);
        self.written.notify_all();
    }

    /// Has `write` append whole frames to what goes out.
    pub(super) fn write(&self, write: impl FnOnce(&mut Vec<u8>, BodyCompression<'_>)) {
        let mut output = self.output.borrow_mut();
        if output.wants_buffer() {
            output.lend(self.native.take_buffer());
        }
        output.append(write);
        drop(output);
        self.written.notify_all();
    }
}
