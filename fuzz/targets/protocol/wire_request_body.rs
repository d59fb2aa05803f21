//! Fuzzes one request body of any kind.

pub(crate) fn run(data: &[u8]) {
    wire::fuzzing::request_body(data);
}
