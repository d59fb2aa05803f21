//! The place where a read stopped and its continuation: the rest of one partition, then the range behind it.

use model::clustering::{ClusteringOrder, Position};
use model::partition_key::{DecoratedKey, compare_decorated};
use storage::{PartitionBound, PartitionRange, Slices};

/// Cuts slices to the part after a place in reading order: behind a row, or from a bound between rows on.
pub fn resume_after(slices: &mut Slices, place: Position<'_>, reversed: bool, orders: &[ClusteringOrder]) {
    let bound = match (place.weight, reversed) {
        (0, false) => Position::after(place.prefix.0),
        (0, true) => Position::before(place.prefix.0),
        _ => place,
    };
    if reversed {
        slices.retain(|slice| slice.start.as_ref().compare(place, orders).is_lt());
        if let Some(last) = slices.last_mut()
            && last.end.as_ref().compare(bound, orders).is_gt()
        {
            last.end = bound.to_owned();
        }
    } else {
        slices.retain(|slice| slice.end.as_ref().compare(place, orders).is_gt());
        if let Some(first) = slices.first_mut()
            && first.start.as_ref().compare(bound, orders).is_lt()
        {
            first.start = bound.to_owned();
        }
    }
    slices.retain(|slice| !slice.is_empty(orders));
}

/// The part of a range behind a partition; `None` if there is none.
pub fn behind(range: &PartitionRange, key: &DecoratedKey) -> Option<PartitionRange> {
    let PartitionRange::Between { to, .. } = range else { return None };
    let ended = match &to.key {
        Some(end) => compare_decorated((key.token, &key.key), (to.token, end)).is_ge(),
        None => key.token > to.token || (key.token == to.token && !to.inclusive),
    };
    let from = PartitionBound { token: key.token, key: Some(key.key.clone()), inclusive: false };
    (!ended).then(|| PartitionRange::Between { from, to: to.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::clustering::{Slice, append_component};
    use model::{CqlType, Token};

    #[test]
    fn reading_goes_on_behind_the_last_row() {
        let order = ClusteringOrder { ty: CqlType::Tinyint, reversed: true };
        let row = |n: i8| {
            let mut out = Vec::new();
            append_component(&mut out, Some(&n.to_be_bytes()));
            out
        };
        for (reversed, expected) in [(false, vec![1, 0]), (true, vec![4, 3])] {
            let mut slices = Slices::new();
            slices.push(Slice::all());
            let place = row(2);
            resume_after(&mut slices, Position::row(&place), reversed, std::slice::from_ref(&order));
            let rest: Vec<i8> = (0..5)
                .rev()
                .filter(|n| slices.iter().any(|slice| slice.contains(&row(*n), std::slice::from_ref(&order))))
                .collect();
            assert_eq!(rest, expected, "reversed: {reversed}");
        }
    }

    #[test]
    fn reading_goes_on_from_a_bound_between_rows() {
        let order = ClusteringOrder { ty: CqlType::Tinyint, reversed: false };
        let mut two = Vec::new();
        append_component(&mut two, Some(&[2]));
        for (place, reversed, expected) in [
            (Position::before(&two), false, [false, true, true]),
            (Position::after(&two), false, [false, false, true]),
            (Position::before(&two), true, [true, false, false]),
            (Position::after(&two), true, [true, true, false]),
        ] {
            let mut slices = Slices::new();
            slices.push(Slice::all());
            resume_after(&mut slices, place, reversed, std::slice::from_ref(&order));
            let found = [1u8, 2, 3].map(|n| {
                let mut row = Vec::new();
                append_component(&mut row, Some(&[n]));
                slices.iter().any(|slice| slice.contains(&row, std::slice::from_ref(&order)))
            });
            assert_eq!(found, expected, "{place:?}, reversed: {reversed}");
        }
    }

    #[test]
    fn a_range_ends_behind_its_last_partition() {
        let bound = |token, key: Option<&[u8]>, inclusive| PartitionBound {
            token: Token(token),
            key: key.map(<[u8]>::to_vec),
            inclusive,
        };
        let key = DecoratedKey { token: Token(5), key: b"k".to_vec() };
        let range = |to| PartitionRange::Between { from: bound(0, None, true), to };
        assert!(behind(&range(bound(9, None, true)), &key).is_some());
        assert!(behind(&range(bound(5, None, true)), &key).is_some(), "another key may have the token");
        assert!(behind(&range(bound(5, None, false)), &key).is_none());
        assert!(behind(&range(bound(5, Some(b"k"), true)), &key).is_none());
        assert!(behind(&range(bound(5, Some(b"z"), true)), &key).is_some());
        assert!(behind(&PartitionRange::Key(key.clone()), &key).is_none());
    }
}
