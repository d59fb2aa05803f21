//! Metrics of the storage, taken at each scrape; they have ScyllaDB's names if it has the same metric.

use query::Engine;
use reactor::metrics::{Sample, Value};
use storage::TableReport;

use crate::boot::Shard;

/// A shard with more tables publishes sums only, so that a scrape stays bounded.
const TABLES_MAX: usize = 1000;

/// Those of the shard, and those of its tables.
pub(super) async fn all(shard: &Shard) -> Vec<Sample> {
    let mut samples = of_shard(shard);
    let reports = shard.storage().report().await;
    let tablets = reports.iter().map(|report| report.tablets as u64).sum::<u64>();
    samples.push(Sample {
        name: "scylla_tablets_count".to_owned(),
        help: "Tablets on this shard.".to_owned(),
        labels: Vec::new(),
        value: Value::Gauge(i64::try_from(tablets).unwrap_or(i64::MAX)),
    });
    if reports.len() > TABLES_MAX {
        return samples;
    }
    for report in &reports {
        append_table(report, &mut samples);
        reactor::maybe_yield().await;
    }
    if let Some(engine) = Engine::here() {
        samples.extend(engine.table_samples().await);
    }
    samples
}

/// Those that no table has a part in.
pub(super) fn of_shard(shard: &Shard) -> Vec<Sample> {
    let stats = shard.storage().stats();
    let mut samples = Vec::new();
    let mut push = |name: &str, help: &str, labels: Vec<(String, String)>, value: Value| {
        samples.push(Sample { name: name.to_owned(), help: help.to_owned(), labels, value });
    };
    let gauge = |number: u64| Value::Gauge(i64::try_from(number).unwrap_or(i64::MAX));
    let log = stats.commitlog;
    for (name, help, level) in [
        ("scylla_commitlog_segments", "Commit-log segments that hold entries.", log.segments),
        (
            "scylla_commitlog_unused_segments",
            "Commit-log segments that are ready to be written.",
            log.spare_segments,
        ),
        ("scylla_commitlog_disk_total_bytes", "Bytes of commit-log files.", log.disk_bytes),
        ("scylla_commitlog_disk_active_bytes", "Bytes of those that hold entries.", log.live_bytes),
        ("ceto_commitlog_disk_bytes_max", "Bytes that commit-log files may take.", log.bytes_max),
        (
            "scylla_commitlog_memory_buffer_groups",
            "Groups of entries that wait to be written.",
            log.pending_groups,
        ),
    ] {
        push(name, help, Vec::new(), gauge(level));
    }
    for (name, help, count) in [
        ("scylla_commitlog_flush", "Flushes of the commit log's device.", log.device_flushes),
        ("scylla_commitlog_bytes_written", "Bytes written to the commit log.", log.written_bytes),
        (
            "scylla_commitlog_flush_limit_exceeded",
            "Writes that found the commit log at its limit and waited for flushes.",
            log.limit_exceeded,
        ),
    ] {
        push(name, help, Vec::new(), Value::Counter(count));
    }
    push(
        "scylla_memory_total_memory",
        "Bytes of memory the shard may take.",
        Vec::new(),
        gauge(shard.memory_bytes()),
    );
    push("scylla_memory_dirty_bytes", "Bytes in memtables.", Vec::new(), gauge(stats.memtable_bytes as u64));
    push(
        "scylla_memory_dirty_bytes_max",
        "Bytes that memtables may take.",
        Vec::new(),
        gauge(stats.memtable_bytes_max as u64),
    );
    push(
        "scylla_sstables_bloom_filter_memory_size",
        "Bytes of filters and summaries in memory.",
        Vec::new(),
        gauge(stats.resident_bytes as u64),
    );
    push(
        "scylla_sstables_components_left_out_bytes",
        "Bytes of filters and summaries that are left out of memory for want of room.",
        Vec::new(),
        gauge(stats.left_out_bytes as u64),
    );
    samples
}

fn append_table(report: &TableReport, samples: &mut Vec<Sample>) {
    for (name, help, level) in [
        ("scylla_column_family_live_sstable", "Table files.", report.files as u64),
        ("scylla_column_family_live_disk_space", "Bytes of table files in use.", report.file_bytes),
        (
            "scylla_column_family_total_disk_space",
            "Bytes of table files on the disk, snapshots not counted.",
            report.file_bytes,
        ),
        (
            "scylla_column_family_pending_tasks",
            "Memtables that are sealed and on their way to a file.",
            report.pending_flushes as u64,
        ),
        (
            "scylla_column_family_memtable_partitions",
            "Partitions in memtables.",
            report.memtable_partitions as u64,
        ),
        ("scylla_column_family_tablet_count", "Tablets on this shard.", report.tablets as u64),
        ("ceto_table_memtable_bytes", "Bytes in memtables.", report.memtable_bytes as u64),
        (
            "ceto_table_resident_bytes",
            "Bytes of filters and summaries of table files in memory.",
            report.resident_bytes as u64,
        ),
        (
            "ceto_table_uncompressed_bytes",
            "Bytes of rows in table files, before compression.",
            report.data_bytes,
        ),
        (
            "ceto_table_file_partitions",
            "Partitions in table files, one that is in several files counted as often.",
            report.file_partitions,
        ),
        (
            "ceto_table_partition_bytes_max",
            "Bytes of the largest partition in a table file, by the files' histograms.",
            report.partition_bytes_max,
        ),
    ] {
        let labels = vec![("cf".to_owned(), report.name.clone()), ("ks".to_owned(), report.keyspace.clone())];
        let value = Value::Gauge(i64::try_from(level).unwrap_or(i64::MAX));
        samples.push(Sample { name: name.to_owned(), help: help.to_owned(), labels, value });
    }
}
