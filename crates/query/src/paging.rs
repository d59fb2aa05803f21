//! Where a page stopped, as bytes that the client gives back.
//!
//! ```text
//! state     := version:u8 flags:u8 remaining:vint [partition_remaining:vint] [key:sized] [clustering:sized]
//! sized     := length:vint bytes
//! ```
//! What comes back is checked as anything else from outside: a client may send what it likes.

use model::vint::{append_unsigned, read_unsigned};

use crate::QueryError;

const VERSION: u8 = 1;
const HAS_CLUSTERING: u8 = 1;
const HAS_PARTITION_REMAINING: u8 = 2;

/// Where to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PagingState<'a> {
    /// Rows that LIMIT still allows; [`u64::MAX`] for no limit.
    pub remaining: u64,
    /// Rows of the partition that PER PARTITION LIMIT still allows.
    pub partition_remaining: Option<u64>,
    /// The last partition a row came from.
    pub key: &'a [u8],
    /// The last row of it; `None` where the partition is done.
    pub clustering: Option<&'a [u8]>,
}

impl<'a> PagingState<'a> {
    /// Appends the state.
    pub fn append(&self, out: &mut Vec<u8>) {
        let mut flags = 0;
        if self.clustering.is_some() {
            flags |= HAS_CLUSTERING;
        }
        if self.partition_remaining.is_some() {
            flags |= HAS_PARTITION_REMAINING;
        }
        out.extend_from_slice(&[VERSION, flags]);
        append_unsigned(out, self.remaining);
        if let Some(remaining) = self.partition_remaining {
            append_unsigned(out, remaining);
        }
        sized(out, self.key);
        if let Some(clustering) = self.clustering {
            sized(out, clustering);
        }
    }

    /// Reads a state.
    ///
    /// # Errors
    /// [`QueryError::Protocol`] where the bytes are none.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, QueryError> {
        Self::read(bytes).ok_or_else(invalid)
    }

    fn read(bytes: &'a [u8]) -> Option<Self> {
        let (&[version, flags], mut rest) = bytes.split_first_chunk::<2>()?;
        if version != VERSION || flags & !(HAS_CLUSTERING | HAS_PARTITION_REMAINING) != 0 {
            return None;
        }
        let remaining = read_unsigned(&mut rest)?;
        let partition_remaining =
            if flags & HAS_PARTITION_REMAINING != 0 { Some(read_unsigned(&mut rest)?) } else { None };
        let key = read_sized(&mut rest)?;
        let clustering = if flags & HAS_CLUSTERING != 0 { Some(read_sized(&mut rest)?) } else { None };
        (rest.is_empty() && !key.is_empty()).then_some(Self {
            remaining,
            partition_remaining,
            key,
            clustering,
        })
    }
}

/// What a client with a broken paging state is told.
pub fn invalid() -> QueryError {
    QueryError::Protocol("Invalid value for the paging state".to_owned())
}

fn sized(out: &mut Vec<u8>, bytes: &[u8]) {
    append_unsigned(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn read_sized<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let length = usize::try_from(read_unsigned(rest)?).ok()?;
    let (bytes, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_come_back_and_pieces_of_them_do_not() {
        for state in [
            PagingState { remaining: u64::MAX, partition_remaining: None, key: b"k", clustering: None },
            PagingState {
                remaining: 7,
                partition_remaining: Some(2),
                key: b"key",
                clustering: Some(b"\x02a"),
            },
            PagingState { remaining: 0, partition_remaining: None, key: b"k", clustering: Some(b"") },
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
