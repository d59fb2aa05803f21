//! Aggregates over whole tables: every shard reads its own tablets, and their states become one result.
//!
//! The coordinator sends each shard the statement as text with its values and, in each round, the shard's
//! state so far. A shard answers after [`super::fetch::FETCH_ROWS`] rows or at its end. So no work outlives a
//! coordinator that is gone, and each round has a deadline. Shards have contiguous runs of tablets: their
//! states are merged in their order.

use std::time::Duration;

use model::deletion::LocalSeconds;
use reactor::{Deadline, Group};
use replication::{Consistency, ReplicationError};
use statement::functions::user::calls::Calls;
use statement::prepare::Plan;
use statement::prepare::select::SelectPlan;
use statement::restrictions::slices;
use statement::terms::Binding;
use storage::{PartitionRange, ReadCommand, Slices, call_and_note};
use wire::values::ValueRef;

use super::counter::Totals;
use super::fetch::{Fetch, Rest};
use super::groups::Partial;
use super::guard;
use super::rows::{PageLimits, RowBuffers, Rows};
use super::{Request, consistency, fetch as fetches, tombstones};
use crate::QueryError;
use crate::answer_room::Grant;
use crate::engine::Engine;

/// A value of a request, on its way to another shard.
#[derive(Debug, Clone)]
enum Value {
    Null,
    Unset,
    Bytes(Vec<u8>),
}

/// One round of one shard.
#[derive(Debug, Clone)]
struct Round {
    keyspace: String,
    text: String,
    values: Vec<Value>,
    /// Results of user-defined functions in terms of the statement.
    terms: Vec<Option<Vec<u8>>>,
    now: LocalSeconds,
    /// The shard's state so far; `None` before its first round.
    partial: Option<Partial>,
    /// The rest of the scan; `None` before its first round.
    rest: Option<Rest>,
    /// When the coordinator stops waiting.
    deadline: Deadline,
}

/// A shard's state, and the rest of its part.
type Answer = Result<(Partial, Option<Rest>, Vec<String>), Failure>;

/// Why a shard could not answer.
#[derive(Debug)]
enum Failure {
    /// An error of the statement.
    Invalid(String),
    /// An error of a function.
    Function { keyspace: String, function: String, arguments: Vec<String>, message: String },
    /// Functions of the user's were not done in time.
    Late,
    /// More tombstones than a read may meet.
    TooManyTombstones,
    /// The shard's.
    Failed(String),
}

/// Reads everything the plan asks for on all shards at once, into `rows`.
///
/// # Errors
/// [`QueryError::ReadTimeout`] if a round takes too long; [`QueryError`] of functions and storage.
pub(super) async fn aggregate(
    engine: &Engine,
    request: &Request<'_>,
    (plan, text): (&SelectPlan, &str),
    level: Consistency,
    timeout: Option<Duration>,
    rows: &mut Rows<'_>,
) -> Result<(), QueryError> {
    let required = engine
        .replicator()
        .required(plan.table.keyspace(), level)
        .map_err(|error| consistency::read_error(error, level))?;
    let failed = |shard: usize, reason: String| {
        let error = ReplicationError::of_shard(shard, reason, required);
        consistency::read_error(error, level)
    };
    let value = |value: &ValueRef<'_>| match value {
        ValueRef::Null => Value::Null,
        ValueRef::Unset => Value::Unset,
        ValueRef::Bytes(bytes) => Value::Bytes(bytes.to_vec()),
    };
    let first = Round {
        keyspace: plan.table.keyspace().to_owned(),
        text: text.to_owned(),
        values: request.binding.values.iter().map(value).collect(),
        terms: request.binding.calls.map(Calls::terms).unwrap_or_default(),
        now: request.now,
        partial: None,
        rest: None,
        deadline: Deadline::NEVER,
    };
    let mut shards: Vec<(usize, Round)> =
        (0..reactor::shard_count()).map(|shard| (shard, first.clone())).collect();
    let mut parts: Vec<Option<Partial>> = shards.iter().map(|_| None).collect();
    while !shards.is_empty() {
        let deadline = Deadline::after(timeout.unwrap_or(engine.config().range_timeout));
        // All calls are under way before the first is waited for.
        let calls: Vec<_> = shards
            .drain(..)
            .map(|(shard, round)| {
                let sent = Round { deadline, ..round.clone() };
                (shard, round, call_and_note(shard, Group::STATEMENT, move || fetch(sent)))
            })
            .collect();
        for (shard, round, call) in calls {
            let answer = reactor::timeout(deadline, call).await.map_err(|_| {
                let timed_out = ReplicationError::timed_out(0, required);
                consistency::read_error(timed_out, level)
            })?;
            match answer.map_err(|error| failed(shard, error.to_string()))? {
                Ok((partial, rest, warnings)) => {
                    warnings.into_iter().for_each(|warning| rows.warn(warning));
                    match rest {
                        None => parts[shard] = Some(partial),
                        rest => shards.push((shard, Round { partial: Some(partial), rest, ..round })),
                    }
                }
                Err(Failure::Late) => return Err(consistency::late(engine, plan.table.keyspace(), level)),
                Err(Failure::TooManyTombstones) => return Err(tombstones::too_many(engine, level)),
                Err(Failure::Invalid(text)) => return Err(QueryError::Invalid(text)),
                Err(Failure::Function { keyspace, function, arguments, message }) => {
                    return Err(QueryError::FunctionFailure { keyspace, function, arguments, message });
                }
                Err(Failure::Failed(text)) => return Err(failed(shard, text)),
            }
        }
    }
    for part in parts.into_iter().flatten() {
        match rows.calls() {
            None => rows.merge(&part)?,
            Some(calls) => {
                let deadline = Deadline::after(timeout.unwrap_or(engine.config().range_timeout));
                let late = || consistency::late(engine, plan.table.keyspace(), level);
                calls.through(deadline, late, || rows.merge(&part)).await?;
            }
        }
    }
    Ok(())
}

/// A refusal in a form that another shard can be sent.
fn invalid(error: impl Into<QueryError>) -> Failure {
    match error.into() {
        QueryError::FunctionFailure { keyspace, function, arguments, message } => {
            Failure::Function { keyspace, function, arguments, message }
        }
        other => Failure::Invalid(other.to_string()),
    }
}

/// One round on this shard.
async fn fetch(round: Round) -> Answer {
    let engine = Engine::here().ok_or_else(|| Failure::Failed("the shard is starting".to_owned()))?;
    let prepared = engine.prepare_in_slices(Some(&round.keyspace), &round.text).await.map_err(invalid)?;
    let Plan::Select(plan) = &prepared.plan else {
        return Err(Failure::Failed("the statement is no SELECT here".to_owned()));
    };
    let values: Vec<ValueRef<'_>> = round
        .values
        .iter()
        .map(|value| match value {
            Value::Null => ValueRef::Null,
            Value::Unset => ValueRef::Unset,
            Value::Bytes(bytes) => ValueRef::Bytes(bytes),
        })
        .collect();
    let calls = prepared.calls_user.then(|| Calls::with_terms(round.terms));
    let binding = Binding {
        values: &values,
        markers: &prepared.markers,
        ambient: engine.ambient(),
        calls: calls.as_ref(),
    };
    let filters = plan.restrictions.filters.iter().map(|filter| filter.bind(&binding));
    let filters = filters.collect::<Result<Vec<_>, _>>().map_err(invalid)?;
    let mut all = Slices::new();
    slices::fill(&plan.restrictions, &plan.table, &binding, &mut all).map_err(invalid)?;
    let rest = match round.rest {
        Some(rest) => Some(rest),
        None => {
            let range = super::select::range::of(&plan.restrictions, &binding).map_err(invalid)?;
            range
                .filter(|_| !(all.is_empty() && plan.restrictions.restricts_clustering))
                .map(|range| Rest::new(range, all.clone()))
        }
    };
    let limits = PageLimits {
        remaining: u64::MAX,
        per_partition: u64::MAX,
        page_rows: usize::MAX,
        tombstones: guard::tombstone_limits(&engine.config().guardrails),
    };
    let (mut buffers, mut out) = (RowBuffers::default(), Vec::new());
    let grant = Grant::new(engine.answers());
    let mut rows = Rows::new(plan, &binding, filters, limits, round.now, &mut buffers, (grant, &mut out));
    if let Some(partial) = &round.partial {
        // Nothing is here yet: it is taken over as it is.
        rows.merge(partial).map_err(invalid)?;
    }
    let none = || Failure::Failed("the statement is no aggregate here".to_owned());
    let Some(rest) = rest else { return Ok((rows.partial().ok_or_else(none)?, None, Vec::new())) };
    let command = ReadCommand {
        table: plan.table.clone(),
        range: rest.range.clone(),
        slices: rest.slices.clone(),
        reversed: plan.reversed,
        now: round.now,
        bypass_cache: plan.bypass_cache,
    };
    let mut consumer = Fetch::new(&mut rows, &rest).giving_way(plan.calls_user);
    if !(command.slices.is_empty() && matches!(command.range, PartitionRange::Key(_))) {
        let replicator = engine.replicator();
        let load = engine.load_of(&plan.table);
        let requests = load.requests(&command.range);
        let began = requests.begin();
        let read = if plan.table.is_counter() {
            replicator.read_own(&command, &mut Totals::new(&mut consumer)).await
        } else {
            replicator.read_own(&command, &mut consumer).await
        };
        requests.end(began);
        read.map_err(|error| Failure::Failed(error.to_string()))?;
    }
    let fetched = consumer.end(round.deadline).await.map_err(|_| Failure::Late)?;
    if let Some(error) = rows.error.take() {
        return Err(invalid(error));
    }
    engine.went_past(&plan.table, rows.scanned, rows.tombstones.seen);
    let rest = rest.behind(fetched, (&plan.table, plan.reversed), &all);
    if rows.tombstones.seen > 0 {
        let (seen, limits) = (rows.tombstones.seen, (Some(fetches::FETCH_ROWS as u64), None));
        let warn = |seen| {
            let text = tombstones::warning(&command, limits, rows.read_key(), rows.count, seen);
            rows.warn(text);
        };
        tombstones::check(&engine, &command, Consistency::One, seen, warn)
            .map_err(|_| Failure::TooManyTombstones)?;
    }
    let mut warnings = std::mem::take(&mut rows.warnings);
    warnings.extend(calls.iter().flat_map(Calls::take_warnings));
    Ok((rows.partial().ok_or_else(none)?, rest, warnings))
}
