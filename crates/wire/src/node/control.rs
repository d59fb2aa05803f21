//! Messages of the control connection: liveness, joining, and questions to the leader.
//!
//! All are CBOR with numbered fields, because nodes of other versions read them, but for the body of
//! [`Verb::Raft`](super::frame::Verb::Raft), which is the consensus library's message and opaque here.

use minicbor::{Decode, Encode};

use super::hello::{Heard, Uuid};
use super::{NodeError, cbor};

/// Longest command, and longest outcome of one.
pub const COMMAND_BYTES_MAX: usize = 16 << 20;
/// Longest answer to a join, with the state of the control plane.
pub const SNAPSHOT_BYTES_MAX: usize = 64 << 20;
/// Shards that a node may have, so that a bitmap of them is bounded.
pub const SHARDS_MAX: usize = 1 << 10;
/// Places that one message may pass on.
pub const HEARD_MAX: usize = 64;

macro_rules! message {
    ($type:ty, $name:literal, $bytes_max:expr) => {
        impl $type {
            /// Appends the message.
            pub fn encode(&self, out: &mut Vec<u8>) {
                cbor::encode(self, out);
            }

            /// Reads a message.
            ///
            /// # Errors
            /// [`NodeError`] for bytes that are not exactly one message within its limits.
            pub fn decode(message: &[u8]) -> Result<Self, NodeError> {
                let decoded: Self = cbor::decode(message, $bytes_max, $name)?;
                decoded.check()?;
                Ok(decoded)
            }
        }
    };
}

/// Asks whether the receiver is alive.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Ping {
    /// How often the sender's data directory was started.
    #[n(0)]
    pub generation: u64,
    /// Addresses that the sender passes on.
    #[n(1)]
    pub heard: Vec<Heard>,
}

/// What a node says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum NodeState {
    /// It starts: it serves nobody yet.
    #[n(0)]
    Starting,
    /// It serves.
    #[n(1)]
    Normal,
    /// It ends, or leaves.
    #[n(2)]
    Draining,
}

/// The state of the control plane at an index where nodes compare it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct StateHash {
    /// The index.
    #[n(0)]
    pub index: u64,
    /// A hash of the state after the command there.
    #[n(1)]
    pub hash: u64,
}

/// The answer to a ping.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Pong {
    /// How often the node's data directory was started.
    #[n(0)]
    pub generation: u64,
    /// Its state.
    #[n(1)]
    pub state: NodeState,
    /// The index of the last command that all its shards have applied.
    #[n(2)]
    pub applied: u64,
    /// A hash of its state; `None` before the first index where nodes compare it.
    #[n(3)]
    pub hash: Option<StateHash>,
    /// A bit for each shard, lowest first, that has not turned its loop for a second.
    #[n(4)]
    #[cbor(with = "minicbor::bytes")]
    pub stalled: Vec<u8>,
    /// Its wall clock when it answered, microseconds since 1970.
    #[n(5)]
    pub clock_us: i64,
    /// Bytes of data that it has.
    #[n(6)]
    pub load_bytes: u64,
    /// Bytes that are free on its disk.
    #[n(7)]
    pub free_bytes: u64,
    /// Whether its port for clients is open.
    #[n(8)]
    pub serves_clients: bool,
    /// Addresses that it passes on.
    #[n(9)]
    pub heard: Vec<Heard>,
}

impl Pong {
    /// Whether a shard is among the stalled ones.
    pub fn is_stalled(&self, shard: usize) -> bool {
        self.stalled.get(shard / 8).is_some_and(|byte| byte >> (shard % 8) & 1 == 1)
    }

    /// A bitmap of the shards for which `is_stalled` holds, without zeros at its end.
    pub fn bitmap(shards: usize, is_stalled: impl Fn(usize) -> bool) -> Vec<u8> {
        let mut bitmap = vec![0u8; shards.min(SHARDS_MAX).div_ceil(8)];
        for shard in (0..shards.min(SHARDS_MAX)).filter(|shard| is_stalled(*shard)) {
            bitmap[shard / 8] |= 1 << (shard % 8);
        }
        while bitmap.last() == Some(&0) {
            bitmap.pop();
        }
        bitmap
    }
}

/// Where a node is reached.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Addresses {
    /// For other nodes, as `address:port`.
    #[n(0)]
    pub storage: String,
    /// For clients, as `address:port`.
    #[n(1)]
    pub native: String,
}

/// Asks the leader to take the sender into the cluster. The host id of the connection is the request's id:
/// asking again is safe.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Join {
    /// The data center of the node.
    #[n(0)]
    pub data_center: String,
    /// Its rack.
    #[n(1)]
    pub rack: String,
    /// Where it is reached.
    #[n(2)]
    pub addresses: Addresses,
    /// The release that it runs.
    #[n(3)]
    pub version: String,
    /// How many shards it has.
    #[n(4)]
    pub shards: u16,
    /// Bytes that it may fill.
    #[n(5)]
    pub capacity_bytes: u64,
    /// The host id of the dead node whose place it takes.
    #[n(6)]
    #[cbor(with = "minicbor::bytes")]
    pub replaces: Option<Uuid>,
    /// How often its data directory was started.
    #[n(7)]
    pub generation: u64,
    /// Names of abilities that it has.
    #[n(8)]
    pub features: Vec<String>,
}

/// The leader's answer to a join.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Joined {
    /// The cluster.
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    pub cluster_id: Uuid,
    /// The number that the node has in it from now on.
    #[n(1)]
    pub node: u16,
    /// The index of the command that made it a member.
    #[n(2)]
    pub index: u64,
    /// The state of the control plane and its members, in the form of its snapshots.
    #[n(3)]
    #[cbor(with = "minicbor::bytes")]
    pub snapshot: Vec<u8>,
}

/// Asks the leader to plan and propose something.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Command {
    /// The request, in the form of the control plane.
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    pub request: Vec<u8>,
}

/// The leader's answer to a command that was applied or refused.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CommandOutcome {
    /// The index at which it was applied; the asker waits until it has applied that one too.
    #[n(0)]
    pub index: u64,
    /// The outcome, in the form of the control plane.
    #[n(1)]
    #[cbor(with = "minicbor::bytes")]
    pub outcome: Vec<u8>,
}

/// Asks a node to end all requests that were planned with an older state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Drain {
    /// Requests planned with a state before that of this index are to be over.
    #[n(0)]
    pub index: u64,
}

/// Asks the leader for an index, in [`Verb::ReadIndex`](super::frame::Verb::ReadIndex), or is the answer to
/// that or to a [`Drain`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Index {
    /// An index of the control plane's log; in a question, the last that the asker has applied.
    #[n(0)]
    pub index: u64,
}

/// Asks a node, often a stranger, whether it is in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Status {
    /// A hash of the asker's list of seeds.
    #[n(0)]
    pub seeds_hash: u64,
    /// Whether the asker means to found a cluster if nobody is in one.
    #[n(1)]
    pub wants_to_found: bool,
}

/// The answer to a [`Status`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct StatusAnswer {
    /// The node's cluster; `None` if it is in none.
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    pub cluster_id: Option<Uuid>,
    /// A hash of its list of seeds.
    #[n(1)]
    pub seeds_hash: u64,
    /// Whether it promises not to found a cluster itself for now.
    #[n(2)]
    pub promises: bool,
    /// Where the leader of its cluster is reached, as `address:port`, if it knows.
    #[n(3)]
    pub leader: Option<String>,
    /// The host id of that leader.
    #[n(4)]
    #[cbor(with = "minicbor::bytes")]
    pub leader_id: Option<Uuid>,
}

fn check_heard(heard: &[Heard]) -> Result<(), NodeError> {
    if heard.len() > HEARD_MAX {
        return Err(NodeError::TooLong { length: heard.len() as u64, limit: HEARD_MAX });
    }
    Ok(())
}

impl Ping {
    fn check(&self) -> Result<(), NodeError> {
        check_heard(&self.heard)
    }
}

impl Pong {
    fn check(&self) -> Result<(), NodeError> {
        if self.stalled.len() > SHARDS_MAX / 8 {
            return Err(NodeError::TooLong { length: self.stalled.len() as u64, limit: SHARDS_MAX / 8 });
        }
        check_heard(&self.heard)
    }
}

impl Join {
    fn check(&self) -> Result<(), NodeError> {
        if self.shards == 0 || usize::from(self.shards) > SHARDS_MAX {
            return Err(NodeError::Unknown {
                field: "the number of a node's shards",
                value: self.shards.into(),
            });
        }
        Ok(())
    }
}

macro_rules! unchecked {
    ($($type:ty),*) => {
        $(impl $type {
            fn check(&self) -> Result<(), NodeError> {
                Ok(())
            }
        })*
    };
}

unchecked!(Joined, Command, CommandOutcome, Drain, Index, Status, StatusAnswer);
message!(Ping, "a ping", cbor::SMALL_BYTES_MAX);
message!(Pong, "a pong", cbor::SMALL_BYTES_MAX);
message!(Join, "a request to join", cbor::SMALL_BYTES_MAX);
message!(Joined, "the answer to a join", SNAPSHOT_BYTES_MAX);
message!(Command, "a command", COMMAND_BYTES_MAX);
message!(CommandOutcome, "the outcome of a command", COMMAND_BYTES_MAX);
message!(Drain, "a drain", cbor::SMALL_BYTES_MAX);
message!(Index, "an index", cbor::SMALL_BYTES_MAX);
message!(Status, "a question for a cluster", cbor::SMALL_BYTES_MAX);
message!(StatusAnswer, "the answer about a cluster", cbor::SMALL_BYTES_MAX);
