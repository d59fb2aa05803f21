//! Which files to compact: those of about the same size, once there are enough of them.
//!
//! Rules and option names as Cassandra's `SizeTieredCompactionStrategy`. Pure: sizes in, indexes out.

use std::collections::BTreeMap;

/// Options of the strategy.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SizeTiered {
    min_threshold: usize,
    max_threshold: usize,
    bucket_low: f64,
    bucket_high: f64,
    /// Files below this are of about the same size.
    small_bytes: u64,
    pub(crate) enabled: bool,
}

impl SizeTiered {
    /// From a table's `compaction` option; what is missing or no number takes its default.
    pub(crate) fn of(options: &BTreeMap<String, String>) -> Self {
        fn number<T: std::str::FromStr>(options: &BTreeMap<String, String>, name: &str, default: T) -> T {
            options.get(name).and_then(|value| value.parse().ok()).unwrap_or(default)
        }
        let min_threshold = number(options, "min_threshold", 4usize).max(2);
        Self {
            min_threshold,
            max_threshold: number(options, "max_threshold", 32usize).max(min_threshold),
            bucket_low: number(options, "bucket_low", 0.5),
            bucket_high: number(options, "bucket_high", 1.5),
            small_bytes: number(options, "min_sstable_size", 50 << 20),
            enabled: number(options, "enabled", true),
        }
    }

    /// Indexes of the files to compact now, of files of these sizes; the bucket of the smallest files first.
    pub(crate) fn pick(&self, sizes: &[u64]) -> Option<Vec<usize>> {
        let mut by_size: Vec<usize> = (0..sizes.len()).collect();
        by_size.sort_by_key(|index| sizes[*index]);
        let mut buckets: Vec<(f64, Vec<usize>)> = Vec::new();
        for index in by_size {
            let size = sizes[index] as f64;
            let small = sizes[index] < self.small_bytes;
            let fits = |average: f64| {
                (size > average * self.bucket_low && size < average * self.bucket_high)
                    || (small && average < self.small_bytes as f64)
            };
            match buckets.last_mut() {
                Some((average, bucket)) if fits(*average) => {
                    let count = bucket.len() as f64;
                    *average = (*average * count + size) / (count + 1.0);
                    bucket.push(index);
                }
                _ => buckets.push((size, vec![index])),
            }
        }
        buckets.into_iter().find(|(_, bucket)| bucket.len() >= self.min_threshold).map(|(_, mut bucket)| {
            bucket.truncate(self.max_threshold);
            bucket
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(options: &[(&str, &str)], sizes: &[u64], expected: Option<&[usize]>) {
        let options = options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        assert_eq!(SizeTiered::of(&options).pick(sizes).as_deref(), expected, "{sizes:?}");
    }

    #[test]
    fn four_files_of_a_size_are_a_bucket() {
        const MB: u64 = 1 << 20;
        check(&[], &[MB, MB, MB], None);
        check(&[], &[MB, 2 * MB, 30 * MB, 3 * MB], Some(&[0, 1, 3, 2]));
        check(&[], &[100 * MB, 110 * MB, 1000 * MB, 90 * MB, 120 * MB], Some(&[3, 0, 1, 4]));
        check(&[], &[100 * MB, 400 * MB, 1600 * MB, 6400 * MB], None);
        check(&[("min_threshold", "2")], &[100 * MB, 110 * MB, 900 * MB], Some(&[0, 1]));
        check(&[("max_threshold", "4")], &[MB; 9], Some(&[0, 1, 2, 3]));
        check(&[("min_sstable_size", "0")], &[MB, 2 * MB, 4 * MB, 8 * MB], None);
        check(&[("min_threshold", "x")], &[], None);
    }
}
