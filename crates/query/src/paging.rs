//! The end of a page, as bytes that the client sends back.
//!
//! ```text
//! state     := version:u8 flags:u8 remaining:vint [partition_remaining:vint]
//!              key:sized [clustering:sized] [group:sized]
//! sized     := length:vint bytes
//! ```
//! The bytes are checked like all outside data: a client may send anything.

use model::clustering::{Clustering, Position};
use model::vint::{append_unsigned, read_unsigned};
use statement::sized::{read_sized, sized};

use crate::QueryError;

const VERSION: u8 = 1;
const HAS_CLUSTERING: u8 = 1;
const HAS_PARTITION_REMAINING: u8 = 2;
/// The place is the bound before the prefix, or the one behind it, and no row.
const BEFORE: u8 = 4;
const AFTER: u8 = 8;
/// Nothing of the partition was shown or examined yet except dead data.
const NOT_BEGUN: u8 = 16;
/// A group of GROUP BY continues behind the place; its state so far (`execute::open_group`) follows.
const HAS_GROUP: u8 = 32;
const KNOWN: u8 = HAS_CLUSTERING | HAS_PARTITION_REMAINING | BEFORE | AFTER | NOT_BEGUN | HAS_GROUP;

/// The place to continue at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PagingState<'a> {
    /// Rows that LIMIT still allows; [`u64::MAX`] for no limit.
    pub remaining: u64,
    /// Rows of the partition that PER PARTITION LIMIT still allows.
    pub partition_remaining: Option<u64>,
    /// The last partition that was read.
    pub key: &'a [u8],
    /// The last row of it, or the place behind dead ones; `None` if the partition is done.
    pub position: Option<Position<'a>>,
    /// Whether a row of the partition was found before that place.
    pub begun: bool,
    /// The state so far of a group that may continue behind the place.
    pub group: Option<&'a [u8]>,
}

impl<'a> PagingState<'a> {
    /// Appends the state.
    pub fn append(&self, out: &mut Vec<u8>) {
        let mut flags = 0;
        if let Some(position) = self.position {
            flags |= HAS_CLUSTERING
                | match position.weight {
                    0 => 0,
                    weight if weight < 0 => BEFORE,
                    _ => AFTER,
                };
        }
        if !self.begun {
            flags |= NOT_BEGUN;
        }
        if self.partition_remaining.is_some() {
            flags |= HAS_PARTITION_REMAINING;
        }
        if self.group.is_some() {
            flags |= HAS_GROUP;
        }
        out.extend_from_slice(&[VERSION, flags]);
        append_unsigned(out, self.remaining);
        if let Some(remaining) = self.partition_remaining {
            append_unsigned(out, remaining);
        }
        sized(out, self.key);
        if let Some(position) = self.position {
            sized(out, position.prefix.0);
        }
        if let Some(group) = self.group {
            sized(out, group);
        }
    }

    /// Reads a state.
    ///
    /// # Errors
    /// [`QueryError::Protocol`] if the bytes are invalid.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, QueryError> {
        Self::read(bytes).ok_or_else(invalid)
    }

    fn read(bytes: &'a [u8]) -> Option<Self> {
        let (&[version, flags], mut rest) = bytes.split_first_chunk::<2>()?;
        if version != VERSION || flags & !KNOWN != 0 {
            return None;
        }
        let remaining = read_unsigned(&mut rest)?;
        let partition_remaining =
            if flags & HAS_PARTITION_REMAINING != 0 { Some(read_unsigned(&mut rest)?) } else { None };
        let key = read_sized(&mut rest)?;
        let weight = match flags & (BEFORE | AFTER) {
            0 => 0,
            BEFORE => -1,
            AFTER => 1,
            _ => return None,
        };
        let position = if flags & HAS_CLUSTERING != 0 {
            Some(Position { prefix: Clustering(read_sized(&mut rest)?), weight })
        } else {
            None
        };
        let group = if flags & HAS_GROUP != 0 { Some(read_sized(&mut rest)?) } else { None };
        let begun = flags & NOT_BEGUN == 0;
        let state = Self { remaining, partition_remaining, key, position, begun, group };
        let fits = (begun || partition_remaining.is_none()) && (group.is_none() || position.is_some());
        (rest.is_empty() && !key.is_empty() && fits).then_some(state)
    }
}

/// The error for a broken paging state.
pub fn invalid() -> QueryError {
    QueryError::Protocol("Invalid value for the paging state".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_come_back_and_pieces_of_them_do_not() {
        for state in [
            PagingState {
                remaining: u64::MAX,
                partition_remaining: None,
                key: b"k",
                position: None,
                begun: true,
                group: None,
            },
            PagingState {
                remaining: 7,
                partition_remaining: Some(2),
                key: b"key",
                position: Some(Position::row(b"\x02a")),
                begun: true,
                group: None,
            },
            PagingState {
                remaining: 0,
                partition_remaining: None,
                key: b"k",
                position: Some(Position::row(b"")),
                begun: true,
                group: None,
            },
            PagingState {
                remaining: 1,
                partition_remaining: None,
                key: b"k",
                position: Some(Position::before(b"\x02a")),
                begun: false,
                group: None,
            },
            PagingState {
                remaining: 1,
                partition_remaining: Some(1),
                key: b"k",
                position: Some(Position::after(b"\x02a")),
                begun: true,
                group: Some(b"group"),
            },
        ] {
            let mut bytes = Vec::new();
            state.append(&mut bytes);
            assert_eq!(PagingState::parse(&bytes).unwrap(), state);
            for end in 0..bytes.len() {
                assert!(PagingState::parse(&bytes[..end]).is_err(), "{end} bytes of {bytes:?}");
            }
            bytes.push(0);
            assert!(PagingState::parse(&bytes).is_err());
        }
        assert!(PagingState::parse(b"\x09\0\0\x01k").is_err(), "another version");
    }
}
