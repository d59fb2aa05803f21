//! Entries written into a segment are read back; damage is distinguished from torn ends.

use super::*;
use proptest::prelude::*;

const HEADER: SegmentHeader = SegmentHeader { id: 7, shard: 2, salt: 99, boot: [1; 16] };

fn segment(payloads: &[Vec<u8>]) -> (Vec<u8>, Vec<usize>) {
    let mut bytes = vec![0; HEADER_BYTES];
    HEADER.encode(&mut bytes);
    let mut offsets = Vec::new();
    for payload in payloads {
        let at = bytes.len();
        offsets.push(at);
        bytes.resize(at + entry_bytes(payload.len()), 0);
        encode_entry(&mut bytes[at..], HEADER.seed(), at as u32, EntryKind::Mutation, payload);
    }
    (bytes, offsets)
}

fn read(bytes: &[u8], seed: u32) -> Vec<Vec<u8>> {
    let mut at = HEADER_BYTES;
    std::iter::from_fn(|| {
        let entry = entry_at(bytes, seed, at)?;
        at = entry.end;
        Some(entry.payload.to_vec())
    })
    .collect()
}

#[test]
fn a_header_comes_back_and_any_flipped_bit_is_noticed() {
    let mut bytes = vec![0; HEADER_BYTES];
    HEADER.encode(&mut bytes);
    assert_eq!(SegmentHeader::decode(&bytes), Ok(HEADER));
    for bit in 0..(HEADER_CHECKED_BYTES + 4) * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(SegmentHeader::decode(&bytes).is_err(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    assert_eq!(SegmentHeader::decode(&bytes[..40]), Err(HeaderProblem::Corrupt));
}

#[test]
fn a_segment_cut_at_any_byte_gives_the_entries_before_the_cut() {
    let payloads: Vec<Vec<u8>> = (0..6).map(|n| vec![n as u8; n * 7]).collect();
    let (bytes, offsets) = segment(&payloads);
    for cut in HEADER_BYTES..=bytes.len() {
        let whole = offsets
            .iter()
            .zip(&payloads)
            .filter(|(at, payload)| **at + entry_bytes(payload.len()) <= cut)
            .count();
        assert_eq!(read(&bytes[..cut], HEADER.seed()), payloads[..whole]);
    }
}

/// An entry as version 1 wrote it.
fn old_entry(offset: usize, kind: EntryKind, payload: &[u8]) -> Vec<u8> {
    let mut entry = HEADER.seed().to_le_bytes().to_vec();
    entry.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    entry.extend_from_slice(&[kind as u8, 0, 0, 0]);
    let head_crc = crc32fast::hash(&checked_head(&entry, offset as u32));
    entry.extend_from_slice(&head_crc.to_le_bytes());
    entry.extend_from_slice(payload);
    let mut hasher = crc32fast::Hasher::new_with_initial(head_crc);
    hasher.update(payload);
    entry.extend_from_slice(&hasher.finalize().to_le_bytes());
    entry.resize(entry.len().next_multiple_of(ALIGNMENT), 0);
    entry
}

#[test]
fn a_log_of_version_1_is_read_and_any_flipped_bit_costs_one_entry() {
    let mut bytes = vec![0; HEADER_BYTES];
    HEADER.encode(&mut bytes);
    bytes[8..12].copy_from_slice(&1u32.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..HEADER_CHECKED_BYTES]);
    bytes[HEADER_CHECKED_BYTES..HEADER_CHECKED_BYTES + 4].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(SegmentHeader::decode(&bytes), Ok(HEADER));
    let payloads = [b"first".to_vec(), Vec::new(), vec![7; 44]];
    for payload in &payloads {
        bytes.extend(old_entry(bytes.len(), EntryKind::Mutation, payload));
    }
    // A start ends a segment of version 1 as it ends any other.
    let end = bytes.len();
    bytes.resize(end + entry_bytes(0), 0);
    encode_entry(&mut bytes[end..], HEADER.seed(), end as u32, EntryKind::End, &[]);
    assert_eq!(read(&bytes, HEADER.seed()), [&payloads[..], &[Vec::new()]].concat());
    let first = HEADER_BYTES..HEADER_BYTES + ENTRY_HEAD_BYTES + payloads[0].len() + 4;
    for bit in first.start * 8..first.end * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(entry_at(&bytes, HEADER.seed(), HEADER_BYTES).is_none(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn a_torn_entry_is_told_from_the_end_of_the_log() {
    let (mut bytes, offsets) = segment(&[vec![1; 30], vec![2; 30]]);
    bytes[offsets[1] + ENTRY_HEAD_BYTES + 3..].fill(0);
    assert!(entry_at(&bytes, HEADER.seed(), offsets[1]).is_none());
    assert!(begins_entry(&bytes, HEADER.seed(), offsets[1]));
    bytes[offsets[1]..].fill(0);
    assert!(!begins_entry(&bytes, HEADER.seed(), offsets[1]));
    let earlier = SegmentHeader { salt: 100, ..HEADER };
    assert!(!begins_entry(&bytes, earlier.seed(), offsets[0]));
    assert!(
        !begins_entry(&bytes, HEADER.seed(), bytes.len()) && !begins_entry(&bytes, HEADER.seed(), usize::MAX)
    );
}

#[test]
fn entries_of_an_earlier_life_are_not_entries() {
    let (bytes, _) = segment(&[vec![1; 30], vec![2; 30]]);
    for other in [SegmentHeader { id: 8, ..HEADER }, SegmentHeader { salt: 100, ..HEADER }] {
        assert!(read(&bytes, other.seed()).is_empty());
        assert_eq!(find_entry(&bytes, other.seed(), HEADER_BYTES), None);
    }
}

#[test]
fn an_entry_copied_elsewhere_is_not_an_entry() {
    let (mut bytes, offsets) = segment(&[vec![1; 30], vec![2; 30]]);
    bytes.copy_within(offsets[0]..offsets[1], offsets[1]);
    assert_eq!(read(&bytes, HEADER.seed()).len(), 1);
}

proptest! {
    #[test]
    fn a_flipped_bit_costs_one_entry_and_the_next_is_found(
        payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 2..8),
        bit in any::<prop::sample::Index>(),
    ) {
        let (mut bytes, offsets) = segment(&payloads);
        let bit = HEADER_BYTES * 8 + bit.index((bytes.len() - HEADER_BYTES) * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let hit = offsets.iter().rposition(|at| *at <= bit / 8).expect("the bit is in an entry");
        let read = read(&bytes, HEADER.seed());
        prop_assert_eq!(read.len(), hit);
        let next = find_entry(&bytes, HEADER.seed(), offsets[hit] + 8).map(|(at, _)| at);
        prop_assert_eq!(next, offsets.get(hit + 1).copied());
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0usize..250) {
        let _ = SegmentHeader::decode(&bytes);
        let seed = bytes.get(..4).map_or(1, |b| u32_at(b, 0));
        let _ = entry_at(&bytes, seed, at);
        let _ = find_entry(&bytes, seed, at);
    }
}
