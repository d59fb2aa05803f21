//! Bytes as pairs of lower-case hexadecimal digits, and back.

/// Appends two digits for each byte.
pub fn append(bytes: &[u8], out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.reserve(2 * bytes.len());
    for byte in bytes {
        out.push(char::from(DIGITS[usize::from(byte >> 4)]));
        out.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

/// Two digits for each byte.
pub fn text(bytes: &[u8]) -> String {
    let mut out = String::new();
    append(bytes, &mut out);
    out
}

/// The bytes as a blob of CQL: `0x` and two digits for each byte.
pub fn blob(bytes: &[u8]) -> String {
    let mut out = "0x".to_owned();
    append(bytes, &mut out);
    out
}

/// The bytes of digits in any case; `None` if something else is among them, or their number is odd.
pub fn parse(digits: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (pairs, odd) = digits.as_bytes().as_chunks::<2>();
    if !odd.is_empty() {
        return None;
    }
    let mut bytes = Vec::with_capacity(pairs.len());
    for [high, low] in pairs {
        bytes.push(digit(*high)? << 4 | digit(*low)?);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_are_read_back_from_their_digits() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(text(&bytes[..18]), "000102030405060708090a0b0c0d0e0f1011");
        assert_eq!(blob(&[0xca, 0xfe]), "0xcafe");
        assert_eq!(parse(&text(&bytes)), Some(bytes.clone()));
        assert_eq!(parse(&text(&bytes).to_uppercase()), Some(bytes));
        for wrong in ["0", "0g", "é", "+1", "0x00"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert_eq!(parse(""), Some(Vec::new()));
    }
}
