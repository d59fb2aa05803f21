//! The stream that a partition is read as: rows, and changes of the range deletion in force.
//!
//! A change at a position says which deletion holds from there on, [`DeletionTime::LIVE`] for none. In a
//! reversed stream it holds from there on in reading order. A stream that changes the deletion ends live.

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
        /// Where; its weight is −1 or +1.
        position: Position<'a>,
        /// What holds from there on.
        deletion: DeletionTime,
    },
}

impl<'a> Unfiltered<'a> {
    /// Where the element stands.
    pub fn position(&self) -> Position<'a> {
        match self {
            Self::Row { clustering, .. } => Position::row(clustering),
            Self::Change { position, .. } => *position,
        }
    }
}
