//! The numbers of a table's files: which are taken, and which is the next that a shard gives out.
//!
//! A shard counts on its own residue class (`number % shards == shard`) from the greatest number that the
//! node knows of the table, so that no two shards give out the same one, whichever tablets they have. Numbers
//! up to [`COUNTED_MAX`] are counted on from: Cassandra reads a sequential number as an `int`. A file with a
//! greater one was named by hand, or by a node that had used up the others: it is served as it is, its number
//! is not given out again, and it is not counted on from. Invariant: no number is given out twice, and none
//! wraps.

use std::collections::BTreeSet;

/// The greatest number that is counted on from.
pub(crate) const COUNTED_MAX: u64 = (1 << 31) - 1;
/// No node comes to such a number by counting.
const NUMBER_END: u64 = 1 << 61;

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

    /// The next free number of shard `shard` of `shards`.
    pub(crate) fn next(&mut self, shard: usize, shards: usize) -> u64 {
        assert!(shard < shards, "shard {shard} of {shards}");
        let (shard, shards) = (shard as u64, shards as u64);
        let after = |number: u64| {
            let base = number / shards * shards + shard;
            if base > number { base } else { base + shards }
        };
        let mut next = after(self.last);
        // Each round skips one of those that are there.
        while self.beyond.contains(&next) {
            next = after(next);
        }
        assert!(next < NUMBER_END, "file number {next} of shard {shard} of {shards} after {}", self.last);
        self.last = next;
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(taken: &[u64], (shard, shards): (usize, usize), expected: [u64; 2]) {
        let mut numbers = Numbers::default();
        taken.iter().for_each(|number| numbers.take(*number));
        assert_eq!([numbers.next(shard, shards), numbers.next(shard, shards)], expected, "{taken:?}");
    }

    #[test]
    fn numbers_grow_and_are_of_their_shard() {
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
        // A number between those of a Cassandra that reads an int and those that nobody counts to.
        check(&[7, 1 << 40], (0, 1), [8, 9]);
    }

    #[test]
    fn numbers_are_given_out_once_whatever_the_shards() {
        let mut given = BTreeSet::new();
        for shards in [1usize, 3, 2, 5, 4] {
            // A start takes what the files and the manifest name.
            let mut known = Numbers::default();
            given.iter().for_each(|number| known.take(*number));
            let mut of_shards = vec![known; shards];
            for turn in 0..40 {
                // Shards count at unlike paces.
                let shard = turn * turn % shards;
                let number = of_shards[shard].next(shard, shards);
                assert_eq!(number % shards as u64, shard as u64);
                assert!(given.insert(number), "{number} is given out twice with {shards} shards");
            }
        }
    }
}
