//! Entry points for benches: parts of a shard's storage on their own.
//!
//! Not part of the interface; `ceto perf` measures with it.

use reactor::Deadline;

use crate::commitlog::format::{BootId, EntryKind};
use crate::commitlog::{Commitlog, CommitlogOptions};
use crate::config::StorageConfig;
use crate::error::StorageError;

/// A commit log without a memtable behind it: its segments are free again once they are full.
#[derive(Clone)]
pub struct Log(Commitlog);

impl Log {
    /// Opens an empty log in the directory of `config`.
    ///
    /// # Errors
    /// Those of making the first segment.
    pub async fn open(config: &StorageConfig) -> Result<Self, StorageError> {
        let options = CommitlogOptions {
            directory: config.commitlog_dir.join("shard-0"),
            shard: 0,
            sync: config.commitlog_sync,
            segment_bytes: config.segment_bytes,
            bytes_max: config.commitlog_bytes_max,
            boot: BOOT,
        };
        let (log, _) = Commitlog::open(options, Vec::new()).await?;
        Ok(Self(log))
    }

    /// Appends an entry; returns once it is as safe as the log's mode promises.
    ///
    /// # Errors
    /// Those of the write, and [`StorageError::CommitlogTimedOut`].
    pub async fn append(&self, payload: &[u8], deadline: Deadline) -> Result<(), StorageError> {
        self.0.append(EntryKind::Mutation, payload, deadline).await.map(drop)
    }

    /// Writes what waits and ends the log.
    ///
    /// # Errors
    /// Those of the last write.
    pub async fn close(&self) -> Result<(), StorageError> {
        self.0.close().await
    }
}

/// Of a process that nothing replays.
const BOOT: BootId = [0; 16];
