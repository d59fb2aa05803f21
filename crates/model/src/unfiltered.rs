//! The stream that a partition is read as: rows, and changes of the range deletion in force.
//!
//! A change at a position gives the deletion in force from there on, [`DeletionTime::LIVE`] for none. In a
//! reversed stream it is in force from there on in reading order. A stream that changes the deletion ends
//! without one.

use crate::clustering::Position;
use crate::deletion::DeletionTime;
use crate::row::RowView;

/// One element of a partition's stream.
#[derive(Debug, Clone, Copy)]
pub enum Unfiltered<'a> {
    /// A row.
    Row {
        /// Its full clustering.
        clustering: &'a [u8],
        /// Its cells.
        row: RowView<'a>,
    },
    /// From `position` on, `deletion` is in force.
    Change {
        /// Its position; the weight is −1 or +1.
        position: Position<'a>,
        /// The deletion in force from there on.
        deletion: DeletionTime,
    },
}

impl<'a> Unfiltered<'a> {
    /// Position of the element.
    pub fn position(&self) -> Position<'a> {
        match self {
            Self::Row { clustering, .. } => Position::row(clustering),
            Self::Change { position, .. } => *position,
        }
    }
}
