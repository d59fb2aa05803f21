//! A whole file verifies, and a change to any component is found.
#![allow(clippy::disallowed_methods)] // tests prepare and damage files as the disk would

use std::path::Path;

use ::sstable::{Descriptor, Writer, WriterOptions};
use model::clustering::append_component;
use model::partition_key::DecoratedKey;
use model::row::{CellKind, CellView, RowBuilder};
use model::schema::{Column, ColumnId, ColumnKind, TableDefinition, TableId, TableOptions};
use model::{CqlType, DeletionTime, Liveness};
use reactor::{Config, run_one};

use super::*;

const PARTITIONS: u32 = 500;
const ROWS: i32 = 3;
const TIMESTAMP: i64 = 1_700_000_000_000_000;

fn table() -> Rc<Table> {
    let column = |id, name: &str, ty, kind| Column {
        id: ColumnId(id),
        name: name.to_owned(),
        ty,
        kind,
        position: 0,
        reversed: false,
    };
    Rc::new(Table::new(TableDefinition {
        id: TableId([1; 16]),
        keyspace: "ks".into(),
        name: "t".into(),
        columns: vec![
            column(0, "k", CqlType::Int, ColumnKind::PartitionKey),
            column(1, "c", CqlType::Int, ColumnKind::Clustering),
            column(2, "v", CqlType::Text, ColumnKind::Regular),
        ],
        dropped: Default::default(),
        options: TableOptions::default(),
        next_column_id: 3,
        tablets_log2: 0,
        revision: 0,
    }))
}

async fn write(dir: &Path) -> Target {
    let table = table();
    let options = WriterOptions { expected_partitions: u64::from(PARTITIONS), ..WriterOptions::default() };
    let mut writer = Writer::create(dir, 1, &table, options).await.unwrap();
    let mut keys: Vec<_> = (0..PARTITIONS).map(|key| DecoratedKey::new(key.to_be_bytes().to_vec())).collect();
    keys.sort();
    for key in &keys {
        writer.partition_start(key.token, &key.key, DeletionTime::LIVE, None).unwrap();
        for number in 0..ROWS {
            let (mut clustering, mut row) = (Vec::new(), Vec::new());
            append_component(&mut clustering, Some(&number.to_be_bytes()));
            let liveness = Liveness { timestamp: TIMESTAMP, ..Liveness::NONE };
            let mut builder = RowBuilder::new(&mut row, liveness, DeletionTime::LIVE);
            let value = format!("value {number}");
            let kind = CellKind::Live(value.as_bytes());
            builder.cell(CellView { column: ColumnId(2), timestamp: TIMESTAMP, path: None, kind });
            builder.finish();
            let row = RowView::trusted(&row);
            writer.unfiltered(Unfiltered::Row { clustering: &clustering, row }).unwrap();
        }
        writer.partition_end();
        writer.drain().await.unwrap();
    }
    writer.finish().await.unwrap();
    Target { dir: dir.to_owned(), descriptor: Descriptor::new(1) }
}

/// Writes a file, lets `damage` change it, and returns how many problems `verify` finds.
fn problems(damage: impl FnOnce(&Target) + 'static) -> usize {
    run_one(Config::default(), async move {
        let dir = tempfile::tempdir().unwrap();
        let target = write(dir.path()).await;
        damage(&target);
        match verify(&target, false).await {
            Ok(()) => 0,
            Err(ToolError::Problems { count, .. }) => count,
            Err(error) => panic!("{error}"),
        }
    })
}

fn change(target: &Target, component: Component, change: impl FnOnce(&mut Vec<u8>)) {
    let path = target.path(component);
    let mut bytes = std::fs::read(&path).unwrap();
    change(&mut bytes);
    std::fs::write(&path, bytes).unwrap();
}

#[test]
fn a_whole_file_has_no_problems() {
    assert_eq!(problems(|_| {}), 0);
}

#[test]
fn a_flipped_bit_of_the_data_is_found_twice_by_digest_and_chunk() {
    assert!(problems(|target| change(target, Component::Data, |bytes| bytes[100] ^= 1)) >= 2);
}

#[test]
fn a_wrong_digest_is_found() {
    assert_eq!(problems(|target| change(target, Component::Digest, |bytes| *bytes = b"12345".to_vec())), 1);
    assert_eq!(problems(|target| change(target, Component::Digest, |bytes| *bytes = b"x".to_vec())), 1);
}

#[test]
fn a_filter_without_keys_is_found() {
    // Hashes and length stay; no bit is left.
    assert!(
        problems(|target| {
            // Without the component that only ceto writes, as in another program's file, only the keys reveal
            // the damage.
            std::fs::remove_file(target.path(Component::Ceto)).unwrap();
            change(target, Component::Filter, |bytes| bytes[8..].fill(0));
        }) >= PARTITIONS as usize
    );
}

#[test]
fn an_index_that_names_another_key_is_found() {
    // The first entry's key; its partition cannot be found either.
    assert!(problems(|target| change(target, Component::Index, |bytes| bytes[3] ^= 1)) >= 2);
}

#[test]
fn an_index_that_ends_early_is_found() {
    let cut = |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() - 1);
    assert!(problems(move |target| change(target, Component::Index, cut)) >= 1);
}

#[test]
fn a_missing_component_is_found() {
    assert!(problems(|target| std::fs::remove_file(target.path(Component::Filter)).unwrap()) >= 1);
    assert!(problems(|target| std::fs::remove_file(target.path(Component::Statistics)).unwrap()) >= 1);
}

#[test]
fn statistics_cut_short_are_found() {
    let cut = |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() / 2);
    assert!(problems(move |target| change(target, Component::Statistics, cut)) >= 1);
}
