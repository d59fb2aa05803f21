//! Decides which table files of a tablet to compact next, and into what: one file per strategy behind
//! [`Strategy`].
//!
//! Pure: facts about files in, indexes of files out; no disk, no clock. Rules and option names are those of
//! Cassandra 5's strategies of the same name, and of ScyllaDB's documented incremental one. [`Chooser`] adds
//! the parts that all strategies share: files that expired as a whole, and single files full of tombstones.
//! Invariant: a plan names only files that are not busy. `schedule` runs the plans.

mod incremental;
mod leveled;
mod options;
mod overlap;
mod size_tiered;
mod time_window;
mod unified;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use model::Token;
use model::deletion::NO_LOCAL_TIME;
use model::schema::CompactionStrategy;

use incremental::Incremental;
use leveled::Leveled;
use options::{Common, Options};
use size_tiered::SizeTiered;
use time_window::TimeWindow;
use unified::Unified;

/// Time between two checks for files that expired as a whole, unless the table's options say otherwise,
/// seconds.
const EXPIRED_CHECK_SECONDS: u32 = 600;

/// The facts about a table file that a strategy decides by.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FileInfo {
    /// Its number; later files have greater ones.
    pub(crate) generation: u64,
    /// Bytes on the disk.
    pub(crate) bytes: u64,
    /// Level it was written for.
    pub(crate) level: u32,
    /// First and last token.
    pub(crate) tokens: (Token, Token),
    /// Smallest and greatest timestamp of a write in it.
    pub(crate) timestamps: (i64, i64),
    /// Greatest local deletion time; [`NO_LOCAL_TIME`] if the file has data that never expires.
    pub(crate) deletion_time_max: u32,
    /// Share of its cells that are tombstones past their grace period.
    pub(crate) droppable: f64,
    /// When it was made, seconds.
    pub(crate) created: u32,
    /// Whether another job has marked it.
    pub(crate) busy: bool,
}

impl FileInfo {
    /// Whether the two may have a partition in common.
    fn overlaps(&self, other: &FileInfo) -> bool {
        touches(self.tokens, other.tokens)
    }
}

fn touches(one: (Token, Token), other: (Token, Token)) -> bool {
    one.0 <= other.1 && other.0 <= one.1
}

/// A tablet's state that a strategy decides by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    /// All files of the tablet.
    pub(crate) files: &'a [FileInfo],
    /// The tablet's tokens.
    pub(crate) tokens: (Token, Token),
    /// The present time, seconds.
    pub(crate) now: u32,
    /// Tombstones with a local time before this may go.
    pub(crate) gc_before: u32,
    /// The least timestamp in a memtable, `i64::MAX` if there is none.
    pub(crate) memory_timestamp_min: i64,
    /// Bytes a flush writes, roughly.
    pub(crate) flush_bytes: u64,
}

impl<'a> View<'a> {
    /// Indexes of files that no job has marked.
    fn free(&self) -> impl Iterator<Item = usize> + use<'a> {
        let files = self.files;
        (0..files.len()).filter(move |index| !files[*index].busy)
    }

    fn bytes(&self, indexes: &[usize]) -> u64 {
        indexes.iter().map(|index| self.files[*index].bytes).sum()
    }

    /// Share of the tablet's tokens between the first and the last of `tokens`, 0 to 1.
    fn coverage(&self, tokens: (Token, Token)) -> f64 {
        let width =
            |(first, last): (Token, Token)| (i128::from(last.0) - i128::from(first.0) + 1).max(0) as f64;
        width(tokens) / width(self.tokens).max(1.0)
    }

    /// First and last token of several files; there is at least one.
    fn span(&self, indexes: &[usize]) -> (Token, Token) {
        let first = indexes.iter().map(|index| self.files[*index].tokens.0).min();
        let last = indexes.iter().map(|index| self.files[*index].tokens.1).max();
        (first.unwrap_or(self.tokens.0), last.unwrap_or(self.tokens.1))
    }
}

/// How the output of a job is cut into files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// One file.
    Whole,
    /// A new file when the current one has this many bytes on the disk.
    Size(u64),
    /// A new file at the bounds of this many equal parts of the tablet's tokens. Runs cut in this way are
    /// aligned, so that inputs can leave part by part.
    Shards(u32),
    /// Both: files of this many bytes within each of this many parts, so that inputs can leave part by part.
    SizeWithin(u64, u32),
    /// Files of about half, a quarter, … of all, none below this many bytes: a major compaction with
    /// `split_output`.
    Halves(u64),
}

/// Why a job is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// The strategy's rule.
    Strategy,
    /// A single file has many tombstones that may be purged.
    Tombstones,
    /// Everything in the files has expired.
    Expired,
    /// An operator asked for these files to be compacted.
    Major,
}

/// A job: its input files and the shape of its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Indexes of the view's files.
    pub(crate) inputs: Vec<usize>,
    /// Level of the output.
    pub(crate) level: u32,
    /// How the output is cut.
    pub(crate) cut: Cut,
    /// Why.
    pub(crate) reason: Reason,
}

impl Plan {
    fn new(inputs: Vec<usize>, level: u32, cut: Cut) -> Self {
        Self { inputs, level, cut, reason: Reason::Strategy }
    }
}

/// A compaction strategy of one tablet, with its state.
pub(crate) trait Strategy {
    /// The next job by the strategy's own rule.
    fn next(&mut self, view: &View<'_>) -> Option<Plan>;

    /// Estimated number of due jobs.
    fn pending(&self, view: &View<'_>) -> usize;

    /// Level and cut of the output when the files are all compacted together. `split` asks a strategy that
    /// would write one file for several.
    fn whole(&self, view: &View<'_>, inputs: &[usize], split: bool) -> (u32, Cut);

    /// Cut of the output when one file is rewritten in its place.
    fn alone(&self, view: &View<'_>, file: usize) -> Cut {
        self.whole(view, &[file], false).1
    }

    /// Which of several files with tombstones is rewritten first.
    fn worst(&self, view: &View<'_>, files: Vec<usize>) -> Option<usize> {
        files.into_iter().max_by_key(|index| view.files[*index].bytes)
    }

    /// Whether two files may be merged although the strategy's rule does not ask for it.
    fn may_mix(&self, _: &View<'_>, _: usize, _: usize) -> bool {
        true
    }

    /// Bytes still to be rewritten until the files are in the shape the strategy wants.
    fn backlog(&self, view: &View<'_>) -> f64;

    /// Time between two checks for expired files; `None` for the default.
    fn expired_check_seconds(&self) -> Option<u32> {
        None
    }
}

/// The strategy of a table's options, and the parts all strategies share.
pub(crate) struct Chooser {
    options: BTreeMap<String, String>,
    common: Common,
    strategy: Box<dyn Strategy>,
    expired_checked: u32,
}

impl Chooser {
    /// From a table's `compaction` option; missing sub-options take their defaults.
    pub(crate) fn new(options: &BTreeMap<String, String>) -> Self {
        let read = Options::new(options);
        let strategy: Box<dyn Strategy> = match read.strategy() {
            CompactionStrategy::SizeTiered => Box::new(SizeTiered::new(&read)),
            CompactionStrategy::Leveled => Box::new(Leveled::new(&read)),
            CompactionStrategy::TimeWindow => Box::new(TimeWindow::new(&read)),
            CompactionStrategy::Unified => Box::new(Unified::new(&read)),
            CompactionStrategy::Incremental => Box::new(Incremental::new(&read)),
        };
        let common = Common::new(&read);
        Self { options: options.clone(), common, strategy, expired_checked: 0 }
    }

    /// Whether the chooser was made from these options.
    pub(crate) fn is_of(&self, options: &BTreeMap<String, String>) -> bool {
        self.options == *options
    }

    /// Whether files are compacted automatically.
    pub(crate) fn is_enabled(&self) -> bool {
        self.common.enabled
    }

    /// The next job, if one is due.
    pub(crate) fn next(&mut self, view: &View<'_>) -> Option<Plan> {
        let every = self.strategy.expired_check_seconds().unwrap_or(EXPIRED_CHECK_SECONDS);
        let mut gone = Vec::new();
        if view.now.saturating_sub(self.expired_checked) > every {
            let free: Vec<usize> = view.free().collect();
            gone = expired(view, &free);
            self.expired_checked = view.now;
        }
        if !gone.is_empty() {
            // Removing them costs nothing, so they do not wait for a job of the strategy.
            return Some(Plan { inputs: gone, level: 0, cut: Cut::Whole, reason: Reason::Expired });
        }
        self.strategy.next(view).or_else(|| self.tombstones(view))
    }

    fn tombstones(&self, view: &View<'_>) -> Option<Plan> {
        let full = view.free().filter(|index| self.common.worth_rewriting(view, *index)).collect();
        let file = self.strategy.worst(view, full)?;
        let cut = self.strategy.alone(view, file);
        let level = view.files[file].level;
        Some(Plan { inputs: vec![file], level, cut, reason: Reason::Tombstones })
    }

    /// Estimated number of due jobs.
    pub(crate) fn pending(&self, view: &View<'_>) -> usize {
        if self.common.enabled { self.strategy.pending(view) } else { 0 }
    }

    /// A plan for these files together, if there are any.
    pub(crate) fn together(&self, view: &View<'_>, inputs: Vec<usize>, split: bool) -> Option<Plan> {
        if inputs.is_empty() {
            return None;
        }
        let (level, cut) = self.strategy.whole(view, &inputs, split);
        Some(Plan { inputs, level, cut, reason: Reason::Major })
    }

    /// Those files of `among` that have to be merged so that their deleted data goes: the first one, and the
    /// files it overlaps, as far as the strategy lets them be merged.
    pub(crate) fn deleting(&self, view: &View<'_>, among: Vec<usize>) -> Option<Plan> {
        let first = *among.first()?;
        let mut group = vec![first];
        let mut span = view.files[first].tokens;
        // Bounded: each round adds a file.
        while let Some(next) = among.iter().copied().find(|index| {
            !group.contains(index)
                && touches(view.files[*index].tokens, span)
                && self.strategy.may_mix(view, first, *index)
        }) {
            group.push(next);
            span = view.span(&group);
        }
        let plan = self.together(view, group, false)?;
        Some(if plan.inputs.len() > 1 {
            plan
        } else {
            Plan { level: view.files[first].level, cut: self.strategy.alone(view, first), ..plan }
        })
    }

    /// Cut of the output when one file is rewritten.
    pub(crate) fn alone(&self, view: &View<'_>, file: usize) -> Cut {
        self.strategy.alone(view, file)
    }

    /// Whether tombstones of files that were not repaired are kept.
    pub(crate) fn only_purges_repaired(&self) -> bool {
        self.common.only_purge_repaired
    }

    /// Bytes still to be rewritten.
    pub(crate) fn backlog(&self, view: &View<'_>) -> f64 {
        if self.common.enabled { self.strategy.backlog(view) } else { 0.0 }
    }
}

/// Those files of `among` that hold only tombstones past their grace period which shadow nothing elsewhere.
///
/// As Cassandra's `CompactionController.getFullyExpiredSSTables`: such files can be removed without being
/// read.
pub(crate) fn expired(view: &View<'_>, among: &[usize]) -> Vec<usize> {
    let is_over =
        |file: &FileInfo| file.deletion_time_max != NO_LOCAL_TIME && file.deletion_time_max < view.gc_before;
    let mut over: Vec<usize> = among.iter().copied().filter(|index| is_over(&view.files[*index])).collect();
    if over.is_empty() {
        return over;
    }
    // Files that stay hold back those they overlap, and a candidate held back stays too, so this repeats
    // until nothing changes. Bounded: each round removes a candidate.
    loop {
        let stays = |index: usize| !over.contains(&index);
        let next: Vec<usize> = over
            .iter()
            .copied()
            .filter(|index| {
                let file = &view.files[*index];
                let older = (0..view.files.len())
                    .filter(|other| stays(*other) && view.files[*other].overlaps(file))
                    .map(|other| view.files[other].timestamps.0)
                    .fold(view.memory_timestamp_min, i64::min);
                file.timestamps.1 < older
            })
            .collect();
        if next.len() == over.len() {
            return next;
        }
        over = next;
    }
}
