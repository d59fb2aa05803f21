//! Guardrails of reads: pages that are too large, IN lists that are too long, disallowed filters and groups.
//!
//! Names and texts are Cassandra 5's (`org.apache.cassandra.db.guardrails`). All are off unless configured;
//! tables of the node itself are exempt.

use model::Table;
use statement::guardrails::{Guardrails, violated};
use statement::prepare::select::SelectPlan;
use statement::prepare::selection::SelectionKind;

use super::Request;
use super::select::page_limits;
use super::tombstones::TombstoneLimits;
use crate::QueryError;
use crate::engine::Engine;

/// Checks a statement before anything is read.
///
/// # Errors
/// [`QueryError::Invalid`] if a guardrail forbids the statement.
#[inline]
pub(super) fn select(
    guardrails: &Guardrails,
    engine: &Engine,
    request: &Request<'_>,
    plan: &SelectPlan,
    warnings: &mut Vec<String>,
) -> Result<(), QueryError> {
    let plain = guardrails.allow_filtering
        && guardrails.group_by
        && !guardrails.page_size.is_on()
        && guardrails.read_levels.warned.is_empty()
        && guardrails.read_levels.disallowed.is_empty();
    if plain { Ok(()) } else { select_checked(guardrails, engine, request, plan, warnings) }
}

#[cold]
fn select_checked(
    guardrails: &Guardrails,
    engine: &Engine,
    request: &Request<'_>,
    plan: &SelectPlan,
    warnings: &mut Vec<String>,
) -> Result<(), QueryError> {
    if engine.stored_table(plan.table.id()).is_none() || plan.table.keyspace().starts_with("system") {
        return Ok(());
    }
    let level = [request.parameters.consistency];
    guardrails.read_levels.check("read_consistency_levels", "read consistency levels", &level, warnings)?;
    if plan.allow_filtering && !guardrails.allow_filtering {
        return Err(violated(
            "allow_filtering",
            "Querying with ALLOW FILTERING is not allowed. ALLOW FILTERING can potentially visit all the data in \
             the table and have unpredictable performance.",
        )
        .into());
    }
    let grouped = matches!(&plan.selection.kind, SelectionKind::Groups(groups) if groups.by.is_some());
    if grouped && !guardrails.group_by {
        return Err(violated("group_by", "GROUP BY functionality is not allowed").into());
    }
    let (Some(rows), table) = (request.parameters.page_size, plan.table.name()) else { return Ok(()) };
    let in_groups = matches!(plan.selection.kind, SelectionKind::Groups(_));
    if !in_groups && page_limits(plan, request.binding, request.parameters)?.remaining <= u64::from(rows) {
        return Ok(()); // All of it is one page, however large pages may be.
    }
    guardrails.page_size.at_most(
        "page_size",
        u64::from(rows),
        warnings,
        |most| format!("Query for table {table} with page size {rows} exceeds warning threshold of {most}."),
        |most| {
            format!("Aborting query for table {table}, page size {rows} exceeds fail threshold of {most}.")
        },
    )?;
    Ok(())
}

/// Limits on the dead data that a read passes.
#[inline]
pub(super) fn tombstone_limits(guardrails: &Guardrails) -> TombstoneLimits {
    TombstoneLimits {
        fail: guardrails.tombstones.fail.unwrap_or(u64::MAX),
        page: guardrails.tombstones_of_page.unwrap_or(u64::MAX),
    }
}

/// Whether a read that passed so many tombstones gets a warning.
pub(super) fn warns_of_tombstones(guardrails: &Guardrails, seen: u64) -> bool {
    guardrails.tombstones.warn.is_some_and(|most| seen > most)
}

/// Checks the number of partitions that IN names.
///
/// # Errors
/// [`QueryError::Invalid`] if there are too many.
pub(super) fn partition_keys(
    guardrails: &Guardrails,
    table: &str,
    keys: usize,
    warnings: &mut Vec<String>,
) -> Result<(), QueryError> {
    in_product(guardrails, "partition key", keys, warnings)?;
    guardrails.partition_keys_in_select.at_most(
        "partition_keys_in_select",
        keys as u64,
        warnings,
        |most| {
            format!(
                "Query with partition keys in IN clause on table {table}, with number of partition keys {keys} \
                 exceeds warning threshold of {most}."
            )
        },
        |most| {
            format!(
                "Aborting query with partition keys in IN clause on table {table}, number of partition keys \
                 {keys} exceeds fail threshold of {most}."
            )
        },
    )?;
    Ok(())
}

/// Checks the product of the lengths of a key's IN lists.
///
/// # Errors
/// [`QueryError::Invalid`] if it is too large.
pub(super) fn in_product(
    guardrails: &Guardrails,
    what: &str,
    values: usize,
    warnings: &mut Vec<String>,
) -> Result<(), QueryError> {
    guardrails.in_select_cartesian_product.at_most(
        "in_select_cartesian_product",
        values as u64,
        warnings,
        |most| {
            format!(
                "The cartesian product of the IN restrictions on {what} produces {values} values, this exceeds \
                 warning threshold of {most}."
            )
        },
        |most| {
            format!(
                "Aborting query because the cartesian product of the IN restrictions on {what} produces {values} \
                 values, this exceeds fail threshold of {most}."
            )
        },
    )?;
    Ok(())
}

/// Whether a table belongs to the node itself, so that only this node is read.
pub(super) fn is_local(table: &Table) -> bool {
    matches!(table.keyspace(), "system" | "system_schema")
}
