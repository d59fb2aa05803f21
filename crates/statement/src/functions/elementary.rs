//! Exponentials and logarithms of decimals to a given number of digits.
//!
//! Computed with integers in units of `10^-digits` (fixed point), with [`GUARD`] more digits than requested,
//! then rounded half to even.

use bigdecimal::{BigDecimal, RoundingMode, ToPrimitive, Zero};
use num_bigint::{BigInt, Sign};

/// Digits computed beyond those requested.
const GUARD: u64 = 12;
/// Arguments of `exp` beyond this give results whose exponent does not fit a decimal.
const EXPONENT_MAX: i64 = 2_000_000_000;

fn power_of_ten(exponent: u64) -> BigInt {
    BigInt::from(10).pow(u32::try_from(exponent).expect("digits are bounded by the callers"))
}

/// `value` in units of `10^-digits`; callers ensure that it has few digits.
fn fixed(value: &BigDecimal, digits: u64) -> BigInt {
    value.with_scale_round(digits as i64, RoundingMode::HalfEven).as_bigint_and_scale().0.into_owned()
}

/// Rounds to `precision` digits; zeros at the end stay.
fn rounded(value: BigDecimal, precision: u64) -> BigDecimal {
    let precision = std::num::NonZeroU64::new(precision).unwrap_or(std::num::NonZeroU64::MIN);
    if value.digits() > precision.get() {
        value.with_precision_round(precision, RoundingMode::HalfEven)
    } else {
        value
    }
}

/// e to the power of `value`, to `precision` digits.
///
/// # Errors
/// `Overflow` if the result's exponent does not fit.
pub(super) fn exp(value: &BigDecimal, precision: u64) -> Result<BigDecimal, String> {
    if value.is_zero() {
        return Ok(BigDecimal::from(1));
    }
    let magnitude = value.digits() as i64 - value.as_bigint_and_scale().1;
    if magnitude > 11 {
        return Err("Overflow".to_owned());
    }
    if magnitude < -(precision as i64) {
        return Ok(BigDecimal::from(1).with_scale(precision as i64 - 1));
    }
    // value = count * ln 10 + rest, so that e^value = 10^count * e^rest.
    let count = (value.to_f64().unwrap_or(0.0) / std::f64::consts::LN_10).round() as i64;
    if count.abs() > EXPONENT_MAX {
        return Err("Overflow".to_owned());
    }
    let digits = precision + GUARD + 11;
    let rest = fixed(value, digits) - ln_fixed(&BigDecimal::from(10), digits) * count;
    let power = exp_fixed(&rest, digits);
    Ok(rounded(BigDecimal::new(power, digits as i64 - count), precision))
}

/// The natural logarithm of a positive number.
pub(super) fn ln(value: &BigDecimal, precision: u64) -> BigDecimal {
    // Near one the logarithm is small, and digits are lost to zeros after its point. The difference is
    // computed only there: for a number with a large exponent it would be written out in full.
    let magnitude = value.digits() as i64 - value.as_bigint_and_scale().1;
    let lost = if (0..=1).contains(&magnitude) {
        let near_one = (value - BigDecimal::from(1)).normalized();
        (near_one.as_bigint_and_scale().1 - near_one.digits() as i64).max(0).unsigned_abs()
    } else {
        0
    };
    let digits = precision + GUARD + 11 + lost.min(2 * precision);
    let logarithm = ln_fixed(value, digits);
    if logarithm.is_zero() {
        return BigDecimal::zero();
    }
    rounded(BigDecimal::new(logarithm, digits as i64), precision)
}

/// The logarithm to base 10 of a positive number.
pub(super) fn log10(value: &BigDecimal, precision: u64) -> BigDecimal {
    // A quotient of two natural logarithms with two more digits, as in Cassandra's library. Those digits
    // decide whether a power of ten gives a whole number or one with zeros after the point.
    let digits = precision + 2;
    rounded(quotient(&ln(value, digits), &ln(&BigDecimal::from(10), digits), digits), precision)
}

/// Divides as Java's `BigDecimal.divide` to a number of digits: an exact quotient drops zeros until its scale
/// is the difference of the scales.
fn quotient(dividend: &BigDecimal, divisor: &BigDecimal, precision: u64) -> BigDecimal {
    let ((dividend, dividend_scale), (divisor, divisor_scale)) =
        (dividend.as_bigint_and_scale(), divisor.as_bigint_and_scale());
    let preferred = dividend_scale - divisor_scale;
    let digits = |number: &BigInt| number.magnitude().to_string().len() as u64;
    let shift = (precision + 3 + digits(&divisor)).saturating_sub(digits(&dividend));
    let dividend = &*dividend * power_of_ten(shift);
    let (whole, rest) = (&dividend / &*divisor, &dividend % &*divisor);
    if rest.is_zero() {
        let exact = rounded(BigDecimal::new(whole, preferred + shift as i64), precision);
        return super::decimal::strip_to(exact, preferred);
    }
    // One more digit distinguishes a quotient that continues from one that ends in half a unit.
    let tip = if whole.sign() == Sign::Minus || dividend.sign() == Sign::Minus { -1 } else { 1 };
    rounded(BigDecimal::new(whole * 10 + tip, preferred + shift as i64 + 1), precision)
}

/// e^x for |x| of a few units: the series of a repeatedly halved x, then repeated squaring.
fn exp_fixed(value: &BigInt, digits: u64) -> BigInt {
    const HALVINGS: u32 = 24;
    let extra = 10;
    let one = power_of_ten(digits + extra);
    let small = value * power_of_ten(extra) / BigInt::from(1_u64 << HALVINGS);
    let mut term = one.clone();
    let mut sum = one.clone();
    let mut n = 1_u64;
    while !term.is_zero() {
        term = term * &small / &one / n;
        sum += &term;
        n += 1;
    }
    for _ in 0..HALVINGS {
        sum = &sum * &sum / &one;
    }
    sum / power_of_ten(extra)
}

/// ln of a positive number: `x = m * 2^k` with m near one, then the series of `2 artanh((m-1)/(m+1))`.
fn ln_fixed(value: &BigDecimal, digits: u64) -> BigInt {
    let one = power_of_ten(digits);
    let (unscaled, scale) = value.as_bigint_and_scale();
    // ln x = ln(unscaled) - scale * ln 10; the unscaled value is scaled into [1, 10) first.
    let places = unscaled.magnitude().to_string().len() as i64 - 1;
    let mantissa = if places as u64 <= digits {
        &*unscaled * power_of_ten(digits - places as u64)
    } else {
        &*unscaled / power_of_ten(places as u64 - digits)
    };
    let tens = places - scale;
    let mut sum = ln_mantissa(mantissa, &one);
    if tens != 0 {
        sum += ln_mantissa(&one * 10, &one) * tens;
    }
    sum
}

/// ln of a number between one and ten, in units of `one`.
fn ln_mantissa(mut value: BigInt, one: &BigInt) -> BigInt {
    let mut halvings = 0_u32;
    // Square roots bring the number near one, where the series converges fast.
    let near = one / 1000;
    while &value - one > near {
        value = (&value * one).sqrt();
        halvings += 1;
    }
    let ratio = (&value - one) * one / (&value + one);
    let square = &ratio * &ratio / one;
    let mut power = ratio.clone();
    let mut sum = ratio;
    let mut n = 3_u64;
    while !power.is_zero() {
        power = power * &square / one;
        sum += &power / n;
        n += 2;
    }
    (sum * 2) << halvings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_right() {
        let number = |text: &str| text.parse::<BigDecimal>().unwrap();
        let check = |found: BigDecimal, expected: &str| assert_eq!(found, number(expected), "{found}");
        check(exp(&number("1"), 32).unwrap(), "2.7182818284590452353602874713527");
        check(exp(&number("0"), 32).unwrap(), "1");
        check(exp(&number("-5.5"), 32).unwrap(), "0.0040867714384640669934647026847208");
        check(exp(&number("100"), 32).unwrap(), "26881171418161354484126255515800000000000000");
        check(ln(&number("2"), 32), "0.69314718055994530941723212145818");
        check(ln(&number("1"), 32), "0");
        // Numbers of a few bytes with two billion digits if written out.
        for (text, sign) in [("1e2147483647", 1.0), ("1e-2147483647", -1.0)] {
            let found = ln(&number(text), 32).to_f64().unwrap();
            let expected = sign * 2_147_483_647.0 * std::f64::consts::LN_10;
            assert!((found - expected).abs() < 1e-3, "{text}: {found}");
        }
        check(ln(&number("1.0000000001"), 32), "9.9999999995000000000333333333308E-11");
        check(ln(&number("0.001"), 32), "-6.9077552789821370520539743640531");
        check(log10(&number("1000"), 32), "3");
        check(log10(&number("0.010"), 32), "-2");
        check(log10(&number("2"), 32), "0.30102999566398119521373889472449");
        assert!(exp(&number("1E+12"), 32).is_err());
    }
}
