//! Cleanup: removes partitions from table files that do not belong to the file's tablet any more.
//!
//! No read shows such partitions: a read uses the tablet of its token, and scans end where their tablet does.
//! Other compactions keep them, so cleanup waits for running ones before it lists the files.

use std::rc::Rc;

use model::TableId;

use super::job::Ended;
use super::manual::CompactOutcome;
use super::running::CompactionKind;
use crate::error::StorageError;
use crate::shard::Storage;
use crate::tablet::{COMPACTIONS_MAX, TableFile, Tablet};

impl Storage {
    /// Removes partitions from this table's files that do not belong to their tablet. Files without such
    /// partitions are left as they are.
    ///
    /// # Errors
    /// As [`Storage::compact`].
    pub async fn cleanup(&self, table: TableId) -> Result<CompactOutcome, StorageError> {
        let store = self.table_store(table)?;
        let mut outcome = CompactOutcome::default();
        for tablet in &store.tablets() {
            // Otherwise the memtable's partitions would come to a file later.
            self.flush_tablet(tablet).await?;
            // Bounded: a rewritten file has no partition outside the tablet.
            while !tablet.is_gone() && first_outside(tablet).is_some() {
                let Ok(permit) = tablet.compacting.acquire(COMPACTIONS_MAX).await else {
                    return Err(StorageError::Draining);
                };
                let Some(file) = first_outside(tablet).filter(|_| !tablet.is_gone()) else { break };
                let ended = self.rewrite_one(tablet, file, CompactionKind::Cleanup).await;
                drop(permit);
                let ended = self.unless_left(tablet, ended).await?;
                outcome.count(ended);
                if ended == Ended::Stopped {
                    return Ok(outcome);
                }
            }
            self.look_again(tablet);
        }
        Ok(outcome)
    }
}

/// The first file that has partitions outside its tablet.
fn first_outside(tablet: &Tablet) -> Option<Rc<TableFile>> {
    let (first, last) = tablet.tokens();
    let is_outside = |file: &TableFile| {
        let sstable = file.sstable();
        sstable.first_key().0 < first || last < sstable.last_key().0
    };
    tablet.files().iter().find(|file| is_outside(file)).cloned()
}
