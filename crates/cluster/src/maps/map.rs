//! The replicas of all tablets of one table, as the nodes agreed upon them.
//!
//! ```text
//! map    := CBOR {0: version, 1: log2 of the number of tablets, 2: [tablet], 3: last truncation, or nothing,
//!                 4: fence, or nothing, 5: whether the factors change, or nothing}
//! tablet := [placed]
//! placed := CBOR [node, shard, since, step or nothing]
//! step   := 0 whole | 1 joining | 2 leaving
//! ```
//! Copies share chunks of tablets, so that a change of one tablet copies little of a large map.
//! Invariant: each tablet has a replica, and its replicas are on different nodes. At most one of them is not
//! whole: the last one, of several.

use std::rc::Rc;

use minicbor::{Decode, Encode};
use model::tablet::{NodeNumber, Replica, TABLETS_LOG2_MAX, TabletId, TabletMap};

/// Tablets that copies of a map share as one.
const CHUNK: usize = 256;
/// Most replicas of a tablet: a limit for bytes that are read, far above any replication factor in use.
pub const REPLICAS_MAX: usize = 64;

/// How far a replica is on its way into the replicas of a tablet or out of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Step {
    /// It has the tablet: it is read.
    #[n(0)]
    #[default]
    Whole,
    /// It gets all writes, and may lack what was written before it came: it is not read.
    #[n(1)]
    Joining,
    /// It gets all writes until the others have all that it has, and is not read any more.
    #[n(2)]
    Leaving,
}

/// One replica of a tablet, and since when it is one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Placed {
    /// The node.
    #[n(0)]
    pub node: NodeNumber,
    /// The shard of that node.
    #[n(1)]
    pub shard: u16,
    /// Index of the command that made the node a replica, or that truncated the table since; 0 for a table's
    /// first replicas, of which there is nothing from before.
    #[n(2)]
    pub since: u64,
    /// Its part in a transition of the tablet.
    #[n(3)]
    #[cbor(default)]
    pub step: Step,
}

/// A step of a tablet from one set of replicas to the next. Each adds or removes one replica, so that
/// quorums of before and after have a replica in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum TabletStep {
    /// A node begins to join, with the tablet on that shard.
    #[n(0)]
    Join(#[n(0)] NodeNumber, #[n(1)] u16),
    /// A node begins to leave.
    #[n(1)]
    Leave(#[n(0)] NodeNumber),
    /// The step before is complete: the joining replica is whole, or the leaving one is none any more.
    #[n(2)]
    Complete,
    /// The step before did not happen: the joining replica is none, or the leaving one is whole.
    #[n(3)]
    Undo,
}

impl Placed {
    /// The place as `node`, which has `shards` shards at this start, sees it: of its own shards there are as
    /// many as that, until the map is changed.
    pub(crate) fn replica_at(self, node: NodeNumber, shards: usize) -> Replica {
        let shard = if self.node == node { usize::from(self.shard) % shards } else { self.shard.into() };
        Replica { node: self.node, shard: shard as u16 }
    }
}

/// Replicas of one tablet.
type Tablet = Box<[Placed]>;

/// The replicas of all tablets of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaMap {
    version: u64,
    truncated: u64,
    fence: u64,
    changing: bool,
    tablets: TabletMap,
    chunks: Vec<Rc<[Tablet]>>,
}

/// A map as plain values: for bytes, and between shards.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct MapParts {
    /// Index of the command that changed the map last.
    #[n(0)]
    pub version: u64,
    /// Base-2 logarithm of the number of tablets.
    #[n(1)]
    pub log2: u8,
    /// The replicas of each tablet.
    #[n(2)]
    pub tablets: Vec<Vec<Placed>>,
    /// Index of the command that truncated the table last; 0 if none did.
    #[n(3)]
    #[cbor(default)]
    pub truncated: u64,
    /// Index of the last command that changed which replicas count; 0 if none did. Requests that were planned
    /// with an older map are refused.
    #[n(4)]
    #[cbor(default)]
    pub fence: u64,
    /// Whether the keyspace got other factors, towards which the replicas are still on their way: until they
    /// are there, levels count the replicas that there are.
    #[n(5)]
    #[cbor(default)]
    pub changing: bool,
}

impl ReplicaMap {
    /// A map of its parts.
    ///
    /// # Errors
    /// The rule that the parts break.
    pub fn of_parts(parts: &MapParts) -> Result<Self, String> {
        if parts.log2 > TABLETS_LOG2_MAX {
            return Err(format!("2^{} tablets are more than 2^{TABLETS_LOG2_MAX}", parts.log2));
        }
        let tablets = TabletMap::new(parts.log2);
        if parts.tablets.len() != tablets.count() as usize {
            return Err(format!("{} of {} tablets have replicas", parts.tablets.len(), tablets.count()));
        }
        if parts.truncated > parts.version {
            return Err(format!("it was truncated by {} and changed by {}", parts.truncated, parts.version));
        }
        if parts.fence > parts.version {
            return Err(format!("it was fenced by {} and changed by {}", parts.fence, parts.version));
        }
        for (number, replicas) in parts.tablets.iter().enumerate() {
            check(replicas).map_err(|reason| format!("tablet {number} {reason}"))?;
        }
        let boxed = |replicas: &Vec<Placed>| replicas.clone().into_boxed_slice();
        let chunks = parts.tablets.chunks(CHUNK).map(|chunk| chunk.iter().map(boxed).collect()).collect();
        let MapParts { version, truncated, fence, changing, .. } = *parts;
        Ok(Self { version, truncated, fence, changing, tablets, chunks })
    }

    /// The map as plain values.
    pub fn to_parts(&self) -> MapParts {
        let tablets = self.tablets.tablets().map(|tablet| self.replicas(tablet).to_vec()).collect();
        let Self { version, truncated, fence, changing, .. } = *self;
        MapParts { version, log2: self.tablets.log2(), tablets, truncated, fence, changing }
    }

    /// Index of the command that changed the map last.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Index of the command that truncated the table last; 0 if none did.
    pub fn truncated(&self) -> u64 {
        self.truncated
    }

    /// Whether the keyspace got other factors, towards which the replicas are still on their way.
    pub fn is_changing(&self) -> bool {
        self.changing
    }

    /// Tablets of which a replica joins or leaves.
    pub fn in_transition(&self) -> impl Iterator<Item = TabletId> + '_ {
        self.tablets.tablets().filter(|tablet| self.moving(*tablet).is_some())
    }

    /// The replica that joins or leaves a tablet.
    ///
    /// # Panics
    /// For a tablet that the table has not.
    pub fn moving(&self, tablet: TabletId) -> Option<Placed> {
        self.replicas(tablet).last().filter(|placed| placed.step != Step::Whole).copied()
    }

    /// The replicas of a tablet that are whole; there is at least one.
    ///
    /// # Panics
    /// For a tablet that the table has not.
    pub fn whole(&self, tablet: TabletId) -> &[Placed] {
        let replicas = self.replicas(tablet);
        &replicas[..replicas.len() - usize::from(self.moving(tablet).is_some())]
    }

    /// How the table is cut into tablets.
    pub fn tablets(&self) -> TabletMap {
        self.tablets
    }

    /// The replicas of a tablet; there is at least one.
    ///
    /// # Panics
    /// For a tablet that the table has not.
    pub fn replicas(&self, tablet: TabletId) -> &[Placed] {
        let at = tablet.0 as usize;
        &self.chunks[at / CHUNK][at % CHUNK]
    }

    /// Puts the replica that a node has of a tablet on another shard of that node; `since` stays, because the
    /// data does. Returns whether the node has one.
    ///
    /// # Panics
    /// For a tablet that the table has not, and a version that is not later.
    pub(crate) fn move_within(
        &mut self,
        tablet: TabletId,
        node: NodeNumber,
        shard: u16,
        version: u64,
    ) -> bool {
        let has = self.replicas(tablet).iter().any(|placed| placed.node == node);
        if has {
            self.set_shard(tablet, node, shard);
            self.set_version(version);
        }
        has
    }

    /// Spreads the replicas of a node evenly over its shards, neighbours together. Returns whether any moved.
    ///
    /// # Panics
    /// Where `shards` is zero, and for a version that is not later.
    pub(crate) fn spread(&mut self, node: NodeNumber, shards: u16, version: u64) -> bool {
        assert!(shards > 0, "node {node} has no shards");
        let shard_on_node = |map: &Self, tablet| {
            map.replicas(tablet).iter().find(|placed| placed.node == node).map(|placed| placed.shard)
        };
        let own: Vec<(TabletId, u16)> = self
            .tablets
            .tablets()
            .filter_map(|tablet| Some((tablet, shard_on_node(self, tablet)?)))
            .collect();
        let mut moved = false;
        for (number, (tablet, before)) in own.iter().enumerate() {
            let shard = shard_of(number, own.len(), shards);
            if shard != *before {
                self.set_shard(*tablet, node, shard);
                moved = true;
            }
        }
        if moved {
            self.set_version(version);
        }
        moved
    }

    /// Has each replica begin a new tenancy, in which nothing of before counts.
    ///
    /// # Panics
    /// For a version that is not later.
    pub(crate) fn truncate(&mut self, version: u64) {
        let anew =
            |tablet: &Tablet| tablet.iter().map(|placed| Placed { since: version, ..*placed }).collect();
        self.chunks = self.chunks.iter().map(|chunk| chunk.iter().map(anew).collect()).collect();
        self.truncated = version;
        self.set_version(version);
    }

    /// Takes tablets a step further each.
    ///
    /// # Errors
    /// The reason for which a step does not follow on the map; some may have been made then.
    ///
    /// # Panics
    /// For a version that is not later.
    pub(crate) fn take_steps(&mut self, steps: &[(u32, TabletStep)], version: u64) -> Result<(), String> {
        for (number, step) in steps {
            if *number >= self.tablets.count() {
                return Err(format!("it has {} tablets, and none is {number}", self.tablets.count()));
            }
            let tablet = TabletId(*number);
            let after = stepped(self.replicas(tablet), *step, version);
            let after = after.map_err(|reason| format!("tablet {number} {reason}"))?;
            check(&after).map_err(|reason| format!("tablet {number} {reason}"))?;
            *self.tablet_mut(tablet) = after.into();
        }
        self.fence = version;
        self.set_version(version);
        Ok(())
    }

    /// Notes whether the replicas are on their way towards other factors.
    ///
    /// # Panics
    /// For a version that is not later.
    pub(crate) fn set_changing(&mut self, changing: bool, version: u64) {
        // No fence: whatever levels count by, it is at least the number of whole replicas, so that quorums of
        // before and after meet.
        self.changing = changing;
        self.set_version(version);
    }

    fn set_version(&mut self, version: u64) {
        assert!(self.version < version, "version {version} of a map comes behind {}", self.version);
        self.version = version;
    }

    fn set_shard(&mut self, tablet: TabletId, node: NodeNumber, shard: u16) {
        let placed = self.tablet_mut(tablet).iter_mut().find(|placed| placed.node == node);
        placed.expect("the node has a replica of the tablet").shard = shard;
    }

    /// A tablet of a chunk that no copy of the map shares.
    fn tablet_mut(&mut self, tablet: TabletId) -> &mut Tablet {
        let at = tablet.0 as usize;
        let chunk = &mut self.chunks[at / CHUNK];
        if Rc::get_mut(chunk).is_none() {
            *chunk = chunk.iter().cloned().collect();
        }
        let tablets = Rc::get_mut(chunk).expect("a chunk that was just made is shared with nobody");
        &mut tablets[at % CHUNK]
    }
}

/// The replicas of a tablet after a step; an error ends a sentence about the tablet.
fn stepped(replicas: &[Placed], step: TabletStep, version: u64) -> Result<Vec<Placed>, String> {
    let mut after = replicas.to_vec();
    let moving = replicas.last().filter(|placed| placed.step != Step::Whole).copied();
    match (step, moving) {
        (TabletStep::Join(..) | TabletStep::Leave(_), Some(moving)) => {
            return Err(format!("is in transition: node {} is {:?}", moving.node, moving.step));
        }
        (TabletStep::Join(node, shard), None) => {
            after.push(Placed { node, shard, since: version, step: Step::Joining });
        }
        (TabletStep::Leave(node), None) => {
            let at = replicas.iter().position(|placed| placed.node == node);
            let mut leaving = after.remove(at.ok_or_else(|| format!("has no replica on node {node}"))?);
            leaving.step = Step::Leaving;
            after.push(leaving);
        }
        (TabletStep::Complete | TabletStep::Undo, None) => return Err("is in no transition".to_owned()),
        (step, Some(mut moving)) => {
            after.pop();
            if (step == TabletStep::Complete) == (moving.step == Step::Joining) {
                moving.step = Step::Whole;
                after.push(moving);
            }
        }
    }
    Ok(after)
}

/// The shard of the `number`th of a node's `count` tablets: contiguous runs of about equal length.
pub(crate) fn shard_of(number: usize, count: usize, shards: u16) -> u16 {
    assert!(number < count, "tablet {number} of {count}");
    (number * usize::from(shards) / count) as u16
}

/// Checks the replicas of one tablet; the error ends a sentence about it.
fn check(replicas: &[Placed]) -> Result<(), String> {
    if replicas.is_empty() || replicas.len() > REPLICAS_MAX {
        return Err(format!("has {} replicas", replicas.len()));
    }
    for (at, placed) in replicas.iter().enumerate() {
        if placed.node == 0 {
            return Err("has a replica on node 0, which there is not".to_owned());
        }
        if replicas[..at].iter().any(|other| other.node == placed.node) {
            return Err(format!("has two replicas on node {}", placed.node));
        }
        if placed.step != Step::Whole && (at == 0 || at + 1 < replicas.len()) {
            return Err(format!("has no whole replica before node {}, or one behind it", placed.node));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(node: NodeNumber, shard: u16, since: u64) -> Placed {
        Placed { node, shard, since, ..Placed::default() }
    }

    fn map(log2: u8, replicas: &[Placed]) -> ReplicaMap {
        let tablets = vec![replicas.to_vec(); 1 << log2];
        ReplicaMap::of_parts(&MapParts { version: 1, log2, tablets, ..MapParts::default() }).unwrap()
    }

    #[test]
    fn a_map_is_its_parts_and_parts_that_are_no_map_are_refused() {
        let whole = map(9, &[placed(1, 0, 4), placed(2, 3, 0)]);
        let parts = whole.to_parts();
        assert_eq!(ReplicaMap::of_parts(&parts), Ok(whole));
        let refused = |change: &dyn Fn(&mut MapParts), reason: &str| {
            let mut parts = parts.clone();
            change(&mut parts);
            let error = ReplicaMap::of_parts(&parts).unwrap_err();
            assert!(error.contains(reason), "{error}");
        };
        refused(&|parts| parts.log2 = 21, "2^21 tablets");
        refused(&|parts| parts.log2 = 8, "512 of 256 tablets");
        refused(&|parts| parts.tablets[7].clear(), "tablet 7 has 0 replicas");
        refused(&|parts| parts.tablets[300][1].node = 1, "tablet 300 has two replicas on node 1");
        refused(&|parts| parts.tablets[0][0].node = 0, "node 0");
        refused(&|parts| parts.truncated = 2, "truncated by 2 and changed by 1");
    }

    #[test]
    fn a_truncation_begins_new_tenancies_and_bytes_of_before_have_none() {
        let before = map(9, &[placed(1, 0, 4), placed(2, 3, 0)]);
        let mut after = before.clone();
        after.truncate(12);
        assert_eq!(after.replicas(TabletId(300)), [placed(1, 0, 12), placed(2, 3, 12)]);
        assert_eq!((before.truncated(), after.truncated(), after.version()), (0, 12, 12));
        assert_eq!(before.replicas(TabletId(300)), [placed(1, 0, 4), placed(2, 3, 0)]);
        after.move_within(TabletId(300), 2, 1, 13);
        assert_eq!((after.truncated(), after.replicas(TabletId(300))[1]), (12, placed(2, 1, 12)));
        // The bytes of a version that knew no truncations.
        let parts = before.to_parts();
        let mut old = Vec::new();
        let mut encoder = minicbor::Encoder::new(&mut old);
        encoder.array(3).unwrap().u64(1).unwrap().u8(9).unwrap().encode(&parts.tablets).unwrap();
        assert_eq!(minicbor::decode::<MapParts>(&old).unwrap(), parts);
    }

    #[test]
    fn a_move_within_a_node_keeps_the_age_and_changes_no_copy() {
        let before = map(9, &[placed(1, 0, 4), placed(2, 3, 7)]);
        let mut after = before.clone();
        assert!(after.move_within(TabletId(300), 2, 1, 9));
        assert_eq!(after.replicas(TabletId(300)), [placed(1, 0, 4), placed(2, 1, 7)]);
        assert_eq!(before.replicas(TabletId(300)), [placed(1, 0, 4), placed(2, 3, 7)]);
        assert_eq!((before.version(), after.version()), (1, 9));
        assert!(Rc::ptr_eq(&before.chunks[0], &after.chunks[0]), "chunks without a change are shared");
        assert!(!after.move_within(TabletId(0), 3, 1, 10), "node 3 has none");
        assert_eq!(after.version(), 9);
    }

    #[test]
    fn tablets_are_spread_as_a_lone_node_spreads_them() {
        for shards in [1u16, 2, 3, 5] {
            let mut spread = map(4, &[placed(1, 0, 0)]);
            assert_eq!(spread.spread(1, shards, 2), shards > 1);
            for tablet in spread.tablets().tablets() {
                let expected = spread.tablets().shard_of(tablet, usize::from(shards)) as u16;
                assert_eq!(spread.replicas(tablet), [placed(1, expected, 0)]);
            }
            let again = spread.clone();
            assert!(!spread.spread(1, shards, 3));
            assert_eq!(spread, again);
        }
    }
}
