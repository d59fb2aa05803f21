//! The durable data of one shard: commit log, memtables, table files, and the reads that merge them.
//!
//! Write: `shard` (apply) → `commitlog::append` → `memtable::insert`; later `flush` → table file →
//! `commitlog::recycle`. Read: `read` → `memtable::read`, `cache` and table files → `read::merge` →
//! `read::visible`. `open` starts the storage, `ddl` changes its tables, and `compaction` keeps the number of
//! files low. `snapshot` keeps copies of tables, `import` takes in files from outside, and `disk` watches
//! space and errors. `paxos` keeps what this node promised in conditional writes. This crate has no notion of
//! other nodes, and reaches other shards only through `reactor::mesh`. `replication` and `query` are built on
//! [`Storage`].

mod agreed;
mod apply;
mod batchlog;
mod cache;
mod clock;
mod commitlog;
mod compaction;
mod config;
mod ddl;
mod directory;
mod disk;
mod error;
mod flush;
#[doc(hidden)]
pub mod fuzzing;
mod identity;
mod import;
mod large_data;
mod manifest;
#[doc(hidden)]
pub mod measuring;
mod memtable;
mod moves;
mod open;
mod partition_guard;
mod paxos;
mod read;
pub mod records;
mod report;
mod sampling;
mod shard;
mod snapshot;
mod tablet;
mod takeover;
mod throttle;
mod warm;

pub use agreed::{AgreedChanges, AgreedSchema, OwnTablet, OwnTablets};
pub use apply::{ApplyAs, Applying};
pub use batchlog::{BatchOrigin, KeptBatch, LoggedBatch};
pub use commitlog::CommitlogStats;
pub use compaction::{
    CompactOptions, CompactOutcome, CompactionFilter, CompactionKind, CompactionRecord, CompactionStats,
    CompactionTotals, DamagedFile, HISTORY_MAX as COMPACTION_HISTORY_MAX, ScrubMode, ScrubReport,
    TableFileInfo, VerifyOptions, VerifyReport,
};
pub use config::{COMPONENTS_SHARE_DEFAULT, CommitlogSync, StorageConfig};
pub use disk::{DiskMark, FailurePolicy, Trouble};
pub use error::StorageError;
pub use identity::Identity;
pub use import::{ImportReport, ImportSource};
pub use large_data::{LargeDataOf, LargeLimits};
pub use open::EarlierSchema;
pub use partition_guard::{PartitionGuards, PartitionLimit};
pub use paxos::{PaxosCell, PaxosChange, PaxosState, PaxosTable};
pub use read::{
    Dead, Flow, FromMemory, PartitionBound, PartitionRange, Place, RawConsumer, ReadCommand, RowConsumer,
    Shown, Slices, Unread, VisibleScratch, fragments_table,
};
pub use report::{SizeEstimate, TableReport};
pub use sampling::{SAMPLING_CAPACITY_MAX, SampledLoad, SampledPartition, TopPartitions};
pub use shard::{Storage, StorageStats, TableStats};
pub use snapshot::{Describer, SnapshotInfo, SnapshotRequest, SnapshotsOf, is_tag};
pub use sstable::{ReadNotes, ToldFact, ToldRead, call_and_note, is_noted, note, noting};
