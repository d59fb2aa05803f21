//! The heap is left alone once things are warm: exact counts, per thread, under a counting allocator.
#![allow(unsafe_code, clippy::disallowed_methods, clippy::disallowed_types)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use reactor::file::OpenOptions;
use reactor::io::{DiskModel, DiskSpec};
use reactor::metrics::Value;
use reactor::net::{ListenOptions, Listener, Stream};
use reactor::sim::{World, WorldOptions};
use reactor::{Config, DriverChoice, Group, run_one, spawn};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator; counting touches no heap.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

async fn spawn_many(count: usize) {
    let done = Rc::new(Cell::new(0usize));
    let mut left = count;
    while left > 0 {
        for number in 0..left.min(100) {
            let done = done.clone();
            let ballast = [number as u8; 1024];
            drop(spawn(Group::STATEMENT, async move {
                reactor::yield_now().await;
                done.set(done.get() + usize::from(ballast[1023] == number as u8));
            }));
        }
        left -= left.min(100);
        while done.get() < count - left {
            reactor::yield_now().await;
        }
    }
}

#[test]
fn ten_thousand_spawns_of_a_kilobyte_allocate_nothing_when_warm() {
    for driver in [DriverChoice::Uring, DriverChoice::Poll] {
        run_one(Config { driver, ..Config::default() }, async {
            spawn_many(1000).await;
            let before = allocations();
            spawn_many(10_000).await;
            // The counter shared by the tasks is the one allocation.
            assert_eq!(allocations() - before, 1);
        });
    }
}

/// Allocations of 1000 exchanges of 120 bytes each way between two tasks, both sides counted.
async fn exchanges() -> u64 {
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let listener = Listener::bind(any, ListenOptions::default()).unwrap();
    let address = listener.local_addr();
    drop(spawn(Group::STATEMENT, async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut buffer = Vec::with_capacity(4096);
        while let Ok(Some(chunk)) = stream.recv().await {
            buffer.extend_from_slice(&chunk);
            drop(chunk);
            let (sent, back) = stream.send(buffer).await;
            sent.unwrap();
            buffer = back;
            buffer.clear();
        }
    }));
    let stream = Stream::connect(address).await.unwrap();
    let mut buffer = Vec::with_capacity(4096);
    let mut before = 0;
    for round in 0..1200 {
        if round == 200 {
            before = allocations();
        }
        buffer.resize(120, 7);
        let (sent, back) = stream.send(buffer).await;
        sent.unwrap();
        buffer = back;
        buffer.clear();
        while buffer.len() < 120 {
            let chunk = stream.recv().await.unwrap().expect("more is to come");
            buffer.extend_from_slice(&chunk);
        }
    }
    allocations() - before
}

#[test]
fn a_round_trip_over_a_connection_allocates_nothing_when_warm() {
    for driver in [DriverChoice::Uring, DriverChoice::Poll] {
        assert_eq!(run_one(Config { driver, ..Config::default() }, exchanges()), 0, "{driver:?}");
    }
    let mut world = World::with_options(1, WorldOptions::null());
    let counted = Rc::new(Cell::new(u64::MAX));
    let place = counted.clone();
    world.add_node(1, move |_| {
        let place = place.clone();
        async move { place.set(exchanges().await) }
    });
    world.run_until(|_| counted.get() != u64::MAX).unwrap();
    assert_eq!(counted.get(), 0);
}

/// Reads of 4 KiB by 64 tasks of two groups, each `rounds` times.
async fn read_all(file: &reactor::file::File, rounds: usize, done: &Rc<Cell<usize>>) {
    done.set(0);
    for number in 0..64u64 {
        let (file, done) = (file.clone(), done.clone());
        let group = if number % 2 == 0 { Group::STATEMENT } else { Group::COMPACTION };
        spawn(group, async move {
            for round in 0..rounds as u64 {
                file.read_at((number + round) % 64 * 4096, 4096).await.unwrap();
            }
            done.set(done.get() + 1);
        })
        .detach();
    }
    while done.get() < 64 {
        reactor::yield_now().await;
    }
}

#[test]
fn a_disk_request_that_waits_for_its_turn_allocates_nothing_when_warm() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, vec![1; 64 * 4096]).unwrap();
    // Few enough operations that most of 64 requests have to wait, enough that the test is short.
    let model = DiskModel {
        read_iops: 20_000,
        read_bandwidth: 1 << 30,
        write_iops: 20_000,
        write_bandwidth: 1 << 30,
    };
    let disks = vec![DiskSpec { mountpoint: directory.path().to_owned(), model }];
    run_one(Config { driver: DriverChoice::Uring, disks, ..Config::default() }, async move {
        let file =
            reactor::file::File::open(&path, OpenOptions::new().read(true).direct(true)).await.unwrap();
        let done = Rc::new(Cell::new(0));
        // The number of waiters at the same time depends on the disk, so lists may still grow in a later run.
        // One of these runs makes no allocation, but a request that allocates would make hundreds in each.
        let mut least = u64::MAX;
        for _ in 0..8 {
            let before = allocations();
            read_all(&file, 10, &done).await;
            least = least.min(allocations() - before);
        }
        assert_eq!(least, 0);
        let waited = reactor::metrics::snapshot().into_iter().any(|sample| {
            sample.name == "scylla_io_queue_total_delay_sec" && sample.value != Value::Seconds(Duration::ZERO)
        });
        assert!(waited, "nothing had to wait, so nothing was shown");
    });
}
