//! One connection under load: many requests in flight, sent in large pieces and answered in any order.
//!
//! Requests are appended to a buffer; one task sends all of it whenever the previous send is complete, so
//! that a send has everything collected meanwhile. Another task receives. Nothing is allocated for a request.
//! Invariant: a stream id belongs to one request until its answer has arrived, even if no worker waits for it
//! any more.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use reactor::Event;
use reactor::net::Stream;
use wire::client::ClientConnection;
use wire::frame::{Direction, Frame, HEADER_BYTES};
use wire::segment::{Decoded, SegmentDecoder, SegmentEncoder, SegmentFormat};
use wire::{Compressor, Flags, FrameHeader, ProtocolError};

use super::{Client, FRAME_BYTES_MAX};

/// No worker waits for the answer.
const ABANDONED: u32 = u32::MAX;
/// The stream is not in use.
const FREE: u32 = u32::MAX - 1;
/// Place of the body's length in a header.
const LENGTH_AT: std::ops::Range<usize> = 5..HEADER_BYTES;
/// Stream ids of a connection.
const STREAMS_MAX: usize = 1 << 15;
/// An emptied buffer above this is given back.
const BUFFER_BYTES_KEPT: usize = 4 << 20;

/// A connection under load.
pub(crate) struct Pipe {
    pub(crate) stream: Rc<Stream>,
    connection: ClientConnection,
    segments: Option<SegmentFormat>,
    /// Frames to be sent.
    out: RefCell<Vec<u8>>,
    wake: Event,
    slots: RefCell<Slots>,
    compressor: RefCell<Compressor>,
    closed: Cell<bool>,
}

#[derive(Debug)]
struct Slots {
    /// The worker that waits on each stream.
    workers: Vec<u32>,
    free: Vec<u16>,
    in_flight: usize,
    max: usize,
}

impl Pipe {
    /// Puts a set-up connection under load, with at most `requests_max` in flight.
    pub(crate) fn new(client: &Client, requests_max: usize) -> Self {
        Self {
            stream: client.stream.clone(),
            connection: client.connection,
            segments: client.segments,
            out: RefCell::new(Vec::new()),
            wake: Event::new(),
            slots: RefCell::new(Slots {
                workers: Vec::new(),
                free: Vec::new(),
                in_flight: 0,
                max: requests_max,
            }),
            compressor: RefCell::new(Compressor::default()),
            closed: Cell::new(false),
        }
    }

    /// Whether one more request may go this way.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        let slots = self.slots.borrow();
        let has_stream = !slots.free.is_empty() || slots.workers.len() < STREAMS_MAX;
        !self.closed.get() && slots.in_flight < slots.max && has_stream
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Queues a frame of `worker` for sending; returns its stream.
    #[inline]
    pub(crate) fn send(&self, frame: &[u8], worker: u32) -> u16 {
        let stream = self.slots.borrow_mut().take(worker);
        let mut out = self.out.borrow_mut();
        let was_empty = out.is_empty();
        let start = out.len();
        out.extend_from_slice(frame);
        out[start + 2..start + 4].copy_from_slice(&stream.to_be_bytes());
        if let Some(kind) = self.connection.compression {
            let mut compressor = self.compressor.borrow_mut();
            // A body too large for a compressed length is sent uncompressed.
            if compressor.compress_body(kind, &mut out, start + HEADER_BYTES).is_ok() {
                out[start + 1] |= Flags::COMPRESSED;
                set_length(&mut out[start..]);
            }
        }
        if was_empty {
            self.wake.notify_all();
        }
        stream
    }

    /// Notes that no worker waits for the answer on `stream` any more.
    pub(crate) fn abandon(&self, stream: u16) {
        if let Some(worker) = self.slots.borrow_mut().workers.get_mut(usize::from(stream)) {
            *worker = ABANDONED;
        }
    }

    /// Ends the connection; returns the workers that waited for answers.
    pub(crate) fn close(&self) -> Vec<u32> {
        self.closed.set(true);
        self.stream.shutdown();
        self.wake.notify_all();
        let mut slots = self.slots.borrow_mut();
        slots.free.clear();
        slots.in_flight = 0;
        slots.workers.drain(..).filter(|worker| *worker < FREE).collect()
    }

    /// Sends queued frames, until the connection is closed.
    pub(crate) async fn send_all(&self) {
        let (mut spare, mut packed) = (Vec::new(), Vec::new());
        let mut encoder = self.segments.map(SegmentEncoder::new);
        loop {
            self.wake.wait_until(|| self.closed.get() || !self.out.borrow().is_empty()).await;
            if self.closed.get() {
                return;
            }
            let frames = self.out.replace(std::mem::take(&mut spare));
            let (sent, mut frames) = match &mut encoder {
                None => self.stream.send(frames).await,
                Some(encoder) => {
                    encoder.append(&mut packed, &frames);
                    let (sent, back) = self.stream.send(std::mem::take(&mut packed)).await;
                    packed = back;
                    packed.clear();
                    (sent, frames)
                }
            };
            if sent.is_err() {
                // The receiver finds the stream closed, and fails the waiting requests.
                self.stream.shutdown();
                return;
            }
            frames.clear();
            spare = if frames.capacity() > BUFFER_BYTES_KEPT { Vec::new() } else { frames };
        }
    }

    /// Receives until the connection ends; `take` gets every batch of frames as it arrived.
    pub(crate) async fn receive_all(&self, mut take: impl FnMut(&[u8]) -> Result<usize, ProtocolError>) {
        let mut decoder =
            self.segments.map(|format| SegmentDecoder::new(format, Direction::Response, FRAME_BYTES_MAX));
        // The rest of the last chunk, raw, and the rest of the last frames.
        let (mut raw, mut rest): (Vec<u8>, Vec<u8>) = (Vec::new(), Vec::new());
        while let Ok(Some(chunk)) = self.stream.recv().await {
            let taken = match &mut decoder {
                None => take_joined(&mut rest, &chunk, &mut take),
                Some(decoder) => {
                    let bytes: &[u8] = if raw.is_empty() {
                        &chunk
                    } else {
                        raw.extend_from_slice(&chunk);
                        &raw
                    };
                    let unpacked = unpack(decoder, bytes, &mut take);
                    unpacked.map(|consumed| {
                        if raw.is_empty() {
                            raw.extend_from_slice(&chunk[consumed..]);
                        } else {
                            raw.drain(..consumed);
                        }
                    })
                }
            };
            if taken.is_err() {
                return;
            }
        }
    }

    /// Reads one frame: the waiting worker, and the header and body after decompression into `plain`.
    #[inline]
    pub(crate) fn open<'a>(
        &self,
        frame: &Frame<'a>,
        plain: &'a mut Vec<u8>,
    ) -> Result<(Option<u32>, FrameHeader, &'a [u8]), ProtocolError> {
        let worker = self.slots.borrow_mut().give_back(frame.header.stream);
        let mut header = frame.header;
        if header.flags.contains(Flags::COMPRESSED)
            && let Some(kind) = self.connection.compression
        {
            plain.clear();
            kind.decompress(frame.body, FRAME_BYTES_MAX, plain)?;
            header.flags.0 &= !Flags::COMPRESSED;
            return Ok((worker, header, plain));
        }
        Ok((worker, header, frame.body))
    }

    pub(crate) fn connection(&self) -> &ClientConnection {
        &self.connection
    }
}

/// Writes the length of the body into the header of a whole frame.
pub(crate) fn set_length(frame: &mut [u8]) {
    let length = (frame.len() - HEADER_BYTES) as u32;
    frame[LENGTH_AT].copy_from_slice(&length.to_be_bytes());
}

/// Calls `take` with the rest joined to the new bytes.
fn take_joined(
    rest: &mut Vec<u8>,
    chunk: &[u8],
    take: &mut impl FnMut(&[u8]) -> Result<usize, ProtocolError>,
) -> Result<(), ProtocolError> {
    if rest.is_empty() {
        let taken = take(chunk)?;
        rest.extend_from_slice(&chunk[taken..]);
    } else {
        rest.extend_from_slice(chunk);
        let taken = take(rest)?;
        rest.drain(..taken);
    }
    Ok(())
}

/// Parses segments; returns how many bytes of `bytes` were complete ones.
fn unpack(
    decoder: &mut SegmentDecoder,
    bytes: &[u8],
    take: &mut impl FnMut(&[u8]) -> Result<usize, ProtocolError>,
) -> Result<usize, ProtocolError> {
    let mut at = 0;
    loop {
        match decoder.decode(&bytes[at..]).map_err(|error| error.error)? {
            Decoded::NeedMore => return Ok(at),
            Decoded::Partial { consumed } => at += consumed,
            Decoded::Envelopes { consumed, envelopes } => {
                // Segments hold whole frames, or the decoder has put one together.
                take(envelopes)?;
                at += consumed;
            }
            Decoded::Refused { error, .. } => return Err(error.error),
        }
    }
}

impl Slots {
    fn take(&mut self, worker: u32) -> u16 {
        self.in_flight += 1;
        if let Some(stream) = self.free.pop() {
            self.workers[usize::from(stream)] = worker;
            return stream;
        }
        let stream = self.workers.len();
        assert!(stream < STREAMS_MAX, "{stream} streams in use");
        self.workers.push(worker);
        stream as u16
    }

    /// Frees a stream; returns the worker that waited for its answer.
    fn give_back(&mut self, stream: i16) -> Option<u32> {
        let stream = u16::try_from(stream).ok()?;
        let worker = self.workers.get_mut(usize::from(stream))?;
        if *worker == FREE {
            return None;
        }
        let waited = std::mem::replace(worker, FREE);
        self.free.push(stream);
        self.in_flight = self.in_flight.saturating_sub(1);
        (waited != ABANDONED).then_some(waited)
    }
}
