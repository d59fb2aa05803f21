//! The whole path once, on a real disk.

use std::cell::Cell;
use std::rc::Rc;

use crate::table::{ID, changes, values, write};
use model::partition_key::DecoratedKey;
use reactor::{Deadline, Group};
use storage::{PartitionRange, Storage, StorageConfig};

#[test]
fn writes_are_read_from_memory_from_files_and_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let config = StorageConfig::new(directory.path(), 8 << 20);
    for life in 0..3 {
        let config = config.clone();
        reactor::run_one(reactor::Config::default(), async move {
            let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
            if life == 0 {
                for change in changes() {
                    cluster::change_schema(&change).await.expect("a schema change");
                }
            }
            for number in 0..50 {
                for key in 0..5 {
                    let bytes = write(&format!("key{key}"), &format!("{number:03}"), &life.to_string(), life);
                    storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
                }
            }
            if life == 0 {
                storage.flush(ID).await.expect("a flush");
            }
            let mut all: Vec<_> = (0..5).map(|key| format!("key{key}").into_bytes()).collect();
            all.sort_by_key(|key| model::token::murmur3_token(key));
            let expected: Vec<_> =
                all.into_iter().map(|key| (key, life.to_string().repeat(50).into_bytes())).collect();
            assert_eq!(
                values(&storage, PartitionRange::all()).await.expect("a read"),
                expected,
                "life {life}"
            );
            for (key, value) in &expected {
                let range = PartitionRange::Key(DecoratedKey::new(key.clone()));
                assert_eq!(values(&storage, range).await.expect("a read"), [(key.clone(), value.clone())]);
            }
            if life == 1 {
                storage.drain().await.expect("a drain");
            }
        });
    }
}

#[test]
fn a_compaction_goes_on_while_memtables_are_flushed() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = StorageConfig::new(directory.path(), 16 << 20);
    config.auto_compaction = false;
    reactor::run_one(reactor::Config::default(), async move {
        let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
        for change in changes() {
            cluster::change_schema(&change).await.expect("a schema change");
        }
        let fill = async |storage: &Storage, keys: u32, timestamp: i64| {
            for key in 0..keys {
                let bytes = write(&format!("key{key}"), "c", "value", timestamp);
                storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
            }
            storage.flush(ID).await.expect("a flush");
        };
        for timestamp in 0..4 {
            fill(&storage, 3000, timestamp).await;
        }
        let compacted = Rc::new(Cell::new(false));
        let compaction = reactor::spawn(Group::COMPACTION, {
            let (storage, compacted) = (storage.clone(), Rc::clone(&compacted));
            async move {
                let outcome = storage.compact(ID).await;
                compacted.set(true);
                outcome
            }
        });
        // Sealing a memtable waits for writes that are on their way into the log: there always are some.
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (storage, compacted) = (storage.clone(), Rc::clone(&compacted));
                reactor::spawn(Group::STATEMENT, async move {
                    for number in 0..100_000 {
                        if compacted.get() {
                            return;
                        }
                        let bytes = write(&format!("writer{writer}"), "c", "value", number);
                        storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
                    }
                })
            })
            .collect();
        let mut flushes = 0;
        while !compacted.get() && flushes < 1000 {
            flushes += 1;
            fill(&storage, 1, 3 + flushes).await;
        }
        for writer in writers {
            writer.await.expect("no panic");
        }
        compaction.await.expect("no panic").expect("a compaction");
        storage.drain().await.expect("a drain");
    });
}
