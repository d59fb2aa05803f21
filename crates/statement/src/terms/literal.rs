//! Constants: the types that each kind of literal can have, and its bytes in each.
//!
//! Rules and words as Cassandra 5's `Constants.Literal` and the `fromString` of its types.

use bigdecimal::BigDecimal;
use cql::ast::{Constant, ConstantKind};
use model::CqlType;
use model::collection::append_element;
use model::hex;
use model::number;
use model::validate::validate;
use num_bigint::BigInt;

use super::composite::{CompositeClass, append_composite};
use super::{duration, time};
use crate::functions::{effort, number_text};

/// How well a value fits a type, for choosing between overloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Assignment {
    /// Not at all.
    No,
    /// After conversion, or unknown until it is bound.
    Weak,
    /// Exactly this type.
    Exact,
}

impl Assignment {
    /// Whether the literal can be assigned.
    pub fn is_assignable(self) -> bool {
        self != Self::No
    }
}

/// Largest decimal exponent taken from text: beyond it a few bytes would mean megabytes of digits.
const DECIMAL_EXPONENT_MAX: i64 = 1 << 31;

/// The type of a constant if the context does not require another.
pub fn preferred_type(constant: &Constant) -> Option<CqlType> {
    let text = constant.text.as_str();
    Some(match constant.kind {
        ConstantKind::String if text.is_ascii() => CqlType::Ascii,
        ConstantKind::String => CqlType::Text,
        ConstantKind::Integer if text.parse::<i32>().is_ok() => CqlType::Int,
        ConstantKind::Integer if text.parse::<i64>().is_ok() => CqlType::Bigint,
        ConstantKind::Integer => CqlType::Varint,
        ConstantKind::Uuid => match uuid::Uuid::parse_str(text) {
            Ok(uuid) if uuid.get_version_num() == 1 => CqlType::Timeuuid,
            _ => CqlType::Uuid,
        },
        ConstantKind::Float if effort::check_text(text).is_err() => CqlType::Decimal,
        ConstantKind::Float => match (text.parse::<f64>(), text.parse::<BigDecimal>()) {
            (Ok(double), Ok(decimal)) if printed_decimal(double).as_ref() != Some(&decimal) => {
                CqlType::Decimal
            }
            _ => CqlType::Double,
        },
        ConstantKind::Boolean => CqlType::Boolean,
        ConstantKind::Hex => CqlType::Blob,
        ConstantKind::Duration => CqlType::Duration,
        ConstantKind::Null => return None,
    })
}

fn printed_decimal(double: f64) -> Option<BigDecimal> {
    number_text::double(double).parse().ok()
}

/// Whether a constant can be a value of `ty`.
pub fn assignment(constant: &Constant, ty: &CqlType) -> Assignment {
    use CqlType as T;
    if constant.kind == ConstantKind::Null {
        return if ty.is_counter() { Assignment::No } else { Assignment::Weak };
    }
    if matches!(ty, T::Custom(_) | T::Tuple(_)) {
        // Only the class can decide which texts it reads.
        return Assignment::Weak;
    }
    if preferred_type(constant).as_ref() == Some(ty) {
        return Assignment::Exact;
    }
    let fits = match constant.kind {
        ConstantKind::String => {
            matches!(ty, T::Ascii | T::Text | T::Inet | T::Date | T::Time | T::Timestamp)
        }
        ConstantKind::Integer => matches!(
            ty,
            T::Bigint
                | T::Counter
                | T::Date
                | T::Decimal
                | T::Double
                | T::Duration
                | T::Float
                | T::Int
                | T::Smallint
                | T::Time
                | T::Timestamp
                | T::Tinyint
                | T::Varint
        ),
        ConstantKind::Uuid => matches!(ty, T::Uuid | T::Timeuuid),
        ConstantKind::Float => matches!(ty, T::Decimal | T::Double | T::Float),
        ConstantKind::Boolean => matches!(ty, T::Boolean),
        // Cassandra reads hexadecimal digits as a number of one byte too, of no other.
        ConstantKind::Hex => matches!(ty, T::Blob | T::Tinyint),
        ConstantKind::Duration => matches!(ty, T::Duration),
        ConstantKind::Null => false,
    };
    if fits { Assignment::Weak } else { Assignment::No }
}

/// The constant in the form of messages and of its type's parser: Cassandra's NaN has no sign.
pub fn shown(constant: &Constant) -> &str {
    if constant.kind == ConstantKind::Float && constant.text == "-NaN" { "NaN" } else { &constant.text }
}

/// Cassandra's name of the kind in messages.
pub fn kind_name(kind: ConstantKind) -> &'static str {
    match kind {
        ConstantKind::String => "STRING",
        ConstantKind::Integer => "INTEGER",
        ConstantKind::Float => "FLOAT",
        ConstantKind::Boolean => "BOOLEAN",
        ConstantKind::Uuid => "UUID",
        ConstantKind::Hex => "HEX",
        ConstantKind::Duration => "DURATION",
        ConstantKind::Null => "NULL",
    }
}

/// Appends the value of a constant as a `ty`; `now_ms` is the meaning of the timestamp `'now'`.
///
/// # Errors
/// The client's error text, in Cassandra's words.
pub fn append_value(constant: &Constant, ty: &CqlType, now_ms: i64, out: &mut Vec<u8>) -> Result<(), String> {
    let text = shown(constant);
    if constant.kind == ConstantKind::Hex && *ty == CqlType::Tinyint {
        let value = i8::from_str_radix(text.get(2..).unwrap_or(""), 16);
        let value = value.map_err(|_| format!("Unable to make byte from '{text}'"))?;
        out.extend_from_slice(&value.to_be_bytes());
        return Ok(());
    }
    if constant.kind == ConstantKind::Hex {
        return append_hex(text.get(2..).unwrap_or(""), out);
    }
    append_text(text, ty, now_ms, out)
}

/// Appends the tuple of a text: components between colons, `@` for null, both escaped by a backslash
/// (Cassandra's `TupleType.fromString`).
fn append_tuple(
    text: &str,
    whole: &CqlType,
    types: &[CqlType],
    now_ms: i64,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let mut parts: Vec<&str> = Vec::new();
    let mut from = 0;
    for (at, _) in text.match_indices(':') {
        if !text[..at].ends_with('\\') {
            parts.push(&text[from..at]);
            from = at + 1;
        }
    }
    if !text.is_empty() {
        parts.push(&text[from..]);
    }
    if parts.len() > types.len() {
        return Err(format!(
            "Invalid tuple literal: too many elements. Type {whole} expects {} but got {}",
            types.len(),
            parts.len()
        ));
    }
    for (part, ty) in parts.into_iter().zip(types) {
        if part == "@" {
            append_element(out, None);
            continue;
        }
        let mut value = Vec::new();
        append_inner_text(&part.replace("\\:", ":").replace("\\@", "@"), ty, now_ms, &mut value)?;
        append_element(out, Some(&value));
    }
    Ok(())
}

/// As [`append_text`], for a value inside JSON or the text of a tuple, where an empty text may be a value:
/// false, and the empty value of most types.
///
/// # Errors
/// As [`append_value`].
pub fn append_inner_text(text: &str, ty: &CqlType, now_ms: i64, out: &mut Vec<u8>) -> Result<(), String> {
    use CqlType as T;
    match ty {
        T::Boolean if text.is_empty() => out.push(0),
        T::Vector { .. } | T::List { .. } | T::Set { .. } | T::Map { .. } => {
            let mut value = Vec::new();
            append_hex(text, &mut value)?;
            validate(ty, &value).map_err(|error| error.to_string())?;
            out.extend_from_slice(&value);
        }
        T::Udt(udt) => {
            let types: Vec<T> = udt.fields.iter().map(|(_, ty)| ty.clone()).collect();
            append_tuple(text, ty, &types, now_ms, out)?;
        }
        ty if text.is_empty() && ty.is_empty_value_meaningless() => {}
        T::Blob => append_hex(text, out)?,
        ty => append_text(text, ty, now_ms, out)?,
    }
    Ok(())
}

/// Appends the value of a native type for `text`.
///
/// # Errors
/// As [`append_value`].
pub fn append_text(text: &str, ty: &CqlType, now_ms: i64, out: &mut Vec<u8>) -> Result<(), String> {
    match ty {
        CqlType::Tuple(types) => append_tuple(text, ty, types, now_ms, out)?,
        ty if ty.is_collection() => append_hex(text, out)?,
        CqlType::Ascii if text.is_ascii() => out.extend_from_slice(text.as_bytes()),
        CqlType::Ascii => {
            let units = text.chars().find(|c| !c.is_ascii()).map_or(1, char::len_utf16);
            return Err(format!(
                "Invalid ASCII character in string literal: java.nio.charset.UnmappableCharacterException: Input length = \
                 {units}"
            ));
        }
        CqlType::Text => out.extend_from_slice(text.as_bytes()),
        CqlType::Tinyint => out.extend_from_slice(&integer::<i8>(text, "byte")?.to_be_bytes()),
        CqlType::Smallint => out.extend_from_slice(&integer::<i16>(text, "short")?.to_be_bytes()),
        CqlType::Int => out.extend_from_slice(&integer::<i32>(text, "int")?.to_be_bytes()),
        CqlType::Bigint | CqlType::Counter => {
            out.extend_from_slice(&integer::<i64>(text, "long")?.to_be_bytes());
        }
        CqlType::Varint => {
            effort::check_text(text)?;
            // The library would also take underscores between digits.
            let value: Option<BigInt> = text.parse().ok().filter(|_| !text.contains('_'));
            let value = value.ok_or_else(|| format!("unable to make int from '{text}'"))?;
            number::append_varint(out, &value);
        }
        CqlType::Decimal => {
            effort::check_text(text)?;
            let wrong = || format!("unable to make BigDecimal from '{text}'");
            let value: BigDecimal = text.parse().ok().filter(|_| !text.contains('_')).ok_or_else(wrong)?;
            if value.as_bigint_and_scale().1.abs() > DECIMAL_EXPONENT_MAX {
                return Err(wrong());
            }
            number::append_decimal(out, &value).map_err(|_| wrong())?;
        }
        CqlType::Float => {
            let value: f32 =
                java_number(text).ok_or_else(|| format!("Unable to make float from '{text}'"))?;
            let bits = if value.is_nan() { f32::NAN } else { value };
            out.extend_from_slice(&bits.to_be_bytes());
        }
        CqlType::Double => {
            let value: f64 =
                java_number(text).ok_or_else(|| format!("Unable to make double from '{text}'"))?;
            let bits = if value.is_nan() { f64::NAN } else { value };
            out.extend_from_slice(&bits.to_be_bytes());
        }
        CqlType::Boolean => match () {
            () if text.eq_ignore_ascii_case("true") => out.push(1),
            () if text.eq_ignore_ascii_case("false") => out.push(0),
            () => return Err(format!("Unable to make boolean from '{text}'")),
        },
        CqlType::Timestamp if text.is_empty() => {}
        CqlType::Timestamp => out.extend_from_slice(&time::parse_timestamp(text, now_ms)?.to_be_bytes()),
        CqlType::Date => out.extend_from_slice(&time::parse_date(text)?.to_be_bytes()),
        CqlType::Time => out.extend_from_slice(&time::parse_time(text)?.to_be_bytes()),
        CqlType::Uuid => out.extend_from_slice(uuid(text)?.as_bytes()),
        CqlType::Timeuuid => {
            let value = uuid(text).map_err(|_| format!("Unknown timeuuid representation: {text}"))?;
            if value.get_version_num() != 1 {
                return Err("TimeUUID supports only version 1 UUIDs".to_owned());
            }
            out.extend_from_slice(value.as_bytes());
        }
        CqlType::Inet if text.is_empty() => {}
        CqlType::Inet => append_inet(text, out)?,
        CqlType::Duration => duration::parse(text)?.append(out),
        CqlType::Custom(class) if class.ends_with("UUIDType") => match uuid(text) {
            Ok(value) => out.extend_from_slice(value.as_bytes()),
            Err(_) => return Err(format!("unable to make UUID from '{text}'")),
        },
        CqlType::Custom(class) => match CompositeClass::of(class) {
            Some(class) => append_composite(&class, text, now_ms, out)?,
            None => append_hex(text, out)?,
        },
        _ => return Err(format!("Cannot make a value of type {ty} from '{text}'")),
    }
    Ok(())
}

fn integer<T: std::str::FromStr>(text: &str, what: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("Unable to make {what} from '{text}'"))
}

/// A floating-point number as `Double.parseDouble` reads it: blanks around it and a type suffix are left out,
/// and of words only `NaN` and `Infinity` count, so spelt.
fn java_number<T: std::str::FromStr>(text: &str) -> Option<T> {
    let trimmed = text.trim();
    let magnitude = trimmed.strip_prefix(['+', '-']).unwrap_or(trimmed);
    if matches!(magnitude, "NaN" | "Infinity") {
        return trimmed.parse().ok();
    }
    let number = trimmed.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(trimmed);
    let digits = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-');
    number.bytes().all(digits).then(|| number.parse().ok())?
}

fn uuid(text: &str) -> Result<uuid::Uuid, String> {
    uuid::Uuid::try_parse(text)
        .ok()
        .filter(|_| text.len() == 36)
        .ok_or_else(|| format!("Unable to make UUID from '{text}'"))
}

/// Appends the bytes of hex digits.
///
/// # Errors
/// The text for people if they are no hex digits.
pub fn append_hex(digits: &str, out: &mut Vec<u8>) -> Result<(), String> {
    let bytes = hex::parse(digits).ok_or_else(|| format!("cannot parse '{digits}' as hex bytes"))?;
    if out.is_empty() {
        *out = bytes;
    } else {
        out.extend_from_slice(&bytes);
    }
    Ok(())
}

fn append_inet(text: &str, out: &mut Vec<u8>) -> Result<(), String> {
    use std::net::IpAddr;
    // The scope of an address, a number, is not part of its bytes.
    let is_scope = |scope: &str| !scope.is_empty() && scope.bytes().all(|byte| byte.is_ascii_digit());
    // As in a URL, IPv6 alone.
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let bare = bare.filter(|address| address.contains(':')).unwrap_or(text);
    let address = match bare.split_once('%') {
        Some((address, scope)) if address.contains(':') && is_scope(scope) => address,
        _ => bare,
    };
    match address.parse() {
        Ok(IpAddr::V4(address)) => out.extend_from_slice(&address.octets()),
        // Java turns mapped addresses into the IPv4 ones they represent.
        Ok(IpAddr::V6(address)) => match address.to_ipv4_mapped() {
            Some(mapped) => out.extend_from_slice(&mapped.octets()),
            None => out.extend_from_slice(&address.octets()),
        },
        Err(_) => match numeric_ipv4(text) {
            Some(address) => out.extend_from_slice(&address.to_be_bytes()),
            None => return Err(format!("Unable to make inet address from '{text}'")),
        },
    }
    Ok(())
}

/// An IPv4 address of fewer than four numbers: the last one fills all remaining bytes, as in `inet_aton`.
fn numeric_ipv4(text: &str) -> Option<u32> {
    let parts: Vec<&str> = text.split('.').collect();
    let digits = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if parts.len() > 4 || !parts.iter().all(digits) {
        return None;
    }
    let (last, first) = parts.split_last()?;
    let mut address = 0_u32;
    for part in first {
        address = address << 8 | u32::from(part.parse::<u8>().ok()?);
    }
    let bits = 32 - 8 * first.len() as u32;
    let last: u64 = last.parse().ok()?;
    if last >= 1_u64 << bits {
        return None;
    }
    Some((u64::from(address) << bits) as u32 | last as u32)
}

#[cfg(test)]
mod tests;
