//! Begins the usual write at once: one row of one partition, written unconditionally.
//!
//! It does the same for writes as `point` does for reads. Whether a statement qualifies is decided when it is
//! prepared (`ModifyPlan::plain`), and all of it except the wait for the commit log is plain calls.
//! [`Writing`] owns the rest, one small future that needs no task of its own. Invariant: nothing is answered
//! here; the caller answers when the outcome is known.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use replication::{Consistency, ReplicationError};
use statement::prepare::modify::{ModifyPlan, Route};
use wire::error::WriteType;

use super::modify::moment;
use super::updates::Plain;
use super::{Request, consistency, routing, updates};
use crate::QueryError;
use crate::engine::{Engine, KeptScratch, Scratch, WriteBuffers};

/// Whether [`begin`] is for this statement.
#[inline]
pub fn is_one(engine: &Engine, plan: &ModifyPlan) -> bool {
    plan.plain && plan.route == Route::Plain && engine.config().guardrails.writes.is_none()
}

/// A write that is on its way. It completes when enough replicas have it.
#[derive(Debug)]
pub struct Writing(Stage);

enum Stage {
    /// The scratch has the mutation, its table, and the running write.
    Pending { scratch: KeptScratch, level: Consistency },
    /// It has to wait before it begins. Boxed, so that a write that has begun is small.
    Later(Pin<Box<dyn Future<Output = Result<(), QueryError>>>>),
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pending { scratch, .. } => f.debug_tuple("Pending").field(&scratch.pending).finish(),
            Self::Later(_) => f.write_str("Later"),
        }
    }
}

/// The result of beginning a write.
#[derive(Debug)]
pub enum Attempt {
    /// The write is running.
    Writing(Writing),
    /// The statement writes nothing: it is done.
    Nothing,
    /// It does not qualify for [`When::Now`], or takes long to be built: nothing was done.
    NotBegun,
}

/// Which writes [`begin`] begins.
#[derive(Debug)]
pub enum When<'p> {
    /// All writes; the routing payload is put there, if the client negotiated it.
    Always(&'p mut Option<Vec<u8>>),
    /// Writes that this shard's commit log takes now, and that have the default timeout: such writes end in
    /// the order in which they began.
    Now,
}

/// Begins to write the only row of a plain statement.
///
/// # Errors
/// As [`super::modify::execute`].
#[inline]
pub fn begin(
    engine: &Engine,
    request: &Request<'_>,
    plan: &ModifyPlan,
    when: When<'_>,
) -> Result<Attempt, QueryError> {
    let mut payload = match when {
        When::Always(payload) => Some(payload),
        When::Now => None,
    };
    let now = payload.is_none();
    // Checked before the write is built: a write that has to wait for its turn is built later.
    let replicator = engine.replicator();
    let may_begin = replicator.can_begin_writes();
    if now && (plan.timeout.is_some() || !may_begin) || updates::has_long_values(plan, request.binding) {
        return Ok(Attempt::NotBegun);
    }
    let level = consistency::for_write(request.parameters.consistency)?;
    let timeout = updates::timeout(plan.timeout.as_ref(), request.binding)?;
    let mut scratch = engine.scratch(&plan.table);
    let buffers = &mut *scratch;
    let WriteBuffers { key, mutation, .. } = &mut buffers.write;
    mutation.clear();
    let moment = moment(engine, request);
    let slices = &mut buffers.read.slices;
    let wants = |token| !now || replicator.replica_of(&plan.table, token) == replicator.own();
    let (token, written) = updates::plain(plan, request.binding, moment, (key, slices), wants, mutation)?;
    if written == Plain::Unwanted {
        return Ok(Attempt::NotBegun);
    }
    // A request for a tablet of this shard was sent to the right shard.
    if let Some(payload) = &mut payload {
        routing::hint(engine, request.client, &plan.table, token, payload);
    }
    if written == Plain::Nothing {
        return Ok(Attempt::Nothing);
    }
    let begun = match may_begin {
        true => engine.begin_mutation(&plan.table, (mutation, token), level, timeout),
        false => Ok(None),
    };
    let stage = match begun {
        Ok(Some(pending)) => {
            buffers.pending = Some(pending);
            Stage::Pending { scratch: scratch.keep(), level }
        }
        Ok(None) if now => return Ok(Attempt::NotBegun),
        Ok(None) => Stage::Later(Box::pin(begin_later(scratch.keep(), level, timeout))),
        Err(error) => {
            if let Some(payload) = payload {
                *payload = None;
            }
            // A write that was refused counts, as in `modify`.
            engine.load_of(&plan.table).writes.end(None);
            return Err(Engine::write_failed(error, &plan.table, mutation, level, WriteType::Simple));
        }
    };
    Ok(Attempt::Writing(Writing(stage)))
}

impl Future for Writing {
    type Output = Result<(), QueryError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Stage::Pending { scratch, level } => {
                let Scratch { pending, write, .. } = scratch.get_mut();
                let begun = pending.as_mut().expect("a write that was begun and has not ended");
                let done = ready!(begun.poll_finish(&write.mutation, context));
                *pending = None;
                Poll::Ready(done.map_err(|error| failed(scratch, error, *level)))
            }
            Stage::Later(writing) => writing.as_mut().poll(context),
        }
    }
}

async fn begin_later(
    scratch: KeptScratch,
    level: Consistency,
    timeout: Option<Duration>,
) -> Result<(), QueryError> {
    let (table, mutation) = (&scratch.read.table, &scratch.write.mutation);
    scratch.engine().write(table, mutation, level, WriteType::Simple, timeout).await
}

#[cold]
fn failed(scratch: &KeptScratch, error: ReplicationError, level: Consistency) -> QueryError {
    let table = &scratch.read.table;
    Engine::write_failed(error, table, &scratch.write.mutation, level, WriteType::Simple)
}
