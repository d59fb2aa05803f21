//! `abs`, `exp`, `log`, `log10`, `round` for all numeric types; the result has the argument's type (Cassandra
//! 5's `MathFcts`).
//!
//! Integers are converted to doubles, and the digits after the point are lost. Decimals and varints keep as
//! many digits as the argument has, but at least 32. Arguments with more than [`DIGITS_MAX`] digits are
//! refused, because the time grows with the square of their number.

use bigdecimal::BigDecimal;
use model::CqlType;
use num_bigint::{BigInt, Sign};

use super::number::{self, Number, decimal_bytes, integer_bytes, varint_bytes};
use super::{Function, Kind, decimal, effort, elementary};

/// Most digits of an argument of an exponential or a logarithm.
const DIGITS_MAX: u64 = 2000;
/// Most digits of a varint result.
const WHOLE_DIGITS_MAX: i64 = 100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Math {
    Abs,
    Exp,
    Log,
    Log10,
    Round,
}

/// The overloads of a name, one for each numeric type.
pub(super) fn overloads(name: &str) -> Vec<Function> {
    use CqlType as T;
    let math = match name {
        "abs" => Math::Abs,
        "exp" => Math::Exp,
        "log" => Math::Log,
        "log10" => Math::Log10,
        "round" => Math::Round,
        _ => return Vec::new(),
    };
    [T::Tinyint, T::Smallint, T::Int, T::Float, T::Bigint, T::Double, T::Varint, T::Decimal, T::Counter]
        .iter()
        .map(|ty| Function::new(name, Kind::Math(math), std::slice::from_ref(ty), ty.clone()))
        .collect()
}

impl Math {
    /// The work of computing it, in units of `effort`.
    pub(super) fn work(self, ty: &CqlType, value: &[u8]) -> u64 {
        match self {
            Self::Abs => 0,
            Self::Round => effort::of_conversion(ty, value),
            Self::Exp | Self::Log | Self::Log10 => effort::of_elementary(ty, value),
        }
    }
}

/// Computes the function; an empty value gives null.
///
/// # Errors
/// The argument is outside of the function's domain; the text is Java's.
pub(super) fn compute(math: Math, ty: &CqlType, value: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let Some(number) = number::read(ty, value).map_err(|error| error.to_string())? else { return Ok(None) };
    Ok(Some(match number {
        Number::Integer(value) => {
            let real = value as f64;
            let whole = match math {
                Math::Abs => value.wrapping_abs(),
                Math::Round => value,
                Math::Exp => real.exp() as i64,
                Math::Log => real.ln() as i64,
                Math::Log10 => real.log10() as i64,
            };
            let through_int = matches!(ty, CqlType::Tinyint | CqlType::Smallint | CqlType::Int)
                && !matches!(math, Math::Abs | Math::Round);
            // Java narrows the double to at most 32 bits first, which saturates, and then cuts off the high
            // bits.
            let narrow = |value: i64| value.clamp(i32::MIN.into(), i32::MAX.into());
            integer_bytes(ty, if through_int { narrow(whole) } else { whole })
        }
        Number::Single(value) => {
            let result = match math {
                Math::Abs => value.abs(),
                Math::Round => (f64::from(value) + 0.5).floor() as i32 as f32,
                _ => real(math, value.into()) as f32,
            };
            result.to_be_bytes().to_vec()
        }
        Number::Double(value) => {
            let result = match math {
                Math::Abs => value.abs(),
                Math::Round => round_half_up(value),
                _ => real(math, value),
            };
            result.to_be_bytes().to_vec()
        }
        Number::Decimal(value) => {
            let result = match math {
                Math::Abs => value.abs(),
                Math::Round => decimal::rounded(&value)?,
                _ => transcendental(math, &value)?,
            };
            decimal_bytes(&result).ok_or("Overflow")?
        }
        Number::Varint(value) => varint_bytes(&match math {
            Math::Abs => BigInt::from(value.magnitude().clone()),
            Math::Round => value,
            _ => whole(&transcendental(math, &BigDecimal::from(value))?)?,
        }),
    }))
}

fn real(math: Math, value: f64) -> f64 {
    match math {
        Math::Exp => value.exp(),
        Math::Log => value.ln(),
        Math::Log10 => value.log10(),
        Math::Abs | Math::Round => value,
    }
}

/// `Math.round`: the nearest whole number of 64 bits, halves up.
fn round_half_up(value: f64) -> f64 {
    let floor = value.floor();
    let rounded = if value - floor >= 0.5 { floor + 1.0 } else { floor };
    rounded as i64 as f64
}

fn transcendental(math: Math, value: &BigDecimal) -> Result<BigDecimal, String> {
    if math != Math::Exp && value.sign() != Sign::Plus {
        let what = if math == Math::Log { "Natural log" } else { "Log10" };
        return Err(format!("{what} of number zero or less"));
    }
    if value.digits() > DIGITS_MAX {
        return Err(format!("Numbers of more than {DIGITS_MAX} digits are not supported"));
    }
    let precision = value.digits().max(32);
    match math {
        Math::Exp => elementary::exp(value, precision),
        Math::Log => Ok(elementary::ln(value, precision)),
        _ => Ok(elementary::log10(value, precision)),
    }
}

fn whole(value: &BigDecimal) -> Result<BigInt, String> {
    if value.as_bigint_and_scale().1 < -WHOLE_DIGITS_MAX {
        return Err("Overflow".to_owned());
    }
    Ok(value.with_scale(0).as_bigint_and_scale().0.into_owned())
}
