//! Assignments to collections and user types that are not frozen: a cell for each element.

use std::borrow::Cow;

use model::collection::{Components, Elements, Entries};
use model::{Column, CqlType, RowView, Table};
use statement::functions::{Accumulator, AggregateKind};
use statement::prepare::operation::Action;
use statement::restrictions::clause::looked_for;
use statement::steps::ShortSteps;
use statement::terms::{Binding, Bound, Term};
use wire::values::ValueRef;

use super::super::cells;
use super::{Element, Stamp, broken};
use crate::QueryError;

/// The existing value increased by `by` or with `by` appended; `None` if there is no value or `by` is unset.
#[cold]
pub(super) fn grow(
    column: &Column,
    action: &Action,
    existing: Option<RowView<'_>>,
    by: Bound<'_>,
) -> Result<Option<Vec<u8>>, QueryError> {
    let by = match by {
        Bound::Unset => return Ok(None),
        Bound::Null => {
            return Err(QueryError::Invalid(format!(
                "Invalid null value for an addition to {}",
                column.name
            )));
        }
        Bound::Value(by) => by,
    };
    let Some(current) = existing.and_then(|row| cells::single(row, column)) else { return Ok(None) };
    if matches!(action, Action::Append(_)) {
        return Ok(Some([current, &by].concat()));
    }
    let mut sum = Accumulator::new(AggregateKind::Sum, &column.ty);
    sum.add(Some(current))?;
    sum.add(Some(&by))?;
    Ok(sum.result())
}

pub(super) fn multi_cell<'a>(
    column: &Column,
    action: &'a Action,
    stamp: &Stamp,
    binding: &Binding<'a>,
    deletion: &mut Option<i64>,
    elements: &mut Vec<Element<'a>>,
) -> Result<(), QueryError> {
    let steps = ShortSteps::default();
    match action {
        Action::Replace(term) => match term.bind(binding)? {
            Bound::Unset => {}
            Bound::Null => *deletion = Some(stamp.timestamp - 1),
            Bound::Value(value) => {
                // One less, so that the elements written beside it stay.
                *deletion = Some(stamp.timestamp - 1);
                spread(column, value, binding, false, elements)?;
            }
        },
        Action::Add(term) | Action::Prepend(term) => {
            if let Bound::Value(value) = term.bind(binding)? {
                spread(column, value, binding, matches!(action, Action::Prepend(_)), elements)?;
            }
        }
        Action::Remove(term) => {
            if let Bound::Value(value) = term.bind(binding)? {
                for element in Elements::parse(&value).map_err(broken)? {
                    steps.step();
                    let path = Cow::Owned(element.map_err(broken)?.to_vec());
                    elements.push(Element { path, value: None });
                }
            }
        }
        Action::SetEntry(key, value) => {
            let path = map_key(key, binding)?;
            match value.bind(binding)? {
                Bound::Unset => {}
                Bound::Null => elements.push(Element { path, value: None }),
                Bound::Value(value) => elements.push(Element { path, value: Some(value) }),
            }
        }
        Action::SetField(at, value) => {
            let path = field_path(*at);
            match value.bind(binding)? {
                Bound::Unset => {}
                Bound::Null => elements.push(Element { path, value: None }),
                Bound::Value(value) => elements.push(Element { path, value: Some(value) }),
            }
        }
        Action::Delete => *deletion = Some(stamp.timestamp),
        Action::DeleteElement(key) => {
            let path = match &column.ty {
                CqlType::Set { .. } => match key.bind(binding)? {
                    Bound::Unset => return Ok(()),
                    Bound::Null => return Err(QueryError::invalid("Invalid null set element")),
                    Bound::Value(element) => element,
                },
                _ => map_key(key, binding)?,
            };
            elements.push(Element { path, value: None });
        }
        Action::DeleteField(at) => elements.push(Element { path: field_path(*at), value: None }),
        _ => {
            return Err(QueryError::Internal(format!("column {} has many cells", column.name)));
        }
    }
    Ok(())
}

/// Path and value of an element of a list.
type Held = (Vec<u8>, Vec<u8>);

/// The elements of a list with the statement's changes so far.
#[derive(Debug, Default)]
pub(super) struct HeldList {
    /// In the order of their paths.
    pub(super) elements: Vec<Held>,
    /// Whether the stored elements are among them, and how many changes are.
    taken: (bool, usize),
}

impl HeldList {
    /// Takes the stored elements, and the changes that came since it was called last. `existing` is the
    /// stored row, unless the statement deletes the list.
    pub(super) fn follow(
        &mut self,
        table: &Table,
        column: &Column,
        existing: Option<RowView<'_>>,
        changes: &[Element<'_>],
    ) {
        let steps = ShortSteps::default();
        if self.taken.0 != existing.is_some() {
            let stored = existing.into_iter().flat_map(|row| cells::of(row, column));
            let stored = stored.inspect(|_| steps.step());
            let part = |bytes: Option<&[u8]>| bytes.unwrap_or_default().to_vec();
            self.elements = stored.map(|cell| (part(cell.path), part(cell.value()))).collect();
            self.taken = (existing.is_some(), 0);
        }
        for change in &changes[self.taken.1..] {
            reactor::give_way();
            let place = self
                .elements
                .binary_search_by(|(path, _)| table.compare_paths(column.id, path, &change.path));
            match (place, &change.value) {
                (Ok(at), Some(value)) => self.elements[at].1 = value.to_vec(),
                (Ok(at), None) => drop(self.elements.remove(at)),
                (Err(at), Some(value)) => self.elements.insert(at, (change.path.to_vec(), value.to_vec())),
                (Err(_), None) => {}
            }
        }
        self.taken.1 = changes.len();
    }
}

pub(super) fn list_element<'a>(
    column: &Column,
    action: &'a Action,
    held: &[Held],
    binding: &Binding<'a>,
    elements: &mut Vec<Element<'a>>,
) -> Result<(), QueryError> {
    let at = |index: &Term, what: &str| -> Result<Cow<'static, [u8]>, QueryError> {
        let index = index
            .bind(binding)?
            .set(|| "Invalid unset value for list index".to_owned())?
            .ok_or_else(|| QueryError::invalid("Invalid null value for list index"))?;
        if held.is_empty() {
            return Err(QueryError::Invalid(format!("Attempted to {what} a list which is null")));
        }
        let index = index.as_ref().try_into().map(i32::from_be_bytes).unwrap_or(-1);
        let (path, _) = usize::try_from(index).ok().and_then(|at| held.get(at)).ok_or_else(|| {
            QueryError::Invalid(format!("List index {index} out of bound, list has size {}", held.len()))
        })?;
        Ok(Cow::Owned(path.clone()))
    };
    match action {
        Action::SetIndex(index, value) => {
            let path = at(index, "set an element on")?;
            match value.bind(binding)? {
                Bound::Unset => {}
                Bound::Null => elements.push(Element { path, value: None }),
                Bound::Value(value) => elements.push(Element { path, value: Some(value) }),
            }
        }
        Action::DeleteIndex(index) if index.bind(binding)? == Bound::Unset => {}
        Action::DeleteIndex(index) => {
            elements.push(Element { path: at(index, "delete an element from")?, value: None });
        }
        Action::RemoveValues(term) => {
            let bound;
            let mut gone: Vec<&[u8]> = if let Term::Marker { index, ty } = term {
                let ValueRef::Bytes(values) = binding.values[*index] else { return Ok(()) };
                // No element equals a null among them.
                looked_for(values, ty)?.into_iter().flatten().collect()
            } else {
                bound = term.bind(binding)?;
                let Some(values) = bound.as_bytes() else { return Ok(()) };
                Elements::parse(values).map_err(broken)?.collect::<Result<_, _>>().map_err(broken)?
            };
            // Compared as bytes: of equal values written in two ways (1.0 and 1.00) only the named one is
            // removed.
            gone.sort_unstable();
            let steps = ShortSteps::default();
            for (path, value) in held {
                steps.step();
                if gone.binary_search(&&value[..]).is_ok() {
                    elements.push(Element { path: Cow::Owned(path.clone()), value: None });
                }
            }
        }
        _ => return Err(QueryError::Internal(format!("column {} is changed without a read", column.name))),
    }
    Ok(())
}

pub(super) fn map_key<'a>(key: &'a Term, binding: &Binding<'a>) -> Result<Cow<'a, [u8]>, QueryError> {
    key.bind(binding)?
        .set(|| "Invalid unset map key".to_owned())?
        .ok_or_else(|| QueryError::invalid("Invalid null map key"))
}

/// Path of a field of a user type: its place as two bytes.
pub fn field_path(at: usize) -> Cow<'static, [u8]> {
    Cow::Owned((at as u16).to_be_bytes().to_vec())
}

/// The elements of a serialised collection or user type, each as a cell.
pub(super) fn spread(
    column: &Column,
    value: Cow<'_, [u8]>,
    binding: &Binding<'_>,
    prepend: bool,
    elements: &mut Vec<Element<'_>>,
) -> Result<(), QueryError> {
    let owned = |bytes: &[u8]| Cow::Owned(bytes.to_vec());
    let steps = ShortSteps::default();
    match &column.ty {
        CqlType::List { .. } => {
            let mut values: Vec<&[u8]> =
                Elements::parse(&value).map_err(broken)?.collect::<Result<_, _>>().map_err(broken)?;
            if prepend {
                // Each gets a path before the last one given, so they are taken from the back.
                values.reverse();
            }
            for value in values {
                steps.step();
                let path =
                    if prepend { binding.ambient.prepend_timeuuid() } else { binding.ambient.timeuuid() };
                elements.push(Element { path: owned(path.as_bytes()), value: Some(owned(value)) });
            }
        }
        CqlType::Set { .. } => {
            for element in Elements::parse(&value).map_err(broken)? {
                steps.step();
                let path = owned(element.map_err(broken)?);
                elements.push(Element { path, value: Some(Cow::Borrowed(&[])) });
            }
        }
        CqlType::Map { .. } => {
            for entry in Entries::parse(&value).map_err(broken)? {
                steps.step();
                let (key, value) = entry.map_err(broken)?;
                elements.push(Element { path: owned(key), value: Some(owned(value)) });
            }
        }
        CqlType::Udt(udt) => {
            for (at, field) in Components::new(&value).enumerate().take(udt.fields.len()) {
                if let Some(field) = field.map_err(broken)? {
                    elements.push(Element { path: field_path(at), value: Some(owned(field)) });
                }
            }
        }
        _ => return Err(QueryError::Internal(format!("column {} has one cell", column.name))),
    }
    Ok(())
}
