//! IF conditions with the values of one execution, evaluated for a row.
//!
//! Null semantics and messages are those of Cassandra 5's `ColumnCondition.Bound`: null equals only null and
//! has no order; for a collection with a cell for each element, absent and empty are the same.

use std::borrow::Cow;
use std::cmp::Ordering;

use cql::ast::ComparisonOperator;
use model::collection::{Components, Elements, Entries};
use model::compare::compare;
use model::{CqlType, RowView};
use statement::prepare::condition::{Condition, Operator, Part, Values};
use statement::restrictions::clause::in_values;
use statement::restrictions::like;
use statement::terms::{Binding, Bound};
use wire::values::ValueRef;

use super::cells;
use super::row_writer::field_path;
use crate::QueryError;

/// A condition with its values.
#[derive(Debug)]
pub(super) struct BoundCondition<'a> {
    condition: &'a Condition,
    key: Option<Cow<'a, [u8]>>,
    values: Vec<Option<Cow<'a, [u8]>>>,
}

impl<'a> BoundCondition<'a> {
    /// Takes the values of one execution.
    ///
    /// # Errors
    /// [`QueryError::Invalid`] for unset values.
    pub(super) fn bind(condition: &'a Condition, binding: &Binding<'a>) -> Result<Self, QueryError> {
        let is_in = matches!(condition.operator, Operator::In { .. });
        let contains = matches!(condition.operator, Operator::Contains | Operator::ContainsKey);
        let values = match &condition.values {
            Values::Terms(terms) => {
                let mut values = Vec::with_capacity(terms.len());
                for term in terms {
                    match term.bind(binding)? {
                        Bound::Null => values.push(None),
                        Bound::Value(value) => values.push(Some(value)),
                        // Some of the values of IN may be unset; nothing contains an unset value.
                        Bound::Unset if is_in || contains => {}
                        Bound::Unset => return Err(unset()),
                    }
                }
                values
            }
            Values::Marker { index, list } => match binding.values[*index] {
                ValueRef::Null => return Err(QueryError::invalid("Invalid null list in IN condition")),
                ValueRef::Unset => return Err(unset()),
                ValueRef::Bytes(bytes) => {
                    in_values(bytes, list)?.into_iter().map(|value| value.map(Cow::Borrowed)).collect()
                }
            },
        };
        if condition.operator == Operator::Like {
            values.iter().flatten().try_for_each(|pattern| like::check(pattern))?;
        }
        let key = match &condition.part {
            Part::Element(term) => {
                term.bind(binding)?.set(|| "Invalid 'unset' value in condition".to_owned())?
            }
            Part::Whole | Part::Field(_) => None,
        };
        Ok(Self { condition, key, values })
    }

    /// Whether the condition holds for the row, which may be absent.
    ///
    /// # Errors
    /// [`QueryError::Invalid`] if null or an empty collection is compared by order, or an element's key is
    /// null.
    pub(super) fn holds(&self, row: Option<RowView<'_>>) -> Result<bool, QueryError> {
        let found = self.found(row)?;
        let negated = self.condition.operator == Operator::In { negated: true };
        for value in &self.values {
            if self.matches(value.as_deref(), found.as_deref())? {
                return Ok(!negated);
            }
        }
        Ok(negated)
    }

    /// The row's value of the condition's column or part.
    fn found<'r>(&'r self, row: Option<RowView<'r>>) -> Result<Option<Cow<'r, [u8]>>, QueryError> {
        let Condition { column, part, .. } = self.condition;
        let multi_cell = column.ty.is_multi_cell();
        let whole = |row: RowView<'r>| {
            if multi_cell {
                let mut out = Vec::new();
                cells::append_multi(row, column, &mut out).then_some(Cow::Owned(out))
            } else {
                cells::single(row, column).map(Cow::Borrowed)
            }
        };
        match part {
            Part::Whole => Ok(row.and_then(whole)),
            Part::Field(at) => {
                let path = field_path(*at);
                Ok(row.and_then(|row| {
                    if multi_cell {
                        let mut cells = cells::of(row, column);
                        return cells
                            .find(|cell| cell.path == Some(&path))
                            .and_then(|cell| cell.value())
                            .map(Cow::Borrowed);
                    }
                    let value = cells::single(row, column)?;
                    Components::new(value).nth(*at)?.ok().flatten().map(Cow::Borrowed)
                }))
            }
            Part::Element(_) => {
                let Some(key) = self.key.as_deref() else {
                    let what = if matches!(column.ty, CqlType::Map { .. }) { "map" } else { "list" };
                    return Err(QueryError::Invalid(format!("Invalid null value for {what} element access")));
                };
                let value = row.and_then(whole);
                let index = match &column.ty {
                    // Of a frozen list that is not there no index is looked at.
                    CqlType::List { .. } if multi_cell || value.is_some() => Some(list_index(key)?),
                    _ => None,
                };
                Ok(value.and_then(|value| element(&column.ty, &value, key, index)))
            }
        }
    }

    fn matches(&self, value: Option<&[u8]>, found: Option<&[u8]>) -> Result<bool, QueryError> {
        let Condition { column, part, ty, operator, .. } = self.condition;
        let of_cells = matches!(part, Part::Whole) && column.ty.is_multi_cell() && column.ty.is_collection();
        let contains = matches!(operator, Operator::Contains | Operator::ContainsKey);
        // A collection of cells that is empty is not there.
        let is_empty = of_cells && !contains && value.is_some_and(is_empty_collection);
        let Some(value) = value.filter(|_| !is_empty) else {
            return match operator {
                Operator::Compare(ComparisonOperator::Equal) | Operator::In { .. } => Ok(found.is_none()),
                Operator::Compare(ComparisonOperator::NotEqual) => Ok(found.is_some()),
                Operator::Like => Ok(false),
                _ => Err(QueryError::Invalid(format!(
                    "Invalid comparison with {} for operator \"{}\"",
                    if is_empty { format!("an empty {}", kind(&column.ty)) } else { "null".to_owned() },
                    operator.symbol()
                ))),
            };
        };
        let Some(found) = found else {
            return Ok(*operator == Operator::Compare(ComparisonOperator::NotEqual));
        };
        Ok(match operator {
            Operator::Compare(operator) => satisfies(*operator, compare(ty, found, value)),
            Operator::In { .. } => compare(ty, found, value).is_eq(),
            Operator::Contains => contains_value(ty, found, value),
            Operator::ContainsKey => contains_key(ty, found, value),
            Operator::Like => like::matches(found, value),
        })
    }
}

fn unset() -> QueryError {
    QueryError::invalid("Invalid 'unset' value in condition")
}

fn satisfies(operator: ComparisonOperator, order: Ordering) -> bool {
    match operator {
        ComparisonOperator::Equal => order.is_eq(),
        ComparisonOperator::NotEqual => order.is_ne(),
        ComparisonOperator::Less => order.is_lt(),
        ComparisonOperator::LessOrEqual => order.is_le(),
        ComparisonOperator::Greater => order.is_gt(),
        ComparisonOperator::GreaterOrEqual => order.is_ge(),
    }
}

/// The word of messages for a collection's type.
fn kind(ty: &CqlType) -> &'static str {
    match ty {
        CqlType::Map { .. } => "map",
        CqlType::Set { .. } => "set",
        _ => "list",
    }
}

fn is_empty_collection(value: &[u8]) -> bool {
    Elements::parse(value).is_ok_and(|elements| elements.remaining() == 0)
}

fn list_index(key: &[u8]) -> Result<usize, QueryError> {
    let index = key.try_into().map(i32::from_be_bytes).unwrap_or(-1);
    usize::try_from(index).map_err(|_| QueryError::Invalid(format!("Invalid negative list index {index}")))
}

fn element<'r>(ty: &CqlType, value: &[u8], key: &[u8], index: Option<usize>) -> Option<Cow<'r, [u8]>> {
    let found = match (ty, index) {
        (CqlType::Map { key: ty, .. }, _) => {
            let mut entries = Entries::parse(value).ok()?.flatten();
            entries.find(|(k, _)| compare(ty, k, key).is_eq()).map(|(_, value)| value)
        }
        (_, Some(index)) => Elements::parse(value).ok()?.flatten().nth(index),
        _ => None,
    };
    found.map(|found| Cow::Owned(found.to_vec()))
}

fn contains_value(ty: &CqlType, collection: &[u8], value: &[u8]) -> bool {
    match ty {
        CqlType::Map { value: ty, .. } => Entries::parse(collection)
            .is_ok_and(|entries| entries.flatten().any(|(_, v)| compare(ty, v, value).is_eq())),
        CqlType::List { element, .. } | CqlType::Set { element, .. } => Elements::parse(collection)
            .is_ok_and(|elements| elements.flatten().any(|e| compare(element, e, value).is_eq())),
        _ => false,
    }
}

fn contains_key(ty: &CqlType, collection: &[u8], key: &[u8]) -> bool {
    let CqlType::Map { key: ty, .. } = ty else { return false };
    Entries::parse(collection)
        .is_ok_and(|entries| entries.flatten().any(|(k, _)| compare(ty, k, key).is_eq()))
}
