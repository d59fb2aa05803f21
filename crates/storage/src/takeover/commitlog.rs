//! Checks whether Cassandra's commit log still holds writes of tables that are taken over.
//!
//! ```text
//! segment := version:i32 id:i64 parameters:u16-sized crc:u32 section*
//! section := next:i32 crc:u32 entry*              (next: offset of the next section, 0 for none)
//! entry   := length:i32 crc:u32 mutation crc:u32  (the first checksum is of the length;
//!                                                a length of 0 ends the section)
//! mutation:= updates:vint table:uuid ...
//! ```
//! Source: Cassandra 5.0 `CommitLogDescriptor`, `CommitLogSegment`, `Mutation`. Nothing is replayed:
//! `nodetool drain` has Cassandra do that.

use std::path::Path;

use model::schema::{Schema, TableId};

use super::refused;
use crate::config::StorageConfig;
use crate::error::StorageError;

/// Largest segment that is read.
const SEGMENT_BYTES_MAX: usize = 2 << 30;
/// Bytes of a section's head, and of an entry's before the mutation.
const MARKER_BYTES: usize = 8;
/// Newest supported version: Cassandra 5.
const VERSION_MAX: u32 = 8;
/// Oldest version in which a mutation has the id of its table at this place: Cassandra 4.
const VERSION_OF_TABLE_IDS: u32 = 7;

/// Searches the commit log beside the data, and the folder in which this node's will be.
///
/// # Errors
/// [`StorageError::Import`] if a segment has writes of a table of `schema`, or if that cannot be decided.
pub(super) async fn check(config: &StorageConfig, schema: &Schema) -> Result<(), StorageError> {
    let beside = config.data_dir.parent().map(|parent| parent.join("commitlog"));
    let beside = beside.filter(|directory| *directory != config.commitlog_dir);
    for directory in std::iter::once(config.commitlog_dir.clone()).chain(beside) {
        let entries = match reactor::file::read_dir(&directory).await {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(StorageError::io("list", directory, error)),
        };
        for entry in entries {
            if entry.is_dir || !entry.name.starts_with("CommitLog-") || !entry.name.ends_with(".log") {
                continue;
            }
            check_segment(&directory.join(&entry.name), schema).await?;
        }
    }
    Ok(())
}

async fn check_segment(path: &Path, schema: &Schema) -> Result<(), StorageError> {
    let bytes = reactor::file::read_all(path, SEGMENT_BYTES_MAX).await;
    let bytes = bytes.map_err(StorageError::of("read", path))?;
    let advice = "stop Cassandra after `nodetool drain`, which writes all of it to table files";
    match first_of(&bytes, |id| schema.table_by_id(id).is_some()) {
        Holds::Nothing => Ok(()),
        Holds::Table(id) => {
            let table = schema
                .table_by_id(id)
                .map_or_else(String::new, |table| format!(" of {}.{}", table.keyspace(), table.name()));
            Err(refused(path, format!("the commit log has writes{table} that no table file has: {advice}")))
        }
        Holds::Unknown => Err(refused(path, format!("the commit log is not empty: {advice}"))),
    }
}

/// Contents of a segment, as far as the check needs them.
#[derive(Debug, PartialEq, Eq)]
enum Holds {
    Nothing,
    /// A write to a wanted table.
    Table(TableId),
    /// It cannot be decided: compressed, encrypted, of an unknown version, or several tables in a write.
    Unknown,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// The first write in a segment to a table that `is_wanted`.
fn first_of(bytes: &[u8], is_wanted: impl Fn(TableId) -> bool) -> Holds {
    // Allocated and never used.
    if bytes.iter().all(|byte| *byte == 0) {
        return Holds::Nothing;
    }
    let (Some(version), Some(length)) = (u32_at(bytes, 0), bytes.get(12..14)) else { return Holds::Unknown };
    let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
    let plain = bytes.get(14..14 + length).is_some_and(|parameters| matches!(parameters, b"" | b"{}"));
    let mut at = 14 + length + 4;
    loop {
        let Some(next) = u32_at(bytes, at) else { return Holds::Nothing };
        let next = next as usize;
        let body = at + MARKER_BYTES;
        // Behind the last marker there may be entries that were written and not marked before the process
        // ended.
        let end = if next > at { next.min(bytes.len()) } else { bytes.len() };
        let has_any = u32_at(bytes, body).is_some_and(|length| length != 0) && body < end;
        if has_any && !(plain && (VERSION_OF_TABLE_IDS..=VERSION_MAX).contains(&version)) {
            return Holds::Unknown;
        }
        if has_any {
            match first_in_section(&bytes[body..end], &is_wanted) {
                Holds::Nothing => {}
                found => return found,
            }
        }
        if next <= at {
            return Holds::Nothing;
        }
        at = next;
    }
}

fn first_in_section(mut entries: &[u8], is_wanted: impl Fn(TableId) -> bool) -> Holds {
    while let Some(length) = u32_at(entries, 0).filter(|length| *length != 0) {
        let Some(mutation) = entries.get(MARKER_BYTES..MARKER_BYTES + length as usize) else { break };
        let Some((&[updates], rest)) = mutation.split_first_chunk::<1>() else { return Holds::Unknown };
        let Some((id, _)) = rest.split_first_chunk::<16>() else { return Holds::Unknown };
        if is_wanted(TableId(*id)) {
            return Holds::Table(TableId(*id));
        }
        if updates != 1 {
            // The ids of further tables are somewhere behind the first.
            return Holds::Unknown;
        }
        entries = entries.get(MARKER_BYTES + length as usize + 4..).unwrap_or(&[]);
    }
    Holds::Nothing
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: [u8; 16] = [1; 16];
    const SYSTEM: [u8; 16] = [2; 16];

    fn segment(version: u32, parameters: &[u8], sections: &[&[(u8, [u8; 16])]]) -> Vec<u8> {
        let mut bytes = version.to_be_bytes().to_vec();
        bytes.extend_from_slice(&1_795_264_095_890u64.to_be_bytes());
        bytes.extend_from_slice(&(parameters.len() as u16).to_be_bytes());
        bytes.extend_from_slice(parameters);
        bytes.extend_from_slice(&[9; 4]);
        for section in sections {
            let marker = bytes.len();
            bytes.extend_from_slice(&[0; MARKER_BYTES]);
            for (updates, table) in *section {
                let mutation = [&[*updates][..], table, b"the rest"].concat();
                bytes.extend_from_slice(&(mutation.len() as u32).to_be_bytes());
                bytes.extend_from_slice(&[7; 4]);
                bytes.extend_from_slice(&mutation);
                bytes.extend_from_slice(&[7; 4]);
            }
            let next = bytes.len() as u32;
            bytes[marker..marker + 4].copy_from_slice(&next.to_be_bytes());
        }
        bytes.resize(bytes.len() + 64, 0);
        bytes
    }

    #[test]
    fn writes_of_tables_are_found_wherever_they_stand() {
        let check = |bytes: &[u8], expected: Holds| {
            assert_eq!(first_of(bytes, |id| id == TableId(OWN)), expected);
        };
        check(&[], Holds::Nothing);
        check(&[0; 4096], Holds::Nothing);
        check(&segment(7, b"{}", &[]), Holds::Nothing);
        check(&segment(7, b"{}", &[&[]]), Holds::Nothing);
        check(&segment(7, b"{}", &[&[(1, SYSTEM), (1, SYSTEM)], &[(1, SYSTEM)]]), Holds::Nothing);
        check(&segment(8, b"{}", &[&[(1, SYSTEM)], &[(1, SYSTEM), (1, OWN)]]), Holds::Table(TableId(OWN)));
        check(&segment(7, b"", &[&[(2, SYSTEM)]]), Holds::Unknown);
        check(&segment(6, b"{}", &[&[(1, SYSTEM)]]), Holds::Unknown);
        check(&segment(6, b"{}", &[&[]]), Holds::Nothing);
        check(&segment(7, br#"{"compressionClass":"LZ4Compressor"}"#, &[&[(1, SYSTEM)]]), Holds::Unknown);
        check(b"no segment", Holds::Unknown);
        // Written, but not marked before the process ended.
        let mut bytes = segment(7, b"{}", &[&[(1, OWN)]]);
        bytes[20..24].fill(0);
        check(&bytes, Holds::Table(TableId(OWN)));
        // No cut causes a panic.
        let bytes = segment(7, b"{}", &[&[(1, SYSTEM)], &[(1, OWN)]]);
        for length in 0..bytes.len() {
            first_of(&bytes[..length], |id| id == TableId(OWN));
        }
    }
}
