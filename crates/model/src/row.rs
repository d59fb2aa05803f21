//! A row as one flat run of bytes, read in place.
//!
//! ```text
//! row      := flags:u8 [liveness] [deletion] cells:u32 cell*
//! liveness := timestamp:i64 [ttl:u32 expires_at:u32]         (flags & LIVENESS, & LIVENESS_EXPIRES)
//! deletion := timestamp:i64 local_time:u32                   (flags & DELETION)
//! cell     := column:u16 flags:u8 timestamp:i64 [local_time:u32] [ttl:u32] [path] [value]
//! path     := length:u32 bytes          (flags & PATH)
//! value    := length:u32 bytes   (unless TOMBSTONE or COLLECTION_DELETION; COUNTER: a context of counter.rs)
//! ```
//! `flags & ALL_LIVE` means that every cell is a plain value: a reader sees a row without deletion and expiry
//! unchanged. All numbers are little endian. Cells are ordered by column id; within a non-frozen collection
//! the deletion of the whole collection comes first, then the elements in the order of their paths. The
//! commit log, memtables, the read path and answers between shards all use these bytes. [`RowView::parse`]
//! checks bytes from outside once; everything later relies on the check.

mod builder;
mod cells;
mod plain;

use crate::deletion::{DeletionTime, Liveness, LocalSeconds, NO_LOCAL_TIME};
use crate::schema::ColumnId;

pub use builder::RowBuilder;
pub use cells::{Cells, PlainCell};
pub use plain::PlainRow;

use cells::{PLAIN_HEAD_BYTES, PlainHead, Reader, plain_head};

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
    /// Offset at which reading stopped.
    pub offset: usize,
}

/// Kinds of cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellKind<'a> {
    /// A value that does not expire.
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
    /// A counter: a context of [`crate::counter`], or a delta on its way to the leader.
    Counter(&'a [u8]),
    /// The deletion of this one cell.
    Tombstone {
        /// The time of the deletion.
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
    /// Element of a non-frozen collection (map key, set element, list time UUID, field index), otherwise
    /// `None`.
    pub path: Option<&'a [u8]>,
    /// Value or tombstone.
    pub kind: CellKind<'a>,
}

impl<'a> CellView<'a> {
    /// The value, ignoring expiry: `None` for tombstones.
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

    /// The deletion, if the cell is that of a whole collection.
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
    /// [`RowCorrupt`] with the offset of the first invalid byte.
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

    /// Whether nothing in the row is deleted or expires, so that any reader sees it unchanged.
    #[inline]
    pub fn is_plain(self) -> bool {
        self.bytes[0] & (LIVENESS_EXPIRES | DELETION | ALL_LIVE) == ALL_LIVE
    }

    /// Whether `newer` has all values of this row again, with later timestamps, and nothing else, both as
    /// plain values: then the merge of the two is `newer` itself. If false they may have to be merged cell by
    /// cell.
    ///
    /// It recognises the usual overwrite from the headers of the cells alone.
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

    /// Whether the row has no contents.
    pub fn is_empty(self) -> bool {
        self.bytes[0] & (LIVENESS | DELETION) == 0 && self.cells().remaining == 0
    }

    /// The cell of a column that has one cell.
    pub fn cell(self, column: ColumnId) -> Option<CellView<'a>> {
        self.cells().find(|cell| cell.column >= column).filter(|cell| cell.column == column)
    }
}

/// Whether each of `count` plain cells has a later counterpart of the same column and length at the same
/// place; `None` if the bytes end before. It takes half the work of walking two rows.
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

#[cfg(test)]
mod tests;
