//! Executes batches: statements that meet in a partition become one mutation, which is applied whole.
//!
//! Rules and messages as Cassandra 5's `BatchStatement`.

use std::rc::Rc;

use hashbrown::HashMap;
use model::TableId;
use model::token::murmur3_token;
use replication::{BatchWrite, Consistency};
use wire::request::BatchKind;

use super::apply::{self, Moment, Updates};
use super::prior::Prior;
use super::update_buffer::PartitionUpdate;
use super::{Request, consistency, modify};
use crate::engine::Engine;
use crate::prepare::batch::BatchPlan;
use crate::prepare::modify::ModifyPlan;
use crate::terms::Binding;
use crate::{QueryError, Response, results};

/// Bytes that the statements of one batch may write (Cassandra fails batches far smaller, by configuration).
pub const BATCH_BYTES_MAX: usize = 16 << 20;

/// Executes a batch written as text, or prepared whole.
///
/// # Errors
/// [`QueryError`] of values, consistency or storage; partitions before the failing one may have been written.
pub async fn execute(
    engine: &Engine,
    request: &Request<'_>,
    plan: &BatchPlan,
    out: &mut Response,
) -> Result<(), QueryError> {
    let moment = modify::moment(engine, request);
    let mut gathered = Gathered::default();
    let moment = match &plan.timestamp {
        None => moment,
        Some(term) => {
            let timestamp = apply::timestamp(term, request.binding)?.unwrap_or(moment.timestamp);
            Moment { timestamp, ..moment }
        }
    };
    let level = consistency::for_write(request.parameters.consistency)?;
    for statement in &plan.statements {
        let prior = Prior::read(engine, statement, request.binding, moment, level).await?;
        gathered.add(statement, request.binding, moment, &prior)?;
    }
    gathered.write(engine, plan.kind, level).await?;
    results::append_void(&mut out.body);
    Ok(())
}

/// Writes of a batch by partition, in the order the partitions came first.
#[derive(Debug, Default)]
pub struct Gathered {
    updates: Vec<PartitionUpdate>,
    places: HashMap<(TableId, Vec<u8>), usize, foldhash::fast::FixedState>,
    key: Vec<u8>,
    rows: storage::Slices,
}

impl Gathered {
    /// Adds one statement.
    ///
    /// # Errors
    /// [`QueryError::Invalid`] for values that cannot be written and for batches that grow too large.
    pub fn add(
        &mut self,
        plan: &ModifyPlan,
        binding: &Binding<'_>,
        moment: Moment,
        prior: &Prior,
    ) -> Result<(), QueryError> {
        let Self { updates, places, key, rows } = self;
        apply::apply(plan, binding, moment, prior, key, rows, &mut ByKey { updates, places })?;
        let bytes: usize = self.updates.iter().map(PartitionUpdate::len).sum();
        if bytes > BATCH_BYTES_MAX {
            return Err(QueryError::invalid("Batch too large"));
        }
        Ok(())
    }

    /// Writes what was gathered, one mutation for each partition; those of a logged batch all or none.
    ///
    /// # Errors
    /// [`QueryError`] of the first partition that could not be written.
    pub async fn write(
        &self,
        engine: &Engine,
        kind: BatchKind,
        level: Consistency,
    ) -> Result<(), QueryError> {
        let write_type = match kind {
            BatchKind::Logged if self.updates.len() > 1 => "BATCH",
            BatchKind::Logged | BatchKind::Unlogged => "UNLOGGED_BATCH",
            BatchKind::Counter => "COUNTER",
        };
        let updates = self.updates.iter().filter(|update| !update.is_empty());
        if kind == BatchKind::Logged && updates.clone().count() > 1 {
            let encoded = updates.map(|update| {
                let mut mutation = Vec::new();
                update.encode(&mut mutation);
                BatchWrite { table: Rc::clone(&update.table), mutation }
            });
            return Box::pin(engine.write_batch(encoded.collect(), level)).await;
        }
        let mut mutation = Vec::new();
        for update in updates {
            mutation.clear();
            update.encode(&mut mutation);
            engine.write(&update.table, &mutation, level, write_type).await?;
        }
        Ok(())
    }
}

struct ByKey<'b> {
    updates: &'b mut Vec<PartitionUpdate>,
    places: &'b mut HashMap<(TableId, Vec<u8>), usize, foldhash::fast::FixedState>,
}

impl Updates for ByKey<'_> {
    fn of(&mut self, plan: &ModifyPlan, key: &[u8]) -> &mut PartitionUpdate {
        let next = self.updates.len();
        let place = *self.places.entry((plan.table.id(), key.to_vec())).or_insert(next);
        if place == next {
            let mut update = PartitionUpdate::new(Rc::clone(&plan.table));
            update.key.extend_from_slice(key);
            update.token = murmur3_token(key);
            self.updates.push(update);
        }
        &mut self.updates[place]
    }
}
