//! The directory of a bench: the caller's, or a temporary one that is removed at the end.

use std::path::{Path, PathBuf};

use super::PerfError;

/// The directory of a run.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    own: bool,
}

impl Directory {
    /// The directory given, or a new one in the system's temporary directory.
    ///
    /// # Errors
    /// [`PerfError::Io`].
    pub(super) async fn open(given: Option<&Path>) -> Result<Self, PerfError> {
        let directory = match given {
            Some(path) => Self { path: path.to_owned(), own: false },
            None => {
                let name = format!("ceto-perf-{}-{:016x}", std::process::id(), reactor::random_u64());
                Self { path: std::env::temp_dir().join(name), own: true }
            }
        };
        let made = reactor::file::create_dir_all(&directory.path).await;
        made.map_err(PerfError::io(format!("make {}", directory.path.display())))?;
        Ok(directory)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the directory if it is a temporary one.
    ///
    /// # Errors
    /// [`PerfError::Io`].
    pub(super) async fn close(self) -> Result<(), PerfError> {
        if !self.own {
            return Ok(());
        }
        let removed = reactor::file::remove_dir_all(&self.path).await;
        removed.map_err(PerfError::io(format!("remove {}", self.path.display())))
    }
}
