//! The order of serialised values: of clustering keys, collection cells, map keys and whatever `ORDER BY`
//! sorts.
//!
//! The order of valid values is that of Cassandra 5.0's `AbstractType.compare`; files written there are read
//! under the assumption that their rows are sorted this way. It is a total preorder on *all* byte strings: a
//! value of wrong shape has a place too (after the empty value and before proper ones, or, as a part of a
//! collection or tuple, after proper ones), because a corrupt cell must not make sorting or merging panic or
//! loop.
//!
//! [`compare`] interprets the type each time; [`Comparator`] is the same order resolved once, for hot use.

use std::cmp::Ordering;

use crate::collection::{LENGTH_BYTES, take_element, take_vector_element};
use crate::marshal;
use crate::number::{compare_decimal, compare_varint};
use crate::timeuuid::ordered_time;
use crate::types::CqlType;

/// Orders two serialised values of type `ty`.
pub fn compare(ty: &CqlType, a: &[u8], b: &[u8]) -> Ordering {
    match ty {
        CqlType::List { element, .. } | CqlType::Set { element, .. } => {
            compare_counted(1, a, b, |_, a, b| compare(element, a, b))
        }
        CqlType::Map { key, value, .. } => {
            compare_counted(2, a, b, |part, a, b| compare(if part % 2 == 0 { key } else { value }, a, b))
        }
        CqlType::Tuple(components) => compare_components(a, b, |part, a, b| match components.get(part) {
            Some(component) => compare(component, a, b),
            None => a.cmp(b),
        }),
        CqlType::Udt(udt) => compare_components(a, b, |part, a, b| match udt.fields.get(part) {
            Some((_, field)) => compare(field, a, b),
            None => a.cmp(b),
        }),
        CqlType::Vector { element, dimension } => {
            compare_vectors(element.fixed_value_length(), *dimension, a, b, |a, b| compare(element, a, b))
        }
        scalar => Scalar::of(scalar).compare(a, b),
    }
}

/// The order of one type, resolved once.
#[derive(Debug, Clone)]
pub struct Comparator(Node);

#[derive(Debug, Clone)]
enum Node {
    Scalar(Scalar),
    Sequence(Box<Node>),
    Map(Box<(Node, Node)>),
    Components(Box<[Node]>),
    Vector { element: Box<Node>, fixed_length: Option<usize>, dimension: u32 },
    Reversed(Box<Node>),
}

impl Comparator {
    /// The order of `ty`, the same as [`compare`]'s.
    pub fn of(ty: &CqlType) -> Self {
        Self(Node::of(ty))
    }

    /// The order of a clustering column: `ty`'s, backwards when the column is declared `DESC`.
    pub fn of_clustering(ty: &CqlType, reversed: bool) -> Self {
        let node = Node::of(ty);
        Self(if reversed { Node::Reversed(Box::new(node)) } else { node })
    }

    /// Orders two serialised values.
    #[inline]
    pub fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        match &self.0 {
            Node::Scalar(scalar) => scalar.compare(a, b),
            node => node.compare(a, b),
        }
    }

    /// Whether the order is that of the bytes themselves, so that a caller may compare without asking.
    pub fn is_byte_order(&self) -> bool {
        matches!(self.0, Node::Scalar(Scalar::Bytes))
    }
}

impl Node {
    fn of(ty: &CqlType) -> Self {
        match ty {
            CqlType::List { element, .. } | CqlType::Set { element, .. } => {
                Self::Sequence(Box::new(Self::of(element)))
            }
            CqlType::Map { key, value, .. } => Self::Map(Box::new((Self::of(key), Self::of(value)))),
            CqlType::Tuple(components) => Self::Components(components.iter().map(Self::of).collect()),
            CqlType::Udt(udt) => {
                Self::Components(udt.fields.iter().map(|(_, field)| Self::of(field)).collect())
            }
            CqlType::Vector { element, dimension } => Self::Vector {
                element: Box::new(Self::of(element)),
                fixed_length: element.fixed_value_length(),
                dimension: *dimension,
            },
            scalar => Self::Scalar(Scalar::of(scalar)),
        }
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Self::Scalar(scalar) => scalar.compare(a, b),
            Self::Sequence(element) => compare_counted(1, a, b, |_, a, b| element.compare(a, b)),
            Self::Map(entry) => compare_counted(2, a, b, |part, a, b| {
                let node = if part % 2 == 0 { &entry.0 } else { &entry.1 };
                node.compare(a, b)
            }),
            Self::Components(components) => {
                compare_components(a, b, |part, a, b| match components.get(part) {
                    Some(component) => component.compare(a, b),
                    None => a.cmp(b),
                })
            }
            Self::Vector { element, fixed_length, dimension } => {
                compare_vectors(*fixed_length, *dimension, a, b, |a, b| element.compare(a, b))
            }
            Self::Reversed(node) => node.compare(b, a),
        }
    }
}

/// The order of a type without parts.
#[derive(Debug, Clone, Copy)]
enum Scalar {
    /// Unsigned bytes, shorter first.
    Bytes,
    /// Two's complement of one fixed length: tinyint, smallint, int, bigint, timestamp.
    Signed,
    Boolean,
    Float,
    Double,
    Decimal,
    Varint,
    Uuid,
    Timeuuid,
    /// The class `LexicalUUIDType`: both halves as signed integers.
    LexicalUuid,
}

impl Scalar {
    fn of(ty: &CqlType) -> Self {
        match ty {
            CqlType::Tinyint | CqlType::Smallint | CqlType::Int | CqlType::Bigint | CqlType::Timestamp => {
                Self::Signed
            }
            CqlType::Boolean => Self::Boolean,
            CqlType::Float => Self::Float,
            CqlType::Double => Self::Double,
            CqlType::Decimal => Self::Decimal,
            CqlType::Varint => Self::Varint,
            CqlType::Uuid => Self::Uuid,
            CqlType::Timeuuid => Self::Timeuuid,
            CqlType::Custom(class) => match class.strip_prefix(marshal::PACKAGE).unwrap_or(class) {
                "LexicalUUIDType" => Self::LexicalUuid,
                "LegacyTimeUUIDType" => Self::Timeuuid,
                _ => Self::Bytes,
            },
            // Counters and durations have no order in CQL; bytes serve where some order is needed.
            _ => Self::Bytes,
        }
    }

    #[inline]
    fn compare(self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Self::Bytes => a.cmp(b),
            Self::Signed => compare_signed(a, b),
            Self::Boolean => a.first().map(|byte| *byte != 0).cmp(&b.first().map(|byte| *byte != 0)),
            Self::Float => compare_fixed(a, b, |a: [u8; 4]| float_key(f32::from_be_bytes(a))),
            Self::Double => compare_fixed(a, b, |a: [u8; 8]| double_key(f64::from_be_bytes(a))),
            Self::Decimal => compare_decimal(a, b),
            Self::Varint => compare_varint(a, b),
            Self::Uuid => compare_fixed(a, b, uuid_key),
            Self::Timeuuid => compare_fixed(a, b, timeuuid_key),
            Self::LexicalUuid => compare_fixed(a, b, |bytes| {
                let (high, low) = halves(bytes);
                (high as i64, low as i64)
            }),
        }
    }
}

/// The first byte signed, the others unsigned: two's complement for equal lengths, an order for all.
#[inline]
fn compare_signed(a: &[u8], b: &[u8]) -> Ordering {
    if let (Ok(a), Ok(b)) = (<[u8; 8]>::try_from(a), <[u8; 8]>::try_from(b)) {
        return i64::from_be_bytes(a).cmp(&i64::from_be_bytes(b));
    }
    if let (Ok(a), Ok(b)) = (<[u8; 4]>::try_from(a), <[u8; 4]>::try_from(b)) {
        return i32::from_be_bytes(a).cmp(&i32::from_be_bytes(b));
    }
    let first = |bytes: &[u8]| bytes.first().map(|byte| *byte as i8);
    first(a).cmp(&first(b)).then_with(|| a.cmp(b))
}

/// Orders values of `N` bytes by `key`; before them the empty value, then other lengths by their bytes.
#[inline]
fn compare_fixed<const N: usize, K: Ord>(a: &[u8], b: &[u8], key: impl Fn([u8; N]) -> K) -> Ordering {
    match (<[u8; N]>::try_from(a), <[u8; N]>::try_from(b)) {
        (Ok(a), Ok(b)) => key(a).cmp(&key(b)),
        (Ok(_), Err(_)) => Ordering::Greater,
        (Err(_), Ok(_)) => Ordering::Less,
        (Err(_), Err(_)) => a.cmp(b),
    }
}

/// Orders as Java's `Float.compare`: -0.0 before 0.0, all NaN equal and last.
fn float_key(value: f32) -> i32 {
    let bits = if value.is_nan() { f32::NAN.to_bits() & i32::MAX as u32 } else { value.to_bits() } as i32;
    bits ^ (((bits >> 31) as u32) >> 1) as i32
}

/// Orders as Java's `Double.compare`: -0.0 before 0.0, all NaN equal and last.
fn double_key(value: f64) -> i64 {
    let bits = if value.is_nan() { f64::NAN.to_bits() & i64::MAX as u64 } else { value.to_bits() } as i64;
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

fn halves(bytes: [u8; 16]) -> (u64, u64) {
    let value = u128::from_be_bytes(bytes);
    ((value >> 64) as u64, value as u64)
}

/// Version first; version 1 by time, others by bytes; then the last eight bytes unsigned.
fn uuid_key(bytes: [u8; 16]) -> (u8, u64, u64) {
    let (high, low) = halves(bytes);
    let version = (high >> 12 & 0xf) as u8;
    (version, if version == 1 { ordered_time(high) } else { high }, low)
}

/// Time, then the last eight bytes as signed bytes (unlike [`uuid_key`], for compatibility: CASSANDRA-8730).
fn timeuuid_key(bytes: [u8; 16]) -> (i64, u64) {
    let (high, low) = halves(bytes);
    (ordered_time(high) as i64, low ^ 0x8080_8080_8080_8080)
}

/// One part of a value under comparison. The variants' order is the order of parts: a missing or null part
/// comes first, one that is cut comes last and ends its value.
enum Part<'a> {
    Missing,
    Value(&'a [u8]),
    Cut(&'a [u8]),
}

impl<'a> Part<'a> {
    fn cut(rest: &mut &'a [u8]) -> Self {
        Self::Cut(std::mem::take(rest))
    }

    fn element(rest: &mut &'a [u8]) -> Self {
        match take_element(rest) {
            Some(None) => Self::Missing,
            Some(Some(bytes)) => Self::Value(bytes),
            None => Self::cut(rest),
        }
    }

    fn compare(&self, other: &Self, values: impl FnOnce(&[u8], &[u8]) -> Ordering) -> Ordering {
        let rank = |part: &Self| match part {
            Self::Missing => 0,
            Self::Value(_) => 1,
            Self::Cut(_) => 2,
        };
        match (self, other) {
            (Self::Value(a), Self::Value(b)) => values(a, b),
            (Self::Cut(a), Self::Cut(b)) => a.cmp(b),
            _ => rank(self).cmp(&rank(other)),
        }
    }
}

/// Orders lists, sets (`parts_per_entry` 1) and maps (2): empty first, then part by part, then by count.
fn compare_counted(
    parts_per_entry: i64,
    a: &[u8],
    b: &[u8],
    mut compare_part: impl FnMut(usize, &[u8], &[u8]) -> Ordering,
) -> Ordering {
    if a.is_empty() || b.is_empty() {
        return b.is_empty().cmp(&a.is_empty());
    }
    let (count_a, mut rest_a) = split_count(a);
    let (count_b, mut rest_b) = split_count(b);
    let parts = count_a.min(count_b) * parts_per_entry;
    let mut part = 0;
    while part < parts {
        let (part_a, part_b) = (Part::element(&mut rest_a), Part::element(&mut rest_b));
        // Every part takes bytes, so the walk ends with the bytes and not with a count that lies.
        let ended = matches!(part_a, Part::Cut(_));
        let order = part_a.compare(&part_b, |a, b| compare_part(part as usize, a, b));
        if order.is_ne() {
            return order;
        }
        if ended {
            break;
        }
        part += 1;
    }
    count_a.cmp(&count_b)
}

/// The count of a collection and the bytes after it. A truncated count sorts below all counts, so that
/// nothing is read after it.
fn split_count(value: &[u8]) -> (i64, &[u8]) {
    match value.split_first_chunk::<LENGTH_BYTES>() {
        Some((count, rest)) => (i64::from(i32::from_be_bytes(*count)), rest),
        None => (i64::from(i32::MIN) - 1, &[]),
    }
}

/// Orders tuples and user types: empty first, then part by part; parts that are not there are null.
fn compare_components(
    a: &[u8],
    b: &[u8],
    mut compare_part: impl FnMut(usize, &[u8], &[u8]) -> Ordering,
) -> Ordering {
    if a.is_empty() || b.is_empty() {
        return b.is_empty().cmp(&a.is_empty());
    }
    let (mut rest_a, mut rest_b) = (a, b);
    let mut part = 0;
    while !rest_a.is_empty() || !rest_b.is_empty() {
        let part_a = if rest_a.is_empty() { Part::Missing } else { Part::element(&mut rest_a) };
        let part_b = if rest_b.is_empty() { Part::Missing } else { Part::element(&mut rest_b) };
        let order = part_a.compare(&part_b, |a, b| compare_part(part, a, b));
        if order.is_ne() {
            return order;
        }
        part += 1;
    }
    Ordering::Equal
}

/// Orders vectors element by element; one that ends early comes before one that goes on.
fn compare_vectors(
    fixed_length: Option<usize>,
    dimension: u32,
    a: &[u8],
    b: &[u8],
    mut compare_element: impl FnMut(&[u8], &[u8]) -> Ordering,
) -> Ordering {
    let (mut rest_a, mut rest_b) = (a, b);
    if fixed_length == Some(0) {
        // Such elements take no bytes, so there is nothing to walk.
        return a.cmp(b);
    }
    for _ in 0..dimension {
        if rest_a.is_empty() && rest_b.is_empty() {
            break;
        }
        let part_a = vector_part(&mut rest_a, fixed_length);
        let part_b = vector_part(&mut rest_b, fixed_length);
        let order = part_a.compare(&part_b, &mut compare_element);
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}

fn vector_part<'a>(rest: &mut &'a [u8], fixed_length: Option<usize>) -> Part<'a> {
    if rest.is_empty() {
        return Part::Missing;
    }
    match take_vector_element(rest, fixed_length) {
        Some(bytes) => Part::Value(bytes),
        None => Part::cut(rest),
    }
}

#[cfg(test)]
mod tests;
