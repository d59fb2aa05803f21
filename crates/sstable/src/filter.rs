//! The bloom filter over a table file's partition keys (`Filter.db`).
//!
//! ```text
//! filter := hashes:i32 words:i32 word{words}       (big endian)
//! ```
//! Bit `i` is bit `i % 8` of byte `i / 8`; up to version `me` every eight bytes form one big-endian word of
//! which the first byte is the lowest. The positions of a key are `(h2 + i * h1) mod bits` of its murmur3
//! hash, absolute value taken (Cassandra 5.0 `BloomFilter`, `OffHeapBitSet`). The filter has no false
//! negatives.

use model::token::murmur3_hash128;

use crate::error::Malformed;
use crate::input::Input;

/// Most positions a key may have; more cannot be useful at 64 bits per key.
const HASHES_MAX: u64 = 64;
/// Most bits per key in Cassandra's table of false-positive rates.
const BITS_PER_KEY_MAX: usize = 20;
/// Bits added to every filter, so that tiny ones work.
const BITS_EXCESS: u64 = 20;
/// Largest filter that is made, in bytes; beyond it the false-positive rate grows instead.
pub const FILTER_BYTES_MAX: u64 = 1 << 30;

/// Bytes before the words.
const HEAD_BYTES: usize = 8;

/// A set of keys with false positives; its bytes are those of `Filter.db`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Filter {
    hashes: u32,
    /// XOR mask of a byte's position: 7 if words are big endian, else 0.
    flip: usize,
    file: Vec<u8>,
}

impl Filter {
    /// A filter for `keys` keys with the false-positive rate `fp_chance`, or a greater one if that would take
    /// more than `bytes_max`. `None` if the rate is 1 or more: such a table has no filter.
    pub(crate) fn new(keys: u64, fp_chance: f64, in_words: bool, bytes_max: u64) -> Option<Self> {
        if fp_chance >= 1.0 {
            return None;
        }
        let (hashes, bits_per_key) = shape(fp_chance);
        let keys = keys.max(1);
        let wanted = keys.saturating_mul(bits_per_key as u64).saturating_add(BITS_EXCESS).div_ceil(64);
        let words = wanted.min((bytes_max.min(FILTER_BYTES_MAX) - HEAD_BYTES as u64) / 8);
        let hashes = if words < wanted { hashes.min(best_hashes(words * 64, keys)) } else { hashes };
        let words = words as usize;
        let mut file = vec![0; HEAD_BYTES + words * 8];
        file[..4].copy_from_slice(&hashes.to_be_bytes());
        file[4..HEAD_BYTES].copy_from_slice(&(words as u32).to_be_bytes());
        Some(Self { hashes, flip: flip(in_words), file })
    }

    /// Adds a key by its hash (`murmur3_hash128` with seed 0).
    pub(crate) fn add_hash(&mut self, hash: [i64; 2]) {
        let (mut base, bits) = (hash[1], self.bits());
        for _ in 0..self.hashes {
            let at = (base % bits).unsigned_abs();
            self.file[HEAD_BYTES + ((at >> 3) as usize ^ self.flip)] |= 1 << (at & 7);
            base = base.wrapping_add(hash[0]);
        }
    }

    /// Whether a key with this hash may have been added.
    pub(crate) fn may_contain_hash(&self, hash: [i64; 2]) -> bool {
        let (mut base, bits) = (hash[1], self.bits());
        for _ in 0..self.hashes {
            let at = (base % bits).unsigned_abs();
            if self.file[HEAD_BYTES + ((at >> 3) as usize ^ self.flip)] & (1 << (at & 7)) == 0 {
                return false;
            }
            base = base.wrapping_add(hash[0]);
        }
        true
    }

    /// Whether the key may have been added.
    pub(crate) fn may_contain(&self, key: &[u8]) -> bool {
        self.may_contain_hash(murmur3_hash128(key, 0))
    }

    /// Bytes in memory.
    pub(crate) fn size(&self) -> usize {
        self.file.len()
    }

    fn bits(&self) -> i64 {
        (self.file.len() - HEAD_BYTES) as i64 * 8
    }

    /// Contents of `Filter.db`.
    pub(crate) fn as_file(&self) -> &[u8] {
        &self.file
    }

    /// Takes the contents of `Filter.db`.
    ///
    /// # Errors
    /// [`Malformed`] when it is not exactly one filter.
    pub(crate) fn decode(file: Vec<u8>, in_words: bool) -> Result<Self, Malformed> {
        let mut input = Input::new(&file);
        let hashes = input.u32()?;
        if hashes == 0 || u64::from(hashes) > HASHES_MAX {
            return Err(Malformed::over(0, "number of hashes", u64::from(hashes), HASHES_MAX));
        }
        let words = u64::from(input.u32()?);
        let words = input.fits("number of filter words", words, 8)?;
        if words == 0 {
            return Err(Malformed::invalid(4, "a filter without bits"));
        }
        input.take(words * 8)?;
        if input.remaining() != 0 {
            return Err(Malformed::invalid(input.offset(), "bytes behind the filter"));
        }
        Ok(Self { hashes, flip: flip(in_words), file })
    }
}

/// The number of positions per key with the lowest false-positive rate for a filter of so many bits.
fn best_hashes(bits: u64, keys: u64) -> u32 {
    (bits as f64 / keys as f64 * std::f64::consts::LN_2).round().max(1.0) as u32
}

fn flip(in_words: bool) -> usize {
    if in_words { 7 } else { 0 }
}

/// Hashes and bits per key for a false-positive rate: the fewest bits that reach it, then the fewest hashes.
fn shape(fp_chance: f64) -> (u32, usize) {
    // A rate below that of 20 bits per key (about 6.7e-5) gets those 20 bits.
    let rate =
        |hashes: u32, bits: usize| (1.0 - (-f64::from(hashes) / bits as f64).exp()).powi(hashes as i32);
    let best = |bits: usize| {
        (1..=(bits as u32)).min_by(|a, b| rate(*a, bits).total_cmp(&rate(*b, bits))).unwrap_or(1)
    };
    let bits =
        (2..=BITS_PER_KEY_MAX).find(|bits| rate(best(*bits), *bits) <= fp_chance).unwrap_or(BITS_PER_KEY_MAX);
    let mut hashes = best(bits);
    while hashes > 1 && rate(hashes - 1, bits) <= fp_chance {
        hashes -= 1;
    }
    (hashes, bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_percent_takes_ten_bits_or_so_and_holds() {
        assert_eq!(shape(0.01), (5, 10));
        assert_eq!(shape(0.1), (3, 5));
        let mut filter = Filter::new(10_000, 0.01, true, FILTER_BYTES_MAX).unwrap();
        for key in 0u32..10_000 {
            filter.add_hash(murmur3_hash128(&key.to_be_bytes(), 0));
        }
        assert!((0u32..10_000).all(|key| filter.may_contain(&key.to_be_bytes())));
        let wrong = (10_000u32..110_000).filter(|key| filter.may_contain(&key.to_be_bytes())).count();
        assert!(wrong < 1_500, "{wrong} of 100000 false answers");
    }

    #[test]
    fn a_filter_with_too_little_room_answers_wrong_more_often_but_not_always() {
        // Half and a fifth of the 12.5 KB for one percent.
        for (bytes_max, wrong_max) in [(6_250, 12_000), (2_500, 45_000)] {
            let mut filter = Filter::new(10_000, 0.01, true, bytes_max).unwrap();
            assert!(filter.size() as u64 <= bytes_max && filter.size() as u64 > bytes_max - 16);
            for key in 0u32..10_000 {
                filter.add_hash(murmur3_hash128(&key.to_be_bytes(), 0));
            }
            assert!((0u32..10_000).all(|key| filter.may_contain(&key.to_be_bytes())));
            let wrong = (10_000u32..110_000).filter(|key| filter.may_contain(&key.to_be_bytes())).count();
            assert!(wrong < wrong_max, "{wrong} of 100000 false answers in {bytes_max} bytes");
        }
        // The number of keys does not matter.
        assert_eq!(Filter::new(u64::MAX, 0.01, true, 1024).unwrap().size(), 1024);
    }

    #[test]
    fn a_chance_of_one_makes_no_filter() {
        assert_eq!(Filter::new(10, 1.0, true, FILTER_BYTES_MAX), None);
    }

    proptest! {
        #[test]
        fn what_was_added_is_found_after_a_round_trip(keys: Vec<Vec<u8>>, in_words: bool, chance in 0.000_01f64..0.99) {
            let mut filter = Filter::new(keys.len() as u64, chance, in_words, FILTER_BYTES_MAX).unwrap();
            keys.iter().for_each(|key| filter.add_hash(murmur3_hash128(key, 0)));
            let bytes = filter.as_file();
            let back = Filter::decode(bytes.to_vec(), in_words).unwrap();
            prop_assert_eq!(&back, &filter);
            prop_assert!(keys.iter().all(|key| back.may_contain(key)));
            for end in 0..bytes.len() {
                prop_assert!(Filter::decode(bytes[..end].to_vec(), in_words).is_err());
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, key: Vec<u8>) {
            if let Ok(filter) = Filter::decode(bytes, true) {
                let _ = filter.may_contain(&key);
            }
        }
    }
}
