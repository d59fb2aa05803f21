//! Consensus as the rest of the crate sees it: plain values in and out, no I/O and no clock.
//!
//! [`Consensus`] is a state machine. Its owner hands in messages, ticks and proposals, takes each [`Ready`],
//! makes its entries and hard state durable (`log`, `snapshot`), sends its messages, applies its committed
//! entries, and says [`Consensus::synced`].
//! Invariant: messages in `messages_after` leave only after that ready is durable: they promise that it is.
//! `raft` has the only implementation, and nothing of its library appears in a public type here, so that
//! another library can take its place.

mod convert;
mod files;
pub(crate) mod fuzzing;
mod log;
#[cfg(test)]
mod log_tests;
mod memory;
mod message;
mod raft;
mod snapshot;
#[cfg(test)]
mod tests;

use minicbor::{Decode, Encode};

pub use files::LogError;
pub use log::{GroupLog, LogLimits, Recovered};
pub use message::{Message, MessageKind};
pub use raft::RaftConsensus;
pub use snapshot::Snapshot;

use crate::NodeNumber;

/// What group 0 needs of a consensus algorithm.
pub trait Consensus {
    /// Takes in a message of another node. Messages that come late, twice or not at all do no harm.
    ///
    /// # Errors
    /// [`Refused`] for a message that no correct node sends; nothing is changed.
    fn step(&mut self, message: Message) -> Result<(), Refused>;

    /// One unit of time has passed. Election timeouts are drawn from `random`. A lone voter needs no ticks.
    fn tick(&mut self, random: u64);

    /// Appends a command to the log; returns its place. It is committed if, and only if, an entry of that
    /// index *and* term comes back in [`Ready::committed`].
    ///
    /// # Errors
    /// [`NotLeader`]; nothing was appended then.
    fn propose(&mut self, command: Vec<u8>) -> Result<Position, NotLeader>;

    /// Asks for the index that has to be applied before a read is current; it comes as a [`ReadState`] of the
    /// same `context`. The question may be lost: ask again.
    fn read_index(&mut self, context: u64);

    /// Appends changes of the members. More than one change goes through joint consensus, which the leader
    /// ends by itself.
    ///
    /// # Errors
    /// [`ChangeRefused`]; the members stay as they are.
    fn change(&mut self, changes: &[MemberChange]) -> Result<Position, ChangeRefused>;

    /// As leader, hands leadership to a voter; nothing happens at other nodes.
    fn transfer(&mut self, to: NodeNumber);

    /// Messages to `node` were lost for certain.
    fn unreachable(&mut self, node: NodeNumber);

    /// A snapshot that was sent to `node` has arrived, or is lost.
    fn snapshot_sent(&mut self, node: NodeNumber, arrived: bool);

    /// The next batch of work, or `None` while there is none.
    fn ready(&mut self) -> Option<Ready>;

    /// Everything in that ready and in all before it is durable.
    fn synced(&mut self, number: ReadyNumber);

    /// The log up to `snapshot.index` was replaced by this durable snapshot.
    fn compacted(&mut self, snapshot: Snapshot);

    /// The members, as of the last committed entry that was handed out.
    fn members(&self) -> Members;

    /// The hard state as it is now, also where it was not handed out yet.
    fn hard_state(&self) -> HardState;

    /// Entries behind `index`, for a new log file.
    fn entries_after(&self, index: u64) -> Vec<Entry>;

    /// The term of the entry at `index`, if it is still known.
    fn term_at(&self, index: u64) -> Option<u64>;

    /// Role, leader and term.
    fn status(&self) -> Status;
}

/// The number of a [`Ready`]; numbers grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadyNumber(pub u64);

/// A batch of work.
#[derive(Debug, Clone)]
pub struct Ready {
    /// Its number.
    pub number: ReadyNumber,
    /// A snapshot that takes the place of the whole log and state. It comes before `entries`.
    pub install: Option<Snapshot>,
    /// The hard state, if it changed.
    pub hard_state: Option<HardState>,
    /// Entries to append; where the log has an entry of the first one's index, they take its place and that
    /// of all behind it.
    pub entries: Vec<Entry>,
    /// Whether this has to be durable before [`Consensus::synced`]. Otherwise at most the commit index of the
    /// hard state changed, which may go to the disk with the next batch.
    pub must_sync: bool,
    /// Messages that may leave at once.
    pub messages_before: Vec<Message>,
    /// Messages that may leave only after this ready is durable.
    pub messages_after: Vec<Message>,
    /// Committed entries in order, each handed out once: all of them are durable on a majority.
    pub committed: Vec<Entry>,
    /// Answers to [`Consensus::read_index`].
    pub reads: Vec<ReadState>,
}

/// An entry of the log.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Entry {
    /// Its place in the log, from 1 on.
    #[n(0)]
    pub index: u64,
    /// The term of the leader that appended it.
    #[n(1)]
    pub term: u64,
    /// Its content.
    #[n(2)]
    pub payload: Payload,
}

/// The content of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Payload {
    /// Nothing: the first entry of a leader's term.
    #[n(0)]
    Nothing,
    /// A command of the owner.
    #[n(1)]
    Command(
        #[n(0)]
        #[cbor(with = "minicbor::bytes")]
        Vec<u8>,
    ),
    /// Changes of the members. None at all ends joint consensus.
    #[n(2)]
    Members(#[n(0)] Vec<MemberChange>),
}

/// A change of the members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum MemberChange {
    /// The node votes from now on; it may be a learner or new.
    #[n(0)]
    Voter(#[n(0)] NodeNumber),
    /// The node gets the log and does not vote.
    #[n(1)]
    Learner(#[n(0)] NodeNumber),
    /// The node is no member any more.
    #[n(2)]
    Remove(#[n(0)] NodeNumber),
}

/// The members of a group; all lists are sorted. The last three fields are empty outside joint consensus.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct Members {
    /// Voters.
    #[n(0)]
    pub voters: Vec<NodeNumber>,
    /// Nodes that get the log and do not vote.
    #[n(1)]
    pub learners: Vec<NodeNumber>,
    /// Voters of the configuration that is being left.
    #[n(2)]
    pub voters_outgoing: Vec<NodeNumber>,
    /// Voters of the configuration that is being left which become learners.
    #[n(3)]
    pub learners_next: Vec<NodeNumber>,
    /// Whether the leader ends joint consensus by itself.
    #[n(4)]
    pub auto_leave: bool,
}

impl Members {
    /// One voter and nobody else.
    pub fn lone(node: NodeNumber) -> Self {
        Self { voters: vec![node], ..Self::default() }
    }
}

/// The part of the algorithm's state that must survive a restart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct HardState {
    /// The latest term it has seen.
    #[n(0)]
    pub term: u64,
    /// The node it voted for in that term.
    #[n(1)]
    pub vote: Option<NodeNumber>,
    /// Entries up to this index are committed.
    #[n(2)]
    pub commit: u64,
}

/// The place of an entry: index and term together name it for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Its index.
    pub index: u64,
    /// Its term.
    pub term: u64,
}

/// An answer to [`Consensus::read_index`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadState {
    /// The context of the question.
    pub context: u64,
    /// A read is current once this index is applied.
    pub index: u64,
}

/// A node's part in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It follows, or does not know a leader.
    Follower,
    /// It asks for votes.
    Candidate,
    /// It leads.
    Leader,
}

/// The state of an instance, for answers and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// The role.
    pub role: Role,
    /// The leader it knows.
    pub leader: Option<NodeNumber>,
    /// The term.
    pub term: u64,
    /// Index of the last entry in the log.
    pub last: u64,
    /// Index of the last committed entry.
    pub committed: u64,
}

/// Only the leader appends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this node does not lead the group (leader: {leader:?})")]
pub struct NotLeader {
    /// The leader, if it is known.
    pub leader: Option<NodeNumber>,
}

/// The members were not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChangeRefused {
    /// Only the leader changes them.
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
    /// An earlier change has not taken effect, or joint consensus has not ended.
    #[error("an earlier change of the members has not taken effect yet")]
    Pending,
}

/// A message that no correct node sends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a {kind:?} message of node {from} is refused: {reason}")]
pub struct Refused {
    /// The sender, by the message's own word.
    pub from: NodeNumber,
    /// The kind of message.
    pub kind: MessageKind,
    /// The rule that it breaks.
    pub reason: &'static str,
}
