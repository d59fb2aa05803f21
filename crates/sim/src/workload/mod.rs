//! The program of the simulated node: opens storage, checks what a crash left, then works at random and
//! checks every read.
//!
//! Operations go one after another, so that the order of the commit log is that of the history. The shared
//! state lives outside the node and survives its crashes.

mod after_start;
mod flip;
mod maintain;
mod moves;
mod read;
mod schema;
mod snapshot;
mod write;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use model::tablet::{TabletId, TabletMap};
use model::{Table, TableId};
use reactor::{Group, ShardInfo, mesh};
use storage::{CommitlogSync, FailurePolicy, Identity, Storage, StorageConfig, StorageError};

use crate::history::{History, IN_DOUBT_MAX};
use crate::table::{Dropped, token};
use snapshot::Snapshot;

/// Tables at work.
pub const SLOTS: usize = 3;
const KEYS: u8 = 12;
/// Tablets of each table.
const MAP: TabletMap = TabletMap::new(2);
const COMPONENTS: u64 = 5;
/// Between the timestamps of two writes; more than the next one.
const TIMESTAMP_STEP: i64 = 64;
/// Steps that a write is dated back at most.
const STEPS_BACK_MAX: i64 = 40;
/// More than writes are ever dated back.
const TIMESTAMP_GAP: i64 = (STEPS_BACK_MAX + 1) * TIMESTAMP_STEP;
/// Longest time between two flushes of the device in periodic mode.
const PERIOD: Duration = Duration::from_millis(200);

/// The folder in which the simulated node keeps everything.
pub const WORKDIR: &str = "/ceto";

/// The answer of a start to a name that was taken away.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Answer {
    /// Nothing was taken away.
    #[default]
    None,
    /// A name is away, and no start has answered yet.
    Asked,
    /// The start was refused, in these words.
    Refused(String),
    /// The start went on, and what is there has not been looked at yet.
    Started,
    /// The start went on, and under `disk_failure_policy: ignore` reads were refused, in these words.
    ReadsRefused(String),
    /// The start went on without the name, and all is there.
    WentOn,
}

/// State that outlives the node.
pub struct Shared {
    /// The model.
    pub history: History,
    /// Whether the commit log runs in batch mode.
    pub batch: bool,
    /// Shards of this life, and of the one before.
    pub shards: (usize, usize),
    /// Whether the last crash could lose what was not synced.
    pub lost_unsynced: bool,
    /// Whether this life's disk returns errors.
    pub faulty: bool,
    /// Operations promised to be durable, by shard.
    durable: Vec<usize>,
    /// Shards of tablets that were moved in this life, by slot and tablet.
    moved: BTreeMap<(usize, u32), usize>,
    /// Table in each slot, and one that may be there instead.
    tables: [Option<u128>; SLOTS],
    doubtful: Option<(usize, Option<u128>)>,
    /// A column that may have been dropped and made again.
    altering: Option<(usize, Dropped)>,
    keyspace: bool,
    next: u32,
    timestamps: i64,
    /// Steps still to do.
    pub steps: u64,
    /// The life is over: done, too much in doubt, or the disk failed at the start.
    pub over: bool,
    /// The present step of the workload.
    pub doing: &'static str,
    last: bool,
    last_checked: bool,
    /// A bit of a table file was flipped: from then on reads may fail.
    flipped: bool,
    /// Snapshot of each slot's table, its number and how many truncations the table had seen.
    snapshots: [Option<Snapshot>; SLOTS],
    /// The start's answer to a name that is away.
    pub answer: Answer,
    /// Whether a table file that cannot be opened ends that start, or fails the reads that may need it.
    pub policy: FailurePolicy,
    /// Lives that got as far as working.
    pub lives: u64,
    /// The failure, in words.
    pub failure: Option<String>,
}

/// A handle on it.
pub type SharedRef = Rc<RefCell<Shared>>;

impl Shared {
    /// Before the first life.
    pub fn new(batch: bool, shards: usize, steps: u64) -> SharedRef {
        Rc::new(RefCell::new(Self {
            history: History::default(),
            batch,
            shards: (shards, shards),
            lost_unsynced: false,
            faulty: false,
            durable: vec![0; shards],
            moved: BTreeMap::new(),
            tables: [None; SLOTS],
            doubtful: None,
            altering: None,
            keyspace: false,
            next: 1,
            timestamps: 1_000,
            steps,
            over: false,
            doing: "starting",
            last: false,
            last_checked: false,
            flipped: false,
            snapshots: [None; SLOTS],
            answer: Answer::None,
            policy: FailurePolicy::Ignore,
            lives: 0,
            failure: None,
        }))
    }

    /// From now on a life checks what it finds, and nothing else.
    pub fn last_check(&mut self) {
        self.last = true;
    }

    /// Whether such a life has come to its end.
    pub fn is_last_checked(&self) -> bool {
        self.last_checked
    }

    /// Whether a bit of a table file was flipped.
    pub fn is_flipped(&self) -> bool {
        self.flipped
    }

    /// Snapshots may have lost something: they are not used any more.
    pub fn forget_snapshots(&mut self) {
        self.snapshots = [None; SLOTS];
    }

    /// Whether requests may fail through no fault of the node's.
    fn may_fail(&self) -> bool {
        self.faulty || self.flipped
    }

    /// Notes the next answer to a name that is away, where there is one and it has answered `before`.
    fn answers(&mut self, before: &Answer, now: Answer) {
        if self.answer == *before {
            self.answer = now;
        }
    }

    /// A name is away since the crash: the next starts are asked what they make of it.
    pub fn ask(&mut self, policy: FailurePolicy) {
        self.policy = policy;
        self.answer = Answer::Asked;
    }

    /// The first look at what is there failed where a start went on without a name; whether it did so by the
    /// policy that lets it.
    fn reads_are_refused(&mut self, words: &str) -> bool {
        let is_refusal = self.answer == Answer::Started && self.policy == FailurePolicy::Ignore;
        if is_refusal {
            self.answer = Answer::ReadsRefused(words.to_owned());
            self.over = true;
        }
        is_refusal
    }

    /// A shard was not started, while a name is away; the first words count, others repeat them.
    fn refused(&mut self, words: String) {
        match self.answer {
            Answer::Asked => self.answer = Answer::Refused(words),
            Answer::Refused(_) => {}
            _ => self.fail(format!("a shard does not start after another one did: {words}")),
        }
        self.over = true;
    }

    fn fail(&mut self, what: String) {
        self.failure.get_or_insert(what);
        self.over = true;
    }
}

/// Settings of the simulated node: small, so that everything happens often.
pub fn config(batch: bool) -> StorageConfig {
    let mut config = StorageConfig::new(WORKDIR, 192 << 10);
    // A row cache of a few dozen rows.
    config.memory_bytes_max = 320 << 10;
    config.segment_bytes = 48 << 10;
    config.mutation_bytes_max = Some(120 << 10);
    config.commitlog_bytes_max = 480 << 10;
    config.commitlog_sync =
        if batch { CommitlogSync::Batch } else { CommitlogSync::Periodic { period: PERIOD } };
    config
}

/// The node's main, on each shard. Shards beyond those of this life stay idle.
pub async fn node(info: ShardInfo, shared: SharedRef) {
    let (shards, config) = {
        let shared = shared.borrow();
        let mut config = config(shared.batch);
        if shared.answer == Answer::Asked {
            config.disk_failure_policy = shared.policy;
        }
        (shared.shards.0, config)
    };
    if info.id < shards {
        match open(config, info.id, shards).await {
            Ok(storage) if info.id == 0 => {
                shared.borrow_mut().answers(&Answer::Asked, Answer::Started);
                let worked = Worker { storage, shared: Rc::clone(&shared), shards }.work().await;
                let mut shared = shared.borrow_mut();
                if let Err(failure) = worked {
                    shared.fail(failure);
                }
                shared.over = true;
            }
            Ok(_) => {}
            Err(error) => {
                let mut shared = shared.borrow_mut();
                if shared.answer != Answer::None {
                    shared.refused(error.to_string());
                } else if shared.may_fail() {
                    shared.over = true;
                    // Found at once.
                    shared.last_checked |= shared.flipped;
                } else {
                    shared.fail(format!("shard {} does not start: {error}", info.id));
                }
            }
        }
    }
    while !shared.borrow().over {
        reactor::sleep(Duration::from_millis(20)).await;
    }
}

/// Opens a shard's storage as a node does: who the node is and whose its folders are is found out before.
async fn open(config: StorageConfig, shard: usize, shards: usize) -> Result<Storage, StorageError> {
    if shard == 0 {
        Identity::open(Path::new(WORKDIR), "sim", &config).await?;
    }
    cluster::open_storage(config, shard, shards).await
}

struct Worker {
    storage: Storage,
    shared: SharedRef,
    shards: usize,
}

fn below(limit: u64) -> u64 {
    reactor::random_u64() % limit
}

fn seconds() -> u32 {
    u32::try_from(reactor::wall_clock_us() / 1_000_000).expect("a time before 2106")
}

impl Worker {
    async fn work(&self) -> Result<(), String> {
        if self.shared.borrow().flipped {
            self.check_flipped().await?;
            self.shared.borrow_mut().last_checked = true;
            return Ok(());
        }
        self.check_after_start().await?;
        self.shared.borrow_mut().answers(&Answer::Started, Answer::WentOn);
        self.shared.borrow_mut().lives += 1;
        if self.shared.borrow().last {
            // A drain that fails leaves the log to be replayed, which is as well.
            self.drain().await;
            let flipped = self.flip_a_bit().await?;
            self.shared.borrow_mut().last_checked = !flipped;
            return Ok(());
        }
        self.make_tables().await?;
        loop {
            {
                let mut shared = self.shared.borrow_mut();
                if shared.steps == 0
                    || shared.history.in_doubt() >= IN_DOUBT_MAX
                    || shared.doubtful.is_some()
                    || shared.altering.is_some()
                {
                    break;
                }
                shared.steps -= 1;
            }
            self.step().await?;
        }
        if below(3) == 0 {
            self.shared.borrow_mut().doing = "draining";
            self.drain().await;
        }
        Ok(())
    }

    async fn step(&self) -> Result<(), String> {
        let slot = below(SLOTS as u64) as usize;
        let step = below(42);
        self.shared.borrow_mut().doing = match step {
            0..=23 => "writing",
            24..=33 => "reading",
            34 | 35 => "flushing",
            36 => "compacting",
            37 => "truncating, or with a snapshot",
            38 => "making a table or a column anew",
            40 | 41 => "moving tablets",
            _ => "sleeping",
        };
        match step {
            0..=23 => self.write(slot).await,
            24..=31 => self.read(slot).await,
            32 | 33 => self.scan(slot).await,
            34 | 35 => self.flush(slot).await,
            36 => self.compact(slot).await,
            37 if below(3) == 0 => self.truncate(slot).await,
            37 if below(2) == 0 => self.snapshot(slot).await,
            37 => self.take_in_again(slot).await,
            38 if below(4) == 0 => self.remake(slot).await,
            38 if below(2) == 0 => self.alter(slot).await,
            40 | 41 => self.move_tablets(slot).await,
            _ => {
                let before = self.shared.borrow().history.len();
                reactor::sleep(PERIOD * (1 + below(8) as u32)).await;
                let calm = !self.shared.borrow().faulty;
                if calm && below(2) == 0 {
                    // Two whole periods and the time of a flush have passed for what was written before.
                    reactor::sleep(PERIOD * 3).await;
                    let mut shared = self.shared.borrow_mut();
                    shared.durable.iter_mut().for_each(|durable| *durable = before.max(*durable));
                }
                Ok(())
            }
        }
    }

    fn table_id(&self, slot: usize) -> Option<TableId> {
        self.shared.borrow().tables[slot].map(|id| TableId(id.to_be_bytes()))
    }

    fn table(&self, slot: usize) -> Option<Rc<Table>> {
        self.table_id(slot).and_then(|id| self.storage.schema().table_by_id(id).cloned())
    }

    /// The shard of a key.
    fn owner(&self, slot: usize, key: u8) -> usize {
        self.place(slot, tablet_of(key))
    }

    /// The shard of a tablet, where it is or is on its way to.
    fn place(&self, slot: usize, tablet: TabletId) -> usize {
        place((slot, tablet), self.shards, &self.shared.borrow().moved)
    }

    /// Runs something with the storage of a shard; its error in words.
    async fn on<R: Send + 'static>(
        &self,
        shard: usize,
        work: impl AsyncFnOnce(Storage) -> Result<R, String> + Send + 'static,
    ) -> Result<R, String> {
        let called = mesh::call(shard, Group::STATEMENT, move || async move {
            let storage = reactor::local::<Storage>().ok_or("no storage")?;
            work((*storage).clone()).await
        });
        called.await.map_err(|error| error.to_string())?
    }

    fn unless_faulty(&self, what: &str) -> Result<(), String> {
        if self.shared.borrow().may_fail() { Ok(()) } else { Err(what.to_owned()) }
    }
}

fn tablet_of(key: u8) -> TabletId {
    MAP.tablet_of(token(key))
}

/// The shard of a tablet in a life with so many shards, where some tablets were moved.
fn place((slot, tablet): (usize, TabletId), shards: usize, moved: &BTreeMap<(usize, u32), usize>) -> usize {
    moved.get(&(slot, tablet.0)).copied().unwrap_or_else(|| MAP.shard_of(tablet, shards))
}
