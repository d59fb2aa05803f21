//! The place of a partition on the ring: the Murmur3 hash of its key, and the shard a token belongs to.
//!
//! The hash is Cassandra's, not the published one: bytes of the tail are widened as *signed* numbers, which
//! old data depends on (Cassandra 5.0 `MurmurHash.hash3_x64_128`, `Murmur3Partitioner`). Placement, table
//! files (key order, bloom filters) and drivers' token awareness all depend on these exact values.

use std::fmt;

/// A position on the ring. Ordered as signed 64-bit integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub i64);

impl Token {
    /// The token before every partition; no key hashes to it except the empty one, which no table can hold.
    pub const MINIMUM: Self = Self(i64::MIN);
    /// The last token.
    pub const MAXIMUM: Self = Self(i64::MAX);
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The token of a serialised partition key.
pub fn murmur3_token(key: &[u8]) -> Token {
    if key.is_empty() {
        return Token::MINIMUM;
    }
    token_of_hash(murmur3_hash128(key, 0))
}

/// The token that belongs to a hash already computed with seed 0 from a key that is not empty.
pub fn token_of_hash(hash: [i64; 2]) -> Token {
    // The minimum means "before everything" and is given to no key.
    if hash[0] == i64::MIN { Token::MAXIMUM } else { Token(hash[0]) }
}

/// Both halves of the 128-bit hash, as used by the bloom filters of table files.
pub fn murmur3_hash128(key: &[u8], seed: u64) -> [i64; 2] {
    let (mut h1, mut h2) = (seed, seed);
    let (blocks, tail) = key.as_chunks::<16>();
    for block in blocks {
        let [k1, k2] = halves(block);
        h1 ^= mix_first(k1);
        h1 = h1.rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 ^= mix_second(k2);
        h2 = h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    let (low, high) = tail.split_at(tail.len().min(8));
    // A half without bytes mixes to zero, so both are mixed always.
    h2 ^= mix_second(signed_tail(high));
    h1 ^= mix_first(signed_tail(low));

    let length = key.len() as u64;
    h1 ^= length;
    h2 ^= length;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    h1 = finish(h1);
    h2 = finish(h2);
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    [h1 as i64, h2 as i64]
}

/// The shard of `shards` that `token` belongs to, after its `ignore_msb` most significant bits are dropped.
///
/// This is the "biased-token-round-robin" algorithm announced to shard-aware drivers in SUPPORTED: `((token +
/// 2^63) << ignore_msb) * shards >> 64`.
pub fn shard_of(token: Token, shards: u32, ignore_msb: u8) -> u32 {
    let biased = (token.0 as u64) ^ (1 << 63);
    let kept = biased.checked_shl(u32::from(ignore_msb)).unwrap_or(0);
    ((u128::from(kept) * u128::from(shards)) >> 64) as u32
}

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

fn halves(block: &[u8; 16]) -> [u64; 2] {
    let value = u128::from_le_bytes(*block);
    [value as u64, (value >> 64) as u64]
}

fn mix_first(k: u64) -> u64 {
    k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

fn mix_second(k: u64) -> u64 {
    k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

/// At most eight bytes, each widened as a signed number and shifted to its place, all of them XORed: so each
/// byte is inverted if an odd number of the preceding bytes is negative.
#[inline]
fn signed_tail(bytes: &[u8]) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let plain = match bytes.first_chunk::<8>() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => bytes.iter().rfold(0, |plain, &byte| plain << 8 | u64::from(byte)),
    };
    let negative = (plain >> 7) & EACH;
    // In each byte how many before it are negative: at most seven.
    let before = negative.wrapping_mul(EACH) << 8;
    plain ^ (before & EACH).wrapping_mul(0xff)
}

fn finish(mut k: u64) -> u64 {
    k ^= k >> 33;
    k = k.wrapping_mul(0xff51_afd7_ed55_8ccd);
    k ^= k >> 33;
    k = k.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    k ^ k >> 33
}

#[cfg(test)]
mod tests;
