//! Messages that are rare: CBOR with numbered fields, bounded, of which a node skips fields that it does not
//! know. Invariant: a message that was decoded was all of its bytes.

use minicbor::{Decode, Encode};

use super::NodeError;

/// Longest message of this kind that carries no bytes for somebody else.
pub(super) const SMALL_BYTES_MAX: usize = 64 << 10;

/// Appends the message.
pub(super) fn encode<T: Encode<()>>(message: &T, out: &mut Vec<u8>) {
    minicbor::encode(message, out).expect("writing to memory does not fail");
}

/// Reads a message of at most `bytes_max` that is all of `message`; `name` is its name in errors.
pub(super) fn decode<'a, T: Decode<'a, ()>>(
    message: &'a [u8],
    bytes_max: usize,
    name: &'static str,
) -> Result<T, NodeError> {
    if message.len() > bytes_max {
        return Err(NodeError::TooLong { length: message.len() as u64, limit: bytes_max });
    }
    let mut decoder = minicbor::Decoder::new(message);
    let decoded =
        decoder.decode().map_err(|error| NodeError::Invalid { field: name, reason: error.to_string() })?;
    match message.len() - decoder.position() {
        0 => Ok(decoded),
        bytes => Err(NodeError::Trailing { bytes }),
    }
}
