//! Contents of a request's trace: its parameters, and the facts about the work that its answer shows.
//!
//! Only requests whose client asked for a trace come here, mostly after their answer. Events that drivers'
//! tests look for have Cassandra's words (`Read 1 live rows and 0 tombstone cells`) and ScyllaDB's
//! (`querying locally`).

use std::rc::Rc;

use cluster::View;
use query::Engine;
use query::tracing::Trace;
use storage::ReadNotes;
use wire::client::{ResponseBody, decode};
use wire::consistency::Consistency;
use wire::extensions::Extensions;
use wire::frame::{Flags, FrameHeader, Opcode};
use wire::request::Request;

/// Begins the trace of a request; `None` for one that is answered in turn.
pub(super) fn begin(engine: &Engine, request: &Request<'_>) -> Option<Trace> {
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
pub(super) fn answered(trace: &mut Trace, request: &FrameHeader, body: &[u8], extensions: &Extensions) {
    let header = FrameHeader { opcode: Opcode::Result, flags: Flags::default(), ..*request };
    let is_shared = View::here().is_shared();
    match decode(&header, body, extensions).map(|response| response.body) {
        Ok(ResponseBody::Rows(rows)) => {
            trace.event(if is_shared { "querying replicas" } else { "querying locally" });
            let tombstones = trace.tombstones;
            trace.event(format!("Read {} live rows and {tombstones} tombstone cells", rows.row_count));
        }
        Ok(ResponseBody::Void) if is_shared => trace.event("applying mutations on replicas"),
        Ok(ResponseBody::Void) => trace.event("applying mutations locally"),
        _ => {}
    }
}
