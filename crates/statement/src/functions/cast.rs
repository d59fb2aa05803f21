//! `CAST(x AS type)`: the conversions between types (Cassandra 5's `CastFcts`).
//!
//! Numbers are narrowed as by Java's `Number` methods: integers wrap, floating-point values saturate first.

use bigdecimal::BigDecimal;
use cql::ast::NativeType;
use model::{CqlType, number, type_parser};
use num_bigint::BigInt;
use uuid::Uuid;

use super::number::{Number, is_number, read};
use super::{Function, effort, number_text};
use crate::StatementError;
use crate::terms::{duration, time};

/// Most digits that a cast to an integer expands: a scale from a client could require billions.
const DIGITS_MAX: i64 = 100_000;

/// Whether `from` can be cast to `to`; a cast to the same type copies the value.
pub(super) fn exists(from: &CqlType, to: &CqlType) -> bool {
    use CqlType as T;
    if from == to {
        return true;
    }
    let to_text = matches!(to, T::Ascii | T::Text);
    match from {
        _ if is_number(from) => to_text || (is_number(to) && !to.is_counter()),
        T::Ascii => to_text,
        T::Inet | T::Boolean | T::Time | T::Uuid => to_text,
        T::Timeuuid => to_text || matches!(to, T::Date | T::Timestamp),
        T::Timestamp => to_text || matches!(to, T::Date),
        T::Date => to_text || matches!(to, T::Timestamp),
        _ => false,
    }
}

/// Name of the function for a cast to `target`.
pub fn cast_name(target: NativeType) -> &'static str {
    match target {
        NativeType::Ascii => "cast_as_ascii",
        NativeType::Bigint => "cast_as_bigint",
        NativeType::Blob => "cast_as_blob",
        NativeType::Boolean => "cast_as_boolean",
        NativeType::Counter => "cast_as_counter",
        NativeType::Date => "cast_as_date",
        NativeType::Decimal => "cast_as_decimal",
        NativeType::Double => "cast_as_double",
        NativeType::Duration => "cast_as_duration",
        NativeType::Float => "cast_as_float",
        NativeType::Inet => "cast_as_inet",
        NativeType::Int => "cast_as_int",
        NativeType::Smallint => "cast_as_smallint",
        NativeType::Text | NativeType::Varchar => "cast_as_text",
        NativeType::Time => "cast_as_time",
        NativeType::Timestamp => "cast_as_timestamp",
        NativeType::Timeuuid => "cast_as_timeuuid",
        NativeType::Tinyint => "cast_as_tinyint",
        NativeType::Uuid => "cast_as_uuid",
        NativeType::Varint => "cast_as_varint",
    }
}

/// Overloads of the function for a cast: from all other types that can be cast.
pub(super) fn overloads(name: &str) -> Vec<Function> {
    let Some(to) = name.strip_prefix("cast_as_").and_then(type_parser::native_type) else {
        return Vec::new();
    };
    let from = NativeType::ALL.iter().filter_map(|native| type_parser::native_type(native.name()));
    let mut all: Vec<Function> =
        from.filter(|from| *from != to).filter_map(|from| Function::cast(&from, &to)).collect();
    all.dedup_by(|a, b| a.arguments() == b.arguments());
    all
}

/// Converts a value to the other type. An empty value is copied if the types are alike; else it gives null.
pub(super) fn convert(from: &CqlType, to: &CqlType, value: &[u8]) -> Result<Option<Vec<u8>>, StatementError> {
    if from == to || (*from == CqlType::Ascii && *to == CqlType::Text) {
        return Ok(Some(value.to_vec()));
    }
    if value.is_empty() {
        return Ok(None);
    }
    match to {
        CqlType::Ascii | CqlType::Text => text(from, value).map(|text| Some(text.into_bytes())),
        CqlType::Date | CqlType::Timestamp => Ok(super::time::convert(from, to, value)),
        _ => match read(from, value)? {
            Some(number) => write(number, to).map(Some),
            None => Ok(None),
        },
    }
}

fn write(number: Number, to: &CqlType) -> Result<Vec<u8>, StatementError> {
    Ok(match to {
        CqlType::Tinyint => (narrow(&number)? as i8).to_be_bytes().to_vec(),
        CqlType::Smallint => (narrow(&number)? as i16).to_be_bytes().to_vec(),
        CqlType::Int => (narrow(&number)? as i32).to_be_bytes().to_vec(),
        CqlType::Bigint => wide(&number)?.to_be_bytes().to_vec(),
        CqlType::Float => number.to_f32().to_be_bytes().to_vec(),
        CqlType::Double => number.to_f64().to_be_bytes().to_vec(),
        CqlType::Varint => {
            let mut out = Vec::new();
            number::append_varint_i64(&mut out, wide(&number)?);
            out
        }
        _ => {
            let decimal = match number {
                Number::Integer(value) => BigDecimal::from(value),
                Number::Varint(value) => BigDecimal::from(value),
                Number::Decimal(value) => value,
                Number::Single(value) => from_text(&number_text::float(value))?,
                Number::Double(value) => from_text(&number_text::double(value))?,
            };
            let mut out = Vec::new();
            number::append_decimal(&mut out, &decimal).map_err(|e| StatementError::Invalid(e.to_string()))?;
            out
        }
    })
}

fn from_text(text: &str) -> Result<BigDecimal, StatementError> {
    text.parse().map_err(|_| StatementError::Invalid(format!("{text} cannot be cast to decimal")))
}

/// `intValue` before the last narrowing: floating-point values saturate at 32 bits, others have 64 bits.
fn narrow(number: &Number) -> Result<i64, StatementError> {
    Ok(match number {
        Number::Single(value) => i64::from(*value as i32),
        Number::Double(value) => i64::from(*value as i32),
        other => wide(other)?,
    })
}

/// `longValue`: floating-point values saturate, longer integers keep their low 64 bits.
fn wide(number: &Number) -> Result<i64, StatementError> {
    Ok(match number {
        Number::Integer(value) => *value,
        Number::Single(value) => *value as i64,
        Number::Double(value) => *value as i64,
        Number::Varint(value) => low_bits(value),
        Number::Decimal(value) => {
            check_digits(value)?;
            low_bits(&value.with_scale(0).as_bigint_and_scale().0)
        }
    })
}

fn low_bits(value: &BigInt) -> i64 {
    let bytes = value.to_signed_bytes_be();
    let fill = if bytes.first().is_some_and(|byte| *byte >= 0x80) { 0xff } else { 0 };
    let mut low = [fill; 8];
    let kept = bytes.len().min(8);
    low[8 - kept..].copy_from_slice(&bytes[bytes.len() - kept..]);
    i64::from_be_bytes(low)
}

fn check_digits(value: &BigDecimal) -> Result<(), StatementError> {
    if value.as_bigint_and_scale().1.abs() > DIGITS_MAX {
        return Err(StatementError::invalid("The decimal has too many digits to be written out"));
    }
    Ok(())
}

fn check_length(ty: &CqlType, number: &BigInt) -> Result<(), StatementError> {
    // log2(10) = 3.3219...
    if number.bits() > effort::DIGITS_MAX as u64 * 33_220 / 10_000 {
        return Err(StatementError::Invalid(format!(
            "A {ty} of more than {} digits is too long to be written as text",
            effort::DIGITS_MAX
        )));
    }
    Ok(())
}

/// The text of a value of a scalar type other than the text types.
///
/// # Errors
/// [`StatementError`] if the bytes are not such a value, or if the type has no text.
pub fn text(from: &CqlType, value: &[u8]) -> Result<String, StatementError> {
    let bad = || StatementError::Invalid(format!("A value of {} bytes is no {from}", value.len()));
    Ok(match from {
        CqlType::Boolean => (value != [0]).to_string(),
        CqlType::Inet => match value.len() {
            4 => std::net::Ipv4Addr::from(<[u8; 4]>::try_from(value).map_err(|_| bad())?).to_string(),
            _ => java_ipv6(value.try_into().map_err(|_| bad())?),
        },
        CqlType::Uuid | CqlType::Timeuuid => Uuid::from_slice(value).map_err(|_| bad())?.to_string(),
        CqlType::Timestamp => time::timestamp_text(i64::from_be_bytes(value.try_into().map_err(|_| bad())?)),
        CqlType::Date => time::date_text(u32::from_be_bytes(value.try_into().map_err(|_| bad())?)),
        CqlType::Time => time::time_text(i64::from_be_bytes(value.try_into().map_err(|_| bad())?)),
        CqlType::Duration => duration::text(&number::Duration::decode(value).map_err(|_| bad())?),
        _ => match read(from, value)?.ok_or_else(bad)? {
            Number::Integer(value) => value.to_string(),
            Number::Single(value) => number_text::float(value),
            Number::Double(value) => number_text::double(value),
            Number::Varint(number) => {
                check_length(from, &number)?;
                number.to_string()
            }
            Number::Decimal(number) => {
                check_length(from, &number.as_bigint_and_scale().0)?;
                number_text::decimal(&number)
            }
        },
    })
}

/// Eight groups without leading zeros and without abbreviation, as `InetAddress.getHostAddress` prints them.
fn java_ipv6(octets: [u8; 16]) -> String {
    let groups: Vec<String> =
        std::net::Ipv6Addr::from(octets).segments().iter().map(|group| format!("{group:x}")).collect();
    groups.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cast(from: CqlType, to: CqlType, value: &[u8]) -> Vec<u8> {
        assert!(exists(&from, &to), "{from} to {to}");
        convert(&from, &to, value).unwrap().unwrap()
    }

    #[test]
    fn numbers_narrow_as_in_java() {
        assert_eq!(cast(CqlType::Int, CqlType::Tinyint, &300_i32.to_be_bytes()), [44]);
        assert_eq!(cast(CqlType::Double, CqlType::Int, &1e12_f64.to_be_bytes()), i32::MAX.to_be_bytes());
        assert_eq!(cast(CqlType::Double, CqlType::Bigint, &(-1.9_f64).to_be_bytes()), (-1_i64).to_be_bytes());
        assert_eq!(cast(CqlType::Varint, CqlType::Bigint, &[1, 0, 0, 0, 0, 0, 0, 0, 2]), 2_i64.to_be_bytes());
        assert_eq!(cast(CqlType::Int, CqlType::Double, &7_i32.to_be_bytes()), 7_f64.to_be_bytes());
        assert_eq!(cast(CqlType::Float, CqlType::Decimal, &0.1_f32.to_be_bytes()), [0, 0, 0, 1, 1]);
    }

    #[test]
    fn values_become_text() {
        let text = |from, value: &[u8]| String::from_utf8(cast(from, CqlType::Text, value)).unwrap();
        assert_eq!(text(CqlType::Int, &(-5_i32).to_be_bytes()), "-5");
        assert_eq!(text(CqlType::Double, &1e7_f64.to_be_bytes()), "1.0E7");
        assert_eq!(text(CqlType::Decimal, &[0, 0, 0, 2, 0, 150]), "1.50");
        assert_eq!(text(CqlType::Boolean, &[1]), "true");
        assert_eq!(text(CqlType::Inet, &[127, 0, 0, 1]), "127.0.0.1");
        assert_eq!(text(CqlType::Inet, &std::net::Ipv6Addr::LOCALHOST.octets()), "0:0:0:0:0:0:0:1");
        assert_eq!(text(CqlType::Timestamp, &0_i64.to_be_bytes()), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn a_scale_cannot_ask_for_gigabytes() {
        let huge = [0x80, 0, 0, 1, 1];
        assert_eq!(cast(CqlType::Decimal, CqlType::Text, &huge), b"1E+2147483647");
        assert!(convert(&CqlType::Decimal, &CqlType::Bigint, &huge).is_err());
        assert_eq!(cast(CqlType::Decimal, CqlType::Double, &huge), f64::INFINITY.to_be_bytes());
    }

    #[test]
    fn what_is_no_conversion_is_known() {
        for (from, to) in [
            (CqlType::Text, CqlType::Int),
            (CqlType::Blob, CqlType::Text),
            (CqlType::Int, CqlType::Boolean),
            (CqlType::Int, CqlType::Counter),
        ] {
            assert!(!exists(&from, &to), "{from} to {to}");
        }
    }
}
