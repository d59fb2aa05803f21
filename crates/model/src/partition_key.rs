//! Partition keys as they are stored and hashed.
//!
//! One column: its value as it is. Several: each as a 16-bit big-endian length, the bytes and a zero
//! (Cassandra's `CompositeType`). The token is that of the stored bytes.

use std::cmp::Ordering;

use crate::token::{Token, murmur3_token};

/// Longest stored key (Cassandra's `FBUtilities.MAX_UNSIGNED_SHORT`).
pub const PARTITION_KEY_BYTES_MAX: usize = 65_535;

/// A component or a whole key that does not fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Key length of {length} is longer than maximum of {PARTITION_KEY_BYTES_MAX}")]
pub struct KeyTooLong {
    /// Bytes the key would take.
    pub length: usize,
}

/// Appends one component of a key of `columns` columns.
///
/// # Errors
/// [`KeyTooLong`] when the component does not fit its 16-bit length.
pub fn append_component(key: &mut Vec<u8>, columns: usize, value: &[u8]) -> Result<(), KeyTooLong> {
    if columns == 1 {
        key.extend_from_slice(value);
    } else {
        let length = u16::try_from(value.len()).map_err(|_| KeyTooLong { length: value.len() })?;
        key.extend_from_slice(&length.to_be_bytes());
        key.extend_from_slice(value);
        key.push(0);
    }
    if key.len() > PARTITION_KEY_BYTES_MAX { Err(KeyTooLong { length: key.len() }) } else { Ok(()) }
}

/// The components of a stored key, in order; stops early where the bytes are not a key.
pub fn components(key: &[u8], columns: usize) -> Components<'_> {
    Components { rest: key, remaining: columns, single: columns == 1 }
}

/// Iterator over the components of a stored key.
#[derive(Debug, Clone)]
pub struct Components<'a> {
    rest: &'a [u8],
    remaining: usize,
    single: bool,
}

impl<'a> Iterator for Components<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.remaining == 0 {
            return None;
        }
        self.remaining -= 1;
        if self.single {
            return Some(std::mem::take(&mut self.rest));
        }
        let (length, rest) = self.rest.split_first_chunk::<2>()?;
        let length = usize::from(u16::from_be_bytes(*length));
        let value = rest.get(..length)?;
        self.rest = rest.get(length + 1..).unwrap_or(&[]);
        Some(value)
    }
}

/// Order of partitions: by token, then by the stored bytes, unsigned.
pub fn compare_decorated(a: (Token, &[u8]), b: (Token, &[u8])) -> Ordering {
    a.0.cmp(&b.0).then_with(|| a.1.cmp(b.1))
}

/// A key with its token, owned.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DecoratedKey {
    /// Token of `key`.
    pub token: Token,
    /// Stored bytes.
    pub key: Vec<u8>,
}

impl DecoratedKey {
    /// Decorates stored bytes with their token.
    pub fn new(key: Vec<u8>) -> Self {
        Self { token: murmur3_token(&key), key }
    }
}

impl PartialOrd for DecoratedKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for DecoratedKey {
    fn cmp(&self, other: &Self) -> Ordering {
        compare_decorated((self.token, &self.key), (other.token, &other.key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn composite_components_come_back() {
        let mut key = Vec::new();
        append_component(&mut key, 2, b"ab").unwrap();
        append_component(&mut key, 2, b"").unwrap();
        assert_eq!(key, b"\x00\x02ab\x00\x00\x00\x00");
        assert_eq!(components(&key, 2).collect::<Vec<_>>(), [b"ab".as_slice(), b""]);
        assert_eq!(components(b"ab", 1).collect::<Vec<_>>(), [b"ab"]);
    }

    #[test]
    fn broken_composites_end_early() {
        assert_eq!(components(b"\x00\x09ab", 2).count(), 0);
        assert_eq!(components(b"\x00\x01a", 2).count(), 1);
    }

    #[test]
    fn a_key_of_65536_bytes_is_refused() {
        assert_eq!(append_component(&mut Vec::new(), 1, &[0; 65_536]), Err(KeyTooLong { length: 65_536 }));
        assert_eq!(append_component(&mut Vec::new(), 1, &[0; 65_535]), Ok(()));
    }
}
