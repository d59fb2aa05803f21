//! Fuzzes `Ceto.db`.

pub(crate) fn run(data: &[u8]) {
    sstable::fuzzing::extras(data);
}
