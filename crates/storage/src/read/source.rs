//! One input of a merge: a version in a memtable, a partition of a table file, or the partition of all files
//! behind the cache.
//!
//! A source keeps its next element, so that the heads of several sources can be compared while others wait
//! for the disk. Rows of table files stay in their reader's buffer; everything else is in buffers of the
//! source, which are reused from element to element. Advancing is a plain call as long as nothing has to be
//! read from the disk.

use std::rc::Rc;

use model::clustering::{ClusteringOrder, Position};
use model::{Clustering, DeletionTime, RowView, Unfiltered};
use sstable::{AtHand, PartitionReader, Scanner, SstableError};

use super::cached::{CachedPartition, Found};
use crate::error::StorageError;
use crate::memtable::{Memtable, PartitionRef, Pin, Shape, VersionCursor};
use crate::tablet::TableFile;

/// The data a source reads from.
pub(crate) enum Input {
    /// A version in memory.
    Memory { memtable: Rc<Memtable>, cursor: VersionCursor, pin: Option<Pin> },
    /// One partition of a file.
    Partition { file: Rc<TableFile>, reader: Box<PartitionReader> },
    /// One partition of all files, read through the row cache.
    Cached(Box<CachedPartition>),
    /// The current partition of a scan over a file.
    Scan { file: Rc<TableFile>, scanner: Box<Scanner> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    End,
    Row,
    Change(i8, DeletionTime),
}

/// An input with its next element.
pub(crate) struct Source {
    pub(crate) input: Input,
    /// The range deletion this source has in force.
    pub(crate) active: DeletionTime,
    kind: Kind,
    /// Whether the element was taken, or none was read yet: the source has to advance before its next element
    /// is used.
    pub(crate) taken: bool,
    clustering: Vec<u8>,
    row: Vec<u8>,
}

impl Source {
    pub(crate) fn new(input: Input) -> Self {
        Self {
            input,
            active: DeletionTime::LIVE,
            kind: Kind::End,
            taken: true,
            clustering: Vec::new(),
            row: Vec::new(),
        }
    }

    /// A source over a version in memory.
    pub(crate) fn memory(memtable: &Rc<Memtable>, partition: PartitionRef, version: u32) -> Self {
        let cursor = VersionCursor::new(partition, version);
        Self::new(Input::Memory { memtable: Rc::clone(memtable), cursor, pin: None })
    }

    /// The deletion of the partition, and its static row appended to `static_row`.
    pub(crate) fn head(&self, static_row: &mut Vec<u8>) -> DeletionTime {
        let mut keep =
            |row: Option<RowView<'_>>| static_row.extend(row.into_iter().flat_map(|r| r.as_bytes()));
        match &self.input {
            Input::Memory { memtable, cursor, .. } => {
                let contents = memtable.contents();
                let (partition, version) = cursor.place();
                let (deletion, row) = contents.head(partition, version);
                keep(row);
                deletion
            }
            Input::Partition { reader, .. } => {
                keep(reader.static_row());
                reader.deletion()
            }
            Input::Cached(partition) => {
                let (deletion, row) = partition.head();
                keep(row);
                deletion
            }
            Input::Scan { scanner, .. } => {
                keep(scanner.static_row());
                scanner.deletion()
            }
        }
    }

    /// The deletion of the partition.
    pub(crate) fn partition_deletion(&self) -> DeletionTime {
        match &self.input {
            Input::Memory { memtable, cursor, .. } => {
                let (partition, version) = cursor.place();
                memtable.contents().head(partition, version).0
            }
            Input::Partition { reader, .. } => reader.deletion(),
            Input::Cached(partition) => partition.head().0,
            Input::Scan { scanner, .. } => scanner.deletion(),
        }
    }

    /// Resets the source for another partition of a scan.
    pub(crate) fn restart(&mut self) {
        (self.active, self.kind, self.taken) = (DeletionTime::LIVE, Kind::End, true);
    }

    /// Reads the first element, unless that was done.
    ///
    /// # Errors
    /// Those of [`Source::advance`].
    pub(crate) async fn begin(&mut self, shape: Shape<'_>) -> Result<(), StorageError> {
        if self.taken { self.advance(shape).await } else { Ok(()) }
    }

    /// Position of the next element; `None` at the end.
    #[inline]
    pub(crate) fn position(&self) -> Option<Position<'_>> {
        match self.kind {
            Kind::End => None,
            Kind::Row => Some(Position::row(self.clustering())),
            Kind::Change(weight, _) => Some(Position { prefix: Clustering(&self.clustering), weight }),
        }
    }

    /// The next element, if it is a row.
    #[inline]
    pub(crate) fn row(&self) -> Option<RowView<'_>> {
        (self.kind == Kind::Row).then(|| match &self.input {
            Input::Scan { scanner, .. } => scanner.row().1,
            Input::Partition { reader, .. } => reader.row().1,
            Input::Memory { .. } | Input::Cached(_) => RowView::trusted(&self.row),
        })
    }

    /// The clustering of the next element.
    #[inline]
    pub(crate) fn clustering(&self) -> &[u8] {
        match &self.input {
            Input::Scan { scanner, .. } if self.kind == Kind::Row => scanner.row().0,
            Input::Partition { reader, .. } if self.kind == Kind::Row => reader.row().0,
            _ => &self.clustering,
        }
    }

    /// The next element, if it is a change of deletion.
    pub(crate) fn change(&self) -> Option<DeletionTime> {
        match self.kind {
            Kind::Change(_, deletion) => Some(deletion),
            _ => None,
        }
    }

    /// Advances to the following element.
    ///
    /// # Errors
    /// [`StorageError::TableFileCorrupt`] and reading errors.
    pub(crate) async fn advance(&mut self, shape: Shape<'_>) -> Result<(), StorageError> {
        // Each round reads more of a file.
        while !self.advance_at_hand(shape)? {
            match &mut self.input {
                Input::Memory { .. } => break,
                Input::Partition { file, reader } => {
                    reader.fetch().await.map_err(|error| file.failed(error))?;
                }
                Input::Scan { file, scanner } => {
                    scanner.fetch().await.map_err(|error| file.failed(error))?;
                }
                Input::Cached(partition) => {
                    let found = partition.next(shape, &mut self.clustering, &mut self.row).await?;
                    self.found(found);
                    break;
                }
            }
        }
        Ok(())
    }

    /// As [`Source::advance`] without waiting for the disk; returns false if the disk has to be read.
    ///
    /// # Errors
    /// As [`Source::advance`].
    #[inline]
    pub(crate) fn advance_at_hand(&mut self, shape: Shape<'_>) -> Result<bool, StorageError> {
        let (file, next) = match &mut self.input {
            Input::Memory { memtable, cursor, .. } => {
                let contents = memtable.contents();
                let next = cursor.next(&contents, shape);
                self.kind = keep(next, &mut self.clustering, &mut self.row);
                self.taken = false;
                return Ok(true);
            }
            Input::Cached(partition) => {
                let found = partition.next_at_hand(shape, &mut self.clustering, &mut self.row)?;
                return Ok(found.is_some_and(|found| {
                    self.found(found);
                    true
                }));
            }
            Input::Partition { file, reader } => (file, reader.next_at_hand()),
            Input::Scan { file, scanner } => (file, scanner.next_at_hand()),
        };
        self.kind = match next.map_err(|error| failed(file, error))? {
            AtHand::Lacking => return Ok(false),
            AtHand::End => Kind::End,
            AtHand::Next(Unfiltered::Row { .. }) => Kind::Row,
            AtHand::Next(Unfiltered::Change { position, deletion }) => {
                self.clustering.clear();
                self.clustering.extend_from_slice(position.prefix.0);
                Kind::Change(position.weight, deletion)
            }
        };
        self.taken = false;
        Ok(true)
    }

    fn found(&mut self, found: Found) {
        self.taken = false;
        self.kind = match found {
            Found::Row => Kind::Row,
            Found::Change(weight, deletion) => Kind::Change(weight, deletion),
            Found::End => Kind::End,
        };
    }

    /// Called before a pause: pins the version, so that the rest to be read does not change.
    pub(crate) fn pin(&mut self, table: &Rc<model::Table>) {
        if let Input::Memory { memtable, cursor, pin } = &mut self.input
            && pin.is_none()
        {
            let (partition, version) = cursor.place();
            *pin = Some(Pin::new(memtable, table, partition, version));
        }
    }

    /// Whether reading may wait for the disk.
    pub(crate) fn is_file(&self) -> bool {
        !matches!(self.input, Input::Memory { .. })
    }
}

#[cold]
fn failed(file: &TableFile, error: SstableError) -> StorageError {
    file.failed(error)
}

fn keep(next: Option<Unfiltered<'_>>, clustering: &mut Vec<u8>, row: &mut Vec<u8>) -> Kind {
    clustering.clear();
    match next {
        None => Kind::End,
        Some(Unfiltered::Row { clustering: c, row: r }) => {
            clustering.extend_from_slice(c);
            row.clear();
            row.extend_from_slice(r.as_bytes());
            Kind::Row
        }
        Some(Unfiltered::Change { position, deletion }) => {
            clustering.extend_from_slice(position.prefix.0);
            Kind::Change(position.weight, deletion)
        }
    }
}

/// Order of two positions as they come in reading order.
#[inline]
pub(crate) fn reading_order(
    a: Position<'_>,
    b: Position<'_>,
    orders: &[ClusteringOrder],
    reversed: bool,
) -> std::cmp::Ordering {
    let order = a.compare(b, orders);
    if reversed { order.reverse() } else { order }
}
