//! Requests that run alone: the handshake, and those that change the connection.

use std::rc::Rc;

use wire::error::{ErrorBody, PlainError};
use wire::frame::FrameHeader;
use wire::protocol_error::ProtocolError;
use wire::request::{EventTypes, Request};
use wire::segment::SegmentFormat;
use wire::startup::Startup;
use wire::version::ProtocolVersion;

use super::super::auth::Verdict;
use super::super::framing::Input;
use super::super::session::{Phase, Session, StartupOptions};
use super::{decompressed, protocol_error, respond, supported_options};

/// Limits to the options of a STARTUP that are kept for `system_views.clients`: their number, and their bytes
/// together.
const STARTUP_OPTIONS_MAX: usize = 32;
const STARTUP_BYTES_MAX: usize = 16 << 10;

/// Answers a request that runs alone: one of the handshake, or one that changes the connection. Returns false
/// if that ends the connection.
pub(in super::super) async fn answer_in_turn(
    session: &Session,
    header: FrameHeader,
    body: Vec<u8>,
    input: &mut Input,
) -> bool {
    session.requests.set(session.requests.get() + 1);
    let outcome = match decompressed(session, &header, body) {
        Ok(body) => shake_hands(session, &header, &body, input),
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) => true,
        Err(error) => {
            protocol_error(session, header.stream, &error);
            // As in Cassandra: an error before the end of the handshake ends the connection.
            session.phase.get() == Phase::Ready
        }
    }
}

fn shake_hands(
    session: &Session,
    header: &FrameHeader,
    body: &[u8],
    input: &mut Input,
) -> Result<(), ProtocolError> {
    let envelope = wire::request::decode(header, body, &session.extensions.get())?;
    match (session.phase.get(), envelope.request) {
        (_, Request::Options) => {
            respond(session, header, |builder| supported_options(session, builder));
            Ok(())
        }
        (Phase::New, Request::Startup(startup)) => start(session, header, &startup, input),
        (Phase::Authenticating, Request::AuthResponse(token)) => {
            authenticate(session, header, token);
            Ok(())
        }
        (Phase::Ready, Request::Register(types)) => {
            register(session, types);
            respond(session, header, |builder| builder.ready());
            Ok(())
        }
        (phase, _) => Err(ProtocolError::UnexpectedMessage {
            message: header.opcode.name(),
            expected: match phase {
                Phase::New => "expecting STARTUP or OPTIONS",
                Phase::Authenticating => "expecting AUTH_RESPONSE",
                Phase::Ready => "the connection is already initialized",
            },
        }),
    }
}

fn start(
    session: &Session,
    header: &FrameHeader,
    startup: &Startup<'_>,
    input: &mut Input,
) -> Result<(), ProtocolError> {
    let options = startup.negotiate(header.version)?;
    session.extensions.set(options.extensions);
    session.throws_on_overload.set(options.throw_on_overload);
    keep_startup(session, kept_options(startup.options.iter()).collect());
    {
        let mut client = session.client.borrow_mut();
        let client = Rc::make_mut(&mut client);
        client.version = header.version;
        client.tablets_routing = options.extensions.tablets_routing_v1;
        client.metadata_id = options.extensions.has_metadata_id(header.version);
        client.lwt_mark = options.extensions.lwt_mark;
    }
    let challenge = session.native.authenticator.challenge();
    respond(session, header, |builder| match challenge {
        Some(class) => builder.authenticate(class),
        None => builder.ready(),
    });
    session.phase.set(if challenge.is_some() { Phase::Authenticating } else { Phase::Ready });
    // Everything after the answer to STARTUP is compressed, and in version 5 sent in segments.
    let mut output = session.output.borrow_mut();
    if header.version >= ProtocolVersion::V5 {
        let format = if options.compression.is_some() { SegmentFormat::Lz4 } else { SegmentFormat::Plain };
        output.begin_segments(format);
        input.expect_segments(format);
    } else {
        output.body_compression = options.compression;
    }
    Ok(())
}

/// The options of a STARTUP that are kept: complete as long as they fit, then cut to the remaining room.
fn kept_options<'o>(
    options: impl Iterator<Item = (&'o str, &'o str)>,
) -> impl Iterator<Item = (Box<str>, Box<str>)> {
    let mut room = STARTUP_BYTES_MAX;
    options.take(STARTUP_OPTIONS_MAX).map_while(move |(name, value)| {
        room = room.checked_sub(name.len())?;
        let value = &value[..value.floor_char_boundary(room)];
        room -= value.len();
        Some((name.into(), value.into()))
    })
}

/// Keeps the options of a client's STARTUP; successive clients with the same options share one copy.
fn keep_startup(session: &Session, options: StartupOptions) {
    let mut last = session.native.startup.borrow_mut();
    if options != *last {
        *last = options;
    }
    session.startup.replace(Some(Rc::clone(&last)));
}

fn authenticate(session: &Session, header: &FrameHeader, token: Option<&[u8]>) {
    match session.native.authenticator.evaluate(token) {
        Ok(Verdict::User(user)) => {
            Rc::make_mut(&mut session.client.borrow_mut()).user = user.into();
            session.phase.set(Phase::Ready);
            respond(session, header, |builder| builder.auth_success(None));
        }
        Ok(Verdict::Challenge(token)) => {
            respond(session, header, |builder| builder.auth_challenge(Some(&token)));
        }
        Err(text) => {
            let error = ErrorBody::plain(PlainError::BadCredentials, &text);
            respond(session, header, |builder| builder.error(&session.extensions.get(), &error));
        }
    }
}

fn register(session: &Session, types: EventTypes) {
    let mut events = session.events.get();
    events.topology_change |= types.topology_change;
    events.status_change |= types.status_change;
    events.schema_change |= types.schema_change;
    session.events.set(events);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_options_of_startup_are_kept_until_there_is_no_room() {
        let (long, longer) = ("v".repeat(5_000), "é".repeat(10_000));
        let said = [("A", "short"), ("B", long.as_str()), ("C", &longer), ("D", "late"), ("E", "later")];
        let kept: Vec<(Box<str>, Box<str>)> = kept_options(said.into_iter()).collect();
        let room = STARTUP_BYTES_MAX - "AshortB".len() - long.len() - "C".len();
        let cut = longer.floor_char_boundary(room);
        assert!(cut < longer.len() && kept[2].1.len() == cut, "{}", kept[2].1.len());
        let shown: Vec<(&str, &str)> = kept.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(shown[..2], [("A", "short"), ("B", &*long)]);
        let bytes: usize = kept.iter().map(|(name, value)| name.len() + value.len()).sum();
        assert!(bytes <= STARTUP_BYTES_MAX, "{bytes}");
        let many: Vec<String> = (0..100).map(|at| at.to_string()).collect();
        assert_eq!(kept_options(many.iter().map(|name| (name.as_str(), ""))).count(), STARTUP_OPTIONS_MAX);
    }
}
