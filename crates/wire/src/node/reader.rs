//! Reads the fields of flat messages. Invariant: a length that the peer wrote never sizes anything.

use super::NodeError;

/// A position in a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// Bytes not read yet.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], NodeError> {
        let (array, rest) = self.rest.split_first_chunk::<N>().ok_or(NodeError::Truncated { field })?;
        self.rest = rest;
        Ok(*array)
    }

    pub(super) fn u8(&mut self, field: &'static str) -> Result<u8, NodeError> {
        self.array::<1>(field).map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self, field: &'static str) -> Result<u16, NodeError> {
        self.array(field).map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, NodeError> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, field: &'static str) -> Result<u64, NodeError> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// Bytes behind their length, a u32.
    pub(super) fn sized(&mut self, field: &'static str) -> Result<&'a [u8], NodeError> {
        let length = self.u32(field)? as usize;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(NodeError::Truncated { field })?;
        self.rest = rest;
        Ok(bytes)
    }

    /// The message must end here.
    pub(super) fn end(self) -> Result<(), NodeError> {
        match self.rest.len() {
            0 => Ok(()),
            bytes => Err(NodeError::Trailing { bytes }),
        }
    }
}

/// Appends bytes behind their length, as [`Reader::sized`] reads them.
pub(super) fn append_sized(out: &mut Vec<u8>, bytes: &[u8]) {
    assert!(bytes.len() <= u32::MAX as usize, "a field of {} bytes", bytes.len());
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}
