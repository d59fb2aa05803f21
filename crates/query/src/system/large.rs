//! `system.large_partitions`, `large_rows` and `large_cells`: large data, as recorded in table files.
//!
//! The columns are those of ScyllaDB's documentation. Rows come and go with the files; they are not stored.

use storage::LargeDataOf;

use super::rows::{RowDraft, Rows};
use crate::execute::consistency::{clustering_text, key_text};
use model::{Schema, Table};

/// Whether a table of `system` shows large data.
pub(super) fn is_large_data(table: &str) -> bool {
    matches!(table, "large_partitions" | "large_rows" | "large_cells")
}

/// Fills one of the tables; `schema` has the types of the keys.
pub(super) fn fill(rows: &mut Rows<'_>, name: &str, files: &[LargeDataOf], schema: &Schema) {
    for of in files {
        // The table was dropped meanwhile.
        let Some(table) = schema.table_by_id(of.table) else { continue };
        match name {
            "large_partitions" => {
                for one in &of.data.partitions {
                    rows.row(|row| {
                        head(row, of, table, &one.key);
                        row.bigint("partition_size", bigint(one.bytes));
                        row.bigint("rows", bigint(one.rows));
                        row.bigint("dead_rows", bigint(one.dead_rows));
                        row.bigint("range_tombstones", bigint(one.range_tombstones));
                    });
                }
            }
            "large_rows" => {
                for one in &of.data.rows {
                    rows.row(|row| {
                        head(row, of, table, &one.key);
                        row.bigint("row_size", bigint(one.bytes));
                        row.text("clustering_key", &place(table, one.clustering.as_deref()));
                    });
                }
            }
            _ => {
                for one in &of.data.cells {
                    rows.row(|row| {
                        head(row, of, table, &one.key);
                        row.bigint("cell_size", bigint(one.bytes));
                        row.text("clustering_key", &place(table, one.clustering.as_deref()));
                        row.text("column_name", &one.column);
                        row.bigint("collection_elements", bigint(one.elements));
                    });
                }
            }
        }
    }
}

/// The columns that the three tables share.
fn head(row: &mut RowDraft<'_>, of: &LargeDataOf, table: &Table, key: &[u8]) {
    row.text("keyspace_name", table.keyspace());
    row.text("table_name", table.name());
    row.text("sstable_name", &of.file);
    row.text("partition_key", &key_text(table, key));
    row.timestamp("compaction_time", of.data.written_ms);
}

/// The clustering as text; the static row has none.
fn place(table: &Table, clustering: Option<&[u8]>) -> String {
    clustering.map_or_else(String::new, |clustering| clustering_text(table, clustering))
}

fn bigint(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
