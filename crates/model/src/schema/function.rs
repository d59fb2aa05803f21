//! User-defined functions and aggregates as the schema keeps them.
//!
//! A function is identified by its name and the types of its arguments. `query` runs functions; this file has
//! only their declarations, for schema changes and system tables.

use minicbor::{Decode, Encode};

use super::codec;
use crate::types::CqlType;

/// A user-defined function.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct FunctionDefinition {
    /// Keyspace that owns it.
    #[n(0)]
    pub keyspace: String,
    /// Name, case as stored.
    #[n(1)]
    pub name: String,
    /// Names and types of the arguments.
    #[n(2)]
    #[cbor(with = "codec::fields")]
    pub arguments: Vec<(String, CqlType)>,
    /// The type of its result.
    #[n(3)]
    #[cbor(with = "codec::cql_type")]
    pub returns: CqlType,
    /// Whether the function is called if an argument is null; otherwise the result is null.
    #[n(4)]
    pub called_on_null_input: bool,
    /// The language, in lower case.
    #[n(5)]
    pub language: String,
    /// The source.
    #[n(6)]
    pub body: String,
}

/// A user-defined aggregate.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct AggregateDefinition {
    /// Keyspace that owns it, and the functions it names.
    #[n(0)]
    pub keyspace: String,
    /// Name, case as stored.
    #[n(1)]
    pub name: String,
    /// Types of the arguments.
    #[n(2)]
    #[cbor(with = "codec::types")]
    pub arguments: Vec<CqlType>,
    /// The function that takes the state and the arguments and returns the next state.
    #[n(3)]
    pub state_function: String,
    /// Type of the state.
    #[n(4)]
    #[cbor(with = "codec::cql_type")]
    pub state_type: CqlType,
    /// The function that makes the result of the last state; without one the state is the result.
    #[n(5)]
    pub final_function: Option<String>,
    /// The function that makes one state of two.
    #[n(6)]
    pub reduce_function: Option<String>,
    /// The first state, serialised; null without one.
    #[n(7)]
    pub initial_state: Option<Vec<u8>>,
    /// Type of the result.
    #[n(8)]
    #[cbor(with = "codec::cql_type")]
    pub returns: CqlType,
}

impl FunctionDefinition {
    /// Types of the arguments.
    pub fn argument_types(&self) -> impl Iterator<Item = &CqlType> {
        self.arguments.iter().map(|(_, ty)| ty)
    }

    /// Whether this is the overload for these types.
    pub fn takes<'t>(&self, types: impl IntoIterator<Item = &'t CqlType>) -> bool {
        self.argument_types().eq(types)
    }

    /// Whether a type of it is, or contains, the user-defined type.
    pub fn references_udt(&self, keyspace: &str, name: &str) -> bool {
        self.argument_types().chain([&self.returns]).any(|ty| ty.references_udt(keyspace, name))
    }

    /// The types of it, to be replaced.
    pub(super) fn types_mut(&mut self) -> impl Iterator<Item = &mut CqlType> {
        self.arguments.iter_mut().map(|(_, ty)| ty).chain([&mut self.returns])
    }
}

impl AggregateDefinition {
    /// Whether the aggregate uses a function, by name and argument types.
    pub fn uses(&self, function: &FunctionDefinition) -> bool {
        let named = |name: &Option<String>| name.as_ref() == Some(&function.name);
        let state = std::iter::once(&self.state_type);
        (self.state_function == function.name && function.takes(state.clone().chain(&self.arguments)))
            || (named(&self.final_function) && function.takes(state.clone()))
            || (named(&self.reduce_function) && function.takes(state.clone().chain(state)))
    }

    /// Whether a type of it is, or contains, the user-defined type.
    pub fn references_udt(&self, keyspace: &str, name: &str) -> bool {
        let types = self.arguments.iter().chain([&self.state_type, &self.returns]);
        types.into_iter().any(|ty| ty.references_udt(keyspace, name))
    }

    /// The types of it, to be replaced.
    pub(super) fn types_mut(&mut self) -> impl Iterator<Item = &mut CqlType> {
        self.arguments.iter_mut().chain([&mut self.state_type, &mut self.returns])
    }
}
