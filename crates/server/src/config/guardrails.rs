//! The keys of guardrails and of user-defined functions, as in `cassandra.yaml`; a threshold of -1 is off.

use std::collections::BTreeSet;

use query::guardrails::Threshold;

use super::keys::{Setter, flag, size};
use super::value::Value;

pub(super) const SETTERS: &[(&str, Setter)] = &[
    ("user_defined_functions_enabled", |c, v| flag(v).map(|v| c.user_functions = v)),
    ("keyspaces_warn_threshold", |c, v| warn(&mut c.guardrails.keyspaces, v)),
    ("keyspaces_fail_threshold", |c, v| fail(&mut c.guardrails.keyspaces, v)),
    ("tables_warn_threshold", |c, v| warn(&mut c.guardrails.tables, v)),
    ("tables_fail_threshold", |c, v| fail(&mut c.guardrails.tables, v)),
    ("columns_per_table_warn_threshold", |c, v| warn(&mut c.guardrails.columns_per_table, v)),
    ("columns_per_table_fail_threshold", |c, v| fail(&mut c.guardrails.columns_per_table, v)),
    ("fields_per_udt_warn_threshold", |c, v| warn(&mut c.guardrails.fields_per_udt, v)),
    ("fields_per_udt_fail_threshold", |c, v| fail(&mut c.guardrails.fields_per_udt, v)),
    ("vector_dimensions_warn_threshold", |c, v| warn(&mut c.guardrails.vector_dimensions, v)),
    ("vector_dimensions_fail_threshold", |c, v| fail(&mut c.guardrails.vector_dimensions, v)),
    ("vector_type_enabled", |c, v| flag(v).map(|v| c.guardrails.vector_type = v)),
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
    ("batch_size_warn_threshold", |c, v| size(v).map(|v| c.guardrails.batch_bytes.warn = Some(v))),
    ("batch_size_fail_threshold", |c, v| size(v).map(|v| c.guardrails.batch_bytes.fail = Some(v))),
    ("batch_size_warn_threshold_in_kb", |c, v| kilobytes(v).map(|v| c.guardrails.batch_bytes.warn = v)),
    ("batch_size_fail_threshold_in_kb", |c, v| kilobytes(v).map(|v| c.guardrails.batch_bytes.fail = v)),
    ("unlogged_batch_across_partitions_warn_threshold", |c, v| {
        number(v).map(|v| c.guardrails.unlogged_batch_partitions = v)
    }),
    ("allow_filtering_enabled", |c, v| flag(v).map(|v| c.guardrails.allow_filtering = v)),
    ("group_by_enabled", |c, v| flag(v).map(|v| c.guardrails.group_by = v)),
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

/// Names as a list, or in one text with commas between them.
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
