//! Bytes of a commit-log segment; the grammar is in docs/formats/commitlog.md.
//!
//! Pure: bytes in, bytes out. Each life of a segment file has a seed of its own, and every entry carries it,
//! so an entry left over from an earlier life is not valid. Each entry's checksum also covers its own offset.

/// Bytes before the first entry.
pub(crate) const HEADER_BYTES: usize = 4096;
/// Bytes of an entry besides its payload and padding.
const ENTRY_HEAD_BYTES: usize = 16;
const CHECKSUM_AT: usize = ENTRY_HEAD_BYTES - 4;
const ALIGNMENT: usize = 8;
const MAGIC: &[u8; 8] = b"cetolog\n";
/// Version 3 has the number of tablets in [`EntryKind::Flushed`].
const VERSION: u32 = 3;
/// The oldest version that is read.
const VERSION_LEAST: u32 = 1;
/// A byte of an entry's head in version 2, zero in version 1: the entry has one checksum, over all its bytes.
const WHOLE: u8 = 1;
const HEADER_CHECKED_BYTES: usize = 48;

/// The start of the machine that a segment was written under; unknown where the platform does not say.
pub(crate) type BootId = [u8; 16];
/// A boot id that is not known.
pub(crate) const BOOT_UNKNOWN: BootId = [0; 16];

/// Contents of a segment's first block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) id: u64,
    pub(crate) shard: u32,
    /// Random, new for each life of the file.
    pub(crate) salt: u32,
    pub(crate) boot: BootId,
}

/// Why bytes are not a segment's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderProblem {
    /// Not one of ours, or damaged.
    Corrupt,
    /// Of a version this build does not read.
    Version(u32),
}

impl SegmentHeader {
    /// The header block.
    pub(crate) fn encode(&self, out: &mut [u8]) {
        out[..HEADER_BYTES].fill(0);
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&self.shard.to_le_bytes());
        out[16..24].copy_from_slice(&self.id.to_le_bytes());
        out[24..28].copy_from_slice(&self.salt.to_le_bytes());
        out[32..48].copy_from_slice(&self.boot);
        let crc = crc32fast::hash(&out[..HEADER_CHECKED_BYTES]);
        out[HEADER_CHECKED_BYTES..HEADER_CHECKED_BYTES + 4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads a header block.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, HeaderProblem> {
        let checked = bytes.get(..HEADER_CHECKED_BYTES + 4).ok_or(HeaderProblem::Corrupt)?;
        if checked[..8] != *MAGIC
            || u32_at(checked, HEADER_CHECKED_BYTES) != crc32fast::hash(&checked[..HEADER_CHECKED_BYTES])
        {
            return Err(HeaderProblem::Corrupt);
        }
        if !(VERSION_LEAST..=VERSION).contains(&u32_at(checked, 8)) {
            return Err(HeaderProblem::Version(u32_at(checked, 8)));
        }
        Ok(Self {
            shard: u32_at(checked, 12),
            id: u64::from_le_bytes(checked[16..24].try_into().expect("eight bytes")),
            salt: u32_at(checked, 24),
            boot: checked[32..48].try_into().expect("sixteen bytes"),
        })
    }

    /// The number that every entry of this life carries; never zero, so that zeroed bytes are not an entry.
    pub(crate) fn seed(&self) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.id.to_le_bytes());
        hasher.update(&self.salt.to_le_bytes());
        hasher.update(&self.shard.to_le_bytes());
        hasher.finalize().max(1)
    }
}

/// Bytes of an encoded position.
pub(crate) const POSITION_BYTES: usize = 12;

/// A position in the log of one shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) segment: u64,
    pub(crate) offset: u32,
}

/// Kinds of entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum EntryKind {
    /// `model::mutation` bytes.
    Mutation = 1,
    /// Everything written to a table before this entry is gone. Payload: table id, then generations of its
    /// files that are gone too.
    Truncate = 2,
    /// Everything before the position in the payload was durable when this was written.
    Synced = 3,
    /// The segment ends here on purpose.
    End = 4,
    /// Entries of a tablet before a position are in durable table files. Payload: table id, tablet, position,
    /// number of tablets.
    Flushed = 5,
    /// Writes that happen together or not at all. Payload: an id, then mutations, each with its length.
    Batch = 6,
    /// All writes of the batch of that id are in the logs of their shards.
    BatchDone = 7,
    /// A part of an entry that is longer than half a segment (`pieces`).
    Piece = 8,
    /// A batch that this node keeps for a coordinator. Payload: an id, the time at which it was begun, the
    /// version that its coordinator knew, then mutations, each with its length.
    KeptBatch = 9,
}

impl EntryKind {
    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Mutation,
            2 => Self::Truncate,
            3 => Self::Synced,
            4 => Self::End,
            5 => Self::Flushed,
            6 => Self::Batch,
            7 => Self::BatchDone,
            8 => Self::Piece,
            9 => Self::KeptBatch,
            _ => return None,
        })
    }
}

/// Bytes an entry takes with its overhead and padding.
pub(crate) fn entry_bytes(payload: usize) -> usize {
    (payload + ENTRY_HEAD_BYTES).next_multiple_of(ALIGNMENT)
}

/// Computes checksums. It looks for the processor's checksum instructions once, and not for each entry.
pub(crate) struct Checksums(crc32fast::Hasher);

impl Checksums {
    pub(crate) fn new() -> Self {
        Self(crc32fast::Hasher::new())
    }
}

/// Writes an entry at the start of `out`, which has [`entry_bytes`] of room; `offset` is its place in the
/// segment.
pub(crate) fn encode_entry(out: &mut [u8], seed: u32, offset: u32, kind: EntryKind, payload: &[u8]) {
    encode_entry_with(&Checksums::new(), out, seed, offset, kind, payload);
}

/// As [`encode_entry`], for callers that write many entries.
pub(crate) fn encode_entry_with(
    checksums: &Checksums,
    out: &mut [u8],
    seed: u32,
    offset: u32,
    kind: EntryKind,
    payload: &[u8],
) {
    let total = entry_bytes(payload.len());
    let out = &mut out[..total];
    // Clears the padding, which lies in the last word; the payload then overwrites the rest of that word.
    out[total - ALIGNMENT..].fill(0);
    let mut head = [0; ENTRY_HEAD_BYTES];
    head[..4].copy_from_slice(&seed.to_le_bytes());
    head[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    head[8..CHECKSUM_AT].copy_from_slice(&[kind as u8, WHOLE, 0, 0]);
    // The offset stands in the place of the checksum, so that all checked bytes are one run.
    head[CHECKSUM_AT..].copy_from_slice(&offset.to_le_bytes());
    out[..ENTRY_HEAD_BYTES].copy_from_slice(&head);
    out[ENTRY_HEAD_BYTES..ENTRY_HEAD_BYTES + payload.len()].copy_from_slice(payload);
    let mut hasher = checksums.0.clone();
    hasher.update(out);
    out[CHECKSUM_AT..ENTRY_HEAD_BYTES].copy_from_slice(&hasher.finalize().to_le_bytes());
}

/// An entry's head with its offset in the place of the checksum, which covers it: an entry copied to another
/// offset is not valid.
fn checked_head(head: &[u8], offset: u32) -> [u8; ENTRY_HEAD_BYTES] {
    let mut checked = [0; ENTRY_HEAD_BYTES];
    checked[..CHECKSUM_AT].copy_from_slice(&head[..CHECKSUM_AT]);
    checked[CHECKSUM_AT..].copy_from_slice(&offset.to_le_bytes());
    checked
}

/// An entry in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) kind: EntryKind,
    pub(crate) payload: &'a [u8],
    /// Offset of the next entry.
    pub(crate) end: usize,
}

/// The entry at `offset` of a whole segment's bytes; `None` if there is no intact one.
pub(crate) fn entry_at(segment: &[u8], seed: u32, offset: usize) -> Option<Entry<'_>> {
    let start = offset.checked_add(ENTRY_HEAD_BYTES)?;
    let head = segment.get(offset..start)?;
    if u32_at(head, 0) != seed {
        return None;
    }
    let kind = EntryKind::from_byte(head[8])?;
    let stop = start.checked_add(u32_at(head, 4) as usize)?;
    let checked = checked_head(head, offset as u32);
    if head[9] != WHOLE {
        return entry_of_two_checksums(segment, kind, &checked, u32_at(head, CHECKSUM_AT), (start, stop));
    }
    let end = stop.checked_next_multiple_of(ALIGNMENT)?;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&checked);
    hasher.update(segment.get(start..end)?);
    (hasher.finalize() == u32_at(head, CHECKSUM_AT)).then(|| Entry {
        kind,
        payload: &segment[start..stop],
        end,
    })
}

/// An entry of version 1: its head has a checksum, and a second one that continues it stands behind the
/// payload.
fn entry_of_two_checksums<'a>(
    segment: &'a [u8],
    kind: EntryKind,
    head: &[u8; ENTRY_HEAD_BYTES],
    head_crc: u32,
    (start, stop): (usize, usize),
) -> Option<Entry<'a>> {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    if hasher.clone().finalize() != head_crc {
        return None;
    }
    let payload = segment.get(start..stop)?;
    hasher.update(payload);
    let crc = segment.get(stop..stop.checked_add(4)?)?;
    (u32_at(crc, 0) == hasher.finalize()).then(|| Entry {
        kind,
        payload,
        end: (stop + 4).next_multiple_of(ALIGNMENT),
    })
}

/// Whether an entry of this life of the segment begins at `offset`, intact or not.
pub(crate) fn begins_entry(segment: &[u8], seed: u32, offset: usize) -> bool {
    offset
        .checked_add(4)
        .and_then(|end| segment.get(offset..end))
        .is_some_and(|head| head == seed.to_le_bytes())
}

/// The first intact entry that begins at or behind `offset`, and its offset. One pass that looks at a word in
/// each eight bytes.
pub(crate) fn find_entry(segment: &[u8], seed: u32, offset: usize) -> Option<(usize, Entry<'_>)> {
    find_entry_before(segment, seed, offset, segment.len())
}

/// As [`find_entry`], but only for entries that begin before `before`, so that a long search can be made in
/// steps.
pub(crate) fn find_entry_before(
    segment: &[u8],
    seed: u32,
    offset: usize,
    before: usize,
) -> Option<(usize, Entry<'_>)> {
    let start = offset.next_multiple_of(ALIGNMENT);
    let seed_bytes = seed.to_le_bytes();
    segment
        .get(start..before.next_multiple_of(ALIGNMENT).min(segment.len()))?
        .chunks_exact(ALIGNMENT)
        .enumerate()
        .filter(|(_, chunk)| chunk[..4] == seed_bytes)
        .find_map(|(at, _)| {
            let at = start + at * ALIGNMENT;
            entry_at(segment, seed, at).map(|entry| (at, entry))
        })
}

/// The payload of a [`EntryKind::Synced`] entry.
pub(crate) fn encode_position(position: Position) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&position.segment.to_le_bytes());
    bytes[8..].copy_from_slice(&position.offset.to_le_bytes());
    bytes
}

/// Reads the payload of a [`EntryKind::Synced`] entry.
pub(crate) fn decode_position(bytes: &[u8]) -> Option<Position> {
    let bytes: &[u8; POSITION_BYTES] = bytes.try_into().ok()?;
    Some(Position {
        segment: u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")),
        offset: u32_at(bytes, 8),
    })
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests;
