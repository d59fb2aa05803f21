//! Decoders take any bytes and return: the entry points of the fuzz targets, run briefly on random bytes and
//! on real components with some bytes changed.
#![allow(clippy::disallowed_methods, reason = "a test of files on the real disk")]

use crate::support::{self, Random};
use model::Table;
use proptest::prelude::*;
use reactor::{Config, run_one};
use sstable::{Component, Descriptor, WriterOptions, fuzzing};

fn decode(component: usize, bytes: &[u8], table: &Table) {
    match Component::ALL[component] {
        Component::Data => fuzzing::data(bytes, table),
        Component::Index => fuzzing::index(bytes, table),
        Component::Summary => fuzzing::summary(bytes),
        Component::Filter => fuzzing::filter(bytes),
        Component::Statistics => fuzzing::statistics(bytes),
        Component::Ceto => fuzzing::extras(bytes),
        _ => fuzzing::compression(bytes),
    }
}

/// A component of a random file; of the data only the part after the first partition's header.
async fn component(random: &mut Random, table: &std::rc::Rc<Table>, component: Component) -> Vec<u8> {
    let partitions = support::partitions(random, table, 3, 40);
    let dir = tempfile::tempdir().unwrap();
    let options = WriterOptions { compression: None, column_index_bytes: 200, ..WriterOptions::default() };
    support::write(dir.path(), 1, table, &partitions, options).await;
    let mut bytes = std::fs::read(Descriptor::new(1).path(dir.path(), component)).unwrap();
    if component == Component::Data {
        bytes.drain(..2 + partitions[0].key.key.len() + 12);
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn random_bytes(bytes: Vec<u8>, at in 0usize..6, seed in 0u64..10) {
        let mut random = Random::new(seed);
        let shape = support::shape(&mut random);
        let table = support::table(&mut random, &shape);
        decode(at, &bytes, &table);
    }

    #[test]
    fn real_bytes_with_some_changed(seed in 0u64..10, at in 0usize..5, changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..4)) {
        run_one(Config::default(), async move {
            let mut random = Random::new(seed);
            let shape = support::shape(&mut random);
            let table = support::table(&mut random, &shape);
            let mut bytes = component(&mut random, &table, Component::ALL[at]).await;
            let length = bytes.len();
            for (at, byte) in changes {
                bytes[at % length] = byte;
            }
            decode(at, &bytes, &table);
        });
    }
}
