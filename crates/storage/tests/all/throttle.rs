//! Writers that are faster than the disk are slowed, each a little, and never stopped: in virtual time, on a
//! simulated disk.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use crate::table::{ID, changes, write};
use reactor::io::DiskModel;
use reactor::sim::World;
use reactor::{Deadline, Gate, Group};
use storage::{Storage, StorageConfig, StorageError};

const LIMIT: usize = 8 << 20;
const WRITERS: usize = 32;
const WRITES_EACH: usize = 300;
const VALUE_BYTES: usize = 1000;
const STEPS_MAX: u64 = 100_000_000;

#[derive(Default)]
struct Seen {
    longest: Cell<Duration>,
    most_used: Cell<usize>,
    waited: Cell<u32>,
    over: Cell<bool>,
}

fn disk(bandwidth: u64) -> DiskModel {
    DiskModel { read_iops: 20_000, read_bandwidth: bandwidth, write_iops: 20_000, write_bandwidth: bandwidth }
}

async fn open() -> Storage {
    open_with(StorageConfig::new("/node", LIMIT)).await
}

async fn open_with(mut config: StorageConfig) -> Storage {
    config.auto_compaction = false;
    let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
    for change in changes() {
        cluster::change_schema(&change).await.expect("a schema change");
    }
    storage
}

async fn write_all(storage: Storage, writes_each: usize, seen: Rc<Seen>) {
    let gate = Gate::new();
    let value = "v".repeat(VALUE_BYTES);
    for writer in 0..WRITERS {
        let (storage, seen, value) = (storage.clone(), Rc::clone(&seen), value.clone());
        let hold = gate.enter().expect("an open gate");
        reactor::spawn(Group::STATEMENT, async move {
            for number in 0..writes_each {
                let bytes = write(&format!("{writer}-{number}"), "c", &value, 1);
                let begin = reactor::now();
                storage.apply(&bytes, Deadline::after(Duration::from_secs(2))).await.expect("a write");
                let took = begin.elapsed();
                seen.longest.set(seen.longest.get().max(took));
                if took > Duration::from_millis(1) {
                    seen.waited.set(seen.waited.get() + 1);
                }
                seen.most_used.set(seen.most_used.get().max(storage.stats().memtable_bytes));
                reactor::maybe_yield().await;
            }
            drop(hold);
        })
        .detach();
    }
    gate.close().await;
    seen.over.set(true);
    storage.drain().await.expect("a drain");
}

#[test]
fn writers_faster_than_the_disk_are_slowed_and_never_stopped() {
    let mut world = World::new(1);
    let seen = Rc::new(Seen::default());
    let of_node = Rc::clone(&seen);
    let id = world.add_node(1, move |_| {
        let seen = Rc::clone(&of_node);
        async move { write_all(open().await, WRITES_EACH, seen).await }
    });
    world.set_disk_model(id, disk(20 << 20));
    let ended = world.run_steps(STEPS_MAX, |world| world.outcome(id).is_some());
    assert_eq!(world.outcome(id), Some(Ok(())), "{ended:?}");
    // A memtable of the soft mark, 3.2 MiB, takes the disk 160 ms and more, beside the commit log 320: a
    // writer that waited for a flush would wait that long.
    assert!(seen.longest.get() < Duration::from_millis(100), "{:?}", seen.longest.get());
    assert!(seen.most_used.get() <= LIMIT, "{} of {LIMIT}", seen.most_used.get());
    assert!(seen.waited.get() > 500, "only {} writes waited: the disk was fast enough", seen.waited.get());
}

#[test]
fn writers_that_fill_the_commit_log_are_slowed_and_never_stopped() {
    let mut world = World::new(4);
    let seen = Rc::new(Seen::default());
    let of_node = Rc::clone(&seen);
    let id = world.add_node(1, move |_| {
        let seen = Rc::clone(&of_node);
        async move {
            let mut config = StorageConfig::new("/node", 16 * LIMIT);
            (config.commitlog_bytes_max, config.segment_bytes) = (8 << 20, 128 << 10);
            write_all(open_with(config).await, 4 * WRITES_EACH, seen).await;
        }
    });
    world.set_disk_model(id, disk(20 << 20));
    let ended = world.run_steps(STEPS_MAX, |world| world.outcome(id).is_some());
    assert_eq!(world.outcome(id), Some(Ok(())), "{ended:?}");
    assert!(seen.longest.get() < Duration::from_millis(100), "{:?}", seen.longest.get());
    assert!(seen.waited.get() > 500, "only {} writes waited: the log never filled", seen.waited.get());
}

#[test]
fn a_write_whose_turn_would_come_too_late_is_refused_at_once() {
    let mut world = World::new(2);
    let refused: Rc<RefCell<Option<(Duration, Duration)>>> = Rc::default();
    let of_node = Rc::clone(&refused);
    let id = world.add_node(1, move |_| {
        let refused = Rc::clone(&of_node);
        async move {
            let storage = open().await;
            let value = "v".repeat(100_000);
            let gate = Gate::new();
            for writer in 0..150 {
                let (storage, value) = (storage.clone(), value.clone());
                let hold = gate.enter().expect("an open gate");
                let refused = Rc::clone(&refused);
                reactor::spawn(Group::STATEMENT, async move {
                    let patience = Duration::from_millis(100);
                    let bytes = write(&writer.to_string(), "c", &value, 1);
                    let begin = reactor::now();
                    let result = storage.apply(&bytes, Deadline::after(patience)).await;
                    if let Err(StorageError::Overloaded { .. }) = result {
                        let took = begin.elapsed();
                        let mut refused = refused.borrow_mut();
                        let (first, last) = refused.unwrap_or((took, took));
                        *refused = Some((first.min(took), last.max(took)));
                    } else if let Err(error) = result {
                        // Those whose turn came have as little time for the log, and for a memtable that is
                        // closed.
                        let late = [StorageError::CommitlogTimedOut, StorageError::TabletBusy { table: ID }];
                        assert!(late.iter().any(|late| late.to_string() == error.to_string()), "{error}");
                    }
                    drop(hold);
                })
                .detach();
            }
            gate.close().await;
            storage.drain().await.expect("a drain");
        }
    });
    world.set_disk_model(id, disk(10 << 20));
    let ended = world.run_steps(STEPS_MAX, |world| world.outcome(id).is_some());
    assert_eq!(world.outcome(id), Some(Ok(())), "{ended:?}");
    let (first, _) = refused.borrow().expect("refused writes");
    assert!(first < Duration::from_millis(10), "{first:?}");
}

#[test]
fn a_write_ends_at_its_deadline_while_the_disk_stands_still() {
    let mut world = World::new(3);
    let ended: Rc<RefCell<Vec<(u64, bool, u128)>>> = Rc::default();
    let of_node = Rc::clone(&ended);
    let id = world.add_node(1, move |_| {
        let ended = Rc::clone(&of_node);
        async move {
            let storage = open().await;
            let gate = Gate::new();
            let value = "v".repeat(100_000);
            // Six times 100 KB keep the disk busy for more than a second.
            for patience_ms in [5000, 300, 200, 250, 100, 5000] {
                let (storage, value, ended) = (storage.clone(), value.clone(), Rc::clone(&ended));
                let hold = gate.enter().expect("an open gate");
                reactor::spawn(Group::STATEMENT, async move {
                    let bytes = write(&patience_ms.to_string(), "c", &value, 1);
                    let begin = reactor::now();
                    let deadline = Deadline::after(Duration::from_millis(patience_ms));
                    let result = storage.apply(&bytes, deadline).await;
                    let late = matches!(result, Err(StorageError::CommitlogTimedOut));
                    assert!(late || result.is_ok(), "{result:?}");
                    ended.borrow_mut().push((patience_ms, late, begin.elapsed().as_millis()));
                    drop(hold);
                })
                .detach();
            }
            gate.close().await;
            storage.drain().await.expect("a drain");
        }
    });
    world.set_disk_model(id, disk(400_000));
    let over = world.run_steps(STEPS_MAX, |world| world.outcome(id).is_some());
    assert_eq!(world.outcome(id), Some(Ok(())), "{over:?}");
    let ended = ended.borrow();
    let late: Vec<u64> = ended.iter().filter(|(_, late, _)| *late).map(|(patience, ..)| *patience).collect();
    assert_eq!(late, [100, 200, 250, 300], "{ended:?}");
    for (patience_ms, late, took_ms) in ended.iter() {
        // A timer may be a tick late.
        let most = if *late { u128::from(patience_ms + 3) } else { 5000 };
        assert!(*took_ms <= most, "{ended:?}");
    }
}
