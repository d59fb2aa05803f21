//! The replicas of one request: those of one tablet at one version of its routing, and which of them count.
//!
//! A plan holds the version of the routing that it was made with until its request is answered; work that
//! goes on behind the answer does not. Invariant: a plan exists only where enough replicas were alive for its
//! level (`Unavailable` otherwise, before anything is sent). No allocation up to five replicas.
//!
//! A replica that joins or leaves a tablet gets its writes and is not read. It counts for a write only where
//! the level needs more answers with it than without: then they are as many as with it, so that any quorum of
//! the replicas before and any of those after have one in common. Where it would not change that number it
//! adds nothing, and its answer is one more.

use std::borrow::Cow;
use std::rc::Rc;

use cluster::Nodes;
use cluster::maps::Routing;
use cluster::nodes::NodeRecord;
use model::tablet::{NodeNumber, Replica, TabletId};
use model::{Table, Token};
use smallvec::SmallVec;

use crate::consistency::{Consistency, Scope, quorum};
use crate::error::{ReplicaFailure, ReplicationError};
use crate::peers::Speeds;
use crate::replica_counts::{Alive, ReplicaCounts};
use crate::replicator::Replicator;
use crate::tally::{NO_SHARE, Share, Tally};

/// How much slower than the quickest of equally near replicas one has to be so that it is asked last:
/// Cassandra's `dynamic_snitch_badness_threshold` of 1.0.
const BADNESS: f32 = 1.0;

/// How far a replica is: the nearest are asked first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Distance {
    /// On this shard.
    Here,
    /// On another shard of this node.
    Node,
    /// In this node's rack.
    Rack,
    /// In this node's data center.
    DataCenter,
    /// Elsewhere.
    Far,
}

/// The use of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To read: of the replicas that are whole.
    Read,
    /// To write, and to agree on what is written: also of one that joins or leaves.
    Write,
}

/// A replica of a plan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Planned {
    pub(crate) replica: Replica,
    /// The command that made it one.
    pub(crate) since: u64,
    /// The share of the level's answers in which it counts.
    pub(crate) share: Share,
    pub(crate) distance: Distance,
    /// Whether it is expected to answer.
    pub(crate) is_up: bool,
}

/// The replicas of one request.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    routing: Rc<Routing>,
    /// Answers that the level waits for.
    pub(crate) required: u32,
    /// Those of them that each share needs.
    needed: SmallVec<[u32; 3]>,
    /// The tablet's replicas, the nearest first; one that joins or leaves is the last.
    pub(crate) replicas: SmallVec<[Planned; 5]>,
    /// Whether a hint is an answer (ANY).
    pub(crate) counts_hints: bool,
}

/// The replicas of a tablet, those of them that are alive, and the factors that levels count by.
struct Laid<'c> {
    replicas: SmallVec<[Planned; 5]>,
    /// How many of them are whole; one that joins or leaves follows.
    whole: usize,
    alive: Alive,
    counts: Cow<'c, ReplicaCounts>,
}

impl Plan {
    /// The plan for a tablet of `routing`.
    ///
    /// # Errors
    /// [`ReplicationError::Unavailable`].
    pub(crate) fn new(
        replicator: &Replicator,
        table: &Table,
        (routing, tablet): (&Rc<Routing>, TabletId),
        (level, purpose): (Consistency, Purpose),
    ) -> Result<Self, ReplicationError> {
        replicator.with_counts(table, |counts| {
            let laid = Self::lay_out(replicator, counts, (routing, tablet), (level, purpose));
            let required = level.check_available(&laid.counts, &laid.alive)?;
            Ok(Self::of(routing, laid, required, level))
        })
    }

    /// The plan of a write for a tablet, whoever is alive.
    fn unchecked(
        replicator: &Replicator,
        table: &Table,
        (routing, tablet): (&Rc<Routing>, TabletId),
        level: Consistency,
    ) -> Self {
        replicator.with_counts(table, |counts| {
            let laid = Self::lay_out(replicator, counts, (routing, tablet), (level, Purpose::Write));
            let required = level.required(&laid.counts);
            Self::of(routing, laid, required, level)
        })
    }

    /// The plan of a read that all of these nodes answer, and a replica that joins or leaves, if it is up.
    ///
    /// # Errors
    /// [`ReplicationError::Unavailable`] where one of the nodes is down, and an error that names one
    /// that is no replica.
    pub(crate) fn of_all(
        replicator: &Replicator,
        (routing, tablet): (&Rc<Routing>, TabletId),
        nodes: &[NodeNumber],
    ) -> Result<Self, ReplicationError> {
        let view = replicator.view().nodes();
        let near = Near::new(replicator, &view);
        let (all, whole) = (routing.replicas(tablet), routing.whole(tablet).len());
        let missing = nodes.iter().find(|node| !all.iter().any(|replica| replica.node == **node));
        if let Some(node) = missing {
            let reason = format!("node {node} has no replica of tablet {} any more", tablet.0);
            return Err(ReplicaFailure::Failed(reason).here(1));
        }
        let mut replicas: SmallVec<[Planned; 5]> = SmallVec::new();
        for (at, (replica, since)) in all.iter().zip(routing.since(tablet)).enumerate() {
            let single = ReplicaCounts::single();
            let planned = near.find(replicator, &single, (*replica, *since), Scope::All).planned;
            let is_asked = nodes.contains(&replica.node);
            if is_asked || at >= whole && planned.is_up {
                replicas.push(planned);
            }
        }
        let required = replicas.len() as u32;
        let alive = replicas.iter().filter(|planned| planned.is_up).count() as u32;
        if alive < required || required == 0 {
            return Err(ReplicationError::Unavailable { required: required.max(1), alive });
        }
        replicas.sort_by_key(|planned| planned.distance);
        let needed = SmallVec::from_elem(required, 1);
        Ok(Self { routing: Rc::clone(routing), required, needed, replicas, counts_hints: false })
    }

    fn of(routing: &Rc<Routing>, laid: Laid<'_>, required: u32, level: Consistency) -> Self {
        let Laid { mut replicas, whole, counts, .. } = laid;
        replicas[..whole].sort_by_key(|planned| planned.distance);
        let needed = needed(required, level.scope(&counts), &counts);
        let counts_hints = level == Consistency::Any;
        Self { routing: Rc::clone(routing), required, needed, replicas, counts_hints }
    }

    /// The replicas of a tablet, and how many of them are alive.
    fn lay_out<'c>(
        replicator: &Replicator,
        counts: &'c ReplicaCounts,
        (routing, tablet): (&Rc<Routing>, TabletId),
        (level, purpose): (Consistency, Purpose),
    ) -> Laid<'c> {
        let nodes = replicator.view().nodes();
        let near = Near::new(replicator, &nodes);
        let scope = level.scope(counts);
        let none =
            Alive { each: SmallVec::from_elem(0, counts.each_data_center().count()), all: 0, local: 0 };
        let (mut alive, mut placed) = (none.clone(), none);
        let mut replicas: SmallVec<[Planned; 5]> = SmallVec::new();
        let whole = routing.whole(tablet).len();
        for (replica, since) in routing.whole(tablet).iter().zip(routing.since(tablet)) {
            let found = near.find(replicator, counts, (*replica, *since), scope);
            found.add_to(&mut placed);
            found.add_to_living(&mut alive, scope);
            replicas.push(found.planned);
        }
        let is_changing = routing.is_changing();
        let mut factors = counts.fitting(&placed, is_changing);
        if let Some(moving) = routing.replicas(tablet).get(whole)
            && purpose == Purpose::Write
        {
            let since = routing.since(tablet)[whole];
            let mut found = near.find(replicator, counts, (*moving, since), scope);
            found.add_to(&mut placed);
            let with_it = counts.fitting(&placed, is_changing);
            if is_needed(level, found.planned.share, (&factors, &with_it)) {
                found.add_to_living(&mut alive, scope);
                factors = with_it;
            } else {
                found.planned.share = NO_SHARE;
            }
            replicas.push(found.planned);
        }
        Laid { replicas, whole, alive, counts: factors }
    }

    /// The routing that it was made with: whoever keeps it holds up those who wait for its requests to end.
    pub(crate) fn routing(&self) -> &Rc<Routing> {
        &self.routing
    }

    /// The version of the routing that it was made with.
    pub(crate) fn version(&self) -> u64 {
        self.routing.version()
    }

    /// The count of its answers.
    pub(crate) fn tally(&self) -> Tally {
        Tally::new(self.required, &self.needed)
    }

    /// Whether no replica lives.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        self.replicas.iter().all(|planned| !planned.is_up)
    }

    /// Whether the answer of the nearest replica alone is enough.
    pub(crate) fn is_served_by_nearest(&self) -> bool {
        let nearest = &self.replicas[0];
        self.required == 1 && nearest.is_up && nearest.share != NO_SHARE
    }

    /// The replicas that a read asks, as many as its level needs and the nearest first, and those that may
    /// stand in for one that fails. Of equally near ones those that are slow come last.
    pub(crate) fn readers(&self, speeds: &Speeds) -> (SmallVec<[Planned; 5]>, SmallVec<[Planned; 5]>) {
        let mut left = self.needed.clone();
        let able = self.replicas.iter().filter(|planned| planned.is_up && planned.share != NO_SHARE);
        let mut able: SmallVec<[Planned; 5]> = able.copied().collect();
        for equals in able.chunk_by_mut(|a, b| a.distance == b.distance) {
            if equals.len() > 1 && equals[0].distance > Distance::Node {
                slow_last(equals, speeds);
            }
        }
        able.into_iter().partition(|planned| {
            let left = &mut left[usize::from(planned.share)];
            let is_needed = *left > 0;
            *left = left.saturating_sub(1);
            is_needed
        })
    }
}

/// A replica and the place of its data center among those that have a factor.
struct Found {
    planned: Planned,
    place: Option<usize>,
    /// Whether levels count it: one in a data center without a factor is a stopgap.
    counts_at_all: bool,
}

impl Found {
    fn add_to(&self, placed: &mut Alive) {
        if self.counts_at_all {
            placed.add(self.planned.distance < Distance::Far, self.place);
        }
    }

    fn add_to_living(&self, alive: &mut Alive, scope: Scope) {
        if self.planned.is_up && (scope != Scope::Node || self.planned.distance <= Distance::Node) {
            self.add_to(alive);
        }
    }
}

/// Whether a level needs more answers of a share with the second factors than with the first.
fn is_needed(level: Consistency, share: Share, (before, after): (&ReplicaCounts, &ReplicaCounts)) -> bool {
    let of_share = |counts: &ReplicaCounts| {
        let needed = needed(level.required(counts), level.scope(counts), counts);
        needed.get(usize::from(share)).copied()
    };
    share != NO_SHARE && of_share(before) < of_share(after)
}

impl Replicator {
    /// How many answers a write waits for in the partition of a token.
    ///
    /// # Errors
    /// [`ReplicationError::Unavailable`].
    pub(crate) fn require(
        &self,
        table: &Table,
        token: Token,
        level: Consistency,
    ) -> Result<u32, ReplicationError> {
        if self.view().is_shared() {
            return self.plan_write(table, token, level).map(|plan| plan.required);
        }
        self.required_alone(table, level)
    }

    /// The plan of a read for a token.
    ///
    /// # Errors
    /// [`ReplicationError::Unavailable`].
    pub(crate) fn plan(
        &self,
        table: &Table,
        token: Token,
        level: Consistency,
    ) -> Result<Plan, ReplicationError> {
        let routing = self.routing(table);
        let tablet = routing.tablets().tablet_of(token);
        Plan::new(self, table, (&routing, tablet), (level, Purpose::Read))
    }

    /// All replicas of a token, whoever is alive.
    pub(crate) fn plan_unchecked(&self, table: &Table, token: Token) -> Plan {
        let routing = self.routing(table);
        let tablet = routing.tablets().tablet_of(token);
        Plan::unchecked(self, table, (&routing, tablet), Consistency::Any)
    }

    /// The plan of a write, and of an agreement on one. At ANY a hint is an answer, so that no replica has to
    /// be alive where one may get a hint.
    ///
    /// # Errors
    /// [`ReplicationError::Unavailable`].
    pub(crate) fn plan_write(
        &self,
        table: &Table,
        token: Token,
        level: Consistency,
    ) -> Result<Plan, ReplicationError> {
        let routing = self.routing(table);
        let tablet = routing.tablets().tablet_of(token);
        match Plan::new(self, table, (&routing, tablet), (level, Purpose::Write)) {
            Err(ReplicationError::Unavailable { .. })
                if level == Consistency::Any && self.leaves_hints_for(table) =>
            {
                Ok(self.plan_unchecked(table, token))
            }
            planned => planned,
        }
    }
}

/// Puts replicas that are much slower than the quickest behind the others. The rest keeps its order, so that
/// small differences move no reads.
fn slow_last(equals: &mut [Planned], speeds: &Speeds) {
    let now = reactor::coarse_now();
    let scores: SmallVec<[(NodeNumber, f32); 5]> = equals
        .iter()
        .map(|planned| (planned.replica.node, speeds.score(planned.replica.node, now)))
        .collect();
    let most = scores.iter().map(|(_, score)| *score).fold(f32::INFINITY, f32::min) * (1.0 + BADNESS);
    if scores.iter().all(|(_, score)| *score <= most) {
        return;
    }
    let slowness = |planned: &Planned| {
        let score = scores.iter().find(|(node, _)| *node == planned.replica.node);
        score.map_or(0.0, |(_, score)| if *score > most { *score } else { 0.0 })
    };
    equals.sort_by(|a, b| slowness(a).total_cmp(&slowness(b)));
}

/// How many answers each share needs.
fn needed(required: u32, scope: Scope, counts: &ReplicaCounts) -> SmallVec<[u32; 3]> {
    match scope {
        Scope::All | Scope::Local | Scope::Node => SmallVec::from_elem(required, 1),
        Scope::Each => counts.each_data_center().map(|(_, factor)| quorum(factor)).collect(),
    }
}

/// This node's place among the nodes.
struct Near<'n> {
    nodes: &'n Nodes,
    own: Replica,
    data_center: &'n str,
    rack: Option<&'n str>,
}

impl<'n> Near<'n> {
    fn new(replicator: &'n Replicator, nodes: &'n Nodes) -> Self {
        let own = replicator.own();
        let rack = nodes.get(&own.node).map(|node| node.rack.as_str());
        Self { nodes, own, data_center: replicator.data_center(), rack }
    }

    /// A replica as a plan has it.
    fn find(
        &self,
        replicator: &Replicator,
        counts: &ReplicaCounts,
        (replica, since): (Replica, u64),
        scope: Scope,
    ) -> Found {
        let is_own = replica.node == self.own.node;
        let node = if is_own { None } else { self.nodes.get(&replica.node) };
        let replica = place_of(replica, node);
        let distance = match is_own {
            true if replica == self.own => Distance::Here,
            true => Distance::Node,
            false => self.distance_of(node),
        };
        let is_up = distance <= Distance::Node || replicator.peers().is_up(replica);
        // Empty for a node of which nothing is known.
        let data_center = node.map_or("", |node| &node.data_center);
        let place = counts.place_of(if is_own { self.data_center } else { data_center });
        let counts_at_all = counts.is_simple() || place.is_some();
        let is_local = distance < Distance::Far;
        let share = match scope {
            _ if !counts_at_all => NO_SHARE,
            Scope::All => 0,
            Scope::Local if is_local => 0,
            Scope::Node if distance <= Distance::Node => 0,
            Scope::Local | Scope::Node => NO_SHARE,
            Scope::Each => place.map_or(NO_SHARE, |place| place as Share),
        };
        Found { planned: Planned { replica, since, share, distance, is_up }, place, counts_at_all }
    }

    /// How far another node is; `None` is one of which nothing is known.
    fn distance_of(&self, node: Option<&NodeRecord>) -> Distance {
        match node {
            Some(node) if node.data_center != self.data_center => Distance::Far,
            Some(node) if self.rack == Some(&node.rack) => Distance::Rack,
            Some(_) => Distance::DataCenter,
            None => Distance::Far,
        }
    }
}

/// The place of a replica on another node at that node's present start: one on a shard that this start has
/// not is on a remaining one, until the map is changed.
fn place_of(replica: Replica, node: Option<&NodeRecord>) -> Replica {
    match node {
        Some(node) if node.shards > 0 => Replica { shard: replica.shard % node.shards, ..replica },
        _ => replica,
    }
}
