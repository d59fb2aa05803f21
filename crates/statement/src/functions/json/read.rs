//! JSON values converted to serialised values of a type.
//!
//! A string may stand for a value of any type, even a collection; a number only for a value that it fits
//! exactly.

use std::borrow::Cow;

use model::CqlType;
use model::collection::append_element;
use model::types::UserType;

use super::{Json, parse};
use crate::terms::{append_vector_component, assemble_collection, literal};

/// Converts the JSON to a value of type `ty`; null is `None`.
///
/// # Errors
/// Why it cannot be converted, in Cassandra's words.
pub fn value(ty: &CqlType, json: &Json<'_>, now_ms: i64) -> Result<Option<Vec<u8>>, String> {
    match json {
        Json::Null => Ok(None),
        json => present(ty, json, now_ms).map(Some),
    }
}

fn present(ty: &CqlType, json: &Json<'_>, now_ms: i64) -> Result<Vec<u8>, String> {
    use CqlType as T;
    reactor::give_way();
    match ty {
        T::List { .. } | T::Set { .. } | T::Map { .. } | T::Tuple(_) | T::Udt(_) | T::Vector { .. } => {
            match json {
                Json::String(text) => {
                    let inner =
                        parse(text).map_err(|error| format!("Error decoding JSON string: {error}"))?;
                    composed(ty, &inner, now_ms)
                }
                json => composed(ty, json, now_ms),
            }
        }
        T::Tinyint | T::Smallint => match json {
            Json::String(_) | Json::Integer(_) | Json::Big(_) | Json::Double(_) => {
                from_text(ty, &json.to_string(), now_ms)
            }
            _ => Err(unexpected(if *ty == T::Tinyint { "a byte value" } else { "a short value" }, json)),
        },
        T::Int => match json {
            Json::String(text) => from_text(ty, text, now_ms),
            Json::Integer(value) => match i32::try_from(*value) {
                Ok(value) => Ok(value.to_be_bytes().to_vec()),
                Err(_) => Err(unexpected("an int value", json)),
            },
            _ => Err(unexpected("an int value", json)),
        },
        T::Bigint => match json {
            Json::String(text) => from_text(ty, text, now_ms),
            Json::Integer(value) => Ok(value.to_be_bytes().to_vec()),
            _ => Err(unexpected("a bigint value", json)),
        },
        T::Varint => match json {
            Json::String(_) | Json::Integer(_) | Json::Big(_) => {
                let text = json.to_string();
                let wrong = || format!("Value '{text}' is not a valid representation of a varint value");
                if text.is_empty() { Err(wrong()) } else { from_text(ty, &text, now_ms).map_err(|_| wrong()) }
            }
            _ => Err(format!("Value '{json}' is not a valid representation of a varint value")),
        },
        T::Decimal => from_text(ty, &json.to_string(), now_ms)
            .map_err(|_| format!("Value '{json}' is not a valid representation of a decimal value")),
        T::Float => match json {
            Json::String(text) => from_text(ty, text, now_ms),
            json => match double(json) {
                Some(value) => Ok((value as f32).to_be_bytes().to_vec()),
                None => Err(unexpected("a float value", json)),
            },
        },
        T::Double => match json {
            Json::String(text) => from_text(ty, text, now_ms),
            json => match double(json) {
                Some(value) => Ok(value.to_be_bytes().to_vec()),
                None => Err(unexpected("a double value", json)),
            },
        },
        T::Boolean => match json {
            Json::Boolean(value) => Ok(vec![u8::from(*value)]),
            Json::String(text) => from_text(ty, text, now_ms),
            _ => Err(unexpected("a boolean value", json)),
        },
        T::Blob | T::Custom(_) => blob(json),
        T::Timestamp => match json {
            // As in Cassandra, a number that fits an `int` is refused.
            Json::Integer(value) if i32::try_from(*value).is_err() => Ok(value.to_be_bytes().to_vec()),
            _ => text_of(ty, json, "a long or a datestring representation of a timestamp value", now_ms),
        },
        T::Ascii => text_of(ty, json, "an ascii string", now_ms),
        T::Text => text_of(ty, json, "a UTF-8 string", now_ms),
        T::Date => text_of(ty, json, "a string representation of a date value", now_ms),
        T::Time => text_of(ty, json, "a string representation of a time value", now_ms),
        T::Duration => text_of(ty, json, "a string representation of a duration", now_ms),
        T::Inet => text_of(ty, json, "a string representation of an inet value", now_ms),
        T::Uuid => text_of(ty, json, "a string representation of a uuid", now_ms),
        T::Timeuuid => text_of(ty, json, "a string representation of a timeuuid", now_ms),
        T::Empty => match json {
            Json::String(text) if text.is_empty() => Ok(Vec::new()),
            Json::String(text) => Err(format!("'{text}' is not empty")),
            _ => Err(format!("Expected an empty string, but got: {json}")),
        },
        T::Counter => Err("Counters cannot be read from JSON".to_owned()),
    }
}

fn unexpected(what: &str, json: &Json<'_>) -> String {
    format!("Expected {what}, but got a {}: {json}", json.class())
}

fn text_of(ty: &CqlType, json: &Json<'_>, what: &str, now_ms: i64) -> Result<Vec<u8>, String> {
    match json {
        Json::String(text) => from_text(ty, text, now_ms),
        _ => Err(unexpected(what, json)),
    }
}

/// Parses text as a value of the type.
fn from_text(ty: &CqlType, text: &str, now_ms: i64) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    literal::append_inner_text(text, ty, now_ms, &mut out)?;
    Ok(out)
}

fn double(json: &Json<'_>) -> Option<f64> {
    match json {
        Json::Integer(value) => Some(*value as f64),
        Json::Big(value) => value.to_string().parse().ok(),
        Json::Double(value) => Some(*value),
        _ => None,
    }
}

fn blob(json: &Json<'_>) -> Result<Vec<u8>, String> {
    let wrong = |problem: String| format!("Value '{json}' is not a valid blob representation: {problem}");
    let Json::String(text) = json else {
        return Err(wrong(format!("a {} is no string", json.class())));
    };
    let digits = text
        .strip_prefix("0x")
        .ok_or_else(|| wrong(format!("String representation of blob is missing 0x prefix: {text}")))?;
    let mut out = Vec::new();
    literal::append_hex(digits, &mut out).map_err(wrong)?;
    Ok(out)
}

fn composed(ty: &CqlType, json: &Json<'_>, now_ms: i64) -> Result<Vec<u8>, String> {
    match ty {
        CqlType::List { element, .. } => {
            let Json::List(list) = json else { return Err(unexpected("a list", json)) };
            Ok(assemble_collection(ty, elements(element, list, "list", now_ms)?))
        }
        CqlType::Set { element, .. } => {
            let Json::List(list) = json else {
                return Err(unexpected("a list (representing a set)", json));
            };
            Ok(assemble_collection(ty, elements(element, list, "set", now_ms)?))
        }
        CqlType::Map { key, value: of, .. } => {
            let Json::Map(entries) = json else { return Err(unexpected("a map", json)) };
            let mut parts = Vec::with_capacity(entries.len() * 2);
            for (name, json) in entries {
                if *json == Json::Null {
                    return Err("Invalid null value in map".to_owned());
                }
                parts.push(present(key, &Json::String(Cow::Borrowed(name)), now_ms)?);
                parts.push(present(of, json, now_ms)?);
            }
            Ok(assemble_collection(ty, parts))
        }
        CqlType::Vector { element, dimension } => {
            let Json::List(list) = json else { return Err(unexpected("a list", json)) };
            if list.len() != *dimension as usize {
                return Err(format!(
                    "List had incorrect size: expected {dimension} but given {}; {json}",
                    list.len()
                ));
            }
            let mut out = Vec::new();
            for part in elements(element, list, "list", now_ms)? {
                append_vector_component(&mut out, element, &part).map_err(|error| error.to_string())?;
            }
            Ok(out)
        }
        CqlType::Tuple(types) => tuple(types, json, now_ms),
        CqlType::Udt(udt) => user_type(udt, json, now_ms),
        other => present(other, json, now_ms),
    }
}

fn elements(ty: &CqlType, list: &[Json<'_>], what: &str, now_ms: i64) -> Result<Vec<Vec<u8>>, String> {
    let element = |json: &Json<'_>| match json {
        Json::Null => Err(format!("Invalid null element in {what}")),
        json => present(ty, json, now_ms),
    };
    list.iter().map(element).collect()
}

fn tuple(types: &[CqlType], json: &Json<'_>, now_ms: i64) -> Result<Vec<u8>, String> {
    let Json::List(list) = json else {
        return Err(unexpected("a list representation of a tuple", json));
    };
    match list.len().cmp(&types.len()) {
        std::cmp::Ordering::Greater => {
            return Err(format!("Tuple contains extra items (expected {}): {json}", types.len()));
        }
        std::cmp::Ordering::Less => {
            return Err(format!("Tuple is missing items (expected {}): {json}", types.len()));
        }
        std::cmp::Ordering::Equal => {}
    }
    let mut out = Vec::new();
    for (ty, json) in types.iter().zip(list) {
        append_element(&mut out, value(ty, json, now_ms)?.as_deref());
    }
    Ok(out)
}

fn user_type(udt: &UserType, json: &Json<'_>, now_ms: i64) -> Result<Vec<u8>, String> {
    let Json::Map(entries) = json else { return Err(unexpected("a map", json)) };
    let entries = fold_case(entries.clone());
    let mut out = Vec::new();
    for (name, ty) in &udt.fields {
        let field = match entries.iter().rfind(|(key, _)| key == name) {
            Some((_, json)) => value(ty, json, now_ms)?,
            None => None,
        };
        append_element(&mut out, field.as_deref());
    }
    match entries.iter().find(|(key, _)| !udt.fields.iter().any(|(name, _)| key == name)) {
        Some((unknown, _)) => {
            Err(format!("Unknown field '{unknown}' in value of user defined type {}", udt.name))
        }
        None => Ok(out),
    }
}

/// Converts keys as identifiers: to lower case, or, in double quotes, to the text between the quotes.
pub(super) fn fold_case<'a>(entries: Vec<(Cow<'a, str>, Json<'a>)>) -> Vec<(Cow<'a, str>, Json<'a>)> {
    let fold = |key: Cow<'a, str>| {
        let quoted = key.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        match quoted {
            Some(name) => Cow::Owned(name.to_owned()),
            None if key.chars().any(char::is_uppercase) => Cow::Owned(key.to_lowercase()),
            None => key,
        }
    };
    entries.into_iter().map(|(key, value)| (fold(key), value)).collect()
}
