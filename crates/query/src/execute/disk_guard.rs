//! The guardrail of disk usage: warns about and refuses writes as the data's disk fills
//! (`data_disk_usage_percentage_*`).
//!
//! Usage is computed as by Cassandra (`org.apache.cassandra.service.disk.usage.DiskUsageMonitor`): table
//! files and memtables of all shards, as a part of these files and the free space together, or of
//! `data_disk_usage_max_disk_size` if that is less. Each shard measures for itself, when it writes and its
//! last measurement is half a minute old. The write that measures waits, others use the last measurement. A
//! node without these thresholds pays nothing.

use std::cell::Cell;

use reactor::{Group, mesh};
use statement::guardrails::{WriteGuardrails, violated, warning};

use crate::QueryError;
use crate::engine::Engine;

/// Nanoseconds for which a measure is good (Cassandra's `disk_usage.monitor_interval_ms`).
const GOOD_FOR_NS: u64 = 30_000_000_000;

/// One shard's last measurement of the disk.
#[derive(Debug, Default)]
pub(crate) struct DiskUsage {
    percent: Cell<u64>,
    /// Nanoseconds of the shard's clock from which a new measurement is due; 0 before the first.
    due_ns: Cell<u64>,
}

impl DiskUsage {
    /// Refuses or warns of a write.
    ///
    /// # Errors
    /// [`QueryError::Invalid`] if the disk is too full.
    #[cold]
    pub(super) async fn check(
        engine: &Engine,
        guards: &WriteGuardrails,
        warnings: &mut Vec<String>,
    ) -> Result<(), QueryError> {
        const NAME: &str = "replica_disk_usage";
        let usage = engine.disk_usage();
        let now_ns = reactor::now().as_nanos();
        if now_ns >= usage.due_ns.get() {
            usage.due_ns.set(now_ns.saturating_add(GOOD_FOR_NS));
            match measure(engine, guards.disk_bytes_max).await {
                Ok(percent) => usage.percent.set(percent),
                Err(error) => reactor::warn_limited!("how full the disk is is not known"; error = error),
            }
        }
        let is_beyond = |threshold: Option<u64>| threshold.is_some_and(|most| usage.percent.get() > most);
        if is_beyond(guards.disk_percent.fail) {
            return Err(
                violated(NAME, "Write request failed because disk usage exceeds failure threshold").into()
            );
        }
        if is_beyond(guards.disk_percent.warn) {
            warnings.push(warning(NAME, "Replica disk usage exceeds warning threshold"));
        }
        Ok(())
    }
}

/// Usage of the disk in percent, rounded up; may exceed 100 if a largest size is configured.
async fn measure(engine: &Engine, disk_bytes_max: Option<u64>) -> Result<u64, String> {
    let (mut files, mut memtables) = (0u64, 0u64);
    for shard in 0..engine.config().shards {
        let found = mesh::call(shard, Group::BACKGROUND, || async {
            let engine = Engine::here()?;
            let reports = engine.storage().report().await;
            let files: u64 = reports.iter().map(|report| report.file_bytes).sum();
            Some((files, reports.iter().map(|report| report.memtable_bytes as u64).sum::<u64>()))
        });
        let (of_files, of_memtables) =
            found.await.map_err(|error| error.to_string())?.ok_or("a shard has not started")?;
        files += of_files;
        memtables += of_memtables;
    }
    let folder = &engine.storage().config().data_dir;
    let free = reactor::file::available_space(folder).await.map_err(|error| error.to_string())?;
    let total = files.saturating_add(free).min(disk_bytes_max.unwrap_or(u64::MAX)).max(1);
    let percent = (u128::from(files + memtables) * 100).div_ceil(u128::from(total));
    Ok(u64::try_from(percent).unwrap_or(u64::MAX))
}
