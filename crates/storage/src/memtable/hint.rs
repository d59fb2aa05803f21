//! The first eight bytes of an order, so that trees compare numbers before they compare keys.
//!
//! Law (held by a property test): `a < b` implies `hint(a) <= hint(b)`. A type whose order is not that of a
//! fixed-width number or of its bytes gets one hint for all values.

use model::clustering::{ClusteringOrder, Position};
use model::{CqlType, Token};

/// Hint of a partition's place.
#[inline]
pub(crate) fn of_token(token: Token) -> u64 {
    (token.0 as u64) ^ (1 << 63)
}

/// Hint of a place between rows.
#[inline]
pub(crate) fn of_position(position: Position<'_>, orders: &[ClusteringOrder]) -> u64 {
    let (Some(order), Some(first)) = (orders.first(), position.prefix.components().next()) else {
        return if position.weight > 0 { u64::MAX } else { 0 };
    };
    let natural = first.map_or(0, |value| of_value(&order.ty, value));
    if order.reversed { !natural } else { natural }
}

#[inline]
fn of_value(ty: &CqlType, value: &[u8]) -> u64 {
    match ty {
        // Two's complement, whatever the length: the sign bit turned, these are bytes too.
        CqlType::Int | CqlType::Bigint | CqlType::Timestamp => match value.is_empty() {
            true => 0,
            false => first_bytes(value) ^ (1 << 63),
        },
        CqlType::Text | CqlType::Ascii | CqlType::Blob => first_bytes(value),
        _ => 0,
    }
}

fn first_bytes(value: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let length = value.len().min(8);
    bytes[..length].copy_from_slice(&value[..length]);
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
#[allow(clippy::disallowed_types)] // proptest's macros name Arc
mod tests {
    use super::*;
    use model::clustering::append_component;
    use proptest::prelude::*;
    use std::cmp::Ordering;

    fn value() -> impl Strategy<Value = (Option<Vec<u8>>, i8)> {
        let bytes = prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..10),
            any::<i32>().prop_map(|n| n.to_be_bytes().to_vec()),
            any::<i64>().prop_map(|n| n.to_be_bytes().to_vec()),
        ];
        (proptest::option::weighted(0.9, bytes), -1i8..=1)
    }

    proptest! {
        #[test]
        fn a_hint_never_contradicts_the_order(a in value(), b in value(), reversed: bool, empty in 0u8..8) {
            for ty in [CqlType::Int, CqlType::Bigint, CqlType::Timestamp, CqlType::Text, CqlType::Blob,
                CqlType::Ascii, CqlType::Uuid, CqlType::Double] {
                let orders = [ClusteringOrder { ty, reversed }];
                let prefix = |value: &Option<Vec<u8>>, none: bool| {
                    let mut prefix = Vec::new();
                    if !none {
                        append_component(&mut prefix, value.as_deref());
                    }
                    prefix
                };
                let (p, q) = (prefix(&a.0, empty == 0 && a.1 != 0), prefix(&b.0, empty == 1 && b.1 != 0));
                let x = Position { prefix: model::Clustering(&p), weight: a.1 };
                let y = Position { prefix: model::Clustering(&q), weight: b.1 };
                let (hx, hy) = (of_position(x, &orders), of_position(y, &orders));
                match x.compare(y, &orders) {
                    Ordering::Less => prop_assert!(hx <= hy),
                    Ordering::Greater => prop_assert!(hx >= hy),
                    Ordering::Equal => {}
                }
            }
        }
    }
}
