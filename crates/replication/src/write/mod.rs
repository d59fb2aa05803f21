//! A write: planned, sent to its replicas, acknowledged when enough of them have it.

mod collect;
mod pending;
mod plan;
mod send;

use model::mutation::MutationView;
use model::{Table, Token};
use reactor::Deadline;

use crate::admission::{self, Operation};
use crate::consistency::Consistency;
use crate::error::{ReplicaFailure, ReplicationError};
use crate::replicator::Replicator;
use plan::WritePlan;

pub use pending::Pending;

impl Replicator {
    /// Writes one mutation of `table` to enough replicas for `consistency`.
    ///
    /// # Errors
    /// [`ReplicationError::RateLimited`], [`ReplicationError::TooLarge`] and
    /// [`ReplicationError::Unavailable`] before anything is done; [`ReplicationError::TimedOut`] when the
    /// write may or may not have happened; otherwise the replica's error.
    #[inline]
    pub async fn write(
        &self,
        table: &Table,
        mutation: &[u8],
        consistency: Consistency,
        deadline: Deadline,
    ) -> Result<(), ReplicationError> {
        self.check_size(mutation)?;
        let required = self.required(table.keyspace(), consistency)?;
        let view =
            MutationView::trusted(mutation).map_err(|error| ReplicaFailure::from(error).here(required))?;
        let token = view.token;
        let plan = WritePlan::new(self, table, token, required);
        if admission::may_be_limited(table) && plan.replica == self.own() {
            let checked = self.limiter().check(table, token, Operation::Write, true);
            checked.map_err(|failure| failure.here(required))?;
        }
        reactor::in_place!(collect::collect(self, &plan, &view, deadline))
    }

    /// Refuses a mutation that is longer than any replica takes.
    #[inline]
    pub(crate) fn check_size(&self, mutation: &[u8]) -> Result<(), ReplicationError> {
        let checked = self.storage().check_mutation_size(mutation);
        checked.map_err(|error| ReplicaFailure::from(error).here(1))
    }

    /// Whether a write may begin without waiting for memory.
    #[inline]
    pub fn can_begin_writes(&self) -> bool {
        !self.storage().holds_writers()
    }

    /// Begins [`Replicator::write`] if the partition belongs to this shard and nothing has to be waited for
    /// before the commit log has the write; otherwise returns `None`, and nothing was begun. The caller has
    /// checked [`Replicator::can_begin_writes`] and not waited since.
    ///
    /// # Errors
    /// As [`Replicator::write`].
    #[inline]
    pub fn begin_write(
        &self,
        table: &Table,
        (mutation, token): (&[u8], Token),
        consistency: Consistency,
        deadline: Deadline,
    ) -> Result<Option<Pending>, ReplicationError> {
        debug_assert!(self.can_begin_writes());
        if admission::may_be_limited(table) {
            return Ok(None);
        }
        self.check_size(mutation)?;
        let required = self.required_of(table, consistency)?;
        // Storage finds the tablet anyway, and begins nothing if another shard has it.
        match self.storage().begin_made(mutation, table, token, deadline) {
            Ok(begun) => Ok(begun.map(|local| Pending::new(local, WritePlan::here(self, required)))),
            Err(error) => Err(ReplicaFailure::from(error).here(required)),
        }
    }
}
