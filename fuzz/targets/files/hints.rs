//! Fuzzes files of hints, also behind correct checksums.

pub(crate) fn run(data: &[u8]) {
    replication::fuzzing::hints(data);
}
