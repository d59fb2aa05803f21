//! Calls without faults: each answer is that of its request, limits hold, and nothing is left behind.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use cluster::net::{Member, Members, NetError, PeerName};
use reactor::sim::World;
use reactor::{Deadline, Group};
use wire::node::fault::FaultKind;
use wire::node::frame::{Verb, WorkGroup};

use super::nodes::{Nodes, Setup, address, call_echo, compress_all, echoed, host_id, members, metric, soon};

/// Runs nodes of which each shard calls each shard of each other node.
fn everybody_calls_everybody(seed: u64, setup: &Setup, bytes: usize) -> (u64, usize) {
    let (nodes, shards) = (setup.nodes, setup.shards);
    let mut nodes_running = Nodes::start(World::new(seed), setup, move |network, node, info| async move {
        for peer in (1..=nodes as u16).filter(|peer| *peer != node) {
            for shard in 0..shards {
                for number in 0..3u8 {
                    let body = vec![number; bytes];
                    let answer = call_echo(&network, (peer, shard as u16), soon(), body.clone()).await;
                    assert_eq!(answer, Ok(echoed(peer, shard, (node, info.id as u16), &body)));
                }
            }
        }
        assert_eq!(network.peers().len(), nodes);
    });
    nodes_running.run();
    let echoed = nodes_running.seen.echoed.borrow().len();
    (nodes_running.world.trace_hash(), echoed)
}

#[test]
fn each_shard_reaches_each_shard_of_each_node() {
    let setup = Setup::new(3, 2);
    let (trace, echoed) = everybody_calls_everybody(1, &setup, 100);
    assert_eq!(echoed, 3 * 2 * 2 * 2 * 3);
    assert_eq!(everybody_calls_everybody(1, &setup, 100), (trace, echoed), "the same seed, another run");
    assert_ne!(everybody_calls_everybody(2, &setup, 100).0, trace);
}

#[test]
fn a_node_that_comes_back_with_more_shards_is_reached_on_each_of_them() {
    let stage = Rc::new(Cell::new(0));
    let of_task = Rc::clone(&stage);
    let mut nodes = Nodes::start(World::new(9), &Setup::new(2, 1), move |network, node, _| {
        let stage = Rc::clone(&of_task);
        async move {
            if node == 2 {
                return;
            }
            let body = vec![1];
            let answer = call_echo(&network, (2, 0), soon(), body.clone()).await;
            assert_eq!(answer, Ok(echoed(2, 0, (1, 0), &body)));
            stage.set(1);
            while stage.get() < 2 {
                reactor::sleep(Duration::from_millis(10)).await;
            }
            network.set_members(members(2, 2));
            let answer = call_echo(&network, (2, 1), soon(), body.clone()).await;
            assert_eq!(answer, Ok(echoed(2, 1, (1, 0), &body)));
            stage.set(3);
        }
    });
    let asked = Rc::clone(&stage);
    nodes.run_until(move || asked.get() == 1);
    nodes.world.crash(nodes.ids[1]);
    nodes.world.restart_with(nodes.ids[1], 2);
    nodes.world.run_for(Duration::from_secs(1)).expect("it starts");
    stage.set(2);
    nodes.world.run_for(Duration::from_secs(10)).expect("an answer");
    assert_eq!(stage.get(), 3, "{:?}", nodes.world.outcome(nodes.ids[0]));
}

#[test]
fn long_bodies_arrive_compressed_and_plain() {
    let plain = Setup::new(2, 1);
    for bytes in [0, 1023, 1024, 300_000] {
        assert_eq!(everybody_calls_everybody(3, &plain, bytes).1, 6);
        assert_eq!(everybody_calls_everybody(3, &plain.clone().with(compress_all), bytes).1, 6);
    }
}

#[test]
fn shards_without_a_connection_of_their_own_share_the_home_connection() {
    let setup = Setup::new(2, 4).with(|config| config.statement_connections_max = 4);
    let (_, echoed) = everybody_calls_everybody(4, &setup, 10);
    assert_eq!(echoed, 2 * 4 * 4 * 3);
}

#[test]
fn an_answer_in_parts_comes_in_order_and_over_a_shared_connection_too() {
    for connections in [1, 4096] {
        let setup = Setup::new(2, 2).with(move |config| config.statement_connections_max = connections);
        Nodes::start(World::new(5), &setup, |network, node, _| async move {
            let body = [40u32.to_le_bytes(), 1000u32.to_le_bytes()].concat();
            for shard in 0..2 {
                let asked = network.call_in_parts(
                    (3 - node, shard),
                    Verb::Digest,
                    WorkGroup::Statement,
                    soon(),
                    body.clone(),
                );
                let mut answers = asked.await.expect("a connection");
                for number in 0..40u8 {
                    assert_eq!(answers.next().await, Ok(Some(vec![number; 1000])));
                }
                assert_eq!(answers.next().await, Ok(Some(b"end".to_vec())));
                assert_eq!(answers.next().await, Ok(None));
            }
        })
        .run();
    }
}

#[test]
fn calls_of_one_turn_leave_in_one_send() {
    let setup = Setup::new(2, 1);
    Nodes::start(World::new(6), &setup, |network, node, _| async move {
        if node != 1 {
            return;
        }
        call_echo(&network, (2, 0), soon(), vec![0]).await.expect("an answer");
        let before = metric("ceto_internode_sends", 2);
        let calls: Vec<_> = (0..100u8)
            .map(|number| {
                let network = Rc::clone(&network);
                reactor::spawn(Group::STATEMENT, async move {
                    call_echo(&network, (2, 0), soon(), vec![number]).await
                })
            })
            .collect();
        for call in calls {
            call.await.expect("no panic").expect("an answer");
        }
        assert!(metric("ceto_internode_sends", 2) - before < 30);
        assert_eq!(metric("ceto_internode_requests", 2), 101);
        assert_eq!(metric("ceto_internode_connections", 2), 1);
    })
    .run();
}

#[test]
fn a_caller_that_gives_up_stops_the_work_and_leaves_its_place() {
    let setup = Setup::new(2, 1);
    let mut nodes = Nodes::start(World::new(7), &setup, |network, node, _| async move {
        if node != 1 {
            return;
        }
        let nap = 60_000u32.to_le_bytes().to_vec();
        for round in 0..3 {
            let calls: Vec<_> = (0..1024)
                .map(|_| {
                    let (network, nap) = (Rc::clone(&network), nap.clone());
                    reactor::spawn(Group::STATEMENT, async move {
                        let deadline = Deadline::after(Duration::from_millis(300));
                        let called =
                            network.call((2, 0), Verb::Read, WorkGroup::Statement, deadline, nap).await;
                        called.expect_err("it naps for a minute")
                    })
                })
                .collect();
            for call in calls {
                let error = call.await.expect("no panic");
                assert_eq!(
                    error,
                    NetError::TimedOut { peer: PeerName::Node(2), sent: true },
                    "round {round}"
                );
            }
        }
        call_echo(&network, (2, 0), soon(), vec![1]).await.expect("places were given back");
    });
    nodes.run();
    assert_eq!((nodes.seen.begun.get(), nodes.seen.ended.get()), (3 * 1024, 0));
}

#[test]
fn callers_beyond_the_outstanding_ones_wait_in_line_until_their_time_is_over() {
    let setup = Setup::new(2, 1);
    Nodes::start(World::new(8), &setup, |network, node, _| async move {
        if node != 1 {
            return;
        }
        let nap = |deadline_ms: u64| {
            let network = Rc::clone(&network);
            reactor::spawn(Group::STATEMENT, async move {
                let nap = 1000u32.to_le_bytes().to_vec();
                let deadline = Deadline::after(Duration::from_millis(deadline_ms));
                network.call((2, 0), Verb::Read, WorkGroup::Statement, deadline, nap).await
            })
        };
        let first: Vec<_> = (0..1024).map(|_| nap(5000)).collect();
        reactor::sleep(Duration::from_millis(50)).await;
        let hasty: Vec<_> = (0..500).map(|_| nap(150)).collect();
        let patient: Vec<_> = (0..100).map(|_| nap(5000)).collect();
        reactor::sleep(Duration::from_millis(50)).await;
        assert_eq!(metric("ceto_internode_waiting", 2), 600);
        let unsent = NetError::TimedOut { peer: PeerName::Node(2), sent: false };
        assert!(unsent.is_definite());
        for call in hasty {
            assert_eq!(call.await.expect("no panic"), Err(unsent.clone()));
        }
        for call in first.into_iter().chain(patient) {
            call.await.expect("no panic").expect("an answer");
        }
        assert_eq!(metric("ceto_internode_waiting", 2), 0);
        assert_eq!(metric("ceto_internode_requests", 2), 1124);
    })
    .run();
}

#[test]
fn a_handler_that_is_not_there_and_a_node_that_is_not_are_definite_errors() {
    let setup = Setup::new(2, 1);
    Nodes::start(World::new(9), &setup, |network, node, _| async move {
        if node != 1 {
            return;
        }
        let asked = |verb, peer| network.call(peer, verb, WorkGroup::Control, soon(), Vec::new());
        let error = asked(Verb::Drain, (2, 0)).await.expect_err("nobody drains yet");
        assert!(
            matches!(&error, NetError::Fault { fault, .. } if fault.kind == FaultKind::NotServed),
            "{error}"
        );
        let errors = [
            error,
            asked(Verb::Mutate, (9, 0)).await.expect_err("no such node"),
            asked(Verb::Mutate, (2, 7)).await.expect_err("no such shard"),
            asked(Verb::Mutate, (1, 0)).await.expect_err("the node itself"),
        ];
        for error in errors {
            assert!(error.is_definite(), "{error}");
        }
    })
    .run();
}

#[test]
fn one_way_messages_all_arrive() {
    let setup = Setup::new(2, 1);
    let mut nodes = Nodes::start(World::new(10), &setup, |network, node, _| async move {
        if node != 1 {
            return;
        }
        for number in 0..200u8 {
            let sent = network.send((2, 0), Verb::Mutate, WorkGroup::Statement, soon(), vec![number]).await;
            sent.expect("a connection");
        }
    });
    nodes.run();
    let seen = Rc::clone(&nodes.seen);
    nodes.run_until(move || seen.echoed.borrow().len() == 200);
    let mut echoed = nodes.seen.echoed.borrow().concat();
    echoed.sort_unstable();
    assert!(echoed.into_iter().eq(0..200));
}

#[test]
fn a_stranger_may_ask_for_the_cluster_and_nothing_else() {
    let mut setup = Setup::new(3, 2);
    // Node 3 is a member nowhere, and knows none.
    setup.members = Rc::new(|| members(2, 2));
    Nodes::start(World::new(11), &setup, |network, node, info| async move {
        if (node, info.id) != (3, 1) {
            return;
        }
        let ask = |verb| network.ask(address(1), None, verb, soon(), Vec::new());
        assert_eq!(ask(Verb::Status).await, Ok(b"None".to_vec()));
        let error = ask(Verb::Ping).await.expect_err("a stranger pings");
        assert!(
            matches!(&error, NetError::Fault { fault, .. } if fault.kind == FaultKind::Forbidden),
            "{error}"
        );
        let meant = network.ask(address(1), Some(host_id(2)), Verb::Status, soon(), Vec::new());
        let error = meant.await.expect_err("another node");
        assert!(matches!(error, NetError::RefusedBy { .. }), "{error}");
    })
    .run();
}

#[test]
fn a_removed_node_loses_its_connections_and_gets_none() {
    let setup = Setup::new(2, 1);
    let removed = Rc::new(Cell::new(false));
    let of_nodes = Rc::clone(&removed);
    Nodes::start(World::new(12), &setup, move |network, node, _| {
        let removed = Rc::clone(&of_nodes);
        async move {
            if node == 1 {
                call_echo(&network, (2, 0), soon(), vec![1]).await.expect("an answer");
                while !removed.get() {
                    reactor::sleep(Duration::from_millis(1)).await;
                }
                reactor::sleep(Duration::from_millis(100)).await;
                let error = call_echo(&network, (2, 0), soon(), vec![1]).await.expect_err("a ban");
                assert!(error.to_string().contains("was removed from the cluster"), "{error}");
            } else {
                reactor::sleep(Duration::from_millis(50)).await;
                let only: Vec<Member> = members(2, 1).all().filter(|one| one.node == 2).cloned().collect();
                network.set_members(Members::new(only, [host_id(1)].into(), Vec::new()));
                removed.set(true);
            }
        }
    })
    .run();
}
