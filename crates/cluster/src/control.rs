//! The control plane of a node, on shard 0: opens group 0 below the storage, and lets what was agreed upon
//! take effect on every shard.
//!
//! The path of a change of the schema: [`Turn::change`] on the leader's shard 0 → `Storage::prepare_changes`
//! → group 0 (durable on a majority, applied to the state) → on every node `effects`: the `View` of every
//! shard → `Storage::apply_agreed` on every shard, in the order of the log → listeners → answer. `open` is
//! the way in, `founding` what a start adds to the state. Invariant: no other change comes between planning
//! and applying, which the one permit for changes ensures.

mod effects;
mod founding;
pub(crate) mod leader;
pub(crate) mod leave;
mod open;
mod own_word;
mod post;
pub(crate) mod service;
mod starts;
mod transitions;
mod truncate;
mod turn;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use model::schema::{ChangeError, Schema, SchemaChange};
use reactor::{Deadline, Event, Group, Instant, Semaphore, mesh};
use storage::{Storage, StorageError};

pub(crate) use founding::own_number;
pub use open::{open_node, open_storage};
pub use own_word::{Measured, Meter};
pub use transitions::{SyncTablet, Syncer};
pub use truncate::{TruncateFailure, truncate};
pub use turn::Turn;

use crate::NodeNumber;
use crate::group0::{ClusterState, Group0, Group0Error, Refusal, RequestId};
use crate::liveness::Liveness;
use crate::nodes::NodeState;
use effects::Effect;
use leader::{Answered, Ask};
use own_word::OwnWord;
use service::Membership;

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
    /// The node that leads the cluster's control plane, asked by this one, failed.
    #[error("the leader of the cluster: {reason}")]
    Leader {
        /// Its error.
        reason: String,
    },
    /// Shard 0, asked by another shard, failed.
    #[error("shard 0: {reason}")]
    Shard {
        /// Its error.
        reason: String,
    },
}

/// A voter that has been down for so long is swapped for another node.
const DEAD_AFTER: Duration = Duration::from_secs(300);

/// Plans what a node asks for, as the command of that id, in a turn of the leader's shard 0. An answer to a
/// request that changes nothing has the index of the turn.
pub type Planner =
    Rc<dyn Fn(Turn, RequestId, Vec<u8>) -> Pin<Box<dyn Future<Output = Result<Answered, ClusterError>>>>>;

/// Changes of the schema that every shard has applied.
#[derive(Debug, Clone)]
pub struct SchemaNews {
    /// The schema before them.
    pub before: Rc<Schema>,
    /// The changes, in order; none if the schema was replaced as a whole.
    pub changes: Vec<SchemaChange>,
    /// The schema that took the place of `before`, where this node was away for too long to have the changes.
    pub replaced: Option<Rc<Schema>>,
}

/// Called on shard 0 after every shard has applied changes of the schema.
pub type OnSchema = Rc<dyn Fn(SchemaNews) -> Pin<Box<dyn Future<Output = ()>>>>;

/// The control plane, on shard 0.
pub struct ControlPlane {
    group: Group0,
    /// This node's part in its cluster; `None` for a node without a network.
    membership: Option<Rc<Membership>>,
    /// Set once the storage is open.
    storage: OnceCell<Storage>,
    effects: RefCell<VecDeque<Effect>>,
    /// Commands of this node's own for which it has taken the snapshots that they ask for.
    prepared: RefCell<BTreeSet<RequestId>>,
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
    /// Since when nodes have been down, as far as this node has looked.
    down_since: RefCell<BTreeMap<NodeNumber, Instant>>,
    planner: RefCell<Option<Planner>>,
    syncer: RefCell<Option<Syncer>>,
    on_schema: RefCell<Option<OnSchema>>,
    own_word: Rc<OwnWord>,
}

/// Makes a change of the schema, whatever it was planned with. May be called on any shard of the leader.
///
/// # Errors
/// [`ClusterError`]; only after `Effect` and `Group0Error::Stopped` the change is or may be made.
pub async fn change_schema(change: &SchemaChange) -> Result<(), ClusterError> {
    if reactor::shard_id() == 0 {
        return ControlPlane::turn().await?.change(std::slice::from_ref(change)).await.map(drop);
    }
    let change = change.clone();
    let called = mesh::call(0, Group::ADMIN, move || async move {
        let turn = ControlPlane::turn().await.map_err(|error| error.to_string())?;
        turn.change(&[change]).await.map(drop).map_err(|error| error.to_string())
    });
    let failed = |reason: String| ClusterError::Shard { reason };
    called.await.map_err(|error| failed(error.to_string()))?.map_err(failed)
}

impl ControlPlane {
    /// The control plane of this node, once it is open; on shard 0.
    pub fn here() -> Option<Rc<Self>> {
        reactor::local::<Self>()
    }

    /// Waits for the right to change what is agreed upon. On shard 0.
    ///
    /// # Errors
    /// [`ClusterError::NotOpen`], [`ClusterError::TooManyWaiting`].
    pub async fn turn() -> Result<Turn, ClusterError> {
        let control = Self::here().ok_or(ClusterError::NotOpen)?;
        let permit = control.turn.acquire(1).await.map_err(|_| ClusterError::TooManyWaiting)?;
        Ok(Turn { control, _permit: permit })
    }

    /// Group 0.
    pub fn group(&self) -> Group0 {
        self.group.clone()
    }

    /// This node's part in its cluster, if it has a network.
    pub(crate) fn membership(&self) -> Option<Rc<Membership>> {
        self.membership.clone()
    }

    /// Whether this node plans changes itself: it leads, and has applied everything before its term.
    pub fn may_plan(&self) -> bool {
        self.group.may_plan()
    }

    /// Whether other nodes may have to be asked before something is changed.
    pub fn has_others(&self) -> bool {
        self.membership.is_some() && !self.group.is_alone()
    }

    /// Has `planner` plan what other nodes ask for.
    pub fn plan_with(&self, planner: Planner) {
        self.planner.replace(Some(planner));
    }

    pub(crate) fn planner(&self) -> Option<Planner> {
        self.planner.borrow().clone()
    }

    /// Has `listener` called after each change of the schema.
    pub fn on_schema(&self, listener: OnSchema) {
        self.on_schema.replace(Some(listener));
    }

    /// Has the leader, whoever it is, plan `request`, and waits until this node has applied what came of it.
    ///
    /// # Errors
    /// [`ClusterError`]; after `Group0Error::Undecided` the change may have been made.
    pub async fn ask(&self, request: Vec<u8>, deadline: Deadline) -> Result<Answered, ClusterError> {
        let id = self.next_request();
        leader::ask(self, Ask::Plan(id, request), deadline).await
    }

    /// The id of a command that this node asks others for: no life and no leader's term has it again.
    fn next_request(&self) -> RequestId {
        let generation = self.membership.as_ref().map_or(0, |membership| membership.facts().generation);
        RequestId { node: self.group.number(), life: 1 << 63 | generation, sequence: self.next_sequence() }
    }

    fn next_sequence(&self) -> u64 {
        self.sequence.set(self.sequence.get() + 1);
        self.sequence.get()
    }

    /// Waits until every shard of this node has applied the command of `index`.
    ///
    /// # Errors
    /// [`Group0Error::Undecided`] at the deadline; [`ClusterError::Effect`] if a shard could not apply it.
    pub(crate) async fn wait_effective(&self, index: u64, deadline: Deadline) -> Result<(), ClusterError> {
        let is_there = || self.effective.get() >= index;
        let waited = reactor::timeout(deadline, self.progress.wait_until(is_there)).await;
        waited.map_err(|_| Group0Error::Undecided)?;
        match self.failure.borrow_mut().take_if(|(failed, _)| *failed == index) {
            Some((_, error)) => Err(ClusterError::Effect(error)),
            None => Ok(()),
        }
    }

    /// As [`ControlPlane::wait_effective`], for everything that was applied up to `index`, which need not be
    /// a command's.
    pub(crate) async fn wait_effective_of(&self, index: u64, deadline: Deadline) -> Result<(), ClusterError> {
        let last = self.effects.borrow().back().map_or(self.effective.get(), |effect| effect.index());
        self.wait_effective(last.min(index), deadline).await
    }

    /// Nodes that take part in the cluster.
    pub(crate) fn nodes_with_a_part(&self) -> Vec<NodeNumber> {
        let takes_part = |state: NodeState| matches!(state, NodeState::Normal | NodeState::Draining);
        let state = self.group.state();
        state.nodes().values().filter(|node| takes_part(node.state)).map(|node| node.number).collect()
    }

    /// Nodes that take part in the cluster and are up.
    pub(crate) fn live_nodes(&self) -> Vec<NodeNumber> {
        let liveness = reactor::local::<Liveness>();
        let own = self.group.number();
        let is_up = |node| node == own || liveness.as_ref().is_some_and(|liveness| liveness.is_up(node));
        self.nodes_with_a_part().into_iter().filter(|node| is_up(*node)).collect()
    }

    /// Whether a node has been down for so long that another should vote in its place.
    pub(crate) fn is_dead_for_long(&self, node: NodeNumber) -> bool {
        self.is_down_for(node, DEAD_AFTER)
    }

    /// Whether a node has been down for that long, as far as this node has looked.
    pub(crate) fn is_down_for(&self, node: NodeNumber, time: Duration) -> bool {
        let liveness = reactor::local::<Liveness>();
        let is_up = |liveness: Rc<Liveness>| liveness.is_up(node);
        let mut down = self.down_since.borrow_mut();
        if node == self.group.number() || liveness.is_none_or(is_up) {
            down.remove(&node);
            return false;
        }
        down.entry(node).or_insert_with(reactor::now).elapsed() >= time
    }

    /// Index of the last command whose effects every shard has.
    pub(crate) fn effective(&self) -> u64 {
        self.effective.get()
    }
}
