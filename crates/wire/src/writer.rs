//! Writes the protocol's notations to the end of a buffer (native_protocol_v5.spec §3).
//!
//! Text that does not fit its 16-bit length is cut between characters: an error message or a column's alias
//! may contain text of a client, and a cut name is better for it than no answer. All other lengths are set by
//! this code and asserted. `reader` is the other half of the pair.

use std::net::IpAddr;

/// Longest text a `[string]` can hold.
pub const STRING_BYTES_MAX: usize = u16::MAX as usize;

/// `[short]`.
#[inline]
pub fn append_short(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// `[int]`.
#[inline]
pub fn append_int(out: &mut Vec<u8>, value: i32) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// `[long]`.
#[inline]
pub fn append_long(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// A `[short]` that counts or measures something of ours.
#[inline]
pub fn append_short_length(out: &mut Vec<u8>, length: usize) {
    let short = u16::try_from(length);
    append_short(out, short.unwrap_or_else(|_| panic!("{length} does not fit a 16-bit length")));
}

/// An `[int]` that counts or measures something of ours.
#[inline]
pub fn append_int_length(out: &mut Vec<u8>, length: usize) {
    let int = i32::try_from(length);
    append_int(out, int.unwrap_or_else(|_| panic!("{length} does not fit a 31-bit length")));
}

/// `[string]`, cut at [`STRING_BYTES_MAX`].
#[inline]
pub fn append_string(out: &mut Vec<u8>, text: &str) {
    let text = &text[..text.floor_char_boundary(STRING_BYTES_MAX)];
    append_short_length(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

/// `[long string]`.
pub fn append_long_string(out: &mut Vec<u8>, text: &str) {
    append_int_length(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

/// `[string list]`.
pub fn append_string_list<'t>(out: &mut Vec<u8>, texts: impl ExactSizeIterator<Item = &'t str>) {
    append_short_length(out, texts.len());
    for text in texts {
        append_string(out, text);
    }
}

/// `[short bytes]`.
#[inline]
pub fn append_short_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    append_short_length(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// `[bytes]`; `None` is null.
#[inline]
pub fn append_bytes(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => {
            append_int_length(out, bytes.len());
            out.extend_from_slice(bytes);
        }
        None => append_int(out, -1),
    }
}

/// `[inetaddr]`: an address without a port.
pub fn append_inetaddr(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            out.push(4);
            out.extend_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            out.push(16);
            out.extend_from_slice(&address.octets());
        }
    }
}
