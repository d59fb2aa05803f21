//! The control plane of a node, on shard 0: opens group 0 below the storage, and lets what was agreed upon
//! take effect on every shard.
//!
//! The path of a change of the schema: [`Turn::change`] on shard 0 → `Storage::prepare_changes` → group 0
//! (durable, applied to the state) → the [`View`] of every shard → `Storage::apply_agreed` on every shard, in
//! the order of the log → answer. Effects follow the state: a shard that could not apply a change gets it from
//! the state at the next start, as a node that crashed between the two does. Invariant: no other change comes
//! between planning and applying, which the one permit for changes ensures.

mod founding;
mod turn;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use model::schema::{ChangeError, SchemaChange};
use model::tablet::{FIRST_NODE, NodeNumber};
use reactor::{Event, Group, Semaphore, mesh};
use storage::{AgreedSchema, EarlierSchema, Storage, StorageConfig, StorageError};

pub use turn::Turn;

use crate::consensus::LogLimits;
use crate::group0::{Applied, Change, ClusterState, Group0, Group0Error, GroupFailure, Refusal};
use crate::nodes::OwnFacts;
use crate::view::{News, View};

/// A change was not made, or did not take effect everywhere.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClusterError {
    /// The change does not follow on the schema.
    #[error(transparent)]
    Misfit(#[from] ChangeError),
    /// The storage could not prepare for the change, which was not made.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Group 0 did not take it.
    #[error(transparent)]
    Group0(#[from] Group0Error),
    /// Group 0 refused it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The change is durable, and a shard could not apply it: it will at the next start.
    #[error("the change is durable and takes effect everywhere only at the next start: {0}")]
    Effect(StorageError),
    /// Too many changes wait for their turn.
    #[error("too many schema changes are waiting for their turn")]
    TooManyWaiting,
    /// The control plane of this node has not started, or has ended.
    #[error("this node's control plane is not open")]
    NotOpen,
    /// Shard 0, asked by another shard, failed.
    #[error("shard 0: {reason}")]
    Shard {
        /// Its error.
        reason: String,
    },
}

/// A command on its way to the shards.
struct Effect {
    index: u64,
    changes: Vec<SchemaChange>,
    news: News,
}

/// The control plane, on shard 0.
pub struct ControlPlane {
    group: Group0,
    /// Set once the storage is open.
    storage: OnceCell<Storage>,
    effects: RefCell<VecDeque<Effect>>,
    /// The state after the last command whose effects are in `effects`.
    seen: RefCell<Rc<ClusterState>>,
    /// Whether a task carries effects to the shards.
    working: Cell<bool>,
    /// Index of the last command whose effects were carried to every shard.
    effective: Cell<u64>,
    /// The last command that a shard could not apply.
    failure: RefCell<Option<(u64, StorageError)>>,
    progress: Event,
    turn: Rc<Semaphore>,
    sequence: Cell<u64>,
}

/// As [`open_node`], for a node that nobody else will meet: for tests and benches.
///
/// # Errors
/// As [`open_node`].
pub async fn open_storage(
    config: StorageConfig,
    shard: usize,
    shards: usize,
) -> Result<Storage, StorageError> {
    open_node(config, OwnFacts::unnamed(shards), shard).await
}

/// Opens a shard's storage with the schema and the tablets on which the node has agreed. Call it on each
/// shard at about the same time; shard 0 opens group 0 first. The first start of this version takes over the
/// schema of an earlier version's log, or of an Apache Cassandra node's data directory.
///
/// # Errors
/// [`StorageError::ControlPlane`] for damage of group 0's files; those of the storage.
pub async fn open_node(
    config: StorageConfig,
    facts: OwnFacts,
    shard: usize,
) -> Result<Storage, StorageError> {
    let shards = usize::from(facts.shards);
    if shard != 0 {
        return Storage::open_other(config, shard, shards).await;
    }
    let opened = Rc::new(OnceCell::new());
    let agreed = {
        let (config, opened) = (config.clone(), Rc::clone(&opened));
        async move {
            let earlier = EarlierSchema::read(&config, shards).await?;
            let (control, agreed) = open_group(&config, &facts, earlier.as_ref()).await?;
            let news = News::of(&control.group.state(), control.group.number());
            tell_shards(&news, shards).await?;
            drop(opened.set((control, earlier)));
            Ok(agreed)
        }
    };
    let storage = Storage::open_first(config.clone(), shards, agreed).await?;
    let (control, earlier) = Rc::into_inner(opened)
        .and_then(OnceCell::into_inner)
        .expect("a storage that is open has asked for its schema");
    if earlier.is_some() {
        EarlierSchema::retire(&config).await?;
    }
    drop(control.storage.set(storage.clone()));
    let control = Rc::new(control);
    control.follow();
    reactor::set_local(control);
    Ok(storage)
}

/// Opens group 0, or founds it with the schema of earlier; afterwards it knows this node as it is now.
async fn open_group(
    config: &StorageConfig,
    facts: &OwnFacts,
    earlier: Option<&EarlierSchema>,
) -> Result<(ControlPlane, AgreedSchema), StorageError> {
    let failed = |failure: GroupFailure| StorageError::ControlPlane(Rc::new(failure));
    let folder = config.group0_dir();
    let exists = reactor::file::exists(&folder).await.map_err(StorageError::of("look for", &folder))?;
    if !exists {
        let history = earlier.map(|earlier| earlier.changes.as_slice()).unwrap_or_default();
        let state = ClusterState::of_history(history)?;
        let index = earlier.map_or(0, |earlier| earlier.index);
        Group0::create(&folder, FIRST_NODE, index, state).await.map_err(failed)?;
    }
    let number_in = |state: &ClusterState| founding::own_number(state, facts);
    let group = Group0::open(&folder, number_in, LogLimits::default()).await.map_err(failed)?;
    if let Some(earlier) = earlier {
        earlier.check(config, group.state().schema())?;
    }
    let sequence = Cell::new(0);
    founding::introduce(&group, facts, &sequence).await?;
    let state = group.state();
    let agreed = AgreedSchema {
        changes: state.history(),
        index: state.last_command(),
        expects_manifest: earlier.map_or(exists, |earlier| earlier.expects_manifest),
    };
    let control = ControlPlane {
        effective: Cell::new(group.applied()),
        group,
        storage: OnceCell::new(),
        effects: RefCell::default(),
        seen: RefCell::new(Rc::clone(&state)),
        working: Cell::new(false),
        failure: RefCell::new(None),
        progress: Event::new(),
        turn: Rc::new(Semaphore::new(1)),
        sequence,
    };
    Ok((control, agreed))
}

/// Makes a change of the schema, whatever it was planned with. May be called on any shard.
///
/// # Errors
/// [`ClusterError`]; only after `Effect` and `Group0Error::Stopped` the change is or may be made.
pub async fn change_schema(change: &SchemaChange) -> Result<(), ClusterError> {
    if reactor::shard_id() == 0 {
        return ControlPlane::turn().await?.change(std::slice::from_ref(change)).await;
    }
    let change = change.clone();
    let called = mesh::call(0, Group::ADMIN, move || async move {
        let turn = ControlPlane::turn().await.map_err(|error| error.to_string())?;
        turn.change(&[change]).await.map_err(|error| error.to_string())
    });
    let failed = |reason: String| ClusterError::Shard { reason };
    called.await.map_err(|error| failed(error.to_string()))?.map_err(failed)
}

impl ControlPlane {
    /// Waits for the right to change what is agreed upon. On shard 0.
    ///
    /// # Errors
    /// [`ClusterError::NotOpen`], [`ClusterError::TooManyWaiting`].
    pub async fn turn() -> Result<Turn, ClusterError> {
        let control = reactor::local::<Self>().ok_or(ClusterError::NotOpen)?;
        let permit = control.turn.acquire(1).await.map_err(|_| ClusterError::TooManyWaiting)?;
        Ok(Turn { control, _permit: permit })
    }

    /// Has commands carried to the shards as they are applied.
    fn follow(self: &Rc<Self>) {
        let control = Rc::downgrade(self);
        self.group.on_applied(Rc::new(move |applied, state| {
            let Some(control) = control.upgrade() else { return };
            let before = control.seen.replace(Rc::clone(state));
            let (index, changes) = match applied {
                Applied::Command(index, command) => {
                    let done = state.requests().find(command.id);
                    if done.is_none_or(|done| done.index != index || done.refusal.is_some()) {
                        return;
                    }
                    (index, command.changes.iter().filter_map(schema_change).collect())
                }
                Applied::Installed(index) => (index, replacing(&before, state)),
            };
            let news = News::between(&before, state);
            control.effects.borrow_mut().push_back(Effect { index, changes, news });
            control.carry();
        }));
    }

    /// Sees to it that a task carries effects to the shards.
    fn carry(self: &Rc<Self>) {
        if self.working.replace(true) {
            return;
        }
        let control = Rc::clone(self);
        // The removal of a dropped table's files is no urgent work.
        drop(reactor::spawn(Group::ADMIN, async move {
            loop {
                let next = control.effects.borrow_mut().pop_front();
                let Some(Effect { index, changes, news }) = next else { break };
                let before = control.effective.get();
                assert!(before < index, "command {index} takes effect behind {before}");
                if let Err(error) = control.apply(index, changes, news).await {
                    reactor::error!("a change takes effect everywhere only at the next start";
                        index = index, error = error);
                    control.failure.replace(Some((index, error)));
                }
                control.effective.set(index);
                control.progress.notify_all();
            }
            control.working.set(false);
        }));
    }

    /// Has every shard apply changes: new replicas are known before a table can be used, and those of a dropped
    /// table until it cannot. In a task of its own, so that its panic is an error here.
    async fn apply(&self, index: u64, changes: Vec<SchemaChange>, news: News) -> Result<(), StorageError> {
        let storage = self.storage.get().expect("commands are followed once the storage is open").clone();
        let shards = reactor::shard_count();
        let applying = reactor::spawn(Group::ADMIN, async move {
            let (come, gone) = news.split();
            tell_shards(&come, shards).await?;
            storage.apply_agreed(index, &changes).await?;
            tell_shards(&gone, shards).await
        });
        let applied = applying.await;
        applied.unwrap_or_else(|panicked| Err(StorageError::Shard { shard: 0, reason: panicked.to_string() }))
    }
}

/// Changes that put one schema in the place of another; what both have stays as it is.
fn replacing(before: &ClusterState, after: &ClusterState) -> Vec<SchemaChange> {
    let dropped = before.schema().keyspaces().map(|keyspace| keyspace.name.clone());
    dropped.map(|name| SchemaChange::DropKeyspace { name }).chain(after.history()).collect()
}

fn schema_change(change: &Change) -> Option<SchemaChange> {
    match change {
        Change::Schema(change) => Some(change.clone()),
        Change::Found(_)
        | Change::AddNode(_)
        | Change::UpdateNode(..)
        | Change::Place(_)
        | Change::MoveTablet(_)
        | Change::SetNodeState(..) => None,
    }
}

/// Has the views of all shards learn what is new.
async fn tell_shards(news: &News, shards: usize) -> Result<(), StorageError> {
    if news.is_empty() {
        return Ok(());
    }
    for shard in 0..shards {
        let news = news.clone();
        let called = mesh::call(shard, Group::ADMIN, move || async move { View::here().learn(&news) });
        called.await.map_err(|error| StorageError::Shard { shard, reason: error.to_string() })?;
    }
    Ok(())
}

impl News {
    /// Everything that a state says, for shards that know nothing yet.
    fn of(state: &ClusterState, own: NodeNumber) -> Self {
        let maps = state.maps().iter().map(|(table, map)| (*table, map.to_parts())).collect();
        Self { own: Some(own), nodes: Some((**state.nodes()).clone()), maps, gone: Vec::new() }
    }

    /// The difference between two states.
    fn between(before: &ClusterState, after: &ClusterState) -> Self {
        let nodes = (!Rc::ptr_eq(before.nodes(), after.nodes())).then(|| (**after.nodes()).clone());
        let is_known = |(table, map): &(&_, &Rc<_>)| {
            before.maps().get(table).is_some_and(|known| Rc::ptr_eq(known, map))
        };
        let maps = after.maps().iter().filter(|map| !is_known(map));
        let tables = before.schema().tables().map(|table| table.id());
        let gone = tables.filter(|id| after.schema().table_by_id(*id).is_none()).collect();
        let maps = maps.map(|(table, map)| (*table, map.to_parts())).collect();
        Self { own: None, nodes, maps, gone }
    }

    /// News that come before a change takes effect, and those that come after it.
    fn split(self) -> (Self, Self) {
        let after = Self { gone: self.gone, ..Self::default() };
        (Self { gone: Vec::new(), ..self }, after)
    }
}
