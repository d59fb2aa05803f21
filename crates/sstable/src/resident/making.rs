//! What a table file keeps in memory while it is written: filter, summary, places of chunks.
//!
//! They count with what open files keep, the filter before there is a key in it, so that what open files can spare goes first. That alone
//! does not bound them: a filter that is made takes half of the limit at most, a summary half of the summaries' part. What a few
//! files at once take beyond the limit is the row cache's to give. When the file is written, nothing of it stays: who opens it reads it again.

use memory::{Charge, Kind};

use super::{ComponentMemory, SUMMARIES_PART};

/// Bytes that are not counted yet, at most.
const STEP_BYTES: usize = 16 << 10;
/// Bytes for which the row cache makes room before others may run.
const CHARGE_BYTES: usize = 256 << 10;
/// However little memory there is, a filter and a summary may take so much: files outlive it.
const FILTER_BYTES_LEAST: usize = 1 << 20;
const SUMMARY_BYTES_LEAST: usize = 256 << 10;

/// Room of one file that is written.
#[derive(Debug)]
pub(crate) struct Making {
    memory: ComponentMemory,
    charge: Charge,
    /// Bytes of all and of the summary.
    bytes: (usize, usize),
    /// Whether the file was written, so that who opens it takes the room.
    ended: bool,
}

impl Making {
    /// Begins with nothing.
    pub(crate) fn new(memory: &ComponentMemory) -> Self {
        let charge = memory.0.budget.hold(Kind::Fixed, 0);
        Self { memory: memory.clone(), charge, bytes: (0, 0), ended: false }
    }

    /// Counts what the file keeps now or is about to, of all and of the summary; what open files can spare goes for it.
    pub(crate) async fn keep(&mut self, bytes: (usize, usize)) {
        if bytes.0 < self.bytes.0 + STEP_BYTES {
            return;
        }
        self.memory.count(self.bytes, bytes);
        let mut charged = std::mem::replace(&mut self.bytes, bytes).0;
        // First, so that it makes room.
        self.memory.leave_out().await;
        while charged < bytes.0 {
            charged = bytes.0.min(charged + CHARGE_BYTES);
            self.charge.set(charged);
            reactor::maybe_yield().await;
        }
    }

    /// The file is written: who opens it takes its room.
    pub(crate) fn end(mut self) {
        self.ended = true;
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        self.memory.count(self.bytes, (0, 0));
        if !self.ended {
            self.memory.note_left();
        }
    }
}

impl ComponentMemory {
    /// Most bytes of a filter that is made.
    pub(crate) fn filter_bytes_max(&self) -> usize {
        (self.0.bytes_max / 2).max(FILTER_BYTES_LEAST)
    }

    /// Most bytes of a summary that is made.
    pub(crate) fn summary_bytes_max(&self) -> usize {
        (self.0.bytes_max / SUMMARIES_PART / 2).max(SUMMARY_BYTES_LEAST)
    }
}
