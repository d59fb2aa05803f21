//! Memory of open table files' components, and reads when there is little of it.

use crate::failing::{config, opened, run};
use crate::table::{ID, values, write};
use reactor::Deadline;
use storage::{CompactOptions, FailurePolicy, PartitionRange, Storage, StorageConfig};

/// Number of files, and of partitions in each.
const FILES: usize = 4;
const PARTITIONS: usize = 3000;

fn key(file: usize, partition: usize) -> String {
    format!("key {file} {partition}")
}

async fn filled(config: StorageConfig) -> Storage {
    let storage = opened(config).await;
    for file in 0..FILES {
        for partition in 0..PARTITIONS {
            let bytes = write(&key(file, partition), "c", "v", 1);
            storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
        }
        storage.flush(ID).await.expect("a flush");
    }
    storage
}

async fn found(storage: &Storage) -> usize {
    storage.evict_cache();
    for file in 0..FILES {
        for partition in (0..PARTITIONS).step_by(100) {
            let range = PartitionRange::Key(model::partition_key::DecoratedKey::new(
                key(file, partition).into_bytes(),
            ));
            assert_eq!(values(storage, range).await.expect("a read").len(), 1, "{file} {partition}");
        }
    }
    values(storage, PartitionRange::all()).await.expect("a read").len()
}

#[test]
fn filters_and_summaries_take_their_share_of_memory_and_no_more_and_reads_find_all() {
    let of_share = |share: Option<usize>| {
        let directory = tempfile::tempdir().unwrap();
        let mut config = config(directory.path(), FailurePolicy::Die);
        // The summary has every key.
        config.summary_ratio = 1.0;
        if let Some(bytes) = share {
            config.components_share = bytes as f64 / config.memory_bytes_max as f64;
        }
        run(async move {
            let storage = filled(config).await;
            assert_eq!(found(&storage).await, FILES * PARTITIONS);
            let stats = storage.stats();
            let before = (stats.resident_bytes, stats.left_out_bytes);
            storage.compact_with(ID, &CompactOptions::default()).await.expect("a compaction");
            assert_eq!(found(&storage).await, FILES * PARTITIONS);
            storage.components_restored().await;
            let stats = storage.stats();
            (before, (stats.resident_bytes, stats.left_out_bytes))
        })
    };
    let (before, after) = of_share(None);
    assert_eq!((before.1, after.1), (0, 0));
    for part in [2, 10, 50] {
        let limit = before.0 / part;
        let (before, after) = of_share(Some(limit));
        for (resident, left_out) in [before, after] {
            assert!(resident <= limit && left_out > 0, "{resident} of {limit}, {left_out} left out");
        }
    }
    // Room for the components after the compaction, but not for those of the four files before it together
    // with the new one's.
    let ((resident, left_out), after_with_room) = of_share(Some(4 * after.0));
    assert!(resident <= 4 * after.0, "{resident} {left_out}");
    assert_eq!(after_with_room, after, "what was left out came back");
}
