//! The work of calls of Lua's library functions, known before they run.
//!
//! Work is in instructions of about ten nanoseconds each. Functions that run user code, or whose work depends
//! on a table's elements, are written in Lua, where instructions are counted. Functions whose work is bounded
//! by the memory that the call holds are left out: those are like any other instruction (`lua_limits::Room`).

use mlua::{Lua, MultiValue, Value};

/// Longest text that is read as a number: reading takes time for each byte, zeros and blanks included.
pub(super) const NUMERAL_BYTES_MAX: usize = 1000;
/// Bytes copied per instruction.
pub(super) const COPIED: usize = 32;
/// Bytes read one by one per instruction.
const READ: usize = 8;
/// Bytes of a value on the stack.
const VALUE_BYTES: usize = 16;

/// The work of a library call, known before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) instructions: usize,
    /// Bytes of its result.
    pub(super) bytes: usize,
}

type WorkOf = fn(&Lua, &MultiValue) -> mlua::Result<Work>;

/// Library, function, and how to compute its work.
pub(super) const WORK: &[(&str, &str, WorkOf)] = &[
    ("string", "byte", |lua, given| Ok(values(selected(lua, given, 1, 1)?))),
    ("string", "char", |_, given| Ok(values(given.len()))),
    ("string", "format", |_, given| {
        let texts = texts(given);
        let directives = length(given, 0);
        Ok(Work {
            instructions: directives.saturating_add(texts / READ),
            // A directive has at most two digits of width; %q writes four bytes for one.
            bytes: directives.saturating_mul(40).saturating_add(texts.saturating_mul(4)),
        })
    }),
    ("string", "lower", |_, given| Ok(mapped(given))),
    ("string", "upper", |_, given| Ok(mapped(given))),
    ("string", "reverse", |_, given| Ok(mapped(given))),
    ("string", "pack", |_, given| {
        let (format, padding) = packed(given);
        let bytes = texts(given).saturating_add(padding).saturating_add(format.saturating_mul(16));
        Ok(Work { instructions: format.saturating_mul(2).saturating_add(bytes / READ), bytes })
    }),
    ("string", "packsize", |_, given| {
        Ok(Work { instructions: length(given, 0).saturating_mul(2), bytes: 0 })
    }),
    ("string", "unpack", |lua, given| {
        integer(lua, given, 2, 1)?;
        let (format, text) = (length(given, 0), length(given, 1));
        Ok(Work {
            instructions: format.saturating_mul(4).saturating_add(text / COPIED),
            bytes: text.saturating_add(format.saturating_mul(VALUE_BYTES)),
        })
    }),
    ("string", "sub", |lua, given| {
        let bytes = selected(lua, given, 1, i64::MAX)?;
        Ok(Work { instructions: 1 + bytes / COPIED, bytes })
    }),
    ("table", "insert", |lua, given| {
        let from = if given.len() > 2 { integer(lua, given, 1, 1)? } else { i64::MAX };
        Ok(moved(given, from))
    }),
    ("table", "remove", |lua, given| Ok(moved(given, integer(lua, given, 1, i64::MAX)?))),
    ("table", "pack", |_, given| Ok(values(given.len()))),
    ("table", "unpack", |lua, given| {
        let last = match given.front() {
            Some(Value::Table(table)) => i64::try_from(table.raw_len()).unwrap_or(i64::MAX),
            _ => 0,
        };
        let (from, to) = (integer(lua, given, 1, 1)?, integer(lua, given, 2, last)?);
        Ok(values(usize::try_from(i128::from(to) - i128::from(from) + 1).unwrap_or(0)))
    }),
    ("utf8", "char", |_, given| Ok(values(given.len()))),
    ("utf8", "codepoint", |lua, given| Ok(values(selected(lua, given, 1, 1)?))),
    ("utf8", "codes", |_, given| Ok(Work { instructions: 1 + length(given, 0) / COPIED, bytes: 0 })),
    ("utf8", "len", |lua, given| {
        integer(lua, given, 1, 1)?;
        integer(lua, given, 2, -1)?;
        Ok(Work { instructions: 1 + length(given, 0) / READ, bytes: 0 })
    }),
    ("utf8", "offset", |lua, given| {
        integer(lua, given, 1, 1)?;
        integer(lua, given, 2, 1)?;
        Ok(Work { instructions: 1 + length(given, 0) / READ, bytes: 0 })
    }),
];

/// Work of moving values over the stack.
fn values(count: usize) -> Work {
    Work { instructions: count.saturating_mul(2).saturating_add(1), bytes: count.saturating_mul(VALUE_BYTES) }
}

/// Work of making a text from another one, byte by byte.
fn mapped(given: &MultiValue) -> Work {
    Work { instructions: 1 + length(given, 0) / READ, bytes: length(given, 0) }
}

/// Work of moving the elements of a table from `from` to the last one.
fn moved(given: &MultiValue, from: i64) -> Work {
    let Some(Value::Table(table)) = given.front() else { return Work { instructions: 1, bytes: 0 } };
    let behind = i64::try_from(table.raw_len()).unwrap_or(i64::MAX).saturating_sub(from).saturating_add(1);
    let behind = if from < 1 { 0 } else { usize::try_from(behind).unwrap_or(0) };
    Work { instructions: behind.saturating_mul(2).saturating_add(1), bytes: 0 }
}

/// Length in bytes of an argument that is a text; 0 for others.
fn length(given: &MultiValue, at: usize) -> usize {
    match given.get(at) {
        Some(Value::String(text)) => text.as_bytes().len(),
        _ => 0,
    }
}

/// Bytes of all texts after the first argument.
fn texts(given: &MultiValue) -> usize {
    (1..given.len()).fold(0_usize, |all, at| all.saturating_add(length(given, at)))
}

/// Length of a format of `string.pack`, and the sum of the numbers in it.
fn packed(given: &MultiValue) -> (usize, usize) {
    let Some(Value::String(format)) = given.front() else { return (0, 0) };
    let (mut padding, mut number) = (0_usize, 0_usize);
    let bytes = format.as_bytes();
    // The longest format that is not refused.
    for byte in bytes.iter().take(super::lua_limits::INSTRUCTIONS_OF_CALL_MAX) {
        match byte {
            b'0'..=b'9' => number = number.saturating_mul(10).saturating_add(usize::from(byte - b'0')),
            _ => padding = padding.saturating_add(std::mem::take(&mut number)),
        }
    }
    (bytes.len(), padding.saturating_add(number))
}

/// The number of bytes of the text between two positions, as `string.sub` counts them. The default of the
/// second position is the end of the text if `to` is `i64::MAX`, else the first position, as in
/// `string.byte`.
fn selected(lua: &Lua, given: &MultiValue, at: usize, to: i64) -> mlua::Result<usize> {
    let bytes = i64::try_from(length(given, 0)).unwrap_or(i64::MAX);
    let place = |place: i64| if place < 0 { (bytes + 1).saturating_add(place).max(0) } else { place };
    let from = place(integer(lua, given, at, 1)?).max(1);
    let default = if to == i64::MAX { bytes } else { from };
    let to = place(integer(lua, given, at + 1, default)?).min(bytes);
    Ok(usize::try_from(to.saturating_sub(from).saturating_add(1)).unwrap_or(0))
}

/// An argument as an integer, converted as the library does it: texts and whole numbers are accepted. Others
/// give 0; the library refuses them.
fn integer(lua: &Lua, given: &MultiValue, at: usize, default: i64) -> mlua::Result<i64> {
    match given.get(at) {
        None | Some(Value::Nil) => Ok(default),
        Some(Value::Integer(value)) => Ok(*value),
        Some(Value::String(text)) if text.as_bytes().len() > NUMERAL_BYTES_MAX => {
            Err(mlua::Error::runtime(format!(
                "bad argument #{}: a text of {} bytes is no number (at most {NUMERAL_BYTES_MAX})",
                at + 1,
                text.as_bytes().len()
            )))
        }
        Some(value) => Ok(lua.coerce_integer(value.clone())?.unwrap_or(0)),
    }
}

/// Library functions in Lua: `string.rep`; `table.sort`, which merges ever longer runs of long tables and of
/// tables with elements other than numbers; `table.concat`, which counts the bytes of its result first; and
/// the conversion of texts to numbers, which has a limit.
pub(super) const LIBRARY: &str = "
local admit, longest = ...
local type, error, raw_select, tointeger = type, error, select, math.tointeger
local sort, concat, rep, number = table.sort, table.concat, string.rep, tonumber

function table.sort(list, before)
    local own = before ~= nil
    if type(list) ~= 'table' or (own and type(before) ~= 'function') then
        return sort(list, before)
    end
    local count = #list
    local short = count <= 128 and not own
    if short then
        for at = 1, count do
            if type(list[at]) ~= 'number' then short = false break end
        end
    end
    if short then return sort(list) end
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
end

local function long(value) return type(value) == 'string' and #value > longest end
local function refuse(value)
    error('a text of ' .. #value .. ' bytes is no number (at most ' .. longest .. ')', 3)
end

function table.concat(list, between, first, last)
    if type(list) ~= 'table' then return concat(list, between, first, last) end
    if long(first) then refuse(first) end
    if long(last) then refuse(last) end
    local from, to, bytes = first or 1, last or #list, 0
    if tointeger(from) and tointeger(to) then
        for at = tointeger(from), tointeger(to) do
            local part = list[at]
            if type(part) == 'string' then bytes = bytes + #part
            elseif type(part) == 'number' then bytes = bytes + 24
            else break end
            if type(between) == 'string' then bytes = bytes + #between end
        end
    end
    admit('table.concat', bytes, 0)
    return concat(list, between, first, last)
end

-- Short texts are repeated in blocks, for each time costs something, also of an empty text.
function string.rep(text, times, between)
    if long(times) then refuse(times) end
    local count = tointeger(number(times))
    local unit = type(text) == 'number' and text .. '' or text
    local gap = between == nil and '' or type(between) == 'number' and between .. '' or between
    if not count or count < 1 or type(unit) ~= 'string' or type(gap) ~= 'string' then
        return rep(text, count and count < 1 and count or times, between)
    end
    local size = #unit + #gap
    if size == 0 then return '' end
    local block = count < 65536 and 64 or 1024
    if count <= block or size > 256 then
        admit('string.rep', count > 1 << 32 and 1 << 50 or size * count, count // 4)
        return rep(unit, count, gap)
    end
    admit('string.rep', count > 1 << 32 and 1 << 50 or size * count, (block + count // block) // 4)
    local last = ''
    if gap ~= '' then last, unit, count = unit, unit .. gap, count - 1 end
    return rep(rep(unit, block), count // block) .. rep(unit, count % block) .. last
end

for name, raw in next, math do
    if type(raw) == 'function' and name ~= 'type' and name ~= 'max' and name ~= 'min' then
        math[name] = function(...)
            local a, b = ...
            if long(a) then refuse(a) elseif long(b) then refuse(b) end
            return raw(...)
        end
    end
end
for _, name in next, {'max', 'min'} do
    local raw = math[name]
    math[name] = function(...)
        local a, b = ...
        if long(a) then refuse(a) elseif long(b) then refuse(b) end
        if raw_select('#', ...) > 2 then
            local all = {...}
            for at = 3, #all do
                if long(all[at]) then refuse(all[at]) end
            end
        end
        return raw(...)
    end
end

function tonumber(...)
    local text = ...
    if long(text) then return nil end
    return number(...)
end

function select(at, ...)
    if long(at) then refuse(at) end
    return raw_select(at, ...)
end

local of_texts = getmetatable('')
for name, raw in next, of_texts do
    if type(raw) == 'function' then
        of_texts[name] = function(a, b)
            if long(a) then refuse(a) elseif long(b) then refuse(b) end
            return raw(a, b)
        end
    end
end
";
