//! Warns operators about partitions that are written to table files and are too large or have too many
//! tombstones, and about collections that are too large.
//!
//! Names and texts are those of Cassandra 5's guardrails `partition_size`, `partition_tombstones`,
//! `collection_size` and `items_per_collection`. They only log: the data was acknowledged before.
//! `large_data`, which sees everything that flushes and compactions write, uses this.

use model::deletion::LocalSeconds;
use model::{DeletionTime, RowView, Table, Unfiltered};

use crate::takeover::is_system;

/// Thresholds beyond which there is a warning, or an error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PartitionLimit {
    /// `…_warn_threshold`
    pub warn: Option<u64>,
    /// `…_fail_threshold`
    pub fail: Option<u64>,
}

/// The guardrails.
#[derive(Debug, Clone, Copy)]
pub struct PartitionGuards {
    /// `partition_size_*_threshold`: bytes in the table file, before compression.
    pub bytes: PartitionLimit,
    /// `partition_tombstones_*_threshold`: tombstones and dead data in the table file.
    pub tombstones: PartitionLimit,
    /// `collection_size_*_threshold`: bytes of a collection's live elements, as Cassandra counts them.
    pub collection_bytes: PartitionLimit,
    /// `items_per_collection_*_threshold`: live elements of a collection.
    pub collection_items: PartitionLimit,
    /// Formats a partition key for an operator.
    pub key_text: fn(&Table, &[u8]) -> String,
    /// Formats a partition key and a clustering, as values of CQL.
    pub row_text: fn(&Table, &[u8], &[u8]) -> String,
}

impl PartitionLimit {
    /// The threshold that `value` exceeds, and whether it is the one for errors.
    fn exceeded(self, value: u64) -> Option<(bool, u64)> {
        let beyond = |limit: Option<u64>, fails| limit.filter(|most| value > *most).map(|most| (fails, most));
        beyond(self.fail, true).or_else(|| beyond(self.warn, false))
    }

    /// The smallest threshold.
    pub(crate) fn least(self) -> Option<u64> {
        self.warn.into_iter().chain(self.fail).min()
    }

    /// Whether there is a threshold.
    pub fn is_on(self) -> bool {
        self.warn.is_some() || self.fail.is_some()
    }
}

impl PartitionGuards {
    /// Messages about a partition that was written, each with whether it is an error.
    fn violations(
        &self,
        table: &Table,
        key: &[u8],
        file: &str,
        (bytes, tombstones): (u64, u64),
    ) -> Vec<(bool, String)> {
        let mut said = Vec::new();
        let what = || {
            format!("{}.{}:{} on sstable {file}", table.keyspace(), table.name(), (self.key_text)(table, key))
        };
        let which = |fails| if fails { "failure" } else { "warning" };
        if let Some((fails, most)) = self.bytes.exceeded(bytes) {
            let text = format!(
                "Guardrail partition_size violated: Partition {} has size {bytes}, this exceeds the {} threshold of \
                 {most}. Too large partitions can cause performance problems.",
                what(),
                which(fails)
            );
            said.push((fails, text));
        }
        if let Some((fails, most)) = self.tombstones.exceeded(tombstones) {
            let text = format!(
                "Guardrail partition_tombstones violated: Partition {} has {tombstones} tombstones, this exceeds the {} \
                 threshold of {most}. Partitions with too many tombstones can cause performance problems.",
                what(),
                which(fails)
            );
            said.push((fails, text));
        }
        said
    }

    /// Messages about a collection in a row that was written, each with whether it is an error.
    fn of_collection(
        &self,
        table: &Table,
        (key, clustering): (&[u8], &[u8]),
        column: &str,
        (bytes, items): (u64, u64),
    ) -> Vec<(bool, String)> {
        let mut said = Vec::new();
        let which = |fails| if fails { "failure" } else { "warning" };
        let what = || {
            let row = (self.row_text)(table, key, clustering);
            format!("{column} in row {row} in table {}.{}", table.keyspace(), table.name())
        };
        if let Some((fails, most)) = self.collection_bytes.exceeded(bytes) {
            let text = format!(
                "Guardrail collection_size violated: Detected collection {} of size {bytes}, this exceeds the {} \
                 threshold of {most}.",
                what(),
                which(fails)
            );
            said.push((fails, text));
        }
        if let Some((fails, most)) = self.collection_items.exceeded(items) {
            let text = format!(
                "Guardrail items_per_collection violated: Detected collection {} with {items} items, this exceeds the \
                 {} threshold of {most}.",
                what(),
                which(fails)
            );
            said.push((fails, text));
        }
        said
    }

    /// Logs the thresholds that a partition exceeds.
    pub(crate) fn tell(&self, table: &Table, key: &[u8], file: &str, measured: (u64, u64)) {
        if self.bytes.exceeded(measured.0).is_some() || self.tombstones.exceeded(measured.1).is_some() {
            log(self.violations(table, key, file, measured));
        }
    }

    /// Logs the thresholds that a collection exceeds; as in Cassandra, not for the node's own tables.
    pub(crate) fn tell_collection(
        &self,
        table: &Table,
        place: (&[u8], &[u8]),
        column: &str,
        measured: (u64, u64),
    ) {
        if !is_system(table.keyspace()) {
            log(self.of_collection(table, place, column, measured));
        }
    }
}

fn log(said: Vec<(bool, String)>) {
    for (fails, text) in said {
        if fails {
            reactor::error!("{}", text);
        } else {
            reactor::warn!("{}", text);
        }
    }
}

/// Counts the tombstones and dead data of a partition, as Cassandra counts them for its statistics.
#[derive(Debug)]
pub(crate) struct TombstoneCount {
    now: LocalSeconds,
    /// The range deletion in force.
    open: DeletionTime,
    pub(crate) count: u64,
}

impl TombstoneCount {
    /// Begins a partition with its deletion and its static row.
    pub(crate) fn new(now: LocalSeconds, deletion: DeletionTime, row: Option<RowView<'_>>) -> Self {
        let mut count = Self { now, open: DeletionTime::LIVE, count: u64::from(!deletion.is_live()) };
        if let Some(row) = row {
            count.row(row);
        }
        count
    }

    pub(crate) fn add(&mut self, unfiltered: &Unfiltered<'_>) {
        match unfiltered {
            Unfiltered::Row { row, .. } => self.row(*row),
            // The end of one range and the start of another each count for their deletion.
            Unfiltered::Change { deletion, .. } => {
                self.count += u64::from(!self.open.is_live()) + u64::from(!deletion.is_live());
                self.open = *deletion;
            }
        }
    }

    fn row(&mut self, row: RowView<'_>) {
        let liveness = row.liveness();
        let dead = row.cells().filter(|cell| !cell.is_live(self.now)).count() as u64;
        self.count += u64::from(!liveness.is_none() && !liveness.is_live(self.now))
            + u64::from(!row.deletion().is_live())
            + dead;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::row::CellKind;
    use model::schema::{TableDefinition, TableOptions};
    use model::{CellView, Column, ColumnId, ColumnKind, CqlType, Liveness, Position, RowBuilder, TableId};

    fn table() -> Table {
        let column = |id, name: &str, kind| Column {
            id: ColumnId(id),
            name: name.to_owned(),
            ty: CqlType::Int,
            kind,
            position: 0,
            reversed: false,
        };
        let definition = TableDefinition {
            id: TableId([7; 16]),
            keyspace: "ks".to_owned(),
            name: "t".to_owned(),
            columns: vec![
                column(0, "k", ColumnKind::PartitionKey),
                column(1, "c", ColumnKind::Clustering),
                column(2, "v", ColumnKind::Regular),
            ],
            dropped: [].into(),
            options: TableOptions::default(),
            next_column_id: 3,
            tablets_log2: 0,
            revision: 0,
        };
        Table::new(definition)
    }

    /// `bytes` limits the partition's size, `count` its tombstones.
    fn guards(bytes: PartitionLimit, count: PartitionLimit) -> PartitionGuards {
        PartitionGuards {
            bytes,
            tombstones: count,
            collection_bytes: bytes,
            collection_items: count,
            key_text: |_, key| key[0].to_string(),
            row_text: |_, key, clustering| format!("({}, {})", key[0], clustering[0]),
        }
    }

    #[test]
    fn collections_are_told_with_their_rows_in_cassandras_words() {
        let limit = |warn, fail| PartitionLimit { warn, fail };
        let guards = guards(limit(Some(100), None), limit(Some(5), Some(10)));
        let said = |bytes, items| guards.of_collection(&table(), (&[9], &[3]), "v", (bytes, items));
        assert_eq!(said(100, 5), []);
        let size = "Guardrail collection_size violated: Detected collection v in row (9, 3) in table ks.t of size 101, \
                    this exceeds the warning threshold of 100.";
        let items = "Guardrail items_per_collection violated: Detected collection v in row (9, 3) in table ks.t with 11 \
                     items, this exceeds the failure threshold of 10.";
        assert_eq!(said(101, 11), [(false, size.to_owned()), (true, items.to_owned())]);
        assert_eq!(limit(Some(7), Some(9)).least(), Some(7));
        assert_eq!(limit(None, Some(9)).least(), Some(9));
    }

    #[test]
    fn what_is_beyond_a_threshold_is_told_once_in_cassandras_words() {
        let limit = |warn, fail| PartitionLimit { warn: Some(warn), fail: Some(fail) };
        let guards = guards(limit(100, 200), limit(5, 10));
        let said =
            |bytes, tombstones| guards.violations(&table(), &[9], "me-1-big-Data.db", (bytes, tombstones));
        assert_eq!(said(100, 5), []);
        assert_eq!(
            said(101, 11),
            [
                (
                    false,
                    "Guardrail partition_size violated: Partition ks.t:9 on sstable me-1-big-Data.db has size 101, this \
                     exceeds the warning threshold of 100. Too large partitions can cause performance problems."
                        .to_owned()
                ),
                (
                    true,
                    "Guardrail partition_tombstones violated: Partition ks.t:9 on sstable me-1-big-Data.db has 11 \
                     tombstones, this exceeds the failure threshold of 10. Partitions with too many tombstones can \
                     cause performance problems."
                        .to_owned()
                ),
            ]
        );
        assert!(said(201, 0).iter().all(|(fails, _)| *fails));
    }

    #[test]
    fn everything_dead_counts_and_a_boundary_counts_twice() {
        let deletion = DeletionTime { timestamp: 5, local_time: 50 };
        let mut row = Vec::new();
        let mut builder =
            RowBuilder::new(&mut row, Liveness { timestamp: 9, ttl: 3, expires_at: 90 }, deletion);
        builder.cell(CellView {
            column: ColumnId(2),
            timestamp: 9,
            path: None,
            kind: CellKind::Tombstone { local_time: 9 },
        });
        builder.finish();
        let row = RowView::trusted(&row);
        let count = |now| {
            let mut count = TombstoneCount::new(now, deletion, Some(row));
            let change = |deletion| Unfiltered::Change { position: Position::START, deletion };
            count.add(&Unfiltered::Row { clustering: &[], row });
            count.add(&change(deletion));
            count.add(&change(DeletionTime { timestamp: 6, local_time: 60 }));
            count.add(&change(DeletionTime::LIVE));
            count.count
        };
        // The partition's deletion, twice a row's deletion and cell, and four ends of ranges; later the row
        // markers too.
        assert_eq!((count(89), count(90)), (1 + 2 * 2 + 4, 1 + 2 * 3 + 4));
    }
}
