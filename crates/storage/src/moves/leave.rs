//! A tablet leaves this shard: handed over to another one, or removed with its data.

use std::time::Duration;

use reactor::Deadline;
use sstable::Descriptor;

use super::{Key, store_of};
use crate::commitlog::flushed::encode_flushed;
use crate::commitlog::format::EntryKind;
use crate::error::StorageError;
use crate::manifest::Edit;
use crate::shard::Storage;
use crate::tablet::{LeftOut, Tablet, Unplaced};

/// How long a tablet that leaves waits for room in the commit log.
const NOTED_WITHIN: Duration = Duration::from_secs(10);

/// What the next shard needs to know of a tablet that was handed over.
#[derive(Debug, Clone, Default)]
pub(super) struct Handed {
    /// Its files.
    pub(super) files: Vec<Descriptor>,
    /// Files that are there and not read because they cannot be opened. The next shard tries it.
    pub(super) left_out: Vec<Descriptor>,
    /// Files that may have rows of any tablet of the table: reads of the next shard fail too.
    pub(super) unplaced: Vec<Unplaced>,
    /// Files that should be gone from the disk and may not be.
    pub(super) orphans: Vec<Descriptor>,
    /// Whether rows may be missing.
    pub(super) lacks_rows: bool,
    /// What operators have asked for.
    pub(super) compacts_itself: bool,
    pub(super) keeps_tombstones: bool,
}

/// A file that every tablet of its table leaves out.
fn unplaced(file: LeftOut) -> Option<Unplaced> {
    file.refuses.map(|error| Unplaced::new(file.descriptor, error))
}

impl Storage {
    /// Hands a tablet over: on return it is not open here any more, all of its writes are in durable files,
    /// and none of its entries in this shard's log counts.
    ///
    /// # Errors
    /// Those of flushing, and of the commit log: the tablet stays open.
    pub(super) async fn hand_over(&self, key: Key) -> Result<Handed, StorageError> {
        let (store, tablet) = store_of(self, key)?;
        // Most of it goes while writes still come, which keeps the pause short.
        self.flush_tablet(&tablet).await?;
        let Some(_alone) = tablet.alone().await else { return Err(StorageError::Draining) };
        self.check_leaving(&tablet)?;
        self.flush_in_turn(&tablet).await?;
        self.discard_orphans(&tablet).await;
        self.note_leaving(&tablet).await?;
        // The table may have been dropped meanwhile.
        self.check_leaving(&tablet)?;
        let left_out = tablet.left_out();
        let handed = Handed {
            files: tablet.files().iter().map(|file| file.sstable().descriptor()).collect(),
            left_out: left_out.iter().filter(|file| !file.is_shared).map(|file| file.descriptor).collect(),
            unplaced: left_out.into_iter().filter(|file| file.is_shared).filter_map(unplaced).collect(),
            orphans: tablet.orphan_files(),
            lacks_rows: tablet.lacks_rows(),
            compacts_itself: tablet.compacts_itself(),
            keeps_tombstones: tablet.operators_keep_tombstones(),
        };
        store.remove(&tablet);
        tablet.mark_left();
        self.0.memory_freed.notify_all();
        Ok(handed)
    }

    fn check_leaving(&self, tablet: &Tablet) -> Result<(), StorageError> {
        if self.0.draining.get() {
            return Err(StorageError::Draining);
        }
        if tablet.is_dropped() {
            return Err(StorageError::UnknownTable { table: tablet.table().id() });
        }
        tablet.check_truncation(&self.0.log)
    }

    /// Notes durably in the commit log that none of the tablet's entries before this counts. A replay would
    /// bring back rows that were deleted since, by a tombstone that is purged by now.
    async fn note_leaving(&self, tablet: &Tablet) -> Result<(), StorageError> {
        let table = tablet.table();
        let payload = encode_flushed(table.id(), (table.tablets(), tablet.id), self.0.log.end());
        self.0.log.append(EntryKind::Flushed, &payload, Deadline::after(NOTED_WITHIN)).await?;
        self.0.log.sync().await
    }

    /// Takes the files of a tablet that was handed over off this shard's part of the manifest. The next shard
    /// has them in its own.
    ///
    /// # Errors
    /// Those of writing the manifest.
    pub(super) async fn forget_handed(&self, (table, _): Key, handed: &Handed) -> Result<(), StorageError> {
        let files = handed.files.iter().chain(&handed.left_out).chain(&handed.orphans);
        let keys = files.map(|descriptor| (table, descriptor.generation()));
        let gone: Vec<Edit> =
            keys.filter(|key| self.0.manifest.file(*key).is_some()).map(Edit::Gone).collect();
        self.0.manifest.note(&gone).await
    }

    /// Removes a tablet with its data: this node does not have it any more.
    ///
    /// # Errors
    /// Those of the commit log: the tablet stays open.
    pub(super) async fn remove_tablet(&self, key: Key) -> Result<(), StorageError> {
        let (store, tablet) = store_of(self, key)?;
        let Some(_alone) = tablet.alone().await else { return Err(StorageError::Draining) };
        self.check_leaving(&tablet)?;
        self.note_leaving(&tablet).await?;
        store.remove(&tablet);
        let (memtables, files) = tablet.clear();
        tablet.mark_left();
        memtables.iter().for_each(|memtable| memtable.release_log());
        drop(memtables);
        for file in files {
            self.discard(&tablet, file.generation()).await;
        }
        // What cannot be removed now is of an earlier tenancy for the next start, and removed there.
        self.discard_orphans(&tablet).await;
        self.0.memory_freed.notify_all();
        reactor::info!("a tablet was removed"; table = key.0, tablet = key.1.0, since = tablet.since());
        Ok(())
    }
}
