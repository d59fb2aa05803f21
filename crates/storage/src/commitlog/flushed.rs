//! Entries that say how far a tablet is flushed, and what a replay makes of them.
//!
//! An entry names its tablet by number and by the number of its table's tablets, so that it counts after that
//! number has changed.

use std::collections::{BTreeMap, BTreeSet};

use model::tablet::{TABLETS_LOG2_MAX, TabletId, TabletMap};
use model::{TableId, Token};

use super::format::{POSITION_BYTES, Position, decode_position, encode_position};

/// A tablet by its number, and the number of its table's tablets as a power of two; `None` in entries of
/// earlier versions, which are of the table's present tablets.
pub(crate) type Cut = (Option<u8>, TabletId);

/// The payload of a flush: everything of the tablet before the position is in table files.
pub(crate) fn encode_flushed(
    table: TableId,
    (map, tablet): (TabletMap, TabletId),
    upto: Position,
) -> Vec<u8> {
    let mut bytes = table.0.to_vec();
    bytes.extend_from_slice(&tablet.0.to_le_bytes());
    bytes.extend_from_slice(&encode_position(upto));
    bytes.push(map.log2());
    bytes
}

pub(crate) fn decode_flushed(bytes: &[u8]) -> Option<(TableId, Cut, Position)> {
    let (table, rest) = bytes.split_first_chunk::<16>()?;
    let (tablet, rest) = rest.split_first_chunk::<4>()?;
    let (position, rest) = rest.split_first_chunk::<POSITION_BYTES>()?;
    let log2 = match rest {
        [] => None,
        [log2] if *log2 <= TABLETS_LOG2_MAX => Some(*log2),
        _ => return None,
    };
    let tablet = TabletId(u32::from_le_bytes(*tablet));
    Some((TableId(*table), (log2, tablet), decode_position(position)?))
}

/// Positions up to which tablets were flushed, whatever number of tablets their tables had then.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    upto: BTreeMap<(TableId, Cut), Position>,
    /// The numbers of tablets that each table has had.
    cuts: BTreeMap<TableId, BTreeSet<Option<u8>>>,
}

impl Flushes {
    pub(super) fn note(&mut self, table: TableId, tablet: Cut, upto: Position) {
        let known = self.upto.entry((table, tablet)).or_insert(upto);
        *known = upto.max(*known);
        self.cuts.entry(table).or_default().insert(tablet.0);
    }

    /// The last position before which everything for a token is in table files.
    pub(super) fn upto(&self, table: TableId, map: TabletMap, token: Token) -> Option<Position> {
        let of_cut = |log2: &Option<u8>| {
            let cut = log2.map_or(map, TabletMap::new);
            self.upto.get(&(table, (*log2, cut.tablet_of(token)))).copied()
        };
        self.cuts.get(&table)?.iter().filter_map(of_cut).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: TableId = TableId([3; 16]);

    fn at(offset: u32) -> Position {
        Position { segment: 7, offset }
    }

    #[test]
    fn a_flush_comes_back_with_its_cut_and_one_of_an_earlier_version_without() {
        let (map, tablet) = (TabletMap::new(3), TabletId(5));
        let bytes = encode_flushed(TABLE, (map, tablet), at(9));
        assert_eq!(decode_flushed(&bytes), Some((TABLE, (Some(3), tablet), at(9))));
        let earlier = &bytes[..bytes.len() - 1];
        assert_eq!(decode_flushed(earlier), Some((TABLE, (None, tablet), at(9))));
        assert_eq!(decode_flushed(&earlier[..earlier.len() - 1]), None);
        assert_eq!(decode_flushed(&[&bytes[..], &[0]].concat()), None);
    }

    #[test]
    fn flushes_count_after_the_number_of_tablets_has_changed() {
        let mut flushes = Flushes::default();
        let now = TabletMap::new(2);
        let token = |tablet: u32| now.range(TabletId(tablet)).0;
        // Of the left half, of one quarter, and of the last quarter by an earlier version.
        flushes.note(TABLE, (Some(1), TabletId(0)), at(100));
        flushes.note(TABLE, (Some(2), TabletId(1)), at(200));
        flushes.note(TABLE, (None, TabletId(3)), at(300));
        flushes.note(TABLE, (None, TabletId(3)), at(50));
        let found: Vec<_> = (0..4).map(|tablet| flushes.upto(TABLE, now, token(tablet))).collect();
        assert_eq!(found, [Some(at(100)), Some(at(200)), None, Some(at(300))]);
        assert_eq!(flushes.upto(TableId([4; 16]), now, token(0)), None);
    }
}
