//! Room on the disk that the commit log of a shard takes before it holds much.
#![allow(clippy::disallowed_methods)]

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use crate::failing::{all, config, opened};
use crate::table::{changes, write};
use reactor::Deadline;
use reactor::sim::World;
use storage::{CommitlogSync, FailurePolicy, StorageConfig};

const SEGMENT_BYTES: usize = 1 << 20;
const HEADER_BYTES: u64 = 4096;

/// Lengths of the segments' files, the longest first.
fn lengths(directory: &Path) -> Vec<u64> {
    let folder = directory.join("commitlog/shard-0");
    let length = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().metadata().unwrap().len();
    let mut lengths: Vec<_> = std::fs::read_dir(folder).unwrap().map(length).collect();
    lengths.sort_by_key(|length| std::cmp::Reverse(*length));
    lengths
}

#[test]
fn a_segment_takes_its_room_with_its_first_entry_and_the_next_when_a_part_of_it_is_full() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let mut config = StorageConfig::new(&path, 64 << 20);
    config.segment_bytes = SEGMENT_BYTES;
    reactor::run_one(reactor::Config::default(), async move {
        let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
        for change in changes() {
            cluster::change_schema(&change).await.expect("a schema change");
        }
        assert_eq!(lengths(&path), [HEADER_BYTES]);
        assert_eq!(storage.stats().commitlog.disk_bytes, HEADER_BYTES);

        let value = "v".repeat(10_000);
        let mut written = 0;
        while written < SEGMENT_BYTES / 3 {
            let bytes = write("key", &format!("{written}"), &value, 1);
            storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
            written += bytes.len();
            if written < SEGMENT_BYTES / 5 {
                assert_eq!(lengths(&path), [SEGMENT_BYTES as u64], "after {written} bytes");
            }
        }
        let ready = async {
            while storage.stats().commitlog.spare_segments == 0 {
                reactor::sleep(Duration::from_millis(1)).await;
            }
        };
        let ready = reactor::timeout(Deadline::after(Duration::from_secs(60)), ready).await;
        ready.expect("another segment is ready before this one is full");
        assert_eq!(lengths(&path), [SEGMENT_BYTES as u64; 2]);
        assert_eq!(storage.stats().commitlog.disk_bytes, 2 * SEGMENT_BYTES as u64);
        storage.drain().await.expect("a drain");
    });
}

#[test]
fn a_segment_that_a_crash_left_as_long_as_its_entries_is_ended_and_the_log_goes_on_behind_it() {
    const LIVES: u32 = 4;
    const STEPS_MAX: u64 = 1_000_000;
    let mut world = World::new(1);
    let written = Rc::new(Cell::new(0));
    let of_node = Rc::clone(&written);
    let node = world.add_node(1, move |_| {
        let written = Rc::clone(&of_node);
        async move {
            let mut config = config("/n", FailurePolicy::Die);
            config.commitlog_sync = CommitlogSync::Batch;
            let storage = opened(config).await;
            let life = written.get();
            let expected: String = (0..life).map(|number| number.to_string()).collect();
            assert_eq!(all(&storage).await.expect("a read"), expected);
            // The second write records that the first is durable.
            for _ in 0..2 {
                let bytes = write("key", &life.to_string(), &life.to_string(), 1);
                storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
            }
            written.set(life + 1);
            std::future::pending::<()>().await;
        }
    });
    for life in 0..LIVES {
        let over = world.run_steps(STEPS_MAX, |world| written.get() > life || world.is_ended(node));
        assert_eq!((world.outcome(node), written.get()), (None, life + 1), "life {life}: {over:?}");
        world.crash(node);
        for path in world.files(node) {
            let is_segment = path.parent().is_some_and(|folder| folder.ends_with("commitlog/shard-0"));
            let Some(mut content) = world.read_file(node, &path).filter(|_| is_segment) else { continue };
            let end =
                content.iter().rposition(|byte| *byte != 0).map_or(0, |last| (last + 1).next_multiple_of(8));
            content.truncate(end.max(HEADER_BYTES as usize));
            assert!(world.damage_file(node, &path, content));
        }
        world.restart(node);
    }
}

#[test]
fn a_clean_end_leaves_few_spare_segments_for_the_next_start_to_look_through() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let mut config = config(&path, FailurePolicy::Die);
    config.segment_bytes = SEGMENT_BYTES;
    config.commitlog_bytes_max = 32 * SEGMENT_BYTES as u64;
    reactor::run_one(reactor::Config::default(), async move {
        let storage = opened(config).await;
        let value = "v".repeat(10_000);
        for number in 0..600 {
            let bytes = write("key", &format!("{number}"), &value, 1);
            storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
        }
        storage.flush_all().await.expect("a flush");
        let kept = async {
            while storage.stats().commitlog.spare_segments < 4 {
                reactor::sleep(Duration::from_millis(1)).await;
            }
        };
        let kept = reactor::timeout(Deadline::after(Duration::from_secs(60)), kept).await;
        kept.expect("freed segments are kept while the log is at work");
        storage.drain().await.expect("a drain");
        assert_eq!(storage.stats().commitlog.spare_segments, 2);
        assert!(lengths(&path).len() <= 4, "{:?}", lengths(&path));
    });
}
