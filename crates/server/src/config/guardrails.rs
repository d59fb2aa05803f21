//! The keys of guardrails and of user-defined functions, as in `cassandra.yaml`; -1 turns a threshold off.

use std::collections::BTreeSet;

use query::guardrails::{Threshold, WriteGuardrails};
use wire::consistency::Consistency;

use super::Config;
use super::keys::{Setter, count, duration, flag, size};
use super::settings::{Kind, thresholds};
use super::value::Value;

/// Number of system keyspaces and tables that Cassandra's older thresholds include.
const OWN_KEYSPACES: u64 = 5;
const OWN_TABLES: u64 = 48;

pub(super) const SETTERS: &[(&str, Setter)] = &[
    ("user_defined_functions_enabled", |c, v| flag(v).map(|v| c.user_functions = v)),
    ("keyspaces_warn_threshold", |c, v| warn(&mut c.guardrails.keyspaces, v)),
    ("keyspaces_fail_threshold", |c, v| fail(&mut c.guardrails.keyspaces, v)),
    // These two older thresholds count system keyspaces and tables too.
    ("keyspace_count_warn_threshold", |c, v| {
        number(v).map(|v| c.guardrails.keyspaces.warn = v.map(|v| v.saturating_sub(OWN_KEYSPACES)))
    }),
    ("table_count_warn_threshold", |c, v| {
        number(v).map(|v| c.guardrails.tables.warn = v.map(|v| v.saturating_sub(OWN_TABLES)))
    }),
    ("tables_warn_threshold", |c, v| warn(&mut c.guardrails.tables, v)),
    ("tables_fail_threshold", |c, v| fail(&mut c.guardrails.tables, v)),
    ("columns_per_table_warn_threshold", |c, v| warn(&mut c.guardrails.columns_per_table, v)),
    ("columns_per_table_fail_threshold", |c, v| fail(&mut c.guardrails.columns_per_table, v)),
    ("fields_per_udt_warn_threshold", |c, v| warn(&mut c.guardrails.fields_per_udt, v)),
    ("fields_per_udt_fail_threshold", |c, v| fail(&mut c.guardrails.fields_per_udt, v)),
    ("vector_dimensions_warn_threshold", |c, v| warn(&mut c.guardrails.vector_dimensions, v)),
    ("vector_dimensions_fail_threshold", |c, v| fail(&mut c.guardrails.vector_dimensions, v)),
    ("vector_type_enabled", |c, v| flag(v).map(|v| c.guardrails.vector_type = v)),
    ("default_keyspace_rf", |c, v| match number(v)?.map(u32::try_from) {
        Some(Ok(factor @ 1..)) => {
            c.guardrails.default_keyspace_rf = factor;
            Ok(())
        }
        _ => Err("default_keyspace_rf cannot be less than 1".to_owned()),
    }),
    ("minimum_replication_factor_warn_threshold", |c, v| {
        warn(&mut c.guardrails.minimum_replication_factor, v)
    }),
    ("minimum_replication_factor_fail_threshold", |c, v| {
        fail(&mut c.guardrails.minimum_replication_factor, v)
    }),
    ("maximum_replication_factor_warn_threshold", |c, v| {
        warn(&mut c.guardrails.maximum_replication_factor, v)
    }),
    ("maximum_replication_factor_fail_threshold", |c, v| {
        fail(&mut c.guardrails.maximum_replication_factor, v)
    }),
    ("page_size_warn_threshold", |c, v| warn(&mut c.guardrails.page_size, v)),
    ("page_size_fail_threshold", |c, v| fail(&mut c.guardrails.page_size, v)),
    ("partition_keys_in_select_warn_threshold", |c, v| warn(&mut c.guardrails.partition_keys_in_select, v)),
    ("partition_keys_in_select_fail_threshold", |c, v| fail(&mut c.guardrails.partition_keys_in_select, v)),
    ("in_select_cartesian_product_warn_threshold", |c, v| {
        warn(&mut c.guardrails.in_select_cartesian_product, v)
    }),
    ("in_select_cartesian_product_fail_threshold", |c, v| {
        fail(&mut c.guardrails.in_select_cartesian_product, v)
    }),
    ("partition_size_warn_threshold", |c, v| bytes(v).map(|v| c.guardrails.partition_bytes.warn = v)),
    ("partition_size_fail_threshold", |c, v| bytes(v).map(|v| c.guardrails.partition_bytes.fail = v)),
    // Older names of the thresholds `partition_size` and `partition_tombstones`.
    ("compaction_large_partition_warning_threshold", |c, v| {
        bytes(v).map(|v| c.guardrails.partition_bytes.warn = v)
    }),
    ("compaction_tombstone_warning_threshold", |c, v| warn(&mut c.guardrails.partition_tombstones, v)),
    // ScyllaDB's keys. Cassandra 4 has the first one too; its log entries have the same meaning.
    ("compaction_large_partition_warning_threshold_mb", |c, v| {
        megabytes(v).map(|v| c.large_limits.partition_bytes = v)
    }),
    ("compaction_large_row_warning_threshold_mb", |c, v| megabytes(v).map(|v| c.large_limits.row_bytes = v)),
    ("compaction_large_cell_warning_threshold_mb", |c, v| {
        megabytes(v).map(|v| c.large_limits.cell_bytes = v)
    }),
    ("compaction_rows_count_warning_threshold", |c, v| count(v, 1, 1 << 40).map(|v| c.large_limits.rows = v)),
    ("compaction_collection_elements_count_warning_threshold", |c, v| {
        count(v, 1, 1 << 40).map(|v| c.large_limits.elements = v)
    }),
    ("compaction_large_data_records_per_sstable", |c, v| {
        count(v, 0, 1000).map(|v| c.large_limits.records_max = v as usize)
    }),
    ("partition_tombstones_warn_threshold", |c, v| warn(&mut c.guardrails.partition_tombstones, v)),
    ("partition_tombstones_fail_threshold", |c, v| fail(&mut c.guardrails.partition_tombstones, v)),
    ("batch_size_warn_threshold", |c, v| size(v).map(|v| c.guardrails.batch_bytes.warn = Some(v))),
    ("batch_size_fail_threshold", |c, v| size(v).map(|v| c.guardrails.batch_bytes.fail = Some(v))),
    ("batch_size_warn_threshold_in_kb", |c, v| kilobytes(v).map(|v| c.guardrails.batch_bytes.warn = v)),
    ("batch_size_fail_threshold_in_kb", |c, v| kilobytes(v).map(|v| c.guardrails.batch_bytes.fail = v)),
    ("unlogged_batch_across_partitions_warn_threshold", |c, v| {
        number(v).map(|v| c.guardrails.unlogged_batch_partitions = v)
    }),
    ("tombstone_warn_threshold", |c, v| warn(&mut c.guardrails.tombstones, v)),
    ("tombstone_failure_threshold", |c, v| fail(&mut c.guardrails.tombstones, v)),
    ("query_tombstone_page_limit", |c, v| {
        number(v).map(|v| c.guardrails.tombstones_of_page = v.filter(|most| *most > 0))
    }),
    ("user_timestamps_enabled", |c, v| flag(v).map(|v| writes(c).user_timestamps = v)),
    ("read_before_write_list_operations_enabled", |c, v| {
        flag(v).map(|v| writes(c).read_before_write_lists = v)
    }),
    ("column_value_size_warn_threshold", |c, v| bytes(v).map(|v| writes(c).column_value_bytes.warn = v)),
    ("column_value_size_fail_threshold", |c, v| bytes(v).map(|v| writes(c).column_value_bytes.fail = v)),
    ("collection_size_warn_threshold", |c, v| bytes(v).map(|v| writes(c).collection_bytes.warn = v)),
    ("collection_size_fail_threshold", |c, v| bytes(v).map(|v| writes(c).collection_bytes.fail = v)),
    ("items_per_collection_warn_threshold", |c, v| warn(&mut writes(c).items_per_collection, v)),
    ("items_per_collection_fail_threshold", |c, v| fail(&mut writes(c).items_per_collection, v)),
    ("maximum_timestamp_warn_threshold", |c, v| micros(v).map(|v| writes(c).maximum_timestamp_us.warn = v)),
    ("maximum_timestamp_fail_threshold", |c, v| micros(v).map(|v| writes(c).maximum_timestamp_us.fail = v)),
    ("minimum_timestamp_warn_threshold", |c, v| micros(v).map(|v| writes(c).minimum_timestamp_us.warn = v)),
    ("minimum_timestamp_fail_threshold", |c, v| micros(v).map(|v| writes(c).minimum_timestamp_us.fail = v)),
    ("write_consistency_levels_warned", |c, v| levels(v).map(|v| writes(c).levels.warned = v)),
    ("write_consistency_levels_disallowed", |c, v| levels(v).map(|v| writes(c).levels.disallowed = v)),
    ("read_consistency_levels_warned", |c, v| levels(v).map(|v| c.guardrails.read_levels.warned = v)),
    ("read_consistency_levels_disallowed", |c, v| levels(v).map(|v| c.guardrails.read_levels.disallowed = v)),
    ("data_disk_usage_percentage_warn_threshold", |c, v| percent(v).map(|v| writes(c).disk_percent.warn = v)),
    ("data_disk_usage_percentage_fail_threshold", |c, v| percent(v).map(|v| writes(c).disk_percent.fail = v)),
    ("data_disk_usage_max_disk_size", |c, v| bytes(v).map(|v| writes(c).disk_bytes_max = v)),
    ("use_statements_enabled", |c, v| flag(v).map(|v| c.guardrails.use_statements = v)),
    ("simplestrategy_enabled", |c, v| flag(v).map(|v| c.guardrails.simple_strategy = v)),
    ("allow_filtering_enabled", |c, v| flag(v).map(|v| c.guardrails.allow_filtering = v)),
    ("group_by_enabled", |c, v| flag(v).map(|v| c.guardrails.group_by = v)),
    ("replication_strategy_warn_list", |c, v| strategies(&mut c.guardrails.replication_strategies.warned, v)),
    ("replication_strategy_fail_list", |c, v| {
        strategies(&mut c.guardrails.replication_strategies.disallowed, v)
    }),
    ("table_properties_warned", |c, v| set(&mut c.guardrails.table_properties.warned, v)),
    ("table_properties_ignored", |c, v| set(&mut c.guardrails.table_properties.ignored, v)),
    ("table_properties_disallowed", |c, v| set(&mut c.guardrails.table_properties.disallowed, v)),
    ("alter_table_enabled", |c, v| flag(v).map(|v| c.guardrails.alter_table = v)),
    ("drop_truncate_table_enabled", |c, v| flag(v).map(|v| c.guardrails.drop_truncate_table = v)),
    ("drop_keyspace_enabled", |c, v| flag(v).map(|v| c.guardrails.drop_keyspace = v)),
    ("compact_tables_enabled", |c, v| flag(v).map(|v| c.guardrails.compact_tables = v)),
    ("drop_compact_storage_enabled", |c, v| flag(v).map(|v| c.guardrails.drop_compact_storage = v)),
    ("enable_drop_compact_storage", |c, v| flag(v).map(|v| c.guardrails.drop_compact_storage = v)),
    ("uncompressed_tables_enabled", |c, v| flag(v).map(|v| c.guardrails.uncompressed_tables = v)),
    ("zero_ttl_on_twcs_enabled", |c, v| flag(v).map(|v| c.guardrails.zero_ttl_on_twcs = v)),
    ("zero_ttl_on_twcs_warned", |c, v| flag(v).map(|v| c.guardrails.zero_ttl_on_twcs_warned = v)),
];

/// Checks that the two thresholds of each guardrail are consistent; the error has the wrong key, and the
/// reason in Cassandra's words.
///
/// Called once all keys are read, because either threshold may come first in the file.
pub(super) fn check(config: &Config) -> Result<(), (String, String)> {
    let unset = WriteGuardrails::default();
    let writes = config.guardrails.writes.as_deref().unwrap_or(&unset);
    for (name, threshold, kind) in thresholds(&config.guardrails, writes) {
        let keys = [format!("{name}_warn_threshold"), format!("{name}_fail_threshold")];
        for (key, value) in keys.iter().zip([threshold.warn, threshold.fail]) {
            if value == Some(0) && matches!(kind, Kind::Count | Kind::Least) {
                let message =
                    format!("Invalid value for {key}: 0 is not allowed; if attempting to disable use -1");
                return Err((key.clone(), message));
            }
        }
        let (Some(warn), Some(fail)) = (threshold.warn, threshold.fail) else { continue };
        let (turned, order) =
            if kind == Kind::Least { (fail > warn, "greater") } else { (fail < warn, "lower") };
        if turned {
            let text = |value| match kind {
                Kind::Time => format!("{value}"),
                _ => kind.text(Some(value)),
            };
            let message = format!(
                "The warn threshold {} for {name}_warn_threshold should be {order} than the fail threshold {}",
                text(warn),
                text(fail)
            );
            let [warn, _] = keys;
            return Err((warn, message));
        }
    }
    let times = config.user_function_times;
    if times.fail < times.warn {
        return Err((
            "user_defined_functions_warn_timeout".to_owned(),
            "user_defined_functions_warn_timeout must less than user_defined_function_fail_timeout"
                .to_owned(),
        ));
    }
    let rails = &config.guardrails;
    let factor = u64::from(rails.default_keyspace_rf);
    for (name, fail, order) in [
        ("minimum", rails.minimum_replication_factor.fail.filter(|fail| *fail > factor), "greater"),
        ("maximum", rails.maximum_replication_factor.fail.filter(|fail| *fail < factor), "lesser"),
    ] {
        if let Some(fail) = fail {
            let key = format!("{name}_replication_factor_fail_threshold");
            let message =
                format!("{key} to be set ({fail}) cannot be {order} than default_keyspace_rf ({factor})");
            return Err((key, message));
        }
    }
    Ok(())
}

fn writes(config: &mut Config) -> &mut WriteGuardrails {
    config.guardrails.writes.get_or_insert_default()
}

/// A size, or null for none.
fn bytes(value: &Value) -> Result<Option<u64>, String> {
    if matches!(value, Value::Null) { Ok(None) } else { size(value).map(Some) }
}

/// A percentage from 1 to 100, or -1 for none.
fn percent(value: &Value) -> Result<Option<u64>, String> {
    match number(value)? {
        Some(0 | 101..) => Err(format!("expected a number from 1 to 100, or -1 for none, found {value}")),
        percent => Ok(percent),
    }
}

/// A duration in microseconds, or null for none.
fn micros(value: &Value) -> Result<Option<u64>, String> {
    if matches!(value, Value::Null) {
        return Ok(None);
    }
    duration(value).map(|time| Some(u64::try_from(time.as_micros()).unwrap_or(u64::MAX)))
}

/// Consistency levels by name, sorted by their codes in the protocol.
fn levels(value: &Value) -> Result<Vec<Consistency>, String> {
    let mut names = BTreeSet::new();
    set(&mut names, value)?;
    let mut levels = names
        .iter()
        .map(|name| {
            let known =
                Consistency::ALL.into_iter().find(|level| level.to_string().eq_ignore_ascii_case(name));
            known.ok_or_else(|| format!("there is no consistency level {name}"))
        })
        .collect::<Result<Vec<_>, _>>()?;
    levels.sort_by_key(|level| level.code());
    Ok(levels)
}

/// A number of MiB, in bytes.
fn megabytes(value: &Value) -> Result<u64, String> {
    count(value, 1, 1 << 40).map(|megabytes| megabytes << 20)
}

fn kilobytes(value: &Value) -> Result<Option<u64>, String> {
    number(value).map(|number| number.map(|kilobytes| kilobytes.saturating_mul(1024)))
}

fn warn(threshold: &mut Threshold, value: &Value) -> Result<(), String> {
    number(value).map(|number| threshold.warn = number)
}

fn fail(threshold: &mut Threshold, value: &Value) -> Result<(), String> {
    number(value).map(|number| threshold.fail = number)
}

fn number(value: &Value) -> Result<Option<u64>, String> {
    match value {
        Value::Integer(-1) => Ok(None),
        Value::Integer(number) if *number >= 0 => u64::try_from(*number).map(Some).map_err(|e| e.to_string()),
        _ => Err(format!("expected a whole number, or -1 for none, found {value}")),
    }
}

/// Class names of replication strategies, stripped of their package.
fn strategies(names: &mut BTreeSet<String>, value: &Value) -> Result<(), String> {
    set(names, value)?;
    let bare = |name: &String| name.rsplit('.').next().unwrap_or(name).to_owned();
    *names = names.iter().map(bare).collect();
    Ok(())
}

/// Names as a list, or as one text separated by commas.
fn set(names: &mut BTreeSet<String>, value: &Value) -> Result<(), String> {
    let wrong = || format!("expected a list of names, found {value}");
    *names = match value {
        Value::Null => BTreeSet::new(),
        Value::Text(text) => {
            text.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
        }
        Value::List(values) => values
            .iter()
            .map(|value| if let Value::Text(name) = value { Ok(name.clone()) } else { Err(wrong()) })
            .collect::<Result<_, _>>()?,
        _ => return Err(wrong()),
    };
    Ok(())
}
