//! Truncation: every replica forgets the rows of a table.

use cluster::TruncateFailure;
use model::Table;
use model::tablet::Replica;
use reactor::Deadline;

use crate::error::{ReplicaFailure, ReplicationError};
use crate::replicator::Replicator;

impl Replicator {
    /// Removes all rows of a table from every replica, after a snapshot on each node that takes one
    /// automatically. All nodes have to be up, whatever the consistency level of other statements.
    ///
    /// # Errors
    /// [`ReplicationError::Unavailable`] before anything is done; [`ReplicationError::TimedOut`] with the
    /// number of nodes that have done it, [`ReplicationError::Failed`]: replicas may have lost their rows, or
    /// may still lose them.
    pub async fn truncate(&self, table: &Table, deadline: Deadline) -> Result<(), ReplicationError> {
        let truncated = reactor::timeout(deadline, cluster::truncate(table.id(), deadline)).await;
        let failure = match truncated.unwrap_or(Err(TruncateFailure::TimedOut { received: 0, required: 1 })) {
            Ok(()) => return Ok(()),
            Err(failure) => failure,
        };
        match failure {
            TruncateFailure::NotAgreed => self.truncate_here(table, deadline).await,
            TruncateFailure::Unavailable { required, alive } => {
                Err(ReplicationError::Unavailable { required, alive })
            }
            TruncateFailure::TimedOut { received, required } => {
                Err(ReplicationError::timed_out(received, required))
            }
            TruncateFailure::Failed { reason } => {
                Err(ReplicaFailure::Failed(reason).at(Replica { shard: 0, ..self.own() }, 1))
            }
        }
    }

    /// Truncates a table that each node has for itself.
    async fn truncate_here(&self, table: &Table, deadline: Deadline) -> Result<(), ReplicationError> {
        match reactor::timeout(deadline, self.storage().truncate(table.id())).await {
            Ok(done) => done.map_err(|error| ReplicaFailure::from(error).here(1)),
            Err(_) => Err(ReplicationError::timed_out(0, 1)),
        }
    }
}
