//! Group 0: one order of commands for all nodes, and the state that they make.
//!
//! A command's path: [`Group0::propose`] on the leader → consensus → `GroupLog` (one record, one fdatasync
//! for all that wait) → committed → `apply` → the outcome is known. `work` does this in a task while there is
//! work; the task ends with it. `members` passes messages on and lets time pass, in groups of more than one
//! member: a lone voter has neither a task nor a timer while it is idle. Lives on shard 0. Invariant:
//! commands are applied in the order of their indexes, each once, and only when they are durable on a
//! majority. When the log fails the group stops: it answers no further command until the next start has read
//! the log.

mod apply;
mod command;
mod members;
mod requests;
mod state;
#[cfg(test)]
mod tests;
mod work;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use reactor::{Deadline, Event, Gate};
use storage::StorageError;

pub use apply::apply;
pub use command::{Change, Command, Move, Outcome, Placement, Refusal, RequestId, Transition};
pub use requests::{Done, OUTCOMES_MAX, Requests};
pub use state::ClusterState;

use crate::NodeNumber;
use crate::consensus::{
    ChangeRefused, Consensus, GroupLog, LogError, LogLimits, MemberChange, Members, Message, NotLeader,
    RaftConsensus, Role, Snapshot, Status,
};

/// Bytes of a command.
const COMMAND_BYTES_MAX: usize = 64 << 20;
/// How long a proposal waits for a majority.
const PROPOSE_WITHIN: Duration = Duration::from_secs(5);
/// How long it waits for the disk of a node that is alone.
const PROPOSE_ALONE_WITHIN: Duration = Duration::from_secs(60);

/// A command has no outcome.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Group0Error {
    /// The command was not proposed.
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
    /// The command was not proposed: there is no room for it on the disk.
    #[error(transparent)]
    NoRoom(StorageError),
    /// The command was not proposed.
    #[error("a change of {bytes} bytes is longer than {COMMAND_BYTES_MAX}")]
    TooLong {
        /// Its bytes.
        bytes: usize,
    },
    /// The members are as they were.
    #[error(transparent)]
    Members(#[from] ChangeRefused),
    /// No majority has confirmed the command in time: it may still be applied.
    #[error("no majority of the cluster's voters confirmed the change in time; it may still be made")]
    Undecided,
    /// No majority has answered in time whether this node is up to date.
    #[error("no majority of the cluster's voters can be reached")]
    NoMajority,
    /// The log failed. It is unknown whether the command is in it.
    #[error("changes of the schema have stopped until the node starts again: {0}")]
    Stopped(Rc<GroupFailure>),
}

/// The reason for which a group stopped, or did not start.
#[derive(Debug, thiserror::Error)]
pub enum GroupFailure {
    /// Its files.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A promise of its own was broken.
    #[error("{0}")]
    Broken(String),
    /// An entry or a snapshot that this version cannot read.
    #[error("{place} of the control plane's log cannot be read by this version: {reason}")]
    Unreadable {
        /// The entry or snapshot.
        place: String,
        /// The first thing that is wrong with it.
        reason: String,
    },
}

/// News of the state, in the order of the log.
#[derive(Debug)]
pub enum Applied<'a> {
    /// A command was applied or refused, at this index.
    Command(u64, &'a Command),
    /// The whole state was replaced by another node's, as of this index.
    Installed(u64),
}

/// Called after each change of the state, in order, with the state after it.
pub type OnApplied = Rc<dyn Fn(Applied<'_>, &Rc<ClusterState>)>;

/// Takes messages for other members. They may be lost.
pub type Outbox = Rc<dyn Fn(Message)>;

/// The group, on shard 0. Copies are the same group.
#[derive(Clone)]
pub struct Group0(Rc<Inner>);

struct Inner {
    number: NodeNumber,
    consensus: RefCell<RaftConsensus>,
    log: GroupLog,
    state: RefCell<Rc<ClusterState>>,
    applied: Cell<u64>,
    /// The commit index that is durable.
    synced_commit: Cell<u64>,
    /// Whether a task works on it.
    working: Cell<bool>,
    /// Whether a task lets time pass for it.
    ticking: Cell<bool>,
    changed: Event,
    failure: RefCell<Option<Rc<GroupFailure>>>,
    on_applied: RefCell<Option<OnApplied>>,
    outbox: RefCell<Option<Outbox>>,
    /// Answers to questions for a read index, by their contexts; `None` while there is none.
    reads: RefCell<BTreeMap<u64, Option<u64>>>,
    next_read: Cell<u64>,
    tasks: Gate,
}

impl Group0 {
    /// Makes the folder of a new group whose first state is `state`, with this node as its only voter. The
    /// next command has the number `index` + 1. Afterwards the folder is whole and durable; after a crash it
    /// is, or is not there.
    ///
    /// # Errors
    /// File errors.
    pub async fn create(
        folder: &Path,
        node: NodeNumber,
        index: u64,
        mut state: ClusterState,
    ) -> Result<(), GroupFailure> {
        // Raft's places begin with 1.
        let index = index.max(1);
        state.last_command = index;
        let snapshot = Snapshot { index, term: 1, members: Members::lone(node), state: state.encode() };
        Self::create_from(folder, &snapshot).await
    }

    /// Makes the folder of a node that joins a group, from a snapshot of one of its members. Afterwards the
    /// folder is whole and durable; after a crash it is, or is not there.
    ///
    /// # Errors
    /// [`GroupFailure::Unreadable`] for a state that this version cannot read; file errors.
    pub async fn create_from(folder: &Path, snapshot: &Snapshot) -> Result<(), GroupFailure> {
        read_state(snapshot)?;
        Ok(GroupLog::create(folder, snapshot).await?)
    }

    /// Opens the group of a folder; `number_in` finds this node's number in the last snapshot's state. Every
    /// command that this node knew to be committed is applied when this returns; of a lone voter that is
    /// every command that was ever answered.
    ///
    /// # Errors
    /// Damage, and files that must be there and are not; the error of `number_in`.
    pub async fn open(
        folder: &Path,
        number_in: impl FnOnce(&ClusterState) -> Result<NodeNumber, GroupFailure>,
        limits: LogLimits,
    ) -> Result<Self, GroupFailure> {
        let (log, recovered) = GroupLog::open(folder, limits).await?;
        let snapshot = &recovered.snapshot;
        let state = read_state(snapshot)?;
        let node = number_in(&state)?;
        let consensus = RaftConsensus::new(node, &recovered, reactor::random_u64());
        let group = Self(Rc::new(Inner {
            number: node,
            consensus: RefCell::new(consensus),
            log,
            state: RefCell::new(Rc::new(state)),
            applied: Cell::new(snapshot.index),
            synced_commit: Cell::new(recovered.hard_state.commit),
            working: Cell::new(false),
            ticking: Cell::new(false),
            changed: Event::new(),
            failure: RefCell::new(None),
            on_applied: RefCell::new(None),
            outbox: RefCell::new(None),
            reads: RefCell::default(),
            next_read: Cell::new(reactor::random_u64()),
            tasks: Gate::new(),
        }));
        group.0.work().await?;
        if group.is_alone() {
            let status = group.status();
            assert_eq!(status.role, Role::Leader, "a lone voter leads once its log is read");
            assert_eq!(status.committed, group.0.applied.get(), "a lone voter has applied its log");
        }
        Ok(group)
    }

    /// This node's number.
    pub fn number(&self) -> NodeNumber {
        self.0.number
    }

    /// Ends its tasks. Nothing is proposed or answered afterwards.
    pub async fn stop(&self) {
        self.0.tasks.close().await;
    }

    /// The state after the last command.
    pub fn state(&self) -> Rc<ClusterState> {
        Rc::clone(&self.0.state.borrow())
    }

    /// Index of the last entry that was applied.
    pub fn applied(&self) -> u64 {
        self.0.applied.get()
    }

    /// The term: while this node leads, a number that no earlier life of any leader had.
    pub fn term(&self) -> u64 {
        self.status().term
    }

    /// Role, leader and term.
    pub fn status(&self) -> Status {
        self.0.consensus.borrow().status()
    }

    /// The members, as of the last entry that was applied.
    pub fn members(&self) -> Members {
        self.0.consensus.borrow().members()
    }

    /// Whether this node leads and has applied everything that leaders before it committed: only then may it
    /// plan a command.
    pub fn may_plan(&self) -> bool {
        let consensus = self.0.consensus.borrow();
        let status = consensus.status();
        status.role == Role::Leader && consensus.term_at(self.0.applied.get()) == Some(status.term)
    }

    /// Has `listener` called after each change of the state from now on.
    pub fn on_applied(&self, listener: OnApplied) {
        self.0.on_applied.replace(Some(listener));
    }

    /// Waits until an index is applied.
    ///
    /// # Errors
    /// [`Group0Error::Undecided`] at the deadline; [`Group0Error::Stopped`].
    pub async fn wait_applied(&self, index: u64, deadline: Deadline) -> Result<(), Group0Error> {
        let inner = &self.0;
        let is_over = || inner.applied.get() >= index || inner.failure.borrow().is_some();
        let waited = reactor::timeout(deadline, inner.changed.wait_until(is_over)).await;
        inner.check()?;
        waited.map_err(|_| Group0Error::Undecided)
    }

    /// Proposes a command and waits for its outcome and its index. A command that is proposed again has its
    /// first outcome. One caller at a time may count on room for its command on a full disk.
    ///
    /// # Errors
    /// [`Group0Error`]; except for `Stopped` and `Undecided`, the command is not in the log.
    pub async fn propose(&self, command: &Command) -> Result<(u64, Outcome), Group0Error> {
        let inner = &self.0;
        inner.check()?;
        if let Some(done) = self.state().requests().find(command.id) {
            return Ok((done.index, done.outcome()));
        }
        let bytes = command.encode();
        if bytes.len() > COMMAND_BYTES_MAX {
            return Err(Group0Error::TooLong { bytes: bytes.len() });
        }
        inner.log.make_room(bytes.len()).await.map_err(Group0Error::NoRoom)?;
        inner.check()?;
        let position = inner.consensus.borrow_mut().propose(bytes)?;
        self.begin_work();
        let within = if self.is_alone() { PROPOSE_ALONE_WITHIN } else { PROPOSE_WITHIN };
        self.wait_applied(position.index, Deadline::after(within)).await?;
        match self.state().requests().find(command.id) {
            Some(done) => Ok((done.index, done.outcome())),
            // Another leader's entry has this place, so that this one can never be committed.
            None => Err(self.not_leading().into()),
        }
    }

    /// That this node does not lead, and who does as far as it knows.
    pub fn not_leading(&self) -> NotLeader {
        NotLeader { leader: self.status().leader.filter(|leader| *leader != self.0.number) }
    }

    /// Waits for a change of the state, the members or the leader.
    pub async fn wait_changed(&self) {
        self.0.changed.wait().await;
    }

    /// Changes the members and waits until the change is applied here.
    ///
    /// # Errors
    /// [`ChangeRefused`] as [`Group0Error::Members`]; [`Group0Error::Undecided`]; [`Group0Error::Stopped`].
    pub async fn change_members(&self, changes: &[MemberChange]) -> Result<(), Group0Error> {
        self.0.check()?;
        let position = self.0.consensus.borrow_mut().change(changes)?;
        self.begin_work();
        self.wait_applied(position.index, Deadline::after(PROPOSE_WITHIN)).await
    }

    /// The state as a snapshot with its members, for a node that joins.
    pub fn snapshot(&self) -> Snapshot {
        let index = self.0.applied.get();
        let consensus = self.0.consensus.borrow();
        let term = consensus.term_at(index).expect("the term of the last entry that was applied");
        Snapshot { index, term, members: consensus.members(), state: self.state().encode() }
    }
}

/// The state in a snapshot.
fn read_state(snapshot: &Snapshot) -> Result<ClusterState, GroupFailure> {
    ClusterState::decode(&snapshot.state)
        .map_err(|reason| GroupFailure::Unreadable { place: format!("snapshot {}", snapshot.index), reason })
}

impl Inner {
    fn check(&self) -> Result<(), Group0Error> {
        match &*self.failure.borrow() {
            Some(failure) => Err(Group0Error::Stopped(Rc::clone(failure))),
            None => Ok(()),
        }
    }

    fn stop(&self, failure: GroupFailure) {
        reactor::error!("the control plane stops until the next start"; error = failure);
        self.failure.replace(Some(Rc::new(failure)));
        self.changed.notify_all();
    }
}
