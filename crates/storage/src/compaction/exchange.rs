//! Puts outputs in the place of inputs, in memory and on the disk, crash or no crash.
//!
//! One exchange per tablet at a time: a file that is obsolete is removed only under a record of the manifest
//! that lists the outputs and names all that go, so that a crash never leaves what was deleted without what
//! deleted it.

use std::rc::Rc;

use sstable::Descriptor;

use crate::error::StorageError;
use crate::manifest::Edit;
use crate::shard::Storage;
use crate::tablet::{TableFile, Tablet};

impl Storage {
    /// Replaces `old`, which are in the tablet's set, by `new`, which are whole and durable.
    ///
    /// # Errors
    /// Those of writing the manifest. The files are then replaced in memory all the same, and the old ones
    /// counted as orphans; the next start finds both, which gives the same answers.
    pub(super) async fn exchange(
        &self,
        tablet: &Tablet,
        old: &[Rc<TableFile>],
        new: &[Rc<TableFile>],
    ) -> Result<(), StorageError> {
        let Ok(_turn) = tablet.exchanging.acquire(1).await else { return Err(StorageError::Draining) };
        // In memory first: whether the record is on the disk may remain unknown, and both answers are right
        // as long as the old files are counted as orphans.
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
        let table = tablet.table().id();
        let present = tablet.generations().into_iter().map(|g| (table, g));
        let mut edits: Vec<Edit> =
            present.filter(|key| self.0.manifest.file(*key).is_none()).map(Edit::Live).collect();
        edits.extend(obsolete.iter().map(|descriptor| Edit::Removing((table, descriptor.generation()))));
        self.0.manifest.note(&edits).await?;
        let mut gone = true;
        for descriptor in obsolete {
            gone &= self.discard_file(tablet, *descriptor).await;
        }
        Ok(gone)
    }
}
