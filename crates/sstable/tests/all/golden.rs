//! Files that every version of Cassandra from 3.0 to 5.0 wrote read as Cassandra reads them.
//!
//! `tests/golden/sstable/<version>/<kind>` has a table file and, compressed, the contents that Cassandra 5's
//! own classes read from it. How they were made: tests/golden/README.md.
#![allow(clippy::disallowed_methods, reason = "a test of files on the real disk")]

use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::support::drain;
use crate::support::dump::{Written, compare, dump, read, table_of_header};
use model::Table;
use model::clustering::Slice;
use model::schema::DroppedColumn;
use reactor::{Config, run_one};
use sstable::{Component, Descriptor, Extras, Format, Sstable, Statistics, Version, fuzzing};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().join("tests/golden/sstable")
}

/// The kinds of files of a version, by folder.
fn kinds(version: Version) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder().join(version.letters())).unwrap();
    let mut kinds: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    kinds.sort();
    kinds
}

fn descriptor(dir: &Path) -> Descriptor {
    let entries = std::fs::read_dir(dir).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter_map(|name| Descriptor::parse(&name).ok()).next().unwrap().0
}

fn statistics(dir: &Path) -> Statistics {
    let descriptor = descriptor(dir);
    let bytes = std::fs::read(descriptor.path(dir, Component::Statistics)).unwrap();
    Statistics::decode(&bytes, descriptor.version.features())
        .unwrap_or_else(|error| panic!("{}: {error}", dir.display()))
}

fn table(dir: &Path) -> Rc<Table> {
    Rc::new(Table::new(table_of_header(&statistics(dir).header)))
}

fn written(dir: &Path) -> Written {
    let path = descriptor(dir).path(dir, Component::Data);
    run_one(Config::default(), read(path, table(dir)))
}

fn expected(dir: &Path) -> String {
    let compressed = std::fs::read(dir.join("expected.dump.gz")).unwrap();
    // The length of the text stands at the end.
    let length = u32::from_le_bytes(*compressed.last_chunk::<4>().unwrap()) as usize;
    let mut text = vec![0; length];
    libdeflater::Decompressor::new().gzip_decompress(&compressed, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn every_version_reads_as_cassandra_reads_it() {
    for version in Version::ALL {
        let kinds = kinds(version);
        assert!(kinds.len() >= 8, "{version:?} has {kinds:?}");
        for dir in kinds {
            let written = written(&dir);
            assert!(!written.partitions.is_empty(), "{}", dir.display());
            compare(&written.path, &expected(&dir), &dump(&written));
        }
    }
}

#[test]
fn every_range_that_statistics_give_holds() {
    for dir in Version::ALL.into_iter().flat_map(kinds) {
        let (statistics, written) = (statistics(&dir), written(&dir));
        let (stats, orders) = (&statistics.stats, written.table.clustering_orders());
        let rows: usize = written.partitions.iter().map(|partition| partition.rows.len()).sum();
        assert!(stats.rows as usize >= rows, "{}", dir.display());
        assert_eq!(stats.partition_sizes.count(), written.partitions.len() as i64, "{}", dir.display());
        let timestamps = stats.min_timestamp..=stats.max_timestamp;
        for partition in &written.partitions {
            for (clustering, row) in &partition.rows {
                let row = model::RowView::trusted(row);
                assert!(row.cells().all(|cell| timestamps.contains(&cell.timestamp)), "{}", dir.display());
                if let Some((first, last)) = &stats.covered {
                    let position = model::clustering::Position::row(clustering);
                    assert!(first.as_ref().compare(position, orders).is_lt(), "{}", dir.display());
                    assert!(last.as_ref().compare(position, orders).is_gt(), "{}", dir.display());
                }
            }
            let whole = !partition.deletion.is_live();
            assert!(!whole || stats.partition_deletions != Some(false), "{}", dir.display());
        }
        let letters = descriptor(&dir).version.letters();
        assert_eq!(stats.covered.is_some(), letters >= "md" || letters == "da", "{letters}");
        assert_eq!(stats.key_range.is_some(), letters >= "oa" || letters == "da", "{letters}");
        if let Some((first, last)) = &stats.key_range {
            let keys = (&written.partitions[0].key.key, &written.partitions.last().unwrap().key.key);
            assert_eq!((first, last), keys);
        }
    }
}

/// Rows lose a column that the table lost, and keep the others.
#[test]
fn a_dropped_column_of_any_version_stays_away() {
    for version in Version::ALL {
        let dir = folder().join(version.letters()).join("lz4");
        let mut definition = table_of_header(&statistics(&dir).header);
        let at = definition.columns.iter().position(|column| column.name == "n").unwrap();
        let column = definition.columns.remove(at);
        definition.dropped.insert("n".into(), DroppedColumn { column, dropped_at_us: i64::MAX });
        let without = Rc::new(Table::new(definition));
        let path = descriptor(&dir).path(&dir, Component::Data);
        let cut = run_one(Config::default(), read(path.clone(), without));
        let expected: String = expected(&dir)
            .lines()
            .filter(|line| !line.starts_with("  n "))
            .map(|line| format!("{line}\n"))
            .collect();
        compare(&path, &expected, &dump(&cut));
    }
}

#[test]
fn a_wide_partition_of_any_version_is_read_by_its_blocks() {
    // The blocks of `bti` stand in a trie, which is not read.
    for version in Version::ALL.into_iter().filter(|version| version.format() == Format::Big) {
        let dir = folder().join(version.letters()).join("wide");
        let written = written(&dir);
        let wide = written.partitions.into_iter().find(|partition| partition.rows.len() == 240).unwrap();
        run_one(Config::default(), async move {
            let table = table(&dir);
            let file = Sstable::open(&dir, descriptor(&dir), &table).await.unwrap();
            for (at, reversed) in [(239, false), (0, true)] {
                let before = file.disk_reads();
                let slice = Slice::prefix(&wide.rows[at].0);
                let mut reader =
                    file.partition(wide.key.token, &wide.key.key, &[slice], reversed).await.unwrap().unwrap();
                assert_eq!(drain(&mut reader).await.len(), 1);
                let disk = file.disk_reads();
                // Index, then the first block for the key, the promoted part and the block of the row.
                assert!(disk.requests - before.requests <= 8, "{version:?}: {disk:?} after {before:?}");
            }
        });
    }
}

/// The decoders that fuzzing feeds take every component, also with any one byte changed.
#[test]
fn decoders_survive_changed_components() {
    for dir in Version::ALL.into_iter().flat_map(kinds) {
        let (descriptor, table) = (descriptor(&dir), table(&dir));
        for component in descriptor.components().iter().copied() {
            let Ok(bytes) = std::fs::read(descriptor.path(&dir, component)) else { continue };
            // Of the format `bti` one may have nothing in it.
            if bytes.is_empty() {
                continue;
            }
            for step in 0..6 {
                let mut bytes = bytes.clone();
                let at = step * 7919 % bytes.len();
                bytes[at] ^= 1 << (step % 8);
                match component {
                    Component::Data => fuzzing::data(&bytes, &table),
                    Component::Index => fuzzing::index(&bytes, &table),
                    Component::Summary => fuzzing::summary(&bytes),
                    Component::Filter => fuzzing::filter(&bytes),
                    Component::Statistics => fuzzing::statistics(&bytes),
                    Component::CompressionInfo | Component::Crc => fuzzing::compression(&bytes),
                    Component::Ceto => drop(Extras::decode(&bytes)),
                    Component::Digest | Component::Toc | Component::Partitions | Component::Rows => {}
                }
            }
        }
    }
}
