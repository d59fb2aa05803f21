//! Decides from which folders files may be taken in: not from those whose files are in use.
//!
//! A source's files are removed once their rows are taken in. In a table's own folder those would be the
//! table's files, and the next start would find the rows gone. A folder is identified by its identity on the
//! disk, not by its name: a symbolic link, `..` or a bind mount leads to the same place.

use std::path::Path;

use reactor::file::{Place, ancestry};

use super::UPLOAD;
use crate::error::StorageError;
use crate::shard::Storage;
use crate::snapshot;
use crate::tablet::QUARANTINE;

/// Folder in which Cassandra's tools put files that are to be taken in.
const STAGING: &str = "staging";
/// Folders below a table's whose files are not in use.
const NOT_IN_USE: [&str; 4] = [UPLOAD, STAGING, QUARANTINE, snapshot::DIRECTORY];
/// Depth of such a folder below the data directory: behind keyspace and table.
const DEPTH: usize = 2;

impl Storage {
    /// Refuses a folder whose files this node uses; a folder that does not exist passes.
    ///
    /// # Errors
    /// [`StorageError::Import`] for such a folder; those of looking at it.
    pub(super) async fn check_place(&self, directory: &Path) -> Result<(), StorageError> {
        let places = match ancestry(directory).await {
            Ok(places) => places,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(StorageError::io("look at", directory, error)),
        };
        let in_use = |reason: &str| {
            let reason = format!(
                "{reason}: its files are in use, and taking them in would remove them; copy them into the table's \
                 `{UPLOAD}` folder, or to a folder outside the data directory, and import that"
            );
            StorageError::Import { path: directory.to_owned(), reason }
        };
        let data = &self.0.config.data_dir;
        if let Some(at) = depth_below(&places, data).await? {
            let is_free = at.checked_sub(DEPTH + 1).is_some_and(|folder| is_not_in_use(&places[folder]));
            if !is_free {
                return Err(in_use(&format!("the folder is within the data directory {}", data.display())));
            }
        }
        // A table's folder may lie elsewhere, with a link to it.
        let tables: Vec<_> = self.0.tables.borrow().values().map(|store| store.directory.clone()).collect();
        for table in tables {
            let Some(at) = depth_below(&places, &table).await? else { continue };
            if !at.checked_sub(1).is_some_and(|folder| is_not_in_use(&places[folder])) {
                return Err(in_use(&format!("the folder is a table's own, {}", table.display())));
            }
        }
        Ok(())
    }
}

fn is_not_in_use(place: &Place) -> bool {
    place.path.file_name().is_some_and(|name| NOT_IN_USE.iter().any(|free| name == *free))
}

/// How many folders the first of `places` lies below `directory`; `None` if it is not below.
async fn depth_below(places: &[Place], directory: &Path) -> Result<Option<usize>, StorageError> {
    match ancestry(directory).await {
        Ok(above) => {
            let identity = above.first().map(|place| place.identity);
            Ok(places.iter().position(|place| Some(place.identity) == identity))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StorageError::io("look at", directory, error)),
    }
}
