//! Group 0: one order of commands for all nodes, and the state that they make.
//!
//! A command's path: [`Group0::propose`] → consensus → `GroupLog` (one record, one fdatasync for all that
//! wait) → committed → `apply` → the outcome is known. A task does this while there is work and ends with it,
//! so that an idle group has neither a task nor a timer. Lives on shard 0. Today's group has one voter, this
//! node. Invariant: commands are applied in the order of their indexes, each once, and only when they are
//! durable. When the log fails the group stops: it answers no further command until the next start has read
//! the log.

mod apply;
mod command;
mod requests;
mod state;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;

use reactor::{Event, Group};
use storage::StorageError;

pub use apply::apply;
pub use command::{Change, Command, Move, Outcome, Placement, Refusal, RequestId};
pub use requests::{Done, OUTCOMES_MAX, Requests};
pub use state::ClusterState;

use crate::NodeNumber;
use crate::consensus::{
    Consensus, Entry, GroupLog, LogError, LogLimits, Members, NotLeader, Payload, RaftConsensus, Ready, Role,
    Snapshot,
};

/// Bytes of a command.
const COMMAND_BYTES_MAX: usize = 64 << 20;

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

/// Called after each command that was applied or refused, in order, with the state after it.
pub type OnApplied = Rc<dyn Fn(u64, &Command, &Rc<ClusterState>)>;

/// The group, on shard 0. Copies are the same group.
#[derive(Clone)]
pub struct Group0(Rc<Inner>);

struct Inner {
    consensus: RefCell<RaftConsensus>,
    log: GroupLog,
    state: RefCell<Rc<ClusterState>>,
    applied: Cell<u64>,
    /// Whether a task works on it.
    working: Cell<bool>,
    changed: Event,
    failure: RefCell<Option<Rc<GroupFailure>>>,
    on_applied: RefCell<Option<OnApplied>>,
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
        Ok(GroupLog::create(folder, &snapshot).await?)
    }

    /// Opens the group of a folder. Every command that was ever answered is applied when this returns.
    ///
    /// # Errors
    /// Damage, and files that must be there and are not.
    pub async fn open(folder: &Path, node: NodeNumber, limits: LogLimits) -> Result<Self, GroupFailure> {
        let (log, recovered) = GroupLog::open(folder, limits).await?;
        let snapshot = &recovered.snapshot;
        let state = ClusterState::decode(&snapshot.state).map_err(|reason| GroupFailure::Unreadable {
            place: format!("snapshot {}", snapshot.index),
            reason,
        })?;
        if snapshot.members != Members::lone(node) {
            let reason = format!("it has other members than this node: {:?}", snapshot.members);
            return Err(GroupFailure::Unreadable { place: format!("snapshot {}", snapshot.index), reason });
        }
        let consensus = RaftConsensus::new(node, &recovered, reactor::random_u64());
        let group = Self(Rc::new(Inner {
            consensus: RefCell::new(consensus),
            log,
            state: RefCell::new(Rc::new(state)),
            applied: Cell::new(snapshot.index),
            working: Cell::new(false),
            changed: Event::new(),
            failure: RefCell::new(None),
            on_applied: RefCell::new(None),
        }));
        group.0.work().await?;
        let status = group.0.consensus.borrow().status();
        assert_eq!(status.role, Role::Leader, "a lone voter leads once its log is read");
        assert_eq!(status.committed, group.0.applied.get(), "a lone voter has applied its log");
        Ok(group)
    }

    /// The state after the last command.
    pub fn state(&self) -> Rc<ClusterState> {
        Rc::clone(&self.0.state.borrow())
    }

    /// Index of the last entry that was applied.
    pub fn applied(&self) -> u64 {
        self.0.applied.get()
    }

    /// The term of the leader: a number that no earlier life of this node had.
    pub fn term(&self) -> u64 {
        self.0.consensus.borrow().status().term
    }

    /// Has `listener` called after each command from now on.
    pub fn on_applied(&self, listener: OnApplied) {
        self.0.on_applied.replace(Some(listener));
    }

    /// Proposes a command and waits for its outcome and its index. A command that is proposed again has its
    /// first outcome. One caller at a time may count on room for its command on a full disk.
    ///
    /// # Errors
    /// [`Group0Error`]; except for `Stopped`, the command is not in the log.
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
        let is_over = || inner.applied.get() >= position.index || inner.failure.borrow().is_some();
        inner.changed.wait_until(is_over).await;
        match self.state().requests().find(command.id) {
            Some(done) => Ok((done.index, done.outcome())),
            None => {
                inner.check()?;
                panic!("entry {position:?} was applied and has no outcome");
            }
        }
    }

    /// Sees to it that a task works on the group.
    fn begin_work(&self) {
        if self.0.working.replace(true) {
            return;
        }
        let inner = Rc::clone(&self.0);
        drop(reactor::spawn(Group::CONTROL, async move {
            let of_task = Rc::clone(&inner);
            // In a task of its own, so that its panic stops the group, and callers hear of it.
            let working = reactor::spawn(Group::CONTROL, async move {
                if let Err(failure) = of_task.work().await {
                    of_task.stop(failure);
                }
                // In the moment in which there was nothing to do, so that whoever comes later begins anew.
                of_task.working.set(false);
            });
            if let Err(panicked) = working.await {
                inner.stop(GroupFailure::Broken(panicked.to_string()));
            }
        }));
    }
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

    /// Works until there is nothing to do.
    async fn work(&self) -> Result<(), GroupFailure> {
        loop {
            let ready = self.consensus.borrow_mut().ready();
            match ready {
                Some(ready) => self.carry_out(ready).await?,
                None if self.log.is_full() => self.replace_log().await?,
                None => return Ok(()),
            }
        }
    }

    async fn carry_out(&self, ready: Ready) -> Result<(), GroupFailure> {
        assert!(ready.install.is_none(), "a lone voter has nobody to get a snapshot from");
        assert!(
            ready.messages_before.is_empty() && ready.messages_after.is_empty(),
            "a lone voter sends nothing"
        );
        // A commit index alone goes to the disk with the next batch: it follows from the entries of one
        // voter.
        if ready.must_sync {
            self.log.append(ready.hard_state, ready.entries).await?;
        }
        self.consensus.borrow_mut().synced(ready.number);
        for entry in &ready.committed {
            self.apply(entry)?;
        }
        self.changed.notify_all();
        Ok(())
    }

    fn apply(&self, entry: &Entry) -> Result<(), GroupFailure> {
        let before = self.applied.get();
        assert_eq!(entry.index, before + 1, "entry {} is applied behind {before}", entry.index);
        if let Payload::Command(bytes) = &entry.payload {
            let command = Command::decode(bytes).map_err(|reason| GroupFailure::Unreadable {
                place: format!("entry {}", entry.index),
                reason,
            })?;
            let state = Rc::clone(&self.state.borrow());
            let after = Rc::new(apply(&state, entry.index, &command));
            self.state.replace(Rc::clone(&after));
            self.applied.set(entry.index);
            let listener = self.on_applied.borrow().clone();
            if let Some(listener) = listener {
                listener(entry.index, &command, &after);
            }
        }
        self.applied.set(entry.index);
        Ok(())
    }

    /// Puts a snapshot of the state and a new log in the place of a full one.
    async fn replace_log(&self) -> Result<(), GroupFailure> {
        let index = self.applied.get();
        let (hard_state, entries, term, members) = {
            let consensus = self.consensus.borrow();
            (
                consensus.hard_state(),
                consensus.entries_after(index),
                consensus.term_at(index),
                consensus.members(),
            )
        };
        let term = term.expect("the term of the last entry that was applied");
        let state = self.state.borrow().encode();
        let snapshot = Snapshot { index, term, members, state };
        if self.log.replace(&snapshot, hard_state, &entries).await? {
            self.consensus.borrow_mut().compacted(snapshot);
        }
        Ok(())
    }
}
