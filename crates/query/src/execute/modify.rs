//! Executes INSERT, UPDATE and DELETE.

use model::token::murmur3_token;

use super::apply::{Moment, Updates, apply};
use super::prior::Prior;
use super::update_buffer::PartitionUpdate;
use super::{Request, conditional, consistency, routing};
use crate::engine::{Engine, WriteBuffers};
use crate::prepare::modify::{ModifyPlan, Route};
use crate::results;
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
    let (level, moment, prior);
    match plan.route {
        Route::Plain => {
            level = consistency::for_write(request.parameters.consistency)?;
            moment = self::moment(engine, request);
            prior = Prior::default();
        }
        Route::ReadFirst => {
            level = consistency::for_write(request.parameters.consistency)?;
            moment = self::moment(engine, request);
            prior = Box::pin(Prior::read(engine, plan, request.binding, moment, level)).await?;
        }
        // Rare: boxed, so that the future of a plain write does not carry their space.
        Route::Conditional => return Box::pin(conditional::single(engine, request, plan, out)).await,
        Route::Counter => return Err(QueryError::invalid("Counter tables are not supported yet")),
    }
    let mut scratch = engine.scratch(&plan.table);
    let scratch = &mut *scratch;
    let WriteBuffers { key, updates, mutation } = &mut scratch.write;
    let mut partitions = Partitions { updates, used: 0 };
    apply(plan, request.binding, moment, &prior, key, &mut scratch.read.slices, &mut partitions)?;
    let used = partitions.used;
    for update in &updates[..used] {
        if update.is_empty() {
            continue;
        }
        mutation.clear();
        update.encode(mutation);
        engine.write(&plan.table, mutation, level, "SIMPLE").await?;
    }
    if let [update] = &updates[..used] {
        routing::hint(engine, request.client, &plan.table, update.token, &mut out.tablet_payload);
    }
    results::append_void(&mut out.body);
    Ok(())
}

/// The timestamp and the seconds of a request.
pub fn moment(engine: &Engine, request: &Request<'_>) -> Moment {
    let timestamp =
        request.parameters.default_timestamp_us.unwrap_or_else(|| engine.ambient().timestamp_us());
    Moment { timestamp, now: request.now, fixed: false }
}

/// Updates of one statement: each key comes once.
struct Partitions<'b> {
    updates: &'b mut Vec<PartitionUpdate>,
    used: usize,
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
