//! Components that are gone from a table file: it is refused by their name, or read without them.
#![allow(clippy::disallowed_methods, reason = "a test of files on the real disk")]

use reactor::{Config, run_one};
use sstable::{Component, Compressor, Descriptor, Sstable, SstableError, WriterOptions};

use crate::support::{self, Random};

/// Writes a file, removes components, and opens it.
fn opened_without(compressor: Option<Compressor>, lost: &[Component]) -> Result<(), SstableError> {
    opened_listing(compressor, lost, |_| true)
}

/// As [`opened_without`], with only those names of `TOC.txt` that `is_listed` takes.
fn opened_listing(
    compressor: Option<Compressor>,
    lost: &[Component],
    is_listed: fn(&str) -> bool,
) -> Result<(), SstableError> {
    let mut random = Random::new(5);
    let shape = support::shape(&mut random);
    let table = support::table(&mut random, &shape);
    let partitions = support::partitions(&mut random, &table, 8, 30);
    let dir = tempfile::tempdir().unwrap();
    let lost = lost.to_vec();
    run_one(Config::default(), async move {
        let options = WriterOptions { compression: compressor.map(Into::into), ..WriterOptions::default() };
        support::write(dir.path(), 1, &table, &partitions, options).await;
        for component in lost {
            std::fs::remove_file(Descriptor::new(1).path(dir.path(), component)).unwrap();
        }
        let toc = Descriptor::new(1).path(dir.path(), Component::Toc);
        let listed = std::fs::read_to_string(&toc).unwrap();
        let listed: String = listed.split_inclusive('\n').filter(|line| is_listed(line.trim())).collect();
        std::fs::write(&toc, listed).unwrap();
        Sstable::open(dir.path(), Descriptor::new(1), &table).await.map(drop)
    })
}

/// Checks that a file which lost `component` is refused by that name, and that one which never had it is not.
fn check_lost(component: Component, with: Option<Compressor>, without: Option<Compressor>) {
    // A file of this node, and one without the component of its own, as another database leaves it.
    for others in [&[][..], &[Component::Ceto]] {
        let lost = [others, &[component]].concat();
        let error = opened_without(with, &lost).expect_err("it was written with that component");
        let name = Descriptor::new(1).file_name(component);
        assert!(
            matches!(&error, SstableError::Io { path, .. } if path.ends_with(&name)),
            "{lost:?}: {error}"
        );
        opened_without(without, others).expect("data that never had it");
    }
}

#[test]
fn compressed_data_that_lost_its_compression_info_is_not_taken_for_rows() {
    check_lost(Component::CompressionInfo, Some(Compressor::Lz4), None);
}

#[test]
fn data_that_lost_its_checksums_is_not_read_unchecked() {
    check_lost(Component::Crc, None, Some(Compressor::Lz4));
}

#[test]
fn data_of_another_database_that_has_no_checksums_is_read() {
    // Its list of components names none.
    opened_listing(None, &[Component::Ceto, Component::Crc], |name| name != "CRC.db").expect("it had none");
}
