//! Memory of a table file's components while it is written: filter, summary, chunk offsets.
//!
//! They count together with the components of open files, the filter even before it has a key, so that
//! components of open files are dropped first. That alone does not bound them: a filter that is made takes at
//! most half of the limit, a summary half of the summaries' part. If several files at once exceed the limit,
//! the row cache gives up the memory. When the file is written, nothing of it stays: opening it reads its
//! components again.

use memory::{Charge, Kind};

use super::{ComponentMemory, SUMMARIES_PART};

/// Most bytes that are not counted yet.
const STEP_BYTES: usize = 16 << 10;
/// Bytes for which the row cache makes room before other tasks may run.
const CHARGE_BYTES: usize = 256 << 10;
/// However little memory there is, a filter and a summary may take so much: files outlast the setting.
const FILTER_BYTES_LEAST: usize = 1 << 20;
const SUMMARY_BYTES_LEAST: usize = 256 << 10;

/// Memory of one file that is being written.
#[derive(Debug)]
pub(crate) struct Making {
    memory: ComponentMemory,
    charge: Charge,
    /// Bytes of everything, and of the summary.
    bytes: (usize, usize),
    /// Whether the file was written, so that opening it takes over the room.
    ended: bool,
}

impl Making {
    /// Begins with nothing.
    pub(crate) fn new(memory: &ComponentMemory) -> Self {
        let charge = memory.0.budget.hold(Kind::Fixed, 0);
        Self { memory: memory.clone(), charge, bytes: (0, 0), ended: false }
    }

    /// Counts the present or imminent bytes of the file: of everything, and of the summary. Components of
    /// open files are dropped for it.
    pub(crate) async fn keep(&mut self, bytes: (usize, usize)) {
        if bytes.0 < self.bytes.0 + STEP_BYTES {
            return;
        }
        self.memory.count(self.bytes, bytes);
        let mut charged = std::mem::replace(&mut self.bytes, bytes).0;
        // First, so that this drops components of open files.
        self.memory.leave_out().await;
        while charged < bytes.0 {
            charged = bytes.0.min(charged + CHARGE_BYTES);
            self.charge.set(charged);
            reactor::maybe_yield().await;
        }
    }

    /// Ends the count of a written file; opening it takes over the room.
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
    /// Most bytes of a new filter.
    pub(crate) fn filter_bytes_max(&self) -> usize {
        (self.0.bytes_max / 2).max(FILTER_BYTES_LEAST)
    }

    /// Most bytes of a new summary.
    pub(crate) fn summary_bytes_max(&self) -> usize {
        (self.0.bytes_max / SUMMARIES_PART / 2).max(SUMMARY_BYTES_LEAST)
    }
}
