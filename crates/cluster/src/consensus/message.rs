//! Messages between the members of a group, and the rules that one from outside must keep.
//!
//! The fields are those of Raft's messages; which of them a kind uses is said at the kind. There is no kind
//! for proposals: they are made by the leader's own process only.

use minicbor::{Decode, Encode};

use super::{Entry, Refused, Snapshot};
use crate::NodeNumber;

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum MessageKind {
    /// Entries behind `index` (of `log_term`), and the leader's commit index.
    #[n(0)]
    Append,
    /// The log is the leader's up to `index`; or, with `reject`, it has no such entry, and `reject_hint` with
    /// `log_term` is where it may agree.
    #[n(1)]
    AppendAnswer,
    /// Asks for a vote; `index` and `log_term` are those of the candidate's last entry.
    #[n(2)]
    Vote,
    /// The vote, refused with `reject`.
    #[n(3)]
    VoteAnswer,
    /// Asks for a vote that binds nobody, before the term is raised.
    #[n(4)]
    PreVote,
    /// Its answer.
    #[n(5)]
    PreVoteAnswer,
    /// The leader is alive; `commit` is what the receiver may take as committed.
    #[n(6)]
    Heartbeat,
    /// Its answer.
    #[n(7)]
    HeartbeatAnswer,
    /// A snapshot for a node whose next entries the leader has no more.
    #[n(8)]
    Snapshot,
    /// The receiver is to start an election at once: leadership is handed to it.
    #[n(9)]
    TimeoutNow,
    /// Asks the leader for a read index; the context is in the one entry's command.
    #[n(10)]
    ReadIndex,
    /// The read index.
    #[n(11)]
    ReadIndexAnswer,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Message {
    /// Its kind.
    #[n(0)]
    pub kind: MessageKind,
    /// The sender.
    #[n(1)]
    pub from: NodeNumber,
    /// The receiver.
    #[n(2)]
    pub to: NodeNumber,
    /// The sender's term; 0 only in `ReadIndex` and `ReadIndexAnswer`.
    #[n(3)]
    pub term: u64,
    /// The term that goes with `index` or `reject_hint`.
    #[n(4)]
    pub log_term: u64,
    /// An index of the log.
    #[n(5)]
    pub index: u64,
    /// Entries.
    #[n(6)]
    pub entries: Vec<Entry>,
    /// A commit index.
    #[n(7)]
    pub commit: u64,
    /// The term of the entry at `commit`, in votes.
    #[n(8)]
    pub commit_term: u64,
    /// The snapshot, in `Snapshot` only.
    #[n(9)]
    pub snapshot: Option<Snapshot>,
    /// The index from which the sender wants a snapshot, 0 for none.
    #[n(10)]
    pub request_snapshot: u64,
    /// Whether it refuses.
    #[n(11)]
    pub reject: bool,
    /// The index up to which a refusing log may agree.
    #[n(12)]
    pub reject_hint: u64,
    /// Bytes that an answer repeats.
    #[n(13)]
    #[cbor(with = "minicbor::bytes")]
    pub context: Vec<u8>,
    /// The sender's priority in elections.
    #[n(14)]
    pub priority: i64,
}

impl Message {
    /// The message as bytes.
    pub fn encode(&self) -> Vec<u8> {
        minicbor::to_vec(self).expect("writing to memory does not fail")
    }

    /// Reads a message that takes up all of `bytes`; whether a correct member sends it is told by
    /// `Consensus::step`.
    ///
    /// # Errors
    /// The reason for which they are none.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut decoder = minicbor::Decoder::new(bytes);
        let message = decoder.decode().map_err(|error| error.to_string())?;
        match bytes.len() - decoder.position() {
            0 => Ok(message),
            behind => Err(format!("{behind} bytes follow it")),
        }
    }

    /// Checks a message that came to `me` from outside.
    ///
    /// # Errors
    /// [`Refused`] with the rule that it breaks.
    pub(super) fn check(&self, me: NodeNumber) -> Result<(), Refused> {
        let refused = |reason| Err(Refused { from: self.from, kind: self.kind, reason });
        if self.to != me || self.from == me || self.from == 0 {
            return refused("it is not from another node to this one");
        }
        let is_read = matches!(self.kind, MessageKind::ReadIndex | MessageKind::ReadIndexAnswer);
        if self.term == 0 && !is_read {
            return refused("it has no term");
        }
        if (self.kind == MessageKind::Snapshot) != self.snapshot.is_some() {
            return refused("only a snapshot message has a snapshot");
        }
        if let Some(snapshot) = &self.snapshot {
            let no_voters = snapshot.members.voters.is_empty();
            if snapshot.index == 0 || snapshot.term == 0 || snapshot.term > self.term || no_voters {
                return refused("its snapshot has no place in the log or no voters");
            }
        }
        if self.kind == MessageKind::Append {
            return self.check_entries();
        }
        if is_read != (self.entries.len() == 1) || !is_read && !self.entries.is_empty() {
            return refused("it has entries that its kind has not");
        }
        Ok(())
    }

    fn check_entries(&self) -> Result<(), Refused> {
        let refused = |reason| Err(Refused { from: self.from, kind: self.kind, reason });
        if (self.index == 0) != (self.log_term == 0) || self.log_term > self.term {
            return refused("the place before its entries is none");
        }
        let (mut index, mut term) = (self.index, self.log_term);
        for entry in &self.entries {
            if Some(entry.index) != index.checked_add(1) {
                return refused("its entries do not follow each other");
            }
            if entry.term < term || entry.term == 0 || entry.term > self.term {
                return refused("the terms of its entries do not grow up to its own");
            }
            (index, term) = (entry.index, entry.term);
        }
        Ok(())
    }
}
