//! Chunks of the data file: their compression, offsets and checksums.
//!
//! ```text
//! CompressionInfo.db := compressor:text options:i32 (name:text value:text){options} chunk_length:i32
//!                       [max_compressed_length:i32] data_length:i64 chunks:i32 offset:i64{chunks}
//! chunk  := compressed bytes, crc32:u32 of them        (in Data.db)
//! CRC.db := chunk_length:i32 crc32:u32*                (of the chunks of data that is not compressed)
//! ```
//! `codec` defines the contents of a chunk, `options` the options of a table. Source: Cassandra 5.0
//! `CompressionMetadata`, `ChecksumWriter`. Every chunk that is read is verified; lengths are checked when
//! the file is opened, so that no read allocates without bound.

mod codec;
mod dictionary;
mod options;

pub use codec::Compressor;
pub(crate) use codec::{Decoder, Encoder};
pub(crate) use dictionary::{DICTIONARY_BYTES_MAX, SAMPLE_BYTES, train};
pub use options::{Compression, CompressionOptionError};

use crate::error::Malformed;
use crate::input::{Input, append_text};
use crate::version::Features;

/// Chunk length of files this crate writes if the table has no option: one device page.
pub const CHUNK_BYTES_DEFAULT: u32 = 4096;
/// Longest chunk that is read.
pub const CHUNK_BYTES_MAX: u32 = 1 << 24;
/// Bytes of the checksum behind a compressed chunk.
pub(crate) const CHECKSUM_BYTES: u64 = 4;
/// Name of the option with the level.
const LEVEL: &str = "compression_level";
/// Offsets or checksums that are read or written before other tasks may run.
const CHUNKS_AT_ONCE: usize = 4096;
/// Every so many chunks an offset is kept in full.
const GROUP: usize = 64;
/// Chunk offsets in one piece of memory.
const PIECE: usize = 1 << 14;

/// Greatest length of a compressed chunk, for any compressor.
fn compressed_max(chunk: u64) -> u64 {
    chunk + chunk / 6 + 64
}

/// Offsets of the chunks of a compressed data file: every 64th in full, the others relative to it, which
/// takes about four bytes a chunk; in pieces, so that it grows without moving.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ChunkOffsets {
    bases: Vec<u64>,
    relative: Vec<Vec<u32>>,
    count: usize,
}

impl ChunkOffsets {
    pub(crate) fn push(&mut self, offset: u64) {
        if self.count.is_multiple_of(GROUP) {
            self.bases.push(offset);
        }
        if self.count.is_multiple_of(PIECE) {
            // A small file has one piece, which takes only what it needs.
            self.relative.push(if self.count == 0 { Vec::new() } else { Vec::with_capacity(PIECE) });
        }
        let (base, piece) = (self.bases[self.bases.len() - 1], self.relative.len() - 1);
        // 64 chunks of at most 2^24 bytes, a little longer when compressed, stay below 2^32.
        self.relative[piece].push(u32::try_from(offset - base).expect("chunks are at most 2^24 bytes long"));
        self.count += 1;
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Bytes in memory.
    pub(crate) fn size(&self) -> usize {
        self.bases.len() * 8 + self.count * 4
    }

    pub(crate) fn get(&self, chunk: usize) -> Option<u64> {
        let relative = self.relative.get(chunk / PIECE)?.get(chunk % PIECE)?;
        Some(self.bases[chunk / GROUP] + u64::from(*relative))
    }
}

/// Contents of `CompressionInfo.db`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CompressionInfo {
    /// Compressor of the chunks.
    pub(crate) compressor: Compressor,
    /// Its level, if it is not the default.
    pub(crate) level: Option<i32>,
    /// Bytes of uncompressed data in each chunk but the last.
    pub(crate) chunk_length: u32,
    /// Chunks this long or longer are stored as they are.
    pub(crate) max_compressed_length: u32,
    /// Bytes of uncompressed data.
    pub(crate) data_length: u64,
    pub(crate) offsets: ChunkOffsets,
}

/// An unusable `CompressionInfo.db`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CompressionInfoError {
    /// The bytes violate the format.
    Malformed(Malformed),
    /// A compressor this crate does not have.
    Compressor(String),
}

impl From<Malformed> for CompressionInfoError {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl CompressionInfo {
    /// Appends `CompressionInfo.db`; lets other tasks run meanwhile.
    pub(crate) async fn encode(&self, out: &mut Vec<u8>, features: Features) {
        append_text(out, self.compressor.name());
        out.extend_from_slice(&u32::from(self.level.is_some()).to_be_bytes());
        if let Some(level) = self.level {
            append_text(out, LEVEL);
            append_text(out, &level.to_string());
        }
        out.extend_from_slice(&self.chunk_length.to_be_bytes());
        if features.max_compressed_length {
            out.extend_from_slice(&self.max_compressed_length.to_be_bytes());
        }
        out.extend_from_slice(&self.data_length.to_be_bytes());
        out.extend_from_slice(&(self.offsets.len() as u32).to_be_bytes());
        out.reserve(8 * self.offsets.len());
        for chunk in 0..self.offsets.len() {
            out.extend_from_slice(&self.offsets.get(chunk).unwrap_or(0).to_be_bytes());
            if chunk.is_multiple_of(CHUNKS_AT_ONCE) {
                reactor::maybe_yield().await;
            }
        }
    }

    /// Reads `CompressionInfo.db` of a data file of `file_length` bytes.
    ///
    /// # Errors
    /// [`CompressionInfoError`], also when the chunks are not back to back up to the end of the data file.
    pub(crate) fn decode(
        bytes: &[u8],
        features: Features,
        file_length: u64,
    ) -> Result<Self, CompressionInfoError> {
        let mut decoding = Decoding::new(bytes, features, file_length)?;
        while decoding.step()? {}
        Ok(decoding.info)
    }

    /// As [`CompressionInfo::decode`], but lets other tasks run meanwhile.
    ///
    /// # Errors
    /// As [`CompressionInfo::decode`].
    pub(crate) async fn read(
        bytes: &[u8],
        features: Features,
        file_length: u64,
    ) -> Result<Self, CompressionInfoError> {
        let mut decoding = Decoding::new(bytes, features, file_length)?;
        while decoding.step()? {
            reactor::maybe_yield().await;
        }
        Ok(decoding.info)
    }
}

/// A `CompressionInfo.db` whose offsets are being read.
struct Decoding<'b> {
    input: Input<'b>,
    info: CompressionInfo,
    chunks: usize,
    /// Number of chunks that data of this length takes.
    of_data: u64,
    file_length: u64,
    /// Offset of the previous chunk.
    last: Option<u64>,
}

impl<'b> Decoding<'b> {
    fn new(bytes: &'b [u8], features: Features, file_length: u64) -> Result<Self, CompressionInfoError> {
        let mut input = Input::new(bytes);
        let name = input.text()?;
        let compressor =
            Compressor::parse(name).ok_or_else(|| CompressionInfoError::Compressor(name.to_owned()))?;
        let options = u64::from(input.u32()?);
        let mut level = None;
        for _ in 0..input.fits("number of compression options", options, 4)? {
            let (name, value) = (input.text()?, input.text()?);
            if name == LEVEL {
                // Decompressing does not need the level; other options are not kept.
                level = value.parse().ok();
            }
        }
        let at = input.offset();
        let chunk_length = input.u32()?;
        if !chunk_length.is_power_of_two() || chunk_length > CHUNK_BYTES_MAX {
            let (length, limit) = (u64::from(chunk_length), u64::from(CHUNK_BYTES_MAX));
            return Err(Malformed::over(at, "chunk length", length, limit).into());
        }
        let max_compressed_length =
            if features.max_compressed_length { input.u32()? } else { i32::MAX as u32 };
        let at = input.offset();
        let data_length = input.u64()?;
        let chunks = u64::from(input.u32()?);
        let chunks = input.fits("number of chunks", chunks, 8)?;
        // A Cassandra node that syncs a file after its last chunk writes one more, empty chunk.
        let of_data = data_length.div_ceil(u64::from(chunk_length));
        if of_data > chunks as u64 || data_length > i64::MAX as u64 {
            return Err(Malformed::invalid(at, "data length and number of chunks differ").into());
        }
        let offsets = ChunkOffsets::default();
        let info =
            CompressionInfo { compressor, level, chunk_length, max_compressed_length, data_length, offsets };
        Ok(Self { input, info, chunks, of_data, file_length, last: None })
    }

    /// Reads some offsets; returns false when all are read and nothing follows them.
    fn step(&mut self) -> Result<bool, Malformed> {
        for _ in 0..CHUNKS_AT_ONCE {
            let chunk = self.info.offsets.len();
            if chunk == self.chunks {
                self.offset(chunk, self.file_length)?;
                return match self.input.remaining() {
                    0 => Ok(false),
                    _ => Err(Malformed::invalid(self.input.offset(), "bytes behind the chunk offsets")),
                };
            }
            let offset = self.input.u64()?;
            self.offset(chunk, offset)?;
            self.info.offsets.push(offset);
        }
        Ok(true)
    }

    /// Checks the offset of a chunk, which is also the end of the previous one.
    fn offset(&mut self, chunk: usize, offset: u64) -> Result<(), Malformed> {
        let at = self.input.offset();
        let longest = compressed_max(u64::from(self.info.chunk_length)) + CHECKSUM_BYTES;
        let length = match self.last {
            None if offset == 0 => longest,
            None => return Err(Malformed::invalid(at, "the first chunk does not start the file")),
            Some(last) => offset.saturating_sub(last),
        };
        let least = if chunk as u64 > self.of_data { CHECKSUM_BYTES } else { CHECKSUM_BYTES + 1 };
        if length < least || length > longest {
            return Err(Malformed::over(at, "length of a chunk", length, longest));
        }
        self.last = Some(offset);
        Ok(())
    }
}

/// Contents of `CRC.db`, for data that is not compressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChunkChecksums {
    /// Bytes each checksum but the last covers.
    pub(crate) chunk_length: u32,
    /// CRC32 of each chunk.
    pub(crate) checksums: Vec<u32>,
}

impl ChunkChecksums {
    /// Appends `CRC.db`; lets other tasks run meanwhile.
    pub(crate) async fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(4 + 4 * self.checksums.len());
        out.extend_from_slice(&self.chunk_length.to_be_bytes());
        for some in self.checksums.chunks(CHUNKS_AT_ONCE) {
            some.iter().for_each(|checksum| out.extend_from_slice(&checksum.to_be_bytes()));
            reactor::maybe_yield().await;
        }
    }

    /// Reads `CRC.db` of a data file of `file_length` bytes.
    ///
    /// # Errors
    /// [`Malformed`].
    pub(crate) fn decode(bytes: &[u8], file_length: u64) -> Result<Self, Malformed> {
        let (mut read, mut input, chunks) = Self::head(bytes, file_length)?;
        while read.step(&mut input, chunks)? {}
        Ok(read)
    }

    /// As [`ChunkChecksums::decode`], but lets other tasks run meanwhile.
    ///
    /// # Errors
    /// As [`ChunkChecksums::decode`].
    pub(crate) async fn read(bytes: &[u8], file_length: u64) -> Result<Self, Malformed> {
        let (mut read, mut input, chunks) = Self::head(bytes, file_length)?;
        while read.step(&mut input, chunks)? {
            reactor::maybe_yield().await;
        }
        Ok(read)
    }

    /// An empty value, the rest of the input, and the number of checksums in it.
    fn head(bytes: &[u8], file_length: u64) -> Result<(Self, Input<'_>, usize), Malformed> {
        let mut input = Input::new(bytes);
        let chunk_length = input.u32()?;
        if chunk_length == 0 || chunk_length > CHUNK_BYTES_MAX {
            let (length, limit) = (u64::from(chunk_length), u64::from(CHUNK_BYTES_MAX));
            return Err(Malformed::over(0, "chunk length", length, limit));
        }
        let chunks = file_length.div_ceil(u64::from(chunk_length));
        let chunks = input.fits("number of chunks", chunks, 4)?;
        Ok((Self { chunk_length, checksums: Vec::with_capacity(chunks) }, input, chunks))
    }

    /// Reads some checksums; returns false when all are read and only zeros follow.
    fn step(&mut self, input: &mut Input<'_>, chunks: usize) -> Result<bool, Malformed> {
        for _ in 0..CHUNKS_AT_ONCE.min(chunks - self.checksums.len()) {
            self.checksums.push(input.u32()?);
        }
        if self.checksums.len() < chunks {
            return Ok(true);
        }
        // Checksums of empty chunks, as in `CompressionInfo.db`: they are zero.
        let rest = input.offset();
        if input.take(input.remaining())?.iter().any(|byte| *byte != 0) {
            return Err(Malformed::invalid(rest, "checksums of more data than there is"));
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::Version;
    use proptest::prelude::*;

    fn info_file(info: CompressionInfo, features: Features) -> Vec<u8> {
        reactor::sim::run_one(1, move || async move {
            let mut bytes = Vec::new();
            info.encode(&mut bytes, features).await;
            bytes
        })
    }

    fn checksums_file(checksums: ChunkChecksums) -> Vec<u8> {
        reactor::sim::run_one(1, move || async move {
            let mut bytes = Vec::new();
            checksums.encode(&mut bytes).await;
            bytes
        })
    }

    #[test]
    fn offsets_come_back_across_pieces() {
        let mut offsets = ChunkOffsets::default();
        let of = |chunk: usize| chunk as u64 * 4100;
        (0..PIECE * 2 + 3).for_each(|chunk| offsets.push(of(chunk)));
        assert_eq!((offsets.len(), offsets.size() / 4 / PIECE), (PIECE * 2 + 3, 2));
        for chunk in [0, 63, 64, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 2 * PIECE + 2] {
            assert_eq!(offsets.get(chunk), Some(of(chunk)), "{chunk}");
        }
        assert_eq!(offsets.get(PIECE * 2 + 3), None);
    }

    fn features(max_compressed_length: bool) -> Features {
        Features { max_compressed_length, ..Version::Me.features() }
    }

    proptest! {
        #[test]
        fn info_comes_back(lengths in proptest::collection::vec(5u64..4700, 0..300), last in 1u64..=4096, na: bool, level: bool) {
            let mut offsets = ChunkOffsets::default();
            let mut at = 0;
            for length in &lengths {
                offsets.push(at);
                at += length;
            }
            let data_length = if lengths.is_empty() { 0 } else { (lengths.len() as u64 - 1) * 4096 + last };
            let info = CompressionInfo { compressor: Compressor::Zstd, level: level.then_some(-3), chunk_length: 4096, max_compressed_length: i32::MAX as u32, data_length, offsets };
            let bytes = info_file(info.clone(), features(na));
            let back = CompressionInfo::decode(&bytes, features(na), at);
            if lengths.is_empty() {
                prop_assert!(back.is_err() || at == 0);
            } else {
                prop_assert_eq!(back.unwrap(), info);
            }
            for end in 0..bytes.len() {
                prop_assert!(CompressionInfo::decode(&bytes[..end], features(na), at).is_err());
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = CompressionInfo::decode(&bytes, features(false), 100);
            let _ = ChunkChecksums::decode(&bytes, 100);
        }
    }

    /// As Cassandra 5.0.6 flushed a table: 821 bytes in one chunk, followed by an empty chunk.
    #[test]
    fn a_chunk_of_nothing_behind_the_data_is_passed_over() {
        let mut bytes = Vec::new();
        append_text(&mut bytes, "LZ4Compressor");
        bytes.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0x40, 0, 0x7f, 0xff, 0xff, 0xff]);
        for number in [821u64.to_be_bytes(), [0, 0, 0, 2, 0, 0, 0, 0], [0; 8]] {
            bytes.extend_from_slice(&number);
        }
        bytes.extend_from_slice(&[0, 0, 1, 0x54]);
        let info = CompressionInfo::decode(&bytes, features(true), 349).unwrap();
        assert_eq!((info.data_length, info.offsets.get(0), info.offsets.get(1)), (821, Some(0), Some(340)));
        // Fewer chunks than the data takes are still refused.
        let at = bytes.len() - 24;
        bytes[at..at + 4].copy_from_slice(&[0, 1, 0, 0]);
        assert!(CompressionInfo::decode(&bytes, features(true), 349).is_err());
        let bytes = checksums_file(ChunkChecksums { chunk_length: 4096, checksums: vec![1, 2, 0] });
        assert_eq!(ChunkChecksums::decode(&bytes, 8192).unwrap().checksums, [1, 2]);
    }

    #[test]
    fn checksums_come_back() {
        let checksums = ChunkChecksums { chunk_length: 4096, checksums: vec![1, 2, 3] };
        let bytes = checksums_file(checksums.clone());
        assert_eq!(ChunkChecksums::decode(&bytes, 8193).unwrap(), checksums);
        assert!(ChunkChecksums::decode(&bytes, 8192).is_err());
        assert!(ChunkChecksums::decode(&bytes, 12289).is_err());
    }
}
