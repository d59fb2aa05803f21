//! Batches in the commit log: they make several writes happen all or not at all.
//!
//! The batch is written to the log of one shard before the first of its writes is applied anywhere, and its
//! end is written to the same log after the last one. A start finishes the batches that have no end
//! (`open::replay`). Invariant: the segment of a batch stays until its writes are in the logs of their
//! shards, or until its [`LoggedBatch`] is dropped.

use std::time::Duration;

use reactor::{Deadline, GateHold};

use crate::commitlog::Hold;
use crate::commitlog::format::EntryKind;
use crate::commitlog::replay::{BatchId, encode_batch};
use crate::error::StorageError;
use crate::shard::Storage;

/// How long the end of a batch waits for room in the log.
const FINISH_WITHIN: Duration = Duration::from_secs(1);

/// A batch that is in this shard's log and not yet done.
#[derive(Debug)]
pub struct LoggedBatch {
    id: BatchId,
    _hold: Hold,
}

impl Storage {
    /// Writes a batch of mutations to this shard's log, without applying them.
    ///
    /// Returns once it is as safe there as a write is. From then on a start applies all of them, until
    /// [`Storage::finish_batch`]. `id` is a UUID that no other batch has.
    ///
    /// # Errors
    /// As [`Storage::apply`], of the log: the batch then does not count.
    pub async fn log_batch<'m>(
        &self,
        id: [u8; 16],
        mutations: impl Iterator<Item = &'m [u8]>,
        deadline: Deadline,
    ) -> Result<LoggedBatch, StorageError> {
        if self.0.draining.get() {
            return Err(StorageError::Draining);
        }
        let payload = encode_batch(id, mutations);
        self.check_mutation_size(&payload)?;
        let hold = self.0.log.append(EntryKind::Batch, &payload, deadline).await?;
        Ok(LoggedBatch { id, _hold: hold })
    }

    /// Notes that every write of a batch is in the log of its shard: a start does not apply it again.
    ///
    /// Does not wait for the disk: a batch that is applied twice is as one applied once.
    pub async fn finish_batch(&self, batch: LoggedBatch) {
        if let Err(error) = self.note_done(batch.id).await {
            reactor::warn_limited!("the end of a batch is not in the commit log: a start may apply it again";
                error = error);
        }
    }

    pub(crate) async fn note_done(&self, id: BatchId) -> Result<(), StorageError> {
        let deadline = Deadline::after(FINISH_WITHIN);
        // Each round waits for room, until the deadline.
        while self.0.log.try_append(EntryKind::BatchDone, &id)?.is_none() {
            self.0.log.wait_for_room(deadline).await?;
        }
        Ok(())
    }

    /// Lets a task begin that [`Storage::drain`] waits for; `None` once that has begun.
    pub fn enter(&self) -> Option<GateHold> {
        if self.0.draining.get() { None } else { self.0.tasks.enter().ok() }
    }

    /// Waits for `time`, or less if the shard begins to drain. Returns whether the shard goes on.
    pub async fn wait_unless_draining(&self, time: Duration) -> bool {
        let draining = self.0.stopped.wait_until(|| self.0.draining.get());
        reactor::timeout(Deadline::after(time), draining).await.is_err()
    }
}
