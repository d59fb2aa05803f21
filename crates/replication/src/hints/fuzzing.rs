//! Any bytes as a file of hints.

use super::format::{Found, HEADER_BYTES, Header, Hint, entry_at};

const SALT: u32 = 7;
const ENTRY_BYTES_MAX: usize = 1 << 16;

/// Reads bytes as a file, as an entry of one, and as a mutation of an intact entry.
///
/// # Panics
/// When what was read is not written as it was read: that is the bug the fuzzer looks for.
pub(crate) fn hints(bytes: &[u8]) {
    if let Ok(header) = Header::decode(bytes) {
        assert_eq!(header.encode(), &bytes[..HEADER_BYTES]);
        let mut at = HEADER_BYTES;
        while let Found::Hint(hint, length) = entry_at(&bytes[at..], header.salt, at as u64, ENTRY_BYTES_MAX)
        {
            let mut written = Vec::new();
            hint.append(header.salt, at as u64, &mut written);
            assert_eq!(written, &bytes[at..at + length]);
            at += length;
        }
    }
    let _ = entry_at(bytes, SALT, 0, ENTRY_BYTES_MAX);
    let mutation = &bytes[..bytes.len().min(ENTRY_BYTES_MAX / 2)];
    let hint = Hint { born_us: 1, version: 2, since: 3, attempts: 4, mutation: mutation.into() };
    let mut written = Vec::new();
    hint.append(SALT, 0, &mut written);
    assert_eq!(entry_at(&written, SALT, 0, ENTRY_BYTES_MAX), Found::Hint(hint, written.len()));
    if let Some(last) = written.last_mut() {
        *last ^= 1;
    }
    assert_eq!(entry_at(&written, SALT, 0, ENTRY_BYTES_MAX), Found::Nothing);
}
