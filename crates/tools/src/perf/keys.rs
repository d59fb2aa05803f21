//! The partition of the next request, and the contents of its row.
//!
//! Rows are a function of their key, so that an answer can be checked without remembering the written data.

use std::cell::Cell;
use std::rc::Rc;

/// The source of keys.
#[derive(Debug, Clone)]
pub(super) enum Keys {
    /// Every partition once, shared by all connections.
    Each {
        /// The next key.
        next: Rc<Cell<u64>>,
        /// Number of keys.
        count: u64,
    },
    /// Any partition, again and again.
    Random {
        /// How many there are.
        count: u64,
        /// The generator.
        random: Random,
    },
    /// Any partition of one shard, again and again.
    OfShard {
        /// The shard's partitions.
        keys: Rc<Vec<u64>>,
        /// The generator.
        random: Random,
    },
}

impl Keys {
    /// The next key; `None` if there is none left.
    #[inline]
    pub(super) fn next(&mut self) -> Option<u64> {
        match self {
            Self::Each { next, count } => {
                let key = next.get();
                (key < *count).then(|| {
                    next.set(key + 1);
                    key
                })
            }
            Self::Random { count, random } => Some(random.below(*count)),
            Self::OfShard { keys, random } => keys.get(random.below(keys.len() as u64) as usize).copied(),
        }
    }
}

/// A small generator (SplitMix64), the same numbers for the same seed.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `limit`, 0 if that is 0.
    #[inline]
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }
}

#[inline]
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Fills `value` with the contents of the row of `key`.
pub(super) fn fill(key: u64, value: &mut [u8]) {
    let mut random = Random::new(key);
    for chunk in value.chunks_mut(8) {
        let bytes = random.next().to_le_bytes();
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    }
}

/// Whether `value` is the contents of the row of `key`, `length` bytes of it.
pub(super) fn is_of(key: u64, value: &[u8], length: usize) -> bool {
    let mut random = Random::new(key);
    value.len() == length && value.chunks(8).all(|chunk| random.next().to_le_bytes().starts_with(chunk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_recognised_and_only_as_its_own() {
        for length in [0, 1, 7, 8, 9, 100] {
            let mut value = vec![0; length];
            fill(7, &mut value);
            assert!(is_of(7, &value, length), "{length}");
            assert!(!is_of(7, &value, length + 1), "{length}");
            assert_eq!(is_of(8, &value, length), length == 0, "{length}");
        }
    }

    #[test]
    fn every_key_comes_once_and_random_keys_stay_below_their_count() {
        let next = Rc::new(Cell::new(0));
        let mut keys = Keys::Each { next: next.clone(), count: 3 };
        let mut others = keys.clone();
        assert_eq!(
            (keys.next(), others.next(), keys.next(), others.next()),
            (Some(0), Some(1), Some(2), None)
        );
        let mut keys = Keys::Random { count: 5, random: Random::new(1) };
        let mut seen = [0; 5];
        for _ in 0..1000 {
            seen[keys.next().unwrap() as usize] += 1;
        }
        assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
    }
}
