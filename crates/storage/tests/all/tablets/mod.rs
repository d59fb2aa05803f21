//! Tablets that come, go and move between shards while the node runs: nothing is lost, and nothing of an
//! earlier tenancy is read.

mod crash;
mod moves;
mod tenancies;
mod truncations;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use model::partition_key::DecoratedKey;
use model::tablet::{TabletId, TabletMap};
use reactor::sim::{NodeId, World};
use reactor::{Deadline, Group, mesh};
use storage::{
    AgreedChanges, AgreedSchema, CommitlogSync, FailurePolicy, OwnTablet, OwnTablets, PartitionRange,
    Storage, StorageConfig, StorageError,
};

use crate::table::{ID, changes_with, values, write};

/// Tablets of the table.
const LOG2: u8 = 2;
/// Its keys.
const KEYS: usize = 40;
const SHARDS: usize = 2;

/// Ownership by tablet: the shard and the tenancy of each that the node has.
type Own = BTreeMap<u32, (u16, u64)>;

fn told(own: &Own) -> OwnTablets {
    OwnTablets::told(own.iter().map(|(id, (shard, since))| {
        let own = OwnTablet { shard: *shard, since: *since };
        (TabletId(*id), own)
    }))
}

/// Each of the four tablets on the given shard, since the given command.
fn all_on(shards: [u16; 4], since: u64) -> Own {
    shards.iter().enumerate().map(|(id, shard)| (id as u32, (*shard, since))).collect()
}

/// Runs lives of a simulated node, which is told its tablets at each start.
struct Node {
    world: World,
    id: NodeId,
    work: Rc<RefCell<Option<Work>>>,
    own: Rc<RefCell<Option<Own>>>,
    policy: Rc<Cell<FailurePolicy>>,
    /// How many changes of the schema a start knows.
    changes: Rc<Cell<usize>>,
}

type Work = Box<dyn FnOnce(Storage) -> std::pin::Pin<Box<dyn Future<Output = ()>>>>;

fn config() -> StorageConfig {
    let mut config = StorageConfig::new("/n", 8 << 20);
    config.segment_bytes = 1 << 20;
    config.auto_compaction = false;
    config.commitlog_sync = CommitlogSync::Batch;
    config
}

impl Node {
    fn new(seed: u64) -> Self {
        let mut world = World::new(seed);
        let work: Rc<RefCell<Option<Work>>> = Rc::default();
        let own: Rc<RefCell<Option<Own>>> = Rc::default();
        let policy = Rc::new(Cell::new(FailurePolicy::Stop));
        let changes = Rc::new(Cell::new(2));
        let (of_work, of_own, of_policy) = (Rc::clone(&work), Rc::clone(&own), Rc::clone(&policy));
        let of_changes = Rc::clone(&changes);
        let id = world.add_node(SHARDS, move |info| {
            let (work, own, known) = (Rc::clone(&of_work), Rc::clone(&of_own), of_changes.get());
            let config = StorageConfig { disk_failure_policy: of_policy.get(), ..config() };
            async move {
                let Some(own) = own.borrow().clone() else { return };
                let agreed = AgreedSchema {
                    changes: changes_with(LOG2, |options| options.gc_grace_seconds = 0)[..known].to_vec(),
                    index: 2,
                    expects_manifest: false,
                    tablets: [(ID, told(&own))].into(),
                };
                let storage = if info.id == 0 {
                    Storage::open_first(config, SHARDS, std::future::ready(Ok(agreed))).await
                } else {
                    Storage::open_other(config, info.id, SHARDS).await
                };
                let storage = storage.expect("an open storage");
                if info.id == 0 {
                    let work = work.borrow_mut().take().expect("work for each life");
                    work(storage).await;
                }
            }
        });
        world.run().expect("a node that was told nothing ends at once");
        Self { world, id, work, own, policy, changes }
    }

    /// Begins a life that is told `own` and does `work` on shard 0.
    fn begin<F: Future<Output = ()> + 'static>(
        &mut self,
        own: &Own,
        work: impl FnOnce(Storage) -> F + 'static,
    ) {
        *self.own.borrow_mut() = Some(own.clone());
        *self.work.borrow_mut() = Some(Box::new(|storage| Box::pin(work(storage))));
        self.world.crash(self.id);
        self.world.restart(self.id);
    }

    /// A life to its end; nothing is flushed then.
    fn live<F: Future<Output = ()> + 'static>(
        &mut self,
        own: &Own,
        work: impl FnOnce(Storage) -> F + 'static,
    ) {
        self.begin(own, work);
        self.world.run_until(|world| world.is_ended(self.id)).expect("an end");
        assert_eq!(self.world.outcome(self.id), Some(Ok(())), "{}", self.world.log().join("\n"));
    }

    fn said(&self, what: &str) -> usize {
        self.world.log().iter().filter(|line| line.contains(what)).count()
    }
}

fn key(number: usize) -> String {
    format!("key{number}")
}

fn tablet_of(key: &str) -> TabletId {
    TabletMap::new(LOG2).tablet_of(DecoratedKey::new(key.as_bytes().to_vec()).token)
}

/// An error as it may travel between shards.
fn words(error: StorageError) -> String {
    format!("{error:?}")
}

/// Does something with the storage of a shard.
async fn on<R: Send + 'static>(shard: usize, work: impl AsyncFnOnce(Storage) -> R + Send + 'static) -> R {
    let called = mesh::call(shard, Group::STATEMENT, move || async move {
        let storage = reactor::local::<Storage>().expect("an open storage");
        work((*storage).clone()).await
    });
    called.await.expect("an answer")
}

/// Tells the node of other tablets.
async fn tell(storage: &Storage, own: &Own) {
    let agreed = AgreedChanges { tablets: [(ID, told(own))].into(), ..AgreedChanges::default() };
    storage.apply_agreed(2, &agreed).await.expect("every shard is told");
}

/// Writes a value of a key on the shard that has it by `own`.
async fn put(own: &Own, number: usize, value: &str, timestamp: i64) -> Result<(), String> {
    let (shard, _) = own[&tablet_of(&key(number)).0];
    let bytes = write(&key(number), "c", value, timestamp);
    on(usize::from(shard), async move |storage| {
        storage.apply(&bytes, Deadline::after(Duration::from_secs(30))).await.map_err(words)
    })
    .await
}

/// The values of the partition of a key, read on a shard.
async fn get(shard: usize, number: usize) -> Result<Option<String>, String> {
    on(shard, async move |storage| {
        let range = PartitionRange::Key(DecoratedKey::new(key(number).into_bytes()));
        let found = values(&storage, range).await.map_err(words)?;
        Ok(found.into_iter().map(|(_, value)| String::from_utf8(value).expect("text")).next())
    })
    .await
}

/// All values by key: those of a shard.
async fn on_shard(shard: usize) -> BTreeMap<String, String> {
    on(shard, async |storage| {
        let found = values(&storage, PartitionRange::all()).await.expect("a read");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        found.into_iter().map(|(key, value)| (text(key), text(value))).collect()
    })
    .await
}

/// Checks that each shard has just the values of its tablets by `own`.
async fn check(own: &Own, expected: &BTreeMap<String, String>) {
    for shard in 0..SHARDS {
        let is_here = |key: &str| own.get(&tablet_of(key).0).is_some_and(|(at, _)| usize::from(*at) == shard);
        let expected: BTreeMap<_, _> =
            expected.iter().filter(|(key, _)| is_here(key)).map(|(k, v)| (k.clone(), v.clone())).collect();
        assert_eq!(on_shard(shard).await, expected, "shard {shard}");
    }
}

/// Flushes the table on a shard.
async fn flush(shard: usize) {
    on(shard, async |storage| storage.flush(ID).await.map_err(words)).await.expect("a flush");
}

/// Numbers of all table files, checked to be in one tablet each.
async fn numbers() -> BTreeSet<u64> {
    let mut all = BTreeSet::new();
    for shard in 0..SHARDS {
        let here = on(shard, async |storage| storage.table_files(ID).expect("the table")).await;
        for file in here {
            assert!(all.insert(file.generation), "file {} is in two tablets", file.generation);
        }
    }
    all
}

/// A count that the node and the test share.
fn counter() -> Rc<Cell<usize>> {
    Rc::new(Cell::new(0))
}
