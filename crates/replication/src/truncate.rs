//! Truncation: every replica forgets the rows of a table.

use model::Table;
use reactor::Deadline;

use crate::error::{NotYet, ReplicaFailure, ReplicationError};
use crate::replicator::Replicator;

impl Replicator {
    /// Removes all rows of a table from every replica, after a snapshot if the node takes one automatically.
    ///
    /// # Errors
    /// [`ReplicationError::NotYet`] where other nodes have replicas; [`ReplicationError::TimedOut`], or the
    /// error of the first replica that failed: other replicas may have lost their rows.
    pub async fn truncate(&self, table: &Table, deadline: Deadline) -> Result<(), ReplicationError> {
        // Every replica has to forget, whatever the consistency level of other statements.
        let required = 1;
        self.check_only_here(table, NotYet::Truncation)?;
        match reactor::timeout(deadline, self.storage().truncate(table.id())).await {
            Ok(done) => done.map_err(|error| ReplicaFailure::from(error).here(required)),
            Err(_) => Err(ReplicationError::timed_out(0, required)),
        }
    }
}
