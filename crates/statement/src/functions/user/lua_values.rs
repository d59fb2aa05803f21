//! CQL values as Lua values and back.
//!
//! | CQL | Lua |
//! |---|---|
//! | text, ascii, blob, uuid, timeuuid, inet | string |
//! | tinyint … bigint, counter, time (ns), timestamp (ms) | integer |
//! | varint | integer if it fits 64 bits, else string of digits |
//! | decimal | string; numbers are taken too |
//! | float, double | number |
//! | date | table `year`, `month`, `day`; text is taken too |
//! | duration | table `months`, `days`, `nanoseconds`; text is taken too |
//! | list, vector, tuple | table from 1 |
//! | set | table with the elements as keys |
//! | map | table |
//! | user type | table by field name |
//!
//! Strings in the notation of CQL literals are taken wherever a scalar is.

use std::cell::Cell;

use mlua::{Lua, Table, Value};
use model::collection::{Components, Elements, Entries, VectorElements, append_element};
use model::{CqlType, number};

use crate::functions::{cast, effort};
use crate::terms::{append_vector_component, assemble_collection, literal, time};

/// Most elements of one value, those of nested collections included: the conversion runs without a pause.
const ELEMENTS_MAX: usize = 1 << 16;
/// Most bytes of a result: a text may occur in a table any number of times.
const RESULT_BYTES_MAX: usize = super::lua::MEMORY_BYTES_MAX;
/// Bytes counted per byte of a text that is read as a value of another type, which is more work.
const READ_BYTES: usize = 16;

/// Elements and bytes that a result may still have.
struct Left {
    elements: Cell<usize>,
    bytes: Cell<usize>,
}

impl Left {
    fn take_element(&self) -> Result<(), String> {
        let left = self.elements.get().checked_sub(1);
        self.elements.set(left.ok_or_else(|| format!("more than {ELEMENTS_MAX} elements were returned"))?);
        Ok(())
    }

    fn take_bytes(&self, bytes: usize) -> Result<(), String> {
        let left = self.bytes.get().checked_sub(bytes);
        self.bytes.set(left.ok_or_else(|| {
            format!(
                "more than {RESULT_BYTES_MAX} bytes were returned (a text that stands for another type counts \
                 {READ_BYTES} times)"
            )
        })?);
        Ok(())
    }
}

/// Checks that an argument can be converted without a pause.
///
/// # Errors
/// The argument has too many elements, or numbers that are too long.
pub(super) fn check(ty: &CqlType, value: Option<&[u8]>) -> mlua::Result<()> {
    let Some(value) = value else { return Ok(()) };
    let elements = elements(ty, value);
    if elements > ELEMENTS_MAX {
        return Err(mlua::Error::runtime(format!(
            "an argument has {elements} elements, a function in Lua takes at most {ELEMENTS_MAX}"
        )));
    }
    if effort::of_text(ty, value) > effort::WORK_MAX {
        return Err(mlua::Error::runtime(format!(
            "the numbers of an argument of type {ty} have too many digits"
        )));
    }
    Ok(())
}

/// The number of elements of a value, those of nested values included.
fn elements(ty: &CqlType, value: &[u8]) -> usize {
    let of = |ty: &CqlType, part: &[u8]| 1 + elements(ty, part);
    match ty {
        CqlType::List { element, .. } | CqlType::Set { element, .. } => {
            Elements::parse(value).into_iter().flatten().flatten().map(|part| of(element, part)).sum()
        }
        CqlType::Map { key, value: held, .. } => Entries::parse(value)
            .into_iter()
            .flatten()
            .flatten()
            .map(|(name, part)| of(key, name) + of(held, part))
            .sum(),
        CqlType::Vector { element, dimension } => {
            VectorElements::new(element, *dimension, value).flatten().map(|part| of(element, part)).sum()
        }
        CqlType::Tuple(types) => {
            types.iter().zip(Components::new(value)).filter_map(|(ty, part)| Some(of(ty, part.ok()??))).sum()
        }
        CqlType::Udt(udt) => udt
            .fields
            .iter()
            .zip(Components::new(value))
            .filter_map(|((_, ty), part)| Some(of(ty, part.ok()??)))
            .sum(),
        _ => 0,
    }
}

/// Converts a value to Lua; null is nil.
pub(super) fn to_lua(lua: &Lua, ty: &CqlType, value: Option<&[u8]>) -> mlua::Result<Value> {
    let Some(value) = value else { return Ok(Value::Nil) };
    if value.is_empty() && ty.is_empty_value_meaningless() {
        return Ok(Value::Nil);
    }
    let broken = || mlua::Error::runtime(format!("an argument is no {ty}"));
    let integer = |bytes: usize| -> mlua::Result<Value> {
        if value.len() != bytes {
            return Err(broken());
        }
        let mut wide = [if value[0] >= 0x80 { 0xff } else { 0 }; 8];
        wide[8 - bytes..].copy_from_slice(value);
        Ok(Value::Integer(i64::from_be_bytes(wide)))
    };
    let string = |bytes: &[u8]| lua.create_string(bytes).map(Value::String);
    Ok(match ty {
        CqlType::Ascii | CqlType::Text | CqlType::Blob | CqlType::Custom(_) | CqlType::Empty => {
            string(value)?
        }
        CqlType::Boolean => Value::Boolean(value != [0]),
        CqlType::Tinyint => integer(1)?,
        CqlType::Smallint => integer(2)?,
        CqlType::Int => integer(4)?,
        CqlType::Bigint | CqlType::Counter | CqlType::Time | CqlType::Timestamp => integer(8)?,
        CqlType::Float => {
            Value::Number(f64::from(f32::from_be_bytes(value.try_into().map_err(|_| broken())?)))
        }
        CqlType::Double => Value::Number(f64::from_be_bytes(value.try_into().map_err(|_| broken())?)),
        CqlType::Varint => {
            let number = number::decode_varint(value).ok_or_else(broken)?;
            match i64::try_from(&number) {
                Ok(number) => Value::Integer(number),
                Err(_) => string(shown(ty, value)?.as_bytes())?,
            }
        }
        CqlType::Date => {
            let days = u32::from_be_bytes(value.try_into().map_err(|_| broken())?);
            let (year, month, day) = time::civil_of(i64::from(days) - (1 << 31));
            let table = lua.create_table()?;
            table.set("year", year)?;
            table.set("month", month)?;
            table.set("day", day)?;
            Value::Table(table)
        }
        CqlType::Duration => {
            let duration = number::Duration::decode(value).map_err(|_| broken())?;
            let table = lua.create_table()?;
            table.set("months", duration.months())?;
            table.set("days", duration.days())?;
            table.set("nanoseconds", duration.nanoseconds())?;
            Value::Table(table)
        }
        CqlType::List { element, .. } => {
            sequence(lua, element, Elements::parse(value).map_err(|_| broken())?.flatten())?
        }
        CqlType::Vector { element, dimension } => {
            sequence(lua, element, VectorElements::new(element, *dimension, value).flatten())?
        }
        CqlType::Set { element, .. } => {
            let table = lua.create_table()?;
            for part in Elements::parse(value).map_err(|_| broken())?.flatten() {
                table.set(to_lua(lua, element, Some(part))?, true)?;
            }
            Value::Table(table)
        }
        CqlType::Map { key, value: of, .. } => {
            let table = lua.create_table()?;
            for (name, part) in Entries::parse(value).map_err(|_| broken())?.flatten() {
                table.set(to_lua(lua, key, Some(name))?, to_lua(lua, of, Some(part))?)?;
            }
            Value::Table(table)
        }
        CqlType::Tuple(types) => {
            let table = lua.create_table()?;
            for ((at, ty), part) in (1..).zip(types).zip(Components::new(value)) {
                table.set(at, to_lua(lua, ty, part.map_err(|_| broken())?)?)?;
            }
            Value::Table(table)
        }
        CqlType::Udt(udt) => {
            let table = lua.create_table()?;
            for ((name, ty), part) in udt.fields.iter().zip(Components::new(value)) {
                table.set(name.as_str(), to_lua(lua, ty, part.map_err(|_| broken())?)?)?;
            }
            Value::Table(table)
        }
        CqlType::Decimal | CqlType::Inet | CqlType::Uuid | CqlType::Timeuuid => {
            string(shown(ty, value)?.as_bytes())?
        }
    })
}

fn shown(ty: &CqlType, value: &[u8]) -> mlua::Result<String> {
    cast::text(ty, value).map_err(|error| mlua::Error::runtime(format!("an argument is no {ty}: {error}")))
}

fn sequence<'v>(lua: &Lua, ty: &CqlType, parts: impl Iterator<Item = &'v [u8]>) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    for part in parts {
        table.push(to_lua(lua, ty, Some(part))?)?;
    }
    Ok(Value::Table(table))
}

/// Converts a value returned by Lua to the type; nil is null.
///
/// # Errors
/// Why the value does not fit the type.
pub(super) fn from_lua(ty: &CqlType, value: &Value) -> Result<Option<Vec<u8>>, String> {
    let left = Left { elements: Cell::new(ELEMENTS_MAX), bytes: Cell::new(RESULT_BYTES_MAX) };
    part_of(ty, value, &left)
}

fn part_of(ty: &CqlType, value: &Value, left: &Left) -> Result<Option<Vec<u8>>, String> {
    if value.is_nil() {
        return Ok(None);
    }
    let unexpected = || format!("a Lua {} was returned where a {ty} is declared", value.type_name());
    let text = |text: &str| {
        left.take_bytes(text.len().saturating_mul(READ_BYTES))?;
        let mut out = Vec::new();
        literal::append_text(text, ty, 0, &mut out).map(|()| out)
    };
    let bytes = match (ty, value) {
        (CqlType::Text | CqlType::Ascii | CqlType::Blob | CqlType::Custom(_), Value::String(string)) => {
            left.take_bytes(string.as_bytes().len())?;
            string.as_bytes().to_vec()
        }
        (CqlType::Boolean, Value::Boolean(value)) => vec![u8::from(*value)],
        (
            CqlType::List { .. }
            | CqlType::Set { .. }
            | CqlType::Map { .. }
            | CqlType::Vector { .. }
            | CqlType::Tuple(_)
            | CqlType::Udt(_),
            Value::Table(table),
        ) => composed(ty, table, left)?,
        (CqlType::Date, Value::Table(table)) => {
            let field = |name| table.get::<i64>(name).map_err(|_| format!("a date needs its {name}"));
            text(&format!("{:04}-{:02}-{:02}", field("year")?, field("month")?, field("day")?))?
        }
        (CqlType::Duration, Value::Table(table)) => {
            let field = |name| {
                table.get::<Option<i64>>(name).map_err(|_| unexpected()).map(Option::unwrap_or_default)
            };
            let part =
                |name| i32::try_from(field(name)?).map_err(|_| format!("{name} of a duration out of range"));
            let duration = number::Duration::new(part("months")?, part("days")?, field("nanoseconds")?)
                .map_err(|error| error.to_string())?;
            let mut out = Vec::new();
            duration.append(&mut out);
            out
        }
        (CqlType::Double, Value::Integer(number)) => (*number as f64).to_be_bytes().to_vec(),
        (CqlType::Double, Value::Number(number)) => number.to_be_bytes().to_vec(),
        (CqlType::Float, Value::Integer(number)) => (*number as f32).to_be_bytes().to_vec(),
        (CqlType::Float, Value::Number(number)) => (*number as f32).to_be_bytes().to_vec(),
        (CqlType::Decimal, Value::Number(number)) => text(&crate::functions::number_text::double(*number))?,
        (CqlType::Timestamp, Value::Integer(number)) => number.to_be_bytes().to_vec(),
        (_, Value::Integer(number)) if is_integer_like(ty) => text(&number.to_string())?,
        (_, Value::Number(number)) if is_integer_like(ty) => {
            if number.fract() != 0.0 || number.abs() >= 9.0e18 {
                return Err(format!("{number} was returned where a {ty} is declared"));
            }
            text(&(*number as i64).to_string())?
        }
        (ty, Value::String(string)) if !ty.is_collection() => {
            text(&string.to_str().map_err(|_| unexpected())?)?
        }
        _ => return Err(unexpected()),
    };
    Ok(Some(bytes))
}

fn is_integer_like(ty: &CqlType) -> bool {
    use CqlType as T;
    matches!(
        ty,
        T::Tinyint
            | T::Smallint
            | T::Int
            | T::Bigint
            | T::Counter
            | T::Varint
            | T::Decimal
            | T::Time
            | T::Timestamp
    )
}

fn present(ty: &CqlType, value: &Value, left: &Left) -> Result<Vec<u8>, String> {
    left.take_element()?;
    part_of(ty, value, left)?.ok_or_else(|| format!("nil inside a {ty}"))
}

fn nullable(ty: &CqlType, value: &Value, left: &Left) -> Result<Option<Vec<u8>>, String> {
    left.take_element()?;
    part_of(ty, value, left)
}

fn composed(ty: &CqlType, table: &Table, left: &Left) -> Result<Vec<u8>, String> {
    let get = |key: Value| table.raw_get::<Value>(key).map_err(|error| error.to_string());
    let mut out = Vec::new();
    match ty {
        CqlType::List { element, .. } => {
            let parts =
                (1..=table.raw_len()).map(|at| present(element, &get(Value::Integer(at as i64))?, left));
            out = assemble_collection(ty, parts.collect::<Result<Vec<_>, _>>()?);
        }
        CqlType::Vector { element, dimension } => {
            if table.raw_len() != *dimension as usize {
                return Err(format!(
                    "a vector of {dimension} elements is declared, {} were returned",
                    table.raw_len()
                ));
            }
            for at in 1..=i64::from(*dimension) {
                let part = present(element, &get(Value::Integer(at))?, left)?;
                append_vector_component(&mut out, element, &part).map_err(|error| error.to_string())?;
            }
        }
        CqlType::Set { element, .. } => {
            let mut parts = Vec::new();
            for pair in table.pairs::<Value, Value>() {
                parts.push(present(element, &pair.map_err(|error| error.to_string())?.0, left)?);
            }
            out = assemble_collection(ty, parts);
        }
        CqlType::Map { key, value: of, .. } => {
            let mut parts = Vec::new();
            for pair in table.pairs::<Value, Value>() {
                let (name, value) = pair.map_err(|error| error.to_string())?;
                parts.push(present(key, &name, left)?);
                parts.push(present(of, &value, left)?);
            }
            out = assemble_collection(ty, parts);
        }
        CqlType::Tuple(types) => {
            for (at, ty) in (1..).zip(types) {
                append_element(&mut out, nullable(ty, &get(Value::Integer(at))?, left)?.as_deref());
            }
        }
        CqlType::Udt(udt) => {
            for (name, ty) in &udt.fields {
                let value: Value = table.raw_get(name.as_str()).map_err(|error| error.to_string())?;
                append_element(&mut out, nullable(ty, &value, left)?.as_deref());
            }
        }
        other => return Err(format!("a table is no {other}")),
    }
    Ok(out)
}
