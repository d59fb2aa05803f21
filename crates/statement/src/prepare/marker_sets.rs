//! The usual write, recognised when it is prepared: columns of one cell, each given the value of a marker.
//!
//! All other possibilities of operations and terms are excluded here once, so that an execution only handles
//! values. `execute/marker_row` turns them into a row. Invariant: sets are ordered by column id, each column
//! once.

use model::validate::{ValueError, validate};
use model::{Column, ColumnId, CqlType};

use super::operation::{Action, Operation};
use crate::terms::Term;

/// A column that takes the value of a marker.
#[derive(Debug)]
pub struct MarkerSet {
    /// The column.
    pub column: ColumnId,
    /// Place among the markers.
    pub marker: usize,
    ty: CqlType,
    always_valid: AlwaysValid,
}

/// Values that need no validation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AlwaysValid {
    All,
    OfLength(usize),
    Unknown,
}

impl MarkerSet {
    /// Checks that a value is one of the column's type.
    ///
    /// # Errors
    /// As [`validate`].
    #[inline]
    pub fn check(&self, value: &[u8]) -> Result<(), ValueError> {
        match self.always_valid {
            AlwaysValid::All => Ok(()),
            AlwaysValid::OfLength(bytes) if value.len() == bytes => Ok(()),
            _ => validate(&self.ty, value),
        }
    }
}

/// The sets of operations, ordered by column id; `None` if an operation is anything else.
pub fn of(operations: &[Operation]) -> Option<Box<[MarkerSet]>> {
    let in_order = operations.windows(2).all(|pair| pair[0].column.id < pair[1].column.id);
    let sets = operations.iter().map(|operation| match &operation.action {
        Action::Set(Term::Marker { index, ty }) if !operation.column.ty.is_multi_cell() => Some(MarkerSet {
            column: operation.column.id,
            marker: *index,
            ty: ty.clone(),
            always_valid: always_valid(ty),
        }),
        _ => None,
    });
    if in_order { sets.collect() } else { None }
}

/// The key, if it is the value of one marker; `None` if the term is anything else.
pub fn key_of(column: &Column, term: &Term) -> Option<MarkerSet> {
    match term {
        Term::Marker { index, ty } => Some(MarkerSet {
            column: column.id,
            marker: *index,
            ty: ty.clone(),
            always_valid: always_valid(ty),
        }),
        _ => None,
    }
}

fn always_valid(ty: &CqlType) -> AlwaysValid {
    match ty {
        CqlType::Blob => AlwaysValid::All,
        CqlType::Int | CqlType::Float => AlwaysValid::OfLength(4),
        CqlType::Bigint | CqlType::Double | CqlType::Timestamp => AlwaysValid::OfLength(8),
        CqlType::Uuid => AlwaysValid::OfLength(16),
        _ => AlwaysValid::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_no_look_is_valid() {
        use CqlType::{
            Ascii, Bigint, Blob, Boolean, Date, Decimal, Double, Duration, Float, Inet, Int, Smallint, Text,
            Time, Timestamp, Timeuuid, Tinyint, Uuid, Varint,
        };
        for ty in [
            Ascii, Bigint, Blob, Boolean, Date, Decimal, Double, Duration, Float, Inet, Int, Smallint, Text,
            Time, Timestamp, Timeuuid, Tinyint, Uuid, Varint,
        ] {
            let set = MarkerSet { column: ColumnId(1), marker: 0, always_valid: always_valid(&ty), ty };
            for length in 0..20 {
                for byte in [0, 0x11, 0x7f, 0xff] {
                    let value = vec![byte; length];
                    assert_eq!(set.check(&value), validate(&set.ty, &value), "{} {value:?}", set.ty);
                }
            }
        }
    }
}
