//! Request frames made by the Python driver decode to the requests that the driver was given.

mod support;

use support::{Golden, parse};
use wire::client::{ClientConnection, ClientRequest, Parameters, RequestOptions};
use wire::request::{self, BatchKind, BatchStatementKind, EventTypes};
use wire::segment::{Decoded, SegmentDecoder, SegmentEncoder, SegmentFormat};
use wire::{
    Compression, Compressor, Consistency, Extensions, Frame, Opcode, ProtocolVersion, QueryParameters,
    Request, ValueRef,
};

const MAX_FRAME_BYTES: usize = 1 << 20;
const ID: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
const METADATA_ID: [u8; 16] = [16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31];

fn golden() -> Vec<Golden> {
    parse(include_str!("golden/client_frames.txt"))
}

fn values<'a>(parameters: &QueryParameters<'a>) -> Vec<ValueRef<'a>> {
    let mut values = Vec::new();
    parameters.values.for_each(|value| values.push(value));
    values
}

/// Asserts the request that the script gave the driver under this name.
fn check(name: &str, version: ProtocolVersion, body: &[u8], frame: &Frame<'_>) {
    let v5 = version == ProtocolVersion::V5;
    let extensions = Extensions::default();
    let envelope = request::decode(&frame.header, body, &extensions).expect(name);
    match (name, envelope.request) {
        ("startup", Request::Startup(startup)) => {
            assert_eq!(startup.options.get("cql_version"), Some("3.4.7"));
            assert_eq!(startup.driver_name(), Some("golden"));
            let options = startup.negotiate(version).unwrap();
            assert_eq!(options.compression, Some(Compression::Lz4));
        }
        ("options", Request::Options) => {}
        ("register", Request::Register(types)) => {
            let all = EventTypes { topology_change: true, status_change: true, schema_change: true };
            assert_eq!(types, all);
        }
        ("auth_response", Request::AuthResponse(token)) => {
            assert_eq!(token, Some(&b"\0cassandra\0cassandra"[..]));
        }
        ("query_plain", Request::Query { query, parameters }) => {
            assert_eq!(query, "SELECT * FROM t");
            assert_eq!(parameters.consistency, Consistency::One);
            assert!(parameters.values.is_empty());
            assert_eq!(parameters.page_size, None);
        }
        ("query_full", Request::Query { query, parameters }) => {
            assert_eq!(query, "SELECT 'é' FROM t");
            assert_eq!(parameters.consistency, Consistency::Quorum);
            assert_eq!(parameters.serial_consistency, Some(Consistency::LocalSerial));
            assert_eq!(parameters.page_size, Some(5000));
            assert_eq!(parameters.paging_state, Some(&b"state"[..]));
            assert_eq!(parameters.default_timestamp_us, Some(1_234_567_890_123_456));
            assert_eq!(parameters.keyspace, v5.then_some("ks"));
            let expected = [ValueRef::Bytes(&[0, 0, 0, 1]), ValueRef::Null, ValueRef::Bytes(&[])];
            assert_eq!(values(&parameters), expected);
        }
        ("query_traced", Request::Query { query, .. }) => {
            assert_eq!(query, "SELECT 1");
            assert!(envelope.tracing);
            let payload: Vec<_> = envelope.custom_payload.iter().collect();
            let expected = [("key", Some(&b"value"[..]))];
            assert_eq!(payload, if version >= ProtocolVersion::V4 { &expected[..] } else { &[] });
        }
        ("query_lz4", Request::Query { query, .. }) => {
            assert_eq!(query, format!("SELECT {}", "a".repeat(400)));
        }
        ("prepare", Request::Prepare { query, keyspace }) => {
            assert_eq!(query, "INSERT INTO t (k) VALUES (?)");
            assert_eq!(keyspace, v5.then_some("ks"));
        }
        ("execute", Request::Execute { id, result_metadata_id, parameters }) => {
            assert_eq!(id, ID);
            assert_eq!(result_metadata_id, v5.then_some(&METADATA_ID[..]));
            // Asked to skip metadata, this driver does not set the flag.
            assert!(!parameters.skip_metadata);
            assert_eq!(parameters.page_size, Some(100));
            assert_eq!(parameters.default_timestamp_us, Some(5));
            let expected = [ValueRef::Bytes(b"abc"), ValueRef::Null, ValueRef::Unset];
            let sent = if version >= ProtocolVersion::V4 { 3 } else { 2 };
            assert_eq!(values(&parameters), expected[..sent]);
        }
        ("batch", Request::Batch { kind, statements, parameters }) => {
            assert_eq!(kind, BatchKind::Unlogged);
            let statements: Vec<_> = statements.iter().collect();
            assert_eq!(statements[0].statement, BatchStatementKind::Text("UPDATE t SET v = 1"));
            assert!(statements[0].values.is_empty());
            assert_eq!(statements[1].statement, BatchStatementKind::Prepared(&ID));
            let second: Vec<_> = statements[1].values.iter().map(|(_, value)| value).collect();
            assert_eq!(second, [ValueRef::Bytes(b"k"), ValueRef::Bytes(b"v")]);
            assert_eq!(parameters.consistency, Consistency::All);
            assert_eq!(parameters.serial_consistency, Some(Consistency::Serial));
            assert_eq!(parameters.default_timestamp_us, Some(99));
            assert_eq!(parameters.keyspace, v5.then_some("ks"));
        }
        (name, other) => panic!("{name} decoded to {other:?}"),
    }
}

fn decompressed(frame: &Frame<'_>) -> Vec<u8> {
    if !frame.header.flags.contains(wire::Flags::COMPRESSED) {
        return frame.body.to_vec();
    }
    let mut body = Vec::new();
    Compression::Lz4.decompress(frame.body, MAX_FRAME_BYTES, &mut body).unwrap();
    body
}

#[test]
fn every_request_of_the_driver_decodes_to_what_it_was_told() {
    let mut checked = 0;
    for golden in golden().iter().filter(|golden| !golden.name.starts_with("segment")) {
        let frame = Frame::cut(&golden.bytes, MAX_FRAME_BYTES).unwrap().expect("a whole frame");
        assert!(golden.fields.is_empty());
        assert_eq!(frame.header.version, golden.version);
        assert_eq!(frame.header.stream, 0x0102);
        assert_eq!(frame.header.frame_bytes(), golden.bytes.len());
        check(&golden.name, golden.version, &decompressed(&frame), &frame);
        checked += 1;
    }
    assert_eq!(checked, 33);
}

#[test]
fn a_request_cut_anywhere_is_an_error_and_a_frame_cut_anywhere_waits() {
    for golden in golden().iter().filter(|golden| !golden.name.starts_with("segment")) {
        let frame = Frame::cut(&golden.bytes, MAX_FRAME_BYTES).unwrap().expect("a whole frame");
        let body = decompressed(&frame);
        for length in 0..body.len() {
            let cut = request::decode(&frame.header, &body[..length], &Extensions::default());
            assert!(cut.is_err(), "{} {} cut at {length}", golden.name, golden.version);
        }
        for length in 0..golden.bytes.len() {
            assert!(Frame::cut(&golden.bytes[..length], MAX_FRAME_BYTES).unwrap().is_none());
        }
        let mut longer = body.clone();
        longer.push(0);
        // As in Cassandra, bytes after the message are ignored.
        assert!(request::decode(&frame.header, &longer, &Extensions::default()).is_ok());
    }
}

#[test]
fn our_client_writes_the_same_bytes_as_the_driver() {
    let find = |name: &str, version| {
        golden().into_iter().find(|golden| golden.name == name && golden.version == version).unwrap().bytes
    };
    for version in ProtocolVersion::ALL {
        let v5 = version == ProtocolVersion::V5;
        let connection = ClientConnection::new(version);
        let write = |request: &ClientRequest<'_>, options: &RequestOptions<'_>| {
            let mut out = Vec::new();
            connection
                .append_request(&mut out, 0x0102, request, options, &mut Compressor::default())
                .unwrap();
            out
        };
        let none = RequestOptions::default();
        let plain = Parameters::at(Consistency::One);
        assert_eq!(write(&ClientRequest::Options, &none), find("options", version));
        let query = ClientRequest::Query("SELECT * FROM t", &plain);
        assert_eq!(write(&query, &none), find("query_plain", version));
        let values = [ValueRef::Bytes(&[0, 0, 0, 1]), ValueRef::Null, ValueRef::Bytes(&[])];
        let full = Parameters {
            values: &values,
            page_size: Some(5000),
            paging_state: Some(b"state"),
            serial_consistency: Some(Consistency::LocalSerial),
            default_timestamp_us: Some(1_234_567_890_123_456),
            keyspace: v5.then_some("ks"),
            ..Parameters::at(Consistency::Quorum)
        };
        let query = ClientRequest::Query("SELECT 'é' FROM t", &full);
        assert_eq!(write(&query, &none), find("query_full", version));
        let prepare = ClientRequest::Prepare("INSERT INTO t (k) VALUES (?)", v5.then_some("ks"));
        assert_eq!(write(&prepare, &none), find("prepare", version));
        let statements: [(_, &[ValueRef<'_>]); 2] = [
            (BatchStatementKind::Text("UPDATE t SET v = 1"), &[]),
            (BatchStatementKind::Prepared(&ID), &[ValueRef::Bytes(b"k"), ValueRef::Bytes(b"v")]),
        ];
        let parameters = Parameters {
            serial_consistency: Some(Consistency::Serial),
            default_timestamp_us: Some(99),
            keyspace: v5.then_some("ks"),
            ..Parameters::at(Consistency::All)
        };
        let batch = ClientRequest::Batch(BatchKind::Unlogged, &statements, &parameters);
        assert_eq!(write(&batch, &none), find("batch", version));
        if version >= ProtocolVersion::V4 {
            let options = RequestOptions { tracing: true, custom_payload: &[("key", Some(b"value"))] };
            let parameters = Parameters::at(Consistency::LocalOne);
            let query = ClientRequest::Query("SELECT 1", &parameters);
            assert_eq!(write(&query, &options), find("query_traced", version));
        }
    }
}

#[test]
fn segments_of_the_driver_hold_its_envelopes() {
    let small = |query: &str| assert_eq!(query, "SELECT small FROM t");
    let large = |query: &str| assert_eq!(query, format!("SELECT {}", "large ".repeat(50_000)));
    let mut checked = 0;
    for golden in golden().iter().filter(|golden| golden.name.starts_with("segment")) {
        let is_lz4 = golden.name.ends_with("lz4");
        let format = if is_lz4 { SegmentFormat::Lz4 } else { SegmentFormat::Plain };
        let mut decoder = SegmentDecoder::new(format, wire::frame::Direction::Request, MAX_FRAME_BYTES);
        let mut rest = golden.bytes.as_slice();
        let mut found = Vec::new();
        while !rest.is_empty() {
            for cut in [0, 1, rest.len().min(7), rest.len().min(20)] {
                if cut < 20 {
                    assert_eq!(decoder.decode(&rest[..cut]).unwrap(), Decoded::NeedMore);
                }
            }
            let consumed = match decoder.decode(rest).unwrap() {
                Decoded::Partial { consumed } => consumed,
                Decoded::Envelopes { consumed, envelopes } => {
                    found.extend_from_slice(envelopes);
                    consumed
                }
                other => panic!("{}: {other:?}", golden.name),
            };
            rest = &rest[consumed..];
        }
        let frame = Frame::cut(&found, MAX_FRAME_BYTES).unwrap().expect("a whole envelope");
        assert_eq!(frame.header.opcode, Opcode::Query);
        match request::decode(&frame.header, frame.body, &Extensions::default()).unwrap().request {
            Request::Query { query, .. } if golden.name.contains("small") => small(query),
            Request::Query { query, .. } => large(query),
            other => panic!("{other:?}"),
        }
        if !is_lz4 {
            let mut out = Vec::new();
            SegmentEncoder::new(format).append(&mut out, &found);
            assert_eq!(out, golden.bytes, "our encoder writes the same plain segment");
        }
        checked += 1;
    }
    assert_eq!(checked, 3);
}
