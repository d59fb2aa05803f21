//! The contents of a compressed chunk, for each compressor of Cassandra.
//!
//! ```text
//! LZ4      := length:u32 little endian, LZ4 block
//! Snappy   := Snappy raw                                (opens with its length)
//! Deflate  := zlib stream
//! Zstd     := Zstandard frame
//! Noop     := the bytes themselves
//! ```
//! With a dictionary (`dictionary`), LZ4 blocks and Zstandard frames refer to it as if it preceded them.
//! Source: Cassandra 5.0 `LZ4Compressor`, `SnappyCompressor`, `DeflateCompressor`, `ZstdCompressor`,
//! `NoopCompressor`. A decoder is given the length of the chunk and never produces more, whatever the bytes
//! are.

use std::fmt;

use lz4_flex::block::CompressTable;
use zstd_safe::{CCtx, CDict, CParameter, DCtx, DDict};

use super::Compression;
use crate::error::Problem;

/// Longest stored block of a Zstandard frame.
const ZSTD_BLOCK_BYTES: usize = 128 * 1024;
const BROKEN: Problem = Problem::Invalid("a chunk that does not decompress");
const OTHER_LENGTH: Problem = Problem::Invalid("a chunk of another length");

/// A way to compress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compressor {
    /// LZ4 block format.
    Lz4,
    /// Snappy raw format.
    Snappy,
    /// zlib format.
    Deflate,
    /// Zstandard.
    Zstd,
    /// No compression, but checksums beside each chunk.
    Noop,
    /// LZ4 with a dictionary made for the file.
    Lz4Dictionary,
    /// Zstandard with a dictionary made for the file.
    ZstdDictionary,
}

impl Compressor {
    /// All compressors.
    pub const ALL: [Self; 7] = [
        Self::Lz4,
        Self::Snappy,
        Self::Deflate,
        Self::Zstd,
        Self::Noop,
        Self::Lz4Dictionary,
        Self::ZstdDictionary,
    ];

    /// The compressor with that class name, short or in full; `None` for compressors this crate does not
    /// have.
    pub fn parse(class: &str) -> Option<Self> {
        let name = class.strip_prefix("org.apache.cassandra.io.compress.").unwrap_or(class);
        Self::ALL.into_iter().find(|compressor| compressor.name() == name)
    }

    /// Class name without its package.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "LZ4Compressor",
            Self::Snappy => "SnappyCompressor",
            Self::Deflate => "DeflateCompressor",
            Self::Zstd => "ZstdCompressor",
            Self::Noop => "NoopCompressor",
            Self::Lz4Dictionary => "LZ4WithDictsCompressor",
            Self::ZstdDictionary => "ZstdWithDictsCompressor",
        }
    }

    /// Whether a dictionary is made for each file.
    pub fn has_dictionary(self) -> bool {
        matches!(self, Self::Lz4Dictionary | Self::ZstdDictionary)
    }

    /// The same compressor without a dictionary.
    pub fn without_dictionary(self) -> Self {
        match self {
            Self::Lz4Dictionary => Self::Lz4,
            Self::ZstdDictionary => Self::Zstd,
            other => other,
        }
    }
}

impl fmt::Display for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Compresses chunk after chunk.
pub(crate) struct Encoder {
    compressor: Compressor,
    level: i32,
    /// Chunks whose compressed length is this or more are stored uncompressed.
    limit: usize,
    state: State,
    /// Buffer for the compressed chunk; it keeps its length, so that it is not zeroed for each chunk.
    room: Vec<u8>,
}

enum State {
    None,
    Lz4(CompressTable),
    Snappy(Box<snap::raw::Encoder>),
    Deflate(libdeflater::Compressor, libdeflater::Compressor),
    Zstd(CCtx<'static>),
    ZstdDictionary(CCtx<'static>, CDict<'static>),
    Lz4Dictionary(Vec<u8>),
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder").field("compressor", &self.compressor).field("level", &self.level).finish()
    }
}

impl Encoder {
    /// For a file of chunks of `chunk_bytes`. `dictionary` is the dictionary of its chunks; without one, a
    /// compressor with dictionaries is used as the one without.
    pub(crate) fn new(compression: &Compression, chunk_bytes: u32, dictionary: Option<&[u8]>) -> Self {
        let compressor = match dictionary {
            Some(_) => compression.compressor,
            None => compression.compressor.without_dictionary(),
        };
        let state = match compressor {
            Compressor::Noop => State::None,
            Compressor::Lz4 => State::Lz4(CompressTable::small()),
            Compressor::Snappy => State::Snappy(Box::new(snap::raw::Encoder::new())),
            Compressor::Deflate => {
                let stored = libdeflater::CompressionLvl::new(0).expect("level 0 stores");
                let default = libdeflater::CompressionLvl::default();
                State::Deflate(libdeflater::Compressor::new(default), libdeflater::Compressor::new(stored))
            }
            Compressor::Zstd => State::Zstd(zstd_context(compression.level)),
            Compressor::ZstdDictionary => State::ZstdDictionary(
                zstd_context(compression.level),
                CDict::create(dictionary.unwrap_or(&[]), compression.level),
            ),
            Compressor::Lz4Dictionary => State::Lz4Dictionary(dictionary.unwrap_or(&[]).to_vec()),
        };
        let limit = compression.compressed_bytes_max(chunk_bytes) as usize;
        Self { compressor, level: compression.level, limit, state, room: Vec::new() }
    }

    /// The compressor of the chunks, for `CompressionInfo.db`.
    pub(crate) fn compressor(&self) -> Compressor {
        self.compressor
    }

    /// The compressed form of a chunk, until the next one.
    ///
    /// A chunk that does not shrink as much as the table's options ask for is stored in the compressor's own
    /// form for uncompressed bytes, which every reader accepts and which costs a copy to read.
    pub(crate) fn encode(&mut self, chunk: &[u8]) -> &[u8] {
        let mut room = std::mem::take(&mut self.room);
        let mut length = self.compress(chunk, &mut room);
        if length >= self.limit && self.compressor != Compressor::Noop {
            room.clear();
            self.store(chunk, &mut room);
            length = room.len();
        }
        self.room = room;
        &self.room[..length]
    }

    /// Compresses a chunk to the front of `room`; returns how long it is.
    fn compress(&mut self, chunk: &[u8], room: &mut Vec<u8>) -> usize {
        const ROOM: &str = "the output has the size compression asks for";
        match &mut self.state {
            State::None => {
                room.clear();
                room.extend_from_slice(chunk);
                chunk.len()
            }
            State::Lz4(table) => {
                let body = lz4_room(chunk, room);
                4 + lz4_flex::block::compress_into_with_table(chunk, body, table).expect(ROOM)
            }
            State::Lz4Dictionary(dictionary) => {
                let body = lz4_room(chunk, room);
                4 + lz4_flex::block::compress_into_with_dict(chunk, body, dictionary).expect(ROOM)
            }
            State::Snappy(encoder) => {
                let room = at_least(room, snap::raw::max_compress_len(chunk.len()));
                encoder.compress(chunk, room).expect(ROOM)
            }
            State::Deflate(encoder, _) => {
                let room = at_least(room, encoder.zlib_compress_bound(chunk.len()));
                encoder.zlib_compress(chunk, room).expect(ROOM)
            }
            State::Zstd(context) => {
                let room = at_least(room, zstd_safe::compress_bound(chunk.len()));
                context.compress2(room, chunk).map_err(zstd_safe::get_error_name).expect(ROOM)
            }
            State::ZstdDictionary(context, dictionary) => {
                let room = at_least(room, zstd_safe::compress_bound(chunk.len()));
                let compressed = context.compress_using_cdict(room, chunk, dictionary);
                compressed.map_err(zstd_safe::get_error_name).expect(ROOM)
            }
        }
    }

    /// Appends a chunk in its compressor's form for uncompressed bytes.
    fn store(&mut self, chunk: &[u8], out: &mut Vec<u8>) {
        match self.compressor {
            Compressor::Noop => out.extend_from_slice(chunk),
            Compressor::Lz4 | Compressor::Lz4Dictionary => {
                // One last sequence: literals and no match.
                out.extend_from_slice(&(chunk.len() as u32).to_le_bytes());
                if let Some(rest) = chunk.len().checked_sub(15) {
                    out.push(0xf0);
                    out.resize(out.len() + rest / 255, 255);
                    out.push((rest % 255) as u8);
                } else {
                    out.push((chunk.len() << 4) as u8);
                }
                out.extend_from_slice(chunk);
            }
            Compressor::Snappy => {
                let mut length = chunk.len();
                while length >= 0x80 {
                    out.push(length as u8 | 0x80);
                    length >>= 7;
                }
                out.push(length as u8);
                if let Some(last) = (chunk.len() as u32).checked_sub(1) {
                    // A literal with a length of three bytes.
                    out.push(62 << 2);
                    out.extend_from_slice(&last.to_le_bytes()[..3]);
                    out.extend_from_slice(chunk);
                }
            }
            Compressor::Deflate => {
                let State::Deflate(_, encoder) = &mut self.state else {
                    unreachable!("deflate has its state")
                };
                let start = out.len();
                out.resize(start + encoder.zlib_compress_bound(chunk.len()), 0);
                let length = encoder
                    .zlib_compress(chunk, &mut out[start..])
                    .expect("the output has the size compression asks for");
                out.truncate(start + length);
            }
            Compressor::Zstd | Compressor::ZstdDictionary => {
                // Magic number; a single segment with its length in four bytes.
                out.extend_from_slice(&[0x28, 0xb5, 0x2f, 0xfd, 0xa0]);
                out.extend_from_slice(&(chunk.len() as u32).to_le_bytes());
                let blocks = chunk.len().div_ceil(ZSTD_BLOCK_BYTES).max(1);
                for number in 0..blocks {
                    let from = number * ZSTD_BLOCK_BYTES;
                    let block = &chunk[from..chunk.len().min(from + ZSTD_BLOCK_BYTES)];
                    let header = (block.len() as u32) << 3 | u32::from(number + 1 == blocks);
                    out.extend_from_slice(&header.to_le_bytes()[..3]);
                    out.extend_from_slice(block);
                }
            }
        }
    }
}

/// The first `length` bytes of `room`, which grows to have them.
fn at_least(room: &mut Vec<u8>, length: usize) -> &mut [u8] {
    if room.len() < length {
        room.resize(length, 0);
    }
    &mut room[..length]
}

/// Writes the length before an LZ4 block; returns the buffer for the block.
fn lz4_room<'r>(chunk: &[u8], room: &'r mut Vec<u8>) -> &'r mut [u8] {
    let room = at_least(room, 4 + lz4_flex::block::get_maximum_output_size(chunk.len()));
    let (length, body) = room.split_at_mut(4);
    length.copy_from_slice(&(chunk.len() as u32).to_le_bytes());
    body
}

fn zstd_context(level: i32) -> CCtx<'static> {
    let mut context = CCtx::create();
    // Levels are checked where options are read; the library takes the nearest one it has.
    let _ = context.set_parameter(CParameter::CompressionLevel(level));
    context
}

/// Decompresses chunks of one file.
pub(crate) struct Decoder {
    compressor: Compressor,
    dictionary: Dictionary,
}

enum Dictionary {
    None,
    Lz4(Vec<u8>),
    Zstd(DDict<'static>),
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder").field("compressor", &self.compressor).finish_non_exhaustive()
    }
}

impl Decoder {
    /// For chunks of a compressor, with the dictionary of their file.
    ///
    /// # Errors
    /// [`Problem::Invalid`] for a compressor with a dictionary if that is absent or invalid.
    pub(crate) fn new(compressor: Compressor, dictionary: Option<&[u8]>) -> Result<Self, Problem> {
        const ABSENT: Problem = Problem::Invalid("the dictionary of the chunks is absent");
        let dictionary = match (compressor, dictionary) {
            (Compressor::Lz4Dictionary, Some(dictionary)) => Dictionary::Lz4(dictionary.to_vec()),
            (Compressor::ZstdDictionary, Some(dictionary)) => Dictionary::Zstd(
                DDict::try_create(dictionary).ok_or(Problem::Invalid("a dictionary that is none"))?,
            ),
            (Compressor::Lz4Dictionary | Compressor::ZstdDictionary, None) => return Err(ABSENT),
            _ => Dictionary::None,
        };
        Ok(Self { compressor, dictionary })
    }

    /// Bytes it keeps in memory.
    pub(crate) fn size(&self) -> usize {
        match &self.dictionary {
            Dictionary::None => 0,
            Dictionary::Lz4(dictionary) => dictionary.len(),
            Dictionary::Zstd(dictionary) => dictionary.sizeof(),
        }
    }

    /// Decompresses `compressed` into `out`, which has the length of the chunk.
    ///
    /// # Errors
    /// [`Problem::Invalid`] if `compressed` is not a chunk of exactly that length.
    pub(crate) fn decode(&self, compressed: &[u8], out: &mut [u8]) -> Result<(), Problem> {
        let length = out.len();
        let decoded = match (self.compressor, &self.dictionary) {
            (Compressor::Noop, _) => {
                if compressed.len() == length {
                    out.copy_from_slice(compressed);
                }
                compressed.len()
            }
            (Compressor::Lz4 | Compressor::Lz4Dictionary, dictionary) => {
                let (recorded, block) = compressed.split_first_chunk::<4>().ok_or(BROKEN)?;
                if u32::from_le_bytes(*recorded) as usize != length {
                    return Err(OTHER_LENGTH);
                }
                match dictionary {
                    Dictionary::Lz4(dictionary) => {
                        lz4_flex::block::decompress_into_with_dict(block, out, dictionary)
                    }
                    _ => lz4_flex::block::decompress_into(block, out),
                }
                .map_err(|_| BROKEN)?
            }
            (Compressor::Snappy, _) => {
                if snap::raw::decompress_len(compressed).ok() != Some(length) {
                    return Err(OTHER_LENGTH);
                }
                snap::raw::Decoder::new().decompress(compressed, out).map_err(|_| BROKEN)?
            }
            (Compressor::Deflate, _) => {
                libdeflater::Decompressor::new().zlib_decompress(compressed, out).map_err(|_| BROKEN)?
            }
            (Compressor::Zstd | Compressor::ZstdDictionary, dictionary) => {
                let mut context = DCtx::try_create().ok_or(Problem::Invalid("no memory to decompress"))?;
                match dictionary {
                    Dictionary::Zstd(dictionary) => {
                        context.decompress_using_ddict(out, compressed, dictionary)
                    }
                    _ => context.decompress(out, compressed),
                }
                .map_err(|_| BROKEN)?
            }
        };
        if decoded == length { Ok(()) } else { Err(OTHER_LENGTH) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compression::compressed_max;
    use proptest::prelude::*;

    fn check(compressor: Compressor, min_ratio: f64, chunk: &[u8], dictionary: &[u8]) -> usize {
        let compression = Compression { min_ratio, ..Compression::from(compressor) };
        let dictionary = compressor.has_dictionary().then_some(dictionary);
        let mut encoder = Encoder::new(&compression, 4096, dictionary);
        let decoder = Decoder::new(compressor, dictionary).unwrap();
        // State of a previous chunk must not affect this one.
        encoder.encode(&chunk[..chunk.len() / 2]);
        let compressed = encoder.encode(chunk);
        assert!(compressed.len() as u64 <= compressed_max(chunk.len() as u64), "{compressor}");
        let mut back = vec![9; chunk.len()];
        decoder.decode(compressed, &mut back).unwrap();
        assert_eq!(back, chunk, "{compressor}");
        for other in [chunk.len() + 1, chunk.len().wrapping_sub(1).min(1 << 20)] {
            let mut back = vec![9; other];
            assert!(decoder.decode(compressed, &mut back).is_err(), "{compressor} as {other} bytes");
        }
        compressed.len()
    }

    proptest! {
        #[test]
        fn chunks_come_back(
            chunk in proptest::collection::vec(0u8..4, 1..5000),
            noise in proptest::collection::vec(any::<u8>(), 1..5000),
            dictionary in proptest::collection::vec(0u8..4, 1..500),
        ) {
            for compressor in Compressor::ALL {
                for min_ratio in [0.0, 1.0, 8.0] {
                    check(compressor, min_ratio, &chunk, &dictionary);
                    check(compressor, min_ratio, &noise, &dictionary);
                }
                let dictionary = compressor.has_dictionary().then_some(&dictionary[..]);
                let _ = Decoder::new(compressor, dictionary).unwrap().decode(&noise, &mut [0; 100]);
            }
        }
    }

    #[test]
    fn a_chunk_of_any_length_is_kept_as_it_is_where_compressing_does_not_pay() {
        let noise: Vec<u8> = (0..300_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for compressor in Compressor::ALL {
            for length in [1, 14, 15, 16, 59, 60, 61, 255, 256, 269, 270, 271, 4096, 65_536, 131_072, 300_000]
            {
                let stored = check(compressor, 4096.0, &noise[..length], b"dictionary");
                assert!(stored >= length && stored <= length + length / 255 + 64, "{compressor}: {stored}");
            }
        }
    }

    #[test]
    fn a_dictionary_is_asked_for_by_name() {
        assert!(Decoder::new(Compressor::ZstdDictionary, None).is_err());
        assert!(Decoder::new(Compressor::Lz4Dictionary, None).is_err());
        assert_eq!(
            Compressor::parse("org.apache.cassandra.io.compress.ZstdCompressor"),
            Some(Compressor::Zstd)
        );
        assert_eq!(Compressor::parse("ZstdWithDictsCompressor"), Some(Compressor::ZstdDictionary));
        assert_eq!(Compressor::parse("BrotliCompressor"), None);
    }

    #[test]
    fn a_dictionary_makes_short_chunks_shorter() {
        let record =
            |at: u32| format!("{{\"user\":\"user-{at:06}\",\"country\":\"Kenya\",\"status\":\"active\"}}");
        let dictionary: String = (0..64).map(|at| record(at * 7919 % 100_000)).collect();
        let chunk: String = (500..504).map(record).collect();
        for (plain, with) in
            [(Compressor::Lz4, Compressor::Lz4Dictionary), (Compressor::Zstd, Compressor::ZstdDictionary)]
        {
            let (plain, with) = (
                check(plain, 0.0, chunk.as_bytes(), &[]),
                check(with, 0.0, chunk.as_bytes(), dictionary.as_bytes()),
            );
            assert!(with * 3 < plain * 2, "{with} bytes with, {plain} without");
        }
    }
}
