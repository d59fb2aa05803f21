//! Serialised values as JSON text.
//!
//! Values were validated when they were stored. Of a broken one the readable part is shown; the rest is null.
//! Invariant: no text grows beyond the bytes that its caller allows. Escapes make a text longer, so a call of
//! `to_json` around another may double it, and a hundred of them may be nested.

use std::borrow::Cow;
use std::fmt::Write;

use model::collection::{Components, Elements, Entries, VectorElements};
use model::hex;
use model::{CqlType, number};

use crate::functions::{cast, number_text};
use crate::terms::{duration, time};

/// Bytes of a text that are looked at or quoted before others may run.
const AT_ONCE_BYTES: usize = 16 << 10;

/// The JSON text would be longer than its caller allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

/// Appends the value as JSON; `None` is null.
///
/// # Errors
/// [`TooLong`] if `out` would grow beyond `bytes_max`, by more than a number or a name. `out` has a part of
/// the value then.
pub fn append(ty: &CqlType, value: Option<&[u8]>, out: &mut String, bytes_max: usize) -> Result<(), TooLong> {
    let Some(value) = value else {
        out.push_str("null");
        return Ok(());
    };
    let check = |out: &String, more: usize| if out.len() + more <= bytes_max { Ok(()) } else { Err(TooLong) };
    check(out, 0)?;
    reactor::give_way();
    match ty {
        CqlType::Ascii | CqlType::Text => {
            // The usual text is checked many times faster than it is repaired.
            let text = str::from_utf8(value).map_or_else(|_| String::from_utf8_lossy(value), Cow::Borrowed);
            let bytes = quoted_bytes(&text);
            check(out, bytes)?;
            out.reserve_exact(bytes + 2);
            out.push('"');
            append_quoted(&text, out);
            out.push('"');
        }
        CqlType::Blob | CqlType::Custom(_) => {
            check(out, 2 * value.len())?;
            out.push_str("\"0x");
            hex::append(value, out);
            out.push('"');
        }
        CqlType::List { element, .. } | CqlType::Set { element, .. } => {
            append_list(Elements::parse(value).into_iter().flatten().flatten(), element, out, bytes_max)?;
        }
        CqlType::Vector { element, dimension } => {
            append_list(VectorElements::new(element, *dimension, value).flatten(), element, out, bytes_max)?;
        }
        CqlType::Map { key, value: of, .. } => {
            out.push('{');
            for (at, (name, value)) in Entries::parse(value).into_iter().flatten().flatten().enumerate() {
                out.push_str(if at == 0 { "" } else { ", " });
                append_key(key, name, out, bytes_max)?;
                out.push_str(": ");
                append(of, Some(value), out, bytes_max)?;
            }
            out.push('}');
        }
        CqlType::Tuple(types) => {
            out.push('[');
            let mut components = Components::new(value);
            for (at, ty) in types.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { ", " });
                append(ty, components.next().and_then(Result::ok).flatten(), out, bytes_max)?;
            }
            out.push(']');
        }
        CqlType::Udt(udt) => {
            out.push('{');
            let mut components = Components::new(value);
            for (at, (name, ty)) in udt.fields.iter().enumerate() {
                out.push_str(if at == 0 { "\"" } else { ", \"" });
                if *name == name.to_lowercase() {
                    append_quoted(name, out);
                } else {
                    append_quoted(&format!("\"{name}\""), out);
                }
                out.push_str("\": ");
                append(ty, components.next().and_then(Result::ok).flatten(), out, bytes_max)?;
            }
            out.push('}');
        }
        _ if value.is_empty() => out.push_str("\"\""),
        scalar => append_scalar(scalar, value, out),
    }
    Ok(())
}

fn append_list<'v>(
    elements: impl Iterator<Item = &'v [u8]>,
    ty: &CqlType,
    out: &mut String,
    bytes_max: usize,
) -> Result<(), TooLong> {
    out.push('[');
    for (at, element) in elements.enumerate() {
        out.push_str(if at == 0 { "" } else { ", " });
        append(ty, Some(element), out, bytes_max)?;
    }
    out.push(']');
    Ok(())
}

/// Appends a key of an object, which must be a string: if its JSON is not a string, it is put into quotes.
fn append_key(ty: &CqlType, key: &[u8], out: &mut String, bytes_max: usize) -> Result<(), TooLong> {
    let mut text = String::new();
    append(ty, Some(key), &mut text, bytes_max.saturating_sub(out.len()))?;
    if text.starts_with('"') {
        out.push_str(&text);
    } else {
        out.push('"');
        append_quoted(&text, out);
        out.push('"');
    }
    Ok(())
}

fn append_scalar(ty: &CqlType, value: &[u8], out: &mut String) {
    let plain =
        match ty {
            CqlType::Float => value.try_into().ok().map(f32::from_be_bytes).map(|number| {
                if number.is_finite() { number_text::float(number) } else { "null".to_owned() }
            }),
            CqlType::Double => value.try_into().ok().map(f64::from_be_bytes).map(|number| {
                if number.is_finite() { number_text::double(number) } else { "null".to_owned() }
            }),
            CqlType::Boolean
            | CqlType::Tinyint
            | CqlType::Smallint
            | CqlType::Int
            | CqlType::Bigint
            | CqlType::Counter
            | CqlType::Varint
            | CqlType::Decimal => cast::text(ty, value).ok(),
            _ => None,
        };
    if let Some(plain) = plain {
        return out.push_str(&plain);
    }
    let quoted = match ty {
        CqlType::Timestamp => {
            value.try_into().ok().map(|bytes| time::json_timestamp_text(i64::from_be_bytes(bytes)))
        }
        CqlType::Duration => number::Duration::decode(value).ok().map(|value| duration::text(&value)),
        _ => cast::text(ty, value).ok(),
    };
    match quoted {
        Some(text) => {
            let _ = write!(out, "\"{text}\"");
        }
        None => out.push_str("null"),
    }
}

/// Number of bytes that [`append_quoted`] appends for a text.
fn quoted_bytes(text: &str) -> usize {
    let quoted = |byte: &u8| match byte {
        b'"' | b'\\' | 8 | b'\t' | b'\n' | 12 | b'\r' => 2,
        0..=0x1f => 6,
        _ => 1_usize,
    };
    let parts = text.as_bytes().chunks(AT_ONCE_BYTES);
    parts.inspect(|_| reactor::give_way()).map(|part| part.iter().map(quoted).sum::<usize>()).sum()
}

/// Appends the contents of a JSON string without its quotes.
pub fn append_quoted(text: &str, out: &mut String) {
    let mut rest = text;
    while !rest.is_empty() {
        let (part, behind) = rest.split_at(rest.floor_char_boundary(AT_ONCE_BYTES));
        append_part_quoted(part, out);
        rest = behind;
        if !rest.is_empty() {
            reactor::give_way();
        }
    }
}

fn append_part_quoted(text: &str, out: &mut String) {
    let mut plain = 0;
    // All characters with escapes are single bytes, which are never part of another character.
    for (at, byte) in text.bytes().enumerate() {
        let escape = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            8 => "\\b",
            b'\t' => "\\t",
            b'\n' => "\\n",
            12 => "\\f",
            b'\r' => "\\r",
            0..=0x1f => "",
            _ => continue,
        };
        out.push_str(&text[plain..at]);
        plain = at + 1;
        if escape.is_empty() {
            let _ = write!(out, "\\u{byte:04X}");
        } else {
            out.push_str(escape);
        }
    }
    out.push_str(&text[plain..]);
}
