//! A table file that flushes and compactions write: partitions as merges or memtables have them, with pauses in between.
//!
//! What a step puts together is bounded (a row, or [`STEPS_PER_LOOK`] small ones); behind it the disk gets what is due, and
//! others their turn.

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
    /// Rows and partitions since the last look.
    pub(super) steps: u32,
    /// Told what is written, where a memtable is.
    pub(super) spool: Option<Rc<Spool>>,
    pub(super) watch: Watch,
}

/// A partition that is being written; it begins in the file with the first thing that is to be said of it.
struct Part<'k> {
    token: Token,
    key: &'k [u8],
    begun: bool,
    start: u64,
}

/// Rows and partitions written between two looks whether somebody else should run, unless the disk is waited for before.
const STEPS_PER_LOOK: u32 = 32;

impl Output {
    /// Bytes of data so far, before compression.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.writer.data_bytes()
    }

    /// Writes what is left of a partition, if anything.
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

    /// Writes a partition as its only version in a memtable has it, which holds neither a static row nor range tombstones; rows
    /// go from there to the file.
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
                // A range tombstone begins: it has two positions.
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

    /// After each step: gives the disk what is due, and others their turn.
    #[inline]
    async fn look(&mut self) -> Result<(), StorageError> {
        self.steps += 1;
        if self.steps >= STEPS_PER_LOOK || self.writer.is_due() {
            // Boxed, so that steps that do not wait do not carry the room for it around.
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
