//! Takes over table files of others, of any version that is read.
//!
//! Each shard reads the files of a folder and writes what its own tablets have of them as files of its own, so that files
//! cut for other token ranges, other numbers of tablets or another database serve like those that were flushed here. The
//! folder stays as it is: whoever asked removes it once every shard is done. Taking the same files twice changes nothing,
//! since equal writes are one.

use std::path::Path;
use std::rc::Rc;

use model::reconcile::Purge;
use model::{Table, TableId};
use sstable::{Descriptor, PartitionBound, Sstable};

use crate::error::StorageError;
use crate::flush::Output;
use crate::read::merge::Merge;
use crate::read::source::{Input, Source};
use crate::shard::Storage;
use crate::tablet::{TableFile, Tablet, to_storage_error};

/// What was taken over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Imported {
    /// Table files that were read.
    pub files: u64,
    /// Partitions that this shard has of them, counted once for each file.
    pub partitions: u64,
    /// Names of components of table files that cannot be read: other versions, or without a number.
    pub skipped: Vec<String>,
}

impl Storage {
    /// Writes what this shard's tablets have of the table files in `folder` as files of their own.
    ///
    /// # Errors
    /// [`StorageError::UnknownTable`]; [`StorageError::TableFileCorrupt`] for a file that is damaged or of a table of
    /// another shape; those of reading and writing. What was taken over before stays.
    pub async fn import(&self, table: TableId, folder: &Path) -> Result<Imported, StorageError> {
        let store = self.table_store(table)?;
        let entries = reactor::file::read_dir(folder).await.map_err(StorageError::of("list", folder))?;
        let sorted = sstable::sort_names(entries.iter().map(|entry| entry.name.as_str()));
        let mut imported = Imported { skipped: sorted.unsupported, ..Imported::default() };
        // Components of one set come together: a name without a number belongs to none that is read.
        let unnumbered = |name: &&str| name.ends_with("-Data.db") && Descriptor::parse(name).is_err();
        let names = entries.iter().map(|entry| entry.name.as_str());
        imported.skipped.extend(names.filter(unnumbered).map(str::to_owned));
        imported.skipped.sort();
        imported.skipped.dedup();
        let map = store.map();
        for descriptor in sorted.complete {
            let table = store.table();
            let sstable = Sstable::open(folder, descriptor, &table).await.map_err(to_storage_error)?;
            for tablet in store.tablets() {
                let (first, last) = map.range(tablet.id);
                if sstable.first_key().0 <= last && first <= sstable.last_key().0 {
                    imported.partitions += self.import_into(tablet, &table, &sstable).await?;
                }
            }
            imported.files += 1;
        }
        self.0.compaction_wanted.notify_all();
        Ok(imported)
    }

    /// Writes what one tablet has of a file; the number of partitions.
    async fn import_into(
        &self,
        tablet: &Rc<Tablet>,
        table: &Rc<Table>,
        sstable: &Sstable,
    ) -> Result<u64, StorageError> {
        // With flushes, so that a truncation comes before or after.
        let Ok(_turn) = tablet.flushing.acquire(1).await else { return Err(StorageError::Draining) };
        if tablet.is_dropped() {
            return Ok(0);
        }
        let (first, last) = table.tablets().range(tablet.id);
        let (from, to) = (PartitionBound::before_token(first), PartitionBound::behind_token(last));
        let all = [model::clustering::Slice::all()];
        let scanner = sstable.scan(&from, &to, &all).await.map_err(to_storage_error)?;
        let expected = u64::try_from(sstable.stats().partition_sizes.count()).unwrap_or(0);
        let output = self.output(tablet, table, sstable.statistics().header.minima, expected).await?;
        let mut count = 0;
        let file = Rc::new(TableFile::new(sstable.clone(), &self.0.damage));
        let written = self
            .within(tablet, output, async |output: &mut Output| {
                let mut scanner = Box::new(scanner);
                while scanner.next_partition().await.map_err(to_storage_error)? {
                    let (token, key) = (scanner.token(), scanner.key().to_vec());
                    let source = Source::new(Input::Scan { file: Rc::clone(&file), scanner });
                    let merge = Merge::new(Rc::clone(table), vec![source], Purge::nothing());
                    let merge = output.partition(token, &key, merge).await?;
                    let Some(Input::Scan { scanner: back, .. }) =
                        merge.into_sources().pop().map(|source| source.input)
                    else {
                        unreachable!("a merge gives its sources back")
                    };
                    scanner = back;
                    count += 1;
                    reactor::maybe_yield().await;
                }
                Ok(())
            })
            .await?;
        tablet.replace_files(&[], written);
        Ok(count)
    }
}
