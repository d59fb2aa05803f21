//! Folders whose names survive a power failure.

use std::io::ErrorKind;
use std::path::Path;

use crate::error::StorageError;

/// How many names above a folder may have been made with it.
const PARENTS: usize = 4;

/// Makes a folder and its missing parents, and makes their names durable.
///
/// # Errors
/// Those of making and syncing. A parent that this process may not open is not synced.
pub(crate) async fn ensure(directory: &Path) -> Result<(), StorageError> {
    reactor::file::create_dir_all(directory).await.map_err(StorageError::of("create", directory))?;
    // Also if the folder exists: an earlier process may have ended before its name was durable.
    let parents: Vec<&Path> =
        directory.ancestors().skip(1).take(PARENTS).filter(|p| !p.as_os_str().is_empty()).collect();
    // Outermost first: a name in a folder whose own name is lost is lost with it.
    for parent in parents.into_iter().rev() {
        match reactor::file::sync_dir(parent).await {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
            Err(error) => return Err(StorageError::io("sync", parent, error)),
            Ok(()) => {}
        }
    }
    Ok(())
}
