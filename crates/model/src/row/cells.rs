//! The cells of a row in order: any cells, or only plain ones, with less work for each.

use super::{COLLECTION_DELETION, COUNTER, CellKind, CellView, EXPIRES, PATH, RowCorrupt, TOMBSTONE};
use crate::deletion::NO_LOCAL_TIME;
use crate::schema::ColumnId;

/// Iterator over the cells of a row.
#[derive(Debug, Clone)]
pub struct Cells<'a> {
    pub(super) reader: Reader<'a>,
    pub(super) remaining: u32,
}

impl<'a> Iterator for Cells<'a> {
    type Item = CellView<'a>;

    #[inline]
    fn next(&mut self) -> Option<CellView<'a>> {
        self.remaining = self.remaining.checked_sub(1)?;
        self.reader.cell().ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.remaining as usize))
    }
}

impl<'a> Cells<'a> {
    /// The next cell, and its bytes for [`RowBuilder::copy`].
    #[inline]
    pub fn next_with_bytes(&mut self) -> Option<(CellView<'a>, &'a [u8])> {
        let start = self.reader.at;
        let cell = self.next()?;
        Some((cell, &self.reader.bytes[start..self.reader.at]))
    }
}

/// A plain value of a column with one cell, in its row.
#[derive(Debug, Clone, Copy)]
pub struct PlainCell<'a> {
    /// The column.
    pub column: ColumnId,
    /// Client timestamp in microseconds.
    pub timestamp: i64,
    pub(super) bytes: &'a [u8],
}

impl<'a> PlainCell<'a> {
    /// The value.
    #[inline]
    pub fn value(&self) -> &'a [u8] {
        &self.bytes[PLAIN_HEAD_BYTES..]
    }
}

impl<'a> Cells<'a> {
    /// The next cell if it is plain; it stays the next one until [`Cells::pass`].
    #[inline]
    pub fn peek_plain(&self) -> Option<PlainCell<'a>> {
        if self.remaining == 0 {
            return None;
        }
        let rest = &self.reader.bytes[self.reader.at..];
        let head = PlainHead::of(rest.first_chunk()?)?;
        Some(PlainCell {
            column: ColumnId(head.column),
            timestamp: head.timestamp,
            bytes: rest.get(..PLAIN_HEAD_BYTES + head.length)?,
        })
    }

    /// Whether there is no further cell.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.remaining == 0
    }

    /// Moves past a cell returned by [`Cells::peek_plain`].
    #[inline]
    pub fn pass(&mut self, cell: &PlainCell<'a>) {
        self.remaining -= 1;
        self.reader.at += cell.bytes.len();
    }
}

/// Bytes of a plain cell before its value.
pub(super) const PLAIN_HEAD_BYTES: usize = 15;

/// The header of a plain cell.
pub(super) struct PlainHead {
    pub(super) column: u16,
    pub(super) timestamp: i64,
    pub(super) length: usize,
}

impl PlainHead {
    /// Reads the header; `None` if the cell is not plain.
    #[inline]
    pub(super) fn of(head: &[u8; PLAIN_HEAD_BYTES]) -> Option<Self> {
        if head[2] != 0 {
            return None;
        }
        Some(Self {
            column: u16::from_le_bytes([head[0], head[1]]),
            timestamp: i64::from_le_bytes(head[3..11].try_into().expect("eight bytes")),
            length: u32::from_le_bytes(head[11..].try_into().expect("four bytes")) as usize,
        })
    }
}

/// The head of a plain cell, and the bytes behind it.
#[inline]
pub(super) fn plain_head(bytes: &[u8]) -> Option<(PlainHead, &[u8])> {
    let (head, rest) = bytes.split_first_chunk()?;
    Some((PlainHead::of(head)?, rest))
}

/// Reads bytes from front to back.
#[derive(Debug, Clone)]
pub(super) struct Reader<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Reader<'a> {
    #[inline]
    fn take(&mut self, length: usize) -> Result<&'a [u8], RowCorrupt> {
        let end = self.at.checked_add(length).ok_or(RowCorrupt { offset: self.at })?;
        let taken = self.bytes.get(self.at..end).ok_or(RowCorrupt { offset: self.at })?;
        self.at = end;
        Ok(taken)
    }

    pub(super) fn skip(&mut self, length: usize) -> Result<(), RowCorrupt> {
        self.take(length).map(|_| ())
    }

    #[inline]
    pub(super) fn u8(&mut self) -> Result<u8, RowCorrupt> {
        Ok(self.take(1)?[0])
    }

    #[inline]
    pub(super) fn u32(&mut self) -> Result<u32, RowCorrupt> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().expect("four bytes")))
    }

    #[inline]
    fn sized(&mut self) -> Result<&'a [u8], RowCorrupt> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    #[inline]
    pub(super) fn cell(&mut self) -> Result<CellView<'a>, RowCorrupt> {
        if let Some((head, rest)) = plain_head(&self.bytes[self.at..]) {
            let value = rest.get(..head.length).ok_or(RowCorrupt { offset: self.at })?;
            self.at += PLAIN_HEAD_BYTES + head.length;
            return Ok(CellView {
                column: ColumnId(head.column),
                timestamp: head.timestamp,
                path: None,
                kind: CellKind::Live(value),
            });
        }
        self.any_cell()
    }

    /// As `cell`, of any kind.
    #[inline(never)]
    fn any_cell(&mut self) -> Result<CellView<'a>, RowCorrupt> {
        let start = self.at;
        let head = self.take(11)?;
        let column = ColumnId(u16::from_le_bytes([head[0], head[1]]));
        let flags = head[2];
        let timestamp = i64::from_le_bytes(head[3..11].try_into().expect("eight bytes"));
        if flags & !(TOMBSTONE | EXPIRES | PATH | COLLECTION_DELETION | COUNTER) != 0
            || (flags & (TOMBSTONE | EXPIRES | COLLECTION_DELETION | COUNTER)).count_ones() > 1
        {
            return Err(RowCorrupt { offset: start });
        }
        let local_time = if flags & (TOMBSTONE | EXPIRES | COLLECTION_DELETION) != 0 {
            self.u32()?
        } else {
            NO_LOCAL_TIME
        };
        let ttl = if flags & EXPIRES != 0 { self.u32()? } else { 0 };
        let path = if flags & PATH != 0 { Some(self.sized()?) } else { None };
        let kind = if flags & TOMBSTONE != 0 {
            CellKind::Tombstone { local_time }
        } else if flags & COLLECTION_DELETION != 0 {
            CellKind::CollectionDeletion { local_time }
        } else {
            let value = self.sized()?;
            if flags & EXPIRES != 0 {
                CellKind::Expiring { value, ttl, expires_at: local_time }
            } else if flags & COUNTER != 0 {
                CellKind::Counter(value)
            } else {
                CellKind::Live(value)
            }
        };
        Ok(CellView { column, timestamp, path, kind })
    }
}
