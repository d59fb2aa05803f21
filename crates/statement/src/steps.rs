//! Steps of long loops that are too short to look at the clock in each.

use std::cell::Cell;

/// Gives way at every few steps: for steps so short that a look at the clock would take longer.
#[derive(Debug, Default)]
pub struct ShortSteps(Cell<u32>);

impl ShortSteps {
    /// Another step begins.
    #[inline]
    pub fn step(&self) {
        const AT_ONCE: u32 = 32;
        self.0.set(self.0.get().wrapping_add(1));
        if self.0.get().is_multiple_of(AT_ONCE) {
            reactor::give_way();
        }
    }
}
