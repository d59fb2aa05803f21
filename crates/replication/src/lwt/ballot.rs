//! Ballots: unique over nodes and shards, and later than all that this shard has given out.
//!
//! Invariant: the times of a shard's ballots only grow, so that two rounds of one coordinator never write
//! with the same timestamp. Rounds of several coordinators are told apart by the acceptors, which refuse a
//! time that they have seen.

use std::cell::Cell;

use model::tablet::Replica;

pub use wire::node::paxos::Ballot;

/// How far ahead of a clock a ballot may be.
pub(super) const AHEAD_MAX_US: i64 = 5_000_000;

/// The times of ballots are a data center's number modulo this where one data center agrees alone.
const SCOPES: i64 = 8;

/// The source of a shard's ballots.
#[derive(Debug)]
pub(super) struct Ballots {
    last_us: Cell<i64>,
    sequence: Cell<u32>,
}

/// A ballot would be further ahead of this node's clock than acceptors allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooFarAhead {
    /// How far.
    pub(super) ahead_us: i64,
}

impl Ballots {
    pub(super) fn new() -> Self {
        Self { last_us: Cell::new(0), sequence: Cell::new(reactor::random_u64() as u32) }
    }

    /// A ballot of this shard alone, where no other coordinator has rounds of the partition.
    pub(super) fn next_alone(&self) -> Ballot {
        let micros = reactor::wall_clock_us().max(self.last_us.get().saturating_add(1));
        self.note(micros);
        Ballot { micros, node: 0, shard: 0, sequence: 0, scope: 0 }
    }

    /// A ballot of a round that starts at `own`, later than `after_us`.
    ///
    /// # Errors
    /// [`TooFarAhead`] where acceptors would refuse it for that.
    pub(super) fn next(&self, own: Replica, scope: u8, after_us: i64) -> Result<Ballot, TooFarAhead> {
        let now_us = reactor::wall_clock_us();
        let least = now_us.max(self.last_us.get().saturating_add(1)).max(after_us.saturating_add(1));
        let micros = least.saturating_add((i64::from(scope) - least).rem_euclid(SCOPES));
        let ahead_us = micros.saturating_sub(now_us);
        if ahead_us > AHEAD_MAX_US {
            return Err(TooFarAhead { ahead_us });
        }
        self.note(micros);
        self.sequence.set(self.sequence.get().wrapping_add(1));
        Ok(Ballot { micros, node: own.node, shard: own.shard, sequence: self.sequence.get(), scope })
    }

    fn note(&self, micros: i64) {
        let last_us = self.last_us.get();
        assert!(micros > last_us, "ballot {micros} after {last_us}: two rounds would share a timestamp");
        self.last_us.set(micros);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Replica = Replica { node: 3, shard: 1 };

    #[test]
    fn ballots_grow_and_have_the_number_of_their_scope() {
        reactor::run_one(reactor::Config::default(), async {
            let ballots = Ballots::new();
            let mut last = ballots.next_alone();
            for (at, scope) in [0, 0, 1, 2, 7, 0].into_iter().enumerate() {
                let next = ballots.next(OWN, scope, last.micros + at as i64).expect("near the clock");
                assert!(next.micros > last.micros + at as i64, "{next:?} after {last:?}");
                assert_eq!(next.micros.rem_euclid(SCOPES), i64::from(scope));
                assert_eq!((next.node, next.shard, next.scope), (3, 1, scope));
                last = next;
            }
            assert!(ballots.next_alone().micros > last.micros);
            let refused = ballots.next(OWN, 0, reactor::wall_clock_us() + 2 * AHEAD_MAX_US);
            assert!(refused.expect_err("too far ahead").ahead_us > AHEAD_MAX_US);
            assert!(ballots.next(OWN, 0, 0).is_ok(), "a refusal changes nothing");
        });
    }
}
