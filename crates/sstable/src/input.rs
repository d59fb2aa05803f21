//! A cursor over bytes from disk: every read is checked, and every error has the offset at which it occurred.
//!
//! Numbers are big endian as Java writes them; variable-length integers are `model::vint`'s. A count is
//! checked against the bytes that remain before anything is reserved for it.

use model::vint;

use crate::error::Malformed;

/// Bytes from disk and how far they are read.
#[derive(Debug, Clone)]
pub(crate) struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
    base: u64,
}

impl<'a> Input<'a> {
    /// Bytes that start a component.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self::at_offset(bytes, 0)
    }

    /// Bytes that stand at `base` in their component.
    pub(crate) fn at_offset(bytes: &'a [u8], base: u64) -> Self {
        Self { bytes, at: 0, base }
    }

    /// Offset within the component.
    pub(crate) fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    /// Bytes read so far.
    pub(crate) fn consumed(&self) -> usize {
        self.at
    }

    /// Bytes left.
    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    #[inline]
    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let taken = self.bytes[self.at..].get(..length).ok_or(Malformed::truncated(self.offset()))?;
        self.at += length;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let taken = self.bytes[self.at..].first_chunk::<N>().ok_or(Malformed::truncated(self.offset()))?;
        self.at += N;
        Ok(*taken)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u32_le(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_be_bytes)
    }

    pub(crate) fn f64(&mut self) -> Result<f64, Malformed> {
        self.array().map(f64::from_be_bytes)
    }

    pub(crate) fn boolean(&mut self) -> Result<bool, Malformed> {
        self.u8().map(|byte| byte != 0)
    }

    #[inline]
    pub(crate) fn vint(&mut self) -> Result<u64, Malformed> {
        let mut rest = &self.bytes[self.at..];
        let value = vint::read_unsigned(&mut rest).ok_or(Malformed::truncated(self.offset()))?;
        self.at = self.bytes.len() - rest.len();
        Ok(value)
    }

    pub(crate) fn signed_vint(&mut self) -> Result<i64, Malformed> {
        self.vint().map(vint::unzigzag)
    }

    /// A variable-length number of bytes, and that many bytes; `limit` is the greatest valid number.
    #[inline]
    pub(crate) fn sized(&mut self, what: &'static str, limit: usize) -> Result<&'a [u8], Malformed> {
        let offset = self.offset();
        let length = self.vint()?;
        if length > limit as u64 {
            return Err(Malformed::over(offset, what, length, limit as u64));
        }
        self.take(length as usize)
    }

    /// A 16-bit length and so many bytes.
    pub(crate) fn short_sized(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u16()?;
        self.take(usize::from(length))
    }

    /// A 16-bit length and text. Java's modified UTF-8 differs from UTF-8 for NUL and beyond the BMP only,
    /// which no name in these files has.
    pub(crate) fn text(&mut self) -> Result<&'a str, Malformed> {
        let offset = self.offset();
        std::str::from_utf8(self.short_sized()?).map_err(|_| Malformed::invalid(offset, "text is not UTF-8"))
    }

    /// Checks that `count` things of at least `bytes_each` can follow.
    pub(crate) fn fits(&self, what: &'static str, count: u64, bytes_each: usize) -> Result<usize, Malformed> {
        let limit = (self.remaining() / bytes_each.max(1)) as u64;
        if count > limit {
            Err(Malformed::over(self.offset(), what, count, limit))
        } else {
            Ok(count as usize)
        }
    }
}

/// Appends text with a 16-bit length.
pub(crate) fn append_text(out: &mut Vec<u8>, text: &str) {
    append_short_sized(out, text.as_bytes());
}

/// Appends bytes with a 16-bit length; the caller keeps them below 64 KiB.
pub(crate) fn append_short_sized(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u16::try_from(bytes.len()).expect("keys and names are below 64 KiB");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(bytes);
}

/// Appends bytes with their length as a variable-length number.
pub(crate) fn append_sized(out: &mut Vec<u8>, bytes: &[u8]) {
    vint::append_unsigned(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}
