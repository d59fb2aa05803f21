//! Executes the usual point read at once: plain columns of one row of one partition, without waiting.
//!
//! It is the most frequent statement, and most features of `select` and `rows` do not concern it: no pages,
//! limits, groups, filters, orders. Whether a statement qualifies is decided when it is prepared
//! (`SelectPlan::point`). A read that needs more (a tombstone to be counted, a row that is not in memory) is
//! left to `select`, from the beginning or from where the row cache ended. Invariant: if it is left, the
//! answer has nothing of it.

use model::clustering::Clustering;
use model::{RowView, Token};
use replication::read::FromMemory;
use smallvec::SmallVec;
use statement::prepare::select::SelectPlan;
use statement::prepare::selection::{SelectionKind, Source};
use statement::restrictions::{keys, slices};
use statement::results::{MetadataMode, RowsBody};
use storage::{Dead, Flow, PartitionRange, Place, RowConsumer};

use super::evaluate::RowInput;
use super::guard;
use super::rows::{append_columns, most_bytes};
use super::{Request, consistency, routing, select};
use crate::answer_room::PAGE_BYTES_MAX;
use crate::answer_room::SMALL_BYTES;
use crate::engine::{Engine, Left};
use crate::{QueryError, Response};

/// The result of the attempt.
pub enum Point {
    /// The answer is complete, with so many rows.
    Done(usize),
    /// Nothing was answered.
    Left(Left),
}

/// Answers a point read that need not wait.
///
/// # Errors
/// As [`select::execute`]; the caller then drops the bytes that were appended to the answer.
#[inline]
pub fn execute(
    engine: &Engine,
    request: &Request<'_>,
    plan: &SelectPlan,
    mode: MetadataMode,
    out: &mut Response,
) -> Result<Point, QueryError> {
    let parameters = request.parameters;
    let (SelectionKind::Columns(sources), true, None, None) =
        (&plan.selection.kind, plan.point, parameters.paging_state, &plan.fragments_of)
    else {
        return Ok(Point::Left(Left::Untried));
    };
    let warned = out.warnings.len();
    let level = consistency::for_read(parameters.consistency)?;
    let guardrails = &engine.config().guardrails;
    guard::select(guardrails, engine, request, plan, &mut out.warnings)?;
    let mut scratch = engine.scratch(&plan.table);
    let command = &mut scratch.read;
    command.reversed = plan.reversed;
    command.now = request.now;
    command.bypass_cache = plan.bypass_cache;
    // In the order of `select`: the first wrong value is reported.
    if !select::aim_at_single_key(plan, request.binding, command)? {
        return Ok(Point::Left(Left::Untried));
    }
    slices::fill(&plan.restrictions, &plan.table, request.binding, &mut command.slices)?;
    let command = &*command;
    let PartitionRange::Key(key) = &command.range else { return Ok(Point::Left(Left::Untried)) };
    keys::check_not_empty(&key.key)?;
    let start = out.body.len();
    let body = RowsBody::begin(&mut out.body, request.client.version, &plan.metadata, mode);
    let mut row = PointRow {
        engine,
        plan,
        sources,
        key: &key.key,
        out: &mut out.body,
        now: request.now,
        count: 0,
        seen: false,
        other: false,
    };
    let read = engine.read_from_memory(command, level, &mut row)?;
    let (count, seen, other) = (row.count, row.seen, row.other);
    let left = match read {
        FromMemory::Done if !other => {
            engine.replicator().note_read(&plan.table, &key.key);
            if out.trace.is_some() {
                engine.storage().note_memory(command);
            }
            body.finish(&mut out.body, count, None);
            routing::hint(engine, request.client, &plan.table, key.token, &mut out.tablet_payload);
            return Ok(Point::Done(count));
        }
        FromMemory::NotBegun => Left::Elsewhere(None),
        FromMemory::Partial(unread) if !seen => Left::Elsewhere(Some(unread)),
        FromMemory::Done | FromMemory::Partial(_) => Left::InMemory,
    };
    out.body.truncate(start);
    out.warnings.truncate(warned);
    Ok(Point::Left(left))
}

/// Takes the only row.
struct PointRow<'p> {
    engine: &'p Engine,
    plan: &'p SelectPlan,
    sources: &'p [Source],
    key: &'p [u8],
    out: &'p mut Vec<u8>,
    now: model::deletion::LocalSeconds,
    count: usize,
    /// Anything was handed over.
    seen: bool,
    /// Something that is not for here.
    other: bool,
}

impl RowConsumer for PointRow<'_> {
    #[inline]
    fn partition(&mut self, _: &[u8], _: Token, static_row: Option<RowView<'_>>) -> Flow {
        self.seen = true;
        if static_row.is_some() {
            self.other = true;
            return Flow::Stop;
        }
        Flow::Continue
    }

    #[inline]
    fn row(&mut self, clustering: &[u8], row: RowView<'_>) -> Flow {
        let keys;
        let clusterings: SmallVec<[Option<&[u8]>; 4]>;
        let row = Some(row);
        let mut input = RowInput { key: &[], clustering: &[], static_row: None, row, now: self.now };
        if !self.sources.iter().all(Source::is_of_row) {
            keys = keys::split(&self.plan.table, self.key);
            clusterings = Clustering(clustering).components().collect();
            (input.key, input.clustering) = (&keys, &clusterings);
        }
        let most = most_bytes(self.sources, &input);
        if most > SMALL_BYTES && (most > PAGE_BYTES_MAX || !self.engine.has_room_for_answer(most)) {
            // `select` requests the memory it really needs, and reports an error if there is none.
            self.other = true;
            return Flow::Stop;
        }
        self.count += 1;
        append_columns(self.sources, &input, self.out);
        Flow::Continue
    }

    #[inline]
    fn partition_end(&mut self) -> Flow {
        Flow::Continue
    }

    #[cold]
    fn dead(&mut self, _: Dead, _: Place<'_>) -> Flow {
        (self.seen, self.other) = (true, true);
        Flow::Stop
    }
}
