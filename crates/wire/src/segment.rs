//! Version 5's outer framing: envelopes travel in checksummed segments (native_protocol_v5.spec §2).
//!
//! ```text
//! plain: 17 bits payload length, 1 bit self-contained, 6 bits zero; CRC24; payload; CRC32
//! lz4:   17 bits compressed length, 17 bits length (0: stored as is), 1 bit self-contained, 5 bits zero;
//!        CRC24; payload; CRC32
//! ```
//! All numbers are little endian. A self-contained segment holds whole envelopes; a larger envelope is cut
//! over several segments that hold nothing else. Both directions of a connection use them after the response
//! to STARTUP. Invariant: the decoder keeps at most one envelope, and never more of it than the frame limit.

use crate::compression::Compressor;
use crate::frame::{Direction, FrameError, FrameHeader, HEADER_BYTES};
use crate::protocol_error::ProtocolError;

pub mod crc;
mod encoder;

pub use encoder::SegmentEncoder;

/// Longest payload of a segment.
pub const PAYLOAD_BYTES_MAX: usize = (1 << 17) - 1;
/// Header of a plain segment: length and flag, CRC24.
const PLAIN_HEADER_BYTES: usize = 6;
/// Header of an lz4 segment: two lengths and flag, CRC24.
const LZ4_HEADER_BYTES: usize = 8;
/// CRC32 after the payload.
const TRAILER_BYTES: usize = 4;

/// Whether segments are compressed; fixed by STARTUP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentFormat {
    /// Payloads as they are.
    Plain,
    /// Payloads as lz4 blocks, if that makes them shorter.
    Lz4,
}

impl SegmentFormat {
    const fn header_bytes(self) -> usize {
        match self {
            Self::Plain => PLAIN_HEADER_BYTES,
            Self::Lz4 => LZ4_HEADER_BYTES,
        }
    }

    /// Longest segment there can be: a receive buffer of this size always makes progress.
    pub const fn segment_bytes_max(self) -> usize {
        self.header_bytes() + PAYLOAD_BYTES_MAX + TRAILER_BYTES
    }
}

/// A segment header that passed its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SegmentHeader {
    /// Bytes between header and trailer.
    payload_bytes: usize,
    /// Bytes after decompression; `None` if they are not compressed.
    uncompressed_bytes: Option<usize>,
    is_self_contained: bool,
}

impl SegmentHeader {
    fn decode(bytes: &[u8], format: SegmentFormat) -> Result<Option<Self>, ProtocolError> {
        let (fields_bytes, length_bits) = match format {
            SegmentFormat::Plain => (3, 17),
            SegmentFormat::Lz4 => (5, 34),
        };
        let Some(header) = bytes.get(..format.header_bytes()) else { return Ok(None) };
        let (fields, checksum) = header.split_at(fields_bytes);
        let computed = crc::crc24(fields);
        let read = u32::from_le_bytes([checksum[0], checksum[1], checksum[2], 0]);
        if read != computed {
            return Err(ProtocolError::CorruptSegmentHeader { read, computed });
        }
        let mut wide = [0; 8];
        wide[..fields_bytes].copy_from_slice(fields);
        let bits = u64::from_le_bytes(wide);
        let length_mask = PAYLOAD_BYTES_MAX as u64;
        let uncompressed_bytes = match format {
            SegmentFormat::Plain => None,
            SegmentFormat::Lz4 => match (bits >> 17) & length_mask {
                0 => None,
                length => Some(length as usize),
            },
        };
        Ok(Some(Self {
            payload_bytes: (bits & length_mask) as usize,
            uncompressed_bytes,
            is_self_contained: bits >> length_bits & 1 == 1,
        }))
    }
}

/// The result of one call of [`SegmentDecoder::decode`].
#[derive(Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// The input ends inside a segment; nothing is consumed.
    NeedMore,
    /// A piece of a large envelope was taken; `consumed` bytes of the input are processed.
    Partial {
        /// Length of the segment.
        consumed: usize,
    },
    /// Whole envelopes; `consumed` bytes of the input are done with.
    Envelopes {
        /// Length of the segment.
        consumed: usize,
        /// One or more envelopes, borrowed from the input or from the decoder.
        envelopes: &'a [u8],
    },
    /// A large envelope begins that is above the frame limit or of no known kind. Answer `error` on its
    /// stream and go on: its segments are skipped.
    Refused {
        /// Length of the segment.
        consumed: usize,
        /// The error to answer with.
        error: FrameError,
    },
}

/// Parses segments and assembles large envelopes.
#[derive(Debug)]
pub struct SegmentDecoder {
    format: SegmentFormat,
    direction: Direction,
    max_frame_bytes: usize,
    /// The envelope being put together; empty between large envelopes.
    partial: Vec<u8>,
    /// Whether `partial` was handed out by the last call and is to be emptied by the next.
    is_partial_done: bool,
    /// Payload of the last compressed segment.
    uncompressed: Vec<u8>,
    /// Bytes of a refused envelope that are still to come.
    skip_bytes: u64,
}

/// An emptied reassembly buffer above this is freed.
const PARTIAL_BYTES_KEPT: usize = PAYLOAD_BYTES_MAX + 1;

impl SegmentDecoder {
    /// For a connection whose envelopes come from `direction` and may be `max_frame_bytes` long.
    pub fn new(format: SegmentFormat, direction: Direction, max_frame_bytes: usize) -> Self {
        Self {
            format,
            direction,
            max_frame_bytes,
            partial: Vec::new(),
            is_partial_done: false,
            uncompressed: Vec::new(),
            skip_bytes: 0,
        }
    }

    /// Takes the first segment of `input`.
    ///
    /// Drop `consumed` bytes from the input before the next call. Cut the envelopes with
    /// [`Frame::cut`](crate::frame::Frame::cut): an incomplete one there is a client's error.
    ///
    /// # Errors
    /// [`FrameError`], always fatal: a wrong checksum, a payload that does not decompress, or segments that
    /// do not add up. The connection must be closed after the answer.
    #[inline]
    pub fn decode<'a>(&'a mut self, input: &'a [u8]) -> Result<Decoded<'a>, FrameError> {
        if self.is_partial_done {
            self.is_partial_done = false;
            self.partial.clear();
            if self.partial.capacity() > PARTIAL_BYTES_KEPT {
                self.partial = Vec::new();
            }
        }
        let Some(header) = SegmentHeader::decode(input, self.format).map_err(FrameError::fatal)? else {
            return Ok(Decoded::NeedMore);
        };
        let payload_start = self.format.header_bytes();
        let payload_end = payload_start + header.payload_bytes;
        let consumed = payload_end + TRAILER_BYTES;
        let (Some(payload), Some(trailer)) =
            (input.get(payload_start..payload_end), input.get(payload_end..consumed))
        else {
            return Ok(Decoded::NeedMore);
        };
        let read = u32::from_le_bytes([trailer[0], trailer[1], trailer[2], trailer[3]]);
        let computed = crc::crc32(payload);
        if read != computed {
            return Err(FrameError::fatal(ProtocolError::CorruptSegmentPayload { read, computed }));
        }
        let payload = match header.uncompressed_bytes {
            None => payload,
            Some(length) => {
                self.uncompressed.resize(length, 0);
                match lz4_flex::block::decompress_into(payload, &mut self.uncompressed) {
                    Ok(written) if written == length => &self.uncompressed,
                    _ => {
                        let error = ProtocolError::CorruptCompression { algorithm: "lz4" };
                        return Err(FrameError::fatal(error));
                    }
                }
            }
        };
        let is_inside = self.skip_bytes > 0 || !self.partial.is_empty();
        if header.is_self_contained {
            if is_inside {
                return Err(invalid("a self-contained segment inside a large envelope"));
            }
            return Ok(Decoded::Envelopes { consumed, envelopes: payload });
        }
        if self.skip_bytes > 0 {
            self.skip_bytes = match self.skip_bytes.checked_sub(payload.len() as u64) {
                Some(remaining) => remaining,
                None => return Err(invalid("more bytes than the envelope announced")),
            };
            return Ok(Decoded::Partial { consumed });
        }
        // The header of the envelope must be whole in its first segment, which is otherwise full.
        let start = if is_inside { self.partial.as_slice() } else { payload };
        let envelope = match FrameHeader::decode_direction(start, self.max_frame_bytes, self.direction) {
            Ok(Some(envelope)) => envelope,
            Ok(None) => return Err(invalid("a large envelope whose first segment ends inside its header")),
            Err(FrameError { error, stream, discard_bytes: Some(frame_bytes) }) => {
                let Some(skip_bytes) = frame_bytes.checked_sub(payload.len() as u64) else {
                    return Err(invalid("more bytes than the envelope announced"));
                };
                self.skip_bytes = skip_bytes;
                let error = FrameError { error, stream, discard_bytes: Some(0) };
                return Ok(Decoded::Refused { consumed, error });
            }
            Err(error) => return Err(error),
        };
        self.partial.extend_from_slice(payload);
        match self.partial.len().cmp(&envelope.frame_bytes()) {
            std::cmp::Ordering::Less => Ok(Decoded::Partial { consumed }),
            std::cmp::Ordering::Equal => {
                self.is_partial_done = true;
                Ok(Decoded::Envelopes { consumed, envelopes: &self.partial })
            }
            std::cmp::Ordering::Greater => Err(invalid("more bytes than the envelope announced")),
        }
    }

    /// Bytes of memory held for an unfinished envelope; counts against the connection's limit.
    pub fn buffered_bytes(&self) -> usize {
        self.partial.len()
    }
}

fn invalid(reason: &'static str) -> FrameError {
    FrameError::fatal(ProtocolError::InvalidSegment { reason })
}

/// Appends one segment around `payload`.
fn append_segment(
    out: &mut Vec<u8>,
    format: SegmentFormat,
    compressor: &mut Compressor,
    payload: &[u8],
    is_self_contained: bool,
) {
    assert!(payload.len() <= PAYLOAD_BYTES_MAX, "a segment of {} bytes", payload.len());
    let start = out.len();
    out.resize(start + format.header_bytes(), 0);
    let payload_at = out.len();
    let mut uncompressed_bytes = 0;
    match format {
        SegmentFormat::Plain => out.extend_from_slice(payload),
        SegmentFormat::Lz4 => {
            compressor.append_block(payload, out);
            if out.len() - payload_at < payload.len() {
                uncompressed_bytes = payload.len();
            } else {
                out.truncate(payload_at);
                out.extend_from_slice(payload);
            }
        }
    }
    seal(out, start, format, uncompressed_bytes, is_self_contained);
}

/// Writes the header in front of, and the trailer behind, the payload that ends `out` and whose segment
/// begins at `start`.
fn seal(
    out: &mut Vec<u8>,
    start: usize,
    format: SegmentFormat,
    uncompressed_bytes: usize,
    is_self_contained: bool,
) {
    let payload_at = start + format.header_bytes();
    let payload_bytes = out.len() - payload_at;
    let checksum = crc::crc32(&out[payload_at..]);
    let self_contained = u64::from(is_self_contained);
    let (fields_bytes, bits) = match format {
        SegmentFormat::Plain => (3, payload_bytes as u64 | self_contained << 17),
        SegmentFormat::Lz4 => {
            (5, payload_bytes as u64 | (uncompressed_bytes as u64) << 17 | self_contained << 34)
        }
    };
    let fields = &bits.to_le_bytes()[..fields_bytes];
    out[start..start + fields_bytes].copy_from_slice(fields);
    let header_checksum = crc::crc24(fields).to_le_bytes();
    out[start + fields_bytes..payload_at].copy_from_slice(&header_checksum[..3]);
    out.extend_from_slice(&checksum.to_le_bytes());
}

const _: () = assert!(HEADER_BYTES < PAYLOAD_BYTES_MAX);
