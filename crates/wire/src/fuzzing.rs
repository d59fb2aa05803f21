//! One entry per decoder for fuzz targets and property tests: any bytes in, nothing out, no panic.
//!
//! The first byte chooses version and options, so that a fuzzer reaches all of them from one corpus.

use crate::client;
use crate::compression::Compression;
use crate::extensions::Extensions;
use crate::frame::{Direction, Flags, Frame, FrameHeader, Opcode};
use crate::node::{self, control, fault::Fault, hello::Hello};
use crate::reader::Reader;
use crate::request::{self, Request};
use crate::segment::{Decoded, SegmentDecoder, SegmentFormat};
use crate::startup::ConnectionOptions;
use crate::types::read_option;
use crate::version::ProtocolVersion;

/// Limit on frames in here; small, so that limits are met.
pub const MAX_FRAME_BYTES: usize = 1 << 16;

fn choice(data: &[u8]) -> (u8, ProtocolVersion, Extensions, &[u8]) {
    let (&first, rest) = data.split_first().unwrap_or((&0, &[]));
    let version = ProtocolVersion::ALL[usize::from(first) % 3];
    let extensions = Extensions { use_metadata_id: first & 0x40 != 0, ..Extensions::default() };
    (first, version, extensions, rest)
}

/// Frames as they come from a socket in versions 3 and 4, and every request in them to its last value.
pub fn frames(data: &[u8]) {
    let (_, _, extensions, mut rest) = choice(data);
    loop {
        match Frame::cut(rest, MAX_FRAME_BYTES) {
            Ok(Some(frame)) => {
                walk_request(&frame.header, frame.body, &extensions);
                rest = &rest[frame.header.frame_bytes()..];
            }
            Ok(None) => return,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                let skip = error.discard_bytes.and_then(|bytes| usize::try_from(bytes).ok());
                match skip.and_then(|bytes| rest.get(bytes..)) {
                    Some(after) => rest = after,
                    None => return,
                }
            }
        }
    }
}

/// One request body of a chosen kind.
pub fn request_body(data: &[u8]) {
    let (first, version, extensions, rest) = choice(data);
    let (&opcode, body) = rest.split_first().unwrap_or((&0, &[]));
    let Some(opcode) = Opcode::from_code(opcode % 0x11) else { return };
    let flags = Flags(first & (Flags::CUSTOM_PAYLOAD | Flags::TRACING));
    let header = FrameHeader { version, flags, stream: 0, opcode, body_length: body.len() as u32 };
    walk_request(&header, body, &extensions);
}

fn walk_request(header: &FrameHeader, body: &[u8], extensions: &Extensions) {
    let envelope = match request::decode(header, body, extensions) {
        Ok(envelope) => envelope,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    assert_eq!(envelope.custom_payload.iter().count(), envelope.custom_payload.len());
    let parameters = match envelope.request {
        Request::Startup(startup) => {
            assert_eq!(startup.options.iter().count(), startup.options.len());
            let _: Result<ConnectionOptions, _> = startup.negotiate(header.version);
            return;
        }
        Request::Query { parameters, .. } | Request::Execute { parameters, .. } => parameters,
        Request::Batch { statements, parameters, .. } => {
            assert_eq!(statements.iter().count(), statements.len());
            for statement in statements.iter() {
                assert_eq!(statement.values.iter().count(), statement.values.len());
            }
            parameters
        }
        Request::Options | Request::Prepare { .. } | Request::Register(_) | Request::AuthResponse(_) => {
            return;
        }
    };
    assert_eq!(parameters.values.iter().count(), parameters.values.len());
}

/// Segments as they come from a socket in version 5, with the requests in them.
pub fn segments(data: &[u8]) {
    let (first, _, extensions, mut rest) = choice(data);
    let format = if first & 0x80 != 0 { SegmentFormat::Lz4 } else { SegmentFormat::Plain };
    let mut decoder = SegmentDecoder::new(format, Direction::Request, MAX_FRAME_BYTES);
    loop {
        let consumed = match decoder.decode(rest) {
            Ok(Decoded::NeedMore) | Err(_) => return,
            Ok(Decoded::Partial { consumed } | Decoded::Refused { consumed, .. }) => consumed,
            Ok(Decoded::Envelopes { consumed, mut envelopes }) => {
                while let Ok(Some(frame)) = Frame::cut(envelopes, MAX_FRAME_BYTES) {
                    walk_request(&frame.header, frame.body, &extensions);
                    envelopes = &envelopes[frame.header.frame_bytes()..];
                }
                consumed
            }
        };
        assert!(decoder.buffered_bytes() <= MAX_FRAME_BYTES);
        rest = &rest[consumed..];
    }
}

/// A compressed body.
pub fn compressed_body(data: &[u8]) {
    let (first, _, _, body) = choice(data);
    let compression = if first & 0x80 != 0 { Compression::Lz4 } else { Compression::Snappy };
    let mut out = Vec::new();
    match compression.decompress(body, MAX_FRAME_BYTES, &mut out) {
        Ok(()) => assert!(out.len() <= MAX_FRAME_BYTES),
        Err(_) => assert!(out.is_empty()),
    }
}

/// A response, as our own client reads it.
pub fn response_body(data: &[u8]) {
    let (_, version, extensions, rest) = choice(data);
    let Some((&[opcode, flags], body)) = rest.split_first_chunk::<2>() else { return };
    let Some(opcode) = Opcode::from_code(opcode % 0x11) else { return };
    let header =
        FrameHeader { version, flags: Flags(flags), stream: 0, opcode, body_length: body.len() as u32 };
    if let Ok(response) = client::decode(&header, body, &extensions)
        && let client::ResponseBody::Rows(rows) = response.body
    {
        assert_eq!(rows.values().count(), rows.row_count * rows.column_count);
    }
}

/// A type in metadata.
pub fn type_option(data: &[u8]) {
    let _: Result<model::CqlType, _> = read_option(&mut Reader::new(data));
}

/// Messages between nodes: the first byte chooses one, or frames.
pub fn node_messages(data: &[u8]) {
    let Some((&first, message)) = data.split_first() else { return };
    match first % 19 {
        0 => node_frames(message),
        1 => {
            if let Ok(hello) = Hello::decode(message) {
                let mut out = Vec::new();
                hello.encode(&mut out);
                // It may be longer now: a field that may be missing is written as null.
                assert!(out.len() > node::hello::HELLO_BYTES_MAX || Hello::decode(&out) == Ok(hello));
            }
            let _: Result<String, _> = node::hello::decode_refusal(message);
        }
        2 => {
            if let Ok(mutate) = node::mutate::decode(message) {
                let mut out = Vec::new();
                node::mutate::encode(&mutate, &mut out);
                assert_eq!(out, message);
            }
        }
        3 => {
            if let Ok(read) = node::read::Read::decode(message) {
                let mut out = Vec::new();
                read.encode(&mut out);
                assert_eq!(out, message);
                assert_eq!(read.slices.iter().count(), read.slices.len());
            }
        }
        14 => node_answer(message),
        15 => {
            if let Ok(count) = node::count::decode(message) {
                let mut out = Vec::new();
                node::count::encode(&count, &mut out);
                assert_eq!(out, message);
            }
        }
        16 => {
            if let Ok(counted) = node::count::Counted::decode(message) {
                let mut out = Vec::new();
                counted.encode(&mut out);
                assert_eq!(node::count::Counted::decode(&out), Ok(counted));
            }
        }
        17 => node_batch(message),
        18 => node_round(message),
        other => control_message(other, message),
    }
}

/// A batch for a keeper, and the word that it is done.
fn node_batch(message: &[u8]) {
    if let Ok(batch) = node::batch::decode(message) {
        let mut out = Vec::new();
        node::batch::encode(&batch, &mut out);
        assert_eq!(out, message);
    }
    if let Ok(id) = node::batch::decode_done(message) {
        assert_eq!(id.as_slice(), message);
    }
}

/// A message of a round of conditional writes, and again what is written of it: its first byte chooses one.
fn node_round(message: &[u8]) {
    let Some((&kind, message)) = message.split_first() else { return };
    let mut out = Vec::new();
    let was_read = match kind % 5 {
        0 => node::paxos::Prepare::decode(message).map(|(prepare, reads)| {
            assert_eq!(prepare.reads.len(), reads.len());
            prepare.encode(&mut out);
        }),
        1 => node::paxos::Prepared::decode(message).map(|prepared| prepared.encode(&mut out)),
        2 => node::paxos::Propose::decode_accept(message).map(|propose| propose.encode_accept(&mut out)),
        3 => node::paxos::Propose::decode_learn(message)
            .map(|(propose, durably)| propose.encode_learn(durably, &mut out)),
        _ => {
            node::paxos::decode_accepted(message).map(|answer| node::paxos::encode_accepted(answer, &mut out))
        }
    };
    if was_read.is_ok() {
        assert_eq!(out, message);
    }
}

/// An answer of a replica, and again what is written of it.
fn node_answer(message: &[u8]) {
    if let Ok(digest) = node::answer::decode_digest(message) {
        let mut out = Vec::new();
        node::answer::encode_digest(digest, &mut out);
        assert_eq!(out, message);
    }
    let Ok(answer) = node::answer::Answer::decode(message) else { return };
    let mut out = Vec::new();
    let mut builder = node::answer::AnswerBuilder::new(&mut out);
    for partition in &answer.partitions {
        let bytes = partition.mutation.as_bytes();
        builder.partition(partition.until, |out| out.extend_from_slice(bytes));
    }
    builder.finish(answer.end, answer.digest);
    assert_eq!(out, message);
}

fn node_frames(mut rest: &[u8]) {
    while let Ok(Some((frame, behind))) = node::frame::Frame::cut(rest, MAX_FRAME_BYTES) {
        let mut scratch = Vec::new();
        if let Ok(body) = frame.body(MAX_FRAME_BYTES, &mut scratch) {
            assert!(body.len() <= MAX_FRAME_BYTES);
        }
        rest = behind;
    }
}

/// Reads a message, and again what is written of it: the two are one.
macro_rules! read_again {
    ($type:ty, $message:expr) => {
        if let Ok(decoded) = <$type>::decode($message) {
            let mut out = Vec::new();
            decoded.encode(&mut out);
            assert_eq!(<$type>::decode(&out), Ok(decoded));
        }
    };
}

fn control_message(kind: u8, message: &[u8]) {
    match kind {
        4 => read_again!(control::Ping, message),
        5 => read_again!(control::Pong, message),
        6 => read_again!(control::Join, message),
        7 => read_again!(control::Joined, message),
        8 => read_again!(control::Command, message),
        9 => read_again!(control::CommandOutcome, message),
        10 => read_again!(control::Drain, message),
        11 => read_again!(control::Index, message),
        12 => {
            read_again!(control::Status, message);
            read_again!(control::StatusAnswer, message);
        }
        _ => read_again!(Fault, message),
    }
}
