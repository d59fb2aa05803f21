//! Serialised values as JSON text.
//!
//! Values were validated when they were stored; of one that is broken all the same what can be read is shown and the
//! rest is null.

use std::fmt::Write;

use model::collection::{Components, Elements, Entries, VectorElements};
use model::{CqlType, number};

use crate::functions::{cast, number_text};
use crate::terms::{duration, time};

/// Appends the value as JSON; `None` is null.
pub fn append(ty: &CqlType, value: Option<&[u8]>, out: &mut String) {
    let Some(value) = value else { return out.push_str("null") };
    match ty {
        CqlType::Ascii | CqlType::Text => {
            out.push('"');
            append_quoted(&String::from_utf8_lossy(value), out);
            out.push('"');
        }
        CqlType::Blob | CqlType::Custom(_) => {
            out.push_str("\"0x");
            for byte in value {
                let _ = write!(out, "{byte:02x}");
            }
            out.push('"');
        }
        CqlType::List { element, .. } | CqlType::Set { element, .. } => {
            append_list(Elements::parse(value).into_iter().flatten().flatten(), element, out);
        }
        CqlType::Vector { element, dimension } => {
            append_list(VectorElements::new(element, *dimension, value).flatten(), element, out);
        }
        CqlType::Map { key, value: of, .. } => {
            out.push('{');
            for (at, (name, value)) in Entries::parse(value).into_iter().flatten().flatten().enumerate() {
                out.push_str(if at == 0 { "" } else { ", " });
                append_key(key, name, out);
                out.push_str(": ");
                append(of, Some(value), out);
            }
            out.push('}');
        }
        CqlType::Tuple(types) => {
            out.push('[');
            let mut components = Components::new(value);
            for (at, ty) in types.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { ", " });
                append(ty, components.next().and_then(Result::ok).flatten(), out);
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
                append(ty, components.next().and_then(Result::ok).flatten(), out);
            }
            out.push('}');
        }
        _ if value.is_empty() => out.push_str("\"\""),
        scalar => append_scalar(scalar, value, out),
    }
}

fn append_list<'v>(elements: impl Iterator<Item = &'v [u8]>, ty: &CqlType, out: &mut String) {
    out.push('[');
    for (at, element) in elements.enumerate() {
        out.push_str(if at == 0 { "" } else { ", " });
        append(ty, Some(element), out);
    }
    out.push(']');
}

/// Names in objects are strings, so what is none is put into quotes.
fn append_key(ty: &CqlType, key: &[u8], out: &mut String) {
    let mut text = String::new();
    append(ty, Some(key), &mut text);
    if text.starts_with('"') {
        out.push_str(&text);
    } else {
        out.push('"');
        append_quoted(&text, out);
        out.push('"');
    }
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

/// Appends what stands between the quotes of a JSON string.
pub fn append_quoted(text: &str, out: &mut String) {
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            '\0'..='\u{1f}' => {
                let _ = write!(out, "\\u{:04X}", u32::from(character));
            }
            other => out.push(other),
        }
    }
}
