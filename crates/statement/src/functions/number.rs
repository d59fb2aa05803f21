//! Numbers of all CQL types, as functions, operators and casts use them.
//!
//! Conversions are those of Java's `Number`: narrowed integers wrap, floating-point values saturate.

use bigdecimal::{BigDecimal, ToPrimitive};
use model::{CqlType, number};
use num_bigint::BigInt;

use crate::StatementError;

/// A number of a CQL type.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Number {
    /// A number of a type of at most 64 bits.
    Integer(i64),
    /// `float`
    Single(f32),
    /// `double`
    Double(f64),
    /// `decimal`
    Decimal(BigDecimal),
    /// `varint`
    Varint(BigInt),
}

/// Whether values of the type are numbers.
pub(super) fn is_number(ty: &CqlType) -> bool {
    use CqlType as T;
    matches!(
        ty,
        T::Tinyint
            | T::Smallint
            | T::Int
            | T::Bigint
            | T::Counter
            | T::Float
            | T::Double
            | T::Decimal
            | T::Varint
    )
}

/// Decodes a value; `None` for an empty value.
///
/// # Errors
/// [`StatementError::Invalid`] if the bytes are not a value of the type.
pub(super) fn read(ty: &CqlType, value: &[u8]) -> Result<Option<Number>, StatementError> {
    let bad = || StatementError::Invalid(format!("A value of {} bytes is no {ty}", value.len()));
    if value.is_empty() {
        return Ok(None);
    }
    Ok(Some(match ty {
        CqlType::Tinyint => {
            Number::Integer(i64::from(i8::from_be_bytes(value.try_into().map_err(|_| bad())?)))
        }
        CqlType::Smallint => {
            Number::Integer(i64::from(i16::from_be_bytes(value.try_into().map_err(|_| bad())?)))
        }
        CqlType::Int => Number::Integer(i64::from(i32::from_be_bytes(value.try_into().map_err(|_| bad())?))),
        CqlType::Float => Number::Single(f32::from_be_bytes(value.try_into().map_err(|_| bad())?)),
        CqlType::Double => Number::Double(f64::from_be_bytes(value.try_into().map_err(|_| bad())?)),
        CqlType::Decimal => match number::decode_decimal(value).map_err(|_| bad())? {
            Some(decimal) => Number::Decimal(decimal),
            None => return Ok(None),
        },
        CqlType::Varint => match number::decode_varint(value) {
            Some(varint) => Number::Varint(varint),
            None => return Ok(None),
        },
        _ => Number::Integer(i64::from_be_bytes(value.try_into().map_err(|_| bad())?)),
    }))
}

impl Number {
    /// The number as a double, as `Number.doubleValue` gives it.
    pub(super) fn to_f64(&self) -> f64 {
        match self {
            Self::Integer(value) => *value as f64,
            Self::Single(value) => f64::from(*value),
            Self::Double(value) => *value,
            Self::Varint(value) => value.to_f64().unwrap_or(f64::NAN),
            Self::Decimal(value) => decimal_to_f64(value),
        }
    }

    /// The number as a float, as `Number.floatValue` gives it.
    pub(super) fn to_f32(&self) -> f32 {
        match self {
            Self::Single(value) => *value,
            Self::Integer(value) => *value as f32,
            other => other.to_f64() as f32,
        }
    }
}

fn decimal_to_f64(value: &BigDecimal) -> f64 {
    // Beyond the range of doubles the digits do not matter, and expanding them could take gigabytes.
    let magnitude = value.digits() as i64 - value.as_bigint_and_scale().1;
    let sign = if value.sign() == bigdecimal::num_bigint::Sign::Minus { -1.0 } else { 1.0 };
    match magnitude {
        400.. => sign * f64::INFINITY,
        ..=-400 => sign * 0.0,
        _ => value.to_f64().unwrap_or(f64::NAN),
    }
}

/// Encodes an integer as a value of an integer type; the high bits that do not fit are cut off.
pub(super) fn integer_bytes(ty: &CqlType, value: i64) -> Vec<u8> {
    match ty {
        CqlType::Tinyint => (value as i8).to_be_bytes().to_vec(),
        CqlType::Smallint => (value as i16).to_be_bytes().to_vec(),
        CqlType::Int => (value as i32).to_be_bytes().to_vec(),
        _ => value.to_be_bytes().to_vec(),
    }
}

/// Encodes a varint.
pub(super) fn varint_bytes(value: &BigInt) -> Vec<u8> {
    let mut out = Vec::new();
    number::append_varint(&mut out, value);
    out
}

/// Encodes a decimal; `None` if its scale does not fit.
pub(super) fn decimal_bytes(value: &BigDecimal) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    number::append_decimal(&mut out, value).ok()?;
    Some(out)
}
