//! Executes a SELECT: keys or a range, slices, rows into the answer, and where the next page begins.

pub(super) mod range;
mod reader;

use std::pin::Pin;

use model::partition_key::DecoratedKey;
use model::token::murmur3_token;
use reactor::in_slices;
use replication::read::FromMemory;
use statement::prepare::select::SelectPlan;
use statement::prepare::selection::SelectionKind;
use statement::restrictions::{keys, slices};
use statement::results::{MetadataMode, RowsBody};
use statement::terms::{Binding, Bound, Term};
use storage::{PartitionRange, ReadCommand, Slices};
use wire::request::QueryParameters;

use super::guard;
use super::rows::{CALLS_AT_ONCE, PageLimits, Rows};
use super::tombstones::TombstoneLimits;
use super::{Request, consistency, routing, updates};
use crate::answer_room::Grant;
use crate::counts::Counts;
use crate::engine::{Engine, Left, Scratch};
use crate::paging::PagingState;
use crate::{QueryError, Response};

use reader::Reader;

/// As [`slices::fill`], and others run in the middle of it: a product of IN lists is long.
#[cold]
fn fill_in_slices<'f>(
    plan: &'f SelectPlan,
    binding: &'f Binding<'_>,
    out: &'f mut Slices,
) -> Pin<Box<dyn Future<Output = Result<(), QueryError>> + 'f>> {
    Box::pin(async move {
        let fill = || slices::fill(&plan.restrictions, &plan.table, binding, out);
        Ok(in_slices(&Counts::new(binding.ambient), fill).await?)
    })
}

/// Executes a SELECT and appends its rows. `left` says how far an attempt to answer without waiting came.
///
/// # Errors
/// [`QueryError`] of values, consistency or storage; the caller then drops the bytes appended to the answer.
#[inline]
pub async fn execute(
    engine: &Engine,
    request: &Request<'_>,
    plan: &SelectPlan,
    mode: MetadataMode,
    left: Left,
    out: &mut Response,
) -> Result<(), QueryError> {
    let parameters = request.parameters;
    let binding = request.binding;
    let level = consistency::for_read(parameters.consistency)?;
    let mut limits = page_limits(plan, binding, parameters)?;
    limits.tombstones = guard::tombstone_limits(&engine.config().guardrails);
    let timeout = updates::timeout(plan.timeout.as_ref(), binding)?;
    let state = parameters.paging_state.map(PagingState::parse).transpose()?;
    let limits = match &state {
        Some(state) => PageLimits { remaining: state.remaining.min(limits.remaining), ..limits },
        None => limits,
    };
    let filters = match plan.restrictions.filters.as_slice() {
        [] => Vec::new(),
        filters => filters.iter().map(|filter| filter.bind(binding)).collect::<Result<_, _>>()?,
    };
    let user_limit = limits.remaining;
    let grouped = matches!(plan.selection.kind, SelectionKind::Groups(_));
    if plan.sorted_whole && parameters.page_size.is_some() {
        check_pages(engine, plan, binding, grouped)?;
    }
    let guardrails = &engine.config().guardrails;
    guard::select(guardrails, engine, request, plan, &mut out.warnings)?;
    if grouped && plan.restrictions.partition_key.is_empty() && plan.restrictions.token.is_none() {
        out.warnings.push("Aggregation query used without partition key".to_owned());
    } else if grouped && plan.restrictions.partition_key_uses_in() {
        out.warnings.push("Aggregation query used on multiple partition keys (IN restriction)".to_owned());
    }
    // LIMIT counts rows of the result; an aggregate, and a result sorted as a whole, needs every row before
    // that.
    let limits = if plan.selection.is_one_group() || !plan.sort.is_empty() {
        PageLimits { remaining: u64::MAX, ..limits }
    } else {
        limits
    };

    let mut guard = engine.scratch(&plan.table);
    let scratch: &mut crate::engine::Scratch = &mut guard;
    let body = RowsBody::begin(&mut out.body, request.client.version, &plan.metadata, mode);
    let Scratch { read, rows: row_buffers, .. } = &mut *scratch;
    let rows_out = &mut out.body;
    let grant = Grant::new(engine.answers());
    let mut rows = Rows::new(plan, binding, filters, limits, request.now, row_buffers, (grant, rows_out));
    let reader = Reader {
        engine,
        plan,
        level,
        timeout,
        chooses: grouped || !plan.restrictions.filters.is_empty(),
        limits,
    };
    read.reversed = plan.reversed;
    read.now = request.now;
    read.bypass_cache = plan.bypass_cache;
    if (guardrails.partition_keys_in_select.is_on() || guardrails.in_select_cartesian_product.is_on())
        && plan.restrictions.partition_key_has_in()
    {
        let keys = || keys::all(&plan.restrictions, &plan.table, binding);
        let keys = Box::pin(in_slices(&Counts::new(binding.ambient), keys)).await?;
        guard::partition_keys(guardrails, plan.table.name(), keys.len(), &mut out.warnings)?;
    }
    if guardrails.in_select_cartesian_product.is_on() && plan.restrictions.names_rows_by_in(&plan.table) {
        fill_in_slices(plan, binding, &mut read.slices).await?;
        guard::in_product(guardrails, "clustering key", read.slices.len(), &mut out.warnings)?;
    }
    let single = if plan.restrictions.key_range || state.is_some() {
        false
    } else {
        // Of several wrong values the first in this order is reported, as in Cassandra.
        let single = aim_at_single_key(plan, binding, read)?;
        if single && plan.restrictions.clustering_has_in() {
            fill_in_slices(plan, binding, &mut read.slices).await?;
        } else if single {
            slices::fill(&plan.restrictions, &plan.table, binding, &mut read.slices)?;
        }
        single
    };
    match single {
        true => {
            if let PartitionRange::Key(key) = &read.range {
                routing::hint(engine, request.client, &plan.table, key.token, &mut out.tablet_payload);
            }
            let read_so_far = match left {
                Left::Elsewhere(Some(unread)) => FromMemory::Partial(unread),
                Left::Elsewhere(None) => FromMemory::NotBegun,
                Left::Untried | Left::InMemory => {
                    told(engine, out.trace.is_some(), read, reader.read_from_memory(read, &mut rows)?)
                }
            };
            match read_so_far {
                FromMemory::Done => {}
                FromMemory::NotBegun => reactor::in_place!(reader.read(read, &mut rows))?,
                FromMemory::Partial(unread) => Box::pin(reader.read_unread(read, unread, &mut rows)).await?,
            }
        }
        // Boxed, so that a read of one partition does not carry the space that scans need.
        false => Box::pin(reader.many(request, state, read, &mut rows)).await?,
    }
    if let Some(error) = rows.error.take() {
        return Err(error);
    }
    if plan.calls_user {
        Box::pin(reader.finish(&mut rows, user_limit)).await?;
    } else if plan.calls > CALLS_AT_ONCE {
        Box::pin(rows.aside(|rows| rows.finish(user_limit))).await?;
    } else {
        rows.finish(user_limit)?;
    }
    let (count, more) = (engine.statements().rows_read(rows.count), rows.more);
    // An empty vector is not on the heap.
    let mut next = Vec::new();
    if more {
        let group = rows.travelling_group();
        rows.paging_state(group.as_deref()).append(&mut next);
    }
    out.warnings.append(&mut rows.warnings);
    out.tombstones += rows.tombstones.told;
    drop(rows);
    body.finish(&mut out.body, count, more.then_some(next.as_slice()));
    Ok(())
}

/// Notes, for a trace, where a read found everything in memory.
fn told(engine: &Engine, is_traced: bool, read: &ReadCommand, found: FromMemory) -> FromMemory {
    if is_traced && matches!(found, FromMemory::Done) {
        engine.storage().note_memory(read);
    }
    found
}

/// Refuses pages of a result that is ordered as a whole, unless it is known to be empty without reading.
///
/// Wrong values are reported first, as everywhere.
fn check_pages(
    engine: &Engine,
    plan: &SelectPlan,
    binding: &Binding<'_>,
    grouped: bool,
) -> Result<(), QueryError> {
    let keys = keys::all(&plan.restrictions, &plan.table, binding)?;
    let slices = &mut engine.scratch(&plan.table).read.slices;
    slices::fill(&plan.restrictions, &plan.table, binding, slices)?;
    if keys.is_empty() || slices.is_empty() {
        if !grouped {
            return Ok(());
        }
    } else {
        keys.iter().try_for_each(|key| keys::check_not_empty(&key.key))?;
    }
    Err(QueryError::invalid(
        "Cannot page queries with both ORDER BY and a IN restriction on the partition key; you must either remove \
         the ORDER BY or the IN and sort client side, or disable paging for this query",
    ))
}

/// Rows that another shard sends at once where each goes through the user's functions.
const USER_ROWS: usize = 64;

/// Puts the one key into the command; returns false if there are several keys.
///
/// # Errors
/// [`QueryError::Invalid`] for values that are no key.
#[inline]
pub(super) fn aim_at_single_key(
    plan: &SelectPlan,
    binding: &Binding<'_>,
    command: &mut ReadCommand,
) -> Result<bool, QueryError> {
    if plan.restrictions.token.is_some() {
        return Ok(false);
    }
    if !matches!(command.range, PartitionRange::Key(_)) {
        command.range = PartitionRange::Key(DecoratedKey { token: model::Token::MINIMUM, key: Vec::new() });
    }
    let PartitionRange::Key(key) = &mut command.range else { return Ok(false) };
    key.key.clear();
    let single = keys::append_single(&plan.restrictions, &plan.table, binding, &mut key.key)?;
    key.token = murmur3_token(&key.key);
    Ok(single)
}

pub(super) fn page_limits(
    plan: &SelectPlan,
    binding: &Binding<'_>,
    parameters: &QueryParameters<'_>,
) -> Result<PageLimits, QueryError> {
    let limit = |term: &Option<Term>| match term {
        None => Ok(u64::MAX),
        Some(term) => match term.bind(binding)? {
            Bound::Unset => Ok(u64::MAX),
            Bound::Null => Err(QueryError::invalid("Invalid null value of limit")),
            Bound::Value(value) => match <[u8; 4]>::try_from(value.as_ref()).map(i32::from_be_bytes) {
                Ok(limit @ 1..) => Ok(u64::from(limit.unsigned_abs())),
                Ok(_) => Err(QueryError::invalid("LIMIT must be strictly positive")),
                Err(_) => Err(QueryError::invalid("Invalid limit value")),
            },
        },
    };
    Ok(PageLimits {
        remaining: limit(&plan.limit)?,
        per_partition: limit(&plan.per_partition_limit)?,
        page_rows: parameters
            .page_size
            .filter(|_| plan.sort.is_empty())
            .map_or(usize::MAX, |rows| rows as usize),
        tombstones: TombstoneLimits::NONE,
    })
}
