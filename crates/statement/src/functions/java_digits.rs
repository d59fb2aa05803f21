//! Decimal digits of floats and doubles as Java up to version 18 prints them. Cassandra runs on Java 11 and
//! 17, so its users see these digits.
//!
//! They are not always the fewest that read back as the same number: `2.0E-3` has one digit, but `2^31` as a
//! float has nine (`2.14748365E9`), although eight would do. Digits are made one by one from a fraction of
//! integers, after Steele and White, until the rest is closer to the number than to its neighbours. Java's
//! integers of 32 or 64 bits may overflow, which affects the result, so the overflow is reproduced here;
//! `testdata/java_digits.txt` has numbers as printed by Java 17. `number_text` formats the digits.

use std::cmp::Ordering;

use num_bigint::BigUint;

/// Bits of a double's significand after its leading one.
const FRACTION_BITS: i32 = 52;
/// Binary exponents for which a whole number is converted without a fraction.
const WHOLE_EXPONENTS: std::ops::RangeInclusive<i32> = -21..=62;

/// Digits and the position of the point: the value is `0.d1d2d3… × 10^point`. There is at least one digit.
pub(super) struct Digits {
    pub text: Vec<u8>,
    pub point: i32,
}

/// A positive number: `fraction`, whose leading one is bit 52, times `2^(exponent - 52)`.
struct Binary {
    fraction: u64,
    exponent: i32,
    /// Significant bits of the fraction; a denormal number has fewer than its type.
    significant_bits: i32,
}

/// The digits of a finite double above zero.
pub(super) fn double(value: f64) -> Digits {
    let bits = value.to_bits();
    let (exponent, fraction) = ((bits >> FRACTION_BITS) as i32, bits & ((1 << FRACTION_BITS) - 1));
    of(normal(fraction, exponent, FRACTION_BITS, 1023))
}

/// The digits of a finite float above zero.
pub(super) fn float(value: f32) -> Digits {
    let bits = value.to_bits();
    of(normal(u64::from(bits & ((1 << 23) - 1)), (bits >> 23) as i32, 23, 127))
}

/// Decodes a number with `width` fraction bits from its stored parts.
fn normal(fraction: u64, exponent: i32, width: i32, bias: i32) -> Binary {
    let (fraction, exponent, significant_bits) = if exponent == 0 {
        let shift = fraction.leading_zeros() as i32 - (63 - width);
        (fraction << shift, 1 - shift, width + 1 - shift)
    } else {
        (fraction | 1 << width, exponent, width + 1)
    };
    Binary { fraction: fraction << (FRACTION_BITS - width), exponent: exponent - bias, significant_bits }
}

fn of(number: Binary) -> Digits {
    let Binary { fraction, exponent, significant_bits } = number;
    let trailing = fraction.trailing_zeros() as i32;
    let fraction_bits = FRACTION_BITS + 1 - trailing;
    // Bits after the binary point.
    let below = (fraction_bits - exponent - 1).max(0);
    if below == 0 && WHOLE_EXPONENTS.contains(&exponent) {
        let whole = if exponent >= FRACTION_BITS {
            fraction << (exponent - FRACTION_BITS)
        } else {
            fraction >> (FRACTION_BITS - exponent)
        };
        return whole_number(whole, exponent - significant_bits - 1);
    }
    let point = estimate(fraction, exponent);
    // The number is B / S × 10^point, with B = fraction × 5^b5 × 2^b2 and S = 5^s5 × 2^s2. Half of the
    // distance to its neighbours is M / S with M = 5^b5 × 2^m2.
    let (b5, s5) = ((-point).max(0), point.max(0));
    let mut b2 = b5 + below + exponent;
    let mut s2 = s5 + below;
    let mut m2 = b2 - significant_bits;
    b2 -= fraction_bits - 1;
    let common = b2.min(s2);
    (b2, s2, m2) = (b2 - common, s2 - common, m2 - common);
    if fraction_bits == 1 {
        m2 -= 1;
    }
    if m2 < 0 {
        (b2, s2, m2) = (b2 - m2, s2 - m2, 0);
    }
    let fraction = fraction >> trailing;
    let ratio = Ratio { fraction, b5, b2, s5, s2, m2 };
    let b_bits = fraction_bits + b2 + power_of_five_bits(b5);
    let ten_s_bits = s2 + 1 + power_of_five_bits(s5 + 1);
    if b_bits < 64 && ten_s_bits < 64 {
        ratio.digits_in_words(point, b_bits < 32 && ten_s_bits < 32)
    } else {
        ratio.digits_in_big_numbers(point)
    }
}

/// The digits of a whole number below 2^63; amounts up to `2^spare` may be rounded away.
fn whole_number(mut value: u64, spare: i32) -> Digits {
    let mut point = 0;
    // The number of digits of `2^spare`, minus one: floor(spare × log10(2)).
    let digits = (f64::from(spare.max(0)) * std::f64::consts::LOG10_2) as u32;
    if digits > 0 {
        let power = 10_u64.pow(digits);
        let residue = value % power;
        value /= power;
        point += digits as i32;
        if residue >= power >> 1 {
            value += 1;
        }
    }
    let mut text = value.to_string().into_bytes();
    point += text.len() as i32;
    while text.len() > 1 && text.last() == Some(&b'0') {
        text.pop();
    }
    Digits { text, point }
}

/// The decimal exponent of the first digit, or one more: a linear estimate of the logarithm.
#[expect(
    clippy::approx_constant,
    reason = "the constant as Java has it decides where the estimate is one too high"
)]
fn estimate(fraction: u64, exponent: i32) -> i32 {
    let mantissa = f64::from_bits((1023 << FRACTION_BITS) | (fraction & ((1 << FRACTION_BITS) - 1)));
    let log = (mantissa - 1.5) * 0.289_529_654 + 0.176_091_259 + f64::from(exponent) * 0.301_029_995_663_981;
    log.floor() as i32
}

/// Number of bits of `5^power`; 0 for `5^0`, and an upper bound above 64 bits.
fn power_of_five_bits(power: i32) -> i32 {
    match power {
        0 => 0,
        1..=26 => 64 - 5_u64.pow(power as u32).leading_zeros() as i32,
        _ => power * 3,
    }
}

struct Ratio {
    fraction: u64,
    b5: i32,
    b2: i32,
    s5: i32,
    s2: i32,
    m2: i32,
}

impl Ratio {
    /// Computes with 64 bits, or 32 if `narrow`. Only the distance M can overflow, which ends the digits.
    fn digits_in_words(&self, point: i32, narrow: bool) -> Digits {
        let word = |value: i64| if narrow { i64::from(value as i32) } else { value };
        let five = |power: i32| 5_i64.wrapping_pow(power as u32);
        let mut b = word((self.fraction as i64).wrapping_mul(five(self.b5)) << self.b2);
        let s = word(five(self.s5) << self.s2);
        let mut m = word(five(self.b5) << self.m2);
        let tens = word(s.wrapping_mul(10));
        let mut step = |b: &mut i64| {
            let digit = *b / s;
            *b = word((*b % s).wrapping_mul(10));
            m = word(m.wrapping_mul(10));
            let ends = if m > 0 { (*b < m, word(b.wrapping_add(m)) > tens) } else { (true, true) };
            (digit as u8, ends)
        };
        let (first, ends) = step(&mut b);
        let mut out = Writer::new(point, first, ends);
        while out.goes_on() {
            let (digit, ends) = step(&mut b);
            out.push(digit, ends);
        }
        out.finish(|| word(word(b << 1).wrapping_sub(tens)).cmp(&0))
    }

    fn digits_in_big_numbers(&self, point: i32) -> Digits {
        let power = |five: i32, two: i32| BigUint::from(5_u8).pow(five as u32) << two;
        let mut b = power(self.b5, self.b2) * self.fraction;
        let s = power(self.s5, self.s2);
        let mut m = power(self.b5, self.m2);
        let tens = &s * 10_u8;
        let mut step = |b: &mut BigUint| {
            let digit = &*b / &s;
            *b = (&*b - &digit * &s) * 10_u8;
            m *= 10_u8;
            let digit = digit.iter_u32_digits().next().unwrap_or(0);
            (digit as u8, (*b < m, &*b + &m >= tens))
        };
        let (first, ends) = step(&mut b);
        let mut out = Writer::new(point, first, ends);
        while out.goes_on() {
            let (digit, ends) = step(&mut b);
            out.push(digit, ends);
        }
        out.finish(|| (b << 1_u8).cmp(&tens))
    }
}

/// Collects digits until the rest is below (`low`) or above (`high`) the bounds that identify the number.
struct Writer {
    text: Vec<u8>,
    point: i32,
    low: bool,
    high: bool,
}

impl Writer {
    /// Begins with the first digit, which is absent if the estimate was one too high.
    fn new(point: i32, digit: u8, (low, high): (bool, bool)) -> Self {
        let mut out = Self { text: Vec::with_capacity(18), point, low, high };
        if digit == 0 && !high {
            out.point -= 1;
        } else {
            out.text.push(b'0' + digit);
        }
        // A text with an exponent always has a second digit.
        if !(-3..8).contains(&out.point) {
            (out.low, out.high) = (false, false);
        }
        out
    }

    fn goes_on(&self) -> bool {
        !self.low && !self.high
    }

    fn push(&mut self, digit: u8, (low, high): (bool, bool)) {
        self.text.push(b'0' + digit);
        (self.low, self.high) = (low, high);
    }

    /// Rounds the last digit: `half` compares the rest with half a unit of that digit.
    fn finish(mut self, half: impl FnOnce() -> Ordering) -> Digits {
        let odd = self.text.last().is_some_and(|digit| digit & 1 == 1);
        let up = self.high
            && (!self.low
                || match half() {
                    Ordering::Less => false,
                    Ordering::Equal => odd,
                    Ordering::Greater => true,
                });
        if up {
            self.round_up();
        }
        Digits { text: self.text, point: self.point + 1 }
    }

    fn round_up(&mut self) {
        for digit in self.text.iter_mut().rev() {
            if *digit != b'9' {
                *digit += 1;
                return;
            }
            *digit = b'0';
        }
        if let Some(first) = self.text.first_mut() {
            *first = b'1';
            self.point += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::number_text;

    /// Bits in hexadecimal (with `s` before a float's), and the text that Java 17's `Double.toString` and
    /// `Float.toString` give.
    const PRINTED: &str = include_str!("../../testdata/java_digits.txt");

    #[test]
    fn digits_are_those_of_java_17() {
        let (mut count, mut wrong) = (0, Vec::new());
        for line in PRINTED.lines() {
            let (bits, expected) = line.split_once(' ').unwrap();
            let found = match bits.strip_prefix('s') {
                Some(bits) => number_text::float(f32::from_bits(u32::from_str_radix(bits, 16).unwrap())),
                None => number_text::double(f64::from_bits(u64::from_str_radix(bits, 16).unwrap())),
            };
            count += 1;
            if found != expected {
                wrong.push(format!("{bits}: {expected}, found {found}"));
            }
        }
        assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
        assert!(count > 3000, "{count} numbers");
    }
}
