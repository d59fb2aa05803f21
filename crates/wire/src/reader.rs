//! Reads the protocol's notations from a message body (native_protocol_v5.spec §3).
//!
//! Everything is borrowed from the body; a count that the client wrote never sizes anything, so that a body
//! costs no memory beyond itself. Invariant: no method panics, whatever the bytes, and after an error the
//! position is unspecified.

use crate::protocol_error::ProtocolError;
use crate::values::ValueRef;
use crate::version::ProtocolVersion;

/// A position in a message body.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

/// Called only when the error is needed: an error has a destructor, which would otherwise run for each field
/// of each request.
#[cold]
fn truncated(what: &'static str) -> ProtocolError {
    ProtocolError::Truncated { what }
}

impl<'a> Reader<'a> {
    /// Starts at the first byte of `body`.
    pub const fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    /// Bytes not read yet.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// `[byte]`, and every other field of fixed width.
    #[inline]
    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], ProtocolError> {
        let (field, rest) = self.rest.split_first_chunk::<N>().ok_or_else(|| truncated(what))?;
        self.rest = rest;
        Ok(*field)
    }

    #[inline]
    fn slice(&mut self, length: usize, what: &'static str) -> Result<&'a [u8], ProtocolError> {
        let (field, rest) = self.rest.split_at_checked(length).ok_or_else(|| truncated(what))?;
        self.rest = rest;
        Ok(field)
    }

    /// `[byte]`.
    #[inline]
    pub fn byte(&mut self) -> Result<u8, ProtocolError> {
        self.array::<1>("a byte").map(|[byte]| byte)
    }

    /// `[short]`: unsigned, 16 bits.
    #[inline]
    pub fn short(&mut self) -> Result<u16, ProtocolError> {
        self.array("a 2 bytes integer").map(u16::from_be_bytes)
    }

    /// `[int]`: signed, 32 bits.
    #[inline]
    pub fn int(&mut self) -> Result<i32, ProtocolError> {
        self.array("a 4 bytes integer").map(i32::from_be_bytes)
    }

    /// `[long]`: signed, 64 bits.
    #[inline]
    pub fn long(&mut self) -> Result<i64, ProtocolError> {
        self.array("an 8 bytes integer").map(i64::from_be_bytes)
    }

    /// `[uuid]`.
    pub fn uuid(&mut self) -> Result<[u8; 16], ProtocolError> {
        self.array("a UUID")
    }

    /// `[string]`: UTF-8 with a `[short]` length.
    #[inline]
    pub fn string(&mut self) -> Result<&'a str, ProtocolError> {
        const WHAT: &str = "an UTF8 serialized string preceded by its 2 bytes length";
        let length = u16::from_be_bytes(self.array(WHAT)?);
        utf8(self.slice(usize::from(length), WHAT)?)
    }

    /// `[long string]`: UTF-8 with an `[int]` length.
    pub fn long_string(&mut self) -> Result<&'a str, ProtocolError> {
        const WHAT: &str = "an UTF8 serialized string preceded by its 4 bytes length";
        let length = i32::from_be_bytes(self.array(WHAT)?);
        let length = usize::try_from(length).map_err(|_| ProtocolError::InvalidLength { length })?;
        utf8(self.slice(length, WHAT)?)
    }

    /// `[short bytes]`.
    #[inline]
    pub fn short_bytes(&mut self) -> Result<&'a [u8], ProtocolError> {
        const WHAT: &str = "a byte array preceded by its 2 bytes length";
        let length = u16::from_be_bytes(self.array(WHAT)?);
        self.slice(usize::from(length), WHAT)
    }

    /// `[bytes]`: any negative length is null.
    #[inline]
    pub fn bytes(&mut self) -> Result<Option<&'a [u8]>, ProtocolError> {
        const WHAT: &str = "a byte array preceded by its 4 bytes length";
        let length = i32::from_be_bytes(self.array(WHAT)?);
        match usize::try_from(length) {
            Ok(length) => self.slice(length, WHAT).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// `[value]`: -1 is null, -2 is not set; before version 4 any negative length is null.
    ///
    /// # Errors
    /// [`ProtocolError::InvalidLength`] for any other negative length.
    #[inline]
    pub fn value(&mut self, version: ProtocolVersion) -> Result<ValueRef<'a>, ProtocolError> {
        const WHAT: &str = "a value preceded by its 4 bytes length";
        let length = i32::from_be_bytes(self.array(WHAT)?);
        match usize::try_from(length) {
            Ok(length) => self.slice(length, WHAT).map(ValueRef::Bytes),
            Err(_) if length == -1 || version < ProtocolVersion::V4 => Ok(ValueRef::Null),
            Err(_) if length == -2 => Ok(ValueRef::Unset),
            Err(_) => Err(ProtocolError::InvalidLength { length }),
        }
    }

    /// The bytes that `skip` moves over.
    #[inline]
    pub(crate) fn span(
        &mut self,
        skip: impl FnOnce(&mut Self) -> Result<(), ProtocolError>,
    ) -> Result<&'a [u8], ProtocolError> {
        let start = self.rest;
        skip(self)?;
        Ok(&start[..start.len() - self.rest.len()])
    }

    /// Skips `count` values that have bytes, and returns those bytes; `None`, without a move, if a value is
    /// null, unset or cut off.
    #[inline]
    pub(crate) fn skip_bytes(&mut self, count: u16) -> Option<&'a [u8]> {
        let start = self.rest;
        let mut rest = start;
        for _ in 0..count {
            let (length, behind) = rest.split_first_chunk::<4>()?;
            rest = behind.get(usize::try_from(i32::from_be_bytes(*length)).ok()?..)?;
        }
        self.rest = rest;
        Some(&start[..start.len() - rest.len()])
    }

    /// Fails unless everything was read.
    ///
    /// # Errors
    /// [`ProtocolError::TrailingBytes`]: the sender meant another layout than we read.
    #[inline]
    pub fn finish(self, message: &'static str) -> Result<(), ProtocolError> {
        match self.rest.len() {
            0 => Ok(()),
            remaining => Err(ProtocolError::TrailingBytes { remaining, message }),
        }
    }
}

#[inline]
pub(crate) fn utf8(bytes: &[u8]) -> Result<&str, ProtocolError> {
    simdutf8::basic::from_utf8(bytes).map_err(|_| ProtocolError::invalid_utf8(bytes))
}
