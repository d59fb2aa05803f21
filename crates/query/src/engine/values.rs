//! The values of a request, in the order of a statement's markers.

use smallvec::SmallVec;
use statement::terms::order;
use wire::values::{ValueRef, Values};

use crate::QueryError;
use crate::prepared::Prepared;

/// Values of a request, by marker.
pub type BoundValues<'a> = SmallVec<[ValueRef<'a>; 32]>;

/// The request's values in the order of the markers.
pub(crate) fn bind_values<'a>(
    values: &Values<'a>,
    prepared: &Prepared,
) -> Result<BoundValues<'a>, QueryError> {
    let mut bound = BoundValues::new();
    bind_values_into(values, prepared, &mut bound)?;
    Ok(bound)
}

/// As [`bind_values`], but into an existing empty list: returning a list by value would move it.
pub(super) fn bind_values_into<'a>(
    values: &Values<'a>,
    prepared: &Prepared,
    bound: &mut BoundValues<'a>,
) -> Result<(), QueryError> {
    let markers = &prepared.markers;
    if values.is_named() {
        for marker in markers {
            match values.by_name(&marker.name) {
                Some(value) => bound.push(value),
                None => break,
            }
        }
    } else {
        values.for_each(|value| bound.push(value));
    }
    check_count(bound, prepared)
}

/// Whether there are as many values as markers.
#[inline]
pub(super) fn check_count(bound: &[ValueRef<'_>], prepared: &Prepared) -> Result<(), QueryError> {
    let markers = prepared.markers.len();
    if bound.len() == markers { Ok(()) } else { Err(wrong_count(markers, bound.len())) }
}

#[cold]
fn wrong_count(markers: usize, bound: usize) -> QueryError {
    QueryError::Invalid(format!("there were {markers} markers(?) in CQL but {bound} bound variables"))
}

/// Values that were put in order, each with its marker.
pub(super) type Ordered = Vec<(usize, Vec<u8>)>;

/// The values of sets and maps that were not sent in order, in order.
pub(super) async fn ordered(prepared: &Prepared, values: &[ValueRef<'_>]) -> Ordered {
    let mut ordered = Vec::new();
    for &at in &prepared.ordered_markers {
        if let (ValueRef::Bytes(value), Some(marker)) = (values[at], prepared.markers.get(at))
            && let Some(value) = order::in_order(&marker.ty, value).await
        {
            ordered.push((at, value));
        }
    }
    ordered
}

/// The values, those among `ordered` as they are there.
pub(super) fn with_ordered<'a>(values: &[ValueRef<'a>], ordered: &'a Ordered) -> BoundValues<'a> {
    let mut values = BoundValues::from_slice(values);
    for (at, value) in ordered {
        values[*at] = ValueRef::Bytes(value);
    }
    values
}
