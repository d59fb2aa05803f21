//! The rounds of one request: from promises of a quorum that has nothing left to finish, to a chosen
//! proposal.
//!
//! A proposal of somebody else that may have been chosen is finished first, with its own timestamps; the
//! latest commit is brought to the members of the quorum that lack it. Only then may the request decide. A
//! ballot is used for one proposal. Invariant: while a proposal of this request may survive at an acceptor,
//! the request ends as undecided unless a later round tells what became of it.

use std::time::Duration;

use model::Table;
use model::mutation::{MutationBuilder, MutationView};
use model::partition_key::DecoratedKey;
use model::{DeletionTime, tablet::Replica};
use reactor::Deadline;
use smallvec::SmallVec;
use wire::node::frame::Verb;
use wire::node::paxos::{Prepare, Refusal, Why};

use super::acceptor::grace_seconds;
use super::message::{Promised, accepted_in, promise_in, propose};
use super::outcome::{Certainty, Step};
use super::rules::Held;
use super::votes::{Ballots, Votes};
use crate::consistency::Consistency;
use crate::error::ReplicationError;
use crate::lwt::ballot::Ballot;
use crate::plan::{Distance, Plan, Planned};
use crate::read::RoundRead;
use crate::replicator::Replicator;
use crate::tally::{Ended, NO_SHARE};

/// Longest pause behind a round that was refused, before the next one.
const BACK_OFF_MAX_US: u64 = 50_000;
/// The shortest.
const BACK_OFF_MIN_US: u64 = 1000;

/// Answers of acceptors to one read.
type Answers = SmallVec<[(Planned, Vec<u8>); 5]>;

/// A quorum of promises that a request may decide upon.
pub(super) struct Settled {
    pub(super) plan: Plan,
    pub(super) ballot: Ballot,
    /// Whether no earlier proposal can be chosen any more, so that the request may end without a proposal.
    pub(super) is_settled: bool,
    /// For each read, the answers of the quorum.
    pub(super) answers: Vec<Answers>,
}

/// What became of a request before it decided.
pub(super) enum Next {
    /// It may decide.
    Decide(Box<Settled>),
    /// An earlier proposal of its own was chosen.
    OwnChosen,
}

/// How a proposal went.
pub(super) enum Proposed {
    /// It was chosen.
    Chosen,
    /// Another round came first: the request begins again.
    Again,
}

/// A proposal of this request that may survive.
struct Own {
    ballot: Ballot,
    mutation: Vec<u8>,
    accepted: u32,
}

/// The rounds of one request.
pub(super) struct Session<'a> {
    pub(super) replicator: &'a Replicator,
    pub(super) table: &'a Table,
    pub(super) key: &'a DecoratedKey,
    /// SERIAL or LOCAL_SERIAL.
    pub(super) level: Consistency,
    /// When the request stops to compete with others.
    pub(super) contention: Deadline,
    /// When a proposal must have been chosen.
    pub(super) write: Deadline,
    /// Ballots must be later than this time.
    after_us: i64,
    own: Vec<Own>,
    received: u32,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        replicator: &'a Replicator,
        (table, key): (&'a Table, &'a DecoratedKey),
        level: Consistency,
        (contention, write): (Deadline, Deadline),
    ) -> Self {
        let own = Vec::new();
        Self { replicator, table, key, level, contention, write, after_us: 0, own, received: 0 }
    }

    /// The plan of the acceptors.
    ///
    /// # Errors
    /// [`ReplicationError::Unavailable`] where too few are alive, [`ReplicationError::Undecided`] where that
    /// leaves the request undecided.
    fn plan(&self) -> Result<Plan, ReplicationError> {
        let plan = self.replicator.plan_write(self.table, self.key.token, self.level);
        plan.map_err(|error| self.unless_undecided(error))
    }

    /// The error of the request: undecided, where a proposal of its own may survive.
    pub(super) fn unless_undecided(&self, error: ReplicationError) -> ReplicationError {
        let Some(received) = self.own.iter().map(|own| own.accepted).max() else { return error };
        ReplicationError::Undecided { received, required: self.required() }
    }

    /// Whether a proposal of the request may survive.
    pub(super) fn has_proposed(&self) -> bool {
        !self.own.is_empty()
    }

    /// The error of a request of which a proposal may survive.
    pub(super) fn undecided(&self) -> ReplicationError {
        self.unless_undecided(ReplicationError::timed_out(0, self.required()))
    }

    fn required(&self) -> u32 {
        self.replicator.with_counts(self.table, |counts| self.level.required(counts))
    }

    /// The error of a request that others did not let through in time.
    fn contended(&self) -> ReplicationError {
        let required = self.required();
        let received = self.received.min(required.saturating_sub(1));
        self.unless_undecided(ReplicationError::timed_out(received, required))
    }

    /// The number of the replicas that agree: 0 for all.
    fn scope_of(&self, plan: &Plan) -> u8 {
        let elsewhere = plan.replicas.iter().any(|p| p.share == NO_SHARE && p.distance == Distance::Far);
        if self.level != Consistency::LocalSerial || !elsewhere {
            return 0;
        }
        let data_center = self.replicator.data_center();
        let place = self.replicator.with_counts(self.table, |counts| counts.place_of(data_center));
        u8::try_from(place.unwrap_or(0) + 1).unwrap_or(u8::MAX)
    }

    /// Gets promises of a quorum for a round, until nothing of others is left to be finished.
    ///
    /// # Errors
    /// [`ReplicationError::TimedOut`] at the first deadline, and the errors of too many failing acceptors:
    /// the request has proposed nothing then; [`ReplicationError::Undecided`] where it has.
    pub(super) async fn settle(
        &mut self,
        writes: bool,
        reads: &[RoundRead<'_>],
    ) -> Result<Next, ReplicationError> {
        // Bounded by the first deadline.
        loop {
            if self.contention.is_past() {
                return Err(self.contended());
            }
            let plan = self.plan()?;
            let ballot = self.ballot(&plan)?;
            let Some(promises) = self.promises(&plan, (ballot, writes), reads).await? else { continue };
            let accepted = latest(promises.iter().map(|(_, promised)| &promised.accepted));
            let committed = latest(promises.iter().map(|(_, promised)| &promised.committed));
            let committed_at = committed.map(|held| held.ballot);
            if let Some(accepted) = accepted.filter(|held| Some(held.ballot) > committed_at) {
                let accepted = accepted.clone();
                self.finish(&plan, ballot, &accepted).await?;
                continue;
            }
            if let Some(committed) = committed
                && !self.bring(&plan, committed, &promises).await
            {
                self.back_off().await;
                continue;
            }
            if self.is_own_chosen(committed, &promises)? {
                return Ok(Next::OwnChosen);
            }
            let is_open = |promised: &Promised| promised.written > committed_at;
            let is_settled = self.own.is_empty() && !promises.iter().any(|(_, promised)| is_open(promised));
            let answers = (0..reads.len()).map(|at| {
                let of = |(planned, promised): &(Planned, Promised)| (*planned, promised.answers[at].clone());
                promises.iter().map(of).collect()
            });
            let answers = answers.collect();
            return Ok(Next::Decide(Box::new(Settled { plan, ballot, is_settled, answers })));
        }
    }

    fn ballot(&self, plan: &Plan) -> Result<Ballot, ReplicationError> {
        let acceptor = self.replicator.acceptor();
        let next = acceptor.ballots().next(self.replicator.own(), self.scope_of(plan), self.after_us);
        next.map_err(|ahead| {
            self.unless_undecided(ReplicationError::ClockBehind { behind_us: ahead.ahead_us })
        })
    }

    /// Makes later ballots later than a time.
    pub(super) fn go_behind(&mut self, micros: i64) {
        self.after_us = self.after_us.max(micros);
    }

    /// Asks for promises; `None` if the round has to be begun again.
    async fn promises(
        &mut self,
        plan: &Plan,
        (ballot, writes): (Ballot, bool),
        reads: &[RoundRead<'_>],
    ) -> Result<Option<SmallVec<[(Planned, Promised); 5]>>, ReplicationError> {
        let body = |planned: &Planned| {
            let reads: Vec<Vec<u8>> =
                reads.iter().map(|read| read.encode(plan.version(), planned.since)).collect();
            let prepare = Prepare {
                table: self.table.id(),
                version: plan.version(),
                since: planned.since,
                key: &self.key.key,
                ballot,
                writes,
                reads: reads.iter().map(Vec::as_slice).collect(),
            };
            let mut out = Vec::new();
            prepare.encode(&mut out);
            out
        };
        let (step, deadline) = (Step::Prepare, self.contention);
        let step = Ballots { replicator: self.replicator, plan, step, deadline };
        let votes =
            step.take(Verb::Prepare, body, |bytes| promise_in(&bytes, reads, self.table, self.key)).await;
        self.received = votes.yes.len() as u32;
        if votes.is_reached {
            return Ok(Some(votes.yes));
        }
        self.not_reached(&votes.refused, votes.ended, plan.version()).await?;
        Ok(None)
    }

    /// What to do about a step that did not reach a quorum: waits before the next try, or ends the request.
    async fn not_reached(
        &mut self,
        refused: &[Refusal],
        ended: Option<Ended>,
        version: u64,
    ) -> Result<(), ReplicationError> {
        for refusal in refused {
            match refusal.why {
                Why::NotLater => self.go_behind(refusal.highest.micros),
                Why::Ahead => {
                    let ahead_us = refusal.highest.micros.saturating_sub(reactor::wall_clock_us()).max(0);
                    return Err(self.unless_undecided(ReplicationError::ClockAhead { ahead_us }));
                }
                Why::OtherScope => return Err(self.unless_undecided(ReplicationError::OtherScope)),
            }
        }
        match ended {
            Some(Ended::Failed(error)) => Err(self.unless_undecided(error)),
            Some(Ended::Again(error)) if self.contention.is_past() => Err(self.unless_undecided(error)),
            Some(Ended::Again(_)) => {
                self.replicator.wait_for_later_plan(self.table, version, self.contention).await;
                Ok(())
            }
            None => {
                self.back_off().await;
                Ok(())
            }
        }
    }

    /// Lets other rounds go first for a moment.
    async fn back_off(&self) {
        let span = BACK_OFF_MAX_US - BACK_OFF_MIN_US;
        let pause = Duration::from_micros(BACK_OFF_MIN_US + reactor::random_u64() % span);
        reactor::sleep(pause.min(self.contention.remaining())).await;
    }

    /// Has a quorum accept and commit somebody's proposal under our ballot. Whether that succeeded shows in
    /// the next round.
    async fn finish(&mut self, plan: &Plan, ballot: Ballot, held: &Held) -> Result<(), ReplicationError> {
        let votes = self.accept(plan, ballot, &held.mutation).await;
        if !votes.is_reached {
            return self.not_reached(&votes.refused, votes.ended, plan.version()).await;
        }
        self.learn(plan, (ballot, &held.mutation), |_| true).await;
        Ok(())
    }

    async fn accept(&self, plan: &Plan, ballot: Ballot, mutation: &[u8]) -> Votes<()> {
        let (step, deadline) = (Step::Accept, self.write);
        let step = Ballots { replicator: self.replicator, plan, step, deadline };
        let body = |planned: &Planned| propose(plan, planned, (ballot, mutation), None);
        step.take(Verb::Accept, body, |bytes| accepted_in(&bytes)).await
    }

    /// Has acceptors commit a chosen proposal durably; returns those that have.
    async fn learn(
        &self,
        plan: &Plan,
        (ballot, mutation): (Ballot, &[u8]),
        is_asked: impl Fn(&Planned) -> bool,
    ) -> SmallVec<[Replica; 5]> {
        let asked = super::votes::acceptors(plan).filter(|planned| is_asked(planned));
        let mut under_way: SmallVec<[_; 5]> = asked
            .map(|planned| {
                let request = (Verb::Learn, propose(plan, planned, (ballot, mutation), Some(true)));
                (planned.replica, super::votes::ask(self.replicator, planned, request, self.write))
            })
            .collect();
        let mut learned = SmallVec::new();
        let all = std::future::poll_fn(|context| {
            under_way.retain(|(replica, asked)| match asked.as_mut().poll(context) {
                std::task::Poll::Pending => true,
                std::task::Poll::Ready(answer) => {
                    learned.extend(answer.is_ok().then_some(*replica));
                    false
                }
            });
            let enough = learned.len() >= plan.required as usize || under_way.is_empty();
            if enough { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        });
        let _in_time = reactor::timeout(self.write, all).await;
        learned
    }

    /// Brings the latest commit to the members of the quorum that lack it; returns whether all have it now.
    async fn bring(&self, plan: &Plan, committed: &Held, promises: &[(Planned, Promised)]) -> bool {
        // It may have expired at some members: what is that old is not spread again.
        let grace_us = i64::from(grace_seconds(self.table)) * 1_000_000;
        if committed.ballot.micros < reactor::wall_clock_us().saturating_sub(grace_us) {
            return true;
        }
        let has_it = |promised: &Promised| {
            promised.committed.as_ref().is_some_and(|held| held.ballot >= committed.ballot)
        };
        for (planned, promised) in promises {
            if has_it(promised) {
                continue;
            }
            let replica = planned.replica;
            let commit = (committed.ballot, committed.mutation.as_slice());
            if self.learn(plan, commit, |planned| planned.replica == replica).await.is_empty() {
                return false;
            }
        }
        true
    }

    /// Whether a proposal of this request was chosen, as far as the quorum shows it.
    ///
    /// # Errors
    /// [`ReplicationError::Undecided`] where later rounds may have come behind it.
    fn is_own_chosen(
        &self,
        committed: Option<&Held>,
        promises: &[(Planned, Promised)],
    ) -> Result<bool, ReplicationError> {
        let Some(first) = self.own.iter().map(|own| own.ballot).min() else { return Ok(false) };
        let is_own = |held: &Held| self.own.iter().any(|own| own.mutation == held.mutation);
        if committed.is_some_and(is_own) {
            return Ok(true);
        }
        let seen = promises.iter().flat_map(|(_, promised)| [&promised.accepted, &promised.committed]);
        if seen.flatten().all(|held| held.ballot < first) {
            // No quorum accepted it, and none will once this round has a proposal of its own.
            return Ok(false);
        }
        Err(self.undecided())
    }

    /// Proposes what a request decided on.
    ///
    /// # Errors
    /// [`ReplicationError::Undecided`] where the proposal may be chosen and it is not known that it was.
    pub(super) async fn propose(
        &mut self,
        plan: &Plan,
        ballot: Ballot,
        mutation: &[u8],
    ) -> Result<Proposed, ReplicationError> {
        let votes = self.accept(plan, ballot, mutation).await;
        if votes.is_reached {
            // Earlier proposals cannot be chosen behind this one.
            self.own.clear();
            return Ok(Proposed::Chosen);
        }
        let is_empty = MutationView::trusted(mutation).is_ok_and(|view| super::acceptor::is_empty(&view));
        // A proposal that changes nothing does no harm wherever it survives.
        if votes.certainty == Certainty::Unknown && !is_empty {
            let accepted = votes.yes.len() as u32;
            self.own.push(Own { ballot, mutation: mutation.to_vec(), accepted });
        }
        self.not_reached(&votes.refused, votes.ended, plan.version()).await?;
        Ok(Proposed::Again)
    }

    /// Proposes and commits that nothing changes, so that no earlier proposal can be chosen any more.
    ///
    /// # Errors
    /// As [`Session::propose`].
    pub(super) async fn propose_nothing(
        &mut self,
        plan: &Plan,
        ballot: Ballot,
    ) -> Result<Proposed, ReplicationError> {
        let mut nothing = Vec::new();
        let (table, token) = (self.table.id(), self.key.token);
        MutationBuilder::new(&mut nothing, table, token, &self.key.key, DeletionTime::LIVE, |_| {}).finish();
        let proposed = self.propose(plan, ballot, &nothing).await?;
        if matches!(proposed, Proposed::Chosen) {
            self.learn(plan, (ballot, &nothing), |_| true).await;
        }
        Ok(proposed)
    }
}

/// The later of proposals.
fn latest<'h>(held: impl Iterator<Item = &'h Option<Held>>) -> Option<&'h Held> {
    held.flatten().max_by_key(|held| held.ballot)
}
