//! Frames between nodes.
//!
//! ```text
//! frame := length:u32 verb:u8 flags:u8 group:u8 version:u8 stream:u32 left_ms:u32 crc:u32 body[length]
//! ```
//! The CRC-32 is over the header before it and the body. A compressed body is an lz4 block behind its length,
//! as in version 4 of the native protocol.

use super::NodeError;
use crate::compression::{Compression, Compressor};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 20;
/// Bytes of a header that the checksum covers.
const CHECKED_BYTES: usize = 16;
/// A shorter body is not compressed.
pub const COMPRESSED_BODY_BYTES_MIN: usize = 1024;

macro_rules! codes {
    ($(#[$doc:meta])* $name:ident, $field:literal: $($(#[$of:meta])* $variant:ident = $code:literal),* $(,)?) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$of])* $variant = $code),*
        }

        impl $name {
            /// All there are.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            fn from_code(code: u8) -> Result<Self, NodeError> {
                match code {
                    $($code => Ok(Self::$variant),)*
                    _ => Err(NodeError::Unknown { field: $field, value: u64::from(code) }),
                }
            }
        }
    };
}

codes! {
    /// The kind of a frame's request; an answer has that of its request.
    Verb, "a frame's verb":
    /// The first message of each side of a connection ([`super::hello`]).
    Hello = 0,
    /// Apply mutations ([`super::mutate`]).
    Mutate = 1,
    /// Send what a read finds ([`super::read`]).
    Read = 2,
    /// Send a digest of what a read finds; the body is that of a read.
    Digest = 3,
    /// Say that you are alive ([`super::control::Ping`]).
    Ping = 4,
    /// A message of the consensus library, opaque here.
    Raft = 5,
    /// Take me into the cluster ([`super::control::Join`]).
    Join = 6,
    /// Plan and propose this ([`super::control::Command`]).
    Command = 7,
    /// End all older requests ([`super::control::Drain`]).
    Drain = 8,
    /// Up to where must I have applied to read what is current ([`super::control::Index`])?
    ReadIndex = 9,
    /// Are you in a cluster ([`super::control::Status`])?
    Status = 10,
    /// Apply mutations that were kept for a while, unless they are too old by now ([`super::mutate`]).
    Hint = 11,
    /// Keep a batch until you are told that it is done ([`super::batch`]).
    BatchLog = 12,
    /// A batch is done ([`super::batch`]).
    BatchDone = 13,
    /// Promise a round of conditional writes and send what it reads ([`super::paxos::Prepare`]).
    Prepare = 14,
    /// Accept the proposal of a round ([`super::paxos::Propose`]).
    Accept = 15,
    /// Commit the proposal of a round ([`super::paxos::Propose`]).
    Learn = 16,
    /// Count, as the leader of a counter update ([`super::count`]).
    Count = 20,
}

codes! {
    /// The scheduling group of the work that a frame asks for.
    WorkGroup, "a frame's group":
    /// Requests of clients.
    Statement = 0,
    /// Reads over many partitions.
    Scan = 1,
    /// Agreement and liveness.
    Control = 2,
    /// Moving data.
    Streaming = 3,
    /// Repair.
    Repair = 4,
    /// Everything without a deadline.
    Background = 5,
}

/// Facts about a frame that are true or not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct FrameFlags(u8);

impl FrameFlags {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// The answer to a request.
    pub const REPLY: Self = Self(1);
    /// An answer that says why there is none.
    pub const ERROR: Self = Self(1 << 1);
    /// A request that is not answered.
    pub const ONE_WAY: Self = Self(1 << 2);
    /// The body is compressed.
    pub const COMPRESSED: Self = Self(1 << 3);
    /// Another frame of the stream continues this answer.
    pub const MORE_FOLLOWS: Self = Self(1 << 4);
    /// The request of this stream needs no answer any more.
    pub const CANCEL: Self = Self(1 << 5);
    /// The body begins with the number (u16) of the shard that serves the request, which is another one of
    /// the receiving node.
    pub const FOR_SHARD: Self = Self(1 << 6);
    const ALL: u8 = (1 << 7) - 1;

    /// Both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` are among them.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// A header but for length and checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// The kind of request.
    pub verb: Verb,
    /// Facts about the frame.
    pub flags: FrameFlags,
    /// The group of the work.
    pub group: WorkGroup,
    /// The protocol's version, the same for all frames behind the first of a connection.
    pub version: u8,
    /// Pairs requests and answers.
    pub stream: u32,
    /// Milliseconds until nobody waits for the answer any more: time left, because clocks differ.
    pub left_ms: u32,
}

/// One frame, borrowed from the receive buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its header.
    pub header: FrameHeader,
    /// The body as it was sent.
    sent: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Cuts the first frame off `bytes`, and hands over what is behind it; `None` if it has not all come.
    ///
    /// # Errors
    /// [`NodeError`] for a body of more than `body_bytes_max`, a damaged frame, and unknown codes: the
    /// connection is of no use any more.
    pub fn cut(bytes: &'a [u8], body_bytes_max: usize) -> Result<Option<(Self, &'a [u8])>, NodeError> {
        let Some((head, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let length = number(0);
        if length as usize > body_bytes_max {
            return Err(NodeError::TooLong { length: u64::from(length), limit: body_bytes_max });
        }
        let Some((sent, rest)) = rest.split_at_checked(length as usize) else { return Ok(None) };
        let (read, computed) = (number(CHECKED_BYTES), checksum(&head[..CHECKED_BYTES], sent));
        if read != computed {
            return Err(NodeError::Checksum { read, computed });
        }
        let [verb, flags, group, version] = number(4).to_le_bytes();
        if flags & !FrameFlags::ALL != 0 {
            return Err(NodeError::Unknown { field: "a frame's flags", value: u64::from(flags) });
        }
        let header = FrameHeader {
            verb: Verb::from_code(verb)?,
            flags: FrameFlags(flags),
            group: WorkGroup::from_code(group)?,
            version,
            stream: number(8),
            left_ms: number(12),
        };
        Ok(Some((Self { header, sent }, rest)))
    }

    /// The body; a compressed one is put into `scratch`, which is cleared first.
    ///
    /// # Errors
    /// [`NodeError::Invalid`] for a body that does not decompress to at most `body_bytes_max`.
    pub fn body<'b>(&self, body_bytes_max: usize, scratch: &'b mut Vec<u8>) -> Result<&'b [u8], NodeError>
    where
        'a: 'b,
    {
        if !self.header.flags.has(FrameFlags::COMPRESSED) {
            return Ok(self.sent);
        }
        scratch.clear();
        Compression::Lz4
            .decompress(self.sent, body_bytes_max, scratch)
            .map_err(|error| NodeError::Invalid { field: "a compressed body", reason: error.to_string() })?;
        Ok(scratch)
    }
}

fn checksum(head: &[u8], body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(body);
    hasher.finalize()
}

/// Appends a frame to `out` whose body `write` appends. With a compressor, bodies of
/// [`COMPRESSED_BODY_BYTES_MIN`] and more are compressed.
///
/// # Panics
/// For a body of 4 GiB or more, or of 2 GiB with a compressor.
pub fn append_frame(
    out: &mut Vec<u8>,
    header: FrameHeader,
    compressor: Option<&mut Compressor>,
    write: impl FnOnce(&mut Vec<u8>),
) {
    let begin = out.len();
    out.resize(begin + HEADER_BYTES, 0);
    write(out);
    let body = begin + HEADER_BYTES;
    let mut flags = header.flags.without(FrameFlags::COMPRESSED);
    if let Some(compressor) = compressor
        && out.len() - body >= COMPRESSED_BODY_BYTES_MIN
    {
        compressor.compress_body(Compression::Lz4, out, body).expect("a body is shorter than 2 GiB");
        flags = flags.with(FrameFlags::COMPRESSED);
    }
    let length = u32::try_from(out.len() - body).expect("a body is shorter than 4 GiB");
    let (head, sent) = out[begin..].split_at_mut(HEADER_BYTES);
    head[..4].copy_from_slice(&length.to_le_bytes());
    head[4..8].copy_from_slice(&[header.verb as u8, flags.0, header.group as u8, header.version]);
    head[8..12].copy_from_slice(&header.stream.to_le_bytes());
    head[12..16].copy_from_slice(&header.left_ms.to_le_bytes());
    let crc = checksum(&head[..CHECKED_BYTES], sent);
    head[CHECKED_BYTES..].copy_from_slice(&crc.to_le_bytes());
}
