//! Conditional writes and serial reads where several replicas, or one on another node, agree: Paxos for each
//! partition.
//!
//! `rules` are an acceptor's, pure; `acceptor` keeps to them durably. `votes` asks acceptors for one step,
//! and `message` has what they are sent. `session` runs the rounds of one request; `outcome` says what is
//! certain when a step fails. `commit` shows a chosen write to readers, `serial` reads. Two round trips are a
//! write, one a serial read, if nobody competes. Invariant: of the proposals to one partition at most one is
//! chosen behind each state that was read, and what was answered as not applied is never chosen.

mod acceptor;
mod commit;
mod message;
mod outcome;
mod rules;
mod serial;
mod session;
mod votes;

use model::Table;
use model::deletion::LocalSeconds;
use model::partition_key::DecoratedKey;
use storage::{PartitionRange, ReadCommand};

use super::current::{Current, Taker};
use super::{CURRENT_BYTES_MAX, CasDeadlines, CasError, CasOutcome, CasRead, CasRequest};
use crate::consistency::Consistency;
use crate::error::{ReplicaFailure, ReplicationError};
use crate::read::{ReadLimits, RoundRead};
use crate::replicator::Replicator;
use session::{Next, Proposed, Session, Settled};

/// The level at which the rest of a read goes on that the promises did not bring whole.
fn plain_level(serial: Consistency) -> Consistency {
    match serial {
        Consistency::LocalSerial => Consistency::LocalQuorum,
        _ => Consistency::Quorum,
    }
}

impl Replicator {
    /// Executes a conditional write as [`Replicator::cas`], by agreement of the replicas.
    pub(super) async fn cas_by_agreement<R: CasRequest>(
        &self,
        (table, key): (&Table, &DecoratedKey),
        request: &mut R,
        (serial, commit): (Consistency, Consistency),
        deadlines: CasDeadlines,
    ) -> Result<CasOutcome, CasError<R::Error>> {
        let required = self.plan_write(table, key.token, serial)?.required;
        self.plan_write(table, key.token, commit)?;
        // Requests of this shard do not compete with each other.
        let turn = self.acceptor().queue_turn(table.id(), &key.key, deadlines.contention).await;
        let _turn = turn.map_err(|failure| failure.here(required))?;
        let (reads, now) = request.reads();
        let commands = self.commands((table, key), &reads, now)?;
        let reads: Vec<_> =
            reads.iter().zip(&commands).map(|(read, command)| Reading::new(read, command, now)).collect();
        let rounds: Vec<RoundRead<'_>> = reads.iter().map(|reading| reading.round.clone()).collect();
        let mut session = Session::new(self, (table, key), serial, (deadlines.contention, deadlines.write));
        // Bounded by the first deadline.
        loop {
            let settled = match session.settle(true, &rounds).await? {
                Next::OwnChosen => return Ok(CasOutcome::Applied),
                Next::Decide(settled) => settled,
            };
            let Settled { plan, ballot, is_settled, answers } = *settled;
            let mut current = Current::default();
            let mut newest = i64::MIN;
            for (reading, answers) in reads.iter().zip(&answers) {
                let mut taker = Taker::new(&mut current, reading.read.rows_max, reading.shown_by());
                let way = (&plan, plain_level(serial), deadlines.contention);
                let taken = reading.round.hand_over(self, way, answers, &mut taker).await;
                newest = newest.max(taken.map_err(|error| session.unless_undecided(error))?);
            }
            if current.is_too_large() {
                return Err(session.unless_undecided(too_large().here(required)).into());
            }
            let mut mutation = Vec::new();
            let decided = match request.decide(&current, ballot, &mut mutation) {
                Ok(decided) => decided,
                Err(error) => return self.end_without(&mut session, (plan, ballot, is_settled), error).await,
            };
            if !decided {
                let ends =
                    is_settled || matches!(session.propose_nothing(&plan, ballot).await?, Proposed::Chosen);
                if ends {
                    return Ok(CasOutcome::Rejected(current));
                }
                continue;
            }
            self.check_size(&mutation).map_err(|error| session.unless_undecided(error))?;
            if newest >= ballot.micros {
                // Data that was read would hide what is written.
                let limit = reactor::wall_clock_us().saturating_add(super::ballot::AHEAD_MAX_US);
                if newest >= limit {
                    let error = ReplicationError::WrittenAhead { timestamp: newest };
                    return Err(session.unless_undecided(error).into());
                }
                session.go_behind(newest);
                continue;
            }
            if let Proposed::Chosen = session.propose(&plan, ballot, &mutation).await? {
                let chosen = (ballot, mutation);
                self.commit_chosen((table, key), &plan, chosen, commit, deadlines.write).await?;
                return Ok(CasOutcome::Applied);
            }
        }
    }

    /// Ends a request that cannot be decided, and says so only if nothing of it is left behind.
    async fn end_without<E>(
        &self,
        session: &mut Session<'_>,
        (plan, ballot, is_settled): (crate::plan::Plan, super::Ballot, bool),
        error: E,
    ) -> Result<CasOutcome, CasError<E>> {
        if !is_settled && session.has_proposed() {
            match session.propose_nothing(&plan, ballot).await? {
                Proposed::Chosen => {}
                Proposed::Again => return Err(session.undecided().into()),
            }
        }
        Err(CasError::Request(error))
    }

    /// The commands of a request's reads.
    fn commands(
        &self,
        (table, key): (&Table, &DecoratedKey),
        reads: &[CasRead],
        now: LocalSeconds,
    ) -> Result<Vec<ReadCommand>, ReplicationError> {
        let known = self.storage().borrow_schema().table_by_id(table.id()).cloned();
        let table = known.ok_or(ReplicationError::TableGone(table.id()))?;
        let command = |read: &CasRead| ReadCommand {
            table: table.clone(),
            range: PartitionRange::Key(key.clone()),
            slices: read.slices.clone(),
            reversed: false,
            now,
            bypass_cache: false,
        };
        Ok(reads.iter().map(command).collect())
    }
}

fn too_large() -> ReplicaFailure {
    ReplicaFailure::Failed(format!("a conditional write looked at more than {CURRENT_BYTES_MAX} bytes"))
}

/// One read of a conditional write.
struct Reading<'r> {
    read: &'r CasRead,
    now: LocalSeconds,
    round: RoundRead<'r>,
}

impl<'r> Reading<'r> {
    fn new(read: &'r CasRead, command: &'r ReadCommand, now: LocalSeconds) -> Self {
        // One row without a shown column is rare: then the read goes on behind the promises.
        let rows = (read.rows_max != usize::MAX).then_some(read.rows_max);
        let limits = ReadLimits { rows, rows_per_partition: None };
        Self { read, now, round: RoundRead::new(command, limits) }
    }

    fn shown_by(&self) -> Option<(&'r [model::ColumnId], LocalSeconds)> {
        self.read.shown_by.as_deref().map(|columns| (columns, self.now))
    }
}
