//! Opens table files for a tablet, and checks that they are of its table and its tokens.

use reactor::{Cold, cold};
use std::path::Path;
use std::rc::Rc;

use model::tablet::TabletId;
use model::{Table, Token, hex};
use sstable::{Component, Descriptor, Sstable, SstableError};

use super::damage::AtStart;
use super::numbers::COUNTED_MAX;
use super::{Damage, LeftOut, TableFile, quarantine, to_storage_error};
use crate::cache::RowCache;
use crate::error::StorageError;
use crate::manifest::{Edit, Manifest};

/// What a shard opens files with.
#[derive(Clone, Copy)]
pub(crate) struct Keepers<'k> {
    pub(crate) cache: &'k Rc<RowCache>,
    pub(crate) damage: &'k Rc<Damage>,
    pub(crate) manifest: &'k Manifest,
}

/// The files of a tablet: those that are open, and those that are there and not read.
#[derive(Default)]
pub(super) struct OpenFiles {
    pub(super) files: Vec<Rc<TableFile>>,
    pub(super) left_out: Vec<LeftOut>,
    /// Whether a file was set aside, so that its rows are missing.
    pub(super) lacks_rows: bool,
}

/// Opens a table file within this shard's memory.
///
/// # Errors
/// Those of the file.
#[inline(never)]
pub(crate) fn open<'a>(
    directory: &'a Path,
    descriptor: Descriptor,
    table: &'a Rc<Table>,
    cache: &'a RowCache,
) -> Cold<'a, Result<Sstable, SstableError>> {
    cold(async move {
        Sstable::open_within(directory, descriptor, table, (cache.components(), cache.pages())).await
    })
}

impl OpenFiles {
    /// Opens one more file. `disk_failure_policy` decides what happens if it cannot be opened; a line in the
    /// log names it. `at_start` says whether the policy may end the start.
    ///
    /// # Errors
    /// Those of the file if the policy makes the start fail, and shortages of the system.
    pub(super) async fn add(
        &mut self,
        (directory, descriptor): (&Path, Descriptor),
        table: &Rc<Table>,
        tablet: TabletId,
        keepers: Keepers<'_>,
        at_start: bool,
    ) -> Result<(), StorageError> {
        if descriptor.generation() > COUNTED_MAX {
            reactor::warn!("a table file has a number that no node comes to by counting: it is served, and its next compaction \
                writes it under another"; file = descriptor, directory = directory.display());
        }
        let opened = open(directory, descriptor, table, keepers.cache).await.map_err(to_storage_error);
        let opened = opened.and_then(|sstable| of_table(sstable, table));
        let error = match opened.and_then(|sstable| of_tablet(sstable, table.tablets().range(tablet))) {
            Ok(sstable) => {
                self.files.push(Rc::new(TableFile::found(sstable, keepers.damage)));
                return Ok(());
            }
            Err(error) => error,
        };
        match keepers.damage.at_start(&error) {
            AtStart::End if at_start || is_shortage(&error) => return Err(error),
            AtStart::SetAside => {
                reactor::error!("a table file cannot be used and is set aside: its data is missing from reads";
                    error = &error);
                keepers.manifest.note(&[Edit::Gone((table.id(), descriptor.generation()))]).await?;
                quarantine(directory, descriptor).await?;
                keepers.damage.count_set_aside();
                // A start goes on as any later one will: without the file.
                self.lacks_rows |= !at_start;
            }
            AtStart::End | AtStart::RefuseReads => {
                reactor::error!("a table file cannot be used: reads of its tablet fail"; error = &error);
                self.left_out.push(LeftOut { descriptor, refuses: Some(error), is_shared: false });
            }
        }
        Ok(())
    }
}

/// Whether an error is for want of something that may be there later.
fn is_shortage(error: &StorageError) -> bool {
    matches!(error, StorageError::Io { source, .. } if crate::disk::is_shortage(source))
}

/// Checks that a file was written for this table, or does not name its table. A file of another table was put
/// there by hand: if both tables have the same columns, its rows would be answered as this table's.
fn of_table(sstable: Sstable, table: &Table) -> Result<Sstable, StorageError> {
    let other = sstable.extras().schema.filter(|mark| mark.table != table.id().0);
    let Some(mark) = other else { return Ok(sstable) };
    let id = hex::text(&mark.table);
    Err(StorageError::TableFileCorrupt {
        path: sstable.descriptor().path(sstable.dir(), Component::Data),
        reason: format!(
            "it was written for another table, whose id is {id}: move all its files out of the folder and start; where its rows \
             belong to {}.{}, take it in with refresh or import",
            table.keyspace(),
            table.name()
        ),
    })
}

/// Checks that a file has nothing outside its tablet: rows there belong to tablets that do not read it.
fn of_tablet(sstable: Sstable, (first, last): (Token, Token)) -> Result<Sstable, StorageError> {
    if first <= sstable.first_key().0 && sstable.last_key().0 <= last {
        return Ok(sstable);
    }
    Err(StorageError::TableFileCorrupt {
        path: sstable.descriptor().path(sstable.dir(), Component::Data),
        reason: "it has partitions outside the tablet that its mark names; move it out of the folder, start, and take it in \
                 with refresh or import"
            .to_owned(),
    })
}
