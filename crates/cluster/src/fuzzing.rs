//! Entry points of the fuzz target: bytes of group 0's files and of messages. Not for other crates.

use crate::consensus::fuzzing;
use crate::group0::{ClusterState, Command};

/// Reads bytes as each thing that group 0 keeps or is sent, behind correct checksums too.
///
/// # Panics
/// When bytes that were read are not written as they were read: that is the bug the fuzzer looks for.
pub fn group0(bytes: &[u8]) {
    if let Ok(state) = ClusterState::decode(bytes) {
        let written = state.encode();
        let again = ClusterState::decode(&written).expect("a state that was just written");
        assert_eq!(again.encode(), written);
    }
    if let Ok(command) = Command::decode(bytes) {
        let written = command.encode();
        let again = Command::decode(&written).expect("a command that was just written");
        assert_eq!(again.encode(), written);
    }
    fuzzing::files(bytes);
    fuzzing::message(bytes);
}
