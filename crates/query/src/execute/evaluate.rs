//! Evaluates selected expressions over one row.

use std::borrow::Cow;

use model::collection::{Components, Elements, Entries, append_element};
use model::compare::compare;
use model::deletion::LocalSeconds;
use model::row::CellKind;
use model::{Column, ColumnKind, CqlType, RowView};
use smallvec::SmallVec;

use super::cells;
use crate::QueryError;
use crate::prepare::selector::Selector;
use crate::terms::Binding;

/// One row with what surrounds it.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowInput<'r> {
    /// Values of the partition key.
    pub(super) key: &'r [&'r [u8]],
    /// Values of the clustering key; empty for a partition shown by its static row alone.
    pub(super) clustering: &'r [Option<&'r [u8]>],
    /// The static row, where it has live cells.
    pub(super) static_row: Option<RowView<'r>>,
    /// The row itself.
    pub(super) row: Option<RowView<'r>>,
    /// Seconds now, for what is left of a time to live.
    pub(super) now: LocalSeconds,
}

impl<'r> RowInput<'r> {
    /// The row a column stands in.
    pub(super) fn row_of(&self, column: &Column) -> Option<RowView<'r>> {
        if column.kind == ColumnKind::Static { self.static_row } else { self.row }
    }

    /// The value of a column; collections are put together.
    pub(super) fn column(&self, column: &Column) -> Option<Cow<'r, [u8]>> {
        match column.kind {
            ColumnKind::PartitionKey => {
                self.key.get(usize::from(column.position)).map(|value| Cow::Borrowed(*value))
            }
            ColumnKind::Clustering => {
                self.clustering.get(usize::from(column.position)).copied().flatten().map(Cow::Borrowed)
            }
            ColumnKind::Static | ColumnKind::Regular => {
                let row = self.row_of(column)?;
                if column.ty.is_multi_cell() {
                    let mut out = Vec::new();
                    cells::append_multi(row, column, &mut out).then_some(Cow::Owned(out))
                } else {
                    cells::single(row, column).map(Cow::Borrowed)
                }
            }
        }
    }
}

/// Values of aggregates, by their place in the selection; empty while rows are read.
pub(super) type Aggregated = [Option<Vec<u8>>];

/// The value of an expression.
///
/// # Errors
/// [`QueryError::Invalid`] where a function refuses its arguments.
pub(super) fn evaluate<'v>(
    selector: &'v Selector,
    input: &RowInput<'v>,
    aggregated: &'v Aggregated,
    binding: &Binding<'v>,
) -> Result<Option<Cow<'v, [u8]>>, QueryError> {
    Ok(match selector {
        Selector::Column(column) => input.column(column),
        Selector::WriteTime { column, greatest } => write_time(input, column, *greatest).map(Cow::Owned),
        Selector::TimeToLive(column) => time_to_live(input, column).map(Cow::Owned),
        Selector::Term(term) => {
            term.bind(binding)?.set(|| "Invalid unset value for a selected term".to_owned())?
        }
        Selector::Call(function, arguments) => {
            let mut values = SmallVec::<[Option<Cow<'_, [u8]>>; 4]>::new();
            for argument in arguments {
                values.push(evaluate(argument, input, aggregated, binding)?);
            }
            let values: SmallVec<[Option<&[u8]>; 4]> = values.iter().map(|value| value.as_deref()).collect();
            function.call(&values, binding.ambient)?.map(Cow::Owned)
        }
        Selector::Field(inner, at) => {
            let Some(value) = evaluate(inner, input, aggregated, binding)? else { return Ok(None) };
            let field = Components::new(&value).nth(*at).and_then(Result::ok).flatten();
            field.map(|field| Cow::Owned(field.to_vec()))
        }
        Selector::Element { collection, ty, key } => {
            let key = key
                .bind(binding)?
                .set(|| "Invalid unset value for element selection".to_owned())?
                .ok_or_else(|| QueryError::invalid("Invalid null value for element selection"))?;
            let Some(value) = evaluate(collection, input, aggregated, binding)? else { return Ok(None) };
            element(ty, &value, &key).map(|element| Cow::Owned(element.to_vec()))
        }
        Selector::Aggregate(at) => aggregated.get(*at).and_then(|value| value.as_deref()).map(Cow::Borrowed),
    })
}

fn element<'c>(ty: &CqlType, collection: &'c [u8], key: &[u8]) -> Option<&'c [u8]> {
    match ty {
        CqlType::Map { key: ty, .. } => {
            let mut entries = Entries::parse(collection).ok()?.flatten();
            entries.find(|(k, _)| compare(ty, k, key).is_eq()).map(|(_, value)| value)
        }
        CqlType::Set { element, .. } => {
            let mut elements = Elements::parse(collection).ok()?.flatten();
            elements.find(|e| compare(element, e, key).is_eq())
        }
        _ => None,
    }
}

fn write_time(input: &RowInput<'_>, column: &Column, greatest: bool) -> Option<Vec<u8>> {
    let row = input.row_of(column)?;
    let mut cells = cells::of(row, column).map(|cell| cell.timestamp);
    if greatest {
        return cells.max().map(|timestamp| timestamp.to_be_bytes().to_vec());
    }
    if !column.ty.is_multi_cell() {
        return cells.next().map(|timestamp| timestamp.to_be_bytes().to_vec());
    }
    list(cells.map(|timestamp| Some(timestamp.to_be_bytes().to_vec())))
}

fn time_to_live(input: &RowInput<'_>, column: &Column) -> Option<Vec<u8>> {
    let row = input.row_of(column)?;
    let now = input.now;
    let mut cells = cells::of(row, column).map(|cell| match cell.kind {
        CellKind::Expiring { expires_at, .. } => {
            Some(i32::try_from(expires_at.saturating_sub(now)).unwrap_or(i32::MAX).to_be_bytes().to_vec())
        }
        _ => None,
    });
    if !column.ty.is_multi_cell() {
        return cells.next().flatten();
    }
    list(cells)
}

/// A list of what the cells of a collection give, null where one gives nothing; nothing where there are no cells.
fn list(values: impl Iterator<Item = Option<Vec<u8>>>) -> Option<Vec<u8>> {
    let mut out = vec![0; 4];
    let mut count = 0_i32;
    for value in values {
        append_element(&mut out, value.as_deref());
        count += 1;
    }
    out[..4].copy_from_slice(&count.to_be_bytes());
    (count > 0).then_some(out)
}
