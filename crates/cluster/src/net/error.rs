//! Why a call to another node has no answer, and whether it may have been done.

use std::fmt;
use std::net::SocketAddr;

use wire::node::fault::Fault;

use crate::NodeNumber;
use crate::handshake::Refusal;

/// The other end of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerName {
    /// A member of the cluster.
    Node(NodeNumber),
    /// A node of which only the address is known.
    Address(SocketAddr),
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "node {node}"),
            Self::Address(address) => write!(f, "the node at {address}"),
        }
    }
}

/// A call without an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetError {
    /// There is no member of that number.
    #[error("node {node} is no member of the cluster")]
    UnknownNode {
        /// The number.
        node: NodeNumber,
    },
    /// The node has fewer shards.
    #[error("{peer} has {shards} shards: there is no shard {shard}")]
    UnknownShard {
        /// The node.
        peer: PeerName,
        /// The shard that was meant.
        shard: u16,
        /// How many there are.
        shards: u16,
    },
    /// No connection could be made, now or a moment ago.
    #[error("{peer} cannot be reached: {reason}")]
    Unreachable {
        /// The node.
        peer: PeerName,
        /// Why.
        reason: String,
        /// Whether its machine says that nobody listens there.
        is_refused: bool,
    },
    /// This node does not talk to that one.
    #[error("{peer} is refused: {refusal}")]
    Refused {
        /// The node.
        peer: PeerName,
        /// Why; boxed, because it is longer than all else.
        refusal: Box<Refusal>,
    },
    /// That node does not talk to this one.
    #[error("{peer} refuses this node: {reason}")]
    RefusedBy {
        /// The node.
        peer: PeerName,
        /// Its words.
        reason: String,
    },
    /// Too many calls wait for the connection.
    #[error("{waiting} calls to {peer} wait already")]
    TooManyWaiting {
        /// The node.
        peer: PeerName,
        /// How many.
        waiting: usize,
    },
    /// The time is over.
    #[error("{peer} did not answer in time{}", if *.sent { "" } else { ": the request was not sent" })]
    TimedOut {
        /// The node.
        peer: PeerName,
        /// Whether the request had been handed to the connection.
        sent: bool,
    },
    /// The connection broke while the answer was awaited.
    #[error("the connection to {peer} broke: {reason}")]
    Lost {
        /// The node.
        peer: PeerName,
        /// Why.
        reason: String,
    },
    /// The node answered that it has no answer.
    #[error("{peer}: {fault}")]
    Fault {
        /// The node.
        peer: PeerName,
        /// Its words.
        fault: Fault,
    },
    /// The request is longer than a node takes.
    #[error("a request of {bytes} bytes is longer than the limit of {limit}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Parts of the answer came faster than they were taken.
    #[error("{peer} sent more than {limit} bytes of an answer that nobody took")]
    Flooded {
        /// The node.
        peer: PeerName,
        /// The most that is kept.
        limit: usize,
    },
    /// The transport of this node, or of one of its shards, is not open.
    #[error("the transport between nodes is not open on this shard")]
    NotOpen,
}

impl NetError {
    /// Whether the request was certainly not done.
    pub fn is_definite(&self) -> bool {
        match self {
            Self::UnknownNode { .. }
            | Self::UnknownShard { .. }
            | Self::Unreachable { .. }
            | Self::Refused { .. }
            | Self::RefusedBy { .. }
            | Self::TooManyWaiting { .. }
            | Self::TooLong { .. }
            | Self::NotOpen => true,
            Self::TimedOut { sent, .. } => !sent,
            Self::Fault { fault, .. } => fault.is_definite(),
            Self::Lost { .. } | Self::Flooded { .. } => false,
        }
    }
}
