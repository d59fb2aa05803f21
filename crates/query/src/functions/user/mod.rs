//! User-defined functions and aggregates: compiled once on each shard, called like native ones.
//!
//! A language is a sandbox (`lua`, `wasm`): no files, no network, no clock, no chance; each call has a limit of work and
//! of memory, after which it fails and nothing else. What a call leaves behind is never seen by the next.
//! Invariant: a compiled function belongs to one definition; another body is compiled anew.

#[cfg(feature = "udf-lua")]
mod lua;
#[cfg(feature = "udf-lua")]
mod lua_limits;
#[cfg(feature = "udf-lua")]
mod lua_values;
#[cfg(feature = "udf-wasm")]
mod wasm;

use std::cell::RefCell;
use std::rc::Rc;

use model::schema::{AggregateDefinition, FunctionDefinition};
use model::{CqlType, Schema};

use super::resolve::{CallArguments, CallSite, pick_of};
use super::{Function, Kind};
use crate::QueryError;

/// Most compiled functions a shard keeps; beyond them the oldest is compiled anew when it is called again.
const COMPILED_MAX: usize = 256;

/// A user-defined function that can run.
#[derive(Debug)]
pub struct UserFunction {
    definition: Rc<FunctionDefinition>,
    program: Program,
}

#[derive(Debug)]
enum Program {
    #[cfg(feature = "udf-lua")]
    Lua(lua::LuaFunction),
    #[cfg(feature = "udf-wasm")]
    Wasm(wasm::WasmFunction),
}

/// Functions compiled on this shard, oldest first.
#[derive(Default)]
struct Compiled(RefCell<Vec<Rc<UserFunction>>>);

/// Languages that functions may be written in.
pub fn languages() -> &'static [&'static str] {
    #[allow(unused_mut, reason = "each language is a feature")]
    const LANGUAGES: &[&str] = &[
        #[cfg(feature = "udf-lua")]
        "lua",
        #[cfg(feature = "udf-wasm")]
        "wasm",
    ];
    LANGUAGES
}

/// Compiles a function.
///
/// # Errors
/// What the compiler says, or that there is no such language.
pub fn compile(definition: &Rc<FunctionDefinition>) -> Result<UserFunction, QueryError> {
    let wrong = |problem: String| {
        QueryError::Invalid(format!(
            "Could not compile function '{}.{}' from {} source: {problem}",
            definition.keyspace, definition.name, definition.language
        ))
    };
    let program = match definition.language.as_str() {
        #[cfg(feature = "udf-lua")]
        "lua" => Program::Lua(lua::LuaFunction::compile(definition).map_err(wrong)?),
        #[cfg(feature = "udf-wasm")]
        "wasm" => Program::Wasm(wasm::WasmFunction::compile(definition).map_err(wrong)?),
        other => {
            return Err(QueryError::Invalid(format!(
                "Invalid language '{other}' for function '{}.{}': functions may be written in {}",
                definition.keyspace,
                definition.name,
                if languages().is_empty() { "no language".to_owned() } else { languages().join(" or ") }
            )));
        }
    };
    Ok(UserFunction { definition: Rc::clone(definition), program })
}

/// The compiled form of a function, from those the shard keeps where it has it.
fn compiled(definition: &Rc<FunctionDefinition>) -> Result<Rc<UserFunction>, QueryError> {
    let kept = reactor::local::<Compiled>().unwrap_or_else(|| {
        let kept = Rc::new(Compiled::default());
        reactor::set_local(Rc::clone(&kept));
        kept
    });
    let found = kept.0.borrow().iter().find(|function| function.definition == *definition).cloned();
    if let Some(found) = found {
        return Ok(found);
    }
    let function = Rc::new(compile(definition)?);
    let mut kept = kept.0.borrow_mut();
    let same = |known: &Rc<UserFunction>| {
        known.definition.keyspace == definition.keyspace
            && known.definition.name == definition.name
            && known.definition.takes(definition.argument_types())
    };
    kept.retain(|known| !same(known));
    if kept.len() == COMPILED_MAX {
        kept.remove(0);
    }
    kept.push(Rc::clone(&function));
    Ok(function)
}

/// The user's overloads of a name. One that no longer compiles is left out where others remain to be chosen.
///
/// # Errors
/// [`QueryError::Invalid`] where a function cannot be compiled on this node.
pub(super) fn overloads(schema: &Schema, keyspace: &str, name: &str) -> Result<Vec<Function>, QueryError> {
    let Some(keyspace) = schema.keyspace(keyspace) else { return Ok(Vec::new()) };
    let of_name = keyspace.functions.iter().filter(|function| function.name == name);
    of_name.map(|definition| compiled(definition).map(Function::of_user)).collect()
}

impl Function {
    fn of_user(function: Rc<UserFunction>) -> Self {
        let definition = &function.definition;
        let arguments: Vec<CqlType> = definition.argument_types().cloned().collect();
        let (name, result) = (definition.name.clone(), definition.returns.clone());
        Self { name, arguments, result, kind: Kind::User(function) }
    }
}

impl PartialEq for UserFunction {
    fn eq(&self, other: &Self) -> bool {
        self.definition == other.definition
    }
}

impl UserFunction {
    /// The keyspace that owns it.
    pub fn keyspace(&self) -> &str {
        &self.definition.keyspace
    }

    /// Calls it; null where an argument is null and the function does not take that.
    ///
    /// # Errors
    /// [`QueryError::FunctionFailure`] where the program failed, or reached a limit.
    pub fn call(&self, arguments: &[Option<&[u8]>]) -> Result<Option<Vec<u8>>, QueryError> {
        let null = |(argument, ty): (&Option<&[u8]>, &CqlType)| {
            argument.is_none_or(|value| value.is_empty() && ty.is_empty_value_meaningless())
        };
        let types = self.definition.argument_types();
        if !self.definition.called_on_null_input && arguments.iter().zip(types).any(null) {
            return Ok(None);
        }
        let result = match &self.program {
            #[cfg(feature = "udf-lua")]
            Program::Lua(program) => program.call(&self.definition, arguments),
            #[cfg(feature = "udf-wasm")]
            Program::Wasm(program) => program.call(&self.definition, arguments),
        };
        let checked = result.and_then(|value| match &value {
            Some(bytes) => match model::validate::validate(&self.definition.returns, bytes) {
                Ok(()) => Ok(value),
                Err(error) => Err(format!("it returned no {}: {error}", self.definition.returns)),
            },
            None => Ok(None),
        });
        checked.map_err(|problem| {
            let definition = &self.definition;
            let arguments: Vec<String> = definition.argument_types().map(ToString::to_string).collect();
            QueryError::FunctionFailure {
                message: format!(
                    "execution of '{}.{}[{}]' failed: {problem}",
                    definition.keyspace,
                    definition.name,
                    arguments.join(", ")
                ),
                keyspace: definition.keyspace.clone(),
                function: definition.name.clone(),
                arguments,
            }
        })
    }
}

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
    /// [`QueryError::FunctionFailure`]; [`QueryError::Internal`] where the aggregate has none.
    pub fn reduce(
        &self,
        left: Option<Vec<u8>>,
        right: Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>, QueryError> {
        let Some(reduce) = &self.reduce else {
            return Err(QueryError::Internal(format!("{} has no REDUCEFUNC", self.full_name())));
        };
        match (left, right) {
            (None, one) | (one, None) if !reduce.definition.called_on_null_input => Ok(one),
            (left, right) => reduce.call(&[left.as_deref(), right.as_deref()]),
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

    /// Type of the result.
    pub fn result(&self) -> &CqlType {
        &self.definition.returns
    }

    /// The state before the first row.
    pub fn first(&self) -> Option<Vec<u8>> {
        self.definition.initial_state.clone()
    }

    /// The state after one more row. A state function that takes no nulls leaves the state as it is where there are any.
    ///
    /// # Errors
    /// [`QueryError::FunctionFailure`].
    pub fn step(
        &self,
        state: Option<Vec<u8>>,
        arguments: &[Option<&[u8]>],
    ) -> Result<Option<Vec<u8>>, QueryError> {
        if !self.state.definition.called_on_null_input && arguments.iter().any(Option::is_none) {
            return Ok(state);
        }
        let all: Vec<Option<&[u8]>> =
            std::iter::once(state.as_deref()).chain(arguments.iter().copied()).collect();
        self.state.call(&all)
    }

    /// The result of the last state.
    ///
    /// # Errors
    /// [`QueryError::FunctionFailure`].
    pub fn finish(&self, state: Option<Vec<u8>>) -> Result<Option<Vec<u8>>, QueryError> {
        match &self.last {
            Some(last) => last.call(&[state.as_deref()]),
            None => Ok(state),
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
