//! Room on the disk that the commit log of a shard takes before it holds much.
#![allow(clippy::disallowed_methods)]

use std::path::Path;
use std::time::Duration;

use crate::table::{changes, write};
use reactor::Deadline;
use storage::{Storage, StorageConfig};

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
        let storage = Storage::open(config, 0, 1).await.expect("an open storage");
        for change in changes() {
            storage.change_schema(&change).await.expect("a schema change");
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
