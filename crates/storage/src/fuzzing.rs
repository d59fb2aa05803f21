//! Entry points for fuzz targets: each accepts any bytes and must return.
//!
//! They are not part of the interface; `make fuzz` runs them. Checksums would keep a fuzzer from reaching the
//! code behind them, so each entry point also puts the bytes behind correct checksums. Invariants checked:
//! damage does not affect the data before it, and encoded data decodes to the same data.

use std::path::Path;

use model::mutation::MutationView;
use model::schema::SchemaChange;

use crate::agreed::log as schema_log;
use crate::commitlog::flushed::decode_flushed;
use crate::commitlog::format::{
    EntryKind, HEADER_BYTES, SegmentHeader, decode_position, encode_entry, entry_at, entry_bytes, find_entry,
};
use crate::commitlog::pieces::Piece;
use crate::commitlog::replay::{batch_mutations, decode_truncation};
use crate::error::StorageError;
use crate::manifest::format;

/// Most entries put into one segment.
const ENTRIES_MAX: usize = 64;

/// A segment of the commit log: the bytes as a whole segment, and as payloads of entries of which one is then
/// damaged.
///
/// # Panics
/// When an intact entry before the damage is not found: that is the bug the fuzzer looks for.
pub fn commitlog(bytes: &[u8]) {
    if let Ok(header) = SegmentHeader::decode(bytes) {
        walk(bytes, header.seed());
    }
    payload(bytes);
    let Some((damage, payloads)) = bytes.split_first_chunk::<3>() else { return };
    let header = SegmentHeader { id: 7, shard: 0, salt: u32::from(damage[2]), boot: [1; 16] };
    let mut segment = vec![0; HEADER_BYTES];
    header.encode(&mut segment);
    let mut ends = Vec::new();
    let mut rest = payloads;
    while let Some((&length, after)) = rest.split_first()
        && ends.len() < ENTRIES_MAX
    {
        let (payload, after) = after.split_at(after.len().min(usize::from(length)));
        let at = segment.len();
        segment.resize(at + entry_bytes(payload.len()), 0);
        encode_entry(&mut segment[at..], header.seed(), at as u32, EntryKind::Mutation, payload);
        ends.push(segment.len());
        rest = after;
    }
    assert_eq!(walk(&segment, header.seed()), ends.len(), "every entry is read back");
    let body = segment.len() - HEADER_BYTES;
    if body == 0 {
        return;
    }
    let hit = HEADER_BYTES + usize::from(u16::from_le_bytes([damage[0], damage[1]])) % body;
    segment[hit] ^= damage[2] | 1;
    let before = ends.iter().filter(|end| **end <= hit).count();
    assert!(walk(&segment, header.seed()) >= before, "damage at {hit} costs no entry before it");
}

/// Number of intact entries from the first on.
fn walk(segment: &[u8], seed: u32) -> usize {
    let (mut at, mut entries) = (HEADER_BYTES, 0);
    while let Some(entry) = entry_at(segment, seed, at) {
        assert!(entry.end > at, "an entry takes room");
        payload(entry.payload);
        (at, entries) = (entry.end, entries + 1);
    }
    if let Some((found, _)) = find_entry(segment, seed, at + 1) {
        assert!(found > at);
    }
    entries
}

fn payload(bytes: &[u8]) {
    let _ = MutationView::parse(bytes);
    let _ = decode_position(bytes);
    let _ = decode_flushed(bytes);
    if let Some(piece) = Piece::decode(bytes) {
        assert_eq!(Piece::decode(&piece.encode()), Some(piece), "a piece that was read is read back");
    }
    assert!(batch_mutations(bytes).map(|mutation| mutation.len() + 4).sum::<usize>() <= bytes.len());
    if let Some((_, generations)) = decode_truncation(bytes) {
        assert!(generations.count() <= bytes.len() / 8);
    }
}

/// A shard's manifest log. The bytes are read as a whole log, as the payload of an intact record, and as the
/// file that names the epoch.
///
/// # Panics
/// If decoded edits, encoded again, do not decode to the same edits: that is the bug the fuzzer looks for.
pub fn manifest(bytes: &[u8]) {
    let read = crate::manifest::fuzzing::edits;
    let edits = read(bytes);
    assert_eq!(read(&crate::manifest::fuzzing::log(&edits)), edits, "edits that were read are read back");
    if let Some(edits) = format::decode(bytes) {
        assert_eq!(read(&crate::manifest::fuzzing::log(&edits)), edits, "edits of a record are read back");
    }
    if let Some(current) = format::Current::decode(bytes) {
        assert_eq!(format::Current::decode(current.encode().as_bytes()), Some(current));
    }
}

/// The log of schema changes: the bytes as a whole log, and as the payload of an intact record.
///
/// # Panics
/// When a change that was read is not read back: that is the bug the fuzzer looks for.
pub fn schema_log(bytes: &[u8]) {
    let path = Path::new("schema.log");
    let read = |log: &[u8]| match schema_log::read(log, path) {
        Ok(changes) => changes,
        Err(StorageError::SchemaLogCorrupt { offset, .. }) => {
            assert!(offset <= log.len() as u64, "damage at {offset} is in the log");
            Vec::new()
        }
        Err(error) => panic!("reading bytes failed with {error}"),
    };
    // Compared as bytes: a change may hold a number that is not equal to itself.
    let same = |changes: &[SchemaChange]| {
        let log = schema_log::encode(changes);
        assert_eq!(schema_log::encode(&read(&log)), log, "what was read is read back");
    };
    same(&read(bytes));
    if let Ok(change) = SchemaChange::decode(bytes) {
        same(std::slice::from_ref(&change));
    }
}

#[cfg(test)]
mod tests {
    use super::EntryKind::{Batch, BatchDone, End, Flushed, Mutation, Piece as Part, Synced, Truncate};
    use super::*;

    /// Kinds of the entries of a segment that the fuzzer begins with, and that they are all there is in it.
    fn check(segment: &[u8], expected: &[EntryKind]) {
        let seed = SegmentHeader::decode(segment).expect("a header").seed();
        let (mut at, mut kinds) = (HEADER_BYTES, Vec::new());
        while let Some(entry) = entry_at(segment, seed, at) {
            kinds.push(entry.kind);
            at = entry.end;
        }
        assert_eq!((kinds.as_slice(), at), (expected, segment.len()));
        commitlog(segment);
    }

    /// The corpus was made from files that a node wrote. The pieces, and the end behind entries of version 1,
    /// were written by other code, following the grammar.
    #[test]
    fn segments_that_the_fuzzer_begins_with_are_read_to_their_ends() {
        check(
            include_bytes!("../../../fuzz/corpus/commitlog/segment-2"),
            &[Mutation, Batch, BatchDone, Synced, Flushed, Truncate, End],
        );
        check(include_bytes!("../../../fuzz/corpus/commitlog/segment-2-pieces"), &[Part, Part]);
        check(
            include_bytes!("../../../fuzz/corpus/commitlog/segment-1-ended"),
            &[Mutation, Mutation, Mutation, End],
        );
    }
}
