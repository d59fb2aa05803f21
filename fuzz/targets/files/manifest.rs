//! Fuzzes the list of what must be there, also behind correct checksums.

pub(crate) fn run(data: &[u8]) {
    storage::fuzzing::manifest(data);
}
