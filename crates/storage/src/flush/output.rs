//! A table file that a flush or a compaction writes: partitions from merges or memtables, with pauses in
//! between.
//!
//! The work of one step is bounded (a row, or [`STEPS_PER_LOOK`] small ones). After it, due bytes go to the
//! disk and other tasks run.

use std::rc::Rc;

use model::clustering::Slice;
use model::reconcile::{Purge, compact_row};
use model::{DeletionTime, RowView, Table, Token, Unfiltered};
use sstable::Writer;

use crate::error::StorageError;
use crate::large_data::{Name, Watch};
use crate::memtable::{Memtable, PartitionRef, Shape, VersionCursor};
use crate::read::merge::Merge;
use crate::tablet::to_storage_error;
use crate::throttle::Spool;

/// A table file that is being written.
pub(crate) struct Output {
    pub(super) writer: Writer,
    pub(super) generation: u64,
    pub(super) directory: std::path::PathBuf,
    pub(super) table: Rc<Table>,
    /// Rows and partitions since the last check.
    pub(super) steps: u32,
    /// For a flush: counts the bytes written.
    pub(super) spool: Option<Rc<Spool>>,
    pub(super) watch: Watch,
}

/// A partition that is being written; it begins in the file with its first element.
struct Part<'k> {
    token: Token,
    key: &'k [u8],
    begun: bool,
    start: u64,
}

/// Rows and partitions written between two checks whether another task should run, unless the disk is waited
/// for before.
const STEPS_PER_LOOK: u32 = 32;

impl Output {
    /// Bytes of data so far, before compression.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.writer.data_bytes()
    }

    /// Writes the rest of a partition, if there is any.
    pub(crate) async fn partition(
        &mut self,
        token: Token,
        key: &[u8],
        merge: &mut Merge,
    ) -> Result<(), StorageError> {
        let table = Rc::clone(&self.table);
        let slices = [Slice::all()];
        let shape = Shape { orders: table.clustering_orders(), slices: &slices, reversed: false };
        let mut part = self.begin((token, key), merge.partition_deletion(), merge.static_row())?;
        while let Some(next) = merge.next(shape).await? {
            self.put(&mut part, next)?;
            self.look().await?;
        }
        self.end(part);
        self.look().await
    }

    /// Writes a partition straight from its only version in a memtable, which has neither a static row nor
    /// range tombstones.
    pub(super) async fn partition_in_memory(
        &mut self,
        token: Token,
        key: &[u8],
        (memtable, partition, version): (&Rc<Memtable>, PartitionRef, u32),
    ) -> Result<(), StorageError> {
        let table = Rc::clone(&self.table);
        let slices = [Slice::all()];
        let shape = Shape { orders: table.clustering_orders(), slices: &slices, reversed: false };
        let deletion = memtable.contents().head(partition, version).0;
        let mut part = self.begin((token, key), deletion, None)?;
        let mut cursor = VersionCursor::new(partition, version);
        let mut compacted = Vec::new();
        let mut more = true;
        while more {
            {
                let contents = memtable.contents();
                for _ in 0..STEPS_PER_LOOK {
                    let next = cursor.next(&contents, shape);
                    more = next.is_some();
                    let Some(mut next) = next else { break };
                    if let Unfiltered::Row { row, clustering } = next
                        && !(deletion.is_live() && row.is_plain() && !row.is_empty())
                    {
                        compacted.clear();
                        if !compact_row(row, deletion, &Purge::nothing(), &mut compacted) {
                            continue;
                        }
                        next = Unfiltered::Row { row: RowView::trusted(&compacted), clustering };
                    }
                    self.put(&mut part, next)?;
                    if self.writer.is_due() {
                        break;
                    }
                }
            }
            if more {
                self.steps = STEPS_PER_LOOK;
                self.look().await?;
            }
        }
        self.end(part);
        self.look().await
    }

    fn begin<'k>(
        &mut self,
        (token, key): (Token, &'k [u8]),
        deletion: DeletionTime,
        static_row: Option<RowView<'_>>,
    ) -> Result<Part<'k>, StorageError> {
        let start = self.writer.data_bytes();
        self.watch.begin(deletion, static_row);
        let begun = !deletion.is_live() || static_row.is_some();
        if begun {
            self.writer.partition_start(token, key, deletion, static_row).map_err(to_storage_error)?;
        }
        if let Some(row) = static_row {
            let bytes = self.writer.data_bytes() - start;
            self.watch.static_row(Name { table: &self.table, key }, row, bytes);
        }
        Ok(Part { token, key, begun, start })
    }

    fn put(&mut self, part: &mut Part<'_>, next: Unfiltered<'_>) -> Result<(), StorageError> {
        if !part.begun {
            part.begun = true;
            let begun = self.writer.partition_start(part.token, part.key, DeletionTime::LIVE, None);
            begun.map_err(to_storage_error)?;
        }
        if let Some(spool) = &self.spool {
            match &next {
                Unfiltered::Row { clustering, row } => spool.row(clustering.len() + row.as_bytes().len()),
                // A range tombstone begins; its two positions are counted.
                Unfiltered::Change { position, deletion } if !deletion.is_live() => {
                    spool.row(2 * position.prefix.0.len());
                }
                Unfiltered::Change { .. } => {}
            }
        }
        let before = self.writer.data_bytes();
        self.writer.unfiltered(next).map_err(to_storage_error)?;
        let name = Name { table: &self.table, key: part.key };
        self.watch.unfiltered(name, &next, self.writer.data_bytes() - before);
        Ok(())
    }

    fn end(&mut self, part: Part<'_>) {
        if part.begun {
            self.writer.partition_end();
            let bytes = self.writer.data_bytes() - part.start;
            self.watch.end(Name { table: &self.table, key: part.key }, bytes);
        }
        if let Some(spool) = &self.spool {
            spool.partition(part.key.len());
        }
    }

    /// Called after each step: writes due bytes to the disk and lets other tasks run.
    #[inline]
    async fn look(&mut self) -> Result<(), StorageError> {
        self.steps += 1;
        if self.steps >= STEPS_PER_LOOK || self.writer.is_due() {
            // Boxed, so that the future of a step that does not wait stays small.
            Box::pin(self.give_way()).await?;
        }
        Ok(())
    }

    async fn give_way(&mut self) -> Result<(), StorageError> {
        self.steps = 0;
        if self.writer.is_due() {
            self.writer.drain().await.map_err(to_storage_error)?;
        }
        reactor::maybe_yield().await;
        Ok(())
    }
}
