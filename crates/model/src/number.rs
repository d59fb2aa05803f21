//! Arbitrary-precision integers and decimals, and durations: their bytes and their order.
//!
//! A varint is two's complement, big endian, at least one byte; a decimal is a big-endian `i32` scale and a
//! varint; a duration is three zigzag vints (native_protocol_v5.spec §6.4, §6.7, §6.20). Comparing reads the
//! bytes where they lie; a decimal is never expanded beyond the digits its own bytes hold, whatever its scale
//! claims.

use std::cmp::Ordering;

use bigdecimal::BigDecimal;
use num_bigint::{BigInt, Sign};

use crate::validate::ValueError;
use crate::vint;

/// A CQL duration. The three parts are never of opposite signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Duration {
    months: i32,
    days: i32,
    nanoseconds: i64,
}

impl Duration {
    /// A duration of these parts.
    ///
    /// # Errors
    /// [`ValueError::DurationSigns`] when one part is positive and another negative.
    pub fn new(months: i32, days: i32, nanoseconds: i64) -> Result<Self, ValueError> {
        let positive = months > 0 || days > 0 || nanoseconds > 0;
        let negative = months < 0 || days < 0 || nanoseconds < 0;
        if positive && negative {
            return Err(ValueError::DurationSigns { months, days, nanoseconds });
        }
        Ok(Self { months, days, nanoseconds })
    }

    /// Months.
    pub fn months(&self) -> i32 {
        self.months
    }

    /// Days.
    pub fn days(&self) -> i32 {
        self.days
    }

    /// Nanoseconds.
    pub fn nanoseconds(&self) -> i64 {
        self.nanoseconds
    }

    /// Reads a serialised duration.
    ///
    /// # Errors
    /// [`ValueError::Length`], [`ValueError::NotEnoughBytes`] when it is cut; [`ValueError::DurationRange`];
    /// [`ValueError::DurationSigns`]. Bytes after the third part are ignored, as in Cassandra.
    pub fn decode(mut value: &[u8]) -> Result<Self, ValueError> {
        if value.len() < 3 {
            return Err(ValueError::Length {
                expected: "at least 3 bytes for a duration",
                received: value.len(),
            });
        }
        let mut part =
            || vint::read_signed(&mut value).ok_or(ValueError::NotEnoughBytes { what: "duration" });
        let (months, days, nanoseconds) = (part()?, part()?, part()?);
        let narrow =
            |part, value| i32::try_from(value).map_err(|_| ValueError::DurationRange { part, value });
        Self::new(narrow("months", months)?, narrow("days", days)?, nanoseconds)
    }

    /// Appends the serialised duration.
    pub fn append(&self, out: &mut Vec<u8>) {
        vint::append_signed(out, i64::from(self.months));
        vint::append_signed(out, i64::from(self.days));
        vint::append_signed(out, self.nanoseconds);
    }
}

/// Reads a serialised varint; `None` for the empty value, which is no number.
pub fn decode_varint(value: &[u8]) -> Option<BigInt> {
    (!value.is_empty()).then(|| BigInt::from_signed_bytes_be(value))
}

/// Appends the shortest serialisation of a varint.
pub fn append_varint(out: &mut Vec<u8>, value: &BigInt) {
    out.extend_from_slice(&value.to_signed_bytes_be());
}

/// Appends the shortest serialisation of a varint that fits 64 bits.
pub fn append_varint_i64(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(shortest(&value.to_be_bytes()));
}

/// Reads a serialised decimal; `Ok(None)` for the empty value, which is no number.
///
/// # Errors
/// [`ValueError::Length`] when there are bytes but not enough for a scale and a digit.
pub fn decode_decimal(value: &[u8]) -> Result<Option<BigDecimal>, ValueError> {
    if value.is_empty() {
        return Ok(None);
    }
    let (scale, unscaled) = split_decimal(value).ok_or(ValueError::Length {
        expected: "0 or at least 5 bytes for a decimal",
        received: value.len(),
    })?;
    Ok(Some(BigDecimal::new(BigInt::from_signed_bytes_be(unscaled), i64::from(scale))))
}

/// Appends the serialised decimal.
///
/// # Errors
/// [`ValueError::DecimalScale`] when the scale does not fit 32 bits; nothing is appended then.
pub fn append_decimal(out: &mut Vec<u8>, value: &BigDecimal) -> Result<(), ValueError> {
    let (unscaled, scale) = value.as_bigint_and_scale();
    let narrow = i32::try_from(scale).map_err(|_| ValueError::DecimalScale { scale })?;
    out.extend_from_slice(&narrow.to_be_bytes());
    append_varint(out, &unscaled);
    Ok(())
}

/// Orders two serialised varints by value; padding with sign bytes does not matter. The empty value comes
/// first.
pub(crate) fn compare_varint(a: &[u8], b: &[u8]) -> Ordering {
    let (a, b) = (shortest(a), shortest(b));
    let (Some(&first_a), Some(&first_b)) = (a.first(), b.first()) else {
        return a.len().cmp(&b.len());
    };
    let (negative_a, negative_b) = (first_a >= 0x80, first_b >= 0x80);
    match (negative_a, negative_b) {
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        // Same sign, both shortest: more bytes are further from zero; equal lengths order as unsigned bytes.
        (false, false) => a.len().cmp(&b.len()).then_with(|| a.cmp(b)),
        (true, true) => b.len().cmp(&a.len()).then_with(|| a.cmp(b)),
    }
}

/// Orders two serialised decimals by value (1.0 equals 1.00). Empty comes first, then bytes too few for a
/// decimal.
pub(crate) fn compare_decimal(a: &[u8], b: &[u8]) -> Ordering {
    let (Some((scale_a, unscaled_a)), Some((scale_b, unscaled_b))) = (split_decimal(a), split_decimal(b))
    else {
        let rank = |value: &[u8]| split_decimal(value).is_some();
        return rank(a).cmp(&rank(b)).then_with(|| a.cmp(b));
    };
    if scale_a == scale_b {
        return compare_varint(unscaled_a, unscaled_b);
    }
    let order = sign(unscaled_a).cmp(&sign(unscaled_b));
    if order.is_ne() || sign(unscaled_a) == 0 {
        return order;
    }
    if let Some(order) = compare_small_decimal(scale_a, unscaled_a, scale_b, unscaled_b) {
        return order;
    }
    let (a, b) = (BigInt::from_signed_bytes_be(unscaled_a), BigInt::from_signed_bytes_be(unscaled_b));
    let magnitudes = compare_magnitudes(a.magnitude(), i64::from(scale_a), b.magnitude(), i64::from(scale_b));
    if a.sign() == Sign::Minus { magnitudes.reverse() } else { magnitudes }
}

/// Compares two decimals of the same sign, neither of them zero, without allocating; `None` if an unscaled
/// value needs more than 64 bits.
fn compare_small_decimal(scale_a: i32, a: &[u8], scale_b: i32, b: &[u8]) -> Option<Ordering> {
    let (a, b) = (to_i64(a)?, to_i64(b)?);
    let (magnitude_a, magnitude_b) = (u128::from(a.unsigned_abs()), u128::from(b.unsigned_abs()));
    // Exponents of the leading digits.
    let leading_a = i64::from(magnitude_a.ilog10()) - i64::from(scale_a);
    let leading_b = i64::from(magnitude_b.ilog10()) - i64::from(scale_b);
    let magnitudes = leading_a.cmp(&leading_b).then_with(|| {
        // Equal leading exponents: the scales differ by no more than the digits do, which is 18 at most, and
        // 2^63 * 10^18 < 2^128.
        let factor = 10_u128.pow(scale_a.abs_diff(scale_b));
        if scale_a < scale_b {
            (magnitude_a * factor).cmp(&magnitude_b)
        } else {
            magnitude_a.cmp(&(magnitude_b * factor))
        }
    });
    Some(if a < 0 { magnitudes.reverse() } else { magnitudes })
}

/// Compares two positive numbers `unscaled * 10^-scale`.
fn compare_magnitudes(
    a: &num_bigint::BigUint,
    scale_a: i64,
    b: &num_bigint::BigUint,
    scale_b: i64,
) -> Ordering {
    let (low_a, high_a) = decimal_digits(a.bits());
    let (low_b, high_b) = decimal_digits(b.bits());
    if high_a - scale_a < low_b - scale_b {
        return Ordering::Less;
    }
    if low_a - scale_a > high_b - scale_b {
        return Ordering::Greater;
    }
    // The leading digits stand at nearly the same place, so the scales differ by no more than the digits do
    // and the power below is not longer than the longer of both numbers.
    let power = |exponent: u64| {
        num_bigint::BigUint::from(10_u8)
            .pow(u32::try_from(exponent).expect("bounded by the digits of the values"))
    };
    let difference = scale_a.abs_diff(scale_b);
    if scale_a < scale_b { (a * power(difference)).cmp(b) } else { a.cmp(&(b * power(difference))) }
}

/// Least and greatest number of decimal digits that a number of `bits` bits can have.
fn decimal_digits(bits: u64) -> (i64, i64) {
    // log10(2) = 0.30102999...; the fractions below bound it from both sides.
    let bits = i64::try_from(bits).expect("a value in memory has fewer than 2^63 bits");
    ((bits - 1) * 30_102 / 100_000 + 1, bits * 30_103 / 100_000 + 1)
}

fn split_decimal(value: &[u8]) -> Option<(i32, &[u8])> {
    let (scale, unscaled) = value.split_first_chunk()?;
    (!unscaled.is_empty()).then(|| (i32::from_be_bytes(*scale), unscaled))
}

/// -1, 0 or 1.
fn sign(varint: &[u8]) -> i8 {
    match shortest(varint) {
        [0] | [] => 0,
        [first, ..] if *first >= 0x80 => -1,
        _ => 1,
    }
}

fn to_i64(varint: &[u8]) -> Option<i64> {
    let varint = shortest(varint);
    let fill = if *varint.first()? >= 0x80 { 0xff } else { 0 };
    let mut bytes = [fill; 8];
    bytes[8_usize.checked_sub(varint.len())?..].copy_from_slice(varint);
    Some(i64::from_be_bytes(bytes))
}

/// A varint without the bytes that only repeat its sign.
fn shortest(mut varint: &[u8]) -> &[u8] {
    while let [first, second, ..] = varint
        && (*first == 0 && *second < 0x80 || *first == 0xff && *second >= 0x80)
    {
        varint = &varint[1..];
    }
    varint
}

#[cfg(test)]
mod tests;
