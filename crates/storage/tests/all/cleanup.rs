//! Cleanup where a tablet has become narrower than its files: a table that is cut in two, of which this shard
//! keeps the lower half.

use model::Token;
use model::schema::SchemaChange;
use model::token::murmur3_token;
use reactor::{Deadline, Group};
use storage::{CompactOptions, PartitionRange, Storage, StorageError, TableFileInfo};

use crate::compaction::{files, fill, key, on_disk};
use crate::table::{ID, values, write};

/// From now on the tablet has the lower half of the tokens, and no shard here has the upper half.
async fn narrow(storage: &Storage) {
    let mut definition = storage.schema().table_by_id(ID).expect("the table").definition().clone();
    definition.tablets_log2 = 1;
    definition.revision += 1;
    cluster::change_schema(&SchemaChange::AlterTable(Box::new(definition))).await.expect("a schema change");
}

fn is_inside(file: &TableFileInfo) -> bool {
    file.tokens.1 < Token(0)
}

/// Rows as reads see them, without the cache.
async fn rows(storage: &Storage) -> Vec<(Vec<u8>, Vec<u8>)> {
    storage.evict_cache();
    values(storage, PartitionRange::all()).await.expect("a read")
}

#[test]
fn cleanup_removes_what_is_not_the_tablets_and_nothing_else() {
    let options = [("class", "LeveledCompactionStrategy"), ("sstable_size_in_mb", "0.0625")];
    on_disk(
        &options,
        |_| (),
        async |storage, _| {
            for round in 0..6 {
                fill(&storage, round * 120..round * 120 + 120, 1).await;
            }
            storage.compacted().await;
            storage.set_auto_compaction(ID, false).expect("the table");
            // Some are in memory only.
            for number in 720..760 {
                storage.apply(&write(&key(number), "c", "v", 1), Deadline::NEVER).await.expect("a write");
            }
            let mut expected = rows(&storage).await;
            assert_eq!(expected.len(), 760);
            narrow(&storage).await;
            expected.retain(|(key, _)| murmur3_token(key) < Token(0));
            assert!((250..500).contains(&expected.len()), "about half: {}", expected.len());
            assert_eq!(rows(&storage).await, expected, "reads end where the tablet does");
            let foreign =
                (0..).map(key).find(|key| murmur3_token(key.as_bytes()) >= Token(0)).expect("a key");
            let refused = storage.apply(&write(&foreign, "c", "v", 2), Deadline::NEVER).await;
            assert!(matches!(refused, Err(StorageError::WrongShard { .. })), "{refused:?}");

            storage.flush(ID).await.expect("a flush");
            let before = files(&storage);
            let inside: Vec<_> = before.iter().filter(|file| is_inside(file)).cloned().collect();
            let outside = before.iter().filter(|file| file.tokens.0 >= Token(0)).count();
            let across = before.len() - inside.len() - outside;
            assert!(!inside.is_empty() && outside > 0 && across > 0, "files of each kind: {before:?}");

            let outcome = storage.cleanup(ID).await.expect("a cleanup");
            assert_eq!((outcome.completed, outcome.stopped), (outside + across, 0));
            let after = files(&storage);
            assert!(after.iter().all(is_inside), "{after:?}");
            assert_eq!(after.len(), inside.len() + across);
            assert!(
                inside.iter().all(|file| after.contains(file)),
                "files that were inside are as they were"
            );
            assert_eq!(after.iter().map(|file| file.partitions).sum::<u64>(), expected.len() as u64);
            assert_eq!(rows(&storage).await, expected);
            assert_eq!(storage.cleanup(ID).await.expect("a cleanup").completed, 0);
        },
    );
}

#[test]
fn cleanup_takes_what_compactions_at_work_leave_too() {
    let options = [("class", "SizeTieredCompactionStrategy"), ("enabled", "false")];
    on_disk(
        &options,
        |_| (),
        async |storage, _| {
            for round in 0..3 {
                fill(&storage, 0..300, round).await;
            }
            narrow(&storage).await;
            let expected = rows(&storage).await;
            // So slow that it is still at work when the cleanup begins.
            storage.set_compaction_throughput(100_000);
            let running = reactor::spawn(Group::COMPACTION, {
                let storage = storage.clone();
                async move { storage.compact_with(ID, &CompactOptions::default()).await }
            });
            // Bounded by the compaction's own end.
            while storage.compactions().is_empty() && storage.compaction_history().is_empty() {
                reactor::yield_now().await;
            }
            assert_eq!(storage.compactions().len(), 1, "the compaction is at work");
            let outcome = storage.cleanup(ID).await.expect("a cleanup");
            assert_eq!(running.await.expect("no panic").expect("a compaction").completed, 1);
            assert_eq!(outcome.completed, 1, "the one file that the compaction made");
            assert!(files(&storage).iter().all(is_inside), "{:?}", files(&storage));
            assert_eq!(rows(&storage).await, expected);
        },
    );
}
