//! Evaluates selected expressions over one row.

use std::borrow::Cow;

use model::collection::Components;
use model::deletion::LocalSeconds;
use model::{Column, ColumnKind, RowView};
use smallvec::SmallVec;
use statement::prepare::selector::Selector;
use statement::terms::{Binding, Term};

use super::{cells, collections, stamps};
use crate::QueryError;

/// One row, with its keys, its static row and the time.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowInput<'r> {
    /// Values of the partition key.
    pub(super) key: &'r [&'r [u8]],
    /// Values of the clustering key; empty for a partition shown by its static row alone.
    pub(super) clustering: &'r [Option<&'r [u8]>],
    /// The static row, if it has live cells.
    pub(super) static_row: Option<RowView<'r>>,
    /// The row itself.
    pub(super) row: Option<RowView<'r>>,
    /// The time in seconds, from which the rest of a time to live is computed.
    pub(super) now: LocalSeconds,
}

impl<'r> RowInput<'r> {
    /// The row that has the cells of a column.
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
        Selector::Cell { function, operand, .. } => {
            stamps::of(*function, operand, input, binding)?.map(Cow::Owned)
        }
        Selector::Term(term) => {
            term.bind(binding)?.set(|| "Invalid unset value for a selected term".to_owned())?
        }
        Selector::Call(function, arguments) => {
            reactor::give_way();
            let mut values = SmallVec::<[Option<Cow<'_, [u8]>>; 4]>::new();
            for argument in arguments {
                values.push(match argument {
                    Selector::Term(term) => term.bind(binding)?.set(|| function.unset_argument())?,
                    _ => evaluate(argument, input, aggregated, binding)?,
                });
            }
            let values: SmallVec<[Option<&[u8]>; 4]> = values.iter().map(|value| value.as_deref()).collect();
            // Calls among the arguments took their time.
            reactor::give_way();
            let value = match function.user() {
                Some(function) => binding.calls()?.call(function, &values)?,
                None => function.call(&values, binding.ambient)?,
            };
            value.map(Cow::Owned)
        }
        Selector::Field(inner, at) => {
            let Some(value) = evaluate(inner, input, aggregated, binding)? else { return Ok(None) };
            let field = Components::new(&value).nth(*at).and_then(Result::ok).flatten();
            field.map(|field| Cow::Owned(field.to_vec()))
        }
        Selector::Element { collection, ty, key, name } => {
            let key = bind_key(key, name, binding)?;
            let Some(value) = evaluate(collection, input, aggregated, binding)? else { return Ok(None) };
            collections::element(ty, &value, &key).map(|element| Cow::Owned(element.to_vec()))
        }
        Selector::Slice(slice) => {
            let bounds = collections::Bounds::bind(slice, binding)?;
            let Some(value) = evaluate(&slice.collection, input, aggregated, binding)? else {
                return Ok(None);
            };
            bounds.cut(&slice.ty, &value).map(Cow::Owned)
        }
        Selector::Build { ty, parts } => {
            let mut values = Vec::with_capacity(parts.len());
            for part in parts {
                values.push(evaluate(part, input, aggregated, binding)?);
            }
            Some(Cow::Owned(collections::build(ty, &values)?))
        }
        Selector::Aggregate(at) => aggregated.get(*at).and_then(|value| value.as_deref()).map(Cow::Borrowed),
    })
}

/// The key of an element selection.
///
/// # Errors
/// [`QueryError::Invalid`] if it is null or unset.
pub(super) fn bind_key<'v>(
    key: &'v Term,
    name: &str,
    binding: &Binding<'v>,
) -> Result<Cow<'v, [u8]>, QueryError> {
    key.bind(binding)?
        .set(|| format!("Invalid unset value for element selection on {name}"))?
        .ok_or_else(|| QueryError::Invalid(format!("Invalid null value for element selection on {name}")))
}
