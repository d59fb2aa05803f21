//! Reads columns of a row: single cells in place, collections and user types put together from their cells.

use model::collection::{CollectionBuilder, append_element};
use model::row::CellKind;
use model::{CellView, Column, CqlType, RowView};

/// The value of a column with one cell.
#[inline]
pub(super) fn single<'r>(row: RowView<'r>, column: &Column) -> Option<&'r [u8]> {
    row.cell(column.id).and_then(|cell| cell.value())
}

/// Appends the serialised value of a column with a cell for each element; false where it has none.
///
/// Of a user type the fields that are there, up to the last: what follows is null.
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
