//! The pseudo-random sequences that generated data is made of.
//!
//! Data must be the same in every tool that generates it, so these are exact: [`JavaRandom`] is
//! `java.util.Random` as its documentation defines it, and [`FastRandom`] is the 64-bit xorshift that
//! cassandra-stress fills values from, reseeded every 32 numbers. Both also drive choices that need not be
//! the same everywhere.

const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const MASK: u64 = (1 << 48) - 1;

/// `java.util.Random`: a linear congruential generator of 48 bits.
#[derive(Debug, Clone)]
pub(super) struct JavaRandom {
    state: u64,
    next_gaussian: Option<f64>,
}

impl JavaRandom {
    pub(super) fn new(seed: i64) -> Self {
        let mut random = Self { state: 0, next_gaussian: None };
        random.set_seed(seed);
        random
    }

    #[inline]
    pub(super) fn set_seed(&mut self, seed: i64) {
        self.state = (seed as u64 ^ MULTIPLIER) & MASK;
        self.next_gaussian = None;
    }

    #[inline]
    fn bits(&mut self, bits: u32) -> i32 {
        self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(0xB) & MASK;
        (self.state >> (48 - bits)) as i32
    }

    #[inline]
    pub(super) fn next_i64(&mut self) -> i64 {
        let high = i64::from(self.bits(32)) << 32;
        high.wrapping_add(i64::from(self.bits(32)))
    }

    /// A number in 0..1.
    #[inline]
    pub(super) fn next_f64(&mut self) -> f64 {
        let high = i64::from(self.bits(26)) << 27;
        (high + i64::from(self.bits(27))) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// A number of the standard normal distribution, by the polar method.
    #[inline]
    pub(super) fn next_gaussian(&mut self) -> f64 {
        if let Some(next) = self.next_gaussian.take() {
            return next;
        }
        loop {
            let v1 = 2.0 * self.next_f64() - 1.0;
            let v2 = 2.0 * self.next_f64() - 1.0;
            let s = v1 * v1 + v2 * v2;
            if s < 1.0 && s != 0.0 {
                let multiplier = (-2.0 * s.ln() / s).sqrt();
                self.next_gaussian = Some(v2 * multiplier);
                return v1 * multiplier;
            }
        }
    }

    /// A number below `limit`; 0 if `limit` is 0. Not the sequence of `nextInt(int)`.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        ((self.next_f64() * limit as f64) as usize).min(limit.saturating_sub(1))
    }
}

/// Numbers after which the xorshift is reseeded.
const RESEED_EVERY: u32 = 32;

/// The generator that fills values.
#[derive(Debug, Clone)]
pub(super) struct FastRandom {
    random: JavaRandom,
    state: i64,
    given: u32,
}

impl FastRandom {
    pub(super) fn new() -> Self {
        Self { random: JavaRandom::new(0), state: 0, given: 0 }
    }

    #[inline]
    pub(super) fn set_seed(&mut self, seed: i64) {
        self.state = seed;
        self.roll_over();
    }

    #[inline]
    fn roll_over(&mut self) {
        self.given = 0;
        self.random.set_seed(self.state);
        self.state = self.random.next_i64();
    }

    #[inline]
    pub(super) fn next_i64(&mut self) -> i64 {
        self.given += 1;
        if self.given == RESEED_EVERY {
            self.roll_over();
        }
        let mut state = self.state;
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        self.state = state;
        state.wrapping_mul(2_685_821_657_736_338_717)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The numbers below are from java.util.Random of OpenJDK 17, and of the xorshift run there.

    #[test]
    fn java_random_gives_the_numbers_of_java() {
        let mut random = JavaRandom::new(42);
        assert_eq!(random.next_i64(), -5_025_562_857_975_149_833);
        assert_eq!(random.next_f64(), 0.683_223_471_759_845_4);
        assert_eq!(random.next_gaussian(), -0.949_866_636_890_895_9);
        assert_eq!(random.next_gaussian(), -1.106_990_286_399_337_7);
        assert_eq!(random.bits(32), -1_436_456_258);
    }

    #[test]
    fn the_value_generator_reseeds_itself() {
        let mut random = FastRandom::new();
        random.set_seed(5);
        let numbers: Vec<i64> = (0..40).map(|_| random.next_i64()).collect();
        let some = [numbers[0], numbers[30], numbers[31], numbers[39]];
        let expected = [
            6_619_551_067_146_863_463,
            -5_607_700_158_883_396_867,
            7_132_977_383_798_023_048,
            -2_231_006_054_152_824_224,
        ];
        assert_eq!(some, expected);
    }

    #[test]
    fn choices_stay_below_their_limit() {
        let mut random = JavaRandom::new(1);
        assert!((0..1000).all(|_| random.below(3) < 3));
        assert_eq!(random.below(0), 0);
    }
}
