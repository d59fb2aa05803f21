//! Executes batches: statements on the same partition become one mutation, which is applied as a whole.
//!
//! Rules, warnings and messages as Cassandra 5's `BatchStatement`.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use hashbrown::HashMap;
use model::token::murmur3_token;
use model::{Table, TableId};
use replication::{BatchWrite, Consistency};
use statement::guardrails::Guardrails;
use statement::names;
use statement::prepare::batch::BatchPlan;
use statement::prepare::json::Values;
use statement::prepare::modify::{ModifyPlan, Route};
use statement::restrictions::keys;
use statement::results;
use statement::terms::Binding;
use wire::error::WriteType;
use wire::request::BatchKind;
use wire::values::ValueRef;

use super::disk_guard::DiskUsage;
use super::prior::Prior;
use super::update_buffer::PartitionUpdate;
use super::updates::{self, Moment, Updates};
use super::write_guard;
use super::{Part, Request, conditional, consistency, counter, json, modify};
use crate::engine::Engine;
use crate::load::Timed;
use crate::{QueryError, Response};

/// Most bytes that the statements of any batch may write, including batches on one partition.
pub const BATCH_BYTES_MAX: usize = 16 << 20;
/// Partitions of a statement or an unlogged batch that are written at once.
pub(super) const WRITES_AT_ONCE: usize = 64;

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
    let timeout = updates::timeout(plan.timeout.as_ref(), request.binding)?;
    let statements: Vec<Part<'_>> =
        plan.statements.iter().map(|plan| Part { plan, binding: *request.binding }).collect();
    let timestamp = match &plan.timestamp {
        None => None,
        Some(term) => {
            updates::timestamp(term, request.binding).map_err(|error| keys_first(&statements, error))?
        }
    };
    parts(engine, request, plan.kind, (timestamp, timeout), &statements, out).await
}

/// Executes statements together; they have been checked to go together.
///
/// # Errors
/// [`QueryError`] of values, conditions, consistency or storage; of an unconditional batch, partitions before
/// the failing one may have been written.
pub async fn parts(
    engine: &Engine,
    request: &Request<'_>,
    kind: BatchKind,
    (timestamp, timeout): (Option<i64>, Option<Duration>),
    parts: &[Part<'_>],
    out: &mut Response,
) -> Result<(), QueryError> {
    engine.statements().batch(kind, parts.iter().map(|part| part.plan));
    let (columns, values, with_json);
    let parts = if parts.iter().any(|part| part.plan.json.is_some()) {
        columns = json_columns(parts)?;
        values = json_values(parts, &columns);
        with_json = expanded(parts, &values);
        &with_json
    } else {
        parts
    };
    let guards = engine.config().guardrails.writes.as_deref();
    if let Some(guards) = guards {
        write_guard::request(guards, request, &mut out.warnings)?;
        parts.iter().try_for_each(|part| write_guard::statement(guards, part))?;
        if guards.disk_percent.is_on() {
            DiskUsage::check(engine, guards, &mut out.warnings).await?;
        }
    }
    if parts.iter().any(|part| part.plan.condition.is_some()) {
        return conditional::batch(engine, request, parts, timeout, out).await;
    }
    let mut moment = modify::moment(engine, request);
    moment.timestamp = timestamp.unwrap_or(moment.timestamp);
    let counters = parts.iter().find(|part| part.plan.route == Route::Counter);
    if let Some(part) = counters {
        counter::check_level(request.parameters.consistency, &part.plan.table)?;
    }
    let level = consistency::for_write(request.parameters.consistency)?;
    let mut gathered = Gathered::default();
    for part in parts {
        let prior = Prior::read(engine, part.plan, &part.binding, moment, level).await?;
        let added = updates::make(part.plan, &part.binding, || gathered.add(part, moment, &prior)).await;
        added.map_err(|error| keys_first(parts, error))?;
        reactor::maybe_yield().await;
    }
    if let Some(guards) = guards {
        let plans = parts.iter().map(|part| part.plan);
        gathered
            .updates
            .iter()
            .try_for_each(|update| write_guard::update(guards, update, plans.clone(), &mut out.warnings))?;
    }
    if kind == BatchKind::Logged {
        warn_of_no_grace(parts, &mut out.warnings);
    }
    let partitions = gathered.check_size(&engine.config().guardrails, kind, &mut out.warnings)?;
    engine.loads().batches.record(kind, partitions);
    if counters.is_some() {
        let mut mutation = Vec::new();
        for update in &gathered.updates {
            mutation.clear();
            counter::count(engine, request.parameters.consistency, update, &mut mutation, timeout).await?;
        }
    } else {
        let timed = gathered.time(engine);
        let written = gathered.write(engine, kind, level, timeout).await;
        timed.iter().for_each(Timed::end);
        written?;
    }
    results::append_void(&mut out.body);
    Ok(())
}

/// The error for a batch with a wrong value: a wrong partition key in any statement comes before all others,
/// as in Cassandra.
#[cold]
fn keys_first(parts: &[Part<'_>], error: QueryError) -> QueryError {
    let keys = |part: &Part<'_>| {
        let keys = keys::all(&part.plan.restrictions, &part.plan.table, &part.binding);
        keys.and_then(|keys| keys.iter().try_for_each(|key| keys::check_not_empty(&key.key))).err()
    };
    // The columns of a JSON text have values only after it was read.
    parts.iter().filter(|part| part.plan.json.is_none()).find_map(keys).map_or(error, Into::into)
}

/// The columns' values of each INSERT JSON.
fn json_columns<'a>(parts: &[Part<'a>]) -> Result<Vec<Option<Values<'a>>>, QueryError> {
    let read =
        |part: &Part<'a>| part.plan.json.as_ref().map(|json| json::read(json, &part.binding)).transpose();
    parts.iter().map(read).collect()
}

/// The markers' values of each INSERT JSON, with those of its columns.
fn json_values<'a>(parts: &[Part<'a>], columns: &'a [Option<Values<'a>>]) -> Vec<Option<Vec<ValueRef<'a>>>> {
    let values = |(part, columns): (&Part<'a>, &'a Option<Values<'a>>)| {
        let json = part.plan.json.as_ref()?;
        Some(json::expanded(json, &part.binding, columns.as_ref()?))
    };
    parts.iter().zip(columns).map(values).collect()
}

fn expanded<'a>(parts: &[Part<'a>], values: &'a [Option<Vec<ValueRef<'a>>>]) -> Vec<Part<'a>> {
    let part = |(part, values): (&Part<'a>, &'a Option<Vec<ValueRef<'a>>>)| match values {
        Some(values) => Part { binding: Binding { values, ..part.binding }, ..*part },
        None => *part,
    };
    parts.iter().zip(values).map(part).collect()
}

/// Warns about tables without grace period: a logged batch relies on their tombstones for as long as it is in
/// the batch log.
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

/// Writes of a batch by partition, in the order of first use.
#[derive(Debug, Default)]
pub struct Gathered {
    updates: Vec<PartitionUpdate>,
    places: HashMap<(TableId, Vec<u8>), usize, foldhash::fast::FixedState>,
    /// Of all updates.
    bytes: usize,
    key: Vec<u8>,
    rows: storage::Slices,
}

impl Gathered {
    /// Adds one statement.
    ///
    /// # Errors
    /// [`QueryError::Invalid`] for values that cannot be written and for batches that grow too large.
    pub fn add(&mut self, part: &Part<'_>, moment: Moment, prior: &Prior) -> Result<(), QueryError> {
        let Self { updates, places, bytes, key, rows } = self;
        let mut by_key = ByKey { updates, places, bytes, growing: None };
        updates::add(part.plan, &part.binding, moment, prior, key, rows, &mut by_key)?;
        by_key.count();
        if self.bytes > BATCH_BYTES_MAX {
            return Err(QueryError::invalid("Batch too large"));
        }
        Ok(())
    }

    /// Keyspaces and keys of the written partitions, ascending; the same key in two tables of a keyspace is
    /// one place to write to.
    fn places(&self) -> Vec<(&str, &[u8])> {
        let written = self.updates.iter().filter(|update| !update.is_empty());
        let mut places: Vec<_> =
            written.map(|update| (update.table.keyspace(), update.key.as_slice())).collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// Begins a write of each table.
    fn time(&self, engine: &Engine) -> Vec<Timed> {
        let mut tables: Vec<&Rc<Table>> =
            self.updates.iter().filter(|update| !update.is_empty()).map(|update| &update.table).collect();
        tables.sort_unstable_by_key(|table| table.id());
        tables.dedup_by_key(|table| table.id());
        tables.into_iter().map(|table| Timed::new(&engine.load_of(table))).collect()
    }

    /// Warns of batches over several partitions that are large or spread wide, and refuses the largest.
    /// Returns the number of partitions.
    ///
    /// # Errors
    /// [`QueryError::Invalid`] beyond `batch_size_fail_threshold`.
    fn check_size(
        &self,
        guardrails: &Guardrails,
        kind: BatchKind,
        warnings: &mut Vec<String>,
    ) -> Result<usize, QueryError> {
        let places = self.places();
        let written = || self.updates.iter().filter(|update| !update.is_empty());
        if places.len() <= 1 {
            return Ok(places.len());
        }
        let tables = || written().map(|update| names::qualified(&update.table)).collect::<BTreeSet<_>>();
        let bytes: usize = written().map(PartitionUpdate::data_bytes).sum();
        let bytes = bytes as u64;
        if guardrails.batch_bytes.fail.is_some_and(|most| bytes > most) {
            return Err(QueryError::invalid("Batch too large"));
        }
        if let Some(most) = guardrails.batch_bytes.warn.filter(|most| bytes > *most) {
            warnings.push(format!(
                "Batch for {} is of size {bytes}, exceeding specified threshold of {most} by {}.",
                listed(&tables()),
                bytes - most
            ));
        }
        let is_beyond =
            |count: usize| guardrails.unlogged_batch_partitions.is_some_and(|most| count as u64 > most);
        if kind == BatchKind::Logged || !is_beyond(places.len()) {
            return Ok(places.len());
        }
        // Here a key of two keyspaces counts once.
        let keys: BTreeSet<&[u8]> = places.iter().map(|(_, key)| *key).collect();
        if is_beyond(keys.len()) {
            let tables = tables();
            warnings.push(format!(
                "Unlogged batch covering {} partitions detected against table{} {}. You should use a logged batch for \
                 atomicity, or asynchronous writes for performance.",
                keys.len(),
                if tables.len() == 1 { "" } else { "s" },
                listed(&tables)
            ));
        }
        Ok(places.len())
    }

    /// Writes the collected updates, one mutation for each partition; those of a logged batch all or none.
    ///
    /// # Errors
    /// [`QueryError`] of the first partition that could not be written.
    pub async fn write(
        &self,
        engine: &Engine,
        kind: BatchKind,
        level: Consistency,
        timeout: Option<Duration>,
    ) -> Result<(), QueryError> {
        let write_type = match kind {
            BatchKind::Logged if self.updates.len() > 1 => WriteType::Batch,
            BatchKind::Logged | BatchKind::Unlogged | BatchKind::Counter => WriteType::UnloggedBatch,
        };
        let updates = self.updates.iter().filter(|update| !update.is_empty());
        if kind == BatchKind::Logged && updates.clone().count() > 1 {
            let encoded = updates.map(|update| {
                let mut mutation = Vec::new();
                update.encode(&mut mutation);
                BatchWrite { table: Rc::clone(&update.table), mutation }
            });
            return Box::pin(engine.write_batch(encoded.collect(), level, timeout)).await;
        }
        let write = async |update: &PartitionUpdate| {
            let mut mutation = Vec::new();
            update.encode(&mut mutation);
            modify::send(engine, update, &mutation, (level, write_type), timeout).await
        };
        let updates: Vec<&PartitionUpdate> = updates.collect();
        if let [update] = &updates[..] {
            return write(update).await;
        }
        for some in updates.chunks(WRITES_AT_ONCE) {
            let writing = some.iter().map(|update| write(update));
            reactor::side_by_side(writing).await.map_err(|(_, error)| error)?;
            reactor::maybe_yield().await;
        }
        Ok(())
    }
}

struct ByKey<'b> {
    updates: &'b mut Vec<PartitionUpdate>,
    places: &'b mut HashMap<(TableId, Vec<u8>), usize, foldhash::fast::FixedState>,
    /// Bytes of all updates but for what the growing one has gained.
    bytes: &'b mut usize,
    /// The update that was asked for last, with its bytes before.
    growing: Option<(usize, usize)>,
}

impl ByKey<'_> {
    /// Counts what the update that was asked for last has gained.
    fn count(&mut self) {
        if let Some((place, before)) = self.growing.take() {
            // Rows of one partition that replace each other may take less than before.
            *self.bytes = *self.bytes + self.updates[place].len() - before;
        }
    }
}

impl Updates for ByKey<'_> {
    fn of(&mut self, plan: &ModifyPlan, key: &[u8]) -> &mut PartitionUpdate {
        self.count();
        let next = self.updates.len();
        let place = *self.places.entry((plan.table.id(), key.to_vec())).or_insert(next);
        let mut before = 0;
        if place == next {
            let mut update = PartitionUpdate::new(Rc::clone(&plan.table));
            update.key.extend_from_slice(key);
            update.token = murmur3_token(key);
            self.updates.push(update);
        } else {
            before = self.updates[place].len();
        }
        self.growing = Some((place, before));
        &mut self.updates[place]
    }
}
