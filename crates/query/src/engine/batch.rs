//! Batches of the protocol: statements by id or text, each with values of its own.

use std::rc::Rc;

use statement::functions::user::calls::Calls;
use statement::prepare::{self};
use statement::terms::Binding;
use wire::request::{BatchKind, BatchStatementKind, BatchStatements, QueryParameters};

use super::Engine;
use super::values::{Ordered, bind_values, ordered, with_ordered};
use crate::execute::{self, Part, Request};
use crate::prepared::Prepared;
use crate::prepared_cache::CachedStatement;
use crate::{ClientState, QueryError, Response};

impl Engine {
    /// Executes a batch of statements and appends VOID, or the rows of a conditional one.
    ///
    /// # Errors
    /// As [`Self::execute`]; [`QueryError::Invalid`] for statements that write nothing.
    pub async fn batch(
        &self,
        client: &ClientState,
        kind: BatchKind,
        statements: BatchStatements<'_>,
        parameters: &QueryParameters<'_>,
        out: &mut Response,
    ) -> Result<(), QueryError> {
        let keyspace = parameters.keyspace.or(client.keyspace.as_deref());
        let mut in_order = Vec::with_capacity(statements.len());
        let mut held = Vec::with_capacity(statements.len());
        for statement in statements.iter() {
            let prepared = match statement.statement {
                BatchStatementKind::Prepared(id) => Held::Cached(
                    self.0.prepared.get(id).ok_or_else(|| QueryError::Unprepared { id: id.to_vec() })?,
                ),
                BatchStatementKind::Text(text) => Held::Fresh(Box::new(self.prepare_text(keyspace, text)?)),
            };
            let markers = prepared.get().markers.len();
            if prepared.get().modification().is_none() {
                return Err(QueryError::invalid(
                    "Invalid statement in batch: only UPDATE, INSERT and DELETE statements are allowed.",
                ));
            }
            let values = bind_values(&statement.values, prepared.get()).map_err(|_| {
                QueryError::Invalid(format!(
                    "There were {markers} markers(?) in CQL but {} bound variables",
                    statement.values.len()
                ))
            })?;
            let ordered = match prepared.get().ordered_markers.is_empty() {
                true => Ordered::new(),
                false => ordered(prepared.get(), &values).await,
            };
            held.push((prepared, values));
            in_order.push(ordered);
            reactor::maybe_yield().await;
        }
        for ((_, values), ordered) in held.iter_mut().zip(&in_order) {
            if !ordered.is_empty() {
                *values = with_ordered(values, ordered);
            }
        }
        let plans = held.iter().filter_map(|(prepared, _)| prepared.get().modification());
        prepare::batch::check(kind, false, plans)?;
        let binding = Binding { values: &[], markers: &[], ambient: &self.0.ambient, calls: None };
        let now = parameters.now_in_seconds.unwrap_or_else(|| self.0.ambient.now_seconds());
        let request = Request { client, parameters, binding: &binding, now };
        let mut called = Vec::with_capacity(held.len());
        for (prepared, values) in &held {
            let prepared = prepared.get();
            let binding = Binding { values, markers: &prepared.markers, ..binding };
            called.push(match prepared.calls_user {
                true => Some(Box::pin(execute::calls::run(self, &request, prepared, &binding)).await?),
                false => None,
            });
        }
        out.warnings.extend(called.iter().flatten().flat_map(Calls::take_warnings));
        let parts: Vec<Part<'_>> = held
            .iter()
            .zip(&called)
            .filter_map(|((prepared, values), calls)| {
                let markers = &prepared.get().markers;
                let binding = Binding { values, markers, calls: calls.as_ref(), ..binding };
                prepared.get().modification().map(|plan| Part { plan, binding })
            })
            .collect();
        let start = out.body.len();
        let done = execute::batch::parts(self, &request, kind, (None, None), &parts, out).await;
        if done.is_err() {
            out.body.truncate(start);
        }
        done
    }
}

/// A statement of a batch, for as long as the batch runs.
enum Held {
    Cached(Rc<CachedStatement>),
    Fresh(Box<Prepared>),
}

impl Held {
    fn get(&self) -> &Prepared {
        match self {
            Self::Cached(statement) => &statement.prepared,
            Self::Fresh(prepared) => prepared,
        }
    }
}
