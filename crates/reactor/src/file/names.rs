//! The names of the file system: open, rename, remove, list; and small files read and replaced whole.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::sync::semaphore::Semaphore;

use super::{AlignedBuf, File, OpenOptions, run_path, unexpected};
use crate::driver::{Output, PathOp};

/// Bytes read at a time by [`read_all`].
const READ_ALL_STEP: usize = 256 << 10;

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// The name; entries whose names are not UTF-8 are left out of listings.
    pub name: String,
    /// Whether the entry is a directory.
    pub is_dir: bool,
    /// Length in bytes, of files.
    pub size: u64,
}

/// Identifies a file or folder, under any of its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileIdentity {
    /// Its device.
    pub device: u64,
    /// Its number on the device.
    pub inode: u64,
}

/// A file or folder by its own path, without symbolic links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The path.
    pub path: PathBuf,
    /// The identity of the file or folder.
    pub identity: FileIdentity,
}

async fn done(op: PathOp) -> io::Result<()> {
    run_path(op).await.map(drop)
}

async fn number(op: PathOp) -> io::Result<u64> {
    match run_path(op).await? {
        Output::Number(number) => Ok(number),
        other => Err(unexpected(&other)),
    }
}

/// Gives `from` the name `to`, replacing a file of that name.
///
/// # Errors
/// As rename(2).
pub async fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    done(PathOp::Rename(from.as_ref().to_owned(), to.as_ref().to_owned())).await
}

/// Removes a file's name.
///
/// # Errors
/// As unlink(2).
pub async fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    done(PathOp::RemoveFile(path.as_ref().to_owned())).await
}

/// Creates a directory and its missing parents; existing ones are no error.
///
/// # Errors
/// As mkdir(2).
pub async fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    done(PathOp::CreateDirAll(path.as_ref().to_owned())).await
}

/// Removes a directory with everything in it.
///
/// # Errors
/// As rmdir(2) and unlink(2).
pub async fn remove_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    done(PathOp::RemoveDirAll(path.as_ref().to_owned())).await
}

/// Removes an empty directory.
///
/// # Errors
/// As rmdir(2).
pub async fn remove_dir(path: impl AsRef<Path>) -> io::Result<()> {
    done(PathOp::RemoveDir(path.as_ref().to_owned())).await
}

/// Gives the file `from` the second name `to`; for a symbolic link, the file it leads to.
///
/// # Errors
/// As link(2).
pub async fn hard_link(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    done(PathOp::HardLink(from.as_ref().to_owned(), to.as_ref().to_owned())).await
}

/// Syncs of directories that are asked for on this shard, by path.
#[derive(Default)]
struct DirectorySyncs(RefCell<BTreeMap<PathBuf, Rc<DirectorySync>>>);

/// The syncs of one directory, one after the other.
struct DirectorySync {
    turn: Semaphore,
    /// Number of syncs that have begun, and of the last of them that has ended.
    begun: Cell<u64>,
    ended: Cell<u64>,
    /// The last sync that failed, with its error.
    failed: Cell<Option<(u64, io::ErrorKind, Option<i32>)>>,
}

/// Makes the names in `directory` durable: files created, renamed or removed there.
///
/// One sync of the disk serves all callers that ask for the same directory while the previous sync runs:
/// otherwise a hundred flushes into the tables of a keyspace would sync the keyspace's directory a hundred
/// times, one after the other.
///
/// # Errors
/// As fsync(2).
pub async fn sync_dir(directory: impl AsRef<Path>) -> io::Result<()> {
    let directory = directory.as_ref();
    let all = crate::local::<DirectorySyncs>().unwrap_or_else(|| {
        crate::set_local(Rc::new(DirectorySyncs::default()));
        crate::local::<DirectorySyncs>().expect("just set")
    });
    let new = || {
        let (begun, ended, failed) = (Cell::new(0), Cell::new(0), Cell::new(None));
        Rc::new(DirectorySync { turn: Semaphore::new(1), begun, ended, failed })
    };
    let sync = Rc::clone(all.0.borrow_mut().entry(directory.to_owned()).or_insert_with(new));
    let outcome = sync.join(directory).await;
    // No other caller is waiting: only the map and this call hold it.
    if Rc::strong_count(&sync) == 2 {
        all.0.borrow_mut().remove(directory);
    }
    outcome
}

async fn sync_now(directory: &Path) -> io::Result<()> {
    crate::shard::with(|shard| shard.disk.count_directory());
    done(PathOp::SyncDir(directory.to_owned())).await
}

impl DirectorySync {
    /// Returns when a sync has ended that began after this call.
    async fn join(&self, directory: &Path) -> io::Result<()> {
        let needed = self.begun.get() + 1;
        let Ok(_turn) = self.turn.acquire(1).await else {
            // Too many are in line.
            return sync_now(directory).await;
        };
        if self.ended.get() >= needed {
            // An error counts for all callers whose names that sync was to cover: the next sync may succeed
            // without them.
            let failed = self.failed.get().filter(|(number, ..)| *number >= needed);
            return failed.map_or(Ok(()), |(_, kind, errno)| {
                Err(errno.map_or_else(|| kind.into(), io::Error::from_raw_os_error))
            });
        }
        let number = self.begun.get() + 1;
        self.begun.set(number);
        let outcome = sync_now(directory).await;
        if let Err(error) = &outcome {
            self.failed.set(Some((number, error.kind(), error.raw_os_error())));
        }
        self.ended.set(number);
        outcome
    }
}

/// The names in `directory`, sorted.
///
/// # Errors
/// As opendir(3).
pub async fn read_dir(directory: impl AsRef<Path>) -> io::Result<Vec<DirEntry>> {
    match run_path(PathOp::ReadDir(directory.as_ref().to_owned())).await? {
        Output::Entries(entries) => Ok(entries),
        other => Err(unexpected(&other)),
    }
}

/// Whether there is something of this name.
///
/// # Errors
/// When that cannot be found out.
pub async fn exists(path: impl AsRef<Path>) -> io::Result<bool> {
    match metadata_size(path).await {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Length in bytes of the file at `path`.
///
/// # Errors
/// As stat(2).
pub async fn metadata_size(path: impl AsRef<Path>) -> io::Result<u64> {
    number(PathOp::MetadataSize(path.as_ref().to_owned())).await
}

/// The place that `path` leads to, then each folder above it up to the root.
///
/// # Errors
/// As realpath(3) and stat(2).
pub async fn ancestry(path: impl AsRef<Path>) -> io::Result<Vec<Place>> {
    match run_path(PathOp::Ancestry(path.as_ref().to_owned())).await? {
        Output::Ancestry(places) => Ok(places),
        other => Err(unexpected(&other)),
    }
}

/// Bytes an unprivileged user may still write to the file system that holds `path`.
///
/// # Errors
/// As statvfs(3).
pub async fn available_space(path: impl AsRef<Path>) -> io::Result<u64> {
    number(PathOp::AvailableSpace(path.as_ref().to_owned())).await
}

/// The whole content of the file at `path`.
///
/// # Errors
/// As open(2) and read(2); `FileTooLarge` when it is longer than `bytes_max`.
pub async fn read_all(path: impl AsRef<Path>, bytes_max: usize) -> io::Result<Vec<u8>> {
    let file = File::open(path, OpenOptions::new().read(true)).await?;
    let mut content = Vec::new();
    // Each round adds at least one byte, up to `bytes_max`, or ends.
    loop {
        let chunk = file.read_at(content.len() as u64, READ_ALL_STEP).await?;
        if chunk.is_empty() {
            return Ok(content);
        }
        if content.len() + chunk.len() > bytes_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if content.is_empty() && chunk.len() == READ_ALL_STEP {
            // A long file is read into memory reserved at once: repeated copying would block the shard.
            let length = usize::try_from(file.size().await?).unwrap_or(bytes_max);
            let _ = content.try_reserve_exact(length.min(bytes_max));
        }
        content.extend_from_slice(&chunk);
    }
}

/// Replaces the file at `path` by `content`, durably: before and after a crash, readers find either the old
/// or the new content, complete. The directory must exist. Only one caller may write a path at a time.
///
/// # Errors
/// As open(2), write(2), fdatasync(2) and rename(2); the old content is then still there.
pub async fn write_all_atomic(path: impl AsRef<Path>, content: &[u8]) -> io::Result<()> {
    let path = path.as_ref();
    let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut temporary_name = name.to_owned();
    temporary_name.push(".tmp");
    let temporary = path.with_file_name(temporary_name);
    let written = write_new(&temporary, content).await;
    if let Err(error) = written {
        // The first error is returned; a leftover is overwritten by the next attempt.
        let _ = remove_file(&temporary).await;
        return Err(error);
    }
    rename(&temporary, path).await?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    sync_dir(parent).await
}

async fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let file = File::open(path, OpenOptions::new().write(true).create(true).truncate(true)).await?;
    let mut at = 0;
    for piece in content.chunks(READ_ALL_STEP) {
        let mut buf = AlignedBuf::with_len(piece.len());
        buf.copy_from_slice(piece);
        file.write_at(at, buf).await.0?;
        at += piece.len() as u64;
    }
    file.fdatasync().await
}

/// A file with its exclusive lock; dropping it unlocks.
#[derive(Debug)]
pub struct LockedFile {
    _file: crate::driver::Handle,
}

/// Takes the exclusive lock of the file at `path`, creating it if needed. It is held until the process ends
/// or the value is dropped.
///
/// # Errors
/// `WouldBlock` if another process or value holds it; otherwise as open(2).
pub async fn lock(path: impl AsRef<Path>) -> io::Result<LockedFile> {
    match run_path(PathOp::Lock(path.as_ref().to_owned())).await? {
        Output::File { handle, .. } => Ok(LockedFile { _file: handle }),
        other => Err(unexpected(&other)),
    }
}
