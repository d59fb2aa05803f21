//! The merged contents of all table files of a tablet for one partition: from the row cache as far as they
//! are cached, otherwise from the files.
//!
//! It is a source of a merge. After the first gap it stays in the files to its end, and populates the cache
//! with the rows it reads there. It holds the set of files as of the begin of the read, so that it may pause
//! for any time.

use std::rc::Rc;

use model::reconcile::Purge;
use model::{DeletionTime, RowView, Table, Token, Unfiltered};
use sstable::RowRoom;

use super::Slices;
use super::merge::{AtHand, Merge};
use super::skip::{asks_for_one_row, is_older_than_all, newest_first};
use super::source::{Input, Source};
use super::told;
use crate::cache::{Claim, Learner, Place, Sought, Step, TabletCache};
use crate::error::StorageError;
use crate::memtable::Shape;
use crate::tablet::TableFile;

/// One partition of all files.
pub(crate) struct CachedPartition {
    cache: Rc<TabletCache>,
    claim: Claim,
    table: Rc<Table>,
    token: Token,
    key: Vec<u8>,
    /// The files that may have the partition, as of the claim.
    files: Vec<Rc<TableFile>>,
    room: Rc<RowRoom>,
    deletion: DeletionTime,
    static_row: Vec<u8>,
    state: State,
}

enum State {
    /// In the cache.
    Known(Place),
    /// The cache has no more; these slices are still to be read from the files.
    Left(Slices),
    /// In the files.
    Files(Box<FromFiles>),
    /// No file has any of it.
    Ended,
}

struct FromFiles {
    merge: Merge,
    slices: Slices,
    learner: Learner,
}

/// The next element: a row or a change is in the buffers.
pub(crate) enum Found {
    Row,
    Change(i8, DeletionTime),
    End,
}

impl CachedPartition {
    /// Begins to read; afterwards deletion and static row are known. `claim` and `files` were taken together.
    /// `gap` says that the cache was found to lack the beginning: it is not asked again.
    ///
    /// # Errors
    /// Those of opening the partition in files.
    pub(crate) async fn open(
        cache: &Rc<TabletCache>,
        claim: Claim,
        table: &Rc<Table>,
        (token, key): (Token, &[u8]),
        (files, room): (Vec<Rc<TableFile>>, &Rc<RowRoom>),
        (shape, gap): (Shape<'_>, bool),
    ) -> Result<Self, StorageError> {
        let mut static_row = Vec::new();
        let sought = Sought { token, key, orders: shape.orders };
        let head = if gap { None } else { cache.head(claim, sought, &mut static_row) };
        told::cache(if head.is_some() { "has the partition, maybe with gaps" } else { "miss" });
        let mut partition = Self {
            cache: Rc::clone(cache),
            claim,
            table: Rc::clone(table),
            token,
            key: key.to_vec(),
            files,
            room: Rc::clone(room),
            deletion: head.unwrap_or(DeletionTime::LIVE),
            static_row,
            state: State::Known(Place::new()),
        };
        if head.is_none() {
            partition.open_files(shape.slices.into(), shape.reversed).await?;
            if let State::Files(files) = &partition.state {
                partition.deletion = files.merge.partition_deletion();
                partition.static_row = static_bytes(&files.merge);
            }
        }
        Ok(partition)
    }

    /// Deletion and static row.
    pub(crate) fn head(&self) -> (DeletionTime, Option<RowView<'_>>) {
        let row = (!self.static_row.is_empty()).then(|| RowView::trusted(&self.static_row));
        (self.deletion, row)
    }

    async fn open_files(&mut self, slices: Slices, reversed: bool) -> Result<(), StorageError> {
        let mut sources: Vec<Source> = Vec::new();
        let table = Rc::clone(&self.table);
        let shape = Shape { orders: table.clustering_orders(), slices: &slices, reversed };
        let one_row = self.files.len() > 1 && asks_for_one_row(&table, shape);
        if one_row {
            newest_first(&mut self.files);
        }
        for file in &self.files {
            if one_row && !sources.is_empty() {
                for source in &mut sources {
                    // Boxed: by its type it might be a cached partition again.
                    Box::pin(source.begin(shape)).await?;
                }
                // The result populates the cache, so it must include all deletions that older writes may
                // still meet.
                let sstable = file.open();
                if sstable.has_only_values() && is_older_than_all(&table, &sources, &sstable) {
                    continue;
                }
            }
            let opened = file
                .open_in(Some(&self.room))
                .partition(self.token, &self.key, &slices, reversed)
                .await
                .map_err(|error| file.failed(error))?;
            if let Some(reader) = opened {
                let file = Rc::clone(file);
                sources.push(Source::new(Input::Partition { file, reader: Box::new(reader) }));
            }
        }
        if sources.is_empty() {
            let sought = Sought { token: self.token, key: &self.key, orders: self.table.clustering_orders() };
            self.cache.learn_absent(self.claim, sought);
            self.state = State::Ended;
            return Ok(());
        }
        let merge = Merge::new(Rc::clone(&self.table), sources, Purge::nothing());
        let head = (merge.partition_deletion(), static_bytes(&merge));
        let name = (self.token, self.key.as_slice());
        let learner =
            Learner::new(&self.cache, self.claim, &self.table, name, head, slices.clone(), reversed);
        self.state = State::Files(Box::new(FromFiles { merge, slices, learner }));
        Ok(())
    }

    /// The next element, its clustering and row put into the buffers.
    ///
    /// # Errors
    /// Those of reading files.
    pub(crate) async fn next(
        &mut self,
        shape: Shape<'_>,
        clustering: &mut Vec<u8>,
        row: &mut Vec<u8>,
    ) -> Result<Found, StorageError> {
        // A gap leads to the files, and each further round reads more of them.
        loop {
            if let Some(found) = self.next_at_hand(shape, clustering, row)? {
                return Ok(found);
            }
            match &mut self.state {
                State::Known(_) | State::Ended => {}
                State::Left(slices) => {
                    let slices = slices.clone();
                    self.open_files(slices, shape.reversed).await?;
                }
                State::Files(_) if reactor::need_preempt() => reactor::yield_now().await,
                State::Files(files) => {
                    let FromFiles { merge, slices, .. } = &mut **files;
                    let shape = Shape { orders: shape.orders, slices, reversed: shape.reversed };
                    // Boxed, because this is a merge within a merge.
                    Box::pin(merge.fetch(shape)).await?;
                }
            }
        }
    }

    /// As [`CachedPartition::next`] without waiting; `None` if files have to be opened or read, or another
    /// task should run.
    ///
    /// # Errors
    /// As [`CachedPartition::next`].
    pub(crate) fn next_at_hand(
        &mut self,
        shape: Shape<'_>,
        clustering: &mut Vec<u8>,
        row: &mut Vec<u8>,
    ) -> Result<Option<Found>, StorageError> {
        let files = match &mut self.state {
            State::Ended => return Ok(Some(Found::End)),
            State::Left(_) => return Ok(None),
            State::Files(files) => &mut **files,
            State::Known(place) => {
                let sought = Sought { token: self.token, key: &self.key, orders: shape.orders };
                return Ok(match self.cache.step(self.claim, sought, place, shape, clustering, row) {
                    Step::Row => Some(Found::Row),
                    Step::Change(weight, deletion) => Some(Found::Change(weight, deletion)),
                    Step::End => Some(Found::End),
                    Step::Gap => {
                        self.state = State::Left(place.left(shape));
                        None
                    }
                });
            }
        };
        let FromFiles { merge, slices, learner } = files;
        let shape = Shape { orders: shape.orders, slices, reversed: shape.reversed };
        let next = loop {
            match merge.step_at_hand(shape)? {
                AtHand::Lacking => return Ok(None),
                AtHand::End => {
                    learner.end();
                    return Ok(Some(Found::End));
                }
                AtHand::Row => {
                    let (clustering, row) = merge.row();
                    break Unfiltered::Row { clustering, row };
                }
                AtHand::Change => {
                    break Unfiltered::Change { position: merge.change(), deletion: merge.told() };
                }
                // These are not visible, and there may be any number of them.
                AtHand::DeadRow | AtHand::SameDeletion if reactor::need_preempt() => return Ok(None),
                AtHand::DeadRow | AtHand::SameDeletion => {}
            }
        };
        learner.unfiltered(next);
        clustering.clear();
        Ok(Some(match next {
            Unfiltered::Row { clustering: found, row: view } => {
                clustering.extend_from_slice(found);
                row.clear();
                row.extend_from_slice(view.as_bytes());
                Found::Row
            }
            Unfiltered::Change { position, deletion } => {
                clustering.extend_from_slice(position.prefix.0);
                Found::Change(position.weight, deletion)
            }
        }))
    }
}

fn static_bytes(merge: &Merge) -> Vec<u8> {
    merge.static_row().map_or_else(Vec::new, |row| row.as_bytes().to_vec())
}
