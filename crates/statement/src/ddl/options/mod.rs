//! Table options: read from the WITH clause, checked as Cassandra checks them, and kept as
//! `model::TableOptions`.
//!
//! There are two steps, as in Cassandra, because their order decides which of two mistakes is reported:
//! `read` interprets each option by itself, `finish` then checks values and how they fit together. CREATE and
//! ALTER TABLE use it.

mod caching;
mod compaction;
mod compression;
pub mod extension;
pub mod rate_limits;
mod speculative;
mod unified;

use model::schema::{CachingOptions, TableOptions};

use super::mistake::{config, unsupported};
use super::properties::{Properties, parse_double};
use crate::StatementError;
use crate::functions::number_text;

/// Every name that may follow WITH, `id` apart.
pub(crate) const NAMES: [&str; 25] = [
    "additional_write_policy",
    "allow_auto_snapshot",
    "bloom_filter_fp_chance",
    "caching",
    "cdc",
    "comment",
    "compaction",
    "compression",
    "crc_check_chance",
    "default_time_to_live",
    "extensions",
    "gc_grace_seconds",
    "incremental_backups",
    "large_data_guardrails_enabled",
    "max_index_interval",
    "memtable",
    "memtable_flush_period_in_ms",
    "min_index_interval",
    "paxos_grace_seconds",
    "per_partition_rate_limit",
    "read_repair",
    "scylla_encryption_options",
    "speculative_retry",
    "tablets",
    "tombstone_gc",
];

/// The smallest false-positive chance the filter can be sized for (Cassandra's `BloomCalculations`).
const BLOOM_CHANCE_MIN: f64 = 6.71e-5;
/// Longest time to live, in seconds: twenty years (Cassandra's `Attributes.MAX_TTL`).
const TIME_TO_LIVE_MAX: i32 = 630_720_000;
/// Longest comment, in bytes.
const COMMENT_BYTES_MAX: usize = 65_535;

/// Options that were understood but not yet checked: numbers still have their sign.
#[derive(Debug)]
pub(crate) struct Draft {
    options: TableOptions,
    bloom_filter_fp_chance: Option<f64>,
    default_time_to_live: i32,
    gc_grace_seconds: i32,
    max_index_interval: i32,
    memtable_flush_period_in_ms: i32,
    min_index_interval: i32,
}

impl Draft {
    /// Reads the options of a new table.
    pub(crate) fn create(properties: &Properties) -> Result<Self, StatementError> {
        Self::read(properties, TableOptions::default(), None)
    }

    /// Reads the changes to the options of a table.
    pub(crate) fn alter(properties: &Properties, before: &TableOptions) -> Result<Self, StatementError> {
        Self::read(properties, before.clone(), Some(before.bloom_filter_fp_chance))
    }

    fn read(
        properties: &Properties,
        before: TableOptions,
        bloom: Option<f64>,
    ) -> Result<Self, StatementError> {
        let mut draft = Self {
            bloom_filter_fp_chance: bloom,
            default_time_to_live: signed(before.default_time_to_live),
            gc_grace_seconds: signed(before.gc_grace_seconds),
            max_index_interval: signed(before.max_index_interval),
            memtable_flush_period_in_ms: signed(before.memtable_flush_period_in_ms),
            min_index_interval: signed(before.min_index_interval),
            options: before,
        };
        let options = &mut draft.options;
        set(&mut options.allow_auto_snapshot, properties.boolean("allow_auto_snapshot")?);
        if let Some(chance) = properties.double("bloom_filter_fp_chance")? {
            draft.bloom_filter_fp_chance = Some(chance);
        }
        if let Some(map) = properties.map("caching")? {
            options.caching = caching::read(map)?;
        }
        set(&mut options.comment, properties.text("comment")?.map(str::to_owned));
        if let Some(map) = properties.map("compaction")? {
            options.compaction = compaction::read(map)?;
        }
        if let Some(map) = properties.map("compression")? {
            let (compression, chance) = compression::read(map)?;
            options.compression = compression;
            set(&mut options.crc_check_chance, chance);
        }
        if let Some(name) = properties.text("memtable")? {
            if name != "default" {
                return Err(config(format!("Memtable configuration \"{name}\" not found.")));
            }
            options.memtable = name.to_owned();
        }
        set(&mut draft.default_time_to_live, properties.integer("default_time_to_live")?);
        set(&mut draft.gc_grace_seconds, properties.integer("gc_grace_seconds")?);
        set(&mut options.incremental_backups, properties.boolean("incremental_backups")?);
        set(&mut draft.max_index_interval, properties.integer("max_index_interval")?);
        set(&mut draft.memtable_flush_period_in_ms, properties.integer("memtable_flush_period_in_ms")?);
        set(&mut draft.min_index_interval, properties.integer("min_index_interval")?);
        if let Some(policy) = properties.text("speculative_retry")? {
            options.speculative_retry = speculative::read(policy)?;
        }
        if let Some(policy) = properties.text("additional_write_policy")? {
            options.additional_write_policy = speculative::read(policy)?;
        }
        set(&mut options.crc_check_chance, properties.double("crc_check_chance")?);
        match properties.map("cdc") {
            // ScyllaDB's form.
            Ok(Some(map)) => {
                if !map.get("enabled").is_some_and(|enabled| enabled.eq_ignore_ascii_case("false")) {
                    return Err(unsupported("Logs of changes (cdc) are"));
                }
                options.cdc = false;
            }
            _ => set(&mut options.cdc, properties.boolean("cdc")?),
        }
        if let Some(strategy) = properties.text("read_repair")? {
            options.read_repair = match strategy.to_uppercase().as_str() {
                known @ ("BLOCKING" | "NONE") => known.to_owned(),
                _ => return Err(config(format!("Invalid value {strategy} for option 'read_repair'"))),
            };
        }
        extension::read(properties, options)?;
        Ok(draft)
    }

    /// Checks values and how they fit together.
    pub(crate) fn finish(self) -> Result<TableOptions, StatementError> {
        let mut options = self.options;
        compaction::check(&options.compaction)?;
        let of_strategy = compaction::bloom_chance(&options.compaction);
        // A chance of -1 stands for none that was given.
        let chance = self.bloom_filter_fp_chance.filter(|chance| *chance != -1.0).unwrap_or(of_strategy);
        if !(chance > BLOOM_CHANCE_MIN && chance <= 1.0) {
            return Err(config(format!(
                "bloom_filter_fp_chance must be larger than {} and less than or equal to 1.0 (got {})",
                number_text::double(BLOOM_CHANCE_MIN),
                number_text::double(chance)
            )));
        }
        options.bloom_filter_fp_chance = chance;
        if !(0.0..=1.0).contains(&options.crc_check_chance) {
            return Err(config(format!(
                "crc_check_chance must be larger than or equal to 0 and smaller than or equal to 1.0 (got {})",
                number_text::double(options.crc_check_chance)
            )));
        }
        options.default_time_to_live = at_least_zero("default_time_to_live", self.default_time_to_live)?;
        if self.default_time_to_live > TIME_TO_LIVE_MAX {
            return Err(config(format!(
                "default_time_to_live must be less than or equal to {TIME_TO_LIVE_MAX} (got {})",
                self.default_time_to_live
            )));
        }
        options.gc_grace_seconds = at_least_zero("gc_grace_seconds", self.gc_grace_seconds)?;
        if self.min_index_interval < 1 {
            return Err(config(format!(
                "min_index_interval must be greater than or equal to 1 (got {})",
                self.min_index_interval
            )));
        }
        if self.max_index_interval < self.min_index_interval {
            return Err(config(format!(
                "max_index_interval must be greater than or equal to min_index_interval ({}) (got {})",
                self.min_index_interval, self.max_index_interval
            )));
        }
        options.min_index_interval = self.min_index_interval.unsigned_abs();
        options.max_index_interval = self.max_index_interval.unsigned_abs();
        options.memtable_flush_period_in_ms =
            at_least_zero("memtable_flush_period_in_ms", self.memtable_flush_period_in_ms)?;
        if options.comment.len() > COMMENT_BYTES_MAX {
            return Err(config(format!("comment must not be longer than {COMMENT_BYTES_MAX} bytes")));
        }
        Ok(options)
    }

    /// The default time to live as written.
    pub(crate) fn default_time_to_live(&self) -> i32 {
        self.default_time_to_live
    }
}

/// The `caching` option as the map clients see.
pub fn caching_map(caching: &CachingOptions) -> impl Iterator<Item = (&str, &str)> {
    let enabled = caching.enabled.map(|enabled| ("enabled", if enabled { "true" } else { "false" }));
    let keys = [("keys", caching.keys.as_str()), ("rows_per_partition", &caching.rows_per_partition)];
    enabled.into_iter().chain(keys)
}

fn at_least_zero(name: &str, value: i32) -> Result<u32, StatementError> {
    u32::try_from(value)
        .map_err(|_| config(format!("{name} must be greater than or equal to 0 (got {value})")))
}

fn signed(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}
