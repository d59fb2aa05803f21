//! Storage as metrics, read when somebody asks: names are ScyllaDB's where it has the thing.

use reactor::metrics::{Sample, Value};

use crate::boot::Shard;

/// Tables beyond which a shard publishes sums only, so that a scrape stays bounded.
const TABLES_MAX: usize = 1000;

pub(super) fn of(shard: &Shard) -> Vec<Sample> {
    let storage = shard.storage();
    let stats = storage.stats();
    let reports = storage.report();
    let mut samples = Vec::new();
    let mut push = |name: &str, help: &str, labels: Vec<(String, String)>, value: Value| {
        samples.push(Sample { name: name.to_owned(), help: help.to_owned(), labels, value });
    };
    let gauge = |number: u64| Value::Gauge(i64::try_from(number).unwrap_or(i64::MAX));
    push(
        "scylla_commitlog_segments",
        "Commit-log segments that hold entries.",
        Vec::new(),
        gauge(stats.commitlog_segments as u64),
    );
    push("scylla_memory_dirty_bytes", "Bytes in memtables.", Vec::new(), gauge(stats.memtable_bytes as u64));
    push(
        "scylla_memory_dirty_bytes_max",
        "Bytes that memtables may take.",
        Vec::new(),
        gauge(stats.memtable_bytes_max as u64),
    );
    let tablets = reports.iter().map(|report| report.tablets as u64).sum();
    push("scylla_tablets_count", "Tablets on this shard.", Vec::new(), gauge(tablets));
    let resident = reports.iter().map(|report| report.resident_bytes as u64).sum();
    push(
        "scylla_sstables_bloom_filter_memory_size",
        "Bytes of filters and summaries in memory.",
        Vec::new(),
        gauge(resident),
    );
    if reports.len() > TABLES_MAX {
        return samples;
    }
    for report in &reports {
        let labels =
            || vec![("cf".to_owned(), report.name.clone()), ("ks".to_owned(), report.keyspace.clone())];
        push("scylla_column_family_live_sstable", "Table files.", labels(), gauge(report.files as u64));
        push(
            "scylla_column_family_live_disk_space",
            "Bytes of table files in use.",
            labels(),
            gauge(report.file_bytes),
        );
        push(
            "scylla_column_family_total_disk_space",
            "Bytes of table files on the disk, snapshots not counted.",
            labels(),
            gauge(report.file_bytes),
        );
        push(
            "scylla_column_family_pending_tasks",
            "Memtables that are sealed and on their way to a file.",
            labels(),
            gauge(report.pending_flushes as u64),
        );
        push(
            "scylla_column_family_memtable_partitions",
            "Partitions in memtables.",
            labels(),
            gauge(report.memtable_partitions as u64),
        );
        push(
            "scylla_column_family_tablet_count",
            "Tablets on this shard.",
            labels(),
            gauge(report.tablets as u64),
        );
    }
    samples
}
