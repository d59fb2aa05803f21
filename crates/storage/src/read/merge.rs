//! Merges the contents of memtables and table files for one partition into one stream.
//!
//! Rows at one position are merged by `model::reconcile`; at each place the range deletion of any source that
//! supersedes the others is in force. Reads, flushes and compactions are this merge with different limits for
//! purging. Invariant: before the merge may wait, every version in memory that it reads is pinned.
//!
//! If one source alone has a row, or one source's row covers the others, the row is borrowed from that
//! source; sources advance only when the next element is asked for. As long as the next elements are in
//! memory that is a plain call ([`Merge::step_at_hand`]); [`Merge::fetch`] waits for the others.

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
    /// Deletion of the whole partition, for shadowing.
    partition: DeletionTime,
    /// The range deletion in force, for shadowing; and the one that was last reported.
    active: DeletionTime,
    told: DeletionTime,
    static_row: Vec<u8>,
    /// The source of the last element.
    first: usize,
    found: Found,
    row: Vec<u8>,
    scratch: Vec<u8>,
    change: OwnedPosition,
    /// Whether changes at `change` are being folded and sources may have more of them.
    folding: bool,
    /// Whether the first elements were requested.
    started: bool,
    /// Counts data that is left out, for readers.
    graves: Option<Graves>,
    steps: u32,
}

/// Result of one step of a merge for a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// A visible row, at [`Merge::row`].
    Row,
    /// A row that is not visible.
    DeadRow,
    /// A change of deletion.
    Change,
    /// The partition is at its end.
    End,
}

/// Result of a step that does not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtHand {
    /// The row at [`Merge::row`].
    Row,
    /// A row of which nothing is left.
    DeadRow,
    /// Another deletion, [`Merge::told`], is in force from [`Merge::change`] on.
    Change,
    /// A change that does not alter the reported deletion.
    SameDeletion,
    /// The partition is at its end.
    End,
    /// No result yet: sources have to read, in [`Merge::fetch`].
    Lacking,
}

/// The place of the last row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// In a source, unchanged.
    Source(usize),
    /// In the merge's own buffer.
    Merged,
}

/// Steps of a merge between two checks whether another task should run.
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
            first: 0,
            found: Found::Merged,
            row: Vec::new(),
            scratch: Vec::new(),
            change: Position::START.to_owned(),
            folding: false,
            started: false,
            graves: None,
            steps: 0,
        };
        merge.read_heads();
        merge
    }

    /// A merge for a reader, which counts tombstones.
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

    /// The counts of dead data that were not reported yet; always present for a reader.
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

    /// The deletion of the partition, unless it may be purged.
    pub(crate) fn partition_deletion(&self) -> DeletionTime {
        self.purge.deletion(self.partition)
    }

    /// The static row, if anything of it is left.
    pub(crate) fn static_row(&self) -> Option<RowView<'_>> {
        (!self.static_row.is_empty()).then(|| RowView::trusted(&self.static_row))
    }

    /// The static row's bytes, empty if nothing of it is left; call it once.
    pub(crate) fn take_static_row(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.static_row)
    }

    /// Returns the sources.
    pub(crate) fn into_sources(self) -> Vec<Source> {
        self.sources
    }

    /// The sources, to be replaced before [`Merge::restart`].
    pub(crate) fn sources_mut(&mut self) -> &mut Vec<Source> {
        &mut self.sources
    }

    /// Begins another partition; the sources are at its start. Buffers are kept.
    pub(crate) fn restart(&mut self, purge: Purge) {
        self.purge = purge;
        (self.partition, self.active, self.told) =
            (DeletionTime::LIVE, DeletionTime::LIVE, DeletionTime::LIVE);
        self.static_row.clear();
        (self.folding, self.started) = (false, false);
        self.read_heads();
    }

    /// Pins versions in memory; called before a pause.
    pub(crate) fn pin(&mut self) {
        for source in &mut self.sources {
            source.pin(&self.table);
        }
    }

    /// The next row or change in reading order; `None` at the end.
    ///
    /// # Errors
    /// Those of reading table files.
    #[inline]
    pub(crate) async fn next(&mut self, shape: Shape<'_>) -> Result<Option<Unfiltered<'_>>, StorageError> {
        loop {
            match self.step_at_hand(shape)? {
                AtHand::Row => {
                    let (clustering, row) = self.row();
                    return Ok(Some(Unfiltered::Row { clustering, row }));
                }
                AtHand::Change => {
                    let position = self.change.as_ref();
                    return Ok(Some(Unfiltered::Change { position, deletion: self.told }));
                }
                AtHand::End => return Ok(None),
                // Boxed, so that the future of a read that does not wait stays small.
                AtHand::Lacking => Box::pin(self.fetch(shape)).await?,
                AtHand::DeadRow | AtHand::SameDeletion => {
                    if reactor::need_preempt() {
                        self.pin();
                        reactor::yield_now().await;
                    }
                }
            }
        }
    }

    /// One step of a reader's merge; bounded work.
    ///
    /// # Errors
    /// Those of reading table files.
    pub(crate) async fn step(&mut self, shape: Shape<'_>) -> Result<Step, StorageError> {
        self.steps = self.steps.wrapping_add(1);
        if self.steps.is_multiple_of(STEPS_PER_LOOK) && reactor::need_preempt() {
            self.pin();
            super::give_way(self.steps / STEPS_PER_LOOK).await;
        }
        // Each round reads more of a file.
        loop {
            return Ok(match self.step_at_hand(shape)? {
                AtHand::Row => Step::Row,
                AtHand::DeadRow => Step::DeadRow,
                AtHand::Change | AtHand::SameDeletion => Step::Change,
                AtHand::End => Step::End,
                AtHand::Lacking => {
                    Box::pin(self.fetch(shape)).await?;
                    continue;
                }
            });
        }
    }

    /// The next element, without waiting.
    ///
    /// # Errors
    /// Those of reading table files.
    pub(crate) fn step_at_hand(&mut self, shape: Shape<'_>) -> Result<AtHand, StorageError> {
        if !self.started {
            self.started = true;
            // Nothing was read of the versions yet, and they must not change from here on.
            if self.sources.iter().any(Source::is_file) {
                self.pin();
            }
        }
        for source in &mut self.sources {
            if source.taken && !source.advance_at_hand(shape)? {
                return Ok(AtHand::Lacking);
            }
        }
        if !self.folding {
            let Some(first) = self.first_source(shape) else { return Ok(AtHand::End) };
            self.first = first;
            if self.sources[first].row().is_some() {
                return Ok(if self.take_row(shape) { AtHand::Row } else { AtHand::DeadRow });
            }
            self.change.prefix.clear();
            self.change.prefix.extend_from_slice(self.sources[first].clustering());
            self.change.weight = self.sources[first].position().map_or(0, |position| position.weight);
            self.folding = true;
        }
        if !self.take_changes(shape)? {
            return Ok(AtHand::Lacking);
        }
        self.folding = false;
        Ok(if self.tell() { AtHand::Change } else { AtHand::SameDeletion })
    }

    /// Lets the sources read that need it for the next element.
    ///
    /// # Errors
    /// Those of reading table files.
    pub(crate) async fn fetch(&mut self, shape: Shape<'_>) -> Result<(), StorageError> {
        for source in &mut self.sources {
            source.begin(shape).await?;
        }
        Ok(())
    }

    /// The row of the last step that found one.
    #[inline]
    pub(crate) fn row(&self) -> (&[u8], RowView<'_>) {
        (self.sources[self.first].clustering(), row_of(&self.sources, &self.row, self.found))
    }

    /// The position of the last change.
    pub(crate) fn change(&self) -> Position<'_> {
        self.change.as_ref()
    }

    /// The deletion that was last reported to be in force.
    pub(crate) fn told(&self) -> DeletionTime {
        self.told
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

    /// Merges the rows at the position of the first source; returns whether anything is left of them.
    fn take_row(&mut self, shape: Shape<'_>) -> bool {
        let Self { table, sources, first, row, scratch, .. } = self;
        let first = *first;
        sources[first].taken = true;
        let mut found = Found::Source(first);
        // Sources before the first are at later positions.
        for at in first + 1..sources.len() {
            let place = Position::row(sources[first].clustering());
            let same = |position: Position<'_>| position.compare(place, shape.orders) == Ordering::Equal;
            let Some(other) = sources[at].row().filter(|_| sources[at].position().is_some_and(same)) else {
                continue;
            };
            let own = row_of(sources, row, found);
            if own.is_rewritten_by(other) {
                found = Found::Source(at);
            } else if !other.is_rewritten_by(own) {
                scratch.clear();
                merge_rows(table, own, other, scratch);
                std::mem::swap(row, scratch);
                found = Found::Merged;
            }
            sources[at].taken = true;
        }
        scratch.clear();
        if drop_dropped(table, row_of(sources, row, found), scratch) {
            std::mem::swap(row, scratch);
            found = Found::Merged;
        }
        self.found = found;
        let active = deletion(self.partition, self.active);
        let whole = row_of(&self.sources, &self.row, found);
        if active.is_live() && whole.is_plain() {
            return !whole.is_empty();
        }
        self.scratch.clear();
        let mut left = compact_row(whole, active, &self.purge, &mut self.scratch);
        if let Some(graves) = &self.graves {
            left = left && is_live(RowView::trusted(&self.scratch), self.purge.now);
            if self.scratch.len() != whole.as_bytes().len() {
                graves.row(whole, active, left);
            }
        }
        std::mem::swap(&mut self.row, &mut self.scratch);
        self.found = Found::Merged;
        left
    }

    /// Takes all changes at the position that is being folded; returns false if a source has to read to know
    /// whether it has more.
    fn take_changes(&mut self, shape: Shape<'_>) -> Result<bool, StorageError> {
        for source in &mut self.sources {
            // A source may leave one deletion and enter another at the same place: at most two.
            while let Some(deletion) = source.change()
                && source.position().is_some_and(|position| {
                    position.compare(self.change.as_ref(), shape.orders) == Ordering::Equal
                })
            {
                source.active = deletion;
                source.taken = true;
                if !source.advance_at_hand(shape)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Updates the reported deletion; returns whether it is another one than before.
    fn tell(&mut self) -> bool {
        self.active = self.sources.iter().fold(DeletionTime::LIVE, |most, s| deletion(most, s.active));
        if let Some(graves) = &mut self.graves {
            graves.change(self.active, self.partition);
        }
        // A range deletion that the partition's deletion covers is not reported again.
        let told = if self.active.supersedes(self.partition) {
            self.purge.deletion(self.active)
        } else {
            DeletionTime::LIVE
        };
        let changed = told != self.told;
        self.told = told;
        changed
    }
}

fn row_of<'a>(sources: &'a [Source], merged: &'a [u8], found: Found) -> RowView<'a> {
    let row = match found {
        Found::Source(at) => sources[at].row(),
        Found::Merged => None,
    };
    row.unwrap_or(RowView::trusted(merged))
}
