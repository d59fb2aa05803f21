//! The inputs of a job as lanes: in each, files that do not overlap, read one after the other.
//!
//! A lane has one scanner open, however many fragments a run has. Invariant: a file's scanner is opened only
//! when the lane gets to it, so at a place where no lane is inside a file, everything before it has been
//! read.

use std::collections::VecDeque;
use std::rc::Rc;

use memory::Budget;
use model::clustering::Slice;
use model::{Token, partition_key};
use sstable::{PartitionBound, RowRoom};

use crate::error::StorageError;
use crate::read::source::{Input, Source};
use crate::tablet::TableFile;

/// Files of one lane, and where it is.
pub(super) struct Lane {
    waiting: VecDeque<Rc<TableFile>>,
    /// The file it is at; away while a merge uses it.
    source: Option<Source>,
    /// Whether a partition of the current file has been read.
    inside: bool,
}

/// All lanes of a job.
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    /// The memory of the shard, of which long rows take some while they are read.
    budget: Budget,
    /// Files that were read to their end, and not yet taken.
    finished: Vec<Rc<TableFile>>,
    /// The partition the lanes are at.
    token: Token,
    key: Vec<u8>,
    lent: Vec<usize>,
    partitions: u64,
}

impl Lanes {
    /// Puts files into as few lanes as they need and goes to the first partition.
    ///
    /// # Errors
    /// Those of reading.
    pub(super) async fn open(files: &[Rc<TableFile>], budget: &Budget) -> Result<Self, StorageError> {
        let mut files = files.to_vec();
        files.sort_by_key(|file| (file.sstable().first_key().0, file.generation()));
        let mut rows: Vec<(Token, VecDeque<Rc<TableFile>>)> = Vec::new();
        for file in files {
            let (first, last) = (file.sstable().first_key().0, file.sstable().last_key().0);
            match rows.iter_mut().find(|(end, _)| *end < first) {
                Some((end, row)) => {
                    *end = last;
                    row.push_back(file);
                }
                None => rows.push((last, VecDeque::from([file]))),
            }
        }
        let lanes =
            rows.into_iter().map(|(_, waiting)| Lane { waiting, source: None, inside: false }).collect();
        let (token, key) = (Token::MINIMUM, Vec::new());
        let (finished, lent) = (Vec::new(), Vec::new());
        let mut lanes = Self { lanes, budget: budget.clone(), finished, token, key, lent, partitions: 0 };
        for at in 0..lanes.lanes.len() {
            lanes.next_file(at).await?;
        }
        lanes.find_least();
        Ok(lanes)
    }

    /// Token and key of the next partition of all.
    pub(super) fn at(&self) -> Option<(Token, &[u8])> {
        (!self.lent.is_empty()).then_some((self.token, self.key.as_slice()))
    }

    /// How many inputs have the partition.
    pub(super) fn holders(&self) -> usize {
        self.lent.len()
    }

    /// Partitions read so far, counted once for each file that has them.
    pub(super) fn partitions(&self) -> u64 {
        self.partitions
    }

    /// Whether no lane is in the middle of a file.
    pub(super) fn is_between_files(&self) -> bool {
        self.lanes.iter().all(|lane| !lane.inside)
    }

    /// Files read to their end since the last call.
    pub(super) fn take_finished(&mut self) -> Vec<Rc<TableFile>> {
        std::mem::take(&mut self.finished)
    }

    /// Whether nothing in the inputs that have the partition deletes anything or expires.
    pub(super) fn have_only_values(&self) -> bool {
        self.lent.iter().all(|at| match &self.lanes[*at].source {
            Some(Source { input: Input::Scan { file, .. }, .. }) => file.sstable().has_only_values(),
            _ => false,
        })
    }

    /// Lends the inputs of the partition, to be given back by [`Lanes::step`] in the same order.
    pub(super) fn lend(&mut self, sources: &mut Vec<Source>) {
        sources.clear();
        for at in &self.lent {
            let lane = &mut self.lanes[*at];
            lane.inside = true;
            if let Some(mut source) = lane.source.take() {
                source.restart();
                sources.push(source);
            }
        }
    }

    /// Takes the inputs back and goes to the next partition.
    ///
    /// # Errors
    /// Those of reading.
    pub(super) async fn step(&mut self, sources: &mut Vec<Source>) -> Result<(), StorageError> {
        let lent = std::mem::take(&mut self.lent);
        self.partitions += lent.len() as u64;
        for (at, mut source) in lent.iter().zip(sources.drain(..)) {
            let Input::Scan { scanner, file } = &mut source.input else { continue };
            if scanner.next_partition().await.map_err(|error| file.failed(error))? {
                self.lanes[*at].source = Some(source);
            } else {
                self.finished.push(Rc::clone(file));
                drop(source);
                self.next_file(*at).await?;
            }
        }
        self.lent = lent;
        self.find_least();
        Ok(())
    }

    async fn next_file(&mut self, at: usize) -> Result<(), StorageError> {
        let lane = &mut self.lanes[at];
        lane.inside = false;
        while let Some(file) = lane.waiting.pop_front() {
            let failed = |error| file.failed(error);
            // A room for each file: what its longest row takes is free again when the lane leaves it.
            let sstable = file.open_in(Some(&RowRoom::charged(&self.budget)));
            let bounds = (&PartitionBound::START, &PartitionBound::END);
            let mut scanner = sstable.scan(bounds.0, bounds.1, &[Slice::all()]).await.map_err(failed)?;
            if scanner.next_partition().await.map_err(failed)? {
                lane.source = Some(Source::new(Input::Scan { file, scanner: Box::new(scanner) }));
                return Ok(());
            }
            self.finished.push(file);
        }
        Ok(())
    }

    /// Finds the least partition of all lanes, and the lanes that have it.
    fn find_least(&mut self) {
        self.lent.clear();
        for (at, lane) in self.lanes.iter().enumerate() {
            let Some(Source { input: Input::Scan { scanner, .. }, .. }) = &lane.source else { continue };
            let place = (scanner.token(), scanner.key());
            let order = if self.lent.is_empty() {
                std::cmp::Ordering::Less
            } else {
                partition_key::compare_decorated(place, (self.token, &self.key))
            };
            match order {
                std::cmp::Ordering::Greater => {}
                std::cmp::Ordering::Equal => self.lent.push(at),
                std::cmp::Ordering::Less => {
                    self.token = place.0;
                    self.key.clear();
                    self.key.extend_from_slice(place.1);
                    self.lent.clear();
                    self.lent.push(at);
                }
            }
        }
    }
}
