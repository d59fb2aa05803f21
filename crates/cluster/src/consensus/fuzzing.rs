//! Bytes of a log, a snapshot or a message, for the fuzz target.

use std::path::Path;

use super::log::parse_log;
use super::message::Message;
use super::snapshot;

/// Reads bytes as a snapshot, and as the payloads of a log.
pub(crate) fn files(bytes: &[u8]) {
    let path = Path::new("fuzzed");
    if let Ok(snapshot) = snapshot::parse(bytes, path) {
        let written = snapshot.to_bytes();
        assert_eq!(snapshot::parse(&written, path).ok(), Some(snapshot));
    }
    // Two halves as the records of a log, with correct checksums.
    let (first, second) = bytes.split_at(bytes.len() / 2);
    parse_log(bytes, path);
    parse_log(&super::log::encode(&[first, second]), path);
}

/// Reads bytes as a message to node 1, and checks it as one that came from outside.
pub(crate) fn message(bytes: &[u8]) {
    let Ok(message) = minicbor::decode::<Message>(bytes) else { return };
    let _ = message.check(1);
    let written = minicbor::to_vec(&message).expect("writing to memory does not fail");
    assert_eq!(minicbor::decode::<Message>(&written).ok(), Some(message));
}
