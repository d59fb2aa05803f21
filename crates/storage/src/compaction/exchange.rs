//! Replaces the inputs of a compaction by its outputs, in memory and on the disk, safely across a crash.
//!
//! A tablet has one exchange at a time. An obsolete file is removed only after a manifest record that lists
//! the outputs and names all files that are removed. So a crash never leaves deleted data without the
//! tombstones that deleted it.

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
        assert!(!tablet.has_left(), "a tablet that has left changes no files: {:?}", tablet.id);
        // In memory first: whether the record is on the disk may remain unknown, and both answers are right
        // as long as the old files are counted as orphans.
        tablet.replace_files(old, new.iter().cloned());
        let obsolete: Vec<Descriptor> = old.iter().map(|file| file.sstable().descriptor()).collect();
        obsolete.iter().for_each(|descriptor| tablet.add_orphan_file(*descriptor));
        self.remove_recorded(tablet, &obsolete).await.map(|_| ())
    }

    /// Removes the files that earlier attempts left. Returns whether all of them are gone for good.
    ///
    /// # Errors
    /// Those of writing the manifest: what a compaction would make now could not be recorded either.
    pub(super) async fn clear_orphans(&self, tablet: &Tablet) -> Result<bool, StorageError> {
        if tablet.orphan_files().is_empty() {
            return Ok(true);
        }
        let Ok(_turn) = tablet.exchanging.acquire(1).await else { return Ok(false) };
        let orphans = tablet.orphan_files();
        self.remove_recorded(tablet, &orphans).await
    }

    /// Removes files that are in no set any more; after a crash either all or none of them are there. Returns
    /// whether all are gone.
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
