//! Starts of several shards that need unlike times.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::table::{ID, changes, values, write};
use model::partition_key::DecoratedKey;
use reactor::Deadline;
use reactor::sim::{DiskFaults, World};
use storage::{CommitlogSync, PartitionRange, Storage, StorageConfig};

/// Longer than anybody waits who waits for a fixed time.
const LONG: Duration = Duration::from_secs(120);
/// Bytes of each write, and how many there are.
const WRITES: (usize, usize) = (400_000, 40);

#[test]
fn shards_wait_for_one_whose_log_takes_long_and_say_so() {
    let mut world = World::new(31);
    let lives = Rc::new(Cell::new(0));
    let of_node = Rc::clone(&lives);
    let node = world.add_node(2, move |shard| {
        let first = of_node.get() < 2;
        of_node.set(of_node.get() + 1);
        async move {
            let mut config = StorageConfig::new("/n", 64 << 20);
            config.segment_bytes = 1 << 20;
            config.commitlog_sync = CommitlogSync::Batch;
            let storage = Storage::open(config, shard.id, shard.count).await.expect("an open storage");
            if shard.id != 0 {
                return;
            }
            // Of a partition of this shard, so that the other one's log stays empty.
            let key = (0..)
                .map(|number| format!("key{number}"))
                .find(|key| DecoratedKey::new(key.clone().into_bytes()).token < model::Token(0));
            let key = key.expect("a key");
            if first {
                for change in changes() {
                    storage.change_schema(&change).await.expect("a schema change");
                }
                for number in 0..WRITES.1 {
                    let bytes = write(&key, &format!("{number:03}"), &"x".repeat(WRITES.0), 1);
                    storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
                }
            } else {
                let found = values(&storage, PartitionRange::all()).await.expect("a read");
                assert_eq!(found.iter().map(|(_, value)| value.len()).sum::<usize>(), WRITES.0 * WRITES.1);
            }
            assert_eq!(storage.stats().tables[0].table, ID);
        }
    });
    world.run().expect("an end");
    assert_eq!(world.outcome(node), Some(Ok(())));
    world.crash(node);
    world.set_disk_faults(
        node,
        DiskFaults { latency_ns: (4_000_000_000, 4_000_000_000), ..DiskFaults::default() },
    );
    let began = world.now();
    world.restart(node);
    world.run().expect("an end");
    assert_eq!(world.outcome(node), Some(Ok(())), "the start after {:?}", world.now() - began);
    assert_eq!(lives.get(), 4);
    assert!(world.now() - began > LONG, "{:?}", world.now() - began);
    let said = world.log();
    let waited = said.iter().filter(|line| line.contains("the start waits for another shard"));
    assert!(waited.count() > 6, "{said:?}");
}
