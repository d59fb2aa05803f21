//! The nine bytes in front of every message, and cutting a receive buffer into messages.
//!
//! ```text
//! version: u8 (0x80 set in responses)  flags: u8  stream: i16  opcode: u8  body_length: u32, all big endian
//! ```
//! In versions 3 and 4 these frames follow each other on the socket; in version 5 they are called envelopes
//! and travel in segments (`segment`) once STARTUP is answered. native_protocol_v5.spec §2. Invariant: a
//! frame longer than the limit is refused before any of its body is kept.

use crate::protocol_error::ProtocolError;
use crate::version::ProtocolVersion;

/// Length of a header in bytes.
pub const HEADER_BYTES: usize = 9;

/// Set in the version byte of a response.
const RESPONSE_BIT: u8 = 0x80;

/// Bits of the flags byte (native_protocol_v5.spec §2.2). Unknown bits are ignored, as the protocol asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// The body is compressed with the algorithm of STARTUP; versions 3 and 4 only.
    pub const COMPRESSED: u8 = 0x01;
    /// Request: trace this. Response: a tracing id opens the body.
    pub const TRACING: u8 = 0x02;
    /// The body carries a custom payload; since version 4.
    pub const CUSTOM_PAYLOAD: u8 = 0x04;
    /// Response: warnings open the body, after a tracing id; since version 4.
    pub const WARNING: u8 = 0x08;
    /// The client accepts versions that are not final. All supported versions are final, so it has no effect.
    pub const USE_BETA: u8 = 0x10;

    /// Whether any bit of `mask` is set.
    pub const fn contains(self, mask: u8) -> bool {
        self.0 & mask != 0
    }
}

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// Kind of a message (native_protocol_v5.spec §2.4).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Opcode { $($(#[$doc])* $name = $code,)* }

        impl Opcode {
            /// The opcode with this number.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }
        }
    };
}

opcodes! {
    /// The request failed.
    Error = 0x00,
    /// First request: options of the connection.
    Startup = 0x01,
    /// The connection is ready for requests.
    Ready = 0x02,
    /// The server requires authentication.
    Authenticate = 0x03,
    /// Version 1 only; answered with an error.
    Credentials = 0x04,
    /// Requests the server's supported options.
    Options = 0x05,
    /// The server's supported options.
    Supported = 0x06,
    /// A statement as text.
    Query = 0x07,
    /// The result of a statement.
    Result = 0x08,
    /// Prepares a statement.
    Prepare = 0x09,
    /// Executes a prepared statement.
    Execute = 0x0A,
    /// Registers for events.
    Register = 0x0B,
    /// An event of the cluster.
    Event = 0x0C,
    /// Several statements at once.
    Batch = 0x0D,
    /// The authenticator's question.
    AuthChallenge = 0x0E,
    /// The client's answer to it.
    AuthResponse = 0x0F,
    /// The client is authenticated.
    AuthSuccess = 0x10,
}

impl Opcode {
    /// The number on the wire.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The name in the specifications.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "ERROR",
            Self::Startup => "STARTUP",
            Self::Ready => "READY",
            Self::Authenticate => "AUTHENTICATE",
            Self::Credentials => "CREDENTIALS",
            Self::Options => "OPTIONS",
            Self::Supported => "SUPPORTED",
            Self::Query => "QUERY",
            Self::Result => "RESULT",
            Self::Prepare => "PREPARE",
            Self::Execute => "EXECUTE",
            Self::Register => "REGISTER",
            Self::Event => "EVENT",
            Self::Batch => "BATCH",
            Self::AuthChallenge => "AUTH_CHALLENGE",
            Self::AuthResponse => "AUTH_RESPONSE",
            Self::AuthSuccess => "AUTH_SUCCESS",
        }
    }

    /// Whether clients send it (otherwise servers do).
    pub const fn is_request(self) -> bool {
        matches!(
            self,
            Self::Startup
                | Self::Credentials
                | Self::Options
                | Self::Query
                | Self::Prepare
                | Self::Execute
                | Self::Register
                | Self::Batch
                | Self::AuthResponse
        )
    }
}

/// The sender of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// A client.
    Request,
    /// A server.
    Response,
}

/// A decoded frame header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// Version of the protocol.
    pub version: ProtocolVersion,
    /// Flags of the body's optional parts.
    pub flags: Flags,
    /// Chosen by the client, returned in the response; events have -1.
    pub stream: i16,
    /// Kind of the message.
    pub opcode: Opcode,
    /// Bytes after the header.
    pub body_length: u32,
}

/// An unacceptable frame, with the data needed to answer it and continue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct FrameError {
    /// The error.
    pub error: ProtocolError,
    /// Stream to answer on; 0 if the header was too short to have it.
    pub stream: i16,
    /// Bytes of header and body to discard before the next frame starts; `None` if that is unknown and the
    /// connection must be closed after the answer.
    pub discard_bytes: Option<u64>,
}

impl FrameError {
    /// An error after which the stream of bytes cannot be followed.
    pub fn fatal(error: ProtocolError) -> Self {
        Self { error, stream: 0, discard_bytes: None }
    }
}

impl FrameHeader {
    /// Reads the header of a request from the start of `bytes`; `Ok(None)` if more bytes are needed.
    ///
    /// The version is checked by the first byte alone, because versions 1 and 2 have shorter headers.
    /// `max_frame_bytes` bounds header and body together.
    ///
    /// # Errors
    /// [`FrameError`] for an unknown version or opcode, a response's opcode, or a frame above the limit.
    #[inline]
    pub fn decode(bytes: &[u8], max_frame_bytes: usize) -> Result<Option<Self>, FrameError> {
        Self::decode_direction(bytes, max_frame_bytes, Direction::Request)
    }

    /// Like [`Self::decode`], for the direction a client or a test reads.
    ///
    /// # Errors
    /// As [`Self::decode`].
    #[inline]
    pub fn decode_direction(
        bytes: &[u8],
        max_frame_bytes: usize,
        direction: Direction,
    ) -> Result<Option<Self>, FrameError> {
        let Some(&first) = bytes.first() else { return Ok(None) };
        let requested = first & !RESPONSE_BIT;
        let Some(version) = ProtocolVersion::from_number(requested) else {
            return Err(FrameError::fatal(ProtocolError::UnsupportedVersion { requested }));
        };
        let Some(&[_, flags, stream_high, stream_low, opcode, l0, l1, l2, l3]) =
            bytes.first_chunk::<HEADER_BYTES>()
        else {
            return Ok(None);
        };
        let stream = i16::from_be_bytes([stream_high, stream_low]);
        let body_length = u32::from_be_bytes([l0, l1, l2, l3]);
        let frame_bytes = HEADER_BYTES as u64 + u64::from(body_length);

        if version >= ProtocolVersion::V5 && body_length > i32::MAX as u32 {
            let error = ProtocolError::InvalidBodyLength { length: body_length.cast_signed() };
            return Err(FrameError { error, stream, discard_bytes: None });
        }
        let fail = |error| Err(FrameError { error, stream, discard_bytes: Some(frame_bytes) });
        if frame_bytes > max_frame_bytes as u64 {
            return fail(ProtocolError::TooLarge { length: frame_bytes, limit: max_frame_bytes });
        }
        let Some(opcode) = Opcode::from_code(opcode) else {
            return fail(ProtocolError::UnknownOpcode { opcode });
        };
        let is_request = direction == Direction::Request;
        if opcode.is_request() != is_request || (first & RESPONSE_BIT == 0) != is_request {
            return fail(ProtocolError::WrongDirection { opcode: opcode.code() });
        }
        Ok(Some(Self { version, flags: Flags(flags), stream, opcode, body_length }))
    }

    /// The header as bytes.
    pub fn encode(&self, direction: Direction) -> [u8; HEADER_BYTES] {
        let direction_bit = if direction == Direction::Response { RESPONSE_BIT } else { 0 };
        let [stream_high, stream_low] = self.stream.to_be_bytes();
        let [l0, l1, l2, l3] = self.body_length.to_be_bytes();
        [
            self.version.number() | direction_bit,
            self.flags.0,
            stream_high,
            stream_low,
            self.opcode.code(),
            l0,
            l1,
            l2,
            l3,
        ]
    }

    /// Header and body together, in bytes.
    pub const fn frame_bytes(&self) -> usize {
        HEADER_BYTES + self.body_length as usize
    }
}

/// A whole frame in a receive buffer.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// The decoded header.
    pub header: FrameHeader,
    /// Exactly `header.body_length` bytes.
    pub body: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Cuts the first request from `bytes`; `Ok(None)` if it is not complete yet. The next one starts
    /// `frame.header.frame_bytes()` later.
    ///
    /// # Errors
    /// As [`FrameHeader::decode`].
    #[inline]
    pub fn cut(bytes: &'a [u8], max_frame_bytes: usize) -> Result<Option<Self>, FrameError> {
        Self::cut_direction(bytes, max_frame_bytes, Direction::Request)
    }

    /// Like [`Self::cut`], for the direction a client or a test reads.
    ///
    /// # Errors
    /// As [`FrameHeader::decode`].
    #[inline]
    pub fn cut_direction(
        bytes: &'a [u8],
        max_frame_bytes: usize,
        direction: Direction,
    ) -> Result<Option<Self>, FrameError> {
        let Some(header) = FrameHeader::decode_direction(bytes, max_frame_bytes, direction)? else {
            return Ok(None);
        };
        Ok(bytes.get(HEADER_BYTES..header.frame_bytes()).map(|body| Self { header, body }))
    }
}
