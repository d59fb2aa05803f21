//! The parameters of a read, and the interface through which rows are handed over.

use std::rc::Rc;

use model::clustering::{Position, Slice};
use model::deletion::LocalSeconds;
use model::partition_key::DecoratedKey;
use model::{RowView, Table, Token};
use smallvec::SmallVec;

use crate::memtable::Shape;

/// Disjoint slices of a partition in ascending clustering order; an empty list asks for the static row alone.
pub type Slices = SmallVec<[Slice; 1]>;

/// One read of one table on one shard.
#[derive(Debug, Clone)]
pub struct ReadCommand {
    /// The table, at the revision the statement was prepared for.
    pub table: Rc<Table>,
    /// The partitions.
    pub range: PartitionRange,
    /// The rows of each partition.
    pub slices: Slices,
    /// Whether rows come from the last to the first.
    pub reversed: bool,
    /// The present time, seconds: data that expired at or before it is not visible.
    pub now: LocalSeconds,
    /// Neither look into the row cache nor fill it (`BYPASS CACHE`).
    pub bypass_cache: bool,
}

impl ReadCommand {
    /// The parameters that cursors need.
    #[inline]
    pub(crate) fn shape(&self) -> Shape<'_> {
        Shape { orders: self.table.clustering_orders(), slices: &self.slices, reversed: self.reversed }
    }
}

/// The partitions a read covers.
#[derive(Debug, Clone)]
pub enum PartitionRange {
    /// One.
    Key(DecoratedKey),
    /// All between two bounds, in token order.
    Between {
        /// First bound.
        from: PartitionBound,
        /// Last bound.
        to: PartitionBound,
    },
}

impl PartitionRange {
    /// Every partition.
    pub fn all() -> Self {
        Self::Between {
            from: PartitionBound { token: Token::MINIMUM, key: None, inclusive: true },
            to: PartitionBound { token: Token::MAXIMUM, key: None, inclusive: true },
        }
    }
}

/// A bound of a range of partitions: at a token (before or behind all its keys), or at one key of the token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionBound {
    /// Token.
    pub token: Token,
    /// One key with that token; `None` for all of them.
    pub key: Option<Vec<u8>>,
    /// Whether partitions at the bound belong to the range.
    pub inclusive: bool,
}

impl PartitionBound {
    /// Whether a partition lies on or behind this bound, taken as the beginning of a range.
    #[inline]
    pub(crate) fn begins_before(&self, token: Token, key: &[u8]) -> bool {
        let order = token.cmp(&self.token).then_with(|| match &self.key {
            Some(bound) => key.cmp(bound.as_slice()),
            None => std::cmp::Ordering::Equal,
        });
        order.is_gt() || (self.inclusive && order.is_eq())
    }

    /// Whether a partition lies on or before this bound, taken as the end of a range.
    #[inline]
    pub(crate) fn ends_behind(&self, token: Token, key: &[u8]) -> bool {
        let order = token.cmp(&self.token).then_with(|| match &self.key {
            Some(bound) => key.cmp(bound.as_slice()),
            None => std::cmp::Ordering::Equal,
        });
        order.is_lt() || (self.inclusive && order.is_eq())
    }
}

/// The next step that the receiver of rows asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// More of the same partition.
    Continue,
    /// The next partition.
    SkipPartition,
    /// Nothing more.
    Stop,
}

/// Counts of dead data that a read passes and does not hand over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dead {
    /// Tombstones as Cassandra counts them for `tombstone_warn_threshold`: dead cells, deleted rows without a
    /// live cell, and changes of range deletions, if they are within `gc_grace_seconds`.
    pub tombstones: u32,
    /// Dead items the read had to pass, of any age: each of the above, and each partition without a live row.
    pub passed: u32,
}

/// A place in a read; everything before it has been read.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Token of the partition.
    pub token: Token,
    /// Its key.
    pub key: &'a [u8],
    /// Position in the partition, in reading order; `None` at its end.
    pub position: Option<Position<'a>>,
}

/// Receives the results of a read: partitions in token order, rows in the requested order.
///
/// Rows are live at the command's `now`: deletions are applied; expired cells, deleted cells and cells of
/// dropped columns are left out. A partition is announced before its first live row, or at its end if only
/// its static row has live cells; `partition_end` follows each announced partition unless the receiver
/// stopped.
pub trait RowConsumer {
    /// A partition begins.
    fn partition(&mut self, key: &[u8], token: Token, static_row: Option<RowView<'_>>) -> Flow;
    /// A row of the partition.
    fn row(&mut self, clustering: &[u8], row: RowView<'_>) -> Flow;
    /// The partition ends.
    fn partition_end(&mut self) -> Flow;
    /// Reports dead data between the last row that was handed over and `place`. It may come inside a
    /// partition that is not announced (yet). A receiver that ends its read because of it can continue behind
    /// `place`.
    fn dead(&mut self, dead: Dead, place: Place<'_>) -> Flow {
        let _ = (dead, place);
        Flow::Continue
    }
}

impl PartitionBound {
    /// The same bound in the form that table files use.
    pub(crate) fn as_place(&self, begins: bool) -> sstable::PartitionBound {
        match (&self.key, self.inclusive == begins) {
            (None, true) => sstable::PartitionBound::before_token(self.token),
            (None, false) => sstable::PartitionBound::behind_token(self.token),
            (Some(key), true) => sstable::PartitionBound::before_key(self.token, key),
            (Some(key), false) => sstable::PartitionBound::behind_key(self.token, key),
        }
    }
}
