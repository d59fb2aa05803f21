//! The clocks and the chance of the real world, for the drivers that live in it.

use std::time::{SystemTime, UNIX_EPOCH};

/// The monotonic clock in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // Through libc and not rustix, whose own look into the vDSO ends in a fault under valgrind.
    // SAFETY: the target is a live timespec; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// The wall clock in microseconds since the epoch.
pub(crate) fn wall_us() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
        Err(before) => -i64::try_from(before.duration().as_micros()).unwrap_or(i64::MAX),
    }
}

/// A stream of random numbers from one seed: SplitMix64 (Steele, Lea, Flood 2014). Not for secrets.
pub(crate) struct Entropy(u64);

impl Entropy {
    /// Seeded by the kernel.
    pub(crate) fn from_kernel() -> Self {
        let mut seed = [0u8; 8];
        // SAFETY: pointer and length are those of a live array. Up to 256 bytes are never interrupted.
        let got = unsafe { libc::getrandom(seed.as_mut_ptr().cast(), seed.len(), 0) };
        let seed = if got == seed.len() as isize { u64::from_ne_bytes(seed) } else { monotonic_ns() };
        Self(seed)
    }

    pub(crate) fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
