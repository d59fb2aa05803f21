//! Compression of message bodies in versions 3 and 4, and of segment payloads in version 5.
//!
//! lz4 bodies open with their uncompressed length as a big-endian u32; snappy bodies carry it themselves
//! (native_protocol_v4.spec §5). Invariant: the announced length is checked against the caller's limit before
//! a byte of it is reserved, and the output is exactly that long or an error.

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};

use crate::protocol_error::ProtocolError;

/// An algorithm that STARTUP can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// LZ4 blocks.
    Lz4,
    /// Snappy's raw format; versions 3 and 4 only.
    Snappy,
}

/// No byte of an lz4 or snappy block stands for more bytes than this; a length beyond it is a lie that would
/// cost memory before it is found out.
const EXPANSION_MAX: u64 = 255;

impl Compression {
    /// The name in SUPPORTED and STARTUP.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "lz4",
            Self::Snappy => "snappy",
        }
    }

    fn corrupt(self) -> ProtocolError {
        ProtocolError::CorruptCompression { algorithm: self.name() }
    }

    /// Decompresses a version 3 or 4 body to the end of `out`.
    ///
    /// # Errors
    /// [`ProtocolError::TooLarge`] when it would be longer than `max_bytes`,
    /// [`ProtocolError::CorruptCompression`] when it does not decompress; `out` is then as it was.
    pub fn decompress(self, body: &[u8], max_bytes: usize, out: &mut Vec<u8>) -> Result<(), ProtocolError> {
        let (length, block) = match self {
            Self::Lz4 => {
                let (length, block) = body.split_first_chunk::<4>().ok_or_else(|| self.corrupt())?;
                (u64::from(u32::from_be_bytes(*length)), block)
            }
            Self::Snappy => (snap::raw::decompress_len(body).map_err(|_| self.corrupt())? as u64, body),
        };
        if length > max_bytes as u64 {
            return Err(ProtocolError::TooLarge { length, limit: max_bytes });
        }
        if length > block.len() as u64 * EXPANSION_MAX {
            return Err(self.corrupt());
        }
        let start = out.len();
        out.resize(start + length as usize, 0);
        let written = match self {
            Self::Lz4 => decompress_into(block, &mut out[start..]).ok(),
            Self::Snappy => snap::raw::Decoder::new().decompress(block, &mut out[start..]).ok(),
        };
        if written != Some(length as usize) {
            out.truncate(start);
            return Err(self.corrupt());
        }
        Ok(())
    }
}

/// Compresses, and keeps the tables that this needs from one call to the next.
pub struct Compressor {
    lz4: CompressTable,
    snappy: snap::raw::Encoder,
    scratch: Vec<u8>,
}

impl Default for Compressor {
    fn default() -> Self {
        Self { lz4: CompressTable::default(), snappy: snap::raw::Encoder::new(), scratch: Vec::new() }
    }
}

impl std::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compressor").field("scratch_bytes", &self.scratch.capacity()).finish_non_exhaustive()
    }
}

/// Scratch space above this is given back after use, so that one large answer does not stay in memory.
pub const SCRATCH_BYTES_KEPT: usize = 1 << 20;

impl Compressor {
    /// Replaces the bytes of `out` from `start` on by a compressed body in the form of versions 3 and 4.
    ///
    /// # Errors
    /// [`ProtocolError::TooLarge`] for a body beyond the length that the algorithm can encode; `out` is then
    /// unchanged.
    pub fn compress_body(
        &mut self,
        compression: Compression,
        out: &mut Vec<u8>,
        start: usize,
    ) -> Result<(), ProtocolError> {
        let body = &out[start..];
        let too_large = ProtocolError::TooLarge { length: body.len() as u64, limit: i32::MAX as usize };
        self.scratch.clear();
        match compression {
            Compression::Lz4 => {
                let length = u32::try_from(body.len()).map_err(|_| too_large)?;
                self.scratch.extend_from_slice(&length.to_be_bytes());
                append_lz4_block(&mut self.lz4, body, &mut self.scratch);
            }
            Compression::Snappy => {
                self.scratch.resize(snap::raw::max_compress_len(body.len()), 0);
                let written = self.snappy.compress(body, &mut self.scratch).map_err(|_| too_large)?;
                self.scratch.truncate(written);
            }
        }
        out.truncate(start);
        if self.scratch.capacity() > SCRATCH_BYTES_KEPT {
            // A long answer waits for its client in no more memory than it is counted with.
            out.shrink_to_fit();
            out.reserve_exact(self.scratch.len());
            out.extend_from_slice(&std::mem::take(&mut self.scratch));
        } else {
            out.extend_from_slice(&self.scratch);
        }
        Ok(())
    }

    /// Appends `payload` to `out` as a bare lz4 block, as version 5 segments hold it.
    pub(crate) fn append_block(&mut self, payload: &[u8], out: &mut Vec<u8>) {
        append_lz4_block(&mut self.lz4, payload, out);
    }
}

fn append_lz4_block(table: &mut CompressTable, input: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + get_maximum_output_size(input.len()), 0);
    let written = compress_into_with_table(input, &mut out[start..], table)
        .expect("lz4 output fits the size the library itself asked for");
    out.truncate(start + written);
}
