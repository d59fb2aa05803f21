//! What an acceptor may promise, accept and commit, by what it has noted. Pure.
//!
//! PREPARE takes a time later than all that was promised, accepted and committed, so that no two rounds write
//! with one timestamp. ACCEPT takes the ballot that was promised, or a later time, and always a later one
//! than what was accepted and committed. A commit is taken whatever was promised: its proposal was chosen.

use wire::node::paxos::{BALLOT_BYTES, Refusal, Why};

use super::super::ballot::{AHEAD_MAX_US, Ballot};

/// A proposal with its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) ballot: Ballot,
    pub(super) mutation: Vec<u8>,
}

/// The promises of an acceptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Promised {
    /// The latest.
    pub(super) latest: Ballot,
    /// The latest to a round that may write.
    pub(super) written: Option<Ballot>,
}

/// What an acceptor has noted of one partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) promised: Option<Promised>,
    pub(super) accepted: Option<Held>,
    pub(super) committed: Option<Held>,
}

/// What an acceptor does with a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Accepting {
    /// It notes the proposal.
    New,
    /// It has the proposal already: the request came twice.
    Again,
}

/// What an acceptor does with a commit, beside applying its mutation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Learning {
    /// It is the latest commit.
    pub(super) is_latest: bool,
    /// The accepted proposal is the same or an earlier one.
    pub(super) clears_accepted: bool,
}

impl State {
    fn seen(&self) -> impl Iterator<Item = Ballot> + '_ {
        let promised = self.promised.iter().map(|promised| promised.latest);
        promised.chain([&self.accepted, &self.committed].into_iter().flatten().map(|held| held.ballot))
    }

    fn check_scope(&self, ballot: Ballot) -> Result<(), Refusal> {
        let promised = self.promised.map(|promised| promised.latest);
        let open = promised.into_iter().chain(self.accepted.as_ref().map(|held| held.ballot));
        match open.max().filter(|open| open.scope != ballot.scope) {
            Some(highest) => Err(Refusal { why: Why::OtherScope, highest }),
            None => Ok(()),
        }
    }

    /// Whether a round may be promised, at an acceptor whose clock shows `now_us`.
    ///
    /// # Errors
    /// The refusal.
    pub(super) fn prepare(&self, ballot: Ballot, now_us: i64) -> Result<(), Refusal> {
        if ballot.micros > now_us.saturating_add(AHEAD_MAX_US) {
            return Err(Refusal { why: Why::Ahead, highest: ballot });
        }
        self.check_scope(ballot)?;
        match self.seen().max() {
            Some(highest) if ballot.micros <= highest.micros => Err(Refusal { why: Why::NotLater, highest }),
            _ => Ok(()),
        }
    }

    /// The promises once a round is promised.
    pub(super) fn promised_with(&self, ballot: Ballot, writes: bool) -> Promised {
        let before = self.promised.and_then(|promised| promised.written);
        Promised { latest: ballot, written: if writes { Some(ballot) } else { before } }
    }

    /// Whether a proposal may be accepted.
    ///
    /// # Errors
    /// The refusal.
    pub(super) fn accept(&self, ballot: Ballot) -> Result<Accepting, Refusal> {
        let held = || [&self.accepted, &self.committed].into_iter().flatten().map(|held| held.ballot);
        if held().any(|held| held == ballot) {
            return Ok(Accepting::Again);
        }
        self.check_scope(ballot)?;
        let promised = self.promised.map(|promised| promised.latest).filter(|latest| *latest != ballot);
        match held().chain(promised).max() {
            Some(highest) if ballot.micros <= highest.micros => Err(Refusal { why: Why::NotLater, highest }),
            _ => Ok(Accepting::New),
        }
    }

    /// What a commit changes.
    pub(super) fn learn(&self, ballot: Ballot) -> Learning {
        Learning {
            is_latest: self.committed.as_ref().is_none_or(|held| held.ballot < ballot),
            clears_accepted: self.accepted.as_ref().is_some_and(|held| held.ballot <= ballot),
        }
    }
}

impl Promised {
    /// The bytes that are stored.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.latest.to_bytes().to_vec();
        bytes.extend(self.written.iter().flat_map(|ballot| ballot.to_bytes()));
        bytes
    }

    /// Reads stored bytes; `None` if they are none.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (latest, written) = bytes.split_first_chunk::<BALLOT_BYTES>()?;
        let written = match written {
            [] => None,
            written => Some(Ballot::from_bytes(written.try_into().ok()?).ok()?),
        };
        Some(Self { latest: Ballot::from_bytes(*latest).ok()?, written })
    }
}

impl Held {
    /// The bytes that are stored.
    pub(super) fn encode(ballot: Ballot, mutation: &[u8]) -> Vec<u8> {
        [&ballot.to_bytes()[..], mutation].concat()
    }

    /// Reads stored bytes; `None` if they are none.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (ballot, mutation) = bytes.split_first_chunk::<BALLOT_BYTES>()?;
        Some(Self { ballot: Ballot::from_bytes(*ballot).ok()?, mutation: mutation.to_vec() })
    }
}

#[cfg(test)]
mod tests;
