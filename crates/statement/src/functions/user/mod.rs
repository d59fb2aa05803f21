//! User-defined functions and aggregates: compiled once on each shard, called like native ones.
//!
//! A language is a sandbox (`lua`, `wasm`): no files, no network, no clock, no random numbers. Each call has
//! limits of work and memory; beyond them only the call fails. No call sees state of an earlier one. A call
//! runs in slices; `calls` has the state of a statement's calls between them.
//! Invariant: a compiled function belongs to one definition; a changed body is compiled again.
#![cfg_attr(
    not(any(feature = "udf-lua", feature = "udf-wasm")),
    allow(dead_code, unused_variables, unreachable_code, reason = "there is nothing to run")
)]

mod aggregate;
pub mod calls;

#[cfg(feature = "udf-lua")]
mod lua;
#[cfg(feature = "udf-lua")]
mod lua_limits;
#[cfg(feature = "udf-lua")]
mod lua_values;
#[cfg(feature = "udf-lua")]
mod lua_work;
mod slice;
#[cfg(feature = "udf-wasm")]
mod wasm;
#[cfg(feature = "udf-wasm")]
mod wat;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use model::schema::FunctionDefinition;
use model::{CqlType, Schema};

use self::slice::Slice;
use super::{Function, Kind};
use crate::StatementError;

pub use aggregate::{UserAggregate, resolve_aggregate};

/// Most compiled functions that a shard keeps; beyond that, the oldest one is compiled again when it is
/// called.
const COMPILED_MAX: usize = 256;

/// A compiled user-defined function.
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

/// The result of a slice of a call.
#[derive(Debug)]
enum Step<C> {
    /// The call ended with this value.
    Done(Option<Vec<u8>>),
    /// The call continues in another slice.
    Paused(C),
}

/// A call that has begun.
struct Running {
    function: Rc<UserFunction>,
    state: State,
    /// The time of its slices so far.
    took: Duration,
    warned: bool,
}

/// Time limits of one call, not counting other tasks between its slices. Set per shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallTimes {
    /// `user_defined_functions_warn_timeout`: beyond it, a warning for the client and the log; zero for no
    /// warning.
    pub warn: Duration,
    /// `user_defined_functions_fail_timeout`: beyond it, the call fails.
    pub fail: Duration,
}

impl Default for CallTimes {
    fn default() -> Self {
        Self { warn: Duration::from_millis(500), fail: Duration::from_millis(1500) }
    }
}

impl CallTimes {
    /// The limits of this shard.
    fn here() -> Self {
        reactor::local::<Self>().map_or_else(Self::default, |times| *times)
    }

    /// Sets the limits of this shard.
    pub fn set(self) {
        reactor::set_local(Rc::new(self));
    }
}

enum State {
    #[cfg(feature = "udf-lua")]
    Lua(Box<lua::LuaCall>),
    #[cfg(feature = "udf-wasm")]
    Wasm(Box<wasm::WasmCall>),
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("function", &self.function).finish_non_exhaustive()
    }
}

impl Running {
    /// Bytes that the sandbox holds.
    fn held_bytes(&self) -> usize {
        match &self.state {
            #[cfg(feature = "udf-lua")]
            State::Lua(call) => call.held_bytes(),
            #[cfg(feature = "udf-wasm")]
            State::Wasm(call) => call.held_bytes(),
            #[allow(unreachable_patterns, reason = "a node may have no language")]
            _ => 0,
        }
    }

    /// Continues for a slice.
    ///
    /// # Errors
    /// [`StatementError::FunctionFailure`] if the program failed or reached a limit.
    fn run(
        self,
        slice: &Slice,
        times: CallTimes,
        warn: impl FnOnce(String),
    ) -> Result<Step<Self>, StatementError> {
        let Self { function, state, took, warned } = self;
        let definition = &function.definition;
        let begin = reactor::now();
        let ran = match (state, &function.program) {
            #[cfg(feature = "udf-lua")]
            (State::Lua(call), Program::Lua(program)) => {
                program.run(definition, call, slice).map(|step| step.map(State::Lua))
            }
            #[cfg(feature = "udf-wasm")]
            (State::Wasm(call), Program::Wasm(_)) => {
                wasm::WasmFunction::run(definition, call, slice).map(|step| step.map(State::Wasm))
            }
            #[allow(unreachable_patterns, reason = "a node may have one language")]
            _ => Err("it is of another language".to_owned()),
        };
        let took = took + begin.elapsed();
        let is_slow = !times.warn.is_zero() && took > times.warn;
        if is_slow && !warned {
            warn(function.ran_longer(times.warn));
        }
        if took > times.fail && !matches!(ran, Ok(Step::Done(_))) {
            return Err(function.failure(&function.ran_longer(times.fail)));
        }
        let checked = ran.and_then(|step| match &step {
            Step::Done(Some(bytes)) => match model::validate::validate(&definition.returns, bytes) {
                Ok(()) => Ok(step),
                Err(error) => Err(format!("it returned no {}: {error}", definition.returns)),
            },
            _ => Ok(step),
        });
        match checked {
            Ok(Step::Done(value)) => Ok(Step::Done(value)),
            Ok(Step::Paused(state)) => {
                Ok(Step::Paused(Self { function, state, took, warned: warned || is_slow }))
            }
            Err(problem) => Err(function.failure(&problem)),
        }
    }
}

impl<C> Step<C> {
    fn map<D>(self, with: impl FnOnce(C) -> D) -> Step<D> {
        match self {
            Self::Done(value) => Step::Done(value),
            Self::Paused(call) => Step::Paused(with(call)),
        }
    }
}

/// The functions compiled on this shard, oldest first.
#[derive(Default)]
struct Compiled(RefCell<Vec<Rc<UserFunction>>>);

/// The languages of user-defined functions in this build.
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
/// The compiler's error, or that the language is not supported.
pub fn compile(definition: &Rc<FunctionDefinition>) -> Result<UserFunction, StatementError> {
    let wrong = |problem: String| {
        StatementError::Invalid(format!(
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
            return Err(StatementError::Invalid(format!(
                "Invalid language '{other}' for function '{}.{}': functions may be written in {}",
                definition.keyspace,
                definition.name,
                if languages().is_empty() { "no language".to_owned() } else { languages().join(" or ") }
            )));
        }
    };
    Ok(UserFunction { definition: Rc::clone(definition), program })
}

/// The compiled form of a function; compiles it if the shard does not have it.
fn compiled(definition: &Rc<FunctionDefinition>) -> Result<Rc<UserFunction>, StatementError> {
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

/// The user-defined overloads of a name.
///
/// # Errors
/// [`StatementError::Invalid`] if one of the functions cannot be compiled on this node.
pub(super) fn overloads(schema: &Schema, keyspace: &str, name: &str) -> Vec<Function> {
    let Some(keyspace) = schema.keyspace(keyspace) else { return Vec::new() };
    let of_name = keyspace.functions.iter().filter(|function| function.name == name);
    of_name.map(Function::of_definition).collect()
}

/// The function that was chosen, ready to be called. Only that one is compiled, so that an overload that
/// cannot be compiled here does not stand in the way of the others.
///
/// # Errors
/// Those of compiling it.
pub(super) fn chosen(mut function: Function) -> Result<Function, StatementError> {
    if let Kind::Definition(definition) = &function.kind {
        function.kind = Kind::User(compiled(definition)?);
    }
    Ok(function)
}

impl Function {
    fn of_definition(definition: &Rc<FunctionDefinition>) -> Self {
        let arguments: Vec<CqlType> = definition.argument_types().cloned().collect();
        let (name, result) = (definition.name.clone(), definition.returns.clone());
        Self { name, arguments, result, kind: Kind::Definition(Rc::clone(definition)) }
    }
}

impl PartialEq for UserFunction {
    fn eq(&self, other: &Self) -> bool {
        self.definition == other.definition
    }
}

impl UserFunction {
    /// The keyspace of the function.
    pub fn keyspace(&self) -> &str {
        &self.definition.keyspace
    }

    /// Whether the program runs with these arguments; if not, the result is null.
    fn takes(&self, arguments: &[Option<&[u8]>]) -> bool {
        let null = |(argument, ty): (&Option<&[u8]>, &CqlType)| {
            argument.is_none_or(|value| value.is_empty() && ty.is_empty_value_meaningless())
        };
        self.definition.called_on_null_input
            || !arguments.iter().zip(self.definition.argument_types()).any(null)
    }

    /// Prepares a call of the function, before its first slice.
    ///
    /// # Errors
    /// [`StatementError::FunctionFailure`] if the program cannot start.
    fn begin(self: &Rc<Self>, arguments: &[Option<&[u8]>]) -> Result<Running, StatementError> {
        let state: Result<State, String> = match &self.program {
            #[cfg(feature = "udf-lua")]
            Program::Lua(program) => {
                program.begin(&self.definition, arguments).map(|call| State::Lua(Box::new(call)))
            }
            #[cfg(feature = "udf-wasm")]
            Program::Wasm(program) => {
                program.begin(&self.definition, arguments).map(|call| State::Wasm(Box::new(call)))
            }
            #[allow(unreachable_patterns, reason = "a node may have no language")]
            _ => Err(format!("it cannot run with {} arguments", arguments.len())),
        };
        match state {
            Ok(state) => {
                Ok(Running { function: Rc::clone(self), state, took: Duration::ZERO, warned: false })
            }
            Err(problem) => Err(self.failure(&problem)),
        }
    }

    /// The warning or error text for a call that exceeds a time limit.
    #[cold]
    fn ran_longer(&self, limit: Duration) -> String {
        let definition = &self.definition;
        let arguments: Vec<String> = definition.argument_types().map(ToString::to_string).collect();
        format!(
            "User defined function {}.{} : ({}) -> {} ran longer than {}ms",
            definition.keyspace,
            definition.name,
            arguments.join(", "),
            definition.returns,
            limit.as_millis()
        )
    }

    fn failure(&self, problem: &str) -> StatementError {
        let definition = &self.definition;
        let arguments: Vec<String> = definition.argument_types().map(ToString::to_string).collect();
        StatementError::FunctionFailure {
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
    }
}
