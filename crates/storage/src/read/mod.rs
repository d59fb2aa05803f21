//! Reads: from memtables alone without copying a row, else by a merge with table files.
//!
//! `command` says what is asked, `now` reads a row that nothing has to be waited for, `partition` reads one partition, `scan` many; `cached` puts the row cache before the files of
//! one partition; `source` and `merge` put versions and files together; `skip` knows which files need not be opened;
//! `visible` decides what of a row is seen, `dead` counts what is not, `permit` says who may read from disk or scan;
//! `files_with` says which files have a partition.

mod both;
mod cached;
mod command;
mod dead;
mod files_with;
mod fragments;
pub(crate) mod merge;
mod now;
mod partition;
pub(crate) mod permit;
mod scan;
mod skip;
pub(crate) mod source;
pub(crate) mod visible;

pub use command::{Dead, Flow, PartitionBound, PartitionRange, Place, ReadCommand, RowConsumer, Slices};
pub use fragments::fragments_table;
pub use now::{Now, Rest};

use std::rc::Rc;

use model::TableId;
use model::tablet::TabletId;
use reactor::Group;
use sstable::DiskReads;

use crate::error::StorageError;
use crate::shard::Storage;
use partition::Reader;

impl Storage {
    /// Reads partitions of this shard's tablets in token order, and hands live rows to `consumer`.
    ///
    /// Gives way between rows. A read of one partition sees each mutation to it whole or not at all; a scan sees
    /// that of each partition, and writes that end while it runs in part of the partitions.
    ///
    /// # Errors
    /// [`StorageError::UnknownTable`]; [`StorageError::WrongShard`] for a key of another shard;
    /// [`StorageError::TableFileCorrupt`] naming the file, and reading errors. Rows handed over before stay handed over.
    pub async fn read(
        &self,
        command: &ReadCommand,
        consumer: &mut dyn RowConsumer,
    ) -> Result<(), StorageError> {
        let Ok(store) = self.table_store(command.table.id()) else {
            return Box::pin(self.read_fragments(command, consumer)).await;
        };
        let scratch = self.take_scratch();
        let mut reader = Reader { command, scratch, permits: &self.0.permits, room: None };
        let result = match &command.range {
            PartitionRange::Key(key) => {
                let tablet = self.tablet(&store, key.token)?;
                tablet.check_readable()?;
                self.note_read(command.table.id(), &key.key);
                reactor::in_place!(reader.partition(&tablet, key.token, &key.key, consumer)).map(|_| ())
            }
            PartitionRange::Between { from, to } => {
                let permit = Box::pin(self.begin_scan()).await?;
                reader.room = Some(Rc::clone(permit.room()));
                let map = store.map();
                let (first, last) = (map.tablet_of(from.token), map.tablet_of(to.token));
                let mut result = Ok(());
                let mut next = Some(first);
                // Tablets in token order; their number is bounded by the table's.
                while let Some(tablet) =
                    next.and_then(|next| store.next_tablet(next)).filter(|t| t.id <= last)
                {
                    if let Err(error) = tablet.check_readable() {
                        result = Err(error);
                        break;
                    }
                    // Boxed, so that a read of one partition does not carry the space of a scan.
                    let scan = Box::pin(reader.scan(&tablet, map.range(tablet.id), from, to, consumer));
                    match scan.await {
                        Ok(Flow::Stop) => break,
                        Ok(_) => {}
                        Err(error) => {
                            result = Err(error);
                            break;
                        }
                    }
                    next = tablet.id.0.checked_add(1).map(TabletId);
                }
                result
            }
        };
        self.return_scratch(reader.scratch);
        result.inspect_err(|error| self.note_read_error(error))
    }

    /// A read of many partitions moves to the group of scans, and waits for its turn among them.
    async fn begin_scan(&self) -> Result<permit::ReadPermit, StorageError> {
        become_long().await;
        self.0.permits.scan().await
    }
}

/// Lets others run; a client's request that turns out to be long gives way to short ones from now on.
pub(crate) async fn become_long() {
    let group = reactor::current_group();
    if group == Group::STATEMENT || group == Group::UNPREPARED {
        reactor::move_to(Group::SCAN).await;
    } else {
        reactor::yield_now().await;
    }
}

/// Looks after which a read of one partition counts as long.
const LOOKS_OF_SHORT_READ: u32 = 16;

/// Lets others run; from so many looks on the read is one of the long ones.
pub(crate) async fn give_way(looks: u32) {
    if looks < LOOKS_OF_SHORT_READ {
        reactor::yield_now().await;
    } else {
        become_long().await;
    }
}

impl Storage {
    /// What reading the table files of a table that are open on this shard has asked the disk for so far.
    ///
    /// # Errors
    /// [`StorageError::UnknownTable`].
    pub fn disk_reads(&self, table: TableId) -> Result<DiskReads, StorageError> {
        let mut sum = DiskReads::default();
        for tablet in self.table_store(table)?.tablets() {
            for file in tablet.files().iter() {
                let reads = file.sstable().disk_reads();
                sum.requests += reads.requests;
                sum.bytes += reads.bytes;
            }
        }
        Ok(sum)
    }
}
