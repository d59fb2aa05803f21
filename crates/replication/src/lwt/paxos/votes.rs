//! Asks acceptors side by side for one step of a round, until enough say yes or cannot any more.

use std::future::poll_fn;
use std::task::Poll;

use reactor::{Deadline, Group};
use smallvec::SmallVec;
use storage::call_and_note;
use wire::node::frame::{Verb, WorkGroup};
use wire::node::paxos::Refusal;

use super::outcome::{Certainty, Failing, Step, certainty};
use crate::error::ReplicaFailure;
use crate::peers::{PeerCall, PeerError};
use crate::plan::{Distance, Plan, Planned};
use crate::replicator::{Replicator, here};
use crate::tally::{Ended, NO_SHARE, Tally};

/// A request on its way to an acceptor, or to a replica that is to have a chosen write.
pub(super) type Asked = std::pin::Pin<Box<dyn Future<Output = Result<Vec<u8>, ReplicaFailure>>>>;

/// Sends a request of a round to an acceptor, wherever it is.
pub(super) fn ask(
    replicator: &Replicator,
    planned: &Planned,
    (verb, body): (Verb, Vec<u8>),
    deadline: Deadline,
) -> Asked {
    let fault = |fault| ReplicaFailure::of_peer(PeerError::from(fault));
    match planned.distance {
        Distance::Here => {
            let replicator = replicator.clone();
            Box::pin(async move { replicator.serve(verb, &body, deadline).await.map_err(fault) })
        }
        Distance::Node => {
            let shard = replicator.shard_of(planned.replica);
            let call = call_and_note(shard, Group::STATEMENT, move || async move {
                let replicator = here().ok_or_else(ReplicaFailure::starting)?;
                replicator.serve(verb, &body, deadline).await.map_err(fault)
            });
            Box::pin(async move { call.await.unwrap_or_else(|error| Err(error.into())) })
        }
        Distance::Rack | Distance::DataCenter | Distance::Far => {
            let (to, group) = (planned.replica, WorkGroup::Statement);
            let answer = replicator.peers().call(PeerCall { to, verb, group, deadline, body });
            Box::pin(async move { answer.await.map_err(ReplicaFailure::of_peer) })
        }
    }
}

/// The acceptors of a plan that are expected to answer.
pub(super) fn acceptors(plan: &Plan) -> impl Iterator<Item = &Planned> {
    plan.replicas.iter().filter(|planned| planned.is_up && planned.share != NO_SHARE)
}

/// How a step went.
pub(super) struct Votes<T> {
    /// Who said yes, with the answer.
    pub(super) yes: SmallVec<[(Planned, T); 5]>,
    /// Who said no.
    pub(super) refused: SmallVec<[Refusal; 5]>,
    /// Whether the step reached a quorum.
    pub(super) is_reached: bool,
    /// What is certain of the write, if it did not.
    pub(super) certainty: Certainty,
    /// The end of a step that nobody refused and that did not reach a quorum.
    pub(super) ended: Option<Ended>,
}

/// One step of a round at the acceptors of a plan.
pub(super) struct Ballots<'a> {
    pub(super) replicator: &'a Replicator,
    pub(super) plan: &'a Plan,
    pub(super) step: Step,
    pub(super) deadline: Deadline,
}

impl Ballots<'_> {
    /// Sends each acceptor the request that `body` makes for it, and reads its answer with `read`.
    pub(super) async fn take<T>(
        &self,
        verb: Verb,
        body: impl Fn(&Planned) -> Vec<u8>,
        read: impl Fn(Vec<u8>) -> Result<Result<T, Refusal>, ReplicaFailure>,
    ) -> Votes<T> {
        let mut tally: Tally = self.plan.tally();
        let mut under_way: SmallVec<[(Planned, Asked); 5]> = SmallVec::new();
        // The farthest first, so that this shard's own work delays no other's.
        let mut asked: SmallVec<[&Planned; 5]> = acceptors(self.plan).collect();
        asked.reverse();
        for planned in asked {
            tally.asked(planned.share);
            under_way.push((*planned, ask(self.replicator, planned, (verb, body(planned)), self.deadline)));
        }
        let mut yes: SmallVec<[(Planned, T); 5]> = SmallVec::new();
        let mut refused: SmallVec<[Refusal; 5]> = SmallVec::new();
        let mut is_certain = true;
        let decided = poll_fn(|context| {
            under_way.retain(|(planned, asked)| {
                let Poll::Ready(answer) = asked.as_mut().poll(context) else { return true };
                let answer = answer.and_then(&read);
                match answer {
                    Ok(Ok(vote)) => {
                        tally.received(planned.share);
                        yes.push((*planned, vote));
                    }
                    Ok(Err(refusal)) => {
                        is_certain &= certainty(self.step, Failing::Refused) == Certainty::NotWritten;
                        refused.push(refusal);
                        let failure = ReplicaFailure::Failed("it has seen a later round".to_owned());
                        tally.failed(planned.share, planned.replica.into(), failure);
                    }
                    Err(failure) => {
                        let failing = match failure {
                            ReplicaFailure::TimedOut => Failing::Silent,
                            _ => Failing::Failed,
                        };
                        is_certain &= certainty(self.step, failing) == Certainty::NotWritten;
                        tally.failed(planned.share, planned.replica.into(), failure);
                    }
                }
                false
            });
            let decided = tally.is_reached() || tally.is_out_of_reach();
            if decided { Poll::Ready(()) } else { Poll::Pending }
        });
        let in_time = reactor::timeout(self.deadline, decided).await.is_ok();
        let is_reached = tally.is_reached();
        if !under_way.is_empty() {
            is_certain &= certainty(self.step, Failing::Silent) == Certainty::NotWritten;
        }
        // Whoever said yes to a proposal that did not reach a quorum keeps it.
        is_certain &= self.step == Step::Prepare || yes.is_empty();
        let certainty = match (self.step, is_certain) {
            (Step::Learn, _) => Certainty::Written,
            (_, true) => Certainty::NotWritten,
            (_, false) => Certainty::Unknown,
        };
        let ended = (!is_reached && refused.is_empty()).then(|| tally.end(in_time));
        Votes { yes, refused, is_reached, certainty, ended }
    }
}
