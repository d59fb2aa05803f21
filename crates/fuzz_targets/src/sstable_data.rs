//! Fuzzes `Data.db` behind a partition's header; the first byte chooses a random table.

use crate::support;

pub(crate) fn run(data: &[u8]) {
    let Some((&seed, bytes)) = data.split_first() else { return };
    let mut random = support::Random::new(u64::from(seed));
    let shape = support::shape(&mut random);
    let table = support::table(&mut random, &shape);
    sstable::fuzzing::data(bytes, &table);
}
