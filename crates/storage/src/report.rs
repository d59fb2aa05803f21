//! Memory, files and data of each table on this shard, in detail.
//!
//! Computed on request, never kept. `server::admin` adds up the shards' reports.

use model::tablet::TabletMap;
use model::{TableId, Token};

use crate::paxos;
use crate::shard::Storage;

/// Memory, files and data of one table on one shard.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TableReport {
    /// Its id; all zeros only in a value that stands for no table.
    pub id: [u8; 16],
    /// Its keyspace.
    pub keyspace: String,
    /// Its name.
    pub name: String,
    /// Tablets that are here.
    pub tablets: usize,
    /// Table files.
    pub files: usize,
    /// Bytes of them, all components.
    pub file_bytes: u64,
    /// Bytes of the largest.
    pub file_bytes_max: u64,
    /// Bytes of their rows before compression.
    pub data_bytes: u64,
    /// Bytes of their filters and summaries in memory.
    pub resident_bytes: usize,
    /// Partitions in them, one that is in several files counted as often.
    pub file_partitions: u64,
    /// Rows in them, counted likewise.
    pub file_rows: u64,
    /// Sum of the sizes of their partitions in bytes, by the files' histograms.
    pub partition_bytes: f64,
    /// Bytes of the largest partition in one of them, by the files' histograms.
    pub partition_bytes_max: u64,
    /// Most microseconds between the first and the last timestamp of one of them.
    pub timestamps_us_max: u64,
    /// Bytes in memtables.
    pub memtable_bytes: usize,
    /// Partitions in memtables.
    pub memtable_partitions: usize,
    /// Memtables that are sealed and on their way to a file.
    pub pending_flushes: usize,
    /// Table files by level of leveled compaction, from 0.
    pub files_by_level: Vec<usize>,
}

impl TableReport {
    /// Adds another shard's report of the same table.
    pub fn add(&mut self, other: &Self) {
        self.tablets += other.tablets;
        self.files += other.files;
        self.file_bytes += other.file_bytes;
        self.file_bytes_max = self.file_bytes_max.max(other.file_bytes_max);
        self.data_bytes += other.data_bytes;
        self.resident_bytes += other.resident_bytes;
        self.file_partitions += other.file_partitions;
        self.file_rows += other.file_rows;
        self.partition_bytes += other.partition_bytes;
        self.partition_bytes_max = self.partition_bytes_max.max(other.partition_bytes_max);
        self.timestamps_us_max = self.timestamps_us_max.max(other.timestamps_us_max);
        self.memtable_bytes += other.memtable_bytes;
        self.memtable_partitions += other.memtable_partitions;
        self.pending_flushes += other.pending_flushes;
        if self.files_by_level.len() < other.files_by_level.len() {
            self.files_by_level.resize(other.files_by_level.len(), 0);
        }
        self.files_by_level.iter_mut().zip(&other.files_by_level).for_each(|(sum, files)| *sum += files);
    }
}

/// Number and size of one table's partitions on one shard, by equal parts of the ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SizeEstimate {
    /// Id of the table.
    pub id: [u8; 16],
    /// Its keyspace.
    pub keyspace: String,
    /// Its name.
    pub name: String,
    /// Partitions and their bytes in each part of the ring. A partition that is in several files counts as
    /// often.
    pub parts: Vec<(u64, u64)>,
}

impl SizeEstimate {
    /// Adds another shard's estimate of the same table.
    pub fn add(&mut self, other: &Self) {
        for ((partitions, bytes), (more, more_bytes)) in self.parts.iter_mut().zip(&other.parts) {
            *partitions += more;
            *bytes += more_bytes;
        }
    }

    /// Adds the data of one tablet. If it covers several parts of the ring they get equal shares: tokens are
    /// hashes.
    fn add_tablet(&mut self, ring: TabletMap, (first, last): (Token, Token), partitions: u64, bytes: u64) {
        let (from, to) = (ring.tablet_of(first).0 as usize, ring.tablet_of(last).0 as usize);
        let covered = (to - from + 1) as u64;
        // Cut at the rounded sums of all shares so far, so that nothing is lost to rounding.
        let share = |total: u64, at: u64| {
            let up_to = |parts: u64| u128::from(total) * u128::from(parts) / u128::from(covered);
            u64::try_from(up_to(at + 1) - up_to(at)).expect("a share is no more than the whole")
        };
        for (at, part) in (0..covered).zip(&mut self.parts[from..=to]) {
            part.0 += share(partitions, at);
            part.1 += share(bytes, at);
        }
    }
}

/// Most levels that are counted separately.
const LEVELS_MAX: usize = 9;

impl Storage {
    /// The tables that clients know, by id.
    fn table_ids(&self) -> Vec<TableId> {
        let mut ids: Vec<TableId> = self.0.tables.borrow().keys().copied().collect();
        ids.retain(|id| *id != paxos::TABLE);
        ids.sort_unstable();
        ids
    }

    /// A report of each table, by id; other tasks run after each.
    pub async fn report(&self) -> Vec<TableReport> {
        let ids = self.table_ids();
        let mut reports = Vec::with_capacity(ids.len());
        for id in ids {
            reports.extend(self.table_report(id));
            reactor::maybe_yield().await;
        }
        reports
    }

    /// Estimates of each table's partitions in the parts of the ring that `ring` cuts it into, by table id.
    /// They come from the statistics of table files, and from memtables. Other tasks run after each table.
    pub async fn size_estimates(&self, ring: TabletMap) -> Vec<SizeEstimate> {
        let ids = self.table_ids();
        let mut estimates = Vec::with_capacity(ids.len());
        for id in ids {
            estimates.extend(self.size_estimate(id, ring));
            reactor::maybe_yield().await;
        }
        estimates
    }

    fn size_estimate(&self, table: TableId, ring: TabletMap) -> Option<SizeEstimate> {
        let store = self.table_store(table).ok()?;
        let table = store.table();
        let mut estimate = SizeEstimate {
            id: table.id().0,
            keyspace: table.keyspace().to_owned(),
            name: table.name().to_owned(),
            parts: vec![(0, 0); ring.count() as usize],
        };
        for tablet in &store.tablets() {
            let memtables = tablet.memtables();
            let mut partitions = memtables.iter().map(|m| m.partition_count() as u64).sum::<u64>();
            let mut bytes = tablet.memtable_bytes() as u64;
            for file in tablet.files().iter() {
                let file = file.sstable();
                let sizes = &file.stats().partition_sizes;
                let count = u64::try_from(sizes.count()).unwrap_or(0);
                partitions += count;
                bytes = bytes.saturating_add((sizes.mean() * count as f64) as u64);
            }
            estimate.add_tablet(ring, store.map().range(tablet.id), partitions, bytes);
        }
        Some(estimate)
    }

    /// The report of one table; `None` if this shard does not have it.
    pub fn table_report(&self, table: TableId) -> Option<TableReport> {
        let store = self.table_store(table).ok()?;
        let table = store.table();
        let mut report = TableReport {
            id: table.id().0,
            keyspace: table.keyspace().to_owned(),
            name: table.name().to_owned(),
            ..TableReport::default()
        };
        for tablet in &store.tablets() {
            report.tablets += 1;
            let memtables = tablet.memtables();
            report.memtable_bytes += tablet.memtable_bytes();
            report.memtable_partitions += memtables.iter().map(|m| m.partition_count()).sum::<usize>();
            report.pending_flushes += memtables.len().saturating_sub(1);
            for file in tablet.files().iter() {
                report.add_file(&file.sstable());
            }
        }
        Some(report)
    }
}

impl TableReport {
    fn add_file(&mut self, file: &sstable::Sstable) {
        let (stats, bytes) = (file.stats(), file.bytes_on_disk());
        let partitions = u64::try_from(stats.partition_sizes.count()).unwrap_or(0);
        self.files += 1;
        self.file_bytes += bytes;
        self.file_bytes_max = self.file_bytes_max.max(bytes);
        self.data_bytes += file.data_bytes();
        self.resident_bytes += file.bytes_in_memory();
        self.file_partitions += partitions;
        self.file_rows += u64::try_from(stats.rows).unwrap_or(0);
        self.partition_bytes += stats.partition_sizes.mean() * partitions as f64;
        let largest = u64::try_from(stats.partition_sizes.max()).unwrap_or(0);
        self.partition_bytes_max = self.partition_bytes_max.max(largest);
        if stats.min_timestamp <= stats.max_timestamp {
            self.timestamps_us_max =
                self.timestamps_us_max.max(stats.max_timestamp.abs_diff(stats.min_timestamp));
        }
        let level = usize::try_from(stats.level).unwrap_or(0).min(LEVELS_MAX - 1);
        if self.files_by_level.len() <= level {
            self.files_by_level.resize(level + 1, 0);
        }
        self.files_by_level[level] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_tablets_add_up_to_the_whole() {
        let ring = TabletMap::new(2);
        for log2 in 0..5 {
            let tablets = TabletMap::new(log2);
            let mut estimate = SizeEstimate {
                id: [0; 16],
                keyspace: String::new(),
                name: String::new(),
                parts: vec![(0, 0); 4],
            };
            let mut sums = (0, 0);
            for tablet in tablets.tablets() {
                let (partitions, bytes) = (u64::from(tablet.0) + 3, 1_001 * u64::from(tablet.0 + 1));
                estimate.add_tablet(ring, tablets.range(tablet), partitions, bytes);
                sums = (sums.0 + partitions, sums.1 + bytes);
            }
            let told = estimate.parts.iter().fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
            assert_eq!(told, sums, "2^{log2} tablets");
        }
        let mut one = SizeEstimate {
            id: [0; 16],
            keyspace: String::new(),
            name: String::new(),
            parts: vec![(0, 0); 4],
        };
        one.add_tablet(ring, TabletMap::new(0).range(model::tablet::TabletId(0)), 10, 8);
        assert_eq!(one.parts, [(2, 2), (3, 2), (2, 2), (3, 2)]);
    }
}
