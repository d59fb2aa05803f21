//! The durable schema: an append-only log of schema changes, kept by shard 0.
//!
//! A file of records (`records`), each the bytes of a `model::schema::SchemaChange`. Every append is durable
//! before the next begins, so that only the last record can be torn. The manifest has the number of records,
//! so that an acknowledged record is never taken for a torn one. When most records are history, a start
//! replaces the log by one that makes the same tables in one step each, and ends with the version they had
//! and the ids of dropped tables.

use std::path::{Path, PathBuf};

use model::schema::{Schema, SchemaChange, TableId};

use crate::error::StorageError;
use crate::records::{self, Magic, RecordFile};

#[cfg(test)]
mod tests;

/// Magic of a log beside which there is a manifest.
const MAGIC: &Magic = b"cetodd2\n";
/// Magic of a log that was made before there was a manifest.
const MAGIC_UNLISTED: &Magic = b"cetoddl\n";
/// Logs of fewer records are not worth replacing.
const COMPACT_RECORDS_MIN: u64 = 1024;
/// Ids of dropped tables that a shorter history keeps, the latest ones: an old commit log may have entries of
/// them.
const DROPPED_MAX: usize = 1 << 16;

/// The log of schema changes, open for appending.
pub struct SchemaLog {
    path: PathBuf,
    file: RecordFile,
    expects_manifest: bool,
}

impl SchemaLog {
    /// Opens the log in `directory`, made if needed, and returns all changes in order.
    ///
    /// # Errors
    /// [`StorageError::SchemaLogCorrupt`] where a record before the last is damaged; file errors.
    pub async fn open(directory: &Path) -> Result<(Self, Vec<SchemaChange>), StorageError> {
        crate::directory::ensure(directory).await?;
        let path = path(directory);
        let exists = reactor::file::exists(&path).await.map_err(StorageError::of("look for", &path))?;
        if !exists {
            reactor::file::write_all_atomic(&path, MAGIC).await.map_err(StorageError::of("write", &path))?;
        }
        let bytes = records::read(&path).await?;
        let (parsed, changes) = parse(&bytes, &path)?;
        let file = RecordFile::open(&path, &bytes, &parsed, false).await?;
        Ok((Self { path, file, expects_manifest: bytes.starts_with(MAGIC) }, changes))
    }

    /// A history of far fewer records that makes the same schema, if there is one.
    pub(crate) fn shorter(changes: &[SchemaChange]) -> Option<Vec<SchemaChange>> {
        compacted(changes)
    }

    /// Replaces the log by a shorter history of the same schema.
    ///
    /// # Errors
    /// File errors; the log is then as it was.
    pub(crate) async fn replace(&mut self, fewer: &[SchemaChange]) -> Result<(), StorageError> {
        let bytes = encode(fewer);
        reactor::file::write_all_atomic(&self.path, &bytes)
            .await
            .map_err(StorageError::of("replace", &self.path))?;
        let (parsed, _) = parse(&bytes, &self.path)?;
        self.file = RecordFile::open(&self.path, &bytes, &parsed, false).await?;
        self.expects_manifest = true;
        Ok(())
    }

    /// Appends a change; returns once it is durable.
    ///
    /// # Errors
    /// File errors; the change is then not in the log. But if the flush of the device failed it is unknown
    /// until the next start whether it is, and the log takes no more records.
    pub async fn append(&self, change: &SchemaChange) -> Result<(), StorageError> {
        self.file.append(&change.encode()).await
    }

    /// Whether a manifest was made beside it, and has to exist.
    pub(crate) fn expects_manifest(&self) -> bool {
        self.expects_manifest
    }

    /// Number of records in the log.
    pub(crate) fn records(&self) -> u64 {
        self.file.count()
    }
}

/// Path of the log in its folder.
pub(crate) fn path(directory: &Path) -> PathBuf {
    directory.join("schema.log")
}

/// Tables that a history dropped and did not create again.
pub(crate) fn dropped_tables(changes: &[SchemaChange]) -> Vec<TableId> {
    let mut dropped = Vec::new();
    let mut schema = Schema::empty();
    for change in changes {
        match change {
            SchemaChange::DropTable { id, .. } => dropped.push(*id),
            SchemaChange::Dropped { tables } => dropped.extend(tables),
            SchemaChange::DropKeyspace { name } => {
                dropped.extend(
                    schema.keyspace(name).into_iter().flat_map(|k| k.tables.values().map(|t| t.id())),
                );
            }
            _ => {}
        }
        // A change that does not fit is reported when the schema is built for use.
        let _ = schema.apply(change);
    }
    dropped.retain(|id| schema.table_by_id(*id).is_none());
    dropped
}

/// A shorter history of the same schema, if it is much shorter.
fn compacted(changes: &[SchemaChange]) -> Option<Vec<SchemaChange>> {
    if (changes.len() as u64) < COMPACT_RECORDS_MIN {
        return None;
    }
    let mut schema = Schema::empty();
    changes.iter().try_for_each(|change| schema.apply(change)).ok()?;
    let mut fewer = Vec::new();
    for keyspace in schema.keyspaces() {
        let name = keyspace.name.clone();
        fewer.push(SchemaChange::CreateKeyspace { name: name.clone(), options: keyspace.options.clone() });
        fewer.extend(keyspace.types.values().map(|definition| SchemaChange::CreateType {
            keyspace: name.clone(),
            definition: definition.clone(),
        }));
        fewer.extend(
            keyspace.tables.values().map(|t| SchemaChange::CreateTable(Box::new(t.definition().clone()))),
        );
        fewer
            .extend(keyspace.functions.iter().map(|f| SchemaChange::CreateFunction(Box::new((**f).clone()))));
        fewer.extend(
            keyspace.aggregates.iter().map(|a| SchemaChange::CreateAggregate(Box::new((**a).clone()))),
        );
    }
    let dropped = dropped_tables(changes);
    let tables = dropped[dropped.len().saturating_sub(DROPPED_MAX)..].to_vec();
    fewer.push(SchemaChange::Dropped { tables });
    fewer.push(SchemaChange::Version { version: schema.version() });
    (fewer.len() * 2 < changes.len()).then_some(fewer)
}

pub(crate) fn encode(changes: &[SchemaChange]) -> Vec<u8> {
    records::encode(MAGIC, changes.iter().map(SchemaChange::encode))
}

/// The bytes of a log that is made before there is a manifest.
pub(crate) fn encode_unlisted(changes: &[SchemaChange]) -> Vec<u8> {
    records::encode(MAGIC_UNLISTED, changes.iter().map(SchemaChange::encode))
}

/// The changes in the bytes of a log.
pub(crate) fn read(bytes: &[u8], path: &Path) -> Result<Vec<SchemaChange>, StorageError> {
    parse(bytes, path).map(|(_, changes)| changes)
}

fn parse<'b>(bytes: &'b [u8], path: &Path) -> Result<(records::Parsed<'b>, Vec<SchemaChange>), StorageError> {
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
    Ok((parsed, changes))
}
