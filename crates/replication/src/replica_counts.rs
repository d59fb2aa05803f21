//! How many replicas the partitions of a keyspace should have, in all and in each data center, and how many
//! of those that a partition has are alive.
//!
//! Factors come from the keyspace. Which replicas there are, and who is alive, is the matter of a plan; a
//! node that is alone has one replica of everything, which lives and counts where the data center is its own.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::rc::Rc;

use model::{Schema, Table, TableId};
use smallvec::SmallVec;

/// Replication of one keyspace as seen from this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaCounts {
    /// Data centers with replicas, and their factors; none if the strategy ignores data centers.
    data_centers: Vec<(String, u32)>,
    /// Place of this node's own among them.
    own: Option<usize>,
    /// Sum of all factors.
    total: u32,
    /// Factor of this node's own data center.
    local: u32,
    /// What lives where this node is alone.
    alone: Alive,
    /// Whether levels count the replicas that there are, if those are fewer than the factors.
    follows_nodes: bool,
}

/// The keyspace whose levels count the replicas that there are: a trace is to be read at the level of the
/// traced request (as cqlsh does), also where the cluster has fewer nodes than the keyspace's factor.
const FOLLOWS_NODES: &str = "system_traces";

/// How many replicas of a partition are alive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Alive {
    /// In all.
    pub all: u32,
    /// In this node's data center.
    pub local: u32,
    /// In each data center that has a factor, in the order of [`ReplicaCounts::each_data_center`].
    pub each: SmallVec<[u32; 3]>,
}

impl Alive {
    /// Counts a replica, of the data center at `place` if that has a factor.
    pub(crate) fn add(&mut self, is_local: bool, place: Option<usize>) {
        self.all += 1;
        self.local += u32::from(is_local);
        if let Some(place) = place {
            self.each[place] += 1;
        }
    }
}

impl ReplicaCounts {
    /// The counts with the factors that levels count by in a partition that has so many replicas: at least as
    /// many as those; exactly as many while they are on their way to other factors.
    #[inline]
    pub(crate) fn fitting(&self, placed: &Alive, is_changing: bool) -> Cow<'_, Self> {
        let is_more = match self.is_simple() {
            true => placed.all > self.total,
            false => self.each_data_center().zip(&placed.each).any(|((_, factor), placed)| *placed > factor),
        };
        if is_more || is_changing || self.follows_nodes {
            Cow::Owned(self.fitted(placed, is_changing || self.follows_nodes))
        } else {
            Cow::Borrowed(self)
        }
    }

    #[cold]
    fn fitted(&self, placed: &Alive, is_changing: bool) -> Self {
        let fitted = |factor: u32, placed: u32| if is_changing { placed } else { factor.max(placed) };
        if self.is_simple() {
            return Self::simple(fitted(self.total, placed.all));
        }
        let data_centers = self.data_centers.iter().zip(&placed.each);
        let data_centers =
            data_centers.map(|((name, factor), placed)| (name.clone(), fitted(*factor, *placed))).collect();
        let own = self.own.map(|own| self.data_centers[own].0.as_str());
        Self::of_data_centers(data_centers, own.unwrap_or_default())
    }

    /// Reads the `replication` option of a keyspace for a node of `data_center`.
    ///
    /// `SimpleStrategy` and `LocalStrategy` know no data centers; the factor of a transient-replication text
    /// (`3/1`) is its first number. Options are validated where they are set.
    pub fn new(options: &BTreeMap<String, String>, data_center: &str) -> Self {
        let class = options.get("class").map_or("", |class| class.rsplit('.').next().unwrap_or(class));
        let factor = |text: &String| text.split('/').next().and_then(|n| n.trim().parse().ok()).unwrap_or(0);
        if class == "NetworkTopologyStrategy" {
            let factors = options.iter().filter(|(name, _)| *name != "class").map(|(name, text)| {
                let name = if name == "replication_factor" { data_center } else { name };
                (name.to_owned(), factor(text))
            });
            let data_centers: Vec<(String, u32)> = factors.filter(|(_, factor)| *factor > 0).collect();
            return Self::of_data_centers(data_centers, data_center);
        }
        Self::simple(match class {
            "SimpleStrategy" => options.get("replication_factor").map_or(1, factor),
            _ => 1,
        })
    }

    /// One replica, wherever.
    pub(crate) fn single() -> Self {
        Self::simple(1)
    }

    fn simple(factor: u32) -> Self {
        let alive = u32::from(factor > 0);
        let alone = Alive { all: alive, local: alive, each: SmallVec::new() };
        let follows_nodes = false;
        Self { data_centers: Vec::new(), own: None, total: factor, local: factor, alone, follows_nodes }
    }

    fn of_data_centers(data_centers: Vec<(String, u32)>, own: &str) -> Self {
        let own = data_centers.iter().position(|(name, _)| name == own);
        let total = data_centers.iter().map(|(_, factor)| factor).sum();
        let each = (0..data_centers.len()).map(|at| u32::from(own == Some(at))).collect();
        let alive = u32::from(own.is_some());
        let local = own.map_or(0, |own| data_centers[own].1);
        let alone = Alive { all: alive, local: alive, each };
        Self { data_centers, own, total, local, alone, follows_nodes: false }
    }

    /// Replicas over all data centers.
    #[inline]
    pub fn total(&self) -> u32 {
        self.total
    }

    /// Replicas in this node's data center; all of them if the strategy ignores data centers.
    #[inline]
    pub fn local(&self) -> u32 {
        self.local
    }

    /// The counts by which levels count where this node is alone and the factors ask for more; `None` if they
    /// count by the factors.
    #[cold]
    pub(crate) fn fitting_alone(&self) -> Option<Self> {
        self.follows_nodes.then(|| self.fitted(&self.alone, true))
    }

    /// What is alive where this node is alone.
    #[inline]
    pub fn alone(&self) -> &Alive {
        &self.alone
    }

    /// Name and factor of each data center with replicas.
    pub fn each_data_center(&self) -> impl Iterator<Item = (&str, u32)> + '_ {
        self.data_centers.iter().map(|(name, factor)| (name.as_str(), *factor))
    }

    /// The place of a data center in [`ReplicaCounts::each_data_center`].
    pub(crate) fn place_of(&self, data_center: &str) -> Option<usize> {
        self.data_centers.iter().position(|(name, _)| name == data_center)
    }

    /// Whether the strategy ignores data centers.
    pub fn is_simple(&self) -> bool {
        self.data_centers.is_empty() && self.local == self.total
    }
}

/// Replica counts by keyspace, for the schema they were read from.
#[derive(Debug, Default)]
pub(crate) struct KnownReplicaCounts {
    schema: Option<Rc<Schema>>,
    known: Vec<(String, ReplicaCounts)>,
    /// A table of the keyspace that comes first: ids are compared faster than names.
    table: Option<TableId>,
}

impl KnownReplicaCounts {
    /// The counts of a keyspace in `schema`; of one that is not there a single local replica, as for
    /// virtual ones.
    #[inline]
    pub(crate) fn of(&mut self, schema: &Rc<Schema>, keyspace: &str, data_center: &str) -> &ReplicaCounts {
        // The keyspace that was found last comes first.
        let is_first = self.schema.as_ref().is_some_and(|known| Rc::ptr_eq(known, schema))
            && self.known.first().is_some_and(|(name, _)| name == keyspace);
        if !is_first {
            self.find(schema, keyspace, data_center);
        }
        &self.known[0].1
    }

    /// As [`KnownReplicaCounts::of`], of the keyspace of `table`.
    #[inline]
    pub(crate) fn of_table(
        &mut self,
        schema: &Rc<Schema>,
        table: &Table,
        data_center: &str,
    ) -> &ReplicaCounts {
        let is_first = self.schema.as_ref().is_some_and(|known| Rc::ptr_eq(known, schema))
            && self.table == Some(table.id());
        if !is_first {
            self.of(schema, table.keyspace(), data_center);
            self.table = Some(table.id());
        }
        &self.known[0].1
    }

    /// Puts the counts of a keyspace in front.
    #[inline(never)]
    fn find(&mut self, schema: &Rc<Schema>, keyspace: &str, data_center: &str) {
        if !self.schema.as_ref().is_some_and(|known| Rc::ptr_eq(known, schema)) {
            self.schema = Some(Rc::clone(schema));
            self.known.clear();
        }
        let at = match self.known.iter().position(|(name, _)| name == keyspace) {
            Some(at) => at,
            None => {
                let mut counts = match schema.keyspace(keyspace) {
                    Some(keyspace) => ReplicaCounts::new(&keyspace.options.replication, data_center),
                    None => ReplicaCounts::single(),
                };
                counts.follows_nodes = keyspace == FOLLOWS_NODES;
                self.known.push((keyspace.to_owned(), counts));
                self.known.len() - 1
            }
        };
        self.known.swap(0, at);
        self.table = None;
        assert_eq!(self.known[0].0, keyspace, "the counts in front are those of the keyspace");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Column;
    use model::schema::{KeyspaceOptions, SchemaChange, TableDefinition, TableOptions};
    use model::{ColumnId, ColumnKind, CqlType};

    /// A keyspace of that factor, with one table.
    fn keyspace(schema: &mut Schema, name: &str, factor: &str, id: u8) {
        let replication = [("class", "SimpleStrategy"), ("replication_factor", factor)];
        let options = KeyspaceOptions {
            replication: replication.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            durable_writes: true,
            tablets: None,
        };
        let key = Column {
            id: ColumnId(0),
            name: "k".to_owned(),
            ty: CqlType::Int,
            kind: ColumnKind::PartitionKey,
            position: 0,
            reversed: false,
        };
        let definition = TableDefinition {
            id: TableId([id; 16]),
            keyspace: name.to_owned(),
            name: "t".to_owned(),
            columns: vec![key],
            dropped: BTreeMap::new(),
            options: TableOptions::default(),
            next_column_id: 1,
            tablets_log2: 0,
            revision: 0,
        };
        schema.apply(&SchemaChange::CreateKeyspace { name: name.to_owned(), options }).unwrap();
        schema.apply(&SchemaChange::CreateTable(Box::new(definition))).unwrap();
    }

    #[test]
    fn a_tables_placement_is_its_keyspaces_whatever_was_looked_up_before() {
        let mut schema = Schema::default();
        keyspace(&mut schema, "one", "1", 1);
        keyspace(&mut schema, "three", "3", 3);
        let schemas = [Rc::new(schema.clone()), Rc::new(schema)];
        let mut replica_counts = KnownReplicaCounts::default();
        for at in 0..64 {
            let schema = &schemas[at / 32];
            let (name, id, factor) = if at & 1 == 0 { ("one", 1, 1) } else { ("three", 3, 3) };
            let table = schema.table_by_id(TableId([id; 16])).unwrap();
            let found = match at & 2 == 0 {
                true => replica_counts.of_table(schema, table, "datacenter1"),
                false => replica_counts.of(schema, name, "datacenter1"),
            };
            assert_eq!(found.total(), factor, "{at}");
            // Once more, and sometimes with a lookup by name before the next round: remembered counts
            // must be those of the remembered keyspace.
            assert_eq!(replica_counts.of_table(schema, table, "datacenter1").total(), factor, "{at}");
            if at & 4 == 0 {
                replica_counts.of(schema, if at & 8 == 0 { "one" } else { "three" }, "datacenter1");
            }
        }
    }

    #[test]
    fn levels_count_the_replicas_of_traces_that_there_are() {
        let mut schema = Schema::default();
        keyspace(&mut schema, "system_traces", "2", 1);
        keyspace(&mut schema, "two", "2", 2);
        let schema = Rc::new(schema);
        let mut known = KnownReplicaCounts::default();
        let alive = |all| Alive { all, local: all, each: SmallVec::new() };
        let counted = |counts: &ReplicaCounts, placed| counts.fitting(&alive(placed), false).total();
        let traces = known.of(&schema, "system_traces", "datacenter1");
        assert_eq!([counted(traces, 1), counted(traces, 2)], [1, 2]);
        let alone = traces.fitting_alone().expect("the counts of one node");
        assert_eq!((alone.total(), alone.alone().all), (1, 1));
        let two = known.of(&schema, "two", "datacenter1");
        assert_eq!([counted(two, 1), counted(two, 2)], [2, 2]);
        assert!(two.fitting_alone().is_none());
    }
}
