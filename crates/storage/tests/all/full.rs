//! Disks that fill up and fail: which requests are refused, which go on, and how it ends.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use crate::table::{ID, changes, values, write};
use reactor::Deadline;
use reactor::sim::{DiskFaults, World};
use storage::{CompactOptions, DiskMark, PartitionRange, Storage, StorageConfig, StorageError, Trouble};

/// The size of the device, and the bytes of it that have to stay free.
const CAPACITY: u64 = 32 << 20;
const FREE_MIN: u64 = 8 << 20;

fn config() -> StorageConfig {
    let mut config = StorageConfig::new("/n", 4 << 20);
    config.segment_bytes = 1 << 20;
    config.commitlog_bytes_max = 8 << 20;
    config.disk_marks = vec![DiskMark { path: "/n".into(), free_bytes_min: FREE_MIN }];
    config
}

async fn opened(shard: usize, shards: usize) -> Storage {
    let storage = cluster::open_storage(config(), shard, shards).await.expect("an open storage");
    if shard == 0 && storage.schema().table_by_id(ID).is_none() {
        for change in changes() {
            cluster::change_schema(&change).await.expect("a schema change");
        }
    }
    storage
}

/// 100 KB of text that no compressor makes small.
fn long_text() -> String {
    (0..25_000).map(|_| format!("{:04x}", reactor::random_u64() as u16)).collect()
}

#[test]
fn below_the_mark_writes_are_refused_until_there_is_space_and_all_else_goes_on() {
    let mut world = World::new(11);
    let faults = DiskFaults { capacity_bytes: CAPACITY, ..DiskFaults::default() };
    let (refused, done) = (Rc::new(Cell::new(0u32)), Rc::new(Cell::new(false)));
    let seen = (Rc::clone(&refused), Rc::clone(&done));
    let node = world.add_node_with(1, faults, move |_| {
        let (refused, done) = seen.clone();
        async move {
            let storage = opened(0, 1).await;
            let mut written = 0;
            // About 60 MB would be written if no write were refused.
            for key in 0..600 {
                let bytes = write(&format!("key{key}"), "c", &long_text(), 1);
                match storage.apply(&bytes, Deadline::NEVER).await {
                    Ok(()) => written += 1,
                    Err(error @ StorageError::DiskNearlyFull { .. }) => {
                        refused.set(refused.get() + 1);
                        let said = error.to_string();
                        assert!(said.contains("/n") && said.contains("nearly full"), "{said}");
                        break;
                    }
                    Err(error) => panic!("the mark comes before {error}"),
                }
                // Time passes, as it does between requests.
                reactor::sleep(Duration::from_millis(50)).await;
            }
            assert!((50..600).contains(&written), "{written} writes fit above the mark");
            // Reads go on, so does a flush, and truncating frees space.
            let found = values(&storage, PartitionRange::all()).await.expect("a read");
            assert_eq!(found.len(), written);
            storage.flush(ID).await.expect("a flush");
            storage.truncate(ID).await.expect("a truncation");
            let bytes = write("again", "c", "v", 2);
            // Bounded by the test's steps.
            while let Err(error) = storage.apply(&bytes, Deadline::NEVER).await {
                assert!(matches!(error, StorageError::DiskNearlyFull { .. }), "{error}");
                reactor::sleep(Duration::from_millis(100)).await;
            }
            assert_eq!(values(&storage, PartitionRange::all()).await.expect("a read").len(), 1);
            storage.drain().await.expect("a drain");
            done.set(true);
        }
    });
    world.run().expect("an end");
    assert_eq!(world.outcome(node), Some(Ok(())));
    assert_eq!((refused.get(), done.get()), (1, true));
}

#[test]
fn what_is_acknowledged_can_be_flushed_however_full_the_disk_is() {
    let mut world = World::new(14);
    let faults = DiskFaults { capacity_bytes: CAPACITY, ..DiskFaults::default() };
    let done = Rc::new(Cell::new(false));
    let seen = Rc::clone(&done);
    let node = world.add_node_with(1, faults, move |_| {
        let done = Rc::clone(&seen);
        async move {
            // Memory for half of the disk, and no mark: only space for the contents of memtables is kept
            // free.
            let mut config = config();
            config.memtable_bytes_max = 16 << 20;
            config.disk_marks = vec![DiskMark { path: config.data_dir.clone(), free_bytes_min: 0 }];
            let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
            for change in changes() {
                cluster::change_schema(&change).await.expect("a schema change");
            }
            let mut written = 0;
            for key in 0..600 {
                let bytes = write(&format!("key{key}"), "c", &long_text(), 1);
                match storage.apply(&bytes, Deadline::NEVER).await {
                    Ok(()) => written += 1,
                    Err(StorageError::DiskNearlyFull { .. }) => break,
                    Err(error) => panic!("the memtables' part comes before {error}"),
                }
                reactor::sleep(Duration::from_millis(50)).await;
            }
            assert!((50..600).contains(&written), "{written} writes fit");
            storage.flush(ID).await.expect("a flush");
            // A compaction of all files into one does not fit beside them: it is refused, and nothing is
            // lost.
            let refused = storage.compact(ID).await.expect_err("no room");
            assert!(matches!(refused, StorageError::NoRoomToCompact { .. }), "{refused}");
            let found = values(&storage, PartitionRange::all()).await.expect("a read");
            assert_eq!(found.len(), written);
            storage.drain().await.expect("a drain");
            done.set(true);
        }
    });
    world.run().expect("an end");
    assert_eq!(world.outcome(node), Some(Ok(())));
    assert!(done.get());
}

#[test]
fn a_drain_on_a_disk_without_any_space_ends_in_seconds() {
    let mut world = World::new(12);
    let full = Rc::new(Cell::new(false));
    let took = Rc::new(Cell::new(None));
    let (told, place) = (Rc::clone(&full), Rc::clone(&took));
    let node = world.add_node_with(1, DiskFaults::default(), move |_| {
        let (told, place) = (Rc::clone(&told), Rc::clone(&place));
        async move {
            let mut config = config();
            config.disk_marks.clear();
            let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
            // Many tablets, each with something to flush.
            let [keyspace, table] = changes();
            cluster::change_schema(&keyspace).await.expect("a schema change");
            let model::schema::SchemaChange::CreateTable(mut definition) = table else { unreachable!() };
            definition.tablets_log2 = 6;
            let table = model::schema::SchemaChange::CreateTable(definition);
            cluster::change_schema(&table).await.expect("a schema change");
            for key in 0..500 {
                let bytes = write(&format!("key{key}"), "c", "v", 1);
                storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
            }
            told.set(true);
            reactor::sleep(Duration::from_secs(1)).await;
            let began = reactor::now();
            storage.drain().await.expect_err("what cannot be flushed stays in the log");
            place.set(Some(began.elapsed()));
        }
    });
    world.run_until(|_| full.get()).expect("the writes");
    world.set_disk_faults(node, DiskFaults { capacity_bytes: 0, ..DiskFaults::default() });
    world.run().expect("an end");
    let took = took.get().expect("a drain that ended");
    assert!(took < Duration::from_secs(10), "virtual time: {took:?}");
}

#[test]
fn errors_of_the_disk_fail_the_request_are_told_and_leave_the_rest_alone() {
    let mut world = World::new(13);
    let broken = Rc::new(Cell::new(false));
    let mended = Rc::new(Cell::new(false));
    let heard: Rc<RefCell<Vec<Trouble>>> = Rc::default();
    let (b, m, h) = (Rc::clone(&broken), Rc::clone(&mended), Rc::clone(&heard));
    let node = world.add_node_with(1, DiskFaults::default(), move |_| {
        let (broken, mended, heard) = (Rc::clone(&b), Rc::clone(&m), Rc::clone(&h));
        async move {
            let storage = opened(0, 1).await;
            let listener = storage.clone();
            reactor::spawn(reactor::Group::ADMIN, async move {
                loop {
                    let trouble = listener.next_trouble().await;
                    heard.borrow_mut().push(trouble);
                }
            })
            .detach();
            for key in 0..10 {
                let bytes = write(&format!("key{key}"), "c", "v", 1);
                storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
            }
            storage.flush(ID).await.expect("a flush");
            broken.set(true);
            reactor::sleep(Duration::from_secs(1)).await;
            let error = values(&storage, PartitionRange::all()).await.expect_err("the disk fails");
            assert!(
                matches!(error, StorageError::Io { .. }) && error.to_string().contains("-Data.db"),
                "{error}"
            );
            mended.set(true);
            reactor::sleep(Duration::from_secs(1)).await;
            assert_eq!(values(&storage, PartitionRange::all()).await.expect("a read").len(), 10);
        }
    });
    world.run_until(|_| broken.get()).expect("the flush");
    world.set_disk_faults(node, DiskFaults { read_error: 1.0, ..DiskFaults::default() });
    world.run_until(|_| mended.get()).expect("the failed read");
    world.set_disk_faults(node, DiskFaults::default());
    world.run().expect("an end");
    assert_eq!(world.outcome(node), Some(Ok(())));
    let heard = heard.borrow();
    assert!(matches!(&heard[..], [Trouble::Data { reason }] if reason.contains("-Data.db")), "{heard:?}");
}

/// A process that was killed on a full disk has to start on it again, to serve reads and to take drops of
/// tables.
#[test]
fn a_killed_node_starts_on_a_disk_without_any_space() {
    // With few writes the log has one segment; with more it has another one, which is ready and unused.
    for (keys, writes_go_on) in [(5, false), (10, true)] {
        let mut world = World::new(15);
        let (lives, done) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let seen = (Rc::clone(&lives), Rc::clone(&done));
        let node = world.add_node_with(1, DiskFaults::default(), move |_| {
            let (lives, done) = seen.clone();
            async move {
                let mut config = config();
                config.disk_marks.clear();
                let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
                lives.set(lives.get() + 1);
                if lives.get() == 1 {
                    for change in changes() {
                        cluster::change_schema(&change).await.expect("a schema change");
                    }
                    for key in 0..keys {
                        let bytes = write(&format!("key{key}"), "c", &long_text()[..40_000], 1);
                        storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
                    }
                    reactor::sleep(Duration::from_secs(30)).await;
                    lives.set(2);
                    reactor::sleep(Duration::from_secs(1000)).await;
                    return;
                }
                let found = values(&storage, PartitionRange::all()).await.expect("a read");
                assert_eq!(found.len(), keys);
                let until = || Deadline::after(Duration::from_secs(5));
                let written = storage.apply(&write("one", "c", "v", 2), until()).await;
                assert_eq!(written.is_ok(), writes_go_on, "{written:?}");
                if let Err(error) = written {
                    let said = error.to_string();
                    assert!(
                        matches!(error, StorageError::DiskFull { .. }) && said.contains("truncate"),
                        "{said}"
                    );
                } else {
                    storage.truncate(ID).await.expect("a truncation");
                    assert_eq!(values(&storage, PartitionRange::all()).await.expect("a read").len(), 0);
                }
                done.set(true);
                // Bounded by the test's steps: there is space again.
                while storage.apply(&write("two", "c", "v", 3), until()).await.is_err() {
                    reactor::sleep(Duration::from_millis(100)).await;
                }
                storage.drain().await.expect("a drain");
            }
        });
        let (first, second) = (Rc::clone(&lives), Rc::clone(&done));
        world.run_until(|_| first.get() == 2).expect("the writes");
        world.crash(node);
        world.set_disk_faults(node, DiskFaults { capacity_bytes: 0, ..DiskFaults::default() });
        world.restart(node);
        world.run_until(|_| second.get()).expect("a start on a full disk");
        world.set_disk_faults(node, DiskFaults::default());
        world.run().expect("an end");
        assert_eq!(world.outcome(node), Some(Ok(())), "{keys}");
    }
}

/// The record of a truncation may reach the disk although the flush of the device failed. The next start
/// carries it out: it removes the files it names, and leaves out entries of the log before it.
#[test]
fn a_truncation_that_failed_happens_whole_or_not_at_all() {
    // Whether the record of it is in the log after the crash is left to chance.
    let left: Vec<usize> = (0..20).map(rows_after_a_truncation_that_failed).collect();
    assert!(left.iter().all(|rows| matches!(rows, 0 | 3)), "{left:?}");
    assert!(left.contains(&0), "the truncation is never in the log");
}

/// How many rows of three are there after the start.
fn rows_after_a_truncation_that_failed(seed: u64) -> usize {
    let mut world = World::new(seed);
    let faults = |sync_error| DiskFaults { sync_error, lose_unsynced: false, ..DiskFaults::default() };
    let (step, left) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(None)));
    let seen = (Rc::clone(&step), Rc::clone(&left));
    let node = world.add_node_with(1, faults(0.0), move |_| {
        let (step, left) = seen.clone();
        async move {
            let storage = opened(0, 1).await;
            if step.get() > 0 {
                left.set(Some(values(&storage, PartitionRange::all()).await.expect("a read").len()));
                return;
            }
            for key in ["in a file", "in another", "in memory"] {
                storage.apply(&write(key, "c", "v", 1), Deadline::NEVER).await.expect("a write");
                if key != "in memory" {
                    storage.flush(ID).await.expect("a flush");
                }
            }
            storage.sync_commitlog().await.expect("a flush of the device");
            step.set(1);
            reactor::sleep(Duration::from_secs(1)).await;
            storage.truncate(ID).await.expect_err("the device fails");
            step.set(2);
            reactor::sleep(Duration::from_secs(1)).await;
            // The table is as it was, and neither of these may make files that the truncation does not name.
            assert_eq!(values(&storage, PartitionRange::all()).await.expect("a read").len(), 3);
            storage.flush(ID).await.expect_err("a flush");
            let options = CompactOptions { skips_flush: true, ..CompactOptions::default() };
            storage.compact_with(ID, &options).await.expect_err("a compaction");
            step.set(3);
            reactor::sleep(Duration::from_secs(1000)).await;
        }
    });
    world.run_until(|_| step.get() == 1).expect("the writes");
    world.set_disk_faults(node, faults(1.0));
    world.run_until(|_| step.get() == 2).expect("the truncation");
    world.set_disk_faults(node, faults(0.0));
    world.run_until(|_| step.get() == 3).expect("the compaction");
    world.crash(node);
    world.restart(node);
    world.run().expect("an end");
    assert_eq!(world.outcome(node), Some(Ok(())));
    left.get().expect("a read after the restart")
}
