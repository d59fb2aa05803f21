//! Reads of one row without waiting: from a memtable, from the row cache, or from both.
//!
//! Most reads are of this kind, and as futures they would cost more than the row: each layer between the
//! request and the row would make a future, poll it once and drop it. So they are tried first, as a function;
//! reads that this cannot answer go through `partition`. Invariant: rows handed over here are not handed over
//! again.

use std::rc::Rc;

use model::reconcile::deletion;
use model::{DeletionTime, RowView, Token};

use super::both::Both;
use super::dead::Graves;
use super::partition::{Reader, passed, places};
use super::skip::asks_for_one_row;
use super::told;
use super::visible::{drop_dropped_is_needless, visible};
use super::{Flow, PartitionRange, ReadCommand, RowConsumer, Slices};
use crate::cache::{Claim, Walked};
use crate::error::StorageError;
use crate::memtable::{Memtable, PartitionRef};
use crate::shard::Storage;
use crate::tablet::{TableFile, Tablet};

/// How far a read came without waiting.
#[derive(Debug)]
pub enum FromMemory {
    /// Everything requested was handed over.
    Done,
    /// Nothing was handed over: call [`Storage::read`].
    NotBegun,
    /// The row cache lacks some of it: continue with [`Storage::read_unread`].
    Partial(Box<Unread>),
}

/// The part of a read that memory lacks.
pub struct Unread {
    tablet: Rc<Tablet>,
    claim: Claim,
    left: Option<(Slices, bool)>,
}

impl std::fmt::Debug for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Unread({:?})", self.left)
    }
}

/// Result of looking up the row in the only memtable of a tablet.
enum InMemory {
    /// It does not have the partition.
    Absent,
    /// Everything requested was handed over.
    Done,
    /// Files may have the partition too; this is its only version here.
    Shared(PartitionRef, u32),
    /// The partition is not of a kind that is read here.
    Other,
}

impl Storage {
    /// Reads one row of one partition as [`Storage::read`] does, if that is possible without waiting. A
    /// caller that takes the answer calls [`Storage::note_read`].
    #[inline]
    pub fn read_from_memory(&self, command: &ReadCommand, consumer: &mut dyn RowConsumer) -> FromMemory {
        let PartitionRange::Key(key) = &command.range else { return FromMemory::NotBegun };
        if !asks_for_one_row(&command.table, command.shape()) {
            return FromMemory::NotBegun;
        }
        let Ok(store) = self.table_store(command.table.id()) else { return FromMemory::NotBegun };
        let Ok(tablet) = self.tablet(&store, key.token) else { return FromMemory::NotBegun };
        let Some(memtable) = tablet.only_memtable() else { return FromMemory::NotBegun };
        let files = tablet.files();
        let one = (key.token, key.key.as_slice());
        match self.row_in_memory(command, &memtable, &files, one, consumer) {
            InMemory::Done => FromMemory::Done,
            InMemory::Absent if files.is_empty() => FromMemory::Done,
            InMemory::Absent => self.row_in_files(command, tablet, None, one, consumer),
            InMemory::Shared(partition, version) => {
                self.row_in_files(command, tablet, Some((&memtable, partition, version)), one, consumer)
            }
            InMemory::Other => FromMemory::NotBegun,
        }
    }

    /// Notes, for a trace, where a read was answered that did not wait. Call in the slice of the read.
    #[cold]
    pub fn note_memory(&self, command: &ReadCommand) {
        let PartitionRange::Key(key) = &command.range else { return };
        let Ok(store) = self.table_store(command.table.id()) else { return };
        if let Ok(tablet) = self.tablet(&store, key.token) {
            told::from_memory(&places(&tablet, key.token, &key.key), key.token, &key.key);
        }
    }

    /// Continues a read that [`Storage::read_from_memory`] began.
    ///
    /// # Errors
    /// As [`Storage::read`].
    pub async fn read_unread(
        &self,
        command: &ReadCommand,
        unread: Box<Unread>,
        consumer: &mut dyn RowConsumer,
    ) -> Result<(), StorageError> {
        let PartitionRange::Key(key) = &command.range else { return Ok(()) };
        self.note_read(command.table.id(), &key.key);
        let mut reader = Reader {
            command,
            scratch: self.take_scratch(),
            permits: &self.0.permits,
            kept: &self.0.kept_scans,
            room: None,
        };
        let Unread { tablet, claim, left } = *unread;
        let (token, name) = (key.token, &key.key[..]);
        told::sources(|| places(&tablet, token, name), token, name, &command.slices);
        let read = reader.merged_partition(&tablet, Some(claim), left, key.token, &key.key, consumer).await;
        self.return_scratch(reader.scratch);
        read.map(|_| ()).inspect_err(|error| self.note_read_error(error))
    }

    #[inline]
    fn row_in_memory(
        &self,
        command: &ReadCommand,
        memtable: &Memtable,
        files: &[Rc<TableFile>],
        (token, key): (Token, &[u8]),
        consumer: &mut dyn RowConsumer,
    ) -> InMemory {
        let contents = memtable.contents();
        let Some(partition) = contents.find(token, key) else { return InMemory::Absent };
        if files.iter().any(|file| file.sstable().may_contain(token, key)) {
            let version = contents.only_version(partition);
            return version.map_or(InMemory::Other, |version| InMemory::Shared(partition, version));
        }
        let Some((whole, row)) = contents.only_row(partition, command.shape()) else {
            return InMemory::Other;
        };
        if let Some((clustering, row)) = row
            && whole.is_live()
            && row.is_plain()
            && !row.is_empty()
            && drop_dropped_is_needless(&command.table)
        {
            hand_over((token, key), clustering, row, consumer);
        } else {
            self.hand_over_seen(command, (token, key), whole, row, consumer);
        }
        InMemory::Done
    }

    /// Hands over the visible part of a row that is not plain, or reports it as dead.
    #[inline(never)]
    fn hand_over_seen(
        &self,
        command: &ReadCommand,
        (token, key): (Token, &[u8]),
        whole: DeletionTime,
        row: Option<(&[u8], RowView<'_>)>,
        consumer: &mut dyn RowConsumer,
    ) {
        let mut scratch = self.take_scratch();
        let graves = Graves::new(&command.table, command.now);
        let mut flow = Flow::Continue;
        let mut seen = None;
        if let Some((clustering, row)) = row {
            let row = visible(
                &command.table,
                row,
                deletion(whole, DeletionTime::LIVE),
                command.now,
                &graves,
                &mut scratch,
            );
            if graves.found_any() {
                let place = passed(clustering, row.is_some(), command.reversed);
                flow = graves.say((token, key), Some(place), consumer);
            }
            seen = row.map(|row| (clustering, row));
        }
        match seen {
            _ if flow == Flow::Stop => {}
            Some((clustering, row)) => hand_over((token, key), clustering, row, consumer),
            None => {
                graves.partition((token, key), consumer);
            }
        }
        self.return_scratch(scratch);
    }

    /// For a partition that files may have: merges the cached row with the memtable's.
    fn row_in_files(
        &self,
        command: &ReadCommand,
        tablet: Rc<Tablet>,
        memory: Option<(&Rc<Memtable>, PartitionRef, u32)>,
        (token, key): (Token, &[u8]),
        consumer: &mut dyn RowConsumer,
    ) -> FromMemory {
        let Some(claim) = tablet.cache().claim().filter(|_| !command.bypass_cache) else {
            return FromMemory::NotBegun;
        };
        let mut reader = Reader {
            command,
            scratch: self.take_scratch(),
            permits: &self.0.permits,
            kept: &self.0.kept_scans,
            room: None,
        };
        let left = match memory {
            Some(memory) => match reader.row_of_both((&tablet, claim), memory, (token, key), consumer) {
                Both::HandedOver(_) => Err(FromMemory::Done),
                Both::Gap => Ok(Some((command.slices.clone(), false))),
                Both::Merge => Ok(None),
            },
            None => match reader.walk_cache(&tablet, claim, token, key, consumer) {
                (Walked::Done(_), _) => Err(FromMemory::Done),
                (Walked::Left(slices), announced) => Ok(Some((slices, announced))),
                (Walked::Unknown, _) => Ok(None),
            },
        };
        self.return_scratch(reader.scratch);
        match left {
            Ok(left) => FromMemory::Partial(Box::new(Unread { tablet, claim, left })),
            Err(done) => done,
        }
    }
}

/// A partition with one row.
#[inline]
fn hand_over(
    (token, key): (Token, &[u8]),
    clustering: &[u8],
    row: RowView<'_>,
    consumer: &mut dyn RowConsumer,
) {
    let mut flow = consumer.partition(key, token, None);
    if flow == Flow::Continue {
        flow = consumer.row(clustering, row);
    }
    if flow != Flow::Stop {
        consumer.partition_end();
    }
}
