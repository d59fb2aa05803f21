//! The row of the usual write: plain values that were all written at one time. Its length is known before it
//! is made, so it is written straight to its final place.
//!
//! The bytes are those that [`super::RowBuilder`] makes of the same cells.

use super::builder::length_of;
use super::cells::PLAIN_HEAD_BYTES;
use super::{ALL_LIVE, COUNT_BYTES, LIVENESS};
use crate::schema::ColumnId;

/// Bytes before the liveness of a row, and of it.
const FLAGS_BYTES: usize = 1;
const LIVENESS_BYTES: usize = 8;

/// The data of a row of plain values besides the values.
#[derive(Debug, Clone, Copy)]
pub struct PlainRow {
    /// Client timestamp in microseconds, of the row marker too.
    pub timestamp: i64,
    /// Whether the row has a marker.
    pub marker: bool,
    /// Number of values.
    pub cells: usize,
    /// Bytes of all values together.
    pub value_bytes: usize,
}

impl PlainRow {
    /// Bytes of the row.
    #[inline]
    pub fn bytes(&self) -> usize {
        let marker = if self.marker { LIVENESS_BYTES } else { 0 };
        FLAGS_BYTES + marker + COUNT_BYTES + self.cells * PLAIN_HEAD_BYTES + self.value_bytes
    }

    /// Fills `room`, which has [`PlainRow::bytes`], with the row of these values, ordered by column id.
    ///
    /// # Panics
    /// If the values have another number of bytes than announced.
    #[inline]
    pub fn fill<'v>(&self, room: &mut [u8], values: impl Iterator<Item = (ColumnId, &'v [u8])>) {
        let cells = u32::try_from(self.cells).expect("a row has fewer cells than bytes");
        let room = if self.marker {
            let (head, room) = first::<{ FLAGS_BYTES + LIVENESS_BYTES + COUNT_BYTES }>(room);
            head[0] = LIVENESS | ALL_LIVE;
            head[1..9].copy_from_slice(&self.timestamp.to_le_bytes());
            head[9..].copy_from_slice(&cells.to_le_bytes());
            room
        } else {
            let (head, room) = first::<{ FLAGS_BYTES + COUNT_BYTES }>(room);
            head[0] = ALL_LIVE;
            head[1..].copy_from_slice(&cells.to_le_bytes());
            room
        };
        let left = values.fold(room, |room, (column, value)| {
            let (head, room) = first::<PLAIN_HEAD_BYTES>(room);
            head[..2].copy_from_slice(&column.0.to_le_bytes());
            head[2] = 0;
            head[3..11].copy_from_slice(&self.timestamp.to_le_bytes());
            head[11..].copy_from_slice(&length_of(value).to_le_bytes());
            let (place, room) = room.split_at_mut(value.len());
            place.copy_from_slice(value);
            room
        });
        assert!(left.is_empty(), "{} bytes of a row were not filled", left.len());
    }
}

#[inline]
fn first<const BYTES: usize>(room: &mut [u8]) -> (&mut [u8; BYTES], &mut [u8]) {
    room.split_first_chunk_mut().expect("the room that a row says it takes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deletion::{DeletionTime, Liveness};
    use crate::row::{RowBuilder, RowView};

    #[test]
    fn a_plain_row_has_the_bytes_that_the_builder_makes() {
        let all = [(ColumnId(1), &b"value"[..]), (ColumnId(2), b""), (ColumnId(300), &[7; 100])];
        for marker in [true, false] {
            for cells in 0..=all.len() {
                let values = &all[..cells];
                let liveness = Liveness { timestamp: -5, ..Liveness::NONE };
                let mut built = Vec::new();
                let liveness = if marker { liveness } else { Liveness::NONE };
                let mut builder = RowBuilder::new(&mut built, liveness, DeletionTime::LIVE);
                values.iter().for_each(|(column, value)| builder.plain(*column, -5, value));
                builder.finish();
                let value_bytes = values.iter().map(|(_, value)| value.len()).sum();
                let row = PlainRow { timestamp: -5, marker, cells, value_bytes };
                let mut filled = vec![0xff; row.bytes()];
                row.fill(&mut filled, values.iter().copied());
                assert_eq!(filled, built);
                assert!(RowView::parse(&filled).is_ok());
            }
        }
    }
}
