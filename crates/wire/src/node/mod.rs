//! Bytes between nodes of a cluster: frames, the first message of a connection, writes, reads and answers,
//! rounds of conditional writes.
//!
//! Numbers are little endian. [`frame`] is the outer form; the bodies of frequent messages are laid out flat
//! and borrowed from the receive buffer; those of [`hello`], [`control`] and [`fault`] are CBOR with numbered
//! fields, because nodes of other versions read them. The whole format is in `docs/formats/node.md`.
//! Invariant: what a peer sends is parsed and never trusted; no function panics or takes memory out of
//! proportion to its input.

pub mod answer;
pub mod batch;
mod cbor;
pub mod control;
pub mod count;
pub mod fault;
pub mod frame;
pub mod hello;
pub mod mutate;
pub mod paxos;
pub mod read;
mod reader;

/// Bytes that another node may not have sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// A body is longer than this node takes.
    #[error("a frame's body of {length} bytes is longer than the limit of {limit}")]
    TooLong {
        /// Bytes of the body.
        length: u64,
        /// The most that is taken.
        limit: usize,
    },
    /// A frame was damaged on its way, or these are no frames.
    #[error("a frame's checksum is {read:08x}, and its bytes have {computed:08x}")]
    Checksum {
        /// In the frame.
        read: u32,
        /// Of the frame's bytes.
        computed: u32,
    },
    /// A field has a value that means nothing.
    #[error("{field} is {value}, which has no meaning")]
    Unknown {
        /// Name of the field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A message ends inside a field.
    #[error("the message ends inside {field}")]
    Truncated {
        /// Name of the field.
        field: &'static str,
    },
    /// A message goes on behind its last field.
    #[error("{bytes} bytes follow the message")]
    Trailing {
        /// How many.
        bytes: usize,
    },
    /// A field is well-formed and wrong.
    #[error("{field}: {reason}")]
    Invalid {
        /// Name of the field.
        field: &'static str,
        /// The reason.
        reason: String,
    },
}

/// The text with blanks in the place of control characters: it is written to a log.
fn without_control(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
