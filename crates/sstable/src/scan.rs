//! Places between partitions, for ranges of them.

use std::cmp::Ordering;

use model::token::Token;

/// A place on the ring of partitions, before or behind a token or one partition of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionBound {
    token: Token,
    key: Option<Vec<u8>>,
    behind: bool,
}

impl PartitionBound {
    /// Before every partition.
    pub const START: Self = Self { token: Token::MINIMUM, key: None, behind: false };
    /// Behind every partition.
    pub const END: Self = Self { token: Token::MAXIMUM, key: None, behind: true };

    /// Before all partitions with this token.
    pub fn before_token(token: Token) -> Self {
        Self { token, key: None, behind: false }
    }

    /// Behind all partitions with this token.
    pub fn behind_token(token: Token) -> Self {
        Self { token, key: None, behind: true }
    }

    /// Just before a partition.
    pub fn before_key(token: Token, key: &[u8]) -> Self {
        Self { token, key: Some(key.to_vec()), behind: false }
    }

    /// Just behind a partition.
    pub fn behind_key(token: Token, key: &[u8]) -> Self {
        Self { token, key: Some(key.to_vec()), behind: true }
    }

    /// Its token.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Whether a partition stands behind this place.
    pub fn is_before(&self, token: Token, key: &[u8]) -> bool {
        let order = match &self.key {
            None => self.token.cmp(&token),
            Some(own) => self.token.cmp(&token).then_with(|| own.as_slice().cmp(key)),
        };
        match order {
            Ordering::Less => true,
            Ordering::Equal => !self.behind,
            Ordering::Greater => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_stands_before_or_behind_its_partitions() {
        let check = |bound: PartitionBound, token: i64, key: &[u8], expected: bool| {
            assert_eq!(bound.is_before(Token(token), key), expected, "{bound:?} {token} {key:?}");
        };
        check(PartitionBound::START, i64::MIN, b"", true);
        check(PartitionBound::END, i64::MAX, b"z", false);
        check(PartitionBound::before_token(Token(5)), 5, b"a", true);
        check(PartitionBound::behind_token(Token(5)), 5, b"a", false);
        check(PartitionBound::behind_token(Token(5)), 6, b"a", true);
        check(PartitionBound::before_key(Token(5), b"b"), 5, b"a", false);
        check(PartitionBound::before_key(Token(5), b"b"), 5, b"b", true);
        check(PartitionBound::behind_key(Token(5), b"b"), 5, b"b", false);
        check(PartitionBound::behind_key(Token(5), b"b"), 5, b"c", true);
    }
}
