//! Fuzzes `Statistics.db`.

pub(crate) fn run(data: &[u8]) {
    sstable::fuzzing::statistics(data);
}
