//! The configuration as names and values, for `system_views.settings`.
//!
//! Names are those of `cassandra.yaml` and `scylla.yaml`. Values are written as in Cassandra: durations and
//! sizes with their unit, unset values as `null`. Secrets are not included.

use std::fmt::Display;
use std::time::Duration;

use cql::SameNames;
use query::guardrails::{Guardrails, Levels, Named, Threshold, WriteGuardrails};

use super::Config;

/// Names and values of all settings of `config`, unordered.
pub(crate) fn list(config: &Config) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut add = |name: &str, value: String| all.push((name.to_owned(), value));
    let path = |path: &std::path::Path| path.display().to_string();
    add("workdir", path(&config.workdir));
    let data_dir = config.data_dir.clone().unwrap_or_else(|| config.workdir.join("data"));
    add("data_file_directories", format!("[{}]", path(&data_dir)));
    add("commitlog_directory", or_null(config.commitlog_dir.as_deref().map(path)));
    add("saved_caches_directory", or_null(config.saved_caches_dir.as_deref().map(path)));
    add("broadcast_address", or_null(config.topology.broadcast_address));
    add("broadcast_rpc_address", or_null(config.broadcast_rpc_address));
    add("native_shard_aware_transport_port", or_null(config.shard_aware_port));
    add("native_transport_max_frame_size", bytes(config.frame_bytes_max as u64));
    add("default_keyspace_rf", config.guardrails.default_keyspace_rf.to_string());
    add("native_transport_max_concurrent_connections", limit(config.connections_max));
    add("native_transport_max_concurrent_connections_per_ip", limit(config.connections_per_ip_max));
    add("commitlog_sync", if config.commitlog_batch { "batch" } else { "periodic" }.to_owned());
    add("commitlog_segment_size", bytes(config.commitlog_segment_bytes));
    add("max_mutation_size", or_null(config.mutation_bytes_max.map(bytes)));
    add("commitlog_total_space", or_null(config.commitlog_bytes_max.map(bytes)));
    add("memtable_total_space", or_null(config.memtable_bytes.map(bytes)));
    add("column_index_size", bytes(u64::from(config.column_index_bytes)));
    add("sstable_summary_ratio", config.sstable_summary_ratio.to_string());
    add("components_memory_reclaim_threshold", config.components_share.to_string());
    add("compaction_throughput", format!("{}MiB/s", config.compaction_bytes_per_second >> 20));
    add("concurrent_compactors", or_null(config.concurrent_compactors));
    add("smp", or_null(config.shards));
    add("memory", or_null(config.memory_bytes.map(bytes)));
    add("developer_mode", config.developer_mode.to_string());
    add("overprovisioned", config.overprovisioned.to_string());
    add("ignore_authentication", config.ignores_authentication.to_string());
    add("ignore_encryption", config.ignores_encryption.to_string());
    add("ignore_audit", config.ignores_audit.to_string());
    add("user_defined_functions_enabled", config.user_functions.to_string());
    add("user_defined_functions_warn_timeout", milliseconds(config.user_function_times.warn));
    add("user_defined_functions_fail_timeout", milliseconds(config.user_function_times.fail));
    add("shutdown_timeout", format!("{}s", config.shutdown_timeout.as_secs()));
    add("row_cache_keys_to_save", config.cache_keys_to_save.to_string());
    add("row_cache_save_period", format!("{}s", config.cache_save_period.as_secs()));
    add(
        "cql_duplicate_bind_variable_names_refer_to_same_variable",
        (config.markers.same_names == SameNames::One).to_string(),
    );
    add("cql_in_bind_variable_name_uses_uppercase_operator", config.markers.uppercase_in.to_string());
    add("alternator_ttl_period_in_seconds", config.row_expiry_period.as_secs().to_string());
    add("api_allowed_hosts", format!("[{}]", config.admin.allowed_hosts.join(", ")));
    add("default_log_level", config.log_level.name().trim_end().to_lowercase());
    add("log_format", if config.admin.log_is_json { "json" } else { "text" }.to_owned());
    add("auto_snapshot", config.admin.auto_snapshot.to_string());
    for (name, time) in [
        ("commitlog_sync_period", config.commitlog_sync_period),
        ("native_transport_timeout", config.native_timeout),
        ("read_request_timeout", config.read_timeout),
        ("range_request_timeout", config.range_timeout),
        ("write_request_timeout", config.write_timeout),
        ("cas_contention_timeout", config.cas_contention_timeout),
        ("truncate_request_timeout", config.truncate_timeout),
        ("request_timeout", config.request_timeout),
        ("slow_query_log_timeout", config.admin.slow_query_log_timeout.unwrap_or_default()),
    ] {
        add(name, milliseconds(time));
    }
    hints(config, &mut add);
    guardrails(config, &mut add);
    all
}

fn hints(config: &Config, add: &mut impl FnMut(&str, String)) {
    let hints = &config.hints;
    let rate = |bytes: u64| format!("{}KiB", bytes >> 10);
    add("hints_directory", or_null(hints.folder.as_deref().map(|path| path.display())));
    add("hinted_handoff_enabled", hints.is_on.to_string());
    add("hinted_handoff_disabled_datacenters", format!("[{}]", hints.data_centers_without.join(", ")));
    add("max_hint_window", milliseconds(hints.window));
    add("max_hints_size_per_host", bytes(hints.host_bytes_max));
    add("max_hints_file_size", bytes(hints.file_bytes_max));
    add("hints_flush_period", milliseconds(hints.sync_every));
    add("hinted_handoff_throttle", rate(hints.bytes_per_second));
    add("max_hints_delivery_threads", hints.hosts_at_once.to_string());
    add("batchlog_replay_throttle", rate(hints.batch_bytes_per_second));
}

fn guardrails(config: &Config, add: &mut impl FnMut(&str, String)) {
    let rails = &config.guardrails;
    let unset = WriteGuardrails::default();
    let writes = rails.writes.as_deref().unwrap_or(&unset);
    for (name, threshold, kind) in thresholds(rails, writes) {
        both(add, name, threshold, |value| kind.text(value));
    }
    let large = &config.large_limits;
    for (name, number) in [
        ("compaction_large_partition_warning_threshold_mb", large.partition_bytes >> 20),
        ("compaction_large_row_warning_threshold_mb", large.row_bytes >> 20),
        ("compaction_large_cell_warning_threshold_mb", large.cell_bytes >> 20),
        ("compaction_rows_count_warning_threshold", large.rows),
        ("compaction_collection_elements_count_warning_threshold", large.elements),
        ("compaction_large_data_records_per_sstable", large.records_max as u64),
    ] {
        add(name, number.to_string());
    }
    both(add, "batch_size", rails.batch_bytes, |size| Kind::Size.text(size));
    add("data_disk_usage_max_disk_size", or_null(writes.disk_bytes_max.map(bytes)));
    add("tombstone_warn_threshold", limit(rails.tombstones.warn));
    add("tombstone_failure_threshold", limit(rails.tombstones.fail));
    add("query_tombstone_page_limit", limit(rails.tombstones_of_page));
    add("unlogged_batch_across_partitions_warn_threshold", limit(rails.unlogged_batch_partitions));
    for (name, is_on) in [
        ("alter_table_enabled", rails.alter_table),
        ("allow_filtering_enabled", rails.allow_filtering),
        ("compact_tables_enabled", rails.compact_tables),
        ("drop_compact_storage_enabled", rails.drop_compact_storage),
        ("drop_keyspace_enabled", rails.drop_keyspace),
        ("drop_truncate_table_enabled", rails.drop_truncate_table),
        ("group_by_enabled", rails.group_by),
        ("read_before_write_list_operations_enabled", writes.read_before_write_lists),
        ("simplestrategy_enabled", rails.simple_strategy),
        ("uncompressed_tables_enabled", rails.uncompressed_tables),
        ("use_statements_enabled", rails.use_statements),
        ("user_timestamps_enabled", writes.user_timestamps),
        ("vector_type_enabled", rails.vector_type),
        ("zero_ttl_on_twcs_enabled", rails.zero_ttl_on_twcs),
        ("zero_ttl_on_twcs_warned", rails.zero_ttl_on_twcs_warned),
    ] {
        add(name, is_on.to_string());
    }
    let Named { warned, ignored, disallowed } = &rails.table_properties;
    for (name, names) in [("warned", warned), ("ignored", ignored), ("disallowed", disallowed)] {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        add(&format!("table_properties_{name}"), format!("[{}]", names.join(", ")));
    }
    for (name, Levels { warned, disallowed }) in
        [("read_consistency_levels", &rails.read_levels), ("write_consistency_levels", &writes.levels)]
    {
        for (which, levels) in [("warned", warned), ("disallowed", disallowed)] {
            let levels: Vec<String> = levels.iter().map(ToString::to_string).collect();
            add(&format!("{name}_{which}"), format!("[{}]", levels.join(", ")));
        }
    }
}

/// The unit of a threshold, which determines its text form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Count,
    /// A count that should not be too small: the threshold that warns is the larger one.
    Least,
    Size,
    Time,
}

impl Kind {
    pub(super) fn text(self, value: Option<u64>) -> String {
        match self {
            Self::Count | Self::Least => limit(value),
            Self::Size => or_null(value.map(bytes)),
            Self::Time => or_null(value.map(|microseconds| format!("{microseconds}us"))),
        }
    }
}

/// The guardrails that have two thresholds, by name.
pub(super) fn thresholds(
    rails: &Guardrails,
    writes: &WriteGuardrails,
) -> [(&'static str, Threshold, Kind); 18] {
    [
        ("keyspaces", rails.keyspaces, Kind::Count),
        ("tables", rails.tables, Kind::Count),
        ("columns_per_table", rails.columns_per_table, Kind::Count),
        ("fields_per_udt", rails.fields_per_udt, Kind::Count),
        ("vector_dimensions", rails.vector_dimensions, Kind::Count),
        ("minimum_replication_factor", rails.minimum_replication_factor, Kind::Least),
        ("maximum_replication_factor", rails.maximum_replication_factor, Kind::Count),
        ("page_size", rails.page_size, Kind::Count),
        ("partition_keys_in_select", rails.partition_keys_in_select, Kind::Count),
        ("in_select_cartesian_product", rails.in_select_cartesian_product, Kind::Count),
        ("items_per_collection", writes.items_per_collection, Kind::Count),
        ("data_disk_usage_percentage", writes.disk_percent, Kind::Count),
        ("partition_tombstones", rails.partition_tombstones, Kind::Count),
        ("partition_size", rails.partition_bytes, Kind::Size),
        ("column_value_size", writes.column_value_bytes, Kind::Size),
        ("collection_size", writes.collection_bytes, Kind::Size),
        ("maximum_timestamp", writes.maximum_timestamp_us, Kind::Time),
        ("minimum_timestamp", writes.minimum_timestamp_us, Kind::Time),
    ]
}

fn both(
    add: &mut impl FnMut(&str, String),
    name: &str,
    threshold: Threshold,
    text: impl Fn(Option<u64>) -> String,
) {
    add(&format!("{name}_warn_threshold"), text(threshold.warn));
    add(&format!("{name}_fail_threshold"), text(threshold.fail));
}

fn or_null(value: Option<impl Display>) -> String {
    value.map_or("null".to_owned(), |value| value.to_string())
}

fn limit(value: Option<impl Display>) -> String {
    value.map_or("-1".to_owned(), |value| value.to_string())
}

fn milliseconds(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}

/// A size with the largest unit in which it is a whole number.
fn bytes(bytes: u64) -> String {
    match bytes {
        0 => "0B".to_owned(),
        _ if bytes.is_multiple_of(1 << 30) => format!("{}GiB", bytes >> 30),
        _ if bytes.is_multiple_of(1 << 20) => format!("{}MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{}KiB", bytes >> 10),
        _ => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_written_as_cassandra_writes_them() {
        let all = list(&Config::default());
        let value = |name: &str| {
            let found = all.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("no {name}"));
            found.1.as_str()
        };
        for (name, expected) in [
            ("read_request_timeout", "5000ms"),
            ("native_transport_max_frame_size", "16MiB"),
            ("batch_size_warn_threshold", "5KiB"),
            ("column_value_size_fail_threshold", "null"),
            ("tables_warn_threshold", "-1"),
            ("native_transport_max_concurrent_connections", "-1"),
            ("write_consistency_levels_warned", "[]"),
            ("drop_keyspace_enabled", "true"),
        ] {
            assert_eq!(value(name), expected, "{name}");
        }
        // Each name is a key that a configuration file may have.
        for (name, _) in &all {
            assert!(super::super::keys::setter(name).is_some(), "{name} is no key");
        }
    }
}
