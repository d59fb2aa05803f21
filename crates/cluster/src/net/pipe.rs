//! One connection's bytes: frames that wait to be sent, and frames cut out of what was received.
//!
//! A frame is appended to a buffer and the buffer is sent by one task, so that all frames of a turn of the
//! loop leave in one send. Invariant: a frame that has begun to come has [`FRAME_TIME_MAX`] to come whole,
//! and a send has [`SEND_TIME_MAX`]; memory for a frame grows with the bytes that have come, never with its
//! length field.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use reactor::net::Stream;
use reactor::{Deadline, Event, Instant, Signal};
use wire::Compressor;
use wire::node::NodeError;
use wire::node::frame::{Frame, FrameHeader, append_frame};

use super::metrics::PeerMetrics;

/// Time that a frame has to come whole once its first byte is there.
pub(super) const FRAME_TIME_MAX: Duration = Duration::from_secs(30);
/// Time that one send may take: a peer that reads nothing for so long is given up.
pub(super) const SEND_TIME_MAX: Duration = Duration::from_secs(15);
/// Longest body of a frame.
pub const BODY_BYTES_MAX: usize = 32 << 20;
/// An empty buffer above this is given back: an idle connection holds no memory.
const IDLE_BYTES_MAX: usize = 64 << 10;

/// Why a connection has ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Ended {
    #[error("the other node closed the connection")]
    Closed,
    #[error("the other node closed the connection in the middle of a frame")]
    MidFrame,
    #[error("a frame did not come whole within {} s", FRAME_TIME_MAX.as_secs())]
    Stalled,
    #[error("the other node took nothing for {} s", SEND_TIME_MAX.as_secs())]
    Unread,
    #[error("{0}")]
    Io(String),
    #[error("the other node sent what has no meaning: {0}")]
    Garbage(#[from] NodeError),
    #[error("the other node broke the protocol: {0}")]
    Protocol(&'static str),
    #[error("{0}")]
    Here(&'static str),
}

/// How frames of a connection are written.
#[derive(Clone)]
pub(super) struct Encoder {
    /// The version that was agreed on.
    pub(super) version: u8,
    /// The shard's compressor, if bodies are compressed.
    pub(super) compressor: Option<Rc<RefCell<Compressor>>>,
}

impl Encoder {
    /// Hands the compressor to `write`, if there is one.
    pub(super) fn with(&self, write: impl FnOnce(Option<&mut Compressor>)) {
        match &self.compressor {
            Some(compressor) => write(Some(&mut compressor.borrow_mut())),
            None => write(None),
        }
    }
}

/// The sending half, and the end of the connection.
pub(super) struct Pipe {
    stream: Rc<Stream>,
    metrics: Rc<PeerMetrics>,
    waiting: RefCell<Vec<u8>>,
    /// Bytes that a send in progress holds.
    sending: Cell<usize>,
    filled: Signal,
    /// Bytes have left, or the connection has ended.
    pub(super) drained: Event,
    ended: RefCell<Option<Ended>>,
}

impl Pipe {
    pub(super) fn new(stream: Rc<Stream>, metrics: Rc<PeerMetrics>) -> Self {
        Self {
            stream,
            metrics,
            waiting: RefCell::default(),
            sending: Cell::new(0),
            filled: Signal::new(),
            drained: Event::new(),
            ended: RefCell::default(),
        }
    }

    /// Appends a frame to what is sent next; dropped if the connection has ended.
    pub(super) fn append(&self, header: FrameHeader, compressor: Option<&mut Compressor>, body: &[&[u8]]) {
        if self.has_ended() {
            return;
        }
        let mut waiting = self.waiting.borrow_mut();
        append_frame(&mut waiting, header, compressor, |out| {
            body.iter().for_each(|part| out.extend_from_slice(part));
        });
        drop(waiting);
        self.filled.notify();
    }

    /// Bytes that have not left.
    pub(super) fn unsent(&self) -> usize {
        self.waiting.borrow().len() + self.sending.get()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// Why the connection has ended; the first reason stays.
    pub(super) fn ended(&self) -> Option<Ended> {
        self.ended.borrow().clone()
    }

    /// Ends the connection: both halves notice.
    pub(super) fn end(&self, why: Ended) {
        if self.ended.borrow().is_some() {
            return;
        }
        *self.ended.borrow_mut() = Some(why);
        let unsent = self.waiting.take();
        drop(unsent);
        self.stream.shutdown();
        self.filled.notify();
        self.drained.notify_all();
    }

    /// Sends what is appended until the connection ends.
    pub(super) async fn send_on(&self) {
        let mut spare = Vec::new();
        loop {
            self.filled.wait_until(|| self.has_ended() || !self.waiting.borrow().is_empty()).await;
            if self.has_ended() {
                return;
            }
            // Tasks that are ready now append their frames first.
            reactor::yield_now().await;
            let bytes = self.waiting.replace(std::mem::take(&mut spare));
            let length = bytes.len();
            self.sending.set(length);
            let sent = reactor::timeout(Deadline::after(SEND_TIME_MAX), self.stream.send(bytes)).await;
            self.sending.set(0);
            match sent {
                Ok((Ok(()), back)) => {
                    self.metrics.sent(length);
                    spare = back;
                    spare.clear();
                    if spare.capacity() > IDLE_BYTES_MAX {
                        spare = Vec::new();
                    }
                }
                Ok((Err(error), _)) => self.end(Ended::Io(error.to_string())),
                Err(_) => self.end(Ended::Unread),
            }
            self.drained.notify_all();
        }
    }
}

/// The receiving half.
pub(super) struct FrameReader {
    stream: Rc<Stream>,
    metrics: Option<Rc<PeerMetrics>>,
    body_bytes_max: usize,
    bytes: Vec<u8>,
    at: usize,
    /// When the first byte of a frame came that is not whole.
    since: Option<Instant>,
}

impl FrameReader {
    pub(super) fn new(stream: Rc<Stream>, body_bytes_max: usize, metrics: Option<Rc<PeerMetrics>>) -> Self {
        Self { stream, metrics, body_bytes_max, bytes: Vec::new(), at: 0, since: None }
    }

    /// Waits for further bytes.
    pub(super) async fn fill(&mut self) -> Result<(), Ended> {
        self.bytes.drain(..self.at);
        self.at = 0;
        if self.bytes.is_empty() {
            self.since = None;
            if self.bytes.capacity() > IDLE_BYTES_MAX {
                self.bytes = Vec::new();
            }
        }
        let deadline = match (self.bytes.is_empty(), self.since) {
            (true, _) => Deadline::NEVER,
            (false, Some(since)) => Deadline::at(since + FRAME_TIME_MAX),
            (false, None) => {
                let now = reactor::now();
                self.since = Some(now);
                Deadline::at(now + FRAME_TIME_MAX)
            }
        };
        let received = reactor::timeout(deadline, self.stream.recv()).await.map_err(|_| Ended::Stalled)?;
        match received {
            Ok(Some(chunk)) => {
                if let Some(metrics) = &self.metrics {
                    metrics.received(chunk.len());
                }
                self.bytes.extend_from_slice(&chunk);
                Ok(())
            }
            Ok(None) if self.bytes.is_empty() => Err(Ended::Closed),
            Ok(None) => Err(Ended::MidFrame),
            Err(error) => Err(Ended::Io(error.to_string())),
        }
    }

    /// The next frame that has come whole, with its body.
    pub(super) fn cut(&mut self) -> Result<Option<(FrameHeader, Vec<u8>)>, NodeError> {
        let rest = &self.bytes[self.at..];
        let Some((frame, behind)) = Frame::cut(rest, self.body_bytes_max)? else { return Ok(None) };
        let mut scratch = Vec::new();
        let body = frame.body(self.body_bytes_max, &mut scratch)?;
        let body = if frame.header.flags.has(wire::node::frame::FrameFlags::COMPRESSED) {
            scratch
        } else {
            body.to_vec()
        };
        let header = frame.header;
        self.at = self.bytes.len() - behind.len();
        self.since = None;
        Ok(Some((header, body)))
    }

    /// Whether bytes have come that belong to no frame yet.
    pub(super) fn has_rest(&self) -> bool {
        self.at < self.bytes.len()
    }
}
