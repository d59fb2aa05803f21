//! The elements for a DESCRIBE: schema elements in Cassandra's order, or the statement's error.

use std::collections::BTreeSet;
use std::rc::Rc;

use cql::ast::{Describe, DescribeTarget, QualifiedName};
use model::schema::{AggregateDefinition, FunctionDefinition, Keyspace, TypeDefinition};
use model::{CqlType, Schema, Table};
use statement::ddl::is_system;
use statement::ddl::plan::quote;

use super::text;
use crate::QueryError;
use crate::system::Catalog;

/// One schema element.
pub(super) enum Element<'a> {
    Keyspace(&'a Keyspace),
    Type(&'a str, &'a TypeDefinition),
    Function(&'a FunctionDefinition),
    Aggregate(&'a AggregateDefinition),
    Table(&'a Rc<Table>),
}

/// The node's schema, including virtual tables.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) schema: &'a Schema,
    pub(super) catalog: &'a Catalog,
    /// The session's keyspace.
    pub(super) current: Option<&'a str>,
}

impl Element<'_> {
    pub(super) fn keyspace(&self) -> String {
        match self {
            Self::Keyspace(keyspace) => quote(&keyspace.name).into_owned(),
            Self::Type(keyspace, _) => quote(keyspace).into_owned(),
            Self::Function(function) => quote(&function.keyspace).into_owned(),
            Self::Aggregate(aggregate) => quote(&aggregate.keyspace).into_owned(),
            Self::Table(table) => quote(table.keyspace()).into_owned(),
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Keyspace(_) => "keyspace",
            Self::Type(..) => "type",
            Self::Function(_) => "function",
            Self::Aggregate(_) => "aggregate",
            Self::Table(_) => "table",
        }
    }

    pub(super) fn name(&self) -> String {
        let types: Option<Vec<String>> = match self {
            Self::Function(function) => Some(function.argument_types().map(text::signature_type).collect()),
            Self::Aggregate(aggregate) => {
                Some(aggregate.arguments.iter().map(text::signature_type).collect())
            }
            _ => None,
        };
        let name = quote(self.bare_name()).into_owned();
        types.map_or(name.clone(), |types| format!("{name}({})", types.join(", ")))
    }

    pub(super) fn text(&self, internals: bool) -> String {
        match self {
            Self::Keyspace(keyspace) => text::keyspace(keyspace),
            Self::Type(keyspace, definition) => text::user_type(keyspace, definition),
            Self::Function(function) => text::function(function),
            Self::Aggregate(aggregate) => text::aggregate(aggregate),
            Self::Table(table) => text::table(table, internals),
        }
    }

    fn bare_name(&self) -> &str {
        match self {
            Self::Keyspace(keyspace) => &keyspace.name,
            Self::Type(_, definition) => &definition.name,
            Self::Function(function) => &function.name,
            Self::Aggregate(aggregate) => &aggregate.name,
            Self::Table(table) => table.name(),
        }
    }
}

impl<'a> View<'a> {
    /// The elements that a statement names, in order; empty for `DESCRIBE CLUSTER`, which describes the node.
    pub(super) fn elements(self, statement: &Describe) -> Result<Vec<Element<'a>>, QueryError> {
        match &statement.target {
            DescribeTarget::Cluster => Ok(Vec::new()),
            DescribeTarget::Keyspaces => Ok(self.keyspaces().into_iter().map(Element::Keyspace).collect()),
            DescribeTarget::Schema { full } => {
                let keyspaces = self.keyspaces().into_iter();
                let shown = keyspaces.filter(|keyspace| *full || !is_system(&keyspace.name));
                Ok(shown.flat_map(content).collect())
            }
            DescribeTarget::Keyspace { only, name } => {
                let keyspace = match name {
                    Some(name) => self.keyspace(name.as_str())?,
                    None => self.current_keyspace()?,
                };
                Ok(if *only { vec![Element::Keyspace(keyspace)] } else { content(keyspace) })
            }
            DescribeTarget::Tables => {
                self.list(|keyspace| keyspace.tables.values().map(Element::Table).collect())
            }
            DescribeTarget::Types => self.list(|keyspace| {
                keyspace.types.values().map(|definition| Element::Type(&keyspace.name, definition)).collect()
            }),
            DescribeTarget::Functions => self.list(|keyspace| functions(keyspace, None)),
            DescribeTarget::Aggregates => self.list(|keyspace| aggregates(keyspace, None)),
            DescribeTarget::Table(name) => {
                let keyspace = self.keyspace_of(name)?;
                table(keyspace, name.name.as_str())
            }
            DescribeTarget::Type(name) => {
                let keyspace = self.keyspace_of(name)?;
                let definition = keyspace.types.get(name.name.as_str());
                let definition = definition.ok_or_else(|| absent("User defined type", name, keyspace))?;
                Ok(vec![Element::Type(&keyspace.name, definition)])
            }
            DescribeTarget::Index(name) => {
                Err(absent("Table for existing index", name, self.keyspace_of(name)?))
            }
            DescribeTarget::MaterializedView(name) => {
                Err(absent("Materialized view", name, self.keyspace_of(name)?))
            }
            DescribeTarget::Function(name) => {
                let keyspace = self.keyspace_of(name)?;
                let found = functions(keyspace, Some(name.name.as_str()));
                if found.is_empty() {
                    Err(absent("User defined function", name, keyspace))
                } else {
                    Ok(found)
                }
            }
            DescribeTarget::Aggregate(name) => {
                let keyspace = self.keyspace_of(name)?;
                let found = aggregates(keyspace, Some(name.name.as_str()));
                if found.is_empty() {
                    Err(absent("User defined aggregate", name, keyspace))
                } else {
                    Ok(found)
                }
            }
            DescribeTarget::Anything(name) => self.anything(name),
        }
    }

    /// A keyspace, a table, an index or a view of that name, in this order.
    fn anything(self, name: &QualifiedName) -> Result<Vec<Element<'a>>, QueryError> {
        let element = name.name.as_str();
        let keyspace = match &name.keyspace {
            Some(keyspace) => keyspace.as_str(),
            None => match self.find_keyspace(element) {
                Some(keyspace) => return Ok(content(keyspace)),
                None => self.current.unwrap_or(element),
            },
        };
        let keyspace = self.keyspace(keyspace)?;
        match keyspace.tables.get(element) {
            Some(table) => Ok(vec![Element::Table(table)]),
            None => {
                Err(QueryError::invalid(format!("'{element}' not found in keyspace '{}'", keyspace.name)))
            }
        }
    }

    /// Elements of the session's keyspace, or of all of them.
    fn list(self, of: impl Fn(&'a Keyspace) -> Vec<Element<'a>>) -> Result<Vec<Element<'a>>, QueryError> {
        let keyspaces = match self.current {
            Some(current) => vec![self.keyspace(current)?],
            None => self.keyspaces(),
        };
        let mut elements = Vec::new();
        for keyspace in keyspaces {
            let mut found = of(keyspace);
            sort(&mut found);
            elements.append(&mut found);
        }
        Ok(elements)
    }

    fn keyspaces(self) -> Vec<&'a Keyspace> {
        let mut keyspaces: Vec<&Keyspace> = self.schema.keyspaces().chain(self.catalog.keyspaces()).collect();
        keyspaces.sort_by_key(|keyspace| keyspace.name.to_lowercase());
        keyspaces
    }

    fn find_keyspace(self, name: &str) -> Option<&'a Keyspace> {
        self.catalog.keyspace(name).or_else(|| self.schema.keyspace(name))
    }

    fn keyspace(self, name: &str) -> Result<&'a Keyspace, QueryError> {
        self.find_keyspace(name)
            .ok_or_else(|| QueryError::invalid(format!("'{name}' not found in keyspaces")))
    }

    fn current_keyspace(self) -> Result<&'a Keyspace, QueryError> {
        match self.current {
            Some(current) => self.keyspace(current),
            None => Err(QueryError::invalid("No keyspace specified and no current keyspace")),
        }
    }

    fn keyspace_of(self, name: &QualifiedName) -> Result<&'a Keyspace, QueryError> {
        match &name.keyspace {
            Some(keyspace) => self.keyspace(keyspace.as_str()),
            None => self.current_keyspace(),
        }
    }
}

fn table<'a>(keyspace: &'a Keyspace, name: &str) -> Result<Vec<Element<'a>>, QueryError> {
    match keyspace.tables.get(name) {
        Some(table) => Ok(vec![Element::Table(table)]),
        None => Err(QueryError::invalid(format!("Table '{name}' not found in keyspace '{}'", keyspace.name))),
    }
}

fn absent(what: &str, name: &QualifiedName, keyspace: &Keyspace) -> QueryError {
    QueryError::invalid(format!("{what} '{}' not found in '{}'", name.name.name, keyspace.name))
}

/// A keyspace and everything in it, in an order that can be executed: types before their users, functions,
/// aggregates, then tables.
fn content(keyspace: &Keyspace) -> Vec<Element<'_>> {
    let mut elements = vec![Element::Keyspace(keyspace)];
    let mut seen = BTreeSet::new();
    for definition in keyspace.types.values() {
        add_type(keyspace, definition, &mut seen, &mut elements);
    }
    elements.append(&mut functions(keyspace, None));
    elements.append(&mut aggregates(keyspace, None));
    let mut tables: Vec<Element<'_>> = keyspace.tables.values().map(Element::Table).collect();
    sort(&mut tables);
    elements.append(&mut tables);
    elements
}

/// The functions of a keyspace: all, or those with a name.
fn functions<'a>(keyspace: &'a Keyspace, name: Option<&str>) -> Vec<Element<'a>> {
    let of_name = |function: &&'a Rc<FunctionDefinition>| name.is_none_or(|name| function.name == name);
    keyspace.functions.iter().filter(of_name).map(|function| Element::Function(function)).collect()
}

/// The aggregates of a keyspace: all, or those with a name.
fn aggregates<'a>(keyspace: &'a Keyspace, name: Option<&str>) -> Vec<Element<'a>> {
    let of_name = |aggregate: &&'a Rc<AggregateDefinition>| name.is_none_or(|name| aggregate.name == name);
    keyspace.aggregates.iter().filter(of_name).map(|aggregate| Element::Aggregate(aggregate)).collect()
}

fn add_type<'a>(
    keyspace: &'a Keyspace,
    definition: &'a TypeDefinition,
    seen: &mut BTreeSet<&'a str>,
    elements: &mut Vec<Element<'a>>,
) {
    if !seen.insert(&definition.name) {
        return;
    }
    let mut named = Vec::new();
    definition.fields.iter().for_each(|(_, ty)| name_types(ty, &mut named));
    for name in named {
        if let Some(used) = keyspace.types.get(name) {
            add_type(keyspace, used, seen, elements);
        }
    }
    elements.push(Element::Type(&keyspace.name, definition));
}

/// The user types that a type names itself; those named by these follow from their definitions.
fn name_types<'a>(ty: &'a CqlType, names: &mut Vec<&'a str>) {
    match ty {
        CqlType::List { element, .. } | CqlType::Set { element, .. } | CqlType::Vector { element, .. } => {
            name_types(element, names);
        }
        CqlType::Map { key, value, .. } => {
            name_types(key, names);
            name_types(value, names);
        }
        CqlType::Tuple(components) => components.iter().for_each(|ty| name_types(ty, names)),
        CqlType::Udt(udt) => names.push(&udt.name),
        _ => {}
    }
}

/// By name without regard to case, as Cassandra sorts elements.
fn sort(elements: &mut [Element<'_>]) {
    elements.sort_by_key(|element| element.bare_name().to_lowercase());
}
