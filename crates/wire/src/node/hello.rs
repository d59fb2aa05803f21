//! The first message of each side of a connection: which node of which cluster it is.
//!
//! A connection begins with a frame of version 0 whose body is [`MAGIC`] and the CBOR of a [`Hello`]. The
//! answer is such a frame too, or one with the flag ERROR whose body is [`MAGIC`] and the reason, in words.

use minicbor::{Decode, Encode};

use super::NodeError;

/// The first bytes of a first message: a client of another protocol does not send them.
pub const MAGIC: [u8; 4] = *b"ceto";
/// The version of the frames of first messages.
pub const HELLO_VERSION: u8 = 0;
/// Longest first message, [`MAGIC`] included: whoever sends it is not known yet.
pub const HELLO_BYTES_MAX: usize = 4096;

/// A UUID.
pub type Uuid = [u8; 16];

/// The epoch of the control plane: it changes when a majority was lost and the rest went on without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Epoch {
    /// Grows by one with each.
    #[n(0)]
    pub number: u64,
    /// Tells two of one number apart.
    #[n(1)]
    #[cbor(with = "minicbor::bytes")]
    pub id: Uuid,
}

/// The kinds of connection: a long message of one kind never stands before a short one of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Class {
    /// Liveness, consensus and questions to the leader, between the shards 0 of two nodes.
    #[n(0)]
    Control,
    /// Requests of clients, between two shards.
    #[n(1)]
    Statement,
    /// Files, repair, and what waits for a node that was away.
    #[n(2)]
    Bulk,
}

impl Class {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Control, Self::Statement, Self::Bulk];
}

/// Where a node was last heard of.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Heard {
    /// The node.
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    pub host_id: Uuid,
    /// Where it listened for other nodes, as `address:port`.
    #[n(1)]
    pub address: String,
    /// How often its data directory had been started: the higher one is newer.
    #[n(2)]
    pub generation: u64,
}

/// A node's word about itself.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Hello {
    /// The lowest version of the protocol it speaks.
    #[n(0)]
    pub version_min: u8,
    /// The highest.
    #[n(1)]
    pub version_max: u8,
    /// Its cluster; `None` if it is in none yet.
    #[n(2)]
    #[cbor(with = "minicbor::bytes")]
    pub cluster_id: Option<Uuid>,
    /// The name of the cluster that it is in or wants to join.
    #[n(3)]
    pub cluster_name: String,
    /// The partitioner, by its name in Cassandra's configuration.
    #[n(4)]
    pub partitioner: String,
    /// Lives and dies with its data directory.
    #[n(5)]
    #[cbor(with = "minicbor::bytes")]
    pub host_id: Uuid,
    /// The node that it means to reach; `None` where only an address is known.
    #[n(6)]
    #[cbor(with = "minicbor::bytes")]
    pub expected: Option<Uuid>,
    /// Its number in the cluster; 0 if it is in none yet.
    #[n(7)]
    pub node: u16,
    /// How often its data directory was started.
    #[n(8)]
    pub generation: u64,
    /// Drawn at each start: two processes on copies of one directory differ.
    #[n(9)]
    pub boot: u64,
    /// The shard at this end of the connection.
    #[n(10)]
    pub shard: u16,
    /// How many shards the node has.
    #[n(11)]
    pub shards: u16,
    /// Names of abilities that nodes of earlier versions lack.
    #[n(12)]
    pub features: Vec<String>,
    /// The epoch of its control plane; `None` if it is in no cluster yet.
    #[n(13)]
    pub epoch: Option<Epoch>,
    /// The shard that it means to reach; `None` leaves the choice to the receiver.
    #[n(14)]
    pub to_shard: Option<u16>,
    /// The kind of connection.
    #[n(15)]
    pub class: Class,
    /// Its data center.
    #[n(16)]
    pub data_center: String,
    /// Its rack.
    #[n(17)]
    pub rack: String,
    /// Where it listens for other nodes, as `address:port`.
    #[n(18)]
    pub address: String,
    /// Addresses of other nodes that it passes on.
    #[n(19)]
    pub heard: Vec<Heard>,
}

impl Hello {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        minicbor::encode(self, out).expect("writing to memory does not fail");
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`NodeError`] for other bytes, a message of more than [`HELLO_BYTES_MAX`], and one whose numbers
    /// contradict each other.
    pub fn decode(message: &[u8]) -> Result<Self, NodeError> {
        let field = "a first message";
        let invalid = |reason: String| NodeError::Invalid { field, reason };
        if message.len() > HELLO_BYTES_MAX {
            return Err(NodeError::TooLong { length: message.len() as u64, limit: HELLO_BYTES_MAX });
        }
        let cbor = message.strip_prefix(&MAGIC).ok_or_else(|| invalid("it is no ceto node's".to_owned()))?;
        let mut decoder = minicbor::Decoder::new(cbor);
        let hello: Self = decoder.decode().map_err(|error| invalid(error.to_string()))?;
        match cbor.len() - decoder.position() {
            0 => {}
            bytes => return Err(NodeError::Trailing { bytes }),
        }
        if hello.version_min > hello.version_max {
            let (min, max) = (hello.version_min, hello.version_max);
            return Err(invalid(format!("its lowest version, {min}, is above its highest, {max}")));
        }
        if hello.shard >= hello.shards {
            return Err(invalid(format!("it is shard {} of {}", hello.shard, hello.shards)));
        }
        Ok(hello)
    }

    /// The version that two nodes speak with each other: the highest that both do.
    pub fn common_version(&self, other: &Self) -> Option<u8> {
        let highest = self.version_max.min(other.version_max);
        (highest >= self.version_min.max(other.version_min)).then_some(highest)
    }
}

/// Appends the answer that refuses a connection.
pub fn encode_refusal(reason: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(reason.as_bytes());
}

/// The reason in such an answer, without control characters: it is written to a log.
///
/// # Errors
/// [`NodeError`] for other bytes and more than [`HELLO_BYTES_MAX`].
pub fn decode_refusal(message: &[u8]) -> Result<String, NodeError> {
    let invalid = |reason: &str| NodeError::Invalid { field: "a refusal", reason: reason.to_owned() };
    if message.len() > HELLO_BYTES_MAX {
        return Err(NodeError::TooLong { length: message.len() as u64, limit: HELLO_BYTES_MAX });
    }
    let text = message.strip_prefix(&MAGIC).ok_or_else(|| invalid("it is no ceto node's"))?;
    let text = std::str::from_utf8(text).map_err(|_| invalid("it is not UTF-8"))?;
    Ok(super::without_control(text))
}
