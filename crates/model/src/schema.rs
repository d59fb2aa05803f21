//! The schema: keyspaces, tables, columns, types, and the changes that lead from one to the next.
//!
//! A schema is a value made by applying changes in order. Its version follows from the changes alone, so
//! every shard, and later every node, that applied the same changes has the same version. A table never
//! changes in place: an alteration makes a new one, and holders of the old one continue to read with it.
//! Column ids are given once per table and never again, so rows and commit-log entries outlive alterations.

mod change;
mod codec;
mod compaction;
mod function;
mod history;
mod options;
mod table;

use std::collections::BTreeMap;
use std::rc::Rc;

use minicbor::{Decode, Encode};

pub use change::{ChangeError, SchemaChange, with_type};
pub use codec::CodecError;
pub use compaction::CompactionStrategy;
pub use function::{AggregateDefinition, FunctionDefinition};
pub use options::{CachingOptions, CompactShape, TableOptions};
pub use table::{Column, ColumnId, ColumnKind, DroppedColumn, Table, TableDefinition, TableId};

use crate::types::CqlType;

/// A keyspace and its tables and types.
#[derive(Debug, Clone)]
pub struct Keyspace {
    /// Name, case as stored.
    pub name: String,
    /// Its replication and its other options.
    pub options: KeyspaceOptions,
    /// Tables by name.
    pub tables: BTreeMap<String, Rc<Table>>,
    /// User-defined types by name.
    pub types: BTreeMap<String, TypeDefinition>,
    /// User-defined functions by name, overloads by the text of their argument types.
    pub functions: Vec<Rc<FunctionDefinition>>,
    /// User-defined aggregates, in the same order.
    pub aggregates: Vec<Rc<AggregateDefinition>>,
}

impl Keyspace {
    /// A keyspace that holds nothing yet.
    pub fn new(name: impl Into<String>, options: KeyspaceOptions) -> Self {
        Self {
            name: name.into(),
            options,
            tables: BTreeMap::new(),
            types: BTreeMap::new(),
            functions: Vec::new(),
            aggregates: Vec::new(),
        }
    }

    /// The function of that name for arguments of exactly these types.
    pub fn function<'t>(
        &self,
        name: &str,
        types: impl IntoIterator<Item = &'t CqlType> + Clone,
    ) -> Option<&Rc<FunctionDefinition>> {
        self.functions.iter().find(|function| function.name == name && function.takes(types.clone()))
    }

    /// The aggregate of that name for arguments of exactly these types.
    pub fn aggregate(&self, name: &str, types: &[CqlType]) -> Option<&Rc<AggregateDefinition>> {
        self.aggregates.iter().find(|aggregate| aggregate.name == name && aggregate.arguments == types)
    }
}

/// The options that CREATE KEYSPACE sets.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct KeyspaceOptions {
    /// Full or short class name under `class`, and the factors.
    #[n(0)]
    pub replication: BTreeMap<String, String>,
    /// Whether writes go through the commit log.
    #[n(1)]
    pub durable_writes: bool,
    /// `tablets`, if the statement gave it.
    #[n(2)]
    pub tablets: Option<KeyspaceTablets>,
}

/// The `tablets` option of a keyspace, which ScyllaDB documents (CQL: ddl.rst "The tablets property").
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct KeyspaceTablets {
    /// `enabled`; tables have tablets in any case.
    #[n(0)]
    pub enabled: Option<bool>,
    /// `initial`: how many a table made in the keyspace starts with at least.
    #[n(1)]
    pub initial: Option<u32>,
}

/// A user-defined type.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct TypeDefinition {
    /// Name, case as stored.
    #[n(0)]
    pub name: String,
    /// Fields in order.
    #[n(1)]
    #[cbor(with = "codec::fields")]
    pub fields: Vec<(String, CqlType)>,
}

/// All keyspaces at one version.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    keyspaces: BTreeMap<String, Keyspace>,
    by_id: BTreeMap<TableId, Rc<Table>>,
    version: [u8; 16],
}

impl Schema {
    /// Nothing at all.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Keyspaces by name.
    pub fn keyspaces(&self) -> impl Iterator<Item = &Keyspace> {
        self.keyspaces.values()
    }

    /// The keyspace of that name.
    pub fn keyspace(&self, name: &str) -> Option<&Keyspace> {
        self.keyspaces.get(name)
    }

    /// The table of that name.
    pub fn table(&self, keyspace: &str, name: &str) -> Option<&Rc<Table>> {
        self.keyspaces.get(keyspace)?.tables.get(name)
    }

    /// The table of that id.
    pub fn table_by_id(&self, id: TableId) -> Option<&Rc<Table>> {
        self.by_id.get(&id)
    }

    /// Tables by id.
    pub fn tables(&self) -> impl Iterator<Item = &Rc<Table>> {
        self.by_id.values()
    }

    /// The version as a UUID of version 3's shape, equal for equal histories.
    pub fn version(&self) -> [u8; 16] {
        self.version
    }
}
