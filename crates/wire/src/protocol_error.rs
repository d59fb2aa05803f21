//! Errors in bytes that a client sent.
//!
//! Variants hold facts; the text is that of the ERROR message, close to Cassandra's because drivers examine
//! it ("unsupported protocol version" decides whether a driver tries an older version). Invariant: no variant
//! owns memory in proportion to the client's bytes; quoted text is cut.

use crate::error_code::ErrorCode;
use crate::version::ProtocolVersion;

/// Longest piece of a client's text that an error quotes, in bytes.
pub const QUOTED_BYTES_MAX: usize = 64;

/// A request or frame that does not follow the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// First byte names a version we do not speak.
    #[error(
        "Invalid or unsupported protocol version ({requested}); supported versions are ({})",
        supported_versions()
    )]
    UnsupportedVersion {
        /// Version number the client sent, without the direction bit.
        requested: u8,
    },
    /// A later frame names another version than the first one did.
    #[error(
        "Invalid message version. Got {received} but previous messages on this connection had version {expected}"
    )]
    VersionChanged {
        /// Version of this frame.
        received: ProtocolVersion,
        /// Version of the connection.
        expected: ProtocolVersion,
    },
    /// No message has this opcode.
    #[error("Unknown opcode {opcode}")]
    UnknownOpcode {
        /// The opcode as sent.
        opcode: u8,
    },
    /// A response where a request is required, or the reverse.
    #[error("Wrong protocol direction for opcode {opcode}")]
    WrongDirection {
        /// The opcode as sent.
        opcode: u8,
    },
    /// The body length of a v5 envelope is negative.
    #[error("Invalid value for envelope header body length field: {length}")]
    InvalidBodyLength {
        /// The length as sent.
        length: i32,
    },
    /// The whole frame would be longer than the server allows.
    #[error("Request is too big: length {length} exceeds maximum allowed length {limit}.")]
    TooLarge {
        /// Header and body, in bytes.
        length: u64,
        /// `native_transport_max_frame_size`, in bytes.
        limit: usize,
    },
    /// The body ended inside a field.
    #[error("Not enough bytes to read {what}")]
    Truncated {
        /// The field, named as Cassandra names it.
        what: &'static str,
    },
    /// Bytes are left over after the message.
    #[error("{remaining} bytes left after the end of the {message} message")]
    TrailingBytes {
        /// How many.
        remaining: usize,
        /// Name of the message.
        message: &'static str,
    },
    /// A string is not UTF-8.
    #[error("Cannot decode string as UTF8: '{prefix_hex}'")]
    InvalidUtf8 {
        /// The first bytes of the string, in hexadecimal, cut at [`QUOTED_BYTES_MAX`].
        prefix_hex: String,
    },
    /// A length is negative that must not be.
    #[error("Invalid ByteBuf length {length}")]
    InvalidLength {
        /// The length as sent.
        length: i32,
    },
    /// A number that is not a consistency level.
    #[error("Unknown code {code} for a consistency level")]
    UnknownConsistency {
        /// The number as sent.
        code: u16,
    },
    /// A string that is not a value of an enumeration.
    #[error("Invalid value '{value}' for {kind}")]
    UnknownName {
        /// The string, cut at [`QUOTED_BYTES_MAX`].
        value: String,
        /// Which enumeration.
        kind: &'static str,
    },
    /// The default timestamp is the one value that means "none" internally.
    #[error("Out of bound timestamp, must be in [{}, {}] (got {})", i64::MIN + 1, i64::MAX, i64::MIN)]
    TimestampOutOfBounds,
    /// Page size zero requests no rows and would be repeated for ever.
    #[error("The page size cannot be 0")]
    ZeroPageSize,
    /// First byte of a BATCH.
    #[error("Invalid BATCH message type {kind}")]
    InvalidBatchType {
        /// The byte as sent.
        kind: u8,
    },
    /// Kind of one statement in a BATCH.
    #[error("Invalid query kind in BATCH messages. Must be 0 or 1 but got {kind}")]
    InvalidBatchQueryKind {
        /// The byte as sent.
        kind: u8,
    },
    /// The custom payload flag exists since version 4.
    #[error("Received frame with CUSTOM_PAYLOAD flag for native protocol version < 4")]
    CustomPayloadBeforeV4,
    /// A message of protocol version 1 that later versions keep the number of (CREDENTIALS).
    #[error("Unsupported message")]
    UnsupportedMessage,
    /// STARTUP without the one mandatory option.
    #[error("Missing value CQL_VERSION in STARTUP message")]
    MissingCqlVersion,
    /// STARTUP asks for a CQL we do not speak, or names it in a form that is no version.
    #[error("CQL version {version} is not supported by the binary protocol (supported version are >= 3.0.0)")]
    UnsupportedCqlVersion {
        /// The version, cut at [`QUOTED_BYTES_MAX`].
        version: String,
    },
    /// STARTUP asks for a compression we do not have.
    #[error("Unknown compression algorithm: {name}")]
    UnknownCompression {
        /// The name, cut at [`QUOTED_BYTES_MAX`].
        name: String,
    },
    /// Version 5 compresses segments, with lz4 only.
    #[error("Snappy compression is not supported in protocol V5")]
    SnappyInV5,
    /// The compression flag is set on a connection without compression.
    #[error("Received a compressed frame on a connection that did not negotiate compression")]
    NotCompressed,
    /// Compressed bytes do not decompress.
    #[error("Provided frame does not appear to be {algorithm} compressed")]
    CorruptCompression {
        /// Name of the algorithm.
        algorithm: &'static str,
    },
    /// Header of a segment fails its checksum; the stream cannot be followed any further.
    #[error("Corrupt segment header: read CRC24 {read:#08x}, computed {computed:#08x}")]
    CorruptSegmentHeader {
        /// Checksum in the segment.
        read: u32,
        /// Checksum of the bytes received.
        computed: u32,
    },
    /// Payload of a segment fails its checksum.
    #[error("Corrupt segment payload: read CRC32 {read:#010x}, computed {computed:#010x}")]
    CorruptSegmentPayload {
        /// Checksum in the segment.
        read: u32,
        /// Checksum of the bytes received.
        computed: u32,
    },
    /// Segments do not add up to envelopes.
    #[error("Invalid segment: {reason}")]
    InvalidSegment {
        /// The mismatch.
        reason: &'static str,
    },
    /// A message that the state of the connection does not allow.
    #[error("Unexpected message {message}, {expected}")]
    UnexpectedMessage {
        /// Name of the message.
        message: &'static str,
        /// The message that would have been valid.
        expected: &'static str,
    },
    /// A response that the client's half of this crate cannot read.
    #[error("Invalid response: {reason}")]
    InvalidResponse {
        /// The mismatch.
        reason: &'static str,
    },
}

impl ProtocolError {
    /// The code of the ERROR message that answers this (native_protocol_v5.spec §9).
    pub fn error_code(&self) -> ErrorCode {
        match self {
            Self::TooLarge { .. } => ErrorCode::Invalid,
            _ => ErrorCode::ProtocolError,
        }
    }

    pub(crate) fn invalid_utf8(bytes: &[u8]) -> Self {
        let prefix_hex = model::hex::text(&bytes[..bytes.len().min(QUOTED_BYTES_MAX)]);
        Self::InvalidUtf8 { prefix_hex }
    }

    pub(crate) fn unknown_name(value: &str, kind: &'static str) -> Self {
        Self::UnknownName { value: quoted(value), kind }
    }
}

/// The start of `text`, at most [`QUOTED_BYTES_MAX`] bytes, cut between characters.
pub(crate) fn quoted(text: &str) -> String {
    text[..text.floor_char_boundary(QUOTED_BYTES_MAX)].to_owned()
}

fn supported_versions() -> String {
    ProtocolVersion::ALL.map(ProtocolVersion::name).join(", ")
}
