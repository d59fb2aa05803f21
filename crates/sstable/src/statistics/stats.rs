//! The `stats` component: ranges of times and clusterings, histograms, the origin of the data.
//!
//! ```text
//! stats := partition_sizes cells commit_log_upper:position min_timestamp:i64 max_timestamp:i64
//!          min_local_deletion_time:i32 max_local_deletion_time:i32 min_ttl:i32 max_ttl:i32
//!          compression_ratio:f64
//!          tombstones level:i32 repaired_at:i64 covered legacy_counters:bool
//!          columns_set:i64 rows:i64 [commit_log_lower:position] [intervals]
//!          [pending_repair transient:bool] [originating_host]
//!          [partition_deletions:bool] [first_key:sized last_key:sized token_space_coverage:f64]
//! covered    := min_clustering max_clustering                      (up to version `nb`)
//!             | types:vint class:sized{types} bound bound          (from version `oa`; bounds as in Data.db)
//! clustering := count:i32 (length:u16 bytes){count}
//! position   := segment:i64 offset:i32
//! intervals  := count:i32 (position position){count}
//! pending_repair, originating_host := present:u8 [uuid]
//! ```
//! Source: Cassandra 5.0 `StatsMetadata`.

use model::clustering::{OwnedPosition, append_component};
use model::deletion::NO_LOCAL_TIME;

use super::header::class;
use super::histogram::{EstimatedHistogram, TombstoneHistogram};
use crate::data::decode::bound as bound_of;
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
    /// Smallest timestamp, microseconds; the smallest `i64` if there is none.
    pub min_timestamp: i64,
    /// Greatest timestamp; the greatest `i64` if there is none.
    pub max_timestamp: i64,
    /// Smallest local deletion time, seconds; [`NO_LOCAL_TIME`] if nothing is deleted or expires.
    pub min_local_deletion_time: u32,
    /// Greatest local deletion time; [`NO_LOCAL_TIME`] if some data is neither deleted nor expires.
    pub max_local_deletion_time: u32,
    /// Smallest time to live, seconds.
    pub min_ttl: i32,
    /// Greatest time to live.
    pub max_ttl: i32,
    /// Compressed bytes divided by uncompressed bytes; -1 without compression.
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
    /// The positions between which all rows and range tombstones lie; `None` if the file does not have them
    /// reliably.
    pub covered: Option<(OwnedPosition, OwnedPosition)>,
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
    /// Whether the file belongs to a transient replica.
    pub transient: bool,
    /// Host that wrote it.
    pub originating_host: Option<[u8; 16]>,
    /// Whether a whole partition is deleted; `None` if the version does not have it.
    pub partition_deletions: Option<bool>,
    /// Stored bytes of the first and the last key, if the version has them.
    pub key_range: Option<(Vec<u8>, Vec<u8>)>,
    /// The part of the ring between them, if the version has it.
    pub token_space_coverage: Option<f64>,
}

/// The value for "never" in formats without unsigned times.
const NEVER: i32 = i32::MAX;
/// The greatest time in those formats.
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
        let upper = CommitLogPosition::decode(input)?;
        let (min_timestamp, max_timestamp) = (input.i64()?, input.i64()?);
        let mut time = || -> Result<u32, Malformed> {
            if features.unsigned_deletion_times {
                return input.u32();
            }
            let time = input.i32()?;
            // Overflowed times (CASSANDRA-14092) are negative.
            Ok(if time == NEVER { NO_LOCAL_TIME } else { u32::try_from(time).unwrap_or(0) })
        };
        let (min_local_deletion_time, max_local_deletion_time) = (time()?, time()?);
        let (min_ttl, max_ttl) = (input.i32()?, input.i32()?);
        let compression_ratio = input.f64()?;
        let tombstones = TombstoneHistogram::decode(input, features.unsigned_deletion_times)?;
        let level = input.i32()?;
        let repaired_at_ms = input.i64()?;
        let (min_clustering, max_clustering, covered);
        if features.clustering_bounds {
            let (first, last) = bounds(input)?;
            (min_clustering, max_clustering) = (components(&first), components(&last));
            covered = Some((first, last));
        } else {
            (min_clustering, max_clustering) = (clustering(input)?, clustering(input)?);
            covered = features
                .accurate_clusterings
                .then(|| (around(&min_clustering, -1), around(&max_clustering, 1)));
        }
        let legacy_counters = input.boolean()?;
        let (columns_set, rows) = (input.i64()?, input.i64()?);
        let lower = match features.commit_log_lower_bound {
            true => CommitLogPosition::decode(input)?,
            false => CommitLogPosition::NONE,
        };
        let commit_log_intervals = if features.commit_log_intervals {
            let count = u64::from(input.u32()?);
            (0..input.fits("number of commit log intervals", count, 24)?)
                .map(|_| Ok((CommitLogPosition::decode(input)?, CommitLogPosition::decode(input)?)))
                .collect::<Result<_, Malformed>>()?
        } else if upper == CommitLogPosition::NONE {
            Vec::new()
        } else {
            vec![(lower, upper)]
        };
        let (mut pending_repair, mut transient) = (None, false);
        if features.pending_repair {
            pending_repair = optional(input)?;
            transient = input.boolean()?;
        }
        let originating_host = if features.originating_host { optional(input)? } else { None };
        let partition_deletions = if features.partition_deletions { Some(input.boolean()?) } else { None };
        let (mut key_range, mut token_space_coverage) = (None, None);
        if features.key_range {
            let limit = model::partition_key::PARTITION_KEY_BYTES_MAX;
            let mut key = || input.sized("length of a key", limit).map(<[u8]>::to_vec);
            key_range = Some((key()?, key()?));
            token_space_coverage = Some(input.f64()?);
        }
        // Cassandra 5 allots 16 bytes to each point of the tombstone histogram, writes 12 and pads the end.
        let (at, padding) = (input.offset(), input.remaining());
        let may_pad = if features.unsigned_deletion_times { 4 * tombstones.points() } else { 0 };
        if (padding != 0 && padding != may_pad) || input.take(padding)?.iter().any(|byte| *byte != 0) {
            return Err(Malformed::invalid(at, "bytes behind the ranges"));
        }
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
            covered,
            legacy_counters,
            columns_set,
            rows,
            commit_log_intervals,
            pending_repair,
            transient,
            originating_host,
            partition_deletions,
            key_range,
            token_space_coverage,
        })
    }
}

fn clustering(input: &mut Input<'_>) -> Result<Vec<Vec<u8>>, Malformed> {
    let count = u64::from(input.u32()?);
    (0..input.fits("number of clustering components", count, 2)?)
        .map(|_| input.short_sized().map(<[u8]>::to_vec))
        .collect()
}

/// The bounds of all rows and range tombstones.
fn bounds(input: &mut Input<'_>) -> Result<(OwnedPosition, OwnedPosition), Malformed> {
    let count = input.vint()?;
    let lengths = (0..input.fits("number of clustering columns", count, 1)?)
        .map(|_| class(input).map(|(ty, _)| ty.fixed_value_length()))
        .collect::<Result<Vec<_>, _>>()?;
    let mut bound = || {
        let mut prefix = Vec::new();
        let weight = bound_of(&lengths, input, &mut prefix)?;
        Ok(OwnedPosition { prefix, weight })
    };
    Ok((bound()?, bound()?))
}

/// The position before or behind everything that starts with `components`.
pub(super) fn around(components: &[Vec<u8>], weight: i8) -> OwnedPosition {
    let mut prefix = Vec::new();
    components.iter().for_each(|component| append_component(&mut prefix, Some(component)));
    OwnedPosition { prefix, weight }
}

/// The leading components of a position, up to the first null.
pub(super) fn components(position: &OwnedPosition) -> Vec<Vec<u8>> {
    let components = position.as_ref().prefix.components();
    components.map_while(|component| component.map(<[u8]>::to_vec)).collect()
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
