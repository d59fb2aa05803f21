//! The bytes of the log; crashes of the disk below it are the simulation's part.

use std::collections::BTreeMap;
use std::path::Path;

use model::CqlType;
use model::schema::{AggregateDefinition, FunctionDefinition, KeyspaceOptions, Schema, SchemaChange};

use super::{COMPACT_RECORDS_MIN, MAGIC, SchemaLog, encode, read};
use crate::error::StorageError;

fn change(number: usize) -> SchemaChange {
    let options = KeyspaceOptions {
        replication: BTreeMap::new(),
        durable_writes: number.is_multiple_of(2),
        tablets: None,
    };
    SchemaChange::CreateKeyspace { name: format!("keyspace_{number}"), options }
}

/// A function, and an aggregate that calls it.
fn functions(keyspace: &str) -> [SchemaChange; 2] {
    [
        SchemaChange::CreateFunction(Box::new(FunctionDefinition {
            keyspace: keyspace.to_owned(),
            name: "larger".to_owned(),
            arguments: vec![("a".to_owned(), CqlType::Int), ("b".to_owned(), CqlType::Int)],
            returns: CqlType::Int,
            called_on_null_input: false,
            language: "lua".to_owned(),
            body: "return math.max(a, b)".to_owned(),
        })),
        SchemaChange::CreateAggregate(Box::new(AggregateDefinition {
            keyspace: keyspace.to_owned(),
            name: "largest".to_owned(),
            arguments: vec![CqlType::Int],
            state_function: "larger".to_owned(),
            state_type: CqlType::Int,
            final_function: None,
            initial_state: None,
            returns: CqlType::Int,
            reduce_function: None,
        })),
    ]
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

#[test]
fn a_log_of_many_records_is_shortened_and_its_schema_keeps_its_version() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    reactor::run_one(reactor::Config::default(), async move {
        let mut expected = Schema::empty();
        let (log, _) = SchemaLog::open(&path).await.unwrap();
        let mut append = async |change: SchemaChange, log: &SchemaLog| {
            log.append(&change).await.unwrap();
            expected.apply(&change).unwrap();
            expected.version()
        };
        append(change(0), &log).await;
        let SchemaChange::CreateKeyspace { name, .. } = change(0) else { panic!("a keyspace") };
        for change in functions(&name) {
            append(change, &log).await;
        }
        let mut version = [0; 16];
        for number in 0..COMPACT_RECORDS_MIN {
            let options = KeyspaceOptions {
                replication: BTreeMap::new(),
                durable_writes: number.is_multiple_of(2),
                tablets: None,
            };
            version = append(SchemaChange::AlterKeyspace { name: name.clone(), options }, &log).await;
        }
        drop(log);
        for start in 0..3 {
            let (mut log, changes) = SchemaLog::open(&path).await.unwrap();
            let mut schema = Schema::empty();
            changes.iter().for_each(|change| schema.apply(change).unwrap());
            assert_eq!(schema.version(), version, "start {start}");
            let keyspace = schema.keyspace(&name).unwrap();
            assert_eq!((keyspace.functions.len(), keyspace.aggregates.len()), (1, 1), "start {start}");
            assert_eq!(changes.len() < 8, start > 0, "start {start}: {} records", changes.len());
            if let Some(fewer) = SchemaLog::shorter(&changes) {
                log.replace(&fewer).await.unwrap();
            }
            // The version advances from its last value.
            version = append(change(start + 1), &log).await;
        }
    });
}
