//! Finds the snapshots there are, measures them, and clears them.

use reactor::{Cold, cold};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::manifest::{self, Manifest, instant};
use super::{DIRECTORY, MANIFEST};
use crate::error::StorageError;
use crate::shard::Storage;

/// One table's snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Its name.
    pub tag: String,
    /// Keyspace of the table.
    pub keyspace: String,
    /// Name of the table.
    pub table: String,
    /// Bytes of files that only the snapshot keeps.
    pub true_bytes: u64,
    /// Bytes of all its files.
    pub disk_bytes: u64,
    /// When it was made, `2026-11-21T08:00:00Z`; `None` if the manifest does not have it.
    pub created_at: Option<String>,
    /// When it will be removed automatically.
    pub expires_at: Option<String>,
    pub(super) expires_at_seconds: Option<i64>,
    pub(super) directory: PathBuf,
}

/// Selects snapshots; an empty field restricts nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotsOf {
    /// Only snapshots with this name.
    pub tag: Option<String>,
    /// Only snapshots of these keyspaces.
    pub keyspaces: Vec<String>,
    /// Of this table.
    pub table: Option<String>,
}

impl SnapshotsOf {
    fn takes(&self, keyspace: &str, table: &str, tag: &str) -> bool {
        self.tag.as_deref().is_none_or(|wanted| wanted == tag)
            && (self.keyspaces.is_empty() || self.keyspaces.iter().any(|wanted| wanted == keyspace))
            && self.table.as_deref().is_none_or(|wanted| wanted == table)
    }
}

/// Entries of a folder; none if the folder does not exist.
async fn entries(path: &Path) -> Result<Vec<reactor::file::DirEntry>, StorageError> {
    match reactor::file::read_dir(path).await {
        Ok(entries) => Ok(entries),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(StorageError::io("list", path, error)),
    }
}

impl Storage {
    /// The snapshots on the disk, of tables that are there and of those that were, by keyspace, table and
    /// name.
    ///
    /// # Errors
    /// Those of listing folders.
    #[inline(never)]
    pub fn snapshots<'a>(&'a self, of: &'a SnapshotsOf) -> Cold<'a, Result<Vec<SnapshotInfo>, StorageError>> {
        cold(async move {
            let data = self.0.config.data_dir.clone();
            let mut found = Vec::new();
            for keyspace in entries(&data).await?.into_iter().filter(|entry| entry.is_dir) {
                let path = data.join(&keyspace.name);
                for folder in entries(&path).await?.into_iter().filter(|entry| entry.is_dir) {
                    // `<name>-<id>`; a name has no hyphen, an id neither.
                    let table = folder.name.split('-').next().unwrap_or_default().to_owned();
                    let table_directory = path.join(&folder.name);
                    for tag in
                        entries(&table_directory.join(DIRECTORY)).await?.into_iter().filter(|e| e.is_dir)
                    {
                        if of.takes(&keyspace.name, &table, &tag.name) {
                            found.push(measure(&keyspace.name, &table, &tag.name, &table_directory).await?);
                        }
                    }
                    reactor::maybe_yield().await;
                }
            }
            Ok(found)
        })
    }

    /// Removes snapshots and returns how many there were.
    ///
    /// # Errors
    /// Those of listing and removing. The other snapshots are removed nevertheless.
    pub async fn clear_snapshots(&self, of: &SnapshotsOf) -> Result<usize, StorageError> {
        let found = self.snapshots(of).await?;
        let mut result = Ok(());
        for snapshot in &found {
            result = result.and(remove(snapshot).await);
        }
        result.map(|()| found.len())
    }
}

/// Removes one snapshot, and the folders above it that are then empty: a dropped table's go with its last
/// one.
pub(super) async fn remove(snapshot: &SnapshotInfo) -> Result<(), StorageError> {
    let path = &snapshot.directory;
    match reactor::file::remove_dir_all(path).await {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(StorageError::io("delete", path, error));
        }
        _ => {}
    }
    if let Some(snapshots) = path.parent() {
        // Not empty as a rule.
        let _ = reactor::file::remove_dir(snapshots).await;
    }
    Ok(())
}

async fn measure(
    keyspace: &str,
    table: &str,
    tag: &str,
    table_directory: &Path,
) -> Result<SnapshotInfo, StorageError> {
    let directory = super::directory(table_directory, tag);
    let live: BTreeSet<String> =
        entries(table_directory).await?.into_iter().map(|entry| entry.name).collect();
    let (mut true_bytes, mut disk_bytes) = (0, 0);
    for file in entries(&directory).await? {
        disk_bytes += file.size;
        if !live.contains(&file.name) {
            true_bytes += file.size;
        }
    }
    // One that a crash cut off has none.
    let manifest = reactor::file::read_all(directory.join(MANIFEST), manifest::BYTES_MAX).await.ok();
    let manifest = manifest.and_then(|bytes| Manifest::decode(&bytes));
    let expires_at = manifest.as_ref().and_then(|manifest| manifest.expires_at);
    Ok(SnapshotInfo {
        tag: tag.to_owned(),
        keyspace: keyspace.to_owned(),
        table: table.to_owned(),
        true_bytes,
        disk_bytes,
        created_at: manifest.and_then(|manifest| manifest.created_at).and_then(instant),
        expires_at: expires_at.and_then(instant),
        expires_at_seconds: expires_at,
        directory,
    })
}
