//! Counters as statements see them: deltas on their way in, one number for each on their way out.

use std::time::Duration;

use model::row::CellKind;
use model::{CellView, RowBuilder, RowView, Table, Token, counter};
use statement::prepare::modify::ModifyPlan;
use statement::results;
use storage::{Dead, Flow, Place, RowConsumer};
use wire::consistency::Consistency as Wire;

use super::prior::Prior;
use super::update_buffer::PartitionUpdate;
use super::updates;
use super::{Request, consistency, modify, routing};
use crate::engine::{Engine, WriteBuffers};
use crate::load::Timed;
use crate::{QueryError, Response};

/// Executes a modification of a table of counters and appends VOID.
///
/// # Errors
/// [`QueryError`] of values, consistency or storage. After a timeout the counters may have changed.
pub(super) async fn execute(
    engine: &Engine,
    request: &Request<'_>,
    plan: &ModifyPlan,
    out: &mut Response,
) -> Result<(), QueryError> {
    check_level(request.parameters.consistency, &plan.table)?;
    let moment = modify::moment(engine, request);
    let timeout = updates::timeout(plan.timeout.as_ref(), request.binding)?;
    let mut scratch = engine.scratch(&plan.table);
    let scratch = &mut *scratch;
    let WriteBuffers { key, updates, mutation } = &mut scratch.write;
    let mut partitions = modify::Partitions { updates, used: 0 };
    let slices = &mut scratch.read.slices;
    let prior = Prior::default();
    let add = || updates::add(plan, request.binding, moment, &prior, key, slices, &mut partitions);
    updates::make(plan, request.binding, add).await?;
    let used = partitions.used;
    for update in &updates[..used] {
        mutation.clear();
        count(engine, request.parameters.consistency, update, mutation, timeout).await?;
    }
    if let [update] = &updates[..used] {
        routing::hint(engine, request.client, &plan.table, update.token, &mut out.tablet_payload);
    }
    results::append_void(&mut out.body);
    Ok(())
}

/// Writes the deltas of one partition; `mutation` is an empty buffer.
///
/// # Errors
/// As [`execute`].
pub(super) async fn count(
    engine: &Engine,
    level: Wire,
    update: &PartitionUpdate,
    mutation: &mut Vec<u8>,
    timeout: Option<Duration>,
) -> Result<(), QueryError> {
    if update.is_empty() {
        return Ok(());
    }
    update.encode(mutation);
    let timed = Timed::new(&engine.load_of(&update.table));
    let counted = engine.count(&update.table, mutation, consistency::for_write(level)?, timeout).await;
    timed.end();
    counted
}

/// Refuses levels that counters do not have.
///
/// # Errors
/// [`QueryError::Invalid`] for ANY and serial levels.
pub(super) fn check_level(level: Wire, table: &Table) -> Result<(), QueryError> {
    match level {
        Wire::Any => Err(QueryError::Invalid(format!(
            "Consistency level ANY is not yet supported for counter table {}",
            table.name()
        ))),
        Wire::Serial | Wire::LocalSerial => {
            Err(QueryError::invalid("Counter operations are inherently non-serializable"))
        }
        _ => Ok(()),
    }
}

/// Gives a consumer rows of a table of counters with the number of each in place of its context.
pub(crate) struct Totals<'c> {
    inner: &'c mut dyn RowConsumer,
    buffer: Vec<u8>,
}

impl<'c> Totals<'c> {
    pub(crate) fn new(inner: &'c mut dyn RowConsumer) -> Self {
        Self { inner, buffer: Vec::new() }
    }

    fn fill(&mut self, row: RowView<'_>) {
        self.buffer.clear();
        let mut builder = RowBuilder::new(&mut self.buffer, row.liveness(), row.deletion());
        for cell in row.cells() {
            match cell.kind {
                CellKind::Counter(context) => {
                    let total = counter::total(context).to_be_bytes();
                    builder.cell(CellView { kind: CellKind::Live(&total), ..cell });
                }
                _ => builder.cell(cell),
            }
        }
        builder.finish();
    }
}

impl RowConsumer for Totals<'_> {
    fn partition(&mut self, key: &[u8], token: Token, static_row: Option<RowView<'_>>) -> Flow {
        let Some(row) = static_row else { return self.inner.partition(key, token, None) };
        self.fill(row);
        self.inner.partition(key, token, Some(RowView::trusted(&self.buffer)))
    }

    fn row(&mut self, clustering: &[u8], row: RowView<'_>) -> Flow {
        self.fill(row);
        self.inner.row(clustering, RowView::trusted(&self.buffer))
    }

    fn partition_end(&mut self) -> Flow {
        self.inner.partition_end()
    }

    fn dead(&mut self, dead: Dead, place: Place<'_>) -> Flow {
        self.inner.dead(dead, place)
    }
}
