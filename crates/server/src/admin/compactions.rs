//! Compactions on all shards: requested, running, pending and completed ones.

use std::collections::BTreeMap;
use std::rc::Rc;

use reactor::Group;
use storage::{
    CompactOptions, CompactOutcome, CompactionFilter, CompactionRecord, CompactionStats, ScrubMode,
    ScrubReport, StorageError, VerifyOptions, VerifyReport,
};

use super::error::ApiError;
use super::node::{TableName, on_each};
use crate::boot::Shard;

/// Why a table's files are rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rewrite {
    /// Merges all files of each tablet into one, or into several of half, a quarter, … of the total.
    Major { split_output: bool, skips_flush: bool },
    /// Removes partitions that do not belong to their tablet.
    Cleanup,
    /// Rewrites files of older format versions, or all files.
    Upgrade { all: bool },
    /// Removes deleted data.
    GarbageCollect,
}

/// Rewrites tables one after the other, each on all shards at once. Tables dropped meanwhile are skipped. If
/// a compaction is stopped, the remaining tables are left as they are.
pub(super) async fn rewrite(tables: Vec<TableName>, what: Rewrite) -> Result<CompactOutcome, ApiError> {
    let mut sum = CompactOutcome::default();
    for table in tables {
        let id = table.id;
        let outcomes = on_each(Group::COMPACTION, move |shard: Rc<Shard>| async move {
            let storage = shard.storage();
            let outcome = match what {
                Rewrite::Major { split_output, skips_flush } => {
                    let options = CompactOptions { split_output, skips_flush, ..CompactOptions::default() };
                    storage.compact_with(id, &options).await
                }
                Rewrite::Cleanup => storage.cleanup(id).await,
                Rewrite::Upgrade { all } => storage.upgrade_sstables(id, all).await,
                Rewrite::GarbageCollect => storage.garbage_collect(id).await,
            };
            match outcome {
                Err(StorageError::UnknownTable { .. }) => Ok(CompactOutcome::default()),
                outcome => Ok(outcome?),
            }
        });
        for outcome in outcomes.await? {
            sum.completed += outcome.completed;
            sum.stopped += outcome.stopped;
            sum.damaged.extend(outcome.damaged);
        }
        if sum.stopped > 0 {
            break;
        }
    }
    Ok(sum)
}

/// Reads all files of the tables and deals with damage as `mode` says; returns the sum of the shards'
/// reports.
pub(super) async fn scrub(tables: Vec<TableName>, mode: ScrubMode) -> Result<ScrubReport, ApiError> {
    let mut sum = ScrubReport::default();
    for table in tables {
        let id = table.id;
        let reports = on_each(Group::COMPACTION, move |shard: Rc<Shard>| async move {
            match shard.storage().scrub(id, mode).await {
                Err(StorageError::UnknownTable { .. }) => Ok(ScrubReport::default()),
                report => Ok(report?),
            }
        });
        for report in reports.await? {
            sum.files += report.files;
            sum.damaged_files += report.damaged_files;
            sum.partitions += report.partitions;
            sum.gaps += report.gaps;
            sum.out_of_order += report.out_of_order;
        }
    }
    Ok(sum)
}

/// Looks for damage in all files of the tables; returns the sum of the shards' reports. If one is stopped,
/// the remaining tables are not checked.
pub(super) async fn verify(tables: Vec<TableName>, options: VerifyOptions) -> Result<VerifyReport, ApiError> {
    let mut sum = VerifyReport::default();
    for table in tables {
        let id = table.id;
        let reports = on_each(Group::COMPACTION, move |shard: Rc<Shard>| async move {
            match shard.storage().verify(id, options).await {
                Err(StorageError::UnknownTable { .. }) => Ok(VerifyReport::default()),
                report => Ok(report?),
            }
        });
        for report in reports.await? {
            sum.files += report.files;
            sum.damaged.extend(report.damaged);
            sum.stopped |= report.stopped;
        }
        if sum.stopped {
            break;
        }
    }
    Ok(sum)
}

/// Running compactions.
pub(super) async fn running() -> Result<Vec<CompactionStats>, ApiError> {
    let shards = on_each(Group::ADMIN, |shard: Rc<Shard>| async move { Ok(shard.storage().compactions()) });
    Ok(shards.await?.into_iter().flatten().collect())
}

/// Compactions that are due, by table id.
pub(super) async fn pending() -> Result<BTreeMap<[u8; 16], usize>, ApiError> {
    let shards = on_each(Group::ADMIN, |shard: Rc<Shard>| async move {
        Ok(shard.storage().pending_compactions().into_iter().map(|(table, jobs)| (table.0, jobs)).collect())
    });
    let mut sums = BTreeMap::new();
    for (table, jobs) in shards.await?.into_iter().flat_map(|shard: Vec<([u8; 16], usize)>| shard) {
        *sums.entry(table).or_default() += jobs;
    }
    Ok(sums)
}

/// Compactions that have ended since the start, newest first.
pub(super) async fn history() -> Result<Vec<CompactionRecord>, ApiError> {
    let shards =
        on_each(Group::ADMIN, |shard: Rc<Shard>| async move { Ok(shard.storage().compaction_history()) });
    let mut records: Vec<CompactionRecord> = shards.await?.into_iter().flatten().collect();
    records.sort_by_key(|record| std::cmp::Reverse(record.compacted_at_us));
    Ok(records)
}

/// Stops the compactions that match `filter`, and returns how many.
pub(super) async fn stop(filter: CompactionFilter) -> Result<usize, ApiError> {
    let shards = on_each(Group::ADMIN, move |shard: Rc<Shard>| async move {
        Ok(shard.storage().stop_compactions(&filter))
    });
    Ok(shards.await?.into_iter().sum())
}

/// Whether a table is compacted automatically on every shard.
pub(super) async fn automatic(table: TableName) -> Result<bool, ApiError> {
    let shards = on_each(Group::ADMIN, move |shard: Rc<Shard>| async move {
        Ok(shard.storage().auto_compaction(table.id)?)
    });
    Ok(shards.await?.into_iter().all(|on| on))
}

/// Switches automatic compaction of tables on or off, until the node restarts.
pub(super) async fn set_automatic(tables: Vec<TableName>, on: bool) -> Result<(), ApiError> {
    let shards = on_each(Group::ADMIN, move |shard: Rc<Shard>| async move {
        for table in tables {
            shard.storage().set_auto_compaction(table.id, on)?;
        }
        Ok(())
    });
    shards.await.map(drop)
}

/// Whether compactions of a table may drop tombstones, on every shard.
pub(super) async fn tombstone_gc(table: TableName) -> Result<bool, ApiError> {
    let shards =
        on_each(
            Group::ADMIN,
            move |shard: Rc<Shard>| async move { Ok(shard.storage().tombstone_gc(table.id)?) },
        );
    Ok(shards.await?.into_iter().all(|on| on))
}

/// Allows or forbids compactions of tables to drop tombstones, until the node restarts.
pub(super) async fn set_tombstone_gc(tables: Vec<TableName>, on: bool) -> Result<(), ApiError> {
    let shards = on_each(Group::ADMIN, move |shard: Rc<Shard>| async move {
        for table in tables {
            shard.storage().set_tombstone_gc(table.id, on)?;
        }
        Ok(())
    });
    shards.await.map(drop)
}

/// Limit in bytes per second for the compaction writes of the node; 0 means no limit.
pub(super) async fn throughput() -> Result<u64, ApiError> {
    let shards =
        on_each(Group::ADMIN, |shard: Rc<Shard>| async move { Ok(shard.storage().compaction_throughput()) });
    Ok(shards.await?.into_iter().sum())
}

/// Sets the node's limit, divided equally among the shards.
pub(super) async fn set_throughput(bytes_per_second: u64) -> Result<(), ApiError> {
    let shards = reactor::shard_count() as u64;
    // Rounded up: a part of 0 would lift the limit.
    let part = bytes_per_second.div_ceil(shards);
    let set = on_each(Group::ADMIN, move |shard: Rc<Shard>| async move {
        shard.storage().set_compaction_throughput(part);
        Ok(())
    });
    set.await.map(drop)
}
