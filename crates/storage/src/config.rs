//! What a shard's storage is told: where things lie, how durable, how much.

use std::path::PathBuf;
use std::time::Duration;

/// When a write in the commit log counts as safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitlogSync {
    /// When the kernel has it; it is made durable at least once in `period`.
    Periodic {
        /// Longest time between two flushes of the device.
        period: Duration,
    },
    /// When it is durable.
    Batch,
}

/// Settings of one shard's storage; the same on every shard of a node.
#[derive(Debug, Clone)]
pub struct StorageConfig {
    /// Table files: `<data_dir>/<keyspace>/<table>-<id>/`.
    pub data_dir: PathBuf,
    /// Commit log: `<commitlog_dir>/shard-<n>/`.
    pub commitlog_dir: PathBuf,
    /// Log of schema changes.
    pub schema_dir: PathBuf,
    /// Bytes of a table file's summary for a byte of its data (`sstable_summary_ratio`), from 0 to 1.
    pub summary_ratio: f64,
    /// Bytes of a partition between two entries of its index (`column_index_size`).
    pub column_index_bytes: u32,
    /// When a write is acknowledged.
    pub commitlog_sync: CommitlogSync,
    /// Bytes of a commit-log segment (`commitlog_segment_size`); a mutation may take half of it.
    pub segment_bytes: usize,
    /// Most bytes of commit log per shard; half of it makes the oldest memtables flush.
    pub commitlog_bytes_max: u64,
    /// Go on with the next intact entry where the log is corrupt (`commitlog_replay_ignore_errors`).
    pub commitlog_replay_ignore_errors: bool,
    /// Most bytes of memtables per shard; at half of it the largest is flushed, at all of it writes wait.
    pub memtable_bytes_max: usize,
    /// Whether table files are compacted on their own.
    pub auto_compaction: bool,
    /// How long shards wait for each other at the start.
    pub start_timeout: Duration,
}

impl StorageConfig {
    /// Cassandra's defaults, everything below `workdir`, and `memtable_bytes_max` of memory per shard.
    pub fn new(workdir: impl Into<PathBuf>, memtable_bytes_max: usize) -> Self {
        let workdir = workdir.into();
        Self {
            data_dir: workdir.join("data"),
            commitlog_dir: workdir.join("commitlog"),
            schema_dir: workdir.join("schema"),
            summary_ratio: sstable::SUMMARY_RATIO_DEFAULT,
            column_index_bytes: sstable::COLUMN_INDEX_BYTES_DEFAULT,
            commitlog_sync: CommitlogSync::Periodic { period: Duration::from_secs(10) },
            segment_bytes: 32 << 20,
            commitlog_bytes_max: 1 << 30,
            commitlog_replay_ignore_errors: false,
            memtable_bytes_max,
            auto_compaction: true,
            start_timeout: Duration::from_secs(60),
        }
    }

    /// Most bytes one mutation may take: half of a commit-log segment, as in Cassandra.
    pub fn mutation_bytes_max(&self) -> usize {
        self.segment_bytes / 2
    }
}
