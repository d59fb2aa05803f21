//! The nodes of a cluster, as they agreed upon them.
//!
//! A node has a number within its cluster, which is given once and never again to another, and a host id,
//! which lives and dies with its data directory. Addresses are facts that change; nothing is known by them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use minicbor::{Decode, Encode};
use model::tablet::NodeNumber;

/// A node's part in its cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum NodeState {
    /// It takes part in what is agreed upon and has no data yet.
    #[n(0)]
    Joining,
    /// It has data, or can get some.
    #[default]
    #[n(1)]
    Normal,
    /// It gives its data away and will leave.
    #[n(2)]
    Draining,
    /// It is gone for ever.
    #[n(3)]
    Left,
}

/// What the nodes know of one node.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct NodeRecord {
    /// Its number.
    #[n(0)]
    pub number: NodeNumber,
    /// Its host id, a UUID.
    #[n(1)]
    #[cbor(with = "minicbor::bytes")]
    pub host_id: [u8; 16],
    /// Its data center.
    #[n(2)]
    pub data_center: String,
    /// Its rack.
    #[n(3)]
    pub rack: String,
    /// Where other nodes reach it.
    #[n(4)]
    pub listen: SocketAddr,
    /// Where clients reach it.
    #[n(5)]
    pub native: SocketAddr,
    /// How many shards it had at its last start.
    #[n(6)]
    pub shards: u16,
    /// Its part.
    #[n(7)]
    pub state: NodeState,
    /// The version of its program.
    #[n(8)]
    pub version: String,
    /// The tokens it shows to drivers, ascending.
    #[n(9)]
    pub tokens: Vec<i64>,
    /// How often its data directory had been started at its last start.
    #[n(10)]
    pub generation: u64,
}

impl Default for NodeRecord {
    /// A node about which nothing is known yet.
    fn default() -> Self {
        let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        Self {
            number: 0,
            host_id: [0; 16],
            data_center: String::new(),
            rack: String::new(),
            listen: nowhere,
            native: nowhere,
            shards: 1,
            state: NodeState::default(),
            version: String::new(),
            tokens: Vec::new(),
            generation: 0,
        }
    }
}

/// What a node says of itself at a start.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct OwnFacts {
    /// Its host id, a UUID.
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    pub host_id: [u8; 16],
    /// Its data center.
    #[n(1)]
    pub data_center: String,
    /// Its rack.
    #[n(2)]
    pub rack: String,
    /// Where other nodes reach it.
    #[n(3)]
    pub listen: SocketAddr,
    /// Where clients reach it.
    #[n(4)]
    pub native: SocketAddr,
    /// How many shards it has.
    #[n(5)]
    pub shards: u16,
    /// The version of its program.
    #[n(6)]
    pub version: String,
    /// How often its data directory was started; 0 for a node without a network, which does not count.
    #[n(7)]
    pub generation: u64,
}

impl OwnFacts {
    /// Facts of a node that nobody else will meet: for tests and benches.
    pub fn unnamed(shards: usize) -> Self {
        let record = NodeRecord::default();
        Self {
            host_id: [1; 16],
            data_center: "datacenter1".to_owned(),
            rack: "rack1".to_owned(),
            listen: record.listen,
            native: record.native,
            shards: u16::try_from(shards).expect("a node has fewer than 2^16 shards"),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            generation: 0,
        }
    }
}

impl NodeRecord {
    /// Takes over what the node says of itself. Returns whether anything is new.
    pub(crate) fn update(&mut self, facts: &OwnFacts) -> bool {
        let before = self.clone();
        let OwnFacts { host_id, data_center, rack, listen, native, shards, version, generation } =
            facts.clone();
        *self = Self {
            number: self.number,
            host_id,
            data_center,
            rack,
            listen,
            native,
            shards,
            state: self.state,
            version,
            tokens: std::mem::take(&mut self.tokens),
            generation,
        };
        *self != before
    }
}
