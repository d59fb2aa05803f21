//! The commit log of a shard: how often its device is flushed, and where it may be.
#![allow(clippy::disallowed_methods)]

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use crate::failing::{all, config, opened, run, set};
use crate::table::write;
use reactor::sim::{DiskFaults, World};
use reactor::{Deadline, Group};
use storage::{CommitlogSync, FailurePolicy, Storage, StorageConfig};

async fn put(storage: &Storage, number: i64) {
    let bytes = write("key", &number.to_string(), &number.to_string(), number);
    storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
}

#[test]
fn each_write_of_batch_mode_waits_for_a_flush_of_the_device_that_all_share_who_came_meanwhile() {
    const WRITES: i64 = 300;
    let mut world = World::new(5);
    let ended = Rc::new(Cell::new(false));
    let of_node = Rc::clone(&ended);
    let node = world.add_node(1, move |_| {
        let ended = Rc::clone(&of_node);
        async move {
            let mut config = StorageConfig::new("/n", 8 << 20);
            config.commitlog_sync = CommitlogSync::Batch;
            let storage = opened(config).await;
            let flushes = || storage.stats().commitlog.device_flushes;
            let before = flushes();
            for number in 0..10 {
                put(&storage, number).await;
            }
            assert_eq!(flushes() - before, 10, "one after the other: each its own");
            let before = flushes();
            let writers: Vec<_> = (0..WRITES)
                .map(|number| {
                    let storage = storage.clone();
                    reactor::spawn(Group::STATEMENT, async move { put(&storage, number).await })
                })
                .collect();
            for writer in writers {
                writer.await.expect("a write");
            }
            let shared = flushes() - before;
            assert!(
                (2..=4).contains(&shared),
                "{shared}: the first one's, and those of all who came while one ran"
            );
            ended.set(true);
        }
    });
    world.run().expect("an end");
    assert_eq!(world.outcome(node), Some(Ok(())));
    assert!(ended.get());
}

#[test]
fn a_log_that_goes_on_after_a_failed_write_has_made_durable_what_was_closed_before() {
    const CLOSED: u64 = 2;
    let mut world = World::new(6);
    let fails = Rc::new(Cell::new(false));
    let of_node = Rc::clone(&fails);
    let node = world.add_node(1, move |_| {
        let fails = Rc::clone(&of_node);
        async move {
            let mut config = config("/n", FailurePolicy::Ignore);
            config.commitlog_sync = CommitlogSync::Periodic { period: Duration::from_secs(3600) };
            let storage = opened(config).await;
            let flushes = storage.stats().commitlog.device_flushes;
            let one = write("key", "c", &"v".repeat(10_000), 1);
            while storage.stats().commitlog.segments <= CLOSED {
                storage.apply(&one, Deadline::NEVER).await.expect("a write");
            }
            set(&fails, true).await;
            storage.apply(&one, Deadline::NEVER).await.expect_err("the disk fails");
            set(&fails, false).await;
            storage.apply(&one, Deadline::NEVER).await.expect("the disk is well again");
            let flushes = storage.stats().commitlog.device_flushes - flushes;
            assert_eq!(flushes, CLOSED + 1, "the closed ones, and the one that was ended where it failed");
        }
    });
    world.run_until(|_| fails.get()).expect("a node that works");
    world.set_disk_faults(node, DiskFaults { write_error: 1.0, ..DiskFaults::default() });
    world.run_until(|_| !fails.get()).expect("a node on a disk that fails");
    world.set_disk_faults(node, DiskFaults::default());
    world.run().expect("an end");
    assert_eq!(world.outcome(node), Some(Ok(())));
}

/// A segment that was begun while the write before it failed holds no entries; without an end it would be a
/// hole before durable entries, and the next start would be refused.
#[test]
fn segments_that_were_begun_behind_a_failed_write_are_no_holes() {
    let mut world = World::new(7);
    let (fails, lives) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
    let of_node = (Rc::clone(&fails), Rc::clone(&lives));
    let node = world.add_node(1, move |_| {
        let (fails, lives) = (Rc::clone(&of_node.0), Rc::clone(&of_node.1));
        async move {
            let mut config = config("/n", FailurePolicy::Ignore);
            config.commitlog_sync = CommitlogSync::Batch;
            let segment_bytes = config.segment_bytes;
            let storage = opened(config).await;
            if lives.replace(lives.get() + 1) > 0 {
                assert!(all(&storage).await.expect("a read") == "v", "the last write is lost");
                return;
            }
            const BYTES: usize = 10_000;
            let one = Rc::new(write("key", "c", &"v".repeat(BYTES), 1));
            // The next segment is ready, and a few writes more begin it.
            for _ in 0..segment_bytes / BYTES - 4 {
                storage.apply(&one, Deadline::NEVER).await.expect("a write");
            }
            set(&fails, true).await;
            let segments = storage.stats().commitlog.segments;
            let writers: Vec<_> = (0..10)
                .map(|_| {
                    let (storage, one) = (storage.clone(), Rc::clone(&one));
                    let deadline = Deadline::after(Duration::from_secs(5));
                    reactor::spawn(Group::STATEMENT, async move {
                        storage.apply(&one, deadline).await.expect_err("the disk fails");
                    })
                })
                .collect();
            for writer in writers {
                writer.await.expect("an answer");
            }
            assert_eq!(storage.stats().commitlog.segments, segments + 1, "another one was begun");
            set(&fails, false).await;
            storage.apply(&write("key", "c", "v", 2), Deadline::NEVER).await.expect("the disk is well again");
            reactor::sleep(Duration::from_secs(3600)).await;
        }
    });
    world.run_until(|_| fails.get()).expect("a node that works");
    world.set_disk_faults(node, DiskFaults { write_error: 1.0, ..DiskFaults::default() });
    world.run_until(|_| !fails.get()).expect("a node on a disk that fails");
    world.set_disk_faults(node, DiskFaults::default());
    let ended = world.now() + Duration::from_secs(60);
    world.run_until(|world| world.now() > ended).expect("a write");
    world.crash(node);
    world.restart(node);
    world.run().expect("an end");
    assert_eq!(world.outcome(node), Some(Ok(())));
    assert_eq!(lives.get(), 2);
}

#[test]
fn a_commit_log_in_a_folder_of_its_own_is_written_there_alone_and_found_there() {
    let (data, log) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut config = config(data.path(), FailurePolicy::Die);
    config.commitlog_dir = log.path().join("log");
    let again = config.clone();
    run(async move {
        let storage = opened(config).await;
        put(&storage, 1).await;
        put(&storage, 2).await;
    });
    let segments = |directory: &Path| {
        let mut folders = vec![directory.to_owned()];
        let mut found = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let name = path.file_name().unwrap().to_string_lossy().into_owned();
                    // The schema has a log too.
                    let segment = name.strip_suffix(".log").is_some_and(|slot| slot.parse::<u64>().is_ok());
                    found += usize::from(segment);
                }
            }
        }
        found
    };
    assert!(segments(log.path()) > 0 && segments(data.path()) == 0);
    run(async move { assert_eq!(all(&opened(again).await).await.expect("a read"), "12") });
}
