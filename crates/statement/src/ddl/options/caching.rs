//! The `caching` option (Cassandra's `CachingParams`), with ScyllaDB's `enabled`.

use std::collections::BTreeMap;

use model::schema::CachingOptions;

use super::config;
use crate::StatementError;

/// Reads the map after `caching =`; a missing entry counts as `NONE`.
pub(super) fn read(map: &BTreeMap<String, String>) -> Result<CachingOptions, StatementError> {
    let unknown: Vec<&str> = map
        .keys()
        .map(String::as_str)
        .filter(|name| !matches!(*name, "keys" | "rows_per_partition" | "enabled"))
        .collect();
    let enabled = match map.get("enabled") {
        None => None,
        Some(value) if value.eq_ignore_ascii_case("true") => Some(true),
        Some(value) if value.eq_ignore_ascii_case("false") => Some(false),
        Some(value) => {
            return Err(config(format!(
                "Invalid value '{value}' for caching sub-option 'enabled': only 'true' and 'false' are allowed"
            )));
        }
    };
    let keys = match map.get("keys") {
        None => "NONE",
        Some(value) if value.eq_ignore_ascii_case("ALL") => "ALL",
        Some(value) if value.eq_ignore_ascii_case("NONE") => "NONE",
        Some(value) => {
            return Err(config(format!(
                "Invalid value '{value}' for caching sub-option 'keys': only 'ALL' and 'NONE' are allowed"
            )));
        }
    };
    let rows_per_partition = match map.get("rows_per_partition") {
        None => "NONE".to_owned(),
        Some(value) => rows(value)?,
    };
    if !unknown.is_empty() {
        return Err(config(format!(
            "Invalid caching sub-options [{}]: only 'keys' and 'rows_per_partition' are allowed",
            unknown.join(", ")
        )));
    }
    Ok(CachingOptions { keys: keys.to_owned(), rows_per_partition, enabled })
}

fn rows(value: &str) -> Result<String, StatementError> {
    if value.eq_ignore_ascii_case("ALL") || value.eq_ignore_ascii_case("NONE") {
        return Ok(value.to_uppercase());
    }
    let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    match value.parse::<i32>() {
        Ok(0) if is_number => Ok("NONE".to_owned()),
        Ok(i32::MAX) if is_number => Ok("ALL".to_owned()),
        Ok(count) if is_number => Ok(count.to_string()),
        _ => Err(config(format!(
            "Invalid value '{value}' for caching sub-option 'rows_per_partition': only 'ALL', 'NONE', and integer \
             values are allowed"
        ))),
    }
}
