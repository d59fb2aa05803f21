//! The operators `+ - * / %` and unary minus: their types, results and errors.
//!
//! Each operator is a function with an internal name, overloaded for all pairs of numeric types; dates and
//! timestamps take durations, text takes text. Types, arithmetic and messages are Cassandra 5's
//! (`OperationFcts`, `NumberType`). A decimal with an extreme scale costs no more than `decimal` allows.

use cql::ast::ArithmeticOperator;
use model::CqlType;
use model::number::Duration;
use num_bigint::BigInt;

use super::number::{self, Number, decimal_bytes, integer_bytes, varint_bytes};
use super::{Function, Kind, calendar, decimal};
use crate::StatementError;
use crate::terms::duration;
use crate::terms::time::{date_of_millis, millis_of_date};

/// Name of the function for unary minus.
pub const NEGATION: &str = "_negate";

const OPERATORS: [ArithmeticOperator; 5] = [
    ArithmeticOperator::Add,
    ArithmeticOperator::Subtract,
    ArithmeticOperator::Multiply,
    ArithmeticOperator::Divide,
    ArithmeticOperator::Modulo,
];

const NUMERIC: [CqlType; 9] = [
    CqlType::Tinyint,
    CqlType::Smallint,
    CqlType::Int,
    CqlType::Bigint,
    CqlType::Float,
    CqlType::Double,
    CqlType::Decimal,
    CqlType::Varint,
    CqlType::Counter,
];

/// Name of the function for an operator, in Cassandra's spelling.
pub fn operator_name(operator: ArithmeticOperator) -> &'static str {
    match operator {
        ArithmeticOperator::Add => "_add",
        ArithmeticOperator::Subtract => "_substract",
        ArithmeticOperator::Multiply => "_multiply",
        ArithmeticOperator::Divide => "_divide",
        ArithmeticOperator::Modulo => "_modulo",
    }
}

/// The operator of a function's name.
pub(super) fn operator_of(name: &str) -> Option<ArithmeticOperator> {
    OPERATORS.into_iter().find(|operator| operator_name(*operator) == name)
}

/// All overloads of an operator or of negation.
pub(super) fn overloads(name: &str) -> Vec<Function> {
    if name == NEGATION {
        let negate = |ty: &CqlType| Function::new(name, Kind::Negate, std::slice::from_ref(ty), ty.clone());
        return NUMERIC.iter().map(negate).collect();
    }
    let Some(operator) = operator_of(name) else { return Vec::new() };
    let overload = |left: &CqlType, right: &CqlType, result: CqlType| {
        Function::new(name, Kind::Operation(operator), &[left.clone(), right.clone()], result)
    };
    let mut all: Vec<Function> = NUMERIC
        .iter()
        .flat_map(|left| NUMERIC.iter().map(move |right| (left, right)))
        .map(|(left, right)| overload(left, right, promote(left, right)))
        .collect();
    if matches!(operator, ArithmeticOperator::Add | ArithmeticOperator::Subtract) {
        for ty in [CqlType::Timestamp, CqlType::Date] {
            all.push(overload(&ty, &CqlType::Duration, ty.clone()));
        }
    }
    if operator == ArithmeticOperator::Add {
        use CqlType::{Ascii, Text};
        all.push(overload(&Text, &Text, Text));
        all.push(overload(&Ascii, &Ascii, Ascii));
        all.push(overload(&Ascii, &Text, Text));
        all.push(overload(&Text, &Ascii, Text));
    }
    all
}

/// The type of a result: floating point if an operand is, and as wide as the wider operand.
fn promote(left: &CqlType, right: &CqlType) -> CqlType {
    use CqlType as T;
    let floating = |ty: &T| matches!(ty, T::Float | T::Double | T::Decimal);
    let bytes = |ty: &T| match ty {
        T::Tinyint => 1,
        T::Smallint => 2,
        T::Int | T::Float => 4,
        T::Bigint | T::Double | T::Counter => 8,
        _ => usize::MAX,
    };
    match (floating(left) || floating(right), bytes(left).max(bytes(right))) {
        (true, 4) => T::Float,
        (true, 8) => T::Double,
        // A float is wider than a tinyint or smallint, so no other width is left.
        (true, _) => T::Decimal,
        (false, 1) => T::Tinyint,
        (false, 2) => T::Smallint,
        (false, 4) => T::Int,
        (false, 8) => T::Bigint,
        (false, _) => T::Varint,
    }
}

/// Computes `left operator right`; errors have Java's texts.
pub(super) fn operate(
    operator: ArithmeticOperator,
    types: [&CqlType; 2],
    result: &CqlType,
    left: &[u8],
    right: &[u8],
) -> Result<Option<Vec<u8>>, String> {
    match result {
        CqlType::Text | CqlType::Ascii => Ok(Some([left, right].concat())),
        CqlType::Timestamp | CqlType::Date => temporal(operator, result, left, right),
        _ => {
            let read = |ty, value| number::read(ty, value).map_err(|error: StatementError| error.to_string());
            match (read(types[0], left)?, read(types[1], right)?) {
                (Some(left), Some(right)) => numeric(operator, result, &left, &right).map(Some),
                _ => Ok(None),
            }
        }
    }
}

fn numeric(
    operator: ArithmeticOperator,
    result: &CqlType,
    left: &Number,
    right: &Number,
) -> Result<Vec<u8>, String> {
    use ArithmeticOperator as O;
    match result {
        CqlType::Float => {
            let (left, right) = (left.to_f32(), right.to_f32());
            let value = match operator {
                O::Add => left + right,
                O::Subtract => left - right,
                O::Multiply => left * right,
                O::Divide => left / right,
                O::Modulo => left % right,
            };
            Ok(value.to_be_bytes().to_vec())
        }
        CqlType::Double => {
            let (left, right) = (left.to_f64(), right.to_f64());
            let value = match operator {
                O::Add => left + right,
                O::Subtract => left - right,
                O::Multiply => left * right,
                O::Divide => left / right,
                O::Modulo => left % right,
            };
            Ok(value.to_be_bytes().to_vec())
        }
        CqlType::Decimal => {
            let (left, right) = (decimal::of(left)?, decimal::of(right)?);
            let value = match operator {
                O::Add => decimal::add(&left, &right),
                O::Subtract => decimal::add(&left, &-right),
                O::Multiply => decimal::multiply(&left, &right),
                O::Divide => decimal::divide(&left, &right)?,
                O::Modulo => decimal::remainder(&left, &right)?,
            };
            decimal_bytes(&value).ok_or_else(|| "Overflow".to_owned())
        }
        CqlType::Varint => {
            let (left, right) = (varint(left), varint(right));
            if right == BigInt::ZERO && matches!(operator, O::Divide | O::Modulo) {
                return Err("BigInteger divide by zero".to_owned());
            }
            Ok(varint_bytes(&match operator {
                O::Add => left + right,
                O::Subtract => left - right,
                O::Multiply => left * right,
                O::Divide => left / right,
                O::Modulo => left % right,
            }))
        }
        integer => {
            let (Number::Integer(left), Number::Integer(right)) = (left, right) else {
                return Err(format!("operands that are no integers give no {integer}"));
            };
            if *right == 0 && matches!(operator, O::Divide | O::Modulo) {
                return Err("/ by zero".to_owned());
            }
            let value = match operator {
                O::Add => left.wrapping_add(*right),
                O::Subtract => left.wrapping_sub(*right),
                O::Multiply => left.wrapping_mul(*right),
                O::Divide => left.wrapping_div(*right),
                O::Modulo => left.wrapping_rem(*right),
            };
            Ok(integer_bytes(integer, value))
        }
    }
}

fn varint(number: &Number) -> BigInt {
    match number {
        Number::Varint(value) => value.clone(),
        Number::Integer(value) => BigInt::from(*value),
        other => BigInt::from(other.to_f64() as i64),
    }
}

/// `-operand`
pub(super) fn negate(ty: &CqlType, operand: &[u8]) -> Result<Option<Vec<u8>>, StatementError> {
    Ok(match number::read(ty, operand)? {
        None => None,
        Some(Number::Integer(value)) => Some(integer_bytes(ty, value.wrapping_neg())),
        Some(Number::Single(value)) => Some((-value).to_be_bytes().to_vec()),
        Some(Number::Double(value)) => Some((-value).to_be_bytes().to_vec()),
        Some(Number::Varint(value)) => Some(varint_bytes(&-value)),
        Some(Number::Decimal(value)) => decimal_bytes(&-value),
    })
}

fn temporal(
    operator: ArithmeticOperator,
    ty: &CqlType,
    time: &[u8],
    by: &[u8],
) -> Result<Option<Vec<u8>>, String> {
    let millis = match ty {
        CqlType::Date => time.try_into().ok().map(|days| millis_of_date(u32::from_be_bytes(days))),
        _ => time.try_into().ok().map(i64::from_be_bytes),
    };
    let Some(millis) = millis.filter(|_| !by.is_empty()) else { return Ok(None) };
    let by = Duration::decode(by).map_err(|error| error.to_string())?;
    let precise = match ty {
        CqlType::Date => by.nanoseconds() == 0,
        _ => by.nanoseconds() % 1_000_000 == 0,
    };
    if !precise {
        let precision = if *ty == CqlType::Date { "day" } else { "millisecond" };
        return Err(format!("The duration must have a {precision} precision. Was: {}", duration::text(&by)));
    }
    let sign = if operator == ArithmeticOperator::Subtract { -1 } else { 1 };
    let moved = calendar::add(
        millis,
        sign * i64::from(by.months()),
        sign * i64::from(by.days()),
        by.nanoseconds().wrapping_mul(sign),
    );
    Ok(Some(match ty {
        CqlType::Date => date_of_millis(moved).to_be_bytes().to_vec(),
        _ => moved.to_be_bytes().to_vec(),
    }))
}
