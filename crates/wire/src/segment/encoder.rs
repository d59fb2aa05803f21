//! Packs a run of envelopes into segments.
//!
//! As many whole envelopes as fit share one self-contained segment; one that fits in none is cut. A plain run
//! that fits in one segment is sealed where it stands: the payload is not copied.

use super::{PAYLOAD_BYTES_MAX, SegmentFormat, append_segment, seal};
use crate::compression::{Compressor, SCRATCH_BYTES_KEPT};
use crate::frame::HEADER_BYTES;

/// Puts responses into segments, in the send buffer they were written to.
#[derive(Debug)]
pub struct SegmentEncoder {
    format: SegmentFormat,
    compressor: Compressor,
    scratch: Vec<u8>,
}

impl SegmentEncoder {
    /// For a connection with this format.
    pub fn new(format: SegmentFormat) -> Self {
        Self { format, compressor: Compressor::default(), scratch: Vec::new() }
    }

    /// Begins a run at the end of `out` and leaves room for its header. Append whole envelopes, then pass the
    /// result to [`Self::finish`].
    #[inline]
    pub fn begin(&self, out: &mut Vec<u8>) -> usize {
        let start = out.len();
        out.resize(start + self.format.header_bytes(), 0);
        start
    }

    /// Ends the run that began at `start`: from there on `out` holds segments. An empty run leaves nothing.
    #[inline]
    pub fn finish(&mut self, out: &mut Vec<u8>, start: usize) {
        let payload_at = start + self.format.header_bytes();
        assert!(payload_at <= out.len(), "the run of envelopes at {start} was not begun");
        if payload_at == out.len() {
            out.truncate(start);
        } else if self.format == SegmentFormat::Plain && out.len() - payload_at <= PAYLOAD_BYTES_MAX {
            seal(out, start, self.format, 0, true);
        } else {
            self.repack(out, start, payload_at);
        }
    }

    fn repack(&mut self, out: &mut Vec<u8>, start: usize, payload_at: usize) {
        let mut envelopes = std::mem::take(&mut self.scratch);
        envelopes.clear();
        envelopes.extend_from_slice(&out[payload_at..]);
        out.truncate(start);
        self.append(out, &envelopes);
        if envelopes.capacity() <= SCRATCH_BYTES_KEPT {
            self.scratch = envelopes;
        }
    }

    /// Appends a piece of a large envelope to `out`, as a segment that is not self-contained.
    ///
    /// # Panics
    /// If the piece is longer than [`PAYLOAD_BYTES_MAX`].
    pub fn append_piece(&mut self, out: &mut Vec<u8>, piece: &[u8]) {
        assert!(piece.len() <= PAYLOAD_BYTES_MAX, "a piece of {} bytes", piece.len());
        append_segment(out, self.format, &mut self.compressor, piece, false);
    }

    /// Appends `envelopes`, whole ones one after the other, to `out` as segments.
    pub fn append(&mut self, out: &mut Vec<u8>, envelopes: &[u8]) {
        let mut rest = envelopes;
        while !rest.is_empty() {
            let first = envelope_bytes(rest);
            if first > PAYLOAD_BYTES_MAX {
                let (large, after) = rest.split_at(first);
                for piece in large.chunks(PAYLOAD_BYTES_MAX) {
                    append_segment(out, self.format, &mut self.compressor, piece, false);
                }
                rest = after;
                continue;
            }
            let mut length = first;
            while length < rest.len() && length + envelope_bytes(&rest[length..]) <= PAYLOAD_BYTES_MAX {
                length += envelope_bytes(&rest[length..]);
            }
            let (together, after) = rest.split_at(length);
            append_segment(out, self.format, &mut self.compressor, together, true);
            rest = after;
        }
    }
}

/// Length of the envelope that `bytes` begins with, by its own header.
fn envelope_bytes(bytes: &[u8]) -> usize {
    let header = bytes.first_chunk::<HEADER_BYTES>();
    let [.., l0, l1, l2, l3] = header.unwrap_or_else(|| panic!("{} bytes are no envelope", bytes.len()));
    let length = HEADER_BYTES + u32::from_be_bytes([*l0, *l1, *l2, *l3]) as usize;
    assert!(length <= bytes.len(), "an envelope of {length} bytes in a run of {}", bytes.len());
    length
}
