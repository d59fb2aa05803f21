//! The next step of each tablet towards the replicas that its keyspace asks for.
//!
//! The goal is where the tablet would be placed if it were new (`placement`). Replicas that are there already
//! stay, also where the goal has others: a node more moves no data by itself, it only takes what is missing.
//! In each data center that has a factor (with `SimpleStrategy`, in all together) a tablet gets as many
//! replicas as the factor says, or as there are nodes. Replicas come before others go. Invariant: a pure
//! function; no step takes the last replica.

use std::collections::{BTreeMap, BTreeSet};

use model::tablet::{NodeNumber, TabletId};

use super::map::{Placed, ReplicaMap, Step, TabletStep};
use super::placement::Ring;
use crate::nodes::{NodeRecord, NodeState};

/// The work on the tablets of one table.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Next {
    /// Steps that can begin now.
    pub(crate) steps: Vec<(u32, TabletStep)>,
    /// Tablets that need a step which cannot begin, because a node is down.
    pub(crate) waiting: usize,
}

/// Nodes among which the replicas of a tablet are counted, and how many it should have there.
struct Universe {
    nodes: BTreeSet<NodeNumber>,
    wanted: usize,
}

/// The next steps of a table of a keyspace with this `replication`, on these nodes, of which some are up.
/// Tablets in transition have none.
pub(crate) fn next(
    replication: &BTreeMap<String, String>,
    map: &ReplicaMap,
    nodes: &[NodeRecord],
    is_up: impl Fn(NodeNumber) -> bool,
) -> Next {
    let normal: Vec<NodeRecord> =
        nodes.iter().filter(|node| node.state == NodeState::Normal).cloned().collect();
    let ring = Ring::new(replication, &normal);
    let universes = universes(&ring, nodes, &normal);
    let data_centers: BTreeMap<NodeNumber, &str> =
        nodes.iter().map(|node| (node.number, node.data_center.as_str())).collect();
    let data_center_of = |node| data_centers.get(&node).copied();
    let mut loads = Loads::of(map);
    let mut next = Next::default();
    for tablet in map.tablets().tablets().filter(|tablet| map.moving(*tablet).is_none()) {
        let goal = ring.replicas(map.tablets().range(tablet).1);
        let goal: Vec<NodeNumber> = goal.into_iter().map(|at| normal[at].number).collect();
        // Without a goal the keyspace's factors name none of the nodes: what is there stays.
        if goal.is_empty() {
            continue;
        }
        let replicas = map.replicas(tablet);
        let has_sources = |moving: NodeNumber, step| {
            let whole: Vec<_> =
                replicas.iter().map(|placed| placed.node).filter(|node| *node != moving).collect();
            has_sources(&whole, step, data_center_of, &is_up)
        };
        match step_of(&universes, replicas, &goal, &is_up) {
            Wanted::Nothing => {}
            Wanted::Leave(node) if has_sources(node, Step::Leaving) => {
                next.steps.push((tablet.0, TabletStep::Leave(node)));
            }
            Wanted::Waits | Wanted::Leave(_) => next.waiting += 1,
            Wanted::Join(node) if !has_sources(node, Step::Joining) => next.waiting += 1,
            Wanted::Join(node) => {
                let shards = nodes.iter().find(|known| known.number == node).map_or(1, |node| node.shards);
                next.steps.push((tablet.0, TabletStep::Join(node, loads.take(node, shards))));
            }
        }
    }
    next
}

/// Whether the whole replicas of a tablet that are there have, together, all that was acknowledged: less than
/// a quorum is missing, of all and in each data center. When one leaves, all that stay have to be there.
pub(crate) fn has_sources<'n>(
    whole: &[NodeNumber],
    step: Step,
    data_center_of: impl Fn(NodeNumber) -> Option<&'n str>,
    is_there: impl Fn(NodeNumber) -> bool,
) -> bool {
    let missing: Vec<NodeNumber> = whole.iter().copied().filter(|node| !is_there(*node)).collect();
    if step == Step::Leaving {
        return missing.is_empty();
    }
    let are_few = |all: usize, missing: usize| missing <= all / 2;
    let in_its = |of: &[NodeNumber], node: NodeNumber| {
        of.iter().filter(|other| data_center_of(**other) == data_center_of(node)).count()
    };
    are_few(whole.len(), missing.len())
        && missing.iter().all(|node| are_few(in_its(whole, *node), in_its(&missing, *node)))
}

/// The need of one tablet.
enum Wanted {
    Nothing,
    /// A node that is down.
    Waits,
    Join(NodeNumber),
    Leave(NodeNumber),
}

fn step_of(
    universes: &[Universe],
    replicas: &[Placed],
    goal: &[NodeNumber],
    is_up: &impl Fn(NodeNumber) -> bool,
) -> Wanted {
    let has = |node: NodeNumber| replicas.iter().any(|placed| placed.node == node);
    let mut waits = false;
    for universe in universes {
        let there = replicas.iter().filter(|placed| universe.nodes.contains(&placed.node)).count();
        if there < universe.wanted {
            let missing = |node: &&NodeNumber| universe.nodes.contains(node) && !has(**node);
            match goal.iter().filter(missing).find(|node| is_up(**node)) {
                Some(node) => return Wanted::Join(*node),
                None => waits = true,
            }
        }
    }
    if waits {
        return Wanted::Waits;
    }
    for universe in universes {
        let there = replicas.iter().filter(|placed| universe.nodes.contains(&placed.node));
        let there: Vec<NodeNumber> = there.map(|placed| placed.node).collect();
        if there.len() > universe.wanted && replicas.len() > 1 {
            let surplus = there.iter().rev().filter(|node| !goal.contains(node));
            match surplus.copied().find(|node| is_up(*node)) {
                Some(node) => return Wanted::Leave(node),
                None => waits = true,
            }
        }
    }
    if waits { Wanted::Waits } else { Wanted::Nothing }
}

fn universes(ring: &Ring<'_>, nodes: &[NodeRecord], normal: &[NodeRecord]) -> Vec<Universe> {
    let of = |data_center: Option<&str>, factor: usize| {
        let is_in = |node: &&NodeRecord| {
            node.state != NodeState::Left && data_center.is_none_or(|name| node.data_center == name)
        };
        let in_it: BTreeSet<NodeNumber> = nodes.iter().filter(is_in).map(|node| node.number).collect();
        let may_have = normal.iter().filter(|node| in_it.contains(&node.number)).count();
        Universe { nodes: in_it, wanted: factor.min(may_have) }
    };
    let Some(factors) = ring.factors() else {
        return vec![of(None, ring.factor_of_all())];
    };
    let names: BTreeSet<&str> = nodes.iter().map(|node| node.data_center.as_str()).collect();
    names.into_iter().map(|name| of(Some(name), factors.get(name).copied().unwrap_or(0))).collect()
}

/// How many replicas of a table each shard has.
struct Loads(BTreeMap<(NodeNumber, u16), usize>);

impl Loads {
    fn of(map: &ReplicaMap) -> Self {
        let mut loads = BTreeMap::new();
        for placed in map.tablets().tablets().flat_map(|tablet: TabletId| map.replicas(tablet)) {
            *loads.entry((placed.node, placed.shard)).or_default() += 1;
        }
        Self(loads)
    }

    /// The shard of a node that has the fewest, which gets one more.
    fn take(&mut self, node: NodeNumber, shards: u16) -> u16 {
        let load = |shard: &u16| self.0.get(&(node, *shard)).copied().unwrap_or(0);
        let shard = (0..shards).min_by_key(load).unwrap_or(0);
        *self.0.entry((node, shard)).or_default() += 1;
        shard
    }
}

#[cfg(test)]
mod tests {
    use super::super::map::MapParts;
    use super::super::ring::tokens_of_next;
    use super::*;

    fn nodes(data_centers: &[&str]) -> Vec<NodeRecord> {
        let mut taken = Vec::new();
        let record = |(at, data_center): (usize, &&str)| {
            let tokens = tokens_of_next(&taken);
            taken.extend(tokens.iter().copied());
            NodeRecord {
                number: at as NodeNumber + 1,
                state: NodeState::Normal,
                tokens,
                shards: 2,
                data_center: (*data_center).to_owned(),
                rack: format!("r{at}"),
                ..NodeRecord::default()
            }
        };
        data_centers.iter().enumerate().map(record).collect()
    }

    fn map(replicas: &[NodeNumber]) -> ReplicaMap {
        let placed = replicas.iter().map(|node| Placed { node: *node, ..Placed::default() }).collect();
        let parts = MapParts { version: 1, log2: 3, tablets: vec![placed; 8], ..MapParts::default() };
        ReplicaMap::of_parts(&parts).unwrap()
    }

    fn simple(factor: &str) -> BTreeMap<String, String> {
        [("class", "SimpleStrategy"), ("replication_factor", factor)]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
    }

    /// Takes all steps until there are none; the number of replicas on each node.
    fn walk(
        replication: &BTreeMap<String, String>,
        map: &mut ReplicaMap,
        nodes: &[NodeRecord],
    ) -> Vec<usize> {
        for round in 0..20 {
            let next = next(replication, map, nodes, |_| true);
            assert_eq!(next.waiting, 0, "all nodes are up");
            if next.steps.is_empty() {
                let of = |node: &NodeRecord| {
                    let tablets = map.tablets().tablets();
                    tablets.filter(|t| map.replicas(*t).iter().any(|p| p.node == node.number)).count()
                };
                return nodes.iter().map(of).collect();
            }
            let version = map.version();
            map.take_steps(&next.steps, version + 1).unwrap();
            let complete: Vec<_> = next.steps.iter().map(|(at, _)| (*at, TabletStep::Complete)).collect();
            map.take_steps(&complete, version + 2).unwrap();
            assert!(round < 19, "the replicas never settle");
        }
        unreachable!("the loop returns or fails")
    }

    #[test]
    fn replicas_come_and_go_until_the_factor_is_met() {
        let nodes = nodes(&["a", "a", "a"]);
        let mut map = map(&[1]);
        assert_eq!(walk(&simple("3"), &mut map, &nodes), [8, 8, 8]);
        let of_second = |tablet| map.replicas(tablet).iter().find(|placed| placed.node == 2).unwrap().shard;
        let shards: Vec<u16> = map.tablets().tablets().map(of_second).collect();
        assert_eq!(shards.iter().filter(|shard| **shard == 1).count(), 4, "of its two shards: {shards:?}");
        let of_two = walk(&simple("2"), &mut map, &nodes);
        assert_eq!(of_two.iter().sum::<usize>(), 16, "{of_two:?}");
        assert!(of_two.iter().all(|count| *count > 0), "they are spread as new ones would be: {of_two:?}");
        assert_eq!(walk(&simple("9"), &mut map, &nodes), [8, 8, 8], "as many as there are nodes");
        assert_eq!(walk(&simple("1"), &mut map, &nodes).iter().sum::<usize>(), 8);
    }

    #[test]
    fn each_data_center_has_its_own_factor() {
        let nodes = nodes(&["a", "a", "b", "b"]);
        let factors = |a: &str, b: &str| -> BTreeMap<String, String> {
            let options = [("class", "NetworkTopologyStrategy"), ("a", a), ("b", b)];
            options.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
        };
        let mut map = map(&[1]);
        assert_eq!(walk(&factors("1", "2"), &mut map, &nodes), [8, 0, 8, 8]);
        assert_eq!(walk(&factors("0", "1"), &mut map, &nodes)[..2], [0, 0], "a data center is left");
        // A data center without nodes is no goal.
        let elsewhere = [("class", "NetworkTopologyStrategy"), ("z", "3")];
        let elsewhere = elsewhere.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let before = map.clone();
        walk(&elsewhere, &mut map, &nodes);
        assert_eq!(map, before);
    }

    #[test]
    fn a_step_waits_for_nodes_that_are_down_and_for_the_one_before_it() {
        let nodes = nodes(&["a", "a", "a"]);
        let up_are = |up: &'static [NodeNumber]| move |node: NodeNumber| up.contains(&node);
        assert_eq!(
            next(&simple("3"), &map(&[1, 2]), &nodes, up_are(&[1, 2])),
            Next { waiting: 8, ..Next::default() }
        );
        assert_eq!(next(&simple("2"), &map(&[1, 2]), &nodes, up_are(&[1])), Next::default());
        let mut moving = map(&[1]);
        let begun = next(&simple("3"), &moving, &nodes, up_are(&[1, 2, 3])).steps;
        assert_eq!(begun.len(), 8);
        moving.take_steps(&begun, 2).unwrap();
        assert_eq!(next(&simple("3"), &moving, &nodes, up_are(&[1, 2, 3])), Next::default());
        assert_eq!(moving.in_transition().count(), 8);
    }

    #[test]
    fn a_step_waits_for_those_that_it_copies_from() {
        let nodes = nodes(&["a", "a", "a", "b", "b"]);
        let steps = |factor: &str, replicas: &[NodeNumber], down: NodeNumber| {
            let next = next(&simple(factor), &map(replicas), &nodes, |node| node != down);
            (next.steps.len(), next.waiting)
        };
        assert_eq!(steps("2", &[3], 3), (0, 8), "the only replica");
        assert_eq!(steps("3", &[1, 2], 2).0, 8, "either of two has all that a quorum of both has");
        assert_eq!(steps("5", &[1, 2, 3, 4], 4), (0, 8), "the only one of its data center");
        assert_eq!(steps("4", &[1, 2, 3], 3).0, 8, "one of three");
        assert_eq!(steps("1", &[1, 2, 3], 1).0 + steps("1", &[1, 2, 3], 1).1, 8);
        let leaves = next(&simple("2"), &map(&[1, 2, 3]), &nodes, |node| node != 1).steps;
        assert!(leaves.iter().all(|(_, step)| *step == TabletStep::Leave(1)), "{leaves:?}");
    }
}
