//! Time windows: files whose newest writes fall into the same stretch of time are merged, never with others.
//!
//! The newest window is compacted by size; a window that is over becomes one file. Rules and names are those
//! of Cassandra's `TimeWindowCompactionStrategy`. Expired files are looked for as often as the table's
//! options say.

use std::collections::BTreeMap;

use super::options::Options;
use super::size_tiered::{Tiers, tiered_backlog};
use super::{Cut, Plan, Strategy, View};

/// The strategy.
pub(super) struct TimeWindow {
    tiers: Tiers,
    window_seconds: i64,
    /// Timestamp units in a second.
    per_second: i64,
    expired_check_seconds: u32,
    /// Start of the newest window ever seen.
    newest: i64,
}

impl TimeWindow {
    pub(super) fn new(options: &Options<'_>) -> Self {
        let unit = match options.text("compaction_window_unit").unwrap_or("DAYS") {
            "MINUTES" => 60,
            "HOURS" => 3_600,
            _ => 86_400,
        };
        let per_second = match options.text("timestamp_resolution").unwrap_or("MICROSECONDS") {
            "SECONDS" => 1,
            "MILLISECONDS" => 1_000,
            "NANOSECONDS" => 1_000_000_000,
            _ => 1_000_000,
        };
        let size = i64::from(options.number("compaction_window_size", 1u32).max(1));
        Self {
            tiers: Tiers::new(options),
            window_seconds: unit * size,
            per_second,
            expired_check_seconds: options.number("expired_sstable_check_frequency_seconds", 600),
            newest: 0,
        }
    }

    /// Start of the window a timestamp is in, seconds.
    fn window(&self, timestamp: i64) -> i64 {
        let seconds = timestamp / self.per_second;
        seconds - seconds % self.window_seconds
    }

    /// Free files by window.
    fn windows(&self, view: &View<'_>) -> BTreeMap<i64, Vec<usize>> {
        let mut windows: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
        for index in view.free() {
            windows.entry(self.window(view.files[index].timestamps.1)).or_default().push(index);
        }
        windows
    }

    fn newest(&self, windows: &BTreeMap<i64, Vec<usize>>) -> i64 {
        windows.keys().next_back().map_or(self.newest, |newest| self.newest.max(*newest))
    }

    /// The files of a window that are due to be merged, if any.
    fn due(&self, view: &View<'_>, window: i64, newest: i64, files: &[usize]) -> Option<Vec<usize>> {
        if window >= newest {
            return self.tiers.pick(files.iter().map(|index| (*index, view.files[*index].bytes)));
        }
        if files.len() < 2 {
            return None;
        }
        let mut files = files.to_vec();
        files.sort_by_key(|index| (view.files[*index].bytes, *index));
        files.truncate(self.tiers.max_threshold);
        Some(files)
    }
}

impl Strategy for TimeWindow {
    fn next(&mut self, view: &View<'_>) -> Option<Plan> {
        let windows = self.windows(view);
        self.newest = self.newest(&windows);
        let newest = self.newest;
        let inputs = windows.iter().rev().find_map(|(at, files)| self.due(view, *at, newest, files))?;
        Some(Plan::new(inputs, 0, Cut::Whole))
    }

    fn pending(&self, view: &View<'_>) -> usize {
        let windows = self.windows(view);
        let newest = self.newest(&windows);
        let due = windows.iter().filter(|(at, files)| self.due(view, **at, newest, files).is_some());
        due.map(|(_, files)| files.len().div_ceil(self.tiers.max_threshold)).sum()
    }

    fn whole(&self, _: &View<'_>, _: &[usize], _: bool) -> (u32, Cut) {
        (0, Cut::Whole)
    }

    fn worst(&self, view: &View<'_>, files: Vec<usize>) -> Option<usize> {
        files.into_iter().min_by_key(|index| view.files[*index].bytes)
    }

    fn may_mix(&self, view: &View<'_>, one: usize, other: usize) -> bool {
        self.window(view.files[one].timestamps.1) == self.window(view.files[other].timestamps.1)
    }

    fn backlog(&self, view: &View<'_>) -> f64 {
        let mut windows: BTreeMap<i64, Vec<u64>> = BTreeMap::new();
        for file in view.files {
            windows.entry(self.window(file.timestamps.1)).or_default().push(file.bytes);
        }
        windows.values().map(|sizes| tiered_backlog(sizes.iter().copied())).sum()
    }

    fn expired_check_seconds(&self) -> Option<u32> {
        Some(self.expired_check_seconds)
    }
}
