//! Turns the operations of a modification into the cells of one row.
//!
//! Cells come out by column id and, within a collection, by path: what [`RowBuilder`] asks for.

use std::borrow::Cow;

use model::collection::{Components, Elements, Entries};
use model::deletion::{EXPIRATION_MAX, LocalSeconds};
use model::row::CellKind;
use model::{CellView, Column, CqlType, DeletionTime, Liveness, RowBuilder, RowView, Table, reconcile};

use wire::values::ValueRef;

use super::cells;
use crate::QueryError;
use crate::functions::{Accumulator, AggregateKind};
use crate::prepare::operation::{Action, Count, Operation};
use crate::restrictions::clause::looked_for;
use crate::terms::{Binding, Bound, Term};

/// Largest time to live: 20 years (Cassandra's `Attributes.MAX_TTL`).
pub const TTL_SECONDS_MAX: i32 = 20 * 365 * 24 * 3600;

/// When and for how long an execution writes.
#[derive(Debug, Clone, Copy)]
pub struct Stamp {
    /// Client timestamp in microseconds.
    pub timestamp: i64,
    /// Seconds now, where tombstones count their grace from.
    pub now: LocalSeconds,
    /// Time to live in seconds, 0 for ever.
    pub ttl: u32,
    /// Timestamp of deletions of more than a row: a conditional write's come before all else it writes, so that its
    /// statements may delete a partition and write a row of it. What deletes a row, or a collection, deletes what the
    /// others write to it as well, as in Cassandra.
    pub deletion_timestamp: i64,
}

impl Stamp {
    /// The deletion of a partition or a range of it.
    pub fn deletion(&self) -> DeletionTime {
        DeletionTime { timestamp: self.deletion_timestamp, local_time: self.now }
    }

    /// The deletion of a row.
    pub fn row_deletion(&self) -> DeletionTime {
        DeletionTime { timestamp: self.timestamp, local_time: self.now }
    }

    /// The marker of an inserted row.
    pub fn liveness(&self) -> Liveness {
        if self.ttl == 0 {
            return Liveness { timestamp: self.timestamp, ..Liveness::NONE };
        }
        Liveness { timestamp: self.timestamp, ttl: self.ttl, expires_at: self.expires_at() }
    }

    fn expires_at(&self) -> LocalSeconds {
        self.now.saturating_add(self.ttl).min(EXPIRATION_MAX)
    }

    /// A value written now.
    #[inline]
    pub fn value<'v>(&self, value: &'v [u8]) -> CellKind<'v> {
        if self.ttl == 0 {
            CellKind::Live(value)
        } else {
            CellKind::Expiring { value, ttl: self.ttl, expires_at: self.expires_at() }
        }
    }

    /// What a cell deleted now becomes.
    #[inline]
    pub fn tombstone(&self) -> CellKind<'static> {
        CellKind::Tombstone { local_time: self.now }
    }
}

/// A cell of a collection before it has found its place.
struct Element<'a> {
    path: Cow<'a, [u8]>,
    /// `None` is a tombstone.
    value: Option<Cow<'a, [u8]>>,
}

/// Appends a row with what `operations` write; returns false, with nothing appended, where that is nothing.
///
/// # Errors
/// [`QueryError::Invalid`] for values that cannot be written; what was appended is taken back.
pub fn append_row(
    table: &Table,
    operations: &[Operation],
    existing: Option<RowView<'_>>,
    stamp: &Stamp,
    liveness: Liveness,
    binding: &Binding<'_>,
    out: &mut Vec<u8>,
) -> Result<bool, QueryError> {
    let start = out.len();
    let mut builder = RowBuilder::new(out, liveness, DeletionTime::LIVE);
    let mut cells = 0;
    let written = fill(table, operations, existing, stamp, binding, &mut builder, &mut cells);
    builder.finish();
    if written.is_err() || (cells == 0 && liveness.is_none()) {
        out.truncate(start);
        return written.map(|()| false);
    }
    Ok(true)
}

fn fill(
    table: &Table,
    operations: &[Operation],
    existing: Option<RowView<'_>>,
    stamp: &Stamp,
    binding: &Binding<'_>,
    builder: &mut RowBuilder<'_>,
    cells: &mut usize,
) -> Result<(), QueryError> {
    let mut rest = operations;
    while let Some(first) = rest.first() {
        // Most operations by far give a column of one cell the value of a marker.
        if let Action::Set(term) = &first.action
            && rest.get(1).is_none_or(|next| next.column.id != first.column.id)
            && let Some(value) = term.marker(binding)?
        {
            rest = &rest[1..];
            let kind = match value {
                ValueRef::Unset => continue,
                ValueRef::Null => stamp.tombstone(),
                ValueRef::Bytes(value) => stamp.value(value),
            };
            builder.cell(CellView { column: first.column.id, timestamp: stamp.timestamp, path: None, kind });
            *cells += 1;
            continue;
        }
        let same = rest.iter().take_while(|operation| operation.column.id == first.column.id).count();
        let (group, behind) = rest.split_at(same);
        rest = behind;
        let column = &first.column;
        if !column.ty.is_multi_cell() {
            if matches!(first.action, Action::Count(..)) && group.len() > 1 {
                counters(column, group, stamp, binding, builder, cells)?;
                continue;
            }
            // Of several operations on one cell the last one counts; only DELETE may name a column twice.
            for operation in &group[group.len() - 1..] {
                single_cell(column, &operation.action, existing, stamp, binding, builder, cells)?;
            }
            continue;
        }
        let mut deletion = None;
        let mut elements = Vec::new();
        for operation in group {
            match &operation.action {
                Action::SetIndex(..) | Action::DeleteIndex(_) | Action::RemoveValues(_) => {
                    let held = held(table, column, existing, deletion.is_some(), &elements);
                    list_element(column, &operation.action, &held, binding, &mut elements)?;
                }
                action => multi_cell(column, action, stamp, binding, &mut deletion, &mut elements)?,
            }
        }
        if let Some(timestamp) = deletion {
            let kind = CellKind::CollectionDeletion { local_time: stamp.now };
            builder.cell(CellView { column: column.id, timestamp, path: None, kind });
            *cells += 1;
        }
        *cells += elements.len();
        append_elements(table, column, stamp, elements, builder);
    }
    Ok(())
}

fn append_elements(
    table: &Table,
    column: &Column,
    stamp: &Stamp,
    mut elements: Vec<Element<'_>>,
    builder: &mut RowBuilder<'_>,
) {
    elements.sort_by(|a, b| table.compare_paths(column.id, &a.path, &b.path));
    let mut at = 0;
    while at < elements.len() {
        let mut winner = as_cell(column, stamp, &elements[at]);
        let mut next = at + 1;
        while next < elements.len()
            && table.compare_paths(column.id, &elements[at].path, &elements[next].path).is_eq()
        {
            winner = reconcile::cell(winner, as_cell(column, stamp, &elements[next]));
            next += 1;
        }
        builder.cell(winner);
        at = next;
    }
}

fn as_cell<'e>(column: &Column, stamp: &Stamp, element: &'e Element<'_>) -> CellView<'e> {
    let kind = match &element.value {
        Some(value) => stamp.value(value),
        None => stamp.tombstone(),
    };
    CellView { column: column.id, timestamp: stamp.timestamp, path: Some(&element.path), kind }
}

#[inline]
fn single_cell(
    column: &Column,
    action: &Action,
    existing: Option<RowView<'_>>,
    stamp: &Stamp,
    binding: &Binding<'_>,
    builder: &mut RowBuilder<'_>,
    cells: &mut usize,
) -> Result<(), QueryError> {
    let (bound, grown, delta);
    let kind = match action {
        Action::Set(term) => {
            bound = term.bind(binding)?;
            match &bound {
                Bound::Unset => return Ok(()),
                Bound::Null => stamp.tombstone(),
                Bound::Value(value) => stamp.value(value),
            }
        }
        Action::Delete => stamp.tombstone(),
        Action::Count(term, way) => {
            delta = match term.bind(binding)? {
                Bound::Unset => return Ok(()),
                Bound::Null => {
                    return Err(QueryError::invalid("Invalid null value for counter increment"));
                }
                Bound::Value(value) => count(&value, *way)?.to_be_bytes(),
            };
            CellKind::Counter(&delta)
        }
        Action::Plus(term) | Action::Append(term) => {
            match grow(column, action, existing, term.bind(binding)?)? {
                None => return Ok(()),
                Some(value) => {
                    grown = value;
                    stamp.value(&grown)
                }
            }
        }
        _ => return Err(QueryError::Internal(format!("column {} has one cell", column.name))),
    };
    builder.cell(CellView { column: column.id, timestamp: stamp.timestamp, path: None, kind });
    *cells += 1;
    Ok(())
}

/// Several changes of one counter in one statement are one.
#[cold]
fn counters(
    column: &Column,
    group: &[Operation],
    stamp: &Stamp,
    binding: &Binding<'_>,
    builder: &mut RowBuilder<'_>,
    cells: &mut usize,
) -> Result<(), QueryError> {
    let mut sum = None;
    for operation in group {
        let Action::Count(term, way) = &operation.action else {
            return Err(QueryError::Internal(format!("column {} is a counter", column.name)));
        };
        match term.bind(binding)? {
            Bound::Unset => {}
            Bound::Null => return Err(QueryError::invalid("Invalid null value for counter increment")),
            Bound::Value(value) => sum = Some(count(&value, *way)?.wrapping_add(sum.unwrap_or(0))),
        }
    }
    let Some(sum) = sum.map(i64::to_be_bytes) else { return Ok(()) };
    let kind = CellKind::Counter(&sum);
    builder.cell(CellView { column: column.id, timestamp: stamp.timestamp, path: None, kind });
    *cells += 1;
    Ok(())
}

/// By how much a counter goes up.
fn count(value: &[u8], way: Count) -> Result<i64, QueryError> {
    let by = value.try_into().map(i64::from_be_bytes);
    let by = by.map_err(|_| QueryError::invalid("Invalid empty value for counter increment"))?;
    match way {
        Count::Up => Ok(by),
        Count::Down if by == i64::MIN => Err(QueryError::Invalid(format!(
            "The negation of {by} overflows supported counter precision (signed 8 bytes integer)"
        ))),
        Count::Down => Ok(-by),
    }
}

/// What is there with `by` added to it or put behind it; `None` where nothing is there or `by` was left out.
#[cold]
fn grow(
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

fn multi_cell<'a>(
    column: &Column,
    action: &'a Action,
    stamp: &Stamp,
    binding: &Binding<'a>,
    deletion: &mut Option<i64>,
    elements: &mut Vec<Element<'a>>,
) -> Result<(), QueryError> {
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

/// The elements of a list as they were with what the statement has done to it so far, in order.
fn held(
    table: &Table,
    column: &Column,
    existing: Option<RowView<'_>>,
    deleted: bool,
    pending: &[Element<'_>],
) -> Vec<Held> {
    let mut held: Vec<Held> = match existing {
        Some(row) if !deleted => cells::of(row, column)
            .map(|cell| (cell.path.unwrap_or_default().to_vec(), cell.value().unwrap_or_default().to_vec()))
            .collect(),
        _ => Vec::new(),
    };
    for element in pending {
        held.retain(|(path, _)| path.as_slice() != &*element.path);
        if let Some(value) = &element.value {
            held.push((element.path.to_vec(), value.to_vec()));
        }
    }
    if !pending.is_empty() {
        held.sort_by(|(a, _), (b, _)| table.compare_paths(column.id, a, b));
    }
    held
}

/// Changes elements of a list found by what it held before.
fn list_element<'a>(
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
            // The same bytes: of equal values written in two ways (1.0 and 1.00) only the one that is named goes.
            gone.sort_unstable();
            for (path, value) in held {
                if gone.binary_search(&&value[..]).is_ok() {
                    elements.push(Element { path: Cow::Owned(path.clone()), value: None });
                }
            }
        }
        _ => return Err(QueryError::Internal(format!("column {} is changed without a read", column.name))),
    }
    Ok(())
}

fn map_key<'a>(key: &'a Term, binding: &Binding<'a>) -> Result<Cow<'a, [u8]>, QueryError> {
    key.bind(binding)?
        .set(|| "Invalid unset map key".to_owned())?
        .ok_or_else(|| QueryError::invalid("Invalid null map key"))
}

/// Path of a field of a user type: its place as two bytes.
pub fn field_path(at: usize) -> Cow<'static, [u8]> {
    Cow::Owned((at as u16).to_be_bytes().to_vec())
}

fn broken(error: model::collection::CollectionError) -> QueryError {
    QueryError::Invalid(error.to_string())
}

/// The elements of a serialised collection or user type, each as a cell.
fn spread(
    column: &Column,
    value: Cow<'_, [u8]>,
    binding: &Binding<'_>,
    prepend: bool,
    elements: &mut Vec<Element<'_>>,
) -> Result<(), QueryError> {
    let owned = |bytes: &[u8]| Cow::Owned(bytes.to_vec());
    match &column.ty {
        CqlType::List { .. } => {
            let mut values: Vec<&[u8]> =
                Elements::parse(&value).map_err(broken)?.collect::<Result<_, _>>().map_err(broken)?;
            if prepend {
                // Each gets a path before the last one given, so they are taken from the back.
                values.reverse();
            }
            for value in values {
                let path =
                    if prepend { binding.ambient.prepend_timeuuid() } else { binding.ambient.timeuuid() };
                elements.push(Element { path: owned(path.as_bytes()), value: Some(owned(value)) });
            }
        }
        CqlType::Set { .. } => {
            for element in Elements::parse(&value).map_err(broken)? {
                let path = owned(element.map_err(broken)?);
                elements.push(Element { path, value: Some(Cow::Borrowed(&[])) });
            }
        }
        CqlType::Map { .. } => {
            for entry in Entries::parse(&value).map_err(broken)? {
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
