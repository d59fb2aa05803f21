//! The stretch of uncompressed data that a reader has in memory.
//!
//! It consists of whole chunks, moves forward with the reader, and is reused: reading row after row allocates
//! nothing once it has grown to the size of the longest row or of the read-ahead. A sequential reader has the
//! next stretch read while it decodes the present one.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;

use reactor::file::RangeBuf;

use super::chunks::{DataFile, ReadCounter};
use crate::error::SstableError;

/// Most uncompressed bytes that one request asks for.
pub(crate) const READ_BYTES_MAX: u64 = 128 * 1024;
/// Uncompressed bytes that are decoded between two checks whether another task should run.
const DECODED_BYTES: u64 = 32 * 1024;
/// A window that grew beyond this for one long row shrinks again.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Uncompressed data from `start` on.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// Longer than its part in use, so that no byte is zeroed twice.
    bytes: Vec<u8>,
    filled: usize,
    start: u64,
    /// The next chunks, which are being read.
    coming: Option<Coming>,
}

/// Chunks that are being read.
struct Coming {
    chunks: (u64, u64),
    read: Pin<Box<dyn Future<Output = io::Result<RangeBuf>>>>,
}

impl fmt::Debug for Coming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Coming").field(&self.chunks).finish()
    }
}

impl Window {
    /// Bytes in memory, those included that are being read.
    pub(crate) fn bytes_in_memory(&self) -> usize {
        self.bytes.capacity() + self.coming.as_ref().map_or(0, |_| READ_BYTES_MAX as usize)
    }

    /// The bytes in memory from `at` on.
    #[inline]
    pub(crate) fn from(&self, at: u64) -> &[u8] {
        at.checked_sub(self.start)
            .and_then(|skip| self.bytes[..self.filled].get(usize::try_from(skip).ok()?..))
            .unwrap_or(&[])
    }

    /// Makes sure that `length` bytes from `at` on are in memory; returns false if the data ends before.
    ///
    /// If it has to read, it reads up to `ahead` bytes from `at` on. Bytes before `at` are dropped.
    pub(crate) async fn ensure(
        &mut self,
        data: &DataFile,
        counter: &ReadCounter,
        at: u64,
        length: usize,
        ahead: u64,
    ) -> Result<bool, SstableError> {
        let Some(end) = at.checked_add(length as u64).filter(|end| *end <= data.length()) else {
            return Ok(false);
        };
        let in_memory_to = self.start + self.filled as u64;
        if at >= self.start && end <= in_memory_to {
            return Ok(true);
        }
        let chunk = data.chunk_length();
        let wanted = end.max(at.saturating_add(ahead)).min(data.length());
        let first = at / chunk;
        let reads_on = in_memory_to > 0 && (self.start..=in_memory_to).contains(&at);
        if at >= self.start && at < in_memory_to {
            let passed = (first * chunk).saturating_sub(self.start);
            self.bytes.copy_within(passed as usize..self.filled, 0);
            self.filled -= passed as usize;
            self.start += passed;
        } else {
            self.filled = 0;
            self.start = first * chunk;
        }
        if self.bytes.len() > KEPT_BYTES_MAX && length < KEPT_BYTES_MAX {
            self.bytes.truncate(KEPT_BYTES_MAX.max(self.filled));
            self.bytes.shrink_to_fit();
        }
        let per_request = (READ_BYTES_MAX / chunk).max(1);
        let (end_chunk, all) = (wanted.div_ceil(chunk), data.length().div_ceil(chunk));
        // The window ends at a chunk's end, or at the end of the data if nothing is left to read.
        let mut next = (self.start + self.filled as u64).div_ceil(chunk);
        // A long row: grown as it comes, its buffer would be up to twice as long.
        let whole = self.filled + (end_chunk.saturating_sub(next) * chunk) as usize;
        if length > KEPT_BYTES_MAX && whole > self.bytes.capacity() {
            self.bytes.reserve_exact(whole - self.bytes.len());
        }
        while next < end_chunk {
            let (chunks, read) = match self.coming.take() {
                Some(coming) if coming.chunks.0 == next => (coming.chunks, coming.read.await),
                _ => {
                    let chunks = (next, end_chunk.min(next + per_request));
                    (chunks, data.read(counter, chunks.0, chunks.1).await)
                }
            };
            let bytes = read.map_err(SstableError::io(&data.path))?;
            data.check_read(chunks, &bytes)?;
            if reads_on && ahead >= READ_BYTES_MAX && (end_chunk..all).contains(&chunks.1) {
                self.begin(data, counter, (chunks.1, all.min(chunks.1 + per_request))).await;
            }
            let room = self.filled + ((chunks.1 - chunks.0) * chunk) as usize;
            if self.bytes.len() < room {
                self.bytes.resize(room, 0);
            }
            // Other tasks may want to run before all of it is decompressed.
            let step = (DECODED_BYTES / chunk).max(1) as usize;
            for from in (chunks.0..chunks.1).step_by(step) {
                let to = chunks.1.min(from + step as u64);
                self.filled += data.decode(chunks.0, &bytes, from..to, &mut self.bytes[self.filled..])?;
                if to < chunks.1 {
                    reactor::maybe_yield().await;
                }
            }
            next = chunks.1;
        }
        Ok(true)
    }

    /// Begins to read chunks that are needed later.
    async fn begin(&mut self, data: &DataFile, counter: &ReadCounter, chunks: (u64, u64)) {
        let mut read: Pin<Box<dyn Future<Output = _>>> = Box::pin(data.read(counter, chunks.0, chunks.1));
        // A read that completes at once is kept as a completed future.
        if let Poll::Ready(done) = poll_fn(|context| Poll::Ready(read.as_mut().poll(context))).await {
            read = Box::pin(std::future::ready(done));
        }
        self.coming = Some(Coming { chunks, read });
    }
}
