//! Counters of a computation in slices: memory and work, without those of others that run in between.

use std::cell::Cell;

use reactor::Away;
use statement::ambient::{Ambient, Work};

/// The counters of one computation.
#[derive(Debug)]
pub(crate) struct Counts<'a> {
    ambient: &'a Ambient,
    /// Bytes that others allocated and did not free since this was made.
    others_bytes: Cell<isize>,
    left: Cell<(isize, Work)>,
}

impl<'a> Counts<'a> {
    /// Counters that begin now.
    pub(crate) fn new(ambient: &'a Ambient) -> Self {
        Self { ambient, others_bytes: Cell::new(0), left: Cell::default() }
    }

    /// As [`memory::held_bytes`], without the bytes of others: for differences of two calls.
    pub(crate) fn held_bytes(&self) -> isize {
        memory::held_bytes() - self.others_bytes.get()
    }
}

impl Away for Counts<'_> {
    fn leave(&self) {
        self.left.set((memory::held_bytes(), self.ambient.work()));
    }

    fn come_back(&self) {
        let (held_bytes, work) = self.left.get();
        self.others_bytes.set(self.others_bytes.get() + memory::held_bytes() - held_bytes);
        self.ambient.go_on_with(work);
    }
}
