//! All entries of an Index.db in order, read by code separate from the checked crate.
//!
//! ```text
//! entry := key_length:u16 key data_position:vint promoted_length:vint promoted
//! ```
//! Source: Cassandra 5.0 `BigTableWriter.IndexWriter`. Positions must ascend; promoted parts are skipped.

use std::path::PathBuf;

use ::sstable::{Component, Malformed, Problem, SstableError};
use model::vint::read_unsigned;
use reactor::file::{File, OpenOptions};

use super::ToolError;

/// Bytes read at a time; a key and two numbers always fit.
const READ_BYTES: usize = 256 << 10;
/// Most bytes of an entry before its promoted part.
const HEAD_BYTES_MAX: usize = 2 + u16::MAX as usize + 9 + 9;

/// One entry.
pub(super) struct Entry<'w> {
    /// Its offset in the index.
    pub(super) at: u64,
    /// Stored partition key.
    pub(super) key: &'w [u8],
}

/// Walks the entries.
pub(super) struct IndexWalk {
    file: File,
    path: PathBuf,
    length: u64,
    /// Offset of the next entry.
    next: u64,
    /// The bytes read, from `start` on.
    bytes: Vec<u8>,
    start: u64,
    last_position: Option<u64>,
}

impl IndexWalk {
    pub(super) async fn open(path: PathBuf) -> Result<Self, ToolError> {
        let options = OpenOptions::new().read(true).direct(true);
        let file = File::open(&path, options).await.map_err(ToolError::io(&path))?;
        let length = file.size().await.map_err(ToolError::io(&path))?;
        Ok(Self { file, path, length, next: 0, bytes: Vec::new(), start: 0, last_position: None })
    }

    /// The next entry; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Entry<'_>>, ToolError> {
        let at = self.next;
        if at >= self.length {
            return Ok(None);
        }
        let head_end = self.length.min(at + HEAD_BYTES_MAX as u64);
        if at < self.start || head_end > self.start + self.bytes.len() as u64 {
            let read = self.file.read_range(at, READ_BYTES).await.map_err(ToolError::io(&self.path))?;
            self.bytes.clear();
            self.bytes.extend_from_slice(&read);
            self.start = at;
        }
        let corrupt = |offset, problem| -> ToolError {
            let (path, component) = (self.path.clone(), Component::Index);
            SstableError::Corrupt { path, component, offset, problem }.into()
        };
        let from = (at - self.start) as usize;
        let head = parse(self.bytes.get(from..).unwrap_or(&[]), at);
        let (key_length, position, next) = head.map_err(|error| corrupt(error.offset, error.problem))?;
        if next > self.length {
            return Err(corrupt(at, Problem::Truncated));
        }
        if self.last_position.is_some_and(|last| position <= last) {
            return Err(corrupt(at, Problem::Invalid("a partition's place is not behind the one before")));
        }
        self.last_position = Some(position);
        self.next = next;
        Ok(Some(Entry { at, key: &self.bytes[from + 2..from + 2 + key_length] }))
    }
}

/// Length of the key, position in the data, and offset of the next entry.
fn parse(bytes: &[u8], at: u64) -> Result<(usize, u64, u64), Malformed> {
    let truncated = || Malformed { offset: at, problem: Problem::Truncated };
    let (length, rest) = bytes.split_first_chunk::<2>().ok_or_else(truncated)?;
    let key_length = usize::from(u16::from_be_bytes(*length));
    let mut rest = rest.get(key_length..).ok_or_else(truncated)?;
    let position = read_unsigned(&mut rest).ok_or_else(truncated)?;
    let promoted = read_unsigned(&mut rest).ok_or_else(truncated)?;
    let head = (bytes.len() - rest.len()) as u64;
    let next = (at + head).checked_add(promoted).ok_or_else(truncated)?;
    Ok((key_length, position, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_taken_apart_and_any_cut_of_its_head_is_refused() {
        let entry = [0, 2, b'a', b'b', 0x05, 0x03, 1, 2, 3];
        assert_eq!(parse(&entry, 100), Ok((2, 5, 109)));
        for end in 0..6 {
            assert!(parse(&entry[..end], 0).is_err(), "{end}");
        }
        // A promoted part that would end beyond all numbers.
        let mut long = vec![0, 0, 1];
        model::vint::append_unsigned(&mut long, u64::MAX);
        assert!(parse(&long, 1).is_err());
    }
}
