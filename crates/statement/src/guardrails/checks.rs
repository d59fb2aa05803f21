//! The check of each guardrail, with Cassandra's messages.

use model::schema::CompactionStrategy;
use std::collections::BTreeSet;

use super::{Guardrails, Named, Threshold, allowed, text, violated};
use crate::StatementError;

impl Threshold {
    /// Whether the threshold warns or refuses at all.
    #[inline]
    pub fn is_on(self) -> bool {
        self.warn.is_some() || self.fail.is_some()
    }

    /// Refuses or warns of a greater value; the closures make the message, given the threshold.
    pub fn at_most(
        self,
        name: &str,
        value: u64,
        warnings: &mut Vec<String>,
        warning: impl FnOnce(u64) -> String,
        failure: impl FnOnce(u64) -> String,
    ) -> Result<(), StatementError> {
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

    /// Refuses or warns of a smaller value.
    pub fn at_least(
        self,
        name: &str,
        value: u64,
        warnings: &mut Vec<String>,
        message: impl Fn(&str, u64) -> String,
    ) -> Result<(), StatementError> {
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
    pub fn keyspace(
        &self,
        name: &str,
        count: usize,
        warnings: &mut Vec<String>,
    ) -> Result<(), StatementError> {
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
    pub fn table(&self, name: &str, count: usize, warnings: &mut Vec<String>) -> Result<(), StatementError> {
        self.tables.at_most(
            "tables",
            count as u64,
            warnings,
            |at| format!("Creating table {name}, current number of tables {count} exceeds warning threshold of {at}."),
            |at| format!("Cannot have more than {at} tables, aborting the creation of table {name}"),
        )
    }

    /// Checks the number of a table's columns.
    pub fn columns(
        &self,
        table: &str,
        count: usize,
        warnings: &mut Vec<String>,
    ) -> Result<(), StatementError> {
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

    /// Checks the number of a user type's fields.
    pub fn fields(&self, name: &str, count: usize, warnings: &mut Vec<String>) -> Result<(), StatementError> {
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

    /// Checks the vectors in a type of `what`, such as `Column v`.
    pub fn vectors(
        &self,
        what: &str,
        ty: &model::CqlType,
        warnings: &mut Vec<String>,
    ) -> Result<(), StatementError> {
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
    pub fn replication_factor(
        &self,
        keyspace: &str,
        factor: u64,
        warnings: &mut Vec<String>,
    ) -> Result<(), StatementError> {
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
    ) -> Result<(), StatementError> {
        let Named { warned, disallowed, .. } = &self.replication_strategies;
        if disallowed.contains(strategy) {
            return Err(StatementError::Config(format!(
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

    /// Checks the options that a table statement names; the returned ones are ignored.
    pub(crate) fn properties(
        &self,
        names: &BTreeSet<&str>,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<String>, StatementError> {
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
    pub(crate) fn alter_table(&self) -> Result<(), StatementError> {
        allowed(self.alter_table, "alter_table", "ALTER TABLE changing columns")
    }

    /// Dropping or truncating a table.
    pub fn drop_truncate_table(&self) -> Result<(), StatementError> {
        allowed(
            self.drop_truncate_table,
            "drop_truncate_table_enabled",
            "DROP and TRUNCATE TABLE functionality",
        )
    }

    /// A keyspace with SimpleStrategy.
    pub(crate) fn simple_strategy(&self) -> Result<(), StatementError> {
        allowed(self.simple_strategy, "simplestrategy", "SimpleStrategy")
    }

    /// Making a table with COMPACT STORAGE.
    pub(crate) fn compact_table(&self) -> Result<(), StatementError> {
        allowed(self.compact_tables, "compact_tables", "Creation of new COMPACT STORAGE tables")
    }

    /// Dropping a keyspace.
    pub(crate) fn drop_keyspace(&self) -> Result<(), StatementError> {
        allowed(self.drop_keyspace, "drop_keyspace_enabled", "DROP KEYSPACE functionality")
    }

    /// The options of a table as they are to be.
    pub fn options(&self, options: &model::schema::TableOptions) -> Result<(), StatementError> {
        if options.compression.get("enabled").is_some_and(|enabled| enabled == "false") {
            allowed(self.uncompressed_tables, "uncompressed_tables_enabled", "Uncompressed table")?;
        }
        Ok(())
    }

    /// Checks the options that a statement gives; the others count as default.
    pub(crate) fn given_options(
        &self,
        options: &model::schema::TableOptions,
        warnings: &mut Vec<String>,
    ) -> Result<(), StatementError> {
        const REASON: &str = "It is suspicious to use default_time_to_live set to 0 with such compaction strategy. \
            Please keep in mind that data will not start to automatically expire after they are older than a respective \
            compaction window unit of a certain size. Please set TTL for your INSERT or UPDATE statements if you expect \
            data to be expired as table settings will not do it. ";
        const WINDOWS: &str =
            "0 default_time_to_live on a table with TimeWindowCompactionStrategy compaction strategy";
        let windows = CompactionStrategy::of(&options.compaction) == Some(CompactionStrategy::TimeWindow);
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
