//! Requests that took longer than a limit: a line in the log, and records for `system_traces.node_slow_log`.
//!
//! Whether a request is slow is seen when its answer is ready; its line and its record are made after the
//! answer was written. Requests on the quick road are measured as their latency is: exactly where the limit
//! is short, and otherwise by the clock of the slice, which costs a load.

use std::rc::Rc;
use std::time::Duration;

use query::tracing::{SlowRequest, Trace};
use query::{ClientState, OneRow, QueryError, Response};
use reactor::Instant;
use wire::client::{ResponseBody, decode};
use wire::consistency::Consistency;
use wire::extensions::Extensions;
use wire::frame::{Flags, FrameHeader, Opcode};
use wire::request::Request;

use super::Native;

/// A slow request that was executed on the plain road.
pub(super) struct Slow {
    pub(super) request: SlowRequest,
    pub(super) took: Duration,
}

/// Describes the request if it was slow.
#[inline]
pub(super) fn found(
    native: &Native,
    client: &ClientState,
    (header, extensions): (&FrameHeader, &Extensions),
    (request, began): (&Request<'_>, Instant),
    (result, response): (&Result<(), QueryError>, &Response),
) -> Option<Box<Slow>> {
    let watch = native.engine.watch();
    let took = if watch.is_exact() { began.elapsed() } else { reactor::coarse_now().since(began) };
    if !watch.is_slow(took) {
        return None;
    }
    let mut slow = SlowRequest::of(&native.engine, client, request);
    slow.tombstones = response.tombstones;
    slow.error = result.as_ref().err().map(ToString::to_string);
    let header = FrameHeader { opcode: Opcode::Result, flags: Flags::default(), ..*header };
    if let Ok(ResponseBody::Rows(rows)) =
        decode(&header, &response.body, extensions).map(|response| response.body)
    {
        slow.rows = Some((rows.row_count, rows.paging_state.is_some()));
    }
    Some(Box::new(Slow { request: slow, took }))
}

/// Notes a slow request for one row that was answered on the quick road.
#[cold]
pub(super) fn note_row(
    native: &Rc<Native>,
    client: &ClientState,
    (row, consistency): (&OneRow, Consistency),
    took: Duration,
    result: &Result<(), QueryError>,
) {
    let mut slow = SlowRequest::of_row(row, consistency);
    slow.error = result.as_ref().err().map(ToString::to_string);
    slow.log(&native.engine, client, took);
    if native.engine.watch().records(took) {
        let mut trace = Trace::begin(&native.engine, "Execute CQL3 prepared query");
        trace.parameter("query", &*slow.text);
        trace.parameter("consistency_level", consistency.name());
        let trace = trace.unasked().lasted(took);
        let ttl = native.engine.watch().slow_table().ttl_seconds;
        native.record(trace.end(&native.engine, client).of_slow(&slow, took, ttl));
    }
}
