//! The messages of a round as its coordinator writes and reads them.
//!
//! What an acceptor sends is checked to be of the round's partition and table before it is used.

use model::Table;
use model::mutation::MutationView;
use model::partition_key::DecoratedKey;
use wire::node::paxos::{Prepared, Proposal, Propose, Refusal, decode_accepted};

use super::super::ballot::Ballot;
use super::rules::Held;
use crate::error::ReplicaFailure;
use crate::plan::{Plan, Planned};
use crate::read::RoundRead;

/// What an acceptor promised.
pub(super) struct Promised {
    pub(super) written: Option<Ballot>,
    pub(super) accepted: Option<Held>,
    pub(super) committed: Option<Held>,
    pub(super) answers: Vec<Vec<u8>>,
}

/// A request to accept a proposal, or with `durably` to commit it.
pub(super) fn propose(
    plan: &Plan,
    planned: &Planned,
    (ballot, mutation): (Ballot, &[u8]),
    durably: Option<bool>,
) -> Vec<u8> {
    let mutation = MutationView::trusted(mutation).expect("a mutation that was made or checked here");
    let (version, since) = (plan.version(), planned.since);
    let propose = Propose { version, since, proposal: Proposal { ballot, mutation } };
    let mut out = Vec::new();
    match durably {
        None => propose.encode_accept(&mut out),
        Some(durably) => propose.encode_learn(durably, &mut out),
    }
    out
}

/// An acceptor's answer to a proposal.
pub(super) fn accepted_in(bytes: &[u8]) -> Result<Result<(), Refusal>, ReplicaFailure> {
    decode_accepted(bytes).map_err(|error| broken(&error.to_string()))
}

/// A promise in an acceptor's answer: its proposals are of the partition, and it answers each read.
pub(super) fn promise_in(
    bytes: &[u8],
    reads: &[RoundRead<'_>],
    table: &Table,
    key: &DecoratedKey,
) -> Result<Result<Promised, Refusal>, ReplicaFailure> {
    let prepared = Prepared::decode(bytes).map_err(|error| broken(&error.to_string()))?;
    let promise = match prepared {
        Prepared::Refused(refusal) => return Ok(Err(refusal)),
        Prepared::Promised(promise) => promise,
    };
    if promise.answers.len() != reads.len() {
        return Err(broken("it does not answer each read"));
    }
    reads.iter().zip(&promise.answers).try_for_each(|(read, answer)| read.check(answer))?;
    let held = |proposal: Option<Proposal<'_>>| {
        let Some(Proposal { ballot, mutation }) = proposal else { return Ok(None) };
        if mutation.table != table.id() || mutation.key != key.key {
            return Err(broken("its proposal is of another partition"));
        }
        Ok(Some(Held { ballot, mutation: mutation.as_bytes().to_vec() }))
    };
    Ok(Ok(Promised {
        written: promise.written,
        accepted: held(promise.accepted)?,
        committed: held(promise.committed)?,
        answers: promise.answers.iter().map(|answer| answer.to_vec()).collect(),
    }))
}

fn broken(what: &str) -> ReplicaFailure {
    ReplicaFailure::Failed(format!("its answer is broken: {what}"))
}
