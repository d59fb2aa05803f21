//! Adds a prepared modification, with its values, to partition updates.

use std::time::Duration;

use model::deletion::{EXPIRATION_MAX, LocalSeconds};
use model::mutation;
use model::partition_key::PARTITION_KEY_BYTES_MAX;
use model::token::murmur3_token;
use model::{Liveness, Token};
use reactor::in_slices;
use statement::names;
use statement::prepare::modify::ModifyPlan;
use statement::restrictions::clause::Clause;
use statement::restrictions::{StatementKind, keys, slices};
use statement::terms::{Binding, Bound, Term};
use storage::Slices;
use wire::values::ValueRef;

use super::marker_row;
use super::prior::Prior;
use super::row_writer::{self, Stamp, TTL_SECONDS_MAX};
use super::update_buffer::PartitionUpdate;
use crate::QueryError;
use crate::counts::Counts;

/// The timestamp of a request's writes if its statements give none.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Client timestamp in microseconds.
    pub timestamp: i64,
    /// Seconds now.
    pub now: LocalSeconds,
    /// Whether statements cannot override it: a conditional write has the timestamp of its ballot.
    pub fixed: bool,
}

/// The destination of a statement's writes: one update for each partition.
pub trait Updates {
    /// The update of a partition of the plan's table.
    fn of(&mut self, plan: &ModifyPlan, key: &[u8]) -> &mut PartitionUpdate;
}

/// Adds the writes of `plan` with these values.
///
/// # Errors
/// [`QueryError::Invalid`] for values that cannot be written.
#[inline]
pub fn add(
    plan: &ModifyPlan,
    binding: &Binding<'_>,
    moment: Moment,
    prior: &Prior,
    key: &mut Vec<u8>,
    rows: &mut Slices,
    updates: &mut dyn Updates,
) -> Result<(), QueryError> {
    // Of several wrong values the first in this order is reported, as in Cassandra.
    let timestamp = timestamp_of(plan, binding, moment)?;
    key.clear();
    let single = keys::append_single(&plan.restrictions, &plan.table, binding, key)?;
    let several = if single { Vec::new() } else { keys::all(&plan.restrictions, &plan.table, binding)? };
    if single {
        keys::check_not_empty(key)?;
    }
    several.iter().try_for_each(|key| keys::check_not_empty(&key.key))?;
    slices::fill(&plan.restrictions, &plan.table, binding, rows)?;
    if rows.is_empty() {
        // IN () or a range without rows: nothing is written, and other mistakes are not reported.
        return Ok(());
    }
    let stamp = stamp(plan, binding, Moment { timestamp, ..moment })?;
    slices::check_lengths(rows)?;
    if plan.restrictions.clustering.iter().any(Clause::is_slice) {
        slices::check_bounds_given(&plan.restrictions, binding)?;
    }
    if single {
        return write(plan, binding, &stamp, prior, rows, updates.of(plan, key));
    }
    for key in several {
        write(plan, binding, &stamp, prior, rows, updates.of(plan, &key.key))?;
    }
    Ok(())
}

/// A bound collection of more bytes may have so many elements that its cells are made in slices.
const LONG_VALUE_BYTES: usize = 16 << 10;

/// Whether a long value is bound that may be for a collection.
#[inline]
pub fn has_long_values(plan: &ModifyPlan, binding: &Binding<'_>) -> bool {
    let is_long =
        |value: &ValueRef<'_>| matches!(value, ValueRef::Bytes(bytes) if bytes.len() > LONG_VALUE_BYTES);
    plan.collections && binding.values.iter().any(is_long)
}

/// Calls `add`, which makes the writes of `plan` with these values: in slices if there may be many keys, rows
/// or elements.
///
/// # Errors
/// Those of `add`.
pub async fn make<T>(
    plan: &ModifyPlan,
    binding: &Binding<'_>,
    add: impl FnOnce() -> Result<T, QueryError>,
) -> Result<T, QueryError> {
    let takes_long = plan.long_text
        || plan.needs_read()
        || plan.restrictions.may_name_many()
        || has_long_values(plan, binding);
    if takes_long {
        return Box::pin(in_slices(&Counts::new(binding.ambient), add)).await;
    }
    add()
}

/// The result of a plain statement ([`plain`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plain {
    /// A row: its mutation is appended.
    Row,
    /// Nothing at all.
    Nothing,
    /// The partition was not wanted: nothing else was checked.
    Unwanted,
}

/// Appends the mutation of a plan that writes one row of one partition (`ModifyPlan::plain`) if `wants`
/// accepts its token; cells are written straight to their final place. Returns the token, and whether
/// anything was appended.
///
/// # Errors
/// As [`add`].
#[inline]
pub fn plain(
    plan: &ModifyPlan,
    binding: &Binding<'_>,
    moment: Moment,
    (key, rows): (&mut Vec<u8>, &mut Slices),
    wants: impl FnOnce(Token) -> bool,
    out: &mut Vec<u8>,
) -> Result<(Token, Plain), QueryError> {
    // In the order of `add`: the first wrong value is reported.
    let timestamp = timestamp_of(plan, binding, moment)?;
    key.clear();
    append_key(plan, binding, key)?;
    keys::check_not_empty(key)?;
    let token = murmur3_token(key);
    if !wants(token) {
        return Ok((token, Plain::Unwanted));
    }
    if !plan.only_row {
        slices::fill(&plan.restrictions, &plan.table, binding, rows)?;
    }
    let stamp = stamp(plan, binding, Moment { timestamp, ..moment })?;
    let clustering = if plan.only_row {
        &[][..]
    } else {
        slices::check_lengths(rows)?;
        match rows.first() {
            Some(row) => &row.start.prefix[..],
            None => return Err(QueryError::Internal("a write of one row names none".to_owned())),
        }
    };
    let liveness = if plan.kind == StatementKind::Insert { stamp.liveness() } else { Liveness::NONE };
    let id = plan.table.id();
    if let Some(sets) = &plan.sets
        && let Some(row) = marker_row::plain(sets, &stamp, liveness, binding)?
    {
        let fill = |room: &mut [u8]| marker_row::fill(&row, sets, binding, room);
        mutation::append_one_row_of(out, id, token, key, clustering, row.bytes(), fill);
        return Ok((token, Plain::Row));
    }
    let start = out.len();
    let mut written = Ok(false);
    mutation::append_one_row(out, id, token, key, clustering, |out| {
        written = match &plan.sets {
            Some(sets) => marker_row::append(sets, &stamp, liveness, binding, out),
            None => row_writer::append_row(&plan.table, &plan.regulars, None, &stamp, liveness, binding, out),
        };
    });
    if !matches!(written, Ok(true)) {
        out.truncate(start);
    }
    Ok((token, if written? { Plain::Row } else { Plain::Nothing }))
}

/// Appends the key of a plain statement, which has one.
#[inline]
fn append_key(plan: &ModifyPlan, binding: &Binding<'_>, key: &mut Vec<u8>) -> Result<(), QueryError> {
    if let Some(set) = &plan.key
        && let ValueRef::Bytes(value) = binding.values[set.marker]
        && value.len() <= PARTITION_KEY_BYTES_MAX
    {
        set.check(value).map_err(|error| binding.invalid(set.marker, &error))?;
        key.extend_from_slice(value);
        return Ok(());
    }
    keys::append_single(&plan.restrictions, &plan.table, binding, key)?;
    Ok(())
}

/// The timestamp of a statement's writes.
#[inline]
fn timestamp_of(plan: &ModifyPlan, binding: &Binding<'_>, moment: Moment) -> Result<i64, QueryError> {
    Ok(match &plan.timestamp {
        None => moment.timestamp,
        Some(term) => match timestamp(term, binding)? {
            Some(timestamp) if !moment.fixed => timestamp,
            _ => moment.timestamp,
        },
    })
}

#[inline]
fn stamp(plan: &ModifyPlan, binding: &Binding<'_>, moment: Moment) -> Result<Stamp, QueryError> {
    let ttl = time_to_live(plan, binding)?;
    if ttl > 0 && u64::from(moment.now) + u64::from(ttl) > u64::from(EXPIRATION_MAX) {
        return Err(expires_too_late(plan, ttl));
    }
    if moment.timestamp == i64::MIN {
        return Err(no_timestamp());
    }
    let deletion_timestamp = if moment.fixed { moment.timestamp - 1 } else { moment.timestamp };
    Ok(Stamp { timestamp: moment.timestamp, now: moment.now, ttl, deletion_timestamp })
}

/// The value of USING TIMESTAMP; `None` if it is unset.
///
/// # Errors
/// [`QueryError::Invalid`] if it is null or not a bigint.
pub fn timestamp(term: &Term, binding: &Binding<'_>) -> Result<Option<i64>, QueryError> {
    let value = match term.bind(binding)? {
        Bound::Unset => return Ok(None),
        Bound::Null => return Err(QueryError::invalid("Invalid null value of timestamp")),
        Bound::Value(value) => value,
    };
    let bytes: [u8; 8] =
        value.as_ref().try_into().map_err(|_| QueryError::invalid("Invalid timestamp value: empty"))?;
    Ok(Some(i64::from_be_bytes(bytes)))
}

#[cold]
fn expires_too_late(plan: &ModifyPlan, ttl: u32) -> QueryError {
    QueryError::Invalid(format!(
        "Request on table {} with {}ttl of {ttl} seconds exceeds maximum supported expiration date of \
         2038-01-19T03:14:06+00:00. In order to avoid this use a lower TTL, change the expiration date overflow policy \
         or upgrade to a version where this limitation is fixed. See CASSANDRA-14092 and CASSANDRA-14227 for more \
         details.",
        names::qualified(&plan.table),
        if plan.time_to_live.is_none() { "default " } else { "" }
    ))
}

/// The error for the smallest number, which means that there is no timestamp.
#[cold]
fn no_timestamp() -> QueryError {
    QueryError::Invalid(format!("Out of bound timestamp, must be in [{}, {}]", i64::MIN + 1, i64::MAX))
}

/// The value of USING TIMEOUT; `None` if there is none.
///
/// # Errors
/// [`QueryError::Invalid`] for null, for days and months, and for a duration that is not a whole number of
/// milliseconds.
#[inline]
pub fn timeout(term: Option<&Term>, binding: &Binding<'_>) -> Result<Option<Duration>, QueryError> {
    match term {
        None => Ok(None),
        Some(term) => bound_timeout(term, binding).map(Some),
    }
}

#[cold]
fn bound_timeout(term: &Term, binding: &Binding<'_>) -> Result<Duration, QueryError> {
    let Bound::Value(value) = term.bind(binding)? else {
        return Err(QueryError::invalid("Timeout value cannot be unset/null"));
    };
    let duration =
        model::number::Duration::decode(&value).map_err(|error| QueryError::Invalid(error.to_string()))?;
    if duration.months() != 0 || duration.days() != 0 {
        return Err(QueryError::invalid("Timeout values cannot be expressed in days/months"));
    }
    match u64::try_from(duration.nanoseconds()) {
        Ok(nanoseconds) if nanoseconds % 1_000_000 == 0 => Ok(Duration::from_nanos(nanoseconds)),
        Ok(_) => Err(QueryError::invalid("Timeout values must be expressed in millisecond granularity")),
        Err(_) => Err(QueryError::invalid("Timeout values must be non-negative")),
    }
}

#[inline]
fn time_to_live(plan: &ModifyPlan, binding: &Binding<'_>) -> Result<u32, QueryError> {
    let default =
        if plan.kind == StatementKind::Delete { 0 } else { plan.table.options().default_time_to_live };
    match &plan.time_to_live {
        None => Ok(default),
        Some(term) => bound_time_to_live(term, default, binding),
    }
}

fn bound_time_to_live(term: &Term, default: u32, binding: &Binding<'_>) -> Result<u32, QueryError> {
    let value = match term.bind(binding)? {
        Bound::Unset => return Ok(default),
        Bound::Null => return Ok(0),
        Bound::Value(value) => value,
    };
    let Ok(bytes) = <[u8; 4]>::try_from(value.as_ref()) else { return Ok(0) };
    match i32::from_be_bytes(bytes) {
        ttl @ ..0 => Err(QueryError::Invalid(format!("A TTL must be greater or equal to 0, but was {ttl}"))),
        ttl if ttl > TTL_SECONDS_MAX => Err(QueryError::Invalid(format!(
            "ttl is too large. requested ({ttl}) maximum ({TTL_SECONDS_MAX})"
        ))),
        ttl => Ok(ttl.unsigned_abs()),
    }
}

#[inline]
fn write(
    plan: &ModifyPlan,
    binding: &Binding<'_>,
    stamp: &Stamp,
    prior: &Prior,
    rows: &Slices,
    update: &mut PartitionUpdate,
) -> Result<(), QueryError> {
    if !plan.statics.is_empty() {
        let existing = prior.row(&update.key, None);
        update.static_row(|table, out| {
            row_writer::append_row(table, &plan.statics, existing, stamp, Liveness::NONE, binding, out)
        })?;
    }
    if plan.kind == StatementKind::Delete && plan.regulars.is_empty() {
        return if plan.statics.is_empty() { delete(plan, stamp, rows, update) } else { Ok(()) };
    }
    if !plan.writes_rows() {
        return Ok(());
    }
    let marks = plan.kind == StatementKind::Insert && plan.compact.is_none();
    let liveness = if marks { stamp.liveness() } else { Liveness::NONE };
    for row in rows {
        reactor::give_way();
        // Every clustering column is named, so each slice is one row and begins with its clustering.
        let clustering = &row.start.prefix;
        if let Some(rules) = &plan.compact {
            rules.check(clustering)?;
        }
        let existing = prior.row(&update.key, Some(clustering));
        update.row(clustering, |table, out| {
            row_writer::append_row(table, &plan.regulars, existing, stamp, liveness, binding, out)
        })?;
    }
    Ok(())
}

fn delete(
    plan: &ModifyPlan,
    stamp: &Stamp,
    rows: &Slices,
    update: &mut PartitionUpdate,
) -> Result<(), QueryError> {
    if !plan.restrictions.restricts_clustering {
        update.delete_partition(stamp.deletion());
        return Ok(());
    }
    let names_rows = plan.restrictions.names_rows(&plan.table);
    for row in rows {
        reactor::give_way();
        if !names_rows {
            update.delete_range(row.clone(), stamp.deletion());
            continue;
        }
        if let Some(rules) = &plan.compact {
            rules.check(&row.start.prefix)?;
        }
        update.row(&row.start.prefix, |_, out| {
            model::RowBuilder::new(out, Liveness::NONE, stamp.row_deletion()).finish();
            Ok::<_, QueryError>(true)
        })?;
    }
    Ok(())
}
