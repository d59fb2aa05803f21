//! The durable schema: an append-only log of schema changes, kept by shard 0.
//!
//! ```text
//! log    := "cetoddl\n" record*
//! record := number:u64 length:u32 crc:u32 payload[length]     payload: `model::schema::SchemaChange`
//! crc    := CRC-32 of number, length and payload
//! ```
//! Numbers grow by one. Every append is durable before the next begins, so that only the last record can be torn.
//! When most records are history, the log is replaced at a start by one that makes the same tables in one step each and
//! ends with the version they had.

use std::path::{Path, PathBuf};

use model::schema::{Schema, SchemaChange, TableId};
use reactor::Semaphore;
use reactor::file::{AlignedBuf, File, OpenOptions};

use crate::error::StorageError;

#[cfg(test)]
mod tests;

const MAGIC: &[u8; 8] = b"cetoddl\n";
const HEAD_BYTES: usize = 16;
/// Largest log that is read; a schema of that size has long been compacted.
const LOG_BYTES_MAX: usize = 1 << 30;
/// Fewer records than this are not worth replacing.
const COMPACT_RECORDS_MIN: u64 = 1024;

/// The log of schema changes, open for appending.
pub struct SchemaLog {
    path: PathBuf,
    file: File,
    state: std::cell::Cell<End>,
    turn: Semaphore,
}

#[derive(Clone, Copy)]
struct End {
    offset: u64,
    next: u64,
    /// A write failed: what stands behind `offset` is unknown and is overwritten by the next append.
    dead: bool,
}

/// What a log says.
pub(crate) struct Contents {
    pub(crate) changes: Vec<SchemaChange>,
    end: u64,
    next: u64,
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
        let bytes =
            reactor::file::read_all(&path, LOG_BYTES_MAX).await.map_err(StorageError::of("read", &path))?;
        let contents = read(&bytes, &path)?;
        let end = End { offset: contents.end, next: contents.next, dead: false };
        if contents.end < bytes.len() as u64 {
            reactor::warn!("the last record of the schema log is torn and is cut";
                path = path.display(), offset = contents.end);
        }
        let file = open_file(&path).await?;
        // The torn rest goes durably, so that a shorter record written over it leaves nothing behind.
        file.truncate(end.offset).await.map_err(StorageError::of("cut", &path))?;
        file.sync_all().await.map_err(StorageError::of("sync", &path))?;
        let log = Self { path, file, state: std::cell::Cell::new(end), turn: Semaphore::new(1) };
        Ok((log, contents.changes))
    }

    /// Replaces a log whose `changes` are mostly history by a short one that makes the same schema.
    ///
    /// Drops are forgotten with it, so folders of dropped tables have to be gone before.
    ///
    /// # Errors
    /// File errors; the log is then as it was.
    pub async fn compact(&mut self, changes: &[SchemaChange]) -> Result<(), StorageError> {
        let Some(fewer) = compacted(changes) else { return Ok(()) };
        let bytes = encode(&fewer);
        reactor::file::write_all_atomic(&self.path, &bytes)
            .await
            .map_err(StorageError::of("replace", &self.path))?;
        self.file = open_file(&self.path).await?;
        self.state.set(End { offset: bytes.len() as u64, next: fewer.len() as u64, dead: false });
        Ok(())
    }

    /// Appends a change; returns once it is durable.
    ///
    /// # Errors
    /// File errors; the change is then not in the log, unless the flush of the device failed: then it is unknown
    /// until the next start, and the log takes nothing more.
    pub async fn append(&self, change: &SchemaChange) -> Result<(), StorageError> {
        let Ok(_turn) = self.turn.acquire(1).await else { return Err(StorageError::Draining) };
        let end = self.state.get();
        if end.dead {
            return Err(StorageError::CommitlogDead { path: self.path.clone() });
        }
        let mut record = Vec::new();
        append_record(&mut record, end.next, &change.encode());
        let mut buf = AlignedBuf::with_len(record.len());
        buf.copy_from_slice(&record);
        if let Err(error) = self.file.write_at(end.offset, buf).await.0 {
            // What was half written must not look like a record once another one follows it.
            if self.file.truncate(end.offset).await.is_err() {
                self.state.set(End { dead: true, ..end });
            }
            return Err(StorageError::io("write", &self.path, error));
        }
        if self.file.fdatasync().await.is_err() {
            self.state.set(End { dead: true, ..end });
            return Err(StorageError::CommitlogDead { path: self.path.clone() });
        }
        self.state.set(End { offset: end.offset + record.len() as u64, next: end.next + 1, dead: false });
        Ok(())
    }
}

/// Where the log is in its folder.
pub(crate) fn path(directory: &Path) -> PathBuf {
    directory.join("schema.log")
}

async fn open_file(path: &Path) -> Result<File, StorageError> {
    let options = OpenOptions::new().read(true).write(true);
    File::open(path, options).await.map_err(StorageError::of("open", path))
}

/// Tables that a history dropped and did not make again.
pub(crate) fn dropped_tables(changes: &[SchemaChange]) -> Vec<TableId> {
    let mut dropped = Vec::new();
    let mut schema = Schema::empty();
    for change in changes {
        match change {
            SchemaChange::DropTable { id, .. } => dropped.push(*id),
            SchemaChange::DropKeyspace { name } => {
                dropped.extend(
                    schema.keyspace(name).into_iter().flat_map(|k| k.tables.values().map(|t| t.id())),
                );
            }
            _ => {}
        }
        // A change that does not follow is reported by whoever builds the schema in earnest.
        let _ = schema.apply(change);
    }
    dropped.retain(|id| schema.table_by_id(*id).is_none());
    dropped
}

/// A shorter history of the same schema, where it is much shorter.
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
    fewer.push(SchemaChange::Version { version: schema.version() });
    (fewer.len() * 2 < changes.len()).then_some(fewer)
}

pub(crate) fn encode(changes: &[SchemaChange]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for (number, change) in changes.iter().enumerate() {
        append_record(&mut bytes, number as u64, &change.encode());
    }
    bytes
}

fn append_record(out: &mut Vec<u8>, number: u64, payload: &[u8]) {
    let length = (payload.len() as u32).to_le_bytes();
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&length);
    out.extend_from_slice(&crc(number, payload).to_le_bytes());
    out.extend_from_slice(payload);
}

fn crc(number: u64, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number.to_le_bytes());
    hasher.update(&(payload.len() as u32).to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

/// The record at `at`: its payload and where it ends.
fn record_at(bytes: &[u8], at: usize) -> Option<(u64, &[u8], usize)> {
    let head = bytes.get(at..at.checked_add(HEAD_BYTES)?)?;
    let number = u64::from_le_bytes(head[..8].try_into().expect("eight bytes"));
    let length = u32::from_le_bytes(head[8..12].try_into().expect("four bytes")) as usize;
    let end = (at + HEAD_BYTES).checked_add(length)?;
    let payload = bytes.get(at + HEAD_BYTES..end)?;
    let recorded = u32::from_le_bytes(head[12..16].try_into().expect("four bytes"));
    (recorded == crc(number, payload)).then_some((number, payload, end))
}

pub(crate) fn read(bytes: &[u8], path: &Path) -> Result<Contents, StorageError> {
    let corrupt = |offset: usize, reason: String| StorageError::SchemaLogCorrupt {
        path: path.to_owned(),
        offset: offset as u64,
        reason,
    };
    if !bytes.starts_with(MAGIC) {
        return Err(corrupt(0, "it does not begin as a schema log".to_owned()));
    }
    let mut changes = Vec::new();
    let mut at = MAGIC.len();
    while let Some((number, payload, end)) = record_at(bytes, at) {
        if number != changes.len() as u64 {
            return Err(corrupt(at, format!("record {number} stands where {} should", changes.len())));
        }
        let change = SchemaChange::decode(payload).map_err(|error| corrupt(at, error.to_string()))?;
        changes.push(change);
        at = end;
    }
    let next = changes.len() as u64;
    // Numbers first: only a place that could be a later record has its checksum computed.
    let is_later = |place: usize| {
        bytes
            .get(place..place + 8)
            .map(|number| u64::from_le_bytes(number.try_into().expect("eight bytes")))
            .is_some_and(|number| number > next && number <= next + bytes.len() as u64)
            && record_at(bytes, place).is_some()
    };
    if (at + 1..bytes.len()).any(is_later) {
        return Err(corrupt(at, "a record is damaged and intact ones follow".to_owned()));
    }
    Ok(Contents { changes, end: at as u64, next })
}
