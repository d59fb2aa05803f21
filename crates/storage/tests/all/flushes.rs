//! Reasons to flush a memtable: its age, memory, and the commit log.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use crate::table::{ID, another_id, another_table, changes, changes_with, values, write, write_to};
use model::schema::{SchemaChange, TableOptions};
use reactor::file::{aligned_bytes, forget_most_aligned_bytes};
use reactor::sim::{DiskFaults, World};
use reactor::{Deadline, DriverChoice};
use storage::{PartitionRange, Storage, StorageConfig};

/// Runs `work` on a node of one shard, in virtual time.
fn run<F: Future<Output = ()> + 'static>(work: impl Fn() -> F + 'static) {
    let mut world = World::new(31);
    let done = Rc::new(Cell::new(false));
    let ended = Rc::clone(&done);
    let node = world.add_node_with(1, DiskFaults::default(), move |_| {
        let (work, ended) = (work(), Rc::clone(&ended));
        async move {
            work.await;
            ended.set(true);
        }
    });
    world.run().expect("an end");
    assert_eq!(world.outcome(node), Some(Ok(())));
    assert!(done.get());
}

fn config() -> StorageConfig {
    let mut config = StorageConfig::new("/n", 8 << 20);
    config.segment_bytes = 256 << 10;
    config.auto_compaction = false;
    config
}

async fn open(config: StorageConfig, changes: impl IntoIterator<Item = SchemaChange>) -> Storage {
    let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
    for change in changes {
        cluster::change_schema(&change).await.expect("a schema change");
    }
    storage
}

async fn put(storage: &Storage, key: &str, value: &str) {
    let bytes = write(key, "c", value, 1);
    storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
}

fn files(storage: &Storage) -> usize {
    storage.stats().tables[0].files
}

fn with_period(milliseconds: u32) -> [SchemaChange; 2] {
    changes_with(0, |options: &mut TableOptions| options.memtable_flush_period_in_ms = milliseconds)
}

#[test]
fn a_memtable_is_flushed_at_the_age_its_table_says_and_an_empty_one_is_not() {
    run(|| async {
        let storage = open(config(), with_period(5_000)).await;
        // Time without writes does not count as age.
        reactor::sleep(Duration::from_secs(23)).await;
        assert_eq!(files(&storage), 0);
        for round in 1..=3 {
            put(&storage, &format!("key{round}"), "v").await;
            reactor::sleep(Duration::from_millis(5_500)).await;
            assert_eq!(files(&storage), round);
        }
        reactor::sleep(Duration::from_secs(60)).await;
        assert_eq!(files(&storage), 3);
        assert_eq!(values(&storage, PartitionRange::all()).await.expect("a read").len(), 3);
        storage.drain().await.expect("a drain");
    });
}

#[test]
fn a_table_that_says_no_age_keeps_its_memtable() {
    run(|| async {
        let storage = open(config(), with_period(0)).await;
        put(&storage, "key", "v").await;
        reactor::sleep(Duration::from_secs(3_600)).await;
        assert_eq!(files(&storage), 0);
        storage.drain().await.expect("a drain");
    });
}

#[test]
fn a_commit_log_at_half_its_size_has_the_oldest_memtables_flushed_and_stays_below_it() {
    const LOG_BYTES_MAX: u64 = 2 << 20;
    run(|| async {
        let mut config = config();
        config.commitlog_bytes_max = LOG_BYTES_MAX;
        let storage = open(config, changes()).await;
        let mut written = 0;
        // The same rows again and again: memory gives no reason to flush, but the log does.
        for round in 0..6_000 {
            let value = "v".repeat(1_000);
            put(&storage, &format!("key{}", round % 10), &value).await;
            written += value.len() as u64;
            assert!(storage.stats().memtable_bytes < 2 << 20, "memory has no reason to flush");
            let log = storage.stats().commitlog;
            assert!(log.live_bytes <= LOG_BYTES_MAX, "{log:?}");
        }
        assert!(written > 2 * LOG_BYTES_MAX);
        assert!(files(&storage) >= 2, "{}", files(&storage));
        assert_eq!(values(&storage, PartitionRange::all()).await.expect("a read").len(), 10);
        storage.drain().await.expect("a drain");
    });
}

#[test]
fn what_a_memtable_keeps_of_each_partition_is_charged() {
    run(|| async {
        let storage = open(config(), changes()).await;
        let empty = storage.stats().memtable_bytes;
        // Small rows, whose records take more than their bytes.
        for key in 0..20_000 {
            put(&storage, &format!("key{key}"), "").await;
        }
        let kept: usize = storage.report().await.iter().map(|report| report.memtable_bytes).sum();
        let charged = storage.stats().memtable_bytes - empty;
        assert!(kept > 1 << 20 && charged >= kept, "{kept} kept, {charged} charged");
        storage.flush(ID).await.expect("a flush");
        assert_eq!(storage.stats().memtable_bytes, empty, "given back");
        storage.drain().await.expect("a drain");
    });
}

#[test]
fn memory_that_runs_short_has_the_largest_memtable_flushed() {
    run(|| async {
        let storage = open(config(), changes()).await;
        for key in 0..12_000 {
            put(&storage, &format!("key{key}"), &"v".repeat(1_000)).await;
            let stats = storage.stats();
            assert!(stats.memtable_bytes <= stats.memtable_bytes_max, "{stats:?}");
        }
        assert!(files(&storage) >= 2, "{}", files(&storage));
        storage.drain().await.expect("a drain");
    });
}

/// Buffer size for writing a component file: one buffer is filled while the disk takes the other.
const FILE_BUFFER_BYTES: usize = 128 << 10;
/// Bytes that a compaction reads of one file at a time.
const READ_BYTES: usize = 128 << 10;
const INPUTS: usize = 4;

/// The most bytes in aligned buffers that a flush of 8 MiB took on a real disk, beyond what was in use
/// before, and that a compaction of four such files took. Nothing is written to the commit log meanwhile.
fn most_in_buffers(compressed: bool) -> (usize, usize) {
    let directory = tempfile::tempdir().expect("a folder");
    let mut config = StorageConfig::new(directory.path(), 64 << 20);
    config.auto_compaction = false;
    let reactor = reactor::Config { driver: DriverChoice::Poll, pin: false, ..Default::default() };
    reactor::run_one(reactor, async move {
        let set = |options: &mut TableOptions| {
            if !compressed {
                options.compression = BTreeMap::new();
            }
        };
        let storage = open(config, changes_with(0, set)).await;
        let mut flush_bytes = 0;
        for input in 0..INPUTS {
            for key in 0..16_384 {
                put(&storage, &format!("key{key:06}"), &format!("{input}{key:06}").repeat(72)).await;
            }
            flush_bytes = most_of(storage.flush(ID)).await.max(flush_bytes);
        }
        assert_eq!(files(&storage), INPUTS);
        let compaction_bytes = most_of(storage.compact(ID)).await;
        assert_eq!(files(&storage), 1);
        storage.drain().await.expect("a drain");
        (flush_bytes, compaction_bytes)
    })
}

async fn most_of(work: impl Future<Output = Result<(), storage::StorageError>>) -> usize {
    let before = aligned_bytes().now;
    forget_most_aligned_bytes();
    work.await.expect("it is done");
    aligned_bytes().most - before
}

#[test]
fn a_flush_has_two_buffers_of_each_of_its_two_files_in_memory_and_a_compaction_two_of_each_input_more() {
    for compressed in [false, true] {
        let (flush, compaction) = most_in_buffers(compressed);
        let files = 2 * 2 * FILE_BUFFER_BYTES;
        assert!((FILE_BUFFER_BYTES..=files).contains(&flush), "{flush} bytes, compressed: {compressed}");
        // A reader of a file has the stretch that rows are taken from, and the next one being read.
        let most = files + INPUTS * 2 * READ_BYTES;
        assert!(
            (FILE_BUFFER_BYTES..=most).contains(&compaction),
            "{compaction} bytes, compressed: {compressed}"
        );
    }
}

/// The syncs of a drain of `tables` tables with a row each: of files, of directories, of the commit log
/// alone.
async fn syncs_of_a_drain(directory: &str, tables: u8) -> (u64, u64, u64) {
    let config = config();
    // Room for a segment of memory for each table, so that nothing is flushed before the drain.
    let mut of_its_own = StorageConfig::new(directory, 32 << 20);
    (of_its_own.segment_bytes, of_its_own.auto_compaction) = (config.segment_bytes, false);
    let storage = open(of_its_own, changes()).await;
    for number in 100..100 + tables {
        cluster::change_schema(&another_table(number)).await.expect("a table");
        let bytes = write_to(another_id(number), "key", "c", "v", 1);
        storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
    }
    assert_eq!(storage.unflushed().0, usize::from(tables));
    let ((files, directories), log) = (reactor::file::syncs(), storage.stats().commitlog.device_flushes);
    storage.drain().await.expect("a drain");
    assert_eq!(storage.unflushed(), (0, 0));
    let (files_after, directories_after) = reactor::file::syncs();
    let log = storage.stats().commitlog.device_flushes - log;
    assert_eq!(storage.stats().tables.iter().map(|table| table.files).sum::<usize>(), usize::from(tables));
    (files_after - files, directories_after - directories, log)
}

#[test]
fn a_drain_of_many_tables_shares_the_syncs_of_the_log_and_of_the_directories() {
    const TABLES: u64 = 128;
    run(|| async {
        let one = syncs_of_a_drain("/one", 1).await;
        let many = syncs_of_a_drain("/many", TABLES as u8).await;
        let of_table = |(files, directories, log): (u64, u64, u64)| (files - log, directories, log);
        let ((files, alone, _), (files_of_many, directories, log)) = (of_table(one), of_table(many));
        // A table file's components have to be made durable one by one; nothing else has to.
        assert!(files_of_many <= TABLES * files, "{many:?} {one:?}");
        // Two for the names in each table's own folder. Syncs of the folders above are shared by flushes that
        // ask for them at the same moment; there are few of those here, since a sync takes little of a
        // flush's time.
        assert!(directories < TABLES * alone, "{many:?} {one:?}");
        assert!(log <= TABLES / 8, "{many:?}");
    });
}
