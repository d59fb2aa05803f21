//! A write to one partition of one table, as bytes that the commit log, other shards and replicas take as
//! they are.
//!
//! ```text
//! mutation  := version:u8 table:[u8;16] token:i64 key:sized deletion static_row:sized
//!              tombstones:u32 tombstone* rows:u32 row*
//! tombstone := start end deletion            start, end := weight:i8 prefix:sized
//! row       := clustering:sized row:sized    (`row` as in row.rs; an empty static_row is none)
//! deletion  := timestamp:i64 local_time:u32  sized := length:u32 bytes
//! ```
//! Little endian. Built once on the shard that executes the statement, applied in place by `storage`.

mod check;

pub use check::MutationMisfit;

use crate::clustering::{Clustering, Position};
use crate::deletion::DeletionTime;
use crate::row::RowView;
use crate::schema::{Table, TableId};
use crate::token::Token;

/// 2: rows count their cells in 32 bits.
const VERSION: u8 = 2;

/// Version, table and token.
const HEAD_BYTES: usize = 1 + 16 + 8;

/// The bytes between the key and the count of rows in a mutation with only rows: no deletion, no static row,
/// no tombstones.
const NOTHING_BUT_ROWS: [u8; 12 + 4 + 4] = {
    let mut bytes = [0; 20];
    let (timestamp, local_time) =
        (DeletionTime::LIVE.timestamp.to_le_bytes(), DeletionTime::LIVE.local_time.to_le_bytes());
    let mut at = 0;
    while at < 8 {
        bytes[at] = timestamp[at];
        at += 1;
    }
    while at < 12 {
        bytes[at] = local_time[at - 8];
        at += 1;
    }
    bytes
};

/// Bytes that are not a mutation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a mutation: broken at byte {offset}")]
pub struct MutationCorrupt {
    /// Offset at which reading stopped.
    pub offset: usize,
}

/// Builds a mutation at the end of a buffer. Range tombstones come first, then rows; the types ensure that
/// order: [`MutationBuilder`] takes tombstones, [`MutationRows`] rows.
#[derive(Debug)]
pub struct MutationBuilder<'b> {
    out: &'b mut Vec<u8>,
    count_at: usize,
    count: u32,
}

impl<'b> MutationBuilder<'b> {
    /// Starts a mutation. `static_row` appends one row (see [`crate::RowBuilder`]) or nothing.
    pub fn new(
        out: &'b mut Vec<u8>,
        table: TableId,
        token: Token,
        key: &[u8],
        deletion: DeletionTime,
        static_row: impl FnOnce(&mut Vec<u8>),
    ) -> Self {
        out.push(VERSION);
        out.extend_from_slice(&table.0);
        out.extend_from_slice(&token.0.to_le_bytes());
        append_sized(out, |out| out.extend_from_slice(key));
        append_deletion(out, deletion);
        append_sized(out, static_row);
        let count_at = out.len();
        out.extend_from_slice(&[0; 4]);
        Self { out, count_at, count: 0 }
    }

    /// Deletes the rows between two positions.
    pub fn range_tombstone(&mut self, start: Position<'_>, end: Position<'_>, deletion: DeletionTime) {
        for position in [start, end] {
            self.out.push(position.weight as u8);
            append_sized(self.out, |out| out.extend_from_slice(position.prefix.0));
        }
        append_deletion(self.out, deletion);
        self.count += 1;
    }

    /// Continues with the rows.
    pub fn rows(self) -> MutationRows<'b> {
        self.out[self.count_at..self.count_at + 4].copy_from_slice(&self.count.to_le_bytes());
        let count_at = self.out.len();
        self.out.extend_from_slice(&[0; 4]);
        MutationRows { out: self.out, count_at, count: 0 }
    }

    /// Ends a mutation without rows.
    pub fn finish(self) {
        self.rows().finish();
    }
}

/// The part of a mutation under construction that takes rows.
#[derive(Debug)]
pub struct MutationRows<'b> {
    out: &'b mut Vec<u8>,
    count_at: usize,
    count: u32,
}

impl MutationRows<'_> {
    /// Adds a row; `row` appends it (see [`crate::RowBuilder`]). The same clustering may occur again.
    pub fn row(&mut self, clustering: &[u8], row: impl FnOnce(&mut Vec<u8>)) {
        append_sized(self.out, |out| out.extend_from_slice(clustering));
        append_sized(self.out, row);
        self.count += 1;
    }

    /// Ends the mutation.
    pub fn finish(self) {
        self.out[self.count_at..self.count_at + 4].copy_from_slice(&self.count.to_le_bytes());
    }
}

/// Appends a mutation that only writes one row, as [`MutationBuilder`] would; `row` appends the row (see
/// [`crate::RowBuilder`]).
#[inline]
pub fn append_one_row(
    out: &mut Vec<u8>,
    table: TableId,
    token: Token,
    key: &[u8],
    clustering: &[u8],
    row: impl FnOnce(&mut Vec<u8>),
) {
    let (head, between) = (one_row_head(table, token, key), one_row_between(clustering));
    out.reserve(head.len() + key.len() + between.len() + clustering.len());
    out.extend_from_slice(&head);
    out.extend_from_slice(key);
    out.extend_from_slice(&between);
    out.extend_from_slice(clustering);
    append_sized(out, row);
}

/// As [`append_one_row`], of a row of `row_bytes`: `fill` fills all of them.
#[inline]
pub fn append_one_row_of(
    out: &mut Vec<u8>,
    table: TableId,
    token: Token,
    key: &[u8],
    clustering: &[u8],
    row_bytes: usize,
    fill: impl FnOnce(&mut [u8]),
) {
    let (head, between) = (one_row_head(table, token, key), one_row_between(clustering));
    let row_length = u32::try_from(row_bytes).expect("a mutation is shorter than a frame").to_le_bytes();
    let start = out.len();
    let before = head.len() + key.len() + between.len() + clustering.len() + row_length.len();
    out.resize(start + before + row_bytes, 0);
    let room = put(&mut out[start..], &head);
    let room = put(room, key);
    let room = put(room, &between);
    let room = put(room, clustering);
    fill(put(room, &row_length));
}

/// Copies bytes to the beginning of `room`; returns the rest of it.
#[inline]
fn put<'r>(room: &'r mut [u8], bytes: &[u8]) -> &'r mut [u8] {
    let (place, rest) = room.split_at_mut(bytes.len());
    place.copy_from_slice(bytes);
    rest
}

/// The bytes of a mutation before its key, including the key's length.
#[inline]
fn one_row_head(table: TableId, token: Token, key: &[u8]) -> [u8; HEAD_BYTES + 4] {
    let mut head = [0; HEAD_BYTES + 4];
    head[0] = VERSION;
    head[1..17].copy_from_slice(&table.0);
    head[17..25].copy_from_slice(&token.0.to_le_bytes());
    head[25..].copy_from_slice(&length_of(key).to_le_bytes());
    head
}

/// The bytes of a mutation of one row between its key and the row's clustering: the empty parts, the count of
/// rows and the clustering's length.
#[inline]
fn one_row_between(clustering: &[u8]) -> [u8; NOTHING_BUT_ROWS.len() + 4 + 4] {
    let mut between = [0; NOTHING_BUT_ROWS.len() + 4 + 4];
    let (nothing, counts) = between.split_at_mut(NOTHING_BUT_ROWS.len());
    nothing.copy_from_slice(&NOTHING_BUT_ROWS);
    counts[..4].copy_from_slice(&1u32.to_le_bytes());
    counts[4..].copy_from_slice(&length_of(clustering).to_le_bytes());
    between
}

#[inline]
fn length_of(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("a mutation is shorter than a frame")
}

#[inline]
fn append_sized(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out);
    let length = u32::try_from(out.len() - at - 4).expect("a mutation is shorter than a frame");
    out[at..at + 4].copy_from_slice(&length.to_le_bytes());
}

fn append_deletion(out: &mut Vec<u8>, deletion: DeletionTime) {
    out.extend_from_slice(&deletion.timestamp.to_le_bytes());
    out.extend_from_slice(&deletion.local_time.to_le_bytes());
}

/// A mutation, borrowed.
#[derive(Debug, Clone, Copy)]
pub struct MutationView<'a> {
    bytes: &'a [u8],
    /// Table written to.
    pub table: TableId,
    /// Token of `key`.
    pub token: Token,
    /// Stored partition key.
    pub key: &'a [u8],
    /// Deletion of the whole partition, or live.
    pub deletion: DeletionTime,
    static_row: &'a [u8],
    tombstone_count: u32,
    tombstones: &'a [u8],
    row_count: u32,
    rows: &'a [u8],
}

impl<'a> MutationView<'a> {
    /// Checks that `bytes` are exactly one mutation, its rows and positions included.
    ///
    /// The clusterings are checked against a table by [`MutationView::fits`].
    ///
    /// # Errors
    /// [`MutationCorrupt`] with the offset of the first invalid byte.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MutationCorrupt> {
        let view = Self::trusted(bytes)?;
        let mut cursor = Cursor { bytes: view.rows, base: bytes };
        for _ in 0..view.row_count {
            cursor.sized()?;
            let offset = cursor.offset();
            RowView::parse(cursor.sized()?).map_err(|e| MutationCorrupt { offset: offset + 4 + e.offset })?;
        }
        if !cursor.bytes.is_empty() {
            return Err(MutationCorrupt { offset: cursor.offset() });
        }
        if !view.static_row.is_empty() {
            RowView::parse(view.static_row).map_err(|e| MutationCorrupt { offset: e.offset })?;
        }
        Ok(view)
    }

    /// Reads bytes that [`MutationBuilder`] made or [`MutationView::parse`] accepted.
    ///
    /// # Errors
    /// [`MutationCorrupt`] if the header is invalid.
    #[inline]
    pub fn trusted(bytes: &'a [u8]) -> Result<Self, MutationCorrupt> {
        let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
            return Err(MutationCorrupt { offset: bytes.len() });
        };
        let (version, head) = (head[0], &head[1..]);
        if version != VERSION {
            return Err(MutationCorrupt { offset: 0 });
        }
        let (table, token) = head.split_at(16);
        let table = TableId(table.try_into().expect("sixteen bytes"));
        let token = Token(i64::from_le_bytes(token.try_into().expect("eight bytes")));
        let mut cursor = Cursor { bytes: rest, base: bytes };
        let key = cursor.sized()?;
        // Almost always rows are all that it writes.
        if let Some((nothing, rest)) = cursor.bytes.split_first_chunk::<{ NOTHING_BUT_ROWS.len() }>()
            && *nothing == NOTHING_BUT_ROWS
            && let Some((row_count, rows)) = rest.split_first_chunk::<4>()
        {
            return Ok(Self {
                bytes,
                table,
                token,
                key,
                deletion: DeletionTime::LIVE,
                static_row: &[],
                tombstone_count: 0,
                tombstones: &[],
                row_count: u32::from_le_bytes(*row_count),
                rows,
            });
        }
        let deletion = cursor.deletion()?;
        let static_row = cursor.sized()?;
        let tombstone_count = cursor.u32()?;
        let tombstones = cursor.bytes;
        for _ in 0..tombstone_count {
            cursor.tombstone()?;
        }
        let row_count = cursor.u32()?;
        let rows = cursor.bytes;
        Ok(Self {
            bytes,
            table,
            token,
            key,
            deletion,
            static_row,
            tombstone_count,
            tombstones,
            row_count,
            rows,
        })
    }

    /// The bytes of the mutation.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Whether every position and clustering has the shape of this table's.
    pub fn fits(&self, table: &Table) -> bool {
        let columns = table.clustering_orders().len();
        let full =
            |c: &[u8]| Clustering(c).is_valid(columns) && Clustering(c).components().count() == columns;
        self.tombstones().all(|(start, end, _)| {
            [start, end].iter().all(|p| p.prefix.is_valid(columns) && (p.weight == 1 || p.weight == -1))
        }) && self.rows().all(|(clustering, _)| full(clustering))
    }

    /// The static row, if the mutation writes it.
    #[inline]
    pub fn static_row(&self) -> Option<RowView<'a>> {
        (!self.static_row.is_empty()).then(|| RowView::trusted(self.static_row))
    }

    /// Deletions of ranges of rows.
    #[inline]
    pub fn tombstones(&self) -> impl Iterator<Item = (Position<'a>, Position<'a>, DeletionTime)> + use<'a> {
        let mut cursor = Cursor { bytes: self.tombstones, base: self.tombstones };
        (0..self.tombstone_count).map_while(move |_| cursor.tombstone().ok())
    }

    /// How many rows are written.
    pub fn row_count(&self) -> usize {
        self.row_count as usize
    }

    /// How many rows and deletions of ranges of rows there are.
    pub fn part_count(&self) -> usize {
        self.row_count as usize + self.tombstone_count as usize
    }

    /// Rows with their clusterings, in the order they were added.
    #[inline]
    pub fn rows(&self) -> impl Iterator<Item = (&'a [u8], RowView<'a>)> + use<'a> {
        let mut cursor = Cursor { bytes: self.rows, base: self.rows };
        (0..self.row_count)
            .map_while(move |_| Some((cursor.sized().ok()?, RowView::trusted(cursor.sized().ok()?))))
    }
}

struct Cursor<'a> {
    bytes: &'a [u8],
    base: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn offset(&self) -> usize {
        self.base.len() - self.bytes.len()
    }

    #[inline]
    fn take(&mut self, length: usize) -> Result<&'a [u8], MutationCorrupt> {
        let (taken, rest) =
            self.bytes.split_at_checked(length).ok_or_else(|| MutationCorrupt { offset: self.offset() })?;
        self.bytes = rest;
        Ok(taken)
    }

    #[inline]
    fn u32(&mut self) -> Result<u32, MutationCorrupt> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().expect("four bytes")))
    }

    #[inline]
    fn i64(&mut self) -> Result<i64, MutationCorrupt> {
        Ok(i64::from_le_bytes(self.take(8)?.try_into().expect("eight bytes")))
    }

    #[inline]
    fn sized(&mut self) -> Result<&'a [u8], MutationCorrupt> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    #[inline]
    fn deletion(&mut self) -> Result<DeletionTime, MutationCorrupt> {
        Ok(DeletionTime { timestamp: self.i64()?, local_time: self.u32()? })
    }

    fn position(&mut self) -> Result<Position<'a>, MutationCorrupt> {
        let weight = self.take(1)?[0] as i8;
        Ok(Position { prefix: Clustering(self.sized()?), weight })
    }

    fn tombstone(&mut self) -> Result<(Position<'a>, Position<'a>, DeletionTime), MutationCorrupt> {
        Ok((self.position()?, self.position()?, self.deletion()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deletion::Liveness;
    use crate::row::RowBuilder;
    use crate::schema::ColumnId;

    #[test]
    fn a_mutation_of_one_row_is_what_the_builder_makes() {
        let (table, token) = (TableId([7; 16]), Token(-5));
        let row = |out: &mut Vec<u8>| {
            let liveness = Liveness { timestamp: 9, ..Liveness::NONE };
            let mut row = RowBuilder::new(out, liveness, DeletionTime::LIVE);
            row.plain(ColumnId(3), 9, b"value");
            row.finish();
        };
        for (key, clustering) in [(&b"key"[..], &b""[..]), (b"k", b"\x01\x00\x02")] {
            let (mut built, mut appended) = (vec![1], vec![1]);
            let builder = MutationBuilder::new(&mut built, table, token, key, DeletionTime::LIVE, |_| ());
            let mut rows = builder.rows();
            rows.row(clustering, row);
            rows.finish();
            append_one_row(&mut appended, table, token, key, clustering, row);
            assert_eq!(built, appended);
            let mut alone = Vec::new();
            row(&mut alone);
            let mut filled = vec![1];
            let fill = |room: &mut [u8]| room.copy_from_slice(&alone);
            append_one_row_of(&mut filled, table, token, key, clustering, alone.len(), fill);
            assert_eq!(built, filled);
            assert!(MutationView::parse(&appended[1..]).is_ok());
        }
    }
}
