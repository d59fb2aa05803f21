//! Damaged files: which stop the start, which are cut, which are set aside.
#![allow(clippy::disallowed_methods)]

use std::path::{Path, PathBuf};

use crate::failing::accepting;
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
        let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
        for change in changes() {
            cluster::change_schema(&change).await.expect("a schema change");
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
        let storage = cluster::open_storage(config, 0, 1).await?;
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

/// Place of the value of write `number` in the only segment with entries. The whole mutation is searched: a
/// few bytes of it may occur elsewhere too, in a checksum.
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
        let lenient = StorageConfig { commitlog_replay_ignore_errors: true, ..config(directory.path()) };
        assert_eq!(start(lenient).unwrap(), b"012345678");
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
        let storage = cluster::open_storage(of_run, 0, 1).await.expect("an open storage");
        storage.truncate(ID).await.expect("a truncation");
        let bytes = write("key", "a", "x", 99);
        storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
    });
    assert_eq!(start(config(directory.path())).unwrap(), b"x");
}

/// Opening a fifo would wait for its other end for ever.
#[test]
fn a_fifo_in_the_place_of_any_file_is_named() {
    use std::os::unix::fs::FileTypeExt;
    let directory = tempfile::tempdir().unwrap();
    killed(directory.path(), 5);
    let mut named = 0;
    for path in files(directory.path(), "") {
        if !path.exists() {
            // A segment that a start has freed.
            continue;
        }
        let aside = directory.path().join("aside");
        std::fs::rename(&path, &aside).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("mkfifo").success());
        let config = StorageConfig { disk_failure_policy: FailurePolicy::Stop, ..config(directory.path()) };
        match start(config) {
            Err(error) => {
                let said = error.to_string();
                assert!(said.contains(path.to_str().unwrap()) && said.contains("FIFO"), "{said}");
                named += 1;
            }
            // A start does not read these components.
            Ok(_) => assert!(
                ["TOC.txt", "Digest.crc32"].iter().any(|end| path.to_str().unwrap().ends_with(end)),
                "{}",
                path.display()
            ),
        }
        assert!(std::fs::metadata(&path).unwrap().file_type().is_fifo(), "it was left alone");
        std::fs::rename(&aside, &path).unwrap();
    }
    // Schema log, segment, and the components of a table file.
    assert!(named >= 7, "{named}");
    let all: Vec<u8> = (b'0'..=b'9').collect();
    assert_eq!(start(config(directory.path())).expect("an open storage"), all);
}

#[test]
fn a_segment_behind_a_symbolic_link_is_replayed() {
    let directory = tempfile::tempdir().unwrap();
    killed(directory.path(), 0);
    let shard = directory.path().join("commitlog/shard-0");
    for path in files(&shard, ".log") {
        let moved = directory.path().join(path.file_name().unwrap());
        std::fs::rename(&path, &moved).unwrap();
        std::os::unix::fs::symlink(&moved, &path).unwrap();
    }
    let moved = directory.path().join("another disk");
    std::fs::rename(&shard, &moved).unwrap();
    std::os::unix::fs::symlink(&moved, &shard).unwrap();
    let all: Vec<u8> = (b'0'..=b'9').collect();
    assert_eq!(start(config(directory.path())).expect("an open storage"), all);
}

/// Gives a table file another number.
fn renumber(folder: &Path, from: &str, to: &str) {
    for path in files(folder, "") {
        let name = path.file_name().unwrap().to_str().unwrap();
        if let Some(component) = name.strip_prefix(&format!("me-{from}-big-")) {
            std::fs::rename(&path, path.with_file_name(format!("me-{to}-big-{component}"))).unwrap();
        }
    }
}

/// Counting on from the greatest number wrapped round to numbers that other files had.
#[test]
fn files_with_the_greatest_numbers_lose_nothing() {
    for greatest in [u64::MAX - 1, u64::MAX - 3, 1 << 60] {
        let directory = tempfile::tempdir().unwrap();
        let (config, place) = (config(directory.path()), directory.path().to_owned());
        let write_and_flush = async |storage: &Storage, numbers: std::ops::Range<i64>| {
            for number in numbers {
                let bytes = write("key", &number.to_string(), &number.to_string(), number);
                storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
                storage.flush(ID).await.expect("a flush");
            }
        };
        let config_now = config.clone();
        run(async move {
            let storage = cluster::open_storage(config_now, 0, 1).await.expect("an open storage");
            for change in changes() {
                cluster::change_schema(&change).await.expect("a schema change");
            }
            write_and_flush(&storage, 0..2).await;
            storage.drain().await.expect("a drain");
        });
        renumber(&place.join("data"), "2", &greatest.to_string());
        // Under its own number it is missing.
        let config = accepting(config);
        for begin in [2, 5] {
            let config_now = config.clone();
            run(async move {
                let storage = cluster::open_storage(config_now, 0, 1).await.expect("an open storage");
                write_and_flush(&storage, begin..begin + 3).await;
                // It ends: files it writes are not taken again.
                storage.garbage_collect(ID).await.expect("a collection");
                storage.drain().await.expect("a drain");
            });
            let all: Vec<u8> = (b'0'..b'0' + begin as u8 + 3).collect();
            assert_eq!(start(config.clone()).expect("an open storage"), all, "{greatest}");
        }
        let config_now = config.clone();
        run(async move {
            let storage = cluster::open_storage(config_now, 0, 1).await.expect("an open storage");
            storage.compact(ID).await.expect("a compaction");
            storage.drain().await.expect("a drain");
        });
        assert_eq!(start(config).expect("an open storage"), b"01234567", "{greatest}");
        let left = files(&place.join("data"), "-Data.db");
        let number: u64 =
            left[0].file_name().unwrap().to_str().unwrap().split('-').nth(1).unwrap().parse().unwrap();
        assert!(left.len() == 1 && number < (1 << 60) + 100, "{left:?}");
    }
}

#[test]
fn a_file_that_was_put_beside_those_of_a_running_node_is_not_written_over() {
    let directory = tempfile::tempdir().unwrap();
    let (config, place) = (config(directory.path()), directory.path().to_owned());
    killed(&place, 10);
    let data = place.join("data");
    run(async move {
        let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
        let of_two: Vec<PathBuf> = files(&data, "");
        let before: Vec<_> = of_two.iter().map(|path| std::fs::read(path).unwrap()).collect();
        let put: Vec<PathBuf> = of_two
            .iter()
            .map(|path| {
                path.with_file_name(path.file_name().unwrap().to_str().unwrap().replace("me-1-", "me-2-"))
            })
            .collect();
        for (from, to) in of_two.iter().zip(&put) {
            std::fs::copy(from, to).unwrap();
        }
        storage.apply(&write("key", "x", "x", 99), Deadline::NEVER).await.expect("a write");
        storage.flush(ID).await.expect("a flush");
        let after: Vec<_> = put.iter().map(|path| std::fs::read(path).unwrap()).collect();
        assert_eq!(before, after);
        assert!(files(&data, "me-3-big-Data.db").len() == 1);
    });
}

#[test]
fn a_number_that_none_has_ends_the_start_or_is_set_aside() {
    for number in ["18446744073709551616", "01"] {
        let directory = tempfile::tempdir().unwrap();
        killed(directory.path(), 10);
        renumber(&directory.path().join("data"), "1", number);
        let config = accepting(config(directory.path()));
        let said = start(config.clone()).expect_err("a file that is not taken for any").to_string();
        assert!(said.contains(&format!("me-{number}-big-")) && said.contains("import"), "{said}");
        let lenient = StorageConfig { disk_failure_policy: FailurePolicy::BestEffort, ..config };
        start(lenient).expect("an open storage");
        assert!(!files(directory.path(), &format!("quarantine/me-{number}-big-Data.db")).is_empty());
    }
}

/// The next name was counted on from the greatest, to one that another segment had.
#[test]
fn a_segment_with_the_greatest_name_is_replayed_and_no_other_is_written_over() {
    let directory = tempfile::tempdir().unwrap();
    killed(directory.path(), 0);
    let segments = files(&directory.path().join("commitlog"), ".log");
    let full = segments.iter().find(|path| std::fs::read(path).unwrap().len() > 4096).expect("a segment");
    std::fs::rename(full, full.with_file_name(format!("{}.log", u64::MAX))).unwrap();
    std::fs::write(full.with_file_name("0.log"), b"not a segment, and nobody's to write over").unwrap();
    let all: Vec<u8> = (b'0'..=b'9').collect();
    let lenient = StorageConfig { commitlog_replay_ignore_errors: true, ..config(directory.path()) };
    let lenient = accepting(lenient);
    for _ in 0..2 {
        assert_eq!(start(lenient.clone()).expect("an open storage"), all);
        assert!(std::fs::read(full.with_file_name("0.log")).unwrap().starts_with(b"not a segment"));
    }
}
