//! Text of floating-point and decimal numbers as Java prints them, for casts to text and for JSON.
//!
//! Floating-point numbers are in decimal notation from 1e-3 up to 1e7; others have one digit before the point
//! and an exponent (`Double.toString`, with the digits of Java 17). Decimals are plain as long as no zeros
//! have to be appended and at most five follow the point; others have an exponent (`BigDecimal.toString`). So
//! a text is not much longer than the number's digits, whatever scale a client sent.

use bigdecimal::BigDecimal;
use bigdecimal::num_bigint::Sign;

use super::java_digits::{self, Digits};

/// The text of a double.
pub fn double(value: f64) -> String {
    let digits = || java_digits::double(value.abs());
    java(value.is_nan(), value.is_infinite(), value.is_sign_negative(), value == 0.0, digits)
}

/// The text of a float.
pub fn float(value: f32) -> String {
    let digits = || java_digits::float(value.abs());
    java(value.is_nan(), value.is_infinite(), value.is_sign_negative(), value == 0.0, digits)
}

/// The text of a decimal.
pub fn decimal(value: &BigDecimal) -> String {
    let (unscaled, scale) = value.as_bigint_and_scale();
    let digits = unscaled.magnitude().to_string();
    let sign = if unscaled.sign() == Sign::Minus { "-" } else { "" };
    let count = digits.len() as i64;
    let exponent = count - 1 - scale;
    if scale == 0 {
        return format!("{sign}{digits}");
    }
    if scale > 0 && exponent >= -6 {
        let whole = count - scale;
        if whole > 0 {
            let (whole, fraction) = digits.split_at(whole as usize);
            return format!("{sign}{whole}.{fraction}");
        }
        return format!("{sign}0.{}{digits}", "0".repeat(whole.unsigned_abs() as usize));
    }
    let (first, rest) = digits.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    if exponent == 0 {
        return format!("{sign}{first}{point}{rest}");
    }
    format!("{sign}{first}{point}{rest}E{exponent:+}")
}

fn java(nan: bool, infinite: bool, negative: bool, zero: bool, digits: impl FnOnce() -> Digits) -> String {
    if nan {
        return "NaN".to_owned();
    }
    let magnitude = if infinite {
        "Infinity".to_owned()
    } else if zero {
        "0.0".to_owned()
    } else {
        magnitude(digits())
    };
    if negative { format!("-{magnitude}") } else { magnitude }
}

/// Formats the digits of a positive number.
fn magnitude(digits: Digits) -> String {
    let Digits { text, point } = digits;
    let digits = str::from_utf8(&text).expect("digits");
    if (-2..=7).contains(&point) {
        if point <= 0 {
            return format!("0.{}{digits}", "0".repeat(point.unsigned_abs() as usize));
        }
        let point = point as usize;
        if digits.len() <= point {
            return format!("{digits}{}.0", "0".repeat(point - digits.len()));
        }
        return format!("{}.{}", &digits[..point], &digits[point..]);
    }
    let rest = if digits.len() > 1 { &digits[1..] } else { "0" };
    format!("{}.{rest}E{}", &digits[..1], point - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_as_java_prints_them() {
        for (unscaled, scale, expected) in [
            (0, 0, "0"),
            (0, 2, "0.00"),
            (0, -1, "0E+1"),
            (123, 0, "123"),
            (-123, 0, "-123"),
            (123, -1, "1.23E+3"),
            (123, -3, "1.23E+5"),
            (123, 5, "0.00123"),
            (123, 10, "1.23E-8"),
            (-123, 12, "-1.23E-10"),
            (1, -10, "1E+10"),
            (1, 6, "0.000001"),
            (1, 7, "1E-7"),
            (-15, 1, "-1.5"),
            (150, 2, "1.50"),
            (1, i64::from(i32::MAX), "1E-2147483647"),
        ] {
            assert_eq!(decimal(&BigDecimal::new(unscaled.into(), scale)), expected);
        }
    }

    #[test]
    fn doubles_as_java_prints_them() {
        for (value, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (100.0, "100.0"),
            (123_456.789, "123456.789"),
            (0.001, "0.001"),
            (0.000_123, "1.23E-4"),
            (9_999_999.0, "9999999.0"),
            (1e7, "1.0E7"),
            (1.5e300, "1.5E300"),
            (-2.5e-10, "-2.5E-10"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(double(value), expected);
        }
        assert_eq!(float(0.1), "0.1");
        assert_eq!(float(3.4e38), "3.4E38");
    }
}
