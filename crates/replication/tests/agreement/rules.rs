//! Each rule of a round, with the messages of one that was cut off in the middle.

use std::time::Duration;

use model::mutation::MutationView;
use reactor::Deadline;
use replication::{Ballot, Consistency, Replicator};
use wire::node::frame::Verb;
use wire::node::paxos::{Prepare, Prepared, Proposal, Propose, Refusal, Why, decode_accepted};

use super::nodes::{Nodes, Setting, TABLE, V, VERSION, W, key};
use super::requests::{Ended, Row, Swap, mutation, read, swap};

const LEVELS: (Consistency, Consistency) = (Consistency::Serial, Consistency::Quorum);
const SOON: Duration = Duration::from_secs(2);

fn ballot(micros: i64, node: u16) -> Ballot {
    Ballot { micros, node, shard: 0, sequence: 1, scope: 0 }
}

/// A time that all clocks of a test have passed.
fn past() -> i64 {
    reactor::wall_clock_us() - 1_000_000
}

/// Asks the acceptor of this node for a promise; returns what it knew before.
async fn prepare(replicator: &Replicator, ballot: Ballot) -> Result<Option<Ballot>, Refusal> {
    let key = key(0);
    let prepare = Prepare {
        table: TABLE,
        version: VERSION,
        since: 0,
        key: &key.key,
        ballot,
        writes: true,
        reads: Vec::new(),
    };
    let mut body = Vec::new();
    prepare.encode(&mut body);
    let answer = replicator.serve(Verb::Prepare, &body, Deadline::after(SOON)).await.expect("an answer");
    match Prepared::decode(&answer).expect("an answer") {
        Prepared::Promised(promise) => Ok(promise.accepted.map(|accepted| accepted.ballot)),
        Prepared::Refused(refusal) => Err(refusal),
    }
}

/// The body of a proposal of a mutation; with `durably` of a commit.
fn proposal(ballot: Ballot, mutation: &[u8], durably: Option<bool>) -> Vec<u8> {
    let mutation = MutationView::parse(mutation).expect("a mutation");
    let propose = Propose { version: VERSION, since: 0, proposal: Proposal { ballot, mutation } };
    let mut body = Vec::new();
    match durably {
        None => propose.encode_accept(&mut body),
        Some(durably) => propose.encode_learn(durably, &mut body),
    }
    body
}

async fn accept(replicator: &Replicator, ballot: Ballot, mutation: &[u8]) -> Result<(), Refusal> {
    let body = proposal(ballot, mutation, None);
    let answer = replicator.serve(Verb::Accept, &body, Deadline::after(SOON)).await.expect("an answer");
    decode_accepted(&answer).expect("an answer")
}

async fn learn(replicator: &Replicator, ballot: Ballot, mutation: &[u8]) {
    let body = proposal(ballot, mutation, Some(true));
    replicator.serve(Verb::Learn, &body, Deadline::after(SOON)).await.expect("a commit");
}

/// A swap on a node at SERIAL.
fn swap_on(nodes: &mut Nodes, node: u16, old: Option<u32>, new: (model::ColumnId, u32)) -> (Ended, u32) {
    nodes.on(node, move |replicator, table| async move {
        let mut request = Swap { key: key(0), old, new, decided: 0 };
        let ended = swap(&replicator, &table, &mut request, LEVELS, SOON).await;
        (ended, request.decided)
    })
}

fn read_on(nodes: &mut Nodes, node: u16, level: Consistency) -> Row {
    let read = nodes.on(node, move |replicator, table| async move {
        read(&replicator, &table, &key(0), level, SOON).await
    });
    read.expect("a read")
}

fn crash_and_restart(nodes: &mut Nodes, node: u16) {
    nodes.crash(node);
    nodes.world.run_for(Duration::from_millis(5)).expect("few steps");
    nodes.restart(node);
}

#[test]
fn a_promise_and_what_was_accepted_outlive_a_loss_of_power() {
    for seed in 1..=5 {
        let mut nodes = Nodes::start(Setting::of_seed(seed));
        let promised = nodes.on(1, |replicator, _| async move {
            let promised = ballot(past(), 2);
            prepare(&replicator, promised).await.expect("the first promise");
            promised
        });
        crash_and_restart(&mut nodes, 1);
        let refused = nodes.on(1, move |replicator, _| async move {
            let lower = Ballot { micros: promised.micros - 1, ..promised };
            let bytes = mutation(&key(0), &[(V, 1)], lower.micros);
            let refused = accept(&replicator, lower, &bytes).await;
            let bytes = mutation(&key(0), &[(V, 2)], promised.micros);
            accept(&replicator, promised, &bytes).await.expect("what was promised");
            refused
        });
        assert_eq!(refused, Err(Refusal { why: Why::NotLater, highest: promised }), "seed {seed}");
        crash_and_restart(&mut nodes, 1);
        nodes.on(1, |replicator, _| async move { replicator.storage().flush_all().await.expect("files") });
        crash_and_restart(&mut nodes, 1);
        let accepted = nodes.on(1, move |replicator, _| async move {
            prepare(&replicator, Ballot { micros: promised.micros + 1, ..promised }).await
        });
        assert_eq!(accepted, Ok(Some(promised)), "seed {seed}");
    }
}

#[test]
fn promises_and_proposals_of_one_time_are_refused() {
    let mut nodes = Nodes::start(Setting::of_seed(1));
    nodes.on(1, |replicator, _| async move {
        let first = ballot(past(), 2);
        prepare(&replicator, first).await.expect("the first promise");
        let other = Ballot { node: 3, ..first };
        let refusal = Refusal { why: Why::NotLater, highest: first };
        assert_eq!(prepare(&replicator, other).await, Err(refusal), "a later node at the same time");
        let bytes = mutation(&key(0), &[(V, 1)], first.micros);
        assert_eq!(accept(&replicator, other, &bytes).await, Err(refusal));
        assert_eq!(accept(&replicator, first, &bytes).await, Ok(()));
        assert_eq!(accept(&replicator, first, &bytes).await, Ok(()), "the same message, twice");
        learn(&replicator, first, &bytes).await;
        assert_eq!(prepare(&replicator, other).await, Err(refusal), "a commit of the same time");
        let ahead = ballot(reactor::wall_clock_us() + 60_000_000, 2);
        assert_eq!(prepare(&replicator, ahead).await, Err(Refusal { why: Why::Ahead, highest: ahead }));
    });
}

#[test]
fn a_proposal_that_one_acceptor_has_is_finished_first() {
    let mut nodes = Nodes::start(Setting::of_seed(1));
    let timestamp = nodes.on(1, |replicator, _| async move {
        let cut_off = ballot(past(), 2);
        prepare(&replicator, cut_off).await.expect("a promise");
        let bytes = mutation(&key(0), &[(V, 7)], cut_off.micros);
        accept(&replicator, cut_off, &bytes).await.expect("a proposal");
        cut_off.micros
    });
    nodes.crash(3);
    let ended = swap_on(&mut nodes, 2, None, (V, 8));
    assert_eq!(ended, (Ended::Rejected((Some(7), None)), 1), "decided upon what was finished");
    nodes.restart(3);
    nodes.crash(1);
    assert_eq!(read_on(&mut nodes, 2, Consistency::Serial), (Some(7), None));
    assert_eq!(read_on(&mut nodes, 2, Consistency::Quorum), (Some(7), None));
    // It keeps its time: a later plain write wins over it.
    let later = nodes.on(2, move |replicator, table| async move {
        let bytes = mutation(&key(0), &[(V, 9)], timestamp + 1);
        let written = replicator.write(&table, &bytes, Consistency::Quorum, Deadline::after(SOON)).await;
        written.expect("a write");
        read(&replicator, &table, &key(0), Consistency::Serial, SOON).await.expect("a read")
    });
    assert_eq!(later, (Some(9), None));
}

#[test]
fn the_latest_commit_is_learned_before_anything_is_proposed() {
    let mut nodes = Nodes::start(Setting::of_seed(1));
    // Accepted by nodes 1 and 2, so chosen; committed at node 1 alone.
    let chosen = nodes.on(1, |_, _| async move { ballot(past(), 1) });
    for node in [1, 2] {
        nodes.on(node, move |replicator, _| async move {
            prepare(&replicator, chosen).await.expect("a promise");
            let bytes = mutation(&key(0), &[(W, 5)], chosen.micros);
            accept(&replicator, chosen, &bytes).await.expect("a proposal");
            if node == 1 {
                learn(&replicator, chosen, &bytes).await;
            }
        });
    }
    // Nodes 1 and 3 agree on the next, of another column; node 2 accepts it and learns nothing.
    nodes.crash(2);
    assert_eq!(swap_on(&mut nodes, 1, None, (V, 6)).0, Ended::Applied);
    nodes.restart(2);
    nodes.crash(1);
    assert_eq!(read_on(&mut nodes, 3, Consistency::One), (Some(6), Some(5)), "by itself");
    assert_eq!(read_on(&mut nodes, 2, Consistency::Serial), (Some(6), Some(5)));
}

#[test]
fn a_read_leaves_nothing_open_behind_it() {
    let mut nodes = Nodes::start(Setting::of_seed(1));
    // A round that may write was promised by nodes 2 and 3, and node 1 accepted it.
    let open = nodes.on(1, |replicator, _| async move {
        let open = ballot(past(), 1);
        prepare(&replicator, open).await.expect("a promise");
        accept(&replicator, open, &mutation(&key(0), &[(V, 1)], open.micros)).await.expect("a proposal");
        open
    });
    nodes.on(2, move |replicator, _| async move {
        prepare(&replicator, open).await.expect("a promise");
    });
    nodes.crash(1);
    assert_eq!(read_on(&mut nodes, 2, Consistency::Serial), (None, None));
    nodes.restart(1);
    nodes.crash(3);
    // What node 1 has accepted is over: that nothing changes was agreed behind it.
    assert_eq!(read_on(&mut nodes, 1, Consistency::Serial), (None, None));
}

#[test]
fn a_rejected_write_is_never_seen_and_takes_one_round_trip() {
    let mut nodes = Nodes::start(Setting::of_seed(1));
    assert_eq!(swap_on(&mut nodes, 1, None, (V, 1)), (Ended::Applied, 1));
    assert_eq!(swap_on(&mut nodes, 2, None, (V, 2)), (Ended::Rejected((Some(1), None)), 1));
    assert_eq!(swap_on(&mut nodes, 3, Some(1), (V, 3)), (Ended::Applied, 1));
    for node in 1..=3 {
        assert_eq!(read_on(&mut nodes, node, Consistency::LocalSerial), (Some(3), None));
    }
}

#[test]
fn whatever_fails_behind_a_proposal_is_unknown_and_before_it_definite() {
    for (verb, expected) in [(Verb::Prepare, "definite"), (Verb::Accept, "unknown"), (Verb::Learn, "decided")]
    {
        let mut nodes = Nodes::start(Setting::of_seed(1));
        for other in [2, 3] {
            nodes.post.cut(1, other, verb);
        }
        let (ended, _) = swap_on(&mut nodes, 1, None, (V, 4));
        match expected {
            "definite" => assert!(matches!(ended, Ended::Failed(_)), "{verb:?}: {ended:?}"),
            "unknown" => assert_eq!(ended, Ended::Unknown, "{verb:?}"),
            _ => assert_eq!(ended, Ended::Uncommitted, "{verb:?}"),
        }
        nodes.post.cut.borrow_mut().clear();
        let now = read_on(&mut nodes, 2, Consistency::Serial).0;
        match expected {
            "definite" => assert_eq!(now, None),
            "unknown" => assert!(now.is_none() || now == Some(4)),
            _ => assert_eq!(now, Some(4)),
        }
    }
}

#[test]
fn a_minority_is_unavailable_before_anything_is_done() {
    let mut nodes = Nodes::start(Setting::of_seed(1));
    nodes.crash(2);
    nodes.crash(3);
    let (ended, decided) = swap_on(&mut nodes, 1, None, (V, 1));
    assert_eq!(decided, 0);
    let Ended::Failed(error) = ended else { panic!("{ended:?}") };
    assert_eq!(error, "Unavailable { required: 2, alive: 1 }");
}

#[test]
fn data_from_the_future_is_passed_or_refused_by_name() {
    let mut nodes = Nodes::start(Setting::of_seed(1));
    for (ahead_us, applied) in [(2_000_000, true), (60_000_000, false)] {
        nodes.on(1, move |replicator, table| async move {
            let timestamp = reactor::wall_clock_us() + ahead_us;
            let bytes = mutation(&key(0), &[(V, 1)], timestamp);
            let written = replicator.write(&table, &bytes, Consistency::All, Deadline::after(SOON)).await;
            written.expect("a write");
        });
        let (ended, _) = swap_on(&mut nodes, 2, Some(1), (V, 2));
        match applied {
            true => assert_eq!(ended, Ended::Applied),
            false => {
                assert!(matches!(&ended, Ended::Failed(error) if error.contains("WrittenAhead")), "{ended:?}")
            }
        }
        let seen = read_on(&mut nodes, 3, Consistency::Serial).0;
        assert_eq!(seen, Some(if applied { 2 } else { 1 }));
    }
}

#[test]
fn one_data_center_agrees_by_itself_and_levels_are_not_mixed() {
    let mut nodes = Nodes::start(Setting { data_centers: 2, ..Setting::of_seed(1) });
    for node in 4..=6 {
        nodes.crash(node);
    }
    let on = |nodes: &mut Nodes, level| {
        nodes.on(1, move |replicator, table| async move {
            let mut request = Swap { key: key(0), old: None, new: (V, 1), decided: 0 };
            swap(&replicator, &table, &mut request, (level, Consistency::LocalQuorum), SOON).await
        })
    };
    let Ended::Failed(error) = on(&mut nodes, Consistency::Serial) else { panic!("four of six are needed") };
    assert_eq!(error, "Unavailable { required: 4, alive: 3 }");
    assert_eq!(on(&mut nodes, Consistency::LocalSerial), Ended::Applied);
    for node in 4..=6 {
        nodes.restart(node);
    }
    let Ended::Failed(error) = on(&mut nodes, Consistency::Serial) else { panic!("levels are mixed") };
    assert_eq!(error, "OtherScope");
}
