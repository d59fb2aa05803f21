//! `writetime`, `maxwritetime` and `ttl`: of columns, and of fields, elements and slices of them.
//!
//! Follows Cassandra 5's `ColumnTimestamps`: a column with one cell has one stamp, and so have all its parts.
//! A collection with a cell for each element has a stamp for each element, a user type one for each field,
//! with nulls for absent fields.

use cql::ast::CellFunction;
use model::collection::append_element;
use model::row::CellKind;
use model::{CellView, Column, CqlType};
use statement::prepare::selector::Selector;
use statement::terms::Binding;

use super::cells;
use super::collections::{self, Bounds};
use super::evaluate::{RowInput, bind_key, evaluate};
use crate::QueryError;

/// The stamps of an operand's cells.
enum Stamps {
    /// There is no cell.
    Nothing,
    /// One for the whole; `None` if the cell never expires.
    Single(Option<i64>),
    /// One for each element or field.
    Multiple(Vec<Option<i64>>),
}

/// The serialised result of a function over the cells of `operand`.
///
/// # Errors
/// [`QueryError::Invalid`] for a key that is null.
pub(super) fn of<'v>(
    function: CellFunction,
    operand: &'v Selector,
    input: &RowInput<'v>,
    binding: &Binding<'v>,
) -> Result<Option<Vec<u8>>, QueryError> {
    let bytes = |stamp: i64| match function {
        CellFunction::TimeToLive => i32::try_from(stamp).unwrap_or(i32::MAX).to_be_bytes().to_vec(),
        CellFunction::WriteTime | CellFunction::MaxWriteTime => stamp.to_be_bytes().to_vec(),
    };
    Ok(match stamps(function, operand, input, binding)? {
        Stamps::Nothing => None,
        Stamps::Single(stamp) => stamp.map(bytes),
        Stamps::Multiple(stamps) if function == CellFunction::MaxWriteTime => {
            stamps.into_iter().flatten().max().map(bytes)
        }
        Stamps::Multiple(stamps) if stamps.is_empty() => None,
        Stamps::Multiple(stamps) => {
            let count = i32::try_from(stamps.len()).expect("a row has fewer cells than 2^31");
            let mut out = count.to_be_bytes().to_vec();
            stamps.into_iter().for_each(|stamp| append_element(&mut out, stamp.map(bytes).as_deref()));
            Some(out)
        }
    })
}

fn stamps<'v>(
    function: CellFunction,
    operand: &'v Selector,
    input: &RowInput<'v>,
    binding: &Binding<'v>,
) -> Result<Stamps, QueryError> {
    Ok(match operand {
        Selector::Column(column) => column_stamps(function, column, input),
        Selector::Field(inner, at) => {
            if evaluate(operand, input, &[], binding)?.is_none() {
                return Ok(Stamps::Nothing);
            }
            stamps(function, inner, input, binding)?.at(*at)
        }
        Selector::Element { collection, ty, key, name } => {
            let key = bind_key(key, name, binding)?;
            let Some(value) = evaluate(collection, input, &[], binding)? else { return Ok(Stamps::Nothing) };
            let keys = collections::keys(ty, &value);
            let place =
                keys.iter().position(|k| model::compare::compare(collections::key_type(ty), k, &key).is_eq());
            match place {
                Some(at) => stamps(function, collection, input, binding)?.at(at),
                None => Stamps::Nothing,
            }
        }
        Selector::Slice(slice) => {
            let bounds = Bounds::bind(slice, binding)?;
            let Some(value) = evaluate(&slice.collection, input, &[], binding)? else {
                return Ok(Stamps::Nothing);
            };
            let keys = collections::key_type(&slice.ty);
            let inside: Vec<bool> =
                collections::keys(&slice.ty, &value).iter().map(|key| bounds.contain(keys, key)).collect();
            if !inside.contains(&true) {
                return Ok(Stamps::Nothing);
            }
            match stamps(function, &slice.collection, input, binding)? {
                Stamps::Multiple(stamps) => {
                    let kept = stamps.into_iter().zip(inside).filter(|(_, inside)| *inside);
                    Stamps::Multiple(kept.map(|(stamp, _)| stamp).collect())
                }
                single => single,
            }
        }
        _ => return Err(QueryError::Internal("stamps of something that has no cells".to_owned())),
    })
}

impl Stamps {
    /// That of one element or field; all parts of one cell share its stamp.
    fn at(self, at: usize) -> Self {
        match self {
            Self::Multiple(stamps) => stamps.get(at).map_or(Self::Nothing, |stamp| Self::Single(*stamp)),
            other => other,
        }
    }
}

fn column_stamps(function: CellFunction, column: &Column, input: &RowInput<'_>) -> Stamps {
    let Some(row) = input.row_of(column) else { return Stamps::Nothing };
    let now = input.now;
    let stamp = |cell: &CellView<'_>| match (function, cell.kind) {
        (CellFunction::TimeToLive, CellKind::Expiring { expires_at, .. }) => {
            Some(i64::from(expires_at.saturating_sub(now)))
        }
        (CellFunction::TimeToLive, _) => None,
        _ => Some(cell.timestamp),
    };
    let mut cells = cells::of(row, column);
    if !column.ty.is_multi_cell() {
        return cells.next().map_or(Stamps::Nothing, |cell| Stamps::Single(stamp(&cell)));
    }
    let CqlType::Udt(udt) = &column.ty else {
        return Stamps::Multiple(cells.map(|cell| stamp(&cell)).collect());
    };
    let mut fields = vec![None; udt.fields.len()];
    let mut any = false;
    for cell in cells {
        let at = cell.path.and_then(|path| <[u8; 2]>::try_from(path).ok()).map(u16::from_be_bytes);
        if let Some(field) = at.and_then(|at| fields.get_mut(usize::from(at))) {
            *field = stamp(&cell);
            any = true;
        }
    }
    if any { Stamps::Multiple(fields) } else { Stamps::Nothing }
}
