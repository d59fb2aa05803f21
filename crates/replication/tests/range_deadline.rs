//! A range has a deadline for each fetch of it, not for the whole.

#[path = "../../storage/tests/table/mod.rs"]
mod table;

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use model::clustering::Slice;
use model::{RowView, Token};
use reactor::Deadline;
use reactor::sim::{DiskFaults, World};
use replication::{Consistency, ReadLimits, ReplicationError, Replicator};
use storage::{Flow, PartitionRange, ReadCommand, RowConsumer, StorageConfig};

const ROWS: usize = 24_000;
const STEPS_MAX: u64 = 50_000_000;

#[derive(Default)]
struct Count(usize);

impl RowConsumer for Count {
    fn partition(&mut self, _: &[u8], _: Token, _: Option<RowView<'_>>) -> Flow {
        Flow::Continue
    }
    fn row(&mut self, _: &[u8], _: RowView<'_>) -> Flow {
        self.0 += 1;
        Flow::Continue
    }
    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

/// Rows read, time taken, and the result.
type Outcome = (usize, Duration, Result<(), ReplicationError>);

#[derive(Default)]
struct Shared {
    /// Rows are in table files.
    filled: Cell<bool>,
    read: RefCell<Option<Outcome>>,
}

async fn node(shared: Rc<Shared>) {
    let config = StorageConfig::new(Path::new("/ceto"), 256 << 20);
    let storage = cluster::open_storage(config, 0, 1).await.expect("an open storage");
    for change in table::changes() {
        cluster::change_schema(&change).await.expect("a schema change");
    }
    let value = "x".repeat(1024);
    for row in 0..ROWS {
        let bytes = table::write(&format!("key{}", row / 100), &format!("{row:06}"), &value, 1);
        storage.apply(&bytes, Deadline::NEVER).await.expect("a write");
    }
    storage.flush(table::ID).await.expect("a flush");
    shared.filled.set(true);
    // The world makes the disk slow before it goes on.
    reactor::yield_now().await;
    let replicator = Replicator::new(storage.clone(), "datacenter1");
    let table = storage.schema().table_by_id(table::ID).cloned().expect("the table");
    let slices = [Slice::all()].into_iter().collect();
    let command = ReadCommand {
        table,
        range: PartitionRange::all(),
        slices,
        reversed: false,
        now: 1_700_000_000,
        bypass_cache: false,
    };
    let (start, mut count) = (reactor::now(), Count::default());
    let deadline = Deadline::after(Duration::from_secs(10));
    let read = replicator.read(&command, ReadLimits::default(), Consistency::One, deadline, &mut count).await;
    *shared.read.borrow_mut() = Some((count.0, reactor::now().since(start), read));
}

fn read_with(latency: Duration) -> Outcome {
    let mut world = World::new(1);
    let shared = Rc::new(Shared::default());
    let of_node = Rc::clone(&shared);
    let id = world.add_node(1, move |_| node(Rc::clone(&of_node)));
    world.run_steps(STEPS_MAX, |_| shared.filled.get()).expect("rows in table files");
    let latency_ns = latency.as_nanos() as u64;
    world.set_disk_faults(id, DiskFaults { latency_ns: (latency_ns, latency_ns), ..DiskFaults::default() });
    world.run_steps(STEPS_MAX, |_| shared.read.borrow().is_some()).expect("an answer");
    shared.read.take().expect("an answer")
}

#[test]
fn a_scan_may_take_longer_than_the_timeout_as_long_as_each_fetch_comes_in_time() {
    let (rows, time, outcome) = read_with(Duration::from_millis(100));
    assert!(outcome.is_ok(), "{outcome:?} after {time:?}");
    assert_eq!(rows, ROWS);
    assert!(time > Duration::from_secs(12), "{time:?} is no test of it");
}

#[test]
fn a_fetch_that_takes_too_long_ends_the_scan() {
    let (rows, time, outcome) = read_with(Duration::from_millis(200));
    assert!(matches!(outcome, Err(ReplicationError::TimedOut { .. })), "{outcome:?}");
    assert!(rows < ROWS, "{rows} rows");
    assert!(time >= Duration::from_secs(10) && time < Duration::from_secs(20), "{time:?}");
}
