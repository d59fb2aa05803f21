//! Each mode of `scrub` against each kind of damage, and `verify`, which finds the same damage and changes
//! nothing.
#![allow(clippy::disallowed_methods)]

use std::path::{Path, PathBuf};

use crate::table::{ID, changes, values, write};
use ScrubMode::{Abort, Segregate, Skip, Validate};
use reactor::Deadline;
use sstable::VerifyDepth;
use storage::{PartitionRange, ScrubMode, ScrubReport, Storage, StorageConfig, StorageError, VerifyOptions};

/// Partitions of the file, all of the same length.
const PARTITIONS: usize = 10;

fn config(directory: &Path) -> StorageConfig {
    let mut config = StorageConfig::new(directory, 8 << 20);
    config.segment_bytes = 1 << 20;
    config.auto_compaction = false;
    config.cache_keys_to_save = 0;
    config
}

/// A folder with one uncompressed table file, and the folder of the table.
fn written() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    let folder = config.data_dir.join("k/t-07070707070707070707070707070707");
    reactor::run_one(reactor::Config::default(), async move {
        let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
        let [keyspace, table] = changes();
        let model::schema::SchemaChange::CreateTable(mut definition) = table else { unreachable!() };
        definition.tablets_log2 = 0;
        definition.options.compression.clear();
        for change in [keyspace, model::schema::SchemaChange::CreateTable(definition)] {
            cluster::change_schema(&change).await.expect("a schema change");
        }
        for key in 0..PARTITIONS {
            let bytes = write(&format!("key{key}"), "c", &"value".repeat(20), 1);
            storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
        }
        storage.drain().await.expect("a drain");
    });
    (directory, folder)
}

fn component(folder: &Path, end: &str) -> PathBuf {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.to_str().unwrap().ends_with(end)).max().expect("the component")
}

fn change(path: &Path, change: impl Fn(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

async fn count(storage: &Storage) -> Result<usize, StorageError> {
    values(storage, PartitionRange::all()).await.map(|found| found.len())
}

/// The reasons that `verify` gives for damaged files.
async fn damaged(storage: &Storage, depth: VerifyDepth) -> Vec<String> {
    let report = storage.verify(ID, VerifyOptions { depth, tells_policy: false }).await.expect("a report");
    assert!(!report.stopped);
    report.damaged.into_iter().map(|file| file.reason).collect()
}

/// The expected result of a mode: its answer, the number of files afterwards, and the number of readable
/// partitions.
struct Expected {
    outcome: Result<ScrubReport, &'static str>,
    files: usize,
    left: Option<usize>,
}

/// Damages a file, scrubs it in a mode, and compares.
fn check(
    mode: ScrubMode,
    at_start: bool,
    damage: impl Fn(&Path) + 'static,
    named: &'static str,
    expected: Expected,
) {
    let (directory, folder) = written();
    let config = config(directory.path());
    if at_start {
        damage(&folder);
    }
    reactor::run_one(reactor::Config::default(), async move {
        let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
        assert!(at_start || damaged(&storage, VerifyDepth::Rows).await.is_empty());
        if !at_start {
            damage(&folder);
        }
        let found = damaged(&storage, VerifyDepth::Rows).await;
        assert!(matches!(&found[..], [reason] if reason.contains(named)), "{mode:?} {named}: {found:?}");
        match (storage.scrub(ID, mode).await, expected.outcome) {
            (Ok(report), Ok(expected)) => assert_eq!(report, expected, "{mode:?} {named}"),
            (Err(error), Err(expected)) => {
                assert!(error.to_string().contains(expected), "{mode:?} {named}: {error}");
            }
            (other, _) => panic!("{mode:?} {named}: {other:?}"),
        }
        assert_eq!(storage.stats().tables[0].files, expected.files, "{mode:?} {named}");
        assert_eq!(count(&storage).await.ok(), expected.left, "{mode:?} {named}");
        let is_whole = damaged(&storage, VerifyDepth::Rows).await.is_empty();
        assert_eq!(is_whole, matches!(mode, Skip | Segregate), "{mode:?} {named}");
    });
}

fn report(partitions: u64, gaps: u64, out_of_order: u64) -> ScrubReport {
    ScrubReport { files: 1, damaged_files: 1, partitions, gaps, out_of_order }
}

/// All ten partitions are in one chunk of 64 KiB: if it is damaged nothing is left.
#[test]
fn a_chunk_of_data_that_is_damaged_is_left_out_or_told() {
    let damage = |folder: &Path| change(&component(folder, "-Data.db"), |bytes| bytes[20] ^= 1);
    let gap = |left: Option<usize>| Expected {
        outcome: Ok(report(0, 1, 0)),
        files: usize::from(left.is_none()),
        left,
    };
    let aborted = Expected { outcome: Err("-Data.db"), files: 1, left: None };
    check(Abort, false, damage, "-Data.db", aborted);
    check(Validate, false, damage, "-Data.db", gap(None));
    check(Skip, false, damage, "-Data.db", gap(Some(0)));
    check(Segregate, false, damage, "-Data.db", gap(Some(0)));
}

#[test]
fn a_component_besides_the_data_that_is_damaged_costs_no_row() {
    for named in ["-Index.db", "-Statistics.db", "-Filter.db", "-Summary.db", "-CRC.db"] {
        let damage = move |folder: &Path| {
            change(&component(folder, named), |bytes| {
                let at = bytes.len() / 2;
                bytes[at] ^= 1;
            });
        };
        let saved = || Expected { outcome: Ok(report(10, 0, 0)), files: 1, left: Some(PARTITIONS) };
        let aborted = Expected { outcome: Err(named), files: 1, left: Some(PARTITIONS) };
        check(Abort, false, damage, named, aborted);
        check(Validate, false, damage, named, saved());
        check(Skip, false, damage, named, saved());
        check(Segregate, false, damage, named, saved());
    }
}

#[test]
fn a_file_that_cannot_be_opened_is_told_or_set_aside() {
    for named in ["-Statistics.db", "-CRC.db"] {
        let damage = move |folder: &Path| change(&component(folder, named), |bytes| bytes.truncate(5));
        let of = |files, left| Expected { outcome: Ok(report(0, 0, 0)), files, left };
        check(Abort, true, damage, named, Expected { outcome: Err(named), files: 0, left: None });
        check(Validate, true, damage, named, of(0, None));
        check(Skip, true, damage, named, of(0, Some(0)));
        check(Segregate, true, damage, named, of(0, Some(0)));
    }
}

#[test]
fn a_filter_or_a_summary_that_is_damaged_or_missing_is_made_anew_when_the_file_is_opened() {
    let flip = |path: &Path| change(path, |bytes| *bytes.last_mut().unwrap() ^= 1);
    let cut = |path: &Path| change(path, |bytes| bytes.truncate(5));
    let remove = |path: &Path| std::fs::remove_file(path).unwrap();
    for named in ["-Filter.db", "-Summary.db"] {
        for harm in [flip as fn(&Path), cut, remove] {
            let damage = move |folder: &Path| harm(&component(folder, named));
            let saved = || Expected { outcome: Ok(report(10, 0, 0)), files: 1, left: Some(PARTITIONS) };
            let aborted = Expected { outcome: Err(named), files: 1, left: Some(PARTITIONS) };
            check(Abort, true, damage, named, aborted);
            check(Validate, true, damage, named, saved());
            check(Skip, true, damage, named, saved());
            check(Segregate, true, damage, named, saved());
        }
    }
    // Nothing is made from a damaged index.
    let both = move |folder: &Path| {
        cut(&component(folder, "-Summary.db"));
        change(&component(folder, "-Index.db"), |bytes| bytes[20] ^= 1);
    };
    let refused = Expected { outcome: Ok(report(0, 0, 0)), files: 0, left: None };
    check(Validate, true, both, "-Index.db", refused);
}

#[test]
fn a_compaction_of_all_tells_which_damaged_files_it_left_as_they_are() {
    for at_start in [false, true] {
        let (directory, folder) = written();
        let config = config(directory.path());
        reactor::run_one(reactor::Config::default(), async move {
            let harm = |path: &Path| change(path, |bytes| bytes[20] ^= 1);
            let data = component(&folder, "-Data.db");
            if at_start {
                harm(&component(&folder, "-Statistics.db"));
            }
            let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
            if !at_start {
                harm(&data);
                storage.evict_cache();
                count(&storage).await.expect_err("the damage is found");
            }
            let bytes = write("another", "c", "value", 1);
            storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
            let options = storage::CompactOptions::default();
            let outcome = storage.compact_with(ID, &options).await.expect("a compaction");
            assert_eq!(outcome.damaged, std::slice::from_ref(&data), "{at_start}");
            assert!(data.exists());
            storage.scrub(ID, Skip).await.expect("a scrub");
            let outcome = storage.compact_with(ID, &options).await.expect("a compaction");
            assert!(outcome.damaged.is_empty(), "{at_start}: {:?}", outcome.damaged);
        });
    }
}

/// Swaps two partitions of the data and removes the components with its checksums, as if a writer had erred.
fn disorder(folder: &Path) {
    change(&component(folder, "-Data.db"), |bytes| {
        let length = bytes.len() / PARTITIONS;
        assert_eq!(bytes.len() % PARTITIONS, 0, "partitions of one length");
        let (first, second) = bytes[3 * length..5 * length].split_at_mut(length);
        first.swap_with_slice(second);
    });
    for end in ["-Ceto.db", "-CRC.db", "-Digest.crc32"] {
        std::fs::remove_file(component(folder, end)).unwrap();
    }
    change(&component(folder, "-TOC.txt"), |toc| {
        let text = String::from_utf8(toc.clone()).unwrap();
        let left = text.lines().filter(|line| !line.starts_with("CRC") && !line.starts_with("Digest"));
        *toc = left.collect::<Vec<_>>().join("\n").into_bytes();
    });
}

#[test]
fn partitions_out_of_order_are_told_left_out_or_kept_in_files_of_their_own() {
    let of = |files, left| Expected { outcome: Ok(report(10, 0, 1)), files, left };
    // A scan reports the partitions in the order it finds them: the merge assumes that the file is sorted.
    check_disorder(Abort, Expected { outcome: Err("out of order"), files: 1, left: Some(PARTITIONS) });
    check_disorder(Validate, of(1, Some(PARTITIONS)));
    check_disorder(Skip, of(1, Some(PARTITIONS - 1)));
    check_disorder(Segregate, of(2, Some(PARTITIONS)));
}

fn check_disorder(mode: ScrubMode, expected: Expected) {
    let (directory, folder) = written();
    let config = config(directory.path());
    disorder(&folder);
    reactor::run_one(reactor::Config::default(), async move {
        let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
        match (storage.scrub(ID, mode).await, expected.outcome) {
            (Ok(report), Ok(expected)) => assert_eq!(report, expected, "{mode:?}"),
            (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{mode:?}: {error}"),
            (other, _) => panic!("{mode:?}: {other:?}"),
        }
        assert_eq!(storage.stats().tables[0].files, expected.files, "{mode:?}");
        if matches!(mode, Skip | Segregate) {
            assert_eq!(count(&storage).await.ok(), expected.left, "{mode:?}");
            assert!(damaged(&storage, VerifyDepth::Rows).await.is_empty(), "{mode:?}");
            assert_eq!(storage.scrub(ID, Abort).await.expect("a whole table").damaged_files, 0, "{mode:?}");
        }
    });
}
