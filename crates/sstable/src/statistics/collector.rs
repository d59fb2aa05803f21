//! Collects the statistics of a file while it is written.
//!
//! The same data counts as in Cassandra's `MetadataCollector` and `Rows.collectStats`: every timestamp, time
//! to live and local deletion time that is written, including "never". The reported minima and maxima are
//! exact; compactions and reads skip files by them.

use std::cmp::Ordering;

use model::clustering::{ClusteringOrder, OwnedPosition, Position};
use model::counter;
use model::deletion::{DeletionTime, Liveness, NO_LOCAL_TIME};
use model::row::{CellKind, RowView};

use super::stats::{around, components};
use super::{Cardinality, EstimatedHistogram, Stats, TombstoneHistogram};
use crate::data::plain::PlainRow;
use crate::extras::Extent;

/// Buckets for sizes of partitions: up to 3.5 TB.
const SIZE_BUCKETS: usize = 155;
/// Buckets for cells per partition: up to 4 billion.
const CELL_BUCKETS: usize = 118;

/// Statistics so far.
#[derive(Debug)]
pub(crate) struct Collector {
    stats: Stats,
    cardinality: Cardinality,
    any: bool,
    any_time: bool,
    any_ttl: bool,
    time_cap: u32,
    cells: u64,
    /// The buckets of the previous partition, by its size and by its cells.
    buckets: (usize, usize),
    smallest: Option<OwnedPosition>,
    greatest: Option<OwnedPosition>,
    partition_deletions: bool,
    static_rows: bool,
}

impl Collector {
    /// Nothing yet; `time_cap` is the greatest local deletion time the version can store.
    pub(crate) fn new(time_cap: u32) -> Self {
        let stats = Stats {
            partition_sizes: EstimatedHistogram::new(SIZE_BUCKETS),
            cells_per_partition: EstimatedHistogram::new(CELL_BUCKETS),
            min_timestamp: i64::MIN,
            max_timestamp: i64::MAX,
            min_local_deletion_time: NO_LOCAL_TIME,
            max_local_deletion_time: NO_LOCAL_TIME,
            min_ttl: 0,
            max_ttl: 0,
            compression_ratio: -1.0,
            tombstones: TombstoneHistogram::default(),
            level: 0,
            repaired_at_ms: 0,
            min_clustering: Vec::new(),
            max_clustering: Vec::new(),
            covered: None,
            legacy_counters: false,
            columns_set: 0,
            rows: 0,
            commit_log_intervals: Vec::new(),
            pending_repair: None,
            transient: false,
            originating_host: None,
            partition_deletions: None,
            key_range: None,
            token_space_coverage: None,
        };
        Self {
            stats,
            cardinality: Cardinality::default(),
            any: false,
            any_time: false,
            any_ttl: false,
            time_cap,
            cells: 0,
            buckets: (0, 0),
            smallest: None,
            greatest: None,
            partition_deletions: false,
            static_rows: false,
        }
    }

    fn timestamp(&mut self, timestamp: i64) {
        if self.any {
            self.stats.min_timestamp = self.stats.min_timestamp.min(timestamp);
            self.stats.max_timestamp = self.stats.max_timestamp.max(timestamp);
        } else {
            (self.stats.min_timestamp, self.stats.max_timestamp, self.any) = (timestamp, timestamp, true);
        }
    }

    fn local_time(&mut self, time: u32) {
        let time = if time == NO_LOCAL_TIME { time } else { time.min(self.time_cap) };
        if self.any_time {
            self.stats.min_local_deletion_time = self.stats.min_local_deletion_time.min(time);
            self.stats.max_local_deletion_time = self.stats.max_local_deletion_time.max(time);
        } else {
            (self.stats.min_local_deletion_time, self.stats.max_local_deletion_time) = (time, time);
            self.any_time = true;
        }
        if time != NO_LOCAL_TIME {
            self.stats.tombstones.add(i64::from(time), i64::from(self.time_cap));
        }
    }

    fn ttl(&mut self, ttl: u32) {
        // Times to live are at most 20 years.
        let ttl = i32::try_from(ttl).unwrap_or(i32::MAX);
        self.stats.min_ttl = if self.any_ttl { self.stats.min_ttl.min(ttl) } else { ttl };
        self.stats.max_ttl = self.stats.max_ttl.max(ttl);
        self.any_ttl = true;
    }

    /// The deletion of a whole partition.
    pub(crate) fn partition_deletion(&mut self, deletion: DeletionTime) {
        self.partition_deletions |= !deletion.is_live();
        self.deletion(deletion);
    }

    /// The static row of a partition.
    pub(crate) fn static_row(&mut self, row: RowView<'_>) {
        self.static_rows |= !row.is_empty();
        self.row(row);
    }

    /// A deletion that is written: of a row, a range or a collection.
    pub(crate) fn deletion(&mut self, deletion: DeletionTime) {
        if !deletion.is_live() {
            self.timestamp(deletion.timestamp);
            self.local_time(deletion.local_time);
        }
    }

    fn liveness(&mut self, liveness: Liveness) {
        if !liveness.is_none() {
            self.ttl(liveness.ttl);
            self.timestamp(liveness.timestamp);
            self.local_time(if liveness.ttl == 0 { NO_LOCAL_TIME } else { liveness.expires_at });
        }
    }

    /// A row.
    pub(crate) fn row(&mut self, row: RowView<'_>) {
        self.liveness(row.liveness());
        self.deletion(row.deletion());
        let mut last = None;
        for cell in row.cells() {
            if let CellKind::CollectionDeletion { .. } = cell.kind {
                self.deletion(cell.collection_deletion().unwrap_or(DeletionTime::LIVE));
                continue;
            }
            if let CellKind::Counter(context) = cell.kind {
                self.stats.legacy_counters |= counter::has_legacy_shards(context);
            }
            self.ttl(cell.ttl());
            self.timestamp(cell.timestamp);
            self.local_time(cell.local_time());
            self.cells += 1;
            if last != Some(cell.column) {
                self.stats.columns_set += 1;
                last = Some(cell.column);
            }
        }
        self.stats.rows += 1;
    }

    /// A row of plain values, which [`Collector::row`] would count cell by cell.
    pub(crate) fn plain_row(&mut self, liveness: Liveness, plain: PlainRow) {
        self.liveness(liveness);
        if plain.cells > 0 {
            self.ttl(0);
            self.timestamp(plain.timestamps.0);
            self.timestamp(plain.timestamps.1);
            self.local_time(NO_LOCAL_TIME);
            self.cells += plain.cells;
            self.stats.columns_set += plain.cells as i64;
        }
        self.stats.rows += 1;
    }

    /// The first and the last position of a partition with rows or range tombstones.
    pub(crate) fn positions(&mut self, first: Position<'_>, last: Position<'_>, orders: &[ClusteringOrder]) {
        if self.smallest.as_ref().is_none_or(|s| first.compare(s.as_ref(), orders) == Ordering::Less) {
            self.smallest = Some(first.to_owned());
        }
        if self.greatest.as_ref().is_none_or(|g| last.compare(g.as_ref(), orders) == Ordering::Greater) {
            self.greatest = Some(last.to_owned());
        }
    }

    /// A partition ended that took `bytes` of uncompressed data.
    pub(crate) fn partition(&mut self, key: &[u8], bytes: u64) {
        let (of_size, of_cells) = &mut self.buckets;
        self.stats.partition_sizes.add_near(bytes, of_size);
        self.stats.cells_per_partition.add_near(self.cells, of_cells);
        self.cells = 0;
        self.cardinality.add(key);
    }

    /// The statistics, the sketch of the keys, and the extent.
    pub(crate) fn finish(mut self) -> (Stats, Cardinality, Extent) {
        self.stats.tombstones.settle();
        // A null component ends the prefix: the shorter prefix covers the longer one in both directions.
        self.stats.min_clustering = self.smallest.as_ref().map(components).unwrap_or_default();
        self.stats.max_clustering = self.greatest.as_ref().map(components).unwrap_or_default();
        let (min, max) = (&self.stats.min_clustering, &self.stats.max_clustering);
        self.stats.covered = Some((around(min, -1), around(max, 1)));
        let extent = Extent {
            first: self.smallest.unwrap_or_else(|| Position::END.to_owned()),
            last: self.greatest.unwrap_or_else(|| Position::START.to_owned()),
            partition_deletions: self.partition_deletions,
            static_rows: self.static_rows,
        };
        (self.stats, self.cardinality, extent)
    }
}
