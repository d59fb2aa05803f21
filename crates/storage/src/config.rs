//! Settings of a shard's storage: folders, durability, limits.

use std::path::PathBuf;
use std::time::Duration;

use crate::disk::{DiskMark, FailurePolicy};
use crate::large_data::LargeLimits;
use crate::partition_guard::PartitionGuards;

/// Default part of the memory for components of open table files, as in ScyllaDB.
pub const COMPONENTS_SHARE_DEFAULT: f64 = 0.2;

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
    /// The schema and all else on which the control plane has agreed: `<schema_dir>/group0/`.
    pub schema_dir: PathBuf,
    /// The manifest, which lists the files that must exist: `<manifest_dir>/`.
    pub manifest_dir: PathBuf,
    /// What other nodes missed while they were down: `<hints_dir>/<host id>/`. Another crate's, which this
    /// one marks as this node's.
    pub hints_dir: PathBuf,
    /// Losses that an operator accepts, each by the token that the refused start gave.
    pub accept_missing: Vec<String>,
    /// Bytes of a table file's summary per byte of its data (`sstable_summary_ratio`), from 0 to 1.
    pub summary_ratio: f64,
    /// Bytes of a partition between two entries of its index (`column_index_size`).
    pub column_index_bytes: u32,
    /// When a write is acknowledged.
    pub commitlog_sync: CommitlogSync,
    /// Bytes of a commit-log segment (`commitlog_segment_size`).
    pub segment_bytes: usize,
    /// Most bytes of a mutation (`max_mutation_size`); `None` for half a segment.
    pub mutation_bytes_max: Option<usize>,
    /// Most bytes of commit log per shard; half of it makes the oldest memtables flush.
    pub commitlog_bytes_max: u64,
    /// Continue with the next intact entry if the log is corrupt (`commitlog_replay_ignore_errors`).
    pub commitlog_replay_ignore_errors: bool,
    /// Most bytes of memtables per shard. At two fifths the largest is flushed, and beyond that writes are
    /// slowed the more the nearer the limit is.
    pub memtable_bytes_max: usize,
    /// Most bytes of memtables and row cache together per shard: the cache gets the part that memtables do
    /// not use.
    pub memory_bytes_max: usize,
    /// Folder of the lists of cached partitions, for the next start (`saved_caches_directory`).
    pub saved_caches_dir: PathBuf,
    /// Time between two such lists; zero: only at the end (`row_cache_save_period`).
    pub cache_save_period: Duration,
    /// Partitions in a list of one shard; zero: lists are neither written nor read
    /// (`row_cache_keys_to_save`).
    pub cache_keys_to_save: usize,
    /// Whether table files are compacted automatically.
    pub auto_compaction: bool,
    /// Most compactions that run on a shard at a time (`concurrent_compactors`).
    pub concurrent_compactors: usize,
    /// Most memory, as a part from 0 to 1, for components of open table files such as filters and summaries
    /// (`components_memory_reclaim_threshold`). Beyond it filters are left out, and summaries get coarser.
    pub components_share: f64,
    /// Most bytes per second that the compactions of a shard write (`compaction_throughput`); 0 for no limit.
    pub compaction_bytes_per_second: u64,
    /// Shares of the compaction group (`compaction_static_shares`); 0 to let them follow the backlog.
    pub compaction_static_shares: u32,
    /// Whether tables are snapshotted before they are truncated or dropped (`auto_snapshot`).
    pub auto_snapshot: bool,
    /// Disks with the space that has to stay free for writes to be taken.
    pub disk_marks: Vec<DiskMark>,
    /// The effect of an unreadable table file on reads and on the start (`disk_failure_policy`). The effect
    /// on the node is decided by the task that waits for [`crate::Storage::next_trouble`].
    pub disk_failure_policy: FailurePolicy,
    /// Whether the table files of a Cassandra node that is taken over stay (`takeover_keeps_files`): then one
    /// can go back, and both together take twice the space.
    pub takeover_keeps_files: bool,
    /// How long a write of an old commit log waits for memory and room at the start.
    pub start_timeout: Duration,
    /// Thresholds for logging large partitions that are written to table files; `None` for no logging.
    pub partition_guards: Option<PartitionGuards>,
    /// Sizes from which data in table files is listed as large.
    pub large_limits: LargeLimits,
}

impl StorageConfig {
    /// Cassandra's defaults, with all folders below `workdir`; `memtable_bytes_max` is the memory for
    /// memtables per shard, and half as much again is for other uses.
    pub fn new(workdir: impl Into<PathBuf>, memtable_bytes_max: usize) -> Self {
        let workdir = workdir.into();
        Self {
            data_dir: workdir.join("data"),
            commitlog_dir: workdir.join("commitlog"),
            schema_dir: workdir.join("schema"),
            manifest_dir: workdir.join("manifest"),
            hints_dir: workdir.join("hints"),
            accept_missing: Vec::new(),
            summary_ratio: sstable::SUMMARY_RATIO_DEFAULT,
            components_share: COMPONENTS_SHARE_DEFAULT,
            column_index_bytes: sstable::COLUMN_INDEX_BYTES_DEFAULT,
            commitlog_sync: CommitlogSync::Periodic { period: Duration::from_secs(10) },
            segment_bytes: 32 << 20,
            mutation_bytes_max: None,
            commitlog_bytes_max: 1 << 30,
            commitlog_replay_ignore_errors: false,
            memtable_bytes_max,
            memory_bytes_max: memtable_bytes_max.saturating_add(memtable_bytes_max / 2),
            saved_caches_dir: workdir.join("saved_caches"),
            cache_save_period: Duration::from_secs(600),
            cache_keys_to_save: 100_000,
            auto_compaction: true,
            concurrent_compactors: 2,
            compaction_bytes_per_second: 0,
            compaction_static_shares: 0,
            auto_snapshot: false,
            disk_marks: Vec::new(),
            disk_failure_policy: FailurePolicy::Ignore,
            takeover_keeps_files: true,
            start_timeout: Duration::from_secs(60),
            partition_guards: None,
            large_limits: LargeLimits::default(),
        }
    }

    /// Folder of the control plane's log and snapshots; not this crate's, which looks only whether it exists.
    pub fn group0_dir(&self) -> PathBuf {
        self.schema_dir.join("group0")
    }

    /// Most bytes of one mutation or one batch. The default is half of a commit-log segment, as in Cassandra.
    /// A larger setting is limited to a quarter of the commit log's room and of the memtables' memory, and so
    /// that a batch and one of its mutations fit the log at once.
    pub fn mutation_bytes_max(&self) -> usize {
        let half = self.segment_bytes / 2;
        let log = usize::try_from(self.commitlog_bytes_max).unwrap_or(usize::MAX);
        // Each may begin and end within a segment, and one segment is being written.
        let both = (log / self.segment_bytes).saturating_sub(5) / 2 * self.segment_bytes;
        let log = (log / 4).min(both);
        let most = log.min(self.memtable_bytes_max / 4).max(half);
        self.mutation_bytes_max.unwrap_or(half).min(most)
    }
}
