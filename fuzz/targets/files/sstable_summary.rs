//! Fuzzes `Summary.db`.

pub(crate) fn run(data: &[u8]) {
    sstable::fuzzing::summary(data);
}
