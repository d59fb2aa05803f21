//! How fast other nodes answered this shard's reads lately, so that of equally near replicas a slow one is
//! asked last.
//!
//! After Cassandra's `DynamicEndpointSnitch`, whose samples are whole milliseconds: differences below one do
//! not count. A request that is given up counts with the time that it waited, if that is longer than the
//! node's average; a node that does not answer at all becomes slow by it, and before that by the number of
//! its requests under way. One late answer makes no node slow: a sample counts as four times the average at
//! most. A node that was slow is tried again, because averages halve with time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use model::tablet::NodeNumber;
use reactor::Instant;

use super::PeerErrorKind;

/// Times below this count as this, in microseconds.
const LEAST_US: f32 = 1000.0;
/// The share of a new sample in the average.
const SAMPLE_SHARE: f32 = 1.0 / 8.0;
/// The most that one sample counts, in averages.
const SAMPLE_MOST: f32 = 4.0;
/// Seconds in which an average halves without samples.
const HALVED_EVERY_S: f32 = 10.0;
/// Requests under way that count as much as the average itself.
const UNDER_WAY: f32 = 32.0;

/// The speed of one node.
#[derive(Debug, Clone, Copy)]
struct Speed {
    average_us: f32,
    at: Instant,
    under_way: u32,
}

impl Speed {
    fn average(&self, now: Instant) -> f32 {
        let passed = now.since(self.at).as_secs_f32();
        self.average_us * (-passed / HALVED_EVERY_S).exp2()
    }

    fn sample(&mut self, us: f32, now: Instant) {
        let average = self.average(now);
        let us = us.min(average.max(LEAST_US) * SAMPLE_MOST);
        self.average_us = average + (us - average) * SAMPLE_SHARE;
        self.at = now;
    }

    /// An answer would have taken longer than it was waited for.
    fn at_least(&mut self, waited: Duration, now: Instant) {
        let us = waited.as_micros() as f32;
        if us > self.average(now) {
            self.sample(us, now);
        }
    }
}

/// The speeds of other nodes.
#[derive(Debug, Default)]
pub(crate) struct Speeds(RefCell<BTreeMap<NodeNumber, Speed>>);

/// A request under way.
pub(crate) struct Timed {
    speeds: Rc<Speeds>,
    node: NodeNumber,
    begun: Instant,
    /// The answer, unless it was given up.
    ended: Option<Result<(), PeerErrorKind>>,
}

impl Speeds {
    /// A request to a node begins.
    pub(crate) fn begin(self: &Rc<Self>, node: NodeNumber) -> Timed {
        let begun = reactor::now();
        let mut speeds = self.0.borrow_mut();
        let speed = speeds.entry(node).or_insert(Speed { average_us: 0.0, at: begun, under_way: 0 });
        speed.under_way += 1;
        Timed { speeds: Rc::clone(self), node, begun, ended: None }
    }

    /// A request was given up that is not [`Timed`], because another node answered it.
    pub(crate) fn late(&self, node: NodeNumber, begun: Instant) {
        let now = reactor::now();
        let mut speeds = self.0.borrow_mut();
        let speed = speeds.entry(node).or_insert(Speed { average_us: 0.0, at: now, under_way: 0 });
        speed.at_least(now.since(begun), now);
    }

    /// How long a node's answers take, in microseconds: to compare with those of others.
    pub(crate) fn score(&self, node: NodeNumber, now: Instant) -> f32 {
        let speeds = self.0.borrow();
        let Some(speed) = speeds.get(&node) else { return LEAST_US };
        speed.average(now).max(LEAST_US) * (1.0 + speed.under_way as f32 / UNDER_WAY)
    }
}

impl Timed {
    /// The answer has come.
    pub(crate) fn end(mut self, answer: Result<(), PeerErrorKind>) {
        self.ended = Some(answer);
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        let now = reactor::now();
        let mut speeds = self.speeds.0.borrow_mut();
        let speed = speeds.get_mut(&self.node).expect("speeds of nodes stay");
        assert!(speed.under_way > 0, "a request to node {} ends that did not begin", self.node);
        speed.under_way -= 1;
        let took = now.since(self.begun);
        match self.ended {
            Some(Ok(())) => speed.sample(took.as_micros() as f32, now),
            None | Some(Err(PeerErrorKind::TimedOut)) => speed.at_least(took, now),
            // A refusal says nothing of the time that an answer takes.
            Some(Err(_)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::from_nanos(0);

    fn at(seconds: f32) -> Instant {
        START + Duration::from_secs_f32(seconds)
    }

    fn speeds(samples: &[(NodeNumber, f32)]) -> Speeds {
        let speeds = Speeds::default();
        for (node, us) in samples {
            let fresh = Speed { average_us: 0.0, at: START, under_way: 0 };
            speeds.0.borrow_mut().entry(*node).or_insert(fresh).sample(*us, START);
        }
        speeds
    }

    #[test]
    fn differences_below_a_millisecond_do_not_count() {
        let speeds = speeds(&[(1, 50.0), (2, 900.0), (2, 900.0)]);
        assert_eq!([1, 2, 3].map(|node| speeds.score(node, START)), [LEAST_US; 3]);
    }

    #[test]
    fn one_late_answer_makes_no_node_slow_and_several_do() {
        let slow = |count: usize| speeds(&vec![(1, 100_000.0); count]).score(1, START) > 2.0 * LEAST_US;
        assert!(!slow(1));
        assert!(slow(20));
    }

    #[test]
    fn a_slow_node_is_tried_again() {
        let speeds = speeds(&[(1, 20_000.0); 40]);
        assert!(speeds.score(1, START) > 15_000.0, "{}", speeds.score(1, START));
        assert!(speeds.score(1, at(20.0)) > 2.0 * LEAST_US);
        assert!(speeds.score(1, at(60.0)) < 2.0 * LEAST_US);
    }

    #[test]
    fn a_node_with_many_requests_under_way_counts_as_slow() {
        let speeds = speeds(&[(1, 100.0)]);
        speeds.0.borrow_mut().get_mut(&1).expect("a node").under_way = 40;
        assert!(speeds.score(1, START) > 2.0 * LEAST_US);
    }
}
