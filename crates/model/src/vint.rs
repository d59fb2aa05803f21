//! Variable-length integers as Cassandra writes them in table files, commit logs, durations and vectors.
//!
//! The number of leading ones of the first byte is the number of bytes after it; the remaining bits, big
//! endian, are the value. Signed integers are zigzag-encoded first. Every `u64` has one shortest form, which
//! `append_*` writes; longer forms are read as well. Format: Cassandra 5.0 `VIntCoding`. `number`
//! (durations), `collection` (vectors) and the table-file crates use it.

/// Bytes of the longest encoding.
pub const LENGTH_MAX: usize = 9;

/// Bytes that [`append_unsigned`] writes for `value`: 1 to [`LENGTH_MAX`].
#[inline]
pub fn unsigned_length(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    // Up to eight bytes carry seven bits each; the ninth form has a first byte of ones and carries all 64.
    bits.div_ceil(7).min(LENGTH_MAX)
}

/// Bytes that [`append_signed`] writes for `value`.
pub fn signed_length(value: i64) -> usize {
    unsigned_length(zigzag(value))
}

/// Appends the shortest encoding of `value`.
#[inline]
pub fn append_unsigned(out: &mut Vec<u8>, value: u64) {
    if value < 0x80 {
        out.push(value as u8);
    } else {
        append_longer(out, value);
    }
}

fn append_longer(out: &mut Vec<u8>, value: u64) {
    let length = unsigned_length(value);
    if length == LENGTH_MAX {
        out.push(0xff);
        out.extend_from_slice(&value.to_be_bytes());
        return;
    }
    // At the top of a word, and all of the word: a copy of a known length is a move or two.
    let prefix = u64::from(!(0xff_u8 >> (length - 1))) << 56;
    let word = value << (64 - 8 * length) | prefix;
    let start = out.len();
    out.extend_from_slice(&word.to_be_bytes());
    out.truncate(start + length);
}

/// Appends the shortest zigzag encoding of `value`.
pub fn append_signed(out: &mut Vec<u8>, value: i64) {
    append_unsigned(out, zigzag(value));
}

/// Takes one unsigned integer off the front of `input`; `None`, with `input` unchanged, when it ends inside.
#[inline]
pub fn read_unsigned(input: &mut &[u8]) -> Option<u64> {
    let (&first, rest) = input.split_first()?;
    if first < 0x80 {
        *input = rest;
        return Some(u64::from(first));
    }
    let (value, rest) = read_longer(first, rest)?;
    *input = rest;
    Some(value)
}

/// The integer that begins with the byte `first` and has further bytes, and the rest after it.
fn read_longer(first: u8, rest: &[u8]) -> Option<(u64, &[u8])> {
    let extra = first.leading_ones() as usize;
    let (bytes, behind) = rest.split_at_checked(extra)?;
    // With eight extra bytes nothing of the first byte is value, and the shift must not reach the type's
    // width.
    let high = if extra >= 8 { 0 } else { u64::from(first & (0xff_u8 >> extra)) << (8 * extra) };
    let low = match rest.first_chunk::<8>() {
        Some(word) => u64::from_be_bytes(*word) >> (64 - 8 * extra),
        None => bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte)),
    };
    Some((high | low, behind))
}

/// Takes one zigzag-encoded integer off the front of `input`; `None`, with `input` unchanged, when it ends
/// inside.
pub fn read_signed(input: &mut &[u8]) -> Option<i64> {
    read_unsigned(input).map(unzigzag)
}

/// Maps small magnitudes of either sign to small unsigned values.
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encode(value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        append_unsigned(&mut out, value);
        out
    }

    /// Printed by Apache Cassandra 5.0.6 (`DataOutputPlus.writeUnsignedVInt`).
    #[test]
    fn encodings_are_cassandras() {
        for (value, expected) in [
            (0x0_u64, "00"),
            (0x7f, "7f"),
            (0x80, "8080"),
            (0x3fff, "bfff"),
            (0x4000, "c04000"),
            (0x1fffff, "dfffff"),
            (0x200000, "e0200000"),
            (0xfffffff, "efffffff"),
            (0x10000000, "f010000000"),
            (0x1ffffffffffff, "fdffffffffffff"),
            (0x2000000000000, "fe02000000000000"),
            (0xffffffffffffff, "feffffffffffffff"),
            (0x100000000000000, "ff0100000000000000"),
            (0x7fffffffffffffff, "ff7fffffffffffffff"),
            (0xffffffffffffffff, "ffffffffffffffffff"),
        ] {
            let hex: String = encode(value).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, expected, "{value:#x}");
        }
    }

    #[test]
    fn zigzag_keeps_small_magnitudes_small() {
        for (value, expected) in
            [(0, 0), (-1, 1), (1, 2), (-2, 3), (i64::MAX, u64::MAX - 1), (i64::MIN, u64::MAX)]
        {
            assert_eq!(zigzag(value), expected);
            assert_eq!(unzigzag(expected), value);
        }
    }

    #[test]
    fn truncated_input_is_refused_and_left_alone() {
        let mut input: &[u8] = &[0xc0, 0x40];
        assert_eq!(read_unsigned(&mut input), None);
        assert_eq!(input, [0xc0, 0x40]);
        assert_eq!(read_unsigned(&mut &[][..]), None);
    }

    proptest! {
        #[test]
        fn round_trips(value: u64, shift in 0_u32..64, tail: Vec<u8>) {
            let value = value >> shift;
            let mut bytes = encode(value);
            prop_assert_eq!(bytes.len(), unsigned_length(value));
            bytes.extend_from_slice(&tail);
            let mut input = &bytes[..];
            prop_assert_eq!(read_unsigned(&mut input), Some(value));
            prop_assert_eq!(input, &tail[..]);

            let signed = unzigzag(value);
            let mut bytes = Vec::new();
            append_signed(&mut bytes, signed);
            prop_assert_eq!(bytes.len(), signed_length(signed));
            prop_assert_eq!(read_signed(&mut &bytes[..]), Some(signed));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let mut input = &bytes[..];
            while read_unsigned(&mut input).is_some() {}
            prop_assert!(input.len() < LENGTH_MAX);
        }
    }
}
