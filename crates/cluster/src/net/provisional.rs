//! Members of the cluster that this node's own state does not name yet, on shard 0.
//!
//! A node that was cut off may come back under a leader that joined meanwhile: only the leader's messages
//! tell it that the leader is a member. So a node of the same cluster whose number and host id are both new
//! may hand over messages of group 0, and is reached for answers to them, until the state names it. Nothing
//! else is served to it. Invariants: at most [`PROVISIONAL_MAX`] places; a place never belongs to a number or
//! a host id that the state knows; the state decides as soon as it names either. `door` keeps the places,
//! `serve` asks for one with each message, `reach` finds the address.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use reactor::Instant;
use wire::node::hello::{Hello, Uuid};

use super::members::Members;
use crate::NodeNumber;

/// Places.
pub(super) const PROVISIONAL_MAX: usize = 16;
/// A place is taken from a node that sent no message of group 0 for this long, if another one needs it: the
/// end of a connection with a node that vanished may never be noticed.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// A node's word that it is a member, from its first message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) cluster_id: Uuid,
    pub(super) node: NodeNumber,
    pub(super) host_id: Uuid,
    pub(super) address: SocketAddr,
}

impl Claim {
    /// The claim in a first message; `None` for a node that calls itself no member or has no address.
    pub(super) fn of(hello: &Hello) -> Option<Self> {
        let (cluster_id, address) = (hello.cluster_id?, hello.address.parse().ok()?);
        let Hello { node, host_id, .. } = *hello;
        (node != 0).then_some(Self { cluster_id, node, host_id, address })
    }

    /// Whether the state knows nothing of its number and its host id.
    fn is_new(&self, members: &Members) -> bool {
        let is_known = members.of(&self.host_id).is_some() || members.banned.contains(&self.host_id);
        // Without members this node does not know its own state yet.
        !members.is_empty() && self.node > members.numbered_to && !is_known
    }

    /// Whether the state names this host id as the member of this number.
    fn is_right(&self, members: &Members) -> bool {
        members.get(self.node).is_some_and(|member| member.host_id == self.host_id)
    }

    /// Whether the state contradicts it: the number or the host id is another member's, or a former one's.
    pub(super) fn is_wrong(&self, members: &Members) -> bool {
        !members.is_empty() && !self.is_right(members) && !self.is_new(members)
    }
}

/// A node with a place.
#[derive(Debug, Clone, Copy)]
struct Peer {
    claim: Claim,
    /// When its last message of group 0 came.
    heard: Instant,
}

/// An answer to a node that needs a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// It has none.
    Refused,
    /// It has had one.
    Held,
    /// It has one now, and the node of this number has lost its own.
    Given { displaced: Option<NodeNumber> },
}

/// The places, by the numbers that their nodes claim.
#[derive(Debug, Default)]
pub(super) struct Provisional(BTreeMap<NodeNumber, Peer>);

impl Provisional {
    /// The claim of the node that has a place under this number.
    pub(super) fn get(&self, node: NodeNumber) -> Option<&Claim> {
        self.0.get(&node).map(|peer| &peer.claim)
    }

    /// Gives a node a place, or notes that the one with a place was heard.
    pub(super) fn take(&mut self, claim: &Claim, members: &Members, now: Instant) -> Place {
        if !claim.is_new(members) {
            return Place::Refused;
        }
        let peer = Peer { claim: *claim, heard: now };
        if let Some(held) = self.0.get_mut(&claim.node) {
            if held.claim.host_id != claim.host_id {
                return Place::Refused;
            }
            // A later start of the node may have another address.
            *held = peer;
            return Place::Held;
        }
        if self.0.values().any(|other| other.claim.host_id == claim.host_id) {
            return Place::Refused;
        }
        let mut displaced = None;
        if self.0.len() >= PROVISIONAL_MAX {
            let silent = self.0.values().min_by_key(|peer| peer.heard).expect("all places are taken");
            if now.since(silent.heard) < SILENCE_MAX {
                return Place::Refused;
            }
            let node = silent.claim.node;
            self.0.remove(&node);
            displaced = Some(node);
        }
        self.0.insert(claim.node, peer);
        Place::Given { displaced }
    }

    /// Takes the place of a host whose connections have ended; its number.
    pub(super) fn leave(&mut self, host_id: &Uuid) -> Option<NodeNumber> {
        let node = self.0.values().find(|peer| peer.claim.host_id == *host_id)?.claim.node;
        self.0.remove(&node);
        Some(node)
    }

    /// Lets go of the nodes that the state names or bans; the numbers of those that are no members.
    pub(super) fn follow(&mut self, members: &Members) -> Vec<NodeNumber> {
        let decided = self.0.extract_if(.., |_, peer| !peer.claim.is_new(members));
        let claims = decided.map(|(_, peer)| peer.claim);
        claims.filter(|claim| !claim.is_right(members)).map(|claim| claim.node).collect()
    }
}

#[cfg(test)]
mod tests;
