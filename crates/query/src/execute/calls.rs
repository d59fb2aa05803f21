//! Runs the user-defined functions called in a statement's terms, before the statement itself.
//!
//! Values are bound in one go, in which no function could be waited for. So each call in a term has run by
//! then, in slices, in the order in which the terms were prepared. Functions over rows run while rows are
//! read (`fetch`).

use std::time::Duration;

use reactor::Deadline;
use statement::functions::user::calls::Calls;
use statement::prepare::Plan;
use statement::results::MetadataMode;
use statement::terms::Binding;

use wire::error::WriteType;

use super::{Request, consistency, statement as execute, updates};
use crate::engine::{Engine, Left};
use crate::prepared::Prepared;
use crate::{QueryError, Response};

/// Executes a statement that calls user-defined functions.
///
/// # Errors
/// Those of functions and of the statement.
pub(super) async fn statement(
    engine: &Engine,
    request: &Request<'_>,
    prepared: &Prepared,
    mode: MetadataMode,
    out: &mut Response,
) -> Result<(), QueryError> {
    let calls = run(engine, request, prepared, request.binding).await?;
    let binding = Binding { calls: Some(&calls), ..*request.binding };
    let request = Request { binding: &binding, ..*request };
    let executed = Box::pin(execute(engine, &request, prepared, mode, Left::Untried, out)).await;
    out.warnings.append(&mut calls.take_warnings());
    executed
}

/// Runs the functions that terms of a statement, or of a part of a batch, call with these values.
///
/// # Errors
/// Those of functions; a timeout of the statement's kind if they take longer than the statement may.
pub(crate) async fn run(
    engine: &Engine,
    request: &Request<'_>,
    prepared: &Prepared,
    binding: &Binding<'_>,
) -> Result<Calls, QueryError> {
    let calls = Calls::default();
    if prepared.calls.is_empty() {
        return Ok(calls);
    }
    let config = engine.config();
    let (own, default) = match &prepared.plan {
        Plan::Select(plan) if plan.restrictions.key_range => (&plan.timeout, config.range_timeout),
        Plan::Select(plan) => (&plan.timeout, config.read_timeout),
        Plan::Modify(plan) => (&plan.timeout, config.write_timeout),
        Plan::Batch(plan) => (&plan.timeout, config.write_timeout),
        _ => (&None, config.write_timeout),
    };
    let binding = Binding { calls: Some(&calls), ..*binding };
    let own: Option<Duration> = updates::timeout(own.as_ref(), &binding)?;
    let deadline = Deadline::after(own.unwrap_or(default));
    for call in &prepared.calls {
        let value = calls
            .through(deadline, || late(engine, request, prepared), || Ok(call.compute(&binding)?))
            .await?;
        calls.push_term(value);
    }
    Ok(calls)
}

fn late(engine: &Engine, request: &Request<'_>, prepared: &Prepared) -> QueryError {
    let level = request.parameters.consistency;
    match &prepared.plan {
        Plan::Select(plan) => match consistency::for_read(level) {
            Ok(level) => consistency::late(engine, plan.table.keyspace(), level),
            Err(error) => error,
        },
        plan => {
            let table = match plan {
                Plan::Modify(plan) => Some(&plan.table),
                Plan::Batch(plan) => plan.statements.first().map(|statement| &statement.table),
                _ => None,
            };
            match (table, consistency::for_write(level)) {
                (Some(table), Ok(level)) => {
                    let required = engine.replicator().required(table.keyspace(), level);
                    let error = required.map_or_else(
                        |error| error,
                        |required| replication::ReplicationError::timed_out(0, required),
                    );
                    let kind = match plan {
                        Plan::Batch(_) => WriteType::Batch,
                        _ => WriteType::Simple,
                    };
                    consistency::write_error(error, level, kind, table, &[])
                }
                (_, Err(error)) => error,
                (None, _) => QueryError::Internal("a function was called by no read or write".to_owned()),
            }
        }
    }
}
