//! Damaged files: what stops the start, what is cut, what is set aside.
#![allow(clippy::disallowed_methods)]

use std::path::{Path, PathBuf};

use crate::table::{ID, changes, values, write};
use reactor::Deadline;
use storage::{FailurePolicy, PartitionRange, Storage, StorageConfig, StorageError};

fn run<T: 'static>(work: impl Future<Output = T> + 'static) -> T {
    reactor::run_one(reactor::Config::default(), work)
}

fn config(directory: &Path) -> StorageConfig {
    let mut config = StorageConfig::new(directory, 8 << 20);
    config.segment_bytes = 1 << 20;
    config.auto_compaction = false;
    config
}

/// A node that took ten writes and was killed; `flushed` of them are in a table file.
fn killed(directory: &Path, flushed: i64) {
    let config = config(directory);
    run(async move {
        let storage = Storage::open(config, 0, 1).await.expect("an open storage");
        for change in changes() {
            storage.change_schema(&change).await.expect("a schema change");
        }
        for number in 0..10 {
            let bytes = write("key", &number.to_string(), &number.to_string(), number);
            storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
            if number + 1 == flushed {
                storage.flush(ID).await.expect("a flush");
            }
        }
    });
}

fn start(config: StorageConfig) -> Result<Vec<u8>, StorageError> {
    run(async move {
        let storage = Storage::open(config, 0, 1).await?;
        let found = values(&storage, PartitionRange::all()).await.expect("a read");
        Ok(found.into_iter().flat_map(|(_, value)| value).collect())
    })
}

fn files(directory: &Path, end: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_str().unwrap().ends_with(end) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Where the value of write `number` stands in the only segment that has entries. By the whole mutation: a few bytes of it
/// stand elsewhere too now and then, in a checksum.
fn place_of(directory: &Path, number: u8) -> (PathBuf, Vec<u8>, usize) {
    for path in files(&directory.join("commitlog"), ".log") {
        let bytes = std::fs::read(&path).unwrap();
        let text = number.to_string();
        let mutation = write("key", &text, &text, i64::from(number));
        if let Some(at) = bytes.windows(mutation.len()).position(|window| window == mutation) {
            let value = mutation.iter().rposition(|byte| *byte == b'0' + number).expect("the value");
            return (path, bytes, at + value);
        }
    }
    panic!("write {number} is in no segment");
}

#[test]
fn a_killed_process_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    killed(directory.path(), 0);
    assert_eq!(start(config(directory.path())).unwrap(), b"0123456789");
}

#[test]
fn a_torn_tail_is_cut_and_stays_cut() {
    let directory = tempfile::tempdir().unwrap();
    killed(directory.path(), 0);
    let (path, mut bytes, at) = place_of(directory.path(), 9);
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
    for _ in 0..2 {
        assert_eq!(start(config(directory.path())).unwrap(), b"012345678");
    }
}

#[test]
fn a_corrupt_middle_stops_the_start_with_file_and_offset() {
    let directory = tempfile::tempdir().unwrap();
    killed(directory.path(), 0);
    let (path, mut bytes, at) = place_of(directory.path(), 4);
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    match start(config(directory.path())) {
        Err(StorageError::CommitlogCorrupt { path: named, offset, .. }) => {
            assert_eq!(named, path);
            assert!(offset as usize <= at && at - (offset as usize) < 200, "{offset} for {at}");
        }
        other => panic!("{other:?}"),
    }
    let mut lenient = config(directory.path());
    lenient.commitlog_replay_ignore_errors = true;
    assert_eq!(start(lenient).unwrap(), b"012356789");
}

#[test]
fn with_best_effort_a_corrupt_table_file_is_set_aside_and_the_others_serve() {
    let directory = tempfile::tempdir().unwrap();
    killed(directory.path(), 5);
    let data = directory.path().join("data");
    let statistics = files(&data, "-Statistics.db").pop().expect("a table file");
    std::fs::write(&statistics, b"no statistics").unwrap();
    let mut lenient = config(directory.path());
    lenient.disk_failure_policy = FailurePolicy::BestEffort;
    assert_eq!(start(lenient).unwrap(), b"56789");
    assert!(!statistics.exists());
    let aside = statistics.parent().unwrap().join("quarantine").join(statistics.file_name().unwrap());
    assert!(aside.exists());
}

#[test]
fn a_truncated_table_stays_empty_after_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    killed(directory.path(), 5);
    let of_run = config(directory.path());
    run(async move {
        let storage = Storage::open(of_run, 0, 1).await.expect("an open storage");
        storage.truncate(ID).await.expect("a truncation");
        let bytes = write("key", "a", "x", 99);
        storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
    });
    assert_eq!(start(config(directory.path())).unwrap(), b"x");
}
