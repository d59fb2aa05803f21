//! The `stats` component: ranges of times and clusterings, histograms, where the data came from.
//!
//! ```text
//! stats := partition_sizes cells commit_log_upper:position min_timestamp:i64 max_timestamp:i64
//!          min_local_deletion_time:i32 max_local_deletion_time:i32 min_ttl:i32 max_ttl:i32 compression_ratio:f64
//!          tombstones level:i32 repaired_at:i64 min_clustering max_clustering legacy_counters:bool
//!          columns_set:i64 rows:i64 commit_log_lower:position intervals
//!          [pending_repair transient:bool] [originating_host]
//! clustering := count:i32 (length:u16 bytes){count}
//! position   := segment:i64 offset:i32
//! intervals  := count:i32 (position position){count}
//! pending_repair, originating_host := present:u8 [uuid]
//! ```
//! Source: Cassandra 5.0 `StatsMetadata`.

use model::deletion::NO_LOCAL_TIME;

use super::histogram::{EstimatedHistogram, TombstoneHistogram};
use crate::error::Malformed;
use crate::input::{Input, append_short_sized};
use crate::version::Features;

/// A place in a commit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitLogPosition {
    /// Segment.
    pub segment: i64,
    /// Offset within it.
    pub offset: i32,
}

impl CommitLogPosition {
    /// No place (Cassandra's `CommitLogPosition.NONE`).
    pub const NONE: Self = Self { segment: -1, offset: 0 };

    fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.segment.to_be_bytes());
        out.extend_from_slice(&self.offset.to_be_bytes());
    }

    fn decode(input: &mut Input<'_>) -> Result<Self, Malformed> {
        Ok(Self { segment: input.i64()?, offset: input.i32()? })
    }
}

/// Ranges and histograms of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Stats {
    /// Bytes of uncompressed data per partition.
    pub partition_sizes: EstimatedHistogram,
    /// Cells per partition.
    pub cells_per_partition: EstimatedHistogram,
    /// Smallest timestamp, microseconds; the smallest number of all where nothing has one.
    pub min_timestamp: i64,
    /// Greatest timestamp; the greatest number of all where nothing has one.
    pub max_timestamp: i64,
    /// Smallest local deletion time, seconds; [`NO_LOCAL_TIME`] where nothing is deleted or expires.
    pub min_local_deletion_time: u32,
    /// Greatest local deletion time; [`NO_LOCAL_TIME`] where something neither is deleted nor expires.
    pub max_local_deletion_time: u32,
    /// Smallest time to live, seconds.
    pub min_ttl: i32,
    /// Greatest time to live.
    pub max_ttl: i32,
    /// Compressed through uncompressed bytes; -1 without compression.
    pub compression_ratio: f64,
    /// When tombstones may be dropped.
    pub tombstones: TombstoneHistogram,
    /// Level in leveled compaction.
    pub level: i32,
    /// When it was repaired, milliseconds; 0 for never.
    pub repaired_at_ms: i64,
    /// The smallest clustering, or its leading components.
    pub min_clustering: Vec<Vec<u8>>,
    /// The greatest clustering, or its leading components.
    pub max_clustering: Vec<Vec<u8>>,
    /// Whether counters from before 2.1 are in it.
    pub legacy_counters: bool,
    /// Columns set, summed over rows.
    pub columns_set: i64,
    /// Rows, static ones included.
    pub rows: i64,
    /// Stretches of the originating host's commit log that are in it.
    pub commit_log_intervals: Vec<(CommitLogPosition, CommitLogPosition)>,
    /// Repair session it is pending in.
    pub pending_repair: Option<[u8; 16]>,
    /// Whether it is of a transient replica.
    pub transient: bool,
    /// Host that wrote it.
    pub originating_host: Option<[u8; 16]>,
}

/// How the formats without unsigned times say "never".
const NEVER: i32 = i32::MAX;
/// The greatest time they can say.
pub(crate) const SIGNED_TIME_MAX: u32 = i32::MAX as u32 - 1;

fn signed_time(time: u32) -> i32 {
    if time == NO_LOCAL_TIME { NEVER } else { time.min(SIGNED_TIME_MAX) as i32 }
}

impl Stats {
    pub(crate) fn encode(&self, out: &mut Vec<u8>, features: Features) {
        self.partition_sizes.encode(out);
        self.cells_per_partition.encode(out);
        let upper = self.commit_log_intervals.last().map_or(CommitLogPosition::NONE, |interval| interval.1);
        upper.encode(out);
        out.extend_from_slice(&self.min_timestamp.to_be_bytes());
        out.extend_from_slice(&self.max_timestamp.to_be_bytes());
        for time in [self.min_local_deletion_time, self.max_local_deletion_time] {
            if features.unsigned_deletion_times {
                out.extend_from_slice(&time.to_be_bytes());
            } else {
                out.extend_from_slice(&signed_time(time).to_be_bytes());
            }
        }
        out.extend_from_slice(&self.min_ttl.to_be_bytes());
        out.extend_from_slice(&self.max_ttl.to_be_bytes());
        out.extend_from_slice(&self.compression_ratio.to_be_bytes());
        self.tombstones.encode(out, features.unsigned_deletion_times);
        out.extend_from_slice(&self.level.to_be_bytes());
        out.extend_from_slice(&self.repaired_at_ms.to_be_bytes());
        for clustering in [&self.min_clustering, &self.max_clustering] {
            out.extend_from_slice(&(clustering.len() as u32).to_be_bytes());
            clustering.iter().for_each(|component| append_short_sized(out, component));
        }
        out.push(u8::from(self.legacy_counters));
        out.extend_from_slice(&self.columns_set.to_be_bytes());
        out.extend_from_slice(&self.rows.to_be_bytes());
        let lower = self.commit_log_intervals.first().map_or(CommitLogPosition::NONE, |interval| interval.0);
        lower.encode(out);
        out.extend_from_slice(&(self.commit_log_intervals.len() as u32).to_be_bytes());
        for (start, end) in &self.commit_log_intervals {
            start.encode(out);
            end.encode(out);
        }
        if features.pending_repair {
            append_optional(out, self.pending_repair.as_ref());
            out.push(u8::from(self.transient));
        }
        if features.originating_host {
            append_optional(out, self.originating_host.as_ref());
        }
    }

    pub(crate) fn decode(input: &mut Input<'_>, features: Features) -> Result<Self, Malformed> {
        let partition_sizes = EstimatedHistogram::decode(input)?;
        let cells_per_partition = EstimatedHistogram::decode(input)?;
        let _upper = CommitLogPosition::decode(input)?;
        let (min_timestamp, max_timestamp) = (input.i64()?, input.i64()?);
        let mut time = || -> Result<u32, Malformed> {
            if features.unsigned_deletion_times {
                return input.u32();
            }
            let time = input.i32()?;
            // Overflown times (CASSANDRA-14092) are negative.
            Ok(if time == NEVER { NO_LOCAL_TIME } else { u32::try_from(time).unwrap_or(0) })
        };
        let (min_local_deletion_time, max_local_deletion_time) = (time()?, time()?);
        let (min_ttl, max_ttl) = (input.i32()?, input.i32()?);
        let compression_ratio = input.f64()?;
        let tombstones = TombstoneHistogram::decode(input, features.unsigned_deletion_times)?;
        let level = input.i32()?;
        let repaired_at_ms = input.i64()?;
        let (min_clustering, max_clustering) = (clustering(input)?, clustering(input)?);
        let legacy_counters = input.boolean()?;
        let (columns_set, rows) = (input.i64()?, input.i64()?);
        let _lower = CommitLogPosition::decode(input)?;
        let count = u64::from(input.u32()?);
        let commit_log_intervals = (0..input.fits("number of commit log intervals", count, 24)?)
            .map(|_| Ok((CommitLogPosition::decode(input)?, CommitLogPosition::decode(input)?)))
            .collect::<Result<_, Malformed>>()?;
        let (mut pending_repair, mut transient) = (None, false);
        if features.pending_repair {
            pending_repair = optional(input)?;
            transient = input.boolean()?;
        }
        let originating_host = if features.originating_host { optional(input)? } else { None };
        Ok(Self {
            partition_sizes,
            cells_per_partition,
            min_timestamp,
            max_timestamp,
            min_local_deletion_time,
            max_local_deletion_time,
            min_ttl,
            max_ttl,
            compression_ratio,
            tombstones,
            level,
            repaired_at_ms,
            min_clustering,
            max_clustering,
            legacy_counters,
            columns_set,
            rows,
            commit_log_intervals,
            pending_repair,
            transient,
            originating_host,
        })
    }
}

fn clustering(input: &mut Input<'_>) -> Result<Vec<Vec<u8>>, Malformed> {
    let count = u64::from(input.u32()?);
    (0..input.fits("number of clustering components", count, 2)?)
        .map(|_| input.short_sized().map(<[u8]>::to_vec))
        .collect()
}

fn append_optional(out: &mut Vec<u8>, uuid: Option<&[u8; 16]>) {
    out.push(u8::from(uuid.is_some()));
    out.extend_from_slice(uuid.map_or(&[], |uuid| uuid.as_slice()));
}

fn optional(input: &mut Input<'_>) -> Result<Option<[u8; 16]>, Malformed> {
    if !input.boolean()? {
        return Ok(None);
    }
    let mut uuid = [0; 16];
    uuid.copy_from_slice(input.take(16)?);
    Ok(Some(uuid))
}
