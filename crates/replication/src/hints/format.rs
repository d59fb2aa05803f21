//! Files of hints as bytes.
//!
//! ```text
//! file    := header entry*
//! header  := "cetohin1" host[16] created_us:i64 salt:u32 crc:u32
//! entry   := length:u32 head:u32 payload[length] crc:u32
//! payload := born_us:i64 version:u64 since:u64 attempts:u8 mutation
//! ```
//! `head` is the CRC-32 of the salt, the entry's offset in the file and its length; `crc` that of the salt,
//! the offset and the payload. So an entry is one only at its place in its file, whatever bytes clients
//! write, and a search for the next intact entry computes long checksums only where one begins. Invariant: a
//! file is appended to by one process only; a cut last entry is never followed by another.

use std::fmt;

/// The first eight bytes: kind and version.
pub(super) const MAGIC: [u8; 8] = *b"cetohin1";
/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 40;
/// Bytes of a header that its checksum covers.
const HEADER_CHECKED_BYTES: usize = 36;
/// Bytes of an entry before its payload.
const HEAD_BYTES: usize = 8;
/// Bytes of an entry besides its payload.
const AROUND_BYTES: usize = HEAD_BYTES + 4;
/// Bytes of a payload before the mutation.
const FACTS_BYTES: usize = 25;

/// The beginning of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// The host that the hints are for.
    pub(super) host: [u8; 16],
    /// When the file was made, microseconds since 1970.
    pub(super) created_us: i64,
    /// Part of the checksums, drawn for each file.
    pub(super) salt: u32,
}

/// Why bytes do not begin a file of hints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadHeader {
    /// There are too few: the process ended while it made the file, which has no entry.
    Cut,
    /// They are something else.
    Damaged,
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&self.host);
        bytes.extend_from_slice(&self.created_us.to_le_bytes());
        bytes.extend_from_slice(&self.salt.to_le_bytes());
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, BadHeader> {
        let header = bytes.first_chunk::<HEADER_BYTES>().ok_or(BadHeader::Cut)?;
        if header.iter().all(|byte| *byte == 0) {
            // A power failure kept the file's length and not its bytes.
            return Err(BadHeader::Cut);
        }
        let crc = crc32fast::hash(&header[..HEADER_CHECKED_BYTES]);
        if header[..8] != MAGIC || header[HEADER_CHECKED_BYTES..] != crc.to_le_bytes() {
            return Err(BadHeader::Damaged);
        }
        Ok(Self {
            host: header[8..24].try_into().expect("sixteen bytes"),
            created_us: i64::from_le_bytes(header[24..32].try_into().expect("eight bytes")),
            salt: u32::from_le_bytes(header[32..36].try_into().expect("four bytes")),
        })
    }
}

/// A write that a host missed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Hint {
    /// When its first coordinator began it, microseconds since 1970.
    pub(crate) born_us: i64,
    /// The version of the table's routing that it was planned with.
    pub(crate) version: u64,
    /// The command that made the host a replica of the tablet.
    pub(crate) since: u64,
    /// How often the host has refused it.
    pub(crate) attempts: u8,
    /// `model::mutation` bytes.
    pub(crate) mutation: std::rc::Rc<[u8]>,
}

impl fmt::Debug for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { born_us, version, since, attempts, mutation } = self;
        write!(
            f,
            "Hint of {} bytes, born {born_us}, by routing {version} since {since}, {attempts} attempts",
            mutation.len()
        )
    }
}

impl Hint {
    /// Bytes that it takes in a file.
    pub(super) fn file_bytes(&self) -> usize {
        AROUND_BYTES + FACTS_BYTES + self.mutation.len()
    }

    /// Appends it as the entry at `offset` of a file.
    pub(super) fn append(&self, salt: u32, offset: u64, out: &mut Vec<u8>) {
        let length =
            u32::try_from(FACTS_BYTES + self.mutation.len()).expect("a mutation is shorter than 4 GiB");
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&checksum(salt, offset, &length.to_le_bytes()).to_le_bytes());
        let payload = out.len();
        out.extend_from_slice(&self.born_us.to_le_bytes());
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.since.to_le_bytes());
        out.push(self.attempts);
        out.extend_from_slice(&self.mutation);
        let crc = checksum(salt, offset, &out[payload..]);
        out.extend_from_slice(&crc.to_le_bytes());
    }

    /// Reads a payload; `None` if it is too short.
    fn decode(payload: &[u8]) -> Option<Self> {
        let (facts, mutation) = payload.split_first_chunk::<FACTS_BYTES>()?;
        let number = |at: usize| u64::from_le_bytes(facts[at..at + 8].try_into().expect("eight bytes"));
        Some(Self {
            born_us: number(0).cast_signed(),
            version: number(8),
            since: number(16),
            attempts: facts[24],
            mutation: mutation.into(),
        })
    }
}

fn checksum(salt: u32, offset: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.to_le_bytes());
    hasher.update(&offset.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// What stands at a place of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// An intact entry, and the number of its bytes.
    Hint(Hint, usize),
    /// The beginning of one that takes so many bytes.
    Begun(usize),
    /// Nothing that is an entry.
    Nothing,
}

/// Looks at `bytes`, which stand at `offset` of a file with that salt. Entries of more than `entry_bytes_max`
/// are none.
pub(super) fn entry_at(bytes: &[u8], salt: u32, offset: u64, entry_bytes_max: usize) -> Found {
    let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else { return Found::Begun(HEAD_BYTES) };
    let length = &head[..4];
    if checksum(salt, offset, length) != u32::from_le_bytes(head[4..].try_into().expect("four bytes")) {
        return Found::Nothing;
    }
    let length = u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
    let whole = AROUND_BYTES.saturating_add(length);
    if whole > entry_bytes_max {
        return Found::Nothing;
    }
    let Some(entry) = bytes.get(..whole) else { return Found::Begun(whole) };
    let (payload, crc) = entry[HEAD_BYTES..].split_at(length);
    if checksum(salt, offset, payload).to_le_bytes() != crc {
        return Found::Nothing;
    }
    Hint::decode(payload).map_or(Found::Nothing, |hint| Found::Hint(hint, whole))
}
