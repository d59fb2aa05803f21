//! Converts the operations of a modification into the cells of one row.
//!
//! Cells are ordered by column id and, within a collection, by path, as [`RowBuilder`] requires.

mod multi_cell;

use std::borrow::Cow;

use model::deletion::{EXPIRATION_MAX, LocalSeconds};
use model::row::CellKind;
use model::{CellView, Column, DeletionTime, Liveness, RowBuilder, RowView, Table, reconcile};
use statement::prepare::operation::{Action, Count, Operation};
use statement::steps::ShortSteps;
use statement::terms::{Binding, Bound};
use wire::values::ValueRef;

use crate::QueryError;

pub use multi_cell::field_path;
use multi_cell::{HeldList, grow, list_element, multi_cell};

/// Largest time to live: 20 years (Cassandra's `Attributes.MAX_TTL`).
pub const TTL_SECONDS_MAX: i32 = 20 * 365 * 24 * 3600;

/// When and for how long an execution writes.
#[derive(Debug, Clone, Copy)]
pub struct Stamp {
    /// Client timestamp in microseconds.
    pub timestamp: i64,
    /// The present time in seconds, from which tombstones count their grace period.
    pub now: LocalSeconds,
    /// Time to live in seconds, 0 for ever.
    pub ttl: u32,
    /// Timestamp of deletions of more than a row. Those of a conditional write come before all its other
    /// writes, so that its statements may delete a partition and write a row of it. The deletion of a row or
    /// of a collection also deletes what the other statements write to it, as in Cassandra.
    pub deletion_timestamp: i64,
}

impl Stamp {
    /// The deletion of a partition or of a range in it.
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

    /// The cell kind of a cell that is deleted now.
    #[inline]
    pub fn tombstone(&self) -> CellKind<'static> {
        CellKind::Tombstone { local_time: self.now }
    }
}

/// A cell of a collection before it is sorted into place.
struct Element<'a> {
    path: Cow<'a, [u8]>,
    /// `None` is a tombstone.
    value: Option<Cow<'a, [u8]>>,
}

/// Appends a row with the writes of `operations`; returns false and appends nothing if there are none.
///
/// # Errors
/// [`QueryError::Invalid`] for values that cannot be written; nothing stays appended.
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
        // Most operations set a column with one cell to the value of a marker.
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
        let mut held = HeldList::default();
        for operation in group {
            match &operation.action {
                Action::SetIndex(..) | Action::DeleteIndex(_) | Action::RemoveValues(_) => {
                    held.follow(table, column, existing.filter(|_| deletion.is_none()), &elements);
                    list_element(column, &operation.action, &held.elements, binding, &mut elements)?;
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
    let steps = ShortSteps::default();
    elements.sort_by(|a, b| {
        steps.step();
        table.compare_paths(column.id, &a.path, &b.path)
    });
    let mut at = 0;
    while at < elements.len() {
        steps.step();
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

/// The amount that is added to a counter.
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

fn broken(error: model::collection::CollectionError) -> QueryError {
    QueryError::Invalid(error.to_string())
}
