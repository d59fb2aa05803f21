//! Guardrails: what an operator wants to be warned of or refused, by the names of `cassandra.yaml`.
//!
//! A threshold of `None` is off, as a negative one is in the file. Names, texts and defaults are Cassandra 5's
//! (`org.apache.cassandra.db.guardrails`). Leaned on by schema statements; each says what it is about to do before it does.

use std::collections::BTreeSet;

use wire::consistency::Consistency;

use crate::QueryError;

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

/// Guardrails of writes; what costs something is there only where one of them is set.
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
    pub(crate) fn check(
        &self,
        name: &str,
        what: &str,
        given: &[Consistency],
        warnings: &mut Vec<String>,
    ) -> Result<(), QueryError> {
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
    /// `default_keyspace_rf`: the factor of keyspaces that name none; what the next two fail at has to allow it.
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
    /// `in_select_cartesian_product_*_threshold`: what IN lists multiply to.
    pub in_select_cartesian_product: Threshold,
    /// `allow_filtering_enabled`
    pub allow_filtering: bool,
    /// `group_by_enabled`
    pub group_by: bool,
    /// `read_consistency_levels_*`
    pub read_levels: Levels,
    /// Those of writes; `None` where none is set.
    pub writes: Option<Box<WriteGuardrails>>,
    /// `simplestrategy_enabled`
    pub simple_strategy: bool,
    /// `use_statements_enabled`
    pub use_statements: bool,
    /// `partition_size_*_threshold`: bytes of a partition in a table file, told in the log when it is written.
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
pub(crate) fn violated(name: &str, message: &str) -> QueryError {
    QueryError::Guardrail(text(name, message))
}

/// The warning of a guardrail.
pub(crate) fn warning(name: &str, message: &str) -> String {
    text(name, message)
}

fn text(name: &str, message: &str) -> String {
    format!("Guardrail {name} violated: {message}")
}

impl Threshold {
    /// Whether it warns or refuses at all.
    #[inline]
    pub(crate) fn is_on(self) -> bool {
        self.warn.is_some() || self.fail.is_some()
    }

    /// Refuses or warns of what is above; the closures say how, given the threshold.
    pub(crate) fn at_most(
        self,
        name: &str,
        value: u64,
        warnings: &mut Vec<String>,
        warning: impl FnOnce(u64) -> String,
        failure: impl FnOnce(u64) -> String,
    ) -> Result<(), QueryError> {
        match self {
            Self { fail: Some(threshold), .. } if value > threshold => {
                Err(violated(name, &failure(threshold)))
            }
            Self { warn: Some(threshold), .. } if value > threshold => {
                warnings.push(text(name, &warning(threshold)));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Refuses or warns of what is below.
    pub(crate) fn at_least(
        self,
        name: &str,
        value: u64,
        warnings: &mut Vec<String>,
        message: impl Fn(&str, u64) -> String,
    ) -> Result<(), QueryError> {
        match self {
            Self { fail: Some(threshold), .. } if value < threshold => {
                Err(violated(name, &message("failure", threshold)))
            }
            Self { warn: Some(threshold), .. } if value < threshold => {
                warnings.push(text(name, &message("warning", threshold)));
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl Guardrails {
    /// One more keyspace, after which there are `count`.
    pub(crate) fn keyspace(
        &self,
        name: &str,
        count: usize,
        warnings: &mut Vec<String>,
    ) -> Result<(), QueryError> {
        self.keyspaces.at_most(
            "keyspaces",
            count as u64,
            warnings,
            |at| {
                format!("Creating keyspace {name}, current number of keyspaces {count} exceeds warning threshold of {at}.")
            },
            |at| format!("Cannot have more than {at} keyspaces, aborting the creation of keyspace {name}"),
        )
    }

    /// One more table, after which there are `count`.
    pub(crate) fn table(
        &self,
        name: &str,
        count: usize,
        warnings: &mut Vec<String>,
    ) -> Result<(), QueryError> {
        self.tables.at_most(
            "tables",
            count as u64,
            warnings,
            |at| format!("Creating table {name}, current number of tables {count} exceeds warning threshold of {at}."),
            |at| format!("Cannot have more than {at} tables, aborting the creation of table {name}"),
        )
    }

    /// A table of so many columns.
    pub(crate) fn columns(
        &self,
        table: &str,
        count: usize,
        warnings: &mut Vec<String>,
    ) -> Result<(), QueryError> {
        self.columns_per_table.at_most(
            "columns_per_table",
            count as u64,
            warnings,
            |at| {
                format!("The table {table} has {count} columns, this exceeds the warning threshold of {at}.")
            },
            |at| format!("Tables cannot have more than {at} columns, but {count} provided for table {table}"),
        )
    }

    /// A user type of so many fields.
    pub(crate) fn fields(
        &self,
        name: &str,
        count: usize,
        warnings: &mut Vec<String>,
    ) -> Result<(), QueryError> {
        self.fields_per_udt.at_most(
            "fields_per_udt",
            count as u64,
            warnings,
            |at| format!("The user type {name} has {count} columns, this exceeds the warning threshold of {at}."),
            |at| {
                format!("User types cannot have more than {at} columns, but {count} provided for user type {name}.")
            },
        )
    }

    /// A type of `what`, such as `Column v`, for the vectors in it.
    pub(crate) fn vectors(
        &self,
        what: &str,
        ty: &model::CqlType,
        warnings: &mut Vec<String>,
    ) -> Result<(), QueryError> {
        use model::CqlType as T;
        match ty {
            T::Vector { element, dimension } => {
                if !self.vector_type {
                    return Err(violated("vector_type_enabled", &format!("{what} is not allowed")));
                }
                let message = |word: &str, at: u64| {
                    format!(
                        "{what} has a vector of {dimension} dimensions, this exceeds the {word} threshold of {at}."
                    )
                };
                self.vector_dimensions.at_most(
                    "vector_dimensions",
                    u64::from(*dimension),
                    warnings,
                    |at| message("warning", at),
                    |at| message("failure", at),
                )?;
                self.vectors(what, element, warnings)
            }
            T::List { element, .. } | T::Set { element, .. } => self.vectors(what, element, warnings),
            T::Map { key, value, .. } => {
                self.vectors(what, key, warnings)?;
                self.vectors(what, value, warnings)
            }
            T::Tuple(types) => types.iter().try_for_each(|ty| self.vectors(what, ty, warnings)),
            _ => Ok(()),
        }
    }

    /// A replication factor of a keyspace.
    pub(crate) fn replication_factor(
        &self,
        keyspace: &str,
        factor: u64,
        warnings: &mut Vec<String>,
    ) -> Result<(), QueryError> {
        let message = |side: &str, word: &str, at: u64| {
            format!(
                "The keyspace {keyspace} has a replication factor of {factor}, {side} the {word} threshold of {at}."
            )
        };
        self.minimum_replication_factor.at_least(
            "minimum_replication_factor",
            factor,
            warnings,
            |word, at| message("below", word, at),
        )?;
        self.maximum_replication_factor.at_most(
            "maximum_replication_factor",
            factor,
            warnings,
            |at| message("above", "warning", at),
            |at| message("above", "failure", at),
        )
    }

    /// The replication strategy that a keyspace is given, without its package.
    pub(crate) fn replication_strategy(
        &self,
        keyspace: &str,
        strategy: &str,
        warnings: &mut Vec<String>,
    ) -> Result<(), QueryError> {
        let Named { warned, disallowed, .. } = &self.replication_strategies;
        if disallowed.contains(strategy) {
            return Err(QueryError::Config(format!(
                "{strategy} replication class is not allowed for keyspace {keyspace} (see replication_strategy_fail_list)"
            )));
        }
        if warned.contains(strategy) {
            warnings.push(format!(
                "Using {strategy} replication class for keyspace {keyspace} is not recommended (see \
                 replication_strategy_warn_list)"
            ));
        }
        Ok(())
    }

    /// The options a table statement names; those in the answer are left out.
    pub(crate) fn properties(
        &self,
        names: &BTreeSet<&str>,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<String>, QueryError> {
        const NAME: &str = "table_properties";
        let shown =
            |names: &mut dyn Iterator<Item = &str>| format!("[{}]", names.collect::<Vec<_>>().join(", "));
        let given = |known: &BTreeSet<String>| -> Vec<String> {
            known.iter().filter(|name| names.contains(name.as_str())).cloned().collect()
        };
        let named = &self.table_properties;
        let list = |found: &[String]| shown(&mut found.iter().map(String::as_str));
        let all = |known: &BTreeSet<String>| shown(&mut known.iter().map(String::as_str));
        let disallowed = given(&named.disallowed);
        if !disallowed.is_empty() {
            return Err(violated(
                NAME,
                &format!(
                    "Provided values {} are not allowed for Table Properties (disallowed values are: {})",
                    list(&disallowed),
                    all(&named.disallowed)
                ),
            ));
        }
        let ignored = given(&named.ignored);
        if !ignored.is_empty() {
            warnings.push(text(
                NAME,
                &format!(
                    "Ignoring provided values {} as they are not supported for Table Properties (ignored values are: {})",
                    list(&ignored),
                    all(&named.ignored)
                ),
            ));
        }
        let warned = given(&named.warned);
        if !warned.is_empty() {
            warnings.push(text(
                NAME,
                &format!(
                    "Provided values {} are not recommended for Table Properties (warned values are: {})",
                    list(&warned),
                    all(&named.warned)
                ),
            ));
        }
        Ok(ignored)
    }

    /// Changing the columns of a table.
    pub(crate) fn alter_table(&self) -> Result<(), QueryError> {
        allowed(self.alter_table, "alter_table", "ALTER TABLE changing columns")
    }

    /// Dropping or truncating a table.
    pub(crate) fn drop_truncate_table(&self) -> Result<(), QueryError> {
        allowed(
            self.drop_truncate_table,
            "drop_truncate_table_enabled",
            "DROP and TRUNCATE TABLE functionality",
        )
    }

    /// A keyspace with SimpleStrategy.
    pub(crate) fn simple_strategy(&self) -> Result<(), QueryError> {
        allowed(self.simple_strategy, "simplestrategy", "SimpleStrategy")
    }

    /// Making a table with COMPACT STORAGE.
    pub(crate) fn compact_table(&self) -> Result<(), QueryError> {
        allowed(self.compact_tables, "compact_tables", "Creation of new COMPACT STORAGE tables")
    }

    /// Dropping a keyspace.
    pub(crate) fn drop_keyspace(&self) -> Result<(), QueryError> {
        allowed(self.drop_keyspace, "drop_keyspace_enabled", "DROP KEYSPACE functionality")
    }

    /// The options of a table as they are to be.
    pub(crate) fn options(&self, options: &model::schema::TableOptions) -> Result<(), QueryError> {
        if options.compression.get("enabled").is_some_and(|enabled| enabled == "false") {
            allowed(self.uncompressed_tables, "uncompressed_tables_enabled", "Uncompressed table")?;
        }
        Ok(())
    }

    /// The options a statement gives, others as if the table had none.
    pub(crate) fn given_options(
        &self,
        options: &model::schema::TableOptions,
        warnings: &mut Vec<String>,
    ) -> Result<(), QueryError> {
        const REASON: &str = "It is suspicious to use default_time_to_live set to 0 with such compaction strategy. \
            Please keep in mind that data will not start to automatically expire after they are older than a respective \
            compaction window unit of a certain size. Please set TTL for your INSERT or UPDATE statements if you expect \
            data to be expired as table settings will not do it. ";
        const WINDOWS: &str =
            "0 default_time_to_live on a table with TimeWindowCompactionStrategy compaction strategy";
        let windows = options
            .compaction
            .get("class")
            .is_some_and(|class| class.ends_with("TimeWindowCompactionStrategy"));
        if windows && options.default_time_to_live == 0 {
            if !self.zero_ttl_on_twcs {
                let message = format!("{WINDOWS} is not allowed. {REASON}");
                return Err(violated("zero_ttl_on_twcs", &message));
            }
            if self.zero_ttl_on_twcs_warned {
                let message = format!("{WINDOWS} is not recommended. {REASON}");
                warnings.push(text("zero_ttl_on_twcs", &message));
            }
        }
        Ok(())
    }
}

pub(crate) fn allowed(enabled: bool, name: &str, what: &str) -> Result<(), QueryError> {
    if enabled { Ok(()) } else { Err(violated(name, &format!("{what} is not allowed"))) }
}
