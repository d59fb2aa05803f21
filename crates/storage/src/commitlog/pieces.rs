//! Splits entries that are longer than half a segment into pieces, and joins the pieces again.
//!
//! Pure: bytes in, bytes out. The pieces of an entry follow each other in the log in order. Other entries may
//! stand between them; pieces of another long entry may not. Invariant: an entry whose last pieces are
//! missing was never acknowledged and does not count. An entry that lacks an earlier piece is damaged, unless
//! the segment it began in is free by now. `long` writes the pieces, `replay` joins them.

use super::format::{EntryKind, Position, decode_position, encode_position};

/// Bytes of a piece's payload before its part of the entry.
pub(super) const PIECE_HEAD_BYTES: usize = 24;

/// One piece of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece<'a> {
    /// Position of the entry's first piece. No other entry has that position.
    pub(crate) place: Position,
    /// Number of this piece in the entry, from 0 on.
    pub(crate) number: u32,
    /// Pieces of the entry.
    pub(crate) count: u32,
    /// Kind of the whole entry.
    pub(crate) kind: EntryKind,
    /// This part of the entry's payload.
    pub(crate) bytes: &'a [u8],
}

impl<'a> Piece<'a> {
    /// The payload of an [`EntryKind::Piece`] entry.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut payload = Vec::with_capacity(PIECE_HEAD_BYTES + self.bytes.len());
        payload.extend_from_slice(&encode_position(self.place));
        payload.extend_from_slice(&self.number.to_le_bytes());
        payload.extend_from_slice(&self.count.to_le_bytes());
        payload.extend_from_slice(&[self.kind as u8, 0, 0, 0]);
        payload.extend_from_slice(self.bytes);
        payload
    }

    /// Reads such a payload; `None` if it is not one.
    pub(crate) fn decode(payload: &'a [u8]) -> Option<Self> {
        let (head, bytes) = payload.split_first_chunk::<PIECE_HEAD_BYTES>()?;
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let piece = Self {
            place: decode_position(&head[..12])?,
            number: word(12),
            count: word(16),
            kind: EntryKind::from_byte(head[20])?,
            bytes,
        };
        let whole = !matches!(piece.kind, EntryKind::Piece | EntryKind::Synced | EntryKind::End);
        (whole && piece.number < piece.count).then_some(piece)
    }
}

/// An entry that was joined from its pieces.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Whole {
    /// Position of its first piece.
    pub(crate) place: Position,
    pub(crate) kind: EntryKind,
    pub(crate) payload: Vec<u8>,
}

/// The result of taking one piece.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Joined {
    /// The piece was the last one of its entry.
    Whole(Whole),
    /// More pieces are to come, or the entry is not needed: its first segment is free.
    Nothing,
    /// An earlier piece is missing from the log.
    Missing,
}

/// Joins pieces in the order of the log. Holds the bytes of one entry at most.
#[derive(Debug)]
pub(crate) struct Joiner {
    /// Id of the oldest segment there is.
    oldest: u64,
    open: Option<(Whole, u32, u32)>,
    /// The entry that is known to lack a piece; it is reported once.
    broken: Option<Position>,
}

impl Joiner {
    /// For a log whose first segment is `oldest`.
    pub(crate) fn new(oldest: u64) -> Self {
        Self { oldest, open: None, broken: None }
    }

    /// Takes the payload of the [`EntryKind::Piece`] entry at `at`.
    pub(crate) fn take(&mut self, at: Position, payload: &[u8]) -> Joined {
        let open = self.open.take();
        let Some(piece) = Piece::decode(payload) else { return self.missing(at) };
        let (mut whole, next) = match open {
            _ if piece.number == 0 && piece.place == at => {
                (Whole { place: at, kind: piece.kind, payload: Vec::new() }, 0)
            }
            Some((whole, next, count))
                if whole.place == piece.place && whole.kind == piece.kind && count == piece.count =>
            {
                (whole, next)
            }
            _ if piece.place.segment < self.oldest => return Joined::Nothing,
            _ => return self.missing(piece.place),
        };
        if piece.number != next {
            return self.missing(piece.place);
        }
        whole.payload.extend_from_slice(piece.bytes);
        if next + 1 == piece.count {
            return Joined::Whole(whole);
        }
        self.open = Some((whole, next + 1, piece.count));
        Joined::Nothing
    }

    fn missing(&mut self, place: Position) -> Joined {
        if self.broken.replace(place) == Some(place) { Joined::Nothing } else { Joined::Missing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(segment: u64, offset: u32) -> Position {
        Position { segment, offset }
    }

    /// The pieces of an entry that begins at `place`, with the places they stand at.
    fn pieces(place: Position, parts: &[&[u8]]) -> Vec<(Position, Vec<u8>)> {
        let piece = |(number, bytes): (usize, &&[u8])| {
            let number = number as u32;
            let (count, kind) = (parts.len() as u32, EntryKind::Mutation);
            let stands = at(place.segment + u64::from(number), if number == 0 { place.offset } else { 4096 });
            (stands, Piece { place, number, count, kind, bytes }.encode())
        };
        parts.iter().enumerate().map(piece).collect()
    }

    fn join(oldest: u64, pieces: &[(Position, Vec<u8>)]) -> Vec<Joined> {
        let mut joiner = Joiner::new(oldest);
        pieces.iter().map(|(at, payload)| joiner.take(*at, payload)).collect()
    }

    fn whole(place: Position, payload: &[u8]) -> Joined {
        Joined::Whole(Whole { place, kind: EntryKind::Mutation, payload: payload.to_vec() })
    }

    #[test]
    fn pieces_come_together_and_the_entry_stands_where_the_first_does() {
        let place = at(3, 8000);
        let all = pieces(place, &[b"ab", b"cd", b"e"]);
        assert_eq!(join(1, &all), [Joined::Nothing, Joined::Nothing, whole(place, b"abcde")]);
    }

    #[test]
    fn an_entry_without_its_last_pieces_is_none_and_the_next_one_is_whole() {
        let (first, second) = (at(3, 8000), at(9, 4096));
        for written in 0..3 {
            let mut all = pieces(first, &[b"ab", b"cd", b"e"])[..written].to_vec();
            all.extend(pieces(second, &[b"x", b"y"]));
            let joined = join(1, &all);
            assert_eq!(joined.last(), Some(&whole(second, b"xy")), "{written} pieces");
            assert!(joined[..joined.len() - 1].iter().all(|one| *one == Joined::Nothing));
        }
    }

    #[test]
    fn an_entry_without_an_earlier_piece_is_damaged_which_is_said_once() {
        let all = pieces(at(3, 8000), &[b"ab", b"cd", b"ef", b"g"]);
        for missing in 0..3 {
            let mut left = all.clone();
            left.remove(missing);
            let joined = join(3, &left);
            assert_eq!(joined.iter().filter(|one| **one == Joined::Missing).count(), 1, "without {missing}");
            assert!(!joined.iter().any(|one| matches!(one, Joined::Whole(_))), "without {missing}");
        }
    }

    #[test]
    fn what_is_left_of_an_entry_whose_first_segments_are_free_is_passed_over() {
        let all = pieces(at(3, 8000), &[b"ab", b"cd", b"ef", b"g"]);
        for oldest in 4..7 {
            let left: Vec<_> = all.iter().filter(|(at, _)| at.segment >= oldest).cloned().collect();
            assert!(join(oldest, &left).iter().all(|one| *one == Joined::Nothing), "from {oldest} on");
        }
    }

    #[test]
    fn a_piece_that_was_copied_elsewhere_joins_nothing() {
        let mut all = pieces(at(3, 8000), &[b"ab", b"cd"]);
        all[0].0 = at(3, 8008);
        assert_eq!(join(1, &all), [Joined::Missing, Joined::Nothing]);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_joiner_panic(
            payloads in proptest::collection::vec(proptest::collection::vec(proptest::prelude::any::<u8>(), 0..40), 0..6),
        ) {
            let mut joiner = Joiner::new(1);
            for payload in &payloads {
                let _ = joiner.take(at(1, 4096), payload);
            }
        }
    }
}
