//! The schema on which the control plane above this crate has agreed.
//!
//! The control plane keeps the schema durably. A start of the storage gets it as an [`AgreedSchema`]; the
//! changes after that come by `Storage::apply_agreed`. `log` reads the schema log of earlier versions.

pub(crate) mod log;
#[cfg(test)]
mod tests;

use model::schema::{Schema, SchemaChange, TableId};

/// The schema on which the control plane has agreed, at a start.
#[derive(Debug, Clone)]
pub struct AgreedSchema {
    /// Changes that make the schema, in order, with the ids of dropped tables.
    pub changes: Vec<SchemaChange>,
    /// The number of the last change. Numbers grow for as long as the node's data lives.
    pub index: u64,
    /// Whether there has to be a manifest.
    pub expects_manifest: bool,
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
