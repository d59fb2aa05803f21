//! The `compaction` option: strategies of Cassandra 5 and their sub-options.
//!
//! ScyllaDB's documented `IncrementalCompactionStrategy` is accepted too. The meaning of the sub-options is
//! defined in storage.

use std::collections::BTreeMap;

use model::schema::CompactionStrategy;

use super::super::properties::parse_double;
use super::{config, unified};
use crate::StatementError;
use crate::functions::number_text;

type Options = BTreeMap<String, String>;

/// Reads the map after `compaction =` into the form clients see: class in full, thresholds always where they
/// count.
pub(super) fn read(map: &Options) -> Result<Options, StatementError> {
    let Some(class) = map.get("class") else {
        return Err(config("Missing sub-option 'class' for the 'compaction' option"));
    };
    let class = CompactionStrategy::class_of(class);
    let mut options = map.clone();
    options.insert("class".to_owned(), class.clone());
    let strategy = CompactionStrategy::of(&options)
        .ok_or_else(|| config(format!("Unable to find compaction strategy class '{class}'")))?;
    if let Some(value) = map.get("provide_overlapping_tombstones") {
        let value = value.to_uppercase();
        if !matches!(value.as_str(), "NONE" | "ROW" | "CELL") {
            return Err(config(format!(
                "Invalid value {value} for 'provide_overlapping_tombstones' compaction sub-option - must be one of \
                 the following [NONE, ROW, CELL]."
            )));
        }
    }
    if strategy != CompactionStrategy::Unified {
        options.entry("min_threshold".to_owned()).or_insert_with(|| "4".to_owned());
        options.entry("max_threshold".to_owned()).or_insert_with(|| "32".to_owned());
    }
    Ok(options)
}

/// The filter's false-positive chance if the table does not set one.
pub(super) fn bloom_chance(options: &Options) -> f64 {
    match strategy(options) {
        CompactionStrategy::Leveled => 0.1,
        CompactionStrategy::SizeTiered
        | CompactionStrategy::TimeWindow
        | CompactionStrategy::Unified
        | CompactionStrategy::Incremental => 0.01,
    }
}

/// The strategy of options that [`read`] accepted, or of a table that was taken over from another database,
/// whose class may be unknown here.
fn strategy(options: &Options) -> CompactionStrategy {
    CompactionStrategy::of(options).unwrap_or(CompactionStrategy::SizeTiered)
}

/// Checks the sub-options of the strategy.
pub(super) fn check(options: &Options) -> Result<(), StatementError> {
    let strategy = strategy(options);
    check_common(options)?;
    let mut known = vec![
        "class",
        "enabled",
        "log_all",
        "only_purge_repaired_tombstones",
        "provide_overlapping_tombstones",
        "tombstone_compaction_interval",
        "tombstone_threshold",
        "unchecked_tombstone_compaction",
    ];
    const TIERS: [&str; 5] =
        ["bucket_high", "bucket_low", "max_threshold", "min_sstable_size", "min_threshold"];
    match strategy {
        CompactionStrategy::Leveled => {
            check_leveled(options)?;
            known.extend(["sstable_size_in_mb", "fanout_size", "single_sstable_uplevel"]);
        }
        CompactionStrategy::TimeWindow => {
            check_time_window(options)?;
            known.extend([
                "compaction_window_size",
                "compaction_window_unit",
                "expired_sstable_check_frequency_seconds",
                "timestamp_resolution",
                "unsafe_aggressive_sstable_expiration",
            ]);
        }
        CompactionStrategy::Unified => {
            unified::check(options)?;
            known.extend([
                "base_shard_count",
                "expired_sstable_check_frequency_seconds",
                "flush_size_override",
                "max_sstables_to_compact",
                "min_sstable_size",
                "overlap_inclusion_method",
                "scaling_parameters",
                "sstable_growth",
                "target_sstable_size",
                "unsafe_aggressive_sstable_expiration",
            ]);
        }
        CompactionStrategy::Incremental => {
            check_incremental(options)?;
            known.extend(["sstable_size_in_mb", "space_amplification_goal"]);
        }
        CompactionStrategy::SizeTiered => {}
    }
    if strategy != CompactionStrategy::Unified {
        known.extend(TIERS);
        check_tiers(options)?;
    }
    let unknown: Vec<&str> =
        options.keys().map(String::as_str).filter(|name| !known.contains(name)).collect();
    if !unknown.is_empty() {
        return Err(config(format!(
            "Properties specified [{}] are not understood by {}",
            unknown.join(", "),
            strategy.name()
        )));
    }
    check_thresholds(options)
}

fn check_common(options: &Options) -> Result<(), StatementError> {
    if let Some(text) = options.get("tombstone_threshold") {
        let value = parse_double(text).ok_or_else(|| not_an_integer(text, "tombstone_threshold"))?;
        if value < 0.0 {
            return Err(config(format!("tombstone_threshold must be greater than 0, but was {value:.6}")));
        }
    }
    if let Some(value) = integer(options, "tombstone_compaction_interval")?
        && value < 0
    {
        return Err(config(format!("tombstone_compaction_interval must be greater than 0, but was {value}")));
    }
    let is_truth = |value: &str| value.eq_ignore_ascii_case("true") || value.eq_ignore_ascii_case("false");
    let wrong = |name: &str| options.get(name).filter(|value| !is_truth(value));
    if let Some(value) = wrong("unchecked_tombstone_compaction") {
        return Err(config(format!(
            "'unchecked_tombstone_compaction' should be either 'true' or 'false', not '{value}'"
        )));
    }
    if let Some(value) = wrong("log_all") {
        return Err(config(format!("'log_all' should either be 'true' or 'false', not {value}")));
    }
    if let Some(value) = wrong("enabled") {
        return Err(config(format!("enabled should either be 'true' or 'false', not {value}")));
    }
    Ok(())
}

fn check_tiers(options: &Options) -> Result<(), StatementError> {
    if let Some(value) = integer(options, "min_sstable_size")?
        && value < 0
    {
        return Err(config(format!("min_sstable_size must be non negative: {value}")));
    }
    let double = |name: &str, default| match options.get(name) {
        None => Ok(default),
        Some(text) => {
            parse_double(text).ok_or_else(|| config(format!("{text} is not a parsable float for {name}")))
        }
    };
    let (low, high) = (double("bucket_low", 0.5)?, double("bucket_high", 1.5)?);
    if high <= low {
        return Err(config(format!(
            "bucket_high value ({}) is less than or equal to the bucket_low value ({})",
            number_text::double(high),
            number_text::double(low)
        )));
    }
    Ok(())
}

fn check_leveled(options: &Options) -> Result<(), StatementError> {
    for name in ["sstable_size_in_mb", "fanout_size"] {
        if let Some(text) = options.get(name) {
            let value: i32 = text.parse().map_err(|_| not_an_integer(text, name))?;
            if value < 1 {
                return Err(config(format!("{name} must be larger than 0, but was {value}")));
            }
        }
    }
    Ok(())
}

fn check_incremental(options: &Options) -> Result<(), StatementError> {
    if let Some(text) = options.get("sstable_size_in_mb") {
        let value: i32 = text.parse().map_err(|_| not_an_integer(text, "sstable_size_in_mb"))?;
        if value < 1 {
            return Err(config(format!("sstable_size_in_mb must be larger than 0, but was {value}")));
        }
    }
    if let Some(text) = options.get("space_amplification_goal") {
        let goal = parse_double(text)
            .ok_or_else(|| config(format!("{text} is not a parsable float for space_amplification_goal")))?;
        if !(1.0..=2.0).contains(&goal) {
            return Err(config(format!(
                "space_amplification_goal must be between 1.0 and 2.0, but was {}",
                number_text::double(goal)
            )));
        }
    }
    Ok(())
}

fn check_time_window(options: &Options) -> Result<(), StatementError> {
    let one_of = |name: &str, allowed: &[&str]| match options.get(name) {
        Some(value) if !allowed.contains(&value.as_str()) => {
            Err(config(format!("{value} is not valid for {name}")))
        }
        _ => Ok(()),
    };
    one_of("timestamp_resolution", &["SECONDS", "MILLISECONDS", "MICROSECONDS", "NANOSECONDS"])?;
    one_of("compaction_window_unit", &["MINUTES", "HOURS", "DAYS"])?;
    if let Some(text) = options.get("compaction_window_size") {
        let value: i32 = text.parse().map_err(|_| not_an_integer(text, "compaction_window_size"))?;
        if value < 1 {
            return Err(config(format!("{value} must be greater than 1 for compaction_window_size")));
        }
    }
    if let Some(value) = integer(options, "expired_sstable_check_frequency_seconds")?
        && value < 0
    {
        return Err(config(format!(
            "expired_sstable_check_frequency_seconds must not be negative, but was {value}"
        )));
    }
    check_unsafe_expiration(options)
}

fn check_unsafe_expiration(options: &Options) -> Result<(), StatementError> {
    const NAME: &str = "unsafe_aggressive_sstable_expiration";
    match options.get(NAME) {
        Some(value) if value.eq_ignore_ascii_case("true") => Err(config(format!(
            "{NAME} is requested but not allowed, restart cassandra with \
             -Dcassandra.allow_unsafe_aggressive_sstable_expiration=true to allow it"
        ))),
        Some(value) if !value.eq_ignore_ascii_case("false") => {
            Err(config(format!("{NAME} is not 'true' or 'false' ({value})")))
        }
        _ => Ok(()),
    }
}

fn check_thresholds(options: &Options) -> Result<(), StatementError> {
    let threshold = |name: &str, default: i32| match options.get(name) {
        None => Ok(default),
        Some(text) => {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<i32>().ok().filter(|_| is_number).ok_or_else(|| {
                config(format!(
                    "Invalid value {text} for '{name}' compaction sub-option - must be an integer"
                ))
            })
        }
    };
    let (min, max) = (threshold("min_threshold", 4)?, threshold("max_threshold", 32)?);
    if min <= 0 || max <= 0 {
        return Err(config(
            "Disabling compaction by setting compaction thresholds to 0 has been removed, set the compaction option \
             'enabled' to false instead.",
        ));
    }
    if min <= 1 {
        return Err(config(format!("Min compaction threshold cannot be less than 2 (got {min})")));
    }
    if min > max {
        return Err(config(format!(
            "Min compaction threshold (got {min}) cannot be greater than max compaction threshold (got {max})"
        )));
    }
    Ok(())
}

fn integer(options: &Options, name: &str) -> Result<Option<i64>, StatementError> {
    match options.get(name) {
        None => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| not_an_integer(text, name)),
    }
}

fn not_an_integer(text: &str, name: &str) -> StatementError {
    config(format!("{text} is not a parsable int (base10) for {name}"))
}
