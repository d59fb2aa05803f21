//! What a call in Lua may use up: instructions, the work of library functions, and time; of each in one slice only a part.
//!
//! Library functions run in C, where instructions are not counted: each is charged for the bytes and elements it is given. What
//! no count sees (one long text joined to another, again and again) ends with the time. Errors may be caught, limits not:
//! once one is reached, every look at it fails again. Where a slice is over, the next look stops the coroutine; so what calls
//! functions of the user's (`pcall`, `table.sort`) is here in Lua, for code called from C cannot stop.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use mlua::{HookTriggers, Lua, MultiValue, Table, Value, VmState};
use reactor::Instant;

/// Instructions of the virtual machine one call may take, with what its library functions are charged.
pub(super) const INSTRUCTIONS_MAX: u32 = 2_000_000;
/// Instructions of one slice: about 200 microseconds.
pub(super) const INSTRUCTIONS_SLICE: u32 = 20_000;
/// Time after which a slice ends whatever was counted.
const SLICE_TIME_MAX: Duration = Duration::from_micros(300);
/// Instructions between two looks at how many there were.
const INSTRUCTIONS_STEP: u32 = 200;
/// Bytes of text that a library function handles for one instruction.
const BYTES_PER_INSTRUCTION: usize = 32;
/// Elements of a table that a library function handles for one instruction.
const ELEMENTS_PER_INSTRUCTION: usize = 8;
/// Longest table that is sorted in C, where it cannot be stopped.
const SORTED_IN_C_MAX: usize = 128;

/// What is left to a call.
#[derive(Debug)]
pub(super) struct Budget {
    instructions: Cell<u32>,
    time: Cell<Duration>,
    slice: Cell<u32>,
    slice_begin: Cell<Instant>,
    /// Whether nothing is left of instructions or time.
    spent: Cell<bool>,
}

impl Budget {
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Self {
            instructions: Cell::new(INSTRUCTIONS_MAX),
            time: Cell::new(Duration::MAX),
            slice: Cell::new(0),
            slice_begin: Cell::new(Instant::default()),
            spent: Cell::new(false),
        })
    }

    /// A call begins that may run this long.
    pub(super) fn fill(&self, time: Duration) {
        self.instructions.set(INSTRUCTIONS_MAX);
        self.time.set(time);
        self.spent.set(false);
        // Arguments are made outside of slices, which charges nothing.
        self.begin_slice(0);
    }

    /// A slice of the call begins.
    pub(super) fn begin_slice(&self, instructions: u32) {
        self.slice.set(instructions);
        self.slice_begin.set(reactor::now());
    }

    /// It ends; how many of its instructions are left.
    pub(super) fn end_slice(&self) -> u32 {
        self.time.set(self.time.get().saturating_sub(self.slice_begin.get().elapsed()));
        self.slice.replace(0)
    }

    fn is_slice_over(&self) -> bool {
        self.slice.get() == 0
    }

    fn charge(&self, instructions: usize) -> mlua::Result<()> {
        let used = u32::try_from(instructions).unwrap_or(u32::MAX);
        let took = self.slice_begin.get().elapsed();
        let slice = if took >= SLICE_TIME_MAX { 0 } else { self.slice.get().saturating_sub(used) };
        self.slice.set(slice);
        if took > self.time.get() {
            self.spent.set(true);
            return Err(mlua::Error::runtime("the function took too long"));
        }
        match self.instructions.get().checked_sub(used) {
            Some(left) => {
                self.instructions.set(left);
                Ok(())
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
    lua.set_global_hook(HookTriggers::new().every_nth_instruction(INSTRUCTIONS_STEP), move |_, _| {
        of_hook.charge(INSTRUCTIONS_STEP as usize)?;
        Ok(if of_hook.is_slice_over() { VmState::Yield } else { VmState::Continue })
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
    let table: Table = globals.get("table")?;
    let sort: mlua::Function =
        lua.load(SORT).set_name("=sort").call((table.get::<Value>("sort")?, SORTED_IN_C_MAX))?;
    table.set("sort", sort)?;
    let pcall: mlua::Function =
        lua.load(PCALL).set_name("=pcall").call((globals.get::<Value>("pcall")?, caught(lua, budget)?))?;
    globals.set("pcall", pcall)
}

/// `pcall` by Lua's own, what that gives seen through by the host.
const PCALL: &str = "local raw, caught = ... return function(...) return caught(raw(...)) end";

/// `table.sort`: long tables, and those with a comparison of their own, are merged from ever longer runs.
const SORT: &str = "
local raw, short, type = ..., select(2, ...), type
return function(list, before)
    local own = before ~= nil
    if type(list) ~= 'table' or (own and type(before) ~= 'function') or (not own and #list <= short) then
        return raw(list, before)
    end
    local count = #list
    local from, to = {}, {}
    for at = 1, count do from[at] = list[at] end
    local width = 1
    while width < count do
        for first = 1, count, 2 * width do
            local middle, last = first + width, first + 2 * width
            if middle > count + 1 then middle = count + 1 end
            if last > count + 1 then last = count + 1 end
            local left, right = first, middle
            for at = first, last - 1 do
                local takes_right = right < last
                if takes_right and left < middle then
                    local a, b = from[left], from[right]
                    if own then takes_right = before(b, a) else takes_right = b < a end
                end
                if takes_right then
                    to[at] = from[right]
                    right = right + 1
                else
                    to[at] = from[left]
                    left = left + 1
                end
            end
        end
        from, to = to, from
        width = 2 * width
    end
    for at = 1, count do list[at] = from[at] end
end";

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

/// What `pcall` gives for what Lua's own gave: errors as text, and none for a limit that was reached, which is no error
/// to be caught.
fn caught(lua: &Lua, budget: &Rc<Budget>) -> mlua::Result<mlua::Function> {
    let budget = Rc::clone(budget);
    lua.create_function(move |lua, mut given: MultiValue| {
        if given.front() != Some(&Value::Boolean(false)) {
            return Ok(given);
        }
        let error = match given.remove(1) {
            Some(Value::Error(error)) => *error,
            Some(Value::String(text)) => mlua::Error::runtime(text.to_string_lossy()),
            Some(other) => mlua::Error::runtime(format!("a {} value", other.type_name())),
            None => mlua::Error::runtime("nil"),
        };
        if budget.spent.get() || is_out_of_memory(&error) {
            return Err(error);
        }
        let text = lua.create_string(message(&error))?;
        Ok(MultiValue::from_iter([Value::Boolean(false), Value::String(text)]))
    })
}

fn is_out_of_memory(error: &mlua::Error) -> bool {
    match error {
        mlua::Error::MemoryError(_) => true,
        // So Lua says it to those who catch it.
        mlua::Error::RuntimeError(text) => text == "not enough memory",
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
