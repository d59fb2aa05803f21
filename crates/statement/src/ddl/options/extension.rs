//! Table options that ScyllaDB documents and Cassandra does not have: `paxos_grace_seconds`,
//! `per_partition_rate_limit`, `tablets`, `tombstone_gc`.
//!
//! They are kept as extensions of the table, each as bytes. `replication::admission` reads the limits,
//! `storage::compaction::purge` the mode, and `table_create` the number of tablets. `paxos_grace_seconds`,
//! the time for which the state of conditional writes is kept, matters only to nodes that agree on such
//! writes; one node has no such state. Invariant: kept values were checked here, and an option that is not
//! given leaves no extension, so that a table with Cassandra's options only has none. (CQL: ddl.rst
//! "Tombstones GC options" and "Per-table tablet options", cql-extensions.md "Per-partition rate limit".)

use std::collections::BTreeMap;

use super::rate_limits::{EXTENSION as RATE_LIMIT, RateLimits};
use model::schema::{KeyspaceTablets, TableOptions};
use model::tablet::TabletMap;

use super::{Properties, config, parse_double, unsupported};
use crate::StatementError;

/// Names of the options; they are names of extensions too.
const NAMES: [&str; 4] = [PAXOS_GRACE, RATE_LIMIT, TABLETS, TOMBSTONE_GC];
const PAXOS_GRACE: &str = "paxos_grace_seconds";
const TABLETS: &str = "tablets";
const TOMBSTONE_GC: &str = "tombstone_gc";

const READS: &str = "max_reads_per_second";
const WRITES: &str = "max_writes_per_second";
const MODE: &str = "mode";
const DELAY: &str = "propagation_delay_in_seconds";
const MODES: [&str; 4] = ["timeout", "repair", "disabled", "immediate"];
const EXPECTED_GB: &str = "expected_data_size_in_gb";
const PER_SHARD: &str = "min_per_shard_tablet_count";
const COUNT: &str = "min_tablet_count";

/// Most tablets of one table on one shard, whatever its options ask for: each costs memory of its own.
const TABLETS_PER_SHARD_MAX: f64 = 128.0;
/// Size in GB at which a tablet is large enough.
const TABLET_GB: f64 = 5.0;

/// Reads these options, as far as the statement gives them, into `options`.
///
/// # Errors
/// [`StatementError::Config`] for entries that are missing, are no numbers or out of range;
/// [`StatementError::Invalid`] for options that are not supported yet.
pub(super) fn read(properties: &Properties, options: &mut TableOptions) -> Result<(), StatementError> {
    if properties.boolean("large_data_guardrails_enabled")? == Some(true) {
        return Err(unsupported("Guardrails of large data are"));
    }
    if properties.map("scylla_encryption_options")?.is_some_and(|map| !map.is_empty()) {
        return Err(unsupported("Table files that are encrypted are"));
    }
    let mut set = |name: &str, bytes: Option<Vec<u8>>| match bytes {
        Some(bytes) => drop(options.extensions.insert(name.to_owned(), bytes)),
        None => drop(options.extensions.remove(name)),
    };
    if let Some(seconds) = properties.integer(PAXOS_GRACE)? {
        if seconds < 0 {
            return Err(config(format!("{PAXOS_GRACE} must be greater than or equal to 0 (got {seconds})")));
        }
        set(PAXOS_GRACE, Some(seconds.to_string().into_bytes()));
    }
    if let Some(map) = properties.map(RATE_LIMIT)? {
        check_names(RATE_LIMIT, map, &[READS, WRITES])?;
        let limits =
            RateLimits { reads: whole(RATE_LIMIT, map, READS)?, writes: whole(RATE_LIMIT, map, WRITES)? };
        set(RATE_LIMIT, (limits != RateLimits::default()).then(|| limits.encode()));
    }
    if let Some(map) = properties.map(TABLETS)? {
        check_names(TABLETS, map, &[EXPECTED_GB, PER_SHARD, COUNT])?;
        let mut kept = BTreeMap::new();
        for name in [EXPECTED_GB, COUNT] {
            kept.extend(whole(TABLETS, map, name)?.map(|count| (name, count.to_string())));
        }
        if let Some(text) = map.get(PER_SHARD) {
            let count = parse_double(text).filter(|count| count.is_finite() && *count >= 0.0);
            count.ok_or_else(|| {
                config(format!("{PER_SHARD} of {TABLETS} must be a number of 0 or more (got {text})"))
            })?;
            kept.insert(PER_SHARD, text.clone());
        }
        set(TABLETS, (!kept.is_empty()).then(|| text_of(&kept).into_bytes()));
    }
    if let Some(map) = properties.map(TOMBSTONE_GC)? {
        check_names(TOMBSTONE_GC, map, &[MODE, DELAY])?;
        let mode = map.get(MODE).map_or("timeout".to_owned(), |mode| mode.to_lowercase());
        if !MODES.contains(&mode.as_str()) {
            return Err(config(format!(
                "Invalid {MODE} '{mode}' of {TOMBSTONE_GC}: only 'timeout', 'repair', 'disabled' and 'immediate' are \
                 allowed"
            )));
        }
        let mut kept = BTreeMap::from([(MODE, mode)]);
        kept.extend(whole(TOMBSTONE_GC, map, DELAY)?.map(|delay| (DELAY, delay.to_string())));
        set(TOMBSTONE_GC, (!map.is_empty()).then(|| text_of(&kept).into_bytes()));
    }
    Ok(())
}

/// The options of these that a table has, as they are written behind WITH, by name; and whether an extension
/// is one.
pub fn described(options: &TableOptions) -> impl Iterator<Item = (&str, String)> {
    NAMES.iter().filter_map(|name| {
        let bytes = options.extensions.get(*name)?;
        let text = match *name {
            RATE_LIMIT => {
                let limits = RateLimits::decode(bytes);
                let given = [(READS, limits.reads), (WRITES, limits.writes)];
                text_of(
                    &given
                        .iter()
                        .filter_map(|(name, limit)| Some((*name, limit.as_ref()?.to_string())))
                        .collect(),
                )
            }
            _ => String::from_utf8_lossy(bytes).into_owned(),
        };
        Some((*name, text))
    })
}

/// Whether an extension is shown as an option of its own.
pub fn is_option(name: &str) -> bool {
    NAMES.contains(&name)
}

/// The tablets a table with these options starts with on a node of `shards` shards: the most that any of
/// them, or the `initial` ones of its keyspace, ask for, one for each shard at least.
pub fn tablets(options: &TableOptions, keyspace: Option<&KeyspaceTablets>, shards: usize) -> TabletMap {
    let least = TabletMap::for_shards(shards);
    let text =
        options.extensions.get(TABLETS).map(|bytes| String::from_utf8_lossy(bytes)).unwrap_or_default();
    let initial = keyspace.and_then(|tablets| tablets.initial).unwrap_or(0);
    let shards = shards as f64;
    // Written by `text_of`: names and numbers between quotes.
    let words: Vec<&str> = text.split('\'').collect();
    let asked = words.iter().zip(words.iter().skip(2)).map(|(name, value)| {
        let value = parse_double(value).unwrap_or(0.0);
        match *name {
            EXPECTED_GB => value / TABLET_GB,
            PER_SHARD => value * shards,
            COUNT => value,
            _ => 0.0,
        }
    });
    let most = asked.fold(f64::from(initial), f64::max).min(TABLETS_PER_SHARD_MAX * shards);
    if most > f64::from(least.count()) { TabletMap::for_shards(most.ceil() as usize) } else { least }
}

fn check_names(option: &str, map: &BTreeMap<String, String>, known: &[&str]) -> Result<(), StatementError> {
    match map.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => {
            Err(config(format!("Unknown entry '{name}' of {option}: there are only {}", known.join(", "))))
        }
        None => Ok(()),
    }
}

fn whole(option: &str, map: &BTreeMap<String, String>, name: &str) -> Result<Option<u32>, StatementError> {
    let Some(text) = map.get(name) else { return Ok(None) };
    let number = text.parse::<i32>().ok().and_then(|number| u32::try_from(number).ok());
    number.map(Some).ok_or_else(|| {
        config(format!("{name} of {option} must be a whole number from 0 to {} (got {text})", i32::MAX))
    })
}

fn text_of(map: &BTreeMap<&str, String>) -> String {
    let entries: Vec<String> = map.iter().map(|(name, value)| format!("'{name}': '{value}'")).collect();
    format!("{{{}}}", entries.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_starts_with_the_most_tablets_any_option_asks_for() {
        let tablets = |text: &str, shards| {
            let mut options = TableOptions::default();
            options.extensions.insert(TABLETS.to_owned(), text.as_bytes().to_vec());
            tablets(&options, None, shards).count()
        };
        assert_eq!(super::tablets(&TableOptions::default(), None, 3).count(), 4);
        let initial = |count| KeyspaceTablets { initial: Some(count), ..KeyspaceTablets::default() };
        assert_eq!(super::tablets(&TableOptions::default(), Some(&initial(9)), 3).count(), 16);
        assert_eq!(super::tablets(&TableOptions::default(), Some(&initial(0)), 3).count(), 4);
        for (text, shards, expected) in [
            ("{}", 2, 2),
            ("{'min_tablet_count': '5'}", 2, 8),
            ("{'min_tablet_count': '1'}", 2, 2),
            ("{'min_per_shard_tablet_count': '2.5', 'min_tablet_count': '4'}", 2, 8),
            ("{'expected_data_size_in_gb': '100'}", 1, 32),
            ("{'min_tablet_count': '2000000000'}", 2, 256),
        ] {
            assert_eq!(tablets(text, shards), expected, "{text} on {shards}");
        }
    }
}
