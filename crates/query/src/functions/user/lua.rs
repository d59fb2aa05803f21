//! Functions in Lua 5.4.
//!
//! The source is the body of a function whose arguments are locals; what it returns is the result. Of the libraries there
//! are `math`, `string`, `table` and `utf8`, without what reads chance, loads code, or can run long inside one
//! instruction: patterns, `table.move`. Finalisers cannot be set, and `pcall` catches no limit (`lua_limits`), so that one
//! always ends the call. Each call has globals of its own.

use std::cell::RefCell;
use std::rc::Rc;

use mlua::{Lua, LuaOptions, MultiValue, StdLib, Table, Value};
use model::schema::FunctionDefinition;

use super::lua_limits::{Budget, limit};
use super::lua_values::{from_lua, to_lua};

/// Bytes one function's virtual machine may hold.
const MEMORY_BYTES_MAX: usize = 16 << 20;
/// Base functions that are left.
const BASE: [&str; 11] = [
    "assert", "error", "ipairs", "next", "pairs", "rawequal", "rawlen", "select", "tonumber", "tostring",
    "type",
];
/// Libraries, and what is taken out of each.
const LIBRARIES: [(&str, &[&str]); 4] = [
    ("math", &["random", "randomseed"]),
    ("string", &["dump", "find", "match", "gmatch", "gsub"]),
    ("table", &["move"]),
    ("utf8", &[]),
];

/// A compiled function.
pub(super) struct LuaFunction {
    /// Made anew after a failure, which may have left memory full.
    machine: RefCell<Option<Machine>>,
}

struct Machine {
    lua: Lua,
    function: mlua::Function,
    budget: Rc<Budget>,
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
    /// What Lua says.
    pub(super) fn compile(definition: &FunctionDefinition) -> Result<Self, String> {
        let machine = Machine::new(definition).map_err(|error| text(&error))?;
        Ok(Self { machine: RefCell::new(Some(machine)) })
    }

    /// Calls the function.
    ///
    /// # Errors
    /// What Lua says; that a limit was reached; a result that is no value of the type.
    pub(super) fn call(
        &self,
        definition: &FunctionDefinition,
        arguments: &[Option<&[u8]>],
    ) -> Result<Option<Vec<u8>>, String> {
        let machine = match self.machine.take() {
            Some(machine) => machine,
            None => Machine::new(definition).map_err(|error| text(&error))?,
        };
        let result = machine.call(definition, arguments);
        if result.is_ok() {
            self.machine.replace(Some(machine));
        }
        result
    }
}

impl Machine {
    fn new(definition: &FunctionDefinition) -> mlua::Result<Self> {
        let libraries = StdLib::MATH | StdLib::STRING | StdLib::TABLE | StdLib::UTF8;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        lua.set_memory_limit(MEMORY_BYTES_MAX)?;
        restrict(&lua)?;
        let budget = Budget::new();
        limit(&lua, &["string", "table", "utf8"], &budget)?;
        let names: Vec<&str> = definition.arguments.iter().map(|(name, _)| name.as_str()).collect();
        let locals =
            if names.is_empty() { String::new() } else { format!("local {} = ...; ", names.join(", ")) };
        let source = format!("{locals}{}", definition.body);
        let function = lua.load(source).set_name(format!("={}", definition.name)).into_function()?;
        Ok(Self { lua, function, budget })
    }

    fn call(
        &self,
        definition: &FunctionDefinition,
        arguments: &[Option<&[u8]>],
    ) -> Result<Option<Vec<u8>>, String> {
        self.budget.fill();
        let run = || -> mlua::Result<Value> {
            self.function.set_environment(copy(&self.lua, &self.lua.globals())?)?;
            let mut values = MultiValue::new();
            for (ty, argument) in definition.argument_types().zip(arguments) {
                values.push_back(to_lua(&self.lua, ty, *argument)?);
            }
            self.function.call(values)
        };
        let result = run().map_err(|error| text(&error))?;
        from_lua(&definition.returns, &result)
    }
}

/// Takes out of the globals what a function may not use.
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
        let kept = BASE.contains(&name.as_str()) || LIBRARIES.iter().any(|(library, _)| *library == name);
        if !kept {
            globals.set(name, Value::Nil)?;
        }
    }
    Ok(())
}

/// The globals of one call: what there is at first, libraries copied too, so that nothing written is left behind.
fn copy(lua: &Lua, table: &Table) -> mlua::Result<Table> {
    let fresh = lua.create_table()?;
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        match value {
            Value::Table(library) => fresh.set(key, copy(lua, &library)?)?,
            other => fresh.set(key, other)?,
        }
    }
    Ok(fresh)
}

/// The first line of what Lua says: behind it are only its own places.
pub(super) fn text(error: &mlua::Error) -> String {
    let root = match error {
        mlua::Error::CallbackError { cause, .. } => cause.to_string(),
        other => other.to_string(),
    };
    root.lines().next().unwrap_or_default().to_owned()
}
