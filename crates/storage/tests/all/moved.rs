//! Starts with another number of shards: the entries in a log for tablets of other shards go to their owners,
//! once.
#![allow(clippy::disallowed_types)] // a test hands results out of shards

use std::path::Path;

use crate::table::{ID, changes_with, delete, values, write};
use reactor::{Deadline, Group, ShardInfo, mesh};
use storage::{PartitionRange, Storage, StorageConfig};

const KEYS: usize = 20;

/// Runs `work` on shard 0 of `shards` once all are open; nothing is flushed at the end, as if the process
/// were killed.
fn life<F>(directory: &Path, shards: usize, work: F)
where
    F: AsyncFnOnce(Storage) + Clone + Send + 'static,
{
    let path = directory.to_owned();
    let config_of = reactor::Config { shards, pin: false, ..reactor::Config::default() };
    let running = reactor::start(config_of, move |info: ShardInfo| {
        let (path, work) = (path.clone(), work.clone());
        async move {
            let mut config = StorageConfig::new(&path, 8 << 20);
            config.segment_bytes = 1 << 20;
            config.auto_compaction = false;
            let storage = cluster::open_storage(config, info.id, info.count).await.expect("an open storage");
            if info.id == 0 {
                work(storage).await;
            }
        }
    });
    running.expect("shards").join().expect("an end without a panic");
}

/// Does something with the storage of a shard.
async fn on<R: Send + 'static>(shard: usize, work: impl AsyncFnOnce(Storage) -> R + Send + 'static) -> R {
    let called = mesh::call(shard, Group::STATEMENT, move || async move {
        let storage = reactor::local::<Storage>().expect("an open storage");
        work((*storage).clone()).await
    });
    called.await.expect("an answer")
}

/// Keys of the partitions that a shard has.
async fn keys_of(shard: usize) -> Vec<String> {
    on(shard, async |storage| {
        let found = values(&storage, PartitionRange::all()).await.expect("a read");
        found.into_iter().map(|(key, _)| String::from_utf8(key).expect("text")).collect()
    })
    .await
}

#[test]
fn what_moved_to_another_shard_and_was_deleted_there_does_not_come_back_from_the_old_log() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    life(path, 1, async |storage| {
        for change in changes_with(1, |options| options.gc_grace_seconds = 0) {
            cluster::change_schema(&change).await.expect("a schema change");
        }
        for key in 0..KEYS {
            let bytes = write(&format!("key{key}"), "c", "v", 1);
            storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
        }
    });
    // The log of shard 0 stays, because shard 0 still has some of its entries in memory.
    life(path, 2, async |_| {
        let moved = keys_of(1).await;
        assert!(!moved.is_empty() && !keys_of(0).await.is_empty());
        on(1, async move |storage| {
            for key in moved {
                storage.apply(&delete(&key, 2, 1), Deadline::NEVER).await.expect("a deletion");
            }
            storage.flush(ID).await.expect("a flush");
            storage.compact(ID).await.expect("a compaction");
            assert_eq!(storage.table_files(ID).expect("the table").len(), 0, "the tombstones are forgotten");
        })
        .await;
    });
    life(path, 2, async |_| {
        assert!(keys_of(1).await.is_empty(), "{:?} came back", keys_of(1).await);
        assert!(!keys_of(0).await.is_empty());
    });
}
