//! The opinion under arbitrary answers, silences and refusals.
#![allow(clippy::disallowed_types)] // prop_oneof! makes an Arc

use proptest::prelude::*;
use wire::node::control::NodeState;

use super::*;

const NODE: NodeNumber = 2;

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn pong() -> Pong {
    Pong {
        generation: 1,
        state: NodeState::Normal,
        applied: 0,
        hash: None,
        stalled: Vec::new(),
        clock_us: 0,
        load_bytes: 0,
        free_bytes: 0,
        serves_clients: false,
        heard: Vec::new(),
    }
}

fn opinion() -> Opinion {
    let mut opinion = Opinion::default();
    opinion.set_nodes(&[NODE].into());
    opinion
}

impl Opinion {
    fn hears(&mut self, sent_ms: u64, received_ms: u64, pong: Pong) -> Vec<Change> {
        let mut changes = Vec::new();
        let answer = Answered { sent: at(sent_ms), received: at(received_ms), wall_us: 0, pong };
        self.answered(NODE, answer, &mut changes);
        changes
    }

    fn ticks(&mut self, ms: u64) -> Vec<Change> {
        let mut changes = Vec::new();
        self.tick(at(ms), Duration::ZERO, &mut changes);
        changes
    }

    fn is_up(&self) -> bool {
        self.view(NODE).is_some_and(|view| view.is_up)
    }
}

#[test]
fn a_node_is_up_from_its_first_answer_and_down_two_seconds_after_its_last() {
    let mut opinion = opinion();
    assert!(!opinion.is_up());
    assert_eq!(opinion.hears(100, 110, pong()), [Change::Up { node: NODE }]);
    assert_eq!(opinion.hears(600, 2500, pong()), [], "an answer that took long");
    assert_eq!(opinion.ticks(2600), []);
    assert_eq!(opinion.ticks(2601), [Change::Down { node: NODE, cause: DownCause::Silence }]);
    assert_eq!(opinion.hears(2700, 2710, pong()), [Change::Up { node: NODE }]);
    let mut changes = Vec::new();
    opinion.refused(NODE, at(2800), &mut changes);
    assert_eq!(changes, [Change::Down { node: NODE, cause: DownCause::Refused }]);
}

#[test]
fn a_node_that_stood_still_itself_waits_as_long_again() {
    let mut opinion = opinion();
    assert_eq!(opinion.hears(100, 110, pong()), [Change::Up { node: NODE }]);
    assert_eq!(opinion.ticks(600), []);
    let mut changes = Vec::new();
    opinion.tick(at(30_600), Duration::from_secs(30), &mut changes);
    assert_eq!(changes, [], "it has waited for half a second");
    assert_eq!(opinion.ticks(32_100), []);
    assert_eq!(opinion.ticks(32_101), [Change::Down { node: NODE, cause: DownCause::Silence }]);
}

#[test]
fn a_node_that_went_down_twice_in_a_minute_has_to_answer_for_ten_seconds() {
    let mut opinion = opinion();
    opinion.hears(0, 1, pong());
    for down_ms in [10_000, 40_000] {
        assert_eq!(opinion.ticks(down_ms).len(), 1);
        if down_ms == 10_000 {
            assert_eq!(
                opinion.hears(down_ms, down_ms + 1, pong()).len(),
                1,
                "the first time it is up at once"
            );
        }
    }
    for ms in (41_000..46_000).step_by(500) {
        assert_eq!(opinion.hears(ms, ms + 1, pong()), []);
    }
    opinion.missed(NODE);
    for ms in (46_000..56_000).step_by(500) {
        assert_eq!(opinion.hears(ms, ms + 1, pong()), [], "{ms}");
    }
    assert_eq!(opinion.hears(56_000, 56_001, pong()), [Change::Up { node: NODE }]);
    // After a calm minute it may go down once again without that.
    for ms in (56_500..130_000).step_by(500) {
        opinion.hears(ms, ms + 1, pong());
    }
    assert_eq!(opinion.ticks(140_000).len(), 1);
    assert_eq!(opinion.hears(140_000, 140_001, pong()), [Change::Up { node: NODE }]);
}

#[test]
fn stalled_shards_are_apart_from_their_node() {
    let mut opinion = opinion();
    let stalled =
        |shards: &[usize]| Pong { stalled: Pong::bitmap(20, |shard| shards.contains(&shard)), ..pong() };
    let change = |shard, is_stalled| Change::Stalled { node: NODE, shard, is_stalled };
    assert_eq!(opinion.hears(0, 1, stalled(&[1])), [Change::Up { node: NODE }, change(1, true)]);
    assert_eq!(opinion.hears(500, 501, stalled(&[1, 17])), [change(17, true)]);
    assert_eq!(opinion.hears(1000, 1001, stalled(&[17])), [change(1, false)]);
    assert!(opinion.is_up() && opinion.view(NODE).is_some_and(|view| view.is_stalled(17)));
    opinion.ticks(5000);
    assert!(!opinion.view(NODE).is_some_and(|view| view.is_stalled(17)), "the node is down");
    assert_eq!(opinion.hears(5500, 5501, stalled(&[17])), [Change::Up { node: NODE }, change(17, true)]);
}

#[test]
fn the_port_for_clients_is_closed_until_the_node_says_otherwise_while_it_is_up() {
    let mut opinion = opinion();
    let serving = || Pong { serves_clients: true, ..pong() };
    let clients = |is_served| Change::Clients { node: NODE, is_served };
    assert_eq!(opinion.hears(0, 1, pong()), [Change::Up { node: NODE }]);
    assert_eq!(opinion.hears(500, 501, serving()), [clients(true)]);
    assert_eq!(opinion.hears(1000, 1001, serving()), []);
    assert_eq!(opinion.hears(1500, 1501, pong()), [clients(false)], "it drains");
    assert_eq!(opinion.hears(2000, 2001, serving()), [clients(true)]);
    // It restarts: up before its port is open.
    assert_eq!(opinion.ticks(5000), [Change::Down { node: NODE, cause: DownCause::Silence }]);
    assert_eq!(opinion.hears(5500, 5501, pong()), [Change::Up { node: NODE }]);
    opinion.ticks(9000);
    assert_eq!(opinion.hears(9000, 9001, serving()), [], "it went down twice in a minute");
    assert_eq!(opinion.hears(9500, 9501, serving()), []);
}

#[test]
fn a_node_that_started_again_before_it_was_missed_closes_its_port_and_opens_it() {
    let mut opinion = opinion();
    let of = |generation, serves_clients| Pong { generation, serves_clients, ..pong() };
    let clients = |is_served| Change::Clients { node: NODE, is_served };
    assert_eq!(opinion.hears(0, 1, of(5, true)), [Change::Up { node: NODE }, clients(true)]);
    assert_eq!(opinion.hears(500, 501, of(6, true)), [clients(false), clients(true)]);
    assert_eq!(opinion.hears(1000, 1001, of(6, true)), []);
    assert_eq!(opinion.hears(1500, 1501, of(7, false)), [clients(false)], "not open yet");
    assert_eq!(opinion.hears(2000, 2001, of(7, true)), [clients(true)]);
}

#[test]
fn a_clock_is_off_only_beyond_what_the_round_trip_leaves_open() {
    let of = |clock_us: i64, trip_ms: u64| {
        let mut opinion = opinion();
        opinion.hears(1000, 1000 + trip_ms, Pong { clock_us, ..pong() });
        opinion.view(NODE).map(|view| (view.skew, view.skew_us))
    };
    assert_eq!(of(100_000, 0), Some((Skew::Small, 100_000)));
    assert_eq!(of(-100_001, 0), Some((Skew::Noticeable, -100_001)));
    assert_eq!(of(1_000_001, 0), Some((Skew::Large, 1_000_001)));
    assert_eq!(of(-5_000_001, 0), Some((Skew::Excessive, -5_000_001)));
    // The answer took two seconds: a clock that was read somewhere in between may be right.
    assert_eq!(of(0, 2000), Some((Skew::Small, 1_000_000)));
    assert_eq!(of(i64::MAX, 0).map(|(skew, _)| skew), Some(Skew::Excessive));
    assert_eq!(of(i64::MIN, 0).map(|(skew, _)| skew), Some(Skew::Excessive));
}

#[test]
fn an_answer_of_an_earlier_process_changes_nothing() {
    let mut opinion = opinion();
    opinion.hears(0, 1, Pong { generation: 5, ..pong() });
    opinion.ticks(3000);
    assert_eq!(opinion.hears(3000, 3001, Pong { generation: 4, ..pong() }), []);
    assert!(!opinion.is_up());
}

/// What happens next, and after how many milliseconds.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// A ping of so long ago is answered.
    Answer(u64),
    Missed,
    Refused,
    Tick,
}

fn event() -> impl Strategy<Value = (u64, Event)> {
    let event = prop_oneof![
        4 => (0u64..3000).prop_map(Event::Answer),
        1 => Just(Event::Missed),
        1 => Just(Event::Refused),
        4 => Just(Event::Tick),
    ];
    (0u64..900, event)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_node_is_up_only_with_recent_evidence_and_changes_alternate(
        events in prop::collection::vec(event(), 1..300),
    ) {
        let mut opinion = opinion();
        let (mut now, mut evidence, mut was_up) = (10_000u64, 0u64, false);
        for (passed, event) in events {
            now += passed;
            let mut changes = Vec::new();
            match event {
                Event::Answer(ago) => {
                    changes = opinion.hears(now - ago, now, pong());
                    evidence = evidence.max(now - ago);
                }
                Event::Missed => opinion.missed(NODE),
                Event::Refused => opinion.refused(NODE, at(now), &mut changes),
                Event::Tick => changes = opinion.ticks(now),
            }
            for change in &changes {
                match change {
                    Change::Up { .. } => prop_assert!(!std::mem::replace(&mut was_up, true)),
                    Change::Down { .. } => prop_assert!(std::mem::replace(&mut was_up, false)),
                    _ => {}
                }
            }
            prop_assert_eq!(opinion.is_up(), was_up);
            if matches!(event, Event::Tick) && was_up {
                prop_assert!(now - evidence <= 2000, "up {} ms after its last evidence", now - evidence);
            }
        }
        prop_assert!(opinion.ticks(now + 2001).len() <= 1);
        prop_assert!(!opinion.is_up());
    }

    #[test]
    fn a_node_that_answers_every_ping_stays_up(trips in prop::collection::vec(0u64..1400, 1..200)) {
        let mut opinion = opinion();
        for (number, trip) in trips.into_iter().enumerate() {
            let sent = number as u64 * 500;
            // Answers come in the order of their pings, and a tick every 250 ms.
            opinion.hears(sent, sent + trip, pong());
            opinion.ticks(sent + 250);
            opinion.ticks(sent + 500);
            prop_assert!(opinion.is_up());
        }
    }
}
