//! Heap allocations of a prepared statement once buffers have grown: none for a read of a row, at most one
//! for a write.
//!
//! This test binary counts every allocation of the shard's thread, including those of the commit log and of
//! the memtable.
#![allow(unsafe_code)] // a counting allocator

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use query::{Engine, Response};
use support::{Options, client, execute_body, int, node, prepare, run, send_as, text};
use wire::frame::Opcode;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

fn count() {
    // A thread that ends has no counter any more, and nothing to count.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every method hands its arguments to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Requests sent before counting.
const WARM_UP: i32 = 2_000;
/// Requests counted.
const COUNTED: i32 = 1_000;

/// Allocations of [`COUNTED`] requests, one body after the other, after [`WARM_UP`] others.
async fn allocations(engine: &Engine, bodies: impl Fn(i32) -> Vec<u8>) -> usize {
    let requests: Vec<Vec<u8>> = (0..WARM_UP + COUNTED).map(bodies).collect();
    let (client, mut out) = (client(), Response::default());
    let mut before = 0;
    for (at, body) in requests.iter().enumerate() {
        if at == WARM_UP as usize {
            before = ALLOCATIONS.get();
        }
        out.body.clear();
        send_as(engine, &client, Opcode::Execute, body, &mut out).await.unwrap();
    }
    ALLOCATIONS.get() - before
}

async fn count_both(engine: Engine) -> (usize, usize, usize) {
    run(&engine, "CREATE TABLE t (k int, c int, v text, w text, n int, PRIMARY KEY (k, c))").await;
    let insert = prepare(&engine, "INSERT INTO t (k, c, v, w, n) VALUES (?, ?, ?, ?, ?)").await.unwrap();
    let select = prepare(&engine, "SELECT * FROM t WHERE k = ? AND c = ?").await.unwrap();
    let partition = prepare(&engine, "SELECT v, n FROM t WHERE k = ?").await.unwrap();
    let (page_size, skip_metadata) = (Some(5000), true);
    let writes = allocations(&engine, |at| {
        let values = [int(at % 100), int(at / 100 % 10), text("some text"), text("more of it"), int(at)];
        execute_body(&insert.id, &insert.metadata_id, &Options::values(values))
    })
    .await;
    let reads = allocations(&engine, |at| {
        let values = [int(at % 100), int(at / 100 % 10)];
        let options = Options { page_size, skip_metadata, ..Options::values(values) };
        execute_body(&select.id, &select.metadata_id, &options)
    })
    .await;
    let partitions = allocations(&engine, |at| {
        let options = Options { page_size, skip_metadata, ..Options::values([int(at % 100)]) };
        execute_body(&partition.id, &partition.metadata_id, &options)
    })
    .await;
    (writes, reads, partitions)
}

#[test]
fn a_prepared_point_read_allocates_nothing_and_a_write_at_most_once() {
    let folder = tempfile::tempdir().unwrap();
    let (writes, reads, partitions) = node(folder.path(), 1, count_both);
    println!("allocations of {COUNTED}: writes {writes}, point reads {reads}, partition reads {partitions}");
    assert_eq!(reads, 0, "{COUNTED} point reads");
    assert_eq!(partitions, 0, "{COUNTED} reads of ten rows");
    assert!(writes <= COUNTED as usize, "{COUNTED} writes allocated {writes} times");
}
