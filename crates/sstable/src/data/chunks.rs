//! The data file as chunks: reads whole ones, checks each, and hands out uncompressed bytes.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use reactor::file::{File, RangeBuf};

use crate::compression::{CHECKSUM_BYTES, ChunkChecksums, CompressionInfo, Decoder};
use crate::descriptor::Component;
use crate::error::{Malformed, Problem, SstableError};
use crate::told;

/// Chunk length of data without checksums.
const PLAIN_CHUNK_BYTES: u64 = 4096;

/// How many reads the disk was asked for, and for how many bytes (alignment included).
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
        let alignment = file.read_alignment() as u64;
        let mut reads = self.0.get();
        let end = offset.saturating_add(length as u64);
        let start = offset / alignment * alignment;
        let bytes = end.checked_next_multiple_of(alignment).unwrap_or(end) - start;
        reads.requests += 1;
        reads.bytes += bytes;
        self.0.set(reads);
        let read = file.read_range(offset, length).await.map_err(SstableError::io(path))?;
        told::note(path, offset, (read.len() as u64, bytes));
        Ok(read)
    }

    pub(crate) fn get(&self) -> DiskReads {
        self.0.get()
    }
}

/// What makes a chunk and how it is checked.
#[derive(Debug)]
pub(crate) enum Chunks {
    /// Compressed, each followed by its checksum.
    Compressed(CompressionInfo, Decoder),
    /// As they are, checksums in `CRC.db`.
    Checked(ChunkChecksums),
    /// As they are, without checksums.
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

    /// Bytes in memory that say where chunks are and how they are decoded.
    pub(crate) fn bytes_in_memory(&self) -> usize {
        match &self.chunks {
            Chunks::Compressed(info, decoder) => info.offsets.size() + decoder.size(),
            Chunks::Checked(checksums) => checksums.checksums.len() * 4,
            Chunks::Plain => 0,
        }
    }

    /// Reads the chunks `first..end` with one request and appends what they hold.
    pub(crate) async fn read(
        &self,
        counter: &ReadCounter,
        first: u64,
        end: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), SstableError> {
        let chunk_length = self.chunk_length();
        let start = self.file_offset(first);
        let length = (self.file_offset(end) - start) as usize;
        let bytes = counter.read(&self.file, &self.path, start, length).await?;
        if bytes.len() != length {
            return Err(Malformed::truncated(start + bytes.len() as u64).of(Component::Data, &self.path));
        }
        for chunk in first..end {
            let at = self.file_offset(chunk);
            let stored = &bytes[(at - start) as usize..(self.file_offset(chunk + 1) - start) as usize];
            let length = chunk_length.min(self.length() - chunk * chunk_length) as usize;
            self.append_chunk(chunk, stored, length, out)
                .map_err(|problem| Malformed { offset: at, problem }.of(Component::Data, &self.path))?;
        }
        Ok(())
    }

    fn append_chunk(
        &self,
        chunk: u64,
        stored: &[u8],
        length: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Problem> {
        match &self.chunks {
            Chunks::Compressed(info, decoder) => {
                let (body, recorded) = stored.split_last_chunk::<4>().ok_or(Problem::Truncated)?;
                check(body, u32::from_be_bytes(*recorded))?;
                if body.len() >= info.max_compressed_length as usize {
                    // Stored as it is, padded where the last chunk is shorter than the limit.
                    out.extend_from_slice(body.get(..length).ok_or(Problem::Truncated)?);
                    return Ok(());
                }
                decoder.decode(body, length, out)
            }
            Chunks::Checked(checksums) => {
                check(stored, *checksums.checksums.get(chunk as usize).ok_or(Problem::Truncated)?)?;
                out.extend_from_slice(stored);
                Ok(())
            }
            Chunks::Plain => {
                out.extend_from_slice(stored);
                Ok(())
            }
        }
    }

    /// Where a chunk starts in the file; the end of the file for those behind it.
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
