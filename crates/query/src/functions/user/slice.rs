//! How much a statement's calls may do before others have their turn.
//!
//! Languages count work each in their own unit; what is used of a slice is a part of the whole in any of them, so that
//! many short calls of one statement end it as one long call does.

use std::cell::Cell;

/// A slice, in parts.
const WHOLE: u32 = 1 << 16;

/// What is left of a slice.
#[derive(Debug)]
pub(super) struct Slice(Cell<u32>);

impl Slice {
    /// A whole one.
    pub(super) fn new() -> Self {
        Self(Cell::new(WHOLE))
    }

    /// A new one begins.
    pub(super) fn refill(&self) {
        self.0.set(WHOLE);
    }

    /// Whether nothing is left.
    pub(super) fn is_spent(&self) -> bool {
        self.0.get() == 0
    }

    /// What is left, where a whole slice is `whole` units; 1 at least.
    pub(super) fn units(&self, whole: u32) -> u32 {
        let units = u64::from(self.0.get()) * u64::from(whole) / u64::from(WHOLE);
        // At most `whole`, which fits.
        u32::try_from(units).unwrap_or(whole).max(1)
    }

    /// Takes away what was used; a call is never for nothing.
    pub(super) fn spend(&self, used: u64, whole: u32) {
        let parts = used.saturating_mul(u64::from(WHOLE)) / u64::from(whole);
        let parts = u32::try_from(parts).unwrap_or(u32::MAX).max(1);
        self.0.set(self.0.get().saturating_sub(parts));
    }

    /// Nothing is left of it.
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
