//! User-defined aggregates: a function updates a state with each row, and another one computes the result
//! from the last state.
//!
//! Rules as in Cassandra 5's `UDAggregate`; REDUCEFUNC, which merges the states of shards, is ScyllaDB's.

use std::rc::Rc;

use model::schema::AggregateDefinition;
use model::{CqlType, Schema};

use super::calls::Calls;
use super::{Function, Kind, UserFunction, compiled};
use crate::StatementError;
use crate::functions::resolve::{CallArguments, CallSite, pick_of};

/// A user-defined aggregate with its compiled functions.
#[derive(Debug)]
pub struct UserAggregate {
    definition: Rc<AggregateDefinition>,
    state: Rc<UserFunction>,
    last: Option<Rc<UserFunction>>,
    reduce: Option<Rc<UserFunction>>,
}

impl UserAggregate {
    fn of(schema: &Schema, definition: &Rc<AggregateDefinition>) -> Result<Self, StatementError> {
        let keyspace = schema.keyspace(&definition.keyspace);
        let function = |name: &str, types: Vec<&CqlType>| {
            let found = keyspace.and_then(|keyspace| keyspace.function(name, types.iter().copied()));
            let found = found.ok_or_else(|| {
                StatementError::Internal(format!(
                    "aggregate {}.{} names function {name}, which is not there",
                    definition.keyspace, definition.name
                ))
            })?;
            compiled(found)
        };
        let state = &definition.state_type;
        let arguments = std::iter::once(state).chain(&definition.arguments).collect();
        Ok(Self {
            state: function(&definition.state_function, arguments)?,
            last: definition.final_function.as_ref().map(|name| function(name, vec![state])).transpose()?,
            reduce: definition
                .reduce_function
                .as_ref()
                .map(|name| function(name, vec![state, state]))
                .transpose()?,
            definition: Rc::clone(definition),
        })
    }

    /// Whether the states of several shards can be merged.
    pub fn is_mergeable(&self) -> bool {
        self.reduce.is_some()
    }

    /// Merges two states with REDUCEFUNC. If that takes no nulls, the result of a null and a state is the
    /// state.
    ///
    /// # Errors
    /// [`StatementError::FunctionFailure`]; [`StatementError::Internal`] if the aggregate has no REDUCEFUNC;
    /// errors
    /// of [`Calls::call`].
    pub fn reduce(
        &self,
        calls: &Calls,
        left: Option<&[u8]>,
        right: Option<&[u8]>,
    ) -> Result<Option<Vec<u8>>, StatementError> {
        let Some(reduce) = &self.reduce else {
            return Err(StatementError::Internal(format!("{} has no REDUCEFUNC", self.full_name())));
        };
        match (left, right) {
            (None, one) | (one, None) if !reduce.definition.called_on_null_input => {
                Ok(one.map(<[u8]>::to_vec))
            }
            (left, right) => calls.call(reduce, &[left, right]),
        }
    }

    /// `keyspace.name`, as in result columns.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.definition.keyspace, self.definition.name)
    }

    /// The types of the arguments.
    pub fn arguments(&self) -> &[CqlType] {
        &self.definition.arguments
    }

    /// The type of the state.
    pub fn state_type(&self) -> &CqlType {
        &self.definition.state_type
    }

    /// The type of the result.
    pub fn result(&self) -> &CqlType {
        &self.definition.returns
    }

    /// The state before the first row.
    pub fn first(&self) -> Option<Vec<u8>> {
        self.definition.initial_state.clone()
    }

    /// Whether a row with these arguments changes the state: if the state function takes no nulls, rows with
    /// null arguments do not.
    pub fn takes(&self, arguments: &[Option<&[u8]>]) -> bool {
        self.state.definition.called_on_null_input || arguments.iter().all(Option::is_some)
    }

    /// The state after another row.
    ///
    /// # Errors
    /// Errors of [`Calls::call`].
    pub fn step(
        &self,
        calls: &Calls,
        state: Option<&[u8]>,
        arguments: &[Option<&[u8]>],
    ) -> Result<Option<Vec<u8>>, StatementError> {
        let all: Vec<Option<&[u8]>> = std::iter::once(state).chain(arguments.iter().copied()).collect();
        calls.call(&self.state, &all)
    }

    /// Computes the result from the last state.
    ///
    /// # Errors
    /// Errors of [`Calls::call`].
    pub fn finish(&self, calls: &Calls, state: Option<&[u8]>) -> Result<Option<Vec<u8>>, StatementError> {
        match &self.last {
            Some(last) => calls.call(last, &[state]),
            None => Ok(state.map(<[u8]>::to_vec)),
        }
    }
}

/// The user-defined aggregate that a call means; `None` if no aggregate has the name.
///
/// # Errors
/// [`StatementError::Invalid`] if no overload, or more than one, takes the arguments.
pub fn resolve_aggregate(
    site: &CallSite<'_>,
    arguments: &dyn CallArguments,
) -> Result<Option<Rc<UserAggregate>>, StatementError> {
    let owner = site.keyspace.unwrap_or_else(|| site.table.keyspace());
    let Some(keyspace) = site.schema.keyspace(owner) else { return Ok(None) };
    let of_name: Vec<_> =
        keyspace.aggregates.iter().filter(|aggregate| aggregate.name == site.name).collect();
    if of_name.is_empty() {
        return Ok(None);
    }
    // The overload is chosen by the rules of functions: each aggregate is represented by a function with its
    // signature.
    let signatures: Vec<Function> = of_name
        .iter()
        .map(|definition| Function {
            name: definition.name.clone(),
            kind: Kind::Signature(Rc::clone(definition)),
            arguments: definition.arguments.clone(),
            result: definition.returns.clone(),
        })
        .collect();
    let chosen = pick_of(site, signatures, arguments)?;
    match &chosen.kind {
        Kind::Signature(definition) => UserAggregate::of(site.schema, definition).map(|a| Some(Rc::new(a))),
        _ => Ok(None),
    }
}
