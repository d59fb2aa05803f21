//! Batches in the commit log: they make several writes happen all or not at all.
//!
//! The batch is written to the log of one shard before the first of its writes is applied anywhere, and its
//! end is written to the same log after the last one. A start finishes the batches that have no end
//! (`open::replay`). A batch that is kept for a coordinator is not applied by a start, because its replicas
//! may be on other nodes: a start hands it over ([`Storage::take_kept_batches`]). Invariant: the segment of a
//! batch stays until its writes are in the logs of their shards.

use std::time::Duration;

use reactor::{Deadline, GateHold};

use crate::commitlog::OldHolds;
use crate::commitlog::format::EntryKind;
pub use crate::commitlog::replay::BatchOrigin;
use crate::commitlog::replay::{BatchId, OldLog, encode_batch, encode_kept};
pub use crate::commitlog::{KeptBatch, LoggedBatch};
use crate::error::StorageError;
use crate::shard::Storage;

/// How long the end of a batch waits for room in the log.
const FINISH_WITHIN: Duration = Duration::from_secs(1);

impl Storage {
    /// Writes a batch of a coordinator, maybe on another node, to this shard's log.
    /// Returns once it is as safe there as a write is. A start hands it to [`Storage::take_kept_batches`],
    /// until [`Storage::finish_batch`]. Keeping a batch again moves it to the log's end.
    ///
    /// # Errors
    /// As [`Storage::log_batch`].
    pub async fn keep_batch<'m>(
        &self,
        (id, origin): ([u8; 16], BatchOrigin),
        mutations: impl Iterator<Item = &'m [u8]>,
        deadline: Deadline,
    ) -> Result<LoggedBatch, StorageError> {
        if self.0.draining.get() {
            return Err(StorageError::Draining);
        }
        let payload = encode_kept(id, origin, mutations);
        self.check_mutation_size(&payload)?;
        let hold = self.0.log.append(EntryKind::KeptBatch, &payload, deadline).await?;
        Ok(LoggedBatch::new(id, hold))
    }

    /// The batches that were kept for coordinators and not finished when the node ended; once.
    pub fn take_kept_batches(&self) -> Vec<KeptBatch> {
        self.0.kept.take()
    }

    /// Takes over the batches that an old log kept for coordinators. `holds` are those on the segments of
    /// this shard's own log; batches of another log are written to this one.
    pub(crate) async fn take_over_kept(
        &self,
        log: &OldLog,
        holds: Option<&OldHolds>,
    ) -> Result<(), StorageError> {
        let mut is_moved = false;
        for (place, kept) in log.unfinished_kept() {
            let held = holds.zip(log.segment_of(place)).and_then(|(holds, at)| holds.get(at));
            let hold = match held {
                Some(hold) => hold.again(),
                None => {
                    let mutations = kept.mutations.iter().map(Vec::as_slice);
                    let payload = encode_kept(kept.id, kept.origin, mutations);
                    let until = Deadline::after(self.0.config.start_timeout);
                    is_moved = true;
                    self.0.log.append(EntryKind::KeptBatch, &payload, until).await?
                }
            };
            self.0.kept.borrow_mut().push(KeptBatch::new(kept, hold));
        }
        // The old log is removed next.
        if is_moved { self.0.log.sync().await } else { Ok(()) }
    }

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
        Ok(LoggedBatch::new(id, hold))
    }

    /// Notes that every write of a batch is in the log of its shard: a start does not apply it again.
    ///
    /// Does not wait for the disk: a batch that is applied twice is as one applied once.
    pub async fn finish_batch(&self, batch: LoggedBatch) {
        if let Err(error) = self.note_done(batch.id()).await {
            reactor::warn_limited!("the end of a batch is not in the commit log: a start may apply it again";
                error = error);
        }
        batch.end();
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
