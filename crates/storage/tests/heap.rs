//! Heap memory of a shard while it is written to or read: memory that its budget does not count must not grow
//! with the data.
//!
//! This test binary counts every byte of the heap that the shard's thread holds; segments of the shard's
//! memory are not in the heap.
#![allow(unsafe_code)] // a counting allocator

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::rc::Rc;

use model::clustering::{Slice, append_component};
use model::mutation::MutationBuilder;
use model::partition_key::DecoratedKey;
use model::schema::SchemaChange;
use model::{ColumnId, DeletionTime, Position, RowView, Table, Token};
use reactor::sim::{DiskFaults, World};
use reactor::{Deadline, Group};
use storage::{Flow, PartitionRange, ReadCommand, RowConsumer, Storage, StorageConfig, fragments_table};

use crate::table::{ID, changes, write};

mod table;

thread_local! {
    static HELD_BYTES: Cell<isize> = const { Cell::new(0) };
    static MOST_BYTES: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

fn count(bytes: isize) {
    // A thread that ends has no counter any more, and nothing to count.
    let _ = HELD_BYTES.try_with(|held| {
        held.set(held.get() + bytes);
        MOST_BYTES.try_with(|most| most.set(most.get().max(held.get())))
    });
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

/// Bytes of the heap for everything else the node does.
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
    let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
    for mut change in changes() {
        if let SchemaChange::CreateKeyspace { options, .. } = &mut change {
            options.durable_writes = false;
        }
        cluster::change_schema(&change).await.expect("a schema change");
    }
    storage
}

/// Deletes [`DELETES`] rows, each in the partition that `partition` names; each may take so many bytes of the
/// heap.
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

const LONG_ROW_BYTES: usize = 2 << 20;
const LONG_READS: usize = 40;

/// Counts the bytes of a column's values.
struct Length {
    column: ColumnId,
    bytes: usize,
}

impl RowConsumer for Length {
    fn partition(&mut self, _: &[u8], _: Token, _: Option<RowView<'_>>) -> Flow {
        Flow::Continue
    }
    fn row(&mut self, _: &[u8], row: RowView<'_>) -> Flow {
        self.bytes += row.cell(self.column).and_then(|cell| cell.value()).unwrap_or_default().len();
        Flow::Continue
    }
    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

/// Runs [`LONG_READS`] reads of `range` at once, each of which finds so many bytes in the column of that
/// name. Returns the most bytes of the heap they take.
async fn most_of_reads(
    storage: &Storage,
    table: &Rc<Table>,
    range: &PartitionRange,
    (column, found): (&str, usize),
    bypass_cache: bool,
) -> isize {
    let column = table.column(column).expect("a column").id;
    let before = HELD_BYTES.get();
    MOST_BYTES.set(before);
    let reads: Vec<_> = (0..LONG_READS)
        .map(|_| {
            let (storage, table, range) = (storage.clone(), Rc::clone(table), range.clone());
            reactor::spawn(Group::STATEMENT, async move {
                let slices = [Slice::all()].into_iter().collect();
                let command =
                    ReadCommand { table, range, slices, reversed: false, now: 1_700_000_000, bypass_cache };
                let mut length = Length { column, bytes: 0 };
                storage.read(&command, &mut length).await.expect("a read");
                length.bytes
            })
        })
        .collect();
    for read in reads {
        let bytes = read.await.expect("no panic");
        // A fragment has the row's head beside its value.
        assert!((found..found + 1000).contains(&bytes), "{bytes} bytes of {found}");
    }
    MOST_BYTES.get() - before
}

#[test]
fn reads_of_long_rows_from_files_take_no_more_of_the_heap_than_there_is_for_them() {
    let mut world = World::new(5);
    let node = world.add_node_with(1, DiskFaults::default(), move |_| async move {
        let storage = open().await;
        let keys = ["a", "b", "c"];
        // Two files, each with a row of every partition: a read of one partition holds two long rows at a
        // time.
        for timestamp in [1, 2] {
            for key in keys {
                let value = "v".repeat(LONG_ROW_BYTES);
                let bytes = write(key, "c", &value, timestamp);
                storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
            }
            storage.flush(ID).await.expect("a flush");
        }
        // Of 256 MiB for memtables reads have 16 for long rows, and scans as much: two reads at a time.
        let most = (5 * 2 * 2 * LONG_ROW_BYTES + LONG_READS * (512 << 10)) as isize;
        let key = PartitionRange::Key(DecoratedKey::new(b"a".to_vec()));
        let table = storage.schema().table_by_id(ID).cloned().expect("the table");
        let one = ("v", LONG_ROW_BYTES);
        for bypass_cache in [true, false] {
            let heap = most_of_reads(&storage, &table, &key, one, bypass_cache).await;
            assert!(heap > LONG_ROW_BYTES as isize || !bypass_cache, "they were read from files: {heap}");
            assert!(
                heap < most,
                "{heap} bytes of the heap, {most} at most; bypassing the cache: {bypass_cache}"
            );
        }
        let every = ("v", keys.len() * LONG_ROW_BYTES);
        let heap = most_of_reads(&storage, &table, &PartitionRange::all(), every, true).await;
        assert!(heap < most, "{heap} bytes of the heap for scans, {most} at most");
        // Each file's rows are fragments of their own.
        let fragments = Rc::new(fragments_table(&table));
        for (range, keys) in [(&key, 1), (&PartitionRange::all(), keys.len())] {
            let rows = ("value", keys * 2 * LONG_ROW_BYTES);
            let heap = most_of_reads(&storage, &fragments, range, rows, false).await;
            assert!(heap < most, "{heap} bytes of the heap for fragments of {keys} keys, {most} at most");
        }
        storage.drain().await.expect("a drain");
    });
    world.run().expect("an end");
    assert_eq!(world.outcome(node), Some(Ok(())));
}
