//! This node's opinion of the others: facts and times in, changes out. Pure.
//!
//! A ping that was answered is evidence that the node was alive when the ping was sent. A node is up from its
//! first answer on, and down [`SILENCE_MAX`] after the last ping that was answered, or at once where its
//! machine says that nobody listens. Invariant: no node is up for longer than [`SILENCE_MAX`] (and the time
//! to the next [`Opinion::tick`]) after its last evidence; one that went down twice within [`FLAP_TIME`] is
//! up again only after [`GOOD_TIME`] of answers without a gap.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use reactor::Instant;
use wire::node::control::Pong;

use crate::NodeNumber;

/// A node without evidence for so long is down.
pub const SILENCE_MAX: Duration = Duration::from_secs(2);
/// Two ends within this time make a node that flaps.
pub const FLAP_TIME: Duration = Duration::from_secs(60);
/// How long a node that flaps has to answer before it is up again.
pub const GOOD_TIME: Duration = Duration::from_secs(10);

/// How far a clock is off, certainly: beyond what the round trip leaves open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Skew {
    /// At most 100 ms.
    Small,
    /// More than 100 ms.
    Noticeable,
    /// More than 1 s: operators are warned.
    Large,
    /// More than 5 s: the node may not coordinate what depends on clocks.
    Excessive,
}

impl Skew {
    /// The level of a skew that is known up to `uncertain_us`.
    fn of(skew_us: i64, uncertain_us: u64) -> Self {
        match skew_us.unsigned_abs().saturating_sub(uncertain_us) {
            0..=100_000 => Self::Small,
            100_001..=1_000_000 => Self::Noticeable,
            1_000_001..=5_000_000 => Self::Large,
            _ => Self::Excessive,
        }
    }
}

/// Why a node is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DownCause {
    /// It did not answer for [`SILENCE_MAX`].
    Silence,
    /// Its machine says that nobody listens.
    Refused,
}

/// A change of the opinion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The node is up.
    Up {
        /// Which.
        node: NodeNumber,
    },
    /// The node is down.
    Down {
        /// Which.
        node: NodeNumber,
        /// Why.
        cause: DownCause,
    },
    /// A shard of a node has stalled, or goes on; its node is up.
    Stalled {
        /// The node.
        node: NodeNumber,
        /// The shard.
        shard: u16,
        /// Whether it stands still.
        is_stalled: bool,
    },
    /// A node that is up opened or closed its port for clients. It is closed when the node comes up; a node
    /// that started again before it was missed closes it and opens it.
    Clients {
        /// The node.
        node: NodeNumber,
        /// Whether the port is open.
        is_served: bool,
    },
    /// A node's clock is off by another level than before.
    Clock {
        /// The node.
        node: NodeNumber,
        /// The level.
        skew: Skew,
        /// By how much it is ahead of this node's, microseconds.
        skew_us: i64,
    },
}

/// What is known of one node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeView {
    /// Whether it is up.
    pub is_up: bool,
    /// Since when it is up or down; `None` for one that was never up.
    pub since: Option<Instant>,
    /// Its last answer.
    pub pong: Option<Pong>,
    /// By how much its clock is ahead of this node's, microseconds.
    pub skew_us: i64,
    /// The level of that.
    pub skew: Skew,
    /// When the last ping that it answered was sent.
    evidence: Option<Instant>,
    /// Since when all pings were answered.
    good_since: Option<Instant>,
    last_downs: [Option<Instant>; 2],
    /// Whether it has to answer for [`GOOD_TIME`] before it is up.
    is_damped: bool,
}

impl NodeView {
    fn new() -> Self {
        Self {
            is_up: false,
            since: None,
            pong: None,
            skew_us: 0,
            skew: Skew::Small,
            evidence: None,
            good_since: None,
            last_downs: [None, None],
            is_damped: false,
        }
    }

    /// Whether a shard of it stands still. A node that is down has no shard that does.
    pub fn is_stalled(&self, shard: u16) -> bool {
        self.is_up && self.pong.as_ref().is_some_and(|pong| pong.is_stalled(shard.into()))
    }

    fn goes_down(&mut self, now: Instant) {
        self.is_up = false;
        self.since = Some(now);
        self.good_since = None;
        self.last_downs = [self.last_downs[1], Some(now)];
        self.is_damped = self.last_downs[0].is_some_and(|before| now.since(before) <= FLAP_TIME);
    }
}

/// An answer to a ping, with this node's clocks.
#[derive(Debug, Clone, PartialEq)]
pub struct Answered {
    /// When the ping was sent, and when the answer came.
    pub sent: Instant,
    /// When the answer came.
    pub received: Instant,
    /// This node's wall clock when the answer came, microseconds since 1970.
    pub wall_us: i64,
    /// The answer.
    pub pong: Pong,
}

/// The opinion of one node.
#[derive(Debug, Default)]
pub struct Opinion {
    nodes: BTreeMap<NodeNumber, NodeView>,
}

impl Opinion {
    /// The nodes that it is about. New ones are down until they answer.
    pub fn set_nodes(&mut self, nodes: &BTreeSet<NodeNumber>) {
        self.nodes.retain(|node, _| nodes.contains(node));
        for node in nodes {
            self.nodes.entry(*node).or_insert_with(NodeView::new);
        }
    }

    /// What is known of a node.
    pub fn view(&self, node: NodeNumber) -> Option<&NodeView> {
        self.nodes.get(&node)
    }

    /// What is known of all.
    pub fn views(&self) -> impl Iterator<Item = (NodeNumber, &NodeView)> {
        self.nodes.iter().map(|(node, view)| (*node, view))
    }

    /// A ping was answered.
    pub fn answered(&mut self, node: NodeNumber, answer: Answered, changes: &mut Vec<Change>) {
        let Some(view) = self.nodes.get_mut(&node) else { return };
        let Answered { sent, received, wall_us, pong } = answer;
        // Answers of several pings may overtake each other, and an earlier process may answer late.
        let is_newer = view.evidence.is_none_or(|evidence| evidence <= sent);
        let is_of_now = view.pong.as_ref().is_none_or(|before| before.generation <= pong.generation);
        if !is_newer || !is_of_now {
            return;
        }
        view.evidence = Some(sent);
        let good_since = *view.good_since.get_or_insert(sent);
        let was_up = view.is_up;
        let is_fresh = received.since(sent) <= SILENCE_MAX;
        if !view.is_up && is_fresh && (!view.is_damped || sent.since(good_since) >= GOOD_TIME) {
            view.is_up = true;
            view.since = Some(received);
            view.is_damped = false;
            changes.push(Change::Up { node });
        }
        let trip_us = received.since(sent).as_micros() as u64;
        view.skew_us = pong.clock_us.saturating_sub(wall_us.saturating_sub(trip_us as i64 / 2));
        let skew = Skew::of(view.skew_us, trip_us / 2);
        if skew != view.skew {
            view.skew = skew;
            changes.push(Change::Clock { node, skew, skew_us: view.skew_us });
        }
        let before = view.pong.replace(pong);
        if view.is_up {
            // While it was down, nobody was told of its shards and of its port for clients.
            let before = before.filter(|_| was_up);
            stalls(node, before.as_ref(), view.pong.as_ref(), changes);
            clients(node, before.as_ref(), view.pong.as_ref(), changes);
        }
    }

    /// A ping was not answered in its time, or its connection broke.
    pub fn missed(&mut self, node: NodeNumber) {
        if let Some(view) = self.nodes.get_mut(&node) {
            view.good_since = None;
        }
    }

    /// The node's machine refuses connections: nobody listens there.
    pub fn refused(&mut self, node: NodeNumber, now: Instant, changes: &mut Vec<Change>) {
        let Some(view) = self.nodes.get_mut(&node) else { return };
        view.good_since = None;
        if view.is_up {
            view.goes_down(now);
            changes.push(Change::Down { node, cause: DownCause::Refused });
        }
    }

    /// Time has passed. For the part `stood_still` of it this node did not run, so that it tells nothing of
    /// others that they did not answer then.
    pub fn tick(&mut self, now: Instant, stood_still: Duration, changes: &mut Vec<Change>) {
        for (node, view) in &mut self.nodes {
            view.evidence = view.evidence.map(|evidence| (evidence + stood_still).min(now));
            let is_silent = view.evidence.is_none_or(|evidence| now.since(evidence) > SILENCE_MAX);
            if is_silent {
                view.good_since = None;
            }
            if is_silent && view.is_up {
                view.goes_down(now);
                changes.push(Change::Down { node: *node, cause: DownCause::Silence });
            }
        }
    }
}

/// The shards whose state differs between two answers.
fn stalls(node: NodeNumber, before: Option<&Pong>, after: Option<&Pong>, changes: &mut Vec<Change>) {
    let bytes = |pong: Option<&Pong>| pong.map_or(0, |pong| pong.stalled.len());
    let shards = 8 * bytes(before).max(bytes(after));
    let is_in = |pong: Option<&Pong>, shard: usize| pong.is_some_and(|pong| pong.is_stalled(shard));
    for shard in 0..shards {
        let is_stalled = is_in(after, shard);
        if is_stalled != is_in(before, shard) {
            changes.push(Change::Stalled { node, shard: shard as u16, is_stalled });
        }
    }
}

/// Whether the port for clients opened or closed between two answers. One that started again in between has
/// closed the connections of its clients, who may have taken it for down: they have to hear that it is up.
fn clients(node: NodeNumber, before: Option<&Pong>, after: Option<&Pong>, changes: &mut Vec<Change>) {
    let served = |pong: Option<&Pong>| pong.is_some_and(|pong| pong.serves_clients);
    let generation = |pong: Option<&Pong>| pong.map(|pong| pong.generation);
    let has_started_again = generation(before) < generation(after);
    if served(before) && (has_started_again || !served(after)) {
        changes.push(Change::Clients { node, is_served: false });
    }
    if served(after) && (has_started_again || !served(before)) {
        changes.push(Change::Clients { node, is_served: true });
    }
}

#[cfg(test)]
#[path = "opinion_tests.rs"]
mod tests;
