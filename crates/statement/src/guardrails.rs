//! Guardrails: the limits beyond which an operator wants statements to warn or fail, with the names of
//! `cassandra.yaml`.
//!
//! A threshold of `None` is off, as a negative one is in the file. Names, texts and defaults are those of
//! Cassandra 5 (`org.apache.cassandra.db.guardrails`). Schema statements check them: each calls the guardrail
//! before it acts.

mod checks;

use std::collections::BTreeSet;

use wire::consistency::Consistency;

use crate::StatementError;

/// Two numbers: beyond the one there is a warning, beyond the other a refusal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Threshold {
    /// `…_warn_threshold`
    pub warn: Option<u64>,
    /// `…_fail_threshold`
    pub fail: Option<u64>,
}

/// Names of options that are warned of, left out or refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Named {
    /// `…_warned`
    pub warned: BTreeSet<String>,
    /// `…_ignored`
    pub ignored: BTreeSet<String>,
    /// `…_disallowed`
    pub disallowed: BTreeSet<String>,
}

/// Guardrails of writes; the costly checks exist only if one of them is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteGuardrails {
    /// `user_timestamps_enabled`
    pub user_timestamps: bool,
    /// `read_before_write_list_operations_enabled`
    pub read_before_write_lists: bool,
    /// `column_value_size_*_threshold`: bytes of a cell's value, or of an element's key.
    pub column_value_bytes: Threshold,
    /// `collection_size_*_threshold`: bytes of a collection as it is written.
    pub collection_bytes: Threshold,
    /// `items_per_collection_*_threshold`: elements of a collection as it is written.
    pub items_per_collection: Threshold,
    /// `maximum_timestamp_*_threshold`: microseconds that a timestamp may lie ahead.
    pub maximum_timestamp_us: Threshold,
    /// `minimum_timestamp_*_threshold`: microseconds that a timestamp may lie back.
    pub minimum_timestamp_us: Threshold,
    /// `write_consistency_levels_*`
    pub levels: Levels,
    /// `data_disk_usage_percentage_*_threshold`: percent of the disk that data may take.
    pub disk_percent: Threshold,
    /// `data_disk_usage_max_disk_size`: bytes of the disk that count; `None` for all.
    pub disk_bytes_max: Option<u64>,
}

impl Default for WriteGuardrails {
    fn default() -> Self {
        Self {
            user_timestamps: true,
            read_before_write_lists: true,
            column_value_bytes: Threshold::default(),
            collection_bytes: Threshold::default(),
            items_per_collection: Threshold::default(),
            maximum_timestamp_us: Threshold::default(),
            minimum_timestamp_us: Threshold::default(),
            levels: Levels::default(),
            disk_percent: Threshold::default(),
            disk_bytes_max: None,
        }
    }
}

/// Consistency levels that are warned of or refused, in the order of the protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Levels {
    /// `…_warned`
    pub warned: Vec<Consistency>,
    /// `…_disallowed`
    pub disallowed: Vec<Consistency>,
}

impl Levels {
    /// Refuses or warns of the levels of a request.
    pub fn check(
        &self,
        name: &str,
        what: &str,
        given: &[Consistency],
        warnings: &mut Vec<String>,
    ) -> Result<(), StatementError> {
        let shown = |levels: &[Consistency]| {
            let names: Vec<_> = levels.iter().map(ToString::to_string).collect();
            format!("[{}]", names.join(", "))
        };
        let among = |levels: &[Consistency]| -> Vec<Consistency> {
            levels.iter().filter(|level| given.contains(level)).copied().collect()
        };
        let disallowed = among(&self.disallowed);
        if !disallowed.is_empty() {
            return Err(violated(
                name,
                &format!(
                    "Provided values {} are not allowed for {what} (disallowed values are: {})",
                    shown(&disallowed),
                    shown(&self.disallowed)
                ),
            ));
        }
        let warned = among(&self.warned);
        if !warned.is_empty() {
            warnings.push(text(
                name,
                &format!(
                    "Provided values {} are not recommended for {what} (warned values are: {})",
                    shown(&warned),
                    shown(&self.warned)
                ),
            ));
        }
        Ok(())
    }
}

/// All guardrails of schema statements, of reads (`execute/guard`) and of batches (`execute/batch`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guardrails {
    /// `keyspaces_*_threshold`: keyspaces of users.
    pub keyspaces: Threshold,
    /// `tables_*_threshold`: tables of users.
    pub tables: Threshold,
    /// `columns_per_table_*_threshold`
    pub columns_per_table: Threshold,
    /// `fields_per_udt_*_threshold`
    pub fields_per_udt: Threshold,
    /// `vector_dimensions_*_threshold`
    pub vector_dimensions: Threshold,
    /// `default_keyspace_rf`: the factor of keyspaces that set none; it must be within the failing limits of
    /// the next two.
    pub default_keyspace_rf: u32,
    /// `minimum_replication_factor_*_threshold`
    pub minimum_replication_factor: Threshold,
    /// `maximum_replication_factor_*_threshold`
    pub maximum_replication_factor: Threshold,
    /// `table_properties_*`
    pub table_properties: Named,
    /// ScyllaDB's `replication_strategy_warn_list` and `replication_strategy_fail_list`, without the package.
    pub replication_strategies: Named,
    /// `alter_table_enabled`: whether columns may be added, dropped and renamed.
    pub alter_table: bool,
    /// `drop_truncate_table_enabled`
    pub drop_truncate_table: bool,
    /// `drop_keyspace_enabled`
    pub drop_keyspace: bool,
    /// `uncompressed_tables_enabled`
    pub uncompressed_tables: bool,
    /// `compact_tables_enabled`: whether tables with COMPACT STORAGE may be made.
    pub compact_tables: bool,
    /// `drop_compact_storage_enabled`: whether COMPACT STORAGE may be dropped.
    pub drop_compact_storage: bool,
    /// `vector_type_enabled`
    pub vector_type: bool,
    /// `zero_ttl_on_twcs_enabled`
    pub zero_ttl_on_twcs: bool,
    /// `zero_ttl_on_twcs_warned`
    pub zero_ttl_on_twcs_warned: bool,
    /// `page_size_*_threshold`: rows of a page that a client asks for.
    pub page_size: Threshold,
    /// `partition_keys_in_select_*_threshold`: partitions that IN names.
    pub partition_keys_in_select: Threshold,
    /// `in_select_cartesian_product_*_threshold`: the product of the lengths of IN lists.
    pub in_select_cartesian_product: Threshold,
    /// `allow_filtering_enabled`
    pub allow_filtering: bool,
    /// `group_by_enabled`
    pub group_by: bool,
    /// `read_consistency_levels_*`
    pub read_levels: Levels,
    /// Guardrails of writes; `None` if none is set.
    pub writes: Option<Box<WriteGuardrails>>,
    /// `simplestrategy_enabled`
    pub simple_strategy: bool,
    /// `use_statements_enabled`
    pub use_statements: bool,
    /// `partition_size_*_threshold`: bytes of a partition in a table file, logged when it is written.
    pub partition_bytes: Threshold,
    /// `partition_tombstones_*_threshold`: as [`Self::partition_bytes`].
    pub partition_tombstones: Threshold,
    /// `tombstone_warn_threshold` and `tombstone_failure_threshold`: tombstones of one read.
    pub tombstones: Threshold,
    /// `query_tombstone_page_limit`: dead things after which a page ends; `None` for never.
    pub tombstones_of_page: Option<u64>,
    /// `batch_size_*_threshold`: bytes of a batch over several partitions.
    pub batch_bytes: Threshold,
    /// `unlogged_batch_across_partitions_warn_threshold`
    pub unlogged_batch_partitions: Option<u64>,
}

impl Default for Guardrails {
    fn default() -> Self {
        Self {
            keyspaces: Threshold::default(),
            tables: Threshold::default(),
            columns_per_table: Threshold::default(),
            fields_per_udt: Threshold::default(),
            vector_dimensions: Threshold::default(),
            default_keyspace_rf: 1,
            minimum_replication_factor: Threshold::default(),
            maximum_replication_factor: Threshold::default(),
            table_properties: Named::default(),
            replication_strategies: Named::default(),
            alter_table: true,
            drop_truncate_table: true,
            drop_keyspace: true,
            uncompressed_tables: true,
            compact_tables: true,
            drop_compact_storage: false,
            vector_type: true,
            zero_ttl_on_twcs: true,
            zero_ttl_on_twcs_warned: true,
            page_size: Threshold::default(),
            partition_keys_in_select: Threshold::default(),
            in_select_cartesian_product: Threshold::default(),
            allow_filtering: true,
            group_by: true,
            read_levels: Levels::default(),
            writes: None,
            simple_strategy: true,
            use_statements: true,
            partition_bytes: Threshold::default(),
            partition_tombstones: Threshold::default(),
            tombstones: Threshold { warn: Some(1000), fail: Some(100_000) },
            tombstones_of_page: Some(10_000),
            batch_bytes: Threshold { warn: Some(5 << 10), fail: Some(50 << 10) },
            unlogged_batch_partitions: Some(10),
        }
    }
}

/// The error of a guardrail.
pub fn violated(name: &str, message: &str) -> StatementError {
    StatementError::Guardrail(text(name, message))
}

/// The warning of a guardrail.
pub fn warning(name: &str, message: &str) -> String {
    text(name, message)
}

fn text(name: &str, message: &str) -> String {
    format!("Guardrail {name} violated: {message}")
}

/// Whether a feature may be used.
///
/// # Errors
/// [`StatementError::Guardrail`] if it may not.
pub fn allowed(enabled: bool, name: &str, what: &str) -> Result<(), StatementError> {
    if enabled { Ok(()) } else { Err(violated(name, &format!("{what} is not allowed"))) }
}
