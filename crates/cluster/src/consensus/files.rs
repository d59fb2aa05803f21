//! The folder of a group: names of its files, its errors, and the count of acknowledged records.
//!
//! ```text
//! group0/ := log-<n> snapshot-<index> acknowledged
//! acknowledged := "cetoack\n" log:u64 records:u64 crc:u32    little endian; CRC-32 of the 16 bytes before
//! ```
//! The count is overwritten in place after each synced append, without a sync of its own: at a start it may
//! be old, and is never too high. It proves that the log existed, and that records at its end which cannot be
//! read were once durable: such damage is not taken for an append that a crash cut off. Format:
//! docs/formats/group0.md.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use reactor::file::{AlignedBuf, File, OpenOptions};
use storage::StorageError;

const MAGIC: &[u8; 8] = b"cetoack\n";
const FILE_BYTES: usize = 28;
/// Advice in every error about damage. Nothing is repaired by guessing: another node may rely on what was
/// here.
const ADVICE: &str = "The node does not start upon it. Put back an undamaged copy of the whole folder that is as \
                      recent as the damage; where other nodes have the same state, remove this node from the \
                      cluster and let it join again with empty folders";

/// The log or the snapshot cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A file has been changed by something other than this process.
    #[error("{} is damaged at byte {offset}: {reason}. {ADVICE}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Offset of the damage in bytes.
        offset: u64,
        /// Its kind.
        reason: String,
    },
    /// A file is not there, although another one proves that it was.
    #[error("{} is missing: {proof} says that there is one. {ADVICE}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The file that proves it.
        proof: String,
    },
    /// A file operation failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl LogError {
    pub(super) fn damaged(path: &Path, offset: usize, reason: impl Into<String>) -> Self {
        LogError::Damaged { path: path.to_owned(), offset: offset as u64, reason: reason.into() }
    }
}

/// The numbered files of a folder.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Numbers of the logs, ascending.
    pub(super) logs: Vec<u64>,
    /// Indexes of the snapshots, ascending.
    pub(super) snapshots: Vec<u64>,
    /// Files that a crash left half written.
    pub(super) temporary: Vec<PathBuf>,
}

pub(super) async fn list(folder: &Path) -> Result<Listing, LogError> {
    let entries = reactor::file::read_dir(folder).await.map_err(StorageError::of("list", folder))?;
    let mut listing = Listing::default();
    for entry in entries {
        let number = |prefix: &str| entry.name.strip_prefix(prefix)?.parse::<u64>().ok();
        if let Some(number) = number("log-") {
            listing.logs.push(number);
        } else if let Some(index) = number("snapshot-") {
            listing.snapshots.push(index);
        } else if entry.name.ends_with(".tmp") {
            listing.temporary.push(folder.join(&entry.name));
        }
    }
    listing.logs.sort_unstable();
    listing.snapshots.sort_unstable();
    Ok(listing)
}

pub(super) fn log_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("log-{number}"))
}

pub(super) fn snapshot_path(folder: &Path, index: u64) -> PathBuf {
    folder.join(format!("snapshot-{index}"))
}

/// Removes a file whose content is elsewhere; one that stays is removed at the next start.
pub(super) async fn remove(path: &Path) {
    if let Err(error) = reactor::file::remove_file(path).await {
        reactor::warn!("a file that is of no more use stays"; path = path.display(), error = error);
    }
}

/// The number of a log and the number of its records that were acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) log: u64,
    pub(super) records: u64,
}

/// The file with the count.
pub(super) struct Acknowledged {
    path: PathBuf,
    file: File,
    count: Cell<Count>,
}

impl Acknowledged {
    pub(super) fn path(folder: &Path) -> PathBuf {
        folder.join("acknowledged")
    }

    /// The bytes of the file.
    pub(super) fn encode(count: Count) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&count.log.to_le_bytes());
        bytes.extend_from_slice(&count.records.to_le_bytes());
        bytes.extend_from_slice(&checksum(&bytes[8..]).to_le_bytes());
        bytes
    }

    /// Opens the file of a folder that has been made whole.
    pub(super) async fn open(folder: &Path) -> Result<(Self, Count), LogError> {
        let path = Self::path(folder);
        if !reactor::file::exists(&path).await.map_err(StorageError::of("look for", &path))? {
            let proof = format!("the folder {}", folder.display());
            return Err(LogError::Missing { path, proof });
        }
        let bytes = storage::records::read(&path).await?;
        let count =
            decode(&bytes).ok_or_else(|| LogError::damaged(&path, 0, "it is no count with its checksum"))?;
        let options = OpenOptions::new().read(true).write(true);
        let file = File::open(&path, options).await.map_err(StorageError::of("open", &path))?;
        Ok((Self { path, file, count: Cell::new(count) }, count))
    }

    /// Overwrites the count; not durable by itself.
    pub(super) async fn set(&self, count: Count) -> Result<(), LogError> {
        let before = self.count.get();
        assert!(
            (before.log, before.records) <= (count.log, count.records),
            "the count of acknowledged records falls from {before:?} to {count:?}"
        );
        let mut buf = AlignedBuf::with_len(FILE_BYTES);
        // One sector: after a power loss the old bytes are there or the new ones.
        buf.copy_from_slice(&Self::encode(count));
        self.file.write_at(0, buf).await.0.map_err(StorageError::of("write", &self.path))?;
        self.count.set(count);
        Ok(())
    }

    pub(super) async fn sync(&self) -> Result<(), LogError> {
        Ok(self.file.fdatasync().await.map_err(StorageError::of("sync", &self.path))?)
    }
}

fn decode(bytes: &[u8]) -> Option<Count> {
    if bytes.len() != FILE_BYTES || !bytes.starts_with(MAGIC) {
        return None;
    }
    let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let crc = u32::from_le_bytes(bytes[24..].try_into().ok()?);
    (crc == checksum(&bytes[8..24])).then_some(Count { log: number(8)?, records: number(16)? })
}

fn checksum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}
