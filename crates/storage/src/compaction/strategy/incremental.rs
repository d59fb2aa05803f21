//! Incremental: size-tiered over runs of fragments, so that a merge never needs disk space for a second copy
//! of all its inputs.
//!
//! A run is a set of files that do not overlap; tiers count runs, not files. Outputs are cut at equal parts
//! of the tablet's tokens, a power of two of them. So fragments of several runs end at the same places, and
//! are removed as soon as their replacements are durable (`job`). With a space amplification goal, the two
//! largest tiers are merged as soon as the bytes outside the largest tier are more than the goal allows.
//! Rules and names are those of ScyllaDB's documented `IncrementalCompactionStrategy`.

use super::options::Options;
use super::size_tiered::{Tiers, tiered_backlog};
use super::{Cut, Plan, Strategy, View};

/// Parts a tablet is cut into at most.
const SHARDS_MAX: u64 = 1 << 16;

/// The strategy.
pub(super) struct Incremental {
    tiers: Tiers,
    fragment_bytes: u64,
    /// Between 1 and 2; `None` for no goal.
    goal: Option<f64>,
}

/// Files that do not overlap, and their bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Run {
    files: Vec<usize>,
    bytes: u64,
}

impl Incremental {
    pub(super) fn new(options: &Options<'_>) -> Self {
        let goal = options.number("space_amplification_goal", 0.0);
        Self {
            tiers: Tiers::new(options),
            fragment_bytes: options.megabytes("sstable_size_in_mb", 1000.0),
            goal: (goal > 1.0 && goal <= 2.0).then_some(goal),
        }
    }

    /// The runs there are: a file joins the run that ends closest before it, of files made before it.
    ///
    /// Fragments of one merge are made in token order with growing numbers, so a run is found again after a
    /// start.
    fn runs(view: &View<'_>) -> Vec<Run> {
        let mut order: Vec<usize> = (0..view.files.len()).collect();
        order.sort_by_key(|index| view.files[*index].generation);
        let mut runs: Vec<(model::Token, Run, bool)> = Vec::new();
        for index in order {
            let file = &view.files[index];
            let behind = |run: &&mut (model::Token, Run, bool)| run.0 < file.tokens.0;
            match runs.iter_mut().filter(behind).max_by_key(|run| run.0) {
                Some((end, run, busy)) => {
                    *end = file.tokens.1;
                    run.files.push(index);
                    run.bytes += file.bytes;
                    *busy |= file.busy;
                }
                None => {
                    runs.push((file.tokens.1, Run { files: vec![index], bytes: file.bytes }, file.busy));
                }
            }
        }
        runs.into_iter().filter(|(_, _, busy)| !busy).map(|(_, run, _)| run).collect()
    }

    /// Into how many parts an output of this size is cut.
    fn shards(&self, bytes: u64) -> u32 {
        let fragments = bytes.div_ceil(self.fragment_bytes).clamp(1, SHARDS_MAX);
        fragments.next_power_of_two() as u32
    }

    fn plan(&self, view: &View<'_>, runs: &[Run], chosen: &[usize]) -> Plan {
        let inputs: Vec<usize> = chosen.iter().flat_map(|run| runs[*run].files.iter().copied()).collect();
        let cut = Cut::Shards(self.shards(view.bytes(&inputs)));
        Plan::new(inputs, 0, cut)
    }

    /// The two largest tiers, if the bytes outside the largest one are more than the goal allows.
    fn across_tiers(&self, view: &View<'_>, runs: &[Run]) -> Option<Plan> {
        let goal = self.goal?;
        let mut buckets = self.tiers.buckets(runs.iter().enumerate().map(|(name, run)| (name, run.bytes)));
        let largest = buckets.pop()?;
        let second = buckets.pop()?;
        let bytes = |bucket: &[usize]| bucket.iter().map(|run| runs[*run].bytes).sum::<u64>() as f64;
        let smaller: f64 = bytes(&second) + buckets.iter().map(|bucket| bytes(bucket)).sum::<f64>();
        if bytes(&largest) + smaller <= goal * bytes(&largest) {
            return None;
        }
        let mut chosen = largest;
        chosen.extend(second);
        Some(self.plan(view, runs, &chosen))
    }
}

impl Strategy for Incremental {
    fn next(&mut self, view: &View<'_>) -> Option<Plan> {
        let runs = Self::runs(view);
        let sizes = runs.iter().enumerate().map(|(name, run)| (name, run.bytes));
        if let Some(chosen) = self.tiers.pick(sizes) {
            return Some(self.plan(view, &runs, &chosen));
        }
        self.across_tiers(view, &runs)
    }

    fn pending(&self, view: &View<'_>) -> usize {
        let runs = Self::runs(view);
        let across = usize::from(self.across_tiers(view, &runs).is_some());
        self.tiers.pending(runs.iter().enumerate().map(|(name, run)| (name, run.bytes))).max(across)
    }

    fn whole(&self, view: &View<'_>, inputs: &[usize], _: bool) -> (u32, Cut) {
        (0, Cut::Shards(self.shards(view.bytes(inputs))))
    }

    /// A fragment stays one.
    fn alone(&self, _: &View<'_>, _: usize) -> Cut {
        Cut::Whole
    }

    fn backlog(&self, view: &View<'_>) -> f64 {
        let runs = Self::runs(view);
        tiered_backlog(runs.iter().map(|run| run.bytes))
    }
}
