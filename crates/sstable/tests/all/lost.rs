//! Components that are gone from a table file: it is refused by their name, or read without them.
#![allow(clippy::disallowed_methods, reason = "a test of files on the real disk")]

use reactor::{Config, run_one};
use sstable::{Component, Compressor, Descriptor, Sstable, SstableError, WriterOptions};

use crate::support::{self, Random};

/// Writes a file, removes components, and opens it.
fn opened_without(compressor: Option<Compressor>, lost: &[Component]) -> Result<(), SstableError> {
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
        Sstable::open(dir.path(), Descriptor::new(1), &table).await.map(drop)
    })
}

#[test]
fn compressed_data_that_lost_its_compression_info_is_not_taken_for_rows() {
    // Of this node, and, without its own component, as another database leaves it.
    for others in [&[][..], &[Component::Ceto]] {
        let lost = [others, &[Component::CompressionInfo]].concat();
        let error = opened_without(Some(Compressor::Lz4), &lost).expect_err("its chunks cannot be found");
        let name = Descriptor::new(1).file_name(Component::CompressionInfo);
        assert!(
            matches!(&error, SstableError::Io { path, .. } if path.ends_with(&name)),
            "{lost:?}: {error}"
        );
        opened_without(None, others).expect("data that never was compressed");
    }
}
