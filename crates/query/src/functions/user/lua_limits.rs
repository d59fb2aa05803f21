//! What a call in Lua may use up: instructions, the work of library functions, and time.
//!
//! Library functions run in C, where instructions are not counted: each is charged for the bytes and elements it is given. What
//! no count sees (one long text joined to another, again and again) ends with the time. Errors may be caught, limits not:
//! once one is reached, every look at it fails again.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use mlua::{HookTriggers, Lua, MultiValue, Table, Value, VmState};
use reactor::Deadline;

/// Instructions of the virtual machine one call may take, with what its library functions are charged.
pub(super) const INSTRUCTIONS_MAX: u32 = 2_000_000;
/// Instructions between two looks at how many there were.
const INSTRUCTIONS_STEP: u32 = 200;
/// How long a call may take at most: a hundred times what its instructions do.
const TIME_MAX: Duration = Duration::from_secs(2);
/// Bytes of text that a library function handles for one instruction.
const BYTES_PER_INSTRUCTION: usize = 32;
/// Elements of a table that a library function handles for one instruction.
const ELEMENTS_PER_INSTRUCTION: usize = 8;

/// What is left to a call.
#[derive(Debug)]
pub(super) struct Budget {
    instructions: Cell<u32>,
    deadline: Cell<Deadline>,
    /// Why nothing is left.
    spent: Cell<bool>,
}

impl Budget {
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Self {
            instructions: Cell::new(INSTRUCTIONS_MAX),
            deadline: Cell::new(Deadline::NEVER),
            spent: Cell::new(false),
        })
    }

    /// A call begins.
    pub(super) fn fill(&self) {
        self.instructions.set(INSTRUCTIONS_MAX);
        self.deadline.set(Deadline::after(TIME_MAX));
        self.spent.set(false);
    }

    fn charge(&self, instructions: usize) -> mlua::Result<()> {
        let left =
            u32::try_from(instructions).ok().and_then(|used| self.instructions.get().checked_sub(used));
        match left {
            Some(left) if !self.deadline.get().is_past() => {
                self.instructions.set(left);
                Ok(())
            }
            Some(_) => {
                self.spent.set(true);
                Err(mlua::Error::runtime(format!("the function took more than {TIME_MAX:?}")))
            }
            None => {
                self.spent.set(true);
                self.instructions.set(0);
                Err(mlua::Error::runtime(format!(
                    "the function took more than {INSTRUCTIONS_MAX} instructions"
                )))
            }
        }
    }
}

/// Puts a machine under the limits of `budget`: its instructions, and the functions of these libraries.
///
/// # Errors
/// Where the machine has no room for it.
pub(super) fn limit(lua: &Lua, libraries: &[&'static str], budget: &Rc<Budget>) -> mlua::Result<()> {
    let of_hook = Rc::clone(budget);
    lua.set_hook(HookTriggers::new().every_nth_instruction(INSTRUCTIONS_STEP), move |_, _| {
        of_hook.charge(INSTRUCTIONS_STEP as usize).map(|()| VmState::Continue)
    })?;
    let globals = lua.globals();
    for name in libraries {
        let library: Table = globals.get(*name)?;
        let functions: Vec<(String, mlua::Function)> =
            library.pairs::<String, Value>().filter_map(as_function).collect();
        for (function, original) in functions {
            let budget = Rc::clone(budget);
            let (library_name, of_function) = (*name, function.clone());
            let charged = lua.create_function(move |_, arguments: MultiValue| {
                budget.charge(cost(library_name, &of_function, &arguments))?;
                original.call::<MultiValue>(arguments)
            })?;
            library.set(function, charged)?;
        }
    }
    globals.set("pcall", pcall(lua, budget)?)
}

fn as_function(pair: mlua::Result<(String, Value)>) -> Option<(String, mlua::Function)> {
    match pair {
        Ok((name, Value::Function(function))) => Some((name, function)),
        _ => None,
    }
}

/// Instructions that a library function is charged.
fn cost(library: &str, function: &str, arguments: &MultiValue) -> usize {
    let mut cost = 1_usize;
    for argument in arguments {
        cost = cost.saturating_add(match argument {
            Value::String(text) => text.as_bytes().len() / BYTES_PER_INSTRUCTION,
            Value::Table(table) if library == "table" => table.raw_len() / ELEMENTS_PER_INSTRUCTION,
            _ => 0,
        });
    }
    let times = match (function, arguments.get(1)) {
        ("rep", Some(Value::Integer(times))) => usize::try_from(*times).unwrap_or(0),
        ("rep", Some(Value::Number(times))) if *times >= 1.0 => *times as usize,
        // Comparisons: as many for each element as its place has digits, in twos.
        ("sort", _) => 20,
        _ => 1,
    };
    let by_times = match arguments.front() {
        Some(Value::String(text)) if function == "rep" => {
            text.as_bytes().len().saturating_mul(times) / BYTES_PER_INSTRUCTION
        }
        _ if function == "sort" => cost.saturating_mul(times),
        _ => 0,
    };
    cost.saturating_add(by_times)
}

/// `pcall`, which catches what the function did wrong, and not that it reached a limit.
fn pcall(lua: &Lua, budget: &Rc<Budget>) -> mlua::Result<mlua::Function> {
    let budget = Rc::clone(budget);
    lua.create_function(move |lua, (function, arguments): (Value, MultiValue)| {
        let called = match &function {
            Value::Function(function) => function.call::<MultiValue>(arguments),
            other => Err(mlua::Error::runtime(format!("attempt to call a {} value", other.type_name()))),
        };
        match called {
            Ok(mut values) => {
                values.push_front(Value::Boolean(true));
                Ok(values)
            }
            Err(error) if budget.spent.get() || is_out_of_memory(&error) => Err(error),
            Err(error) => {
                let text = lua.create_string(message(&error))?;
                Ok(MultiValue::from_iter([Value::Boolean(false), Value::String(text)]))
            }
        }
    })
}

fn is_out_of_memory(error: &mlua::Error) -> bool {
    match error {
        mlua::Error::MemoryError(_) => true,
        mlua::Error::CallbackError { cause, .. } => is_out_of_memory(cause),
        _ => false,
    }
}

/// What `error` was given, without what the host says around it.
fn message(error: &mlua::Error) -> String {
    match error {
        mlua::Error::CallbackError { cause, .. } => message(cause),
        mlua::Error::RuntimeError(text) => text.lines().next().unwrap_or_default().to_owned(),
        other => super::lua::text(other),
    }
}
