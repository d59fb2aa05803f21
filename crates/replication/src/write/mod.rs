//! A write: planned, sent to its replicas, acknowledged when enough of them have it.

mod apply;
mod plan;
mod quorum;

pub(crate) use apply::storage_error;
use model::Table;
use model::mutation::MutationView;
use reactor::Deadline;

use crate::admission::{self, Operation};
use crate::consistency::Consistency;
use crate::error::ReplicationError;
use crate::replicator::Replicator;

impl Replicator {
    /// Writes one mutation of `table` to enough replicas for `consistency`.
    ///
    /// # Errors
    /// [`storage::StorageError::RateLimited`], [`storage::StorageError::MutationTooLarge`] and [`ReplicationError::Unavailable`] before anything is done;
    /// [`ReplicationError::TimedOut`] when the write may or may not have happened; otherwise what the replica said.
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
}
