//! Reads columns of a row: single cells in place, collections and user types put together from their cells.

use model::collection::{CollectionBuilder, append_element};
use model::row::{CellKind, Cells};
use model::{CellView, Column, ColumnId, CqlType, RowView};

/// The value of a column with one cell.
#[inline]
pub(super) fn single<'r>(row: RowView<'r>, column: &Column) -> Option<&'r [u8]> {
    row.cell(column.id).and_then(|cell| cell.value())
}

/// Finds one column after the other, in one walk over the row if the columns are requested in the row's
/// order.
#[derive(Debug)]
pub(super) struct Finder<'r> {
    row: RowView<'r>,
    rest: Cells<'r>,
    /// The first cell not yet asked for.
    ahead: Option<CellView<'r>>,
    /// The column asked for last.
    last: Option<ColumnId>,
}

impl<'r> Finder<'r> {
    pub(super) fn new(row: RowView<'r>) -> Self {
        let mut rest = row.cells();
        let ahead = rest.next();
        Self { row, rest, ahead, last: None }
    }

    /// The value of a column with one cell.
    #[inline]
    pub(super) fn single(&mut self, column: ColumnId) -> Option<&'r [u8]> {
        if self.last >= Some(column) {
            *self = Self::new(self.row);
        }
        self.last = Some(column);
        while let Some(cell) = self.ahead {
            if cell.column == column {
                self.ahead = self.rest.next();
                return cell.value();
            }
            if cell.column > column {
                return None;
            }
            self.ahead = self.rest.next();
        }
        None
    }
}

/// Appends the serialised value of a column that has a cell for each element. Returns false if it has no
/// elements.
///
/// For a user type the value ends with the last field that is set; the missing fields after it are null.
pub(super) fn append_multi(row: RowView<'_>, column: &Column, out: &mut Vec<u8>) -> bool {
    let cells = row
        .cells()
        .skip_while(|cell| cell.column < column.id)
        .take_while(|cell| cell.column == column.id)
        .filter_map(|cell| Some((cell.path?, cell.value()?)));
    let start = out.len();
    match &column.ty {
        CqlType::Udt(udt) => {
            let mut next = 0;
            for (path, value) in cells {
                let Ok(at) = <[u8; 2]>::try_from(path).map(u16::from_be_bytes).map(usize::from) else {
                    continue;
                };
                if at >= udt.fields.len() {
                    continue;
                }
                while next < at {
                    append_element(out, None);
                    next += 1;
                }
                append_element(out, Some(value));
                next += 1;
            }
            // Drivers take a value that ends early for one of an older type.
            while next > 0 && next < udt.fields.len() {
                append_element(out, None);
                next += 1;
            }
            out.len() > start
        }
        ty => {
            let mut builder = CollectionBuilder::begin(out);
            let mut any = false;
            for (path, value) in cells {
                any = true;
                match ty {
                    CqlType::Map { .. } => {
                        builder.push(path);
                        builder.push(value);
                    }
                    CqlType::Set { .. } => builder.push(path),
                    _ => builder.push(value),
                }
            }
            match ty {
                CqlType::Map { .. } => builder.finish_map(),
                _ => builder.finish(),
            }
            if !any {
                out.truncate(start);
            }
            any
        }
    }
}

/// The live cells of a column, in order.
pub(super) fn of<'r>(row: RowView<'r>, column: &Column) -> impl Iterator<Item = CellView<'r>> + use<'r> {
    let id = column.id;
    row.cells()
        .skip_while(move |cell| cell.column < id)
        .take_while(move |cell| cell.column == id)
        .filter(|cell| matches!(cell.kind, CellKind::Live(_) | CellKind::Expiring { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{DeletionTime, Liveness, RowBuilder};

    #[test]
    fn columns_are_found_in_any_order_and_more_than_once() {
        let mut bytes = Vec::new();
        let mut builder = RowBuilder::new(&mut bytes, Liveness::NONE, DeletionTime::LIVE);
        for column in [1, 3, 4, 9] {
            let value = [column as u8];
            let kind = CellKind::Live(&value);
            builder.cell(CellView { column: ColumnId(column), timestamp: 1, path: None, kind });
        }
        builder.finish();
        let mut finder = Finder::new(RowView::trusted(&bytes));
        for (column, expected) in [
            (0, None),
            (1, Some(1)),
            (2, None),
            (4, Some(4)),
            (3, Some(3)),
            (3, Some(3)),
            (9, Some(9)),
            (10, None),
            (1, Some(1)),
        ] {
            let found = finder.single(ColumnId(column)).map(|value| value[0]);
            assert_eq!(found, expected, "column {column}");
        }
    }
}
