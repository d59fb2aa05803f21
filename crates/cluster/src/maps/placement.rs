//! The replicas of a new table's tablets: the walk around the ring that Cassandra's strategies make.
//!
//! `SimpleStrategy` takes the next nodes on the ring. `NetworkTopologyStrategy` takes for each data center
//! the next of its nodes; a rack gets a second replica only where there are fewer racks than replicas
//! (`calculateNaturalReplicas` of both in Cassandra 5). A tablet is placed by its last token. Where there are
//! fewer nodes than the factor says, a tablet has as many replicas as there are nodes. Invariant: a pure
//! function, the same for equal arguments; each tablet has a replica.

use std::collections::{BTreeMap, BTreeSet};

use model::Token;
use model::tablet::{NodeNumber, Replica, TabletMap};

use super::map::{REPLICAS_MAX, shard_of};
use crate::nodes::NodeRecord;

/// The rule by which a keyspace's tablets are placed.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Strategy {
    /// So many replicas, wherever.
    Simple(usize),
    /// So many in each data center.
    DataCenters(BTreeMap<String, usize>),
}

/// Whether every node keeps the tables of a keyspace with this replication for itself.
pub fn is_local(replication: &BTreeMap<String, String>) -> bool {
    class(replication) == "LocalStrategy"
}

fn class(replication: &BTreeMap<String, String>) -> &str {
    replication.get("class").map_or("", |class| class.rsplit('.').next().unwrap_or(class))
}

impl Strategy {
    /// Reads a keyspace's `replication`; options were validated where they were set.
    fn of(replication: &BTreeMap<String, String>) -> Self {
        let factor = |text: &String| {
            let factor: usize =
                text.split('/').next().and_then(|number| number.trim().parse().ok()).unwrap_or(0);
            factor.min(REPLICAS_MAX)
        };
        match class(replication) {
            "NetworkTopologyStrategy" => {
                let factors = replication.iter().filter(|(name, _)| *name != "class");
                Self::DataCenters(factors.map(|(name, text)| (name.clone(), factor(text))).collect())
            }
            "SimpleStrategy" => Self::Simple(replication.get("replication_factor").map_or(1, factor)),
            _ => Self::Simple(1),
        }
    }
}

/// The replicas of each tablet of a new table in a keyspace with this `replication`.
///
/// A node's tablets are spread over its shards in runs of neighbours.
///
/// # Panics
/// Without any node that has a token.
pub fn place(
    replication: &BTreeMap<String, String>,
    tablets: TabletMap,
    nodes: &[NodeRecord],
) -> Vec<Vec<Replica>> {
    let ring = Ring::new(replication, nodes);
    assert!(!ring.tokens.is_empty(), "a table is placed on nodes that have tokens");
    let of_tablets: Vec<Vec<usize>> = tablets
        .tablets()
        .map(|tablet| {
            let found = ring.replicas(tablets.range(tablet).1);
            // Files belong to somebody, also where the keyspace's factors name none of the nodes.
            if found.is_empty() { ring.walk(tablets.range(tablet).1).take(1).collect() } else { found }
        })
        .collect();
    on_shards(&of_tablets, nodes)
}

/// A range of the ring and the nodes that a driver which knows no tablets takes for its replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingRange {
    /// The token before its first; of the first range the last one of the ring.
    pub start: Token,
    /// Its last token.
    pub end: Token,
    /// The node whose token ends it.
    pub owner: NodeNumber,
    /// The nodes, the owner first where its data center has replicas.
    pub replicas: Vec<NodeNumber>,
}

/// The ranges between the nodes' tokens, in order, with their replicas by `replication`.
pub fn ring_ranges(replication: &BTreeMap<String, String>, nodes: &[NodeRecord]) -> Vec<RingRange> {
    let ring = Ring::new(replication, nodes);
    let number = |at: usize| nodes[at].number;
    let before = ring.tokens.last().into_iter().chain(&ring.tokens);
    let ranges = before.zip(&ring.tokens).map(|((start, _), (end, at))| RingRange {
        start: Token(*start),
        end: Token(*end),
        owner: number(*at),
        replicas: ring.replicas(Token(*end)).into_iter().map(number).collect(),
    });
    ranges.collect()
}

/// The ring of some nodes, walked for a keyspace.
pub(super) struct Ring<'n> {
    strategy: Strategy,
    nodes: &'n [NodeRecord],
    /// Tokens in order, each with the place of its node.
    tokens: Vec<(i64, usize)>,
}

impl<'n> Ring<'n> {
    pub(super) fn new(replication: &BTreeMap<String, String>, nodes: &'n [NodeRecord]) -> Self {
        let mut tokens: Vec<(i64, usize)> = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            tokens.extend(node.tokens.iter().map(|token| (*token, at)));
        }
        tokens.sort_unstable();
        Self { strategy: Strategy::of(replication), nodes, tokens }
    }

    /// The nodes around the ring from a token on, once for each of their tokens.
    fn walk(&self, Token(from): Token) -> impl Iterator<Item = usize> + Clone {
        let begin = self.tokens.partition_point(|(token, _)| *token < from);
        self.tokens[begin..].iter().chain(&self.tokens[..begin]).map(|(_, at)| *at)
    }

    /// The factor of each data center; `None` if the strategy ignores data centers.
    pub(super) fn factors(&self) -> Option<&BTreeMap<String, usize>> {
        match &self.strategy {
            Strategy::DataCenters(factors) => Some(factors),
            Strategy::Simple(_) => None,
        }
    }

    /// Replicas over all data centers.
    pub(super) fn factor_of_all(&self) -> usize {
        match &self.strategy {
            Strategy::DataCenters(factors) => factors.values().sum(),
            Strategy::Simple(factor) => *factor,
        }
    }

    /// The replicas of what ends with a token, as places among the nodes.
    pub(super) fn replicas(&self, last: Token) -> Vec<usize> {
        match &self.strategy {
            Strategy::Simple(factor) => simple(self.walk(last), *factor),
            Strategy::DataCenters(factors) => by_data_center(self.walk(last), factors, self.nodes),
        }
    }
}

fn simple(walk: impl Iterator<Item = usize>, factor: usize) -> Vec<usize> {
    let mut found = Vec::new();
    for node in walk {
        if found.len() >= factor {
            break;
        }
        if !found.contains(&node) {
            found.push(node);
        }
    }
    found
}

/// The search in one data center.
struct DataCenter<'a> {
    /// Replicas it still needs.
    left: usize,
    /// How many replicas may be in racks that have one already: as many as there are too few racks.
    repeats: usize,
    /// Racks that have a replica.
    racks: BTreeSet<&'a str>,
}

fn by_data_center(
    walk: impl Iterator<Item = usize>,
    factors: &BTreeMap<String, usize>,
    nodes: &[NodeRecord],
) -> Vec<usize> {
    let search = |(name, factor): (&'_ String, &usize)| {
        let of: Vec<_> = nodes.iter().filter(|node| node.data_center == *name).collect();
        let racks: BTreeSet<&str> = of.iter().map(|node| node.rack.as_str()).collect();
        let repeats = factor.saturating_sub(racks.len());
        DataCenter { left: (*factor).min(of.len()), repeats, racks: BTreeSet::new() }
    };
    let mut centers: BTreeMap<&str, DataCenter<'_>> =
        factors.iter().map(|factor| (factor.0.as_str(), search(factor))).collect();
    let mut found = Vec::new();
    for at in walk {
        let node = &nodes[at];
        let Some(center) = centers.get_mut(node.data_center.as_str()) else { continue };
        if center.left == 0 || found.contains(&at) {
            continue;
        }
        if !center.racks.insert(&node.rack) {
            if center.repeats == 0 {
                continue;
            }
            center.repeats -= 1;
        }
        center.left -= 1;
        found.push(at);
    }
    found
}

/// Chooses the shards: each node's tablets in runs of neighbours.
fn on_shards(of_tablets: &[Vec<usize>], nodes: &[NodeRecord]) -> Vec<Vec<Replica>> {
    let mut counts = vec![0usize; nodes.len()];
    of_tablets.iter().flatten().for_each(|node| counts[*node] += 1);
    let mut given = vec![0usize; nodes.len()];
    let mut placed = Vec::with_capacity(of_tablets.len());
    for replicas in of_tablets {
        let mut of_one = Vec::with_capacity(replicas.len());
        for at in replicas {
            let shard = shard_of(given[*at], counts[*at], nodes[*at].shards);
            given[*at] += 1;
            of_one.push(Replica { node: nodes[*at].number, shard });
        }
        placed.push(of_one);
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::ring::tokens_of_next;

    /// Nodes of the given data centers and racks, numbered from 1, with the tokens they get one by one.
    fn nodes(places: &[(&str, &str)], shards: u16) -> Vec<NodeRecord> {
        let mut all: Vec<NodeRecord> = Vec::new();
        for (at, (data_center, rack)) in places.iter().enumerate() {
            let taken: Vec<i64> = all.iter().flat_map(|node| node.tokens.clone()).collect();
            all.push(NodeRecord {
                number: at as u16 + 1,
                data_center: (*data_center).to_owned(),
                rack: (*rack).to_owned(),
                shards,
                tokens: tokens_of_next(&taken),
                ..NodeRecord::default()
            });
        }
        all
    }

    fn replication(options: &[(&str, &str)]) -> BTreeMap<String, String> {
        options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn simple(factor: &str) -> BTreeMap<String, String> {
        replication(&[("class", "SimpleStrategy"), ("replication_factor", factor)])
    }

    fn topology(factors: &[(&str, &str)]) -> BTreeMap<String, String> {
        let class = ("class", "org.apache.cassandra.locator.NetworkTopologyStrategy");
        replication(&[&[class], factors].concat())
    }

    #[test]
    fn a_lone_node_has_every_tablet_as_by_arithmetic() {
        for (log2, shards) in [(0, 1), (0, 3), (2, 2), (3, 3), (5, 7)] {
            let map = TabletMap::new(log2);
            let lone = nodes(&[("datacenter1", "rack1")], shards);
            for replication in [simple("1"), simple("3"), simple("0"), topology(&[("elsewhere", "3")])] {
                let placed = place(&replication, map, &lone);
                for tablet in map.tablets() {
                    let shard = map.shard_of(tablet, usize::from(shards)) as u16;
                    assert_eq!(placed[tablet.0 as usize], [Replica { node: 1, shard }]);
                }
            }
        }
    }

    #[test]
    fn ranges_of_the_ring_cover_it_and_have_the_replicas_of_tablets_that_end_with_them() {
        let places = [("a", "r1"), ("a", "r2"), ("a", "r1")];
        let three = nodes(&places, 1);
        for replication in [simple("2"), topology(&[("a", "2")])] {
            let ranges = ring_ranges(&replication, &three);
            assert_eq!((ranges.len(), ranges[0].start), (48, ranges[47].end));
            assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start && pair[0].end < pair[1].end));
            let map = TabletMap::new(4);
            for (tablet, replicas) in map.tablets().zip(place(&replication, map, &three)) {
                let last = map.range(tablet).1;
                let range = ranges.iter().find(|range| range.end == last).expect("a token of the first node");
                let placed: Vec<NodeNumber> = replicas.iter().map(|replica| replica.node).collect();
                assert_eq!((range.owner, &range.replicas), (1, &placed));
            }
        }
        assert_eq!(ring_ranges(&topology(&[("b", "1")]), &three)[0].replicas, [0u16; 0]);
        assert_eq!(ring_ranges(&simple("1"), &[]), []);
    }

    #[test]
    fn as_many_different_nodes_as_the_factor_says_or_as_there_are() {
        let three = nodes(&[("a", "r"), ("a", "r"), ("a", "r")], 2);
        for (factor, expected) in [("1", 1), ("2", 2), ("3", 3), ("5", 3)] {
            for replication in [simple(factor), topology(&[("a", factor)])] {
                for replicas in place(&replication, TabletMap::new(6), &three) {
                    let different: BTreeSet<_> = replicas.iter().map(|replica| replica.node).collect();
                    assert_eq!((replicas.len(), different.len()), (expected, expected));
                    assert!(replicas.iter().all(|replica| replica.shard < 2));
                }
            }
        }
    }

    #[test]
    fn racks_come_before_more_of_one_rack() {
        let places = [("a", "r1"), ("a", "r1"), ("a", "r1"), ("a", "r2"), ("a", "r3"), ("b", "r1")];
        let six = nodes(&places, 1);
        for replicas in place(&topology(&[("a", "3"), ("b", "1")]), TabletMap::new(8), &six) {
            let racks: BTreeSet<_> = replicas
                .iter()
                .map(|replica| &six[usize::from(replica.node) - 1])
                .map(|node| (node.data_center.clone(), node.rack.clone()))
                .collect();
            assert_eq!((replicas.len(), racks.len()), (4, 4), "{replicas:?}");
        }
        for replicas in place(&topology(&[("a", "4")]), TabletMap::new(8), &six) {
            let racks: BTreeSet<_> =
                replicas.iter().map(|replica| six[usize::from(replica.node) - 1].rack.clone()).collect();
            assert_eq!((replicas.len(), racks.len()), (4, 3), "{replicas:?}");
        }
    }

    #[test]
    fn tablets_are_spread_over_nodes_and_shards() {
        let three = nodes(&[("a", "r"), ("a", "r"), ("a", "r")], 4);
        let mut counts: BTreeMap<Replica, usize> = BTreeMap::new();
        for replicas in place(&simple("1"), TabletMap::new(8), &three) {
            replicas.iter().for_each(|replica| *counts.entry(*replica).or_default() += 1);
        }
        assert_eq!(counts.len(), 12, "every shard has some");
        let (least, most) = (counts.values().min().unwrap(), counts.values().max().unwrap());
        assert!(*most <= 3 * *least, "{counts:?}");
    }
}
