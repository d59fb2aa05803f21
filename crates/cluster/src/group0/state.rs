//! The state on which the nodes agree, and its bytes in a snapshot.
//!
//! ```text
//! state := CBOR {0: [schema change], 1: [outcome], 2: number of the last command,
//!                3: id of the cluster or null, 4: [node], 5: version of the list of nodes,
//!                6: [[table, map]]}
//! schema changes as in model::schema, a short history; nodes as in `nodes`, maps as in `maps::map`
//! ```
//! Invariant: a state is made by `apply` alone, from an empty one or from the bytes of another, so that nodes
//! which applied the same commands have equal states. Format: docs/formats/group0.md.

use std::collections::BTreeMap;
use std::rc::Rc;

use minicbor::{Decode, Encode};
use model::schema::{ChangeError, Schema, SchemaChange, TableId};
use model::tablet::NodeNumber;

use super::requests::{Done, Requests};
use crate::maps::ReplicaMap;
use crate::maps::map::MapParts;
use crate::nodes::NodeRecord;

/// Ids of dropped tables that are kept, the latest ones: old commit logs may have entries of them.
const DROPPED_MAX: usize = 1 << 16;

/// The state after a command. Copies share what they have in common.
#[derive(Debug, Clone, Default)]
pub struct ClusterState {
    pub(super) schema: Rc<Schema>,
    pub(super) dropped: Rc<Vec<TableId>>,
    pub(super) requests: Requests,
    pub(super) last_command: u64,
    /// `None` in a state of a version that knew no clusters.
    pub(super) cluster_id: Option<[u8; 16]>,
    pub(super) nodes: Rc<BTreeMap<NodeNumber, NodeRecord>>,
    /// Index of the last command that changed `nodes`.
    pub(super) topology_version: u64,
    /// The replicas of each table that has some on other nodes, or could have.
    pub(super) maps: Rc<BTreeMap<TableId, Rc<ReplicaMap>>>,
}

#[derive(Encode, Decode)]
struct Encoded {
    #[n(0)]
    history: Vec<SchemaChange>,
    #[n(1)]
    requests: Vec<Done>,
    #[n(2)]
    last_command: u64,
    #[n(3)]
    #[cbor(with = "minicbor::bytes")]
    cluster_id: Option<[u8; 16]>,
    #[n(4)]
    nodes: Option<Vec<NodeRecord>>,
    #[n(5)]
    topology_version: Option<u64>,
    #[n(6)]
    maps: Option<Vec<EncodedMap>>,
}

#[derive(Encode, Decode)]
#[cbor(array)]
struct EncodedMap {
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    table: [u8; 16],
    #[n(1)]
    map: MapParts,
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

    /// The id of the cluster, once it is founded.
    pub fn cluster_id(&self) -> Option<[u8; 16]> {
        self.cluster_id
    }

    /// All nodes that were ever known, by number.
    pub fn nodes(&self) -> &Rc<BTreeMap<NodeNumber, NodeRecord>> {
        &self.nodes
    }

    /// Index of the last command that changed the nodes.
    pub fn topology_version(&self) -> u64 {
        self.topology_version
    }

    /// The replicas of each table. Tables that each node keeps for itself have none here.
    pub fn maps(&self) -> &Rc<BTreeMap<TableId, Rc<ReplicaMap>>> {
        &self.maps
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
        if self.maps.keys().any(|id| schema.table_by_id(*id).is_none()) {
            Rc::make_mut(&mut self.maps).retain(|id, _| schema.table_by_id(*id).is_some());
        }
        self.schema = Rc::new(schema);
        Ok(())
    }

    /// The state as bytes: equal for equal states.
    pub fn encode(&self) -> Vec<u8> {
        let requests = self.requests.iter().cloned().collect();
        let map = |(id, map): (&TableId, &Rc<ReplicaMap>)| EncodedMap { table: id.0, map: map.to_parts() };
        let encoded = Encoded {
            history: self.history(),
            requests,
            last_command: self.last_command,
            cluster_id: self.cluster_id,
            nodes: Some(self.nodes.values().cloned().collect()),
            topology_version: Some(self.topology_version),
            maps: Some(self.maps.iter().map(map).collect()),
        };
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
        state.cluster_id = encoded.cluster_id;
        state.topology_version = encoded.topology_version.unwrap_or(0);
        state.nodes = Rc::new(read_nodes(encoded.nodes.unwrap_or_default())?);
        state.maps = Rc::new(read_maps(&encoded.maps.unwrap_or_default(), &state)?);
        Ok(state)
    }
}

fn read_nodes(records: Vec<NodeRecord>) -> Result<BTreeMap<NodeNumber, NodeRecord>, String> {
    let mut nodes: BTreeMap<NodeNumber, NodeRecord> = BTreeMap::new();
    for record in records {
        if record.number == 0 || record.shards == 0 {
            return Err(format!("it has a node {} with {} shards", record.number, record.shards));
        }
        if nodes.last_key_value().is_some_and(|(last, _)| *last >= record.number) {
            return Err(format!("node {} stands behind a later one", record.number));
        }
        nodes.insert(record.number, record);
    }
    Ok(nodes)
}

fn read_maps(
    encoded: &[EncodedMap],
    state: &ClusterState,
) -> Result<BTreeMap<TableId, Rc<ReplicaMap>>, String> {
    let mut maps: BTreeMap<TableId, Rc<ReplicaMap>> = BTreeMap::new();
    for EncodedMap { table, map } in encoded {
        let id = TableId(*table);
        let of_table = |reason: String| format!("the map of table {id}: {reason}");
        let map = ReplicaMap::of_parts(map).map_err(of_table)?;
        let known = state.schema.table_by_id(id).map(|table| table.tablets());
        if known != Some(map.tablets()) {
            return Err(of_table(format!(
                "it has {} tablets, and the table {known:?}",
                map.tablets().count()
            )));
        }
        if maps.last_key_value().is_some_and(|(last, _)| *last >= id) {
            return Err(of_table("it stands behind a later one".to_owned()));
        }
        maps.insert(id, Rc::new(map));
    }
    Ok(maps)
}
