//! What a read asks for and how rows are handed over.

use std::rc::Rc;

use model::clustering::{Position, Slice};
use model::deletion::LocalSeconds;
use model::partition_key::DecoratedKey;
use model::{RowView, Table, Token};
use smallvec::SmallVec;

use crate::memtable::Shape;

/// Disjoint slices of a partition in ascending clustering order; none asks for the static row alone.
pub type Slices = SmallVec<[Slice; 1]>;

/// One read of one table on one shard.
#[derive(Debug, Clone)]
pub struct ReadCommand {
    /// The table, at the revision the statement was prepared for.
    pub table: Rc<Table>,
    /// Which partitions.
    pub range: PartitionRange,
    /// Which rows of each.
    pub slices: Slices,
    /// Whether rows come from the last to the first.
    pub reversed: bool,
    /// Seconds now: what expired at or before it is not seen.
    pub now: LocalSeconds,
    /// Neither look into the row cache nor fill it (`BYPASS CACHE`).
    pub bypass_cache: bool,
}

impl ReadCommand {
    /// What cursors need to know of it.
    #[inline]
    pub(crate) fn shape(&self) -> Shape<'_> {
        Shape { orders: self.table.clustering_orders(), slices: &self.slices, reversed: self.reversed }
    }
}

/// Which partitions a read covers.
#[derive(Debug, Clone)]
pub enum PartitionRange {
    /// One.
    Key(DecoratedKey),
    /// All between two bounds, in token order.
    Between {
        /// Where they begin.
        from: PartitionBound,
        /// Where they end.
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

/// An end of a range of partitions: at a token (before or behind all its keys), or at one key of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionBound {
    /// Token.
    pub token: Token,
    /// One key with that token; `None` speaks of all of them.
    pub key: Option<Vec<u8>>,
    /// Whether what stands at the bound belongs to the range.
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

/// What the receiver of rows wants next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// More of the same partition.
    Continue,
    /// The next partition.
    SkipPartition,
    /// Nothing more.
    Stop,
}

/// What a read passes that nobody sees: the dead between the living.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dead {
    /// Tombstones as Cassandra counts them for `tombstone_warn_threshold`: dead cells, deleted rows that leave none and
    /// changes of range deletions, of those within `gc_grace_seconds`.
    pub tombstones: u32,
    /// What had to be gone past, whatever its age: every such thing and every partition without a live row.
    pub passed: u32,
}

/// A place in a read, everything before which has been read.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Token of the partition.
    pub token: Token,
    /// Its key.
    pub key: &'a [u8],
    /// Where in it, in reading order; `None` at its end.
    pub position: Option<Position<'a>>,
}

/// Receives what a read finds: partitions in token order, rows in the order asked for.
///
/// Rows are live at the command's `now`: deletions are applied, expired and deleted cells are gone, cells of dropped
/// columns too. A partition is announced before its first live row, or at its end where only its static row has
/// live cells; `partition_end` follows each announced one unless the receiver stopped.
pub trait RowConsumer {
    /// A partition begins.
    fn partition(&mut self, key: &[u8], token: Token, static_row: Option<RowView<'_>>) -> Flow;
    /// One row of it.
    fn row(&mut self, clustering: &[u8], row: RowView<'_>) -> Flow;
    /// It ends.
    fn partition_end(&mut self) -> Flow;
    /// Dead things stood before `place`, behind what was handed over last. May come inside a partition that is not
    /// announced (yet). Those who end their reads for it can go on behind the place.
    fn dead(&mut self, dead: Dead, place: Place<'_>) -> Flow {
        let _ = (dead, place);
        Flow::Continue
    }
}

impl PartitionBound {
    /// The same bound as table files know it.
    pub(crate) fn as_place(&self, begins: bool) -> sstable::PartitionBound {
        match (&self.key, self.inclusive == begins) {
            (None, true) => sstable::PartitionBound::before_token(self.token),
            (None, false) => sstable::PartitionBound::behind_token(self.token),
            (Some(key), true) => sstable::PartitionBound::before_key(self.token, key),
            (Some(key), false) => sstable::PartitionBound::behind_key(self.token, key),
        }
    }
}
