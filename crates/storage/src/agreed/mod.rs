//! The schema on which the control plane above this crate has agreed, and the tablets of this node (`own`).
//!
//! The control plane keeps both durably. A start of the storage gets them as an [`AgreedSchema`]; the changes
//! after that come by `Storage::apply_agreed`. `log` reads the schema log of earlier versions.

pub(crate) mod log;
mod own;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use model::schema::{Schema, SchemaChange, Table, TableId};

pub(crate) use own::OwnParts;
pub use own::{OwnTablet, OwnTablets};

/// The schema on which the control plane has agreed, at a start.
#[derive(Debug, Clone)]
pub struct AgreedSchema {
    /// Changes that make the schema, in order, with the ids of dropped tables.
    pub changes: Vec<SchemaChange>,
    /// The number of the last change. Numbers grow for as long as the node's data lives.
    pub index: u64,
    /// Whether there has to be a manifest.
    pub expects_manifest: bool,
    /// The tablets of this node, by table. A table that is not in it is wholly this node's, spread over its
    /// shards by arithmetic ([`OwnTablets::alone`]).
    pub tablets: BTreeMap<TableId, OwnTablets>,
}

impl AgreedSchema {
    /// The tablets of a table that this node has.
    pub(crate) fn own_tablets(&self, table: &Table, shards: usize) -> OwnTablets {
        own_tablets(&self.tablets, table, shards)
    }
}

/// The tablets of a table that a node of `shards` shards has, by what it was told of some tables.
pub(crate) fn own_tablets(told: &BTreeMap<TableId, OwnTablets>, table: &Table, shards: usize) -> OwnTablets {
    told.get(&table.id()).cloned().unwrap_or_else(|| OwnTablets::alone(table.tablets(), shards))
}

/// What one command of the control plane changes.
#[derive(Debug, Clone, Default)]
pub struct AgreedChanges {
    /// Changes of the schema, in order.
    pub changes: Vec<SchemaChange>,
    /// The tablets that this node has from now on, for each table whose tablets change.
    pub tablets: BTreeMap<TableId, OwnTablets>,
    /// Tables that lose all of their rows; each is in `tablets`, and its tablets have a later `since`.
    pub truncated: Vec<TableId>,
}

/// Tables that a history dropped and did not create again.
pub(crate) fn dropped_tables(changes: &[SchemaChange]) -> Vec<TableId> {
    let mut dropped = Vec::new();
    let mut schema = Schema::empty();
    for change in changes {
        dropped.extend(change.dropped_tables(&schema));
        // A change that does not fit is reported when the schema is built for use.
        let _ = schema.apply(change);
    }
    dropped.retain(|id| schema.table_by_id(*id).is_none());
    dropped
}
