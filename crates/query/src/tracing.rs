//! Traces of single requests: rows in `system_traces`, for clients that requested them, for the share of
//! requests that is traced by chance, and for slow ones.
//!
//! A trace is collected while its request runs and written after the answer was sent, so that a traced
//! request is slowed as little as possible. Rows live for a day, as in Cassandra. Readers of a trace wait for
//! its `duration`, which is written last. `crate::watch` says which requests are traced or slow, `slow`
//! describes slow ones.

mod slow;

use std::borrow::Cow;
use std::fmt::Write;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use model::timeuuid;
use model::validate::validate;
use reactor::Instant;
use statement::terms::constant::literal_text;
use storage::{ReadNotes, ToldFact, ToldRead};
use uuid::Uuid;
use wire::consistency::Consistency;
use wire::request::QueryParameters;
use wire::values::{ValueRef, Values};

use crate::engine::bind_values;
use crate::{ClientState, Engine, QueryError, Response};

pub use slow::SlowRequest;

/// How long a trace is kept.
const TTL_SECONDS: u32 = 24 * 3600;
/// Longest text of a statement that a trace shows, in bytes.
const STATEMENT_BYTES_MAX: usize = 1000;

/// Bound values that a trace shows.
const VALUES_MAX: usize = 100;
/// Longest value that is written out as text.
const VALUE_BYTES_MAX: usize = 64 << 10;
/// Events that a trace has; further ones are counted.
const EVENTS_MAX: usize = 512;

/// Microseconds of a minute.
const MINUTE_US: i64 = 60_000_000;

/// One request being traced.
#[derive(Debug)]
pub struct Trace {
    id: Uuid,
    /// Whether the client asked for the trace, and so is told its id.
    is_requested: bool,
    started: Instant,
    started_us: i64,
    request: &'static str,
    parameters: Vec<(Cow<'static, str>, String)>,
    events: Vec<Event>,
    /// Events that found no room.
    left_out: usize,
}

/// One event of a trace.
#[derive(Debug)]
struct Event {
    activity: String,
    /// Microseconds since the start.
    elapsed_us: u64,
    shard: usize,
}

impl Trace {
    /// Begins a trace of a `request`, such as `Execute CQL3 query`, that its client asked for.
    pub fn begin(engine: &Engine, request: &'static str) -> Self {
        Self {
            id: engine.ambient().timeuuid(),
            is_requested: true,
            started: reactor::now(),
            started_us: reactor::wall_clock_us(),
            request,
            parameters: Vec::new(),
            events: Vec::new(),
            left_out: 0,
        }
    }

    /// The client did not ask for the trace: it is not told the id.
    pub fn unasked(mut self) -> Self {
        self.is_requested = false;
        self
    }

    /// The request, which is over, began then; its events are not known.
    pub fn without_events(mut self, began: Instant) -> Self {
        self.events.clear();
        let ago = self.started.since(began);
        self.lasted(ago)
    }

    /// The trace began when the request was over, which took so long.
    pub fn lasted(mut self, ago: Duration) -> Self {
        self.started_us -= i64::try_from(ago.as_micros()).unwrap_or(0);
        self.started = Instant::from_nanos(self.started.as_nanos().saturating_sub(ago.as_nanos() as u64));
        self
    }

    /// The id that the client is given, if it asked for the trace.
    pub fn id(&self) -> Option<[u8; 16]> {
        self.is_requested.then(|| *self.id.as_bytes())
    }

    /// Whether the client asked for the trace.
    pub fn is_requested(&self) -> bool {
        self.is_requested
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
        for (n, (name, text)) in bound_texts(engine, id, values).into_iter().enumerate() {
            self.parameter(format!("bound_var_{n}_{name}"), text);
        }
    }

    /// Notes that something happened now.
    pub fn event(&mut self, activity: impl Into<String>) {
        let event = self.now(activity.into());
        self.add(event);
    }

    /// Notes the end of the request, for which there is always room.
    pub fn last_event(&mut self, activity: &str) {
        self.events.push(self.now(activity.to_owned()));
    }

    fn now(&self, activity: String) -> Event {
        Event { activity, elapsed_us: self.elapsed_us(), shard: reactor::shard_id() }
    }

    fn add(&mut self, event: Event) {
        if self.events.len() < EVENTS_MAX {
            self.events.push(event);
        } else {
            self.left_out += 1;
        }
    }

    /// Notes what was noted of the request's work: its disk reads, in ScyllaDB's words, and other facts.
    pub fn notes(&mut self, notes: &ReadNotes) {
        for ToldFact { text, at, shard } in notes.take_facts() {
            self.add(Event { activity: text, elapsed_us: (at - self.started).as_micros() as u64, shard });
        }
        self.reads(notes.take());
        self.left_out += notes.left_out();
    }

    /// Notes the request's disk reads, in ScyllaDB's words.
    pub fn reads(&mut self, reads: Vec<ToldRead>) {
        for ToldRead { file, offset, size, bytes, at, shard } in reads {
            let activity = format!(
                "{file}: finished bulk DMA read of size {size} at offset {offset}, successfully read {bytes} bytes"
            );
            self.add(Event { activity, elapsed_us: (at - self.started).as_micros() as u64, shard });
        }
    }

    fn elapsed_us(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    /// Ends the trace of a client's request: what is left is to write it.
    pub fn end(mut self, engine: &Engine, client: &ClientState) -> Record {
        let duration_us = self.elapsed_us();
        // Events of other shards were added after those that this shard noted meanwhile.
        self.events.sort_by_key(|event| event.elapsed_us);
        if self.left_out > 0 {
            self.last_event(&format!("{} events left out", self.left_out));
        }
        Record {
            trace: self,
            duration_us,
            client: client.peer.map(|peer| peer.ip()),
            user: Rc::clone(&client.user),
            coordinator: engine.config().native_address.ip(),
            slow: None,
        }
    }

    /// Ends the trace and writes it.
    ///
    /// # Errors
    /// [`QueryError`] of the writes; the request itself has been answered.
    pub async fn finish(self, engine: &Engine, client: &ClientState) -> Result<(), QueryError> {
        self.end(engine, client).write(engine).await
    }
}

/// A trace that is over, to be written.
#[derive(Debug)]
pub struct Record {
    trace: Trace,
    duration_us: u64,
    client: Option<IpAddr>,
    user: Rc<str>,
    coordinator: IpAddr,
    slow: Option<SlowRecord>,
}

/// The part of a record that only a slow request has.
#[derive(Debug)]
struct SlowRecord {
    tables: Vec<String>,
    ttl_seconds: u32,
}

impl Record {
    /// The request was slow: `system_traces.node_slow_log` gets a row too.
    pub fn of_slow(mut self, slow: &SlowRequest, took: Duration, ttl_seconds: u32) -> Self {
        self.duration_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.slow = Some(SlowRecord { tables: slow.tables.clone(), ttl_seconds });
        self
    }

    /// About how many bytes the record takes in memory.
    pub fn bytes(&self) -> usize {
        let parameters = self.trace.parameters.iter().map(|(name, value)| name.len() + value.len() + 64);
        let events = self.trace.events.iter().map(|event| event.activity.len() + 64);
        size_of::<Self>() + parameters.sum::<usize>() + events.sum::<usize>()
    }

    /// Writes the record.
    ///
    /// # Errors
    /// [`QueryError`] of the writes.
    pub async fn write(self, engine: &Engine) -> Result<(), QueryError> {
        let Self { trace, duration_us, coordinator, slow, .. } = &self;
        let port = engine.config().native_address.port();
        let ttl = match slow {
            Some(slow) if !trace.is_requested => slow.ttl_seconds,
            _ => TTL_SECONDS,
        };
        for (n, Event { activity, elapsed_us, shard }) in trace.events.iter().enumerate() {
            let mut node = [0; 6];
            node[4..].copy_from_slice(&(n as u16).to_be_bytes());
            let at = timeuuid::from_unix_micros(trace.started_us + *elapsed_us as i64, 0, node);
            let statement = format!(
                "INSERT INTO system_traces.events \
                 (session_id, event_id, activity, source, source_elapsed, source_port, thread) \
                 VALUES ({}, {at}, {}, '{coordinator}', {elapsed_us}, {port}, 'shard {shard}') USING TTL {ttl}",
                trace.id,
                quoted(activity),
            );
            execute(engine, &statement).await?;
        }
        let (at_us, id) = (trace.started_us, trace.id);
        let (minute, started) = (at_us.div_euclid(MINUTE_US) * MINUTE_US / 1000, at_us.div_euclid(1000));
        let index = format!(
            "INSERT INTO system_traces.sessions_time_idx (minute, started_at, session_id) \
             VALUES ({minute}, {started}, {id}) USING TTL {ttl}"
        );
        execute(engine, &index).await?;
        if let Some(slow) = slow {
            self.write_slow(engine, slow, (minute, started)).await?;
        }
        let statement = format!(
            "INSERT INTO system_traces.sessions \
             (session_id, client, command, coordinator, coordinator_port, duration, parameters, request, started_at) \
             VALUES ({id}, {}, 'QUERY', '{coordinator}', {port}, {}, {}, {}, {started}) USING TTL {ttl}",
            self.client(),
            i32::try_from(*duration_us).unwrap_or(i32::MAX),
            self.parameters(),
            quoted(trace.request),
        );
        execute(engine, &statement).await
    }

    /// Writes the rows of a slow request.
    async fn write_slow(
        &self,
        engine: &Engine,
        slow: &SlowRecord,
        (minute, started): (i64, i64),
    ) -> Result<(), QueryError> {
        let Self { trace, duration_us, coordinator, user, .. } = self;
        let (id, ttl, shard) = (trace.id, slow.ttl_seconds, reactor::shard_id());
        let [.., a, b, c, d, e, f] = *id.as_bytes();
        let start = timeuuid::from_unix_micros(trace.started_us, 0, [a, b, c, d, e, f]);
        let tables: Vec<String> = slow.tables.iter().map(|table| quoted(table)).collect();
        let command = trace.parameters.iter().find(|(name, _)| name == "query");
        let statement = format!(
            "INSERT INTO system_traces.node_slow_log (start_time, node_ip, shard, session_id, date, command, \
             duration, parameters, source_ip, table_names, username) VALUES ({start}, '{coordinator}', {shard}, \
             {id}, {started}, {}, {}, {}, {}, {{{}}}, {}) USING TTL {ttl}",
            command.map_or_else(|| "null".to_owned(), |(_, text)| quoted(text)),
            i32::try_from(*duration_us).unwrap_or(i32::MAX),
            self.parameters(),
            self.client(),
            tables.join(", "),
            quoted(user),
        );
        execute(engine, &statement).await?;
        let index = format!(
            "INSERT INTO system_traces.node_slow_log_time_idx \
             (minute, started_at, session_id, start_time, node_ip, shard) \
             VALUES ({minute}, {started}, {id}, {start}, '{coordinator}', {shard}) USING TTL {ttl}"
        );
        execute(engine, &index).await
    }

    /// The client's address as CQL has it.
    fn client(&self) -> String {
        self.client.map_or_else(|| "null".to_owned(), |client| format!("'{client}'"))
    }

    /// The request's parameters as a map of CQL.
    fn parameters(&self) -> String {
        let mut parameters = "{".to_owned();
        for (name, value) in &self.trace.parameters {
            let separator = if parameters.len() == 1 { "" } else { ", " };
            // Writing to a String cannot fail.
            let _ = write!(parameters, "{separator}{}: {}", quoted(name), quoted(value));
        }
        parameters.push('}');
        parameters
    }
}

/// Names and texts of the values bound to the markers of a prepared statement. Values that do not fit the
/// markers are left out: they are reported when they are bound.
fn bound_texts(engine: &Engine, id: &[u8], values: &Values<'_>) -> Vec<(String, String)> {
    let Some(statement) = engine.prepared().get(id) else { return Vec::new() };
    let Ok(bound) = bind_values(values, &statement.prepared) else { return Vec::new() };
    let markers = statement.prepared.markers.iter().zip(&bound).take(VALUES_MAX);
    let texts = markers.filter_map(|(marker, value)| {
        let text = match value {
            ValueRef::Unset => "<unset>".to_owned(),
            ValueRef::Null => "null".to_owned(),
            // To write out megabytes for the little that a trace keeps would hold the shard.
            ValueRef::Bytes(bytes) if bytes.len() > VALUE_BYTES_MAX => format!("<{} bytes>", bytes.len()),
            ValueRef::Bytes(bytes) if validate(&marker.ty, bytes).is_ok() => {
                literal_text(&marker.ty, Some(bytes))
            }
            ValueRef::Bytes(_) => return None,
        };
        Some((marker.name.to_string(), text))
    });
    texts.collect()
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
