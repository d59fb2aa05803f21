//! Counts the answers of one request's replicas until its level is reached or cannot be any more.
//!
//! Answers count in shares: one for all replicas, or for those of the coordinator's data center, or one for
//! each data center (EACH_QUORUM). Replicas outside of every share are written to and not waited for.
//! Invariant: a level that was reached stays reached, whatever comes later.

use model::tablet::Replica;
use smallvec::SmallVec;

use crate::error::{Endpoint, FailureReason, ReplicaFailure, ReplicationError};

/// Number of a share; replicas outside of all have [`NO_SHARE`].
pub(crate) type Share = u8;

/// The share of replicas that do not count.
pub(crate) const NO_SHARE: Share = u8::MAX;

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    needed: u32,
    received: u32,
    /// Replicas that may still answer.
    left: u32,
}

/// Why a request by one plan did not succeed.
#[derive(Debug)]
pub(crate) enum Ended {
    /// A later plan may succeed; the error is for a caller whose time is over.
    Again(ReplicationError),
    /// It failed.
    Failed(ReplicationError),
}

impl Ended {
    /// The end of a request to one replica.
    #[cold]
    pub(crate) fn of_one(failure: ReplicaFailure, replica: Replica, required: u32) -> Self {
        let again = failure.asks_for_a_later_plan();
        let error = failure.at(replica, required);
        if again { Self::Again(error) } else { Self::Failed(error) }
    }
}

/// The count of one request.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Answers that the level waits for, in all.
    required: u32,
    shares: SmallVec<[Counts; 3]>,
    /// Replicas that were asked, and those of them that refused: they did not do anything.
    asked: u32,
    refused: u32,
    failures: Vec<(Endpoint, FailureReason)>,
    /// The failure that came last.
    last: Option<(Endpoint, ReplicaFailure)>,
    wants_later_plan: bool,
    data_present: bool,
}

impl Tally {
    /// A count that needs so many answers in each share.
    pub(crate) fn new(required: u32, needed: &[u32]) -> Self {
        let share = |needed: &u32| Counts { needed: *needed, ..Counts::default() };
        Self {
            required,
            shares: needed.iter().map(share).collect(),
            asked: 0,
            refused: 0,
            failures: Vec::new(),
            last: None,
            wants_later_plan: false,
            data_present: false,
        }
    }

    fn share(&mut self, share: Share) -> Option<&mut Counts> {
        (share != NO_SHARE).then(|| &mut self.shares[usize::from(share)])
    }

    /// A replica was asked.
    pub(crate) fn asked(&mut self, share: Share) {
        self.asked += 1;
        if let Some(counts) = self.share(share) {
            counts.left += 1;
        }
    }

    /// A replica did its part.
    pub(crate) fn received(&mut self, share: Share) {
        if let Some(counts) = self.share(share) {
            assert!(counts.left > 0, "an answer in share {share} that was not asked for");
            counts.left -= 1;
            counts.received += 1;
        }
    }

    /// The data that a read wants is among the answers.
    pub(crate) fn has_data(&mut self) {
        self.data_present = true;
    }

    /// A replica failed.
    pub(crate) fn failed(&mut self, share: Share, endpoint: Endpoint, failure: ReplicaFailure) {
        self.refused += u32::from(failure.is_refusal());
        if let Some(counts) = self.share(share) {
            assert!(counts.left > 0, "a failure in share {share} that was not asked for");
            counts.left -= 1;
            self.failures.push((endpoint, failure.reason()));
            self.wants_later_plan |= failure.asks_for_a_later_plan();
            self.last = Some((endpoint, failure));
        }
    }

    /// Whether enough answers have come.
    pub(crate) fn is_reached(&self) -> bool {
        self.shares.iter().all(|share| share.received >= share.needed)
    }

    /// Whether too few replicas are left that may answer.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        self.shares.iter().any(|share| share.received + share.left < share.needed)
    }

    /// Whether a replica knew another state than the plan was made with.
    pub(crate) fn wants_later_plan(&self) -> bool {
        self.wants_later_plan
    }

    /// The end of a request that did not reach its level, because its time was over or too many failed.
    #[cold]
    pub(crate) fn end(self, in_time: bool) -> Ended {
        let again = self.wants_later_plan;
        let error = if in_time { self.error() } else { self.timed_out() };
        if again { Ended::Again(error) } else { Ended::Failed(error) }
    }

    /// Answers as errors count them: always fewer than were needed.
    fn counted(&self) -> u32 {
        let received: u32 = self.shares.iter().map(|share| share.received).sum();
        received.min(self.required.saturating_sub(1))
    }

    /// Answers that have come, in all shares.
    pub(crate) fn received_in_all(&self) -> u32 {
        self.shares.iter().map(|share| share.received.min(share.needed)).sum()
    }

    /// The error of a request whose deadline passed.
    pub(crate) fn timed_out(&self) -> ReplicationError {
        let (received, required) = (self.counted(), self.required);
        ReplicationError::TimedOut { received, required, data_present: self.data_present }
    }

    /// The error of a request that cannot reach its level any more.
    ///
    /// # Panics
    /// If nothing has failed.
    pub(crate) fn error(mut self) -> ReplicationError {
        let nothing_was_done = self.refused == self.asked;
        let (endpoint, failure) = self.last.take().expect("a level that is out of reach had a failure");
        let (received, required) = (self.counted(), self.required);
        // Only timeouts: the client is told that, because its write may still happen.
        if self.failures.iter().all(|(_, reason)| *reason == FailureReason::Timeout) {
            return self.timed_out();
        }
        let replica = Replica { node: endpoint.node, shard: endpoint.shard };
        match failure {
            // A client that is told so may try again: no replica may have done anything.
            failure if nothing_was_done && failure.is_refusal() => failure.at(replica, required),
            failure => ReplicationError::Failed {
                endpoint,
                reason: failure.text(),
                received,
                required,
                failures: std::mem::take(&mut self.failures),
                data_present: self.data_present,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Endpoint = Endpoint { node: 2, shard: 0 };

    fn tally(required: u32, needed: &[u32], asked: &[Share]) -> Tally {
        let mut tally = Tally::new(required, needed);
        asked.iter().for_each(|share| tally.asked(*share));
        tally
    }

    #[test]
    fn a_level_is_reached_once_each_share_has_its_answers() {
        let mut tally = tally(4, &[2, 2], &[0, 0, 0, 1, 1, 1, NO_SHARE]);
        for (share, reached) in [(0, false), (NO_SHARE, false), (0, false), (0, false), (1, false), (1, true)]
        {
            tally.received(share);
            assert_eq!(tally.is_reached(), reached);
            assert!(!tally.is_out_of_reach());
        }
        tally.failed(1, AT, ReplicaFailure::TimedOut);
        assert!(tally.is_reached() && !tally.is_out_of_reach(), "a late failure changes nothing");
    }

    #[test]
    fn errors_have_the_numbers_of_the_whole_level() {
        let mut each = tally(4, &[2, 2], &[0, 0, 0, 1, 1, 1]);
        (0..3).for_each(|_| each.received(0));
        each.failed(1, AT, ReplicaFailure::TimedOut);
        assert!(!each.is_out_of_reach());
        each.failed(1, AT, ReplicaFailure::TimedOut);
        assert!(each.is_out_of_reach());
        let error = each.error();
        assert!(matches!(error, ReplicationError::TimedOut { received: 3, required: 4, .. }), "{error:?}");
        let mut quorum = tally(2, &[2], &[0, 0, 0]);
        quorum.received(0);
        quorum.failed(0, AT, ReplicaFailure::TimedOut);
        quorum.failed(0, Endpoint { node: 3, shard: 1 }, ReplicaFailure::Unreachable("gone".to_owned()));
        let ReplicationError::Failed { endpoint, received, required, failures, .. } = quorum.error() else {
            panic!("a failure");
        };
        assert_eq!((endpoint.node, received, required), (3, 1, 2));
        let reasons: Vec<_> = failures.iter().map(|(_, reason)| *reason).collect();
        assert_eq!(reasons, [FailureReason::Timeout, FailureReason::NodeDown]);
        let mut all = tally(3, &[3], &[0, 0, 0]);
        (0..2).for_each(|_| all.received(0));
        assert!(matches!(all.timed_out(), ReplicationError::TimedOut { received: 2, required: 3, .. }));
    }
}
