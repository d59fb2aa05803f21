//! Compaction over real files: each strategy reaches its shape and keeps the written data; compactions on an
//! operator's demand; space and bytes written, as counts.

#![allow(clippy::disallowed_methods, reason = "a test damages files")]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::table::{ID, changes_with, delete, values, write, write_expiring};
use model::Token;
use model::schema::TableOptions;
use reactor::Deadline;
use reactor::sim::World;
use storage::{
    CompactOptions, CompactionFilter, CompactionKind, PartitionRange, ScrubMode, Storage, StorageConfig,
    TableFileInfo,
};

/// Steps of the simulated world a test may take at most.
const STEPS_MAX: u64 = 50_000_000;

/// Runs `test` on a storage with one tablet of a table with these compaction options, on a simulated disk.
fn with_storage(
    compaction: &[(&str, &str)],
    set: impl FnOnce(&mut TableOptions) + 'static,
    test: impl AsyncFnOnce(Storage) + 'static,
) {
    on_disk(compaction, set, async move |storage, config| {
        test(storage.clone()).await;
        let before = values(&storage, PartitionRange::all()).await.expect("a read");
        storage.drain().await.expect("a drain");
        let again = cluster::open_storage(config, 0, 1).await.expect("an open storage");
        let after = values(&again, PartitionRange::all()).await.expect("a read");
        assert!(before == after, "{} partitions before a restart, {} behind it", before.len(), after.len());
    });
}

/// As [`with_storage`], without the restart at the end.
pub(crate) fn on_disk(
    compaction: &[(&str, &str)],
    set: impl FnOnce(&mut TableOptions) + 'static,
    test: impl AsyncFnOnce(Storage, StorageConfig) + 'static,
) {
    let compaction: BTreeMap<String, String> =
        compaction.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let mut world = World::new(1);
    let main = Rc::new(Cell::new(Some((compaction, set, test))));
    let done = Rc::new(Cell::new(false));
    let id = world.add_node(1, {
        let done = Rc::clone(&done);
        move |_| {
            let (compaction, set, test) = main.take().expect("the node starts once");
            let done = Rc::clone(&done);
            async move {
                let config = StorageConfig::new("/ceto", 64 << 20);
                let storage = open(&config, compaction, set).await;
                test(storage, config).await;
                done.set(true);
            }
        }
    });
    let ended = world.run_steps(STEPS_MAX, |world| done.get() || world.outcome(id).is_some());
    if let Some(Err(problem)) = world.outcome(id) {
        panic!("{problem}");
    }
    assert!(done.get(), "the test does not end: {ended:?}");
}

/// A storage with a table.
async fn open(
    config: &StorageConfig,
    compaction: BTreeMap<String, String>,
    set: impl FnOnce(&mut TableOptions),
) -> Storage {
    let storage = cluster::open_storage(config.clone(), 0, 1).await.expect("an open storage");
    let set = |options: &mut TableOptions| {
        options.compaction = compaction;
        options.compression.clear();
        set(options);
    };
    for change in changes_with(0, set) {
        cluster::change_schema(&change).await.expect("a schema change");
    }
    storage
}

pub(crate) fn key(number: u32) -> String {
    // Spread over the ring, and not in the order of writing.
    format!("key{:08x}", number.wrapping_mul(2_654_435_761))
}

/// Writes partitions of about 1500 bytes and flushes them into one file.
pub(crate) async fn fill(storage: &Storage, keys: impl Iterator<Item = u32>, timestamp: i64) {
    for number in keys {
        let bytes = write(&key(number), "c", &format!("{timestamp:01450}"), timestamp);
        storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
    }
    storage.flush(ID).await.expect("a flush");
}

pub(crate) fn files(storage: &Storage) -> Vec<TableFileInfo> {
    storage.table_files(ID).expect("the table")
}

/// Most files that share a token.
fn depth(files: &[TableFileInfo]) -> usize {
    let at = |token: Token| files.iter().filter(|f| f.tokens.0 <= token && token <= f.tokens.1).count();
    files.iter().map(|file| at(file.tokens.0)).max().unwrap_or(0)
}

/// Checks the shape that a strategy reaches by 16 flushes of 120 new partitions, with a tenth of older ones
/// among them.
fn check(compaction: &[(&str, &str)], shape: impl FnOnce(&[TableFileInfo]) + 'static) {
    with_storage(
        compaction,
        |_| (),
        async move |storage| {
            for round in 0..16u32 {
                let new = round * 120..(round + 1) * 120;
                let old = (0..12).map(move |n| n * 7 % (round * 120 + 1));
                fill(&storage, new.chain(old), i64::from(round) * 60_000_000).await;
                if round % 5 == 0 {
                    storage.compacted().await;
                }
            }
            storage.compacted().await;
            assert_eq!(storage.pending_compactions(), []);
            let found = values(&storage, PartitionRange::all()).await.expect("a read");
            assert_eq!(found.len(), 16 * 120);
            for (at, (key, value)) in found.iter().enumerate().step_by(191) {
                let range = PartitionRange::Key(model::partition_key::DecoratedKey::new(key.clone()));
                assert_eq!(
                    values(&storage, range).await.expect("a read"),
                    [(key.clone(), value.clone())],
                    "{at}"
                );
            }
            shape(&files(&storage));
        },
    );
}

#[test]
fn size_tiered_leaves_few_files() {
    check(&[("class", "SizeTieredCompactionStrategy")], |files| assert!(files.len() < 4, "{files:#?}"));
}

#[test]
fn leveled_leaves_levels_that_do_not_overlap() {
    let options =
        [("class", "LeveledCompactionStrategy"), ("sstable_size_in_mb", "0.125"), ("fanout_size", "4")];
    check(&options, |files| {
        for level in 1..9 {
            let of: Vec<TableFileInfo> = files.iter().filter(|f| f.level == level).cloned().collect();
            assert!(depth(&of) <= 1, "level {level}: {of:#?}");
            let bytes: u64 = of.iter().map(|f| f.bytes).sum();
            assert!(bytes <= (1 << 17) * 4u64.pow(level) * 1001 / 1000, "level {level}: {bytes}");
        }
        assert!(files.iter().any(|f| f.level >= 2), "{files:#?}");
        assert!(depth(files) < 8, "{files:#?}");
    });
}

#[test]
fn time_windows_leave_one_file_each() {
    let options = [
        ("class", "TimeWindowCompactionStrategy"),
        ("compaction_window_unit", "MINUTES"),
        ("compaction_window_size", "4"),
    ];
    check(&options, |files| {
        let mut windows: BTreeMap<i64, usize> = BTreeMap::new();
        files.iter().for_each(|f| *windows.entry(f.timestamps.1 / 240_000_000).or_default() += 1);
        assert_eq!(windows.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert!(windows.range(..3).all(|(_, count)| *count == 1), "{files:#?}");
    });
}

#[test]
fn incremental_leaves_few_runs_of_fragments() {
    let options = [("class", "IncrementalCompactionStrategy"), ("sstable_size_in_mb", "0.125")];
    check(&options, |files| {
        assert!(depth(files) < 4, "{files:#?}");
        assert!(files.iter().all(|f| f.bytes < 200 << 10), "{files:#?}");
        assert!(files.len() > 8, "{files:#?}");
    });
}

#[test]
fn unified_leaves_little_overlap_and_parts_of_a_size() {
    let options = [
        ("class", "UnifiedCompactionStrategy"),
        ("scaling_parameters", "L4, T3"),
        ("target_sstable_size", "128KiB"),
        ("min_sstable_size", "32KiB"),
        ("base_shard_count", "2"),
    ];
    check(&options, |files| {
        assert!(depth(files) < 6, "{files:#?}");
        assert!(files.len() > 4, "{files:#?}");
    });
}

#[test]
fn a_disabled_strategy_leaves_all_files_until_it_is_asked() {
    let options = [("class", "SizeTieredCompactionStrategy"), ("enabled", "false")];
    with_storage(
        &options,
        |_| (),
        async |storage| {
            for round in 0..6 {
                fill(&storage, 0..10, round).await;
            }
            storage.compacted().await;
            assert_eq!(files(&storage).len(), 6);
            let some = files(&storage)[1..3].iter().map(|file| file.generation).collect();
            let some = CompactOptions { generations: Some(some), ..CompactOptions::default() };
            assert_eq!(storage.compact_with(ID, &some).await.expect("a compaction").completed, 1);
            assert_eq!(files(&storage).len(), 5);
            storage.compact(ID).await.expect("a compaction");
            assert_eq!(files(&storage).len(), 1);
            let history = storage.compaction_history();
            assert_eq!(history.len(), 2);
            assert_eq!(history[0].partitions_merged, BTreeMap::from([(2, 10)]));
            assert_eq!(history[1].partitions_merged, BTreeMap::from([(5, 10)]));
            assert_eq!((history[1].kind, history[1].table_name.as_str()), (CompactionKind::Major, "t"));
            assert!(history[1].bytes_out > 0 && history[1].bytes_out < history[1].bytes_in);
        },
    );
}

#[test]
fn a_major_compaction_may_be_split_and_takes_the_tokens_it_is_told() {
    let options = [("class", "SizeTieredCompactionStrategy"), ("enabled", "false")];
    with_storage(
        &options,
        |_| (),
        async |storage| {
            // Two files with the first half of the ring, two with the second.
            let token = |number: &u32| model::token::murmur3_token(key(*number).as_bytes());
            let low: Vec<u32> = (0..200).filter(|n| token(n) < Token(0)).collect();
            let high: Vec<u32> = (0..200).filter(|n| token(n) >= Token(0)).collect();
            for round in 0..2 {
                fill(&storage, low.iter().copied(), round).await;
                fill(&storage, high.iter().copied(), round).await;
            }
            let tokens = Some((Token::MINIMUM, Token(-1)));
            let low = CompactOptions { tokens, ..CompactOptions::default() };
            storage.compact_with(ID, &low).await.expect("a compaction");
            assert_eq!(files(&storage).len(), 3);
            let split = CompactOptions { split_output: true, ..CompactOptions::default() };
            storage.compact_with(ID, &split).await.expect("a compaction");
            // All of it is smaller than a file has to be to be split.
            assert_eq!(files(&storage).len(), 1);
        },
    );
}

#[test]
fn tombstones_go_when_their_time_is_over_and_not_before() {
    let left = |grace: u32, extension: Option<&'static str>, expected: usize| {
        let options = [("class", "SizeTieredCompactionStrategy"), ("enabled", "false")];
        let set = move |options: &mut TableOptions| {
            options.gc_grace_seconds = grace;
            let extension = extension.map(|text| ("tombstone_gc".to_owned(), text.as_bytes().to_vec()));
            options.extensions.extend(extension);
        };
        with_storage(&options, set, async move |storage| {
            fill(&storage, 0..10, 1).await;
            for number in 0..10 {
                let bytes = delete(&key(number), 2, 1_000);
                storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
            }
            storage.flush(ID).await.expect("a flush");
            storage.compact(ID).await.expect("a compaction");
            assert_eq!(files(&storage).len(), expected, "{grace} {extension:?}");
            // A second collection of deleted data changes nothing.
            storage.garbage_collect(ID).await.expect("a compaction");
            assert_eq!(files(&storage).len(), expected);
        });
    };
    left(0, None, 0);
    left(u32::MAX, None, 1);
    left(u32::MAX, Some("{'mode': 'immediate'}"), 0);
    left(0, Some("{'mode': 'disabled'}"), 1);
    // The keyspace has one copy: nothing has to be repaired.
    left(u32::MAX, Some("{'mode': 'repair'}"), 0);
}

#[test]
fn a_tombstone_stays_while_an_older_file_may_have_what_it_deletes() {
    let options = [("class", "SizeTieredCompactionStrategy"), ("enabled", "false")];
    let set = |options: &mut TableOptions| options.gc_grace_seconds = 0;
    with_storage(&options, set, async |storage| {
        fill(&storage, 0..10, 1).await;
        for _ in 0..2 {
            storage.apply(&delete(&key(3), 2, 1), Deadline::NEVER).await.expect("a write");
            storage.flush(ID).await.expect("a flush");
        }
        let young: Vec<u64> = files(&storage)[1..].iter().map(|file| file.generation).collect();
        let young = CompactOptions { generations: Some(young), ..CompactOptions::default() };
        storage.compact_with(ID, &young).await.expect("a compaction");
        assert_eq!(files(&storage).len(), 2);
        assert_eq!(values(&storage, PartitionRange::all()).await.expect("a read").len(), 9);
        storage.compact(ID).await.expect("a compaction");
        assert_eq!(files(&storage)[0].partitions, 9);
    });
}

#[test]
fn files_of_which_all_has_expired_go_without_being_read() {
    let options = [
        ("class", "TimeWindowCompactionStrategy"),
        ("compaction_window_unit", "MINUTES"),
        ("expired_sstable_check_frequency_seconds", "0"),
    ];
    let set = |options: &mut TableOptions| options.gc_grace_seconds = 0;
    with_storage(&options, set, async |storage| {
        storage.set_auto_compaction(ID, false).expect("the table");
        for window in 0..5 {
            for number in 0..10 {
                let timestamp = i64::from(window) * 60_000_000;
                let bytes = write_expiring(&key(number), "c", "v", timestamp, 1000 + window);
                storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
            }
            storage.flush(ID).await.expect("a flush");
        }
        storage.set_auto_compaction(ID, true).expect("the table");
        storage.compacted().await;
        assert_eq!(files(&storage), []);
        assert_eq!(storage.compaction_totals().written, 0);
    });
}

#[test]
fn upgrade_rewrites_each_file_in_its_place_and_cleanup_finds_nothing() {
    let options = [("class", "LeveledCompactionStrategy"), ("sstable_size_in_mb", "0.0625")];
    with_storage(
        &options,
        |_| (),
        async |storage| {
            for round in 0..6 {
                fill(&storage, round * 120..round * 120 + 120, 1).await;
            }
            storage.compacted().await;
            let before = files(&storage);
            assert_eq!(storage.cleanup(ID).await.expect("a cleanup").completed, 0);
            assert_eq!(storage.upgrade_sstables(ID, false).await.expect("an upgrade").completed, 0);
            assert_eq!(files(&storage), before);
            storage.set_auto_compaction(ID, false).expect("the table");
            let upgraded = storage.upgrade_sstables(ID, true).await.expect("an upgrade");
            assert_eq!(upgraded.completed, before.len());
            let shape = |files: &[TableFileInfo]| {
                let mut shape: Vec<_> = files.iter().map(|f| (f.tokens, f.level, f.partitions)).collect();
                shape.sort();
                shape
            };
            assert_eq!(shape(&files(&storage)), shape(&before));
        },
    );
}

#[test]
fn a_compaction_is_listed_and_stopped() {
    let options = [("class", "SizeTieredCompactionStrategy"), ("enabled", "false")];
    with_storage(
        &options,
        |_| (),
        async |storage| {
            for round in 0..3 {
                fill(&storage, 0..300, round).await;
            }
            // So slow that it still runs when the test looks for it.
            storage.set_compaction_throughput(100_000);
            let running = reactor::spawn(reactor::Group::COMPACTION, {
                let storage = storage.clone();
                async move { storage.compact_with(ID, &CompactOptions::default()).await }
            });
            let mut seen = Vec::new();
            // Bounded by the compaction's own end.
            while seen.is_empty() && storage.compaction_history().is_empty() {
                reactor::yield_now().await;
                seen = storage.compactions();
            }
            let [seen] = &seen[..] else { panic!("one compaction, not {seen:?}") };
            assert_eq!((seen.kind, seen.keyspace.as_str(), seen.files), (CompactionKind::Major, "k", 3));
            assert!(seen.completed <= seen.total && seen.total > 500_000, "{seen:?}");
            let of_kind = |kind| CompactionFilter { kind: Some(kind), ..CompactionFilter::default() };
            assert_eq!(storage.stop_compactions(&of_kind(CompactionKind::Scrub)), 0);
            assert_eq!(storage.stop_compactions(&of_kind(CompactionKind::Major)), 1);
            let outcome = running.await.expect("no panic").expect("a compaction");
            assert_eq!((outcome.completed, outcome.stopped), (0, 1));
            assert_eq!(files(&storage).len(), 3);
            assert!(files(&storage).iter().all(|file| !file.is_compacting));
        },
    );
}

#[test]
fn a_scrub_saves_what_is_readable_and_says_what_is_not() {
    for mode in [ScrubMode::Abort, ScrubMode::Validate, ScrubMode::Skip, ScrubMode::Segregate] {
        let memory = tempfile::tempdir().expect("a folder");
        let mut config = StorageConfig::new(memory.path(), 64 << 20);
        // Prefetching the cache would find the damage before the scrub does.
        config.cache_keys_to_save = 0;
        let options = [("class", "SizeTieredCompactionStrategy"), ("enabled", "false")];
        let compaction = options.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        reactor::run_one(reactor::Config::default(), async move {
            // In compressed chunks of 4 KiB, so that damage is small.
            let set = |options: &mut TableOptions| options.compression = TableOptions::default().compression;
            let storage = open(&config, compaction, set).await;
            fill(&storage, 0..600, 1).await;
            fill(&storage, 600..610, 1).await;
            let sound = storage.scrub(ID, mode).await.expect("a scrub");
            assert_eq!((sound.files, sound.damaged_files, sound.partitions, sound.gaps), (2, 0, 610, 0));
            let written = storage.compaction_history().len();
            assert_eq!(written, if mode == ScrubMode::Validate { 0 } else { 2 });
            // One byte in each of two places of the larger file, in the middle of partitions.
            let large = files(&storage).into_iter().find(|f| f.partitions == 600).expect("a file").generation;
            storage.drain().await.expect("a drain");
            let folder = config.data_dir.join("k/t-07070707070707070707070707070707");
            let path = folder.join(format!("me-{large}-big-Data.db"));
            let mut bytes = std::fs::read(&path).expect("the data");
            for at in [bytes.len() / 3, bytes.len() * 2 / 3] {
                bytes[at] ^= 0x55;
            }
            std::fs::write(&path, bytes).expect("a write");
            let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
            let outcome = storage.scrub(ID, mode).await;
            let left: u64 = files(&storage).iter().map(|file| file.partitions).sum();
            match mode {
                ScrubMode::Abort => {
                    let error = outcome.expect_err("damage").to_string();
                    assert!(error.contains(&format!("me-{large}-big-Data.db")), "{error}");
                    assert_eq!(left, 610);
                    return;
                }
                ScrubMode::Validate => {
                    assert_eq!(outcome.expect("a scrub").damaged_files, 1);
                    assert_eq!(left, 610);
                    values(&storage, PartitionRange::all()).await.expect_err("damage stays");
                    return;
                }
                ScrubMode::Skip | ScrubMode::Segregate => {
                    let report = outcome.expect("a scrub");
                    assert_eq!((report.damaged_files, report.gaps, report.out_of_order), (1, 2, 0));
                    assert_eq!(left, report.partitions);
                    // Damage costs the data that is read together with it, and no more.
                    assert!((150..608).contains(&left), "{left}");
                    assert_eq!(storage.scrub(ID, mode).await.expect("a scrub").damaged_files, 0);
                }
            }
            let found = values(&storage, PartitionRange::all()).await.expect("a read");
            assert_eq!(found.len() as u64, left);
        });
    }
}

/// Most space that files take beyond their contents, in percent: while flushes of new partitions arrive, and
/// with all of them compacted at the end.
fn room(compaction: &[(&str, &str)]) -> (u64, u64) {
    // Many files are made and none has to survive: a file system in memory will do, if there is one.
    let memory = std::path::Path::new("/dev/shm");
    let directory = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let directory = directory.expect("a folder");
    let config = StorageConfig::new(directory.path(), 64 << 20);
    let compaction: BTreeMap<String, String> =
        compaction.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    reactor::run_one(reactor::Config::default(), async move {
        let storage = open(&config, compaction, |_| ()).await;
        for round in 0..41u32 {
            fill(&storage, round * 60..(round + 1) * 60, 1).await;
            storage.compacted().await;
        }
        let most_of_live = || {
            let live: u64 = files(&storage).iter().map(|file| file.bytes).sum();
            storage.compaction_totals().tablet_bytes_max * 100 / live
        };
        let minor = most_of_live();
        storage.compact(ID).await.expect("a compaction");
        let major = most_of_live();
        storage.drain().await.expect("a drain");
        (minor, major)
    })
}

#[test]
fn incremental_and_leveled_need_little_room() {
    let leveled =
        [("class", "LeveledCompactionStrategy"), ("sstable_size_in_mb", "0.04"), ("fanout_size", "10")];
    let incremental = [
        ("class", "IncrementalCompactionStrategy"),
        ("sstable_size_in_mb", "0.0625"),
        ("min_sstable_size", "0"),
    ];
    let (leveled, incremental) = (room(&leveled), room(&incremental));
    println!("leveled {leveled:?} %, incremental {incremental:?} %");
    assert!(leveled.0 <= 120 && leveled.1 <= 120, "{leveled:?}");
    assert!(incremental.0 <= 120 && incremental.1 <= 120, "{incremental:?}");
}
