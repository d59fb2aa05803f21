//! Answers statements about one row if nothing but the commit log has to be waited for.
//!
//! Prepared ones then need no task: `server/native/dispatch` calls [`Engine::begin_read`] and
//! [`Engine::begin_write`] where it parses a frame. This is the quick road; all other statements take the
//! plain one (`execute::statement`), and so do those that come back as [`AtOnce::Left`], of which nothing was
//! done. Invariant: both roads give the same answers, byte for byte; `server/native/roads` compares
//! them (docs/decisions/0008-two-roads.md).

use std::rc::Rc;

use replication::read::Unread;
use statement::prepare::Plan;
use statement::prepare::select::SelectPlan;
use statement::results::{self, MetadataMode};
use statement::terms::Binding;
use wire::request::QueryParameters;
use wire::values::ValueRef;

use super::values::check_count;
use super::{Engine, metadata_mode};
use crate::execute::one_row::{self, Attempt, When, Writing};
use crate::execute::point::Point;
use crate::execute::{self, Request};
use crate::load::Timed;
use crate::prepared::Prepared;
use crate::prepared_cache::CachedStatement;
use crate::{ClientState, QueryError, Response};

/// A prepared statement about one row, as they usually are: [`Engine::begin_read`] or [`Engine::begin_write`]
/// may answer it without a task.
#[derive(Debug)]
pub struct OneRow {
    pub(crate) statement: Rc<CachedStatement>,
    /// Whether the statement writes the row.
    pub writes: bool,
}

/// The result of trying to answer without waiting.
#[derive(Debug)]
pub enum AtOnce {
    /// The answer is complete; that of [`Engine::begin_write`] is VOID.
    Done,
    /// The answer is VOID once this write is done.
    Writing(Writing),
    /// Nothing was answered: the statement takes the plain road from where the attempt ended.
    Left(Left),
}

/// How far an attempt to answer a read at once came.
#[derive(Debug, Default)]
pub enum Left {
    /// There was none.
    #[default]
    Untried,
    /// Memory has the answer, and `select` takes it from there: it needs more than `execute::point` does.
    InMemory,
    /// Memory lacks the answer: it is on another shard or on disk. With the part of the read that is left, if
    /// the row cache was looked at.
    Elsewhere(Option<Unread>),
}

impl Engine {
    /// The prepared statement of that id, if it is about one row.
    #[inline]
    pub fn one_row(&self, id: &[u8]) -> Option<OneRow> {
        let statement = self.0.prepared.get(id)?;
        let writes = match &statement.prepared.plan {
            _ if statement.prepared.needs_task => return None,
            Plan::Select(plan) if plan.point => false,
            Plan::Modify(plan) if one_row::is_one(self, plan) => true,
            _ => return None,
        };
        Some(OneRow { statement, writes })
    }

    /// Executes a prepared read as [`Self::execute`] does, as far as nothing has to be waited for; its
    /// `values` have no names.
    ///
    /// # Errors
    /// As [`Self::execute`].
    #[inline]
    pub fn begin_read(
        &self,
        client: &ClientState,
        row: &OneRow,
        result_metadata_id: Option<&[u8]>,
        (parameters, values): (&QueryParameters<'_>, &[ValueRef<'_>]),
        out: &mut Response,
    ) -> Result<AtOnce, QueryError> {
        let executed = self.0.executed.0.get();
        self.0.executed.0.set(executed + 1);
        let prepared = &row.statement.prepared;
        check_count(values, prepared)?;
        let mode = metadata_mode(prepared.result().id(), result_metadata_id, parameters.skip_metadata);
        let answered = self.answer_at_once(client, prepared, parameters, values, mode, out);
        if let Ok(AtOnce::Left(_)) = answered {
            self.0.executed.0.set(executed);
        }
        answered
    }

    /// Executes a prepared write as [`Self::execute`] does, if nothing but the commit log has to be waited
    /// for; its `values` have no names. Such writes end in the order in which they began.
    ///
    /// # Errors
    /// As [`Self::execute`].
    #[inline]
    pub fn begin_write(
        &self,
        client: &ClientState,
        row: &OneRow,
        (parameters, values): (&QueryParameters<'_>, &[ValueRef<'_>]),
    ) -> Result<AtOnce, QueryError> {
        let prepared = &row.statement.prepared;
        let Plan::Modify(plan) = &prepared.plan else { return Ok(AtOnce::Left(Left::Untried)) };
        let executed = self.0.executed.0.get();
        self.0.executed.0.set(executed + 1);
        check_count(values, prepared)?;
        let binding = self.binding(prepared, values);
        let request = Request { client, parameters, binding: &binding, now: self.seconds(parameters) };
        Ok(match one_row::begin(self, &request, plan, When::Now)? {
            Attempt::Writing(writing) => {
                self.0.statements.point_write(plan);
                AtOnce::Writing(writing)
            }
            Attempt::Nothing => {
                self.0.statements.point_write(plan);
                AtOnce::Done
            }
            Attempt::NotBegun => {
                self.0.executed.0.set(executed);
                AtOnce::Left(Left::Untried)
            }
        })
    }

    /// Starts the timer for a write by [`Self::begin_write`]; the caller that answers the write ends it.
    #[inline]
    pub fn time(&self, row: &OneRow) -> Timed {
        self.time_write(&row.statement.prepared)
    }

    /// Answers a point read or a write that need not wait, except for the commit log.
    #[inline]
    pub(super) fn answer_at_once(
        &self,
        client: &ClientState,
        prepared: &Prepared,
        parameters: &QueryParameters<'_>,
        values: &[ValueRef<'_>],
        mode: MetadataMode,
        out: &mut Response,
    ) -> Result<AtOnce, QueryError> {
        if prepared.calls_user {
            return Ok(AtOnce::Left(Left::Untried));
        }
        let binding = self.binding(prepared, values);
        let request = Request { client, parameters, binding: &binding, now: self.seconds(parameters) };
        match &prepared.plan {
            Plan::Select(plan) => self.read_at_once(&request, prepared, plan, mode, out),
            Plan::Modify(plan) if one_row::is_one(self, plan) => {
                Ok(match one_row::begin(self, &request, plan, When::Always(&mut out.tablet_payload))? {
                    Attempt::Writing(writing) => {
                        self.0.statements.point_write(plan);
                        AtOnce::Writing(writing)
                    }
                    Attempt::Nothing => {
                        self.0.statements.point_write(plan);
                        results::append_void(&mut out.body);
                        AtOnce::Done
                    }
                    Attempt::NotBegun => AtOnce::Left(Left::Untried),
                })
            }
            _ => Ok(AtOnce::Left(Left::Untried)),
        }
    }

    #[inline]
    fn read_at_once(
        &self,
        request: &Request<'_>,
        prepared: &Prepared,
        plan: &SelectPlan,
        mode: MetadataMode,
        out: &mut Response,
    ) -> Result<AtOnce, QueryError> {
        let load = prepared.load.get_or_init(|| self.load_of(&plan.table));
        let began = load.reads.begin();
        let start = out.body.len();
        match execute::point::execute(self, request, plan, mode, out) {
            Ok(Point::Done(rows)) => {
                self.0.statements.point_read(plan, request.parameters, rows);
                load.point_read(began, || {
                    results::rows_in(&out.body[start..], request.client.version, &plan.metadata, mode)
                });
                Ok(AtOnce::Done)
            }
            Ok(Point::Left(left)) => {
                load.reads.not_begun(began);
                Ok(AtOnce::Left(left))
            }
            Err(error) => {
                out.body.truncate(start);
                Err(error)
            }
        }
    }

    #[inline]
    fn binding<'a>(&'a self, prepared: &'a Prepared, values: &'a [ValueRef<'a>]) -> Binding<'a> {
        Binding { values, markers: &prepared.markers, ambient: &self.0.ambient, calls: None }
    }

    /// Seconds that count as now for a request.
    #[inline]
    fn seconds(&self, parameters: &QueryParameters<'_>) -> u32 {
        parameters.now_in_seconds.unwrap_or_else(|| self.0.ambient.now_seconds())
    }

    /// A write of one row begins.
    #[inline]
    pub(super) fn time_write(&self, prepared: &Prepared) -> Timed {
        let load = prepared.load.get_or_init(|| match &prepared.plan {
            Plan::Modify(plan) => self.load_of(&plan.table),
            _ => Rc::default(),
        });
        Timed::new(load)
    }

    /// Appends the answer of a write that has ended.
    #[inline]
    pub(super) fn written(done: Result<(), QueryError>, out: &mut Response) -> Result<(), QueryError> {
        match &done {
            Ok(()) => results::append_void(&mut out.body),
            Err(_) => out.tablet_payload = None,
        }
        done
    }
}
