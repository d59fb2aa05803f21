//! Properties of table files besides their rows: few reads, damage is detected, incomplete ones never count,
//! dropped columns stay away.
#![allow(clippy::disallowed_methods, reason = "a test of files on the real disk")]

use std::path::Path;
use std::rc::Rc;

use crate::support::{self, Partition, Random, Shape, drain};
use model::Table;
use model::clustering::Slice;
use model::deletion::{DeletionTime, Liveness, NO_LOCAL_TIME};
use model::partition_key::DecoratedKey;
use model::row::{CellKind, CellView, RowBuilder, RowView};
use model::schema::{ColumnId, DroppedColumn};
use model::types::CqlType;
use proptest::prelude::*;
use reactor::file::{File, OpenOptions};
use reactor::{Config, run_one};
use sstable::{
    Component, Compressor, Descriptor, PartitionBound, Sstable, SstableError, Writer, WriterOptions,
    sort_names,
};

fn simple(random: &mut Random) -> Rc<Table> {
    let shape = Shape {
        key: vec![CqlType::Bigint],
        clustering: vec![(CqlType::Int, false)],
        statics: vec![CqlType::Text],
        regulars: vec![CqlType::Text, CqlType::Blob],
    };
    support::table(random, &shape)
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Opens a file and reads all of it, in both directions; returns the first error.
async fn read_all(dir: &Path, table: &Rc<Table>, keys: &[DecoratedKey]) -> Result<usize, SstableError> {
    let file = Sstable::open(dir, Descriptor::new(1), table).await?;
    let mut count = 0;
    let mut scanner = file.scan(&PartitionBound::START, &PartitionBound::END, &[Slice::all()]).await?;
    while scanner.next_partition().await? {
        while scanner.next().await?.is_some() {
            count += 1;
        }
    }
    for key in keys {
        if let Some(mut reader) = file.partition(key.token, &key.key, &[Slice::all()], true).await? {
            while reader.next().await?.is_some() {}
        }
    }
    Ok(count)
}

/// Writes a small file, changes one component, and reads it.
async fn damage(
    seed: u64,
    component: Component,
    change: impl Fn(&mut Vec<u8>),
) -> Result<usize, SstableError> {
    let mut random = Random::new(seed);
    let shape = support::shape(&mut random);
    let table = support::table(&mut random, &shape);
    let partitions = support::partitions(&mut random, &table, 8, 30);
    let dir = tempfile::tempdir().unwrap();
    let options = WriterOptions {
        compression: support::any_compression(&mut random),
        column_index_bytes: 400,
        ..WriterOptions::default()
    };
    support::write(dir.path(), 1, &table, &partitions, options).await;
    let path = Descriptor::new(1).path(dir.path(), component);
    if let Ok(mut bytes) = std::fs::read(&path) {
        change(&mut bytes);
        std::fs::write(&path, bytes).unwrap();
    }
    let keys: Vec<DecoratedKey> = partitions.into_iter().map(|partition| partition.key).collect();
    read_all(dir.path(), &table, &keys).await
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_flipped_bit_anywhere_is_survived_and_outside_the_index_it_is_seen(seed in 0u64..8, at: usize, bit in 0u8..8, component in 0usize..6) {
        let component = Component::ALL[component];
        let flip = move |bytes: &mut Vec<u8>| {
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
        };
        let result = run_one(Config::default(), damage(seed, component, flip));
        // Without compression there is no CompressionInfo.
        if component != Component::Index && (component != Component::CompressionInfo || result.is_err()) {
            let Err(SstableError::Corrupt { path, component: found, .. }) = result else { panic!("damage was not seen") };
            prop_assert_eq!(found, component);
            prop_assert!(path.ends_with(Descriptor::new(1).file_name(found)));
        }
    }

    #[test]
    fn a_component_cut_short_is_seen(seed in 0u64..8, at: usize, component in 0usize..6) {
        let component = Component::ALL[component];
        let result = run_one(Config::default(), damage(seed, component, move |bytes| bytes.truncate(at % bytes.len().max(1))));
        // Without compression there is no CompressionInfo to cut.
        let optional = component == Component::CompressionInfo;
        prop_assert!(result.is_err() || optional, "{component} {result:?}");
    }
}

#[test]
fn an_index_cut_anywhere_is_seen() {
    let mut random = Random::new(0);
    let shape = support::shape(&mut random);
    let table = support::table(&mut random, &shape);
    let partitions = support::partitions(&mut random, &table, 8, 30);
    run_one(Config::default(), async move {
        let dir = tempfile::tempdir().unwrap();
        support::write(dir.path(), 1, &table, &partitions, WriterOptions::default()).await;
        let keys: Vec<DecoratedKey> = partitions.into_iter().map(|partition| partition.key).collect();
        let index = Descriptor::new(1).path(dir.path(), Component::Index);
        let index = std::fs::OpenOptions::new().write(true).open(index).unwrap();
        for length in (0..index.metadata().unwrap().len()).rev() {
            index.set_len(length).unwrap();
            let result = read_all(dir.path(), &table, &keys).await;
            assert!(result.is_err(), "an index cut to {length} bytes gives {result:?}");
        }
    });
}

/// One partition, one row, one text value.
fn one_row(table: &Table, key: i64, text: &str) -> Partition {
    let id = table.column("r0").unwrap().id;
    let mut row = Vec::new();
    let mut builder = RowBuilder::new(
        &mut row,
        Liveness { timestamp: 1, ttl: 0, expires_at: NO_LOCAL_TIME },
        DeletionTime::LIVE,
    );
    builder.cell(CellView { column: id, timestamp: 1, path: None, kind: CellKind::Live(text.as_bytes()) });
    builder.finish();
    let mut clustering = Vec::new();
    model::clustering::append_component(&mut clustering, Some(&7i32.to_be_bytes()));
    Partition {
        key: DecoratedKey::new(key.to_be_bytes().to_vec()),
        deletion: DeletionTime::LIVE,
        static_row: None,
        rows: vec![(clustering, row)],
        ranges: Vec::new(),
    }
}

#[test]
fn a_slice_of_a_wide_partition_reads_its_blocks_only() {
    run_one(Config::default(), async {
        let mut random = Random::new(3);
        let shape = Shape {
            key: vec![CqlType::Int],
            clustering: vec![(CqlType::Int, false)],
            statics: vec![],
            regulars: vec![CqlType::Blob],
        };
        let table = support::table(&mut random, &shape);
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::create(dir.path(), 1, &table, WriterOptions::default()).await.unwrap();
        let key = DecoratedKey::new(vec![0, 0, 0, 1]);
        writer.partition_start(key.token, &key.key, DeletionTime::LIVE, None).unwrap();
        let column = table.column("r0").unwrap().id;
        let clustering = |at: i32| {
            let mut clustering = Vec::new();
            model::clustering::append_component(&mut clustering, Some(&at.to_be_bytes()));
            clustering
        };
        for at in 0..20_000 {
            let (bytes, mut row) = (random.bytes(100), Vec::new());
            let mut builder = RowBuilder::new(&mut row, Liveness::NONE, DeletionTime::LIVE);
            builder.cell(CellView { column, timestamp: 1, path: None, kind: CellKind::Live(&bytes) });
            builder.finish();
            let row = RowView::trusted(&row);
            writer.unfiltered(model::Unfiltered::Row { clustering: &clustering(at), row }).unwrap();
        }
        writer.partition_end();
        writer.finish().await.unwrap().unwrap();
        let file = Sstable::open(dir.path(), Descriptor::new(1), &table).await.unwrap();
        for reversed in [false, true] {
            for at in [0, 9_999, 19_999] {
                let before = file.disk_reads();
                let slice = Slice::prefix(&clustering(at));
                let mut reader =
                    file.partition(key.token, &key.key, &[slice], reversed).await.unwrap().unwrap();
                assert_eq!(drain(&mut reader).await.len(), 1);
                let bytes = file.disk_reads().bytes - before.bytes;
                assert!(
                    bytes <= 256 * 1024,
                    "{bytes} of {} bytes, row {at}, reversed {reversed}",
                    file.data_bytes()
                );
            }
        }
    });
}

#[test]
fn nothing_half_written_counts_and_nothing_stays_after_giving_up() {
    run_one(Config::default(), async {
        let mut random = Random::new(1);
        let table = simple(&mut random);
        let dir = tempfile::tempdir().unwrap();
        let partition = one_row(&table, 1, "x");
        let mut writer = Writer::create(dir.path(), 3, &table, WriterOptions::default()).await.unwrap();
        writer.partition_start(partition.key.token, &partition.key.key, DeletionTime::LIVE, None).unwrap();
        writer.partition_end();
        let left = names(dir.path());
        assert!(!left.is_empty());
        let sorted = sort_names(left.iter().map(String::as_str));
        assert!(sorted.complete.is_empty());
        assert_eq!(sorted.leftovers(), left);
        writer.abort().await;
        assert!(names(dir.path()).is_empty());

        let empty = Writer::create(dir.path(), 4, &table, WriterOptions::default()).await.unwrap();
        assert!(empty.finish().await.unwrap().is_none());
        assert!(names(dir.path()).is_empty());

        support::write(dir.path(), 5, &table, &[partition], WriterOptions::default()).await;
        let found = names(dir.path());
        assert_eq!(found.len(), 9, "{found:?}");
        let sorted = sort_names(found.iter().map(String::as_str));
        assert_eq!((&sorted.complete, sorted.leftovers()), (&vec![Descriptor::new(5)], vec![]));
        let list = std::fs::read_to_string(dir.path().join("me-5-big-TOC.txt")).unwrap();
        let mut listed: Vec<String> = list.lines().map(|name| format!("me-5-big-{name}")).collect();
        listed.sort();
        assert_eq!(listed, found);
        sstable::remove(dir.path(), Descriptor::new(5)).await.unwrap();
        assert!(names(dir.path()).is_empty());
    });
}

#[test]
fn a_dropped_column_stays_away_and_a_new_one_of_its_name_starts_empty() {
    run_one(Config::default(), async {
        let mut random = Random::new(1);
        let table = simple(&mut random);
        let dir = tempfile::tempdir().unwrap();
        let partition = one_row(&table, 1, "old");
        support::write(dir.path(), 1, &table, std::slice::from_ref(&partition), WriterOptions::default())
            .await;

        let mut definition = table.definition().clone();
        let at = definition.columns.iter().position(|column| column.name == "r0").unwrap();
        let column = definition.columns.remove(at);
        let dropped = DroppedColumn { column: column.clone(), dropped_at_us: 1 };
        definition.dropped.insert("r0".into(), dropped);
        let without = Rc::new(Table::new(definition.clone()));
        let mut again = column;
        again.id = ColumnId(definition.next_column_id);
        definition.next_column_id += 1;
        definition.columns.push(again);
        let with_new = Rc::new(Table::new(definition));
        for table in [without, with_new] {
            let file = Sstable::open(dir.path(), Descriptor::new(1), &table).await.unwrap();
            let key = &partition.key;
            let mut reader =
                file.partition(key.token, &key.key, &[Slice::all()], false).await.unwrap().unwrap();
            let Some(model::Unfiltered::Row { row, .. }) = reader.next().await.unwrap() else {
                panic!("no row")
            };
            assert_eq!(row.cells().count(), 0);
            assert_eq!(row.liveness().timestamp, 1);
        }
    });
}

#[test]
fn a_table_of_another_shape_is_refused() {
    run_one(Config::default(), async {
        let mut random = Random::new(1);
        let table = simple(&mut random);
        let dir = tempfile::tempdir().unwrap();
        support::write(dir.path(), 1, &table, &[one_row(&table, 1, "x")], WriterOptions::default()).await;
        for clustering in [vec![], vec![(CqlType::Int, true)], vec![(CqlType::Bigint, false)]] {
            let key = vec![CqlType::Bigint];
            let other =
                support::table(&mut random, &Shape { key, clustering, statics: vec![], regulars: vec![] });
            let refused = Sstable::open(dir.path(), Descriptor::new(1), &other).await;
            assert!(matches!(refused, Err(SstableError::Schema { .. })), "{refused:?}");
        }
    });
}

/// Partitions of one row each, with texts that resemble each other.
fn records(table: &Table) -> Vec<Partition> {
    let mut partitions: Vec<Partition> = (0..6_000i64)
        .map(|key| {
            let (name, number) = (key * 7919 % 10_007, key * 104_729 % 1_000_003);
            let text = format!(
                "{{\"name\":\"customer {name}\",\"country\":\"Kenya\",\"status\":\"active\",\"total\":{number}}}"
            );
            one_row(table, key, &text)
        })
        .collect();
    partitions.sort_by(|a, b| a.key.cmp(&b.key));
    partitions
}

#[test]
fn a_dictionary_makes_a_file_smaller_and_is_needed_to_read_it() {
    run_one(Config::default(), async {
        let mut random = Random::new(1);
        let table = simple(&mut random);
        let partitions = records(&table);
        let keys: Vec<DecoratedKey> = partitions.iter().map(|partition| partition.key.clone()).collect();
        for (plain, with) in
            [(Compressor::Zstd, Compressor::ZstdDictionary), (Compressor::Lz4, Compressor::Lz4Dictionary)]
        {
            let mut sizes = Vec::new();
            for compressor in [plain, with] {
                let dir = tempfile::tempdir().unwrap();
                let options = WriterOptions {
                    compression: Some(compressor.into()),
                    chunk_bytes: 1024,
                    ..WriterOptions::default()
                };
                let info = support::write(dir.path(), 1, &table, &partitions, options).await;
                sizes.push(info.data_file_bytes);
                assert_eq!(read_all(dir.path(), &table, &keys).await.unwrap(), partitions.len());
                let described =
                    std::fs::read(Descriptor::new(1).path(dir.path(), Component::CompressionInfo));
                assert!(described.unwrap()[2..].starts_with(compressor.name().as_bytes()));
                let ceto = Descriptor::new(1).path(dir.path(), Component::Ceto);
                std::fs::remove_file(ceto).unwrap();
                let without = read_all(dir.path(), &table, &keys).await;
                if compressor.has_dictionary() {
                    let Err(SstableError::Corrupt { component, .. }) = without else { panic!("{without:?}") };
                    assert_eq!(component, Component::Ceto);
                } else {
                    assert_eq!(without.unwrap(), partitions.len());
                }
            }
            assert!(sizes[1] * 10 < sizes[0] * 9, "{sizes:?} bytes of {plain} and {with}");
        }
    });
}

#[test]
fn too_little_data_for_a_dictionary_is_compressed_without_one() {
    run_one(Config::default(), async {
        let mut random = Random::new(1);
        let table = simple(&mut random);
        let dir = tempfile::tempdir().unwrap();
        let options = WriterOptions {
            compression: Some(Compressor::ZstdDictionary.into()),
            ..WriterOptions::default()
        };
        let partition = one_row(&table, 1, "alone");
        let key = partition.key.clone();
        support::write(dir.path(), 1, &table, &[partition], options).await;
        let info = std::fs::read(Descriptor::new(1).path(dir.path(), Component::CompressionInfo)).unwrap();
        assert!(info[2..].starts_with(b"ZstdCompressor"), "others can read it");
        assert_eq!(read_all(dir.path(), &table, &[key]).await.unwrap(), 1);
    });
}

/// A summary with other keys that still ascend would hide partitions; without `Ceto.db` only the index
/// reveals it.
#[test]
fn a_summary_that_names_other_keys_is_seen_in_files_of_others() {
    run_one(Config::default(), async {
        let mut random = Random::new(1);
        let table = simple(&mut random);
        let partitions = records(&table);
        let dir = tempfile::tempdir().unwrap();
        support::write(dir.path(), 1, &table, &partitions, WriterOptions::default()).await;
        std::fs::remove_file(Descriptor::new(1).path(dir.path(), Component::Ceto)).unwrap();
        let path = Descriptor::new(1).path(dir.path(), Component::Summary);
        let whole = std::fs::read(&path).unwrap();
        let entries = u32::from_be_bytes(whole[4..8].try_into().unwrap()) as usize;
        assert!(entries > 10, "{entries}");
        let (mut seen, mut ascending) = (0, 0);
        for entry in 1..entries {
            // A key that is near by its token: that of another partition of the previous stretch.
            let offset =
                24 + u32::from_le_bytes(whole[24 + 4 * entry..28 + 4 * entry].try_into().unwrap()) as usize;
            let key: [u8; 8] = whole[offset..offset + 8].try_into().unwrap();
            let at = partitions.iter().position(|partition| partition.key.key == key).unwrap();
            let mut changed = whole.clone();
            changed[offset..offset + 8].copy_from_slice(&partitions[at + 3].key.key);
            std::fs::write(&path, changed).unwrap();
            let file = Sstable::open(dir.path(), Descriptor::new(1), &table).await;
            ascending += usize::from(file.is_ok());
            let hidden = &partitions[at + 1].key;
            let result = match file {
                Ok(file) => {
                    file.partition(hidden.token, &hidden.key, &[Slice::all()], false).await.map(|_| ())
                }
                Err(error) => Err(error),
            };
            seen += usize::from(matches!(result, Err(SstableError::Corrupt { .. })));
        }
        assert_eq!((seen, ascending), (entries - 1, entries - 1));
    });
}

#[test]
fn a_scan_asks_for_every_byte_once_and_reads_ahead_only_behind_its_first_stretch() {
    run_one(Config::default(), async {
        let mut random = Random::new(5);
        let table = simple(&mut random);
        let dir = tempfile::tempdir().unwrap();
        let mut partitions: Vec<_> = (0..4_000).map(|key| one_row(&table, key, &"x".repeat(200))).collect();
        partitions.sort_by(|a, b| a.key.cmp(&b.key));
        let options = WriterOptions { compression: None, ..WriterOptions::default() };
        let info = support::write(dir.path(), 1, &table, &partitions, options).await;
        let file = Sstable::open(dir.path(), Descriptor::new(1), &table).await.unwrap();
        let (from, to) = (PartitionBound::START, PartitionBound::END);
        let mut scanner = file.scan(&from, &to, &[Slice::all()]).await.unwrap();
        let mut read = Vec::new();
        while scanner.next_partition().await.unwrap() {
            let mut rows = 0;
            while scanner.next().await.unwrap().is_some() {
                rows += 1;
            }
            assert_eq!(rows, 1);
            read.push(file.disk_reads());
        }
        assert_eq!(read.len(), 4_000);
        let stretch = 128 * 1024;
        assert_eq!(
            (read[0].requests, read[0].bytes),
            (1, stretch),
            "who reads one partition reads one stretch"
        );
        let all = read[3_999];
        let path = Descriptor::new(1).path(dir.path(), Component::Data);
        let data = File::open(&path, OpenOptions::new().read(true).direct(true)).await.unwrap();
        let whole = info.data_file_bytes.next_multiple_of(data.read_alignment() as u64);
        assert_eq!(all.bytes, whole, "nothing is read twice");
        assert_eq!(all.requests, info.data_file_bytes.div_ceil(stretch));
    });
}
