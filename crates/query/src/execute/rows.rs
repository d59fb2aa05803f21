//! Takes the rows that storage finds and appends those in the result to the answer.
//!
//! Limits, pages, filters and the result for a partition without rows are decided only here. A row is written
//! straight from its cells into the answer's buffer. Invariant: `last` is always the last row appended, so
//! that the next page continues right behind it.

mod grouped;
mod values;

use model::clustering::{Clustering, OwnedPosition, Position};
use model::deletion::LocalSeconds;
use model::{ColumnKind, RowView, Token};
use reactor::in_slices;
use smallvec::SmallVec;
use statement::functions::user::calls::Calls;
use statement::prepare::select::SelectPlan;
use statement::prepare::selection::SelectionKind;
use statement::restrictions::filter::BoundFilter;
use statement::restrictions::keys;
use statement::terms::Binding;
use storage::{Dead, Flow, Place, RowConsumer};

pub(super) use self::values::{append_columns, most_bytes};
use self::values::{append_columns_within, append_values, take_back};
use super::evaluate::RowInput;
use super::groups::OpenGroup;
use super::tombstones::{TombstoneLimits, Tombstones};
use crate::QueryError;
use crate::answer_room::{Grant, PAGE_BYTES_MAX};
use crate::counts::Counts;
use crate::paging::PagingState;

/// Calls for one row beyond which it is computed beside the read: each may take a microsecond.
pub(super) const CALLS_AT_ONCE: usize = 32;
/// Bytes of a row from which on it is, if there are calls at all.
const LONG_ROW_BYTES: usize = 64 << 10;

/// Warnings that one answer may have of its reads.
const WARNINGS_MAX: usize = 16;

/// Buffers that a shard keeps between reads.
#[derive(Debug, Default)]
pub struct RowBuffers {
    key: Vec<u8>,
    static_row: Vec<u8>,
    last_key: Vec<u8>,
    last_clustering: Vec<u8>,
    /// Weight of the place at the clustering above: 0 for a row.
    last_weight: i8,
}

impl RowBuffers {
    /// Whether keeping them takes little memory.
    pub fn is_small(&self) -> bool {
        self.static_row.capacity() <= 64 * 1024
    }
}

/// Rows on their way into an answer.
pub struct Rows<'q> {
    plan: &'q SelectPlan,
    binding: &'q Binding<'q>,
    filters: Vec<BoundFilter<'q>>,
    out: &'q mut Vec<u8>,
    /// The memory of the shard that the answer may take.
    grant: Grant,
    buffers: &'q mut RowBuffers,
    now: LocalSeconds,
    /// Rows in the answer.
    pub count: usize,
    /// Rows LIMIT still allows.
    pub remaining: u64,
    page_rows: usize,
    first_byte: usize,
    per_partition: u64,
    /// Rows PER PARTITION LIMIT still allows in this partition.
    partition_remaining: u64,
    has_static: bool,
    seen_row: bool,
    /// Rows handed over since this was last taken, shown or not.
    pub(super) scanned: u64,
    /// Whether the partition's beginning was on an earlier page.
    resumed: bool,
    /// Whether any partition was begun, and whether the last place was in a partition that was begun.
    announced: bool,
    begun: bool,
    /// Whether the last row's partition may have more rows.
    inside: bool,
    /// Whether a row was left for the next page.
    pub more: bool,
    /// An error inside a callback.
    pub error: Option<QueryError>,
    /// Tombstones that were passed.
    pub(super) tombstones: Tombstones,
    /// Warnings for the client.
    pub(super) warnings: Vec<String>,
    /// The group that is being combined into one row.
    group: Option<Box<OpenGroup<'q>>>,
    /// Starts of rows and of their values, if the result is sorted afterwards.
    sorted: Option<Vec<usize>>,
}

/// Limits of a page.
#[derive(Debug, Clone, Copy)]
pub struct PageLimits {
    /// Rows LIMIT allows; [`u64::MAX`] for no limit.
    pub remaining: u64,
    /// PER PARTITION LIMIT; [`u64::MAX`] for no limit.
    pub per_partition: u64,
    /// Rows of a page; [`usize::MAX`] if the client did not request pages.
    pub page_rows: usize,
    /// Limits on dead data.
    pub tombstones: TombstoneLimits,
}

impl<'q> Rows<'q> {
    /// Ready for the first row.
    pub fn new(
        plan: &'q SelectPlan,
        binding: &'q Binding<'q>,
        filters: Vec<BoundFilter<'q>>,
        limits: PageLimits,
        now: LocalSeconds,
        buffers: &'q mut RowBuffers,
        (grant, out): (Grant, &'q mut Vec<u8>),
    ) -> Self {
        let group = match &plan.selection.kind {
            SelectionKind::Groups(groups) => Some(Box::new(OpenGroup::new(groups))),
            _ => None,
        };
        Self {
            first_byte: out.len(),
            plan,
            binding,
            filters,
            out,
            grant,
            buffers,
            now,
            count: 0,
            remaining: limits.remaining,
            page_rows: limits.page_rows,
            per_partition: limits.per_partition,
            partition_remaining: limits.per_partition,
            has_static: false,
            seen_row: false,
            scanned: 0,
            resumed: false,
            announced: false,
            begun: true,
            inside: false,
            more: false,
            error: None,
            tombstones: Tombstones::new(limits.tombstones),
            warnings: Vec::new(),
            group,
            sorted: (!plan.sort.is_empty()).then(Vec::new),
        }
    }

    /// Notes that the next partition was begun on an earlier page.
    pub fn resume(&mut self, partition_remaining: Option<u64>) {
        self.resumed = true;
        self.partition_remaining = partition_remaining.unwrap_or(self.per_partition);
    }

    /// The partition that is being read is read on, behind its rows so far.
    pub(super) fn go_on(&mut self) {
        self.resumed = true;
    }

    /// Begins another row.
    #[inline]
    pub(super) fn begin_row(&self) {
        self.binding.ambient.begin_row();
    }

    /// Whether long numbers were computed with for the last row.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        self.binding.ambient.is_busy()
    }

    /// Computes with a row beside the read that found it, as [`in_slices`]: others run in the middle.
    pub(super) async fn aside<T>(&mut self, compute: impl FnOnce(&mut Self) -> T) -> T {
        let counts = Counts::new(self.binding.ambient);
        in_slices(&counts, || compute(self)).await
    }

    /// Whether computing the row's values may take so long that others must run in the middle of it.
    #[inline]
    pub(super) fn is_long(&self, row: RowView<'_>) -> bool {
        self.plan.calls > CALLS_AT_ONCE || (self.plan.calls > 0 && row.as_bytes().len() > LONG_ROW_BYTES)
    }

    /// Whether there is memory for a copy of the row.
    #[cold]
    pub(super) fn has_room_aside(&mut self, row: RowView<'_>) -> bool {
        self.take_room(row.as_bytes().len()).is_ok()
    }

    /// Calls of the user's functions that rows go through.
    pub(super) fn calls(&self) -> Option<&'q Calls> {
        self.binding.calls
    }

    /// Whether the last item is to be handed over again after a pause: a user-defined function is not ready.
    pub(super) fn is_paused(&self) -> bool {
        self.binding.calls.is_some_and(Calls::is_paused)
    }

    /// The place before all rows of a partition, in the order they are read.
    pub(super) fn beginning(&self) -> OwnedPosition {
        OwnedPosition { prefix: Vec::new(), weight: if self.plan.reversed { 1 } else { -1 } }
    }

    /// Ends the resumed partition: the next one begins normally.
    pub fn leave_partition(&mut self) {
        self.resumed = false;
    }

    /// Whether no more rows are wanted.
    pub fn is_done(&self) -> bool {
        self.more || self.remaining == 0 || self.error.is_some() || self.tombstones.are_too_many()
    }

    /// The key of the partition that was read last.
    pub(super) fn read_key(&self) -> &[u8] {
        &self.buffers.key
    }

    /// Adds a warning for the client.
    pub(super) fn warn(&mut self, text: String) {
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push(text);
        }
    }

    /// The end of the answer, for the next page, with the group that is open there.
    pub fn paging_state<'s>(&'s self, group: Option<&'s [u8]>) -> PagingState<'s> {
        let RowBuffers { last_key, last_clustering, last_weight, .. } = &*self.buffers;
        let position =
            self.inside.then_some(Position { prefix: Clustering(last_clustering), weight: *last_weight });
        let counts = self.inside && self.begun && self.per_partition != u64::MAX;
        PagingState {
            remaining: self.remaining,
            partition_remaining: counts.then_some(self.partition_remaining),
            key: last_key,
            position,
            begun: self.begun,
            group,
        }
    }

    /// Whether the answer's page is full.
    fn page_is_full(&self) -> bool {
        self.page_rows != usize::MAX
            && self.group.as_ref().is_none_or(|group| group.by().is_some())
            && (self.count >= self.page_rows || self.bytes() >= PAGE_BYTES_MAX)
    }

    fn bytes(&self) -> usize {
        self.out.len() - self.first_byte
    }

    /// Reserves memory for `more` bytes of the answer.
    #[inline]
    fn take_room(&mut self, more: usize) -> Result<(), QueryError> {
        let bytes = self.bytes().saturating_add(more);
        if bytes <= self.grant.bytes() { Ok(()) } else { self.grant.cover(bytes) }
    }

    #[inline]
    fn emit(&mut self, clustering: Option<&[u8]>, row: Option<RowView<'_>>) -> Flow {
        if self.group.is_some() {
            return self.add_to_group(clustering, row);
        }
        if self.page_is_full() {
            self.more = true;
            return Flow::Stop;
        }
        let appended = self.take_room(0).and_then(|()| self.append(clustering, row));
        if let Err(error) = appended {
            self.error = Some(error);
            return Flow::Stop;
        }
        self.count += 1;
        self.remaining -= 1;
        self.partition_remaining -= 1;
        if self.page_is_full() {
            self.remember(clustering);
        }
        if self.remaining == 0 {
            return Flow::Stop;
        }
        let behind = self.partition_remaining == 0 || self.plan.distinct;
        if behind {
            self.inside = false;
        }
        if self.page_rows != usize::MAX && self.count >= self.page_rows {
            // As in Cassandra, there is no look for a next row: the next page may be empty, and drivers'
            // tests rely on it. Two kinds of page do look: one that is full by its bytes, which Cassandra
            // does not have, and one after which a partition that was named can have no more rows. The latter
            // is also the page with the one row of a full primary key (docs/compatibility.md).
            let of_one_row = clustering.is_none_or(<[u8]>::is_empty)
                || self.plan.restrictions.names_one_row(&self.plan.table);
            if self.plan.restrictions.key_range || !(behind || of_one_row) {
                self.more = true;
                return Flow::Stop;
            }
        }
        if behind { Flow::SkipPartition } else { Flow::Continue }
    }

    /// Notes the end of a full page.
    fn remember(&mut self, clustering: Option<&[u8]>) {
        let RowBuffers { key, last_key, last_clustering, last_weight, .. } = &mut *self.buffers;
        last_key.clear();
        last_key.extend_from_slice(key);
        last_clustering.clear();
        last_clustering.extend_from_slice(clustering.unwrap_or(&[]));
        *last_weight = 0;
        self.inside = clustering.is_some();
    }

    #[inline]
    fn append(&mut self, clustering: Option<&[u8]>, row: Option<RowView<'_>>) -> Result<(), QueryError> {
        let plan = self.plan;
        let static_row = self.has_static.then(|| RowView::trusted(&self.buffers.static_row));
        if let SelectionKind::Columns(sources) = &plan.selection.kind
            && self.sorted.is_none()
            && sources.iter().all(|source| source.is_of_row())
        {
            // The usual point read: nothing of the key is asked for.
            let input = RowInput { key: &[], clustering: &[], static_row, row, now: self.now };
            return append_columns_within(sources, &input, (&mut self.grant, self.first_byte), self.out);
        }
        let key = keys::split(&plan.table, &self.buffers.key);
        let clustering: SmallVec<[Option<&[u8]>; 4]> =
            Clustering(clustering.unwrap_or(&[])).components().collect();
        let input = RowInput { key: &key, clustering: &clustering, static_row, row, now: self.now };
        if let Some(starts) = &mut self.sorted {
            starts.push(self.out.len());
        }
        match &plan.selection.kind {
            SelectionKind::Columns(sources) => {
                append_columns_within(sources, &input, (&mut self.grant, self.first_byte), self.out)
            }
            SelectionKind::Expressions(selectors) => {
                let start = self.out.len();
                let end_max = self.first_byte + self.grant.most();
                let appended =
                    append_values(&plan.selection, selectors, &input, &[], self.binding, (self.out, end_max));
                if appended.is_err() {
                    take_back(self.out, &mut self.sorted, start);
                } else if let Some(calls) = self.binding.calls {
                    calls.step();
                }
                appended
            }
            SelectionKind::Groups(_) => Err(QueryError::Internal("a row of a group by itself".to_owned())),
        }
    }

    /// Appends the only row of an aggregate, or sorts the rows; call it once, after the last row, and again
    /// after a pause.
    ///
    /// # Errors
    /// Those of functions over aggregates.
    pub fn finish(&mut self, limit: u64) -> Result<(), QueryError> {
        if self.group.is_some() && !self.is_done() {
            self.end_group();
        }
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        if let Some(group) = &mut self.group
            && group.by().is_none()
            && let SelectionKind::Groups(groups) = &self.plan.selection.kind
        {
            let (out, binding, plan) = (&mut *self.out, self.binding, self.plan);
            let start = out.len();
            let end_max = self.first_byte + self.grant.most();
            let closed = group.close(&self.plan.table, (self.now, binding), |input, values| {
                append_values(&plan.selection, &groups.selectors, input, values, binding, (out, end_max))
            });
            if closed.is_err() {
                take_back(self.out, &mut self.sorted, start);
            }
            closed?;
            self.count = 1;
            self.group = None;
        }
        if let Some(starts) = self.sorted.take() {
            self.count = super::sort::sort_rows(self.plan, self.out, &starts, limit);
        }
        Ok(())
    }

    /// Whether the row is in the result.
    #[inline]
    pub(super) fn passes_filters(&self, clustering: &[u8], row: RowView<'_>) -> bool {
        if self.filters.is_empty() {
            return true;
        }
        let values: SmallVec<[Option<&[u8]>; 4]> = Clustering(clustering).components().collect();
        let input =
            RowInput { key: &[], clustering: &values, static_row: None, row: Some(row), now: self.now };
        self.passes(&[ColumnKind::Clustering, ColumnKind::Regular], &input)
    }

    #[inline]
    fn passes(&self, kinds: &[ColumnKind], input: &RowInput<'_>) -> bool {
        self.filters
            .iter()
            .filter(|filter| kinds.contains(&filter.filter.kind))
            .all(|filter| filter.passes(input.column(&filter.filter.column).as_deref()))
    }
}

impl RowConsumer for Rows<'_> {
    #[inline]
    fn partition(&mut self, key: &[u8], _token: Token, static_row: Option<RowView<'_>>) -> Flow {
        if self.is_done() {
            return Flow::Stop;
        }
        // A partition with only a static row may end without a call.
        if self.group.is_some() && !self.resumed && self.end_group() == Flow::Stop {
            return Flow::Stop;
        }
        self.buffers.key.clear();
        self.buffers.key.extend_from_slice(key);
        self.buffers.static_row.clear();
        self.has_static = static_row.is_some();
        if let Some(row) = static_row {
            self.buffers.static_row.extend_from_slice(row.as_bytes());
        }
        self.seen_row = false;
        self.announced = true;
        if !self.resumed {
            self.partition_remaining = self.per_partition;
        }
        if !self.filters.is_empty() {
            let values = keys::split(&self.plan.table, key);
            let input = RowInput { key: &values, clustering: &[], static_row, row: None, now: self.now };
            if !self.passes(&[ColumnKind::PartitionKey, ColumnKind::Static], &input) {
                // Its end must not show the static row.
                self.seen_row = true;
                return Flow::SkipPartition;
            }
        }
        if self.plan.distinct {
            self.seen_row = true;
            return self.emit(None, None);
        }
        Flow::Continue
    }

    #[inline]
    fn row(&mut self, clustering: &[u8], row: RowView<'_>) -> Flow {
        self.seen_row = true;
        self.scanned += 1;
        if !self.passes_filters(clustering, row) {
            return Flow::Continue;
        }
        self.emit(Some(clustering), Some(row))
    }

    #[inline]
    fn partition_end(&mut self) -> Flow {
        let resumed = std::mem::take(&mut self.resumed);
        self.inside = false;
        let shows_static =
            !self.seen_row && self.has_static && !resumed && self.plan.restrictions.shows_static_only();
        let mut flow = if shows_static { self.emit(None, None) } else { Flow::Continue };
        if self.group.is_some() && flow != Flow::Stop {
            // Should the group's end be paused, the static row is in it already.
            self.seen_row |= shows_static;
            flow = self.end_group();
            if self.is_paused() {
                self.resumed = resumed;
            }
        }
        flow
    }

    #[cold]
    fn dead(&mut self, dead: Dead, place: Place<'_>) -> Flow {
        if self.is_done() {
            return Flow::Stop;
        }
        self.tombstones.add(&self.plan.table, dead);
        if self.tombstones.are_too_many() {
            return Flow::Stop;
        }
        if dead.passed == 0 || !self.tombstones.end_page() || self.page_rows == usize::MAX {
            return Flow::Continue;
        }
        let may_end = match &self.group {
            None => true,
            // An open group continues on the next page.
            Some(group) if group.by().is_some() => {
                let inside = self.buffers.key == place.key && place.position.is_some();
                !group.is_open() || (inside && group.travelling().is_some())
            }
            Some(_) => false,
        };
        if !may_end {
            // Checked again after as many more.
            self.tombstones.begin_page();
            return Flow::Continue;
        }
        self.more = true;
        self.begun = self.resumed || (self.announced && self.buffers.key == place.key);
        let RowBuffers { last_key, last_clustering, last_weight, .. } = &mut *self.buffers;
        last_key.clear();
        last_key.extend_from_slice(place.key);
        last_clustering.clear();
        self.inside = place.position.is_some();
        if let Some(position) = place.position {
            last_clustering.extend_from_slice(position.prefix.0);
            *last_weight = position.weight;
        }
        Flow::Stop
    }
}
