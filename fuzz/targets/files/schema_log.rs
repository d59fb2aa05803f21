//! Fuzzes the log of schema changes, also behind correct checksums.

pub(crate) fn run(data: &[u8]) {
    storage::fuzzing::schema_log(data);
}
