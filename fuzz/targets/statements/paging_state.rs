//! Paging states, which clients send back as they got them, or not.

pub(crate) fn run(data: &[u8]) {
    query::fuzzing::paging_state(data);
}
