//! `POST /ui/cql`: one statement of the page, with its result.
//!
//! The statement takes the road of a client's: a session without a socket on shard 0 (`native::inproc`), in
//! frames of version 4, so it has a client's checks, limits, timeouts, metrics and traces. The administration
//! thread decodes the answer and turns its values into text: a shard does not. A statement that fails is an
//! answer like others, with status 200, `error` and the number that a driver would be given.
//!
//! Rule for users: these requests carry none. As soon as the node asks a client for its user, STARTUP is not
//! answered by READY, and every statement here is refused with 403. No statement may run without its user.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use model::CqlType;
use model::type_parser::quote_identifier;
use reactor::Group;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use wire::Consistency;
use wire::client::{ClientConnection, ClientRequest, Parameters, RequestOptions, ResponseBody, Rows};
use wire::compression::Compressor;
use wire::error_code::ErrorCode;
use wire::extensions::Extensions;
use wire::frame::{Direction, Frame, Opcode};
use wire::version::ProtocolVersion;

use crate::admin::bridge::Bridge;
use crate::admin::error::ApiError;
use crate::admin::node::{self, Mode, NodeState};
use crate::admin::rest::uuid_text;
use crate::native::inproc::InProcess;

/// Statements at work at a time; one more is refused.
const STATEMENTS_MAX: usize = 4;
/// How long the page waits. The statement goes on behind, within the node's own timeouts, and keeps its place
/// among the [`STATEMENTS_MAX`].
const TIME_MAX: Duration = Duration::from_secs(30);
const PAGE_ROWS_MAX: i32 = 500;
const PAGE_ROWS_DEFAULT: i32 = 100;
/// Longest answer of the node that is turned into text. A page of rows ends at 1 MiB; one row may be longer.
const FRAME_BYTES_MAX: usize = 8 << 20;
/// Most bytes of text of one value, and of all; values are cut there.
const VALUE_BYTES_MAX: usize = 16 << 10;
const TEXT_BYTES_MAX: usize = 4 << 20;
const STREAM: i16 = 1;

/// The body of a request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    statement: String,
    /// The keyspace of names without one.
    keyspace: Option<String>,
    /// A level's name; LOCAL_ONE if left out.
    consistency: Option<String>,
    /// Rows of a page.
    page_size: Option<i32>,
    /// `paging_state` of the last answer.
    paging_state: Option<String>,
    #[serde(default)]
    tracing: bool,
}

/// A request that was checked.
#[derive(Debug)]
struct Checked {
    statement: String,
    keyspace: Option<String>,
    consistency: Consistency,
    page_size: i32,
    paging_state: Option<Vec<u8>>,
    tracing: bool,
}

impl TryFrom<Body> for Checked {
    type Error = ApiError;

    fn try_from(body: Body) -> Result<Self, ApiError> {
        let name = body.consistency.as_deref().filter(|name| !name.is_empty()).unwrap_or("LOCAL_ONE");
        let consistency = Consistency::ALL.into_iter().find(|level| level.name().eq_ignore_ascii_case(name));
        let consistency =
            consistency.ok_or_else(|| ApiError::bad(format!("'{name}' is no consistency level")))?;
        let page_size = body.page_size.unwrap_or(PAGE_ROWS_DEFAULT);
        if !(1..=PAGE_ROWS_MAX).contains(&page_size) {
            return Err(ApiError::bad(format!("page_size has to be from 1 to {PAGE_ROWS_MAX}")));
        }
        let paging_state = body.paging_state.as_deref().filter(|state| !state.is_empty()).map(|state| {
            model::hex::parse(state).ok_or_else(|| ApiError::bad("paging_state has to be in hexadecimal"))
        });
        Ok(Self {
            statement: body.statement,
            keyspace: body.keyspace.filter(|name| !name.is_empty()),
            consistency,
            page_size,
            paging_state: paging_state.transpose()?,
            tracing: body.tracing,
        })
    }
}

pub(super) fn routes() -> Router<Bridge> {
    let places = Arc::new(Semaphore::new(STATEMENTS_MAX));
    let answer = async move |State(bridge): State<Bridge>, body: Result<Json<Body>, JsonRejection>| {
        answer(&bridge, places, body, TIME_MAX).await
    };
    Router::new().route("/ui/cql", post(answer))
}

async fn answer(
    bridge: &Bridge,
    places: Arc<Semaphore>,
    body: Result<Json<Body>, JsonRejection>,
    time_max: Duration,
) -> Result<Json<Value>, ApiError> {
    let Json(body) = body.map_err(|rejection| match rejection.status() {
        StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            ApiError::unsupported_type("the body has to be application/json")
        }
        _ => ApiError::bad(rejection.body_text()),
    })?;
    let checked = Checked::try_from(body)?;
    let place = places.try_acquire_owned().map_err(|_| {
        ApiError::unavailable(format!("{STATEMENTS_MAX} statements are at work: wait for one to end"))
    })?;
    let began = tokio::time::Instant::now();
    let work = bridge.call(move || async move {
        let answered = Box::pin(carry_out(checked)).await;
        drop(place);
        answered
    });
    let frame = tokio::time::timeout(time_max, work).await.map_err(|_| {
        ApiError::unavailable(format!("no answer within {} s; the statement goes on", time_max.as_secs()))
    })??;
    let took_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
    let mut shown = shown(&frame)?;
    shown["took_us"] = json!(took_us);
    Ok(Json(shown))
}

/// Runs a statement on this shard; returns the frame of the answer.
async fn carry_out(ask: Checked) -> Result<Vec<u8>, ApiError> {
    // Parsing takes its turn among those of clients.
    reactor::move_to(Group::UNPREPARED).await;
    let mode = NodeState::here()?.mode.get();
    if mode != Mode::Normal {
        return Err(ApiError::unavailable(format!("the node is {}", mode.name())));
    }
    let shard = node::here()?;
    let ending = || ApiError::unavailable("the node is ending");
    let mut client = Client(InProcess::entered(&shard.native).ok_or_else(ending)?);
    let startup = ClientRequest::Startup(&[("CQL_VERSION", "3.0.0"), ("DRIVER_NAME", "ceto console")]);
    let greeted = client.ask(&startup, false).await?;
    if opcode(&greeted)? != Opcode::Ready {
        return Err(ApiError::forbidden("this node asks for users: connect with a driver or cqlsh"));
    }
    if let Some(keyspace) = &ask.keyspace {
        let text = format!("USE {}", quote_identifier(keyspace));
        let used = client.ask(&ClientRequest::Query(&text, &Parameters::at(Consistency::One)), false).await?;
        if opcode(&used)? == Opcode::Error {
            return Ok(used);
        }
    }
    let parameters = Parameters {
        page_size: Some(ask.page_size),
        paging_state: ask.paging_state.as_deref(),
        ..Parameters::at(ask.consistency)
    };
    let frame = client.ask(&ClientRequest::Query(&ask.statement, &parameters), ask.tracing).await?;
    if frame.len() > FRAME_BYTES_MAX {
        return Err(ApiError::too_large(format!(
            "the answer has {} bytes, {FRAME_BYTES_MAX} are shown at most: ask for fewer rows or columns",
            frame.len()
        )));
    }
    Ok(frame)
}

/// A client whose requests are answered one after the other.
struct Client(InProcess);

impl Client {
    async fn ask(&mut self, request: &ClientRequest<'_>, tracing: bool) -> Result<Vec<u8>, ApiError> {
        let (mut bytes, mut frame) = (Vec::new(), Vec::new());
        let options = RequestOptions { tracing, ..RequestOptions::default() };
        ClientConnection::new(ProtocolVersion::V4)
            .append_request(&mut bytes, STREAM, request, &options, &mut Compressor::default())
            .map_err(ApiError::failed)?;
        self.0.exchange(&bytes, &mut frame).await.map_err(ApiError::failed)?;
        Ok(frame)
    }
}

fn cut(frame: &[u8]) -> Result<Frame<'_>, ApiError> {
    let cut = Frame::cut_direction(frame, usize::MAX, Direction::Response).map_err(ApiError::failed)?;
    cut.ok_or_else(|| ApiError::failed("the node answered half a frame"))
}

fn opcode(frame: &[u8]) -> Result<Opcode, ApiError> {
    Ok(cut(frame)?.header.opcode)
}

/// An answer as the page shows it.
fn shown(frame: &[u8]) -> Result<Value, ApiError> {
    let frame = cut(frame)?;
    let response =
        wire::client::decode(&frame.header, frame.body, &Extensions::default()).map_err(ApiError::failed)?;
    let mut shown = match &response.body {
        ResponseBody::Error { code, message, .. } => {
            let name = ErrorCode::from_code(*code).map_or_else(String::new, |known| format!("{known:?}"));
            json!({ "kind": "error", "error": { "code": code, "name": name, "message": message } })
        }
        ResponseBody::Rows(rows) => of_rows(rows),
        ResponseBody::SetKeyspace(keyspace) => json!({ "kind": "keyspace", "keyspace": keyspace }),
        ResponseBody::SchemaChange(_) => json!({ "kind": "schema" }),
        ResponseBody::Void => json!({ "kind": "void" }),
        other => return Err(ApiError::failed(format!("the node answered {other:?}"))),
    };
    shown["warnings"] = json!(response.warnings);
    shown["trace"] = json!(response.tracing_id.map(uuid_text));
    Ok(shown)
}

fn of_rows(rows: &Rows<'_>) -> Value {
    let columns = rows.columns.as_deref().unwrap_or_default();
    let names: Vec<Value> =
        columns.iter().map(|column| json!({ "name": column.name, "type": column.ty.to_string() })).collect();
    let (mut left, mut cut) = (TEXT_BYTES_MAX, 0u32);
    let types = columns.iter().map(|column| &column.ty).cycle();
    let values: Vec<Value> = rows
        .values()
        .zip(types)
        .map(|(value, ty)| {
            let Some(value) = value else { return Value::Null };
            let mut text = text_of(ty, value);
            let end = text.floor_char_boundary(left.min(VALUE_BYTES_MAX));
            if end < text.len() {
                cut += 1;
                text.truncate(end);
                text.push('…');
            }
            left -= end;
            Value::String(text)
        })
        .collect();
    let all: Vec<&[Value]> = values.chunks(rows.column_count.max(1)).collect();
    json!({
        "kind": "rows",
        "columns": names,
        "rows": all,
        "values_cut": cut,
        "paging_state": rows.paging_state.map(model::hex::text),
    })
}

/// A value as cqlsh shows it: a literal, but text and times without quotes around them.
fn text_of(ty: &CqlType, value: &[u8]) -> String {
    // More than what is shown is not made into text where it is easy to see.
    let begin = &value[..value.len().min(VALUE_BYTES_MAX + 1)];
    match ty {
        CqlType::Ascii | CqlType::Text => String::from_utf8_lossy(begin).into_owned(),
        CqlType::Blob => query::literal_text(ty, Some(begin)),
        CqlType::Timestamp | CqlType::Date | CqlType::Time | CqlType::Inet => {
            query::literal_text(ty, Some(value)).trim_matches('\'').to_owned()
        }
        ty => query::literal_text(ty, Some(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &str) -> Result<Checked, String> {
        let body: Body = serde_json::from_str(text).map_err(|error| error.to_string())?;
        Checked::try_from(body).map_err(|error| format!("{error:?}"))
    }

    #[test]
    fn requests_are_checked() {
        let full = r#"{"statement": "SELECT", "keyspace": "k", "consistency": "local_quorum", "page_size": 500,
            "paging_state": "0aff", "tracing": true}"#;
        let checked = body(full).unwrap();
        assert_eq!(checked.consistency, Consistency::LocalQuorum);
        assert_eq!(checked.paging_state, Some(vec![10, 255]));
        assert_eq!(body(r#"{"statement": ""}"#).unwrap().page_size, PAGE_ROWS_DEFAULT);
        for wrong in [
            r#"{"statement": "", "page_size": 501}"#,
            r#"{"statement": "", "page_size": 0}"#,
            r#"{"statement": "", "paging_state": "x"}"#,
            r#"{"statement": "", "consistency": "SOME"}"#,
            r#"{"statement": "", "user": "me"}"#,
            r#"{}"#,
        ] {
            assert!(body(wrong).is_err(), "{wrong}");
        }
    }

    /// The statuses of requests to a node that answers none, `None` while one waits.
    fn statuses(time_max: Duration) -> Vec<Option<u16>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (attach, mut attached) = crate::admin::bridge::new();
            let _calls = attach.calls();
            let bridge = attached.recv().await.unwrap();
            let places = Arc::new(Semaphore::new(STATEMENTS_MAX));
            let ask = || {
                let (bridge, places) = (bridge.clone(), Arc::clone(&places));
                let body: Body = serde_json::from_str(r#"{"statement": "SELECT"}"#).unwrap();
                tokio::spawn(async move { answer(&bridge, places, Ok(Json(body)), time_max).await })
            };
            let mut asked = Vec::new();
            for _ in 0..=STATEMENTS_MAX {
                asked.push(ask());
                tokio::task::yield_now().await;
            }
            let mut found = Vec::new();
            for one in asked {
                let ended = tokio::time::timeout(Duration::from_millis(100), one).await;
                found.push(ended.ok().map(|answered| answered.unwrap().unwrap_err().status()));
            }
            found
        })
    }

    #[test]
    fn a_statement_too_many_is_refused() {
        let mut expected = vec![None; STATEMENTS_MAX];
        expected.push(Some(503));
        assert_eq!(statuses(Duration::from_secs(600)), expected);
    }

    #[test]
    fn a_page_does_not_wait_for_ever() {
        assert_eq!(statuses(Duration::from_millis(1)), vec![Some(503); STATEMENTS_MAX + 1]);
    }

    #[test]
    fn values_look_as_in_cqlsh() {
        assert_eq!(text_of(&CqlType::Text, b"it's"), "it's");
        assert_eq!(text_of(&CqlType::Int, &[0, 0, 0, 7]), "7");
        assert_eq!(text_of(&CqlType::Blob, &[1, 255]), "0x01ff");
        assert_eq!(text_of(&CqlType::Inet, &[127, 0, 0, 1]), "127.0.0.1");
        let long = vec![b'a'; VALUE_BYTES_MAX * 3];
        assert_eq!(text_of(&CqlType::Text, &long).len(), VALUE_BYTES_MAX + 1);
    }
}
