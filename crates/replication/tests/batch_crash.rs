//! A logged batch over several partitions and shards is seen whole or not at all after a crash at any moment,
//! and whole if it was acknowledged.

#[path = "../../storage/tests/table/mod.rs"]
mod table;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use model::Table;
use model::clustering::Slice;
use model::{RowView, Token};
use reactor::sim::{DiskFaults, World};
use reactor::{Deadline, Event, Group, ShardInfo, mesh};
use replication::{BatchWrite, Consistency, ReadLimits, Replicator};
use storage::{CommitlogSync, Flow, PartitionRange, ReadCommand, RowConsumer, StorageConfig};

const SHARDS: usize = 3;
/// Partitions of one batch.
const WRITES: usize = 5;
const LIVES: usize = 10;
const SEEDS: u64 = 8;
/// Batches on their way at once.
const AT_ONCE: usize = 3;

#[derive(Default)]
struct Shared {
    batch_mode: Cell<bool>,
    next: Cell<u32>,
    acknowledged: RefCell<BTreeSet<u32>>,
    /// Batches found whole after a crash although they had not been acknowledged.
    finished: RefCell<BTreeSet<u32>>,
    lives: Cell<usize>,
}

#[derive(Default)]
struct Keys(Vec<String>);

impl RowConsumer for Keys {
    fn partition(&mut self, key: &[u8], _: Token, _: Option<RowView<'_>>) -> Flow {
        self.0.push(String::from_utf8(key.to_vec()).expect("a key that was written"));
        Flow::Continue
    }
    fn row(&mut self, _: &[u8], _: RowView<'_>) -> Flow {
        Flow::Continue
    }
    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }
}

/// Shards that have reported to shard 0 that they are ready.
#[derive(Default)]
struct Peers {
    ready: Cell<usize>,
    changed: Event,
}

impl Peers {
    fn here() -> Rc<Self> {
        reactor::local::<Self>().unwrap_or_else(|| {
            let peers = Rc::new(Self::default());
            reactor::set_local(Rc::clone(&peers));
            peers
        })
    }
}

async fn node(info: ShardInfo, shared: Rc<Shared>) {
    let mut config = StorageConfig::new(Path::new("/ceto"), 8 << 20);
    // Small, because a start reads whole segments.
    config.segment_bytes = 128 << 10;
    config.commitlog_bytes_max = 4 << 20;
    if shared.batch_mode.get() {
        config.commitlog_sync = CommitlogSync::Batch;
    }
    let storage = cluster::open_storage(config, info.id, info.count).await.expect("an open storage");
    let replicator = Replicator::new(storage.clone(), "datacenter1");
    // The other shards report when their replicators are there.
    mesh::call(0, Group::ADMIN, || async {
        let peers = Peers::here();
        peers.ready.set(peers.ready.get() + 1);
        peers.changed.notify_all();
    })
    .await
    .expect("shard 0");
    if info.id != 0 {
        return;
    }
    let peers = Peers::here();
    peers.changed.wait_until(|| peers.ready.get() == info.count).await;
    let schema = storage.schema();
    for change in table::changes() {
        // A crash may have come between the two.
        if (*schema).clone().apply(&change).is_ok() || schema.table_by_id(table::ID).is_none() {
            let _ = cluster::change_schema(&change).await;
        }
    }
    let table = storage.schema().table_by_id(table::ID).cloned().expect("the table");
    check(&replicator, &table, &shared).await;
    shared.lives.set(shared.lives.get() + 1);
    let workers: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            let (replicator, table, shared) = (replicator.clone(), Rc::clone(&table), Rc::clone(&shared));
            reactor::spawn(Group::STATEMENT, async move { work(replicator, table, shared).await })
        })
        .collect();
    for worker in workers {
        worker.await.expect("a worker");
    }
}

async fn work(replicator: Replicator, table: Rc<Table>, shared: Rc<Shared>) {
    for _ in 0..200 {
        let number = shared.next.get();
        shared.next.set(number + 1);
        let writes = (0..WRITES).map(|at| BatchWrite {
            table: Rc::clone(&table),
            mutation: table::write(&format!("{number}/{at}"), "c", "v", i64::from(number)),
        });
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_le_bytes());
        let deadline = Deadline::after(Duration::from_secs(5));
        let written = replicator.write_batch(id, writes.collect(), Consistency::One, deadline).await;
        if written.is_ok() {
            shared.acknowledged.borrow_mut().insert(number);
        }
    }
}

async fn check(replicator: &Replicator, table: &Rc<Table>, shared: &Shared) {
    let slices = [Slice::all()].into_iter().collect();
    let table = Rc::clone(table);
    let command = ReadCommand {
        table,
        range: PartitionRange::all(),
        slices,
        reversed: false,
        now: 1_700_000_000,
        bypass_cache: false,
    };
    let mut keys = Keys::default();
    replicator
        .read(&command, ReadLimits::default(), Consistency::One, Deadline::NEVER, &mut keys)
        .await
        .expect("a read");
    let mut found: BTreeMap<u32, usize> = BTreeMap::new();
    for key in &keys.0 {
        let (number, _) = key.split_once('/').expect("a key that was written");
        *found.entry(number.parse().expect("a number")).or_default() += 1;
    }
    for (number, writes) in &found {
        assert_eq!(*writes, WRITES, "batch {number} is there in part");
    }
    for number in shared.acknowledged.borrow().iter() {
        assert!(found.contains_key(number), "batch {number} was acknowledged and is gone");
    }
    let acknowledged = shared.acknowledged.borrow();
    let silent = found.keys().filter(|number| !acknowledged.contains(number));
    shared.finished.borrow_mut().extend(silent);
}

/// Crashes at random; returns lives that worked, batches acknowledged, and batches found whole that were not.
fn run(seed: u64, batch_mode: bool) -> (usize, usize, usize) {
    let mut world = World::new(seed);
    let shared = Rc::new(Shared::default());
    shared.batch_mode.set(batch_mode);
    let of_node = Rc::clone(&shared);
    // In periodic mode only the end of the process is survived without loss, as it is promised.
    let faults = DiskFaults { lose_unsynced: batch_mode, ..DiskFaults::default() };
    let id = world.add_node_with(SHARDS, faults, move |info| node(info, Rc::clone(&of_node)));
    for _ in 0..LIVES {
        let time = Duration::from_micros(2_000 + world.random_u64() % 40_000);
        let _ = world.run_for(time);
        if let Some(Err(problem)) = world.outcome(id) {
            panic!("seed {seed}: {problem}");
        }
        world.crash(id);
        world.restart(id);
    }
    let _ = world.run_for(Duration::from_millis(50));
    if let Some(Err(problem)) = world.outcome(id) {
        panic!("seed {seed}: {problem}");
    }
    (shared.lives.get(), shared.acknowledged.borrow().len(), shared.finished.borrow().len())
}

#[test]
fn a_crash_leaves_batches_whole_or_not_at_all() {
    for batch_mode in [false, true] {
        let (mut lives, mut acknowledged, mut finished) = (0, 0, 0);
        for seed in 0..SEEDS {
            let (more, written, completed) = run(seed, batch_mode);
            lives += more;
            acknowledged += written;
            finished += completed;
        }
        println!("batch mode {batch_mode}: {lives} lives, {acknowledged} batches, {finished} of crashes");
        assert!(lives > 40 && acknowledged > 500, "{lives} lives with {acknowledged} batches say little");
        assert!(finished > 10, "only {finished} batches were cut off by a crash and finished");
    }
}
