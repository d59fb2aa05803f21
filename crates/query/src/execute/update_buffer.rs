//! Collects one request's writes to one partition and makes one mutation of them.
//!
//! Statements of a batch on the same partition become one mutation, so that it is applied as a whole. Buffers
//! are kept between requests: a single-row write allocates nothing here once they have grown.

use std::ops::Range;
use std::rc::Rc;

use model::clustering::{Clustering, Slice};
use model::mutation::MutationBuilder;
use model::partition_key::DecoratedKey;
use model::{DeletionTime, RowView, Table, Token, reconcile};

const LIVENESS_BYTES: usize = 8;
const ROW_DELETION_BYTES: usize = 13;

/// A row without its clustering, in Cassandra's count.
fn row_bytes(row: RowView<'_>) -> usize {
    let marker = LIVENESS_BYTES + if row.liveness().ttl == 0 { 0 } else { 12 };
    let mut last = None;
    let cells: usize = row
        .cells()
        .map(|cell| {
            // The deletion of a collection counts even if there is none.
            let complex = cell.path.is_some() || cell.collection_deletion().is_some();
            let first = complex && last.replace(cell.column) != Some(cell.column);
            let deletion = if first { 12 } else { 0 };
            if cell.collection_deletion().is_some() {
                return deletion;
            }
            deletion + 20 + cell.value().map_or(0, <[u8]>::len) + cell.path.map_or(0, <[u8]>::len)
        })
        .sum();
    marker + ROW_DELETION_BYTES + cells
}

/// Writes to one partition.
#[derive(Debug)]
pub struct PartitionUpdate {
    /// The table.
    pub table: Rc<Table>,
    /// Token of the key.
    pub token: Token,
    /// Stored key.
    pub key: Vec<u8>,
    deletion: DeletionTime,
    /// One row, or none.
    static_row: Vec<u8>,
    merged: Vec<u8>,
    tombstones: Vec<(Slice, DeletionTime)>,
    rows: Vec<(Range<usize>, Range<usize>)>,
    arena: Vec<u8>,
}

impl PartitionUpdate {
    /// No writes yet.
    pub fn new(table: Rc<Table>) -> Self {
        Self {
            table,
            token: Token::MINIMUM,
            key: Vec::new(),
            deletion: DeletionTime::LIVE,
            static_row: Vec::new(),
            merged: Vec::new(),
            tombstones: Vec::new(),
            rows: Vec::new(),
            arena: Vec::new(),
        }
    }

    /// Makes it ready for another partition, keeping its buffers.
    pub fn reset(&mut self, table: &Rc<Table>) {
        if !Rc::ptr_eq(&self.table, table) {
            self.table = Rc::clone(table);
        }
        self.token = Token::MINIMUM;
        self.deletion = DeletionTime::LIVE;
        self.key.clear();
        self.static_row.clear();
        self.tombstones.clear();
        self.rows.clear();
        self.arena.clear();
    }

    /// Names the partition.
    pub fn set_key(&mut self, key: &DecoratedKey) {
        self.token = key.token;
        self.key.clear();
        self.key.extend_from_slice(&key.key);
    }

    /// Whether nothing is written.
    pub fn is_empty(&self) -> bool {
        self.deletion.is_live()
            && self.static_row.is_empty()
            && self.tombstones.is_empty()
            && self.rows.is_empty()
    }

    /// Bytes gathered so far.
    pub fn len(&self) -> usize {
        self.key.len() + self.static_row.len() + self.arena.len()
    }

    /// The rows that are written, the static one first.
    pub fn written_rows(&self) -> impl Iterator<Item = RowView<'_>> {
        let static_row = (!self.static_row.is_empty()).then(|| RowView::trusted(&self.static_row));
        let rows = self.rows.iter().map(|(_, row)| RowView::trusted(&self.arena[row.clone()]));
        rows.chain(static_row)
    }

    /// Its size for limits on batches: that of Cassandra's `PartitionUpdate.dataSize`.
    pub fn data_bytes(&self) -> usize {
        let prefix = |bytes: &[u8]| Clustering(bytes).components().flatten().map(<[u8]>::len).sum::<usize>();
        let ranges: usize = self
            .tombstones
            .iter()
            .map(|(slice, _)| prefix(&slice.start.prefix) + prefix(&slice.end.prefix) + 12)
            .sum();
        let rows: usize = self
            .rows
            .iter()
            .map(|(clustering, row)| {
                prefix(&self.arena[clustering.clone()])
                    + row_bytes(RowView::trusted(&self.arena[row.clone()]))
            })
            .sum();
        let static_row = match self.static_row.as_slice() {
            [] => LIVENESS_BYTES + ROW_DELETION_BYTES,
            row => row_bytes(RowView::trusted(row)),
        };
        8 + if self.tombstones.is_empty() { 0 } else { 4 + ranges } + static_row + rows
    }

    /// Deletes the partition.
    pub fn delete_partition(&mut self, deletion: DeletionTime) {
        self.deletion = reconcile::deletion(self.deletion, deletion);
    }

    /// Deletes a range of rows.
    pub fn delete_range(&mut self, slice: Slice, deletion: DeletionTime) {
        self.tombstones.push((slice, deletion));
    }

    /// Adds a row that `write` appends; `write` returns whether there is one.
    ///
    /// # Errors
    /// Those of `write`; nothing is added then.
    #[inline]
    pub fn row<E>(
        &mut self,
        clustering: &[u8],
        write: impl FnOnce(&Table, &mut Vec<u8>) -> Result<bool, E>,
    ) -> Result<(), E> {
        let start = self.arena.len();
        self.arena.extend_from_slice(clustering);
        let middle = self.arena.len();
        match write(&self.table, &mut self.arena) {
            Ok(true) => {
                self.rows.push((start..middle, middle..self.arena.len()));
                Ok(())
            }
            other => {
                self.arena.truncate(start);
                other.map(drop)
            }
        }
    }

    /// Adds to the static row, merging with the present one.
    ///
    /// # Errors
    /// Those of `write`; nothing is added then.
    pub fn static_row<E>(
        &mut self,
        write: impl FnOnce(&Table, &mut Vec<u8>) -> Result<bool, E>,
    ) -> Result<(), E> {
        let start = self.arena.len();
        let written = write(&self.table, &mut self.arena);
        if let Ok(true) = written {
            let added = RowView::trusted(&self.arena[start..]);
            self.merged.clear();
            if self.static_row.is_empty() {
                self.merged.extend_from_slice(added.as_bytes());
            } else {
                reconcile::merge_rows(
                    &self.table,
                    RowView::trusted(&self.static_row),
                    added,
                    &mut self.merged,
                );
            }
            std::mem::swap(&mut self.static_row, &mut self.merged);
        }
        self.arena.truncate(start);
        written.map(drop)
    }

    /// Appends the mutation.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        let static_row = |out: &mut Vec<u8>| out.extend_from_slice(&self.static_row);
        let mut builder =
            MutationBuilder::new(out, self.table.id(), self.token, &self.key, self.deletion, static_row);
        for (slice, deletion) in &self.tombstones {
            builder.range_tombstone(slice.start.as_ref(), slice.end.as_ref(), *deletion);
        }
        let mut rows = builder.rows();
        for (clustering, row) in &self.rows {
            rows.row(&self.arena[clustering.clone()], |out| out.extend_from_slice(&self.arena[row.clone()]));
        }
        rows.finish();
    }
}
