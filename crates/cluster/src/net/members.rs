//! The members of the cluster, as group 0 has them and as far as the transport needs to know.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use wire::node::hello::Uuid;

use crate::NodeNumber;
use crate::handshake::Recorded;

/// A member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub node: NodeNumber,
    /// Its host id.
    pub host_id: Uuid,
    /// Where it was when it last told group 0.
    pub address: SocketAddr,
    /// How many shards it had then.
    pub shards: u16,
    /// How often its data directory had been started then.
    pub generation: u64,
    /// Its data center.
    pub data_center: String,
    /// Its rack.
    pub rack: String,
}

/// The members and what else decides who may talk to this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    members: BTreeMap<NodeNumber, Member>,
    by_host: BTreeMap<Uuid, NodeNumber>,
    /// Host ids that were removed.
    pub banned: BTreeSet<Uuid>,
    /// Names of the features that the cluster has enabled.
    pub enabled: Vec<String>,
    /// The highest number that was given to a node, also to one that was removed since.
    pub numbered_to: NodeNumber,
}

impl Members {
    /// The members, this node among them; the highest of their numbers is the highest that was given.
    ///
    /// # Panics
    /// If two of them have one number or host id: group 0 gives each once.
    pub fn new(members: Vec<Member>, banned: BTreeSet<Uuid>, enabled: Vec<String>) -> Self {
        let count = members.len();
        let by_host: BTreeMap<_, _> = members.iter().map(|member| (member.host_id, member.node)).collect();
        let members: BTreeMap<_, _> = members.into_iter().map(|member| (member.node, member)).collect();
        assert!(
            (members.len(), by_host.len()) == (count, count),
            "{count} members have {} numbers and {} host ids",
            members.len(),
            by_host.len()
        );
        let numbered_to = members.keys().last().copied().unwrap_or(0);
        Self { members, by_host, banned, enabled, numbered_to }
    }

    /// A member by its number.
    pub fn get(&self, node: NodeNumber) -> Option<&Member> {
        self.members.get(&node)
    }

    /// A member by its host id.
    pub fn of(&self, host_id: &Uuid) -> Option<&Member> {
        self.get(*self.by_host.get(host_id)?)
    }

    /// All of them, by number.
    pub fn all(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    /// Whether there are none: this node is in no cluster yet.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// What a first message of a host is held against.
    pub(super) fn recorded(&self, host_id: &Uuid) -> Option<Recorded> {
        let Member { node, generation, data_center, rack, .. } = self.of(host_id)?.clone();
        Some(Recorded { node, generation, data_center, rack })
    }
}
