//! One small table for tests of the whole storage.
#![allow(dead_code)] // each test crate uses its part
#![allow(unreachable_pub)]

use std::collections::BTreeMap;
use std::rc::Rc;

use model::clustering::{Slice, append_component};
use model::deletion::Liveness;
use model::mutation::MutationBuilder;
use model::partition_key::DecoratedKey;
use model::row::{CellKind, CellView};
use model::schema::{KeyspaceOptions, SchemaChange, TableDefinition, TableOptions};
use model::{
    Column, ColumnId, ColumnKind, CqlType, DeletionTime, RowBuilder, RowView, Table, TableId, Token,
};
use storage::{Flow, FromMemory, PartitionRange, ReadCommand, RowConsumer, Storage, StorageError};

/// The table's id.
pub const ID: TableId = TableId([7; 16]);

/// A keyspace with one table: a key, a clustering and a value, all text.
pub fn changes() -> [SchemaChange; 2] {
    changes_with(1, |_| ())
}

/// The same with so many tablets, a power of two, and other options.
pub fn changes_with(tablets_log2: u8, set: impl FnOnce(&mut TableOptions)) -> [SchemaChange; 2] {
    let mut table_options = TableOptions::default();
    set(&mut table_options);
    let column = |id: u16, name: &str, kind| Column {
        id: ColumnId(id),
        name: name.to_owned(),
        ty: CqlType::Text,
        kind,
        position: 0,
        reversed: false,
    };
    let options = KeyspaceOptions { replication: BTreeMap::new(), durable_writes: true, tablets: None };
    let definition = TableDefinition {
        id: ID,
        keyspace: "k".to_owned(),
        name: "t".to_owned(),
        columns: vec![
            column(0, "p", ColumnKind::PartitionKey),
            column(1, "c", ColumnKind::Clustering),
            column(2, "v", ColumnKind::Regular),
        ],
        dropped: BTreeMap::new(),
        options: table_options,
        next_column_id: 3,
        tablets_log2,
        revision: 0,
    };
    [
        SchemaChange::CreateKeyspace { name: "k".to_owned(), options },
        SchemaChange::CreateTable(Box::new(definition)),
    ]
}

/// Mutation bytes of one cell.
pub fn write(key: &str, clustering: &str, value: &str, timestamp: i64) -> Vec<u8> {
    write_kind(key, clustering, CellKind::Live(value.as_bytes()), timestamp)
}

/// Mutation bytes of a row with its own timestamp and one cell, as INSERT makes it.
pub fn insert(key: &str, clustering: &str, value: &str, timestamp: i64) -> Vec<u8> {
    let marker = Liveness { timestamp, ..Liveness::NONE };
    write_row(key, clustering, marker, CellKind::Live(value.as_bytes()), timestamp)
}

fn write_kind(key: &str, clustering: &str, kind: CellKind<'_>, timestamp: i64) -> Vec<u8> {
    write_row(key, clustering, Liveness::NONE, kind, timestamp)
}

/// A further table of the keyspace, with the same columns.
pub fn another_table(number: u8) -> SchemaChange {
    let [_, mut table] = changes_with(0, |_| ());
    if let SchemaChange::CreateTable(definition) = &mut table {
        (definition.id, definition.name) = (another_id(number), format!("t{number}"));
    }
    table
}

/// The id of [`another_table`].
pub fn another_id(number: u8) -> TableId {
    TableId([number; 16])
}

/// Mutation bytes of one cell in any table.
pub fn write_to(table: TableId, key: &str, clustering: &str, value: &str, timestamp: i64) -> Vec<u8> {
    write_row_to(table, key, clustering, Liveness::NONE, CellKind::Live(value.as_bytes()), timestamp)
}

fn write_row(key: &str, clustering: &str, marker: Liveness, kind: CellKind<'_>, timestamp: i64) -> Vec<u8> {
    write_row_to(ID, key, clustering, marker, kind, timestamp)
}

fn write_row_to(
    table: TableId,
    key: &str,
    clustering: &str,
    marker: Liveness,
    kind: CellKind<'_>,
    timestamp: i64,
) -> Vec<u8> {
    let key = DecoratedKey::new(key.as_bytes().to_vec());
    let mut out = Vec::new();
    let builder = MutationBuilder::new(&mut out, table, key.token, &key.key, DeletionTime::LIVE, |_| ());
    let mut prefix = Vec::new();
    append_component(&mut prefix, Some(clustering.as_bytes()));
    let mut rows = builder.rows();
    rows.row(&prefix, |out| {
        let mut row = RowBuilder::new(out, marker, DeletionTime::LIVE);
        row.cell(CellView { column: ColumnId(2), timestamp, path: None, kind });
        row.finish();
    });
    rows.finish();
    out
}

/// Mutation bytes of the deletion of a partition.
pub fn delete(key: &str, timestamp: i64, local_time: u32) -> Vec<u8> {
    let key = DecoratedKey::new(key.as_bytes().to_vec());
    let mut out = Vec::new();
    let deletion = DeletionTime { timestamp, local_time };
    let builder = MutationBuilder::new(&mut out, ID, key.token, &key.key, deletion, |_| ());
    builder.rows().finish();
    out
}

/// Mutation bytes of one cell that expires.
pub fn write_expiring(key: &str, clustering: &str, value: &str, timestamp: i64, expires_at: u32) -> Vec<u8> {
    write_kind(key, clustering, CellKind::Expiring { value: value.as_bytes(), ttl: 1, expires_at }, timestamp)
}

#[derive(Default)]
struct Values(Vec<(Vec<u8>, Vec<u8>)>);

impl RowConsumer for Values {
    fn partition(&mut self, key: &[u8], _: Token, _: Option<RowView<'_>>) -> Flow {
        self.0.push((key.to_vec(), Vec::new()));
        Flow::Continue
    }
    fn row(&mut self, _: &[u8], row: RowView<'_>) -> Flow {
        let value = row.cell(ColumnId(2)).and_then(|cell| cell.value()).unwrap_or_default();
        self.0.last_mut().expect("a partition is announced").1.extend_from_slice(value);
        Flow::Continue
    }
    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

/// Keys with the values of all their rows, one after the other.
pub async fn values(
    storage: &Storage,
    range: PartitionRange,
) -> Result<Vec<(Vec<u8>, Vec<u8>)>, StorageError> {
    slice_values(storage, range, Slice::all(), false).await
}

/// The same of the rows in one slice.
pub async fn slice_values(
    storage: &Storage,
    range: PartitionRange,
    slice: Slice,
    bypass_cache: bool,
) -> Result<Vec<(Vec<u8>, Vec<u8>)>, StorageError> {
    let table: Rc<Table> = storage.schema().table_by_id(ID).cloned().expect("the table");
    let slices = [slice].into_iter().collect();
    let command = ReadCommand { table, range, slices, reversed: false, now: 1_700_000_000, bypass_cache };
    let mut values = Values::default();
    storage.read(&command, &mut values).await?;
    let mut at_once = Values::default();
    if let FromMemory::Done = storage.read_from_memory(&command, &mut at_once) {
        assert_eq!(at_once.0, values.0, "read at once and in turn");
    }
    Ok(values.0)
}
