//! LIKE patterns as documented by ScyllaDB: `%` is any text, `_` any one character, `\` makes the next one
//! literal.
//!
//! Backtracking goes to the last `%` only, which is enough: matching takes at most length times pattern
//! length steps.

use crate::StatementError;

/// Most bytes of a LIKE pattern: matching takes at most as many steps for each byte of a value.
pub(crate) const LIKE_BYTES_MAX: usize = 1024;

/// Refuses patterns that would take too long to match.
///
/// # Errors
/// [`StatementError::Invalid`] beyond [`LIKE_BYTES_MAX`].
pub fn check(pattern: &[u8]) -> Result<(), StatementError> {
    if pattern.len() > LIKE_BYTES_MAX {
        return Err(StatementError::Invalid(format!(
            "A LIKE pattern of {} bytes is longer than the maximum of {LIKE_BYTES_MAX}",
            pattern.len()
        )));
    }
    Ok(())
}

/// Whether a text matches a pattern; both are UTF-8, of which a character is never split.
pub fn matches(text: &[u8], pattern: &[u8]) -> bool {
    let (mut at, mut in_pattern) = (0, 0);
    // The place to continue at if the part behind the last `%` does not match: behind it, with one more
    // character skipped.
    let mut retry: Option<(usize, usize)> = None;
    while at < text.len() {
        let fits = match pattern.get(in_pattern) {
            Some(b'%') => {
                retry = Some((in_pattern + 1, at));
                in_pattern += 1;
                continue;
            }
            Some(b'_') => Some((character(text, at), 1)),
            Some(b'\\') if in_pattern + 1 < pattern.len() => {
                (pattern[in_pattern + 1] == text[at]).then_some((1, 2))
            }
            Some(byte) => (*byte == text[at]).then_some((1, 1)),
            None => None,
        };
        match (fits, retry) {
            (Some((taken, in_it)), _) => {
                at += taken;
                in_pattern += in_it;
            }
            (None, Some((behind, from))) => {
                let from = from + character(text, from);
                retry = Some((behind, from));
                (at, in_pattern) = (from, behind);
            }
            (None, None) => return false,
        }
    }
    pattern[in_pattern..].iter().all(|byte| *byte == b'%')
}

/// Bytes of the character at a place.
fn character(text: &[u8], at: usize) -> usize {
    1 + text[at + 1..].iter().take_while(|byte| **byte & 0xc0 == 0x80).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_what_they_say() {
        for (text, pattern, expected) in [
            ("", "", true),
            ("", "%", true),
            ("a", "", false),
            ("abc", "abc", true),
            ("abc", "a%", true),
            ("abc", "%c", true),
            ("abc", "%b%", true),
            ("abc", "b%", false),
            ("abc", "a_c", true),
            ("abc", "a_", false),
            ("a\u{e4}c", "a_c", true),
            ("\u{20ac}", "_", true),
            ("aXbXc", "a%b%c", true),
            ("ababab", "%ab", true),
            ("aab", "%aab", true),
            ("100%", "100\\%", true),
            ("1000", "100\\%", false),
            ("a_c", "a\\_c", true),
            ("a\\", "a\\", true),
        ] {
            assert_eq!(matches(text.as_bytes(), pattern.as_bytes()), expected, "{text} LIKE {pattern}");
        }
    }
}
