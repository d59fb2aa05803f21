//! Changes of the schema: the result of a DDL statement, which is logged and applied by every shard.

use std::rc::Rc;

use minicbor::{Decode, Encode};

use super::{
    AggregateDefinition, FunctionDefinition, Keyspace, KeyspaceOptions, Schema, Table, TableDefinition,
    TableId, TypeDefinition, codec,
};
use crate::token::murmur3_hash128;
use crate::types::{CqlType, UserType};

/// One change.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub enum SchemaChange {
    /// A new keyspace.
    #[n(0)]
    CreateKeyspace {
        /// Its name.
        #[n(0)]
        name: String,
        /// Its options.
        #[n(1)]
        options: KeyspaceOptions,
    },
    /// New options for a keyspace.
    #[n(1)]
    AlterKeyspace {
        /// Its name.
        #[n(0)]
        name: String,
        /// Its options from now on.
        #[n(1)]
        options: KeyspaceOptions,
    },
    /// A keyspace and all it holds go.
    #[n(2)]
    DropKeyspace {
        /// Its name.
        #[n(0)]
        name: String,
    },
    /// A new table.
    #[n(3)]
    CreateTable(#[n(0)] Box<TableDefinition>),
    /// A table as it is from now on; same id.
    #[n(4)]
    AlterTable(#[n(0)] Box<TableDefinition>),
    /// A table is dropped.
    #[n(5)]
    DropTable {
        /// Its keyspace.
        #[n(0)]
        keyspace: String,
        /// Its name.
        #[n(1)]
        name: String,
        /// Its identity, so that a table created again under the name is not affected.
        #[n(2)]
        #[cbor(with = "codec::table_id")]
        id: TableId,
    },
    /// A new user-defined type.
    #[n(6)]
    CreateType {
        /// Its keyspace.
        #[n(0)]
        keyspace: String,
        /// The type.
        #[n(1)]
        definition: TypeDefinition,
    },
    /// A type as it is from now on, and the tables that use it.
    #[n(7)]
    AlterType {
        /// Its keyspace.
        #[n(0)]
        keyspace: String,
        /// Its name before.
        #[n(1)]
        name: String,
        /// The type.
        #[n(2)]
        definition: TypeDefinition,
        /// Tables with columns of the type, with its new form in them.
        #[n(3)]
        tables: Vec<TableDefinition>,
    },
    /// A type is dropped.
    #[n(8)]
    DropType {
        /// Its keyspace.
        #[n(0)]
        keyspace: String,
        /// Its name.
        #[n(1)]
        name: String,
    },
    /// The version that the previous history had reached; ends a history that replaces a longer one.
    #[n(13)]
    Version {
        /// The schema's version from now on.
        #[n(0)]
        #[cbor(with = "minicbor::bytes")]
        version: [u8; 16],
    },
    /// Tables that a longer history dropped: a commit log may still have their entries.
    #[n(14)]
    Dropped {
        /// Their ids.
        #[n(0)]
        #[cbor(with = "codec::table_ids")]
        tables: Vec<TableId>,
    },
    /// A user-defined function as it is from now on: a new one, or another body for the one of these argument
    /// types.
    #[n(9)]
    CreateFunction(#[n(0)] Box<FunctionDefinition>),
    /// A user-defined function is dropped.
    #[n(10)]
    DropFunction {
        /// Its keyspace.
        #[n(0)]
        keyspace: String,
        /// Its name.
        #[n(1)]
        name: String,
        /// Types of its arguments.
        #[n(2)]
        #[cbor(with = "codec::types")]
        arguments: Vec<CqlType>,
    },
    /// A user-defined aggregate as it is from now on.
    #[n(11)]
    CreateAggregate(#[n(0)] Box<AggregateDefinition>),
    /// A user-defined aggregate is dropped.
    #[n(12)]
    DropAggregate {
        /// Its keyspace.
        #[n(0)]
        keyspace: String,
        /// Its name.
        #[n(1)]
        name: String,
        /// Types of its arguments.
        #[n(2)]
        #[cbor(with = "codec::types")]
        arguments: Vec<CqlType>,
    },
}

/// A change that does not fit the schema it was applied to: a log that does not belong to it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a schema change names {what} {name}, which {}", if *.exists { "exists already" } else { "is not there" })]
pub struct ChangeError {
    /// The kind of thing.
    pub what: &'static str,
    /// Its name.
    pub name: String,
    /// Whether the thing exists although it should not; otherwise it is missing.
    pub exists: bool,
}

impl Schema {
    /// The schema after `change`.
    ///
    /// # Errors
    /// [`ChangeError`] if the change does not fit this schema; the schema is then unchanged.
    pub fn apply(&mut self, change: &SchemaChange) -> Result<(), ChangeError> {
        match change {
            SchemaChange::CreateKeyspace { name, options } => {
                if self.keyspaces.contains_key(name) {
                    return Err(exists("keyspace", name));
                }
                let keyspace = Keyspace::new(name.clone(), options.clone());
                self.keyspaces.insert(name.clone(), keyspace);
            }
            SchemaChange::AlterKeyspace { name, options } => {
                self.keyspace_mut(name)?.options = options.clone();
            }
            SchemaChange::DropKeyspace { name } => {
                let keyspace = self.keyspaces.remove(name).ok_or_else(|| missing("keyspace", name))?;
                for table in keyspace.tables.values() {
                    self.by_id.remove(&table.id());
                }
            }
            SchemaChange::CreateTable(definition) => {
                let keyspace = self.keyspace_mut(&definition.keyspace)?;
                if keyspace.tables.contains_key(&definition.name) {
                    return Err(exists("table", &definition.name));
                }
                self.put_table(definition)?;
            }
            SchemaChange::AlterTable(definition) => {
                self.check_table(definition)?;
                self.put_table(definition)?;
            }
            SchemaChange::DropTable { keyspace, name, id } => {
                let tables = &mut self.keyspace_mut(keyspace)?.tables;
                if tables.get(name).is_none_or(|table| table.id() != *id) {
                    return Err(missing("table", name));
                }
                tables.remove(name);
                self.by_id.remove(id);
            }
            SchemaChange::CreateType { keyspace, definition } => {
                let types = &mut self.keyspace_mut(keyspace)?.types;
                if types.contains_key(&definition.name) {
                    return Err(exists("type", &definition.name));
                }
                types.insert(definition.name.clone(), definition.clone());
            }
            SchemaChange::AlterType { keyspace, name, definition, tables } => {
                if !self.keyspace_mut(keyspace)?.types.contains_key(name) {
                    return Err(missing("type", name));
                }
                for table in tables {
                    self.check_table(table)?;
                }
                let types = &mut self.keyspace_mut(keyspace)?.types;
                types.remove(name);
                // Types hold the types they name by value, so those change with it.
                for other in types.values_mut() {
                    for (_, field) in &mut other.fields {
                        *field = with_type(field, keyspace, definition);
                    }
                }
                types.insert(definition.name.clone(), definition.clone());
                self.keyspace_mut(keyspace)?.with_type(definition);
                for table in tables {
                    self.put_table(table)?;
                }
            }
            SchemaChange::DropType { keyspace, name } => {
                self.keyspace_mut(keyspace)?.types.remove(name).ok_or_else(|| missing("type", name))?;
            }
            SchemaChange::Version { version } => {
                self.version = *version;
                return Ok(());
            }
            SchemaChange::Dropped { .. } => return Ok(()),
            SchemaChange::CreateFunction(definition) => {
                let functions = &mut self.keyspace_mut(&definition.keyspace)?.functions;
                functions.retain(|function| {
                    function.name != definition.name || !function.takes(definition.argument_types())
                });
                functions.push(Rc::new((**definition).clone()));
                functions
                    .sort_by_cached_key(|function| overload_key(&function.name, function.argument_types()));
            }
            SchemaChange::DropFunction { keyspace, name, arguments } => {
                let functions = &mut self.keyspace_mut(keyspace)?.functions;
                let at = functions.iter().position(|f| f.name == *name && f.takes(arguments));
                functions.remove(at.ok_or_else(|| missing("function", name))?);
            }
            SchemaChange::CreateAggregate(definition) => {
                let aggregates = &mut self.keyspace_mut(&definition.keyspace)?.aggregates;
                aggregates.retain(|aggregate| {
                    aggregate.name != definition.name || aggregate.arguments != definition.arguments
                });
                aggregates.push(Rc::new((**definition).clone()));
                aggregates.sort_by_cached_key(|a| overload_key(&a.name, a.arguments.iter()));
            }
            SchemaChange::DropAggregate { keyspace, name, arguments } => {
                let aggregates = &mut self.keyspace_mut(keyspace)?.aggregates;
                let at = aggregates.iter().position(|a| a.name == *name && a.arguments == *arguments);
                aggregates.remove(at.ok_or_else(|| missing("aggregate", name))?);
            }
        }
        self.advance_version(change);
        Ok(())
    }

    fn keyspace_mut(&mut self, name: &str) -> Result<&mut Keyspace, ChangeError> {
        self.keyspaces.get_mut(name).ok_or_else(|| missing("keyspace", name))
    }

    fn check_table(&self, definition: &TableDefinition) -> Result<(), ChangeError> {
        match self.table(&definition.keyspace, &definition.name) {
            Some(table) if table.id() == definition.id => Ok(()),
            _ => Err(missing("table", &definition.name)),
        }
    }

    fn put_table(&mut self, definition: &TableDefinition) -> Result<(), ChangeError> {
        let table = Rc::new(Table::new(definition.clone()));
        self.by_id.insert(definition.id, Rc::clone(&table));
        self.keyspace_mut(&definition.keyspace)?.tables.insert(definition.name.clone(), table);
        Ok(())
    }

    fn advance_version(&mut self, change: &SchemaChange) {
        let mut chained = self.version.to_vec();
        chained.extend_from_slice(&change.encode());
        let [high, low] = murmur3_hash128(&chained, 0);
        self.version = ((u128::from(high as u64) << 64) | u128::from(low as u64)).to_be_bytes();
        self.version[6] = (self.version[6] & 0x0f) | 0x30;
        self.version[8] = (self.version[8] & 0x3f) | 0x80;
    }
}

/// The key by which overloads are ordered.
fn overload_key<'t>(name: &str, types: impl Iterator<Item = &'t CqlType>) -> (String, Vec<String>) {
    (name.to_owned(), types.map(ToString::to_string).collect())
}

impl Keyspace {
    /// Updates functions and aggregates that use the type of that name.
    fn with_type(&mut self, definition: &TypeDefinition) {
        let keyspace = self.name.clone();
        let uses = |ty: &CqlType| ty.references_udt(&keyspace, &definition.name);
        for function in &mut self.functions {
            if function.references_udt(&keyspace, &definition.name) {
                for ty in Rc::make_mut(function).types_mut().filter(|ty| uses(ty)) {
                    *ty = with_type(ty, &keyspace, definition);
                }
            }
        }
        for aggregate in &mut self.aggregates {
            if aggregate.references_udt(&keyspace, &definition.name) {
                for ty in Rc::make_mut(aggregate).types_mut().filter(|ty| uses(ty)) {
                    *ty = with_type(ty, &keyspace, definition);
                }
            }
        }
    }
}

/// `ty` with `definition` in place of every use of the user type of that name, at any depth.
pub fn with_type(ty: &CqlType, keyspace: &str, definition: &TypeDefinition) -> CqlType {
    let inner = |ty: &CqlType| Box::new(with_type(ty, keyspace, definition));
    match ty {
        CqlType::List { element, frozen } => CqlType::List { element: inner(element), frozen: *frozen },
        CqlType::Set { element, frozen } => CqlType::Set { element: inner(element), frozen: *frozen },
        CqlType::Map { key, value, frozen } => {
            CqlType::Map { key: inner(key), value: inner(value), frozen: *frozen }
        }
        CqlType::Vector { element, dimension } => {
            CqlType::Vector { element: inner(element), dimension: *dimension }
        }
        CqlType::Tuple(components) => {
            CqlType::Tuple(components.iter().map(|ty| with_type(ty, keyspace, definition)).collect())
        }
        CqlType::Udt(udt) => {
            let same = udt.keyspace == keyspace && udt.name == definition.name;
            let fields = if same { &definition.fields } else { &udt.fields };
            let fields = fields
                .iter()
                .map(|(name, ty)| {
                    let ty = if same { ty.clone() } else { with_type(ty, keyspace, definition) };
                    (name.clone(), if udt.frozen { ty.freeze() } else { ty })
                })
                .collect();
            CqlType::Udt(Box::new(UserType {
                keyspace: udt.keyspace.clone(),
                name: udt.name.clone(),
                fields,
                frozen: udt.frozen,
            }))
        }
        scalar => scalar.clone(),
    }
}

fn exists(what: &'static str, name: &str) -> ChangeError {
    ChangeError { what, name: name.to_owned(), exists: true }
}

fn missing(what: &'static str, name: &str) -> ChangeError {
    ChangeError { what, name: name.to_owned(), exists: false }
}
