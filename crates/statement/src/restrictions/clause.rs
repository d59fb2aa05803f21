//! One restriction of one column, or of several clustering columns at once, and how two of them combine.
//!
//! Rules and messages as Cassandra 5's `SingleColumnRestriction` and `MultiColumnRestriction`.

use std::borrow::Cow;

use model::CqlType;
use model::collection::{CollectionError, Components, Elements};
use model::validate::{ValueError, validate};
use wire::values::ValueRef;

use crate::StatementError;
use crate::steps::ShortSteps;
use crate::terms::{Binding, Term};

/// Most alternatives one restriction, or all of a key together, may have: `IN` lists multiply.
pub const ALTERNATIVES_MAX: usize = 65_536;

/// One value for each column of a clause.
pub type Row<'a> = Vec<Cow<'a, [u8]>>;

/// The restriction of one column, or of a run of clustering columns.
#[derive(Debug, Clone)]
pub struct Clause {
    /// Index of the first column among those of its kind.
    pub first: usize,
    /// Names of the columns, in order.
    pub names: Vec<String>,
    /// Whether the clause was written as a tuple.
    pub multi: bool,
    /// The test.
    pub test: Test,
}

/// A restriction's test.
#[derive(Debug, Clone)]
pub enum Test {
    /// Equal to this.
    Equal(RowTerm),
    /// Equal to one of these.
    In(InTerms),
    /// Between these.
    Slice {
        /// Lower bound, and whether it belongs.
        lower: Option<(RowTerm, bool)>,
        /// Upper bound, and whether it belongs.
        upper: Option<(RowTerm, bool)>,
    },
    /// The collection holds these.
    Contains(Vec<Contains>),
    /// A test that has to examine rows.
    Looked(Looked),
}

/// Tests that do not bound keys, and can be combined with any other of the same column: ALLOW FILTERING is
/// always needed.
#[derive(Debug, Clone)]
pub enum Looked {
    /// None of these.
    NotIn(InTerms),
    /// The collection does not hold this.
    NotContains(Contains),
    /// The text matches this pattern.
    Like(Term),
}

/// One thing a collection must hold.
#[derive(Debug, Clone)]
pub enum Contains {
    /// An element, or a value of a map.
    Value(Term),
    /// A key of a map.
    Key(Term),
    /// A key with this value.
    Entry(Term, Term),
}

/// Values of the columns of a clause.
#[derive(Debug, Clone)]
pub enum RowTerm {
    /// One term for each.
    Parts(Vec<Term>),
    /// One marker for all, of this tuple type.
    Marker {
        /// Place among the markers.
        index: usize,
        /// Types of the columns.
        types: Vec<CqlType>,
    },
}

/// The alternatives of IN.
#[derive(Debug, Clone)]
pub enum InTerms {
    /// A list as written.
    List(Vec<RowTerm>),
    /// One marker for the list.
    Marker {
        /// Index among the markers.
        index: usize,
        /// Types of the columns; each element is a value, or a tuple if the clause is a tuple.
        types: Vec<CqlType>,
    },
}

impl Clause {
    /// How many columns it is about.
    pub fn width(&self) -> usize {
        self.names.len()
    }

    /// Place behind its last column.
    pub fn end(&self) -> usize {
        self.first + self.names.len()
    }

    /// Whether each column has one value, or one of several.
    pub fn is_equality(&self) -> bool {
        matches!(self.test, Test::Equal(_) | Test::In(_))
    }

    /// Whether the clause bounds a range.
    pub fn is_slice(&self) -> bool {
        matches!(self.test, Test::Slice { .. })
    }

    /// Whether the clause tests the contents of a collection.
    pub fn is_contains(&self) -> bool {
        matches!(self.test, Test::Contains(_))
    }

    /// Names of the columns that both restrict, joined as by Cassandra.
    fn common(&self, other: &Self) -> String {
        let common: Vec<&str> =
            self.names.iter().filter(|name| other.names.contains(name)).map(String::as_str).collect();
        common.join(" ,")
    }

    /// Merges another restriction into this one.
    ///
    /// # Errors
    /// [`StatementError::Invalid`] if the two exclude each other.
    pub fn merge(&mut self, other: Self) -> Result<(), StatementError> {
        let columns = self.common(&other);
        match (&mut self.test, other.test) {
            (Test::Equal(_), _) => Err(StatementError::Invalid(format!(
                "{columns} cannot be restricted by more than one relation if it includes an Equal"
            ))),
            (Test::In(_), _) => Err(StatementError::Invalid(format!(
                "{columns} cannot be restricted by more than one relation if it includes a IN"
            ))),
            (Test::Slice { lower, upper }, Test::Slice { lower: other_lower, upper: other_upper }) => {
                if self.first != other.first {
                    return Err(StatementError::Invalid(format!(
                        "Column \"{columns}\" cannot be restricted by two inequalities not starting with the same column"
                    )));
                }
                // For tuples of different length the bounds keep their lengths; the longer tuple names the
                // columns.
                for (have, add, which) in [(lower, other_lower, "start"), (upper, other_upper, "end")] {
                    if have.is_some() && add.is_some() {
                        return Err(StatementError::Invalid(format!(
                            "More than one restriction was found for the {which} bound on {columns}"
                        )));
                    }
                    if add.is_some() {
                        *have = add;
                    }
                }
                if other.names.len() > self.names.len() {
                    self.names = other.names;
                }
                self.multi |= other.multi;
                Ok(())
            }
            (Test::Slice { .. }, _) => Err(StatementError::Invalid(format!(
                "Column \"{columns}\" cannot be restricted by both an equality and an inequality relation"
            ))),
            (Test::Contains(all), Test::Contains(more)) => {
                all.extend(more);
                Ok(())
            }
            (Test::Looked(_), _) => {
                Err(StatementError::Internal("a test of rows is merged with nothing".to_owned()))
            }
            (Test::Contains(_), _) => Err(StatementError::Invalid(format!(
                "Collection column {columns} can only be restricted by CONTAINS, CONTAINS KEY, or map-entry equality"
            ))),
        }
    }
}

impl RowTerm {
    /// Number of columns it has values for.
    pub fn width(&self) -> usize {
        match self {
            Self::Parts(parts) => parts.len(),
            Self::Marker { types, .. } => types.len(),
        }
    }

    /// The single term, if there is only one.
    pub fn single(&self) -> Option<&Term> {
        if let Self::Parts(parts) = self { parts.first().filter(|_| parts.len() == 1) } else { None }
    }

    /// The values; `asked` selects the error for values that are null or unset.
    ///
    /// # Errors
    /// [`StatementError::Invalid`] naming a value that is null or unset, or for a wrong tuple.
    pub fn bind<'a>(
        &'a self,
        names: &[String],
        asked: Asked,
        binding: &Binding<'a>,
    ) -> Result<Row<'a>, StatementError> {
        match self {
            Self::Parts(parts) => parts
                .iter()
                .enumerate()
                .map(|(at, part)| {
                    let value = part.bind(binding)?.set(|| asked.unset(names, at))?;
                    value.ok_or_else(|| asked.null(names, at))
                })
                .collect(),
            Self::Marker { index, types } => match binding.values[*index] {
                ValueRef::Null => Err(null_value(&names[0])),
                ValueRef::Unset => Err(StatementError::Invalid(format!(
                    "Invalid unset value for tuple ({})",
                    names.join(",")
                ))),
                ValueRef::Bytes(bytes) => split_tuple(bytes, types, names, asked),
            },
        }
    }
}

/// The place in which values of columns occur: selects the error for values that are null or unset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// On its own.
    Column,
    /// In a tuple that is compared for equality.
    Tuple,
    /// In a tuple that bounds a range.
    Bound,
    /// In a tuple of a list.
    In,
}

impl Asked {
    #[cold]
    fn null(self, names: &[String], at: usize) -> StatementError {
        match self {
            Self::Column | Self::Bound => null_value(&names[at]),
            Self::Tuple => StatementError::Invalid(format!("Invalid null value for column {}", names[at])),
            Self::In => StatementError::Invalid(format!(
                "Invalid null value in condition for columns: [{}]",
                names.join(", ")
            )),
        }
    }

    #[cold]
    fn unset(self, names: &[String], at: usize) -> String {
        match self {
            Self::Column => format!("Invalid unset value for column {}", names[at]),
            Self::Tuple | Self::Bound | Self::In => {
                format!("Invalid unset value for tuple field number {at}")
            }
        }
    }
}

/// The value of a key column.
///
/// # Errors
/// [`StatementError::Invalid`] if it is null or unset.
#[inline]
pub fn bind_value<'a>(
    term: &'a Term,
    name: &str,
    binding: &Binding<'a>,
) -> Result<Cow<'a, [u8]>, StatementError> {
    term.bind(binding)?
        .set(|| format!("Invalid unset value for column {name}"))?
        .ok_or_else(|| null_value(name))
}

/// The error for a null that could not match any row.
pub fn null_value(name: &str) -> StatementError {
    StatementError::Invalid(format!("Invalid null value in condition for column {name}"))
}

fn split_tuple<'a>(
    bytes: &'a [u8],
    types: &[CqlType],
    names: &[String],
    asked: Asked,
) -> Result<Row<'a>, StatementError> {
    let invalid = |text: String| StatementError::Invalid(text);
    validate(&CqlType::Tuple(types.to_vec()), bytes).map_err(|e| invalid(e.to_string()))?;
    let mut components = Components::new(bytes);
    let mut row = Vec::with_capacity(types.len());
    for at in 0..types.len() {
        let component = components.next().transpose().map_err(|e| invalid(e.to_string()))?.flatten();
        row.push(Cow::Borrowed(component.ok_or_else(|| asked.null(names, at))?));
    }
    Ok(row)
}

impl InTerms {
    /// The alternatives, in the order given; `asked` is [`Asked::In`] for tuples.
    ///
    /// # Errors
    /// [`StatementError::Invalid`] naming a value that is null, unset or too much.
    pub fn bind<'a>(
        &'a self,
        names: &[String],
        asked: Asked,
        binding: &Binding<'a>,
    ) -> Result<Vec<Row<'a>>, StatementError> {
        match self {
            Self::List(rows) => {
                let steps = ShortSteps::default();
                let bound = rows.iter().inspect(|_| steps.step());
                bound.map(|row| row.bind(names, asked, binding)).collect()
            }
            Self::Marker { index, types } => {
                let bytes = match binding.values[*index] {
                    ValueRef::Null => {
                        return Err(StatementError::Invalid(match (names, asked) {
                            ([name], Asked::Column) => format!("Invalid null value for column {name}"),
                            _ => "Invalid null value for IN restriction".to_owned(),
                        }));
                    }
                    ValueRef::Unset => {
                        return Err(StatementError::Invalid(match (names, asked) {
                            ([name], Asked::Column) => format!("Invalid unset value for column {name}"),
                            _ => format!("Invalid unset value for in({})", names.join(",")),
                        }));
                    }
                    ValueRef::Bytes(bytes) => bytes,
                };
                split_list(bytes, types, names, asked)
            }
        }
    }
}

impl InTerms {
    /// The alternatives of one column's marker that are not null, for a filter: nothing equals null.
    ///
    /// # Errors
    /// As [`InTerms::bind`], but for nulls.
    pub fn bind_present<'a>(
        &self,
        name: &str,
        binding: &Binding<'a>,
    ) -> Result<Vec<&'a [u8]>, StatementError> {
        let wrong = |what| Err(StatementError::Invalid(format!("Invalid {what} value for column {name}")));
        match (self, self.marker_list()) {
            (Self::Marker { index, .. }, Some(list)) => match binding.values[*index] {
                ValueRef::Null => wrong("null"),
                ValueRef::Unset => wrong("unset"),
                ValueRef::Bytes(bytes) => Ok(in_values(bytes, &list)?.into_iter().flatten().collect()),
            },
            _ => Err(StatementError::Internal(format!("{name} is held against a marker that is none"))),
        }
    }

    /// The type of the list that a marker of one column is bound to.
    fn marker_list(&self) -> Option<CqlType> {
        let Self::Marker { types, .. } = self else { return None };
        let [single] = types.as_slice() else { return None };
        Some(CqlType::List { element: Box::new(single.clone()), frozen: true })
    }
}

/// The alternatives of a list that is bound to IN: tuples if columns are in parentheses, even a single one.
fn split_list<'a>(
    bytes: &'a [u8],
    types: &[CqlType],
    names: &[String],
    asked: Asked,
) -> Result<Vec<Row<'a>>, StatementError> {
    let element = match (types, asked) {
        ([single], Asked::Column) => single.clone(),
        _ => CqlType::Tuple(types.to_vec()),
    };
    in_values(bytes, &CqlType::List { element: Box::new(element), frozen: true })?
        .into_iter()
        .map(|element| {
            let element = element.ok_or_else(|| null_value(&names[0]))?;
            match asked {
                Asked::Column => Ok(vec![Cow::Borrowed(element)]),
                _ => split_tuple(element, types, names, asked),
            }
        })
        .collect()
}

/// The elements of a list that is bound to IN.
///
/// # Errors
/// [`StatementError::Invalid`] if the bytes are not such a `list`, or have more than [`ALTERNATIVES_MAX`]
/// elements.
pub fn in_values<'a>(bytes: &'a [u8], list: &CqlType) -> Result<Vec<Option<&'a [u8]>>, StatementError> {
    let values = looked_for(bytes, list)?;
    if values.len() > ALTERNATIVES_MAX {
        return Err(too_many());
    }
    Ok(values)
}

/// The elements of a list that is bound and whose elements are searched for. Unlike a stored list it may hold
/// nulls.
///
/// # Errors
/// [`StatementError::Invalid`] if the bytes are not such a `list`.
pub fn looked_for<'a>(bytes: &'a [u8], list: &CqlType) -> Result<Vec<Option<&'a [u8]>>, StatementError> {
    let invalid = |error: ValueError| StatementError::Invalid(error.to_string());
    let holds_null = match validate(list, bytes) {
        Ok(()) => false,
        Err(ValueError::NullElement) => true,
        Err(error) => return Err(invalid(error)),
    };
    let broken = |error: CollectionError| StatementError::Invalid(error.to_string());
    let elements = Elements::parse(bytes).map_err(broken)?;
    let declared = elements.remaining();
    if !holds_null {
        return elements.map(|element| element.map(Some).map_err(broken)).collect();
    }
    let CqlType::List { element, .. } = list else { return Err(invalid(ValueError::NullElement)) };
    let mut parts = Components::new(bytes.get(4..).unwrap_or_default());
    // Each element takes at least four bytes.
    let mut values = Vec::with_capacity(declared.min(bytes.len() / 4));
    for _ in 0..declared {
        let part = parts.next().transpose().map_err(broken)?;
        let part = part.ok_or_else(|| StatementError::invalid("Not enough bytes to read a list"))?;
        part.map_or(Ok(()), |value| validate(element, value)).map_err(invalid)?;
        values.push(part);
    }
    Ok(values)
}

/// The error for a statement with too many alternatives.
pub fn too_many() -> StatementError {
    StatementError::Invalid(format!(
        "The IN restrictions of the statement have more than {ALTERNATIVES_MAX} combinations"
    ))
}
