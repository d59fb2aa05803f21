//! A write: planned, sent to its replicas, acknowledged when enough of them have it.

mod apply;
mod plan;
mod quorum;

pub(crate) use apply::storage_error;
use model::mutation::MutationView;
use model::{Table, Token};
use reactor::Deadline;
use storage::Applying;

use crate::admission::{self, Operation};
use crate::consistency::Consistency;
use crate::error::ReplicationError;
use crate::replicator::Replicator;

impl Replicator {
    /// Writes one mutation of `table` to enough replicas for `consistency`.
    ///
    /// # Errors
    /// [`storage::StorageError::RateLimited`], [`storage::StorageError::MutationTooLarge`] and
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
        self.storage().check_mutation_size(mutation)?;
        let required = self.required(table.keyspace(), consistency)?;
        let view = MutationView::trusted(mutation).map_err(storage::StorageError::from)?;
        let token = view.token;
        let plan = plan::WritePlan::new(table, token, required);
        if admission::may_be_limited(table) && plan.shard == reactor::shard_id() {
            self.limiter().check(table, token, Operation::Write, true)?;
        }
        reactor::in_place!(quorum::collect(self, &plan, &view, deadline))
    }

    /// Begins [`Replicator::write`] if the partition belongs to this shard and nothing has to be waited for
    /// before the commit log has the write; otherwise returns `None`, and nothing was begun. Precondition:
    /// [`storage::Storage::holds_writers`] returned false. Errors of the returned write go through
    /// [`Replicator::write_failed`].
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
    ) -> Result<Option<Applying>, ReplicationError> {
        if admission::may_be_limited(table) {
            return Ok(None);
        }
        self.storage().check_mutation_size(mutation)?;
        let required = self.required_of(table, consistency)?;
        let begun = self.storage().begin_made(mutation, table, token, deadline);
        begun.map_err(|error| apply::storage_error(error, required))
    }

    /// Converts the error of a write that was begun to an error for its caller.
    #[cold]
    pub fn write_failed(
        &self,
        error: storage::StorageError,
        table: &Table,
        consistency: Consistency,
    ) -> ReplicationError {
        match self.required(table.keyspace(), consistency) {
            Ok(required) => apply::storage_error(error, required),
            Err(unavailable) => unavailable,
        }
    }
}
