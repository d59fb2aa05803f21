//! Reads: from memtables alone without copying a row, otherwise by a merge with table files.
//!
//! `command` has the parameters of a read. `now` reads a row without waiting, `partition` reads one
//! partition, `scan` many, which `kept` keeps between pages. `cached` reads one partition from the row cache
//! before the files; `source` and `merge` combine versions and files; `skip` decides which files need not be
//! opened. `visible` decides which parts of a row are visible, `dead` counts the others, and `permit` limits
//! reads from disk and scans.
//! `raw` hands over deletions and dead data too, for other replicas; `shown` has what clients see of it.
//! `files_with` finds the files that have a partition.

mod both;
mod cached;
mod command;
mod dead;
mod files_with;
mod fragments;
mod from_memory;
pub(crate) mod kept;
pub(crate) mod merge;
mod partition;
pub(crate) mod permit;
mod raw;
mod scan;
mod shown;
mod skip;
pub(crate) mod source;
mod told;
pub(crate) mod visible;

pub use command::{Dead, Flow, PartitionBound, PartitionRange, Place, ReadCommand, RowConsumer, Slices};
pub use fragments::fragments_table;
pub use from_memory::{FromMemory, Unread};
pub use raw::RawConsumer;
pub use shown::Shown;
pub use visible::VisibleScratch;

use std::rc::Rc;

use model::TableId;
use reactor::Group;
use sstable::DiskReads;

use crate::error::StorageError;
use crate::shard::Storage;
use partition::Reader;

impl Storage {
    /// Reads partitions of this shard's tablets in token order, and hands live rows to `consumer`.
    ///
    /// Other tasks run between rows. A read of one partition sees all of each mutation to it or nothing; so
    /// does a scan for each partition, but it may see writes that end while it runs in only some of the
    /// partitions.
    ///
    /// # Errors
    /// [`StorageError::UnknownTable`]; [`StorageError::WrongShard`] for a key of another shard, or when a
    /// tablet leaves this shard before a scan comes to it; [`StorageError::TableFileCorrupt`] naming the
    /// file, and reading errors. Rows handed over before stay handed over.
    pub async fn read(
        &self,
        command: &ReadCommand,
        consumer: &mut dyn RowConsumer,
    ) -> Result<(), StorageError> {
        let Ok(store) = self.table_store(command.table.id()) else {
            return Box::pin(self.read_fragments(command, consumer)).await;
        };
        let scratch = self.take_scratch();
        let mut reader =
            Reader { command, scratch, permits: &self.0.permits, kept: &self.0.kept_scans, room: None };
        let result = match &command.range {
            PartitionRange::Key(key) => {
                let tablet = self.tablet_soon(&store, key.token).await?;
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
                // In token order. A tablet that leaves before its turn fails the scan: its rows would be
                // missing.
                for id in store.ids_between(first, last) {
                    let tablet = match Box::pin(self.tablet_soon(&store, map.range(id).0)).await {
                        Ok(tablet) => tablet,
                        Err(error) => {
                            result = Err(error);
                            break;
                        }
                    };
                    if let Err(error) = tablet.check_readable() {
                        result = Err(error);
                        break;
                    }
                    // Boxed, so that the future of a read of one partition has no room for a scan.
                    let scan = Box::pin(reader.scan(&tablet, map.range(tablet.id), from, to, consumer));
                    match scan.await {
                        Ok(Flow::Stop) => break,
                        Ok(_) => {}
                        Err(error) => {
                            result = Err(error);
                            break;
                        }
                    }
                }
                result
            }
        };
        self.return_scratch(reader.scratch);
        result.inspect_err(|error| self.note_read_error(error))
    }

    /// Moves a read of many partitions to the group of scans, and waits for its permit there.
    async fn begin_scan(&self) -> Result<permit::ReadPermit, StorageError> {
        become_long().await;
        self.0.permits.scan().await
    }
}

/// Lets other tasks run. A client's request that turns out to be long moves to the group of scans, behind
/// short ones.
pub(crate) async fn become_long() {
    let group = reactor::current_group();
    if group == Group::STATEMENT || group == Group::UNPREPARED {
        reactor::move_to(Group::SCAN).await;
    } else {
        reactor::yield_now().await;
    }
}

/// After this many pauses a read of one partition counts as long.
const LOOKS_OF_SHORT_READ: u32 = 16;

/// Lets other tasks run; from [`LOOKS_OF_SHORT_READ`] pauses on the read counts as long.
pub(crate) async fn give_way(looks: u32) {
    if looks < LOOKS_OF_SHORT_READ {
        reactor::yield_now().await;
    } else {
        become_long().await;
    }
}

impl Storage {
    /// The disk requests so far for reading the table files of a table that are open on this shard.
    ///
    /// # Errors
    /// [`StorageError::UnknownTable`].
    pub fn disk_reads(&self, table: TableId) -> Result<DiskReads, StorageError> {
        let mut sum = DiskReads::default();
        for tablet in &self.table_store(table)?.tablets() {
            for file in tablet.files().iter() {
                let reads = file.sstable().disk_reads();
                sum.requests += reads.requests;
                sum.bytes += reads.bytes;
            }
        }
        Ok(sum)
    }
}
