//! Fuzzes native frames of versions 3 and 4 as they come from a socket, with the requests in them.

pub(crate) fn run(data: &[u8]) {
    wire::fuzzing::frames(data);
}
