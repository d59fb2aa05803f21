//! The columns and the schema: `-col` and `-schema`.

use super::command::{Command, Work};
use super::groups_or_help;
use crate::stress::StressError;
use crate::stress::arguments::Arguments;
use crate::stress::distribution::Factory;
use crate::stress::options::{ANYTHING, DIGITS, Group, Opt, Pattern, distribution, flag, multi, simple};

/// Most columns of a table that is made.
const COLUMNS_MAX: i64 = 32_768;
/// Longest generated value in bytes.
const VALUE_BYTES_MAX: i64 = 128 << 20;

/// The columns.
#[derive(Debug, Clone)]
pub(in crate::stress) struct Columns {
    /// Their names, in order of bytes.
    pub(in crate::stress) names: Vec<String>,
    pub(in crate::stress) size: Factory,
    count: Factory,
    comparator: String,
    pub(in crate::stress) timestamp: Option<i64>,
    pub(in crate::stress) slice: bool,
    is_count_variable: bool,
}

const COMPARATOR: Pattern = Pattern {
    text: "TimeUUIDType|AsciiType|UTF8Type",
    accepts: |text| ["timeuuidtype", "asciitype", "utf8type"].contains(&&*text.to_lowercase()),
};

pub(super) fn column_groups() -> Vec<Group> {
    let others = || -> Vec<Opt> {
        vec![
            flag("slice", "If set, range slices will be used for reads, otherwise a names query will be"),
            simple(
                "super=",
                DIGITS,
                Some("0"),
                "Number of super columns to use (no super columns used if not specified)",
            ),
            simple("comparator=", COMPARATOR, Some("AsciiType"), "Column Comparator to use"),
            simple(
                "timestamp=",
                DIGITS,
                None,
                "If set, all columns will be written with the given timestamp",
            ),
            distribution("size=", Some("FIXED(34)"), "Cell size distribution"),
        ]
    };
    let names = simple("names=", ANYTHING, None, "Column names").required();
    let count = distribution("n=", Some("FIXED(5)"), "Cell count distribution, per operation");
    vec![
        Group::new(std::iter::once(names).chain(others()).collect()),
        Group::new(std::iter::once(count).chain(others()).collect()),
    ]
}

impl Columns {
    pub(super) fn take(arguments: &mut Arguments) -> Result<Self, StressError> {
        let parameters = arguments.take(&["-col"]).unwrap_or_default();
        let group = groups_or_help("-col", &parameters, column_groups(), &column_groups())?;
        let size = group.distribution("size=")?.unwrap_or_else(|| Factory::fixed(34));
        let sizes = size.build(0);
        if sizes.min() < 0 || sizes.max() > VALUE_BYTES_MAX {
            return Err(StressError::Usage(format!(
                "cell sizes must be between 0 and {VALUE_BYTES_MAX} bytes"
            )));
        }
        let is_counted = group.declares("n=");
        let (mut names, count): (Vec<String>, _) = if is_counted {
            let count = group.distribution("n=")?.unwrap_or_else(|| Factory::fixed(5));
            let columns = count.build(0).max();
            if !(1..=COLUMNS_MAX).contains(&columns) {
                return Err(StressError::Usage(format!("between 1 and {COLUMNS_MAX} columns can be made")));
            }
            ((0..columns).map(|number| format!("C{number}")).collect(), count)
        } else {
            let names: Vec<_> =
                group.value("names=").unwrap_or_default().split(',').map(str::to_owned).collect();
            let count = Factory::fixed(names.len() as i64);
            (names, count)
        };
        names.sort_unstable();
        let counts = count.build(0);
        let timestamp = group.value("timestamp=").map(|text| {
            text.parse().map_err(|_| StressError::Usage(format!("For input string: \"{text}\"")))
        });
        Ok(Self {
            names,
            size,
            is_count_variable: counts.min() < counts.max(),
            count,
            comparator: group.value("comparator=").unwrap_or_default().to_owned(),
            timestamp: timestamp.transpose()?,
            slice: group.is_set("slice"),
        })
    }

    /// # Errors
    /// [`StressError::Usage`] for options that the CQL commands do not support.
    pub(super) fn check(&self, command: &Command) -> Result<(), StressError> {
        if self.is_count_variable && !matches!(command.work, Work::User { .. }) {
            let message = "Variable column counts are not implemented for CQL";
            return Err(StressError::Usage(message.to_owned()));
        }
        Ok(())
    }

    pub(super) fn describe(&self, lines: &mut Vec<String>) {
        let timestamp = self.timestamp.map_or_else(|| "null".to_owned(), |number| number.to_string());
        lines.push("Columns:".to_owned());
        lines.push(format!("  Max Columns Per Key: {}", self.names.len()));
        lines.push(format!("  Column Names: [{}]", self.names.join(", ")));
        lines.push(format!("  Comparator: {}", self.comparator));
        lines.push(format!("  Timestamp: {timestamp}"));
        lines.push(format!("  Variable Column Count: {}", self.is_count_variable));
        lines.push(format!("  Slice: {}", self.slice));
        lines.push(format!("  Size Distribution: {}", self.size.describe()));
        lines.push(format!("  Count Distribution: {}", self.count.describe()));
    }
}

/// The tables that are made.
#[derive(Debug, Clone)]
pub(in crate::stress) struct Schema {
    /// The keyspace; a profile has its own.
    pub(in crate::stress) keyspace: Option<String>,
    strategy: String,
    strategy_options: Vec<(String, String)>,
    compression: Option<String>,
    compaction: Option<String>,
    compaction_options: Vec<(String, String)>,
}

const SIMPLE_STRATEGY: &str = "org.apache.cassandra.locator.SimpleStrategy";

pub(super) fn schema_groups() -> Vec<Group> {
    let replication = vec![
        simple("strategy=", ANYTHING, Some(SIMPLE_STRATEGY), "The replication strategy to use"),
        simple("factor=", DIGITS, Some("1"), "The number of replicas"),
    ];
    let compaction = vec![simple("strategy=", ANYTHING, None, "The compaction strategy to use")];
    vec![Group::new(vec![
        multi("replication", replication, true, "Define the replication strategy and any parameters"),
        simple("keyspace=", ANYTHING, Some("keyspace1"), "The keyspace name to use"),
        multi("compaction", compaction, true, "Define the compaction strategy and any parameters"),
        simple(
            "compression=",
            ANYTHING,
            None,
            "Specify the compression to use for sstable, default:no compression",
        ),
    ])]
}

impl Schema {
    pub(super) fn take(arguments: &mut Arguments, command: &Command) -> Result<Self, StressError> {
        let parameters = arguments.take(&["-schema"]);
        let is_user = matches!(command.work, Work::User { .. });
        if is_user && parameters.is_some() {
            let message = "-schema can only be provided with predefined operations insert, read, etc.; the 'user' \
                           command requires a schema yaml instead";
            return Err(StressError::Usage(message.to_owned()));
        }
        let parameters = parameters.unwrap_or_default();
        let group = groups_or_help("-schema", &parameters, schema_groups(), &schema_groups())?;
        let (replication, mut strategy_options) = group.multi("replication");
        let strategy = strategy(replication.value("strategy=").unwrap_or(SIMPLE_STRATEGY))?;
        let has_factor = strategy_options.iter().any(|(key, _)| key == "replication_factor");
        if !has_factor && (strategy == SIMPLE_STRATEGY || replication.is_set("factor=")) {
            let factor = replication.value("factor=").unwrap_or("1");
            strategy_options.push(("replication_factor".to_owned(), factor.to_owned()));
        }
        let (compaction, compaction_options) = group.multi("compaction");
        let schema = Self {
            keyspace: (!is_user).then(|| group.value("keyspace=").unwrap_or("keyspace1").to_owned()),
            strategy,
            strategy_options,
            compression: group.value("compression=").map(str::to_owned),
            compaction: compaction.value("strategy=").map(str::to_owned),
            compaction_options,
        };
        Ok(schema)
    }

    /// The statement that makes the keyspace.
    pub(in crate::stress) fn create_keyspace(&self) -> String {
        let keyspace = self.keyspace.as_deref().unwrap_or_default();
        let mut text = format!(
            "CREATE KEYSPACE IF NOT EXISTS \"{keyspace}\" WITH replication = {{'class': '{}'",
            self.strategy
        );
        if self.strategy_options.is_empty() {
            text.push_str(", 'replication_factor': '1'}");
        } else {
            for (key, value) in &self.strategy_options {
                text.push_str(&format!(", '{key}' : '{value}'"));
            }
            text.push('}');
        }
        text.push_str(" AND durable_writes = true;\n");
        text
    }

    /// The statement that makes the table of blobs.
    pub(in crate::stress) fn create_standard(&self, columns: &[String]) -> String {
        let head = "CREATE TABLE IF NOT EXISTS standard1 (key blob PRIMARY KEY ";
        self.create_table(head, columns, "blob")
    }

    /// The statement that makes the table of counters.
    pub(in crate::stress) fn create_counter(&self, columns: &[String]) -> String {
        let head = "CREATE TABLE IF NOT EXISTS counter1 (key blob PRIMARY KEY";
        self.create_table(head, columns, "counter")
    }

    fn create_table(&self, head: &str, columns: &[String], kind: &str) -> String {
        let mut text = head.to_owned();
        for column in columns {
            text.push_str(&format!("\n, \"{column}\" {kind}"));
        }
        text.push_str(") WITH compression = {");
        if let Some(compression) = &self.compression {
            text.push_str(&format!("'class' : '{compression}'"));
        }
        text.push('}');
        if let Some(compaction) = &self.compaction {
            text.push_str(&format!(" AND compaction = {{ 'class' : '{compaction}'"));
            for (key, value) in &self.compaction_options {
                text.push_str(&format!(", '{key}' : '{value}'"));
            }
            text.push('}');
        }
        text.push_str(";\n");
        text
    }

    pub(super) fn describe(&self, lines: &mut Vec<String>) {
        let map = |options: &[(String, String)]| {
            let pairs: Vec<_> = options.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("{{{}}}", pairs.join(", "))
        };
        let text = |option: &Option<String>| option.clone().unwrap_or_else(|| "null".to_owned());
        lines.push("Schema:".to_owned());
        lines.push(format!("  Keyspace: {}", text(&self.keyspace)));
        lines.push(format!("  Replication Strategy: {}", self.strategy));
        lines.push(format!("  Replication Strategy Options: {}", map(&self.strategy_options)));
        lines.push(format!("  Table Compression: {}", text(&self.compression)));
        lines.push(format!("  Table Compaction Strategy: {}", text(&self.compaction)));
        lines.push(format!("  Table Compaction Strategy Options: {}", map(&self.compaction_options)));
    }
}

/// The whole name of a replication strategy.
fn strategy(name: &str) -> Result<String, StressError> {
    let known = ["SimpleStrategy", "NetworkTopologyStrategy", "LocalStrategy", "EverywhereStrategy"];
    let short = name.strip_prefix("org.apache.cassandra.locator.").unwrap_or(name);
    if known.contains(&short) {
        Ok(format!("org.apache.cassandra.locator.{short}"))
    } else {
        Err(StressError::Usage(format!("Invalid replication strategy: {name}")))
    }
}
