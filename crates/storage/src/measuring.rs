//! Entry points for benches: parts of a shard's storage on their own.
//!
//! Not part of the interface; `ceto perf` measures with it.

use model::TableId;
use reactor::Deadline;

use crate::commitlog::format::{BootId, EntryKind};
use crate::commitlog::{Commitlog, CommitlogOptions};
use crate::config::StorageConfig;
use crate::error::StorageError;
use crate::manifest::Manifest;
use crate::shard::Storage;

/// A commit log without a memtable behind it: its segments are free again once they are full.
#[derive(Clone)]
pub struct Log(Commitlog);

impl Log {
    /// Opens an empty log in the directory of `config`.
    ///
    /// # Errors
    /// Those of making the manifest and the first segment.
    pub async fn open(config: &StorageConfig) -> Result<Self, StorageError> {
        let options = CommitlogOptions {
            directory: config.commitlog_dir.join("shard-0"),
            shard: 0,
            sync: config.commitlog_sync,
            segment_bytes: config.segment_bytes,
            bytes_max: config.commitlog_bytes_max,
            boot: BOOT,
            manifest: Manifest::of_new(&config.manifest_dir).await?,
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

    /// Writes the waiting entries and ends the log.
    ///
    /// # Errors
    /// Those of the last write.
    pub async fn close(&self) -> Result<(), StorageError> {
        self.0.close().await
    }
}

/// Of a process that nothing replays.
const BOOT: BootId = [0; 16];

/// Merges the memtables of a table on this shard into the row cache, as a flush does once its files are
/// there, but makes no files. The rows are then in the cache only, and are lost when they are evicted.
///
/// # Errors
/// [`StorageError::UnknownTable`].
pub async fn update_row_cache(storage: &Storage, table: TableId) -> Result<(), StorageError> {
    let store = storage.table_store(table)?;
    for tablet in &store.tablets() {
        tablet.seal_at(|| None).await;
        // Bounded, because no other task seals memtables.
        while let Some(memtable) = tablet.sealed() {
            storage.update_cache(tablet, &memtable, None).await;
            tablet.remove_memtable(&memtable);
            memtable.release_log();
        }
    }
    Ok(())
}
