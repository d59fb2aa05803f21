//! The work directory is one node's: its lock, and the wait for a node that is ending.
//!
//! A node that was told to stop says so with a file beside the lock, so that one that is started in its place waits for it instead of
//! failing, and one that is started beside a node at work fails at once. Invariant: the lock is held until the process ends, so who
//! has it finds the ports of whoever had it before free.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use reactor::file::{self, File, LockedFile, OpenOptions};

use super::BootError;

/// The file that is locked, and the one that is there while its holder is ending.
const LOCK: &str = "lock";
const ENDING: &str = "ending";
/// Time between two attempts.
const RETRY_EVERY: Duration = Duration::from_millis(50);
/// How long a node that is ending is waited for: it may have gigabytes to flush.
const ENDING_MAX: Duration = Duration::from_secs(600);
/// How long one is waited for that has not said it is ending: it may have been told in this moment.
const RUNNING_MAX: Duration = Duration::from_millis(500);

/// Makes the work directory and takes it, as soon as a node that is ending has left it.
///
/// # Errors
/// [`BootError::Workdir`]; `WouldBlock` where another node is at work there.
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

/// Says that this node is ending.
pub(super) async fn say_ending(workdir: &Path) {
    let path = workdir.join(ENDING);
    if let Err(error) = File::open(&path, OpenOptions::new().write(true).create(true)).await {
        // A start in this node's place fails then, as it would beside one at work.
        reactor::warn!("cannot say that this node is ending"; file = path.display(), error = error);
    }
}

async fn forget(ending: &Path) -> std::io::Result<()> {
    match file::remove_file(ending).await {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
