//! Limits of a call in Lua: instructions, work of library functions, memory and time. A slice has a part of
//! each.
//!
//! Library functions run in C, where instructions are not counted. Each is charged in advance for the
//! requested work (`lua_work`), and refused if that is too much without a pause. Single instructions may work
//! on long texts and tables, so the more memory a call holds, the more often it is checked ([`Room`]). Errors
//! may be caught, limits may not: once a limit is reached, every check fails again. At the end of a slice the
//! next check stops the coroutine. Code called from C cannot stop, so library functions that call user
//! functions (`pcall`, `table.sort`) are written in Lua here.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use mlua::{HookTriggers, Lua, MultiValue, Table, Value, VmState};
use reactor::Instant;

use super::lua::MEMORY_BYTES_MAX;
use super::lua_work::{self, Work};

/// Instructions of the virtual machine that one call may use, charges of library functions included.
pub(super) const INSTRUCTIONS_MAX: u32 = 2_000_000;
/// Instructions of one slice: about 200 microseconds.
pub(super) const INSTRUCTIONS_SLICE: u32 = 20_000;
/// Time after which a slice ends whatever its count.
const SLICE_TIME_MAX: Duration = Duration::from_micros(300);
/// Most instructions that one library call may be charged: about 3 milliseconds, in which nothing can stop
/// it.
pub(super) const INSTRUCTIONS_OF_CALL_MAX: usize = 300_000;
/// Bytes that a library function may hold per byte of its result, while its buffer grows.
const BYTES_PER_RESULT: usize = 4;

/// The memory that a call may hold between two checks, and the number of instructions between them.
///
/// One instruction works on at most all the memory there is (texts are joined and compared, tables grow), so
/// the more memory a call holds, the fewer instructions are between two checks. A call that exceeds its room
/// gets a larger one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    /// Bytes beyond which the next check gives the call a larger room.
    used_bytes_max: usize,
    /// Bytes that the call cannot exceed between two checks.
    limit_bytes: usize,
    /// Instructions between two checks.
    instructions_step: u32,
}

impl Room {
    pub(super) const SMALL: Self =
        Self { used_bytes_max: 256 << 10, limit_bytes: 1 << 20, instructions_step: 25 };
    const MEDIUM: Self = Self { used_bytes_max: 1 << 20, limit_bytes: 4 << 20, instructions_step: 5 };
    const LARGE: Self =
        Self { used_bytes_max: usize::MAX, limit_bytes: MEMORY_BYTES_MAX, instructions_step: 1 };

    /// The smallest room for this many bytes.
    pub(super) fn of(used_bytes: usize) -> Self {
        [Self::SMALL, Self::MEDIUM]
            .into_iter()
            .find(|room| used_bytes <= room.used_bytes_max)
            .unwrap_or(Self::LARGE)
    }
}

/// The resources left to a call.
#[derive(Debug)]
pub(super) struct Budget {
    instructions: Cell<u32>,
    time: Cell<Duration>,
    slice: Cell<u32>,
    room: Cell<Room>,
    slice_begin: Cell<Instant>,
    /// Whether the instructions or the time are used up.
    spent: Cell<bool>,
}

impl Budget {
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Self {
            instructions: Cell::new(INSTRUCTIONS_MAX),
            time: Cell::new(Duration::MAX),
            slice: Cell::new(0),
            room: Cell::new(Room::SMALL),
            slice_begin: Cell::new(Instant::default()),
            spent: Cell::new(false),
        })
    }

    /// Begins a call that may run this long.
    pub(super) fn fill(&self, time: Duration) {
        self.instructions.set(INSTRUCTIONS_MAX);
        self.time.set(time);
        self.spent.set(false);
        // Arguments are converted outside of slices, which charges nothing.
        self.begin_slice(0);
    }

    /// Begins a slice of the call.
    pub(super) fn begin_slice(&self, instructions: u32) {
        self.slice.set(instructions);
        self.slice_begin.set(reactor::now());
    }

    /// Bytes that the call may hold until the next check.
    pub(super) fn limit_bytes(&self) -> usize {
        self.room.get().limit_bytes
    }

    /// Sets the room of the running coroutine, and of those that are made later.
    pub(super) fn set_room(self: &Rc<Self>, lua: &Lua, room: Room) -> mlua::Result<()> {
        self.room.set(room);
        lua.set_memory_limit(room.limit_bytes)?;
        let budget = Rc::clone(self);
        lua.set_global_hook(
            HookTriggers::new().every_nth_instruction(room.instructions_step),
            move |lua, _| {
                budget.charge(budget.room.get().instructions_step as usize)?;
                let used = lua.used_memory();
                if used > budget.room.get().used_bytes_max {
                    budget.set_room(lua, Room::of(used))?;
                }
                Ok(if budget.is_slice_over() { VmState::Yield } else { VmState::Continue })
            },
        )
    }

    /// Enlarges the room, if necessary, for a result of this many bytes.
    fn make_room(self: &Rc<Self>, lua: &Lua, bytes: usize) -> mlua::Result<()> {
        let room = self.room.get();
        let held = lua.used_memory().saturating_add(bytes.saturating_mul(BYTES_PER_RESULT));
        if held <= room.limit_bytes || room == Room::LARGE {
            return Ok(());
        }
        self.set_room(lua, Room::of(held))
    }

    /// Ends the slice; returns the number of its instructions that are left.
    pub(super) fn end_slice(&self) -> u32 {
        self.time.set(self.time.get().saturating_sub(self.slice_begin.get().elapsed()));
        self.slice.replace(0)
    }

    fn is_slice_over(&self) -> bool {
        self.slice.get() == 0
    }

    /// Charges a library function for its work, and makes room for its result.
    fn admit(self: &Rc<Self>, lua: &Lua, function: &str, work: Work) -> mlua::Result<()> {
        if work.instructions > INSTRUCTIONS_OF_CALL_MAX {
            return Err(mlua::Error::runtime(format!(
                "{function} was asked for too much at once: the work of {} instructions, of at most \
                 {INSTRUCTIONS_OF_CALL_MAX}; ask for it in parts",
                work.instructions
            )));
        }
        self.charge(work.instructions)?;
        self.make_room(lua, work.bytes)
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

/// Applies the limits of `budget` to a machine: to its instructions, and to the library functions whose work
/// grows with their arguments.
///
/// # Errors
/// The machine has no memory for it.
pub(super) fn limit(lua: &Lua, budget: &Rc<Budget>) -> mlua::Result<()> {
    let globals = lua.globals();
    let guard: mlua::Function = lua.load(GUARD).set_name("=library").eval()?;
    for (name, function, work) in lua_work::WORK {
        let library: Table = globals.get(*name)?;
        let original: mlua::Function = library.get(*function)?;
        let (budget, work, function_name) = (Rc::clone(budget), *work, format!("{name}.{function}"));
        let admit = lua.create_function(move |lua, arguments: MultiValue| {
            budget.admit(lua, &function_name, work(lua, &arguments)?)
        })?;
        library.set(*function, guard.call::<mlua::Function>((admit, original))?)?;
    }
    let of_concat = Rc::clone(budget);
    let admit = lua.create_function(move |lua, (name, bytes, more): (String, usize, usize)| {
        let instructions = (bytes / lua_work::COPIED).saturating_add(more);
        of_concat.admit(lua, &name, Work { instructions, bytes })
    })?;
    lua.load(lua_work::LIBRARY).set_name("=library").call::<()>((admit, lua_work::NUMERAL_BYTES_MAX))?;
    let pcall: mlua::Function =
        lua.load(PCALL).set_name("=pcall").call((globals.get::<Value>("pcall")?, caught(lua, budget)?))?;
    globals.set("pcall", pcall)
}

/// `pcall` as Lua's own, with its result passed through `caught`.
const PCALL: &str = "local raw, caught = ... return function(...) return caught(raw(...)) end";

/// A library function that is charged before it runs.
const GUARD: &str = "
return function(admit, raw)
    return function(...)
        admit(...)
        return raw(...)
    end
end";

/// The results of `pcall`, from those of Lua's own: an error becomes its text, but a reached limit is raised
/// again, because it may not be caught.
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

pub(super) fn is_out_of_memory(error: &mlua::Error) -> bool {
    match error {
        mlua::Error::MemoryError(_) => true,
        // The text that Lua gives to code that catches this error.
        mlua::Error::RuntimeError(text) => text == "not enough memory",
        mlua::Error::CallbackError { cause, .. } => is_out_of_memory(cause),
        _ => false,
    }
}

/// The argument of `error`, without the text that the host adds.
fn message(error: &mlua::Error) -> String {
    match error {
        mlua::Error::CallbackError { cause, .. } => message(cause),
        mlua::Error::RuntimeError(text) => text.lines().next().unwrap_or_default().to_owned(),
        other => super::lua::text(other),
    }
}
