//! The two checksums of segments: CRC24 over headers, CRC32 over payloads (native_protocol_v5.spec §2.2).
//!
//! Polynomial and initial values are the specification's; the polynomial is Philip Koopman's, chosen for a
//! Hamming distance of 8 at these lengths.

const CRC24_INITIAL: u32 = 0x0087_5060;
const CRC24_POLYNOMIAL: u32 = 0x0197_4F0B;
/// CRC32 of the bytes `FA 2D 55 CA`, with which every payload's checksum starts.
const CRC32_INITIAL: u32 = crc32_of_prefix();

/// The effect on a CRC24 of one byte shifted in at the top.
const CRC24_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u32) << 16;
        let mut bit = 0;
        while bit < 8 {
            crc <<= 1;
            if crc & 0x0100_0000 != 0 {
                crc ^= CRC24_POLYNOMIAL;
            }
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// CRC24 of a segment header's fields, first byte first.
#[inline]
pub fn crc24(bytes: &[u8]) -> u32 {
    bytes.iter().fold(CRC24_INITIAL, |crc, byte| {
        let index = (crc >> 16) as u8 ^ byte;
        (crc << 8) & 0x00FF_FFFF ^ CRC24_TABLE[usize::from(index)]
    })
}

/// CRC32 of a segment's payload.
#[inline]
pub fn crc32(payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(CRC32_INITIAL);
    hasher.update(payload);
    hasher.finalize()
}

const fn crc32_of_prefix() -> u32 {
    const PREFIX: [u8; 4] = [0xFA, 0x2D, 0x55, 0xCA];
    let mut crc = u32::MAX;
    let mut index = 0;
    while index < PREFIX.len() {
        crc ^= PREFIX[index] as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
            bit += 1;
        }
        index += 1;
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32_continues_from_the_four_bytes_of_the_specification() {
        assert_eq!(crc32(b""), crc32fast::hash(&[0xFA, 0x2D, 0x55, 0xCA]));
        assert_eq!(crc32(b"payload"), crc32fast::hash(b"\xFA\x2D\x55\xCApayload"));
    }

    #[test]
    fn crc24_by_table_is_crc24_by_bits() {
        let by_bits = |bytes: &[u8]| {
            let mut crc = CRC24_INITIAL;
            for byte in bytes {
                crc ^= u32::from(*byte) << 16;
                for _ in 0..8 {
                    crc <<= 1;
                    if crc & 0x0100_0000 != 0 {
                        crc ^= CRC24_POLYNOMIAL;
                    }
                }
            }
            crc & 0x00FF_FFFF
        };
        for length in 0..=5 {
            for seed in 0..200_u64 {
                let bytes = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
                assert_eq!(crc24(&bytes[..length]), by_bits(&bytes[..length]));
            }
        }
    }
}
