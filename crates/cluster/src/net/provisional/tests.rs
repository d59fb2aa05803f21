//! Which claims get a place, for how long, and how many.

use std::collections::BTreeSet;

use super::*;
use crate::net::Member;

fn at(seconds: u64) -> Instant {
    Instant::from_nanos(seconds * 1_000_000_000)
}

fn claim(node: NodeNumber) -> Claim {
    let address = SocketAddr::from(([10, 0, 0, node as u8], 7000));
    Claim { cluster_id: [0xcc; 16], node, host_id: [node as u8; 16], address }
}

fn member(node: NodeNumber, host: u8) -> Member {
    Member {
        node,
        host_id: [host; 16],
        address: claim(node).address,
        shards: 1,
        generation: 1,
        data_center: "dc1".to_owned(),
        rack: "rack1".to_owned(),
    }
}

/// Nodes 1 to `count`.
fn members(count: NodeNumber) -> Members {
    let all = (1..=count).map(|node| member(node, node as u8)).collect();
    Members::new(all, BTreeSet::new(), Vec::new())
}

const NEW: Place = Place::Given { displaced: None };

#[test]
fn only_a_number_and_a_host_id_that_the_state_knows_not_get_a_place() {
    let two = members(2);
    let (mut with_former, mut with_ban) = (members(2), members(2));
    with_former.numbered_to = 3;
    with_ban.banned.insert([3; 16]);
    let cases = [
        (claim(3), &two, NEW),
        (claim(2), &two, Place::Refused),
        (Claim { host_id: [9; 16], ..claim(2) }, &two, Place::Refused),
        (Claim { host_id: [2; 16], ..claim(3) }, &two, Place::Refused),
        (claim(3), &with_former, Place::Refused),
        (claim(3), &with_ban, Place::Refused),
        (claim(3), &Members::default(), Place::Refused),
    ];
    for (claim, members, expected) in cases {
        let mut places = Provisional::default();
        assert_eq!(places.take(&claim, members, at(0)), expected, "{claim:?} {members:?}");
        assert_eq!(places.get(claim.node).is_some(), expected == NEW);
    }
}

#[test]
fn a_place_is_its_first_host_s_until_that_leaves() {
    let (mut places, members) = (Provisional::default(), members(2));
    assert_eq!(places.take(&claim(3), &members, at(0)), NEW);
    let other = Claim { host_id: [9; 16], ..claim(3) };
    assert_eq!(places.take(&other, &members, at(0)), Place::Refused, "another host");
    let second = Claim { host_id: [3; 16], ..claim(4) };
    assert_eq!(places.take(&second, &members, at(0)), Place::Refused, "a second number");
    let moved = Claim { address: claim(7).address, ..claim(3) };
    assert_eq!(places.take(&moved, &members, at(0)), Place::Held, "another address");
    assert_eq!(places.get(3), Some(&moved));
    assert_eq!((places.leave(&[9; 16]), places.leave(&[3; 16])), (None, Some(3)));
    assert_eq!(places.take(&other, &members, at(0)), NEW);
}

#[test]
fn the_places_are_bounded_and_a_silent_node_gives_its_own_up() {
    let (mut places, members) = (Provisional::default(), members(2));
    let last = 2 + PROVISIONAL_MAX as NodeNumber;
    for node in 3..=last {
        assert_eq!(places.take(&claim(node), &members, at(u64::from(node))), NEW, "{node}");
    }
    let next = claim(last + 1);
    assert_eq!(places.take(&next, &members, at(12)), Place::Refused);
    assert_eq!(places.take(&claim(3), &members, at(12)), Place::Held);
    assert_eq!(places.take(&next, &members, at(13)), Place::Refused);
    assert_eq!(places.take(&next, &members, at(14)), Place::Given { displaced: Some(4) });
    assert_eq!(places.0.len(), PROVISIONAL_MAX);
    assert_eq!(places.take(&claim(4), &members, at(14)), Place::Refused);
}

#[test]
fn the_state_decides_as_soon_as_it_names_a_number_or_a_host() {
    let mut places = Provisional::default();
    for node in 3..=8 {
        assert_eq!(places.take(&claim(node), &members(2), at(0)), NEW);
    }
    // Of 3 to 8: a member, another host's number, another number's host, removed, and not named yet twice.
    let named = vec![member(1, 1), member(3, 3), member(4, 9), member(2, 5)];
    let mut state = Members::new(named, BTreeSet::new(), Vec::new());
    state.numbered_to = 6;
    assert_eq!(places.follow(&state), [4, 5, 6]);
    assert_eq!(places.0.keys().copied().collect::<Vec<_>>(), [7, 8]);
    for (node, is_wrong) in [(3, false), (4, true), (5, true), (6, true), (7, false)] {
        assert_eq!(claim(node).is_wrong(&state), is_wrong, "{node}");
    }
    state.banned.insert([7; 16]);
    assert_eq!(places.follow(&state), [7]);
}
