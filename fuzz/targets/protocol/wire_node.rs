//! Fuzzes messages between nodes: frames, first messages, writes and reads.

pub(crate) fn run(data: &[u8]) {
    wire::fuzzing::node_messages(data);
}
