//! The schema log of earlier versions: an append-only log of schema changes, kept by shard 0.
//!
//! A file of records (`records`), each the bytes of a `model::schema::SchemaChange`. Every append was durable
//! before the next began, so that only the last record can be torn. The manifest has the number of records,
//! so that an acknowledged record is never taken for a torn one. The control plane takes its place; it is
//! read once (`open/earlier`), and written only by `takeover`, for that same reading.

use std::path::{Path, PathBuf};

use model::schema::SchemaChange;

use crate::error::StorageError;
use crate::records::{self, Magic};

/// Magic of a log beside which there is a manifest.
pub(super) const MAGIC: &Magic = b"cetodd2\n";
/// Magic of a log that was made before there was a manifest.
const MAGIC_UNLISTED: &Magic = b"cetoddl\n";

/// The contents of a log.
pub(crate) struct SchemaLog {
    pub(crate) changes: Vec<SchemaChange>,
    /// Whether there is a manifest beside it.
    pub(crate) is_listed: bool,
}

/// Reads the log at `path`. An append that was cut off at its end is left out.
///
/// # Errors
/// [`StorageError::SchemaLogCorrupt`] where a record before the last is damaged; file errors.
pub(crate) async fn open(path: &Path) -> Result<SchemaLog, StorageError> {
    let bytes = records::read(path).await?;
    Ok(SchemaLog { changes: read(&bytes, path)?, is_listed: bytes.starts_with(MAGIC) })
}

/// Path of the log in its folder.
pub(crate) fn path(directory: &Path) -> PathBuf {
    directory.join("schema.log")
}

/// The bytes of a log beside which there is a manifest.
pub(crate) fn encode(changes: &[SchemaChange]) -> Vec<u8> {
    records::encode(MAGIC, changes.iter().map(SchemaChange::encode))
}

/// The bytes of a log that is made before there is a manifest.
pub(crate) fn encode_unlisted(changes: &[SchemaChange]) -> Vec<u8> {
    records::encode(MAGIC_UNLISTED, changes.iter().map(SchemaChange::encode))
}

/// The changes in the bytes of a log.
pub(crate) fn read(bytes: &[u8], path: &Path) -> Result<Vec<SchemaChange>, StorageError> {
    let corrupt = |offset: usize, reason: String| StorageError::SchemaLogCorrupt {
        path: path.to_owned(),
        offset: offset as u64,
        reason,
    };
    let magic = if bytes.starts_with(MAGIC_UNLISTED) { MAGIC_UNLISTED } else { MAGIC };
    let parsed = records::parse(bytes, magic).map_err(|damaged| corrupt(damaged.offset, damaged.reason))?;
    let mut changes = Vec::with_capacity(parsed.payloads.len());
    for (payload, offset) in parsed.payloads.iter().zip(&parsed.offsets) {
        changes.push(SchemaChange::decode(payload).map_err(|error| corrupt(*offset, error.to_string()))?);
    }
    Ok(changes)
}
