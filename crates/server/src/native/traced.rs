//! Contents of a request's trace: its parameters, and the facts about the work that its answer shows.
//!
//! Requests come here if their client asked for a trace, if they were chosen by chance, or if they were slow,
//! mostly after their answer. Events that drivers'
//! tests look for have Cassandra's words (`Read 1 live rows and 0 tombstone cells`) and ScyllaDB's
//! (`querying locally`).

use std::rc::Rc;

use cluster::View;
use query::tracing::Trace;
use query::{ClientState, Engine};
use reactor::Instant;
use storage::ReadNotes;
use wire::client::{ResponseBody, decode};
use wire::consistency::Consistency;
use wire::extensions::Extensions;
use wire::frame::{Flags, FrameHeader, Opcode};
use wire::request::{Request, RequestEnvelope};

use super::Native;
use super::slow::Slow;

/// Begins the trace of a request whose client asked for it, that was chosen by chance, or that is traced
/// because it may turn out to be slow.
#[inline]
pub(super) fn begin_if(engine: &Engine, envelope: &RequestEnvelope<'_>, is_chosen: bool) -> Option<Trace> {
    if envelope.tracing {
        return begin(engine, &envelope.request);
    }
    let wanted = engine.watch().looks_at_each() && (is_chosen || engine.watch().collects());
    if wanted { begin(engine, &envelope.request).map(Trace::unasked) } else { None }
}

/// Begins the trace of a request; `None` for one that is answered in turn.
#[cold]
fn begin(engine: &Engine, request: &Request<'_>) -> Option<Trace> {
    let (name, parameters) = match request {
        Request::Query { parameters, .. } => ("Execute CQL3 query", Some(parameters)),
        Request::Execute { parameters, .. } => ("Execute CQL3 prepared query", Some(parameters)),
        Request::Batch { parameters, .. } => ("Execute batch of CQL3 queries", Some(parameters)),
        Request::Prepare { .. } => ("Preparing CQL3 query", None),
        Request::Options | Request::Startup(_) | Request::Register(_) | Request::AuthResponse(_) => {
            return None;
        }
    };
    let mut trace = Trace::begin(engine, name);
    if let Request::Query { query, .. } | Request::Prepare { query, .. } = request {
        trace.parameter("query", *query);
        trace.event(format!("Parsing {query}"));
    }
    if let Some(parameters) = parameters {
        trace.parameter("consistency_level", parameters.consistency.name());
        if let Some(page_size) = parameters.page_size.filter(|_| !matches!(request, Request::Batch { .. })) {
            trace.parameter("page_size", page_size.to_string());
        }
        // The default is SERIAL, which Cassandra shows too.
        let serial = parameters.serial_consistency.unwrap_or(Consistency::Serial);
        trace.parameter("serial_consistency_level", serial.name());
    }
    if let Request::Execute { id, parameters, .. } = request {
        trace.prepared(engine, id, &parameters.values);
    }
    Some(trace)
}

/// Runs a request; if `reads` is given, notes there which disk reads it causes.
pub(super) async fn noting<T>(reads: Option<&Rc<ReadNotes>>, request: impl Future<Output = T>) -> T {
    match reads {
        Some(reads) => storage::noting(reads, request).await,
        None => request.await,
    }
}

/// Adds the events that the body of the request's RESULT shows.
pub(super) fn answered(
    trace: &mut Trace,
    tombstones: u64,
    request: &FrameHeader,
    body: &[u8],
    extensions: &Extensions,
) {
    let header = FrameHeader { opcode: Opcode::Result, flags: Flags::default(), ..*request };
    let is_shared = View::here().is_shared();
    match decode(&header, body, extensions).map(|response| response.body) {
        Ok(ResponseBody::Rows(rows)) => {
            trace.event(if is_shared { "querying replicas" } else { "querying locally" });
            trace.event(format!("Read {} live rows and {tombstones} tombstone cells", rows.row_count));
            if rows.paging_state.is_some() {
                trace.event("The page ends here, and more rows follow");
            }
        }
        Ok(ResponseBody::Void) if is_shared => trace.event("applying mutations on replicas"),
        Ok(ResponseBody::Void) => trace.event("applying mutations locally"),
        _ => {}
    }
}

/// A request whose answer was written.
pub(super) struct Ended {
    /// That it was slow.
    pub(super) slow: Option<Box<Slow>>,
    pub(super) began: Instant,
    /// Whether it was chosen by chance.
    pub(super) is_chosen: bool,
    pub(super) is_ok: bool,
}

/// Writes what is to be kept of a request that was traced or slow. Traces that a client asked for are
/// written by the request's task, all others in the background.
pub(super) async fn end(
    native: &Rc<Native>,
    client: &ClientState,
    request: &Request<'_>,
    trace: Option<Trace>,
    Ended { slow, began, is_chosen, is_ok }: Ended,
) {
    let engine = &native.engine;
    if let Some(slow) = &slow {
        slow.request.log(engine, client, slow.took);
    }
    let slow = slow.filter(|slow| engine.watch().records(slow.took));
    let trace = match trace {
        Some(mut trace) => {
            trace.last_event(if is_ok { "Request complete" } else { "Request failed" });
            Some(trace)
        }
        None if slow.is_some() => begin(engine, request).map(|trace| trace.unasked().without_events(began)),
        None => None,
    };
    let Some(trace) = trace else { return };
    let is_requested = trace.is_requested();
    if !is_requested && !is_chosen && slow.is_none() {
        return;
    }
    let mut record = trace.end(engine, client);
    if let Some(slow) = slow {
        record = record.of_slow(&slow.request, slow.took, engine.watch().slow_table().ttl_seconds);
    }
    if !is_requested {
        native.record(record);
        return;
    }
    if let Err(error) = record.write(engine).await {
        native.recorder.count_failure();
        reactor::warn!("a trace was not written: {error}");
    }
}
