//! The coordinator's half of a round.

use model::Table;
use model::partition_key::DecoratedKey;
use model::tablet::Replica;
use reactor::{Group, mesh};
use storage::call_and_note;

use super::acceptor::{Prepare, Promise};
use super::{Ballot, CasDeadlines, CasError, CasOutcome, CasRequest};
use crate::consistency::Consistency;
use crate::error::{ReplicaFailure, ReplicationError};
use crate::partition_line::Turn;
use crate::replicator::{Replicator, here};
use crate::tally::Ended;

/// A promise and its place.
enum Kept {
    /// By this coordinator.
    Here(Turn),
    /// By the shard that has the partition.
    There(usize),
}

impl Replicator {
    /// Executes a conditional write of one partition: the contents that `request` decides on are still
    /// current when it is written.
    ///
    /// Outcomes are linearizable over all conditional writes of a partition, from every shard. `serial`
    /// selects the replicas for that, `commit` the number of them that must have the write before this
    /// returns.
    ///
    /// # Errors
    /// [`CasError::Request`] from `decide`; [`ReplicationError::Unavailable`] before anything is done;
    /// [`ReplicationError::TimedOut`] at the first deadline, when nothing is written;
    /// [`ReplicationError::Undecided`] at the second: the write may then have happened;
    /// [`ReplicationError::Uncommitted`] if it has happened and too few replicas for `commit` have it yet;
    /// [`ReplicationError::ClockAhead`], [`ReplicationError::ClockBehind`], [`ReplicationError::OtherScope`]
    /// and [`ReplicationError::WrittenAhead`] where replicas cannot agree: nothing is written.
    pub async fn cas<R: CasRequest>(
        &self,
        table: &Table,
        key: &DecoratedKey,
        request: &mut R,
        (serial, commit): (Consistency, Consistency),
        deadlines: CasDeadlines,
    ) -> Result<CasOutcome, CasError<R::Error>> {
        // Bounded by the first deadline.
        let (round, kept, Promise { ballot, current }) = loop {
            if self.view().is_shared() {
                let partition = (table, key);
                return Box::pin(self.cas_by_agreement(partition, request, (serial, commit), deadlines))
                    .await;
            }
            let version = self.view().with_routing(table, |routing| routing.version());
            let shard = self.shard_of(self.replica_of(table, key.token));
            let required = self.required_alone(table, serial)?;
            self.required_alone(table, commit)?;
            let (reads, now) = request.reads();
            let prepare = Prepare { table: table.id(), key: key.clone(), reads, now };
            let round = Round { replicator: self, shard, required, deadlines };
            match round.prepare(prepare).await {
                Ok((kept, promise)) => break (round, kept, promise),
                Err(Ended::Failed(error)) => return Err(error.into()),
                Err(Ended::Again(error)) if deadlines.contention.is_past() => return Err(error.into()),
                // The tablet is on another shard by now, or another node takes part.
                Err(Ended::Again(_)) => self.wait_for_later_plan(table, version, deadlines.contention).await,
            }
        };
        let mut mutation = Vec::new();
        match request.decide(&current, ballot, &mut mutation) {
            Ok(true) => {
                round.accept(kept, ballot, mutation).await?;
                Ok(CasOutcome::Applied)
            }
            Ok(false) => {
                round.give_up(kept, ballot);
                Ok(CasOutcome::Rejected(current))
            }
            Err(error) => {
                round.give_up(kept, ballot);
                Err(CasError::Request(error))
            }
        }
    }

    /// Waits until every accepted conditional write and counter update of this shard is applied; accepts none
    /// from now on.
    pub async fn stop(&self) {
        self.acceptor().stop().await;
    }
}

struct Round<'r> {
    replicator: &'r Replicator,
    shard: usize,
    required: u32,
    deadlines: CasDeadlines,
}

impl Round<'_> {
    fn replica(&self) -> Replica {
        self.replicator.own_shard(self.shard)
    }

    fn timed_out(&self) -> ReplicationError {
        ReplicationError::timed_out(0, self.required)
    }

    async fn prepare(&self, prepare: Prepare) -> Result<(Kept, Promise), Ended> {
        let CasDeadlines { contention: deadline, write } = self.deadlines;
        if self.shard == reactor::shard_id() {
            let acceptor = self.replicator.acceptor();
            let promised = acceptor.prepare(self.replicator.storage(), prepare, deadline).await;
            let (turn, promise) =
                promised.map_err(|failure| Ended::of_one(failure, self.replica(), self.required))?;
            return Ok((Kept::Here(turn), promise));
        }
        let call = call_and_note(self.shard, Group::STATEMENT, move || async move {
            let replicator = starting()?;
            replicator.acceptor().prepare_for_another(replicator.storage(), prepare, (deadline, write)).await
        });
        let promise = reactor::timeout(deadline, call).await.map_err(|_| Ended::Failed(self.timed_out()))?;
        let promise = promise.unwrap_or_else(|error| Err(error.into()));
        let ended = |failure: ReplicaFailure| Ended::of_one(failure, self.replica(), self.required);
        let promise = promise.map_err(ended)?;
        Ok((Kept::There(self.shard), promise))
    }

    async fn accept(&self, kept: Kept, ballot: Ballot, mutation: Vec<u8>) -> Result<(), ReplicationError> {
        let deadline = self.deadlines.write;
        // A proposal may be written even if no client waits for it any more.
        let undecided = || ReplicationError::Undecided { received: 0, required: self.required };
        match kept {
            Kept::Here(turn) => {
                let acceptor = self.replicator.acceptor();
                let accepted = acceptor.accept(self.replicator.storage(), turn, mutation, deadline);
                let accepted = reactor::timeout(deadline, accepted).await.map_err(|_| undecided())?;
                accepted.map_err(|failure| failure.here(self.required))
            }
            Kept::There(shard) => {
                let call = mesh::call(shard, Group::STATEMENT, move || async move {
                    let replicator = starting()?;
                    let turn = replicator.acceptor().take(ballot)?;
                    replicator.acceptor().accept(replicator.storage(), turn, mutation, deadline).await
                });
                let accepted = reactor::timeout(deadline, call).await.map_err(|_| undecided())?;
                let accepted = accepted.unwrap_or_else(|error| Err(error.into()));
                accepted.map_err(|failure: ReplicaFailure| failure.at(self.replica(), self.required))
            }
        }
    }

    /// Lets the next one have the partition's turn.
    fn give_up(&self, kept: Kept, ballot: Ballot) {
        if let Kept::There(shard) = kept {
            let call = mesh::call(shard, Group::STATEMENT, move || async move {
                if let Some(replicator) = here() {
                    // A promise that is no longer kept has been given up already.
                    drop(replicator.acceptor().take(ballot));
                }
            });
            // The call is not awaited: if it does not arrive, the promise ends at its deadline.
            reactor::spawn(Group::STATEMENT, call).detach();
        }
    }
}

fn starting() -> Result<std::rc::Rc<Replicator>, ReplicaFailure> {
    here().ok_or_else(ReplicaFailure::starting)
}
