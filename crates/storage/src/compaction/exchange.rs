//! Puts outputs in the place of inputs, in memory and on the disk, crash or no crash.
//!
//! One exchange per tablet at a time: a file that is obsolete is removed only under a record that names all that go
//! with it (`transaction`), so that a crash never leaves what was deleted without what deleted it.

use std::rc::Rc;

use sstable::Descriptor;

use super::transaction;
use crate::error::StorageError;
use crate::shard::Storage;
use crate::tablet::{TableFile, Tablet};

impl Storage {
    /// Replaces `old`, which are in the tablet's set, by `new`, which are whole and durable.
    ///
    /// # Errors
    /// Those of writing the record. The files are then replaced in memory all the same, and the old ones counted as
    /// orphans; the next start finds both, which gives the same answers.
    pub(super) async fn exchange(
        &self,
        tablet: &Tablet,
        old: &[Rc<TableFile>],
        new: &[Rc<TableFile>],
    ) -> Result<(), StorageError> {
        let Ok(_turn) = tablet.exchanging.acquire(1).await else { return Err(StorageError::Draining) };
        // In memory first: whether the record is on the disk may remain unknown, and both answers are right as
        // long as the old files are counted as orphans.
        tablet.replace_files(old, new.iter().cloned());
        let obsolete: Vec<Descriptor> = old.iter().map(|file| file.sstable().descriptor()).collect();
        obsolete.iter().for_each(|descriptor| tablet.add_orphan_file(*descriptor));
        self.remove_recorded(tablet, &obsolete).await.map(|_| ())
    }

    /// Removes what earlier attempts left; says whether all of it is gone for good.
    pub(super) async fn clear_orphans(&self, tablet: &Tablet) -> bool {
        if tablet.orphan_files().is_empty() {
            return true;
        }
        let Ok(_turn) = tablet.exchanging.acquire(1).await else { return false };
        let orphans = tablet.orphan_files();
        matches!(self.remove_recorded(tablet, &orphans).await, Ok(true))
    }

    /// Removes files that are in no set any more, all or none as a crash sees it; says whether all are gone.
    async fn remove_recorded(&self, tablet: &Tablet, obsolete: &[Descriptor]) -> Result<bool, StorageError> {
        if obsolete.is_empty() {
            return Ok(true);
        }
        let record = transaction::path(&tablet.directory, tablet.next_generation());
        let generations: Vec<u64> = obsolete.iter().map(|descriptor| descriptor.generation()).collect();
        reactor::file::write_all_atomic(&record, transaction::encode(&generations).as_bytes())
            .await
            .map_err(StorageError::of("write", &record))?;
        let mut gone = true;
        for descriptor in obsolete {
            gone &= self.discard_file(tablet, *descriptor).await;
        }
        if gone {
            reactor::file::remove_file(&record).await.map_err(StorageError::of("delete", &record))?;
        }
        Ok(gone)
    }
}
