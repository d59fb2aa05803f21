//! Records large items while a table file is written: partitions, rows, values, collections.
//!
//! Names and thresholds are those that ScyllaDB documents (`compaction_large_*_warning_threshold_mb` and
//! similar). Items beyond them are logged, and the largest of each kind are kept in the file's own `Ceto.db`,
//! so that the contents of `system.large_partitions` and the like come and go with the files. Cassandra's
//! guardrails for written data (`partition_guard`) are checked from here too. Invariant: a row that is too
//! short to have a large item costs one comparison. `flush` uses it; compactions write through the same
//! output.

use std::iter::Peekable;

use model::deletion::LocalSeconds;
use model::hex;
use model::row::{CellKind, Cells};
use model::{ColumnId, DeletionTime, RowView, Table, TableId, Unfiltered};
use sstable::{LargeCell, LargeData, LargePartition, LargeRow};

use crate::partition_guard::{PartitionGuards, TombstoneCount};
use crate::shard::Storage;
use crate::tablet::TableFile;

/// Bytes of a stored partition besides its key and rows: the key's length before the key, the deletion behind
/// it.
const PARTITION_HEAD_BYTES: u64 = 2 + 12;
/// Least bytes of a collection's element in a row in memory.
const ELEMENT_BYTES: u64 = 19;
/// Most bytes of records kept for one file, however long the keys.
const RECORD_BYTES_MAX: usize = 1 << 20;

/// Sizes beyond which an item is large and is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LargeLimits {
    /// Bytes of a partition (`compaction_large_partition_warning_threshold_mb`).
    pub partition_bytes: u64,
    /// Rows of a partition (`compaction_rows_count_warning_threshold`).
    pub rows: u64,
    /// Bytes of a row (`compaction_large_row_warning_threshold_mb`).
    pub row_bytes: u64,
    /// Bytes of a value or of all elements of a collection (`compaction_large_cell_warning_threshold_mb`).
    pub cell_bytes: u64,
    /// Elements of a collection (`compaction_collection_elements_count_warning_threshold`).
    pub elements: u64,
    /// Most records of each kind that a table file keeps (`compaction_large_data_records_per_sstable`).
    pub records_max: usize,
}

impl Default for LargeLimits {
    fn default() -> Self {
        Self {
            partition_bytes: 1000 << 20,
            rows: 100_000,
            row_bytes: 10 << 20,
            cell_bytes: 1 << 20,
            elements: 10_000,
            records_max: 10,
        }
    }
}

/// The large items of one table file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LargeDataOf {
    /// The file's table.
    pub table: TableId,
    /// Name of the file's data component.
    pub file: String,
    /// The file's records.
    pub data: LargeData,
}

impl Storage {
    /// The large items in the table files of this shard, tables by id; files without any are left out.
    pub async fn large_data(&self) -> Vec<LargeDataOf> {
        let mut found = Vec::new();
        for tablet in self.tablets() {
            let table = tablet.table().id();
            for file in tablet.files().iter() {
                found.extend(large_in(table, file));
                reactor::maybe_yield().await;
            }
        }
        found
    }
}

fn large_in(table: TableId, file: &TableFile) -> Option<LargeDataOf> {
    let sstable = file.sstable();
    let data = sstable.extras().large.clone();
    let file = sstable.descriptor().file_name(sstable::Component::Data);
    (!data.is_empty()).then_some(LargeDataOf { table, file, data })
}

/// The partition that is being written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Name<'a> {
    pub(crate) table: &'a Table,
    /// Stored key of the partition.
    pub(crate) key: &'a [u8],
}

/// Observes everything that is written to one table file.
#[derive(Debug)]
pub(crate) struct Watch {
    limits: LargeLimits,
    guards: Option<PartitionGuards>,
    /// Name of the file's data component.
    file: String,
    /// When the file was begun, seconds.
    now: LocalSeconds,
    /// A row of fewer bytes in memory has no large item.
    look_bytes: u64,
    found: LargeData,
    /// Counters of the partition that is being written.
    rows: u64,
    dead_rows: u64,
    range_tombstones: u64,
    tombstones: Option<TombstoneCount>,
}

impl Watch {
    pub(crate) fn new(limits: LargeLimits, guards: Option<PartitionGuards>, file: String) -> Self {
        let now_us = reactor::wall_clock_us();
        let elements = |count: u64| count.saturating_mul(ELEMENT_BYTES);
        let of_guards = guards.map_or(u64::MAX, |guards| {
            let bytes = guards.collection_bytes.least().unwrap_or(u64::MAX);
            // Cassandra counts an element as a byte more than it takes here, and the collection as twelve.
            let bytes = (bytes - bytes / ELEMENT_BYTES).saturating_sub(12);
            guards.collection_items.least().map_or(u64::MAX, elements).min(bytes)
        });
        Self {
            limits,
            guards,
            file,
            now: LocalSeconds::try_from(now_us / 1_000_000).unwrap_or(LocalSeconds::MAX),
            look_bytes: limits.cell_bytes.min(elements(limits.elements)).min(of_guards),
            found: LargeData { written_ms: now_us / 1000, ..LargeData::default() },
            rows: 0,
            dead_rows: 0,
            range_tombstones: 0,
            tombstones: None,
        }
    }

    /// The large items of the file.
    pub(crate) fn into_found(self) -> LargeData {
        if self.found.is_empty() { LargeData::default() } else { self.found }
    }

    /// Begins a partition.
    pub(crate) fn begin(&mut self, deletion: DeletionTime, static_row: Option<RowView<'_>>) {
        (self.rows, self.dead_rows, self.range_tombstones) = (0, 0, 0);
        self.tombstones = self
            .guards
            .filter(|guards| guards.tombstones.is_on())
            .map(|_| TombstoneCount::new(self.now, deletion, static_row));
    }

    /// Notes the static row; `bytes` is the number of bytes that it and everything before it in the partition
    /// added to the file.
    pub(crate) fn static_row(&mut self, name: Name<'_>, row: RowView<'_>, bytes: u64) {
        let bytes = bytes.saturating_sub(PARTITION_HEAD_BYTES + name.key.len() as u64);
        self.row(name, None, row, bytes);
    }

    /// Notes a row or a change that was written; `bytes` is the number of bytes it added to the file.
    #[inline]
    pub(crate) fn unfiltered(&mut self, name: Name<'_>, unfiltered: &Unfiltered<'_>, bytes: u64) {
        if let Some(tombstones) = &mut self.tombstones {
            tombstones.add(unfiltered);
        }
        match unfiltered {
            Unfiltered::Row { clustering, row } => {
                self.rows += 1;
                let lives =
                    row.liveness().is_live(self.now) || row.cells().any(|cell| cell.is_live(self.now));
                self.dead_rows += u64::from(!lives);
                self.row(name, Some(clustering), *row, bytes);
            }
            Unfiltered::Change { .. } => self.range_tombstones += 1,
        }
    }

    /// Ends the partition; `bytes` is the number of bytes it added to the file.
    #[inline]
    pub(crate) fn end(&mut self, name: Name<'_>, bytes: u64) {
        if bytes > self.limits.partition_bytes || self.rows > self.limits.rows {
            self.note_partition(name, bytes);
        }
        if let Some(guards) = &self.guards {
            let tombstones = self.tombstones.as_ref().map_or(0, |seen| seen.count);
            guards.tell(name.table, name.key, &self.file, (bytes, tombstones));
        }
    }

    #[inline]
    fn row(&mut self, name: Name<'_>, clustering: Option<&[u8]>, row: RowView<'_>, bytes: u64) {
        if bytes > self.limits.row_bytes {
            self.note_row(name, clustering, bytes);
        }
        if row.as_bytes().len() as u64 >= self.look_bytes {
            self.look_into(name, clustering, row);
        }
    }

    /// Examines the values of a row that is long enough.
    #[cold]
    fn look_into(&mut self, name: Name<'_>, clustering: Option<&[u8]>, row: RowView<'_>) {
        let mut cells = row.cells().peekable();
        while let Some(sum) = ColumnSum::next(&mut cells, self.now) {
            let Some(column) = name.table.column_by_id(sum.column) else { continue };
            let is_collection = column.ty.is_collection() && column.ty.is_multi_cell();
            let elements = if is_collection { sum.live } else { 0 };
            if sum.bytes > self.limits.cell_bytes || elements > self.limits.elements {
                let cell = LargeCell {
                    key: name.key.to_vec(),
                    clustering: clustering.map(<[u8]>::to_vec),
                    column: column.name.clone(),
                    bytes: sum.bytes,
                    elements,
                };
                self.note_cell(name, cell);
            }
            if let Some(guards) = self.guards.filter(|_| is_collection && sum.live > 0) {
                let place = (name.key, clustering.unwrap_or_default());
                guards.tell_collection(name.table, place, &column.name, (sum.live_bytes, sum.live));
            }
        }
    }

    #[cold]
    fn note_partition(&mut self, name: Name<'_>, bytes: u64) {
        let (rows, dead_rows, range_tombstones) = (self.rows, self.dead_rows, self.range_tombstones);
        reactor::warn_limited!("a large partition is in a table file";
            keyspace = name.table.keyspace(), table = name.table.name(), key = Hex(name.key), bytes = bytes, rows = rows,
            file = self.file);
        let limits = self.limits;
        let one = LargePartition { key: name.key.to_vec(), bytes, rows, dead_rows, range_tombstones };
        let of = |one: &LargePartition| {
            excess(one.bytes, limits.partition_bytes).max(excess(one.rows, limits.rows))
        };
        if self.has_room(one.key.len()) {
            keep(&mut self.found.partitions, one, limits.records_max, of);
        }
    }

    #[cold]
    fn note_row(&mut self, name: Name<'_>, clustering: Option<&[u8]>, bytes: u64) {
        reactor::warn_limited!("a large row is in a table file";
            keyspace = name.table.keyspace(), table = name.table.name(), key = Hex(name.key), bytes = bytes,
            file = self.file);
        let one = LargeRow { key: name.key.to_vec(), clustering: clustering.map(<[u8]>::to_vec), bytes };
        if self.has_room(one.key.len() + clustering.map_or(0, <[u8]>::len)) {
            keep(&mut self.found.rows, one, self.limits.records_max, |one| one.bytes as f64);
        }
    }

    fn note_cell(&mut self, name: Name<'_>, one: LargeCell) {
        reactor::warn_limited!("a large value is in a table file";
            keyspace = name.table.keyspace(), table = name.table.name(), key = Hex(name.key), column = one.column,
            bytes = one.bytes, elements = one.elements, file = self.file);
        let limits = self.limits;
        let of =
            |one: &LargeCell| excess(one.bytes, limits.cell_bytes).max(excess(one.elements, limits.elements));
        if self.has_room(one.key.len() + one.clustering.as_ref().map_or(0, Vec::len)) {
            keep(&mut self.found.cells, one, limits.records_max, of);
        }
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.found.bytes_in_memory() + bytes <= RECORD_BYTES_MAX
    }
}

/// The value as a multiple of the threshold.
fn excess(value: u64, threshold: u64) -> f64 {
    value as f64 / threshold.max(1) as f64
}

/// Adds an item to the largest `most`, largest first.
fn keep<T>(kept: &mut Vec<T>, one: T, most: usize, size: impl Fn(&T) -> f64) {
    let at = kept.partition_point(|other| size(other) >= size(&one));
    if at < most {
        kept.insert(at, one);
        kept.truncate(most);
    }
}

/// The first bytes of a key, as the log shows them.
struct Hex<'a>(&'a [u8]);

impl std::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN: usize = 64;
        f.write_str(&hex::blob(&self.0[..self.0.len().min(SHOWN)]))?;
        if self.0.len() > SHOWN { f.write_str("...") } else { Ok(()) }
    }
}

/// Sums over a row's cells of one column.
struct ColumnSum {
    column: ColumnId,
    /// Bytes of all values and of the elements' keys.
    bytes: u64,
    /// Number of live values.
    live: u64,
    /// Bytes of the live values, as Cassandra counts them.
    live_bytes: u64,
}

impl ColumnSum {
    /// Takes the cells of the next column.
    fn next(cells: &mut Peekable<Cells<'_>>, now: LocalSeconds) -> Option<Self> {
        /// A cell's timestamp, TTL and local deletion time, as Cassandra counts them.
        const CELL_BYTES: u64 = 8 + 4 + 8;
        /// The deletion of a whole collection, which Cassandra counts even if there is none.
        const DELETION_BYTES: u64 = 12;
        let column = cells.peek()?.column;
        let mut sum = Self { column, bytes: 0, live: 0, live_bytes: DELETION_BYTES };
        while let Some(cell) = cells.next_if(|cell| cell.column == column) {
            if matches!(cell.kind, CellKind::CollectionDeletion { .. }) {
                continue;
            }
            let length = |part: Option<&[u8]>| part.map_or(0, <[u8]>::len) as u64;
            let bytes = length(cell.value()) + length(cell.path);
            sum.bytes += bytes;
            if cell.is_live(now) {
                sum.live += 1;
                sum.live_bytes += CELL_BYTES + bytes;
            }
        }
        Some(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_are_kept_largest_first() {
        let mut kept = Vec::new();
        for size in [3, 9, 1, 7, 9, 2] {
            keep(&mut kept, size, 3, |size| f64::from(*size));
        }
        assert_eq!(kept, [9, 9, 7]);
        let mut none = Vec::new();
        keep(&mut none, 1, 0, |size| f64::from(*size));
        assert!(none.is_empty());
    }
}
