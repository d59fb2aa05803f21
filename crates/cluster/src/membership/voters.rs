//! The nodes that vote in group 0: an odd number, five at most, spread over data centers and racks.
//!
//! All other nodes are learners. A pure function of the nodes, the voters there are and the nodes that have
//! been dead for long; the leader drives the members of the group towards it. Invariant: without a change of
//! its arguments the choice stays as it is.

use std::collections::BTreeMap;

use crate::NodeNumber;
use crate::consensus::{MemberChange, Members};
use crate::nodes::{NodeRecord, NodeState};
use crate::view::Nodes;

/// Most voters.
pub const VOTERS_MAX: usize = 5;

/// The nodes that should vote, ascending; none if no node can.
///
/// `is_dead` holds for nodes that have been down for so long that another should vote in their place.
pub fn choose(nodes: &Nodes, voters: &[NodeNumber], is_dead: impl Fn(NodeNumber) -> bool) -> Vec<NodeNumber> {
    let can_vote = |node: &&NodeRecord| node.state == NodeState::Normal;
    let mut left: Vec<&NodeRecord> = nodes.values().filter(can_vote).collect();
    let count = match left.len().min(VOTERS_MAX) {
        0 => 0,
        even if even % 2 == 0 => even - 1,
        odd => odd,
    };
    let mut of_center: BTreeMap<&str, usize> = BTreeMap::new();
    let mut of_rack: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut chosen = Vec::with_capacity(count);
    while chosen.len() < count {
        let rank = |node: &NodeRecord| {
            let (center, rack) = (node.data_center.as_str(), node.rack.as_str());
            let in_center = of_center.get(center).copied().unwrap_or(0);
            let in_rack = of_rack.get(&(center, rack)).copied().unwrap_or(0);
            (is_dead(node.number), in_center, in_rack, !voters.contains(&node.number), node.number)
        };
        let next = left.iter().enumerate().min_by_key(|(_, node)| rank(node));
        let (at, _) = next.expect("there are as many nodes as voters");
        let node = left.swap_remove(at);
        *of_center.entry(&node.data_center).or_default() += 1;
        *of_rack.entry((&node.data_center, &node.rack)).or_default() += 1;
        chosen.push(node.number);
    }
    chosen.sort_unstable();
    chosen
}

/// The changes that lead from the members there are to `voters`, with all other nodes but those that left as
/// learners; empty if there is nothing to change. Nothing changes before joint consensus has ended, and
/// nothing ever leaves the group without a voter.
pub fn changes(members: &Members, voters: &[NodeNumber], nodes: &Nodes) -> Vec<MemberChange> {
    if !members.voters_outgoing.is_empty() || voters.is_empty() {
        return Vec::new();
    }
    let is_member = |node| members.voters.contains(node) || members.learners.contains(node);
    let has_left = |node| nodes.get(node).is_none_or(|node| node.state == NodeState::Left);
    let mut changes = Vec::new();
    changes
        .extend(voters.iter().filter(|node| !members.voters.contains(node)).map(|n| MemberChange::Voter(*n)));
    let demoted = members.voters.iter().filter(|node| !voters.contains(node) && !has_left(node));
    changes.extend(demoted.map(|node| MemberChange::Learner(*node)));
    let new = nodes.keys().filter(|node| !is_member(node) && !voters.contains(node) && !has_left(node));
    changes.extend(new.map(|node| MemberChange::Learner(*node)));
    let gone = members.voters.iter().chain(&members.learners).filter(|node| has_left(node));
    changes.extend(gone.map(|node| MemberChange::Remove(*node)));
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes of data centers and racks, numbered from 1, as `a1` for data center a, rack 1.
    fn nodes(places: &[&str]) -> Nodes {
        let record = |(at, place): (usize, &&str)| {
            let number = at as NodeNumber + 1;
            let (data_center, rack) = (place[..1].to_owned(), place[1..].to_owned());
            (number, NodeRecord { number, data_center, rack, ..NodeRecord::default() })
        };
        places.iter().enumerate().map(record).collect()
    }

    fn check(places: &[&str], voters: &[NodeNumber], dead: &[NodeNumber], expected: &[NodeNumber]) {
        let nodes = nodes(places);
        let chosen = choose(&nodes, voters, |node| dead.contains(&node));
        assert_eq!(chosen, expected, "{places:?} {voters:?} {dead:?}");
        assert_eq!(choose(&nodes, &chosen, |node| dead.contains(&node)), chosen, "it stays");
    }

    #[test]
    fn voters_are_odd_and_spread() {
        check(&["a1"], &[1], &[], &[1]);
        check(&["a1", "a1"], &[1], &[], &[1]);
        check(&["a1", "a1", "a1"], &[1], &[], &[1, 2, 3]);
        check(&["a1", "a1", "a1", "a1"], &[1, 2, 3], &[], &[1, 2, 3]);
        check(&["a1"; 9], &[1, 2, 3], &[], &[1, 2, 3, 4, 5]);
        check(&["a1", "a1", "a2", "a2", "a3", "a3"], &[], &[], &[1, 2, 3, 4, 5]);
        check(&["a1", "a1", "a1", "a2"], &[1, 2, 3], &[], &[1, 2, 4]);
        check(&["a1", "a1", "a1", "b1", "b1", "c1", "c1"], &[], &[], &[1, 2, 4, 5, 6]);
        check(&[], &[], &[], &[]);
    }

    #[test]
    fn a_dead_voter_is_swapped_where_there_is_another() {
        check(&["a1"; 4], &[1, 2, 3], &[3], &[1, 2, 4]);
        check(&["a1"; 3], &[1, 2, 3], &[3], &[1, 2, 3]);
        check(&["a1"; 5], &[1, 2, 3, 4, 5], &[2, 4], &[1, 2, 3, 4, 5]);
    }

    #[test]
    fn members_are_led_to_the_choice_step_by_step() {
        let mut nodes = nodes(&["a1"; 5]);
        nodes.get_mut(&5).unwrap().state = NodeState::Left;
        nodes.get_mut(&4).unwrap().state = NodeState::Joining;
        let voters = choose(&nodes, &[1, 5], |_| false);
        assert_eq!(voters, [1, 2, 3]);
        let members = Members { voters: vec![1, 5], learners: vec![2], ..Members::default() };
        let expected = [
            MemberChange::Voter(2),
            MemberChange::Voter(3),
            MemberChange::Learner(4),
            MemberChange::Remove(5),
        ];
        assert_eq!(changes(&members, &voters, &nodes), expected);
        let there = Members { voters: vec![1, 2, 3], learners: vec![4], ..Members::default() };
        assert_eq!(changes(&there, &voters, &nodes), []);
        let joint = Members { voters_outgoing: vec![1, 5], ..members };
        assert_eq!(changes(&joint, &voters, &nodes), []);
        assert_eq!(changes(&there, &[], &nodes), []);
    }
}
