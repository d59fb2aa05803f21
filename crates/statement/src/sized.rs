//! Bytes preceded by their length, in states that are kept between two pages.

use model::vint::{append_unsigned, read_unsigned};

/// Appends bytes preceded by their length.
pub fn sized(out: &mut Vec<u8>, bytes: &[u8]) {
    append_unsigned(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads bytes in the form of [`sized`]; `None` if they are invalid.
pub fn read_sized<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let length = usize::try_from(read_unsigned(rest)?).ok()?;
    let (bytes, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(bytes)
}
