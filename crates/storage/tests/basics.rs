//! The whole path once, on a real disk.
#![allow(clippy::disallowed_methods)]

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
use reactor::Deadline;
use storage::{Flow, PartitionRange, ReadCommand, RowConsumer, Storage, StorageConfig};

const ID: TableId = TableId([7; 16]);

fn changes() -> [SchemaChange; 2] {
    let column = |id: u16, name: &str, kind| Column {
        id: ColumnId(id),
        name: name.to_owned(),
        ty: CqlType::Text,
        kind,
        position: 0,
        reversed: false,
    };
    let options = KeyspaceOptions { replication: BTreeMap::new(), durable_writes: true };
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
        options: TableOptions::default(),
        next_column_id: 3,
        tablets_log2: 1,
        revision: 0,
    };
    [
        SchemaChange::CreateKeyspace { name: "k".to_owned(), options },
        SchemaChange::CreateTable(Box::new(definition)),
    ]
}

fn write(key: &str, clustering: &str, value: &str, timestamp: i64) -> Vec<u8> {
    let key = DecoratedKey::new(key.as_bytes().to_vec());
    let mut out = Vec::new();
    let builder = MutationBuilder::new(&mut out, ID, key.token, &key.key, DeletionTime::LIVE, |_| ());
    let mut prefix = Vec::new();
    append_component(&mut prefix, Some(clustering.as_bytes()));
    let mut rows = builder.rows();
    rows.row(&prefix, |out| {
        let mut row = RowBuilder::new(out, Liveness::NONE, DeletionTime::LIVE);
        let kind = CellKind::Live(value.as_bytes());
        row.cell(CellView { column: ColumnId(2), timestamp, path: None, kind });
        row.finish();
    });
    rows.finish();
    out
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

async fn values(storage: &Storage, range: PartitionRange) -> Vec<(Vec<u8>, Vec<u8>)> {
    let table: Rc<Table> = storage.schema().table_by_id(ID).cloned().expect("the table");
    let slices = [Slice::all()].into_iter().collect();
    let command = ReadCommand { table, range, slices, reversed: false, now: 1_700_000_000 };
    let mut values = Values::default();
    storage.read(&command, &mut values).await.expect("a read");
    values.0
}

#[test]
fn writes_are_read_from_memory_from_files_and_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let config = StorageConfig::new(directory.path(), 8 << 20);
    for life in 0..3 {
        let config = config.clone();
        reactor::run_one(reactor::Config::default(), async move {
            let storage = Storage::open(config, 0, 1).await.expect("an open storage");
            if life == 0 {
                for change in changes() {
                    storage.change_schema(&change).await.expect("a schema change");
                }
            }
            for number in 0..50 {
                for key in 0..5 {
                    let bytes = write(&format!("key{key}"), &format!("{number:03}"), &life.to_string(), life);
                    storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
                }
            }
            if life == 0 {
                storage.flush(ID).await.expect("a flush");
            }
            let mut all: Vec<_> = (0..5).map(|key| format!("key{key}").into_bytes()).collect();
            all.sort_by_key(|key| model::token::murmur3_token(key));
            let expected: Vec<_> =
                all.into_iter().map(|key| (key, life.to_string().repeat(50).into_bytes())).collect();
            assert_eq!(values(&storage, PartitionRange::all()).await, expected, "life {life}");
            for (key, value) in &expected {
                let range = PartitionRange::Key(DecoratedKey::new(key.clone()));
                assert_eq!(values(&storage, range).await, [(key.clone(), value.clone())]);
            }
            if life == 1 {
                storage.drain().await.expect("a drain");
            }
        });
    }
}
