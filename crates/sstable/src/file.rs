//! Writing one component front to back: large aligned direct writes, space reserved ahead in growing steps.
//!
//! Reserved extents are what lets the file system write without looking for space each time (twice the rate of a
//! growing file on ext4). The tail is padded to the alignment and cut off again before the file is made durable.

use std::path::PathBuf;

use reactor::file::{AlignedBuf, File, OpenOptions};

use crate::error::SstableError;

/// Bytes of one write.
const WRITE_BYTES: usize = 128 * 1024;
/// What direct writes are multiples of.
const ALIGNMENT: usize = 4096;
/// First and largest step by which space is reserved.
const RESERVE_MIN: u64 = 1 << 20;
const RESERVE_MAX: u64 = 32 << 20;

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct OutputFile {
    file: File,
    path: PathBuf,
    buffer: Option<AlignedBuf>,
    filled: usize,
    written: u64,
    reserved: u64,
}

impl OutputFile {
    /// Creates a file, in the place of one that a crash left.
    pub(crate) async fn create(path: PathBuf) -> Result<Self, SstableError> {
        let options = OpenOptions::new().write(true).create(true).truncate(true).direct(true);
        let file = File::open(&path, options).await.map_err(SstableError::io(&path))?;
        Ok(Self { file, path, buffer: None, filled: 0, written: 0, reserved: 0 })
    }

    /// Bytes appended so far.
    pub(crate) fn position(&self) -> u64 {
        self.written + self.filled as u64
    }

    /// Appends bytes; writes whenever a buffer is full.
    pub(crate) async fn append(&mut self, mut bytes: &[u8]) -> Result<(), SstableError> {
        while !bytes.is_empty() {
            let buffer = self.buffer.get_or_insert_with(|| AlignedBuf::zeroed(WRITE_BYTES));
            let count = bytes.len().min(WRITE_BYTES - self.filled);
            buffer[self.filled..self.filled + count].copy_from_slice(&bytes[..count]);
            self.filled += count;
            bytes = &bytes[count..];
            if self.filled == WRITE_BYTES {
                self.write_buffer().await?;
            }
        }
        Ok(())
    }

    async fn write_buffer(&mut self) -> Result<(), SstableError> {
        let Some(mut buffer) = self.buffer.take() else { return Ok(()) };
        let padded = self.filled.next_multiple_of(ALIGNMENT);
        buffer[self.filled..padded].fill(0);
        buffer.set_len(padded);
        let end = self.written + padded as u64;
        // The first buffer may be the whole file: small files reserve nothing.
        if self.written > 0 && end > self.reserved {
            let step = self.written.clamp(RESERVE_MIN, RESERVE_MAX);
            self.reserved = (end + step).next_multiple_of(ALIGNMENT as u64);
            // A file system that cannot reserve, or a disk that is nearly full: the write itself decides.
            if self.file.fallocate(self.reserved).await.is_err() {
                self.reserved = u64::MAX;
            }
        }
        let (result, mut buffer) = self.file.write_at(self.written, buffer).await;
        result.map_err(SstableError::io(&self.path))?;
        buffer.set_len(WRITE_BYTES);
        self.buffer = Some(buffer);
        self.written += self.filled as u64;
        self.filled = 0;
        Ok(())
    }

    /// Writes what is left, cuts the file to its length and makes it durable; returns the length.
    pub(crate) async fn finish(mut self) -> Result<u64, SstableError> {
        let length = self.position();
        let aligned = length.is_multiple_of(ALIGNMENT as u64);
        if self.filled > 0 {
            self.write_buffer().await?;
        }
        if !aligned || self.reserved > length {
            self.file.truncate(length).await.map_err(SstableError::io(&self.path))?;
        }
        self.file.fdatasync().await.map_err(SstableError::io(&self.path))?;
        Ok(length)
    }
}
