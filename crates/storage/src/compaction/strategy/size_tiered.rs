//! Size-tiered: files of about the same size are merged once there are enough of them.
//!
//! Buckets, thresholds and names as in Cassandra's `SizeTieredCompactionStrategy`. If several buckets are
//! full, the one with the smallest files goes first: it costs least and takes most files away from reads.

use super::options::{Options, thresholds};
use super::{Cut, Plan, Strategy, View};

/// Least bytes of a file when a major compaction is split.
const SPLIT_BYTES_MIN: u64 = 50 << 20;

/// Options of tiers; other strategies use them within a level or a window.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tiers {
    pub(super) min_threshold: usize,
    pub(super) max_threshold: usize,
    bucket_low: f64,
    bucket_high: f64,
    /// Files below this are of about the same size.
    small_bytes: u64,
}

impl Tiers {
    pub(super) fn new(options: &Options<'_>) -> Self {
        let (min_threshold, max_threshold) = thresholds(options);
        Self {
            min_threshold,
            max_threshold,
            bucket_low: options.number("bucket_low", 0.5),
            bucket_high: options.number("bucket_high", 1.5),
            small_bytes: options.number("min_sstable_size", 50 << 20),
        }
    }

    /// Groups things of about the same size, smallest first; `items` are names and sizes.
    pub(super) fn buckets(&self, items: impl Iterator<Item = (usize, u64)>) -> Vec<Vec<usize>> {
        let mut by_size: Vec<(usize, u64)> = items.collect();
        by_size.sort_by_key(|(name, size)| (*size, *name));
        let mut buckets: Vec<(f64, Vec<usize>)> = Vec::new();
        for (name, bytes) in by_size {
            let size = bytes as f64;
            let small = bytes < self.small_bytes;
            let fits = |average: f64| {
                (size > average * self.bucket_low && size < average * self.bucket_high)
                    || (small && average < self.small_bytes as f64)
            };
            match buckets.last_mut() {
                Some((average, bucket)) if fits(*average) => {
                    let count = bucket.len() as f64;
                    *average = (*average * count + size) / (count + 1.0);
                    bucket.push(name);
                }
                _ => buckets.push((size, vec![name])),
            }
        }
        buckets.into_iter().map(|(_, bucket)| bucket).collect()
    }

    /// The first full bucket, cut to the number of files that may be merged at once.
    pub(super) fn pick(&self, items: impl Iterator<Item = (usize, u64)>) -> Option<Vec<usize>> {
        let mut bucket = self.buckets(items).into_iter().find(|bucket| bucket.len() >= self.min_threshold)?;
        bucket.truncate(self.max_threshold);
        Some(bucket)
    }

    /// How many merges are due.
    pub(super) fn pending(&self, items: impl Iterator<Item = (usize, u64)>) -> usize {
        let full = self.buckets(items).into_iter().filter(|bucket| bucket.len() >= self.min_threshold);
        full.map(|bucket| bucket.len().div_ceil(self.max_threshold)).sum()
    }
}

/// Bytes to rewrite until all of `sizes` are one: each file once per tier between it and the whole.
///
/// As the public description of the size-tiered backlog: Σ sᵢ · log₄(total / sᵢ).
pub(super) fn tiered_backlog(sizes: impl Iterator<Item = u64> + Clone) -> f64 {
    let total: u64 = sizes.clone().sum();
    sizes.filter(|size| *size > 0).map(|size| size as f64 * (total as f64 / size as f64).log(4.0)).sum()
}

/// The strategy.
pub(super) struct SizeTiered {
    tiers: Tiers,
}

impl SizeTiered {
    pub(super) fn new(options: &Options<'_>) -> Self {
        Self { tiers: Tiers::new(options) }
    }
}

impl Strategy for SizeTiered {
    fn next(&mut self, view: &View<'_>) -> Option<Plan> {
        let inputs = self.tiers.pick(view.free().map(|index| (index, view.files[index].bytes)))?;
        Some(Plan::new(inputs, 0, Cut::Whole))
    }

    fn pending(&self, view: &View<'_>) -> usize {
        self.tiers.pending(view.free().map(|index| (index, view.files[index].bytes)))
    }

    fn whole(&self, _: &View<'_>, _: &[usize], split: bool) -> (u32, Cut) {
        (0, if split { Cut::Halves(SPLIT_BYTES_MIN) } else { Cut::Whole })
    }

    fn backlog(&self, view: &View<'_>) -> f64 {
        tiered_backlog(view.files.iter().map(|file| file.bytes))
    }
}
