//! The record that makes a compaction's files replace its inputs, crash or no crash.
//!
//! `compaction-<generation>.txn` beside the table files lists what is obsolete. It is written, durably, after
//! the new file is whole and before the first old one is removed; with it the old files do not count any more, and
//! the next start removes what is left of them. Without it both count, which gives the same answers.
//!
//! ```text
//! record := ("remove " generation "\n")* "crc " CRC-32 of the lines before, 8 hex digits "\n"
//! ```

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use sstable::{Component, Descriptor};

use crate::error::StorageError;

const SUFFIX: &str = ".txn";
const PREFIX: &str = "compaction-";
const RECORD_BYTES_MAX: usize = 1 << 20;

/// Where the record of a compaction lies.
pub(super) fn path(directory: &Path, generation: u64) -> PathBuf {
    directory.join(format!("{PREFIX}{generation}{SUFFIX}"))
}

pub(super) fn encode(obsolete: &[u64]) -> String {
    let lines: String = obsolete.iter().map(|generation| format!("remove {generation}\n")).collect();
    format!("{lines}crc {:08x}\n", crc32fast::hash(lines.as_bytes()))
}

fn decode(bytes: &[u8]) -> Option<Vec<u64>> {
    let (lines, crc) = std::str::from_utf8(bytes).ok()?.rsplit_once("crc ")?;
    let crc = u32::from_str_radix(crc.strip_suffix('\n')?, 16).ok()?;
    if crc != crc32fast::hash(lines.as_bytes()) {
        return None;
    }
    lines.lines().map(|line| line.strip_prefix("remove ")?.parse().ok()).collect()
}

/// Ends what a crash left unfinished in a table's folder: obsolete files, half-written ones, and their records.
///
/// # Errors
/// Those of listing and removing; a damaged record.
pub(crate) async fn clean(directory: &Path) -> Result<(), StorageError> {
    let entries = match reactor::file::read_dir(directory).await {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(StorageError::io("list", directory, error)),
    };
    let names: Vec<&str> = entries.iter().filter(|e| !e.is_dir).map(|e| e.name.as_str()).collect();
    let mut obsolete = BTreeSet::new();
    let mut records = Vec::new();
    for name in &names {
        if name.starts_with(PREFIX) && name.ends_with(SUFFIX) {
            let path = directory.join(name);
            let bytes = reactor::file::read_all(&path, RECORD_BYTES_MAX)
                .await
                .map_err(StorageError::of("read", &path))?;
            let Some(generations) = decode(&bytes) else {
                return Err(StorageError::TableFileCorrupt {
                    path,
                    reason: "the record of a compaction is damaged".to_owned(),
                });
            };
            obsolete.extend(generations);
            records.push(path);
        } else if name.starts_with(PREFIX) && name.ends_with(".txn.tmp") {
            records.push(directory.join(name));
        }
    }
    let sorted = sstable::sort_names(names.iter().copied());
    // A table file of another version under such a number is not one of those that the record speaks of.
    let own = |d: &&sstable::Descriptor| d.could_be_written();
    for descriptor in sorted.complete.iter().filter(own).filter(|d| obsolete.contains(&d.generation())) {
        remove(directory, *descriptor).await?;
    }
    for name in sorted.leftovers {
        // What others left unfinished is theirs.
        let written = name.strip_suffix(sstable::TEMPORARY_SUFFIX).unwrap_or(&name);
        if !Descriptor::parse(written).is_ok_and(|(d, _)| d.could_be_written()) {
            continue;
        }
        let path = directory.join(&name);
        reactor::file::remove_file(&path).await.map_err(StorageError::of("delete", &path))?;
    }
    if !records.is_empty() {
        reactor::file::sync_dir(directory).await.map_err(StorageError::of("sync", directory))?;
    }
    for record in records {
        reactor::file::remove_file(&record).await.map_err(StorageError::of("delete", &record))?;
    }
    Ok(())
}

async fn remove(directory: &Path, descriptor: Descriptor) -> Result<(), StorageError> {
    let toc = descriptor.path(directory, Component::Toc);
    sstable::remove(directory, descriptor).await.map_err(|error| match error {
        sstable::SstableError::Io { path, source } => StorageError::io("delete", path, source),
        other => StorageError::TableFileCorrupt { path: toc, reason: other.to_string() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_whole_or_not_at_all() {
        let text = encode(&[3, 17, 4_000_000_000]);
        assert_eq!(decode(text.as_bytes()), Some(vec![3, 17, 4_000_000_000]));
        for at in 0..text.len() {
            assert_eq!(decode(&text.as_bytes()[..at]), None);
            let mut damaged = text.clone().into_bytes();
            damaged[at] ^= 2;
            assert_eq!(decode(&damaged), None, "byte {at}");
        }
    }
}
