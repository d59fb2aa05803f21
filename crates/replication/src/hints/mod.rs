//! Hinted handoff: what a replica on another node missed is kept here and delivered once that node is up.
//!
//! Whoever plans a write leaves a hint for each replica that is down, and for each that failed or did not
//! answer in time (`write/collect`). `store` has hints in files, `format` is their form
//! (docs/formats/hints.md), `writer` writes them, `reader` reads them past damage, `replay` delivers them in
//! the group `background`. Hints belong to the shard that coordinated the write. A delivered write carries
//! the time at which it was born: a replica drops one that lies before its table's purge horizon, because
//! what deleted its data may be forgotten (`write/late`). Invariant: a hint is removed only after its host,
//! or today's replicas, or their own durable hints have the write, or after it is too old to be applied.

mod error;
mod format;
pub(crate) mod fuzzing;
mod metrics;
mod reader;
mod replay;
mod store;
mod writer;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use model::Table;
use model::mutation::MutationView;
use model::tablet::{FIRST_NODE, NodeNumber};
use reactor::{Deadline, Event, Gate, GateHold, Group, Instant, Semaphore};

pub use error::HintsError;
pub(crate) use format::Hint;

use crate::peers::NodeChange;
use crate::plan::{Distance, Planned};
use crate::replicator::{Replicator, WeakReplicator};
use crate::write::late::now_seconds;
use metrics::HintsMetrics;
use store::{Store, StoreOptions};

/// Bytes of an entry beyond its mutation, at most.
const ENTRY_OVERHEAD_BYTES: usize = 64;

/// Settings of hints and of batches that are written out late; the same on every shard of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HintsConfig {
    /// `hints_directory`
    pub folder: PathBuf,
    /// `hinted_handoff_enabled`: whether writes leave hints. Batches leave some in any case.
    pub is_on: bool,
    /// `hinted_handoff_disabled_datacenters`: writes leave no hints for nodes of these.
    pub data_centers_without: Vec<String>,
    /// `max_hint_window`: how long a node may be down until it gets no more hints.
    pub window: Duration,
    /// `max_hints_size_per_host`, of all shards; 0: only a tenth of the free space limits hints.
    pub host_bytes_max: u64,
    /// `max_hints_file_size`: a file that has grown so far is complete.
    pub file_bytes_max: u64,
    /// `hints_flush_period`: longest time until a hint is durable.
    pub sync_every: Duration,
    /// `hinted_handoff_throttle`: bytes per second that are delivered to a node, shared out among all nodes
    /// that may deliver to it at once; 0 for no limit.
    pub bytes_per_second: u64,
    /// `max_hints_delivery_threads`: nodes that a shard delivers to at once.
    pub hosts_at_once: usize,
    /// `batchlog_replay_throttle`: bytes per second of batches that a shard writes out late, shared out as
    /// above; 0 for no limit.
    pub batch_bytes_per_second: u64,
    /// How long a coordinator may take for a batch until its keepers write it out: twice
    /// `write_request_timeout`.
    pub batch_patience: Duration,
}

impl HintsConfig {
    /// Cassandra's defaults, with the files in `folder`.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            is_on: true,
            data_centers_without: Vec::new(),
            window: Duration::from_secs(3 * 3600),
            host_bytes_max: 0,
            file_bytes_max: 128 << 20,
            sync_every: Duration::from_secs(10),
            bytes_per_second: 1 << 20,
            hosts_at_once: 2,
            batch_bytes_per_second: 1 << 20,
            batch_patience: Duration::from_secs(4),
        }
    }
}

/// Hints that a shard keeps for one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingHints {
    /// The host's id.
    pub host_id: [u8; 16],
    /// Files.
    pub files: u64,
    /// When the newest of them was made, microseconds since 1970.
    pub newest_us: i64,
    /// When the oldest was made.
    pub oldest_us: i64,
}

/// One shard's hints.
pub(crate) struct Hints {
    config: HintsConfig,
    store: Store,
    metrics: Rc<HintsMetrics>,
    /// Since when nodes have been down, as this shard was told.
    down_since: RefCell<BTreeMap<NodeNumber, Instant>>,
    started: Instant,
    /// Hosts whose hints are being delivered.
    delivering: RefCell<BTreeSet<[u8; 16]>>,
    deliveries: Semaphore,
    /// Work that leaves hints: the last sync waits for it.
    users: Gate,
    tasks: Gate,
    is_stopping: Cell<bool>,
    stopping: Event,
    /// Whether the writer has to end.
    is_ending: Cell<bool>,
    writer: RefCell<Option<reactor::JoinHandle<()>>>,
}

impl Hints {
    /// Opens this shard's hints and starts to write and deliver them.
    ///
    /// # Errors
    /// File errors.
    pub(crate) async fn start(replicator: &Replicator, config: HintsConfig) -> Result<Rc<Self>, HintsError> {
        let metrics = Rc::new(HintsMetrics::new());
        let storage = replicator.storage();
        let shards = reactor::shard_count() as u64;
        let mut charge = storage.charge_work();
        let options = StoreOptions {
            folder: config.folder.clone(),
            segment_bytes: (config.file_bytes_max / shards).max(1),
            host_bytes_max: (config.host_bytes_max > 0).then(|| config.host_bytes_max.div_ceil(shards)),
            entry_bytes_max: storage.mutation_bytes_max() + ENTRY_OVERHEAD_BYTES,
            charge: Box::new(move |bytes| charge.set(bytes)),
        };
        let store = Store::open(options, Rc::clone(&metrics)).await?;
        let hints = Rc::new(Self {
            deliveries: Semaphore::new(config.hosts_at_once.max(1)),
            config,
            store,
            metrics,
            down_since: RefCell::default(),
            started: reactor::now(),
            delivering: RefCell::default(),
            users: Gate::new(),
            tasks: Gate::new(),
            is_stopping: Cell::new(false),
            stopping: Event::new(),
            is_ending: Cell::new(false),
            writer: RefCell::default(),
        });
        let writing = Rc::clone(&hints);
        let writer = reactor::spawn(Group::COMMITLOG, async move {
            writing.store.run(writing.config.sync_every, &writing.is_ending).await;
        });
        hints.writer.replace(Some(writer));
        Ok(hints)
    }

    /// Follows which nodes are up, and looks for hints to deliver at every change and now and then.
    fn watch(self: &Rc<Self>, weak: WeakReplicator, replicator: &Replicator) {
        let (hints, of_changes) = (Rc::downgrade(self), weak.clone());
        replicator.peers().on_change(Rc::new(move |change| {
            let (Some(hints), Some(replicator)) = (hints.upgrade(), of_changes.get()) else { return };
            match change {
                NodeChange::Up(node) => {
                    hints.down_since.borrow_mut().remove(&node);
                    hints.deliver(&replicator);
                }
                NodeChange::Down(node) => {
                    hints.down_since.borrow_mut().entry(node).or_insert_with(reactor::now);
                }
            }
        }));
        let hints = Rc::clone(self);
        let Ok(hold) = self.tasks.enter() else { return };
        reactor::spawn(Group::BACKGROUND, async move {
            while let Some(replicator) = weak.get() {
                hints.deliver(&replicator);
                if !hints.wait(hints.config.sync_every).await {
                    break;
                }
            }
            drop(hold);
        })
        .detach();
    }

    /// The settings.
    pub(crate) fn config(&self) -> &HintsConfig {
        &self.config
    }

    /// Lets work begin that may leave hints; `None` at the end of the shard.
    pub(crate) fn enter(&self) -> Option<GateHold> {
        self.users.enter().ok()
    }

    /// Lets a task begin that ends when the shard stops; `None` once that has begun.
    pub(crate) fn begin_task(&self) -> Option<GateHold> {
        self.tasks.enter().ok()
    }

    /// Waits for `time`, or less if the shard stops. Returns whether it goes on.
    pub(crate) async fn wait(&self, time: Duration) -> bool {
        let stopping = self.stopping.wait_until(|| self.is_stopping.get());
        reactor::timeout(Deadline::after(time), stopping).await.is_err()
    }

    /// Whether the shard stops.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.get()
    }

    /// Leaves a hint for a replica that missed a write, unless the settings or its table want none. Returns
    /// whether it was kept; it is durable after [`HintsConfig::sync_every`], or [`Hints::synced`].
    pub(crate) fn leave(
        &self,
        replicator: &Replicator,
        (planned, version): (&Planned, u64),
        mutation: &Rc<[u8]>,
        born_us: i64,
    ) -> bool {
        self.is_wanted(replicator, planned, mutation)
            && self.keep(replicator, (planned, version), mutation, born_us).is_ok()
    }

    /// Keeps a hint whatever the settings say: for writes that were promised.
    ///
    /// # Errors
    /// [`HintsError::Full`]; [`HintsError::Ended`] for a replica of this node or of an unknown one.
    pub(crate) fn keep(
        &self,
        replicator: &Replicator,
        (planned, version): (&Planned, u64),
        mutation: &Rc<[u8]>,
        born_us: i64,
    ) -> Result<[u8; 16], HintsError> {
        let host = replicator.host_id_of(planned.replica.node);
        let host = host.filter(|_| planned.distance > Distance::Node).ok_or(HintsError::Ended)?;
        let mutation = Rc::clone(mutation);
        let hint = Hint { born_us, version, since: planned.since, attempts: 0, mutation };
        self.store.add(host, hint).inspect_err(|error| {
            reactor::warn_limited!("a hint is not kept: only reads and repairs will find what a node missed";
                node = planned.replica.node, error = error);
        })?;
        Ok(host)
    }

    /// Whether a write that a replica missed may leave a hint for it.
    fn is_wanted(&self, replicator: &Replicator, planned: &Planned, mutation: &[u8]) -> bool {
        let nodes = replicator.view().nodes();
        let Some(node) = nodes.get(&planned.replica.node) else { return false };
        let has_none = self.config.data_centers_without.contains(&node.data_center);
        let is_up = replicator.peers().is_up(planned.replica);
        if has_none || !self.is_in_window(node.number, is_up, &node.host_id) {
            return false;
        }
        let Ok(view) = MutationView::trusted(mutation) else { return false };
        let table = replicator.storage().borrow_schema().table_by_id(view.table).cloned();
        // Where deletions are not kept for a time, a late write may revive what was deleted.
        table.is_some_and(|table| replicator.leaves_hints_for(&table))
    }

    /// Whether a node has not been down for too long. Hints that were left for it before the last start
    /// count: it has been down since the oldest of them.
    fn is_in_window(&self, node: NodeNumber, is_up: bool, host: &[u8; 16]) -> bool {
        let down_since = || self.down_since.borrow().get(&node).copied().unwrap_or(self.started);
        let down_for = if is_up { Duration::ZERO } else { down_since().elapsed() };
        let oldest_us = self.store.oldest_us(host);
        let oldest_us = oldest_us.map_or(0, |oldest| reactor::wall_clock_us().saturating_sub(oldest));
        let oldest = Duration::from_micros(oldest_us.max(0).cast_unsigned());
        down_for.max(oldest) <= self.config.window
    }

    /// Waits until the hints that a host has been left are durable.
    ///
    /// # Errors
    /// [`HintsError::NotWritten`].
    pub(crate) async fn synced(&self, host: [u8; 16], deadline: Deadline) -> Result<(), HintsError> {
        let host = self.store.host(host);
        self.store.synced(&host, deadline).await
    }

    /// The hints that are kept, by host.
    pub(crate) fn pending(&self) -> Vec<PendingHints> {
        let pending = |host: Rc<store::Host>| {
            let (files, oldest_us, newest_us) = host.span()?;
            Some(PendingHints { host_id: host.id, files: files as u64, newest_us, oldest_us })
        };
        self.store.hosts().into_iter().filter_map(pending).collect()
    }

    /// Has deliveries and tasks end.
    pub(crate) fn begin_stop(&self) {
        self.is_stopping.set(true);
        self.stopping.notify_all();
    }

    /// Waits for deliveries and tasks, which [`Hints::begin_stop`] ends, and for work that may leave hints;
    /// then makes all hints durable.
    pub(crate) async fn stop(&self) {
        assert!(self.is_stopping(), "tasks are told to end before they are waited for");
        self.tasks.close().await;
        self.users.close().await;
        self.is_ending.set(true);
        self.store.wanted.notify_all();
        let writer = self.writer.take();
        if let Some(writer) = writer
            && let Err(error) = writer.await
        {
            reactor::error!("the writer of hints broke: {error}");
        }
    }
}

impl Replicator {
    /// Opens this shard's hints, delivers those of earlier starts, and finishes the batches that it kept for
    /// coordinators. Before, no write leaves a hint, and no batch is kept.
    ///
    /// # Errors
    /// File errors of hints.
    pub async fn start_late(&self, config: HintsConfig) -> Result<(), HintsError> {
        let hints = Hints::start(self, config).await?;
        reactor::set_local(Rc::clone(&hints));
        self.start_keeping(&hints);
        hints.watch(self.downgrade(), self);
        Ok(())
    }

    /// Ends deliveries of hints and of kept batches, and makes all hints durable. Connections with other
    /// nodes have ended, or no write begins any more.
    pub async fn stop_late(&self) {
        let Some(hints) = self.hints() else { return };
        hints.begin_stop();
        self.wake_keeping();
        hints.stop().await;
    }

    /// What other nodes missed; `None` before [`Replicator::start_late`].
    pub(crate) fn hints(&self) -> Option<Rc<Hints>> {
        reactor::local::<Hints>()
    }

    /// The hints that this shard keeps, by host.
    pub fn pending_hints(&self) -> Vec<PendingHints> {
        self.hints().map_or_else(Vec::new, |hints| hints.pending())
    }

    /// Whether writes of a table leave hints.
    pub(crate) fn leaves_hints_for(&self, table: &Table) -> bool {
        let now = now_seconds();
        self.hints().is_some_and(|hints| hints.config.is_on) && self.storage().purge_horizon(table, now) < now
    }
}

/// How many other nodes may deliver to one node at once: they share its throttle.
fn sharers(replicator: &Replicator) -> u64 {
    let nodes = replicator.view().nodes().len().max(usize::from(FIRST_NODE)) as u64;
    nodes.saturating_sub(1).max(1) * reactor::shard_count() as u64
}

/// How long work of so many bytes has to take in all at a rate that is shared out; zero where it is 0.
pub(crate) fn pace(replicator: &Replicator, bytes: u64, bytes_per_second: u64) -> Duration {
    if bytes_per_second == 0 {
        return Duration::ZERO;
    }
    let own = (bytes_per_second / sharers(replicator)).max(1);
    Duration::from_micros(bytes.saturating_mul(1_000_000) / own)
}

#[cfg(test)]
mod tests;
