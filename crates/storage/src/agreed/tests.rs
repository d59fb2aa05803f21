//! The bytes of the log; crashes of the disk below it are the simulation's part.

use std::collections::BTreeMap;
use std::path::Path;

use model::schema::{KeyspaceOptions, SchemaChange};

use super::log::{MAGIC, encode, read};
use crate::error::StorageError;

fn change(number: usize) -> SchemaChange {
    let options = KeyspaceOptions {
        replication: BTreeMap::new(),
        durable_writes: number.is_multiple_of(2),
        tablets: None,
    };
    SchemaChange::CreateKeyspace { name: format!("keyspace_{number}"), options }
}

fn check(bytes: &[u8]) -> Result<usize, StorageError> {
    read(bytes, Path::new("schema.log")).map(|changes| changes.len())
}

#[test]
fn a_log_cut_at_any_byte_keeps_the_whole_records_before() {
    let changes: Vec<_> = (0..4).map(change).collect();
    let ends: Vec<usize> = (0..=4).map(|count| encode(&changes[..count]).len()).collect();
    let bytes = encode(&changes);
    for cut in MAGIC.len()..=bytes.len() {
        let whole = ends.iter().rposition(|end| *end <= cut).unwrap();
        assert_eq!(check(&bytes[..cut]).unwrap(), whole, "cut at {cut}");
    }
    for cut in 0..MAGIC.len() {
        assert!(check(&bytes[..cut]).is_err());
    }
}

#[test]
fn a_damaged_record_is_cut_only_at_the_end() {
    let changes: Vec<_> = (0..3).map(change).collect();
    let ends: Vec<usize> = (0..=3).map(|count| encode(&changes[..count]).len()).collect();
    let bytes = encode(&changes);
    for at in MAGIC.len()..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        if at >= ends[2] {
            assert_eq!(check(&damaged).unwrap(), 2, "byte {at}");
        } else {
            assert!(matches!(check(&damaged), Err(StorageError::SchemaLogCorrupt { .. })), "byte {at}");
        }
    }
}
