//! Estimates of the work on numbers of arbitrary length, before it begins.
//!
//! A varint or decimal may have millions of digits. Storing and reading it takes time per byte; multiplying,
//! dividing, printing and parsing take more, and nothing can stop them. So texts of numbers have at most
//! [`DIGITS_MAX`] digits, and the functions of one row may use [`WORK_MAX`] units. A unit is about a
//! nanosecond. Estimates depend on lengths alone, so the same statement over the same data is either always
//! or never refused.

use cql::ast::ArithmeticOperator;
use model::CqlType;
use model::collection::{Components, Elements, Entries, VectorElements};

use super::decimal;

/// Most digits of a number that is parsed from or written as text.
pub const DIGITS_MAX: usize = 20_000;
pub use crate::ambient::WORK_MAX;
/// Longest value whose work does not count, in bytes.
const SHORT_BYTES: usize = 64;
/// Bytes of a limb, the digit of the arithmetic.
const LIMB_BYTES: u64 = 8;
/// Decimal digits of a limb.
const LIMB_DIGITS: u64 = 19;
/// Length in limbs from which multiplication is faster than digit by digit.
const SCHOOLBOOK_LIMBS: f64 = 32.0;

/// Checks that text may be parsed as a number.
///
/// # Errors
/// The text has too many digits; the error says what to do.
pub fn check_text(text: &str) -> Result<(), String> {
    if text.len() <= DIGITS_MAX {
        return Ok(());
    }
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    if digits <= DIGITS_MAX {
        return Ok(());
    }
    Err(format!(
        "a number of {digits} digits is too long to be read from text: at most {DIGITS_MAX}; bind it as a value of its type"
    ))
}

/// Work of multiplying numbers with these lengths in limbs: Karatsuba's method, slightly overestimated.
fn product(a: u64, b: u64) -> u64 {
    let (short, long) = (a.min(b).max(1) as f64, a.max(b) as f64);
    let columns = if short <= SCHOOLBOOK_LIMBS {
        short
    } else {
        SCHOOLBOOK_LIMBS * (short / SCHOOLBOOK_LIMBS).powf(0.585)
    };
    (2.0 * long * columns) as u64
}

fn limbs(bytes: usize) -> u64 {
    bytes as u64 / LIMB_BYTES + 1
}

/// The scale of a stored decimal; 0 for other types.
fn scale(ty: &CqlType, value: &[u8]) -> i64 {
    match (ty, value.first_chunk::<4>()) {
        (CqlType::Decimal, Some(scale)) => i64::from(i32::from_be_bytes(*scale)),
        _ => 0,
    }
}

fn is_long_number(ty: &CqlType) -> bool {
    matches!(ty, CqlType::Varint | CqlType::Decimal)
}

/// Work of `left operator right`.
pub(super) fn of_operation(
    operator: ArithmeticOperator,
    types: [&CqlType; 2],
    result: &CqlType,
    values: [&[u8]; 2],
) -> u64 {
    use ArithmeticOperator as O;
    let (left, right) = (limbs(values[0].len()), limbs(values[1].len()));
    let long = values.iter().any(|value| value.len() > SHORT_BYTES);
    match result {
        CqlType::Varint if !long => 0,
        CqlType::Varint => match operator {
            O::Add | O::Subtract => left + right,
            O::Multiply => product(left, right),
            O::Divide | O::Modulo if left < right => left + right,
            O::Divide | O::Modulo => 4 * product(left - right + 1, right) + left,
        },
        CqlType::Decimal => {
            // Both numbers are converted to the same scale.
            let apart = scale(types[0], values[0]).abs_diff(scale(types[1], values[1]));
            let zeros =
                if operator == O::Multiply { 0 } else { apart.min(decimal::DIGITS_MAX.unsigned_abs()) };
            if !long && zeros <= LIMB_DIGITS * 16 {
                return 0;
            }
            let all = left + right + zeros / LIMB_DIGITS;
            let times = if matches!(operator, O::Divide | O::Modulo) { 8 } else { 4 };
            times * product(all, all)
        }
        // The operands become floats or doubles, which is work for a long number.
        _ => types.iter().zip(values).map(|(ty, value)| of_conversion(ty, value)).sum(),
    }
}

/// Work of converting a value to another number or to text; 0 for types other than varint and decimal.
pub(super) fn of_conversion(ty: &CqlType, value: &[u8]) -> u64 {
    if !is_long_number(ty) {
        return 0;
    }
    let zeros = scale(ty, value).unsigned_abs();
    let zeros = if zeros > super::decimal::DIGITS_MAX.unsigned_abs() { 0 } else { zeros };
    if value.len() <= SHORT_BYTES && zeros <= LIMB_DIGITS * 16 {
        return 0;
    }
    let all = limbs(value.len()) + zeros / LIMB_DIGITS;
    4 * product(all, all)
}

/// Work of `exp`, `log` and `log10`: about one multiplication and division per digit, of numbers with that
/// length.
pub(super) fn of_elementary(ty: &CqlType, value: &[u8]) -> u64 {
    if !is_long_number(ty) || value.len() <= SHORT_BYTES {
        return 0;
    }
    let all = limbs(value.len());
    product(all, all).saturating_mul(8 * all)
}

/// Work of a JSON text of this many bytes, without that of the numbers in it; 0 for a short one.
///
/// It is less than a nanosecond per byte, so that the text of the largest storable value is allowed, but not
/// several of them in one row.
pub fn of_json_bytes(bytes: usize) -> u64 {
    const FREE_BYTES: usize = 16 << 10;
    const BYTES_PER_UNIT: u64 = 8;
    if bytes <= FREE_BYTES { 0 } else { bytes as u64 / BYTES_PER_UNIT }
}

/// Work of writing the numbers inside a value of any type as text.
pub fn of_text(ty: &CqlType, value: &[u8]) -> u64 {
    // A value this short contains no number whose work counts.
    if value.len() <= SHORT_BYTES {
        return 0;
    }
    match ty {
        CqlType::Varint | CqlType::Decimal => {
            let all = limbs(value.len());
            // One digit per 0.42 bytes, and divisions by ever shorter powers of ten.
            4 * product(all, all) + value.len() as u64
        }
        CqlType::List { element, .. } | CqlType::Set { element, .. } => {
            sum(Elements::parse(value).into_iter().flatten().flatten().map(|part| (&**element, part)))
        }
        CqlType::Map { key, value: of, .. } => sum(Entries::parse(value)
            .into_iter()
            .flatten()
            .flatten()
            .flat_map(|(name, part)| [(&**key, name), (&**of, part)])),
        CqlType::Vector { element, dimension } => {
            sum(VectorElements::new(element, *dimension, value).flatten().map(|part| (&**element, part)))
        }
        CqlType::Tuple(types) => {
            sum(types.iter().zip(Components::new(value)).filter_map(|(ty, part)| Some((ty, part.ok()??))))
        }
        CqlType::Udt(udt) => sum(udt
            .fields
            .iter()
            .zip(Components::new(value))
            .filter_map(|((_, ty), part)| Some((ty, part.ok()??)))),
        _ => 0,
    }
}

fn sum<'v>(parts: impl Iterator<Item = (&'v CqlType, &'v [u8])>) -> u64 {
    parts.fold(0, |all, (ty, part)| all.saturating_add(of_text(ty, part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_grows_with_digits_and_never_with_what_a_scale_claims_alone() {
        use ArithmeticOperator::{Add, Divide, Multiply};
        let varint = |digits: usize| vec![1; digits * 10 / 24];
        let of = |operator, digits| {
            let value = varint(digits);
            of_operation(operator, [&CqlType::Varint; 2], &CqlType::Varint, [&value, &value])
        };
        assert_eq!(of(Multiply, 100), 0, "short numbers are not counted");
        assert!(of(Multiply, 10_000) < WORK_MAX / 8, "{}", of(Multiply, 10_000));
        assert!(of(Multiply, 60_000) < WORK_MAX, "{}", of(Multiply, 60_000));
        assert!(of(Multiply, 600_000) > WORK_MAX);
        assert!(of(Add, 3_000_000) < WORK_MAX, "addition is linear");
        let (value, long) = (varint(60_000), varint(120_000));
        let division = of_operation(Divide, [&CqlType::Varint; 2], &CqlType::Varint, [&long, &value]);
        assert!(division > WORK_MAX);
        let (tiny, huge) = ([0x7f, 0xff, 0xff, 0xff, 1], [0x80, 0, 0, 0, 1]);
        let apart = of_operation(Add, [&CqlType::Decimal; 2], &CqlType::Decimal, [&tiny, &huge]);
        assert!(apart < WORK_MAX, "{apart}");
        assert!(of_text(&CqlType::Varint, &varint(DIGITS_MAX)) < WORK_MAX);
        let list = CqlType::List { element: Box::new(CqlType::Varint), frozen: true };
        let parts = vec![varint(DIGITS_MAX); 100];
        assert!(of_text(&list, &crate::terms::assemble_collection(&list, parts)) > WORK_MAX);
        assert!(check_text(&"7".repeat(DIGITS_MAX)).is_ok());
        assert!(check_text(&"7".repeat(DIGITS_MAX + 1)).is_err());
    }
}
