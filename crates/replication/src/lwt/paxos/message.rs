//! The messages of a round as its coordinator writes and reads them.
//!
//! What an acceptor sends is checked to be of the round's partition and table before it is used.

use model::Table;
use model::mutation::MutationView;
use model::partition_key::DecoratedKey;
use wire::node::NodeError;
use wire::node::paxos::{Prepared, Proposal, Propose, Refusal};

use super::super::ballot::Ballot;
use super::rules::Held;
use crate::plan::{Plan, Planned};

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

/// A promise in an acceptor's answer: its proposals are of the partition, and it answers each read.
pub(super) fn promise_in(
    bytes: &[u8],
    reads: usize,
    table: &Table,
    key: &DecoratedKey,
) -> Result<Result<Promised, Refusal>, NodeError> {
    let promise = match Prepared::decode(bytes)? {
        Prepared::Refused(refusal) => return Ok(Err(refusal)),
        Prepared::Promised(promise) => promise,
    };
    let invalid = |reason: &str| NodeError::Invalid { field: "a promise", reason: reason.to_owned() };
    if promise.answers.len() != reads {
        return Err(invalid("it does not answer each read"));
    }
    let held = |proposal: Option<Proposal<'_>>| -> Result<Option<Held>, NodeError> {
        let Some(Proposal { ballot, mutation }) = proposal else { return Ok(None) };
        if mutation.table != table.id() || mutation.key != key.key || !mutation.fits(table) {
            return Err(invalid("its proposal is of another partition or table"));
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
