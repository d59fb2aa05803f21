//! The numbers of a tablet's table files: which are taken, and which is the next.
//!
//! A number names the tablet (modulo the number of tablets) and grows. Numbers up to [`COUNTED_MAX`] are
//! counted on from the greatest; no node gets there by counting. A file with a greater one was named by hand:
//! it is served as it is, its number is not given out again, and it is not counted on from, for that would
//! end at 2^64. Invariant: no number is given out twice, and none wraps.

use std::collections::BTreeSet;

/// The greatest number that is counted on from.
pub(crate) const COUNTED_MAX: u64 = 1 << 60;

/// Numbers that are not free.
#[derive(Debug, Clone, Default)]
pub(crate) struct Numbers {
    /// The greatest up to [`COUNTED_MAX`], or the last one given out.
    last: u64,
    /// Those above [`COUNTED_MAX`].
    beyond: BTreeSet<u64>,
}

impl Numbers {
    /// A number that is not to be given out.
    pub(crate) fn take(&mut self, number: u64) {
        if number <= COUNTED_MAX {
            self.last = self.last.max(number);
        } else {
            self.beyond.insert(number);
        }
    }

    /// The next free number of tablet `tablet` of `count`.
    pub(crate) fn next(&mut self, tablet: u64, count: u64) -> u64 {
        assert!(tablet < count, "tablet {tablet} of {count}");
        let after = |number: u64| {
            let base = number / count * count + tablet;
            if base > number { base } else { base + count }
        };
        let mut next = after(self.last);
        // Each round skips one of those that are there.
        while self.beyond.contains(&next) {
            next = after(next);
        }
        assert!(
            next < 2 * COUNTED_MAX,
            "file number {next} of tablet {tablet} of {count} after {}",
            self.last
        );
        self.last = next;
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(taken: &[u64], (tablet, count): (u64, u64), expected: [u64; 2]) {
        let mut numbers = Numbers::default();
        taken.iter().for_each(|number| numbers.take(*number));
        assert_eq!([numbers.next(tablet, count), numbers.next(tablet, count)], expected, "{taken:?}");
    }

    #[test]
    fn numbers_grow_and_name_their_tablet() {
        check(&[], (0, 1), [1, 2]);
        check(&[], (3, 4), [3, 7]);
        check(&[], (0, 4), [4, 8]);
        check(&[9, 6], (1, 4), [13, 17]);
        check(&[9, 6], (2, 4), [10, 14]);
    }

    #[test]
    fn numbers_that_nobody_counts_to_are_neither_reached_nor_given_out() {
        check(&[u64::MAX], (3, 4), [3, 7]);
        check(&[u64::MAX - 1, u64::MAX, 5], (2, 4), [6, 10]);
        check(&[COUNTED_MAX], (0, 1), [COUNTED_MAX + 1, COUNTED_MAX + 2]);
        // Given out by an earlier process that began at the edge.
        check(&[COUNTED_MAX, COUNTED_MAX + 1, COUNTED_MAX + 3], (0, 1), [COUNTED_MAX + 2, COUNTED_MAX + 4]);
    }
}
