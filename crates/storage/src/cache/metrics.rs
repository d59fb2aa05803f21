//! Metrics of the row cache, under the names that ScyllaDB's monitoring uses.

use std::rc::Rc;

use model::RowView;
use reactor::metrics::{Counter, Gauge, counter, gauge};

use super::Inner;

/// The metrics of one cache.
pub(super) struct Metrics {
    pub(super) reads: Rc<Counter>,
    pub(super) reads_with_misses: Rc<Counter>,
    pub(super) partition_hits: Rc<Counter>,
    pub(super) partition_misses: Rc<Counter>,
    pub(super) row_hits: Rc<Counter>,
    pub(super) row_misses: Rc<Counter>,
    pub(super) row_tombstone_reads: Rc<Counter>,
    pub(super) range_tombstone_reads: Rc<Counter>,
    partition_insertions: Rc<Counter>,
    partition_merges: Rc<Counter>,
    partition_evictions: Rc<Counter>,
    partition_removals: Rc<Counter>,
    row_insertions: Rc<Counter>,
    row_evictions: Rc<Counter>,
    row_removals: Rc<Counter>,
    rows_merged: Rc<Counter>,
    partitions: Rc<Gauge>,
    rows: Rc<Gauge>,
    bytes_used: Rc<Gauge>,
    bytes_total: Rc<Gauge>,
    lsa_used: Rc<Gauge>,
    lsa_total: Rc<Gauge>,
}

impl Metrics {
    pub(super) fn new() -> Self {
        let count = |name: &str, help: &str| counter(name, help, &[]);
        let state = |name: &str, help: &str| gauge(name, help, &[]);
        Self {
            reads: count("scylla_cache_reads", "Partition reads that asked the row cache"),
            reads_with_misses: count(
                "scylla_cache_reads_with_misses",
                "Reads that came to a gap in what the row cache knows",
            ),
            partition_hits: count(
                "scylla_cache_partition_hits",
                "Partitions of which the row cache knew something",
            ),
            partition_misses: count(
                "scylla_cache_partition_misses",
                "Partitions of which the row cache knew nothing",
            ),
            row_hits: count("scylla_cache_row_hits", "Rows read from the row cache"),
            row_misses: count("scylla_cache_row_misses", "Rows read from table files for the row cache"),
            row_tombstone_reads: count(
                "scylla_cache_row_tombstone_reads",
                "Deletions of rows that reads met in the row cache",
            ),
            range_tombstone_reads: count(
                "scylla_cache_range_tombstone_reads",
                "Deletions of ranges of rows that reads met in the row cache",
            ),
            partition_insertions: count(
                "scylla_cache_partition_insertions",
                "Partitions put into the row cache",
            ),
            partition_merges: count(
                "scylla_cache_partition_merges",
                "Partitions of flushed memtables merged into what the row cache had of them",
            ),
            partition_evictions: count(
                "scylla_cache_partition_evictions",
                "Partitions that left the row cache for want of memory",
            ),
            partition_removals: count(
                "scylla_cache_partition_removals",
                "Partitions taken out of the row cache because they were not true any more",
            ),
            row_insertions: count("scylla_cache_row_insertions", "Rows put into the row cache"),
            row_evictions: count(
                "scylla_cache_row_evictions",
                "Rows that left the row cache for want of memory",
            ),
            row_removals: count(
                "scylla_cache_row_removals",
                "Rows taken out of the row cache because they were not true any more",
            ),
            rows_merged: count(
                "scylla_cache_rows_merged_from_memtable",
                "Rows of flushed memtables merged into rows of the row cache",
            ),
            partitions: state("scylla_cache_partitions", "Partitions in the row cache"),
            rows: state("scylla_cache_rows", "Rows in the row cache"),
            bytes_used: state("scylla_cache_bytes_used", "Bytes of objects in the row cache"),
            bytes_total: state("scylla_cache_bytes_total", "Bytes of memory that the row cache holds"),
            lsa_used: state(
                "scylla_lsa_used_space_bytes",
                "Bytes of memtables, and of objects in the row cache",
            ),
            lsa_total: state(
                "scylla_lsa_total_space_bytes",
                "Bytes of memory that memtables and the row cache hold",
            ),
        }
    }

    /// Counts the deletion of a row that is read, if it has one.
    #[inline]
    pub(super) fn met(&self, row: RowView<'_>) {
        if !row.is_plain() && !row.deletion().is_live() {
            self.row_tombstone_reads.inc();
        }
    }

    /// Publishes the events since the last time, and the present sizes.
    pub(super) fn update(&self, inner: &mut Inner) {
        let tally = std::mem::take(&mut inner.tally);
        self.partition_insertions.add(tally.inserted_partitions);
        self.partition_merges.add(tally.merged_partitions);
        self.partition_evictions.add(tally.evicted_partitions);
        self.partition_removals.add(tally.removed_partitions);
        self.row_insertions.add(tally.inserted_rows);
        self.row_evictions.add(tally.evicted_rows);
        self.row_removals.add(tally.removed_rows);
        self.rows_merged.add(tally.merged_rows);
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.partitions.set(i64::try_from(inner.index.len()).unwrap_or(i64::MAX));
        self.rows.set(i64::try_from(inner.rows).unwrap_or(i64::MAX));
        let used = inner.region.live_bytes();
        self.bytes_used.set(number(used));
        self.bytes_total.set(number(inner.budget.clean() - inner.pages.bytes()));
        self.lsa_used.set(number(inner.budget.used() + used));
        self.lsa_total.set(number(inner.budget.used() + inner.budget.clean() - inner.pages.bytes()));
    }
}
