//! Keys of the commit log, memory, table files and disks.

use super::{Section, set, unset};

pub(super) const SECTIONS: &[Section] = &[
    Section {
        title: "Commit log",
        entries: &[
            set(
                &[("commitlog_sync", "periodic")],
                "When a write is acknowledged: periodic once it is in the log's file, which a crash of the process \
                 does not harm; batch once it is on the disk, which a power failure does not harm either.",
            ),
            set(
                &[("commitlog_sync_period", "10000ms")],
                "Interval at which the log is made durable with commitlog_sync: periodic.",
            )
            .or(&[("commitlog_sync_period_in_ms", "10000")]),
            set(
                &[("commitlog_segment_size", "32MiB")],
                "Size of a file of the log; from 1MiB to 2047MiB.",
            )
            .or(&[("commitlog_segment_size_in_mb", "32")]),
            unset(
                &[("max_mutation_size", "16MiB")],
                "half of commitlog_segment_size",
                "Largest write of one partition; a larger one is refused.",
            )
            .or(&[("max_mutation_size_in_kb", "16384")]),
            unset(
                &[("commitlog_total_space", "1GiB")],
                "1GiB for each shard",
                "Size of the log of the whole node. As it fills, memtables are flushed so that files can be reused.",
            )
            .or(&[("commitlog_total_space_in_mb", "1024")]),
            set(
                &[("commitlog_replay_ignore_errors", "false")],
                "Whether a start goes on after a damaged entry of the log, which is lost then, instead of stopping.",
            ),
        ],
    },
    Section {
        title: "Memory",
        entries: &[
            unset(
                &[("memtable_total_space", "256MiB")],
                "half of the memory",
                "Memory for memtables of the whole node. The row cache has what they leave of it, and half as much \
                 again.",
            )
            .or(&[("memtable_total_space_in_mb", "256")]),
            set(
                &[("row_cache_save_period", "600s")],
                "Interval at which the row cache's contents are listed, so that a start can read them back; 0s for \
                 only at the end.",
            ),
            set(
                &[("row_cache_keys_to_save", "100000")],
                "Most partitions in such a list of one shard; 0 for no lists.",
            ),
            set(
                &[("sstable_summary_ratio", "0.0005")],
                "Size of an index's summary, which is in memory, as a share of the table file's data.",
            ),
            set(
                &[("components_memory_reclaim_threshold", "0.2")],
                "Largest share of the memory for filters and summaries of table files. Beyond it some are left \
                 out, and reads of those files take more disk requests.",
            ),
        ],
    },
    Section {
        title: "Table files and compaction",
        entries: &[
            set(
                &[("column_index_size", "64KiB")],
                "Distance of entries in the index of a large partition's rows; from 1KiB to 1GiB. Smaller makes \
                 reads of single rows read less, and the index larger.",
            )
            .or(&[("column_index_size_in_kb", "64")]),
            set(
                &[("compaction_throughput", "0MiB/s")],
                "Most bytes that compactions of the whole node write each second; 0MiB/s for no limit. Without one \
                 they use what requests leave.",
            )
            .or(&[("compaction_throughput_mb_per_sec", "0")]),
            set(
                &[("compaction_static_shares", "0")],
                "The share of compactions in processor and disk, where 0 has it follow their backlog.",
            ),
            unset(
                &[("concurrent_compactors", "2")],
                "2",
                "Most compactions of a shard at the same time.",
            ),
            set(
                &[("takeover_keeps_files", "true")],
                "Whether the files of a Cassandra node stay after its data was taken over.",
            ),
            set(
                &[("compaction_large_partition_warning_threshold_mb", "1000")],
                "Partitions larger than this, in MiB, are listed in system.large_partitions.",
            ),
            set(
                &[("compaction_rows_count_warning_threshold", "100000")],
                "Partitions with more rows are listed there too.",
            ),
            set(
                &[("compaction_large_row_warning_threshold_mb", "10")],
                "Rows larger than this, in MiB, are listed in system.large_rows.",
            ),
            set(
                &[("compaction_large_cell_warning_threshold_mb", "1")],
                "Values and collections larger than this, in MiB, are listed in system.large_cells.",
            ),
            set(
                &[("compaction_collection_elements_count_warning_threshold", "10000")],
                "Collections with more elements are listed there too.",
            ),
            set(
                &[("compaction_large_data_records_per_sstable", "10")],
                "Most entries of each of these lists from one table file; from 0 to 1000.",
            ),
        ],
    },
    Section {
        title: "Full and failing disks",
        entries: &[
            unset(
                &[("critical_disk_utilization_level", "0.98")],
                "0.98; no limit in developer mode",
                "The share of a disk in use above which writes are refused.",
            ),
            set(
                &[("disk_failure_policy", "ignore")],
                "When a table file cannot be read or written: ignore fails the request, best_effort also goes on \
                 without a file that cannot be read, stop closes the CQL ports, stop_paranoid does so for a \
                 damaged file too, die ends the process.",
            ),
            set(
                &[("commit_failure_policy", "stop_commit")],
                "When the commit log cannot be written: stop_commit and ignore refuse writes and go on with reads, \
                 stop closes the CQL ports, die ends the process.",
            ),
        ],
    },
];
