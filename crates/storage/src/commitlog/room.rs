//! How much of its room the commit log takes. Writers are held back, and flushes hastened, before the room is
//! used up.

use std::cell::Cell;

/// The part of the room, in quarters, beyond which writers are held while a flush makes room. Flushes begin
/// at half of the room and are hastened from there on.
const SCARCE_QUARTERS: u64 = 3;

/// Room of one shard's log.
pub(crate) struct LogRoom {
    bytes_max: u64,
    used: Cell<u64>,
    scarce: Cell<bool>,
}

impl LogRoom {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self { bytes_max, used: Cell::new(0), scarce: Cell::new(false) }
    }

    /// The log takes `used` bytes now; unless `limited` it may take any number.
    pub(crate) fn set(&self, used: u64, limited: bool) {
        self.used.set(used);
        self.scarce.set(limited && used > self.bytes_max / 4 * SCARCE_QUARTERS);
    }

    /// Whether writers should be held while a flush makes room.
    #[inline]
    pub(crate) fn is_scarce(&self) -> bool {
        self.scarce.get()
    }

    /// Bytes that are left.
    pub(crate) fn left(&self) -> u64 {
        self.bytes_max.saturating_sub(self.used.get())
    }

    /// How far the log is between the half of its room and all of it, in thousandths.
    pub(crate) fn pressure(&self) -> u64 {
        let half = self.bytes_max / 2;
        (self.used.get().saturating_sub(half).saturating_mul(1000) / half.max(1)).min(1000)
    }
}
