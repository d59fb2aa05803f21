//! Requests of operators about one table: keep its tombstones, name its most used partitions, name the files
//! that have a partition.

use crate::compaction::{files, fill, key, on_disk};
use crate::table::{ID, another_id, another_table, delete, slice_values, values, write, write_to};
use model::clustering::Slice;
use model::partition_key::DecoratedKey;
use model::schema::TableOptions;
use reactor::Deadline;
use storage::{AgreedChanges, OwnTablets, PartitionRange, SampledPartition, Storage};

const OPTIONS: [(&str, &str); 2] = [("class", "SizeTieredCompactionStrategy"), ("enabled", "false")];

/// Deletes partitions of which every tombstone may go at once.
async fn delete_all(storage: &Storage, keys: std::ops::Range<u32>) {
    for number in keys {
        storage.apply(&delete(&key(number), 2, 1_000), Deadline::NEVER).await.expect("a write");
    }
    storage.flush(ID).await.expect("a flush");
}

#[test]
fn compactions_keep_tombstones_while_operators_want_it() {
    let set = |options: &mut TableOptions| options.gc_grace_seconds = 0;
    on_disk(&OPTIONS, set, async |storage, _| {
        assert!(storage.tombstone_gc(ID).expect("the table"));
        storage.set_tombstone_gc(ID, false).expect("the table");
        assert!(!storage.tombstone_gc(ID).expect("the table"));
        fill(&storage, 0..10, 1).await;
        delete_all(&storage, 0..10).await;
        storage.compact(ID).await.expect("a compaction");
        storage.garbage_collect(ID).await.expect("a compaction");
        let kept = files(&storage);
        assert_eq!((kept.len(), kept[0].partitions), (1, 10), "ten deleted partitions");
        assert_eq!(values(&storage, PartitionRange::all()).await.expect("a read"), []);

        storage.set_tombstone_gc(ID, true).expect("the table");
        assert!(storage.tombstone_gc(ID).expect("the table"));
        storage.compact(ID).await.expect("a compaction");
        assert_eq!(files(&storage), []);
        assert!(storage.set_tombstone_gc(another_id(9), false).is_err(), "no such table");
    });
}

#[test]
fn tablets_of_which_a_replica_joins_or_leaves_keep_their_tombstones() {
    let set = |options: &mut TableOptions| options.gc_grace_seconds = 0;
    on_disk(&OPTIONS, set, async |storage, _| {
        let map = storage.schema().table_by_id(ID).expect("the table").tablets();
        let tell = async |own: OwnTablets| {
            let agreed = AgreedChanges { tablets: [(ID, own)].into(), ..AgreedChanges::default() };
            storage.apply_agreed(0, &agreed).await.expect("what was agreed upon");
        };
        let own = OwnTablets::alone(map, 1);
        tell(own.clone().in_transition(map.tablets())).await;
        assert!(storage.tombstone_gc(ID).expect("the table"), "operators want nothing");
        delete_all(&storage, 0..10).await;
        storage.compact(ID).await.expect("a compaction");
        let partitions: u64 = files(&storage).iter().map(|file| file.partitions).sum();
        assert_eq!(partitions, 10, "ten deleted partitions");
        tell(own).await;
        storage.compact(ID).await.expect("a compaction");
        assert_eq!(files(&storage), []);
    });
}

#[test]
fn a_compaction_at_work_keeps_tombstones_from_then_on() {
    const DELETED: u32 = 1000;
    let set = |options: &mut TableOptions| options.gc_grace_seconds = 0;
    on_disk(&OPTIONS, set, async |storage, _| {
        // Rows that stay lie among the deleted ones, so that the output grows as the compaction goes on.
        fill(&storage, 0..2 * DELETED, 1).await;
        delete_all(&storage, 0..DELETED).await;
        let compacting = {
            let storage = storage.clone();
            reactor::spawn(reactor::Group::COMPACTION, async move { storage.compact(ID).await })
        };
        let progress = || storage.compactions().iter().map(|one| one.completed).max().unwrap_or(0);
        while progress() == 0 {
            reactor::yield_now().await;
        }
        storage.set_tombstone_gc(ID, false).expect("the table");
        compacting.await.expect("the task").expect("a compaction");
        let partitions: u64 = files(&storage).iter().map(|file| file.partitions).sum();
        let kept = partitions - u64::from(DELETED);
        assert!(kept > 0 && kept < u64::from(DELETED), "{kept} of {DELETED} are kept");
    });
}

fn counts(sampled: &[SampledPartition]) -> Vec<(String, u64, u64)> {
    let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
    sampled.iter().map(|one| (text(&one.key), one.count, one.error)).collect()
}

async fn read(storage: &Storage, key: &str) {
    let range = PartitionRange::Key(DecoratedKey::new(key.as_bytes().to_vec()));
    slice_values(storage, range, Slice::all(), false).await.expect("a read");
}

#[test]
fn samplings_count_reads_and_writes_of_their_tables_while_they_last() {
    on_disk(
        &OPTIONS,
        |_| (),
        async |storage, _| {
            cluster::change_schema(&another_table(1)).await.expect("a schema change");
            let write_once =
                async |bytes: Vec<u8>| storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
            write_once(write("before", "c", "v", 1)).await;
            storage.begin_sampling(1, Some(vec![ID]), 100);
            storage.begin_sampling(2, None, 100);
            for (key, times) in [("a", 3), ("b", 1)] {
                for time in 0..times {
                    write_once(write(key, "c", "v", time)).await;
                }
            }
            write_once(write_to(another_id(1), "other", "c", "v", 1)).await;
            for key in ["b", "b", "nobody"] {
                read(&storage, key).await;
            }
            // Scans are not of one partition.
            values(&storage, PartitionRange::all()).await.expect("a read");
            let one = storage.end_sampling(1, 1).expect("the sampling");
            assert_eq!((one.writes.cardinality, counts(&one.writes.top)), (2, vec![("a".to_owned(), 3, 0)]));
            assert_eq!((one.reads.cardinality, counts(&one.reads.top)), (2, vec![("b".to_owned(), 2, 0)]));
            write_once(write("c", "c", "v", 1)).await;
            let all = storage.end_sampling(2, 100).expect("the sampling");
            assert_eq!(all.writes.cardinality, 4);
            assert!(all.writes.top.iter().any(|one| one.table == another_id(1)), "{all:?}");
            assert_eq!(storage.end_sampling(2, 100), None, "it has ended");
        },
    );
}

#[test]
fn files_that_have_a_partition_are_found_by_its_key() {
    on_disk(
        &OPTIONS,
        |_| (),
        async |storage, _| {
            fill(&storage, 0..20, 1).await;
            fill(&storage, 10..30, 2).await;
            delete_all(&storage, 0..1).await;
            storage.apply(&write(&key(99), "c", "in memory", 3), Deadline::NEVER).await.expect("a write");
            let generations: Vec<u64> = files(&storage).iter().map(|file| file.generation).collect();
            for (number, expected) in
                [(5, &[0][..]), (15, &[0, 1]), (25, &[1]), (0, &[0, 2]), (99, &[]), (1000, &[])]
            {
                let wanted = DecoratedKey::new(key(number).into_bytes());
                let found = storage.files_with(ID, &wanted).await.expect("a look");
                let names: Vec<String> = found
                    .iter()
                    .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
                    .collect();
                let named = |at: &usize| format!("-{}-big-Data.db", generations[*at]);
                assert_eq!(names.len(), expected.len(), "{number}: {names:?}");
                for at in expected {
                    assert!(names.iter().any(|name| name.ends_with(&named(at))), "{number}: {names:?}");
                }
            }
        },
    );
}
