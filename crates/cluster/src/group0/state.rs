//! The state on which the nodes agree, and its bytes in a snapshot.
//!
//! ```text
//! state := CBOR {0: [schema change], 1: [outcome], 2: number of the last command}
//! schema changes as in model::schema, a short history
//! ```
//! Invariant: a state is made by `apply` alone, from an empty one or from the bytes of another, so that nodes
//! which applied the same commands have equal states. Format: docs/formats/group0.md.

use std::rc::Rc;

use minicbor::{Decode, Encode};
use model::schema::{ChangeError, Schema, SchemaChange, TableId};

use super::requests::{Done, Requests};

/// Ids of dropped tables that are kept, the latest ones: old commit logs may have entries of them.
const DROPPED_MAX: usize = 1 << 16;

/// The state after a command. Copies share what they have in common.
#[derive(Debug, Clone, Default)]
pub struct ClusterState {
    pub(super) schema: Rc<Schema>,
    pub(super) dropped: Rc<Vec<TableId>>,
    pub(super) requests: Requests,
    pub(super) last_command: u64,
}

#[derive(Encode, Decode)]
struct Encoded {
    #[n(0)]
    history: Vec<SchemaChange>,
    #[n(1)]
    requests: Vec<Done>,
    #[n(2)]
    last_command: u64,
}

impl ClusterState {
    /// The state of a new cluster with a schema that was made by `history`.
    ///
    /// # Errors
    /// [`ChangeError`] for a change that does not follow on those before it.
    pub fn of_history(history: &[SchemaChange]) -> Result<Self, ChangeError> {
        let mut state = Self::default();
        for change in history {
            state.change_schema(change)?;
        }
        Ok(state)
    }

    /// The schema.
    pub fn schema(&self) -> &Rc<Schema> {
        &self.schema
    }

    /// Number of the last command, whatever its outcome; of a new cluster, of what it began with.
    pub fn last_command(&self) -> u64 {
        self.last_command
    }

    /// Outcomes of the latest commands.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Changes that make the schema, with the ids of dropped tables.
    pub fn history(&self) -> Vec<SchemaChange> {
        self.schema.history(&self.dropped)
    }

    /// Applies a change of the schema.
    pub(super) fn change_schema(&mut self, change: &SchemaChange) -> Result<(), ChangeError> {
        let mut schema = (*self.schema).clone();
        schema.apply(change)?;
        let mut dropped = change.dropped_tables(&self.schema);
        dropped.retain(|id| schema.table_by_id(*id).is_none());
        if !dropped.is_empty() {
            let all = Rc::make_mut(&mut self.dropped);
            all.retain(|id| !dropped.contains(id));
            all.extend(dropped);
            let surplus = all.len().saturating_sub(DROPPED_MAX);
            all.drain(..surplus);
        }
        self.schema = Rc::new(schema);
        Ok(())
    }

    /// The state as bytes: equal for equal states.
    pub fn encode(&self) -> Vec<u8> {
        let requests = self.requests.iter().cloned().collect();
        let encoded = Encoded { history: self.history(), requests, last_command: self.last_command };
        minicbor::to_vec(&encoded).expect("writing to memory does not fail")
    }

    /// Reads a state.
    ///
    /// # Errors
    /// The reason for which the bytes are none.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let encoded: Encoded = minicbor::decode(bytes).map_err(|error| error.to_string())?;
        let mut state = Self::of_history(&encoded.history).map_err(|error| error.to_string())?;
        let mut last = 0;
        for done in encoded.requests {
            if done.index <= last || state.requests.find(done.id).is_some() {
                return Err(format!("the outcome of command {} stands behind that of {last}", done.index));
            }
            last = done.index;
            state.requests.keep(done);
        }
        if last > encoded.last_command {
            return Err(format!("an outcome of {last} is behind the last command, {}", encoded.last_command));
        }
        state.last_command = encoded.last_command;
        Ok(state)
    }
}
