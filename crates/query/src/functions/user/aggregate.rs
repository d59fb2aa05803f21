//! User-defined aggregates: a state that a function carries from row to row, and what another makes of the last.
//!
//! Rules as Cassandra 5's `UDAggregate`; REDUCEFUNC, which joins the states of shards, is ScyllaDB's.

use std::rc::Rc;

use model::schema::AggregateDefinition;
use model::{CqlType, Schema};

use super::calls::Calls;
use super::{Function, Kind, UserFunction, compiled};
use crate::QueryError;
use crate::functions::resolve::{CallArguments, CallSite, pick_of};

/// A user-defined aggregate that can run.
#[derive(Debug)]
pub struct UserAggregate {
    definition: Rc<AggregateDefinition>,
    state: Rc<UserFunction>,
    last: Option<Rc<UserFunction>>,
    reduce: Option<Rc<UserFunction>>,
}

impl UserAggregate {
    fn of(schema: &Schema, definition: &Rc<AggregateDefinition>) -> Result<Self, QueryError> {
        let keyspace = schema.keyspace(&definition.keyspace);
        let function = |name: &str, types: Vec<&CqlType>| {
            let found = keyspace.and_then(|keyspace| keyspace.function(name, types.iter().copied()));
            let found = found.ok_or_else(|| {
                QueryError::Internal(format!(
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

    /// Whether states of several shards can be put together.
    pub fn is_mergeable(&self) -> bool {
        self.reduce.is_some()
    }

    /// The state of two parts of the rows, by REDUCEFUNC. One that takes no nulls leaves the other part's state as it is.
    ///
    /// # Errors
    /// [`QueryError::FunctionFailure`]; [`QueryError::Internal`] where the aggregate has none. As of [`Calls::call`].
    pub fn reduce(
        &self,
        calls: &Calls,
        left: Option<&[u8]>,
        right: Option<&[u8]>,
    ) -> Result<Option<Vec<u8>>, QueryError> {
        let Some(reduce) = &self.reduce else {
            return Err(QueryError::Internal(format!("{} has no REDUCEFUNC", self.full_name())));
        };
        match (left, right) {
            (None, one) | (one, None) if !reduce.definition.called_on_null_input => {
                Ok(one.map(<[u8]>::to_vec))
            }
            (left, right) => calls.call(reduce, &[left, right]),
        }
    }

    /// `keyspace.name`, as result columns show it.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.definition.keyspace, self.definition.name)
    }

    /// Types of the arguments.
    pub fn arguments(&self) -> &[CqlType] {
        &self.definition.arguments
    }

    /// Type of the state.
    pub fn state_type(&self) -> &CqlType {
        &self.definition.state_type
    }

    /// Type of the result.
    pub fn result(&self) -> &CqlType {
        &self.definition.returns
    }

    /// The state before the first row.
    pub fn first(&self) -> Option<Vec<u8>> {
        self.definition.initial_state.clone()
    }

    /// Whether a row with these arguments changes the state: a state function that takes no nulls leaves it as it is where
    /// there are any.
    pub fn takes(&self, arguments: &[Option<&[u8]>]) -> bool {
        self.state.definition.called_on_null_input || arguments.iter().all(Option::is_some)
    }

    /// The state after one more row.
    ///
    /// # Errors
    /// As of [`Calls::call`].
    pub fn step(
        &self,
        calls: &Calls,
        state: Option<&[u8]>,
        arguments: &[Option<&[u8]>],
    ) -> Result<Option<Vec<u8>>, QueryError> {
        let all: Vec<Option<&[u8]>> = std::iter::once(state).chain(arguments.iter().copied()).collect();
        calls.call(&self.state, &all)
    }

    /// The result of the last state.
    ///
    /// # Errors
    /// As of [`Calls::call`].
    pub fn finish(&self, calls: &Calls, state: Option<&[u8]>) -> Result<Option<Vec<u8>>, QueryError> {
        match &self.last {
            Some(last) => calls.call(last, &[state]),
            None => Ok(state.map(<[u8]>::to_vec)),
        }
    }
}

/// The user-defined aggregate a call means; `None` where none has the name.
///
/// # Errors
/// [`QueryError::Invalid`] where no overload, or more than one, takes the arguments.
pub fn resolve_aggregate(
    site: &CallSite<'_>,
    arguments: &dyn CallArguments,
) -> Result<Option<Rc<UserAggregate>>, QueryError> {
    let owner = site.keyspace.unwrap_or_else(|| site.table.keyspace());
    let Some(keyspace) = site.schema.keyspace(owner) else { return Ok(None) };
    let of_name: Vec<_> =
        keyspace.aggregates.iter().filter(|aggregate| aggregate.name == site.name).collect();
    if of_name.is_empty() {
        return Ok(None);
    }
    // The rules of functions choose between them: they stand in for the aggregates by their place.
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
