//! Answers a request: decodes it, lets the engine execute it, and writes the response to the session.

mod handshake;

use std::rc::Rc;

use query::tracing::Trace;
use query::{AtOnce, BoundValues, ClientState, Left, OneRow, QueryError, Response, Timed, Writing};
use reactor::{Deadline, Group, Instant};
use storage::ReadNotes;
use wire::consistency::Consistency;
use wire::error::{ErrorBody, PlainError};
use wire::extensions::{Extensions, TABLETS_ROUTING_V1_PAYLOAD};
use wire::frame::{Flags, FrameHeader, Opcode};
use wire::protocol_error::ProtocolError;
use wire::request::{Execute, QueryParameters, Request};
use wire::response::{CompleteResponse, ResponseBuilder, append_unsupported_version};
use wire::values::ValueRef;
use wire::version::ProtocolVersion;

use super::framing::LONG_ANSWER_BYTES;
use super::limits::Held;
use super::session::{Session, Working};
use super::writes::PendingWrite;
use super::{error, slow, supported, traced};

pub(super) use handshake::answer_in_turn;

/// Longest bodies, in bytes, of a request and of a batch that do not count as long: decoding and executing
/// take time.
const SHORT_BODY_BYTES: u32 = 64 << 10;
const SHORT_BATCH_BYTES: u32 = 8 << 10;

/// Whether a request needs more than execution: parsing, preparing, or much decoding.
pub(super) fn is_heavy(header: &FrameHeader) -> bool {
    match header.opcode {
        Opcode::Execute | Opcode::Options => header.body_length > SHORT_BODY_BYTES,
        Opcode::Batch => header.body_length > SHORT_BATCH_BYTES,
        _ => true,
    }
}

/// As [`answer`], for requests that [`is_heavy`] accepts: they run after those that it does not, and get an
/// error if `deadline` passed meanwhile.
pub(super) async fn answer_heavy(
    session: &Session,
    (header, body, began): (FrameHeader, Vec<u8>, Instant),
    deadline: Deadline,
) {
    reactor::move_to(Group::UNPREPARED).await;
    if deadline.instant() <= reactor::coarse_now() {
        session.native.limits.count_shed();
        overloaded(session, header, TOO_LATE);
        return;
    }
    answer(session, (header, body, began), Left::Untried).await;
}

/// Cassandra's error text for a request that waited longer than its client.
pub(super) const TOO_LATE: &str = "Query timed out before it could start";

/// Without a task, answers a prepared read of a row that is in memory, or begins a prepared write of one row
/// that the commit log accepts now; the write then stands in the shard's line with the permits from `admit`.
///
/// # Errors
/// Other requests, or if `admit` refuses: nothing has been done. [`answer`] goes on from there.
#[inline]
pub(super) fn answer_at_once(
    session: &Rc<Session>,
    header: &FrameHeader,
    body: &[u8],
    admit: impl FnOnce() -> Option<Option<Held>>,
) -> Result<(), Left> {
    if header.opcode != Opcode::Execute || header.body_length > SHORT_BODY_BYTES {
        return Err(Left::Untried);
    }
    if header.flags.contains(Flags::TRACING | Flags::CUSTOM_PAYLOAD | Flags::COMPRESSED) {
        return Err(Left::Untried);
    }
    let engine = &session.native.engine;
    let counts_down = engine.watch().looks_at_each();
    if counts_down && engine.watch().takes_next() {
        return Err(Left::Untried);
    }
    let Some(row) = wire::request::execute_id(body).and_then(|id| engine.one_row(id)) else {
        return Err(Left::Untried);
    };
    let latency = &session.native.latency;
    let began = latency.begin();
    let extensions = session.extensions.get();
    // Errors are reported when the request is decoded again.
    let mut values = BoundValues::new();
    let decoded = wire::request::decode_execute(header, body, &extensions, |value| values.push(value));
    let Ok(Execute { result_metadata_id, parameters, .. }) = &decoded else { return Err(Left::Untried) };
    if parameters.values.is_named() {
        return Err(Left::Untried);
    }
    let request = (parameters, &values[..]);
    if row.writes {
        let begun = begin_write(session, header, (row, began), request, admit);
        if counts_down && begun.is_ok() {
            session.native.engine.watch().passed();
        }
        return begun;
    }
    let mut response = Response { body: session.native.take_buffer(), ..Response::default() };
    let client = session.client.borrow();
    let result = engine.begin_read(&client, &row, *result_metadata_id, request, &mut response);
    drop(client);
    let answered = match result {
        Ok(AtOnce::Done) => Ok(Ok(())),
        Ok(AtOnce::Left(left)) => Err(left),
        Ok(AtOnce::Writing(_)) => unreachable!("a read writes nothing"),
        Err(error) => {
            warn_of_refusal(&error, &mut response);
            Ok(Err(error))
        }
    };
    if let Ok(result) = &answered {
        session.requests.set(session.requests.get() + 1);
        session.native.count(result);
        write_result(session, header, result, &response);
        if counts_down {
            session.native.engine.watch().passed();
        }
        if let Some(took) = latency.end(began)
            && engine.watch().is_slow(took)
        {
            let of_row = (&row, parameters.consistency);
            slow::note_row(&session.native, &session.client.borrow(), of_row, took, result);
        }
    } else {
        latency.not_begun(began);
    }
    session.native.give_buffer(response.body);
    answered.map(drop)
}

/// As [`answer_at_once`], for a write.
#[inline]
fn begin_write(
    session: &Rc<Session>,
    header: &FrameHeader,
    (row, began): (OneRow, Option<Instant>),
    request: (&QueryParameters<'_>, &[ValueRef<'_>]),
    admit: impl FnOnce() -> Option<Option<Held>>,
) -> Result<(), Left> {
    let Some(held) = admit() else {
        session.native.latency.not_begun(began);
        return Err(Left::Untried);
    };
    let client = session.client.borrow();
    let timed = session.native.engine.time(&row);
    let begun = session.native.engine.begin_write(&client, &row, request);
    drop(client);
    let ended = match begun {
        Ok(AtOnce::Writing(writing)) => {
            session.requests.set(session.requests.get() + 1);
            join_line(session, header, (row, request.0.consistency), (writing, timed, began), held);
            return Ok(());
        }
        Ok(AtOnce::Left(left)) => {
            timed.not_begun();
            session.native.latency.not_begun(began);
            return Err(left);
        }
        Ok(AtOnce::Done) => Ok(()),
        Err(error) => Err(error),
    };
    session.requests.set(session.requests.get() + 1);
    end_write(session, header, &ended);
    let _ = session.native.latency.end(began);
    Ok(())
}

/// Appends a write to the line of those that wait for the commit log.
#[inline]
fn join_line(
    session: &Rc<Session>,
    header: &FrameHeader,
    (row, consistency): (OneRow, Consistency),
    (writing, timed, began): (Writing, Timed, Option<Instant>),
    held: Option<Held>,
) {
    let since = began.unwrap_or_else(reactor::coarse_now);
    let (working, header) = (Working::begin(session, false), *header);
    let begun = PendingWrite { working, header, writing, row, consistency, timed, began, since, held };
    session.native.writes.join(begun);
}

/// Answers a write that [`answer_at_once`] began.
#[inline]
pub(super) fn end_write(session: &Session, header: &FrameHeader, ended: &Result<(), QueryError>) {
    session.native.count(ended);
    match ended {
        Ok(()) => session.write_void(header),
        Err(error) => write_failure(session, header, (ended, error)),
    }
}

#[cold]
fn write_failure(
    session: &Session,
    header: &FrameHeader,
    (ended, error): (&Result<(), QueryError>, &QueryError),
) {
    let mut response = Response::default();
    warn_of_refusal(error, &mut response);
    write_result(session, header, ended, &response);
}

/// A guardrail's refusal is a warning too.
#[cold]
fn warn_of_refusal(error: &QueryError, response: &mut Response) {
    if let QueryError::Guardrail(text) = error {
        response.warnings.push(text.clone());
    }
}

/// Answers a request that runs concurrently with others. `left` says how far [`answer_at_once`] came with it
/// in this slice of the core.
pub(super) async fn answer(
    session: &Session,
    (header, body, began): (FrameHeader, Vec<u8>, Instant),
    left: Left,
) {
    let native = &session.native;
    match decompressed(session, &header, body) {
        Ok(body) => {
            if let Err(error) = reactor::in_place!(execute(session, (&header, began), &body, left)) {
                protocol_error(session, header.stream, &error);
            }
            native.give_buffer(body);
        }
        Err(error) => protocol_error(session, header.stream, &error),
    }
}

/// The body of a request, decompressed if the client compressed it.
fn decompressed(session: &Session, header: &FrameHeader, body: Vec<u8>) -> Result<Vec<u8>, ProtocolError> {
    if !header.flags.contains(Flags::COMPRESSED) || header.version >= ProtocolVersion::V5 {
        return Ok(body);
    }
    let compression = session.output.borrow().body_compression.ok_or(ProtocolError::NotCompressed)?;
    let mut plain = session.native.take_buffer();
    let limit = session.native.config.frame_bytes_max;
    let result = compression.decompress(&body, limit, &mut plain);
    session.native.give_buffer(body);
    result.map(|()| plain)
}

async fn execute(
    session: &Session,
    (header, began): (&FrameHeader, Instant),
    body: &[u8],
    left: Left,
) -> Result<(), ProtocolError> {
    let native = &session.native;
    session.requests.set(session.requests.get() + 1);
    let extensions = session.extensions.get();
    let envelope = wire::request::decode(header, body, &extensions)?;
    if matches!(envelope.request, Request::Options) {
        respond(session, header, |builder| supported_options(session, builder));
        return Ok(());
    }
    let mut response = Response { body: native.take_buffer(), ..Response::default() };
    let is_chosen = native.engine.watch().chosen();
    response.trace = traced::begin_if(&native.engine, &envelope, is_chosen);
    let reads = response.trace.as_ref().map(|_| Rc::<ReadNotes>::default());
    let _running = native.engine.runs(&envelope.request);
    // The statement has its own reference: USE on this connection must not change a running statement.
    let client: Rc<ClientState> = Rc::clone(&session.client.borrow());
    // All futures except EXECUTE's are boxed, so that the task of an EXECUTE does not carry the space that
    // they need.
    let result = match &envelope.request {
        Request::Query { query, parameters } => {
            Box::pin(traced::noting(
                reads.as_ref(),
                native.engine.query(&client, query, parameters, &mut response),
            ))
            .await
        }
        Request::Prepare { query, keyspace } => {
            Box::pin(native.engine.prepare(&client, query, *keyspace, &mut response)).await
        }
        Request::Execute { id, result_metadata_id, parameters } => {
            let execution =
                native.engine.execute_left(&client, id, *result_metadata_id, parameters, left, &mut response);
            match &reads {
                None => reactor::in_place!(execution),
                Some(reads) => Box::pin(storage::noting(reads, execution)).await,
            }
        }
        Request::Batch { kind, statements, parameters } => {
            Box::pin(traced::noting(
                reads.as_ref(),
                native.engine.batch(&client, *kind, *statements, parameters, &mut response),
            ))
            .await
        }
        Request::Options | Request::Startup(_) | Request::Register(_) | Request::AuthResponse(_) => {
            unreachable!("{} is answered in turn", header.opcode.name())
        }
    };
    if let (Some(trace), Some(reads)) = (&mut response.trace, reads) {
        trace.notes(&reads);
    }
    let slow =
        slow::found(native, &client, (header, &extensions), (&envelope.request, began), (&result, &response));
    native.count_kind(header.opcode, &result);
    if let Some(keyspace) = response.set_keyspace.take() {
        Rc::make_mut(&mut session.client.borrow_mut()).keyspace = Some(keyspace);
    }
    if let Err(error) = &result {
        warn_of_refusal(error, &mut response);
    }
    if let (Some(trace), Ok(())) = (&mut response.trace, &result) {
        traced::answered(trace, response.tombstones, header, &response.body, &extensions);
    }
    if response.body.len() >= LONG_ANSWER_BYTES && result.is_ok() {
        write_long_result(session, header, &mut response);
    } else {
        write_result(session, header, &result, &response);
    }
    native.give_buffer(response.body);
    if slow.is_some() || response.trace.is_some() {
        let facts = traced::Ended { slow, began, is_chosen, is_ok: result.is_ok() };
        Box::pin(traced::end(native, &client, &envelope.request, response.trace, facts)).await;
    }
    Ok(())
}

fn write_result(
    session: &Session,
    header: &FrameHeader,
    result: &Result<(), QueryError>,
    response: &Response,
) {
    respond(session, header, |mut builder| {
        // Most answers have none of these; a builder that is passed on is moved.
        if let Some(id) = response.trace.as_ref().and_then(Trace::id) {
            builder = builder.tracing_id(&id);
        }
        if !response.warnings.is_empty() {
            builder = builder.warnings(response.warnings.iter().map(String::as_str));
        }
        if let Some(tablet) = &response.tablet_payload {
            let payload = (TABLETS_ROUTING_V1_PAYLOAD, Some(tablet.as_slice()));
            builder = builder.custom_payload(std::iter::once(payload));
        }
        match result {
            Ok(()) => builder.result_encoded(&response.body),
            Err(failure) => {
                let around = error::Around::here(session.native.engine.config().listen_address);
                error::write(builder, &session.extensions.get(), &around, failure)
            }
        }
    });
}

/// As [`write_result`], for a long body. The body is sent without a copy if possible; if it has to be copied,
/// there must be room for the copy.
#[cold]
fn write_long_result(session: &Session, header: &FrameHeader, response: &mut Response) {
    if !response.trace.as_ref().is_some_and(Trace::is_requested) && session.output.borrow().takes_long() {
        let body = std::mem::take(&mut response.body);
        let warnings = response.warnings.iter().map(String::as_str);
        let payload: Option<(&str, Option<&[u8]>)> = response
            .tablet_payload
            .as_ref()
            .map(|tablet| (TABLETS_ROUTING_V1_PAYLOAD, Some(tablet.as_slice())));
        session.write_long(
            |out| {
                let builder = ResponseBuilder::begin(out, header.version, header.stream).warnings(warnings);
                let head = builder.custom_payload(payload.into_iter()).result_encoded(&[]);
                head.finish(None).expect("a head is short");
            },
            body,
        );
        return;
    }
    let (answers, bytes) = (&session.native.limits.answers, response.body.len());
    let result = if answers.have_room(2 * bytes) { Ok(()) } else { Err(answers.overloaded(bytes)) };
    if result.is_err() {
        response.body = Vec::new();
    }
    session.output.borrow_mut().end_buffer();
    write_result(session, header, &result, response);
    session.output.borrow_mut().end_buffer();
}

fn supported_options<'b>(session: &Session, builder: ResponseBuilder<'b>) -> CompleteResponse<'b> {
    let options = supported::options(&session.native.config);
    builder.supported(options.iter().map(|(name, values)| (name.as_str(), values.as_slice())))
}

/// Answers a request that a limit refused.
pub(super) fn overloaded(session: &Session, header: FrameHeader, text: &str) {
    let error = ErrorBody::plain(PlainError::Overloaded, text);
    respond(session, &header, |builder| builder.error(&session.extensions.get(), &error));
}

/// Answers a violation of the protocol.
pub(super) fn protocol_error(session: &Session, stream: i16, error: &ProtocolError) {
    let text = error.to_string();
    let body = ErrorBody::protocol(error, &text);
    if let ProtocolError::UnsupportedVersion { requested } = error {
        session.write(|out, _| append_unsupported_version(out, *requested, &body));
        return;
    }
    let version = session.version.get().unwrap_or(ProtocolVersion::LATEST);
    write_frame(session, version, stream, |builder| builder.error(&session.extensions.get(), &body));
}

fn respond<W>(session: &Session, header: &FrameHeader, write: W)
where
    W: for<'b> FnOnce(ResponseBuilder<'b>) -> CompleteResponse<'b>,
{
    write_frame(session, header.version, header.stream, write);
}

/// Appends a frame to the output; a response that no frame can hold becomes an error.
pub(super) fn write_frame<W>(session: &Session, version: ProtocolVersion, stream: i16, write: W)
where
    W: for<'b> FnOnce(ResponseBuilder<'b>) -> CompleteResponse<'b>,
{
    session.write(|out, mut compression| {
        let reborrowed = compression.as_mut().map(|(algorithm, compressor)| (*algorithm, &mut **compressor));
        if let Err(error) = write(ResponseBuilder::begin(out, version, stream)).finish(reborrowed) {
            let text = error.to_string();
            let body = ErrorBody::plain(PlainError::Server, &text);
            let builder = ResponseBuilder::begin(out, version, stream);
            builder
                .error(&Extensions::default(), &body)
                .finish(compression)
                .expect("an error text is cut at 64 KiB");
        }
    });
}
