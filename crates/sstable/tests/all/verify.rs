//! Damage anywhere in a table file is found without reading it as a table, and reported with its component.
#![allow(clippy::disallowed_methods, reason = "a test of files on the real disk")]

use std::path::Path;
use std::rc::Rc;

use crate::support::{self, Random};
use model::Table;
use reactor::{Config, run_one};
use sstable::{Component, Compression, Descriptor, Sstable, SstableError, VerifyDepth, WriterOptions};

/// Writes a small file, without promoted indexes.
async fn written(dir: &Path, compression: Option<Compression>) -> Rc<Table> {
    let mut random = Random::new(5);
    let shape = support::shape(&mut random);
    let table = support::table(&mut random, &shape);
    let partitions = support::partitions(&mut random, &table, 8, 6);
    let options = WriterOptions { compression, column_index_bytes: 64 << 10, ..WriterOptions::default() };
    support::write(dir, 1, &table, &partitions, options).await;
    table
}

async fn verify(dir: &Path, table: &Rc<Table>, depth: VerifyDepth) -> Result<bool, SstableError> {
    Sstable::verify(dir, Descriptor::new(1), table, depth, |_| true).await
}

#[test]
fn a_whole_file_passes_and_stops_where_it_is_told() {
    for compression in support::compressions() {
        let dir = tempfile::tempdir().unwrap();
        run_one(Config::default(), async move {
            let table = written(dir.path(), compression).await;
            for depth in [VerifyDepth::Quick, VerifyDepth::Digest, VerifyDepth::Rows] {
                assert!(verify(dir.path(), &table, depth).await.expect("a whole file"), "{depth:?}");
            }
            let stopped =
                Sstable::verify(dir.path(), Descriptor::new(1), &table, VerifyDepth::Rows, |_| false);
            assert!(!stopped.await.expect("a whole file"));
        });
    }
}

/// The least depth that finds a bit that was turned round in a component.
fn finds(component: Component) -> VerifyDepth {
    if component == Component::Data { VerifyDepth::Digest } else { VerifyDepth::Quick }
}

#[test]
fn a_bit_turned_round_in_any_component_is_found_and_the_component_named() {
    for compression in support::compressions().into_iter().take(2) {
        for component in Component::ALL {
            // The list of components (`TOC.txt`) is for tools that copy files, and is not checked.
            if component == Component::Toc {
                continue;
            }
            let dir = tempfile::tempdir().unwrap();
            run_one(Config::default(), async move {
                let table = written(dir.path(), compression).await;
                let path = Descriptor::new(1).path(dir.path(), component);
                let Ok(whole) = std::fs::read(&path) else { return };
                for at in [0, whole.len() / 3, whole.len() / 2, whole.len() - 1] {
                    let mut bytes = whole.clone();
                    bytes[at] ^= 4;
                    std::fs::write(&path, &bytes).unwrap();
                    let depth = finds(component);
                    // A wrong digest cannot be distinguished from wrong data.
                    let of_data = [Component::Digest, Component::Data];
                    match verify(dir.path(), &table, depth.max(VerifyDepth::Digest)).await {
                        Err(SstableError::Corrupt { component: found, path: named, .. }) => {
                            let same = found == component
                                || of_data.contains(&found) && of_data.contains(&component);
                            assert!(same, "{component} at {at}: {found}");
                            assert!(named.starts_with(dir.path()), "{named:?}");
                        }
                        other => panic!("{component} at {at}: {other:?}"),
                    }
                    if component != Component::Digest {
                        let quick = verify(dir.path(), &table, VerifyDepth::Quick).await;
                        assert_eq!(quick.is_err(), depth == VerifyDepth::Quick, "{component} at {at}");
                    }
                }
            });
        }
    }
}

#[test]
fn a_component_that_is_gone_or_cut_is_found() {
    for component in Component::ALL {
        let dir = tempfile::tempdir().unwrap();
        run_one(Config::default(), async move {
            let compression = support::compressions().into_iter().flatten().next();
            let table = written(dir.path(), compression).await;
            let path = Descriptor::new(1).path(dir.path(), component);
            let Ok(whole) = std::fs::read(&path) else { return };
            std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
            if component != Component::Toc {
                verify(dir.path(), &table, VerifyDepth::Rows).await.expect_err("cut");
            }
            std::fs::remove_file(&path).unwrap();
            verify(dir.path(), &table, VerifyDepth::Quick).await.expect_err("gone");
        });
    }
}

/// Without a digest and without our own component, as in another program's file, rows are read and the index
/// is compared with them.
#[test]
fn an_index_that_does_not_fit_the_data_is_found_without_checksums() {
    let dir = tempfile::tempdir().unwrap();
    run_one(Config::default(), async move {
        let table = written(dir.path(), None).await;
        let of = |component| Descriptor::new(1).path(dir.path(), component);
        for component in [Component::Ceto, Component::Digest] {
            std::fs::remove_file(of(component)).unwrap();
        }
        std::fs::write(of(Component::Toc), "Data.db\nIndex.db\nSummary.db\nStatistics.db\n").unwrap();
        assert!(verify(dir.path(), &table, VerifyDepth::Digest).await.expect("a whole file"));
        // The place of the second partition, one byte further: still ascending, still within the data.
        let mut index = std::fs::read(of(Component::Index)).unwrap();
        let key = usize::from(u16::from_be_bytes([index[0], index[1]]));
        let promoted = 2 + key + 1;
        assert_eq!(index[2 + key], 0, "the first partition stands at 0");
        assert!(index[promoted] < 0x80, "a promoted index of less than 128 bytes");
        let second = promoted + 1 + usize::from(index[promoted]);
        let key = usize::from(u16::from_be_bytes([index[second], index[second + 1]]));
        let place = second + 2 + key;
        let last = place + index[place].leading_ones() as usize;
        index[last] += 1;
        std::fs::write(of(Component::Index), &index).unwrap();
        match verify(dir.path(), &table, VerifyDepth::Digest).await {
            Err(SstableError::Corrupt { component: Component::Data, .. }) => {}
            other => panic!("{other:?}"),
        }
    });
}
