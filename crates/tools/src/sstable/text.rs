//! Serialised values, keys, times and tokens as JSON, by their types.
//!
//! Numbers beyond 64 bits, blobs, UUIDs, addresses and times are strings. Maps are lists of pairs, since
//! their keys need not be text. Bytes that are invalid for their type are printed as `{"invalid": "0x…"}`,
//! because finding them is the purpose.

use std::net::IpAddr;

use model::clustering::Clustering;
use model::collection::{Components, Elements, Entries, VectorElements};
use model::deletion::{DeletionTime, LocalSeconds, NO_LOCAL_TIME};
use model::hex;
use model::number::{Duration, decode_decimal, decode_varint};
use model::partition_key;
use model::{CqlType, validate};
use serde_json::{Map, Number, Value, json};

/// Days between the least `date` and 1970-01-01.
const DATE_BIAS: i64 = 1 << 31;

/// A serialised value.
pub(super) fn value(ty: &CqlType, bytes: &[u8]) -> Value {
    // Empty bytes are a value of most types, beside those the type stands for.
    let has_own_empty = matches!(ty, CqlType::Ascii | CqlType::Text | CqlType::Blob | CqlType::Custom(_));
    if bytes.is_empty() && !has_own_empty && ty.allows_empty() {
        return Value::String(String::new());
    }
    if validate::validate(ty, bytes).is_ok()
        && let Some(value) = valid(ty, bytes)
    {
        return value;
    }
    json!({ "invalid": hex::blob(bytes) })
}

fn valid(ty: &CqlType, bytes: &[u8]) -> Option<Value> {
    Some(match ty {
        CqlType::Ascii | CqlType::Text => Value::String(std::str::from_utf8(bytes).ok()?.to_owned()),
        CqlType::Bigint => json!(i64::from_be_bytes(bytes.try_into().ok()?)),
        // A counter's cell holds the counts of each host.
        CqlType::Blob | CqlType::Custom(_) | CqlType::Counter => Value::String(hex::blob(bytes)),
        CqlType::Boolean => json!(*bytes.first()? != 0),
        CqlType::Date => {
            let days = i64::from(u32::from_be_bytes(bytes.try_into().ok()?)) - DATE_BIAS;
            Value::String(date(days).unwrap_or_else(|| format!("{days} days")))
        }
        CqlType::Decimal => Value::String(decode_decimal(bytes).ok()??.to_string()),
        CqlType::Double => {
            let number = f64::from_be_bytes(bytes.try_into().ok()?);
            Number::from_f64(number).map_or_else(|| Value::String(number.to_string()), Value::Number)
        }
        CqlType::Float => {
            let number = f32::from_be_bytes(bytes.try_into().ok()?);
            // By its own shortest digits, not those of the wider type.
            let text = number.to_string();
            let wide = text.parse().ok().and_then(Number::from_f64);
            wide.map_or(Value::String(text), Value::Number)
        }
        CqlType::Duration => {
            let duration = Duration::decode(bytes).ok()?;
            let (months, days, nanoseconds) = (duration.months(), duration.days(), duration.nanoseconds());
            json!({ "months": months, "days": days, "nanoseconds": nanoseconds })
        }
        CqlType::Inet => Value::String(match bytes.len() {
            4 => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?).to_string(),
            _ => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?).to_string(),
        }),
        CqlType::Int => json!(i32::from_be_bytes(bytes.try_into().ok()?)),
        CqlType::Smallint => json!(i16::from_be_bytes(bytes.try_into().ok()?)),
        CqlType::Tinyint => json!(i8::from_be_bytes(bytes.try_into().ok()?)),
        CqlType::Time => {
            let nanoseconds = i64::from_be_bytes(bytes.try_into().ok()?);
            let (seconds, rest) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
            let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
            Value::String(format!("{hours:02}:{minutes:02}:{seconds:02}.{rest:09}"))
        }
        CqlType::Timestamp => {
            let milliseconds = i64::from_be_bytes(bytes.try_into().ok()?);
            let instant = jiff::Timestamp::from_millisecond(milliseconds);
            Value::String(
                instant.map_or_else(|_| format!("{milliseconds} ms"), |instant| instant.to_string()),
            )
        }
        CqlType::Timeuuid | CqlType::Uuid => Value::String(uuid::Uuid::from_slice(bytes).ok()?.to_string()),
        CqlType::Varint => Value::String(decode_varint(bytes)?.to_string()),
        CqlType::Empty => Value::String(String::new()),
        CqlType::List { element, .. } | CqlType::Set { element, .. } => {
            let elements = Elements::parse(bytes).ok()?;
            let elements = elements.map(|bytes| Some(value(element, bytes.ok()?)));
            Value::Array(elements.collect::<Option<_>>()?)
        }
        CqlType::Map { key, value: value_type, .. } => {
            let entries = Entries::parse(bytes).ok()?.map(|entry| {
                let (key_bytes, value_bytes) = entry.ok()?;
                Some(Value::Array(vec![value(key, key_bytes), value(value_type, value_bytes)]))
            });
            Value::Array(entries.collect::<Option<_>>()?)
        }
        CqlType::Tuple(types) => {
            let components = Components::new(bytes).zip(types).map(|(bytes, ty)| nullable(ty, bytes.ok()?));
            Value::Array(components.collect::<Option<_>>()?)
        }
        CqlType::Udt(udt) => {
            let mut fields = Map::new();
            for (bytes, (name, ty)) in Components::new(bytes).zip(&udt.fields) {
                fields.insert(name.clone(), nullable(ty, bytes.ok()?)?);
            }
            Value::Object(fields)
        }
        CqlType::Vector { element, dimension } => {
            let elements = VectorElements::new(element, *dimension, bytes);
            let elements = elements.map(|bytes| Some(value(element, bytes.ok()?)));
            Value::Array(elements.collect::<Option<_>>()?)
        }
    })
}

fn nullable(ty: &CqlType, bytes: Option<&[u8]>) -> Option<Value> {
    Some(bytes.map_or(Value::Null, |bytes| value(ty, bytes)))
}

fn date(days: i64) -> Option<String> {
    let epoch = jiff::civil::Date::constant(1970, 1, 1);
    Some(epoch.checked_add(jiff::Span::new().try_days(days).ok()?).ok()?.to_string())
}

/// The columns of a stored partition key.
pub(super) fn key(types: &[CqlType], key: &[u8]) -> Value {
    let components = partition_key::components(key, types.len());
    Value::Array(components.zip(types).map(|(bytes, ty)| value(ty, bytes)).collect())
}

/// The columns of a clustering or of its beginning.
pub(super) fn clustering<'t>(types: impl Iterator<Item = &'t CqlType>, prefix: Clustering<'_>) -> Value {
    let components = prefix.components().zip(types);
    Value::Array(components.map(|(bytes, ty)| bytes.map_or(Value::Null, |bytes| value(ty, bytes))).collect())
}

/// Seconds since the epoch as a time, `null` for never.
pub(super) fn local_time(seconds: LocalSeconds) -> Value {
    if seconds == NO_LOCAL_TIME { Value::Null } else { Value::String(seconds_text(i64::from(seconds))) }
}

/// Seconds since the epoch as a time.
pub(super) fn seconds_text(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map_or_else(|_| format!("{seconds} s"), |time| time.to_string())
}

/// Microseconds since the epoch as a time; client timestamps are often other numbers, which stay as they are.
pub(super) fn timestamp_text(microseconds: i64) -> String {
    jiff::Timestamp::from_microsecond(microseconds)
        .map_or_else(|_| microseconds.to_string(), |time| time.to_string())
}

/// A deletion, `null` for none.
pub(super) fn deletion(deletion: DeletionTime) -> Value {
    if deletion.is_live() {
        return Value::Null;
    }
    json!({ "timestamp": deletion.timestamp, "local_time": local_time(deletion.local_time) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ty: &CqlType, bytes: &[u8], expected: Value) {
        assert_eq!(value(ty, bytes), expected, "{ty} {}", hex::blob(bytes));
    }

    #[test]
    fn scalars_read_as_in_cql() {
        check(&CqlType::Int, &(-5i32).to_be_bytes(), json!(-5));
        check(&CqlType::Bigint, &i64::MIN.to_be_bytes(), json!(i64::MIN));
        check(&CqlType::Text, "é".as_bytes(), json!("é"));
        check(&CqlType::Text, b"", json!(""));
        check(&CqlType::Blob, b"\x01\xff", json!("0x01ff"));
        check(&CqlType::Boolean, &[1], json!(true));
        check(&CqlType::Float, &0.1f32.to_be_bytes(), json!(0.1));
        check(&CqlType::Double, &f64::NAN.to_be_bytes(), json!("NaN"));
        check(&CqlType::Date, &(1u32 << 31).to_be_bytes(), json!("1970-01-01"));
        check(&CqlType::Time, &3_661_000_000_005i64.to_be_bytes(), json!("01:01:01.000000005"));
        check(&CqlType::Timestamp, &1500i64.to_be_bytes(), json!("1970-01-01T00:00:01.5Z"));
        check(&CqlType::Timestamp, &i64::MAX.to_be_bytes(), json!("9223372036854775807 ms"));
        check(&CqlType::Inet, &[127, 0, 0, 1], json!("127.0.0.1"));
        check(&CqlType::Varint, &[0xff], json!("-1"));
        check(&CqlType::Decimal, &[0, 0, 0, 2, 0x7b], json!("1.23"));
        check(&CqlType::Int, b"", json!(""));
    }

    #[test]
    fn values_inside_values_read_by_their_types() {
        let element = Box::new(CqlType::Int);
        let list = [0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 7, 0, 0, 0, 4, 0, 0, 0, 9];
        check(&CqlType::List { element: element.clone(), frozen: true }, &list, json!([7, 9]));
        let map = [0, 0, 0, 1, 0, 0, 0, 1, b'a', 0, 0, 0, 4, 0, 0, 0, 9];
        let ty = CqlType::Map { key: Box::new(CqlType::Text), value: element.clone(), frozen: true };
        check(&ty, &map, json!([["a", 9]]));
        let tuple = [0, 0, 0, 4, 0, 0, 0, 7, 255, 255, 255, 255];
        check(&CqlType::Tuple(vec![CqlType::Int, CqlType::Text]), &tuple, json!([7, null]));
        let vector = [0, 0, 0, 1, 0, 0, 0, 2];
        check(&CqlType::Vector { element, dimension: 2 }, &vector, json!([1, 2]));
    }

    #[test]
    fn bytes_that_are_no_value_are_shown_as_such() {
        check(&CqlType::Int, &[1, 2], json!({ "invalid": "0x0102" }));
        check(&CqlType::Text, &[0xff], json!({ "invalid": "0xff" }));
        let element = Box::new(CqlType::Int);
        check(&CqlType::List { element, frozen: true }, &[0, 0, 0, 9], json!({ "invalid": "0x00000009" }));
    }
}
