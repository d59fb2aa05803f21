//! Writes the row of the most common statement: columns of one cell, each set to the value of a marker. If
//! all of them have values that do not expire, [`plain`] computes the length of the row beforehand, and
//! [`fill`] writes the row into its final place.
//!
//! The bytes are those that `row_writer` makes of the same operations; `row_writer` handles all other
//! statements.

use model::row::CellKind;
use model::{CellView, DeletionTime, Liveness, PlainRow, RowBuilder};
use statement::prepare::marker_sets::MarkerSet;
use statement::terms::Binding;
use wire::values::ValueRef;

use super::row_writer::Stamp;
use crate::QueryError;

/// The row in which the columns have their markers' values. `None` if a value is null or unset, if the row
/// expires, or if it is empty; [`append`] writes such rows.
///
/// # Errors
/// As [`append`].
#[inline]
pub(super) fn plain(
    sets: &[MarkerSet],
    stamp: &Stamp,
    liveness: Liveness,
    binding: &Binding<'_>,
) -> Result<Option<PlainRow>, QueryError> {
    let marker = !liveness.is_none();
    if stamp.ttl != 0 || (sets.is_empty() && !marker) {
        return Ok(None);
    }
    let mut value_bytes = 0;
    for set in sets {
        let ValueRef::Bytes(value) = binding.values[set.marker] else { return Ok(None) };
        set.check(value).map_err(|error| binding.invalid(set.marker, &error))?;
        value_bytes += value.len();
    }
    Ok(Some(PlainRow { timestamp: stamp.timestamp, marker, cells: sets.len(), value_bytes }))
}

/// Writes the row whose length [`plain`] computed into `room`.
#[inline]
pub(super) fn fill(row: &PlainRow, sets: &[MarkerSet], binding: &Binding<'_>, room: &mut [u8]) {
    row.fill(
        room,
        sets.iter().map(|set| (set.column, binding.values[set.marker].bytes().unwrap_or_default())),
    );
}

/// Appends a row in which the columns have their markers' values. Returns false if the row would change
/// nothing; the caller then drops the appended bytes, as after an error.
///
/// # Errors
/// [`QueryError::Invalid`] for a value that is invalid for its column's type.
pub(super) fn append(
    sets: &[MarkerSet],
    stamp: &Stamp,
    liveness: Liveness,
    binding: &Binding<'_>,
    out: &mut Vec<u8>,
) -> Result<bool, QueryError> {
    let mut row = RowBuilder::new(out, liveness, DeletionTime::LIVE);
    let mut written = !liveness.is_none();
    for set in sets {
        match binding.values[set.marker] {
            ValueRef::Bytes(value) => {
                set.check(value).map_err(|error| binding.invalid(set.marker, &error))?;
                cell(&mut row, set, stamp, stamp.value(value));
            }
            ValueRef::Null => cell(&mut row, set, stamp, stamp.tombstone()),
            ValueRef::Unset => continue,
        }
        written = true;
    }
    row.finish();
    Ok(written)
}

fn cell(row: &mut RowBuilder<'_>, set: &MarkerSet, stamp: &Stamp, kind: CellKind<'_>) {
    row.cell(CellView { column: set.column, timestamp: stamp.timestamp, path: None, kind });
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use model::schema::{TableDefinition, TableId, TableOptions};
    use model::{Column, ColumnId, ColumnKind, CqlType, RowView, Table};
    use statement::ambient::Ambient;
    use statement::prepare::marker_sets;
    use statement::prepare::operation::{Action, Operation};
    use statement::terms::Term;

    use super::*;
    use crate::execute::row_writer::append_row;

    fn column(id: u16, ty: CqlType) -> Column {
        let (name, kind) = (format!("c{id}"), ColumnKind::Regular);
        Column { id: ColumnId(id), name, ty, kind, position: 0, reversed: false }
    }

    #[test]
    fn a_row_of_markers_has_the_bytes_that_its_operations_make() {
        let columns = [column(1, CqlType::Int), column(2, CqlType::Text), column(5, CqlType::Blob)];
        let operations: Vec<Operation> = columns
            .iter()
            .enumerate()
            .map(|(index, column)| Operation {
                column: column.clone(),
                action: Action::Set(Term::Marker { index, ty: column.ty.clone() }),
            })
            .collect();
        let sets = marker_sets::of(&operations).expect("nothing but values of markers");
        let table = Table::new(TableDefinition {
            id: TableId([1; 16]),
            keyspace: "ks".to_owned(),
            name: "t".to_owned(),
            columns: columns.to_vec(),
            dropped: BTreeMap::new(),
            options: TableOptions::default(),
            next_column_id: 6,
            tablets_log2: 0,
            revision: 0,
        });
        let ambient = reactor::run_one(reactor::Config::default(), async { Ambient::new() });
        let choices = |value, wrong| {
            [
                ValueRef::Null,
                ValueRef::Unset,
                ValueRef::Bytes(b""),
                ValueRef::Bytes(value),
                ValueRef::Bytes(wrong),
            ]
        };
        let (ints, texts, blobs) =
            (choices(b"\0\0\0\x07", b"\x07"), choices(b"text", b"\xff"), choices(b"\xca\xfe", b"\xff"));
        let (mut rows, mut plain_rows) = (0, 0);
        let all = (0..5).flat_map(|a| (0..5).flat_map(move |b| (0..5).map(move |c| (a, b, c))));
        for (int, text, blob) in all {
            for (ttl, with_marker) in [(0, true), (0, false), (60, true), (60, false)] {
                let values = [ints[int], texts[text], blobs[blob]];
                let binding = Binding { values: &values, markers: &[], ambient: &ambient, calls: None };
                let stamp = Stamp { timestamp: 77, now: 1_000, ttl, deletion_timestamp: 77 };
                let liveness = if with_marker { stamp.liveness() } else { Liveness::NONE };
                let (mut row, mut expected) = (Vec::new(), Vec::new());
                let written = match plain(&sets, &stamp, liveness, &binding) {
                    Ok(Some(told)) => {
                        plain_rows += 1;
                        row.resize(told.bytes(), 0xff);
                        fill(&told, &sets, &binding, &mut row);
                        Ok(true)
                    }
                    Ok(None) => append(&sets, &stamp, liveness, &binding, &mut row),
                    Err(error) => Err(error),
                };
                let made = append_row(&table, &operations, None, &stamp, liveness, &binding, &mut expected);
                match (written, made) {
                    (Ok(written), Ok(made)) => {
                        assert_eq!(written, made, "{values:?}");
                        if made {
                            assert_eq!(row, expected, "{values:?}");
                            assert!(RowView::parse(&row).is_ok());
                            rows += 1;
                        }
                    }
                    (written, made) => assert_eq!(
                        written.map_err(|error| error.to_string()),
                        made.map_err(|error| error.to_string()),
                        "{values:?}"
                    ),
                }
            }
        }
        // Four of five ints are valid, four of five texts, and all blobs. Without a row marker one choice of
        // values changes nothing.
        assert_eq!(rows, 4 * (4 * 4 * 5) - 2);
        // Without a time to live, the valid values that are neither null nor unset, with a row marker and
        // without one.
        assert_eq!(plain_rows, 2 * (2 * 2 * 3));
    }
}
