//! When a figure has been measured often enough.
//!
//! Invariant: a settled figure is the mean of two rounds in a row that lie within 5 % of each other.

/// How far apart two rounds may be, as a share of the smaller.
const AGREE: f64 = 0.05;
/// The last rounds, of which the least is taken when none agree.
const LAST: usize = 3;

/// What is known after a round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Verdict {
    /// Another round is needed.
    More,
    /// Two rounds agree; their mean.
    Settled(f64),
    /// The rounds are spent; the least of the last ones.
    Unsettled(f64),
}

/// The rounds of one figure.
pub(super) struct Rounds {
    seen: Vec<f64>,
    value: f64,
}

impl Rounds {
    pub(super) fn new() -> Self {
        Self { seen: Vec::new(), value: 0.0 }
    }

    /// Takes a round's value, the last one if it is the `most`th.
    pub(super) fn add(&mut self, value: f64, most: usize) -> Verdict {
        self.seen.push(value);
        self.value = value;
        if let [.., before, last] = self.seen[..] {
            let apart = (before - last).abs() / before.min(last).max(f64::MIN_POSITIVE);
            if apart <= AGREE {
                self.value = f64::midpoint(before, last);
                return Verdict::Settled(self.value);
            }
        }
        if self.seen.len() < most {
            return Verdict::More;
        }
        let last = self.seen.iter().rev().take(LAST);
        self.value = last.copied().fold(f64::INFINITY, f64::min);
        Verdict::Unsettled(self.value)
    }

    /// The figure, as far as it is known.
    pub(super) fn value(&self) -> f64 {
        self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(values: &[f64], expected: Verdict) {
        let mut rounds = Rounds::new();
        let verdicts: Vec<Verdict> = values.iter().map(|value| rounds.add(*value, 5)).collect();
        let (last, earlier) = verdicts.split_last().unwrap();
        assert_eq!(*last, expected, "{values:?}");
        assert!(earlier.iter().all(|verdict| *verdict == Verdict::More), "{values:?}");
        if let Verdict::Settled(value) | Verdict::Unsettled(value) = expected {
            assert_eq!(rounds.value(), value);
        }
    }

    #[test]
    fn two_in_a_row_settle_a_figure_and_disagreement_takes_the_least_of_the_last() {
        check(&[100.0], Verdict::More);
        check(&[100.0, 104.0], Verdict::Settled(102.0));
        check(&[100.0, 110.0, 100.0], Verdict::More);
        check(&[100.0, 200.0, 190.0, 191.0], Verdict::Settled(190.5));
        check(&[10.0, 100.0, 80.0, 60.0, 90.0], Verdict::Unsettled(60.0));
        check(&[0.0, 0.0], Verdict::Settled(0.0));
    }
}
