//! Table options: everything after WITH, with Cassandra 5's defaults.

use std::collections::BTreeMap;

use minicbor::{Decode, Encode};

use super::CompactionStrategy;

/// Options of a table. Maps keep their entries as text, keys sorted; `query::ddl` validates them.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct TableOptions {
    /// `additional_write_policy`.
    #[n(0)]
    pub additional_write_policy: String,
    /// `allow_auto_snapshot`.
    #[n(1)]
    pub allow_auto_snapshot: bool,
    /// `bloom_filter_fp_chance`.
    #[n(2)]
    pub bloom_filter_fp_chance: f64,
    /// `caching`.
    #[n(3)]
    pub caching: CachingOptions,
    /// `cdc`.
    #[n(4)]
    pub cdc: bool,
    /// `comment`.
    #[n(5)]
    pub comment: String,
    /// `compaction`, with its full class name under `class`.
    #[n(6)]
    pub compaction: BTreeMap<String, String>,
    /// `compression`; empty or `enabled: false` for none.
    #[n(7)]
    pub compression: BTreeMap<String, String>,
    /// `memtable`.
    #[n(8)]
    pub memtable: String,
    /// `crc_check_chance`.
    #[n(9)]
    pub crc_check_chance: f64,
    /// `default_time_to_live` in seconds.
    #[n(10)]
    pub default_time_to_live: u32,
    /// `extensions`: names to bytes.
    #[n(11)]
    pub extensions: BTreeMap<String, Vec<u8>>,
    /// `gc_grace_seconds`.
    #[n(12)]
    pub gc_grace_seconds: u32,
    /// `incremental_backups`.
    #[n(13)]
    pub incremental_backups: bool,
    /// `max_index_interval`.
    #[n(14)]
    pub max_index_interval: u32,
    /// `memtable_flush_period_in_ms`.
    #[n(15)]
    pub memtable_flush_period_in_ms: u32,
    /// `min_index_interval`.
    #[n(16)]
    pub min_index_interval: u32,
    /// `read_repair`.
    #[n(17)]
    pub read_repair: String,
    /// `speculative_retry`.
    #[n(18)]
    pub speculative_retry: String,
    /// `COMPACT STORAGE`; `None` for an ordinary table.
    #[n(19)]
    pub compact: Option<CompactShape>,
}

/// The shape of a table with COMPACT STORAGE for protocols other than CQL; it has exactly one regular column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum CompactShape {
    /// Without a clustering key in CQL: the columns of the statement are static. A hidden clustering column
    /// and a hidden regular column hold columns that were never declared.
    #[n(0)]
    Static,
    /// With a clustering key: each row is its one value. If the statement has no value column, there is a
    /// hidden one of type `empty`.
    #[n(1)]
    Dense,
}

/// The `caching` option.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CachingOptions {
    /// `ALL` or `NONE`.
    #[n(0)]
    pub keys: String,
    /// `ALL`, `NONE` or a number.
    #[n(1)]
    pub rows_per_partition: String,
    /// `enabled` (ScyllaDB's), if it was given: whether rows are cached.
    #[n(2)]
    pub enabled: Option<bool>,
}

impl Default for TableOptions {
    fn default() -> Self {
        let map = |entries: &[(&str, &str)]| {
            entries.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        Self {
            additional_write_policy: "99p".into(),
            allow_auto_snapshot: true,
            bloom_filter_fp_chance: 0.01,
            caching: CachingOptions { keys: "ALL".into(), rows_per_partition: "NONE".into(), enabled: None },
            cdc: false,
            comment: String::new(),
            compaction: map(&[
                ("class", &CompactionStrategy::SizeTiered.class()),
                ("max_threshold", "32"),
                ("min_threshold", "4"),
            ]),
            compression: map(&[
                ("chunk_length_in_kb", "16"),
                ("class", "org.apache.cassandra.io.compress.LZ4Compressor"),
            ]),
            memtable: "default".into(),
            crc_check_chance: 1.0,
            default_time_to_live: 0,
            extensions: BTreeMap::new(),
            gc_grace_seconds: 864_000,
            incremental_backups: true,
            max_index_interval: 2048,
            memtable_flush_period_in_ms: 0,
            min_index_interval: 128,
            read_repair: "BLOCKING".into(),
            speculative_retry: "99p".into(),
            compact: None,
        }
    }
}
