//! Errors of keeping hints.

use std::io;
use std::path::{Path, PathBuf};

/// Why hints could not be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum HintsError {
    /// A file or folder of hints cannot be used.
    #[error("cannot {action} {}: {error}", path.display())]
    Io {
        /// What was to be done.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// A file of hints has other bytes than were written.
    #[error("{} is damaged at byte {offset}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The first byte that is not right.
        offset: u64,
    },
    /// Hints that were to be durable are not in their files.
    #[error("hints were not written to their files")]
    NotWritten,
    /// There is no room for another hint.
    #[error("there is no room for a hint: {used} of {limit} bytes {of}")]
    Full {
        /// What is full.
        of: &'static str,
        /// Bytes in use.
        used: u64,
        /// The most there may be.
        limit: u64,
    },
    /// The shard keeps no hints, or no more.
    #[error("this shard keeps no hints now")]
    Ended,
}

impl HintsError {
    pub(super) fn io(action: &'static str, path: &Path, error: io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), error }
    }
}
