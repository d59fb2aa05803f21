//! Clustering keys and positions between them.
//!
//! A clustering prefix is a run of components, each an LEB128 of `length + 1` (0 is null) and the bytes.
//! A position is a prefix and a weight: −1 stands before everything that starts with the prefix, +1 behind
//! it, 0 is the row of that full clustering. Slices and range tombstones are made of positions.
//! Order of components follows the table's clustering types, reversed for DESC columns.

use std::cmp::Ordering;

use crate::{compare::compare, types::CqlType};

/// Longest value of one clustering column.
pub const CLUSTERING_VALUE_BYTES_MAX: usize = 65_535;

/// Appends one component; `None` is null.
pub fn append_component(prefix: &mut Vec<u8>, value: Option<&[u8]>) {
    let Some(value) = value else {
        prefix.push(0);
        return;
    };
    let mut n = value.len() as u64 + 1;
    while n >= 0x80 {
        prefix.push(n as u8 | 0x80);
        n >>= 7;
    }
    prefix.push(n as u8);
    prefix.extend_from_slice(value);
}

/// A borrowed clustering prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Clustering<'a>(pub &'a [u8]);

impl<'a> Clustering<'a> {
    /// The empty prefix: the static row, a table without clustering columns, or an end of the partition.
    pub const EMPTY: Clustering<'static> = Clustering(&[]);

    /// The components, outermost first; ends early where the bytes are not a prefix.
    pub fn components(self) -> ClusteringComponents<'a> {
        ClusteringComponents { rest: self.0 }
    }

    /// Whether the bytes are exactly `count` well-formed components at most.
    pub fn is_valid(self, count: usize) -> bool {
        let mut components = self.components();
        let seen = components.by_ref().count();
        seen <= count && components.rest.is_empty()
    }
}

/// Iterator over the components of a prefix; null comes as `None`.
#[derive(Debug, Clone)]
pub struct ClusteringComponents<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for ClusteringComponents<'a> {
    type Item = Option<&'a [u8]>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (&first, mut rest) = self.rest.split_first()?;
        let mut n = u64::from(first & 0x7f);
        let mut shift = 7;
        let mut byte = first;
        while byte & 0x80 != 0 {
            let (&next, after) = rest.split_first()?;
            if shift > 28 {
                return None;
            }
            n |= u64::from(next & 0x7f) << shift;
            shift += 7;
            byte = next;
            rest = after;
        }
        if n == 0 {
            self.rest = rest;
            return Some(None);
        }
        let length = (n - 1) as usize;
        let value = rest.get(..length)?;
        self.rest = &rest[length..];
        Some(Some(value))
    }
}

/// Type and direction of one clustering column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusteringOrder {
    /// Type of the component.
    pub ty: CqlType,
    /// Whether the table keeps it descending.
    pub reversed: bool,
}

/// Order of two component values of one column; null first.
#[inline]
pub fn compare_component(order: &ClusteringOrder, a: Option<&[u8]>, b: Option<&[u8]>) -> Ordering {
    let natural = match (a, b) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        (Some(a), Some(b)) => compare(&order.ty, a, b),
    };
    if order.reversed { natural.reverse() } else { natural }
}

/// Order of two full clusterings of one table.
#[inline]
pub fn compare_clusterings(orders: &[ClusteringOrder], a: &[u8], b: &[u8]) -> Ordering {
    if a == b {
        return Ordering::Equal;
    }
    Position::row(a).compare(Position::row(b), orders)
}

/// A place in the clustering order of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position<'a> {
    /// Clustering prefix.
    pub prefix: Clustering<'a>,
    /// −1 before all that starts with the prefix, 0 the row itself, +1 behind them.
    pub weight: i8,
}

impl<'a> Position<'a> {
    /// Before every row of the partition.
    pub const START: Position<'static> = Position { prefix: Clustering::EMPTY, weight: -1 };
    /// Behind every row of the partition.
    pub const END: Position<'static> = Position { prefix: Clustering::EMPTY, weight: 1 };

    /// The row with this full clustering.
    pub fn row(clustering: &'a [u8]) -> Self {
        Self { prefix: Clustering(clustering), weight: 0 }
    }

    /// Just before everything that starts with the prefix.
    pub fn before(prefix: &'a [u8]) -> Self {
        Self { prefix: Clustering(prefix), weight: -1 }
    }

    /// Just behind everything that starts with the prefix.
    pub fn after(prefix: &'a [u8]) -> Self {
        Self { prefix: Clustering(prefix), weight: 1 }
    }

    /// Order of two positions of one table.
    pub fn compare(self, other: Position<'_>, orders: &[ClusteringOrder]) -> Ordering {
        let (mut a, mut b) = (self.prefix.components(), other.prefix.components());
        for order in orders {
            match (a.next(), b.next()) {
                (Some(x), Some(y)) => match compare_component(order, x, y) {
                    Ordering::Equal => {}
                    unequal => return unequal,
                },
                // A prefix that ends stands before or behind the longer one by its own weight alone.
                (None, Some(_)) => return if self.weight <= 0 { Ordering::Less } else { Ordering::Greater },
                (Some(_), None) => return if other.weight <= 0 { Ordering::Greater } else { Ordering::Less },
                (None, None) => break,
            }
        }
        self.weight.cmp(&other.weight)
    }

    /// An owned copy.
    pub fn to_owned(self) -> OwnedPosition {
        OwnedPosition { prefix: self.prefix.0.to_vec(), weight: self.weight }
    }
}

/// A position that owns its prefix.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OwnedPosition {
    /// Clustering prefix bytes.
    pub prefix: Vec<u8>,
    /// As in [`Position`].
    pub weight: i8,
}

impl OwnedPosition {
    /// Borrows it.
    pub fn as_ref(&self) -> Position<'_> {
        Position { prefix: Clustering(&self.prefix), weight: self.weight }
    }
}

/// The rows from `start` to `end`: positions strictly between the two (bounds have weight ±1, so that
/// inclusive and exclusive ends need no flags).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// First position.
    pub start: OwnedPosition,
    /// Last position.
    pub end: OwnedPosition,
}

impl Slice {
    /// The whole partition.
    pub fn all() -> Self {
        Self { start: Position::START.to_owned(), end: Position::END.to_owned() }
    }

    /// The rows whose clustering starts with `prefix`; with a full clustering, that row.
    pub fn prefix(prefix: &[u8]) -> Self {
        Self { start: Position::before(prefix).to_owned(), end: Position::after(prefix).to_owned() }
    }

    /// Whether the row at `clustering` lies in the slice.
    pub fn contains(&self, clustering: &[u8], orders: &[ClusteringOrder]) -> bool {
        let row = Position::row(clustering);
        self.start.as_ref().compare(row, orders) == Ordering::Less
            && row.compare(self.end.as_ref(), orders) == Ordering::Less
    }

    /// Whether no row can lie in the slice.
    pub fn is_empty(&self, orders: &[ClusteringOrder]) -> bool {
        self.start.as_ref().compare(self.end.as_ref(), orders) != Ordering::Less
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(values: &[Option<&[u8]>]) -> Vec<u8> {
        let mut out = Vec::new();
        for value in values {
            append_component(&mut out, *value);
        }
        out
    }

    fn orders(reversed: [bool; 2]) -> Vec<ClusteringOrder> {
        reversed.map(|reversed| ClusteringOrder { ty: CqlType::Blob, reversed }).to_vec()
    }

    #[test]
    fn components_come_back() {
        let long = vec![7; 300];
        let bytes = prefix(&[Some(b""), None, Some(&long)]);
        assert_eq!(
            Clustering(&bytes).components().collect::<Vec<_>>(),
            [Some(b"".as_slice()), None, Some(long.as_slice())]
        );
        assert!(Clustering(&bytes).is_valid(3));
        assert!(!Clustering(&bytes[..bytes.len() - 1]).is_valid(3));
        assert!(!Clustering(&bytes).is_valid(2));
    }

    #[test]
    fn bounds_surround_what_starts_with_their_prefix() {
        let orders = orders([false, true]);
        let p = prefix(&[Some(b"m")]);
        let inside = prefix(&[Some(b"m"), Some(b"x")]);
        let less = prefix(&[Some(b"l"), Some(b"x")]);
        let check = |a: Position<'_>, b: Position<'_>, expected| {
            assert_eq!(a.compare(b, &orders), expected);
            assert_eq!(b.compare(a, &orders), expected.reverse());
        };
        check(Position::before(&p), Position::row(&inside), Ordering::Less);
        check(Position::after(&p), Position::row(&inside), Ordering::Greater);
        check(Position::before(&p), Position::row(&less), Ordering::Greater);
        check(Position::START, Position::before(&less), Ordering::Less);
        check(Position::END, Position::after(&inside), Ordering::Greater);
        check(Position::START, Position::END, Ordering::Less);
    }

    #[test]
    fn a_descending_column_turns_the_order() {
        let orders = orders([false, true]);
        let (a, b) = (prefix(&[Some(b"m"), Some(b"a")]), prefix(&[Some(b"m"), Some(b"b")]));
        assert_eq!(compare_clusterings(&orders, &a, &b), Ordering::Greater);
    }
}
