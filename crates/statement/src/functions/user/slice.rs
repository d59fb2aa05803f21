//! The work that a statement's calls may do before other tasks get a turn.
//!
//! Each language counts work in its own unit. The use of a slice is counted as a fraction of the whole, so
//! that many short calls of one statement use up a slice as one long call does.

use std::cell::Cell;

/// The parts of a full slice.
const WHOLE: u32 = 1 << 16;

/// The parts of a slice that are left.
#[derive(Debug)]
pub(super) struct Slice(Cell<u32>);

impl Slice {
    /// A full slice.
    pub(super) fn new() -> Self {
        Self(Cell::new(WHOLE))
    }

    /// Begins a new slice.
    pub(super) fn refill(&self) {
        self.0.set(WHOLE);
    }

    /// Whether the slice is used up.
    pub(super) fn is_spent(&self) -> bool {
        self.0.get() == 0
    }

    /// The units left of a slice that has `whole` units; at least 1.
    pub(super) fn units(&self, whole: u32) -> u32 {
        let units = u64::from(self.0.get()) * u64::from(whole) / u64::from(WHOLE);
        // At most `whole`, so it fits.
        u32::try_from(units).unwrap_or(whole).max(1)
    }

    /// Subtracts used units, but at least one part: no call is free.
    pub(super) fn spend(&self, used: u64, whole: u32) {
        let parts = used.saturating_mul(u64::from(WHOLE)) / u64::from(whole);
        let parts = u32::try_from(parts).unwrap_or(u32::MAX).max(1);
        self.0.set(self.0.get().saturating_sub(parts));
    }

    /// Ends the slice.
    pub(super) fn end(&self) {
        self.0.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_calls_use_a_slice_up_together() {
        let slice = Slice::new();
        assert_eq!(slice.units(20_000), 20_000);
        slice.spend(10_000, 20_000);
        assert_eq!(slice.units(100_000), 50_000, "in another unit");
        slice.spend(0, 20_000);
        assert!(slice.units(100_000) < 50_000, "a call costs something");
        slice.spend(u64::MAX, 20_000);
        assert!(slice.is_spent());
        slice.refill();
        assert_eq!(slice.units(3), 3);
    }
}
