//! Mutations longer than half a segment of the commit log: written in pieces, and joined by a start,
//! completely or not at all.
#![allow(clippy::disallowed_methods)]

use std::path::{Path, PathBuf};

use crate::table::{ID, changes, values, write};
use reactor::Deadline;
use storage::{PartitionRange, Storage, StorageConfig, StorageError};

const SEGMENT_BYTES: usize = 64 << 10;
const HEADER_BYTES: usize = 4096;
/// A value that takes several segments.
const LONG: usize = 200 << 10;

fn run<T: 'static>(work: impl Future<Output = T> + 'static) -> T {
    reactor::run_one(reactor::Config::default(), work)
}

fn config(directory: &Path) -> StorageConfig {
    let mut config = StorageConfig::new(directory, 8 << 20);
    config.segment_bytes = SEGMENT_BYTES;
    config.commitlog_bytes_max = 4 << 20;
    config.mutation_bytes_max = Some(512 << 10);
    config.auto_compaction = false;
    config
}

/// Text of so many bytes, no two parts of which are equal.
fn text(bytes: usize) -> String {
    let mut text: String = (0..bytes / 8).map(|number| format!("{number:08}")).collect();
    text.push_str(&"x".repeat(bytes - text.len()));
    text
}

async fn opened(config: StorageConfig) -> Result<Storage, StorageError> {
    let storage = cluster::open_storage(config, 0, 1).await?;
    if storage.schema().table_by_id(ID).is_none() {
        for change in changes() {
            cluster::change_schema(&change).await.expect("a schema change");
        }
    }
    Ok(storage)
}

async fn put(storage: &Storage, row: &str, value: &str) {
    let bytes = write("key", row, value, 1);
    storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
}

/// A node that took a short write, a long one and a short one, and was killed.
fn killed(directory: &Path) {
    let config = config(directory);
    run(async move {
        let storage = opened(config).await.expect("an open storage");
        put(&storage, "a", "before,").await;
        put(&storage, "b", &text(LONG)).await;
        put(&storage, "c", ",after").await;
    });
}

fn start(config: StorageConfig) -> Result<String, StorageError> {
    run(async move {
        let storage = opened(config).await?;
        let found = values(&storage, PartitionRange::all()).await.expect("a read");
        Ok(found.into_iter().map(|(_, value)| String::from_utf8(value).expect("text")).collect())
    })
}

/// Segments with their bytes, by their ids.
fn segments(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = directory.join("commitlog/shard-0");
    let mut segments: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        // One segment may have been in the making when the node was killed.
        .filter(|(_, bytes)| bytes.len() == SEGMENT_BYTES)
        .collect();
    segments.sort_by_key(|(_, bytes)| u64::from_le_bytes(bytes[16..24].try_into().unwrap()));
    segments
}

/// Place of some bytes in the log: the segment, and the offset of their end.
fn end_of(segments: &[(PathBuf, Vec<u8>)], wanted: &[u8]) -> (usize, usize) {
    let mut found = segments.iter().enumerate().filter_map(|(segment, (_, bytes))| {
        let at = bytes.windows(wanted.len()).rposition(|window| window == wanted)?;
        Some((segment, at + wanted.len()))
    });
    found.next().expect("the bytes stand in the log")
}

/// A copy of the node's files, with `segments` as its log.
fn copy_with(directory: &Path, segments: &[(PathBuf, Vec<u8>)]) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for folder in ["schema", "schema/group0", "manifest", "commitlog/shard-0"] {
        std::fs::create_dir_all(copy.path().join(folder)).unwrap();
        for entry in std::fs::read_dir(directory.join(folder)).unwrap().map(Result::unwrap) {
            if entry.path().is_file() && entry.metadata().unwrap().len() != SEGMENT_BYTES as u64 {
                std::fs::copy(entry.path(), copy.path().join(folder).join(entry.file_name())).unwrap();
            }
        }
    }
    for (path, bytes) in segments {
        std::fs::write(copy.path().join(path.strip_prefix(directory).unwrap()), bytes).unwrap();
    }
    copy
}

#[test]
fn a_long_write_is_read_at_once_and_after_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    killed(directory.path());
    let whole = format!("before,{},after", text(LONG));
    assert!(segments(directory.path()).len() >= LONG / SEGMENT_BYTES);
    for _ in 0..2 {
        assert!(start(config(directory.path())).unwrap() == whole, "all three, and no more");
    }
}

/// Whether a start has the long write, with a log of which all behind `cut` (segment, offset) is zero.
///
/// `last` is where the long write ends in the log, and `after` where the write behind it does.
fn start_with_a_log_cut_at(
    cut: (usize, usize),
    log: &[(std::path::PathBuf, Vec<u8>)],
    directory: &Path,
    last: (usize, usize),
    after: (usize, usize),
) -> bool {
    let long = text(LONG);
    let mut torn = log.to_vec();
    torn[cut.0].1[cut.1..].fill(0);
    for (_, later) in &mut torn[cut.0 + 1..] {
        later[HEADER_BYTES..].fill(0);
    }
    let copy = copy_with(directory, &torn);
    let found = start(config(copy.path())).unwrap_or_else(|error| panic!("cut at {cut:?}: {error}"));
    let expected = match &found {
        _ if cut < last || found.len() < LONG => "before,".to_owned(),
        _ if cut > after => format!("before,{long},after"),
        _ => format!("before,{long}"),
    };
    assert!(found == expected, "cut at {cut:?}: {} bytes", found.len());
    // The last piece is followed by its checksum.
    assert!(cut < (last.0, last.1 + 64) || found.len() > LONG, "cut at {cut:?}: the write is lost");
    // The rest of the pieces does not disturb entries written behind them.
    let again = config(copy.path());
    run(async move { put(&opened(again).await.expect("a start"), "d", "+").await });
    assert!(start(config(copy.path())).unwrap() == format!("{expected}+"), "after a cut at {cut:?}");
    found.len() > LONG
}

#[test]
fn a_log_that_ends_within_the_pieces_has_the_long_write_whole_or_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    killed(directory.path());
    let log = segments(directory.path());
    let long = text(LONG);
    let last = end_of(&log, &long.as_bytes()[LONG - 100..]);
    let after = end_of(&log, b",after");
    let mut cuts = Vec::new();
    for segment in 0..=last.0 {
        // Pieces end at multiples of eight, so some of these cuts are next to an end.
        let all = (HEADER_BYTES..SEGMENT_BYTES).step_by(9_001);
        cuts.extend(all.map(|offset| (segment, offset)));
    }
    cuts.extend((last.1 - 40..last.1 + 40).step_by(3).map(|offset| (last.0, offset)));
    cuts.retain(|cut| *cut > end_of(&log, b"before,"));
    // A start waits for the disk more than it computes.
    let (log, directory) = (&log, directory.path());
    let has_long = |cut: &(usize, usize)| start_with_a_log_cut_at(*cut, log, directory, last, after);
    let starts: Vec<bool> = std::thread::scope(|scope| {
        let parts = cuts.chunks(cuts.len().div_ceil(4));
        let threads: Vec<_> =
            parts.map(|part| scope.spawn(move || part.iter().map(has_long).collect::<Vec<_>>())).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let with = starts.iter().filter(|with| **with).count();
    let without = starts.len() - with;
    assert!(without > 20 && with > 3, "{without} without, {with} with");
}

#[test]
fn a_damaged_piece_in_the_middle_stops_the_start_and_costs_the_long_write_alone_where_that_is_ignored() {
    let directory = tempfile::tempdir().unwrap();
    killed(directory.path());
    let log = segments(directory.path());
    let (segment, offset) = end_of(&log, &text(LONG).as_bytes()[LONG / 2..LONG / 2 + 50]);
    let mut damaged = log.clone();
    damaged[segment].1[offset] ^= 1;
    let mut lost = log.clone();
    lost.remove(segment);
    for (what, log) in [("damaged", damaged), ("lost", lost)] {
        let copy = copy_with(directory.path(), &log);
        let mut lenient = config(copy.path());
        let mut error = start(lenient.clone()).expect_err(what);
        if let StorageError::Missing { token, .. } = error {
            assert_eq!(what, "lost");
            lenient.accept_missing.push(token);
            error = start(lenient.clone()).expect_err(what);
        }
        assert!(matches!(error, StorageError::CommitlogCorrupt { .. }), "{what}: {error}");
        lenient.commitlog_replay_ignore_errors = true;
        assert_eq!(start(lenient).unwrap(), "before,,after", "{what}");
    }
}

#[test]
fn segments_of_a_long_write_stay_until_it_is_flushed_and_no_longer() {
    let directory = tempfile::tempdir().unwrap();
    let of_run = config(directory.path());
    run(async move {
        let storage = opened(of_run).await.expect("an open storage");
        for round in 0..60 {
            put(&storage, "b", &text(LONG + round)).await;
            put(&storage, "c", ",after").await;
            if round % 10 == 9 {
                let before = storage.stats().commitlog;
                assert!(before.segments as usize > LONG / SEGMENT_BYTES, "{before:?}");
                storage.flush(ID).await.expect("a flush");
                let after = storage.stats().commitlog;
                assert!(after.segments <= 2, "{after:?}");
            }
        }
        assert!(storage.stats().commitlog.disk_bytes <= storage.stats().commitlog.bytes_max);
    });
    // The last flush left only the table file; the pieces behind its mark are skipped.
    assert!(start(config(directory.path())).unwrap().ends_with(",after"));
}

#[test]
fn long_writes_go_on_when_the_log_has_no_room_and_many_come_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let mut of_run = config(directory.path());
    of_run.commitlog_bytes_max = 16 * SEGMENT_BYTES as u64;
    run(async move {
        let storage = opened(of_run).await.expect("an open storage");
        let writes: Vec<_> = (0..24)
            .map(|number| {
                let storage = storage.clone();
                reactor::spawn(reactor::Group::STATEMENT, async move {
                    put(&storage, "b", &text(LONG - number)).await;
                    put(&storage, &format!("c{number}"), "+").await;
                })
            })
            .collect();
        for write in writes {
            write.await.expect("a write that ends");
        }
        let log = storage.stats().commitlog;
        assert!(log.disk_bytes <= log.bytes_max + 4 * SEGMENT_BYTES as u64, "{log:?}");
    });
    let mut of_start = config(directory.path());
    of_start.commitlog_bytes_max = 16 * SEGMENT_BYTES as u64;
    assert!(start(of_start).unwrap().ends_with(&"+".repeat(24)));
}

#[test]
fn the_limit_of_a_mutation_is_half_a_segment_unless_another_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    assert_eq!(config.mutation_bytes_max(), 512 << 10);
    config.mutation_bytes_max = None;
    assert_eq!(config.mutation_bytes_max(), SEGMENT_BYTES / 2);
    config.mutation_bytes_max = Some(1 << 40);
    assert_eq!(config.mutation_bytes_max(), 1 << 20, "a quarter of the log");
    let log = config.commitlog_bytes_max;
    config.commitlog_bytes_max = 1 << 40;
    assert_eq!(config.mutation_bytes_max(), 2 << 20, "a quarter of the memtables");
    config.commitlog_bytes_max = log;
    config.mutation_bytes_max = Some(1000);
    run(async move {
        let storage = opened(config).await.expect("an open storage");
        let error = storage.check_mutation_size(&write("key", "a", &text(2000), 1)).expect_err("too long");
        assert!(matches!(error, StorageError::MutationTooLarge { bytes_max: 1000, .. }), "{error}");
    });
}

/// As replication finishes a batch: it keeps the batch's own entry until its writes are in the log.
#[test]
fn the_largest_batch_is_done_in_the_smallest_log_and_after_a_kill() {
    for (segment, segments) in [(64 << 10, 9), (8 << 20, 9), (8 << 20, 16)] {
        let directory = tempfile::tempdir().expect("a directory");
        let mut config = StorageConfig::new(directory.path(), 512 << 20);
        config.segment_bytes = segment;
        config.commitlog_bytes_max = (segment * segments) as u64;
        config.mutation_bytes_max = Some(usize::MAX);
        let value = text(config.mutation_bytes_max() - 200);
        assert!(value.len() > segment, "{segments} segments of {segment}");
        let (first, wanted) = (config.clone(), format!("{value},1,2"));
        run(async move {
            let storage = opened(first).await.expect("an open storage");
            for (row, id) in [("a", 1), ("a", 2)] {
                let mutation = write("key", row, &value, id);
                let within = Deadline::after(std::time::Duration::from_secs(20));
                let batch = storage.log_batch([id as u8; 16], [&*mutation].into_iter(), within).await;
                let batch = batch.expect("a batch in the log");
                // The active segment moves on, while the batch keeps its own.
                for number in 0..20 {
                    let row = write("key", &format!("b{number}"), "", 1);
                    storage.apply(&row, within).await.expect("a short write");
                }
                if id == 1 {
                    storage.apply(&mutation, within).await.expect("a write of the batch");
                    storage.finish_batch(batch).await;
                } else {
                    drop(batch);
                }
            }
            put(&storage, "c", ",1").await;
            put(&storage, "d", ",2").await;
        });
        assert_eq!(
            start(config).expect("a start").replace(['\n'], ""),
            wanted,
            "{segments} segments of {segment}"
        );
    }
}
