//! The compaction strategies: their names, which `query` checks and `storage` carries out.
//!
//! Adding one is a variant here; each `match` upon it then fails to compile until it is decided what the
//! variant means there.

use std::collections::BTreeMap;

/// Package of the strategies in Cassandra.
const PACKAGE: &str = "org.apache.cassandra.db.compaction.";

/// A compaction strategy of Cassandra 5, or ScyllaDB's documented incremental one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionStrategy {
    /// Files of similar size are merged.
    SizeTiered,
    /// Levels of files that do not overlap, each ten times the one before.
    Leveled,
    /// One file for each window of time.
    TimeWindow,
    /// Sizes or levels, as parameters say.
    Unified,
    /// Size tiers of runs of small files.
    Incremental,
}

impl CompactionStrategy {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::SizeTiered, Self::Leveled, Self::TimeWindow, Self::Unified, Self::Incremental];

    /// The name of its class, without a package.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SizeTiered => "SizeTieredCompactionStrategy",
            Self::Leveled => "LeveledCompactionStrategy",
            Self::TimeWindow => "TimeWindowCompactionStrategy",
            Self::Unified => "UnifiedCompactionStrategy",
            Self::Incremental => "IncrementalCompactionStrategy",
        }
    }

    /// The name of its class with the package, as clients see it.
    pub fn class(self) -> String {
        format!("{PACKAGE}{}", self.name())
    }

    /// The class that a name stands for: names without a package are in Cassandra's.
    pub fn class_of(name: &str) -> String {
        if name.contains('.') { name.to_owned() } else { format!("{PACKAGE}{name}") }
    }

    /// The strategy that the `compaction` option of a table names; `None` for a class of others.
    pub fn of(options: &BTreeMap<String, String>) -> Option<Self> {
        let class = options.get("class")?;
        let name = class.strip_prefix(PACKAGE).unwrap_or(class);
        Self::ALL.into_iter().find(|strategy| strategy.name() == name)
    }
}
