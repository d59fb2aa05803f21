//! Table files that Cassandra wrote are taken over: every row once, in the tablets that own them, and after a restart.

#![allow(clippy::disallowed_methods, reason = "a test of files on the real disk")]

use std::path::{Path, PathBuf};
use std::rc::Rc;

use model::clustering::Slice;
use model::schema::{KeyspaceOptions, SchemaChange, TableDefinition, TableOptions};
use model::{Column, ColumnId, ColumnKind, CqlType, RowView, Token};
use storage::{Flow, PartitionRange, ReadCommand, RowConsumer, Storage, StorageConfig, StorageError};

const ID: model::TableId = model::TableId([9; 16]);

fn golden(version: &str, kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
        .join("tests/golden/sstable")
        .join(version)
        .join(kind)
}

/// `many` of the golden files: a number and its value, over several tablets.
fn changes() -> [SchemaChange; 2] {
    let column = |id: u16, name: &str, kind| Column {
        id: ColumnId(id),
        name: name.to_owned(),
        ty: CqlType::Int,
        kind,
        position: 0,
        reversed: false,
    };
    let options = KeyspaceOptions { replication: Default::default(), durable_writes: true };
    let definition = TableDefinition {
        id: ID,
        keyspace: "k".to_owned(),
        name: "many".to_owned(),
        columns: vec![column(0, "pk", ColumnKind::PartitionKey), column(1, "v", ColumnKind::Regular)],
        dropped: Default::default(),
        options: TableOptions::default(),
        next_column_id: 2,
        tablets_log2: 3,
        revision: 0,
    };
    [
        SchemaChange::CreateKeyspace { name: "k".to_owned(), options },
        SchemaChange::CreateTable(Box::new(definition)),
    ]
}

#[derive(Default)]
struct Pairs(Vec<(i32, i32)>, Vec<u8>);

impl RowConsumer for Pairs {
    fn partition(&mut self, key: &[u8], _: Token, _: Option<RowView<'_>>) -> Flow {
        self.1 = key.to_vec();
        Flow::Continue
    }
    fn row(&mut self, _: &[u8], row: RowView<'_>) -> Flow {
        let number = |bytes: &[u8]| i32::from_be_bytes(bytes.try_into().unwrap());
        let value = row.cell(ColumnId(1)).and_then(|cell| cell.value()).unwrap();
        self.0.push((number(&self.1), number(value)));
        Flow::Continue
    }
    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

async fn pairs(storage: &Storage) -> Vec<(i32, i32)> {
    let table = Rc::clone(storage.schema().table_by_id(ID).unwrap());
    let slices = [Slice::all()].into_iter().collect();
    let range = PartitionRange::all();
    let mut found = Pairs::default();
    let command = ReadCommand { table, range, slices, reversed: false, now: 1_700_000_000 };
    storage.read(&command, &mut found).await.unwrap();
    found.0.sort();
    found.0
}

#[test]
fn files_of_every_version_are_taken_over_row_by_row() {
    for version in ["ma", "mb", "mc", "md", "me", "na", "nb", "oa"] {
        let directory = tempfile::tempdir().unwrap();
        let config = StorageConfig::new(directory.path(), 8 << 20);
        for life in 0..2 {
            let config = config.clone();
            reactor::run_one(reactor::Config::default(), async move {
                let storage = Storage::open(config, 0, 1).await.unwrap();
                if life == 0 {
                    for change in changes() {
                        storage.change_schema(&change).await.unwrap();
                    }
                    // Twice is as good as once.
                    for _ in 0..2 {
                        let imported = storage.import(ID, &golden(version, "many")).await.unwrap();
                        assert_eq!((imported.files, imported.partitions), (1, 700), "{version}");
                        assert!(imported.skipped.is_empty());
                    }
                }
                let expected: Vec<(i32, i32)> = (0..700).map(|n| (n, n)).collect();
                assert_eq!(pairs(&storage).await, expected, "{version}, life {life}");
                storage.drain().await.unwrap();
            });
        }
    }
}

#[test]
fn what_cannot_be_taken_over_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let config = StorageConfig::new(directory.path(), 8 << 20);
    let other = tempfile::tempdir().unwrap();
    for name in ["da-1-bti-Data.db", "oa-3gu0_0x1v_2e3r42-big-Data.db", "ob-1-big-Data.db"] {
        std::fs::write(other.path().join(name), b"").unwrap();
    }
    let folder = other.path().to_owned();
    reactor::run_one(reactor::Config::default(), async move {
        let storage = Storage::open(config, 0, 1).await.unwrap();
        for change in changes() {
            storage.change_schema(&change).await.unwrap();
        }
        let imported = storage.import(ID, &folder).await.unwrap();
        assert_eq!(imported.files, 0);
        assert_eq!(
            imported.skipped,
            ["da-1-bti-Data.db", "oa-3gu0_0x1v_2e3r42-big-Data.db", "ob-1-big-Data.db"]
        );
        // A table of another shape.
        let refused = storage.import(ID, &golden("oa", "lz4")).await;
        assert!(matches!(refused, Err(StorageError::TableFileCorrupt { .. })), "{refused:?}");
    });
}
