//! Executes prepared statements.

pub mod batch;
pub(crate) mod calls;
mod cells;
mod collections;
mod condition;
mod conditional;
pub mod consistency;
pub(crate) mod counter;
pub(crate) mod disk_guard;
mod evaluate;
pub mod fetch;
mod fragments;
mod groups;
mod guard;
mod json;
mod marker_row;
pub mod modify;
pub mod one_row;
mod open_group;
mod parallel;
pub mod point;
pub mod prior;
pub mod routing;
pub mod row_writer;
pub mod rows;
pub mod select;
mod sort;
mod stamps;
mod tombstones;
mod truncate;
pub mod update_buffer;
pub mod updates;
mod write_guard;

use model::deletion::LocalSeconds;
use statement::prepare::Plan;
use statement::prepare::modify::ModifyPlan;
use statement::results::{self, MetadataMode};
use statement::terms::Binding;
use wire::request::QueryParameters;

use crate::engine::{Engine, Left};
use crate::prepared::Prepared;
use crate::{ClientState, QueryError, Response};
use crate::{agreement, describe};

/// One execution of a statement.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The client.
    pub client: &'a ClientState,
    /// Its options.
    pub parameters: &'a QueryParameters<'a>,
    /// The values.
    pub binding: &'a Binding<'a>,
    /// The request's present time, seconds.
    pub now: LocalSeconds,
}

/// One modification with its values.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// The statement's plan.
    pub plan: &'a ModifyPlan,
    /// The values.
    pub binding: Binding<'a>,
}

/// Executes one statement and appends its RESULT body; `left` says how far an attempt to answer at once came.
///
/// # Errors
/// Any [`QueryError`].
#[inline]
pub async fn statement(
    engine: &Engine,
    request: &Request<'_>,
    prepared: &Prepared,
    mode: MetadataMode,
    left: Left,
    out: &mut Response,
) -> Result<(), QueryError> {
    if prepared.calls_user && request.binding.calls.is_none() {
        return Box::pin(calls::statement(engine, request, prepared, mode, out)).await;
    }
    match &prepared.plan {
        Plan::Select(plan) => reactor::in_place!(select::execute(engine, request, plan, mode, left, out)),
        Plan::Modify(plan) => reactor::in_place!(modify::execute(engine, request, plan, out)),
        // The plans below are rare: their futures are kept out of the hot one.
        Plan::Batch(plan) => Box::pin(batch::execute(engine, request, plan, out)).await,
        Plan::Truncate(table, timeout) => {
            let timeout = updates::timeout(timeout.as_ref(), request.binding)?;
            Box::pin(truncate::execute(engine, table, timeout, out)).await
        }
        Plan::Use(keyspace) => use_keyspace(engine, keyspace, out),
        Plan::Schema(statement, keyspace) => {
            Box::pin(agreement::execute(request.client, statement, keyspace.as_deref(), out)).await
        }
        Plan::Describe(statement) => {
            describe::execute(engine, request.client, statement, request.parameters, out)
        }
    }
}

fn use_keyspace(engine: &Engine, keyspace: &str, out: &mut Response) -> Result<(), QueryError> {
    if !engine.config().guardrails.use_statements {
        const PROHIBITED: &str = "USE statements prohibited. (see use_statements_enabled in cassandra.yaml)";
        return Err(QueryError::invalid(PROHIBITED));
    }
    if !engine.has_keyspace(keyspace) {
        return Err(QueryError::Invalid(format!("Keyspace '{keyspace}' does not exist")));
    }
    results::append_set_keyspace(&mut out.body, keyspace);
    out.set_keyspace = Some(keyspace.into());
    Ok(())
}
