//! Bytes to frames and answers to bytes, for both kinds of framing.
//!
//! In versions 3 and 4, frames follow each other on the socket. Version 5 does the same until STARTUP is
//! answered; from then on frames travel in segments with checksums (native_protocol_v5.spec §2).

use std::cell::{RefCell, RefMut};
use std::collections::VecDeque;
use std::rc::Rc;

use reactor::Permit;
use wire::compression::{Compression, Compressor};
use wire::frame::{Direction, Frame, FrameError, FrameHeader, HEADER_BYTES, Opcode};
use wire::segment::{Decoded, PAYLOAD_BYTES_MAX, SegmentDecoder, SegmentEncoder, SegmentFormat};
use wire::version::ProtocolVersion;

use super::limits::Answers;

/// A larger receive buffer is shrunk once it is empty, even if more is coming.
const INPUT_BYTES_KEPT: usize = 64 << 10;

/// Offset of the body's length in a frame's header (native_protocol_v4.spec §2).
const LENGTH_AT: usize = 5;
/// Offset of the opcode in a frame's header.
const OPCODE_AT: usize = 4;

/// Assumed length of a connection's answers before the first one.
const ANSWER_BYTES_AT_FIRST: usize = 64 << 10;

/// Number of segments of a long envelope that are made at a time: half a megabyte.
const PIECES_AT_ONCE: usize = 4;

/// Bytes of a segment: its payload, a header and checksums (native_protocol_v5.spec §2.2).
const SEGMENT_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + 16;

/// An answer of at least this length is not copied behind others, if the framing allows that.
pub(super) const LONG_ANSWER_BYTES: usize = 64 << 10;

/// Received bytes that are not yet parsed.
#[derive(Debug)]
pub(super) struct Input {
    frame_bytes_max: usize,
    received: Vec<u8>,
    /// Bytes of `received` that are parsed.
    used: usize,
    /// Bytes of a refused frame that are still to come.
    discard: u64,
    segments: Option<SegmentDecoder>,
    /// Envelopes of the last segment, and the number of their bytes that are parsed.
    envelopes: Vec<u8>,
    envelopes_used: usize,
}

impl Input {
    pub(super) fn new(frame_bytes_max: usize) -> Self {
        Self {
            frame_bytes_max,
            received: Vec::new(),
            used: 0,
            discard: 0,
            segments: None,
            envelopes: Vec::new(),
            envelopes_used: 0,
        }
    }

    /// Whether `lend` should be called before more bytes are fed.
    pub(super) fn wants_buffer(&self) -> bool {
        self.received.capacity() == 0
    }

    /// Gives the input an empty buffer for received bytes.
    pub(super) fn lend(&mut self, buffer: Vec<u8>) {
        debug_assert!(self.received.is_empty() && buffer.is_empty());
        self.received = buffer;
        self.used = 0;
    }

    /// Takes the buffers that hold nothing while no bytes are awaited soon, so that ten thousand connections
    /// can share them.
    pub(super) fn release(&mut self) -> [Option<Vec<u8>>; 2] {
        let released = |buffer: &mut Vec<u8>, used: &mut usize| {
            let idle = *used == buffer.len() && buffer.capacity() > 0;
            idle.then(|| {
                *used = 0;
                std::mem::take(buffer)
            })
        };
        [
            released(&mut self.received, &mut self.used),
            released(&mut self.envelopes, &mut self.envelopes_used),
        ]
    }

    /// Bytes of memory that the incomplete frame will take with its header, as far as known: of a frame in
    /// several segments, only the bytes received so far are known.
    pub(super) fn awaited_bytes(&self) -> usize {
        if let Some(segments) = &self.segments {
            // Doubled, so that memory is not requested for each segment.
            return segments.buffered_bytes().saturating_mul(2).next_power_of_two();
        }
        let length = self.received[self.used..].get(LENGTH_AT..HEADER_BYTES);
        let Some(length) = length.and_then(|bytes| bytes.try_into().ok()) else { return 0 };
        // A length above the limit was refused already.
        HEADER_BYTES + (u32::from_be_bytes(length) as usize).min(self.frame_bytes_max)
    }

    /// Whether the incomplete frame is a text to be parsed, as far as known.
    pub(super) fn awaits_text(&self) -> bool {
        let opcode = self.received[self.used..].get(OPCODE_AT).filter(|_| self.segments.is_none());
        opcode.is_some_and(|opcode| [Opcode::Query as u8, Opcode::Prepare as u8].contains(opcode))
    }

    /// From the next byte on, the client sends segments.
    pub(super) fn expect_segments(&mut self, format: SegmentFormat) {
        self.segments = Some(SegmentDecoder::new(format, Direction::Request, self.frame_bytes_max));
    }

    /// Takes bytes from the socket.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let skipped = usize::try_from(self.discard).unwrap_or(usize::MAX).min(bytes.len());
        self.discard -= skipped as u64;
        if self.used == self.received.len() {
            self.received.clear();
            self.used = 0;
            self.received.shrink_to(INPUT_BYTES_KEPT);
        } else if self.used > self.received.len() / 2 {
            self.received.drain(..self.used);
            self.used = 0;
        }
        self.received.extend_from_slice(&bytes[skipped..]);
    }

    /// Skips the next `bytes` bytes of frames.
    pub(super) fn discard(&mut self, bytes: u64) {
        let (buffer, used) = match self.segments {
            Some(_) => (&self.envelopes, &mut self.envelopes_used),
            None => (&self.received, &mut self.used),
        };
        let here = usize::try_from(bytes).unwrap_or(usize::MAX).min(buffer.len() - *used);
        *used += here;
        if self.segments.is_none() {
            self.discard = bytes - here as u64;
        }
    }

    /// Cuts the next complete frame and offers it to `take` in place. If `take` fails, its error goes with
    /// the frame, whose body is copied to a buffer from `buffer`. `None` if more bytes are needed.
    #[inline]
    pub(super) fn next_frame<L: Default>(
        &mut self,
        take: impl FnOnce(&FrameHeader, &[u8]) -> Result<(), L>,
        buffer: impl FnOnce() -> Vec<u8>,
    ) -> Result<Option<Next<L>>, FrameError> {
        let Some(segments) = &mut self.segments else {
            let Some(frame) = Frame::cut(&self.received[self.used..], self.frame_bytes_max)? else {
                return Ok(None);
            };
            let header = frame.header;
            if frame.body.len() > INPUT_BYTES_KEPT {
                return Ok(Some(self.hand_over(header)));
            }
            self.used += header.frame_bytes();
            return Ok(Some(Next::of(&frame, take, buffer)));
        };
        loop {
            let rest = &self.envelopes[self.envelopes_used..];
            if !rest.is_empty() {
                let Some(frame) = Frame::cut(rest, self.frame_bytes_max)? else {
                    return Err(FrameError::fatal(wire::protocol_error::ProtocolError::InvalidSegment {
                        reason: "an envelope that goes beyond its self-contained segment",
                    }));
                };
                self.envelopes_used += frame.header.frame_bytes();
                return Ok(Some(Next::of(&frame, take, buffer)));
            }
            self.envelopes.clear();
            self.envelopes_used = 0;
            self.envelopes.shrink_to(INPUT_BYTES_KEPT);
            match segments.decode(&self.received[self.used..])? {
                Decoded::NeedMore => return Ok(None),
                Decoded::Partial { consumed } => self.used += consumed,
                Decoded::Envelopes { consumed, envelopes } => {
                    self.envelopes.extend_from_slice(envelopes);
                    self.used += consumed;
                }
                Decoded::Refused { consumed, error } => {
                    self.used += consumed;
                    return Err(error);
                }
            }
        }
    }
}

impl Input {
    /// Returns the next, long frame: its body is the receive buffer itself, not a copy.
    #[cold]
    fn hand_over<L: Default>(&mut self, header: FrameHeader) -> Next<L> {
        let end = self.used + header.frame_bytes();
        let behind = self.received[end..].to_vec();
        let mut body = std::mem::replace(&mut self.received, behind);
        body.truncate(end);
        body.drain(..self.used + HEADER_BYTES);
        self.used = 0;
        Next::Frame(header, body, L::default())
    }

    /// Memory for `bytes` of a frame is reserved: the buffer is enlarged to exactly that length.
    pub(super) fn expect_bytes(&mut self, bytes: usize) {
        if self.segments.is_none() {
            let (held, awaited) = (self.received.len(), self.used + bytes);
            self.received.reserve_exact(awaited.saturating_sub(held));
        }
    }
}

/// The outcome of cutting a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<L> {
    /// `take` has dealt with the frame.
    Taken,
    /// The frame, for the caller, and how far `take` came with it.
    Frame(FrameHeader, Vec<u8>, L),
}

impl<L> Next<L> {
    #[inline]
    fn of(
        frame: &Frame<'_>,
        take: impl FnOnce(&FrameHeader, &[u8]) -> Result<(), L>,
        buffer: impl FnOnce() -> Vec<u8>,
    ) -> Self {
        match take(&frame.header, frame.body) {
            Ok(()) => Self::Taken,
            Err(left) => {
                let mut body = buffer();
                body.extend_from_slice(frame.body);
                Self::Frame(frame.header, body, left)
            }
        }
    }
}

/// Encoders of answers, shared by all connections of a shard because their tables are larger than a
/// connection.
///
/// Each is borrowed for one call that does not wait.
#[derive(Debug)]
pub(super) struct Codecs {
    compressor: RefCell<Compressor>,
    plain: RefCell<SegmentEncoder>,
    lz4: RefCell<SegmentEncoder>,
}

impl Codecs {
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Self {
            compressor: RefCell::default(),
            plain: RefCell::new(SegmentEncoder::new(SegmentFormat::Plain)),
            lz4: RefCell::new(SegmentEncoder::new(SegmentFormat::Lz4)),
        })
    }

    /// Appends the next segments of a long envelope, of which `sent` bytes have been encoded before. Returns
    /// the new number of encoded bytes.
    fn append_pieces(
        &self,
        format: SegmentFormat,
        [head, body]: [&[u8]; 2],
        mut sent: usize,
        out: &mut Vec<u8>,
    ) -> usize {
        let mut encoder = self.segments(format);
        for _ in 0..PIECES_AT_ONCE {
            if let Some(of_head) = head.get(sent..).filter(|left| !left.is_empty()) {
                let of_head = &of_head[..of_head.len().min(PAYLOAD_BYTES_MAX)];
                let of_body = &body[..body.len().min(PAYLOAD_BYTES_MAX - of_head.len())];
                encoder.append_piece(out, &[of_head, of_body].concat());
                sent += of_head.len() + of_body.len();
            } else if let Some(left) = body.get(sent - head.len()..).filter(|left| !left.is_empty()) {
                let piece = &left[..left.len().min(PAYLOAD_BYTES_MAX)];
                encoder.append_piece(out, piece);
                sent += piece.len();
            }
        }
        sent
    }

    fn segments(&self, format: SegmentFormat) -> RefMut<'_, SegmentEncoder> {
        match format {
            SegmentFormat::Plain => self.plain.borrow_mut(),
            SegmentFormat::Lz4 => self.lz4.borrow_mut(),
        }
    }
}

/// An element of the queue of output.
enum Queued {
    /// Bytes ready for the socket.
    Ready(Vec<u8>),
    /// An envelope longer than a segment, of which the first `sent` bytes are encoded. Its segments are made
    /// as they are sent, so the envelope is not in memory twice.
    Envelope { format: SegmentFormat, head: Vec<u8>, body: Vec<u8>, sent: usize },
}

/// Answers on their way to the client, counted towards the shard's limit until they are sent.
pub(super) struct Output {
    answers: Rc<Answers>,
    /// Bytes counted in `answers`: pending, queued and being sent.
    counted: usize,
    sending: usize,
    /// Output that precedes `pending`, and its bytes.
    queue: VecDeque<Queued>,
    queued: usize,
    pending: Vec<u8>,
    /// Room kept for long answers that wait, and for those that are being sent.
    pending_room: Vec<Permit>,
    sending_room: Vec<Permit>,
    /// Compression of bodies, in versions 3 and 4.
    pub(super) body_compression: Option<Compression>,
    codecs: Rc<Codecs>,
    segments: Option<SegmentFormat>,
    /// Offset in `pending` of the run of envelopes that is to be put into segments.
    run: Option<usize>,
    /// About the length of the longest of the last answers.
    usual_bytes: usize,
    broken: bool,
}

impl Output {
    pub(super) fn new(answers: Rc<Answers>, codecs: Rc<Codecs>) -> Self {
        Self {
            answers,
            counted: 0,
            sending: 0,
            queue: VecDeque::new(),
            queued: 0,
            pending: Vec::new(),
            pending_room: Vec::new(),
            sending_room: Vec::new(),
            body_compression: None,
            codecs,
            segments: None,
            run: None,
            usual_bytes: ANSWER_BYTES_AT_FIRST,
            broken: false,
        }
    }

    fn count(&mut self) {
        let held = self.pending.len() + self.queued + self.sending;
        self.answers.count(self.counted, held);
        self.counted = held;
    }

    /// From now on, appended answers go out in segments.
    pub(super) fn begin_segments(&mut self, format: SegmentFormat) {
        self.segments = Some(format);
    }

    /// Whether `lend` should be called before an answer is appended.
    pub(super) fn wants_buffer(&self) -> bool {
        self.pending.capacity() == 0 && !self.broken
    }

    /// Gives the output an empty buffer for answers.
    pub(super) fn lend(&mut self, buffer: Vec<u8>) {
        debug_assert!(self.pending.is_empty() && buffer.is_empty());
        self.pending = buffer;
    }

    /// Lets `write` append complete frames.
    pub(super) fn append(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>, Option<(Compression, &mut Compressor)>),
    ) {
        if self.broken {
            return;
        }
        self.begin_run();
        let mut compressor = self.body_compression.map(|_| self.codecs.compressor.borrow_mut());
        let compression = self.body_compression.zip(compressor.as_deref_mut());
        let before = self.pending.len();
        write(&mut self.pending, compression);
        drop(compressor);
        self.note_answer(before);
    }

    /// Appends a RESULT of kind Void, the answer of every write. Its body is too short for compression.
    #[inline]
    pub(super) fn append_void(&mut self, version: ProtocolVersion, stream: i16) {
        if self.broken {
            return;
        }
        self.begin_run();
        let before = self.pending.len();
        self.pending.extend_from_slice(&wire::response::void_frame(version, stream));
        self.note_answer(before);
    }

    /// Begins a run of envelopes, if answers go out in segments.
    #[inline]
    fn begin_run(&mut self) {
        if let Some(format) = self.segments
            && self.run.is_none()
        {
            self.run = Some(self.codecs.segments(format).begin(&mut self.pending));
        }
    }

    /// Counts an answer that was appended after the first `before` bytes of `pending`.
    #[inline]
    fn note_answer(&mut self, before: usize) {
        // A short answer lowers it by an eighth only: lengths vary, and too small a guess costs memory.
        self.usual_bytes = (self.pending.len() - before).max(self.usual_bytes - self.usual_bytes / 8);
        self.count();
    }

    /// The likely maximum of an answer's length: the longest of the last ones, which is forgotten gradually.
    pub(super) fn usual_bytes(&self) -> usize {
        self.usual_bytes
    }

    /// Whether answers may be appended with `append_long`: bodies are not compressed.
    pub(super) fn takes_long(&self) -> bool {
        self.body_compression.is_none()
    }

    /// Puts what is pending behind the queue, so that no buffer has to grow for answers on both sides of a
    /// long one: it would take twice what is counted. In segments nothing happens: runs of envelopes are
    /// not cut.
    pub(super) fn end_buffer(&mut self) {
        if self.segments.is_none() && !self.pending.is_empty() {
            self.queued += self.pending.len();
            self.queue.push_back(Queued::Ready(std::mem::take(&mut self.pending)));
        }
    }

    /// Lets `write` append the head of a frame, whose header states an empty body, and adds `body` to that
    /// frame. In segments a body that fits into one is copied.
    pub(super) fn append_long(&mut self, write: impl FnOnce(&mut Vec<u8>), body: Vec<u8>) {
        if self.broken {
            return;
        }
        // In segments, a long envelope has segments of its own; the run before it is ended.
        let format = self.segments.filter(|_| body.len() > PAYLOAD_BYTES_MAX);
        if format.is_some() {
            self.end_run();
            if !self.pending.is_empty() {
                self.queued += self.pending.len();
                self.queue.push_back(Queued::Ready(std::mem::take(&mut self.pending)));
            }
        } else {
            self.begin_run();
        }
        let start = self.pending.len();
        write(&mut self.pending);
        let length = self.pending.len() - start - HEADER_BYTES + body.len();
        let length = u32::try_from(length).expect("no answer may be so long");
        self.pending[start + LENGTH_AT..start + HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
        self.usual_bytes = self.usual_bytes.max(body.len());
        if format.is_none() && self.segments.is_some() {
            self.pending.extend_from_slice(&body);
        } else {
            let head = std::mem::take(&mut self.pending);
            self.queued += head.len() + body.len();
            match format {
                None => self.queue.extend([Queued::Ready(head), Queued::Ready(body)]),
                Some(format) => self.queue.push_back(Queued::Envelope { format, head, body, sent: 0 }),
            }
        }
        self.count();
    }

    /// Keeps the room of an answer until the answer is sent.
    pub(super) fn keep_room(&mut self, room: Permit) {
        if self.has_pending() || self.sending > 0 {
            self.pending_room.push(room);
        }
    }

    /// Whether output waits to be sent.
    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty() || !self.queue.is_empty()
    }

    /// Bytes that wait to be sent or are being sent.
    #[inline]
    pub(super) fn held_bytes(&self) -> usize {
        self.counted
    }

    /// The first bytes of the output, ready for the socket; `None` if there are none.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        if let Some(first) = self.queue.pop_front() {
            self.sending_room.append(&mut self.pending_room);
            return Some(self.take_queued(first));
        }
        self.end_run();
        if self.pending.is_empty() {
            return None;
        }
        let taken = std::mem::take(&mut self.pending);
        self.sending = taken.len();
        self.sending_room.append(&mut self.pending_room);
        self.count();
        Some(taken)
    }

    /// The bytes of the first element of the queue, or, of a long envelope, its next segments.
    fn take_queued(&mut self, first: Queued) -> Vec<u8> {
        let taken = match first {
            Queued::Ready(bytes) => {
                self.queued -= bytes.len();
                bytes
            }
            Queued::Envelope { format, head, body, sent } => {
                let mut segments = Vec::with_capacity(PIECES_AT_ONCE * SEGMENT_BYTES_MAX);
                let total = head.len() + body.len();
                let sent = self.codecs.append_pieces(format, [&head, &body], sent, &mut segments);
                if sent < total {
                    self.queue.push_front(Queued::Envelope { format, head, body, sent });
                } else {
                    self.queued -= total;
                }
                segments
            }
        };
        self.sending = taken.len();
        self.count();
        taken
    }

    /// Ends the run of envelopes in `pending`, if one was begun: the run is replaced by segments.
    fn end_run(&mut self) {
        if let (Some(start), Some(format)) = (self.run.take(), self.segments) {
            self.codecs.segments(format).finish(&mut self.pending, start);
        }
    }

    /// The bytes from [`Self::take`] were sent, or the socket failed.
    pub(super) fn sent(&mut self) {
        self.sending = 0;
        self.count();
        if self.queue.is_empty() {
            self.sending_room.clear();
        }
    }

    /// Whether bytes from [`Self::take`] are being sent.
    pub(super) fn is_sending(&self) -> bool {
        self.sending > 0
    }

    /// The client receives nothing more: waiting output is dropped, and so is later output.
    pub(super) fn set_broken(&mut self) {
        self.broken = true;
        self.pending = Vec::new();
        (self.queue, self.queued) = (VecDeque::new(), 0);
        self.pending_room.clear();
        self.run = None;
        self.count();
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.answers.count(self.counted, 0);
    }
}

#[cfg(test)]
mod tests;
