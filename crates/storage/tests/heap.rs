//! What a shard takes from the heap while it is written to: what its budget does not know must not grow with the data.
//!
//! This test binary counts every byte that the shard's thread has of the heap; segments of the shard's memory are none of it.
#![allow(unsafe_code)] // a counting allocator

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use model::clustering::append_component;
use model::mutation::MutationBuilder;
use model::partition_key::DecoratedKey;
use model::schema::SchemaChange;
use model::{DeletionTime, Position};
use reactor::Deadline;
use reactor::sim::{DiskFaults, World};
use storage::{Storage, StorageConfig};

use crate::table::{ID, changes};

mod table;

thread_local! {
    static HELD_BYTES: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

fn count(bytes: isize) {
    // A thread that ends has no counter any more, and nothing to count.
    let _ = HELD_BYTES.try_with(|held| held.set(held.get() + bytes));
}

// SAFETY: every method hands its arguments to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size as isize - layout.size() as isize);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes of the heap that come with what the node does besides.
const BESIDES: isize = 1 << 20;
const DELETES: u32 = 40_000;

/// The deletion of one row of a partition, as a range.
fn delete(key: &str, row: u32) -> Vec<u8> {
    let key = DecoratedKey::new(key.as_bytes().to_vec());
    let mut prefix = Vec::new();
    append_component(&mut prefix, Some(format!("{row:024}").as_bytes()));
    let mut out = Vec::new();
    let mut builder = MutationBuilder::new(&mut out, ID, key.token, &key.key, DeletionTime::LIVE, |_| ());
    let deletion = DeletionTime { timestamp: 1, local_time: 1 };
    builder.range_tombstone(Position::before(&prefix), Position::after(&prefix), deletion);
    builder.finish();
    out
}

/// A storage whose tables are in no commit log: the simulated disk is on the heap.
async fn open() -> Storage {
    let mut config = StorageConfig::new("/n", 256 << 20);
    config.auto_compaction = false;
    let storage = Storage::open(config, 0, 1).await.expect("an open storage");
    for mut change in changes() {
        if let SchemaChange::CreateKeyspace { options, .. } = &mut change {
            options.durable_writes = false;
        }
        storage.change_schema(&change).await.expect("a schema change");
    }
    storage
}

/// Deletes [`DELETES`] rows, each in the partition that is said; that may take so much of the heap for each.
fn check(partition: fn(u32) -> String, heap_bytes_max: isize) {
    let mut world = World::new(3);
    let node = world.add_node_with(1, DiskFaults::default(), move |_| async move {
        let storage = open().await;
        let memory = || storage.stats().memtable_bytes;
        let (heap, before) = (HELD_BYTES.get(), memory());
        for row in 0..DELETES {
            let bytes = delete(&partition(row), row);
            storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
        }
        let (heap, charged) = (HELD_BYTES.get() - heap, memory() - before);
        let kept: usize = storage.report().await.iter().map(|report| report.memtable_bytes).sum();
        assert!(kept > 68 * DELETES as usize, "{kept} bytes kept of what is in {DELETES} deletions");
        assert!(charged >= kept && charged <= 2 * kept, "{kept} bytes kept, {charged} charged");
        let most = heap_bytes_max * DELETES as isize + BESIDES;
        assert!(heap < most, "{heap} bytes of the heap, {charged} charged");
        storage.flush(ID).await.expect("a flush");
        assert_eq!(memory(), before, "given back");
        storage.drain().await.expect("a drain");
    });
    world.run().expect("an end");
    assert_eq!(world.outcome(node), Some(Ok(())));
}

#[test]
fn range_tombstones_of_one_partition_take_nothing_from_the_heap() {
    check(|_| "key".to_owned(), 0);
}

#[test]
fn range_tombstones_of_many_partitions_take_no_more_of_the_heap_than_their_charged_records() {
    check(|row| format!("key{row}"), 112);
}
