//! Liveness under partitions, crashes and stalled shards: an opinion follows what pings can tell.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use cluster::NodeNumber;
use cluster::liveness::{Liveness, OwnFacts};
use reactor::sim::World;
use wire::node::control::NodeState;

use super::nodes::{Nodes, Setup};

const NODES: usize = 3;
const SHARDS: usize = 2;

/// What each shard of each node says of each other node, and the stalled shards, refreshed all the time.
type Opinions = Rc<RefCell<BTreeMap<(NodeNumber, usize, NodeNumber), (bool, bool)>>>;

fn facts() -> OwnFacts {
    OwnFacts {
        state: NodeState::Normal,
        applied: 0,
        hash: None,
        load_bytes: 0,
        free_bytes: 0,
        serves_clients: true,
    }
}

fn start(seed: u64) -> (Nodes, Opinions) {
    let opinions = Opinions::default();
    let of_nodes = Rc::clone(&opinions);
    let mut setup = Setup::new(NODES, SHARDS);
    setup.serves_pings = false;
    let nodes = Nodes::start(World::new(seed), &setup, move |network, node, info| {
        let opinions = Rc::clone(&of_nodes);
        async move {
            let liveness = Liveness::start(&network, facts);
            loop {
                for other in (1..=NODES as NodeNumber).filter(|other| *other != node) {
                    let said = (liveness.is_up(other), liveness.shard_is_stalled(other, 1));
                    opinions.borrow_mut().insert((node, info.id, other), said);
                }
                reactor::sleep(Duration::from_millis(50)).await;
            }
        }
    });
    (nodes, opinions)
}

fn seconds(nodes: &mut Nodes, seconds: u64) {
    nodes.world.run_for(Duration::from_secs(seconds)).expect("a world that goes on");
}

/// Whether every shard of `node` takes `other` for up.
fn check_up(opinions: &Opinions, node: NodeNumber, other: NodeNumber, is_up: bool, when: &str) {
    for shard in 0..SHARDS {
        let said = opinions.borrow().get(&(node, shard, other)).copied();
        assert_eq!(said.map(|said| said.0), Some(is_up), "{node}.{shard} of {other}, {when}");
    }
}

fn check_all_up(opinions: &Opinions, when: &str) {
    for (node, other) in [(1, 2), (1, 3), (2, 1), (2, 3), (3, 1), (3, 2)] {
        check_up(opinions, node, other, true, when);
    }
}

#[test]
fn healthy_nodes_are_up_and_stay_up() {
    for seed in 0..10 {
        let (mut nodes, opinions) = start(seed);
        seconds(&mut nodes, 2);
        for _ in 0..30 {
            seconds(&mut nodes, 1);
            check_all_up(&opinions, "without a fault");
        }
    }
}

#[test]
fn a_parted_node_is_down_within_three_seconds_also_if_one_way_is_cut_and_up_after() {
    for seed in 0..10 {
        for one_way in [false, true] {
            let (mut nodes, opinions) = start(seed);
            seconds(&mut nodes, 3);
            let [first, second] = [nodes.ids[0], nodes.ids[1]];
            nodes.world.part_one_way(first, second);
            if !one_way {
                nodes.world.part_one_way(second, first);
            }
            seconds(&mut nodes, 3);
            for _ in 0..10 {
                seconds(&mut nodes, 1);
                check_up(&opinions, 1, 2, false, "parted");
                check_up(&opinions, 2, 1, false, "parted");
                check_up(&opinions, 3, 1, true, "not parted");
                check_up(&opinions, 1, 3, true, "not parted");
            }
            nodes.world.heal(first, second);
            seconds(&mut nodes, 4);
            check_all_up(&opinions, "healed");
        }
    }
}

#[test]
fn a_crashed_node_is_down_at_once_and_up_after_its_restart() {
    for seed in 0..10 {
        let (mut nodes, opinions) = start(seed);
        seconds(&mut nodes, 3);
        let crashed = nodes.ids[2];
        nodes.world.crash(crashed);
        // The connection breaks and nobody listens: no silence has to be waited for.
        seconds(&mut nodes, 1);
        check_up(&opinions, 1, 3, false, "crashed");
        check_up(&opinions, 2, 3, false, "crashed");
        nodes.world.restart(crashed);
        seconds(&mut nodes, 3);
        check_all_up(&opinions, "restarted");
    }
}

#[test]
fn a_shard_that_stands_still_is_stalled_and_its_node_is_up() {
    for seed in 0..10 {
        let (mut nodes, opinions) = start(seed);
        seconds(&mut nodes, 3);
        let stalled = nodes.ids[1];
        nodes.world.pause_shard(stalled, 1, Duration::from_secs(5));
        seconds(&mut nodes, 3);
        let said = |node, shard| opinions.borrow()[&(node, shard, 2)];
        for (node, shard) in [(1, 0), (1, 1), (3, 0), (3, 1)] {
            assert_eq!(said(node, shard), (true, true), "{node}.{shard}, seed {seed}");
        }
        seconds(&mut nodes, 5);
        for (node, shard) in [(1, 0), (1, 1), (3, 0), (3, 1)] {
            assert_eq!(said(node, shard), (true, false), "{node}.{shard}, seed {seed}");
        }
    }
}
