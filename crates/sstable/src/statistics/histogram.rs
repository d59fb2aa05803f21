//! The histograms of `Statistics.db`: sizes of partitions, and when tombstones may be dropped.
//!
//! ```text
//! estimated  := buckets:i32 (offset:i64 count:i64){buckets}            (the first offset stands twice)
//! tombstones := bins_max:i32 bins:i32 (time:f64 count:i64){bins}       (up to version `nb`)
//! ```
//! Source: Cassandra 5.0 `EstimatedHistogram`, `TombstoneHistogram`.

use std::collections::BTreeMap;

use crate::error::Malformed;
use crate::input::Input;

/// Counts of numbers in buckets that grow by a fifth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EstimatedHistogram {
    offsets: Vec<i64>,
    counts: Vec<i64>,
}

impl EstimatedHistogram {
    /// With `buckets` bounds, and one more bucket for values above the last bound.
    pub fn new(buckets: usize) -> Self {
        let mut offsets = Vec::with_capacity(buckets);
        let mut last = 1i64;
        offsets.push(last);
        while offsets.len() < buckets {
            let next = ((last as f64 * 1.2).round() as i64).max(last + 1);
            offsets.push(next);
            last = next;
        }
        let counts = vec![0; offsets.len() + 1];
        Self { offsets, counts }
    }

    /// Counts one number.
    pub fn add(&mut self, number: u64) {
        self.add_near(number, &mut 0);
    }

    /// The same, looking first at the bucket of the number before: neighbours are often alike.
    pub(crate) fn add_near(&mut self, number: u64, bucket: &mut usize) {
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        let above = bucket.checked_sub(1).is_none_or(|below| self.offsets[below] < number);
        if !above || self.offsets.get(*bucket).is_some_and(|offset| *offset < number) {
            *bucket = self.offsets.partition_point(|offset| *offset < number);
        }
        self.counts[*bucket] += 1;
    }

    /// How many numbers were counted.
    pub fn count(&self) -> i64 {
        self.counts.iter().fold(0i64, |sum, count| sum.saturating_add(*count))
    }

    /// Average of the bucket bounds, weighted by count; values above the last bound are left out.
    pub fn mean(&self) -> f64 {
        let (mut elements, mut sum) = (0f64, 0f64);
        for (offset, count) in self.offsets.iter().zip(&self.counts) {
            elements += *count as f64;
            sum += *count as f64 * *offset as f64;
        }
        if elements == 0.0 { 0.0 } else { sum / elements }
    }

    /// The bound of the highest bucket that counted something: 0 for none, the greatest number above the last
    /// bound.
    pub fn max(&self) -> i64 {
        match self.counts.iter().rposition(|count| *count > 0) {
            Some(bucket) => self.offsets.get(bucket).copied().unwrap_or(i64::MAX),
            None => 0,
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.counts.len() as u32).to_be_bytes());
        for (bucket, count) in self.counts.iter().enumerate() {
            out.extend_from_slice(&self.offsets[bucket.saturating_sub(1)].to_be_bytes());
            out.extend_from_slice(&count.to_be_bytes());
        }
    }

    pub(crate) fn decode(input: &mut Input<'_>) -> Result<Self, Malformed> {
        let at = input.offset();
        let buckets = u64::from(input.u32()?);
        let buckets = input.fits("number of histogram buckets", buckets, 16)?;
        if buckets < 2 {
            return Err(Malformed::invalid(at, "a histogram without buckets"));
        }
        let (mut offsets, mut counts) = (vec![0; buckets - 1], vec![0; buckets]);
        for bucket in 0..buckets {
            offsets[bucket.saturating_sub(1)] = input.i64()?;
            counts[bucket] = input.i64()?;
        }
        Ok(Self { offsets, counts })
    }
}

/// Points above which the histogram merges the two nearest while it is gathered.
const SPOOL_MAX: usize = 1024;
/// Points that are stored at most.
const BINS_MAX: usize = 100;
/// Times are rounded up to whole minutes.
const ROUND_SECONDS: i64 = 60;

/// How many tombstones and expiring cells have which local deletion time, roughly.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TombstoneHistogram {
    bins: BTreeMap<i64, u64>,
}

impl TombstoneHistogram {
    /// Counts one local deletion time, seconds; `cap` is the greatest the version can store.
    pub fn add(&mut self, time: i64, cap: i64) {
        let rounded = time.saturating_add(ROUND_SECONDS - 1) / ROUND_SECONDS * ROUND_SECONDS;
        *self.bins.entry(rounded.min(cap)).or_insert(0) += 1;
        if self.bins.len() > SPOOL_MAX {
            self.merge_to(BINS_MAX);
        }
    }

    /// About how many have a local deletion time at or before `time`.
    pub fn count_until(&self, time: i64) -> u64 {
        self.bins.range(..=time).fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// How many points it has.
    pub(crate) fn points(&self) -> usize {
        self.bins.len()
    }

    /// Merges to as many points as are stored.
    pub(crate) fn settle(&mut self) {
        self.merge_to(BINS_MAX);
    }

    /// Merges nearest points until `bins` are left.
    fn merge_to(&mut self, bins: usize) {
        while self.bins.len() > bins {
            let nearest = self.bins.keys().zip(self.bins.keys().skip(1)).min_by_key(|(a, b)| *b - *a);
            let Some((&a, &b)) = nearest else { return };
            let (in_a, in_b) = (self.bins.remove(&a).unwrap_or(0), self.bins.remove(&b).unwrap_or(0));
            let (weight_a, weight_b) = (i128::from(in_a), i128::from(in_b));
            let middle = (i128::from(a) * weight_a + i128::from(b) * weight_b) / (weight_a + weight_b).max(1);
            *self.bins.entry(middle as i64).or_insert(0) += in_a + in_b;
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>, unsigned_times: bool) {
        let mut merged = self.clone();
        merged.merge_to(BINS_MAX);
        for _ in 0..2 {
            out.extend_from_slice(&(merged.bins.len() as u32).to_be_bytes());
        }
        for (time, count) in &merged.bins {
            if unsigned_times {
                out.extend_from_slice(&time.to_be_bytes());
                out.extend_from_slice(&i32::try_from(*count).unwrap_or(i32::MAX).to_be_bytes());
            } else {
                out.extend_from_slice(&(*time as f64).to_be_bytes());
                out.extend_from_slice(&i64::try_from(*count).unwrap_or(i64::MAX).to_be_bytes());
            }
        }
    }

    pub(crate) fn decode(input: &mut Input<'_>, unsigned_times: bool) -> Result<Self, Malformed> {
        let _bins_max = input.u32()?;
        let bins = u64::from(input.u32()?);
        let bins = input.fits("number of histogram bins", bins, if unsigned_times { 12 } else { 16 })?;
        let mut histogram = Self::default();
        for _ in 0..bins {
            let (time, count) = if unsigned_times {
                (input.i64()?, i64::from(input.i32()?))
            } else {
                // Files with overflown times exist (CASSANDRA-14092): they saturate.
                (input.f64()? as i64, input.i64()?)
            };
            let sum = histogram.bins.entry(time.clamp(0, i64::from(u32::MAX))).or_insert(0);
            *sum = sum.saturating_add(count.max(0).unsigned_abs());
        }
        Ok(histogram)
    }
}
