//! Functions in Lua 5.4.
//!
//! The source is the body of a function whose arguments are locals; its return value is the result. The
//! libraries are `math`, `string`, `table` and `utf8`, without functions that give random numbers, load code,
//! or can run long inside one instruction (patterns, `table.move`). Finalizers cannot be set, and `pcall`
//! catches no limit (`lua_limits`), so a limit always ends the call. Each call has globals of its own, and is
//! a coroutine: it stops at the end of its slice and continues in the next one.
//! Invariant: functions that run user code are never called from outside of Lua, where they could not stop.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use mlua::{Lua, LuaOptions, MultiValue, StdLib, Table, Thread, Value};
use model::schema::FunctionDefinition;

use super::lua_limits::{Budget, INSTRUCTIONS_SLICE, Room, is_out_of_memory, limit};
use super::lua_values::{check, from_lua, to_lua};
use super::slice::Slice;
use super::{CallTimes, Step};

/// Most bytes of one function's virtual machine.
pub(super) const MEMORY_BYTES_MAX: usize = 16 << 20;
/// Most bytes of a virtual machine that is kept for the next call: a shard keeps many of them.
const KEPT_BYTES_MAX: usize = 512 << 10;
/// Instructions charged for the start of a call, measured: globals and a coroutine are made.
const INSTRUCTIONS_OF_BEGINNING: u32 = 3000;
/// Makes the globals of a call: a copy of the initial ones, libraries included, so that no call sees an
/// earlier one's.
const GLOBALS: &str = "
local next, type, first = next, type, ...
local function copy(from)
    local to = {}
    for key, value in next, from do
        if type(value) == 'table' then value = copy(value) end
        to[key] = value
    end
    return to
end
return function() return copy(first) end";
/// Base functions that are available.
const BASE: [&str; 11] = [
    "assert", "error", "ipairs", "next", "pairs", "rawequal", "rawlen", "select", "tonumber", "tostring",
    "type",
];
/// Libraries, and the functions removed from each.
const LIBRARIES: [(&str, &[&str]); 4] = [
    ("math", &["random", "randomseed"]),
    ("string", &["dump", "find", "match", "gmatch", "gsub"]),
    ("table", &["move"]),
    ("utf8", &[]),
];

/// A compiled function.
pub(super) struct LuaFunction {
    /// `None` after a failure, which may have left memory full, and during a call; then another machine is
    /// made.
    machine: RefCell<Option<Machine>>,
}

struct Machine {
    lua: Lua,
    function: mlua::Function,
    /// The Lua function that makes the globals of a call.
    globals: mlua::Function,
    budget: Rc<Budget>,
}

/// A call that has begun.
pub(super) struct LuaCall {
    machine: Machine,
    thread: Thread,
    /// The arguments, until the first slice.
    arguments: Option<MultiValue>,
}

impl std::fmt::Debug for LuaFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LuaFunction")
    }
}

impl LuaFunction {
    /// Compiles the body.
    ///
    /// # Errors
    /// Lua's error.
    pub(super) fn compile(definition: &FunctionDefinition) -> Result<Self, String> {
        let machine = Machine::new(definition).map_err(|error| text(&error))?;
        Ok(Self { machine: RefCell::new(Some(machine)) })
    }

    /// Prepares a call of the function, before its first slice.
    ///
    /// # Errors
    /// Lua's error.
    pub(super) fn begin(
        &self,
        definition: &FunctionDefinition,
        arguments: &[Option<&[u8]>],
    ) -> Result<LuaCall, String> {
        let machine = match self.machine.take() {
            Some(machine) => Ok(machine),
            None => Machine::new(definition),
        };
        machine.and_then(|machine| machine.begin(definition, arguments)).map_err(|error| text(&error))
    }

    /// Continues a call for a slice. After a successful call its machine is kept for the next one, unless it
    /// holds much memory.
    ///
    /// # Errors
    /// Lua's error, a limit that was reached, or a result that does not have the declared type.
    pub(super) fn run(
        &self,
        definition: &FunctionDefinition,
        mut call: Box<LuaCall>,
        slice: &Slice,
    ) -> Result<Step<Box<LuaCall>>, String> {
        let Some(result) = call.run(slice).map_err(|error| call.failure(&error))? else {
            return Ok(Step::Paused(call));
        };
        let value = from_lua(&definition.returns, &result)?;
        drop(result);
        if call.held_bytes() <= KEPT_BYTES_MAX {
            self.machine.replace(Some(call.machine));
        }
        Ok(Step::Done(value))
    }
}

impl Machine {
    fn new(definition: &FunctionDefinition) -> mlua::Result<Self> {
        let libraries = StdLib::MATH | StdLib::STRING | StdLib::TABLE | StdLib::UTF8;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        lua.set_memory_limit(MEMORY_BYTES_MAX)?;
        let budget = Budget::new();
        limit(&lua, &budget)?;
        restrict(&lua)?;
        let names: Vec<&str> = definition.arguments.iter().map(|(name, _)| name.as_str()).collect();
        let locals =
            if names.is_empty() { String::new() } else { format!("local {} = ...; ", names.join(", ")) };
        let source = format!("{locals}{}", definition.body);
        let function = lua.load(source).set_name(format!("={}", definition.name)).into_function()?;
        let globals = lua.load(GLOBALS).set_name("=globals").call(lua.globals())?;
        Ok(Self { lua, function, globals, budget })
    }

    fn begin(self, definition: &FunctionDefinition, arguments: &[Option<&[u8]>]) -> mlua::Result<LuaCall> {
        self.budget.set_room(&self.lua, Room::SMALL)?;
        // Arguments may be as long as memory allows.
        self.lua.set_memory_limit(MEMORY_BYTES_MAX)?;
        // This work is not charged to the call.
        self.budget.fill(Duration::MAX);
        self.function.set_environment(self.globals.call::<Table>(())?)?;
        self.budget.fill(CallTimes::here().fail);
        let mut values = MultiValue::new();
        for (ty, argument) in definition.argument_types().zip(arguments) {
            check(ty, *argument)?;
            values.push_back(to_lua(&self.lua, ty, *argument)?);
        }
        // A coroutine inherits the hook in force when it is made.
        self.budget.set_room(&self.lua, Room::of(self.lua.used_memory()))?;
        let thread = self.lua.create_thread(self.function.clone())?;
        Ok(LuaCall { machine: self, thread, arguments: Some(values) })
    }
}

impl LuaCall {
    /// Bytes of the virtual machine.
    pub(super) fn held_bytes(&self) -> usize {
        self.machine.lua.used_memory()
    }

    /// Runs for a slice; returns the function's result if it has ended.
    fn run(&mut self, slice: &Slice) -> mlua::Result<Option<Value>> {
        let budget = &self.machine.budget;
        let granted = slice.units(INSTRUCTIONS_SLICE);
        budget.begin_slice(granted);
        let beginning = if self.arguments.is_some() { INSTRUCTIONS_OF_BEGINNING } else { 0 };
        let resumed = self.thread.resume::<Value>(self.arguments.take().unwrap_or_default());
        let used = granted - budget.end_slice();
        slice.spend(u64::from(used.saturating_add(beginning)), INSTRUCTIONS_SLICE);
        let value = resumed?;
        if self.thread.is_resumable() {
            slice.end();
            return Ok(None);
        }
        Ok(Some(value))
    }

    /// The error text for the statement.
    fn failure(&self, error: &mlua::Error) -> String {
        let limit = self.machine.budget.limit_bytes();
        if limit < MEMORY_BYTES_MAX && is_out_of_memory(error) {
            return format!(
                "not enough memory: it may hold {MEMORY_BYTES_MAX} bytes, but grew beyond {limit} within a few \
                 instructions; make long texts by string.rep or table.concat"
            );
        }
        text(error)
    }
}

/// Removes from the globals everything that a function may not use.
fn restrict(lua: &Lua) -> mlua::Result<()> {
    let globals = lua.globals();
    for (name, removed) in LIBRARIES {
        let library: Table = globals.get(name)?;
        for function in removed {
            library.set(*function, Value::Nil)?;
        }
    }
    let names: Vec<String> =
        globals.pairs::<String, Value>().map(|pair| pair.map(|(name, _)| name)).collect::<Result<_, _>>()?;
    for name in names {
        let kept = name == "pcall"
            || BASE.contains(&name.as_str())
            || LIBRARIES.iter().any(|(library, _)| *library == name);
        if !kept {
            globals.set(name, Value::Nil)?;
        }
    }
    Ok(())
}

/// The first line of Lua's message; further lines are Lua's own stack trace.
pub(super) fn text(error: &mlua::Error) -> String {
    let root = match error {
        mlua::Error::CallbackError { cause, .. } => cause.to_string(),
        other => other.to_string(),
    };
    root.lines().next().unwrap_or_default().to_owned()
}
