//! The replicas of each tablet: the one place that is asked which node and shard has a partition.
//!
//! A [`Routing`] is what is true of one table at one version, and never changes. Plans take the replicas of
//! a request out of one, so that all of a request's parts agree. This node is alone in its cluster: each
//! tablet has one replica, on the shard that [`TabletMap::shard_of`] names.
//! Invariant: every tablet has a replica, and the replicas of a tablet are on different nodes.

use std::collections::BTreeMap;
use std::rc::Rc;

use model::tablet::{FIRST_NODE, Replica, TabletId, TabletMap};
use model::{Schema, Table, TableId, Token};

/// The replicas of all tablets of one table, at one version.
#[derive(Debug)]
pub struct Routing {
    version: u64,
    tablets: TabletMap,
    /// The replicas of all tablets, tablet after tablet.
    replicas: Box<[Replica]>,
    /// For each tablet, the place of its first replica in `replicas`; then the number of all.
    begins: Box<[u32]>,
}

/// Neighbouring tablets that are read in one go, because one replica has them all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) replica: Replica,
    /// First and last token, both inclusive.
    pub(crate) tokens: (Token, Token),
}

impl Routing {
    /// The routing of a table of which each tablet has the given replicas, by tablet.
    fn new(version: u64, tablets: TabletMap, of_each: impl Iterator<Item = Vec<Replica>>) -> Self {
        let (mut replicas, mut begins) = (Vec::new(), vec![0]);
        for of_one in of_each {
            assert!(!of_one.is_empty(), "tablet {} has a replica", begins.len() - 1);
            replicas.extend(of_one);
            begins.push(replicas.len() as u32);
        }
        assert_eq!(begins.len(), tablets.count() as usize + 1, "each tablet has an entry");
        Self { version, tablets, replicas: replicas.into(), begins: begins.into() }
    }

    /// The routing of a table whose only node has `shards` shards.
    fn alone(tablets: TabletMap, shards: usize) -> Self {
        let replica = |tablet| Replica { node: FIRST_NODE, shard: tablets.shard_of(tablet, shards) as u16 };
        Self::new(1, tablets, tablets.tablets().map(|tablet| vec![replica(tablet)]))
    }

    /// The version: it grows with every change of the table's tablets or their replicas.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// How the table is cut into tablets.
    #[inline]
    pub fn tablets(&self) -> TabletMap {
        self.tablets
    }

    /// The replicas of a tablet; there is at least one.
    #[inline]
    pub fn replicas(&self, tablet: TabletId) -> &[Replica] {
        let at = tablet.0 as usize;
        &self.replicas[self.begins[at] as usize..self.begins[at + 1] as usize]
    }

    /// The replica that requests for a token go to.
    #[inline]
    pub(crate) fn replica_of(&self, token: Token) -> Replica {
        self.replicas[self.begins[self.tablets.tablet_of(token).0 as usize] as usize]
    }

    /// The tablets that a range of tokens touches, in token order, as few runs as possible. There is none if
    /// `from` is behind `to` in another tablet.
    pub(crate) fn runs(&self, from: Token, to: Token) -> impl Iterator<Item = Run> + '_ {
        let mut next = self.tablets.tablet_of(from).0;
        let last = self.tablets.tablet_of(to).0;
        std::iter::from_fn(move || {
            if next > last {
                return None;
            }
            let first = TabletId(next);
            let replica = self.replicas(first)[0];
            while next < last && self.replicas(TabletId(next + 1))[0] == replica {
                next += 1;
            }
            let tokens = (self.tablets.range(first).0, self.tablets.range(TabletId(next)).1);
            next += 1;
            Some(Run { replica, tokens })
        })
    }
}

/// The routings that this shard uses, by table.
#[derive(Debug, Default)]
pub(crate) struct Routings {
    /// The one that was found last.
    last: Option<(TableId, Rc<Routing>)>,
    known: BTreeMap<TableId, Rc<Routing>>,
}

impl Routings {
    /// The routing of a table, if it is the one that was found last.
    #[inline]
    pub(crate) fn last(&self, table: &Table) -> Option<&Rc<Routing>> {
        let (id, routing) = self.last.as_ref()?;
        (*id == table.id() && routing.tablets == table.tablets()).then_some(routing)
    }

    /// The routing of a table of `schema` on a node of `shards` shards.
    #[inline(never)]
    pub(crate) fn find(&mut self, table: &Table, schema: &Schema, shards: usize) -> &Rc<Routing> {
        let (id, tablets) = (table.id(), table.tablets());
        // A table that is made again with an id of before may be cut otherwise.
        let routing = match self.known.get(&id).filter(|known| known.tablets == tablets) {
            Some(known) => Rc::clone(known),
            None => {
                // Tables come seldom; those that went are forgotten then.
                self.known.retain(|id, _| schema.table_by_id(*id).is_some());
                let made = Rc::new(Routing::alone(tablets, shards));
                self.known.insert(id, Rc::clone(&made));
                made
            }
        };
        &self.last.insert((id, routing)).1
    }
}

#[cfg(test)]
mod tests {

    use model::schema::{TableDefinition, TableOptions};

    use super::*;

    /// A routing whose tablets have these shards of the first node.
    fn of_shards(shards: &[u16]) -> Routing {
        let tablets = TabletMap::for_shards(shards.len());
        assert_eq!(tablets.count() as usize, shards.len());
        let replica = |shard: &u16| vec![Replica { node: FIRST_NODE, shard: *shard }];
        Routing::new(7, tablets, shards.iter().map(replica))
    }

    /// Shards of the runs between two tablets, each tablet's last token included.
    fn runs(routing: &Routing, first: u32, last: u32) -> Vec<(u16, Token, Token)> {
        let of = |tablet| routing.tablets.range(TabletId(tablet));
        let runs = routing.runs(of(first).1, of(last).0);
        runs.map(|run| (run.replica.shard, run.tokens.0, run.tokens.1)).collect()
    }

    #[test]
    fn a_lone_node_has_its_tablets_by_arithmetic() {
        for (log2, shards) in [(0, 1), (0, 3), (2, 2), (3, 3), (5, 7)] {
            let tablets = TabletMap::new(log2);
            let routing = Routing::alone(tablets, shards);
            for tablet in tablets.tablets() {
                let shard = tablets.shard_of(tablet, shards) as u16;
                assert_eq!(routing.replicas(tablet), [Replica { node: FIRST_NODE, shard }]);
                let (first, last) = tablets.range(tablet);
                assert_eq!([first, last].map(|token| routing.replica_of(token).shard), [shard; 2]);
            }
        }
    }

    #[test]
    fn a_table_made_again_with_its_id_has_the_cut_of_the_new_one() {
        let table = |tablets_log2| {
            Table::new(TableDefinition {
                id: TableId([1; 16]),
                keyspace: "k".to_owned(),
                name: "t".to_owned(),
                columns: Vec::new(),
                dropped: BTreeMap::new(),
                options: TableOptions::default(),
                next_column_id: 0,
                tablets_log2,
                revision: 0,
            })
        };
        let (mut routings, schema) = (Routings::default(), Schema::default());
        let [coarse, fine] = [table(1), table(4)];
        let find = |routings: &mut Routings, table: &Table| {
            if let Some(last) = routings.last(table) {
                return last.tablets;
            }
            routings.find(table, &schema, 2).tablets
        };
        for table in [&coarse, &fine, &fine, &coarse] {
            assert_eq!(find(&mut routings, table), table.tablets());
        }
        assert_eq!(routings.known.len(), 1, "the routing of before is forgotten");
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
