//! Partition keys that an execution names, and the token range it scans.

use std::cmp::Ordering;

use model::Table;
use model::compare::compare;
use model::partition_key::{self, DecoratedKey, KeyTooLong, PARTITION_KEY_BYTES_MAX};
use smallvec::SmallVec;

use super::Restrictions;
use super::clause::{ALTERNATIVES_MAX, Asked, Row, RowTerm, Test, bind_value, too_many};
use crate::StatementError;
use crate::steps::ShortSteps;
use crate::terms::Binding;

/// Appends the only key, given by equalities on every column; returns false if IN makes several keys.
///
/// # Errors
/// [`StatementError::Invalid`] for null, left-out or too long values.
#[inline]
pub fn append_single(
    restrictions: &Restrictions,
    table: &Table,
    binding: &Binding<'_>,
    key: &mut Vec<u8>,
) -> Result<bool, StatementError> {
    let columns = table.partition_key().len();
    for clause in &restrictions.partition_key {
        let Test::Equal(RowTerm::Parts(parts)) = &clause.test else { return Ok(false) };
        let value = bind_value(&parts[0], &clause.names[0], binding)?;
        if partition_key::append_component(key, columns, &value).is_err() {
            let of_all = restrictions.partition_key.iter().filter_map(|clause| match &clause.test {
                Test::Equal(RowTerm::Parts(parts)) => Some(bind_value(&parts[0], &clause.names[0], binding)),
                _ => None,
            });
            let lengths = of_all.map(|value| value.map(|value| value.len()));
            return Err(too_long(&lengths.collect::<Result<Vec<_>, _>>()?));
        }
    }
    Ok(true)
}

/// The error for a key whose values have these lengths: with their sum if that alone is too much, as in
/// Cassandra, otherwise with the length of the key.
#[cold]
fn too_long(lengths: &[usize]) -> StatementError {
    let values: usize = lengths.iter().sum();
    let around = if lengths.len() > 1 { 3 * lengths.len() } else { 0 };
    let length = if values > PARTITION_KEY_BYTES_MAX { values } else { values + around };
    StatementError::Invalid(KeyTooLong { length }.to_string())
}

/// Refuses the key without bytes, which no partition has.
///
/// A separate step, because a SELECT that cannot have rows is answered before its keys are checked.
///
/// # Errors
/// [`StatementError::Invalid`] for the empty key.
#[inline]
pub fn check_not_empty(key: &[u8]) -> Result<(), StatementError> {
    if key.is_empty() { Err(StatementError::invalid("Key may not be empty")) } else { Ok(()) }
}

/// All keys that the restrictions name, ordered by the values of their columns, each once.
///
/// # Errors
/// As [`append_single`], and if there are more than [`ALTERNATIVES_MAX`].
pub fn all(
    restrictions: &Restrictions,
    table: &Table,
    binding: &Binding<'_>,
) -> Result<Vec<DecoratedKey>, StatementError> {
    let columns = table.partition_key();
    let mut rows: Vec<Row<'_>> = vec![Vec::new()];
    for (clause, column) in restrictions.partition_key.iter().zip(columns) {
        let mut values = match &clause.test {
            Test::Equal(row) => vec![row.bind(&clause.names, Asked::Column, binding)?],
            Test::In(terms) => terms.bind(&clause.names, Asked::Column, binding)?,
            Test::Slice { .. } | Test::Contains(_) | Test::Looked(_) => {
                return Err(StatementError::Internal(format!("{} names no key", clause.names[0])));
            }
        };
        let steps = ShortSteps::default();
        let order = |a: &Row<'_>, b: &Row<'_>| {
            steps.step();
            compare(&column.ty, &a[0], &b[0])
        };
        values.sort_by(order);
        values.dedup_by(|a, b| order(a, b).is_eq());
        if rows.len() * values.len() > ALTERNATIVES_MAX {
            return Err(too_many());
        }
        let steps = &steps;
        rows = rows
            .iter()
            .flat_map(|row| {
                values.iter().map(move |value| {
                    steps.step();
                    let mut row = row.clone();
                    row.extend(value.iter().cloned());
                    row
                })
            })
            .collect();
    }
    let mut keys = Vec::with_capacity(rows.len());
    for row in rows {
        reactor::give_way();
        let mut key = Vec::new();
        for value in &row {
            partition_key::append_component(&mut key, columns.len(), value)
                .map_err(|_| too_long(&row.iter().map(|value| value.len()).collect::<Vec<_>>()))?;
        }
        keys.push(DecoratedKey::new(key));
    }
    if restrictions.token.is_some() {
        let bounds = token_bounds(restrictions, binding)?;
        keys.retain(|key| bounds.is_some_and(|(low, high)| low <= key.token.0 && key.token.0 <= high));
    }
    Ok(keys)
}

/// First and last token, both inclusive.
///
/// The minimum token as an upper bound means the end of the ring, as sent by drivers that split the ring.
/// `None` if no token can match.
///
/// # Errors
/// [`StatementError::Invalid`] for a null token.
pub fn token_bounds(
    restrictions: &Restrictions,
    binding: &Binding<'_>,
) -> Result<Option<(i64, i64)>, StatementError> {
    let Some(clause) = &restrictions.token else { return Ok(Some((i64::MIN, i64::MAX))) };
    let token = |row: &RowTerm| -> Result<i64, StatementError> {
        let term = row
            .single()
            .ok_or_else(|| StatementError::Internal("a token bound of several terms".to_owned()))?;
        let value = term
            .bind(binding)?
            .set(|| "Invalid unset value for column partition key token".to_owned())?
            .ok_or_else(|| StatementError::invalid("Invalid null token value"))?;
        let bytes: [u8; 8] =
            value.as_ref().try_into().map_err(|_| StatementError::invalid("Invalid null token value"))?;
        Ok(i64::from_be_bytes(bytes))
    };
    Ok(match &clause.test {
        Test::Equal(row) => {
            let token = token(row)?;
            Some((token, token))
        }
        Test::Slice { lower, upper } => {
            let low = match lower {
                None => Some(i64::MIN),
                Some((row, true)) => Some(token(row)?),
                Some((row, false)) => token(row)?.checked_add(1),
            };
            let high = match upper {
                None => Some(i64::MAX),
                Some((row, inclusive)) => match (token(row)?, inclusive) {
                    (i64::MIN, _) => Some(i64::MAX),
                    (token, true) => Some(token),
                    (token, false) => token.checked_sub(1),
                },
            };
            low.zip(high).filter(|(low, high)| low <= high)
        }
        Test::In(_) | Test::Contains(_) | Test::Looked(_) => {
            return Err(StatementError::Internal("a token is equal or between".to_owned()));
        }
    })
}

/// Values of the columns of a stored key.
pub fn split<'k>(table: &Table, key: &'k [u8]) -> SmallVec<[&'k [u8]; 4]> {
    partition_key::components(key, table.partition_key().len()).collect()
}

/// Order of two keys by the values of their columns.
pub fn compare_keys(table: &Table, a: &[u8], b: &[u8]) -> Ordering {
    let (a, b) = (split(table, a), split(table, b));
    table
        .partition_key()
        .iter()
        .zip(a.iter().zip(b.iter()))
        .map(|(column, (a, b))| compare(&column.ty, a, b))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}
