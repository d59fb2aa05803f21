//! A schema as a short history of changes: the form in which logs and snapshots keep it.

use super::{Schema, SchemaChange, TableId};

impl Schema {
    /// Changes that make this schema from an empty one, in one step for each thing. They end with the ids of
    /// dropped tables and with the schema's version, so that the version goes on from its last value.
    pub fn history(&self, dropped: &[TableId]) -> Vec<SchemaChange> {
        let mut history = Vec::new();
        for keyspace in self.keyspaces() {
            let name = keyspace.name.clone();
            let options = keyspace.options.clone();
            history.push(SchemaChange::CreateKeyspace { name: name.clone(), options });
            history.extend(keyspace.types.values().map(|definition| SchemaChange::CreateType {
                keyspace: name.clone(),
                definition: definition.clone(),
            }));
            let tables = keyspace.tables.values();
            history
                .extend(tables.map(|table| SchemaChange::CreateTable(Box::new(table.definition().clone()))));
            let functions = keyspace.functions.iter();
            history.extend(functions.map(|f| SchemaChange::CreateFunction(Box::new((**f).clone()))));
            let aggregates = keyspace.aggregates.iter();
            history.extend(aggregates.map(|a| SchemaChange::CreateAggregate(Box::new((**a).clone()))));
        }
        if !dropped.is_empty() {
            history.push(SchemaChange::Dropped { tables: dropped.to_vec() });
        }
        if self.version() != Schema::empty().version() {
            history.push(SchemaChange::Version { version: self.version() });
        }
        history
    }
}

impl SchemaChange {
    /// Tables that the schema `before` has, or had, and has no more after this change.
    pub fn dropped_tables(&self, before: &Schema) -> Vec<TableId> {
        match self {
            Self::DropTable { id, .. } => vec![*id],
            Self::Dropped { tables } => tables.clone(),
            Self::DropKeyspace { name } => {
                let tables = before.keyspace(name).into_iter().flat_map(|keyspace| keyspace.tables.values());
                tables.map(|table| table.id()).collect()
            }
            Self::CreateKeyspace { .. }
            | Self::AlterKeyspace { .. }
            | Self::CreateTable(_)
            | Self::AlterTable(_)
            | Self::CreateType { .. }
            | Self::AlterType { .. }
            | Self::DropType { .. }
            | Self::Version { .. }
            | Self::CreateFunction(_)
            | Self::DropFunction { .. }
            | Self::CreateAggregate(_)
            | Self::DropAggregate { .. } => Vec::new(),
        }
    }
}
