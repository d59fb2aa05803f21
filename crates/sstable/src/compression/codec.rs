//! What stands in a compressed chunk, for each compressor Cassandra has.
//!
//! ```text
//! LZ4      := length:u32 little endian, LZ4 block
//! Snappy   := Snappy raw                                (opens with its length)
//! Deflate  := zlib stream
//! Zstd     := Zstandard frame
//! Noop     := the bytes themselves
//! ```
//! With a dictionary (`dictionary`) LZ4 blocks and Zstandard frames refer to it as to what came before them.
//! Source: Cassandra 5.0 `LZ4Compressor`, `SnappyCompressor`, `DeflateCompressor`, `ZstdCompressor`, `NoopCompressor`.
//! A decoder is given the length a chunk has and never makes more of it, whatever the bytes say.

use std::fmt;

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
    /// Not at all, but with checksums beside each chunk.
    Noop,
    /// LZ4 with a dictionary made for the file.
    Lz4Dictionary,
    /// Zstandard with a dictionary made for the file.
    ZstdDictionary,
}

impl Compressor {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Lz4,
        Self::Snappy,
        Self::Deflate,
        Self::Zstd,
        Self::Noop,
        Self::Lz4Dictionary,
        Self::ZstdDictionary,
    ];

    /// By class name, short or in full; `None` for compressors this crate does not have.
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

    /// The same without a dictionary.
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
    /// Chunks that come out this long or longer are kept as they are.
    limit: usize,
    state: State,
}

enum State {
    None,
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
    /// For a file of chunks of `chunk_bytes`; `dictionary` is what its chunks refer to, and without one compressors
    /// with dictionaries are those without.
    pub(crate) fn new(compression: &Compression, chunk_bytes: u32, dictionary: Option<&[u8]>) -> Self {
        let compressor = match dictionary {
            Some(_) => compression.compressor,
            None => compression.compressor.without_dictionary(),
        };
        let state = match compressor {
            Compressor::Lz4 | Compressor::Noop => State::None,
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
        Self { compressor, level: compression.level, limit, state }
    }

    /// What the chunks are compressed with, for `CompressionInfo.db`.
    pub(crate) fn compressor(&self) -> Compressor {
        self.compressor
    }

    /// Appends the compressed form of a chunk.
    ///
    /// A chunk that does not become shorter than the table wants is kept in the compressor's own form for bytes that
    /// are not compressed, which every reader takes and which costs a copy to read.
    pub(crate) fn encode(&mut self, chunk: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        self.compress(chunk, out);
        if out.len() - start >= self.limit && self.compressor != Compressor::Noop {
            out.truncate(start);
            self.store(chunk, out);
        }
    }

    fn compress(&mut self, chunk: &[u8], out: &mut Vec<u8>) {
        const ROOM: &str = "the output has the size compression asks for";
        let start = out.len();
        let length = match &mut self.state {
            State::None if self.compressor == Compressor::Noop => {
                out.extend_from_slice(chunk);
                return;
            }
            State::None => {
                let body = lz4_room(chunk, out);
                4 + lz4_flex::block::compress_into(chunk, &mut out[body..]).expect(ROOM)
            }
            State::Lz4Dictionary(dictionary) => {
                let body = lz4_room(chunk, out);
                4 + lz4_flex::block::compress_into_with_dict(chunk, &mut out[body..], dictionary).expect(ROOM)
            }
            State::Snappy(encoder) => {
                out.resize(start + snap::raw::max_compress_len(chunk.len()), 0);
                encoder.compress(chunk, &mut out[start..]).expect(ROOM)
            }
            State::Deflate(encoder, _) => {
                out.resize(start + encoder.zlib_compress_bound(chunk.len()), 0);
                encoder.zlib_compress(chunk, &mut out[start..]).expect(ROOM)
            }
            State::Zstd(context) => {
                out.resize(start + zstd_safe::compress_bound(chunk.len()), 0);
                context.compress2(&mut out[start..], chunk).map_err(zstd_safe::get_error_name).expect(ROOM)
            }
            State::ZstdDictionary(context, dictionary) => {
                out.resize(start + zstd_safe::compress_bound(chunk.len()), 0);
                let compressed = context.compress_using_cdict(&mut out[start..], chunk, dictionary);
                compressed.map_err(zstd_safe::get_error_name).expect(ROOM)
            }
        };
        out.truncate(start + length);
    }

    /// Appends a chunk as its compressor keeps bytes that are not compressed.
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
                // Magic number; a single segment whose length stands in four bytes.
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

/// Makes room for an LZ4 block behind its length; returns where it starts.
fn lz4_room(chunk: &[u8], out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(&(chunk.len() as u32).to_le_bytes());
    let body = out.len();
    out.resize(body + lz4_flex::block::get_maximum_output_size(chunk.len()), 0);
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
    /// [`Problem::Invalid`] for a compressor with a dictionary that is absent or none.
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

    /// Appends the chunk that `compressed` holds, which has `length` bytes.
    ///
    /// # Errors
    /// [`Problem::Invalid`] when it is not what the compressor makes of `length` bytes.
    pub(crate) fn decode(&self, compressed: &[u8], length: usize, out: &mut Vec<u8>) -> Result<(), Problem> {
        let start = out.len();
        let decoded = self.decode_into(compressed, length, out);
        if decoded.is_err() {
            out.truncate(start);
        }
        decoded
    }

    fn decode_into(&self, compressed: &[u8], length: usize, out: &mut Vec<u8>) -> Result<(), Problem> {
        let start = out.len();
        let decoded = match (self.compressor, &self.dictionary) {
            (Compressor::Noop, _) => {
                out.extend_from_slice(compressed);
                compressed.len()
            }
            (Compressor::Lz4 | Compressor::Lz4Dictionary, dictionary) => {
                let (recorded, block) = compressed.split_first_chunk::<4>().ok_or(BROKEN)?;
                if u32::from_le_bytes(*recorded) as usize != length {
                    return Err(OTHER_LENGTH);
                }
                out.resize(start + length, 0);
                match dictionary {
                    Dictionary::Lz4(dictionary) => {
                        lz4_flex::block::decompress_into_with_dict(block, &mut out[start..], dictionary)
                    }
                    _ => lz4_flex::block::decompress_into(block, &mut out[start..]),
                }
                .map_err(|_| BROKEN)?
            }
            (Compressor::Snappy, _) => {
                if snap::raw::decompress_len(compressed).ok() != Some(length) {
                    return Err(OTHER_LENGTH);
                }
                out.resize(start + length, 0);
                snap::raw::Decoder::new().decompress(compressed, &mut out[start..]).map_err(|_| BROKEN)?
            }
            (Compressor::Deflate, _) => {
                out.resize(start + length, 0);
                libdeflater::Decompressor::new()
                    .zlib_decompress(compressed, &mut out[start..])
                    .map_err(|_| BROKEN)?
            }
            (Compressor::Zstd | Compressor::ZstdDictionary, dictionary) => {
                out.resize(start + length, 0);
                let mut context = DCtx::try_create().ok_or(Problem::Invalid("no memory to decompress"))?;
                match dictionary {
                    Dictionary::Zstd(dictionary) => {
                        context.decompress_using_ddict(&mut out[start..], compressed, dictionary)
                    }
                    _ => context.decompress(&mut out[start..], compressed),
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
        let mut compressed = vec![7; 3];
        encoder.encode(chunk, &mut compressed);
        let compressed = &compressed[3..];
        assert!(compressed.len() as u64 <= compressed_max(chunk.len() as u64), "{compressor}");
        let mut back = vec![9];
        decoder.decode(compressed, chunk.len(), &mut back).unwrap();
        assert_eq!(&back[1..], chunk, "{compressor}");
        for other in [chunk.len() + 1, chunk.len().wrapping_sub(1).min(1 << 20)] {
            assert!(decoder.decode(compressed, other, &mut back).is_err(), "{compressor} as {other} bytes");
            assert_eq!(back.len(), 1 + chunk.len(), "nothing is left of a chunk that failed");
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
                let _ = Decoder::new(compressor, dictionary).unwrap().decode(&noise, 100, &mut Vec::new());
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
