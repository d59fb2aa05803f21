//! A table's `compaction` option as numbers, and the sub-options that every strategy has.
//!
//! The statement that set them has checked them; a value that does not parse here takes its default. Names
//! and defaults are those of Cassandra 5's `AbstractCompactionStrategy`.

use std::collections::BTreeMap;

use model::schema::CompactionStrategy;

use super::View;

/// Sub-options by name.
pub(super) struct Options<'a>(&'a BTreeMap<String, String>);

impl<'a> Options<'a> {
    pub(super) fn new(options: &'a BTreeMap<String, String>) -> Self {
        Self(options)
    }

    /// The strategy. Statements take known classes only; a table that was taken over from another database
    /// may have one of its own, and is then compacted by size.
    pub(super) fn strategy(&self) -> CompactionStrategy {
        CompactionStrategy::of(self.0).unwrap_or(CompactionStrategy::SizeTiered)
    }

    /// Whether the class is the one of ScyllaDB that compacts nothing.
    fn is_null(&self) -> bool {
        self.0.get("class").is_some_and(|class| class.ends_with("NullCompactionStrategy"))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        self.0.get(name).map(|text| text.trim())
    }

    pub(super) fn number<T: std::str::FromStr>(&self, name: &str, default: T) -> T {
        self.text(name).and_then(|value| value.parse().ok()).unwrap_or(default)
    }

    /// A number of megabytes, in bytes. Statements take whole numbers only; fractions are accepted here.
    pub(super) fn megabytes(&self, name: &str, default: f64) -> u64 {
        let megabytes = Some(self.number(name, default)).filter(|size: &f64| *size > 0.0 && size.is_finite());
        ((megabytes.unwrap_or(default) * 1048576.0) as u64).max(1)
    }

    /// A boolean, in any case.
    pub(super) fn truth(&self, name: &str, default: bool) -> bool {
        self.text(name).map_or(default, |value| {
            if default { !value.eq_ignore_ascii_case("false") } else { value.eq_ignore_ascii_case("true") }
        })
    }

    /// A size such as `100MiB`, in bytes.
    pub(super) fn size(&self, name: &str, default: u64) -> u64 {
        self.text(name).and_then(size).unwrap_or(default)
    }
}

/// A number with a unit in front of its `B`: `GiB` counts in 1024s, `GB` in 1000s.
pub(super) fn size(text: &str) -> Option<u64> {
    const UNITS: [(&str, f64); 10] = [
        ("Ki", 1024.0),
        ("Mi", 1048576.0),
        ("Gi", 1073741824.0),
        ("Ti", 1099511627776.0),
        ("Pi", 1125899906842624.0),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
    ];
    let text = text.strip_suffix('B').unwrap_or(text).trim();
    let (number, unit) = UNITS
        .iter()
        .find_map(|(unit, bytes)| text.strip_suffix(unit).map(|number| (number, *bytes)))
        .unwrap_or((text, 1.0));
    let number: f64 = number.trim().parse().ok()?;
    (number >= 0.0 && number.is_finite()).then_some((number * unit).ceil() as u64)
}

/// The thresholds of size tiers: minimum and maximum number of files.
pub(super) fn thresholds(options: &Options<'_>) -> (usize, usize) {
    let min = options.number("min_threshold", 4usize).max(2);
    (min, options.number("max_threshold", 32usize).max(min))
}

/// The options that every strategy has.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Common {
    pub(super) enabled: bool,
    pub(super) only_purge_repaired: bool,
    tombstone_threshold: f64,
    tombstone_interval_seconds: u32,
    unchecked_tombstones: bool,
    /// Whether single files are rewritten for their tombstones at all.
    tombstones: bool,
}

impl Common {
    pub(super) fn new(options: &Options<'_>) -> Self {
        let unchecked_tombstones = options.truth("unchecked_tombstone_compaction", false);
        // In time windows everything expires together, so there single files are rewritten only if an option
        // asks for it.
        let asked = options.has("tombstone_threshold")
            || options.has("tombstone_compaction_interval")
            || unchecked_tombstones;
        Self {
            enabled: options.truth("enabled", true) && !options.is_null(),
            only_purge_repaired: options.truth("only_purge_repaired_tombstones", false),
            tombstone_threshold: options.number("tombstone_threshold", 0.2),
            tombstone_interval_seconds: options.number("tombstone_compaction_interval", 86_400),
            unchecked_tombstones,
            tombstones: asked || options.strategy() != CompactionStrategy::TimeWindow,
        }
    }

    /// Whether rewriting one file alone would purge enough tombstones.
    pub(super) fn worth_rewriting(&self, view: &View<'_>, index: usize) -> bool {
        let file = &view.files[index];
        if !self.tombstones
            || view.now < file.created.saturating_add(self.tombstone_interval_seconds)
            || file.droppable <= self.tombstone_threshold
        {
            return false;
        }
        if self.unchecked_tombstones {
            return true;
        }
        // Tombstones that may shadow data in other files would stay, so only the part that no other file
        // covers counts. Tokens are spread evenly enough for ranges of tokens to stand for keys.
        let mut others: Vec<_> = view
            .files
            .iter()
            .enumerate()
            .filter(|(other, of)| *other != index && of.overlaps(file))
            .map(|(_, of)| (of.tokens.0.max(file.tokens.0), of.tokens.1.min(file.tokens.1)))
            .collect();
        if others.is_empty() {
            return true;
        }
        others.sort();
        let width = |from: i64, to: i64| (i128::from(to) - i128::from(from) + 1).max(0) as f64;
        let (mut covered, mut reached) = (0.0, i128::from(file.tokens.0.0) - 1);
        for (first, last) in others {
            let from = i128::from(first.0).max(reached + 1);
            covered += (i128::from(last.0) - from + 1).max(0) as f64;
            reached = reached.max(i128::from(last.0));
        }
        let alone = 1.0 - covered / width(file.tokens.0.0, file.tokens.1.0).max(1.0);
        alone * file.droppable > self.tombstone_threshold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        assert_eq!(size("100MiB"), Some(100 << 20));
        assert_eq!(size("1.5GiB"), Some(3 << 29));
        assert_eq!(size("2MB"), Some(2_000_000));
        assert_eq!(size("512B"), Some(512));
        assert_eq!(size("xMiB"), None);
        assert_eq!(size("-1MiB"), None);
    }
}
