//! Tests of rows that keys and slices cannot express: ALLOW FILTERING.
//!
//! A filter is prepared once, bound once per execution, and evaluated for every row. A null never passes.

use std::borrow::Cow;

use model::collection::{Elements, Entries};
use model::compare::compare;
use model::{Column, ColumnKind, CqlType};

use super::clause::{Clause, Contains, InTerms, Looked, RowTerm, Test};
use super::like;
use crate::StatementError;
use crate::terms::{Binding, Term};

/// A test of one column.
#[derive(Debug, Clone)]
pub struct Filter {
    /// Role of the column.
    pub kind: ColumnKind,
    /// The column.
    pub column: Column,
    check: Check,
}

#[derive(Debug, Clone)]
enum Check {
    Equal(Term),
    In(InTerms),
    Less(Term, bool),
    Greater(Term, bool),
    ContainsValue(Term),
    ContainsKey(Term),
    ContainsEntry(Term, Term),
    NotIn(InTerms),
    NotContainsValue(Term),
    NotContainsKey(Term),
    Like(Term),
}

/// A filter with its values.
#[derive(Debug)]
pub struct BoundFilter<'a> {
    /// The prepared test.
    pub filter: &'a Filter,
    values: Vec<Cow<'a, [u8]>>,
}

/// Appends the filters that clauses require.
pub(super) fn from_clauses(
    columns: &[Column],
    kind: ColumnKind,
    clauses: &[Clause],
    out: &mut Vec<Filter>,
) -> Result<(), StatementError> {
    for clause in clauses {
        let run = &columns[clause.first..clause.end()];
        let mut push = |column: &Column, check| out.push(Filter { kind, column: column.clone(), check });
        match &clause.test {
            Test::Equal(RowTerm::Parts(parts)) => {
                for (column, part) in run.iter().zip(parts) {
                    push(column, Check::Equal(part.clone()));
                }
            }
            Test::Equal(RowTerm::Marker { .. }) => {
                return Err(StatementError::invalid("Multicolumn filters by one marker are not supported"));
            }
            // One column in parentheses is that column.
            Test::In(InTerms::Marker { .. }) if clause.multi => {
                return Err(StatementError::invalid("Multicolumn IN filters are not supported"));
            }
            Test::In(_) if clause.multi && clause.width() > 1 => {
                return Err(StatementError::invalid("Multicolumn IN filters are not supported"));
            }
            Test::In(terms) => push(&run[0], Check::In(terms.clone())),
            Test::Slice { .. } if clause.multi => {
                return Err(StatementError::invalid(
                    "Multi-column slice restrictions cannot be used for filtering.",
                ));
            }
            Test::Slice { lower, upper } => {
                if let Some((term, inclusive)) =
                    lower.as_ref().and_then(|(row, i)| row.single().map(|t| (t, i)))
                {
                    push(&run[0], Check::Greater(term.clone(), *inclusive));
                }
                if let Some((term, inclusive)) =
                    upper.as_ref().and_then(|(row, i)| row.single().map(|t| (t, i)))
                {
                    push(&run[0], Check::Less(term.clone(), *inclusive));
                }
            }
            Test::Looked(looked) => push(
                &run[0],
                match looked {
                    Looked::NotIn(terms) => Check::NotIn(terms.clone()),
                    Looked::NotContains(Contains::Value(term)) => Check::NotContainsValue(term.clone()),
                    Looked::NotContains(Contains::Key(term)) => Check::NotContainsKey(term.clone()),
                    Looked::NotContains(Contains::Entry(..)) => {
                        return Err(StatementError::Internal("there is no inequality of entries".to_owned()));
                    }
                    Looked::Like(pattern) => Check::Like(pattern.clone()),
                },
            ),
            Test::Contains(all) => {
                for contains in all {
                    push(
                        &run[0],
                        match contains {
                            Contains::Value(term) => Check::ContainsValue(term.clone()),
                            Contains::Key(term) => Check::ContainsKey(term.clone()),
                            Contains::Entry(key, value) => Check::ContainsEntry(key.clone(), value.clone()),
                        },
                    );
                }
            }
        }
    }
    Ok(())
}

impl Filter {
    /// The filter with the values of one execution.
    ///
    /// # Errors
    /// [`StatementError::Invalid`] for null and left-out values.
    pub fn bind<'a>(&'a self, binding: &Binding<'a>) -> Result<BoundFilter<'a>, StatementError> {
        let name = &self.column.name;
        let value = |term: &'a Term| -> Result<Cow<'a, [u8]>, StatementError> {
            term.bind(binding)?
                .set(|| format!("Unsupported unset value for column {name}"))?
                .ok_or_else(|| StatementError::Invalid(format!("Unsupported null value for column {name}")))
        };
        let values = match &self.check {
            Check::Equal(term)
            | Check::Less(term, _)
            | Check::Greater(term, _)
            | Check::ContainsValue(term)
            | Check::ContainsKey(term)
            | Check::NotContainsValue(term)
            | Check::NotContainsKey(term) => vec![value(term)?],
            Check::Like(term) => {
                let pattern = value(term)?;
                like::check(&pattern)?;
                vec![pattern]
            }
            Check::ContainsEntry(key, entry) => {
                let part = |term: &'a Term, which: &str| -> Result<Cow<'a, [u8]>, StatementError> {
                    term.bind(binding)?
                        .set(|| format!("Unsupported unset map {which} for column {name}"))?
                        .ok_or_else(|| {
                            StatementError::Invalid(format!("Unsupported null map {which} for column {name}"))
                        })
                };
                vec![part(key, "key")?, part(entry, "value")?]
            }
            Check::In(InTerms::List(rows)) | Check::NotIn(InTerms::List(rows)) => {
                let mut values = Vec::with_capacity(rows.len());
                for term in rows.iter().filter_map(RowTerm::single) {
                    let unset = || format!("Invalid unset value for column {name}");
                    // Nothing equals null.
                    values.extend(term.bind(binding)?.set(unset)?);
                }
                values
            }
            Check::In(terms) | Check::NotIn(terms) => {
                terms.bind_present(name, binding)?.into_iter().map(Cow::Borrowed).collect()
            }
        };
        Ok(BoundFilter { filter: self, values })
    }
}

impl BoundFilter<'_> {
    /// Whether a value of the column passes; collections come assembled.
    pub fn passes(&self, value: Option<&[u8]>) -> bool {
        let Some(value) = value else {
            // A missing collection contains nothing.
            return matches!(self.filter.check, Check::NotContainsValue(_) | Check::NotContainsKey(_));
        };
        let ty = &self.filter.column.ty;
        let order = |with: usize| compare(ty, value, &self.values[with]);
        match &self.filter.check {
            Check::Equal(_) => order(0).is_eq(),
            Check::In(_) => (0..self.values.len()).any(|at| order(at).is_eq()),
            Check::Less(_, inclusive) => order(0).is_lt() || (*inclusive && order(0).is_eq()),
            Check::Greater(_, inclusive) => order(0).is_gt() || (*inclusive && order(0).is_eq()),
            Check::ContainsValue(_) => self.contains_value(ty, value),
            Check::ContainsKey(_) => self.entries(ty, value).any(|(key, _)| key),
            Check::ContainsEntry(..) => self.entries(ty, value).any(|(key, value)| key && value),
            Check::NotIn(_) => !(0..self.values.len()).any(|at| order(at).is_eq()),
            Check::NotContainsValue(_) => !self.contains_value(ty, value),
            Check::NotContainsKey(_) => !self.entries(ty, value).any(|(key, _)| key),
            Check::Like(_) => like::matches(value, &self.values[0]),
        }
    }

    fn contains_value(&self, ty: &CqlType, value: &[u8]) -> bool {
        match ty {
            CqlType::List { element, .. } | CqlType::Set { element, .. } => {
                Elements::parse(value).is_ok_and(|elements| {
                    elements.flatten().any(|e| compare(element, e, &self.values[0]).is_eq())
                })
            }
            CqlType::Map { value: ty, .. } => Entries::parse(value)
                .is_ok_and(|entries| entries.flatten().any(|(_, v)| compare(ty, v, &self.values[0]).is_eq())),
            _ => false,
        }
    }

    /// For each entry of a map whether its key is the first value and its value the last.
    fn entries(&self, ty: &CqlType, map: &[u8]) -> impl Iterator<Item = (bool, bool)> {
        let CqlType::Map { key, value, .. } = ty else { return Vec::new().into_iter() };
        let last = self.values.len() - 1;
        let Ok(entries) = Entries::parse(map) else { return Vec::new().into_iter() };
        let matches: Vec<(bool, bool)> = entries
            .flatten()
            .map(|(k, v)| {
                (compare(key, k, &self.values[0]).is_eq(), compare(value, v, &self.values[last]).is_eq())
            })
            .collect();
        matches.into_iter()
    }
}
