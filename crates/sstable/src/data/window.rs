//! The stretch of uncompressed data that a reader has in memory.
//!
//! It is made of whole chunks, moves forward as the reader does, and is reused, so that reading row after row
//! allocates nothing once it has grown to the size of the longest row or the read-ahead.

use super::chunks::{DataFile, ReadCounter};
use crate::error::SstableError;

/// Most uncompressed bytes one request asks for.
pub(crate) const READ_BYTES_MAX: u64 = 128 * 1024;
/// A window that grew beyond this for one long row shrinks again.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Uncompressed data from `start` on.
#[derive(Debug, Default)]
pub(crate) struct Window {
    bytes: Vec<u8>,
    start: u64,
}

impl Window {
    /// What is in memory from `at` on.
    #[inline]
    pub(crate) fn from(&self, at: u64) -> &[u8] {
        at.checked_sub(self.start)
            .and_then(|skip| self.bytes.get(usize::try_from(skip).ok()?..))
            .unwrap_or(&[])
    }

    /// Sees to it that `length` bytes from `at` on are in memory; says no where the data ends before.
    ///
    /// When something has to be read, it reads up to `ahead` bytes from `at` on. What stands before `at` is let go.
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
        let in_memory_to = self.start + self.bytes.len() as u64;
        if at >= self.start && end <= in_memory_to {
            return Ok(true);
        }
        let chunk = data.chunk_length();
        let wanted = end.max(at.saturating_add(ahead)).min(data.length());
        let first = at / chunk;
        if at >= self.start && at < in_memory_to {
            let passed = (first * chunk).saturating_sub(self.start);
            self.bytes.drain(..passed as usize);
            self.start += passed;
        } else {
            self.bytes.clear();
            self.start = first * chunk;
        }
        if self.bytes.capacity() > KEPT_BYTES_MAX && length < KEPT_BYTES_MAX {
            self.bytes.shrink_to(KEPT_BYTES_MAX);
        }
        let per_request = (READ_BYTES_MAX / chunk).max(1);
        let end_chunk = wanted.div_ceil(chunk);
        // The window ends at a chunk's end, or at the end of the data and then nothing is left to read.
        let mut next = (self.start + self.bytes.len() as u64).div_ceil(chunk);
        while next < end_chunk {
            let until = end_chunk.min(next + per_request);
            if let Err(error) = data.read(counter, next, until, &mut self.bytes).await {
                // Part of a chunk may stand at the end.
                self.bytes.clear();
                return Err(error);
            }
            next = until;
        }
        Ok(true)
    }
}
