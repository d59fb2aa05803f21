//! Merges what memtables and table files say of one partition into one stream.
//!
//! Rows at one position are merged by `model::reconcile`; range deletions of all sources are folded into the one
//! that wins at each place. Reads, flush and compaction are this merge with different ideas of what may be
//! forgotten. Invariant: before the merge may wait, every version in memory it reads is pinned.

use std::cmp::Ordering;
use std::rc::Rc;

use model::clustering::{OwnedPosition, Position};
use model::reconcile::{Purge, compact_row, deletion, is_live, merge_rows};
use model::{DeletionTime, RowView, Table, Unfiltered};

use super::dead::Graves;
use super::source::{Source, reading_order};
use super::visible::drop_dropped;
use crate::error::StorageError;
use crate::memtable::Shape;

/// The merge of one partition.
pub(crate) struct Merge {
    table: Rc<Table>,
    sources: Vec<Source>,
    purge: Purge,
    /// Deletion of the whole partition, as it shadows.
    partition: DeletionTime,
    /// Range deletion in force, as it shadows; and as it was last handed out.
    active: DeletionTime,
    told: DeletionTime,
    static_row: Vec<u8>,
    clustering: Vec<u8>,
    row: Vec<u8>,
    scratch: Vec<u8>,
    change: OwnedPosition,
    /// A row was taken from the sources and waits behind a change.
    started: bool,
    /// Counts what is left out, for readers.
    graves: Option<Graves>,
    steps: u32,
}

/// What one step of a merge for a reader came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The row at [`Merge::row`], which a reader sees.
    Row,
    /// A row that nobody sees.
    DeadRow,
    /// A change of deletion.
    Change,
    /// There is nothing more.
    End,
}

/// Steps of a merge before it looks whether somebody else should run.
const STEPS_PER_LOOK: u32 = 64;

impl Merge {
    /// A merge of `sources`, which are at the start of the partition.
    pub(crate) fn new(table: Rc<Table>, sources: Vec<Source>, purge: Purge) -> Self {
        let mut merge = Self {
            table,
            sources,
            purge,
            partition: DeletionTime::LIVE,
            active: DeletionTime::LIVE,
            told: DeletionTime::LIVE,
            static_row: Vec::new(),
            clustering: Vec::new(),
            row: Vec::new(),
            scratch: Vec::new(),
            change: Position::START.to_owned(),
            started: false,
            graves: None,
            steps: 0,
        };
        merge.read_heads();
        merge
    }

    /// A merge for a reader, who has tombstones counted.
    pub(crate) fn for_reading(
        table: Rc<Table>,
        sources: Vec<Source>,
        now: model::deletion::LocalSeconds,
    ) -> Self {
        let graves = Graves::new(&table, now);
        let mut merge = Self::new(table, Vec::new(), Purge::everything(now));
        merge.graves = Some(graves);
        merge.sources = sources;
        merge.read_heads();
        merge
    }

    /// What was left out and not said yet; always there for a reader.
    pub(crate) fn graves(&self) -> Option<&Graves> {
        self.graves.as_ref()
    }

    fn read_heads(&mut self) {
        let mut merged: Vec<u8> = Vec::new();
        for source in &self.sources {
            self.row.clear();
            self.partition = deletion(self.partition, source.head(&mut self.row));
            if self.row.is_empty() {
                continue;
            }
            if merged.is_empty() {
                merged.extend_from_slice(&self.row);
            } else {
                self.scratch.clear();
                merge_rows(
                    &self.table,
                    RowView::trusted(&merged),
                    RowView::trusted(&self.row),
                    &mut self.scratch,
                );
                std::mem::swap(&mut merged, &mut self.scratch);
            }
        }
        if !merged.is_empty() {
            self.scratch.clear();
            if drop_dropped(&self.table, RowView::trusted(&merged), &mut self.scratch) {
                std::mem::swap(&mut merged, &mut self.scratch);
            }
            let row = RowView::trusted(&merged);
            compact_row(row, self.partition, &self.purge, &mut self.static_row);
            if let Some(graves) = &self.graves
                && self.static_row.len() != merged.len()
            {
                graves.row(row, self.partition, true);
            }
        }
    }

    /// The deletion of the partition, where it may not be forgotten.
    pub(crate) fn partition_deletion(&self) -> DeletionTime {
        self.purge.deletion(self.partition)
    }

    /// The static row, where something of it is left.
    pub(crate) fn static_row(&self) -> Option<RowView<'_>> {
        (!self.static_row.is_empty()).then(|| RowView::trusted(&self.static_row))
    }

    /// The static row's bytes, empty where nothing of it is left; to be taken once.
    pub(crate) fn take_static_row(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.static_row)
    }

    /// The sources, given back.
    pub(crate) fn into_sources(self) -> Vec<Source> {
        self.sources
    }

    async fn start(&mut self, shape: Shape<'_>) -> Result<(), StorageError> {
        self.started = true;
        // Nothing of it was read yet, and nothing may change from here on.
        if self.sources.iter().any(Source::is_file) {
            self.pin();
        }
        for source in &mut self.sources {
            source.begin(shape).await?;
        }
        Ok(())
    }

    /// Pins what is in memory: to be called before a pause.
    pub(crate) fn pin(&mut self) {
        for source in &mut self.sources {
            source.pin(&self.table);
        }
    }

    /// The next row or change in reading order; `None` at the end.
    ///
    /// # Errors
    /// Those of reading table files.
    pub(crate) async fn next(&mut self, shape: Shape<'_>) -> Result<Option<Unfiltered<'_>>, StorageError> {
        if !self.started {
            self.start(shape).await?;
        }
        loop {
            let Some(first) = self.first_source(shape) else { return Ok(None) };
            if self.sources[first].row().is_some() {
                if self.take_row(first, shape).await? {
                    let row = RowView::trusted(&self.row);
                    return Ok(Some(Unfiltered::Row { clustering: &self.clustering, row }));
                }
            } else if self.take_changes(first, shape).await? {
                let position = self.change.as_ref();
                return Ok(Some(Unfiltered::Change { position, deletion: self.told }));
            }
            if reactor::need_preempt() {
                self.pin();
                reactor::yield_now().await;
            }
        }
    }

    /// One step of a reader's merge; bounded work.
    ///
    /// # Errors
    /// Those of reading table files.
    pub(crate) async fn step(&mut self, shape: Shape<'_>) -> Result<Step, StorageError> {
        if !self.started {
            self.start(shape).await?;
        }
        self.steps = self.steps.wrapping_add(1);
        if self.steps.is_multiple_of(STEPS_PER_LOOK) && reactor::need_preempt() {
            self.pin();
            super::give_way(self.steps / STEPS_PER_LOOK).await;
        }
        let Some(first) = self.first_source(shape) else { return Ok(Step::End) };
        if self.sources[first].row().is_none() {
            self.take_changes(first, shape).await?;
            return Ok(Step::Change);
        }
        Ok(if self.take_row(first, shape).await? { Step::Row } else { Step::DeadRow })
    }

    /// The row of the last step that came to one.
    pub(crate) fn row(&self) -> (&[u8], RowView<'_>) {
        (&self.clustering, RowView::trusted(&self.row))
    }

    /// Where the last step that came to a change did.
    pub(crate) fn change(&self) -> Position<'_> {
        self.change.as_ref()
    }

    fn first_source(&self, shape: Shape<'_>) -> Option<usize> {
        let mut first: Option<(usize, Position<'_>)> = None;
        for (at, source) in self.sources.iter().enumerate() {
            let Some(position) = source.position() else { continue };
            let earlier = first.is_none_or(|(_, least)| {
                reading_order(position, least, shape.orders, shape.reversed) == Ordering::Less
            });
            if earlier {
                first = Some((at, position));
            }
        }
        first.map(|(at, _)| at)
    }

    /// Merges the rows at the position of source `first`; says whether anything is left of them.
    async fn take_row(&mut self, first: usize, shape: Shape<'_>) -> Result<bool, StorageError> {
        self.clustering.clear();
        self.clustering.extend_from_slice(self.sources[first].clustering());
        self.row.clear();
        if let Some(row) = self.sources[first].row() {
            self.row.extend_from_slice(row.as_bytes());
        }
        self.sources[first].advance(shape).await?;
        // Sources before `first` stand at later positions.
        for at in first + 1..self.sources.len() {
            let source = &mut self.sources[at];
            let same = source.position().is_some_and(|position| {
                position.compare(Position::row(&self.clustering), shape.orders) == Ordering::Equal
            });
            let Some(row) = source.row().filter(|_| same) else { continue };
            self.scratch.clear();
            merge_rows(&self.table, RowView::trusted(&self.row), row, &mut self.scratch);
            std::mem::swap(&mut self.row, &mut self.scratch);
            source.advance(shape).await?;
        }
        self.scratch.clear();
        if drop_dropped(&self.table, RowView::trusted(&self.row), &mut self.scratch) {
            std::mem::swap(&mut self.row, &mut self.scratch);
        }
        self.scratch.clear();
        let active = deletion(self.partition, self.active);
        let row = RowView::trusted(&self.row);
        let mut left = compact_row(row, active, &self.purge, &mut self.scratch);
        if let Some(graves) = &self.graves {
            left = left && is_live(RowView::trusted(&self.scratch), self.purge.now);
            if self.scratch.len() != self.row.len() {
                graves.row(row, active, left);
            }
        }
        std::mem::swap(&mut self.row, &mut self.scratch);
        Ok(left)
    }

    /// Folds all changes at the position of source `first`; says whether the deletion to tell is another one.
    async fn take_changes(&mut self, first: usize, shape: Shape<'_>) -> Result<bool, StorageError> {
        self.change.prefix.clear();
        self.change.prefix.extend_from_slice(self.sources[first].clustering());
        self.change.weight = self.sources[first].position().map_or(0, |position| position.weight);
        for source in &mut self.sources {
            // A source may leave one deletion and enter another at the same place: two at most.
            while let Some(deletion) = source.change()
                && source.position().is_some_and(|position| {
                    position.compare(self.change.as_ref(), shape.orders) == Ordering::Equal
                })
            {
                source.active = deletion;
                source.advance(shape).await?;
            }
        }
        self.active = self.sources.iter().fold(DeletionTime::LIVE, |most, s| deletion(most, s.active));
        if let Some(graves) = &mut self.graves {
            graves.change(self.active, self.partition);
        }
        // One that the partition's deletion covers is said there already.
        let told = if self.active.supersedes(self.partition) {
            self.purge.deletion(self.active)
        } else {
            DeletionTime::LIVE
        };
        let changed = told != self.told;
        self.told = told;
        Ok(changed)
    }
}
