//! The data file as chunks: reads whole chunks, verifies each, and returns uncompressed bytes.

use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use reactor::file::{File, RangeBuf};

use crate::compression::{CHECKSUM_BYTES, ChunkChecksums, CompressionInfo, Decoder};
use crate::descriptor::Component;
use crate::error::{Malformed, Problem, SstableError};
use crate::told;

/// Chunk length of data without checksums.
const PLAIN_CHUNK_BYTES: u64 = 4096;

/// Number of disk reads and their bytes, including alignment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskReads {
    /// Requests.
    pub requests: u64,
    /// Bytes, alignment included.
    pub bytes: u64,
}

/// Counts the reads of one table file.
#[derive(Debug, Default)]
pub(crate) struct ReadCounter(Cell<DiskReads>);

impl ReadCounter {
    /// Reads `offset..offset + length`, cut at the end of the file.
    ///
    /// # Errors
    /// [`SstableError::Io`].
    pub(crate) async fn read(
        &self,
        file: &File,
        path: &Path,
        offset: u64,
        length: usize,
    ) -> Result<RangeBuf, SstableError> {
        let told = told::begun(path, offset, self.count(file, offset, length));
        let read = file.read_range(offset, length).await.map_err(SstableError::io(path))?;
        told(read.len());
        Ok(read)
    }

    /// Counts a read that begins now; returns the number of bytes the disk is asked for.
    fn count(&self, file: &File, offset: u64, length: usize) -> u64 {
        let alignment = file.read_alignment() as u64;
        let mut reads = self.0.get();
        let end = offset.saturating_add(length as u64);
        let start = offset / alignment * alignment;
        let bytes = end.checked_next_multiple_of(alignment).unwrap_or(end) - start;
        reads.requests += 1;
        reads.bytes += bytes;
        self.0.set(reads);
        bytes
    }

    pub(crate) fn get(&self) -> DiskReads {
        self.0.get()
    }
}

/// Encoding and checksums of the chunks.
#[derive(Debug)]
pub(crate) enum Chunks {
    /// Compressed, each followed by its checksum.
    Compressed(CompressionInfo, Decoder),
    /// Uncompressed, with checksums in `CRC.db`.
    Checked(ChunkChecksums),
    /// Uncompressed, without checksums.
    Plain,
}

/// An open `Data.db`.
#[derive(Debug)]
pub(crate) struct DataFile {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    pub(crate) file_length: u64,
    pub(crate) chunks: Chunks,
}

impl DataFile {
    /// Bytes of uncompressed data.
    pub(crate) fn length(&self) -> u64 {
        match &self.chunks {
            Chunks::Compressed(info, _) => info.data_length,
            Chunks::Checked(_) | Chunks::Plain => self.file_length,
        }
    }

    /// Bytes of uncompressed data in each chunk but the last.
    pub(crate) fn chunk_length(&self) -> u64 {
        match &self.chunks {
            Chunks::Compressed(info, _) => u64::from(info.chunk_length),
            Chunks::Checked(checksums) => u64::from(checksums.chunk_length),
            Chunks::Plain => PLAIN_CHUNK_BYTES,
        }
    }

    /// Bytes in memory for the offsets and the decoder of chunks.
    pub(crate) fn bytes_in_memory(&self) -> usize {
        match &self.chunks {
            Chunks::Compressed(info, decoder) => info.offsets.size() + decoder.size(),
            Chunks::Checked(checksums) => checksums.checksums.len() * 4,
            Chunks::Plain => 0,
        }
    }

    /// Reads the chunks `first..end` with one request. The future borrows nothing, so its owner may do other
    /// things first.
    pub(crate) fn read(
        &self,
        counter: &ReadCounter,
        first: u64,
        end: u64,
    ) -> impl Future<Output = io::Result<RangeBuf>> + use<> {
        let start = self.file_offset(first);
        let length = (self.file_offset(end) - start) as usize;
        let told = told::begun(&self.path, start, counter.count(&self.file, start, length));
        let file = self.file.clone();
        async move {
            let read = file.read_range(start, length).await?;
            told(read.len());
            Ok(read)
        }
    }

    /// Checks that `bytes` is the complete contents of the chunks `first..end`.
    pub(crate) fn check_read(&self, (first, end): (u64, u64), bytes: &[u8]) -> Result<(), SstableError> {
        let start = self.file_offset(first);
        if bytes.len() as u64 == self.file_offset(end) - start {
            return Ok(());
        }
        Err(Malformed::truncated(start + bytes.len() as u64).of(Component::Data, &self.path))
    }

    /// Decodes `chunks` into the front of `out`; `bytes` are those of a read that begins with chunk `first`.
    /// Returns the decoded length.
    pub(crate) fn decode(
        &self,
        first: u64,
        bytes: &[u8],
        chunks: Range<u64>,
        out: &mut [u8],
    ) -> Result<usize, SstableError> {
        let mut filled = 0;
        let chunk_length = self.chunk_length();
        let start = self.file_offset(first);
        for chunk in chunks {
            let at = self.file_offset(chunk);
            let stored = &bytes[(at - start) as usize..(self.file_offset(chunk + 1) - start) as usize];
            let length = chunk_length.min(self.length() - chunk * chunk_length) as usize;
            self.decode_chunk(chunk, stored, &mut out[filled..filled + length])
                .map_err(|problem| Malformed { offset: at, problem }.of(Component::Data, &self.path))?;
            filled += length;
        }
        Ok(filled)
    }

    fn decode_chunk(&self, chunk: u64, stored: &[u8], out: &mut [u8]) -> Result<(), Problem> {
        match &self.chunks {
            Chunks::Compressed(info, decoder) => {
                let (body, recorded) = stored.split_last_chunk::<4>().ok_or(Problem::Truncated)?;
                check(body, u32::from_be_bytes(*recorded))?;
                if body.len() < info.max_compressed_length as usize {
                    return decoder.decode(body, out);
                }
                // Stored uncompressed, with padding if the last chunk is shorter than the limit.
                out.copy_from_slice(body.get(..out.len()).ok_or(Problem::Truncated)?);
            }
            Chunks::Checked(checksums) => {
                check(stored, *checksums.checksums.get(chunk as usize).ok_or(Problem::Truncated)?)?;
                out.copy_from_slice(stored.get(..out.len()).ok_or(Problem::Truncated)?);
            }
            Chunks::Plain => out.copy_from_slice(stored.get(..out.len()).ok_or(Problem::Truncated)?),
        }
        Ok(())
    }

    /// Offset of a chunk in the file; the end of the file for chunks behind it.
    fn file_offset(&self, chunk: u64) -> u64 {
        match &self.chunks {
            Chunks::Compressed(info, _) => usize::try_from(chunk)
                .ok()
                .filter(|chunk| *chunk < info.offsets.len())
                .and_then(|chunk| info.offsets.get(chunk))
                .unwrap_or(self.file_length),
            Chunks::Checked(_) | Chunks::Plain => (chunk * self.chunk_length()).min(self.file_length),
        }
    }
}

fn check(bytes: &[u8], recorded: u32) -> Result<(), Problem> {
    let found = crc32fast::hash(bytes);
    if found == recorded { Ok(()) } else { Err(Problem::Checksum { recorded, found }) }
}

const _: () = assert!(CHECKSUM_BYTES == 4, "a chunk ends with a 32-bit checksum");
