//! Fuzzes compressed bodies.

pub(crate) fn run(data: &[u8]) {
    wire::fuzzing::compressed_body(data);
}
