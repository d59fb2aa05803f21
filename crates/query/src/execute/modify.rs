//! Executes INSERT, UPDATE and DELETE; `one_row` has the usual ones.

use std::time::Duration;

use model::token::murmur3_token;
use replication::Consistency;
use statement::prepare::modify::{ModifyPlan, Route};
use statement::results;
use wire::error::WriteType;

use super::batch::WRITES_AT_ONCE;
use super::disk_guard::DiskUsage;
use super::prior::Prior;
use super::update_buffer::PartitionUpdate;
use super::updates::{self, Moment, Updates};
use super::write_guard;
use super::{Part, Request, conditional, consistency, counter, json, routing};
use crate::engine::{Engine, WriteBuffers};
use crate::load::Timed;
use crate::{QueryError, Response};

/// Executes a modification and appends VOID.
///
/// # Errors
/// [`QueryError`] of values, consistency or storage.
#[inline]
pub async fn execute(
    engine: &Engine,
    request: &Request<'_>,
    plan: &ModifyPlan,
    out: &mut Response,
) -> Result<(), QueryError> {
    if let Some(guards) = &engine.config().guardrails.writes {
        write_guard::request(guards, request, &mut out.warnings)?;
        let part = Part { plan, binding: *request.binding };
        write_guard::statement(guards, &part)?;
        write_guard::timestamp(guards, &part, moment(engine, request), &mut out.warnings)?;
        if guards.disk_percent.is_on() {
            Box::pin(DiskUsage::check(engine, guards, &mut out.warnings)).await?;
        }
    }
    match plan.route {
        Route::Plain => {
            let prior = Prior::default();
            reactor::in_place!(write(engine, request, plan, &prior, out))
        }
        // Rare: boxed, so that the future of a plain write does not carry their space.
        Route::ReadFirst => Box::pin(read_first(engine, request, plan, out)).await,
        Route::Conditional => Box::pin(conditional::single(engine, request, plan, out)).await,
        Route::Counter => Box::pin(counter::execute(engine, request, plan, out)).await,
        Route::Json => match &plan.json {
            Some(values) => Box::pin(json::execute(engine, request, plan, values, out)).await,
            None => Err(QueryError::Internal("INSERT JSON without values".to_owned())),
        },
    }
}

/// Has replicas take the encoded mutation of one update.
#[inline]
pub(super) async fn send(
    engine: &Engine,
    update: &PartitionUpdate,
    mutation: &[u8],
    (level, write_type): (Consistency, WriteType),
    timeout: Option<Duration>,
) -> Result<(), QueryError> {
    let table = &update.table;
    let failed = |error| Engine::write_failed(error, table, mutation, level, write_type);
    let begun = match engine.replicator().can_begin_writes() {
        true => engine.begin_mutation(table, (mutation, update.token), level, timeout),
        false => Ok(None),
    };
    match begun {
        Ok(Some(pending)) => reactor::in_place!(pending.finish(mutation)).map_err(failed),
        // Boxed, so that a write that begins at once carries no space for it.
        Ok(None) => Box::pin(engine.write(table, mutation, level, write_type, timeout)).await,
        Err(error) => Err(failed(error)),
    }
}

async fn read_first(
    engine: &Engine,
    request: &Request<'_>,
    plan: &ModifyPlan,
    out: &mut Response,
) -> Result<(), QueryError> {
    let level = consistency::for_write(request.parameters.consistency)?;
    let prior = Prior::read(engine, plan, request.binding, moment(engine, request), level).await?;
    write(engine, request, plan, &prior, out).await
}

/// Writes changes that do not depend on the stored row, or depend on nothing but `prior`.
///
/// # Errors
/// As [`execute`].
#[inline]
pub(super) async fn write(
    engine: &Engine,
    request: &Request<'_>,
    plan: &ModifyPlan,
    prior: &Prior,
    out: &mut Response,
) -> Result<(), QueryError> {
    let level = consistency::for_write(request.parameters.consistency)?;
    let moment = moment(engine, request);
    let timeout = updates::timeout(plan.timeout.as_ref(), request.binding)?;
    let mut scratch = engine.scratch(&plan.table);
    let scratch = &mut *scratch;
    let WriteBuffers { key, updates, mutation } = &mut scratch.write;
    let mut partitions = Partitions { updates, used: 0 };
    let slices = &mut scratch.read.slices;
    let add = || updates::add(plan, request.binding, moment, prior, key, slices, &mut partitions);
    updates::make(plan, request.binding, add).await?;
    let used = partitions.used;
    if let Some(guards) = &engine.config().guardrails.writes {
        updates[..used].iter().try_for_each(|update| {
            write_guard::update(guards, update, std::iter::once(plan), &mut out.warnings)
        })?;
    }
    let write = async |update: &PartitionUpdate, mutation: &mut Vec<u8>| {
        if update.is_empty() {
            return Ok(());
        }
        mutation.clear();
        update.encode(mutation);
        let timed = Timed::new(&engine.load_of(&plan.table));
        let sent = reactor::in_place!(send(engine, update, mutation, (level, WriteType::Simple), timeout));
        timed.end();
        sent
    };
    match &updates[..used] {
        [update] => reactor::in_place!(write(update, mutation))?,
        updates => {
            for some in updates.chunks(WRITES_AT_ONCE) {
                let writing = some.iter().map(async |update| write(update, &mut Vec::new()).await);
                let written = Box::pin(reactor::side_by_side(writing)).await;
                written.map_err(|(_, error)| error)?;
                reactor::maybe_yield().await;
            }
        }
    }
    if let [update] = &updates[..used] {
        routing::hint(engine, request.client, &plan.table, update.token, &mut out.tablet_payload);
    }
    results::append_void(&mut out.body);
    Ok(())
}

/// The timestamp and the seconds of a request.
#[inline]
pub fn moment(engine: &Engine, request: &Request<'_>) -> Moment {
    let timestamp =
        request.parameters.default_timestamp_us.unwrap_or_else(|| engine.ambient().timestamp_us());
    Moment { timestamp, now: request.now, fixed: false }
}

/// Updates of one statement: each key comes once.
pub(super) struct Partitions<'b> {
    /// Buffers; those beyond the ones in use are old.
    pub(super) updates: &'b mut Vec<PartitionUpdate>,
    /// How many are in use.
    pub(super) used: usize,
}

impl Updates for Partitions<'_> {
    #[inline]
    fn of(&mut self, plan: &ModifyPlan, key: &[u8]) -> &mut PartitionUpdate {
        if self.used == self.updates.len() {
            self.updates.push(PartitionUpdate::new(plan.table.clone()));
        }
        let update = &mut self.updates[self.used];
        self.used += 1;
        update.reset(&plan.table);
        update.key.extend_from_slice(key);
        update.token = murmur3_token(key);
        update
    }
}
