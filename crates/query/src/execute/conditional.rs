//! Executes conditional modifications and conditional batches: one partition is read, decided on and written
//! in one step, and the result has the existing values if it was not applied.
//!
//! Rules, messages and the result's shape as Cassandra 5's `CQL3CasRequest` and `buildCasResultSet`.

use std::borrow::Cow;
use std::rc::Rc;
use std::time::Duration;

use model::clustering::{Clustering, Slice, compare_clusterings};
use model::deletion::LocalSeconds;
use model::partition_key::DecoratedKey;
use model::{Column, ColumnId, ColumnKind, RowView, Table};
use reactor::{Deadline, give_way, in_slices};
use replication::lwt::Current;
use replication::{Ballot, CasDeadlines, CasError, CasOutcome, CasRead, CasRequest, ReplicationError};
use smallvec::SmallVec;
use statement::guardrails::WriteGuardrails;
use statement::prepare::condition::Conditions;
use statement::prepare::modify::{ModifyPlan, result_metadata};
use statement::prepare::selection::all_columns;
use statement::restrictions::clause::Test;
use statement::restrictions::{keys, slices};
use statement::results::{MetadataMode, ResultMetadata, RowsBody, append_value};
use storage::Slices;
use wire::error::WriteType;

use super::condition::BoundCondition;
use super::evaluate::RowInput;
use super::prior::Prior;
use super::update_buffer::PartitionUpdate;
use super::updates::{self, Moment, Updates};
use super::write_guard;
use super::{Part, Request, consistency, routing};
use crate::counts::Counts;
use crate::engine::Engine;
use crate::{QueryError, Response};

/// Statements of a batch that are bound in one go.
const PARTS_AT_ONCE: usize = 64;

/// Executes one conditional modification and appends its rows.
///
/// # Errors
/// [`QueryError`] of values, conditions, consistency or storage.
pub(super) async fn single(
    engine: &Engine,
    request: &Request<'_>,
    plan: &ModifyPlan,
    out: &mut Response,
) -> Result<(), QueryError> {
    let Some(condition) = &plan.condition else {
        return Err(QueryError::Internal("a conditional statement without a condition".to_owned()));
    };
    let timeout = updates::timeout(plan.timeout.as_ref(), request.binding)?;
    let parts = [Part { plan, binding: *request.binding }];
    let guards = engine.config().guardrails.writes.as_deref();
    let mut cas = Cas::make(engine, &parts, request.now, guards).await?;
    match cas.run(engine, request, timeout, out).await? {
        None => append_applied(&condition.applied, request, out),
        Some(current) => cas.append_rejected(&condition.rejected, &condition.shown, &current, request, out),
    }
    Ok(())
}

/// Executes the statements of a conditional batch and appends its rows.
///
/// # Errors
/// As [`single`], and if the statements concern several partitions.
pub(super) async fn batch(
    engine: &Engine,
    request: &Request<'_>,
    parts: &[Part<'_>],
    timeout: Option<Duration>,
    out: &mut Response,
) -> Result<(), QueryError> {
    let guards = engine.config().guardrails.writes.as_deref();
    let mut cas = Cas::make(engine, parts, request.now, guards).await?;
    let current = cas.run(engine, request, timeout, out).await?;
    let table = &parts[0].plan.table;
    match current {
        None => append_applied(&result_metadata(table, &[]), request, out),
        Some(current) => {
            let shown = shown_by_batch(table, parts);
            cas.append_rejected(&result_metadata(table, &shown), &shown, &current, request, out);
        }
    }
    Ok(())
}

/// Columns in the result of a batch that was not applied: all if a row's existence was tested, otherwise the
/// key and the columns with conditions.
fn shown_by_batch(table: &Table, parts: &[Part<'_>]) -> Vec<Column> {
    let key = table.partition_key().iter().chain(table.clustering());
    let mut shown: Vec<Column> = key.filter(|column| !table.hides(column)).cloned().collect();
    for plan in parts.iter().filter_map(|part| part.plan.condition.as_ref()) {
        match &plan.conditions {
            Conditions::NotExists | Conditions::Exists => {
                return all_columns(table).into_iter().cloned().collect();
            }
            Conditions::Columns(conditions) => {
                for condition in conditions {
                    if !shown.iter().any(|column| column.id == condition.column.id) {
                        shown.push((*condition.column).clone());
                    }
                }
            }
        }
    }
    shown
}

fn append_applied(metadata: &ResultMetadata, request: &Request<'_>, out: &mut Response) {
    // Clients never keep the metadata of conditional statements: it depends on the outcome.
    let body = RowsBody::begin(&mut out.body, request.client.version, metadata, MetadataMode::Full);
    append_value(&mut out.body, Some(&[1]));
    body.finish(&mut out.body, 1, None);
}

/// The condition on one row.
#[derive(Debug)]
enum Must<'a> {
    NotExist,
    Exist,
    Hold(Vec<BoundCondition<'a>>),
}

/// The conditions on one row, by its clustering; `None` is the static row.
#[derive(Debug)]
struct RowMust<'a> {
    clustering: Option<Vec<u8>>,
    must: Must<'a>,
}

/// The conditions and writes of one request.
struct Cas<'a> {
    parts: &'a [Part<'a>],
    table: &'a Rc<Table>,
    key: DecoratedKey,
    now: LocalSeconds,
    /// In the order of the rows; the static row first.
    musts: Vec<RowMust<'a>>,
    /// Rows that are read because they are written.
    also_read: Vec<Vec<u8>>,
    update: PartitionUpdate,
    rows: Slices,
    scratch_key: Vec<u8>,
    guards: Option<&'a WriteGuardrails>,
    /// Warnings of the guardrails about written data.
    warnings: Vec<String>,
}

impl<'a> Cas<'a> {
    /// As [`Cas::new`], in slices if there may be many conditions or statements.
    async fn make(
        engine: &Engine,
        parts: &'a [Part<'a>],
        now: LocalSeconds,
        guards: Option<&'a WriteGuardrails>,
    ) -> Result<Self, QueryError> {
        if parts.len() > PARTS_AT_ONCE || parts.iter().any(|part| part.plan.long_text) {
            let new = || Self::new(parts, now, guards);
            return Box::pin(in_slices(&Counts::new(engine.ambient()), new)).await;
        }
        Self::new(parts, now, guards)
    }

    fn new(
        parts: &'a [Part<'a>],
        now: LocalSeconds,
        guards: Option<&'a WriteGuardrails>,
    ) -> Result<Self, QueryError> {
        let table = &parts[0].plan.table;
        let mut cas = Self {
            parts,
            table,
            key: DecoratedKey::new(Vec::new()),
            now,
            musts: Vec::new(),
            also_read: Vec::new(),
            update: PartitionUpdate::new(Rc::clone(table)),
            rows: Slices::new(),
            scratch_key: Vec::new(),
            guards,
            warnings: Vec::new(),
        };
        for (at, part) in parts.iter().enumerate() {
            give_way();
            cas.add(part, at == 0)?;
        }
        let orders = table.clustering_orders();
        cas.musts.sort_by(|a, b| match (&a.clustering, &b.clustering) {
            (Some(a), Some(b)) => compare_clusterings(orders, a, b),
            (a, b) => a.is_some().cmp(&b.is_some()),
        });
        Ok(cas)
    }

    fn is_batch(&self) -> bool {
        self.parts.len() > 1
    }

    fn add(&mut self, part: &'a Part<'a>, first: bool) -> Result<(), QueryError> {
        let Part { plan, binding } = part;
        let invalid = |text: String| Err(QueryError::Invalid(text));
        if plan.restrictions.partition_key_has_in() {
            return if first && !self.is_batch() {
                invalid(format!(
                    "IN on the partition key is not supported with conditional {}",
                    plan.conditional_name()
                ))
            } else {
                invalid(
                    "Batch with conditions cannot span multiple partitions (you cannot use IN on the partition key)"
                        .to_owned(),
                )
            };
        }
        let mut key = Vec::new();
        keys::append_single(&plan.restrictions, &plan.table, binding, &mut key)?;
        keys::check_not_empty(&key)?;
        if first {
            self.key = DecoratedKey::new(key);
        } else if self.key.key != key {
            return invalid("Batch with conditions cannot span multiple partitions".to_owned());
        }
        if plan.restrictions.clustering.iter().any(|clause| matches!(clause.test, Test::In(_))) {
            return invalid(format!(
                "IN on the clustering key columns is not supported with conditional {}",
                plan.conditional_name()
            ));
        }
        slices::fill(&plan.restrictions, &plan.table, binding, &mut self.rows)?;
        slices::check_lengths(&self.rows)?;
        let whole_row = plan.restrictions.names_rows(&plan.table) && !plan.only_static();
        let clustering = whole_row.then(|| self.rows[0].start.prefix.clone());
        if plan.needs_read() && !plan.regulars.is_empty() {
            self.also_read.extend(clustering.clone());
        }
        let Some(condition) = &plan.condition else { return Ok(()) };
        match &condition.conditions {
            Conditions::NotExists => self.exists(clustering, false),
            Conditions::Exists => self.exists(clustering, true),
            Conditions::Columns(conditions) => {
                for condition in conditions {
                    give_way();
                    let bound = BoundCondition::bind(condition, binding)?;
                    let row =
                        if condition.column.kind == ColumnKind::Static { None } else { clustering.clone() };
                    match self.must(&row) {
                        Some(Must::Hold(others)) => others.push(bound),
                        Some(_) => {
                            return invalid(
                                "Cannot mix IF conditions and IF NOT EXISTS for the same row".to_owned(),
                            );
                        }
                        None => {
                            self.musts.push(RowMust { clustering: row, must: Must::Hold(vec![bound]) });
                        }
                    }
                }
                Ok(())
            }
        }
    }

    fn must(&mut self, clustering: &Option<Vec<u8>>) -> Option<&mut Must<'a>> {
        self.musts.iter_mut().find(|row| row.clustering == *clustering).map(|row| &mut row.must)
    }

    fn exists(&mut self, clustering: Option<Vec<u8>>, exist: bool) -> Result<(), QueryError> {
        let invalid = |text: String| Err(QueryError::Invalid(text));
        match (self.must(&clustering), exist) {
            (Some(Must::Exist), true) | (Some(Must::NotExist), false) => {}
            (Some(Must::Hold(_)), _) => {
                return invalid(format!(
                    "Cannot mix IF conditions and IF {}EXISTS for the same row",
                    if exist { "" } else { "NOT " }
                ));
            }
            (Some(_), _) => {
                return invalid(
                    "Cannot mix IF EXISTS and IF NOT EXISTS conditions for the same row".to_owned(),
                );
            }
            (None, _) => {
                let must = if exist { Must::Exist } else { Must::NotExist };
                self.musts.push(RowMust { clustering, must });
            }
        }
        Ok(())
    }

    /// Executes it; returns `None` if it was applied, otherwise the existing values.
    async fn run(
        &mut self,
        engine: &Engine,
        request: &Request<'_>,
        timeout: Option<Duration>,
        out: &mut Response,
    ) -> Result<Option<Current>, QueryError> {
        let serial = consistency::for_serial(request.parameters.serial_consistency)?;
        let commit = consistency::for_commit(request.parameters.consistency)?;
        let (table, key) = (self.table, self.key.clone());
        let config = engine.config();
        let contention = timeout.unwrap_or(config.cas_contention_timeout);
        let write = timeout.unwrap_or(contention + config.write_timeout);
        let deadlines =
            CasDeadlines { contention: Deadline::after(contention), write: Deadline::after(write) };
        let began = reactor::now();
        let cas = engine.replicator().cas(table, &key, self, (serial, commit), deadlines).await;
        engine.loads().cas_write_ended(began);
        let outcome = match cas {
            Ok(CasOutcome::Applied) => None,
            Ok(CasOutcome::Rejected(current)) => {
                engine.statements().condition_not_met();
                Some(current)
            }
            Err(CasError::Request(error)) => return Err(error),
            Err(CasError::Replication(error)) => {
                // The level that was not reached: the commit's, once the write is decided.
                let level = match error {
                    ReplicationError::Uncommitted { .. } => commit,
                    _ => serial,
                };
                return Err(consistency::write_error(error, level, WriteType::Cas, table, &key.key));
            }
        };
        out.warnings.append(&mut self.warnings);
        routing::hint(engine, request.client, table, key.token, &mut out.tablet_payload);
        Ok(outcome)
    }

    /// Whether a column is shown: all of the kind of row that is written, and those with conditions.
    fn is_seen(&self, column: &Column) -> bool {
        let conditional = |part: &&Part<'_>| part.plan.condition.is_some();
        let of_kind = match column.kind {
            ColumnKind::Static => {
                self.parts.iter().filter(conditional).any(|part| !part.plan.statics.is_empty())
            }
            ColumnKind::Regular => self.parts.iter().any(|part| part.plan.writes_rows()),
            ColumnKind::PartitionKey | ColumnKind::Clustering => true,
        };
        of_kind
            || self.parts.iter().filter(conditional).any(|part| {
                let conditions =
                    part.plan.condition.as_ref().map_or(&[][..], |plan| plan.conditions.columns());
                let operations = part.plan.regulars.iter().chain(&part.plan.statics);
                conditions.iter().any(|condition| condition.column.id == column.id)
                    || operations
                        .filter(|operation| operation.action.needs_read())
                        .any(|operation| operation.column.id == column.id)
            })
    }

    fn seen_regulars(&self) -> Vec<ColumnId> {
        let regulars = self.table.regulars().iter().filter(|column| self.is_seen(column));
        regulars.map(|column| column.id).collect()
    }

    fn append_rejected(
        &self,
        metadata: &ResultMetadata,
        shown: &[Column],
        current: &Current,
        request: &Request<'_>,
        out: &mut Response,
    ) {
        let key = keys::split(self.table, &self.key.key);
        let statics: Vec<&Column> =
            self.table.statics().iter().filter(|column| self.is_seen(column)).collect();
        let static_row = current.static_row().filter(|row| {
            row.cells()
                .any(|cell| statics.iter().any(|column| column.id == cell.column) && cell.is_live(self.now))
        });
        // Rows that are only written to are not part of the answer.
        let by_row = self.musts.iter().any(|row| row.clustering.is_some());
        let is_asked = |clustering: &[u8]| {
            !by_row || self.musts.iter().any(|row| row.clustering.as_deref() == Some(clustering))
        };
        let mut rows: Vec<(&[u8], RowView<'_>)> =
            current.rows().filter(|(clustering, _)| is_asked(clustering)).collect();
        if !by_row {
            // A row without any of the shown columns is not shown.
            let columns = self.seen_regulars();
            rows.retain(|(_, row)| {
                let mut cells = row.cells().filter(|cell| cell.is_live(self.now));
                row.liveness().is_live(self.now) || cells.any(|cell| columns.contains(&cell.column))
            });
            rows.truncate(1);
        }
        if rows.is_empty() && static_row.is_none() {
            let applied = result_metadata(self.table, &[]);
            let body = RowsBody::begin(&mut out.body, request.client.version, &applied, MetadataMode::Full);
            append_value(&mut out.body, Some(&[0]));
            return body.finish(&mut out.body, 1, None);
        }
        let body = RowsBody::begin(&mut out.body, request.client.version, metadata, MetadataMode::Full);
        let count = rows.len().max(1);
        let rows = rows.into_iter().map(Some).chain(std::iter::repeat(None)).take(count);
        for row in rows {
            let clustering: SmallVec<[Option<&[u8]>; 4]> =
                Clustering(row.map_or(&[], |(clustering, _)| clustering)).components().collect();
            let row = row.map(|(_, row)| row);
            let input = RowInput { key: &key, clustering: &clustering, static_row, row, now: self.now };
            append_value(&mut out.body, Some(&[0]));
            for column in shown {
                let value: Option<Cow<'_, [u8]>> =
                    if self.is_seen(column) { input.column(column) } else { None };
                append_value(&mut out.body, value.as_deref());
            }
        }
        body.finish(&mut out.body, count, None);
    }
}

impl CasRequest for Cas<'_> {
    type Error = QueryError;

    fn reads(&self) -> (Vec<CasRead>, LocalSeconds) {
        let mut reads = Vec::with_capacity(2);
        let rows: Slices =
            self.musts.iter().filter_map(|row| row.clustering.as_deref()).map(Slice::prefix).collect();
        if rows.is_empty() {
            // A visible row distinguishes a partition without static values from an absent one.
            reads.push(CasRead {
                slices: std::iter::once(Slice::all()).collect(),
                rows_max: 1,
                shown_by: Some(self.seen_regulars()),
            });
        } else {
            reads.push(CasRead { slices: rows, rows_max: usize::MAX, shown_by: None });
        }
        for clustering in &self.also_read {
            if !self.musts.iter().any(|row| row.clustering.as_ref() == Some(clustering)) {
                let slices = std::iter::once(Slice::prefix(clustering)).collect();
                reads.push(CasRead { slices, rows_max: 1, shown_by: None });
            }
        }
        (reads, self.now)
    }

    fn decide(
        &mut self,
        current: &Current,
        Ballot { micros: timestamp, .. }: Ballot,
        mutation: &mut Vec<u8>,
    ) -> Result<bool, QueryError> {
        for RowMust { clustering, must } in &self.musts {
            let row = match clustering {
                Some(clustering) => current.row(clustering),
                None => current.static_row(),
            };
            let holds = match must {
                Must::NotExist => row.is_none(),
                Must::Exist => row.is_some(),
                Must::Hold(conditions) => {
                    conditions.iter().try_fold(true, |holds, condition| match holds {
                        true => condition.holds(row),
                        false => Ok(false),
                    })?
                }
            };
            if !holds {
                return Ok(false);
            }
        }
        let prior = Prior::of(&self.key.key, current);
        let Self { parts, update, rows, scratch_key, key, .. } = self;
        update.reset(&parts[0].plan.table);
        update.set_key(key);
        let moment = Moment { timestamp, now: self.now, fixed: true };
        for Part { plan, binding } in *parts {
            updates::add(plan, binding, moment, &prior, scratch_key, rows, &mut One(update))?;
        }
        if let Some(guards) = self.guards {
            write_guard::update(guards, update, parts.iter().map(|part| part.plan), &mut self.warnings)?;
        }
        update.encode(mutation);
        Ok(true)
    }
}

/// Every statement writes to the one partition.
struct One<'u>(&'u mut PartitionUpdate);

impl Updates for One<'_> {
    fn of(&mut self, _plan: &ModifyPlan, _key: &[u8]) -> &mut PartitionUpdate {
        self.0
    }
}
