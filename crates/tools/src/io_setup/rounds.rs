//! Derives a figure from its rounds, and decides when there are enough of them.
//!
//! Other activity on a machine makes a round slower, never faster than the disk: a figure is the round that a
//! quarter of all exceed. Invariant: a settled figure's better half lies within 5 %.

/// Least number of rounds before a figure may be settled.
const ROUNDS_MIN: usize = 6;
/// Greatest spread of the better half, as a share of its least value.
const AGREE: f64 = 0.05;

/// The rounds of one figure, in ascending order.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    seen: Vec<f64>,
}

impl Rounds {
    pub(super) fn add(&mut self, value: f64) {
        let place = self.seen.partition_point(|other| *other < value);
        self.seen.insert(place, value);
    }

    /// The figure, as far as it is known.
    pub(super) fn value(&self) -> f64 {
        self.above(0.75)
    }

    /// Whether more rounds would change little.
    pub(super) fn is_settled(&self) -> bool {
        self.seen.len() >= ROUNDS_MIN && self.above(1.0) - self.above(0.5) <= AGREE * self.above(0.5)
    }

    /// The least round that so large a share of all does not exceed.
    fn above(&self, share: f64) -> f64 {
        let last = self.seen.len().saturating_sub(1);
        self.seen.get((last as f64 * share).round() as usize).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(values: &[f64], value: f64, settled: bool) {
        let mut rounds = Rounds::default();
        values.iter().for_each(|value| rounds.add(*value));
        assert_eq!((rounds.value(), rounds.is_settled()), (value, settled), "{values:?}");
    }

    #[test]
    fn a_figure_is_what_the_disk_does_undisturbed_and_settles_when_its_better_half_agrees() {
        check(&[], 0.0, false);
        check(&[100.0; 5], 100.0, false);
        check(&[100.0; 6], 100.0, true);
        check(&[101.0, 40.0, 100.0, 60.0, 102.0, 103.0, 99.0], 102.0, true);
        check(&[100.0, 40.0, 104.0, 60.0, 108.0, 50.0, 55.0], 104.0, false);
        check(&[0.0; 6], 0.0, true);
    }
}
