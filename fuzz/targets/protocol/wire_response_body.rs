//! Fuzzes responses, as our own client reads them.

pub(crate) fn run(data: &[u8]) {
    wire::fuzzing::response_body(data);
}
