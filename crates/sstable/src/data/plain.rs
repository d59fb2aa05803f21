//! Encodes rows of plain values, as most rows are, in one pass over their cells.
//!
//! The result is byte for byte that of [`append_row`](super::encode::append_row); the test checks this.

use model::clustering::Clustering;
use model::row::{PlainCell, RowView};
use model::{Liveness, vint};

use super::encode::{Scratch, append_timestamp, append_value, append_values};
use super::{BITMAP_COLUMNS_MAX, flags, kind};
use crate::error::SstableError;
use crate::layout::{Layout, Slot, Slots};

/// Numbers about a row of plain values, for statistics.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlainRow {
    pub(crate) cells: u64,
    /// The least and the greatest timestamp of its cells, if it has any.
    pub(crate) timestamps: (i64, i64),
}

/// Appends a row with only plain values (no deletions, nothing that expires), of columns with one cell each,
/// in the order of the file; `previous` is the size of the item before it. Returns `None` and appends nothing
/// for any other row.
pub(crate) fn append_plain_row(
    layout: &Layout,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
    clustering: &[u8],
    row: RowView<'_>,
    previous: u64,
) -> Result<Option<PlainRow>, SstableError> {
    let slots = &layout.regulars;
    if !row.is_plain() || !slots.in_id_order {
        return Ok(None);
    }
    let Some(missing) = missing_of_plain(slots, row) else { return Ok(None) };
    let liveness = row.liveness();
    let start = out.len();
    out.push(
        if liveness.is_none() { 0 } else { flags::HAS_TIMESTAMP }
            | if missing == 0 { flags::HAS_ALL_COLUMNS } else { 0 },
    );
    let count = append_values(layout, out, Clustering(clustering))?;
    assert_eq!(count, layout.clusterings.len(), "a row has all clustering columns");
    scratch.name.clear();
    scratch.name.push(kind::CLUSTERING);
    scratch.name.extend_from_slice(&out[start + 1..]);

    // The size comes before the body: this reserves its most likely length.
    let size_at = out.len();
    let room = vint::unsigned_length(row.as_bytes().len() as u64);
    out.extend_from_slice(&[0; vint::LENGTH_MAX][..room]);
    vint::append_unsigned(out, previous);
    if !liveness.is_none() {
        append_timestamp(layout, out, liveness.timestamp);
    }
    if missing != 0 {
        vint::append_unsigned(out, missing);
    }
    let mut plain = PlainRow { cells: 0, timestamps: (i64::MAX, i64::MIN) };
    let mut cells = row.cells();
    while let Some(cell) = cells.peek_plain() {
        cells.pass(&cell);
        plain.cells += 1;
        let (least, greatest) = plain.timestamps;
        plain.timestamps = (least.min(cell.timestamp), greatest.max(cell.timestamp));
        let slot = &slots.list[slots.of(cell.column).expect("it was looked up before")];
        append_plain_cell(layout, out, slot, &cell, liveness)?;
    }
    let size = out.len() - size_at - room;
    set_size(out, size_at, room, size);
    Ok(Some(plain))
}

/// The file's columns that a row of plain cells lacks, one bit each; `None` if there are too many columns for
/// that, or a cell is not plain.
fn missing_of_plain(slots: &Slots, row: RowView<'_>) -> Option<u64> {
    let columns = slots.list.len();
    if columns >= BITMAP_COLUMNS_MAX {
        return None;
    }
    let mut missing = (1u64 << columns) - 1;
    let mut cells = row.cells();
    while let Some(cell) = cells.peek_plain() {
        cells.pass(&cell);
        let slot = slots.of(cell.column)?;
        if slots.list[slot].complex || missing & (1 << slot) == 0 {
            return None;
        }
        missing &= !(1 << slot);
    }
    cells.is_done().then_some(missing)
}

#[inline]
fn append_plain_cell(
    layout: &Layout,
    out: &mut Vec<u8>,
    slot: &Slot,
    cell: &PlainCell<'_>,
    liveness: Liveness,
) -> Result<(), SstableError> {
    let value = cell.value();
    let row_timestamp = !liveness.is_none() && cell.timestamp == liveness.timestamp;
    out.push(
        if value.is_empty() { flags::CELL_EMPTY } else { 0 }
            | if row_timestamp { flags::CELL_ROW_TIMESTAMP } else { 0 },
    );
    if !row_timestamp {
        append_timestamp(layout, out, cell.timestamp);
    }
    append_value(out, slot, value)
}

/// Writes the size of a body at the end of `out` into the space before it, which grows or shrinks if the size
/// has another length.
fn set_size(out: &mut Vec<u8>, at: usize, room: usize, size: usize) {
    let length = vint::unsigned_length(size as u64);
    if length != room {
        let (from, to) = (at + room, at + length);
        if length > room {
            out.resize(to + size, 0);
        }
        out.copy_within(from..from + size, to);
        out.truncate(to + size);
    }
    // The shortest form, as by `vint::append_unsigned`: its first byte gives the number of following bytes.
    let bytes = (size as u64).to_be_bytes();
    let place = &mut out[at..at + length];
    place.copy_from_slice(&bytes[8 - length..]);
    place[0] |= !(0xff_u8 >> (length - 1));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use model::deletion::{DeletionTime, NO_LOCAL_TIME};
    use model::row::{CellKind, CellView, RowBuilder};
    use model::schema::{Column, ColumnId, ColumnKind, TableDefinition, TableId, TableOptions};
    use model::types::CqlType;
    use model::{Table, clustering};
    use proptest::prelude::*;

    use super::super::encode::append_row;
    use super::*;
    use crate::statistics::{Collector, EncodingMinima, SIGNED_TIME_MAX, SerializationHeader};

    /// `key blob, c int, f0 int, v0 text, f1 int, …`: types of fixed and of variable length alternate.
    fn layout(regulars: u16) -> Layout {
        let column = |id, name: String, ty, kind| Column {
            id: ColumnId(id),
            name,
            ty,
            kind,
            position: 0,
            reversed: false,
        };
        let mut columns = vec![
            column(0, "key".into(), CqlType::Blob, ColumnKind::PartitionKey),
            column(1, "c".into(), CqlType::Int, ColumnKind::Clustering),
        ];
        columns.extend((0..regulars).map(|at| {
            let ty = if at % 2 == 0 { CqlType::Int } else { CqlType::Text };
            column(at + 2, format!("r{at:03}"), ty, ColumnKind::Regular)
        }));
        let table = Table::new(TableDefinition {
            id: TableId([1; 16]),
            keyspace: "ks".into(),
            name: "cf".into(),
            next_column_id: regulars + 2,
            columns,
            dropped: BTreeMap::new(),
            options: TableOptions::default(),
            tablets_log2: 0,
            revision: 0,
        });
        let minima = EncodingMinima { timestamp: 1000, ..EncodingMinima::default() };
        Layout::resolve(&SerializationHeader::of_table(&table, minima), &table, false).unwrap()
    }

    proptest! {
        #[test]
        fn a_plain_row_has_the_bytes_and_the_statistics_of_any_row(
            columns in 1u16..70,
            present in proptest::collection::vec(any::<bool>(), 70),
            lengths in proptest::collection::vec(0usize..300, 70),
            timestamps in proptest::collection::vec(990i64..1_000_000, 70),
            marker in proptest::option::of(990i64..1100),
            previous in 0u64..100_000,
        ) {
            let layout = layout(columns);
            let liveness = marker.map_or(Liveness::NONE, |timestamp| Liveness { timestamp, ttl: 0, expires_at: NO_LOCAL_TIME });
            let (mut row, mut key) = (Vec::new(), Vec::new());
            clustering::append_component(&mut key, Some(&[0, 0, 0, 7]));
            let mut builder = RowBuilder::new(&mut row, liveness, DeletionTime::LIVE);
            for at in (0..columns).filter(|at| present[usize::from(*at)]) {
                let (length, timestamp) = (lengths[usize::from(at)], timestamps[usize::from(at)]);
                // Some cells have the row's own timestamp, and some values are empty.
                let timestamp = marker.filter(|_| timestamp % 3 == 0).unwrap_or(timestamp);
                let length = if length % 5 == 0 { 0 } else if at % 2 == 0 { 4 } else { length };
                let value = vec![b'v'; length];
                let kind = CellKind::Live(&value);
                builder.cell(CellView { column: ColumnId(at + 2), timestamp, path: None, kind });
            }
            builder.finish();
            let row = RowView::parse(&row).unwrap();

            let (mut scratch, mut expected) = (Scratch::default(), vec![9; 3]);
            append_row(&layout, &mut scratch, &mut expected, Some(&key), row, previous).unwrap();
            let name = std::mem::take(&mut scratch.name);
            let mut out = vec![9; 3];
            let plain = append_plain_row(&layout, &mut scratch, &mut out, &key, row, previous).unwrap();
            prop_assert_eq!(plain.is_some(), usize::from(columns) < BITMAP_COLUMNS_MAX);
            let Some(plain) = plain else {
                prop_assert_eq!(out, vec![9; 3]);
                return Ok(());
            };
            prop_assert_eq!(out, expected);
            prop_assert_eq!(scratch.name, name);

            let (mut one, mut other) = (Collector::new(SIGNED_TIME_MAX), Collector::new(SIGNED_TIME_MAX));
            one.row(row);
            other.plain_row(liveness, plain);
            one.partition(b"key", 100);
            other.partition(b"key", 100);
            prop_assert_eq!(one.finish().0, other.finish().0);
        }
    }
}
