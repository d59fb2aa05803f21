//! Makes a row, cell by cell.

use super::cells::{PLAIN_HEAD_BYTES, PlainCell};
use super::{
    ALL_LIVE, COLLECTION_DELETION, COUNT_BYTES, COUNTER, CellKind, CellView, DELETION, EXPIRES, LIVENESS,
    LIVENESS_EXPIRES, PATH, TOMBSTONE,
};
use crate::deletion::{DeletionTime, Liveness};
use crate::schema::ColumnId;

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
    /// Cells come in order of column id, and of path within a collection. Their number is bounded by the size
    /// limit of a mutation and by memory: 2^32 cells would be 44 GiB.
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

    /// Appends a cell of another row unchanged: `cell` and `bytes` are a result of
    /// [`Cells::next_with_bytes`].
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
pub(super) fn length_of(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("a value is shorter than a frame")
}

fn append_sized(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&length_of(bytes).to_le_bytes());
    out.extend_from_slice(bytes);
}
