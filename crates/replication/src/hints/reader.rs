//! Reads the hints of a file one after the other, past damage.
//!
//! An entry that is not intact and followed by no intact one is the torn end of the file: the process or the
//! machine ended while it was written. One that is followed by intact ones is damage: reading goes on behind
//! it, and the caller learns where it was. Memory is bounded by the largest entry and a window.

use std::path::{Path, PathBuf};

use reactor::file::{File, OpenOptions};

use super::HintsError;
use super::format::{BadHeader, Found, HEADER_BYTES, Header, Hint, entry_at};

/// Bytes that are read at once.
const WINDOW_BYTES: usize = 256 << 10;
/// Places that are looked at for an intact entry before other tasks get a turn.
const PLACES_PER_TURN: usize = 16 << 10;

/// What comes next in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// A hint, and the offset behind it.
    Hint(Hint, u64),
    /// No entry is intact in this stretch, and one follows.
    Damage {
        /// The first byte that is not right.
        offset: u64,
        /// Up to the next intact entry.
        bytes: u64,
    },
    /// The end; so many bytes before it are the torn last entry.
    End {
        /// Bytes of the torn entry; 0 where the last entry is whole.
        torn_bytes: u64,
    },
}

/// A file of hints that is being read.
pub(super) struct Reader {
    path: PathBuf,
    file: File,
    header: Header,
    entry_bytes_max: usize,
    /// Bytes of the file when it was opened.
    size: u64,
    /// Offset of the first byte of `window`.
    offset: u64,
    window: Vec<u8>,
    /// Bytes of `window` that have been read.
    at: usize,
}

/// Reads the header of a file.
///
/// # Errors
/// File errors.
pub(super) async fn header(path: &Path) -> Result<(Result<Header, BadHeader>, u64), HintsError> {
    let failed = |error| HintsError::io("read", path, error);
    let file = File::open(path, OpenOptions::new().read(true)).await.map_err(failed)?;
    let size = file.size().await.map_err(failed)?;
    let bytes = file.read_at(0, HEADER_BYTES).await.map_err(failed)?;
    Ok((Header::decode(&bytes), size))
}

impl Reader {
    /// Opens a file whose header was read, from an offset at which an entry begins, or from the first one.
    ///
    /// # Errors
    /// File errors; [`HintsError::Damaged`] for a header that is damaged.
    pub(super) async fn open(path: &Path, from: u64, entry_bytes_max: usize) -> Result<Self, HintsError> {
        let failed = |error| HintsError::io("read", path, error);
        let file = File::open(path, OpenOptions::new().read(true)).await.map_err(failed)?;
        let size = file.size().await.map_err(failed)?;
        let bytes = file.read_at(0, HEADER_BYTES).await.map_err(failed)?;
        let damaged = |_| HintsError::Damaged { path: path.to_owned(), offset: 0 };
        let header = Header::decode(&bytes).map_err(damaged)?;
        let offset = from.max(HEADER_BYTES as u64);
        Ok(Self {
            path: path.to_owned(),
            file,
            header,
            entry_bytes_max,
            size,
            offset,
            window: Vec::new(),
            at: 0,
        })
    }

    /// The next hint, stretch of damage, or the end.
    ///
    /// # Errors
    /// File errors.
    pub(super) async fn next(&mut self) -> Result<Next, HintsError> {
        let begin = self.place();
        if let Some((hint, bytes)) = self.look().await? {
            self.at += bytes;
            return Ok(Next::Hint(hint, self.place()));
        }
        let mut looked = 0;
        while self.place() < self.size {
            if looked > 0 && self.look().await?.is_some() {
                return Ok(Next::Damage { offset: begin, bytes: self.place() - begin });
            }
            self.at += 1;
            looked += 1;
            if looked % PLACES_PER_TURN == 0 {
                reactor::maybe_yield().await;
            }
        }
        Ok(Next::End { torn_bytes: self.size.saturating_sub(begin) })
    }

    /// Offset of the next byte.
    fn place(&self) -> u64 {
        self.offset + self.at as u64
    }

    /// The intact entry at the present place, and its bytes.
    async fn look(&mut self) -> Result<Option<(Hint, usize)>, HintsError> {
        // Ends: each round has more of the file in the window.
        loop {
            let bytes = self.window.get(self.at..).unwrap_or_default();
            match entry_at(bytes, self.header.salt, self.place(), self.entry_bytes_max) {
                Found::Hint(hint, bytes) => return Ok(Some((hint, bytes))),
                Found::Nothing => return Ok(None),
                Found::Begun(bytes) if self.place() + bytes as u64 > self.size => return Ok(None),
                Found::Begun(bytes) => self.fill(bytes).await?,
            }
        }
    }

    /// Reads until so many bytes from the present place on are in the window; the file has them.
    async fn fill(&mut self, bytes: usize) -> Result<(), HintsError> {
        self.offset = self.place();
        self.window.drain(..self.at.min(self.window.len()));
        self.at = 0;
        while self.window.len() < bytes {
            let failed = |error| HintsError::io("read", &self.path, error);
            let offset = self.offset + self.window.len() as u64;
            let left = usize::try_from(self.size - offset).unwrap_or(usize::MAX);
            let wanted = (bytes - self.window.len()).max(WINDOW_BYTES).min(left);
            let read = self.file.read_range(offset, wanted).await.map_err(failed)?;
            if read.is_empty() {
                return Err(failed(std::io::ErrorKind::UnexpectedEof.into()));
            }
            self.window.extend_from_slice(&read);
        }
        Ok(())
    }
}
