//! Starts of several shards that need unlike times.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::table::{ID, changes, values, write};
use model::partition_key::DecoratedKey;
use reactor::Deadline;
use reactor::sim::{DiskFaults, World};
use storage::{CommitlogSync, PartitionRange, StorageConfig};

/// Longer than any fixed wait in the code under test.
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
            let storage =
                cluster::open_storage(config, shard.id, shard.count).await.expect("an open storage");
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
                    cluster::change_schema(&change).await.expect("a schema change");
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

/// Until the clock has passed the timestamps of such writes, later writes of this node have older timestamps.
#[test]
fn writes_from_the_future_are_told_at_the_start_with_their_table() {
    const DAY_US: i64 = 86_400_000_000;
    // Days ahead, whether the writes are in a table file by then, and whether they are reported.
    for (days, is_flushed, is_told) in [
        (3, false, true),
        (3, true, true),
        (0, true, false),
        (-1, false, false),
        // No clock is so far off: the stamp is a client's own.
        (40_000, false, false),
        (40_000, true, false),
    ] {
        let mut world = reactor::sim::World::new(3);
        let life = Rc::new(Cell::new(0));
        let told = Rc::new(Cell::new(None));
        let (of_life, of_told) = (Rc::clone(&life), Rc::clone(&told));
        let node = world.add_node(1, move |_| {
            let (life, told) = (Rc::clone(&of_life), Rc::clone(&of_told));
            async move {
                let storage = cluster::open_storage(StorageConfig::new("/n", 8 << 20), 0, 1)
                    .await
                    .expect("an open storage");
                life.set(life.get() + 1);
                if life.get() == 1 {
                    for change in changes() {
                        cluster::change_schema(&change).await.expect("a schema change");
                    }
                    let stamp = reactor::wall_clock_us() + days * DAY_US;
                    let bytes = write("key", "c", "v", stamp);
                    storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
                    if is_flushed {
                        storage.flush(ID).await.expect("a flush");
                    }
                    reactor::sleep(Duration::from_secs(30)).await;
                    life.set(2);
                    reactor::sleep(Duration::from_secs(1000)).await;
                    return;
                }
                let samples = reactor::metrics::snapshot();
                let name = "scylla_database_future_write_timestamp_seconds";
                let sample = samples.into_iter().find(|sample| sample.name == name).expect("the gauge");
                let reactor::metrics::Value::Gauge(seconds) = sample.value else { panic!("a gauge") };
                told.set(Some(seconds - reactor::wall_clock_us() / 1_000_000));
                storage.drain().await.expect("a drain");
            }
        });
        let at_work = Rc::clone(&life);
        world.run_until(|_| at_work.get() == 2).expect("the write");
        world.crash(node);
        world.restart(node);
        world.run().expect("an end");
        assert_eq!(world.outcome(node), Some(Ok(())));
        let lines: Vec<_> = world.log().into_iter().filter(|line| line.contains("stamped later")).collect();
        assert_eq!(lines.len(), usize::from(is_told), "{days} {is_flushed}: {lines:?}");
        if is_told {
            assert!(lines[0].contains("k.t"), "{lines:?}");
            let ahead = told.get().expect("a start");
            assert!((3 * 86_400 - 3600..=3 * 86_400).contains(&ahead), "{ahead}");
        }
    }
}

/// A sync of the manifest that fails leaves it unknown whether a new segment is listed: the segment has to
/// stay, or the next start misses it.
#[test]
fn a_segment_whose_listing_is_in_doubt_is_not_missed_at_the_next_start() {
    for seed in 0..60 {
        let mut world = World::new(seed);
        let lives = Rc::new(Cell::new(0));
        let of_node = Rc::clone(&lives);
        let node = world.add_node(1, move |_| {
            let lives = Rc::clone(&of_node);
            async move {
                let mut config = StorageConfig::new("/n", 8 << 20);
                config.segment_bytes = 64 << 10;
                let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
                if lives.get() > 0 {
                    lives.set(3);
                    return;
                }
                for change in changes() {
                    cluster::change_schema(&change).await.expect("a schema change");
                }
                lives.set(1);
                for number in 0..16 {
                    let bytes = write("key", &number.to_string(), &"x".repeat(20_000), 1);
                    let deadline = Deadline::after(Duration::from_millis(100));
                    drop(storage.apply(&bytes, deadline).await);
                }
                lives.set(2);
                reactor::sleep(LONG).await;
            }
        });
        world.run_until(|_| lives.get() == 1).unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
        world.set_disk_faults(node, DiskFaults { sync_error: 0.3, ..DiskFaults::default() });
        world.run_until(|_| lives.get() == 2).unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
        // The process goes, the kernel stays.
        world.set_disk_faults(node, DiskFaults { lose_unsynced: false, ..DiskFaults::default() });
        world.crash(node);
        world.restart(node);
        world.run_until(|world| world.is_ended(node)).unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
        assert_eq!(world.outcome(node), Some(Ok(())), "seed {seed}");
    }
}

/// A key of a partition that the shard has, of two.
fn key_of(shard: usize) -> String {
    let is_here = |key: &String| {
        let token = DecoratedKey::new(key.clone().into_bytes()).token;
        (token < model::Token(0)) == (shard == 0)
    };
    (0..).map(|number| format!("key{number}")).find(is_here).expect("a key")
}

/// One shard cannot read its log, and the start fails while another has read its own: that one stays too.
#[test]
fn a_start_that_fails_frees_no_log_of_any_shard() {
    let mut failed = 0;
    for seed in 0..40 {
        let mut world = World::new(seed);
        let life = Rc::new(Cell::new(0));
        let failures = Rc::new(Cell::new(0));
        let (of_life, of_failures) = (Rc::clone(&life), Rc::clone(&failures));
        let node = world.add_node(2, move |shard| {
            let (life, failures) = (of_life.get(), Rc::clone(&of_failures));
            async move {
                let mut config = StorageConfig::new("/n", 8 << 20);
                config.segment_bytes = 64 << 10;
                config.commitlog_sync = CommitlogSync::Batch;
                let opened = cluster::open_storage(config, shard.id, shard.count).await;
                let storage = match opened {
                    Ok(storage) => storage,
                    Err(_) if life == 1 => {
                        failures.set(failures.get() + 1);
                        // The tasks of the log that is left have time to do their worst.
                        return reactor::sleep(LONG).await;
                    }
                    Err(error) => panic!("{error}"),
                };
                if life == 0 {
                    if shard.id == 0 {
                        for change in changes() {
                            cluster::change_schema(&change).await.expect("a schema change");
                        }
                    }
                    reactor::sleep(Duration::from_secs(1)).await;
                    let bytes = write(&key_of(shard.id), "c", "v", 1);
                    storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
                }
                if life == 2 {
                    let found = values(&storage, PartitionRange::all()).await.expect("a read");
                    assert_eq!(found.len(), 1, "shard {}: {found:?}", shard.id);
                }
                reactor::sleep(LONG).await;
            }
        });
        for lives in 0..3 {
            life.set(lives);
            let read_error = if lives == 1 { 0.03 } else { 0.0 };
            world.set_disk_faults(node, DiskFaults { read_error, ..DiskFaults::default() });
            if lives > 0 {
                world.crash(node);
                world.restart(node);
            }
            world.run_for(LONG / 2).unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
        }
        world.run().unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
        assert_eq!(world.outcome(node), Some(Ok(())), "seed {seed}");
        failed += failures.get();
    }
    assert!(failed > 20, "{failed} shards that did not start say little");
}
