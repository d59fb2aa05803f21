//! Unified: levels by density, overlapping files counted, outputs cut at fixed token bounds.
//!
//! The density of a file is its bytes divided by the part of the tablet's tokens that it covers. The scaling
//! parameter of a level (`L10`, `T4`, `N`) sets how many overlapping files trigger a merge and how much
//! denser the next level is. Rules, defaults and names are those of Cassandra 5's `UnifiedCompactionStrategy`
//! and its `Controller`.

use std::collections::BTreeSet;

use super::options::{Options, size};
use super::overlap::{Inclusion, buckets, sections};
use super::{Cut, Plan, Strategy, View};

/// Levels at most: enough for petabytes.
const LEVELS_MAX: usize = 32;
/// An output is cut into at most 2 to this many parts for each base shard.
const SHARD_SHIFT_MAX: u32 = 20;
/// Files that cover less of the tablet than this count as covering all of it.
const COVERAGE_MIN: f64 = 1.0 / (1u64 << 48) as f64;
/// A flushed file counts for at least so many bytes.
const FLUSH_BYTES_MIN: u64 = 1 << 20;

/// The strategy.
pub(super) struct Unified {
    /// Scaling parameter of each level; the last one holds for all behind it.
    scaling: Vec<i32>,
    target_bytes: f64,
    min_bytes: f64,
    growth: f64,
    base_shards: u32,
    flush_bytes: u64,
    files_max: usize,
    inclusion: Inclusion,
    expired_check_seconds: u32,
}

/// `L<n>` is 2 − n, `T<n>` n − 2, `N` 0; a bare number stands for itself.
fn scaling_parameter(text: &str) -> Option<i32> {
    let text = text.trim();
    match text.as_bytes().first()? {
        b'N' => Some(0),
        b'L' => text[1..].parse::<i32>().ok().filter(|n| *n >= 2).map(|n| 2 - n),
        b'T' => text[1..].parse::<i32>().ok().filter(|n| *n >= 2).map(|n| n - 2),
        _ => text.parse().ok(),
    }
}

/// `33%` or `0.33`.
fn share(text: &str) -> Option<f64> {
    let value = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok()? / 100.0,
        None => text.parse().ok()?,
    };
    (0.0..=1.0).contains(&value).then_some(value)
}

fn highest_one_bit(number: f64) -> u32 {
    1 << (number.clamp(1.0, f64::from(1u32 << SHARD_SHIFT_MAX)) as u32).ilog2()
}

/// Free files of about the same density.
struct Level {
    index: usize,
    files: Vec<usize>,
}

impl Unified {
    pub(super) fn new(options: &Options<'_>) -> Self {
        let scaling: Option<Vec<i32>> = options
            .text("scaling_parameters")
            .and_then(|text| text.split(',').map(scaling_parameter).collect());
        let files_max = options.number("max_sstables_to_compact", 0i64);
        Self {
            scaling: scaling.filter(|all| !all.is_empty()).unwrap_or_else(|| vec![2]),
            target_bytes: options.size("target_sstable_size", 1 << 30).max(1) as f64,
            min_bytes: options.size("min_sstable_size", 100 << 20) as f64,
            growth: options.text("sstable_growth").and_then(share).unwrap_or(0.333),
            base_shards: options.number("base_shard_count", 4u32).max(1),
            flush_bytes: options.text("flush_size_override").and_then(size).unwrap_or(0),
            files_max: usize::try_from(files_max).ok().filter(|max| *max > 0).unwrap_or(usize::MAX),
            inclusion: match options.text("overlap_inclusion_method").map(str::to_uppercase).as_deref() {
                Some("NONE") => Inclusion::None,
                Some("SINGLE") => Inclusion::Single,
                _ => Inclusion::Transitive,
            },
            expired_check_seconds: options.number("expired_sstable_check_frequency_seconds", 600),
        }
    }

    fn scaling_of(&self, level: usize) -> i32 {
        *self.scaling.get(level).or(self.scaling.last()).unwrap_or(&2)
    }

    /// How much denser the next level is.
    fn fanout(&self, level: usize) -> usize {
        2 + self.scaling_of(level).unsigned_abs() as usize
    }

    /// How many overlapping files of a level are merged.
    fn threshold(&self, level: usize) -> usize {
        2 + self.scaling_of(level).max(0) as usize
    }

    /// Into how many parts the tokens of the tablet are cut for an output of this density.
    fn shards(&self, density: f64) -> u32 {
        let base = self.base_shards;
        if self.min_bytes > 0.0 {
            let count = density / self.min_bytes;
            if count < f64::from(base) {
                return highest_one_bit(count).min(1 << base.trailing_zeros());
            }
        }
        if self.growth >= 1.0 {
            return base;
        }
        let factor = if self.growth <= 0.0 {
            highest_one_bit(density / (self.target_bytes * 0.5f64.sqrt() * f64::from(base)))
        } else {
            let count = density / (self.target_bytes * f64::from(base));
            let power = count.log2() * (1.0 - self.growth) + 0.5;
            if power >= 0.0 { 1 << (power as u32).min(SHARD_SHIFT_MAX) } else { 1 }
        };
        base.saturating_mul(factor)
    }

    fn density(view: &View<'_>, bytes: u64, indexes: &[usize]) -> f64 {
        let coverage = view.coverage(view.span(indexes));
        bytes as f64 / if coverage >= COVERAGE_MIN { coverage } else { 1.0 }
    }

    fn cut(&self, view: &View<'_>, inputs: &[usize]) -> Cut {
        Cut::Shards(self.shards(Self::density(view, view.bytes(inputs), inputs)))
    }

    fn levels(&self, view: &View<'_>, among: impl Iterator<Item = usize>) -> Vec<Level> {
        let mut by_density: Vec<(f64, usize)> =
            among.map(|index| (Self::density(view, view.files[index].bytes, &[index]), index)).collect();
        by_density.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let flushed = if self.flush_bytes > 0 { self.flush_bytes } else { view.flush_bytes };
        // Rounded up to whole MiB, so that levels do not shift with every flush.
        let flushed = flushed.max(FLUSH_BYTES_MIN).next_multiple_of(FLUSH_BYTES_MIN) as f64;
        let first = self.fanout(0) as f64;
        let mut end = (flushed * (1.0 - 0.9 / first) * first).floor();
        let mut levels = vec![Level { index: 0, files: Vec::new() }];
        for (density, file) in by_density {
            while density >= end && levels.len() < LEVELS_MAX {
                let index = levels.len();
                end = (end * self.fanout(index) as f64).floor();
                levels.push(Level { index, files: Vec::new() });
            }
            levels.last_mut().expect("there is a level").files.push(file);
        }
        levels
    }

    /// How often a place is covered by files of the level, and the runs of sections to merge.
    fn look(&self, view: &View<'_>, level: &Level) -> (Vec<BTreeSet<usize>>, usize) {
        let items: Vec<_> = level.files.iter().map(|index| (*index, view.files[*index].tokens)).collect();
        let sections = sections(&items);
        let overlap = sections.iter().map(BTreeSet::len).max().unwrap_or(0);
        (sections, overlap)
    }

    /// The files of one run of sections, as many as one merge takes.
    fn pick(&self, view: &View<'_>, level: usize, run: &[BTreeSet<usize>]) -> Vec<usize> {
        let overlap = run.iter().map(BTreeSet::len).max().unwrap_or(0);
        let all: BTreeSet<usize> = run.iter().flatten().copied().collect();
        let mut oldest_first: Vec<usize> = all.into_iter().collect();
        oldest_first.sort_by_key(|index| (view.files[*index].timestamps.1, view.files[*index].generation));
        let fanout = self.fanout(level);
        let most = self.files_max.max(fanout);
        let limit = if overlap <= fanout {
            return oldest_first;
        } else if overlap <= fanout * self.fanout(level + 1) || most == fanout {
            most
        } else {
            // Far behind: enough at once that the result goes up several levels.
            let limit = most.min(overlap);
            let (mut size, mut next, mut at) = (fanout, fanout, level);
            while next <= limit {
                size = next;
                at += 1;
                next = next.saturating_mul(self.fanout(at));
            }
            if self.scaling_of(level) < 0 { size * (limit / size) } else { size }
        };
        if overlap <= limit {
            return oldest_first;
        }
        let mut taken = vec![0usize; run.len()];
        let fits = |file: &usize| {
            run.iter().zip(&mut taken).all(|(section, taken)| {
                *taken += usize::from(section.contains(file));
                *taken <= limit
            })
        };
        oldest_first.into_iter().take_while(fits).collect()
    }
}

impl Strategy for Unified {
    fn next(&mut self, view: &View<'_>) -> Option<Plan> {
        let mut best: Option<(usize, Vec<usize>)> = None;
        for level in self.levels(view, view.free()) {
            let (sections, overlap) = self.look(view, &level);
            let threshold = self.threshold(level.index);
            if overlap < threshold || best.as_ref().is_some_and(|(most, _)| *most >= overlap) {
                continue;
            }
            let run = buckets(&sections, threshold, self.inclusion)
                .into_iter()
                .find(|run| sections[run.clone()].iter().map(BTreeSet::len).max().unwrap_or(0) == overlap);
            if let Some(run) = run {
                best = Some((overlap, self.pick(view, level.index, &sections[run])));
            }
        }
        let (_, inputs) = best?;
        let cut = self.cut(view, &inputs);
        Some(Plan::new(inputs, 0, cut))
    }

    fn pending(&self, view: &View<'_>) -> usize {
        let due = |level: &Level| {
            let (sections, _) = self.look(view, level);
            let threshold = self.threshold(level.index);
            let runs = buckets(&sections, threshold, self.inclusion).into_iter();
            let overlap =
                |run: std::ops::Range<usize>| sections[run].iter().map(BTreeSet::len).max().unwrap_or(0);
            runs.map(|run| overlap(run) / threshold).sum::<usize>()
        };
        self.levels(view, view.free()).iter().map(due).sum()
    }

    fn whole(&self, view: &View<'_>, inputs: &[usize], _: bool) -> (u32, Cut) {
        (0, self.cut(view, inputs))
    }

    /// Each file goes up the levels that are left to the highest; leveled ones are rewritten with each
    /// arrival.
    fn backlog(&self, view: &View<'_>) -> f64 {
        let levels = self.levels(view, 0..view.files.len());
        let highest = levels.last().map_or(0, |level| level.index);
        let cost = |level: &Level| {
            let steps: f64 = (level.index..highest)
                .map(|at| if self.scaling_of(at) < 0 { self.fanout(at) as f64 / 2.0 } else { 1.0 })
                .sum();
            view.bytes(&level.files) as f64 * steps
        };
        levels.iter().map(cost).sum()
    }

    fn expired_check_seconds(&self) -> Option<u32> {
        Some(self.expired_check_seconds)
    }
}
