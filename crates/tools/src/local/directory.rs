//! The directory of a local cluster: its lock, and the description of the nodes that it has.
//!
//! `local.json` says with which nodes the directory was made, so that a later start finds all of them and
//! refuses to leave one out: the others would wait for it. The lock is held until the process ends.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{LocalError, NODES_MAX};

/// The locked file.
const LOCK: &str = "local.lock";
/// The description, and its name while it is being written.
const DESCRIPTION: &str = "local.json";
const UNFINISHED: &str = "local.json.new";
/// Longest description that is read.
const DESCRIPTION_BYTES_MAX: u64 = 64 << 10;
/// Longest name of a data center that is read.
const NAME_BYTES_MAX: usize = 1024;

/// The nodes of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Description {
    /// Address of the first node; the others have those that follow.
    pub(super) first: Ipv4Addr,
    /// The data center of each node; `None` for the server's default.
    pub(super) data_centers: Vec<Option<String>>,
}

/// A directory that this process has locked.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) path: PathBuf,
    /// Open for as long as the lock is held.
    _lock: File,
}

impl Directory {
    /// Makes the directory if it does not exist, and takes its lock.
    ///
    /// # Errors
    /// [`LocalError::Running`] if another process has the lock; [`LocalError::File`].
    pub(super) fn take(path: &Path) -> Result<Self, LocalError> {
        fs::create_dir_all(path).map_err(LocalError::file(path))?;
        let name = path.join(LOCK);
        let lock = OpenOptions::new().write(true).create(true).truncate(false).open(&name);
        let lock = lock.map_err(LocalError::file(&name))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(LocalError::Running { directory: path.to_owned() }),
            Err(TryLockError::Error(source)) => Err(LocalError::File { path: name, source }),
        }
    }

    /// The nodes that the directory has; `None` for a new directory.
    ///
    /// # Errors
    /// [`LocalError::Description`] if the file is not a description; [`LocalError::File`].
    pub(super) fn description(&self) -> Result<Option<Description>, LocalError> {
        let path = self.path.join(DESCRIPTION);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(LocalError::File { path, source }),
        };
        let mut text = String::new();
        file.take(DESCRIPTION_BYTES_MAX).read_to_string(&mut text).map_err(LocalError::file(&path))?;
        match decode(&text) {
            Ok(description) => Ok(Some(description)),
            Err(reason) => Err(LocalError::Description { path, reason }),
        }
    }

    /// Keeps a description durably, in place of an earlier one.
    ///
    /// # Errors
    /// [`LocalError::File`].
    pub(super) fn keep(&self, description: &Description) -> Result<(), LocalError> {
        let (path, unfinished) = (self.path.join(DESCRIPTION), self.path.join(UNFINISHED));
        let write = || {
            let mut file = File::create(&unfinished)?;
            serde_json::to_writer_pretty(&mut file, description)?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::rename(&unfinished, &path)?;
            File::open(&self.path)?.sync_all()
        };
        write().map_err(LocalError::file(&path))
    }
}

fn decode(text: &str) -> Result<Description, String> {
    let description: Description = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let nodes = description.data_centers.len();
    if nodes == 0 || nodes > NODES_MAX {
        return Err(format!("{nodes} nodes, from 1 to {NODES_MAX} there may be"));
    }
    if description.data_centers.iter().flatten().any(|name| name.is_empty() || name.len() > NAME_BYTES_MAX) {
        return Err("a data center without a name, or with one that is too long".to_owned());
    }
    Ok(description)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description() -> Description {
        let data_centers = vec![Some("a".to_owned()), None];
        Description { first: Ipv4Addr::new(127, 0, 0, 5), data_centers }
    }

    #[test]
    fn a_description_is_read_as_it_was_kept() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::take(&folder.path().join("deep/er")).unwrap();
        assert_eq!(directory.description().unwrap(), None);
        directory.keep(&description()).unwrap();
        assert_eq!(directory.description().unwrap(), Some(description()));
        let more = Description { data_centers: vec![None; 3], ..description() };
        directory.keep(&more).unwrap();
        assert_eq!(directory.description().unwrap(), Some(more));
    }

    #[test]
    fn a_locked_directory_is_refused_until_the_lock_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let first = Directory::take(folder.path()).unwrap();
        assert!(matches!(Directory::take(folder.path()), Err(LocalError::Running { .. })));
        drop(first);
        Directory::take(folder.path()).unwrap();
    }

    #[test]
    fn text_that_is_no_description_is_an_error_that_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::take(folder.path()).unwrap();
        let check = |text: &str, reason: &str| {
            fs::write(folder.path().join(DESCRIPTION), text).unwrap();
            let error = directory.description().unwrap_err().to_string();
            assert!(error.contains(DESCRIPTION) && error.contains(reason), "{text}: {error}");
        };
        check("", "EOF");
        check("[]", "invalid length");
        check(r#"{"first": "here", "data_centers": [null]}"#, "invalid IPv4");
        check(r#"{"first": "127.0.0.1", "data_centers": []}"#, "0 nodes");
        check(r#"{"first": "127.0.0.1", "data_centers": [""]}"#, "without a name");
        let many = vec!["null"; 17].join(",");
        check(&format!(r#"{{"first": "127.0.0.1", "data_centers": [{many}]}}"#), "17 nodes");
        check(&" ".repeat(100_000), "EOF");
    }
}
