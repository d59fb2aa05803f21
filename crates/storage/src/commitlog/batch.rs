//! A batch in the log that is not done yet, and its claim on the log.

use super::Hold;
use super::replay::{BatchId, BatchOrigin, Kept};

/// A batch that is in this shard's log and not yet done. Dropped, it is left to the next start: its segment
/// stays.
#[derive(Debug)]
pub struct LoggedBatch {
    id: BatchId,
    /// Its claim on its segment; `None` once it is done.
    hold: Option<Hold>,
}

impl LoggedBatch {
    pub(crate) fn new(id: BatchId, hold: Hold) -> Self {
        Self { id, hold: Some(hold) }
    }

    pub(crate) fn id(&self) -> BatchId {
        self.id
    }

    /// Gives up this place in the log for a later one of the same batch.
    pub fn move_to(&mut self, later: Self) {
        assert_eq!(self.id, later.id, "both are of one batch");
        drop(self.hold.take());
        *self = later;
    }

    /// Gives up its place: all of its writes are in the logs of their shards.
    pub(crate) fn end(mut self) {
        drop(self.hold.take());
    }
}

impl Drop for LoggedBatch {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            hold.keep();
        }
    }
}

/// A batch that this shard keeps for a coordinator, as a start found it.
#[derive(Debug)]
pub struct KeptBatch {
    /// Its id.
    pub id: [u8; 16],
    /// What its coordinator knew.
    pub origin: BatchOrigin,
    /// `model::mutation` bytes, not checked but for the log's checksum; those of truncated tables are left
    /// out.
    pub mutations: Vec<Vec<u8>>,
    /// Its place in the log.
    pub logged: LoggedBatch,
}

impl KeptBatch {
    pub(crate) fn new(kept: Kept, hold: Hold) -> Self {
        let Kept { id, origin, mutations } = kept;
        Self { id, origin, mutations, logged: LoggedBatch::new(id, hold) }
    }
}
