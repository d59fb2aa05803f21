//! Each rule of an acceptor, by itself.

use super::*;

const NOW: i64 = 1_000_000;

fn ballot(micros: i64, node: u16) -> Ballot {
    Ballot { micros, node, shard: 0, sequence: 0, scope: 0 }
}

fn held(ballot: Ballot) -> Option<Held> {
    Some(Held { ballot, mutation: vec![1] })
}

fn promised(latest: Ballot) -> Option<Promised> {
    Some(Promised { latest, written: Some(latest) })
}

/// The ballot and the reason of a refusal.
fn refused<T: std::fmt::Debug>(answer: Result<T, Refusal>) -> (Why, Ballot) {
    let refusal = answer.expect_err("a refusal");
    (refusal.why, refusal.highest)
}

#[test]
fn a_promise_is_later_than_all_that_was_seen() {
    let (low, high) = (ballot(50, 1), ballot(70, 2));
    for state in [
        State { promised: promised(high), accepted: held(low), committed: held(low) },
        State { promised: promised(low), accepted: held(high), committed: held(low) },
        State { promised: promised(low), accepted: held(low), committed: held(high) },
    ] {
        assert_eq!(refused(state.prepare(ballot(60, 9), NOW)), (Why::NotLater, high));
        assert_eq!(refused(state.prepare(ballot(70, 9), NOW)), (Why::NotLater, high), "an equal time");
        assert_eq!(state.prepare(ballot(71, 1), NOW), Ok(()));
    }
    assert_eq!(State::default().prepare(ballot(1, 1), NOW), Ok(()));
}

#[test]
fn a_promise_is_not_far_ahead_of_the_clock() {
    let state = State::default();
    assert_eq!(state.prepare(ballot(NOW + AHEAD_MAX_US, 1), NOW), Ok(()));
    let ahead = ballot(NOW + AHEAD_MAX_US + 1, 1);
    assert_eq!(refused(state.prepare(ahead, NOW)), (Why::Ahead, ahead));
}

#[test]
fn rounds_of_other_replicas_are_refused_while_one_is_noted() {
    let local = Ballot { scope: 1, ..ballot(80, 1) };
    for state in [
        State { promised: promised(ballot(50, 1)), ..State::default() },
        State { accepted: held(ballot(50, 1)), ..State::default() },
    ] {
        assert_eq!(refused(state.prepare(local, NOW)), (Why::OtherScope, ballot(50, 1)));
        assert_eq!(refused(state.accept(local)), (Why::OtherScope, ballot(50, 1)));
    }
    let state = State { committed: held(ballot(50, 1)), ..State::default() };
    assert_eq!(state.prepare(local, NOW), Ok(()));
}

#[test]
fn a_proposal_is_the_promised_one_or_later() {
    let state = State { promised: promised(ballot(70, 2)), accepted: held(ballot(50, 1)), committed: None };
    assert_eq!(state.accept(ballot(70, 2)), Ok(Accepting::New));
    assert_eq!(state.accept(ballot(71, 1)), Ok(Accepting::New));
    assert_eq!(refused(state.accept(ballot(70, 3))), (Why::NotLater, ballot(70, 2)), "an equal time");
    assert_eq!(refused(state.accept(ballot(60, 2))), (Why::NotLater, ballot(70, 2)));
}

#[test]
fn a_proposal_is_later_than_what_was_accepted_and_committed() {
    let low = promised(ballot(50, 1));
    for state in [
        State { promised: low, accepted: held(ballot(70, 2)), committed: None },
        State { promised: low, accepted: None, committed: held(ballot(70, 2)) },
    ] {
        assert_eq!(refused(state.accept(ballot(50, 1))), (Why::NotLater, ballot(70, 2)), "once promised");
        assert_eq!(refused(state.accept(ballot(70, 3))), (Why::NotLater, ballot(70, 2)), "an equal time");
        assert_eq!(state.accept(ballot(71, 1)), Ok(Accepting::New));
        assert_eq!(state.accept(ballot(70, 2)), Ok(Accepting::Again), "the same request, twice");
    }
}

#[test]
fn the_latest_commit_is_kept_and_ends_what_was_accepted_before() {
    let state = State { promised: None, accepted: held(ballot(60, 1)), committed: held(ballot(50, 1)) };
    let learning = |is_latest, clears_accepted| Learning { is_latest, clears_accepted };
    assert_eq!(state.learn(ballot(40, 1)), learning(false, false));
    assert_eq!(state.learn(ballot(55, 1)), learning(true, false));
    assert_eq!(state.learn(ballot(60, 1)), learning(true, true));
    assert_eq!(state.learn(ballot(70, 1)), learning(true, true));
}

#[test]
fn stored_bytes_come_back_and_others_are_none() {
    let (a, b) = (ballot(50, 1), Ballot { micros: 60, node: 7, shard: 8, sequence: 9, scope: 2 });
    for promised in [Promised { latest: b, written: None }, Promised { latest: b, written: Some(a) }] {
        assert_eq!(Promised::decode(&promised.encode()), Some(promised));
        assert_eq!(Promised::decode(&promised.encode()[1..]), None);
    }
    let bytes = Held::encode(b, b"mutation");
    assert_eq!(Held::decode(&bytes), Some(Held { ballot: b, mutation: b"mutation".to_vec() }));
    assert_eq!(Held::decode(&bytes[..BALLOT_BYTES - 1]), None);
    // A reader's promise keeps the writer's.
    let state = State { promised: promised(a), ..State::default() };
    assert_eq!(state.promised_with(b, false), Promised { latest: b, written: Some(a) });
    assert_eq!(state.promised_with(b, true), Promised { latest: b, written: Some(b) });
}
