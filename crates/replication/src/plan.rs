//! The replicas of one request: those of one tablet at one version of its routing, and which of them count.
//!
//! A plan holds the version of the routing that it was made with until its request is answered; work that
//! goes on behind the answer does not. Invariant: a plan exists only where enough replicas were alive for its
//! level (`Unavailable` otherwise, before anything is sent). No allocation up to five replicas.

use std::borrow::Cow;
use std::rc::Rc;

use cluster::Nodes;
use cluster::maps::Routing;
use model::tablet::{NodeNumber, Replica, TabletId};
use model::{Table, Token};
use smallvec::SmallVec;

use crate::consistency::{Consistency, Scope, quorum};
use crate::error::ReplicationError;
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
    /// All of the tablet's replicas, the nearest first.
    pub(crate) replicas: SmallVec<[Planned; 5]>,
    /// Whether a hint is an answer (ANY).
    pub(crate) counts_hints: bool,
}

/// The replicas of a tablet, those of them that are alive, and the factors that levels count by.
struct Laid<'c> {
    replicas: SmallVec<[Planned; 5]>,
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
        level: Consistency,
    ) -> Result<Self, ReplicationError> {
        replicator.with_counts(table, |counts| {
            let laid = Self::lay_out(replicator, counts, (routing, tablet), level);
            let required = level.check_available(&laid.counts, &laid.alive)?;
            Ok(Self::of(routing, laid, required, level))
        })
    }

    /// The plan for a tablet, whoever is alive.
    fn unchecked(
        replicator: &Replicator,
        table: &Table,
        (routing, tablet): (&Rc<Routing>, TabletId),
        level: Consistency,
    ) -> Self {
        replicator.with_counts(table, |counts| {
            let laid = Self::lay_out(replicator, counts, (routing, tablet), level);
            let required = level.required(&laid.counts);
            Self::of(routing, laid, required, level)
        })
    }

    fn of(routing: &Rc<Routing>, laid: Laid<'_>, required: u32, level: Consistency) -> Self {
        let Laid { mut replicas, counts, .. } = laid;
        replicas.sort_by_key(|planned| planned.distance);
        let needed = needed(required, level.scope(&counts), &counts);
        let counts_hints = level == Consistency::Any;
        Self { routing: Rc::clone(routing), required, needed, replicas, counts_hints }
    }

    /// The replicas of a tablet, and how many of them are alive.
    fn lay_out<'c>(
        replicator: &Replicator,
        counts: &'c ReplicaCounts,
        (routing, tablet): (&Rc<Routing>, TabletId),
        level: Consistency,
    ) -> Laid<'c> {
        let nodes = replicator.view().nodes();
        let near = Near::new(replicator, &nodes);
        let scope = level.scope(counts);
        let none =
            Alive { each: SmallVec::from_elem(0, counts.each_data_center().count()), all: 0, local: 0 };
        let (mut alive, mut placed) = (none.clone(), none);
        let mut replicas: SmallVec<[Planned; 5]> = SmallVec::new();
        for (replica, since) in routing.replicas(tablet).iter().zip(routing.since(tablet)) {
            let replica = &near.place_of(*replica);
            let data_center = near.data_center_of(*replica);
            let distance = near.distance_of(*replica);
            let is_up = distance <= Distance::Node || replicator.peers().is_up(*replica);
            let place = counts.place_of(data_center);
            // A replica in a data center without a factor is a stopgap that no level counts.
            let counts_at_all = counts.is_simple() || place.is_some();
            let is_local = distance < Distance::Far;
            if counts_at_all {
                placed.add(is_local, place);
                if is_up && (scope != Scope::Node || distance <= Distance::Node) {
                    alive.add(is_local, place);
                }
            }
            let share = match scope {
                _ if !counts_at_all => NO_SHARE,
                Scope::All => 0,
                Scope::Local if is_local => 0,
                Scope::Node if distance <= Distance::Node => 0,
                Scope::Local | Scope::Node => NO_SHARE,
                Scope::Each => place.map_or(NO_SHARE, |place| place as Share),
            };
            replicas.push(Planned { replica: *replica, since: *since, share, distance, is_up });
        }
        // While there are more replicas than the keyspace has factors now, majorities are of those.
        let counts = counts.raised_to(&placed).map_or(Cow::Borrowed(counts), Cow::Owned);
        Laid { replicas, alive, counts }
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

impl Replicator {
    /// How many answers a level waits for in the partition of a token.
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
            return self.plan(table, token, level).map(|plan| plan.required);
        }
        self.required_alone(table, level)
    }

    /// The plan of a request for a token.
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
        Plan::new(self, table, (&routing, tablet), level)
    }

    /// All replicas of a token, whoever is alive.
    pub(crate) fn plan_unchecked(&self, table: &Table, token: Token) -> Plan {
        let routing = self.routing(table);
        let tablet = routing.tablets().tablet_of(token);
        Plan::unchecked(self, table, (&routing, tablet), Consistency::Any)
    }

    /// The plan of a write. At ANY a hint is an answer, so that no replica has to be alive where one may get
    /// a hint.
    ///
    /// # Errors
    /// [`ReplicationError::Unavailable`].
    pub(crate) fn plan_write(
        &self,
        table: &Table,
        token: Token,
        level: Consistency,
    ) -> Result<Plan, ReplicationError> {
        let planned = self.plan(table, token, level);
        match planned {
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

    /// The data center of a replica; empty for a node of which nothing is known.
    fn data_center_of(&self, replica: Replica) -> &str {
        if replica.node == self.own.node {
            return self.data_center;
        }
        self.nodes.get(&replica.node).map_or("", |node| node.data_center.as_str())
    }

    /// Where a replica is at its node's present start: one on a shard that this start has not is on a
    /// remaining one, until the map is changed.
    fn place_of(&self, replica: Replica) -> Replica {
        let Some(node) = self.nodes.get(&replica.node) else { return replica };
        if replica.node == self.own.node || node.shards == 0 {
            return replica;
        }
        Replica { shard: replica.shard % node.shards, ..replica }
    }

    fn distance_of(&self, replica: Replica) -> Distance {
        if replica == self.own {
            return Distance::Here;
        }
        if replica.node == self.own.node {
            return Distance::Node;
        }
        match self.nodes.get(&replica.node) {
            Some(node) if node.data_center == self.data_center => {
                if self.rack == Some(&node.rack) {
                    Distance::Rack
                } else {
                    Distance::DataCenter
                }
            }
            _ => Distance::Far,
        }
    }
}
