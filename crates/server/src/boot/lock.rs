//! The lock on the work directory, and the wait for a previous node that is stopping.
//!
//! A node that is stopping creates a file beside the lock. So a node started in its place waits for it
//! instead of failing, and a node started beside a running one fails at once. Invariant: the lock is held
//! until the process ends, so its next holder finds the ports of the previous one free.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use reactor::file::{self, File, LockedFile, OpenOptions};

use super::BootError;

/// The locked file, and the file that exists while the lock's holder is stopping.
pub(super) const LOCK: &str = "lock";
const ENDING: &str = "ending";
/// Time between two attempts.
const RETRY_EVERY: Duration = Duration::from_millis(50);
/// How long to wait for a node that is stopping: it may have gigabytes to flush.
const ENDING_MAX: Duration = Duration::from_secs(600);
/// How long to wait for a node that has not announced its stop: it may have been told to stop just now.
const RUNNING_MAX: Duration = Duration::from_millis(500);

/// Creates the work directory and takes its lock, waiting for a node that is stopping.
///
/// # Errors
/// [`BootError::Workdir`]; its source is `WouldBlock` if another node runs in the directory.
pub(super) async fn take(workdir: &Path) -> Result<LockedFile, BootError> {
    let failed = |source| BootError::Workdir { path: workdir.to_owned(), source };
    file::create_dir_all(workdir).await.map_err(failed)?;
    let ending = workdir.join(ENDING);
    let began = reactor::now();
    let mut told = false;
    loop {
        let busy = match file::lock(workdir.join(LOCK)).await {
            Ok(lock) => {
                forget(&ending).await.map_err(failed)?;
                return Ok(lock);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => error,
            Err(error) => return Err(failed(error)),
        };
        let ends = file::exists(&ending).await.map_err(failed)?;
        if began.elapsed() >= if ends { ENDING_MAX } else { RUNNING_MAX } {
            return Err(failed(busy));
        }
        if ends && !told {
            reactor::info!("another ceto on the work directory is ending: waiting for it");
            told = true;
        }
        reactor::sleep(RETRY_EVERY).await;
    }
}

/// Announces that this node is stopping.
pub(super) async fn say_ending(workdir: &Path) {
    let path = workdir.join(ENDING);
    if let Err(error) = File::open(&path, OpenOptions::new().write(true).create(true)).await {
        // A node started in this node's place then fails, as it does beside a running node.
        reactor::warn!("cannot say that this node is ending"; file = path.display(), error = error);
    }
}

async fn forget(ending: &Path) -> std::io::Result<()> {
    match file::remove_file(ending).await {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
