//! Tells group 0 of this node before its storage opens: that it exists, its shards and addresses,
//! and the replicas of tables from before there were maps.
//!
//! One command at most, and none at a start at which nothing is new. Without room for it on the disk the
//! start goes on: tables without a map are this node's by arithmetic, and shards that are gone are stood in
//! for by others. Invariant: a command here follows from the state and from the facts alone.

use std::cell::Cell;
use std::rc::Rc;

use model::schema::Schema;
use model::tablet::{FIRST_NODE, NodeNumber};
use storage::StorageError;

use crate::group0::{Change, ClusterState, Command, Group0, Group0Error, GroupFailure, Placement, RequestId};
use crate::maps::placement::{is_local, place};
use crate::maps::ring::tokens_of_next;
use crate::nodes::{NodeRecord, OwnFacts};

/// This node's number by its host id. In a state that knows at most one node it is the first one, whose
/// host id may be new.
///
/// # Errors
/// [`GroupFailure::Broken`] in a state of several nodes that does not know the host id.
pub(crate) fn own_number(state: &ClusterState, facts: &OwnFacts) -> Result<NodeNumber, GroupFailure> {
    let own = state.nodes().values().find(|node| node.host_id == facts.host_id);
    match own {
        Some(node) => Ok(node.number),
        None if state.nodes().len() <= 1 => Ok(FIRST_NODE),
        None => Err(GroupFailure::Broken(format!(
            "the cluster of this directory has no node with the host id {}: it is another node's directory",
            model::hex::text(&facts.host_id)
        ))),
    }
}

/// Makes the changes that a start asks for.
///
/// # Errors
/// [`StorageError::ControlPlane`] where the log failed.
pub(super) async fn introduce(
    group: &Group0,
    facts: &OwnFacts,
    sequence: &Cell<u64>,
) -> Result<(), StorageError> {
    let state = group.state();
    let changes = first_changes(&state, facts, random_uuid());
    if changes.is_empty() {
        return Ok(());
    }
    sequence.set(sequence.get() + 1);
    let command = Command {
        id: RequestId { node: group.number(), life: group.term(), sequence: sequence.get() },
        schema: Some(state.schema().version()),
        changes,
        topology: Some(state.topology_version()),
    };
    let broken = |reason: String| StorageError::ControlPlane(Rc::new(GroupFailure::Broken(reason)));
    match group.propose(&command).await {
        Ok((_, outcome)) => outcome.map_err(|refusal| broken(format!("this node was refused: {refusal}"))),
        Err(Group0Error::NoRoom(error)) => {
            reactor::warn!("what is new of this node cannot be kept: it will be at a start with free space";
                error = error);
            Ok(())
        }
        Err(Group0Error::Stopped(failure)) => Err(StorageError::ControlPlane(failure)),
        Err(error) => Err(broken(error.to_string())),
    }
}

/// The changes of a state that does not know this node, or not as it is now, or lacks maps of its tables.
fn first_changes(state: &ClusterState, facts: &OwnFacts, cluster_id: [u8; 16]) -> Vec<Change> {
    let mut changes = Vec::new();
    if state.cluster_id().is_none() {
        changes.push(Change::Found(cluster_id));
    }
    let mut own = match state.nodes().get(&FIRST_NODE) {
        Some(known) => known.clone(),
        None => NodeRecord { number: FIRST_NODE, tokens: tokens_of_next(&[]), ..NodeRecord::default() },
    };
    let is_new = own.update(facts);
    match state.nodes().contains_key(&FIRST_NODE) {
        false => changes.push(Change::AddNode(Box::new(own.clone()))),
        true if is_new => changes.push(Change::UpdateNode(FIRST_NODE, Box::new(facts.clone()))),
        true => {}
    }
    let lacking = state.schema().tables().filter(|table| !state.maps().contains_key(&table.id()));
    changes.extend(lacking.filter_map(|table| placed(state.schema(), table, &[own.clone()])));
    changes
}

/// The placement of a table over `nodes`; `None` for one that every node keeps for itself.
pub(super) fn placed(schema: &Schema, table: &model::Table, nodes: &[NodeRecord]) -> Option<Change> {
    let keyspace = schema.keyspace(table.keyspace()).expect("a table's keyspace exists");
    let replication = &keyspace.options.replication;
    if is_local(replication) {
        return None;
    }
    let cut = table.tablets();
    let tablets = place(replication, cut, nodes);
    Some(Change::Place(Placement::new(table.id(), cut.log2(), &tablets)))
}

fn random_uuid() -> [u8; 16] {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&reactor::random_u64().to_be_bytes());
    id[8..].copy_from_slice(&reactor::random_u64().to_be_bytes());
    id[6] = (id[6] & 0x0f) | 0x40;
    id[8] = (id[8] & 0x3f) | 0x80;
    id
}
