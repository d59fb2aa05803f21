//! Fuzzes types in result metadata.

pub(crate) fn run(data: &[u8]) {
    wire::fuzzing::type_option(data);
}
