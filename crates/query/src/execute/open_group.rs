//! A group of GROUP BY that is still open at the end of a page, as bytes that travel with the client's next
//! request.
//!
//! ```text
//! group       := part* clustering:sized output:optional first
//! part        := an accumulator (`functions::aggregate::state`) | state:optional     by the aggregates
//! first       := 0:u8 | 1:u8 clustering:sized static_row:optional row:optional
//! optional    := 0:u8 | 1:u8 bytes:sized
//! ```
//! So a page can end in the middle of a long run of dead rows, whatever came before it. The bytes that a
//! client sends back are checked like any input: rows must be rows of the table, values must be valid for
//! their types.

use model::clustering::Clustering;
use model::validate::validate;
use model::{ColumnKind, CqlType, RowView, Table};
use statement::functions::{append_optional, read_optional};
use statement::prepare::selector::Aggregate;
use statement::sized::{read_sized, sized};

use super::groups::{FirstRow, OpenGroup, Part};

/// Bytes that a group may travel with; a page does not end in a larger one.
const BYTES_MAX: usize = 64 << 10;

impl OpenGroup<'_> {
    /// The bytes of the group; `None` if it cannot be sent with a page.
    pub(super) fn travelling(&self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        for part in &self.accumulators {
            match part {
                Part::Native(accumulator) => {
                    if !accumulator.append_state(&mut out) {
                        return None;
                    }
                }
                Part::User(state) => append_optional(&mut out, state.as_deref()),
            }
        }
        sized(&mut out, &self.clustering);
        append_optional(&mut out, self.output.as_deref());
        out.push(u8::from(self.keeps_first));
        if self.keeps_first {
            sized(&mut out, &self.first.clustering);
            append_optional(&mut out, self.first.static_row.as_deref());
            append_optional(&mut out, self.first.row.as_deref());
        }
        (out.len() <= BYTES_MAX).then_some(out)
    }

    /// Takes over the group of the partition of `key` that [`Self::travelling`] wrote; `None` if the
    /// bytes are not such a group.
    pub(super) fn arrive(&mut self, table: &Table, key: &[u8], mut bytes: &[u8]) -> Option<()> {
        let rest = &mut bytes;
        for (part, aggregate) in self.accumulators.iter_mut().zip(&self.groups.aggregates) {
            match (part, aggregate) {
                (Part::Native(accumulator), _) => *accumulator = accumulator.clone().read_state(rest)?,
                (Part::User(state), Aggregate::User { aggregate, .. }) => {
                    *state = read_value(rest, aggregate.state_type())?;
                }
                _ => return None,
            }
        }
        self.clustering = read_clustering(rest, table)?;
        self.output = match self.by().and_then(|by| by.output_type()) {
            Some(ty) => read_value(rest, ty)?,
            None => read_optional(rest)?.map_or(Some(None), |_| None)?,
        };
        let (first, after) = rest.split_first()?;
        *rest = after;
        if *first != u8::from(self.keeps_first) {
            return None;
        }
        if self.keeps_first {
            self.first = FirstRow {
                key: key.to_vec(),
                clustering: read_clustering(rest, table)?,
                static_row: read_row(rest, table, ColumnKind::Static)?,
                row: read_row(rest, table, ColumnKind::Regular)?,
            };
        }
        self.is_open = true;
        rest.is_empty().then_some(())
    }
}

fn read_value(rest: &mut &[u8], ty: &CqlType) -> Option<Option<Vec<u8>>> {
    let value = read_optional(rest)?;
    let fits = value.is_none_or(|value| validate(ty, value).is_ok());
    fits.then(|| value.map(<[u8]>::to_vec))
}

/// A clustering, of all columns or, of a static row, of none.
fn read_clustering(rest: &mut &[u8], table: &Table) -> Option<Vec<u8>> {
    let bytes = read_sized(rest)?;
    let clustering = Clustering(bytes);
    let columns = table.clustering();
    if !clustering.is_valid(columns.len()) {
        return None;
    }
    let mut count = 0;
    for (value, column) in clustering.components().zip(columns) {
        if value.is_some_and(|value| validate(&column.ty, value).is_err()) {
            return None;
        }
        count += 1;
    }
    (count == columns.len() || bytes.is_empty()).then(|| bytes.to_vec())
}

fn read_row(rest: &mut &[u8], table: &Table, kind: ColumnKind) -> Option<Option<Vec<u8>>> {
    let Some(bytes) = read_optional(rest)? else { return Some(None) };
    let row = RowView::parse(bytes).ok()?;
    for cell in row.cells() {
        let column = table.columns_of(kind).iter().find(|column| column.id == cell.column)?;
        let Some(value) = cell.value() else { continue };
        let fits = |ty: &CqlType, value: &[u8]| validate(ty, value).is_ok();
        let (path_fits, value_type) = match (&column.ty, cell.path) {
            (ty, None) => (!ty.is_multi_cell(), ty),
            (CqlType::List { element, frozen: false }, Some(path)) => {
                (fits(&CqlType::Timeuuid, path), &**element)
            }
            (CqlType::Set { element, frozen: false }, Some(path)) => (fits(element, path), &CqlType::Blob),
            (CqlType::Map { key, value, frozen: false }, Some(path)) => (fits(key, path), &**value),
            (CqlType::Udt(udt), Some(path)) if column.ty.is_multi_cell() => {
                let at = u16::from_be_bytes(path.try_into().ok()?);
                (true, &udt.fields.get(usize::from(at))?.1)
            }
            _ => return None,
        };
        if !path_fits || !fits(value_type, value) {
            return None;
        }
    }
    Some(Some(bytes.to_vec()))
}
