//! Members that a node's own state does not name yet: messages of group 0 are taken from them and sent to
//! them, and nothing else.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use cluster::NodeNumber;
use cluster::net::{Member, Members, NetError, Network, Request};
use reactor::sim::World;
use wire::node::fault::FaultKind;
use wire::node::frame::{Verb, WorkGroup};
use wire::node::hello::Hello;

use crate::nodes::{Nodes, Setup, address, call_echo, host_id, members, soon};

/// As many as there are places.
const PLACES: NodeNumber = 16;

/// Messages of group 0 that came: to which node, its sender's number, and the number that the sender claims.
type Came = Rc<RefCell<Vec<(NodeNumber, Option<NodeNumber>, Option<NodeNumber>)>>>;

/// Notes messages of group 0; one with a body is never answered.
fn note_messages(network: &Rc<Network>, at: NodeNumber, came: &Came) {
    let came = Rc::clone(came);
    network.register(Verb::Raft, move |request: Request| {
        came.borrow_mut().push((at, request.from.node, request.from.provisional));
        async move {
            if !request.body.is_empty() {
                std::future::pending::<()>().await;
            }
            Ok(Vec::new())
        }
    });
}

async fn hand_over(network: &Rc<Network>, to: NodeNumber, body: Vec<u8>) -> Result<Vec<u8>, NetError> {
    network.call((to, 0), Verb::Raft, WorkGroup::Control, soon(), body).await
}

async fn ping(network: &Rc<Network>, to: NodeNumber) -> Result<Vec<u8>, NetError> {
    network.call((to, 0), Verb::Ping, WorkGroup::Control, soon(), Vec::new()).await
}

fn is_forbidden<T>(result: &Result<T, NetError>) -> bool {
    matches!(result, Err(NetError::Fault { fault, .. }) if fault.kind == FaultKind::Forbidden)
}

fn is_unknown<T>(result: &Result<T, NetError>) -> bool {
    matches!(result, Err(NetError::UnknownNode { .. }))
}

async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        reactor::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn a_member_that_is_not_named_yet_takes_part_in_group_0_and_in_nothing_else() {
    let (came, step) = (Came::default(), Rc::new(Cell::new(0)));
    let (of_nodes, of_steps) = (Rc::clone(&came), Rc::clone(&step));
    Nodes::start(World::new(31), &Setup::new(3, 1), move |network, node, _| {
        let (came, step) = (Rc::clone(&of_nodes), Rc::clone(&of_steps));
        async move {
            note_messages(&network, node, &came);
            match node {
                1 => {
                    network.set_members(members(2, 1));
                    step.set(1);
                    assert!(is_unknown(&hand_over(&network, 3, Vec::new()).await), "nobody has met it");
                    until(|| step.get() == 2).await;
                    hand_over(&network, 3, Vec::new()).await.expect("an answer");
                    assert!(is_unknown(&ping(&network, 3).await));
                    assert!(is_unknown(&call_echo(&network, (3, 0), soon(), vec![1]).await));
                    // Another change of the state that does not name it either.
                    network.set_members(members(2, 1));
                    hand_over(&network, 3, Vec::new()).await.expect("an answer");
                    network.set_members(members(3, 1));
                    step.set(3);
                    ping(&network, 3).await.expect("an answer");
                    hand_over(&network, 3, Vec::new()).await.expect("an answer");
                }
                3 => {
                    until(|| step.get() == 1).await;
                    assert!(is_forbidden(&ping(&network, 1).await), "before it has a place");
                    hand_over(&network, 1, Vec::new()).await.expect("an answer");
                    assert!(is_forbidden(&ping(&network, 1).await), "with a place");
                    assert!(is_forbidden(&call_echo(&network, (1, 0), soon(), vec![1]).await));
                    step.set(2);
                    until(|| step.get() == 3).await;
                    ping(&network, 1).await.expect("an answer");
                    call_echo(&network, (1, 0), soon(), vec![1]).await.expect("an answer");
                    hand_over(&network, 1, Vec::new()).await.expect("an answer");
                }
                _ => {}
            }
        }
    })
    .run();
    let to_first: Vec<_> = came.borrow().iter().filter(|(at, ..)| *at == 1).copied().collect();
    assert_eq!(to_first, [(1, None, Some(3)), (1, Some(3), None)]);
    let to_third: Vec<_> = came.borrow().iter().filter(|(at, ..)| *at == 3).copied().collect();
    assert_eq!(to_third, [(3, Some(1), None); 3]);
}

/// Node 3 says something else of itself, and node 1 has another state: its messages do not come through.
fn check_refused(seed: u64, what: &str, spoil: fn(&mut Hello), state: fn() -> Members) {
    let (came, is_met) = (Came::default(), Rc::new(Cell::new(false)));
    let of_nodes = Rc::clone(&came);
    let setup = Setup::new(3, 1).with(move |config| {
        if config.own.host_id == host_id(3) {
            spoil(&mut config.own);
        }
    });
    let what = what.to_owned();
    Nodes::start(World::new(seed), &setup, move |network, node, _| {
        let (came, is_met, what) = (Rc::clone(&of_nodes), Rc::clone(&is_met), what.clone());
        async move {
            note_messages(&network, node, &came);
            match node {
                1 => network.set_members(state()),
                2 => {
                    reactor::sleep(Duration::from_millis(10)).await;
                    ping(&network, 1).await.expect("an answer");
                    is_met.set(true);
                }
                _ => {
                    until(|| is_met.get()).await;
                    let refused = hand_over(&network, 1, Vec::new()).await;
                    let is_refused =
                        matches!(refused, Err(NetError::RefusedBy { .. } | NetError::Refused { .. }));
                    assert!(is_refused || is_forbidden(&refused), "{what}: {refused:?}");
                }
            }
        }
    })
    .run();
    assert_eq!(*came.borrow(), []);
}

#[test]
fn a_stranger_that_cannot_be_a_new_member_hands_over_nothing() {
    let two: fn() -> Members = || members(2, 1);
    let with_ban: fn() -> Members = || {
        let mut two = members(2, 1);
        two.banned.insert(host_id(3));
        two
    };
    let with_former: fn() -> Members = || {
        let mut two = members(2, 1);
        two.numbered_to = 3;
        two
    };
    check_refused(40, "another cluster", |hello| hello.cluster_id = Some([0xdd; 16]), two);
    check_refused(41, "another cluster's name", |hello| hello.cluster_name = "other".to_owned(), two);
    check_refused(42, "no cluster", |hello| hello.cluster_id = None, two);
    check_refused(43, "no number", |hello| hello.node = 0, two);
    check_refused(44, "another member's number", |hello| hello.node = 2, two);
    check_refused(45, "another member's host id", |hello| hello.host_id = host_id(2), two);
    check_refused(46, "the address of a member", |hello| hello.address = address(2).to_string(), two);
    check_refused(47, "the address of the other end", |hello| hello.address = address(1).to_string(), two);
    check_refused(48, "no address", |hello| hello.address = "nowhere".to_owned(), two);
    check_refused(49, "a removed node", |_| {}, with_ban);
    check_refused(50, "a former member's number", |_| {}, with_former);
}

#[test]
fn the_places_are_bounded_and_one_is_free_again_when_its_node_is_gone() {
    let (came, turn) = (Came::default(), Rc::new(Cell::new(2)));
    let of_nodes = Rc::clone(&came);
    let last = 2 + PLACES;
    Nodes::start(World::new(32), &Setup::new(usize::from(last), 1), move |network, node, _| {
        let (came, turn) = (Rc::clone(&of_nodes), Rc::clone(&turn));
        async move {
            note_messages(&network, node, &came);
            if node == 1 {
                network.set_members(members(1, 1));
                return;
            }
            until(|| turn.get() == node).await;
            let sent = hand_over(&network, 1, Vec::new()).await;
            turn.set(node + 1);
            if node < last {
                sent.expect("an answer");
            } else {
                assert!(is_forbidden(&sent), "{sent:?}");
            }
            until(|| turn.get() > last).await;
            if node == 2 {
                network.stop().await;
            } else if node == last {
                while is_forbidden(&hand_over(&network, 1, Vec::new()).await) {
                    reactor::sleep(Duration::from_millis(1)).await;
                }
            }
        }
    })
    .run();
    assert_eq!(came.borrow().len(), usize::from(PLACES) + 1);
}

#[test]
fn a_number_that_turns_out_to_be_another_node_s_ends_the_connection() {
    let came = Came::default();
    let of_nodes = Rc::clone(&came);
    Nodes::start(World::new(33), &Setup::new(3, 1), move |network, node, _| {
        let came = Rc::clone(&of_nodes);
        async move {
            note_messages(&network, node, &came);
            if node == 1 {
                network.set_members(members(2, 1));
                until(|| !came.borrow().is_empty()).await;
                let mut all: Vec<Member> = members(3, 1).all().cloned().collect();
                all[2].host_id = host_id(9);
                network.set_members(Members::new(all, BTreeSet::new(), Vec::new()));
            } else if node == 3 {
                reactor::sleep(Duration::from_millis(10)).await;
                let lost = hand_over(&network, 1, vec![1]).await;
                assert!(matches!(lost, Err(NetError::Lost { .. })), "{lost:?}");
                network.retry_control(1);
                let again = hand_over(&network, 1, Vec::new()).await;
                assert!(is_forbidden(&again), "{again:?}");
            }
        }
    })
    .run();
    assert_eq!(*came.borrow(), [(1, None, Some(3))]);
}
