//! Leveled: each level is one run of files that do not overlap, ten times as large as the level before.
//!
//! Flushed files come to level 0 and may overlap there. A level that is too large gives a file to the next,
//! merged with the files it overlaps there; the choice of the file goes round the tokens. A level 0 that is
//! far behind is first compacted by size. Rules, limits and names are those of Cassandra's
//! `LeveledCompactionStrategy` and `LeveledManifest`. A file that overlaps others of the level it names (as
//! after use of other tools) counts as level 0.

use std::collections::BTreeSet;

use model::Token;

use super::options::Options;
use super::size_tiered::Tiers;
use super::{Cut, FileInfo, Plan, Strategy, View, touches};

/// Number of levels, including level 0.
const LEVELS: usize = 9;
/// If level 0 has more files than this, it is compacted by size.
const LEVEL_0_FILES_MAX: usize = 32;
/// A level may exceed its size by this factor.
const SLACK: f64 = 1.001;
/// After this many jobs of other levels a file of the highest level is taken along, so that deletions get
/// there.
const STARVED_AFTER: u32 = 25;

/// The strategy.
pub(super) struct Leveled {
    tiers: Tiers,
    file_bytes: u64,
    fanout: u64,
    /// Last token of the files last moved up from each level.
    cursors: [Option<Token>; LEVELS],
    /// Jobs since each level was written to.
    idle: [u32; LEVELS],
}

impl Leveled {
    pub(super) fn new(options: &Options<'_>) -> Self {
        Self {
            tiers: Tiers::new(options),
            file_bytes: options.megabytes("sstable_size_in_mb", 160.0),
            fanout: options.number("fanout_size", 10u64).max(1),
            cursors: [None; LEVELS],
            idle: [0; LEVELS],
        }
    }

    /// Most bytes of a level.
    fn level_bytes(&self, level: usize) -> f64 {
        let fanout = self.fanout as f64;
        let files = if level == 0 { 4.0 } else { fanout.powi(i32::try_from(level).unwrap_or(i32::MAX)) };
        files * self.file_bytes as f64
    }

    /// Indexes of the files of each level, by first token.
    fn levels(&self, files: &[FileInfo]) -> Vec<Vec<usize>> {
        let mut levels: Vec<Vec<usize>> = vec![Vec::new(); LEVELS];
        let mut order: Vec<usize> = (0..files.len()).collect();
        // Of two files that overlap, the newer one becomes level 0.
        order.sort_by_key(|index| files[*index].generation);
        for index in order {
            let file = &files[index];
            let level = file.level as usize;
            let fits = (1..LEVELS).contains(&level)
                && !levels[level].iter().any(|other: &usize| files[*other].overlaps(file));
            levels[if fits { level } else { 0 }].push(index);
        }
        for level in &mut levels {
            level.sort_by_key(|index| files[*index].tokens.0);
        }
        levels
    }

    /// Compacts level 0 by size, if it is far behind.
    fn tiers_in_0(&self, view: &View<'_>, level_0: &[usize]) -> Option<Plan> {
        if level_0.len() <= LEVEL_0_FILES_MAX {
            return None;
        }
        let free = level_0.iter().filter(|index| !view.files[**index].busy);
        let inputs = self.tiers.pick(free.map(|index| (*index, view.files[*index].bytes)))?;
        Some(Plan::new(inputs, 0, Cut::Whole))
    }

    /// Files of level 0, oldest writes first, with the files they overlap there and in level 1.
    fn leaving_0(&self, view: &View<'_>, levels: &[Vec<usize>]) -> Option<Vec<usize>> {
        let files = view.files;
        let busy: Vec<usize> = levels[0].iter().copied().filter(|index| files[*index].busy).collect();
        let meets_busy = |index: usize| busy.iter().any(|other| files[*other].overlaps(&files[index]));
        let mut by_age: Vec<usize> = levels[0].clone();
        by_age.sort_by_key(|index| (files[*index].timestamps.1, files[*index].generation));
        let mut chosen: BTreeSet<usize> = BTreeSet::new();
        for index in &by_age {
            if chosen.contains(index) || meets_busy(*index) {
                continue;
            }
            chosen.extend(levels[0].iter().filter(|other| {
                (files[**other].overlaps(&files[*index]) || *other == index) && !meets_busy(**other)
            }));
            if chosen.len() > self.tiers.max_threshold {
                break;
            }
        }
        let mut inputs: Vec<usize> = by_age.into_iter().filter(|index| chosen.contains(index)).collect();
        inputs.truncate(self.tiers.max_threshold);
        if view.bytes(&inputs) > self.file_bytes {
            let span = view.span(&inputs);
            let below = levels[1].iter().copied().filter(|index| touches(files[*index].tokens, span));
            let below: Vec<usize> = below.collect();
            if below.iter().any(|index| files[*index].busy)
                || busy.iter().any(|b| touches(files[*b].tokens, span))
            {
                return None;
            }
            inputs.extend(below);
        }
        (inputs.len() >= 2).then_some(inputs)
    }

    /// The next file of a level that is too large, with the files it overlaps in the next level.
    fn leaving_level(&self, view: &View<'_>, levels: &[Vec<usize>], level: usize) -> Option<Vec<usize>> {
        let files = view.files;
        let behind = |index: &&usize| match self.cursors[level] {
            Some(cursor) => files[**index].tokens.0 > cursor,
            None => true,
        };
        let (ahead, around): (Vec<&usize>, Vec<&usize>) = levels[level].iter().partition(behind);
        ahead.into_iter().chain(around).find_map(|index| {
            let below = levels[level + 1].iter().filter(|other| files[**other].overlaps(&files[*index]));
            let inputs: Vec<usize> = std::iter::once(index).chain(below).copied().collect();
            inputs.iter().all(|input| !files[*input].busy).then_some(inputs)
        })
    }

    /// Level of the output of `inputs`.
    fn next_level(&self, view: &View<'_>, levels: &[Vec<usize>], inputs: &[usize]) -> usize {
        let level_of =
            |index: &usize| levels.iter().position(|level| level.contains(index)).unwrap_or_default();
        let least = inputs.iter().map(level_of).min().unwrap_or_default();
        let most = inputs.iter().map(level_of).max().unwrap_or_default();
        if most == 0 && view.bytes(inputs) < self.file_bytes {
            0
        } else if least == most {
            (most + 1).min(LEVELS - 1)
        } else {
            most
        }
    }

    /// Takes a file of the highest level along if nothing has been written to that level for long.
    fn with_starved(
        &mut self,
        view: &View<'_>,
        levels: &[Vec<usize>],
        target: usize,
        inputs: &mut Vec<usize>,
    ) {
        self.idle.iter_mut().skip(1).for_each(|idle| *idle = idle.saturating_add(1));
        self.idle[target] = 0;
        let Some(highest) = (1..LEVELS).rev().find(|level| !levels[*level].is_empty()) else { return };
        if highest == target || self.idle[highest] <= STARVED_AFTER {
            return;
        }
        // The target level has no other files within the span of the inputs, so its run stays one.
        let span = view.span(inputs);
        let inside = |index: &&usize| {
            let file = &view.files[**index];
            !file.busy && span.0 < file.tokens.0 && file.tokens.1 < span.1
        };
        inputs.extend(levels[highest].iter().find(inside));
    }

    fn moved(&mut self, view: &View<'_>, from: usize, inputs: &[usize], level: usize) -> Plan {
        self.cursors[from] = Some(view.span(&inputs[..1]).1);
        Plan::new(inputs.to_vec(), level as u32, Cut::Size(self.file_bytes))
    }
}

/// Least number of files in each part of a major compaction.
const PART_FILES: u64 = 2;
/// Most parts of a major compaction.
const PARTS_MAX: u32 = 16;

impl Strategy for Leveled {
    fn next(&mut self, view: &View<'_>) -> Option<Plan> {
        let levels = self.levels(view.files);
        let mut behind = self.tiers_in_0(view, &levels[0]);
        for level in (1..LEVELS - 1).rev() {
            let free: Vec<usize> =
                levels[level].iter().copied().filter(|index| !view.files[*index].busy).collect();
            if view.bytes(&free) as f64 <= self.level_bytes(level) * SLACK {
                continue;
            }
            // A full level 0 harms reads most.
            if behind.is_some() {
                return behind;
            }
            if let Some(mut inputs) = self.leaving_level(view, &levels, level) {
                let target = self.next_level(view, &levels, &inputs);
                self.with_starved(view, &levels, target, &mut inputs);
                return Some(self.moved(view, level, &inputs, target));
            }
        }
        match self.leaving_0(view, &levels) {
            Some(inputs) => {
                let target = self.next_level(view, &levels, &inputs);
                if target == 0 {
                    return Some(Plan::new(inputs, 0, Cut::Whole));
                }
                Some(self.moved(view, 0, &inputs, target))
            }
            None => behind.take(),
        }
    }

    fn pending(&self, view: &View<'_>) -> usize {
        let levels = self.levels(view.files);
        let over = (0..LEVELS).map(|level| {
            let over = view.bytes(&levels[level]) as f64 - self.level_bytes(level) * SLACK;
            (over.max(0.0) / self.file_bytes as f64).ceil() as usize
        });
        let far_behind = if levels[0].len() > self.tiers.max_threshold {
            levels[0].len() / self.tiers.max_threshold
        } else {
            0
        };
        over.sum::<usize>() + far_behind
    }

    /// All files together go to the lowest level that takes them; files rewritten one by one keep theirs.
    fn whole(&self, view: &View<'_>, inputs: &[usize], _: bool) -> (u32, Cut) {
        let bytes = view.bytes(inputs) as f64;
        let level = (1..LEVELS - 1).find(|level| bytes <= self.level_bytes(*level)).unwrap_or(LEVELS - 1);
        // If each part has several files, ending one at each bound costs little and lets inputs leave part by
        // part.
        let parts = (bytes / (PART_FILES * self.file_bytes) as f64) as u32;
        let cut = match parts.checked_ilog2() {
            Some(log2 @ 2..) => Cut::SizeWithin(self.file_bytes, (1 << log2).min(PARTS_MAX)),
            _ => Cut::Size(self.file_bytes),
        };
        (level as u32, cut)
    }

    fn alone(&self, view: &View<'_>, file: usize) -> Cut {
        // A file that fits its level stays one file.
        let fits = view.files[file].bytes <= self.file_bytes + self.file_bytes / 2;
        if fits { Cut::Whole } else { Cut::Size(self.file_bytes) }
    }

    /// Each level's excess is rewritten with a fanout of the next level, and so on up to the highest.
    fn backlog(&self, view: &View<'_>) -> f64 {
        let levels = self.levels(view.files);
        let highest = levels.iter().rposition(|level| !level.is_empty()).unwrap_or_default().max(1);
        let per_level = self.fanout as f64 + 1.0;
        let mut bytes = 0.0;
        for (level, files) in levels.iter().enumerate().take(LEVELS - 1) {
            let here = view.bytes(files) as f64;
            let over = if level == 0 { here } else { (here - self.level_bytes(level)).max(0.0) };
            bytes += over * per_level * (highest.saturating_sub(level).max(1)) as f64;
        }
        bytes
    }
}
