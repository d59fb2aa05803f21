//! The replicas of each tablet: the one place that is asked which node and shard has a partition.
//!
//! A [`Routing`] is what is true of one table at one version, and never changes. Plans take the replicas of a
//! request out of one, so that all of a request's parts agree. It is made of the table's agreed map; a table
//! that every node keeps for itself has this node as its only replica, on the shard that
//! [`TabletMap::shard_of`] names. Invariant: every tablet has a replica, the replicas of a tablet are on
//! different nodes, and at most the last one of several is not whole.

use std::ops::Range;

use model::Token;
use model::tablet::{NodeNumber, Replica, TabletId, TabletMap};

use super::map::{MapParts, Placed, Step};

/// The replicas of all tablets of one table, at one version.
#[derive(Debug)]
pub struct Routing {
    version: u64,
    truncated: u64,
    fence: u64,
    changing: bool,
    tablets: TabletMap,
    /// The replicas of all tablets, tablet after tablet.
    replicas: Box<[Replica]>,
    /// Since which command each of them is one.
    since: Box<[u64]>,
    /// For each tablet, the place of its first replica in `replicas`; then the number of all.
    begins: Box<[u32]>,
    /// Tablets of which a replica joins or leaves, in order, with what it does.
    moving: Box<[(TabletId, Step)]>,
}

/// Neighbouring tablets that are read in one go, because the same replicas have had them all since the same
/// commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The first of the tablets.
    pub tablet: TabletId,
    /// First and last token, both inclusive.
    pub tokens: (Token, Token),
}

impl Routing {
    /// The routing of a table of which each tablet has the given replicas, by tablet.
    fn new(version: u64, tablets: TabletMap, of_each: impl Iterator<Item = Vec<(Replica, u64)>>) -> Self {
        let (mut replicas, mut since, mut begins) = (Vec::new(), Vec::new(), vec![0]);
        for of_one in of_each {
            assert!(!of_one.is_empty(), "tablet {} has a replica", begins.len() - 1);
            replicas.extend(of_one.iter().map(|(replica, _)| *replica));
            since.extend(of_one.iter().map(|(_, since)| *since));
            begins.push(replicas.len() as u32);
        }
        assert_eq!(begins.len(), tablets.count() as usize + 1, "each tablet has an entry");
        let (replicas, since, begins) = (replicas.into(), since.into(), begins.into());
        let moving = Box::default();
        Self { version, truncated: 0, fence: 0, changing: false, tablets, replicas, since, begins, moving }
    }

    /// The routing of a table that `node`, which has `shards` shards, keeps for itself.
    pub(crate) fn alone(tablets: TabletMap, node: NodeNumber, shards: usize) -> Self {
        let replica = |tablet| Replica { node, shard: tablets.shard_of(tablet, shards) as u16 };
        Self::new(0, tablets, tablets.tablets().map(|tablet| vec![(replica(tablet), 0)]))
    }

    /// The routing by an agreed map, on `node` with `shards` shards at this start. Where the map says a shard
    /// that this start has not, a remaining one stands in until the map is changed.
    pub(crate) fn of_map(map: &MapParts, node: NodeNumber, shards: usize) -> Self {
        let replicas = |placed: &Vec<Placed>| -> Vec<(Replica, u64)> {
            placed.iter().map(|placed| (placed.replica_at(node, shards), placed.since)).collect()
        };
        let moving = |(number, placed): (usize, &Vec<Placed>)| {
            let step = placed.last().map_or(Step::Whole, |placed| placed.step);
            (step != Step::Whole).then_some((TabletId(number as u32), step))
        };
        let moving = map.tablets.iter().enumerate().filter_map(moving).collect();
        let routing = Self::new(map.version, TabletMap::new(map.log2), map.tablets.iter().map(replicas));
        let MapParts { truncated, fence, changing, .. } = *map;
        Self { truncated, fence, changing, moving, ..routing }
    }

    /// The version: it grows with every change of the table's tablets or their replicas.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The version that truncated the table last; 0 if none did. A write that was planned with an older one
    /// is of before: nobody may write it any more.
    pub fn truncated(&self) -> u64 {
        self.truncated
    }

    /// The version that changed last which replicas count: what was planned with an older one is refused.
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// Whether levels count the replicas that there are, and not the factors of the keyspace, which the
    /// replicas are still on their way to.
    pub fn is_changing(&self) -> bool {
        self.changing
    }

    /// How the table is cut into tablets.
    #[inline]
    pub fn tablets(&self) -> TabletMap {
        self.tablets
    }

    /// The replicas of a tablet that are whole, which are read; there is at least one.
    pub fn whole(&self, tablet: TabletId) -> &[Replica] {
        let replicas = self.replicas(tablet);
        &replicas[..replicas.len() - usize::from(self.moving(tablet).is_some())]
    }

    /// The step of the last replica of a tablet, if it joins or leaves.
    #[inline]
    pub fn moving(&self, tablet: TabletId) -> Option<Step> {
        if self.moving.is_empty() {
            return None;
        }
        let at = self.moving.binary_search_by_key(&tablet.0, |(tablet, _)| tablet.0);
        at.ok().map(|at| self.moving[at].1)
    }

    /// The replicas of a tablet, all of which get its writes; there is at least one.
    #[inline]
    pub fn replicas(&self, tablet: TabletId) -> &[Replica] {
        &self.replicas[self.places(tablet)]
    }

    /// For each of [`Routing::replicas`], the command that made it one, or truncated the table since; 0 for
    /// data from before there were maps.
    pub fn since(&self, tablet: TabletId) -> &[u64] {
        &self.since[self.places(tablet)]
    }

    #[inline]
    fn places(&self, tablet: TabletId) -> Range<usize> {
        let at = tablet.0 as usize;
        self.begins[at] as usize..self.begins[at + 1] as usize
    }

    /// The replica that requests for a token go to.
    #[inline]
    pub fn replica_of(&self, token: Token) -> Replica {
        self.replicas[self.begins[self.tablets.tablet_of(token).0 as usize] as usize]
    }

    /// Whether two tablets have the same replicas since the same commands, in the same steps.
    fn are_alike(&self, a: TabletId, b: TabletId) -> bool {
        self.replicas(a) == self.replicas(b)
            && self.since(a) == self.since(b)
            && self.moving(a) == self.moving(b)
    }

    /// The tablets that a range of tokens touches, in token order, as few runs as possible. There is none if
    /// `from` is behind `to` in another tablet.
    pub fn runs(&self, from: Token, to: Token) -> impl Iterator<Item = Run> + '_ {
        let mut next = self.tablets.tablet_of(from).0;
        let last = self.tablets.tablet_of(to).0;
        std::iter::from_fn(move || {
            if next > last {
                return None;
            }
            let first = TabletId(next);
            while next < last && self.are_alike(first, TabletId(next + 1)) {
                next += 1;
            }
            let tokens = (self.tablets.range(first).0, self.tablets.range(TabletId(next)).1);
            next += 1;
            Some(Run { tablet: first, tokens })
        })
    }
}

#[cfg(test)]
mod tests {
    use model::tablet::FIRST_NODE;

    use super::*;

    /// A routing whose tablets have these shards of the first node.
    fn of_shards(shards: &[u16]) -> Routing {
        let tablets = TabletMap::for_shards(shards.len());
        assert_eq!(tablets.count() as usize, shards.len());
        let replica = |shard: &u16| vec![(Replica { node: FIRST_NODE, shard: *shard }, 7)];
        Routing::new(7, tablets, shards.iter().map(replica))
    }

    /// Shards of the runs between two tablets, each tablet's last token included.
    fn runs(routing: &Routing, first: u32, last: u32) -> Vec<(u16, Token, Token)> {
        let of = |tablet| routing.tablets.range(TabletId(tablet));
        let runs = routing.runs(of(first).1, of(last).0);
        runs.map(|run| (routing.replicas(run.tablet)[0].shard, run.tokens.0, run.tokens.1)).collect()
    }

    #[test]
    fn a_lone_node_has_its_tablets_by_arithmetic() {
        for (log2, shards) in [(0, 1), (0, 3), (2, 2), (3, 3), (5, 7)] {
            let tablets = TabletMap::new(log2);
            let routing = Routing::alone(tablets, FIRST_NODE, shards);
            for tablet in tablets.tablets() {
                let shard = tablets.shard_of(tablet, shards) as u16;
                assert_eq!(routing.replicas(tablet), [Replica { node: FIRST_NODE, shard }]);
                let (first, last) = tablets.range(tablet);
                assert_eq!([first, last].map(|token| routing.replica_of(token).shard), [shard; 2]);
            }
        }
    }

    #[test]
    fn a_shard_that_a_start_has_not_is_stood_in_for_on_this_node_alone() {
        let placed = |node, shard| Placed { node, shard, since: 3, ..Placed::default() };
        let tablets = vec![vec![placed(1, 1), placed(2, 5)], vec![placed(1, 4), placed(2, 0)]];
        let map = MapParts { version: 9, log2: 1, tablets, ..MapParts::default() };
        let routing = Routing::of_map(&map, 1, 3);
        let replica = |node, shard| Replica { node, shard };
        assert_eq!(routing.replicas(TabletId(0)), [replica(1, 1), replica(2, 5)]);
        assert_eq!(routing.replicas(TabletId(1)), [replica(1, 1), replica(2, 0)]);
        assert_eq!((routing.version(), routing.since(TabletId(0))), (9, &[3, 3][..]));
    }

    #[test]
    fn a_run_has_one_set_of_replicas_since_the_same_commands() {
        let placed = |node, since| Placed { node, shard: 0, since, ..Placed::default() };
        let (pair, other) = (vec![placed(1, 3), placed(2, 3)], vec![placed(1, 3), placed(3, 3)]);
        let later = vec![placed(1, 3), placed(2, 8)];
        let tablets = vec![pair.clone(), pair, other, later];
        let routing =
            Routing::of_map(&MapParts { version: 9, log2: 2, tablets, ..MapParts::default() }, 1, 1);
        let found: Vec<u32> = routing.runs(Token::MINIMUM, Token::MAXIMUM).map(|run| run.tablet.0).collect();
        assert_eq!(found, [0, 2, 3]);
    }

    #[test]
    fn a_range_is_read_in_token_order_wherever_its_tablets_are() {
        let routing = of_shards(&[0, 0, 1, 0, 2, 2, 1, 1]);
        let of = |first: u32, last: u32| {
            (routing.tablets.range(TabletId(first)).0, routing.tablets.range(TabletId(last)).1)
        };
        let expected = |runs: &[(u16, u32, u32)]| -> Vec<_> {
            runs.iter()
                .map(|(shard, first, last)| (*shard, of(*first, *last).0, of(*first, *last).1))
                .collect()
        };
        let all = [(0, 0, 1), (1, 2, 2), (0, 3, 3), (2, 4, 5), (1, 6, 7)];
        assert_eq!(runs(&routing, 0, 7), expected(&all));
        assert_eq!(runs(&routing, 3, 3), expected(&[(0, 3, 3)]));
        assert_eq!(runs(&routing, 1, 4), expected(&[(0, 1, 1), (1, 2, 2), (0, 3, 3), (2, 4, 4)]));
        assert_eq!(runs(&routing, 5, 2), []);
    }
}
