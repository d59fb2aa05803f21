//! The changes that a modification makes to columns, prepared: SET, the columns of INSERT, the selections of
//! DELETE.
//!
//! Rules and messages are those of Cassandra 5's `Operation`. Which operations are allowed depends on the
//! column's type, on whether the statement is conditional (then it may read the stored row), and on counters,
//! which only go up and down.

use cql::ast::{self, AssignmentOperation, DeleteSelection};
use model::{Column, ColumnKind, CqlType, Table};

use crate::StatementError;
use crate::names;
use crate::terms::prepare::Context;
use crate::terms::{Receiver, Term, text};

/// One column's change.
#[derive(Debug)]
pub struct Operation {
    /// The column.
    pub column: Column,
    /// How it changes.
    pub action: Action,
}

/// How a column changes.
#[derive(Debug)]
pub enum Action {
    /// The one cell takes a value.
    Set(Term),
    /// All elements are replaced by those of a value.
    Replace(Term),
    /// The elements of a value are added; to a list at the end.
    Add(Term),
    /// The elements of a value are put before a list.
    Prepend(Term),
    /// The elements of a set are taken away; of a map those keys.
    Remove(Term),
    /// The entry of a map at a key takes a value.
    SetEntry(Term, Term),
    /// A field takes a value.
    SetField(usize, Term),
    /// The column, or all its elements, are deleted.
    Delete,
    /// The element of a set, or the entry of a map, is deleted.
    DeleteElement(Term),
    /// A field is deleted.
    DeleteField(usize),
    /// The element of a list at an index takes a value.
    SetIndex(Term, Term),
    /// The element of a list at an index is deleted.
    DeleteIndex(Term),
    /// The elements of a list that are equal to one of a value's are taken away.
    RemoveValues(Term),
    /// A counter goes up or down.
    Count(Term, Count),
    /// A number is added to the stored one; without a stored one nothing changes.
    Plus(Term),
    /// A text is appended to the stored one; without a stored one nothing changes.
    Append(Term),
}

/// Which way a counter goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// `c = c + …`
    Up,
    /// `c = c - …`
    Down,
}

impl Action {
    /// Whether the new cells depend on the stored row.
    pub fn needs_read(&self) -> bool {
        matches!(
            self,
            Self::SetIndex(..)
                | Self::DeleteIndex(_)
                | Self::RemoveValues(_)
                | Self::Plus(_)
                | Self::Append(_)
        )
    }
}

/// Whether values of the type can be added up.
fn is_number(ty: &CqlType) -> bool {
    matches!(
        ty,
        CqlType::Tinyint
            | CqlType::Smallint
            | CqlType::Int
            | CqlType::Bigint
            | CqlType::Varint
            | CqlType::Float
            | CqlType::Double
            | CqlType::Decimal
    )
}

/// A column takes a value.
///
/// # Errors
/// [`StatementError::Invalid`] for values of other types and for counters.
pub(super) fn set(
    cx: &mut Context<'_>,
    column: &Column,
    value: &ast::Term,
) -> Result<Operation, StatementError> {
    let term = cx.prepare(value, &Receiver::column(cx.table, column))?;
    if column.ty == CqlType::Counter {
        return Err(StatementError::Invalid(format!(
            "Cannot set the value of counter column {} (counters can only be incremented/decremented, not set)",
            column.name
        )));
    }
    let action = if column.ty.is_multi_cell() { Action::Replace(term) } else { Action::Set(term) };
    Ok(Operation { column: column.clone(), action })
}

/// An operation as messages show it.
fn shown(column: &Column, operation: &AssignmentOperation) -> String {
    let name = &column.name;
    match operation {
        AssignmentOperation::Set(value) => format!("{name} = {}", text::of_term(value)),
        // Cassandra shows a minus here too.
        AssignmentOperation::Prepend(value) => format!("{name} = {} - {name}", text::of_term(value)),
        AssignmentOperation::Add(value) => format!("{name} = {name} + {}", text::of_term(value)),
        AssignmentOperation::Subtract(value) => format!("{name} = {name} - {}", text::of_term(value)),
        AssignmentOperation::SetElement { key, value } => {
            format!("{name}[{}] = {}", text::of_term(key), text::of_term(value))
        }
        AssignmentOperation::SetField { field, value } => {
            format!("{name}.{} = {}", field.name, text::of_term(value))
        }
    }
}

/// One item of SET. If `conditional`, the statement reads the stored row in any case.
///
/// # Errors
/// [`StatementError::Invalid`] for an operation that the column's type does not have.
pub(super) fn assign(
    cx: &mut Context<'_>,
    column: &Column,
    operation: &AssignmentOperation,
    conditional: bool,
) -> Result<Operation, StatementError> {
    let wrong = |what: &str| {
        StatementError::Invalid(format!(
            "Invalid operation ({}) for {what} column {}",
            shown(column, operation),
            column.name
        ))
    };
    let whole = Receiver::column(cx.table, column);
    let action = match operation {
        AssignmentOperation::Set(value) => return set(cx, column, value),
        AssignmentOperation::Prepend(value) => match &column.ty {
            CqlType::List { frozen: false, .. } => Action::Prepend(cx.prepare(value, &whole)?),
            CqlType::List { .. } => return Err(wrong("frozen list")),
            CqlType::Set { .. } | CqlType::Map { .. } => return Err(wrong("non list")),
            _ => return Err(wrong("non list")),
        },
        AssignmentOperation::Add(value) => match &column.ty {
            ty if ty.is_collection() && !ty.is_multi_cell() => return Err(wrong("frozen collection")),
            CqlType::Map { .. } => Action::Add(cx.prepare(value, &whole).map_err(|_| {
                StatementError::Invalid(format!(
                    "Value for a map addition has to be a map, but was: '{}'",
                    text::of_term(value)
                ))
            })?),
            ty if ty.is_collection() => Action::Add(cx.prepare(value, &whole)?),
            CqlType::Tuple(_) | CqlType::Udt(_) => return Err(wrong("tuple")),
            CqlType::Counter => Action::Count(cx.prepare(value, &whole)?, Count::Up),
            CqlType::Ascii | CqlType::Text if conditional => Action::Append(cx.prepare(value, &whole)?),
            ty if conditional && is_number(ty) => Action::Plus(cx.prepare(value, &whole)?),
            _ if conditional => {
                return Err(StatementError::Invalid(format!(
                    "Invalid operation ({}) for non-numeric and non-text type {}",
                    shown(column, operation),
                    column.name
                )));
            }
            _ => return Err(wrong("non counter")),
        },
        AssignmentOperation::Subtract(value) => match &column.ty {
            ty if ty.is_collection() && !ty.is_multi_cell() => return Err(wrong("frozen collection")),
            CqlType::Map { key, .. } => {
                let keys = CqlType::Set { element: key.clone(), frozen: false };
                Action::Remove(cx.prepare(value, &Receiver::new(&column.name, keys)).map_err(|_| {
                    StatementError::Invalid(format!(
                        "Value for a map substraction has to be a set, but was: '{}'",
                        text::of_term(value)
                    ))
                })?)
            }
            CqlType::Set { .. } => Action::Remove(cx.prepare(value, &whole)?),
            CqlType::List { .. } => Action::RemoveValues(cx.prepare(value, &whole)?),
            CqlType::Counter => Action::Count(cx.prepare(value, &whole)?, Count::Down),
            _ => return Err(wrong("non counter")),
        },
        AssignmentOperation::SetElement { key, value } => match &column.ty {
            ty if !ty.is_collection() => return Err(wrong("non collection")),
            ty if !ty.is_multi_cell() => return Err(wrong("frozen collection")),
            CqlType::Map { key: key_type, value: value_type, .. } => {
                let key = cx.prepare(key, &Receiver::key_of(&column.name, (**key_type).clone()))?;
                let value = cx.prepare(value, &Receiver::value_of(&column.name, (**value_type).clone()))?;
                Action::SetEntry(key, value)
            }
            CqlType::Set { .. } => return Err(wrong("set")),
            CqlType::List { element, .. } => {
                let index = cx.prepare(key, &Receiver::index_of(&column.name))?;
                let value = cx.prepare(value, &Receiver::value_of(&column.name, (**element).clone()))?;
                Action::SetIndex(index, value)
            }
            _ => return Err(wrong("non collection")),
        },
        AssignmentOperation::SetField { field, value } => {
            let CqlType::Udt(udt) = &column.ty else { return Err(wrong("non-UDT")) };
            if udt.frozen {
                return Err(wrong("frozen UDT"));
            }
            let at = field_place(column, &field.name)?;
            let receiver = Receiver::new(format!("{}.{}", column.name, field.name), udt.fields[at].1.clone());
            Action::SetField(at, cx.prepare(value, &receiver)?)
        }
    };
    Ok(Operation { column: column.clone(), action })
}

/// Place of a field of a column's user type.
///
/// # Errors
/// [`StatementError::Invalid`] if the type has no field of that name.
pub(super) fn field_place(column: &Column, field: &str) -> Result<usize, StatementError> {
    let fields = if let CqlType::Udt(udt) = &column.ty { &udt.fields[..] } else { &[] };
    fields.iter().position(|(name, _)| name == field).ok_or_else(|| {
        StatementError::Invalid(format!("UDT column {} does not have a field named {field}", column.name))
    })
}

/// One selection of a DELETE.
///
/// # Errors
/// [`StatementError::Invalid`] for an operation that the column's type does not have.
pub(super) fn deletion(
    cx: &mut Context<'_>,
    table: &Table,
    selection: &DeleteSelection,
) -> Result<Operation, StatementError> {
    let name = match selection {
        DeleteSelection::Column(name)
        | DeleteSelection::Element { column: name, .. }
        | DeleteSelection::Field { column: name, .. } => name,
    };
    let column = names::column(table, name)?;
    if matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering) {
        return Err(StatementError::Invalid(format!(
            "Invalid identifier {} for deletion (should not be a PRIMARY KEY part)",
            column.name
        )));
    }
    let invalid = |text: String| Err(StatementError::Invalid(text));
    let action = match selection {
        DeleteSelection::Column(_) => Action::Delete,
        DeleteSelection::Element { key, .. } => match &column.ty {
            ty if !ty.is_collection() => {
                return invalid(format!(
                    "Invalid deletion operation for non collection column {}",
                    column.name
                ));
            }
            ty if !ty.is_multi_cell() => {
                return invalid(format!(
                    "Invalid deletion operation for frozen collection column {}",
                    column.name
                ));
            }
            CqlType::Map { key: ty, .. } => {
                Action::DeleteElement(cx.prepare(key, &Receiver::key_of(&column.name, (**ty).clone()))?)
            }
            CqlType::Set { element, .. } => Action::DeleteElement(
                cx.prepare(key, &Receiver::value_of(&column.name, (**element).clone()))?,
            ),
            _ => Action::DeleteIndex(cx.prepare(key, &Receiver::index_of(&column.name))?),
        },
        DeleteSelection::Field { field, .. } => {
            let CqlType::Udt(udt) = &column.ty else {
                return invalid(format!(
                    "Invalid field deletion operation for non-UDT column {}",
                    column.name
                ));
            };
            if udt.frozen {
                return invalid(format!(
                    "Frozen UDT column {} does not support field deletions",
                    column.name
                ));
            }
            Action::DeleteField(field_place(column, &field.name)?)
        }
    };
    Ok(Operation { column: column.clone(), action })
}
