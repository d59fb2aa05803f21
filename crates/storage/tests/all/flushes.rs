//! What makes a memtable a table file: its age, memory, and the commit log.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::table::{changes, changes_with, values, write};
use model::schema::{SchemaChange, TableOptions};
use reactor::Deadline;
use reactor::sim::{DiskFaults, World};
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
    let storage = Storage::open(config, 0, 1).await.expect("an open storage");
    for change in changes {
        storage.change_schema(&change).await.expect("a schema change");
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
        // A time without writes is no age.
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
        // Again and again the same rows: memory has no reason to flush, the log has.
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
