//! Commands: the changes of the state on which the nodes agree, as bytes in the log.

use minicbor::{Decode, Encode};
use model::schema::{SchemaChange, TableId};
use model::tablet::{NodeNumber, Replica, TabletId};

use crate::maps::TabletStep;
use crate::nodes::{NodeRecord, NodeState, OwnFacts};

/// The identity of a command: a command that is asked for again has the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct RequestId {
    /// The asking node.
    #[n(0)]
    pub node: NodeNumber,
    /// A number that the node never uses again after a restart.
    #[n(1)]
    pub life: u64,
    /// Numbers the commands of that life.
    #[n(2)]
    pub sequence: u64,
}

/// The replicas of a new table's tablets.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Placement {
    /// The table's id.
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    pub table: [u8; 16],
    /// Base-2 logarithm of the number of tablets.
    #[n(1)]
    pub log2: u8,
    /// Node and shard of each replica of each tablet.
    #[n(2)]
    pub tablets: Vec<Vec<(NodeNumber, u16)>>,
}

impl Placement {
    /// The placement of a table by its replicas.
    pub fn new(table: TableId, log2: u8, tablets: &[Vec<Replica>]) -> Self {
        let pairs = |replicas: &Vec<Replica>| replicas.iter().map(|r| (r.node, r.shard)).collect();
        Self { table: table.0, log2, tablets: tablets.iter().map(pairs).collect() }
    }
}

/// A tablet's way from one shard of a node to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Move {
    /// The table's id.
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    pub table: [u8; 16],
    /// The number of the tablet.
    #[n(1)]
    pub tablet: u32,
    /// The node that has a replica of it.
    #[n(2)]
    pub node: NodeNumber,
    /// The shard of that node that has it from now on.
    #[n(3)]
    pub shard: u16,
}

impl Move {
    /// The tablet.
    pub fn tablet(&self) -> TabletId {
        TabletId(self.tablet)
    }
}

/// Steps of tablets of one table towards other replicas.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Transition {
    /// The table's id.
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    pub table: [u8; 16],
    /// The version of the table's map that the steps were planned with: they are refused if it has changed.
    #[n(1)]
    pub version: u64,
    /// The number of each tablet, and its step.
    #[n(2)]
    pub steps: Vec<(u32, TabletStep)>,
}

/// One change of the state.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub enum Change {
    /// A change of the schema.
    #[n(0)]
    Schema(#[n(0)] SchemaChange),
    /// The cluster begins: its id, for ever.
    #[n(1)]
    Found(
        #[n(0)]
        #[cbor(with = "minicbor::bytes")]
        [u8; 16],
    ),
    /// A node becomes known.
    #[n(2)]
    AddNode(#[n(0)] Box<NodeRecord>),
    /// A node started with other facts than those known. Its tablets are spread over its shards where their
    /// number is another.
    #[n(3)]
    UpdateNode(#[n(0)] NodeNumber, #[n(1)] Box<OwnFacts>),
    /// The tablets of a table get replicas.
    #[n(4)]
    Place(#[n(0)] Placement),
    /// A tablet moves between two shards of a node.
    #[n(5)]
    MoveTablet(#[n(0)] Move),
    /// A node has another part in the cluster.
    #[n(6)]
    SetNodeState(#[n(0)] NodeNumber, #[n(1)] NodeState),
    /// A table, named by its id, loses all of its rows: each of its replicas begins a new tenancy.
    #[n(7)]
    Truncate(
        #[n(0)]
        #[cbor(with = "minicbor::bytes")]
        [u8; 16],
    ),
    /// Replicas of tablets join or leave.
    #[n(8)]
    Transition(#[n(0)] Transition),
    /// The replicas of a table, named by its id, are what the factors of its keyspace say.
    #[n(9)]
    Settled(
        #[n(0)]
        #[cbor(with = "minicbor::bytes")]
        [u8; 16],
    ),
}

/// Changes that are applied together or not at all.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct Command {
    /// Its identity.
    #[n(0)]
    pub id: RequestId,
    /// The version of the schema that it was planned with, if it depends on it. It is refused if the schema
    /// has changed since.
    #[n(1)]
    #[cbor(with = "minicbor::bytes")]
    pub schema: Option<[u8; 16]>,
    /// The changes, in order.
    #[n(2)]
    pub changes: Vec<Change>,
    /// The version of the list of nodes that it was planned with, if it depends on it. It is refused if the
    /// list has changed since.
    #[n(3)]
    pub topology: Option<u64>,
}

impl Command {
    /// The command as bytes.
    pub fn encode(&self) -> Vec<u8> {
        minicbor::to_vec(self).expect("writing to memory does not fail")
    }

    /// Reads a command that takes up all of `bytes`.
    ///
    /// # Errors
    /// The reason for which they are none.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut decoder = minicbor::Decoder::new(bytes);
        let command = decoder.decode().map_err(|error| error.to_string())?;
        if decoder.position() != bytes.len() {
            return Err(format!("{} bytes follow it", bytes.len() - decoder.position()));
        }
        Ok(command)
    }
}

/// The reason for which a command changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode, thiserror::Error)]
pub enum Refusal {
    /// Another command changed the schema or the list of nodes after this one was planned.
    #[n(0)]
    #[error("the schema changed after this change was planned")]
    Overtaken,
    /// A change does not follow on the state.
    #[n(1)]
    #[error("{_0}")]
    Misfit(#[n(0)] String),
}

/// The outcome of a command, the same on every node.
pub type Outcome = Result<(), Refusal>;
