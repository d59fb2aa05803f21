//! Logged batches: writes to several partitions that all happen, or none.
//!
//! The batch goes into a batch log first, then its writes go to their replicas, then the batch is removed
//! from the batch log. Where all replicas are this node's, the batch log is this shard's own
//! ([`Storage::log_batch`](storage::Storage::log_batch)): a batch that a crash interrupts is finished by the
//! next start, one that an overloaded shard or a lost client interrupts by a task here. Otherwise other nodes
//! keep the batch (`coordinate`, `keep`) and finish it if this one does not. A reader may see some of the
//! writes before the others: a batch is atomic, not isolated.

mod coordinate;
mod keep;

use std::rc::Rc;
use std::time::Duration;

use model::Table;
use model::mutation::MutationView;
use reactor::{Deadline, Group};
use storage::LoggedBatch;

use crate::consistency::Consistency;
use crate::error::{ReplicaFailure, ReplicationError};
use crate::replicator::Replicator;

/// Batches that are tried again at once; beyond it they are left to their clients.
const RETRIES_MAX: u32 = 256;
/// Time between two attempts, and for each write of one.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// One write of a batch.
#[derive(Debug, Clone)]
pub struct BatchWrite {
    /// The table.
    pub table: Rc<Table>,
    /// `model::mutation` bytes.
    pub mutation: Vec<u8>,
}

/// Why a batch did not succeed.
#[derive(Debug)]
pub enum BatchFailure {
    /// It is not in the batch log: nothing was written.
    Log(ReplicationError),
    /// A write failed, and the other writes may be late too: they are retried.
    Write {
        /// Index of the first write that failed.
        at: usize,
        /// The error of that write.
        error: ReplicationError,
    },
}

impl Replicator {
    /// Writes a batch under `id`, a time UUID that no other batch has.
    ///
    /// # Errors
    /// Before anything is written: [`BatchFailure::Write`] if a write is too large or too few replicas are
    /// alive. [`BatchFailure::Log`] if the batch did not happen. Later [`BatchFailure::Write`] if the batch
    /// will happen, but has not in time.
    pub async fn write_batch(
        &self,
        id: [u8; 16],
        writes: Vec<BatchWrite>,
        consistency: Consistency,
        deadline: Deadline,
    ) -> Result<(), BatchFailure> {
        let mut is_only_here = true;
        for (at, write) in writes.iter().enumerate() {
            let checked = self.check_batched(write, consistency);
            is_only_here &= checked.map_err(|error| BatchFailure::Write { at, error })?;
        }
        if !is_only_here {
            return Box::pin(self.write_kept_batch(id, &writes, consistency, deadline)).await;
        }
        let mutations = writes.iter().map(|write| write.mutation.as_slice());
        let logged = self.storage().log_batch(id, mutations, deadline).await;
        let logged = logged.map_err(|error| BatchFailure::Log(ReplicaFailure::from(error).here(1)))?;
        // From here on, if this function ends early, `Promise` has a task finish the batch.
        let mut promise = Promise { replicator: self, rest: Some((logged, writes)) };
        let writes = promise.rest.as_ref().map_or(&[][..], |(_, writes)| writes);
        for (at, write) in writes.iter().enumerate() {
            self.write(&write.table, &write.mutation, consistency, deadline)
                .await
                .map_err(|error| BatchFailure::Write { at, error })?;
        }
        if let Some((logged, _)) = promise.rest.take() {
            self.storage().finish_batch(logged).await;
        }
        Ok(())
    }

    /// Refuses a write that would fail before it is sent; returns whether its partition has one replica, on
    /// this node.
    fn check_batched(&self, write: &BatchWrite, consistency: Consistency) -> Result<bool, ReplicationError> {
        self.check_size(&write.mutation)?;
        let view = MutationView::trusted(&write.mutation);
        let token = view.map_err(|error| ReplicaFailure::from(error).here(1))?.token;
        let own = self.own().node;
        let is_only_here = self.view().with_routing(&write.table, |routing| {
            let replicas = routing.replicas(routing.tablets().tablet_of(token));
            matches!(replicas, [replica] if replica.node == own)
        });
        if is_only_here {
            self.require(&write.table, token, consistency)?;
        }
        Ok(is_only_here)
    }

    /// Retries the remaining writes of a batch until each is written or its table is gone.
    async fn complete(&self, batch: LoggedBatch, mut writes: Vec<BatchWrite>) {
        while self.storage().wait_unless_draining(RETRY_EVERY).await {
            let mut left = Vec::new();
            for write in writes {
                let deadline = Deadline::after(RETRY_EVERY);
                // The client has its answer: one replica that has it is as good as a hint.
                match self.write(&write.table, &write.mutation, Consistency::Any, deadline).await {
                    Ok(()) | Err(ReplicationError::TableGone(_)) => {}
                    Err(error) => {
                        reactor::warn_limited!("a write of a logged batch is tried again"; error = error);
                        left.push(write);
                    }
                }
            }
            if left.is_empty() {
                self.storage().finish_batch(batch).await;
                return;
            }
            writes = left;
        }
        // The next start applies it.
        drop(batch);
    }
}

/// Holds a batch that is logged and not done. Dropping it starts a task that finishes the batch.
struct Promise<'r> {
    replicator: &'r Replicator,
    rest: Option<(LoggedBatch, Vec<BatchWrite>)>,
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        let Some((batch, writes)) = self.rest.take() else { return };
        // The next start applies a batch that is dropped.
        let Some(hold) = self.replicator.storage().enter() else { return };
        let Some(place) = self.replicator.begin_retry(RETRIES_MAX) else {
            reactor::warn_limited!(
                "too many logged batches are being tried again: one is left to the next start"
            );
            return;
        };
        let replicator = self.replicator.clone();
        drop(reactor::spawn(Group::BACKGROUND, async move {
            replicator.complete(batch, writes).await;
            drop((place, hold));
        }));
    }
}
