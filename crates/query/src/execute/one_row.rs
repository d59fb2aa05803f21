//! Begins the usual write at once: one row of one partition, written whatever is there.
//!
//! As `point` is for reads: whether a statement is one is known when it is prepared (`ModifyPlan::plain`), and all of it but
//! the wait for the commit log is plain calls. [`Writing`] owns what is left, one small future.
//! Invariant: nothing is answered here; the caller does when it is known what to answer.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use replication::Consistency;
use storage::{Applying, StorageError};

use super::modify::moment;
use super::{Request, apply, consistency, routing};
use crate::engine::{Engine, ScratchGuard, WriteBuffers};
use crate::prepare::modify::{ModifyPlan, Route};
use crate::{QueryError, Response};

/// Whether [`begin`] is for this statement.
#[inline]
pub fn is_one(engine: &Engine, plan: &ModifyPlan) -> bool {
    plan.plain && plan.route == Route::Plain && engine.config().guardrails.writes.is_none()
}

/// A write that is on its way. It completes when enough replicas have it.
#[derive(Debug)]
pub struct Writing<'e>(Stage<'e>);

enum Stage<'e> {
    /// The scratch has the mutation and its table.
    Begun { engine: &'e Engine, scratch: ScratchGuard<'e>, applying: Applying<'e>, level: Consistency },
    /// Something has to be waited for before it begins. Boxed, so that a write that has begun carries no space for it.
    Later(Pin<Box<dyn Future<Output = Result<(), QueryError>> + 'e>>),
}

impl fmt::Debug for Stage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begun { applying, .. } => f.debug_tuple("Begun").field(applying).finish(),
            Self::Later(_) => f.write_str("Later"),
        }
    }
}

/// Begins to write the one row that a plain statement says; `None` where that is nothing.
///
/// # Errors
/// As [`super::modify::execute`].
#[inline]
pub fn begin<'e>(
    engine: &'e Engine,
    request: &Request<'_>,
    plan: &ModifyPlan,
    out: &mut Response,
) -> Result<Option<Writing<'e>>, QueryError> {
    let level = consistency::for_write(request.parameters.consistency)?;
    let timeout = apply::timeout(plan.timeout.as_ref(), request.binding)?;
    let mut scratch = engine.scratch(&plan.table);
    let buffers = &mut *scratch;
    let WriteBuffers { key, mutation, .. } = &mut buffers.write;
    mutation.clear();
    let moment = moment(engine, request);
    let slices = &mut buffers.read.slices;
    let (token, written) = apply::plain(plan, request.binding, moment, key, slices, mutation)?;
    routing::hint(engine, request.client, &plan.table, token, &mut out.tablet_payload);
    if !written {
        return Ok(None);
    }
    let stage = match engine.begin_write(&plan.table, mutation, level, timeout) {
        Ok(Some(applying)) => Stage::Begun { engine, scratch, applying, level },
        Ok(None) => Stage::Later(Box::pin(begin_later(engine, scratch, level, timeout))),
        Err(error) => {
            out.tablet_payload = None;
            return Err(Engine::write_failed(error, &plan.table, mutation, level, "SIMPLE"));
        }
    };
    Ok(Some(Writing(stage)))
}

impl Future for Writing<'_> {
    type Output = Result<(), QueryError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Stage::Begun { engine, scratch, applying, level } => {
                let done = ready!(applying.poll_finish(&scratch.write.mutation, context));
                Poll::Ready(done.map_err(|error| failed(engine, scratch, error, *level)))
            }
            Stage::Later(writing) => writing.as_mut().poll(context),
        }
    }
}

async fn begin_later(
    engine: &Engine,
    scratch: ScratchGuard<'_>,
    level: Consistency,
    timeout: Option<Duration>,
) -> Result<(), QueryError> {
    engine.write(&scratch.read.table, &scratch.write.mutation, level, "SIMPLE", timeout).await
}

#[cold]
fn failed(
    engine: &Engine,
    scratch: &ScratchGuard<'_>,
    error: StorageError,
    level: Consistency,
) -> QueryError {
    let table = &scratch.read.table;
    let error = engine.replicator().write_failed(error, table, level);
    Engine::write_failed(error, table, &scratch.write.mutation, level, "SIMPLE")
}
