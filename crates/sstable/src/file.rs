//! Writes one component from front to back: large aligned direct writes, with space reserved ahead in growing
//! steps.
//!
//! One buffer is filled while the disk takes the previous one, so at most two buffers of a file are in
//! memory. With reserved extents the file system does not search for space at each write (twice the speed of
//! a growing file on ext4). The tail is padded to the alignment and cut off before the file is made durable.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::Poll;

use reactor::file::{AlignedBuf, File, OpenOptions};

use crate::error::SstableError;

/// Bytes of one write.
const WRITE_BYTES: usize = 128 * 1024;
/// Direct writes are multiples of this.
const ALIGNMENT: usize = 4096;
/// First and largest step by which space is reserved.
const RESERVE_MIN: u64 = 1 << 20;
const RESERVE_MAX: u64 = 32 << 20;

/// A write that was given to the disk, and the buffer that it returns.
struct Writing(Pin<Box<dyn Future<Output = (io::Result<()>, AlignedBuf)>>>);

impl fmt::Debug for Writing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Writing")
    }
}

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct OutputFile {
    file: File,
    path: PathBuf,
    /// The buffer that is being filled, and the other one while the disk does not have it.
    buffer: Option<AlignedBuf>,
    other: Option<AlignedBuf>,
    writing: Option<Writing>,
    filled: usize,
    /// Bytes that were given to the disk.
    written: u64,
    reserved: u64,
}

impl OutputFile {
    /// Creates a file, replacing one that a crash left.
    pub(crate) async fn create(path: PathBuf) -> Result<Self, SstableError> {
        let options = OpenOptions::new().write(true).create(true).truncate(true).direct(true);
        let file = File::open(&path, options).await.map_err(SstableError::io(&path))?;
        let (buffer, other, writing) = (None, None, None);
        Ok(Self { file, path, buffer, other, writing, filled: 0, written: 0, reserved: 0 })
    }

    /// Bytes appended so far.
    pub(crate) fn position(&self) -> u64 {
        self.written + self.filled as u64
    }

    /// Appends bytes; writes whenever a buffer is full. The error may be that of an earlier write.
    pub(crate) async fn append(&mut self, mut bytes: &[u8]) -> Result<(), SstableError> {
        while !bytes.is_empty() {
            // Bytes of a buffer that are written were all filled first.
            let buffer = self.buffer.get_or_insert_with(|| AlignedBuf::with_len(WRITE_BYTES));
            let count = bytes.len().min(WRITE_BYTES - self.filled);
            buffer[self.filled..self.filled + count].copy_from_slice(&bytes[..count]);
            self.filled += count;
            bytes = &bytes[count..];
            if self.filled == WRITE_BYTES {
                Box::pin(self.write_buffer()).await?;
            }
        }
        Ok(())
    }

    /// Gives the filled buffer to the disk, once the previous write is done.
    async fn write_buffer(&mut self) -> Result<(), SstableError> {
        let Some(mut buffer) = self.buffer.take() else { return Ok(()) };
        let padded = self.filled.next_multiple_of(ALIGNMENT);
        buffer[self.filled..padded].fill(0);
        buffer.set_len(padded);
        self.settle().await?;
        let end = self.written + padded as u64;
        // The first buffer may be the whole file, so small files reserve nothing.
        if self.written > 0 && end > self.reserved {
            let step = self.written.clamp(RESERVE_MIN, RESERVE_MAX);
            // Only new space: a file system may examine space that is requested again, at a cost that grows
            // with the file.
            let from = self.reserved.max(self.written);
            self.reserved = (end + step).next_multiple_of(ALIGNMENT as u64);
            // The file system may not support reserving, or the disk may be nearly full: then the write
            // itself decides.
            if self.file.fallocate(from, self.reserved - from).await.is_err() {
                self.reserved = u64::MAX;
            }
        }
        let (file, at) = (self.file.clone(), self.written);
        let mut writing = Box::pin(async move { file.write_at(at, buffer).await });
        self.written += self.filled as u64;
        self.filled = 0;
        // The write begins here; the next call that needs its buffer waits for it.
        match poll_fn(|context| Poll::Ready(writing.as_mut().poll(context))).await {
            Poll::Ready(written) => self.take_back(written)?,
            Poll::Pending => self.writing = Some(Writing(writing)),
        }
        self.buffer = self.other.take();
        Ok(())
    }

    /// Waits for the running write.
    async fn settle(&mut self) -> Result<(), SstableError> {
        let Some(writing) = self.writing.take() else { return Ok(()) };
        let written = writing.0.await;
        self.take_back(written)
    }

    fn take_back(&mut self, (result, mut buffer): (io::Result<()>, AlignedBuf)) -> Result<(), SstableError> {
        result.map_err(SstableError::io(&self.path))?;
        buffer.set_len(WRITE_BYTES);
        self.other = Some(buffer);
        Ok(())
    }

    /// Writes the rest and cuts the file to its length; it is not durable yet.
    pub(crate) async fn close(mut self) -> Result<Written, SstableError> {
        let length = self.position();
        let aligned = length.is_multiple_of(ALIGNMENT as u64);
        if self.filled > 0 {
            self.write_buffer().await?;
        }
        self.settle().await?;
        if !aligned || self.reserved > length {
            self.file.truncate(length).await.map_err(SstableError::io(&self.path))?;
        }
        Ok(Written { file: self.file, path: self.path, length })
    }
}

/// A file that was written.
#[derive(Debug)]
pub(crate) struct Written {
    file: File,
    path: PathBuf,
    pub(crate) length: u64,
}

/// Makes files durable, all at once: a file system with a journal then writes the journal once or twice, not
/// once for each file.
pub(crate) async fn make_durable(files: Vec<Written>) -> Result<(), SstableError> {
    let sync = |written: Written| async move {
        written.file.fdatasync().await.map_err(SstableError::io(&written.path))
    };
    let mut syncs: Vec<_> = files.into_iter().map(|written| Some(Box::pin(sync(written)))).collect();
    let mut result = Ok(());
    poll_fn(|context| {
        for waiting in &mut syncs {
            let Some(sync) = waiting else { continue };
            if let Poll::Ready(done) = sync.as_mut().poll(context) {
                *waiting = None;
                if result.is_ok() {
                    result = done;
                }
            }
        }
        if syncs.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    result
}
