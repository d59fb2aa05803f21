//! Fuzzes `Filter.db`.

pub(crate) fn run(data: &[u8]) {
    sstable::fuzzing::filter(data);
}
