//! Arithmetic and rounding of decimals, with the scales and rounding modes of Java's `BigDecimal`.
//!
//! A decimal of a few bytes may have a scale of billions, so at most [`DIGITS_MAX`] digits are expanded.
//! Numbers further apart are added as in Java (the smaller one only affects the rounding), or refused.

use bigdecimal::{BigDecimal, RoundingMode, Zero};
use num_bigint::{BigInt, Sign};

use super::number::Number;

/// Most digits to which a result is expanded before it is rounded.
pub(super) const DIGITS_MAX: i64 = 30_000;
/// Digits to which results of `+ - *` are rounded.
const PRECISION: i64 = 10_000;
/// Fewest and most digits after the point of a quotient.
const QUOTIENT_SCALE: (i64, i64) = (32, 1000);

fn overflow() -> String {
    "Overflow".to_owned()
}

/// Converts a number to a decimal; numbers of fixed length are converted to doubles first, as in Cassandra.
pub(super) fn of(number: &Number) -> Result<BigDecimal, String> {
    match number {
        Number::Decimal(value) => Ok(value.clone()),
        Number::Varint(value) => Ok(BigDecimal::from(value.clone())),
        other => {
            let value = other.to_f64();
            if value.is_nan() {
                return Err("A NaN cannot be converted into a decimal".to_owned());
            }
            if value.is_infinite() {
                return Err("An infinite number cannot be converted into a decimal".to_owned());
            }
            super::number_text::double(value).parse().map_err(|_| overflow())
        }
    }
}

/// Unscaled value and scale.
fn parts(value: &BigDecimal) -> (BigInt, i64) {
    let (unscaled, scale) = value.as_bigint_and_scale();
    (unscaled.into_owned(), scale)
}

fn digits(value: &BigDecimal) -> i64 {
    value.digits() as i64
}

fn scale(value: &BigDecimal) -> i64 {
    value.as_bigint_and_scale().1
}

fn power_of_ten(exponent: i64) -> BigInt {
    BigInt::from(10).pow(u32::try_from(exponent).expect("exponents are bounded before they are used"))
}

/// Rounds to `precision` digits, half up.
fn round(value: BigDecimal, precision: i64) -> BigDecimal {
    if digits(&value) <= precision {
        return value;
    }
    let precision = std::num::NonZeroU64::new(precision.unsigned_abs()).expect("a precision is positive");
    value.with_precision_round(precision, RoundingMode::HalfUp)
}

pub(super) fn add(left: &BigDecimal, right: &BigDecimal) -> BigDecimal {
    if left.is_zero() || right.is_zero() {
        return add_zero(left, right);
    }
    let (big, small) = if scale(left) <= scale(right) { (left, right) } else { (right, left) };
    // A number far below the last significant digit only affects the rounding (BigDecimal.preAlign).
    let last = scale(big).max(scale(big) - digits(big) + PRECISION);
    if scale(small) - digits(small) + 1 > last + 2 {
        let tip = BigDecimal::new(if small.sign() == Sign::Minus { -1 } else { 1 }.into(), last + 3);
        return round(big + tip, PRECISION);
    }
    round(left + right, PRECISION)
}

fn add_zero(left: &BigDecimal, right: &BigDecimal) -> BigDecimal {
    let preferred = scale(left).max(scale(right));
    if left.is_zero() && right.is_zero() {
        return BigDecimal::new(BigInt::ZERO, preferred);
    }
    let value = round(if left.is_zero() { right } else { left }.clone(), PRECISION);
    let room = PRECISION - digits(&value);
    let more = (preferred - scale(&value)).clamp(0, room);
    let (unscaled, own) = parts(&value);
    BigDecimal::new(unscaled * power_of_ten(more), own + more)
}

pub(super) fn multiply(left: &BigDecimal, right: &BigDecimal) -> BigDecimal {
    let ((left, left_scale), (right, right_scale)) = (parts(left), parts(right));
    round(BigDecimal::new(left * right, left_scale + right_scale), PRECISION)
}

pub(super) fn divide(left: &BigDecimal, right: &BigDecimal) -> Result<BigDecimal, String> {
    if right.is_zero() {
        return Err("BigInteger divide by zero".to_owned());
    }
    let first_digit = (digits(left) - scale(left)) - (digits(right) - scale(right));
    let wanted = (QUOTIENT_SCALE.0 - first_digit)
        .max(scale(left))
        .max(scale(right))
        .max(QUOTIENT_SCALE.0)
        .min(QUOTIENT_SCALE.1);
    let ((dividend, left_scale), (divisor, right_scale)) = (parts(left), parts(right));
    let shift = wanted + right_scale - left_scale;
    if shift.abs() > DIGITS_MAX {
        // The quotient is either far below the last digit that is kept, or too long to be written out.
        return if shift < 0 || dividend.is_zero() { Ok(BigDecimal::zero()) } else { Err(overflow()) };
    }
    let (dividend, divisor) = if shift >= 0 {
        (dividend * power_of_ten(shift), divisor)
    } else {
        (dividend, divisor * power_of_ten(-shift))
    };
    Ok(stripped(BigDecimal::new(divide_half_up(&dividend, &divisor), wanted)))
}

/// Divides; rounds halves away from zero.
fn divide_half_up(dividend: &BigInt, divisor: &BigInt) -> BigInt {
    let (quotient, remainder) = (dividend / divisor, dividend % divisor);
    let away: BigInt = if (dividend.sign() == Sign::Minus) == (divisor.sign() == Sign::Minus) {
        1.into()
    } else {
        (-1).into()
    };
    if remainder.magnitude() * 2_u8 >= *divisor.magnitude() { quotient + away } else { quotient }
}

/// Removes zeros at the end, also before the point; zero becomes `0`.
pub(super) fn stripped(value: BigDecimal) -> BigDecimal {
    strip_to(value, i64::MIN)
}

/// Removes zeros at the end while the scale is greater than `least_scale`.
pub(super) fn strip_to(value: BigDecimal, least_scale: i64) -> BigDecimal {
    if value.is_zero() {
        return if least_scale == i64::MIN {
            BigDecimal::zero()
        } else {
            BigDecimal::new(BigInt::ZERO, least_scale)
        };
    }
    let (unscaled, scale) = parts(&value);
    let text = unscaled.to_string();
    let zeros = (text.len() - text.trim_end_matches('0').len()) as i64;
    let stripped = zeros.min(scale.saturating_sub(least_scale)).max(0);
    if stripped == 0 { value } else { BigDecimal::new(unscaled / power_of_ten(stripped), scale - stripped) }
}

pub(super) fn remainder(left: &BigDecimal, right: &BigDecimal) -> Result<BigDecimal, String> {
    if right.is_zero() {
        let what = if left.is_zero() { "Division undefined" } else { "Division by zero" };
        return Err(what.to_owned());
    }
    let ((left, left_scale), (right, right_scale)) = (parts(left), parts(right));
    let common = left_scale.max(right_scale);
    if common - left_scale > DIGITS_MAX || common - right_scale > DIGITS_MAX {
        return Err(overflow());
    }
    let dividend = &left * power_of_ten(common - left_scale);
    let divisor = &right * power_of_ten(common - right_scale);
    // The quotient gets the preferred scale, or one nearer to zero if it has too few zeros to drop.
    let quotient = BigDecimal::from(&dividend / &divisor);
    let quotient = strip_to(quotient, left_scale - right_scale);
    let result_scale = left_scale.max(scale(&quotient).max(left_scale - right_scale) + right_scale);
    let rest = &dividend % &divisor;
    Ok(BigDecimal::new(rest, common).with_scale(result_scale))
}

/// Rounds to a whole number, halves away from zero.
pub(super) fn rounded(value: &BigDecimal) -> Result<BigDecimal, String> {
    let (unscaled, scale) = parts(value);
    if scale.abs() > DIGITS_MAX {
        return if scale > digits(value) { Ok(BigDecimal::zero()) } else { Err(overflow()) };
    }
    let whole = if scale <= 0 {
        unscaled * power_of_ten(-scale)
    } else {
        divide_half_up(&unscaled, &power_of_ten(scale))
    };
    Ok(BigDecimal::from(whole))
}

#[cfg(test)]
mod tests {
    use super::super::number_text;
    use super::*;

    fn text(value: Result<BigDecimal, String>) -> String {
        value.map_or_else(|error| error, |value| number_text::decimal(&value))
    }

    fn number(text: &str) -> BigDecimal {
        text.parse().unwrap()
    }

    #[test]
    fn results_have_the_scales_of_java() {
        let check = |left: &str, right: &str, expected: [&str; 5]| {
            let (left, right) = (number(left), number(right));
            let found = [
                text(Ok(add(&left, &right))),
                text(Ok(add(&left, &-&right))),
                text(Ok(multiply(&left, &right))),
                text(divide(&left, &right)),
                text(remainder(&left, &right)),
            ];
            assert_eq!(found, expected, "{left} and {right}");
        };
        check("10.0", "3", ["13.0", "7.0", "30.0", "3.33333333333333333333333333333333", "1.0"]);
        check("1", "2.00", ["3.00", "-1.00", "2.00", "0.5", "1"]);
        check("50", "2.5", ["52.5", "47.5", "125.0", "2E+1", "0"]);
        check("30", "2.5", ["32.5", "27.5", "75.0", "12", "0.0"]);
        check("-7", "2", ["-5", "-9", "-14", "-3.5", "-1"]);
        check("0.00", "5", ["5.00", "-5.00", "0.00", "0", "0.00"]);
        check("5", "0", ["5", "5", "0", "BigInteger divide by zero", "Division by zero"]);
    }

    #[test]
    fn scales_cannot_ask_for_gigabytes() {
        let huge = BigDecimal::new(1.into(), -2_000_000_000);
        let tiny = BigDecimal::new(1.into(), 2_000_000_000);
        assert_eq!(digits(&add(&huge, &tiny)), PRECISION);
        assert_eq!(text(divide(&huge, &tiny)), "Overflow");
        assert_eq!(text(divide(&tiny, &huge)), "0");
        assert_eq!(text(remainder(&huge, &tiny)), "Overflow");
        assert_eq!(text(rounded(&huge)), "Overflow");
        assert_eq!(text(rounded(&tiny)), "0");
        assert_eq!(text(rounded(&number("-2.5"))), "-3");
    }
}
