//! Commands: the changes of the state on which the nodes agree, as bytes in the log.

use minicbor::{Decode, Encode};
use model::schema::SchemaChange;

use crate::NodeNumber;

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

/// One change of the state.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub enum Change {
    /// A change of the schema.
    #[n(0)]
    Schema(#[n(0)] SchemaChange),
}

/// Changes that are applied together or not at all.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct Command {
    /// Its identity.
    #[n(0)]
    pub id: RequestId,
    /// The version of the schema that it was planned with. It is refused if the schema has changed since.
    #[n(1)]
    #[cbor(with = "minicbor::bytes")]
    pub schema: [u8; 16],
    /// The changes, in order.
    #[n(2)]
    pub changes: Vec<Change>,
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
    /// Another command changed the schema after this one was planned.
    #[n(0)]
    #[error("the schema changed after this change was planned")]
    Overtaken,
    /// A change does not follow on the schema.
    #[n(1)]
    #[error("{_0}")]
    Misfit(#[n(0)] String),
}

/// The outcome of a command, the same on every node.
pub type Outcome = Result<(), Refusal>;
