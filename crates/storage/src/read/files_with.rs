//! Finds the table files that have a partition, for operators.

use std::path::PathBuf;
use std::rc::Rc;

use model::TableId;
use model::partition_key::DecoratedKey;

use crate::error::StorageError;
use crate::shard::Storage;

impl Storage {
    /// Data of the table files of this shard that have a partition with that key, be it only its deletion; by
    /// name. Filters say where to look, indexes whether it is there. Rows in memtables are in no file yet.
    ///
    /// # Errors
    /// [`StorageError::UnknownTable`]; [`StorageError::WrongShard`] for a key of another shard;
    /// [`StorageError::TableFileCorrupt`] naming the file, and reading errors.
    pub async fn files_with(&self, table: TableId, key: &DecoratedKey) -> Result<Vec<PathBuf>, StorageError> {
        let store = self.table_store(table)?;
        let tablet = self.tablet_soon(&store, key.token).await?;
        tablet.check_readable()?;
        let files: Vec<_> = tablet
            .files()
            .iter()
            .filter(|file| file.sstable().may_contain(key.token, &key.key))
            .map(Rc::clone)
            .collect();
        if files.is_empty() {
            return Ok(Vec::new());
        }
        let permit = self.0.permits.read(files.len()).await?;
        let mut found = Vec::new();
        for file in files {
            let open = file.open_in(Some(permit.room()));
            // No rows are asked for: the index is read, and where it names the partition the begin of that.
            let partition = open.partition(key.token, &key.key, &[], false).await;
            if partition.map_err(|error| file.failed(error))?.is_some() {
                found.push(file.path());
            }
        }
        found.sort();
        Ok(found)
    }
}
