//! Executes batches: statements that meet in a partition become one mutation, which is applied whole.
//!
//! Rules, warnings and messages as Cassandra 5's `BatchStatement`.

use std::collections::BTreeSet;
use std::rc::Rc;

use hashbrown::HashMap;
use model::TableId;
use model::token::murmur3_token;
use replication::Consistency;
use wire::request::BatchKind;

use super::apply::{self, Moment, Updates};
use super::prior::Prior;
use super::update_buffer::PartitionUpdate;
use super::{Part, Request, conditional, consistency, modify};
use crate::engine::Engine;
use crate::prepare::batch::BatchPlan;
use crate::prepare::modify::{ModifyPlan, Route};
use crate::prepare::names;
use crate::{QueryError, Response, results};

/// Bytes beyond which a batch over several partitions is worth a warning (`batch_size_warn_threshold`).
pub const BATCH_WARN_BYTES: usize = 5 << 10;

/// Bytes beyond which a batch over several partitions is refused (`batch_size_fail_threshold`).
pub const BATCH_FAIL_BYTES: usize = 50 << 10;

/// Partitions beyond which an unlogged batch is worth a warning (`unlogged_batch_across_partitions_warn_threshold`).
pub const UNLOGGED_WARN_PARTITIONS: usize = 10;

/// Bytes that the statements of any batch may write, those on one partition too.
pub const BATCH_BYTES_MAX: usize = 16 << 20;

/// Executes a batch written as text, or prepared whole.
///
/// # Errors
/// As [`parts`].
pub async fn execute(
    engine: &Engine,
    request: &Request<'_>,
    plan: &BatchPlan,
    out: &mut Response,
) -> Result<(), QueryError> {
    let timestamp = match &plan.timestamp {
        None => None,
        Some(term) => apply::timestamp(term, request.binding)?,
    };
    let statements: Vec<Part<'_>> =
        plan.statements.iter().map(|plan| Part { plan, binding: *request.binding }).collect();
    parts(engine, request, plan.kind, timestamp, &statements, out).await
}

/// Executes statements together; they have been checked to go together.
///
/// # Errors
/// [`QueryError`] of values, conditions, consistency or storage; of an unconditional batch, partitions before the
/// failing one may have been written.
pub async fn parts(
    engine: &Engine,
    request: &Request<'_>,
    kind: BatchKind,
    timestamp: Option<i64>,
    parts: &[Part<'_>],
    out: &mut Response,
) -> Result<(), QueryError> {
    if parts.iter().any(|part| part.plan.route == Route::Conditional) {
        return conditional::batch(engine, request, parts, out).await;
    }
    let moment = modify::moment(engine, request);
    let moment = Moment { timestamp: timestamp.unwrap_or(moment.timestamp), ..moment };
    let level = consistency::for_write(request.parameters.consistency)?;
    let mut gathered = Gathered::default();
    for part in parts {
        let prior = Prior::read(engine, part.plan, &part.binding, moment, level).await?;
        gathered.add(part, moment, &prior)?;
        reactor::maybe_yield().await;
    }
    if kind == BatchKind::Logged {
        warn_of_no_grace(parts, &mut out.warnings);
    }
    gathered.check_size(kind, &mut out.warnings)?;
    gathered.write(engine, kind, level).await?;
    results::append_void(&mut out.body);
    Ok(())
}

/// A logged batch leans on tombstones of its log for as long as the tables keep theirs.
fn warn_of_no_grace(parts: &[Part<'_>], warnings: &mut Vec<String>) {
    let tables: BTreeSet<String> = parts
        .iter()
        .filter(|part| part.plan.table.options().gc_grace_seconds == 0)
        .map(|part| names::qualified(&part.plan.table))
        .collect();
    if !tables.is_empty() {
        warnings.push(format!(
            "Executing a LOGGED BATCH on table{} {}, configured with a gc_grace_seconds of 0. The gc_grace_seconds is \
             used to TTL batchlog entries, so setting gc_grace_seconds too low on tables involved in an atomic batch \
             might cause batchlog entries to expire before being replayed.",
            if tables.len() == 1 { "" } else { "s" },
            listed(&tables)
        ));
    }
}

fn listed(tables: &BTreeSet<String>) -> String {
    format!("[{}]", tables.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
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
    pub fn add(&mut self, part: &Part<'_>, moment: Moment, prior: &Prior) -> Result<(), QueryError> {
        let Self { updates, places, key, rows } = self;
        apply::apply(part.plan, &part.binding, moment, prior, key, rows, &mut ByKey { updates, places })?;
        if self.bytes() > BATCH_BYTES_MAX {
            return Err(QueryError::invalid("Batch too large"));
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.updates.iter().map(PartitionUpdate::len).sum()
    }

    /// Warns of batches over several partitions that are large or spread wide, and refuses the largest.
    ///
    /// # Errors
    /// [`QueryError::Invalid`] beyond [`BATCH_FAIL_BYTES`].
    fn check_size(&self, kind: BatchKind, warnings: &mut Vec<String>) -> Result<(), QueryError> {
        let written = || self.updates.iter().filter(|update| !update.is_empty());
        // A key of two tables of one keyspace is one place to write to.
        let places: BTreeSet<(&str, &[u8])> =
            written().map(|update| (update.table.keyspace(), update.key.as_slice())).collect();
        if places.len() <= 1 {
            return Ok(());
        }
        let tables = || written().map(|update| names::qualified(&update.table)).collect::<BTreeSet<_>>();
        let bytes = self.bytes();
        if bytes > BATCH_FAIL_BYTES {
            return Err(QueryError::invalid("Batch too large"));
        }
        if bytes > BATCH_WARN_BYTES {
            warnings.push(format!(
                "Batch for {} is of size {bytes}, exceeding specified threshold of {BATCH_WARN_BYTES} by {}.",
                listed(&tables()),
                bytes - BATCH_WARN_BYTES
            ));
        }
        let keys: BTreeSet<&[u8]> = places.iter().map(|(_, key)| *key).collect();
        if kind != BatchKind::Logged && keys.len() > UNLOGGED_WARN_PARTITIONS {
            let tables = tables();
            warnings.push(format!(
                "Unlogged batch covering {} partitions detected against table{} {}. You should use a logged batch for \
                 atomicity, or asynchronous writes for performance.",
                keys.len(),
                if tables.len() == 1 { "" } else { "s" },
                listed(&tables)
            ));
        }
        Ok(())
    }

    /// Writes what was gathered, one mutation for each partition.
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
        let mut mutation = Vec::new();
        for update in self.updates.iter().filter(|update| !update.is_empty()) {
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
