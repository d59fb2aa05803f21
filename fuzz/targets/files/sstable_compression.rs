//! Fuzzes `CompressionInfo.db`, `CRC.db` and compressed chunks.

pub(crate) fn run(data: &[u8]) {
    sstable::fuzzing::compression(data);
}
