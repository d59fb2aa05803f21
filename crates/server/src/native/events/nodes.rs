//! Decides which news of other nodes clients hear, from the list of nodes and from which of them serve
//! clients. Pure.
//!
//! Invariant: the events of one node alternate (UP and DOWN) and begin with NEW_NODE, unless the node was
//! there before this one served. A node that has joined is new to clients once its port is open, because a
//! driver connects as soon as it hears of it; Cassandra delays the event in the same way.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use cluster::nodes::{NodeRecord, NodeState};
use cluster::{NodeNumber, Nodes};

/// News of the node that clients reach at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeEvent {
    New(SocketAddr),
    Removed(SocketAddr),
    Up(SocketAddr),
    Down(SocketAddr),
}

/// What clients know of a node.
#[derive(Debug, Clone, Copy)]
struct Known {
    native: SocketAddr,
    is_up: bool,
}

/// What clients know of the other nodes.
#[derive(Debug)]
pub(super) struct Shown(BTreeMap<NodeNumber, Known>);

/// Nodes that clients may know, which is what `system.peers` shows.
fn others(nodes: &Nodes, own: [u8; 16]) -> impl Iterator<Item = &NodeRecord> {
    let is_member = |node: &&NodeRecord| matches!(node.state, NodeState::Normal | NodeState::Draining);
    nodes.values().filter(is_member).filter(move |node| node.host_id != own)
}

impl Shown {
    /// Before any event: clients read these nodes from the tables. `own` is this node's host id.
    pub(super) fn at_start(nodes: &Nodes, own: [u8; 16], serves: impl Fn(NodeNumber) -> bool) -> Self {
        let known =
            |node: &NodeRecord| (node.number, Known { native: node.native, is_up: serves(node.number) });
        Self(others(nodes, own).map(known).collect())
    }

    /// The events that bring clients up to date.
    pub(super) fn news(
        &mut self,
        nodes: &Nodes,
        own: [u8; 16],
        serves: impl Fn(NodeNumber) -> bool,
    ) -> Vec<NodeEvent> {
        let mut news = Vec::new();
        let is_there = |number: &NodeNumber, known: &Known| {
            others(nodes, own).any(|node| node.number == *number && node.native == known.native)
        };
        // A node that clients reach elsewhere now is another one to them.
        self.0.retain(|number, known| {
            let stays = is_there(number, known);
            if !stays {
                news.extend(known.is_up.then_some(NodeEvent::Down(known.native)));
                news.push(NodeEvent::Removed(known.native));
            }
            stays
        });
        for node in others(nodes, own) {
            let (native, is_up) = (node.native, serves(node.number));
            if is_up && !self.0.contains_key(&node.number) {
                news.push(NodeEvent::New(native));
                self.0.insert(node.number, Known { native, is_up: false });
            }
            if let Some(known) = self.0.get_mut(&node.number).filter(|known| known.is_up != is_up) {
                known.is_up = is_up;
                news.push(if is_up { NodeEvent::Up(native) } else { NodeEvent::Down(native) });
            }
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use NodeEvent::{Down, New, Removed, Up};

    const OWN: [u8; 16] = [1; 16];

    fn at(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 9042))
    }

    /// Nodes by number, the last byte of their address and their state; number 1 is this node.
    fn nodes(all: &[(NodeNumber, u8, NodeState)]) -> Nodes {
        let record = |&(number, last, state): &(NodeNumber, u8, NodeState)| {
            let host_id = [number as u8; 16];
            (number, NodeRecord { number, host_id, native: at(last), state, ..NodeRecord::default() })
        };
        all.iter().map(record).collect()
    }

    fn check(shown: &mut Shown, all: &Nodes, serving: &[NodeNumber], expected: &[NodeEvent]) {
        assert_eq!(shown.news(all, OWN, |node| serving.contains(&node)), expected);
        assert_eq!(shown.news(all, OWN, |node| serving.contains(&node)), [], "once");
    }

    #[test]
    fn nodes_of_the_start_are_up_and_down_and_never_new() {
        let all = nodes(&[(1, 1, NodeState::Normal), (2, 2, NodeState::Normal), (3, 3, NodeState::Normal)]);
        let mut shown = Shown::at_start(&all, OWN, |node| node == 3);
        check(&mut shown, &all, &[1, 3], &[]);
        check(&mut shown, &all, &[1, 2, 3], &[Up(at(2))]);
        check(&mut shown, &all, &[1, 3], &[Down(at(2))]);
        check(&mut shown, &all, &[1, 2], &[Up(at(2)), Down(at(3))]);
    }

    #[test]
    fn a_node_that_joined_is_new_once_it_serves_and_removed_once_it_left() {
        let mut shown = Shown::at_start(&nodes(&[(1, 1, NodeState::Normal)]), OWN, |_| false);
        check(&mut shown, &nodes(&[(1, 1, NodeState::Normal), (2, 2, NodeState::Joining)]), &[2], &[]);
        let joined = nodes(&[(1, 1, NodeState::Normal), (2, 2, NodeState::Normal)]);
        check(&mut shown, &joined, &[], &[]);
        check(&mut shown, &joined, &[2], &[New(at(2)), Up(at(2))]);
        let leaving = nodes(&[(1, 1, NodeState::Normal), (2, 2, NodeState::Draining)]);
        check(&mut shown, &leaving, &[2], &[]);
        let left = nodes(&[(1, 1, NodeState::Normal), (2, 2, NodeState::Left)]);
        check(&mut shown, &left, &[2], &[Down(at(2)), Removed(at(2))]);
    }

    #[test]
    fn a_node_that_moved_to_another_address_is_another_one() {
        let before = nodes(&[(1, 1, NodeState::Normal), (2, 2, NodeState::Normal)]);
        let mut shown = Shown::at_start(&before, OWN, |_| false);
        check(&mut shown, &before, &[2], &[Up(at(2))]);
        let after = nodes(&[(1, 1, NodeState::Normal), (2, 9, NodeState::Normal)]);
        check(&mut shown, &after, &[2], &[Down(at(2)), Removed(at(2)), New(at(9)), Up(at(9))]);
    }
}
