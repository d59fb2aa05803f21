//! A sketch of how many distinct partitions a file has: HyperLogLog with 2^13 registers.
//!
//! ```text
//! hyperloglog := -2:i32 p:leb128 sp:leb128 0:leb128 bytes:leb128 word:i32*   (six 5-bit registers to a word)
//! ```
//! Compaction estimates the size of its output's filter from the union of its inputs' sketches.
//! Source: stream-lib 2.5 `HyperLogLogPlus`, which Cassandra reads it with; hash: Cassandra's
//! `MurmurHash.hash2_64`.

use crate::error::Malformed;
use crate::input::Input;

const P: u32 = 13;
const SP: u32 = 25;
const REGISTERS: usize = 1 << P;
const REGISTER_MAX: u8 = 31;
const REGISTERS_PER_WORD: usize = 6;
/// Words for all registers, as stream-lib counts them.
const WORDS: usize = REGISTERS / REGISTERS_PER_WORD + 1;

/// The sketch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cardinality {
    registers: Box<[u8]>,
}

impl Default for Cardinality {
    fn default() -> Self {
        Self { registers: vec![0; REGISTERS].into_boxed_slice() }
    }
}

impl Cardinality {
    /// Adds a partition key.
    pub fn add(&mut self, key: &[u8]) {
        let hash = hash2_64(key);
        let register = &mut self.registers[(hash >> (64 - P)) as usize];
        let run = ((hash << P) | (1 << (P - 1))).leading_zeros() as u8 + 1;
        *register = (*register).max(run.min(REGISTER_MAX));
    }

    /// Adds all that another sketch has seen.
    pub fn merge(&mut self, other: &Self) {
        for (register, other) in self.registers.iter_mut().zip(&other.registers) {
            *register = (*register).max(*other);
        }
    }

    /// The estimated number of distinct keys.
    pub fn estimate(&self) -> u64 {
        let m = REGISTERS as f64;
        let sum: f64 = self.registers.iter().map(|register| 0.5f64.powi(i32::from(*register))).sum();
        let raw = 0.7213 / (1.0 + 1.079 / m) * m * m / sum;
        let zeros = self.registers.iter().filter(|register| **register == 0).count();
        let estimate = if raw <= 2.5 * m && zeros > 0 { m * (m / zeros as f64).ln() } else { raw };
        estimate.round() as u64
    }

    /// Appends the sketch.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(-2i32).to_be_bytes());
        for number in [P, SP, 0, (WORDS * 4) as u32] {
            append_leb128(out, number);
        }
        let mut words = [0u32; WORDS];
        for (index, register) in self.registers.iter().enumerate() {
            words[index / REGISTERS_PER_WORD] |= u32::from(*register) << (5 * (index % REGISTERS_PER_WORD));
        }
        words.iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
    }

    /// Reads a sketch made by [`Cardinality::encode`]; `None` for the sparse form, which this crate does not
    /// write.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, Malformed> {
        let mut input = Input::new(bytes);
        if input.i32()? != -2 {
            return Ok(None);
        }
        let (p, _sp, form) = (leb128(&mut input)?, leb128(&mut input)?, leb128(&mut input)?);
        if (p, form) != (P, 0) {
            return Ok(None);
        }
        let at = input.offset();
        if leb128(&mut input)? as usize != WORDS * 4 {
            return Err(Malformed::invalid(at, "another number of registers than 2^13"));
        }
        let mut sketch = Self::default();
        for word in 0..WORDS {
            let bits = input.u32()?;
            let registers =
                sketch.registers.iter_mut().skip(word * REGISTERS_PER_WORD).take(REGISTERS_PER_WORD);
            registers
                .enumerate()
                .for_each(|(index, register)| *register = (bits >> (5 * index)) as u8 & REGISTER_MAX);
        }
        Ok(Some(sketch))
    }
}

fn append_leb128(out: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn leb128(input: &mut Input<'_>) -> Result<u32, Malformed> {
    let mut number = 0;
    for shift in (0..32).step_by(7) {
        let byte = input.u8()?;
        number |= u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(Malformed::invalid(input.offset(), "a number of more than five bytes"))
}

/// MurmurHash 2, 64 bits, seed 0, with the tail's bytes widened as signed numbers as Cassandra does.
fn hash2_64(key: &[u8]) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    const R: u32 = 47;
    let mut hash = M.wrapping_mul(key.len() as u64);
    let (words, tail) = key.as_chunks::<8>();
    for word in words {
        let mut k = u64::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> R;
        hash = (hash ^ k.wrapping_mul(M)).wrapping_mul(M);
    }
    if !tail.is_empty() {
        for (index, byte) in tail.iter().enumerate() {
            hash ^= (i64::from(*byte as i8) as u64) << (8 * index);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> R;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> R)
}
