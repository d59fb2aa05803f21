//! Executes a SELECT's reads, command by command, until the page is full.

use std::rc::Rc;
use std::time::Duration;

use model::clustering::{OwnedPosition, Position};
use model::partition_key::DecoratedKey;
use reactor::{Deadline, in_slices};
use replication::read::{FromMemory, Unread};
use replication::{Consistency, ReadLimits};
use statement::prepare::select::SelectPlan;
use statement::prepare::selection::SelectionKind;
use statement::restrictions::{keys, slices};
use storage::{PartitionRange, ReadCommand, RowConsumer};

use super::super::fetch::{Fetch, Rest};
use super::super::fragments::Readable;
use super::super::rows::{CALLS_AT_ONCE, PageLimits, Rows};
use super::super::tombstones;
use super::super::{Request, consistency, parallel};
use super::USER_ROWS;
use crate::QueryError;
use crate::counts::Counts;
use crate::engine::Engine;
use crate::paging::{self, PagingState};

pub(super) struct Reader<'e> {
    pub(super) engine: &'e Engine,
    pub(super) plan: &'e SelectPlan,
    pub(super) level: Consistency,
    pub(super) timeout: Option<Duration>,
    /// Whether more rows are read than shown.
    pub(super) chooses: bool,
    pub(super) limits: PageLimits,
}

impl Reader<'_> {
    /// Limits beyond which other shards need not send rows.
    fn read_limits(&self, rows: &Rows<'_>) -> ReadLimits {
        let per_partition = usize::try_from(self.limits.per_partition).ok().filter(|most| *most < usize::MAX);
        let enough = self.plan.calls_user.then_some(USER_ROWS);
        ReadLimits {
            rows: (!self.chooses)
                .then(|| row_limit(rows.remaining, self.limits.page_rows))
                .flatten()
                .map_or(enough, |most| Some(enough.map_or(most, |enough| enough.min(most)))),
            rows_per_partition: if self.plan.distinct {
                Some(0)
            } else {
                per_partition.filter(|_| !self.chooses)
            },
        }
    }

    /// Reads one row that nothing has to be waited for.
    #[inline]
    pub(super) fn read_from_memory(
        &self,
        command: &ReadCommand,
        rows: &mut Rows<'_>,
    ) -> Result<FromMemory, QueryError> {
        let computes = self.plan.calls > CALLS_AT_ONCE;
        if !self.plan.looks_in_memory || computes || command.slices.is_empty() {
            return Ok(FromMemory::NotBegun);
        }
        if let PartitionRange::Key(key) = &command.range {
            keys::check_not_empty(&key.key)?;
        }
        let before = rows.count;
        let load = self.engine.load_of(&command.table);
        let began = load.reads.begin();
        let read = self.engine.read_from_memory(command, self.level, rows)?;
        if matches!(read, FromMemory::Done) {
            load.reads.end(began);
            if let PartitionRange::Key(key) = &command.range {
                self.engine.replicator().note_read(&command.table, &key.key);
            }
            self.went_past(command, before, rows)?;
        } else {
            load.reads.not_begun(began);
        }
        Ok(read)
    }

    /// Continues a read that `read_from_memory` began.
    pub(super) async fn read_unread(
        &self,
        command: &ReadCommand,
        unread: Unread,
        rows: &mut Rows<'_>,
    ) -> Result<(), QueryError> {
        let before = rows.count;
        self.engine.read_unread(command, unread, self.level, self.timeout, rows).await?;
        self.went_past(command, before, rows)
    }

    #[inline]
    pub(super) async fn read(&self, command: &ReadCommand, rows: &mut Rows<'_>) -> Result<(), QueryError> {
        if command.slices.is_empty() && self.plan.restrictions.restricts_clustering {
            // IN () on a clustering column: no row can match, and static rows alone are not asked for.
            return Ok(());
        }
        if let PartitionRange::Key(key) = &command.range {
            keys::check_not_empty(&key.key)?;
        }
        // A row of columns alone is little work; what is computed for one may be much.
        if self.plan.calls_user || !matches!(self.plan.selection.kind, SelectionKind::Columns(_)) {
            return Box::pin(self.in_fetches(command, rows)).await;
        }
        let limits = self.read_limits(rows);
        let before = rows.count;
        reactor::in_place!(self.rows_of(command, limits, rows))?;
        self.went_past(command, before, rows)
    }

    /// Hands the rows that a command selects to a consumer, with fragments formatted.
    #[inline]
    async fn rows_of(
        &self,
        command: &ReadCommand,
        limits: ReadLimits,
        consumer: &mut dyn RowConsumer,
    ) -> Result<(), QueryError> {
        match &self.plan.fragments_of {
            None => reactor::in_place!(self.engine.read(command, limits, self.level, self.timeout, consumer)),
            Some(base) => {
                // The table may have been altered since the statement was prepared.
                let base = self.engine.stored_table(base.id()).unwrap_or_else(|| Rc::clone(base));
                let mut readable = Readable::new(&base, &command.table, consumer);
                Box::pin(self.engine.read(command, limits, self.level, self.timeout, &mut readable)).await
            }
        }
    }

    /// Behind each read.
    fn went_past(&self, command: &ReadCommand, before: usize, rows: &mut Rows<'_>) -> Result<(), QueryError> {
        let scanned = std::mem::take(&mut rows.scanned);
        self.engine.went_past(&command.table, scanned, rows.tombstones.seen);
        if rows.tombstones.seen > 0 { self.met_tombstones(command, before, rows) } else { Ok(()) }
    }

    /// Called after a read that passed tombstones.
    #[cold]
    #[inline(never)]
    fn met_tombstones(
        &self,
        command: &ReadCommand,
        before: usize,
        rows: &mut Rows<'_>,
    ) -> Result<(), QueryError> {
        let seen = std::mem::take(&mut rows.tombstones.seen);
        rows.tombstones.told += seen;
        let limit = |most: u64| (most != u64::MAX).then_some(most);
        let page = limit(self.limits.page_rows as u64).into_iter().chain(limit(self.limits.remaining)).min();
        let shown = rows.count - before;
        tombstones::check(self.engine, command, self.level, seen, |seen| {
            let limits = (page, limit(self.limits.per_partition));
            let text = tombstones::warning(command, limits, rows.read_key(), shown, seen);
            rows.warn(text);
        })
    }

    /// Whether this node's shards together have all of a stored table: then each answers for its tablets.
    fn is_of_this_node(&self) -> bool {
        let table = &self.plan.table;
        self.engine.stored_table(table.id()).is_some() && self.engine.replicator().is_only_here(table)
    }

    /// Several keys, a range, or the rest of either.
    pub(super) async fn many(
        &self,
        request: &Request<'_>,
        state: Option<PagingState<'_>>,
        command: &mut ReadCommand,
        rows: &mut Rows<'_>,
    ) -> Result<(), QueryError> {
        let (plan, table, binding) = (self.plan, &self.plan.table, request.binding);
        if let (Some(text), None) = (&plan.parallel, &state)
            && self.is_of_this_node()
        {
            let what = (plan, &**text);
            return parallel::aggregate(self.engine, request, what, self.level, self.timeout, rows).await;
        }
        let resume = state.map(|state| Resume::new(plan, &state)).transpose()?;
        state.iter().try_for_each(|state| rows.take_over(state))?;
        if plan.restrictions.key_range {
            super::fill_in_slices(plan, binding, &mut command.slices).await?;
            let Some(range) = super::range::of(&plan.restrictions, binding)? else { return Ok(()) };
            let mut rest = Some(range);
            if let Some(resume) = resume {
                let all = command.slices.clone();
                rest = rest.and_then(|range| replication::read::position::behind(&range, &resume.key));
                self.rest_of_partition(&resume, command, rows).await?;
                command.slices = all;
            }
            if let (Some(range), false) = (rest, rows.is_done()) {
                command.range = range;
                if matches!(plan.selection.kind, SelectionKind::Groups(_)) {
                    return self.in_fetches(command, rows).await;
                }
                self.read(command, rows).await?;
            }
            return Ok(());
        }
        let alternatives = || {
            let keys = keys::all(&plan.restrictions, table, binding)?;
            slices::fill(&plan.restrictions, table, binding, &mut command.slices)?;
            Ok::<_, QueryError>(keys)
        };
        let keys = in_slices(&Counts::new(binding.ambient), alternatives).await?;
        if !command.slices.is_empty() {
            keys.iter().try_for_each(|key| keys::check_not_empty(&key.key))?;
        }
        let whole =
            self.limits.page_rows == usize::MAX || self.limits.remaining <= self.limits.page_rows as u64;
        if keys.len() > 1
            && resume.is_none()
            && !command.slices.is_empty()
            && matches!(self.level, Consistency::Serial | Consistency::LocalSerial)
            && whole
            && !matches!(plan.selection.kind, SelectionKind::Groups(_))
        {
            return Err(QueryError::invalid(
                "SERIAL/LOCAL_SERIAL consistency may only be requested for one partition at a time",
            ));
        }
        let mut keys = keys.into_iter();
        if let Some(resume) = resume {
            // The key the last page ended in must be one of them.
            keys.find(|key| *key == resume.key).ok_or_else(paging::invalid)?;
            let all = command.slices.clone();
            self.rest_of_partition(&resume, command, rows).await?;
            command.slices = all;
        }
        for key in keys {
            if rows.is_done() {
                break;
            }
            command.range = PartitionRange::Key(key);
            self.read(command, rows).await?;
            reactor::maybe_yield().await;
        }
        Ok(())
    }

    /// Reads in as many fetches as needed: scans that combine many rows into few, or reads with user-defined
    /// functions; other tasks run after each fetch.
    async fn in_fetches(&self, command: &ReadCommand, rows: &mut Rows<'_>) -> Result<(), QueryError> {
        let (plan, all) = (self.plan, command.slices.clone());
        let mut command = command.clone();
        if all.is_empty() && plan.restrictions.restricts_clustering {
            return Ok(());
        }
        let mut rest = Some(Rest::new(command.range.clone(), all.clone()));
        while let Some(part) = rest.take() {
            let deadline = self.deadline();
            command.range = part.range.clone();
            command.slices = part.slices.clone();
            let limits = self.read_limits(rows);
            let before = rows.count;
            let mut fetch = Fetch::new(rows, &part).giving_way(plan.calls_user);
            if !(part.is_inside() && command.slices.is_empty()) {
                self.rows_of(&command, limits, &mut fetch).await?;
            }
            let fetched = fetch.end(deadline).await.map_err(|_| self.late())?;
            self.went_past(&command, before, rows)?;
            if rows.is_done() {
                break;
            }
            rest = part.behind(fetched, (&plan.table, plan.reversed), &all);
            match rows.calls() {
                Some(calls) => calls.rest_if_spent().await,
                None => reactor::maybe_yield().await,
            }
        }
        Ok(())
    }

    /// As [`Rows::finish`], with user-defined functions over the result.
    pub(super) async fn finish(&self, rows: &mut Rows<'_>, limit: u64) -> Result<(), QueryError> {
        let Some(calls) = rows.calls() else { return rows.finish(limit) };
        calls.through(self.deadline(), || self.late(), || rows.finish(limit)).await
    }

    /// When the functions of the user's that one fetch's rows go through must be done, as the fetch itself.
    fn deadline(&self) -> Deadline {
        let config = self.engine.config();
        let timeout =
            if self.plan.restrictions.key_range { config.range_timeout } else { config.read_timeout };
        Deadline::after(self.timeout.unwrap_or(timeout))
    }

    fn late(&self) -> QueryError {
        consistency::late(self.engine, self.plan.table.keyspace(), self.level)
    }

    async fn rest_of_partition(
        &self,
        resume: &Resume,
        command: &mut ReadCommand,
        rows: &mut Rows<'_>,
    ) -> Result<(), QueryError> {
        let Some(position) = &resume.position else { return Ok(()) };
        let orders = self.plan.table.clustering_orders();
        replication::read::position::resume_after(
            &mut command.slices,
            position.as_ref(),
            self.plan.reversed,
            orders,
        );
        // If no row of the partition was read yet, its static row may still be shown.
        if command.slices.is_empty() && (resume.begun || self.plan.restrictions.restricts_clustering) {
            return Ok(());
        }
        command.range = PartitionRange::Key(resume.key.clone());
        if resume.begun {
            rows.resume(resume.partition_remaining);
        }
        self.read(command, rows).await?;
        rows.leave_partition();
        Ok(())
    }
}

/// The end of the last page, checked against the table.
struct Resume {
    key: DecoratedKey,
    position: Option<OwnedPosition>,
    begun: bool,
    partition_remaining: Option<u64>,
}

impl Resume {
    fn new(plan: &SelectPlan, state: &PagingState<'_>) -> Result<Self, QueryError> {
        let table = &plan.table;
        let columns = table.clustering().len();
        let key_parts = keys::split(table, state.key);
        let fits = |position: Position<'_>| {
            // A row has all of the columns; a bound may have fewer.
            position.prefix.is_valid(columns)
                && (position.weight != 0 || position.prefix.components().count() == columns)
        };
        if key_parts.len() != table.partition_key().len()
            || state.key.len() > model::partition_key::PARTITION_KEY_BYTES_MAX
            || !state.position.is_none_or(fits)
            || state.partition_remaining == Some(0)
            || state.remaining == 0
        {
            return Err(paging::invalid());
        }
        Ok(Self {
            key: DecoratedKey::new(state.key.to_vec()),
            position: state.position.map(Position::to_owned),
            begun: state.begun,
            partition_remaining: state.partition_remaining,
        })
    }
}

/// One row more than a page needs, which tells that there are more; `None` where there is no limit. Rows that
/// were counted down from no limit leave none either, so `usize::MAX` is never a number of rows.
fn row_limit(remaining: u64, page_rows: usize) -> Option<usize> {
    let most = usize::try_from(remaining).unwrap_or(usize::MAX).min(page_rows);
    most.checked_add(1).filter(|most| *most < usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::row_limit;

    #[test]
    fn without_a_limit_no_number_of_rows_read_makes_one_that_means_none() {
        assert_eq!(row_limit(u64::MAX, usize::MAX), None);
        assert_eq!(row_limit(u64::MAX - 1, usize::MAX), None, "one row was read");
        assert_eq!(row_limit(u64::MAX - 2, usize::MAX), Some(usize::MAX - 1));
        assert_eq!(row_limit(3, usize::MAX), Some(4));
        assert_eq!(row_limit(u64::MAX - 1, 10), Some(11));
    }
}
