//! Guardrails of writes: disallowed timestamps, levels and list operations, and values and collections that
//! are too large.
//!
//! Names, texts and counts are Cassandra 5's (`org.apache.cassandra.db.guardrails`). A collection is checked
//! as it is written, without its existing elements, so that nothing is read for it.

use model::row::CellKind;
use model::{CellView, Column, RowView, Table};
use statement::guardrails::{Threshold, WriteGuardrails, allowed};
use statement::prepare::modify::ModifyPlan;
use statement::prepare::operation::Action;
use wire::consistency::Consistency;

use super::update_buffer::PartitionUpdate;
use super::updates::{self, Moment};
use super::{Part, Request};
use crate::QueryError;

/// Bytes that Cassandra counts for a cell besides its value and path: its timestamp, TTL and local deletion
/// time.
const CELL_BYTES: u64 = 8 + 4 + 8;

/// Checks a request's consistency levels.
///
/// # Errors
/// [`QueryError::Invalid`] if one is not allowed.
pub(super) fn request(
    guards: &WriteGuardrails,
    request: &Request<'_>,
    warnings: &mut Vec<String>,
) -> Result<(), QueryError> {
    let parameters = request.parameters;
    let serial = parameters.serial_consistency.unwrap_or(Consistency::Serial);
    let given = [parameters.consistency, serial];
    guards.levels.check("write_consistency_levels", "write consistency levels", &given, warnings)?;
    Ok(())
}

/// Checks a statement before it is executed.
///
/// # Errors
/// [`QueryError::Invalid`] if a guardrail forbids it.
pub(super) fn statement(guards: &WriteGuardrails, part: &Part<'_>) -> Result<(), QueryError> {
    let plan = part.plan;
    if plan.timestamp.is_some() {
        allowed(guards.user_timestamps, "user_timestamps", "User provided timestamps (USING TIMESTAMP)")?;
    }
    for operation in plan.regulars.iter().chain(&plan.statics) {
        let what = match &operation.action {
            Action::SetIndex(..) => "Setting of list items by index requiring read before write",
            Action::DeleteIndex(_) => "Removal of list items by index requiring read before write",
            Action::RemoveValues(_) => "Removal of list items requiring read before write",
            _ => continue,
        };
        allowed(guards.read_before_write_lists, "read_before_write_list_operations", what)?;
    }
    Ok(())
}

/// Checks the timestamp of a statement that is not in a batch.
///
/// # Errors
/// [`QueryError::Guardrail`] if it is too far from now.
pub(super) fn timestamp(
    guards: &WriteGuardrails,
    part: &Part<'_>,
    moment: Moment,
    warnings: &mut Vec<String>,
) -> Result<(), QueryError> {
    let Some(term) = &part.plan.timestamp else { return Ok(()) };
    let timestamp = updates::timestamp(term, &part.binding)?.unwrap_or(moment.timestamp);
    let now_us = part.binding.ambient.now_ms() * 1000;
    let table = part.plan.table.name();
    const LATE: &str = "Timestamps too far in the future can lead to data that can't be easily overwritten";
    const EARLY: &str = "Timestamps too far in the past can cause writes can be unexpectedly lost";
    let shift = |by: Option<u64>, sign: i64| {
        let shifted = |by: u64| {
            now_us.saturating_add(sign.saturating_mul(i64::try_from(by).unwrap_or(i64::MAX))).max(0)
        };
        by.map(|by| shifted(by).unsigned_abs())
    };
    let at = |threshold: Threshold, sign| Threshold {
        warn: shift(threshold.warn, sign),
        fail: shift(threshold.fail, sign),
    };
    // No threshold lies before the epoch.
    let value = u64::try_from(timestamp).unwrap_or(0);
    let say = |side: &str, which: &str, threshold: u64, reason: &str| {
        format!(
            "The modification to table {table} has a timestamp {timestamp} {side} allowable {which} threshold \
             {threshold}. {reason}"
        )
    };
    at(guards.maximum_timestamp_us, 1).at_most(
        "maximum_timestamp",
        value,
        warnings,
        |most| say("after the maximum", "warning", most, LATE),
        |most| say("after the maximum", "failure", most, LATE),
    )?;
    at(guards.minimum_timestamp_us, -1).at_least("minimum_timestamp", value, warnings, |which, least| {
        say("before the minimum", which, least, EARLY)
    })?;
    Ok(())
}

/// Checks the data that a statement writes.
///
/// # Errors
/// [`QueryError::Invalid`] if a value or a collection is too large.
pub(super) fn update<'p>(
    guards: &WriteGuardrails,
    update: &PartitionUpdate,
    plans: impl Iterator<Item = &'p ModifyPlan> + Clone,
    warnings: &mut Vec<String>,
) -> Result<(), QueryError> {
    let sizes = [guards.column_value_bytes, guards.collection_bytes, guards.items_per_collection];
    if !sizes.into_iter().any(Threshold::is_on) {
        return Ok(());
    }
    // Elements that are set one by one are not checked as a collection.
    let whole = |column: &Column| {
        let operations = plans.clone().flat_map(|plan| plan.regulars.iter().chain(&plan.statics));
        let mut actions = operations.filter(|of| of.column.id == column.id).map(|of| &of.action).peekable();
        actions.peek().is_none()
            || actions.any(|action| !matches!(action, Action::SetEntry(..) | Action::SetIndex(..)))
    };
    update.written_rows().try_for_each(|row| check_row(guards, &update.table, row, &whole, warnings))
}

fn check_row(
    guards: &WriteGuardrails,
    table: &Table,
    row: RowView<'_>,
    whole: &dyn Fn(&Column) -> bool,
    warnings: &mut Vec<String>,
) -> Result<(), QueryError> {
    let mut cells = row.cells().peekable();
    while let Some(first) = cells.next() {
        let Some(column) = table.column_by_id(first.column) else { continue };
        let mut of_column = vec![first];
        while let Some(cell) = cells.next_if(|cell| cell.column == first.column) {
            of_column.push(cell);
        }
        check_column(guards, column, &of_column, whole(column), warnings)?;
    }
    Ok(())
}

fn check_column(
    guards: &WriteGuardrails,
    column: &Column,
    cells: &[CellView<'_>],
    whole: bool,
    warnings: &mut Vec<String>,
) -> Result<(), QueryError> {
    let name = &column.name;
    let bytes = |cell: &CellView<'_>| {
        let length = |part: Option<&[u8]>| part.map_or(0, |part| part.len() as u64);
        CELL_BYTES + length(cell.value()) + length(cell.path)
    };
    let live = || cells.iter().filter(|cell| cell.value().is_some());
    let is_collection = column.ty.is_collection() && whole;
    let items = if column.ty.is_multi_cell() {
        live().count() as u64
    } else {
        live().filter_map(|cell| cell.value()).map(elements).sum()
    };
    if is_collection && items > 0 {
        let say = |which: &str, most: u64| {
            format!(
                "Detected collection {name} with {items} items, this exceeds the {which} threshold of {most}."
            )
        };
        guards.items_per_collection.at_most(
            "items_per_collection",
            items,
            warnings,
            |most| say("warning", most),
            |most| say("failure", most),
        )?;
    }
    for cell in cells.iter().filter(|cell| !matches!(cell.kind, CellKind::CollectionDeletion { .. })) {
        for part in [cell.value(), cell.path].into_iter().flatten() {
            let size = part.len() as u64;
            let say = |which: &str, most: u64| {
                format!(
                    "Value of column '{name}' has size {size}, this exceeds the {which} threshold of {most}."
                )
            };
            guards.column_value_bytes.at_most(
                "column_value_size",
                size,
                warnings,
                |most| say("warning", most),
                |most| say("failure", most),
            )?;
        }
    }
    if is_collection && live().next().is_some() {
        let size: u64 = live().map(bytes).sum();
        let say = |which: &str, most: u64| {
            format!(
                "Detected collection {name} of size {size}, this exceeds the {which} threshold of {most}."
            )
        };
        guards.collection_bytes.at_most(
            "collection_size",
            size,
            warnings,
            |most| say("warning", most),
            |most| say("failure", most),
        )?;
    }
    Ok(())
}

/// Number of elements of a frozen collection, from its first bytes.
fn elements(value: &[u8]) -> u64 {
    let count = value.first_chunk::<4>().map_or(0, |count| i32::from_be_bytes(*count));
    u64::try_from(count).unwrap_or(0)
}
