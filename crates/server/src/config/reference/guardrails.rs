//! Keys of guardrails: limits at which requests give warnings or are refused.

use super::{Section, set, thresholds};

pub(super) const SECTIONS: &[Section] = &[
    Section {
        title: "Guardrails of the schema",
        entries: &[
            thresholds!(
                "keyspaces",
                "-1",
                "CREATE KEYSPACE beyond this number of users' keyspaces gives a warning, or fails. So do all keys \
                 that end in _warn_threshold and _fail_threshold; -1 or null is for no limit. The older key counts \
                 Cassandra's 5 system keyspaces too."
            )
            .or(&[("keyspace_count_warn_threshold", "-1")]),
            thresholds!(
                "tables",
                "-1",
                "Tables of users. The older key counts Cassandra's 48 system tables too."
            ).or(&[("table_count_warn_threshold", "-1")]),
            thresholds!("columns_per_table", "-1", "Columns of a table."),
            thresholds!("fields_per_udt", "-1", "Fields of a user-defined type."),
            thresholds!("vector_dimensions", "-1", "Dimensions of a vector."),
            set(&[("vector_type_enabled", "true")], "Whether columns may be vectors."),
            set(
                &[("default_keyspace_rf", "1")],
                "The replication factor of keyspaces whose statement names none.",
            ),
            thresholds!(
                "minimum_replication_factor",
                "-1",
                "Replication factors below this; the threshold that warns is the larger one."
            ),
            thresholds!("maximum_replication_factor", "-1", "Replication factors beyond this."),
            set(
                &[("replication_strategy_warn_list", "[]"), ("replication_strategy_fail_list", "[]")],
                "Replication strategies that give a warning, and those that are refused.",
            ),
            set(
                &[("simplestrategy_enabled", "true")],
                "Whether keyspaces may have SimpleStrategy, which heeds no data centers.",
            ),
            set(
                &[
                    ("table_properties_warned", "[]"),
                    ("table_properties_ignored", "[]"),
                    ("table_properties_disallowed", "[]"),
                ],
                "Options of tables that give a warning, are left out with a warning, or are refused.",
            ),
            set(&[("alter_table_enabled", "true")], "Whether columns may be added, dropped and renamed."),
            set(
                &[("drop_truncate_table_enabled", "true")],
                "Whether tables may be dropped and truncated.",
            ),
            set(&[("drop_keyspace_enabled", "true")], "Whether keyspaces may be dropped."),
            set(
                &[("compact_tables_enabled", "true")],
                "Whether tables with COMPACT STORAGE may be made.",
            ),
            set(
                &[("drop_compact_storage_enabled", "false")],
                "Whether COMPACT STORAGE may be dropped from a table.",
            )
            .or(&[("enable_drop_compact_storage", "false")]),
            set(&[("uncompressed_tables_enabled", "true")], "Whether tables may be without compression."),
            set(
                &[("zero_ttl_on_twcs_enabled", "true"), ("zero_ttl_on_twcs_warned", "true")],
                "Whether tables with TimeWindowCompactionStrategy may have a default_time_to_live of 0, and \
                 whether that gives a warning.",
            ),
        ],
    },
    Section {
        title: "Guardrails of reads",
        entries: &[
            thresholds!("page_size", "-1", "Rows of a page that a client asks for."),
            thresholds!("partition_keys_in_select", "-1", "Partitions that IN names."),
            thresholds!("in_select_cartesian_product", "-1", "The product of the lengths of IN lists."),
            set(
                &[("tombstone_warn_threshold", "1000"), ("tombstone_failure_threshold", "100000")],
                "Tombstones that one read meets: beyond the first number it gives a warning, beyond the second it \
                 fails; -1 for no limit.",
            ),
            set(
                &[("query_tombstone_page_limit", "10000")],
                "Tombstones after which a page ends, if only with few rows or none; 0 or -1 for no limit.",
            ),
            set(&[("allow_filtering_enabled", "true")], "Whether reads may have ALLOW FILTERING."),
            set(&[("group_by_enabled", "true")], "Whether reads may have GROUP BY."),
            set(&[("use_statements_enabled", "true")], "Whether USE may set a connection's keyspace."),
            set(
                &[("read_consistency_levels_warned", "[]"), ("read_consistency_levels_disallowed", "[]")],
                "Consistency levels of reads that give a warning, and those that are refused.",
            ),
        ],
    },
    Section {
        title: "Guardrails of writes",
        entries: &[
            set(
                &[("batch_size_warn_threshold", "5KiB"), ("batch_size_fail_threshold", "50KiB")],
                "Size of a batch over several partitions: beyond the first it gives a warning, beyond the second it \
                 fails.",
            )
            .or(&[("batch_size_warn_threshold_in_kb", "5"), ("batch_size_fail_threshold_in_kb", "50")]),
            set(
                &[("unlogged_batch_across_partitions_warn_threshold", "10")],
                "An unlogged batch over more partitions gives a warning; -1 for never.",
            ),
            thresholds!(
                "partition_size",
                "null",
                "Size of a partition in a table file, told in the log when the file is written."
            )
            .or(&[("compaction_large_partition_warning_threshold", "null")]),
            thresholds!(
                "partition_tombstones",
                "-1",
                "Tombstones of a partition in a table file, told in the log when the file is written."
            )
            .or(&[("compaction_tombstone_warning_threshold", "-1")]),
            thresholds!("column_value_size", "null", "Size of a value that is written."),
            thresholds!(
                "collection_size",
                "null",
                "Size of a collection, when a client writes it and, in the log, when a table file is written."
            ),
            thresholds!("items_per_collection", "-1", "Elements of a collection, at the same times."),
            thresholds!(
                "maximum_timestamp",
                "null",
                "How far a write's timestamp may lie ahead of the node's clock: a duration."
            ),
            thresholds!(
                "minimum_timestamp",
                "null",
                "How far a write's timestamp may lie behind the node's clock: a duration."
            ),
            set(
                &[("user_timestamps_enabled", "true")],
                "Whether statements may have USING TIMESTAMP.",
            ),
            set(
                &[("read_before_write_list_operations_enabled", "true")],
                "Whether elements of lists may be set and removed by position or value, which reads the list first.",
            ),
            set(
                &[("write_consistency_levels_warned", "[]"), ("write_consistency_levels_disallowed", "[]")],
                "Consistency levels of writes that give a warning, and those that are refused.",
            ),
            thresholds!(
                "data_disk_usage_percentage",
                "-1",
                "Per cent of the data's disk in use, from 1 to 100: from there on writes give a warning, or fail."
            ),
            set(
                &[("data_disk_usage_max_disk_size", "null")],
                "The size that counts as the whole disk for these two; null for that of the disk.",
            ),
        ],
    },
];
