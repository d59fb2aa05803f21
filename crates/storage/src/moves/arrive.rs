//! A tablet comes to this shard: from another one of this node, or anew.

use std::rc::Rc;

use model::TableId;
use sstable::Descriptor;

use super::Key;
use super::leave::Handed;
use crate::error::StorageError;
use crate::manifest::Edit;
use crate::shard::Storage;
use crate::tablet::{self, Keepers, TableStore, Tablet, quarantine, to_storage_error};

impl Storage {
    fn keepers(&self) -> Keepers<'_> {
        Keepers { cache: &self.0.cache, damage: &self.0.damage, manifest: &self.0.manifest }
    }

    /// Lists the files of a tablet that comes from another shard in this one's part of the manifest.
    ///
    /// # Errors
    /// Those of writing the manifest.
    pub(super) async fn list_arriving(&self, (table, _): Key, handed: &Handed) -> Result<(), StorageError> {
        self.table_store(table)?;
        let live =
            handed.files.iter().chain(&handed.left_out).map(|file| Edit::Live((table, file.generation())));
        let orphans = handed.orphans.iter().map(|file| Edit::Removing((table, file.generation())));
        let edits: Vec<Edit> = live.chain(orphans).collect();
        self.0.manifest.note(&edits).await
    }

    /// Opens the files of a tablet that comes from another shard, and the tablet.
    ///
    /// # Errors
    /// Shortages of the system. A file that cannot be opened for another reason is handled as
    /// `disk_failure_policy` says, but ends nothing: reads of the tablet then fail.
    pub(super) async fn open_handed(
        &self,
        (table, tablet): Key,
        since: u64,
        handed: &Handed,
    ) -> Result<(), StorageError> {
        let store = self.table_store(table)?;
        self.begin_tenancy(&store, (table, tablet), since).await?;
        let files: Vec<Descriptor> = handed.files.iter().chain(&handed.left_out).copied().collect();
        let opened = store.opened((tablet, since), &files, self.keepers(), false).await?;
        handed.orphans.iter().for_each(|descriptor| opened.add_orphan_file(*descriptor));
        handed.unplaced.iter().for_each(|file| opened.leave_out(file.left_out(&store.directory)));
        if handed.lacks_rows {
            opened.set_lacks_rows();
        }
        opened.set_compacts_itself(handed.compacts_itself);
        opened.let_operators_keep_tombstones(handed.keeps_tombstones);
        self.show(table, &store, opened)
    }

    /// Opens a tablet that is new to this node. Files of its earlier tenancies are removed; those of this one
    /// are opened.
    ///
    /// # Errors
    /// File errors; those of writing the manifest.
    pub(super) async fn open_tablet(&self, (table, tablet): Key, since: u64) -> Result<(), StorageError> {
        let store = self.table_store(table)?;
        let found = tablet::find(&store.directory, &store.table()).await?;
        let (mut own, mut edits) = (Vec::new(), Vec::new());
        for (descriptor, mark) in found.files.into_iter().filter(|(_, mark)| mark.tablet == tablet) {
            let key = (table, descriptor.generation());
            if mark.since == since {
                own.push(descriptor);
                edits.push(Edit::Live(key));
            } else if mark.since < since {
                reactor::warn!("a table file is of an earlier tenancy of its tablet, and is removed";
                    file = descriptor, directory = store.directory.display(), since = mark.since);
                self.0.manifest.note(&[Edit::Removing(key)]).await?;
                sstable::remove(&store.directory, descriptor).await.map_err(to_storage_error)?;
                self.0.manifest.note_lazily([Edit::Gone(key)]);
            } else {
                reactor::warn!("a table file is of a later tenancy of its tablet, and is set aside";
                    file = descriptor, directory = store.directory.display(), since = mark.since);
                self.0.manifest.note(&[Edit::Gone(key)]).await?;
                quarantine(&store.directory, descriptor).await?;
            }
        }
        self.0.manifest.note(&edits).await?;
        self.begin_tenancy(&store, (table, tablet), since).await?;
        let opened = store.opened((tablet, since), &own, self.keepers(), false).await?;
        self.show(table, &store, opened)
    }

    /// Notes that entries of the tablet in this shard's log count from now on.
    async fn begin_tenancy(
        &self,
        store: &TableStore,
        (table, tablet): Key,
        since: u64,
    ) -> Result<(), StorageError> {
        let tenancy = std::iter::once((table, store.map(), tablet, since));
        self.0.manifest.begin_tenancies(tenancy, (self.0.shard, self.0.log.end())).await
    }

    /// Adds an open tablet to its table's set.
    fn show(&self, table: TableId, store: &Rc<TableStore>, opened: Rc<Tablet>) -> Result<(), StorageError> {
        // The table may have been dropped while files were opened.
        let is_there = self.table_store(table).is_ok_and(|now| Rc::ptr_eq(&now, store));
        if !is_there {
            return Err(StorageError::UnknownTable { table });
        }
        if self.0.draining.get() {
            return Err(StorageError::Draining);
        }
        store.insert(opened);
        self.0.compaction_wanted.notify_all();
        self.0.ages_changed.notify_all();
        Ok(())
    }
}
