//! A row as one flat run of bytes, read in place.
//!
//! ```text
//! row      := flags:u8 [liveness] [deletion] cells:u32 cell*
//! liveness := timestamp:i64 [ttl:u32 expires_at:u32]         (flags & LIVENESS, & LIVENESS_EXPIRES)
//! deletion := timestamp:i64 local_time:u32                   (flags & DELETION)
//! cell     := column:u16 flags:u8 timestamp:i64 [local_time:u32] [ttl:u32] [path] [value]
//! path     := length:u32 bytes          (flags & PATH)
//! value    := length:u32 bytes          (unless TOMBSTONE or COLLECTION_DELETION; COUNTER: a context of counter.rs)
//! ```
//! `flags & ALL_LIVE` says that every cell is a plain value: a reader of a row without deletion and expiry sees it as it
//! stands. All numbers are little endian. Cells stand by column id; within a non-frozen collection the deletion of
//! the whole collection comes first, then the elements in the order of their paths.
//! The commit log, memtables, the read path and shards that answer each other all use these bytes.
//! [`RowView::parse`] checks bytes from outside once; everything later relies on the check.

mod plain;

use crate::deletion::{DeletionTime, Liveness, LocalSeconds, NO_LOCAL_TIME};
use crate::schema::ColumnId;

pub use plain::PlainRow;

const LIVENESS: u8 = 1;
const LIVENESS_EXPIRES: u8 = 2;
const DELETION: u8 = 4;
const ALL_LIVE: u8 = 8;

const TOMBSTONE: u8 = 1;
const EXPIRES: u8 = 2;
const PATH: u8 = 4;
const COLLECTION_DELETION: u8 = 8;
const COUNTER: u8 = 16;

const COUNT_BYTES: usize = 4;

/// Bytes that are not a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a row: broken at byte {offset}")]
pub struct RowCorrupt {
    /// Where reading stopped.
    pub offset: usize,
}

/// What a cell says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellKind<'a> {
    /// A value that stays.
    Live(&'a [u8]),
    /// A value that expires.
    Expiring {
        /// The value.
        value: &'a [u8],
        /// Time to live in seconds as the client gave it.
        ttl: u32,
        /// When it expires.
        expires_at: LocalSeconds,
    },
    /// What nodes have counted: a context of [`crate::counter`], or a delta on its way to the leader.
    Counter(&'a [u8]),
    /// The deletion of this one cell.
    Tombstone {
        /// When it was deleted.
        local_time: LocalSeconds,
    },
    /// The deletion of every element of a collection written up to the timestamp.
    CollectionDeletion {
        /// When it was deleted.
        local_time: LocalSeconds,
    },
}

/// One cell, borrowed from its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellView<'a> {
    /// Which column.
    pub column: ColumnId,
    /// Client timestamp in microseconds.
    pub timestamp: i64,
    /// Element of a non-frozen collection (map key, set element, list time UUID, field index), else `None`.
    pub path: Option<&'a [u8]>,
    /// Value or tombstone.
    pub kind: CellKind<'a>,
}

impl<'a> CellView<'a> {
    /// The value, were it live: `None` for tombstones.
    pub fn value(&self) -> Option<&'a [u8]> {
        match self.kind {
            CellKind::Live(value) | CellKind::Expiring { value, .. } | CellKind::Counter(value) => {
                Some(value)
            }
            CellKind::Tombstone { .. } | CellKind::CollectionDeletion { .. } => None,
        }
    }

    /// Whether a reader at `now` sees a value.
    pub fn is_live(&self, now: LocalSeconds) -> bool {
        match self.kind {
            CellKind::Live(_) | CellKind::Counter(_) => true,
            CellKind::Expiring { expires_at, .. } => now < expires_at,
            CellKind::Tombstone { .. } | CellKind::CollectionDeletion { .. } => false,
        }
    }

    /// Time to live in seconds, 0 for none.
    pub fn ttl(&self) -> u32 {
        if let CellKind::Expiring { ttl, .. } = self.kind { ttl } else { 0 }
    }

    /// When it was deleted or expires, [`NO_LOCAL_TIME`] for a plain value.
    pub fn local_time(&self) -> LocalSeconds {
        match self.kind {
            CellKind::Live(_) | CellKind::Counter(_) => NO_LOCAL_TIME,
            CellKind::Expiring { expires_at, .. } => expires_at,
            CellKind::Tombstone { local_time } | CellKind::CollectionDeletion { local_time } => local_time,
        }
    }

    /// As a deletion, where the cell is that of a whole collection.
    pub fn collection_deletion(&self) -> Option<DeletionTime> {
        if let CellKind::CollectionDeletion { local_time } = self.kind {
            Some(DeletionTime { timestamp: self.timestamp, local_time })
        } else {
            None
        }
    }
}

/// A row, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowView<'a> {
    bytes: &'a [u8],
}

impl<'a> RowView<'a> {
    /// Checks that `bytes` are exactly one row.
    ///
    /// # Errors
    /// [`RowCorrupt`] with the offset where they stop being one.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, RowCorrupt> {
        let mut reader = Reader { bytes, at: 0 };
        let flags = reader.u8()?;
        if flags & !(LIVENESS | LIVENESS_EXPIRES | DELETION | ALL_LIVE) != 0 {
            return Err(RowCorrupt { offset: 0 });
        }
        if flags & LIVENESS != 0 {
            reader.skip(if flags & LIVENESS_EXPIRES != 0 { 16 } else { 8 })?;
        } else if flags & LIVENESS_EXPIRES != 0 {
            return Err(RowCorrupt { offset: 0 });
        }
        if flags & DELETION != 0 {
            reader.skip(12)?;
        }
        let mut last = None;
        let mut all_live = true;
        for _ in 0..reader.u32()? {
            let start = reader.at;
            let cell = reader.cell()?;
            if last > Some(cell.column) {
                return Err(RowCorrupt { offset: start });
            }
            last = Some(cell.column);
            all_live &= matches!(cell.kind, CellKind::Live(_));
        }
        if all_live != (flags & ALL_LIVE != 0) {
            return Err(RowCorrupt { offset: 0 });
        }
        if reader.at == bytes.len() { Ok(Self { bytes }) } else { Err(RowCorrupt { offset: reader.at }) }
    }

    /// Takes bytes that [`RowBuilder`] made or [`RowView::parse`] accepted, unchecked.
    ///
    /// Broken bytes give a row that ends early or a panic with a slice index, never undefined behaviour.
    pub fn trusted(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// The bytes of the row.
    pub fn as_bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The row marker.
    pub fn liveness(self) -> Liveness {
        let flags = self.bytes[0];
        if flags & LIVENESS == 0 {
            return Liveness::NONE;
        }
        let timestamp = i64_at(self.bytes, 1);
        if flags & LIVENESS_EXPIRES == 0 {
            return Liveness { timestamp, ttl: 0, expires_at: NO_LOCAL_TIME };
        }
        Liveness { timestamp, ttl: u32_at(self.bytes, 9), expires_at: u32_at(self.bytes, 13) }
    }

    /// The deletion of the whole row.
    pub fn deletion(self) -> DeletionTime {
        let flags = self.bytes[0];
        if flags & DELETION == 0 {
            return DeletionTime::LIVE;
        }
        let at = 1 + liveness_length(flags);
        DeletionTime { timestamp: i64_at(self.bytes, at), local_time: u32_at(self.bytes, at + 8) }
    }

    /// The cells, by column id and path.
    #[inline]
    pub fn cells(self) -> Cells<'a> {
        let flags = self.bytes[0];
        let at = 1 + liveness_length(flags) + if flags & DELETION != 0 { 12 } else { 0 };
        Cells {
            reader: Reader { bytes: self.bytes, at: at + COUNT_BYTES },
            remaining: u32_at(self.bytes, at),
        }
    }

    /// Whether nothing in the row is deleted or expires, so that any reader sees it as it stands.
    #[inline]
    pub fn is_plain(self) -> bool {
        self.bytes[0] & (LIVENESS_EXPIRES | DELETION | ALL_LIVE) == ALL_LIVE
    }

    /// Whether `newer` says again, and later, all that this row says, and nothing else, both in plain values: then what
    /// the two are together is `newer` as it stands. False says nothing: they may have to be merged cell by cell.
    ///
    /// The usual overwrite, told from the heads of the cells alone.
    pub fn is_rewritten_by(self, newer: RowView<'_>) -> bool {
        let flags = self.bytes[0];
        if flags != newer.bytes[0] || !self.is_plain() {
            return false;
        }
        let mut at = 1;
        if flags & LIVENESS != 0 {
            if i64_at(self.bytes, 1) > i64_at(newer.bytes, 1) {
                return false;
            }
            at += 8;
        }
        let count = u32_at(self.bytes, at);
        if count != u32_at(newer.bytes, at) {
            return false;
        }
        let (mut olds, mut news) = (&self.bytes[at + COUNT_BYTES..], &newer.bytes[at + COUNT_BYTES..]);
        if olds.len() == news.len() && heads_stand_alike(olds, news, count) == Some(true) {
            return true;
        }
        for _ in 0..count {
            let (Some((old, old_rest)), Some((new, new_rest))) = (plain_head(olds), plain_head(news)) else {
                return false;
            };
            if old.column != new.column || old.timestamp >= new.timestamp {
                return false;
            }
            let (Some(old_rest), Some(new_rest)) = (old_rest.get(old.length..), new_rest.get(new.length..))
            else {
                return false;
            };
            (olds, news) = (old_rest, new_rest);
        }
        true
    }

    /// Whether the row says nothing at all.
    pub fn is_empty(self) -> bool {
        self.bytes[0] & (LIVENESS | DELETION) == 0 && self.cells().remaining == 0
    }

    /// The cell of a column that has one cell.
    pub fn cell(self, column: ColumnId) -> Option<CellView<'a>> {
        self.cells().find(|cell| cell.column >= column).filter(|cell| cell.column == column)
    }
}

/// Whether each of so many plain cells is followed, at the same place, by one of the same column and length that is later; `None`
/// where the bytes end before. Half of the work of walking two rows.
#[inline]
fn heads_stand_alike(olds: &[u8], news: &[u8], count: u32) -> Option<bool> {
    let mut at = 0;
    for _ in 0..count {
        let end = at + PLAIN_HEAD_BYTES;
        let old: &[u8; PLAIN_HEAD_BYTES] = olds.get(at..end)?.try_into().ok()?;
        let new: &[u8; PLAIN_HEAD_BYTES] = news.get(at..end)?.try_into().ok()?;
        let (old_head, new_head) = (PlainHead::of(old)?, PlainHead::of(new)?);
        let alike = (old_head.column == new_head.column) & (old_head.length == new_head.length);
        if !alike | (old_head.timestamp >= new_head.timestamp) {
            return Some(false);
        }
        at = end.checked_add(old_head.length)?;
    }
    Some(at == olds.len())
}

fn liveness_length(flags: u8) -> usize {
    match flags & (LIVENESS | LIVENESS_EXPIRES) {
        LIVENESS => 8,
        0 => 0,
        _ => 16,
    }
}

fn i64_at(bytes: &[u8], at: usize) -> i64 {
    i64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Iterator over the cells of a row.
#[derive(Debug, Clone)]
pub struct Cells<'a> {
    reader: Reader<'a>,
    remaining: u32,
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

/// A plain value of a column with one cell, as it stands in its row.
#[derive(Debug, Clone, Copy)]
pub struct PlainCell<'a> {
    /// Which column.
    pub column: ColumnId,
    /// Client timestamp in microseconds.
    pub timestamp: i64,
    bytes: &'a [u8],
}

impl<'a> PlainCell<'a> {
    /// The value.
    #[inline]
    pub fn value(&self) -> &'a [u8] {
        &self.bytes[PLAIN_HEAD_BYTES..]
    }
}

impl<'a> Cells<'a> {
    /// The next cell where it is a plain one; it stays the next one until [`Cells::pass`].
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

    /// Goes on behind a cell that [`Cells::peek_plain`] gave.
    #[inline]
    pub fn pass(&mut self, cell: &PlainCell<'a>) {
        self.remaining -= 1;
        self.reader.at += cell.bytes.len();
    }
}

/// Bytes of a plain cell before its value.
const PLAIN_HEAD_BYTES: usize = 15;

/// What stands before the value of a plain cell.
struct PlainHead {
    column: u16,
    timestamp: i64,
    length: usize,
}

impl PlainHead {
    /// Reads the head; `None` where the cell is not plain.
    #[inline]
    fn of(head: &[u8; PLAIN_HEAD_BYTES]) -> Option<Self> {
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
fn plain_head(bytes: &[u8]) -> Option<(PlainHead, &[u8])> {
    let (head, rest) = bytes.split_first_chunk()?;
    Some((PlainHead::of(head)?, rest))
}

#[derive(Debug, Clone)]
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    #[inline]
    fn take(&mut self, length: usize) -> Result<&'a [u8], RowCorrupt> {
        let end = self.at.checked_add(length).ok_or(RowCorrupt { offset: self.at })?;
        let taken = self.bytes.get(self.at..end).ok_or(RowCorrupt { offset: self.at })?;
        self.at = end;
        Ok(taken)
    }

    fn skip(&mut self, length: usize) -> Result<(), RowCorrupt> {
        self.take(length).map(|_| ())
    }

    #[inline]
    fn u8(&mut self) -> Result<u8, RowCorrupt> {
        Ok(self.take(1)?[0])
    }

    #[inline]
    fn u32(&mut self) -> Result<u32, RowCorrupt> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().expect("four bytes")))
    }

    #[inline]
    fn sized(&mut self) -> Result<&'a [u8], RowCorrupt> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    #[inline]
    fn cell(&mut self) -> Result<CellView<'a>, RowCorrupt> {
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

/// Appends one row to a buffer, cell by cell in order.
#[derive(Debug)]
pub struct RowBuilder<'b> {
    out: &'b mut Vec<u8>,
    flags_at: usize,
    count_at: usize,
    count: u32,
    last: Option<ColumnId>,
    all_live: bool,
}

impl<'b> RowBuilder<'b> {
    /// Starts a row at the end of `out`.
    #[inline]
    pub fn new(out: &'b mut Vec<u8>, liveness: Liveness, deletion: DeletionTime) -> Self {
        let mut flags = 0;
        let flags_at = out.len();
        out.push(0);
        if !liveness.is_none() {
            flags |= LIVENESS;
            out.extend_from_slice(&liveness.timestamp.to_le_bytes());
            if liveness.ttl != 0 {
                flags |= LIVENESS_EXPIRES;
                out.extend_from_slice(&liveness.ttl.to_le_bytes());
                out.extend_from_slice(&liveness.expires_at.to_le_bytes());
            }
        }
        if !deletion.is_live() {
            flags |= DELETION;
            out.extend_from_slice(&deletion.timestamp.to_le_bytes());
            out.extend_from_slice(&deletion.local_time.to_le_bytes());
        }
        out[flags_at] = flags;
        let count_at = out.len();
        out.extend_from_slice(&[0; COUNT_BYTES]);
        Self { out, flags_at, count_at, count: 0, last: None, all_live: true }
    }

    /// Appends a cell.
    ///
    /// Cells come by column id, and by path within a collection. How many there are is bounded by what a
    /// mutation may take and by memory: 2^32 cells would be 44 GiB.
    #[inline]
    pub fn cell(&mut self, cell: CellView<'_>) {
        if let (CellKind::Live(value), None) = (cell.kind, cell.path) {
            self.plain(cell.column, cell.timestamp, value);
        } else {
            self.note(&cell);
            self.any_cell(cell);
        }
    }

    /// As [`RowBuilder::cell`], for a value of a column with one cell that neither expires nor counts.
    #[inline]
    pub fn plain(&mut self, column: ColumnId, timestamp: i64, value: &[u8]) {
        assert!(self.last <= Some(column), "cells of a row come by column id");
        self.last = Some(column);
        self.count += 1;
        let mut head = [0; PLAIN_HEAD_BYTES];
        head[..2].copy_from_slice(&column.0.to_le_bytes());
        head[3..11].copy_from_slice(&timestamp.to_le_bytes());
        head[11..].copy_from_slice(&length_of(value).to_le_bytes());
        self.out.reserve(PLAIN_HEAD_BYTES + value.len());
        self.out.extend_from_slice(&head);
        self.out.extend_from_slice(value);
    }

    /// Appends a cell of another row as it stands there: `cell` and `bytes` are what [`Cells::next_with_bytes`] gave.
    #[inline]
    pub fn copy(&mut self, cell: &CellView<'_>, bytes: &[u8]) {
        self.note(cell);
        self.out.extend_from_slice(bytes);
    }

    /// Appends a plain cell of another row.
    #[inline]
    pub fn copy_plain(&mut self, cell: &PlainCell<'_>) {
        assert!(self.last <= Some(cell.column), "cells of a row come by column id");
        self.last = Some(cell.column);
        self.count += 1;
        self.out.extend_from_slice(cell.bytes);
    }

    #[inline]
    fn note(&mut self, cell: &CellView<'_>) {
        assert!(self.last <= Some(cell.column), "cells of a row come by column id");
        self.last = Some(cell.column);
        self.count += 1;
        self.all_live &= matches!(cell.kind, CellKind::Live(_));
    }

    /// Appends a cell of any kind.
    #[inline(never)]
    fn any_cell(&mut self, cell: CellView<'_>) {
        let mut flags = match cell.kind {
            CellKind::Live(_) => 0,
            CellKind::Counter(_) => COUNTER,
            CellKind::Expiring { .. } => EXPIRES,
            CellKind::Tombstone { .. } => TOMBSTONE,
            CellKind::CollectionDeletion { .. } => COLLECTION_DELETION,
        };
        if cell.path.is_some() {
            flags |= PATH;
        }
        self.out.extend_from_slice(&cell.column.0.to_le_bytes());
        self.out.push(flags);
        self.out.extend_from_slice(&cell.timestamp.to_le_bytes());
        match cell.kind {
            CellKind::Live(_) | CellKind::Counter(_) => {}
            CellKind::Expiring { ttl, expires_at, .. } => {
                self.out.extend_from_slice(&expires_at.to_le_bytes());
                self.out.extend_from_slice(&ttl.to_le_bytes());
            }
            CellKind::Tombstone { local_time } | CellKind::CollectionDeletion { local_time } => {
                self.out.extend_from_slice(&local_time.to_le_bytes());
            }
        }
        if let Some(path) = cell.path {
            append_sized(self.out, path);
        }
        if let Some(value) = cell.value() {
            append_sized(self.out, value);
        }
    }

    /// Ends the row.
    #[inline]
    pub fn finish(self) {
        if self.all_live {
            self.out[self.flags_at] |= ALL_LIVE;
        }
        self.out[self.count_at..self.count_at + COUNT_BYTES].copy_from_slice(&self.count.to_le_bytes());
    }
}

#[inline]
fn length_of(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("a value is shorter than a frame")
}

fn append_sized(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&length_of(bytes).to_le_bytes());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_row_comes_back() {
        let cells = [
            CellView { column: ColumnId(2), timestamp: 5, path: None, kind: CellKind::Live(b"abc") },
            CellView {
                column: ColumnId(3),
                timestamp: -6,
                path: None,
                kind: CellKind::Expiring { value: b"", ttl: 9, expires_at: 99 },
            },
            CellView {
                column: ColumnId(7),
                timestamp: 4,
                path: None,
                kind: CellKind::CollectionDeletion { local_time: 3 },
            },
            CellView {
                column: ColumnId(7),
                timestamp: 6,
                path: Some(b"k"),
                kind: CellKind::Tombstone { local_time: 8 },
            },
            CellView { column: ColumnId(7), timestamp: 6, path: Some(b"l"), kind: CellKind::Live(b"v") },
        ];
        let liveness = Liveness { timestamp: 1, ttl: 2, expires_at: 3 };
        let deletion = DeletionTime { timestamp: 4, local_time: 5 };
        let mut bytes = Vec::new();
        let mut builder = RowBuilder::new(&mut bytes, liveness, deletion);
        cells.iter().for_each(|cell| builder.cell(*cell));
        builder.finish();
        let row = RowView::parse(&bytes).unwrap();
        assert_eq!((row.liveness(), row.deletion()), (liveness, deletion));
        assert_eq!(row.cells().collect::<Vec<_>>(), cells);
        assert_eq!(row.cell(ColumnId(3)), Some(cells[1]));
        assert_eq!(row.cell(ColumnId(4)), None);
        for end in 0..bytes.len() {
            assert!(RowView::parse(&bytes[..end]).is_err(), "{end} bytes are not a row");
        }
    }

    proptest! {
        #[test]
        fn whatever_parses_reads_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(row) = RowView::parse(&bytes) {
                let _ = (row.liveness(), row.deletion(), row.is_empty());
                let claimed = row.cells().size_hint().1.unwrap();
                prop_assert_eq!(row.cells().count(), claimed);
            }
        }
    }
}
