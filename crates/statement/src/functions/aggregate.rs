//! Aggregates over the rows of a result: count, min, max, sum, avg.
//!
//! As in Cassandra 5's `AggregateFcts`, sums wrap in the type of their column, and averages of integers round
//! towards zero. Without rows, counts, sums and averages are 0, min and max are null.

mod state;

use bigdecimal::{BigDecimal, RoundingMode};
use model::compare::compare;
use model::{CqlType, number};
use num_bigint::BigInt;

use crate::StatementError;
use crate::terms::literal::Assignment;

pub use state::{append_optional, read_optional};

/// The kind of an aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AggregateKind {
    /// `count(*)`, `count(1)`: the number of rows.
    CountRows,
    /// `count(c)`: the number of values that are not null.
    Count,
    /// The least value.
    Min,
    /// The greatest value.
    Max,
    /// The sum.
    Sum,
    /// The mean.
    Average,
}

impl AggregateKind {
    /// The aggregate with this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "count" => Self::Count,
            "count_rows" => Self::CountRows,
            "min" => Self::Min,
            "max" => Self::Max,
            "sum" => Self::Sum,
            "avg" => Self::Average,
            _ => return None,
        })
    }

    /// The name of the aggregate.
    pub fn name(self) -> &'static str {
        match self {
            Self::CountRows | Self::Count => "count",
            Self::Min => "min",
            Self::Max => "max",
            Self::Sum => "sum",
            Self::Average => "avg",
        }
    }

    /// The name of the result column of a call.
    pub fn column_name(self, argument: Option<&str>) -> String {
        match argument {
            Some(argument) => format!("system.{}({argument})", self.name()),
            None => "count".to_owned(),
        }
    }

    /// The type to which the argument of a call is converted. `arguments` has the types of the arguments if
    /// nothing requires another type, and their texts; `fits` says how well a single argument fits a type.
    ///
    /// # Errors
    /// [`StatementError::Invalid`] in Cassandra's words if no overload, or more than one, takes the
    /// arguments.
    pub fn argument_type(
        self,
        arguments: &[(Option<CqlType>, String)],
        fits: &dyn Fn(&CqlType) -> Assignment,
    ) -> Result<CqlType, StatementError> {
        let name = self.name();
        let invalid = |text: String| Err(StatementError::Invalid(text));
        match self {
            Self::CountRows if arguments.is_empty() => Ok(CqlType::Int),
            Self::CountRows => invalid(format!(
                "Invalid number of arguments in call to function system.count_rows: 0 required but {} provided",
                arguments.len()
            )),
            Self::Count => match arguments {
                [(_, text)] if !fits(&CqlType::Blob).is_assignable() => invalid(format!(
                    "Type error: {text} cannot be passed as argument 0 of function system.count of type blob"
                )),
                [(ty, _)] => Ok(ty.clone().unwrap_or(CqlType::Blob)),
                _ => invalid(format!(
                    "Invalid number of arguments in call to function system.count: 1 required but {} provided",
                    arguments.len()
                )),
            },
            Self::Min | Self::Max => match arguments {
                [(Some(ty), _)] => Ok(ty.clone()),
                [(None, text)] => invalid(format!(
                    "Cannot infer type of argument {text} in call to function system.{name}(any): use type casts to disambiguate"
                )),
                _ => invalid(format!("Invalid number of arguments for function system.{name}(any)")),
            },
            Self::Sum | Self::Average => {
                let one = arguments.len() == 1;
                let fitting = |wanted: Assignment| SUMMED.iter().filter(move |ty| one && fits(ty) == wanted);
                if let Some(ty) = fitting(Assignment::Exact).next() {
                    return Ok(ty.clone());
                }
                let signatures = |types: &mut dyn Iterator<Item = &CqlType>| {
                    let signature = |ty: &CqlType| {
                        format!("system.{name} : ({ty}) -> {}", self.result(ty).unwrap_or(CqlType::Bigint))
                    };
                    types.map(signature).collect::<Vec<_>>().join(", ")
                };
                let weak: Vec<&CqlType> = fitting(Assignment::Weak).collect();
                match weak.as_slice() {
                    [] => invalid(format!(
                        "Invalid call to function {name}, none of its type signatures match (known type signatures: {})",
                        signatures(&mut SUMMED.iter())
                    )),
                    [ty] => Ok((*ty).clone()),
                    several => invalid(format!(
                        "Ambiguous call to function {name} (can be matched by following signatures: {}): use type casts to disambiguate",
                        signatures(&mut several.iter().copied())
                    )),
                }
            }
        }
    }

    /// The type of the result over values of type `ty`; `None` if there is no such aggregate.
    pub fn result(self, ty: &CqlType) -> Option<CqlType> {
        match self {
            Self::CountRows | Self::Count => Some(CqlType::Bigint),
            Self::Min | Self::Max => Some(ty.clone()),
            Self::Sum | Self::Average => SUMMED.contains(ty).then(|| ty.clone()),
        }
    }
}

/// Types whose values can be summed.
const SUMMED: [CqlType; 9] = [
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

/// The state of an aggregate over the rows so far.
#[derive(Debug, Clone)]
pub struct Accumulator {
    kind: AggregateKind,
    ty: CqlType,
    count: i64,
    state: State,
}

#[derive(Debug, Clone)]
enum State {
    Nothing,
    Extreme(Option<Vec<u8>>),
    /// The sum of at most 2^63 values of 64 bits fits.
    Integer(i128),
    Floating {
        sum: f64,
        compensation: f64,
        plain: f64,
    },
    Decimal(BigDecimal),
    Varint(BigInt),
}

impl Accumulator {
    /// An accumulator without values, for values of type `ty`.
    pub fn new(kind: AggregateKind, ty: &CqlType) -> Self {
        // The value read from a counter is a number, and is ordered as one.
        let ty = if *ty == CqlType::Counter { &CqlType::Bigint } else { ty };
        let state = match (kind, ty) {
            (AggregateKind::CountRows | AggregateKind::Count, _) => State::Nothing,
            (AggregateKind::Min | AggregateKind::Max, _) => State::Extreme(None),
            (_, CqlType::Float | CqlType::Double) => {
                State::Floating { sum: 0.0, compensation: 0.0, plain: 0.0 }
            }
            (_, CqlType::Decimal) => State::Decimal(BigDecimal::from(0)),
            (_, CqlType::Varint) => State::Varint(BigInt::from(0)),
            _ => State::Integer(0),
        };
        Self { kind, ty: ty.clone(), count: 0, state }
    }

    /// Bytes of the values that it holds.
    pub fn held_bytes(&self) -> usize {
        match &self.state {
            State::Extreme(best) => best.as_ref().map_or(0, Vec::len),
            _ => 0,
        }
    }

    /// Adds the value of a row.
    ///
    /// # Errors
    /// [`StatementError::Invalid`] if stored bytes are not a number.
    pub fn add(&mut self, value: Option<&[u8]>) -> Result<(), StatementError> {
        if self.kind == AggregateKind::CountRows {
            self.count += 1;
            return Ok(());
        }
        let Some(value) = value else { return Ok(()) };
        // An empty value is counted, and is less than any other, but is not a number.
        let is_computed = matches!(self.kind, AggregateKind::Sum | AggregateKind::Average);
        if value.is_empty() && is_computed && self.ty.is_empty_value_meaningless() {
            return Ok(());
        }
        let bad = || StatementError::Invalid(format!("A value of {} bytes is no {}", value.len(), self.ty));
        match &mut self.state {
            State::Nothing => {}
            State::Extreme(best) => {
                let better = best.as_ref().is_none_or(|best| {
                    let order = compare(&self.ty, value, best);
                    if self.kind == AggregateKind::Min { order.is_lt() } else { order.is_gt() }
                });
                if better {
                    *best = Some(value.to_vec());
                }
            }
            State::Integer(sum) => {
                *sum += match self.ty {
                    CqlType::Tinyint => i128::from(i8::from_be_bytes(value.try_into().map_err(|_| bad())?)),
                    CqlType::Smallint => i128::from(i16::from_be_bytes(value.try_into().map_err(|_| bad())?)),
                    CqlType::Int => i128::from(i32::from_be_bytes(value.try_into().map_err(|_| bad())?)),
                    _ => i128::from(i64::from_be_bytes(value.try_into().map_err(|_| bad())?)),
                };
            }
            State::Floating { sum, compensation, plain } => {
                let number = match self.ty {
                    CqlType::Float => f64::from(f32::from_be_bytes(value.try_into().map_err(|_| bad())?)),
                    _ => f64::from_be_bytes(value.try_into().map_err(|_| bad())?),
                };
                // Kahan's summation; the plain sum is used if infinities turned the compensated one into NaN.
                *plain += number;
                let corrected = number - *compensation;
                let rounded = *sum + corrected;
                *compensation = (rounded - *sum) - corrected;
                *sum = rounded;
            }
            State::Decimal(sum) => {
                let Some(number) = number::decode_decimal(value).map_err(|_| bad())? else { return Ok(()) };
                let longest = value.len() > DECIMAL_BYTES_MAX;
                if longest || number.as_bigint_and_scale().1.abs() > DECIMAL_SCALE_MAX {
                    return Err(StatementError::Invalid(format!(
                        "{} of decimals with more than {DECIMAL_SCALE_MAX} digits is not supported",
                        self.kind.name()
                    )));
                }
                if self.kind == AggregateKind::Average {
                    let scale = number.as_bigint_and_scale().1.max(sum.as_bigint_and_scale().1);
                    let step = (number - &*sum) / BigDecimal::from(self.count + 1);
                    *sum += step.with_scale_round(scale, RoundingMode::HalfEven);
                } else {
                    add_decimal(sum, &number);
                }
            }
            State::Varint(sum) => match number::decode_varint(value) {
                Some(number) => *sum += number,
                None => return Ok(()),
            },
        }
        self.count += 1;
        Ok(())
    }

    /// Whether states over different rows can be merged without an effect on the result: a mean of decimals
    /// is rounded at every step, so it depends on the order.
    pub fn is_mergeable(kind: AggregateKind, ty: &CqlType) -> bool {
        !(kind == AggregateKind::Average && *ty == CqlType::Decimal)
    }

    /// Merges the state over other rows into this one.
    ///
    /// # Errors
    /// [`StatementError::Internal`] if the two are of different kinds.
    pub fn merge(&mut self, other: Self) -> Result<(), StatementError> {
        let unlike = || StatementError::Internal("two aggregates of different kinds".to_owned());
        if self.kind != other.kind || self.ty != other.ty || !Self::is_mergeable(self.kind, &self.ty) {
            return Err(unlike());
        }
        match (&mut self.state, other.state) {
            (State::Nothing, State::Nothing) => {}
            (State::Extreme(best), State::Extreme(theirs)) => {
                let better = match (&*best, &theirs) {
                    (_, None) => false,
                    (None, Some(_)) => true,
                    (Some(mine), Some(theirs)) => {
                        let order = compare(&self.ty, theirs, mine);
                        if self.kind == AggregateKind::Min { order.is_lt() } else { order.is_gt() }
                    }
                };
                if better {
                    *best = theirs;
                }
            }
            (State::Integer(sum), State::Integer(theirs)) => *sum += theirs,
            (
                State::Floating { sum, compensation, plain },
                State::Floating { sum: theirs, compensation: lost, plain: their_plain },
            ) => {
                *plain += their_plain;
                *sum += theirs;
                *compensation += lost;
            }
            (State::Decimal(sum), State::Decimal(theirs)) => add_decimal(sum, &theirs),
            (State::Varint(sum), State::Varint(theirs)) => *sum += theirs,
            _ => return Err(unlike()),
        }
        self.count += other.count;
        Ok(())
    }

    /// The result for the rows so far.
    pub fn result(&self) -> Option<Vec<u8>> {
        let average = self.kind == AggregateKind::Average;
        Some(match &self.state {
            State::Nothing => self.count.to_be_bytes().to_vec(),
            State::Extreme(best) => return best.clone(),
            State::Integer(sum) => {
                let value = if average { sum / i128::from(self.count.max(1)) } else { *sum };
                match self.ty {
                    CqlType::Tinyint => (value as i8).to_be_bytes().to_vec(),
                    CqlType::Smallint => (value as i16).to_be_bytes().to_vec(),
                    CqlType::Int => (value as i32).to_be_bytes().to_vec(),
                    _ => (value as i64).to_be_bytes().to_vec(),
                }
            }
            State::Floating { sum, plain, .. } => {
                let sum = if sum.is_nan() && plain.is_infinite() { *plain } else { *sum };
                let value = if average { sum / self.count.max(1) as f64 } else { sum };
                // Of all NaNs, the one that Java writes.
                let value = if value.is_nan() { f64::NAN.abs() } else { value };
                match self.ty {
                    CqlType::Float => (value as f32).to_be_bytes().to_vec(),
                    _ => value.to_be_bytes().to_vec(),
                }
            }
            State::Decimal(sum) => {
                let mut out = Vec::new();
                // The scale is that of a stored value, so it fits.
                number::append_decimal(&mut out, sum).ok()?;
                out
            }
            State::Varint(sum) => {
                let mut out = Vec::new();
                let value = if average { sum / BigInt::from(self.count.max(1)) } else { sum.clone() };
                number::append_varint(&mut out, &value);
                out
            }
        })
    }
}

/// Adds as Java does: the sum has the larger of the two scales, even if one number is zero.
fn add_decimal(sum: &mut BigDecimal, number: &BigDecimal) {
    let scale = number.as_bigint_and_scale().1.max(sum.as_bigint_and_scale().1);
    *sum += number;
    if sum.as_bigint_and_scale().1 != scale {
        *sum = sum.with_scale(scale);
    }
}

/// Longest decimal that is summed, some 10,000 digits: each one is converted to the scale of the sum.
const DECIMAL_BYTES_MAX: usize = 4160;
/// Largest absolute scale of decimals that are summed: addition expands the digits between two scales.
const DECIMAL_SCALE_MAX: i64 = 10_000;

#[cfg(test)]
mod tests;
