//! Fuzzes segments of the commit log, also behind correct checksums.

pub(crate) fn run(data: &[u8]) {
    storage::fuzzing::commitlog(data);
}
