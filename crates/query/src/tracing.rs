//! Traces of single requests, for clients that requested them: rows in `system_traces.sessions` and
//! `system_traces.events`.
//!
//! A trace is collected while its request runs and written after the answer was sent, so that a traced
//! request is slowed as little as possible. Rows live for a day, as in Cassandra. Readers of a trace wait for
//! its `duration`, which is written last.

use std::borrow::Cow;
use std::fmt::Write;

use model::timeuuid;
use model::validate::validate;
use reactor::Instant;
use statement::terms::constant::literal_text;
use storage::ToldRead;
use uuid::Uuid;
use wire::consistency::Consistency;
use wire::request::QueryParameters;
use wire::values::{ValueRef, Values};

use crate::engine::bind_values;
use crate::{ClientState, Engine, QueryError, Response};

/// How long a trace is kept.
const TTL_SECONDS: u32 = 24 * 3600;
/// Longest text of a statement that a trace shows, in bytes.
const STATEMENT_BYTES_MAX: usize = 1000;

/// Bound values that a trace shows.
const VALUES_MAX: usize = 100;

/// One request being traced.
#[derive(Debug)]
pub struct Trace {
    id: Uuid,
    started: Instant,
    started_us: i64,
    request: &'static str,
    parameters: Vec<(Cow<'static, str>, String)>,
    /// Each event: its text, microseconds since the start, and shard.
    events: Vec<(String, u64, usize)>,
    /// Tombstones that the request's reads passed.
    pub tombstones: u64,
}

impl Trace {
    /// Begins a trace of a `request`, such as `Execute CQL3 query`.
    pub fn begin(engine: &Engine, request: &'static str) -> Self {
        Self {
            id: engine.ambient().timeuuid(),
            started: reactor::now(),
            started_us: reactor::wall_clock_us(),
            request,
            parameters: Vec::new(),
            events: Vec::new(),
            tombstones: 0,
        }
    }

    /// The id the client is given.
    pub fn id(&self) -> [u8; 16] {
        *self.id.as_bytes()
    }

    /// Notes a parameter of the request.
    pub fn parameter(&mut self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) {
        let mut value = value.into();
        value.truncate(value.floor_char_boundary(STATEMENT_BYTES_MAX));
        self.parameters.push((name.into(), value));
    }

    /// Notes the statement of an id and the values bound to its markers, in Cassandra's words.
    pub fn prepared(&mut self, engine: &Engine, id: &[u8], values: &Values<'_>) {
        let Some(statement) = engine.prepared().get(id) else { return };
        self.parameter("query", &*statement.text);
        // Values that do not fit the markers are reported when they are bound.
        let Ok(bound) = bind_values(values, &statement.prepared) else { return };
        for (n, (marker, value)) in statement.prepared.markers.iter().zip(&bound).take(VALUES_MAX).enumerate()
        {
            let text = match value {
                ValueRef::Unset => "<unset>".to_owned(),
                ValueRef::Null => "null".to_owned(),
                ValueRef::Bytes(bytes) if validate(&marker.ty, bytes).is_ok() => {
                    literal_text(&marker.ty, Some(bytes))
                }
                ValueRef::Bytes(_) => continue,
            };
            self.parameter(format!("bound_var_{n}_{}", marker.name), text);
        }
    }

    /// Notes that something happened now.
    pub fn event(&mut self, activity: impl Into<String>) {
        self.events.push((activity.into(), self.elapsed_us(), reactor::shard_id()));
    }

    /// Notes the request's disk reads, in ScyllaDB's words.
    pub fn reads(&mut self, reads: Vec<ToldRead>) {
        for ToldRead { file, offset, size, bytes, at, shard } in reads {
            let activity = format!(
                "{file}: finished bulk DMA read of size {size} at offset {offset}, successfully read {bytes} bytes"
            );
            self.events.push((activity, (at - self.started).as_micros() as u64, shard));
        }
    }

    fn elapsed_us(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    /// Ends the trace and writes it.
    ///
    /// # Errors
    /// [`QueryError`] of the writes; the request itself has been answered.
    pub async fn finish(self, engine: &Engine, client: &ClientState) -> Result<(), QueryError> {
        let duration_us = self.elapsed_us();
        let source = engine.config().native_address;
        for (n, (activity, elapsed_us, shard)) in self.events.iter().enumerate() {
            let mut node = [0; 6];
            node[4..].copy_from_slice(&(n as u16).to_be_bytes());
            let at = timeuuid::from_unix_micros(self.started_us + *elapsed_us as i64, 0, node);
            let statement = format!(
                "INSERT INTO system_traces.events \
                 (session_id, event_id, activity, source, source_elapsed, source_port, thread) \
                 VALUES ({}, {at}, {}, '{}', {elapsed_us}, {}, 'shard {shard}') USING TTL {TTL_SECONDS}",
                self.id,
                quoted(activity),
                source.ip(),
                source.port(),
            );
            execute(engine, &statement).await?;
        }
        let mut parameters = String::new();
        for (name, value) in &self.parameters {
            let separator = if parameters.is_empty() { "" } else { ", " };
            // Writing to a String cannot fail.
            let _ = write!(parameters, "{separator}{}: {}", quoted(name), quoted(value));
        }
        let peer = client.peer.map_or_else(|| "null".to_owned(), |peer| format!("'{}'", peer.ip()));
        let statement = format!(
            "INSERT INTO system_traces.sessions \
             (session_id, client, command, coordinator, coordinator_port, duration, parameters, request, started_at) \
             VALUES ({}, {peer}, 'QUERY', '{}', {}, {duration_us}, {{{parameters}}}, {}, {}) USING TTL {TTL_SECONDS}",
            self.id,
            source.ip(),
            source.port(),
            quoted(self.request),
            self.started_us / 1000,
        );
        execute(engine, &statement).await
    }
}

async fn execute(engine: &Engine, statement: &str) -> Result<(), QueryError> {
    let client = ClientState::internal();
    let parameters = QueryParameters::at(Consistency::One, client.version);
    engine.query(&client, statement, &parameters, &mut Response::default()).await
}

/// A CQL string literal.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
