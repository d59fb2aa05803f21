//! The coordinator's half of a round.

use model::Table;
use model::partition_key::DecoratedKey;
use model::tablet::Replica;
use reactor::{Group, mesh};
use storage::call_and_note;

use super::acceptor::{Prepare, Promise};
use super::{Ballot, CasDeadlines, CasError, CasOutcome, CasRequest};
use crate::consistency::Consistency;
use crate::error::{NotYet, ReplicaFailure, ReplicationError};
use crate::partition_line::Turn;
use crate::replicator::{Replicator, here};

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
    /// [`CasError::Request`] from `decide`; [`ReplicationError::Unavailable`] and
    /// [`ReplicationError::NotYet`], where the partition has other replicas than one of this node, before
    /// anything is done;
    /// [`ReplicationError::TimedOut`] at the first deadline, when nothing is written;
    /// [`ReplicationError::Undecided`] at the second: the write may then have happened.
    pub async fn cas<R: CasRequest>(
        &self,
        table: &Table,
        key: &DecoratedKey,
        request: &mut R,
        (serial, commit): (Consistency, Consistency),
        deadlines: CasDeadlines,
    ) -> Result<CasOutcome, CasError<R::Error>> {
        let shard = self.only_shard_of(table, key.token, NotYet::Conditions)?;
        let required = self.require(table, key.token, serial)?;
        self.require(table, key.token, commit)?;
        let (reads, now) = request.reads();
        let prepare = Prepare { table: table.id(), key: key.clone(), reads, now };
        let round = Round { replicator: self, shard, required, deadlines };
        let (kept, Promise { ballot, current }) = round.prepare(prepare).await?;
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

    async fn prepare(&self, prepare: Prepare) -> Result<(Kept, Promise), ReplicationError> {
        let CasDeadlines { contention: deadline, write } = self.deadlines;
        if self.shard == reactor::shard_id() {
            let acceptor = self.replicator.acceptor();
            let promised = acceptor.prepare(self.replicator.storage(), prepare, deadline).await;
            let (turn, promise) = promised.map_err(|failure| failure.at(self.replica(), self.required))?;
            return Ok((Kept::Here(turn), promise));
        }
        let call = call_and_note(self.shard, Group::STATEMENT, move || async move {
            let replicator = starting()?;
            replicator.acceptor().prepare_for_another(replicator.storage(), prepare, (deadline, write)).await
        });
        let promise = reactor::timeout(deadline, call).await.map_err(|_| self.timed_out())?;
        let promise = promise.unwrap_or_else(|error| Err(error.into()));
        let promise = promise.map_err(|failure: ReplicaFailure| failure.at(self.replica(), self.required))?;
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
