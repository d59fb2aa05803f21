//! Functions of collections: their size, keys and values, and aggregates over their elements.

use model::CqlType;
use model::collection::{CollectionBuilder, Elements, Entries};

use super::{Accumulator, AggregateKind};
use crate::StatementError;

fn broken(ty: &CqlType) -> StatementError {
    StatementError::Invalid(format!("A value is no {ty}"))
}

/// The number of elements or entries.
pub(super) fn count(ty: &CqlType, value: &[u8]) -> Result<Vec<u8>, StatementError> {
    let count = match ty {
        CqlType::Map { .. } => Entries::parse(value).map_err(|_| broken(ty))?.remaining(),
        _ => Elements::parse(value).map_err(|_| broken(ty))?.remaining(),
    };
    Ok(i32::try_from(count).unwrap_or(i32::MAX).to_be_bytes().to_vec())
}

/// The keys of a map as a set, or its values as a list.
pub(super) fn of_map(ty: &CqlType, value: &[u8], keys: bool) -> Result<Vec<u8>, StatementError> {
    let mut out = Vec::new();
    let mut builder = CollectionBuilder::begin(&mut out);
    for entry in Entries::parse(value).map_err(|_| broken(ty))? {
        let (key, value) = entry.map_err(|_| broken(ty))?;
        builder.push(if keys { key } else { value });
    }
    builder.finish();
    Ok(out)
}

/// An aggregate over the elements of a set or list.
pub(super) fn aggregate(
    kind: AggregateKind,
    ty: &CqlType,
    value: &[u8],
) -> Result<Option<Vec<u8>>, StatementError> {
    let (CqlType::List { element, .. } | CqlType::Set { element, .. }) = ty else { return Err(broken(ty)) };
    let mut accumulator = Accumulator::new(kind, element);
    for part in Elements::parse(value).map_err(|_| broken(ty))? {
        accumulator.add(Some(part.map_err(|_| broken(ty))?))?;
    }
    Ok(accumulator.result())
}
