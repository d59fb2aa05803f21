//! What a shard's storage is told: where things lie, how durable, how much.

use std::path::PathBuf;
use std::time::Duration;

use crate::disk::DiskMark;

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
    /// Whether tables are snapshotted before they are truncated or dropped (`auto_snapshot`).
    pub auto_snapshot: bool,
    /// Disks and how much of them has to stay free for writes to be taken.
    pub disk_marks: Vec<DiskMark>,
    /// Compactions at work on a shard at a time (`concurrent_compactors`).
    pub concurrent_compactors: usize,
    /// Most bytes per second that the compactions of a shard write (`compaction_throughput`); 0 for any number.
    pub compaction_bytes_per_second: u64,
    /// Shares of the compaction group (`compaction_static_shares`); 0 to let them follow the backlog.
    pub compaction_static_shares: u32,
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
            commitlog_sync: CommitlogSync::Periodic { period: Duration::from_secs(10) },
            segment_bytes: 32 << 20,
            commitlog_bytes_max: 1 << 30,
            commitlog_replay_ignore_errors: false,
            memtable_bytes_max,
            auto_compaction: true,
            auto_snapshot: false,
            disk_marks: Vec::new(),
            concurrent_compactors: 2,
            compaction_bytes_per_second: 0,
            compaction_static_shares: 0,
            start_timeout: Duration::from_secs(60),
        }
    }

    /// Most bytes one mutation may take: half of a commit-log segment, as in Cassandra.
    pub fn mutation_bytes_max(&self) -> usize {
        self.segment_bytes / 2
    }
}
