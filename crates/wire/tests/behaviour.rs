//! Behaviour of frames, connections and responses beyond their golden bytes.

use wire::client::{self, ClientConnection, ClientRequest, Parameters, RequestOptions, ResponseBody};
use wire::error::{ErrorBody, ErrorKind, PlainError};
use wire::extensions::{self, ShardingInfo};
use wire::frame::{Direction, FrameHeader, HEADER_BYTES};
use wire::request;
use wire::response::{Prepared, append_unsupported_version};
use wire::rows::RowsMode;
use wire::segment::{Decoded, PAYLOAD_BYTES_MAX, SegmentDecoder, SegmentEncoder, SegmentFormat};
use wire::{
    ColumnSpec, Compression, Compressor, Consistency, ErrorCode, Extensions, Frame, Opcode, ProtocolError,
    ProtocolVersion, Request, ResponseBuilder, RowsMetadata, ValueRef,
};

const MAX_FRAME_BYTES: usize = 1000;
const NONE: Extensions = Extensions {
    lwt_mark: false,
    rate_limit_error: false,
    tablets_routing_v1: false,
    use_metadata_id: false,
};

fn request_frame(version: ProtocolVersion, request: &ClientRequest<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    ClientConnection::new(version)
        .append_request(&mut out, 3, request, &RequestOptions::default(), &mut Compressor::default())
        .unwrap();
    out
}

fn header_error(bytes: &[u8]) -> (String, i16, Option<u64>) {
    let error = FrameHeader::decode(bytes, MAX_FRAME_BYTES).unwrap_err();
    (error.to_string(), error.stream, error.discard_bytes)
}

#[test]
fn headers_that_cannot_be_taken_say_how_to_go_on() {
    let unsupported = |number: u8| {
        let text = "supported versions are (3/v3, 4/v4, 5/v5)";
        (format!("Invalid or unsupported protocol version ({number}); {text}"), 0, None)
    };
    // The first byte is enough: older headers are shorter.
    assert_eq!(header_error(&[1]), unsupported(1));
    assert_eq!(header_error(&[2, 0, 0, 1]), unsupported(2));
    assert_eq!(header_error(&[6]), unsupported(6));
    assert_eq!(header_error(&[0x42]), unsupported(66));
    assert_eq!(header_error(b"GET / HTTP/1.1\r\n"), unsupported(b'G'));
    let unknown = [4, 0, 0, 9, 0x77, 0, 0, 0, 2];
    assert_eq!(header_error(&unknown), ("Unknown opcode 119".to_owned(), 9, Some(11)));
    let response = [0x84, 0, 0, 9, 0x02, 0, 0, 0, 0];
    assert_eq!(header_error(&response), ("Wrong protocol direction for opcode 2".to_owned(), 9, Some(9)));
    let ready_as_request = [0x04, 0, 0, 9, 0x02, 0, 0, 0, 0];
    assert_eq!(header_error(&ready_as_request).1, 9);
    let large = [4, 0, 0, 9, 7, 0, 0, 3, 0xE0];
    let text = "Request is too big: length 1001 exceeds maximum allowed length 1000.";
    assert_eq!(header_error(&large), (text.to_owned(), 9, Some(1001)));
    let error = FrameHeader::decode(&large, MAX_FRAME_BYTES).unwrap_err();
    assert_eq!(error.error.error_code(), ErrorCode::Invalid);
    let negative = [5, 0, 0, 9, 7, 0xFF, 0xFF, 0xFF, 0xFE];
    let text = "Invalid value for envelope header body length field: -2";
    assert_eq!(header_error(&negative), (text.to_owned(), 9, None));
    // Unsigned in version 4: merely too long.
    assert_eq!(header_error(&[4, 0, 0, 9, 7, 0xFF, 0xFF, 0xFF, 0xFE]).2, Some(4_294_967_303));
    // A frame at the limit is accepted, and unknown flags, including beta, have no effect.
    let limit = [5, 0xF0, 0, 9, 7, 0, 0, 3, 0xDF];
    assert_eq!(FrameHeader::decode(&limit, MAX_FRAME_BYTES).unwrap().unwrap().frame_bytes(), 1000);
}

#[test]
fn unsupported_versions_are_answered_in_a_frame_the_client_can_read() {
    let error = ErrorBody::plain(PlainError::Protocol, "no");
    let mut out = Vec::new();
    append_unsupported_version(&mut out, 6, &error);
    let frame = Frame::cut_direction(&out, MAX_FRAME_BYTES, Direction::Response).unwrap().unwrap();
    assert_eq!((frame.header.version, frame.header.stream), (ProtocolVersion::V5, 0));
    assert_eq!(frame.body, b"\0\0\0\x0A\0\x02no");
    out.clear();
    append_unsupported_version(&mut out, 2, &error);
    assert_eq!(out, b"\x82\0\0\0\0\0\0\x08\0\0\0\x0A\0\x02no");
}

fn decode_error(version: ProtocolVersion, opcode: Opcode, body: &[u8]) -> String {
    let flags = wire::Flags::default();
    let header = FrameHeader { version, flags, stream: 0, opcode, body_length: body.len() as u32 };
    request::decode(&header, body, &NONE).unwrap_err().to_string()
}

#[test]
fn wrong_requests_are_named_as_cassandra_names_them() {
    use ProtocolVersion::{V3, V4, V5};
    let check = |version, opcode, body: &[u8], expected: &str| {
        assert_eq!(decode_error(version, opcode, body), expected);
    };
    let query = |rest: &[u8]| [b"\0\0\0\x01q", rest].concat();
    check(V4, Opcode::Query, b"\xFF\xFF\xFF\xFF", "Invalid ByteBuf length -1");
    check(V4, Opcode::Query, b"\0\0\0\x02\xC3(\0\x01\0", "Cannot decode string as UTF8: 'c328'");
    check(V4, Opcode::Query, &query(b"\0\x0C\0"), "Unknown code 12 for a consistency level");
    check(V4, Opcode::Query, &query(b"\0\x01\x04\0\0\0\0"), "The page size cannot be 0");
    check(
        V4,
        Opcode::Query,
        &query(b"\0\x01\x20\x80\0\0\0\0\0\0\0"),
        "Out of bound timestamp, must be in [-9223372036854775807, 9223372036854775807] \
         (got -9223372036854775808)",
    );
    check(V4, Opcode::Query, &query(b"\0\x01\x01\0\x01\xFF\xFF\xFF\xFD"), "Invalid ByteBuf length -3");
    check(V5, Opcode::Query, &query(b"\0\x01\0"), "Not enough bytes to read a 4 bytes integer");
    check(V4, Opcode::Batch, b"\x03", "Invalid BATCH message type 3");
    check(
        V4,
        Opcode::Batch,
        b"\0\0\x01\x02",
        "Invalid query kind in BATCH messages. Must be 0 or 1 but got 2",
    );
    check(V4, Opcode::Register, b"\0\x01\0\x03OOM", "Invalid value 'OOM' for Type");
    check(V4, Opcode::Credentials, b"", "Unsupported message");
    check(
        V4,
        Opcode::Execute,
        b"\0\x10",
        "Not enough bytes to read a byte array preceded by its 2 bytes length",
    );
    // Version 3 has no unset: every negative length is null.
    let body = query(b"\0\x01\x01\0\x01\xFF\xFF\xFF\xFE");
    let header = FrameHeader {
        version: V3,
        flags: wire::Flags::default(),
        stream: 0,
        opcode: Opcode::Query,
        body_length: body.len() as u32,
    };
    let Request::Query { parameters, .. } = request::decode(&header, &body, &NONE).unwrap().request else {
        panic!("not a QUERY");
    };
    assert_eq!(parameters.values.iter().next(), Some(("", ValueRef::Null)));
    let with_payload = FrameHeader { flags: wire::Flags(wire::Flags::CUSTOM_PAYLOAD), ..header };
    assert_eq!(
        request::decode(&with_payload, &body, &NONE).unwrap_err(),
        ProtocolError::CustomPayloadBeforeV4
    );
}

#[test]
fn bytes_after_a_request_are_ignored_as_cassandra_does() {
    use ProtocolVersion::{V3, V4, V5};
    for version in [V3, V4, V5] {
        // Flags and, of version 5, the count of a batch's options are 32 bits wide.
        let flags: &[u8] = if version == V5 { b"\0\0\0\0" } else { b"\0" };
        let metadata_id: &[u8] = if version == V5 { b"\0\x01m" } else { b"" };
        let prepare_flags: &[u8] = if version == V5 { b"\0\0\0\0" } else { b"" };
        for (opcode, body) in [
            (Opcode::Startup, [b"\0\x01\0\x0bCQL_VERSION\0\x053.0.0", &b""[..], b""].concat()),
            (Opcode::Options, Vec::new()),
            (Opcode::Query, [b"\0\0\0\x01q\0\x01", flags, b""].concat()),
            (Opcode::Prepare, [b"\0\0\0\x01q", prepare_flags, b""].concat()),
            (Opcode::Execute, [b"\0\x02id", metadata_id, b"\0\x01", flags].concat()),
            (Opcode::Batch, [b"\0\0\x01\0\0\0\0\x01q\0\0\0\x01", flags, b""].concat()),
            (Opcode::Register, b"\0\x01\0\x0dSCHEMA_CHANGE".to_vec()),
            (Opcode::AuthResponse, b"\0\0\0\x01t".to_vec()),
        ] {
            let longer = [&body[..], b"\0\x09rest"].concat();
            let of = |body: &[u8]| {
                let flags = wire::Flags::default();
                let header =
                    FrameHeader { version, flags, stream: 0, opcode, body_length: body.len() as u32 };
                format!("{:?}", request::decode(&header, body, &NONE).map(|decoded| decoded.request))
            };
            let expected = of(&body);
            assert!(expected.starts_with("Ok"), "{opcode:?} {expected}");
            assert_eq!(of(&longer), expected, "{opcode:?} of {version:?}");
        }
    }
}

#[test]
fn parameters_of_version_5_and_names_arrive() {
    let values = [ValueRef::Bytes(b"1"), ValueRef::Unset];
    let parameters = Parameters {
        values: &values,
        names: &["a", "b"],
        skip_metadata: true,
        page_size: Some(-1),
        keyspace: Some("ks"),
        now_in_seconds: Some(3_000_000_000),
        ..Parameters::at(Consistency::NodeLocal)
    };
    let bytes = request_frame(ProtocolVersion::V5, &ClientRequest::Query("q", &parameters));
    let frame = Frame::cut(&bytes, MAX_FRAME_BYTES).unwrap().unwrap();
    let decoded = request::decode(&frame.header, frame.body, &NONE).unwrap();
    let Request::Query { parameters, .. } = decoded.request else { panic!("not a QUERY") };
    assert!(parameters.values.is_named() && parameters.skip_metadata);
    assert_eq!(parameters.values.by_name("b"), Some(ValueRef::Unset));
    assert_eq!(parameters.values.by_name("a"), Some(ValueRef::Bytes(b"1")));
    assert_eq!(parameters.values.by_name("A"), None);
    assert_eq!(parameters.page_size, None, "a negative page size is no paging");
    assert_eq!((parameters.keyspace, parameters.now_in_seconds), (Some("ks"), Some(3_000_000_000)));
}

#[test]
fn startup_is_negotiated_or_refused() {
    let negotiate = |version, options: &[(&str, &str)]| {
        let bytes = request_frame(version, &ClientRequest::Startup(options));
        let frame = Frame::cut(&bytes, MAX_FRAME_BYTES).unwrap().unwrap();
        let Request::Startup(startup) = request::decode(&frame.header, frame.body, &NONE).unwrap().request
        else {
            panic!("not a STARTUP");
        };
        startup.negotiate(version).map_err(|error| error.to_string())
    };
    let (v4, v5) = (ProtocolVersion::V4, ProtocolVersion::V5);
    let cql = ("CQL_VERSION", "3.0.0");
    assert_eq!(negotiate(v4, &[]).unwrap_err(), "Missing value CQL_VERSION in STARTUP message");
    for refused in ["2.0.0", "x", "", "3", "-3.0.0"] {
        assert!(
            negotiate(v4, &[("CQL_VERSION", refused)]).unwrap_err().contains("is not supported"),
            "{refused}"
        );
    }
    for accepted in ["3.0.0", "3.4.7", "4.0", "3.0.0-beta1", "2.99.0"] {
        assert!(negotiate(v4, &[("CQL_VERSION", accepted)]).is_ok(), "{accepted}");
    }
    let error = negotiate(v5, &[cql, ("COMPRESSION", "snappy")]).unwrap_err();
    assert_eq!(error, "Snappy compression is not supported in protocol V5");
    let error = negotiate(v4, &[cql, ("COMPRESSION", "zip")]).unwrap_err();
    assert_eq!(error, "Unknown compression algorithm: zip");
    let options =
        negotiate(v4, &[("cql_version", "3.4.7"), ("Compression", "Snappy"), ("THROW_ON_OVERLOAD", "1")]);
    let options = options.unwrap();
    assert_eq!((options.compression, options.throw_on_overload), (Some(Compression::Snappy), true));
    let options =
        negotiate(v4, &[cql, (extensions::TABLETS_ROUTING_V1, ""), (extensions::USE_METADATA_ID, "")]);
    let expected = Extensions { tablets_routing_v1: true, use_metadata_id: true, ..NONE };
    assert_eq!(options.unwrap().extensions, expected);
}

fn decode_response<'a>(bytes: &'a [u8], extensions: &Extensions) -> (FrameHeader, client::Response<'a>) {
    let frame = Frame::cut_direction(bytes, MAX_FRAME_BYTES, Direction::Response).unwrap().unwrap();
    (frame.header, client::decode(&frame.header, frame.body, extensions).unwrap())
}

#[test]
fn sections_before_the_body_come_in_order_and_not_in_version_3() {
    for version in ProtocolVersion::ALL {
        let mut out = Vec::new();
        ResponseBuilder::begin(&mut out, version, 11)
            .tracing_id(&[9; 16])
            .warnings(["w1", "w2"].into_iter())
            .custom_payload([("k", Some(&b"v"[..])), ("n", None)].into_iter())
            .void()
            .finish(None)
            .unwrap();
        let (header, response) = decode_response(&out, &NONE);
        assert_eq!((header.version, header.stream), (version, 11));
        assert_eq!(response.tracing_id, Some([9; 16]));
        let has_sections = version >= ProtocolVersion::V4;
        assert_eq!(response.warnings, if has_sections { vec!["w1", "w2"] } else { vec![] });
        assert_eq!(response.custom_payload.len(), if has_sections { 2 } else { 0 });
        assert!(matches!(response.body, ResponseBody::Void));
    }
}

#[test]
fn the_frame_that_says_void_is_the_one_a_builder_makes() {
    for version in ProtocolVersion::ALL {
        for stream in [0, 1, -1, i16::MAX] {
            let mut out = Vec::new();
            ResponseBuilder::begin(&mut out, version, stream).void().finish(None).unwrap();
            assert_eq!(wire::response::void_frame(version, stream).as_slice(), out);
        }
    }
}

#[test]
fn a_response_that_is_dropped_leaves_no_trace() {
    let ty = model::CqlType::Int;
    let columns = [ColumnSpec { keyspace: "ks", table: "t", name: "c", ty: &ty }];
    let metadata = RowsMetadata::new(ProtocolVersion::V4, &columns);
    let mut out = b"others".to_vec();
    drop(ResponseBuilder::begin(&mut out, ProtocolVersion::V4, 1).tracing_id(&[1; 16]));
    drop(ResponseBuilder::begin(&mut out, ProtocolVersion::V4, 1).void());
    let mut rows = ResponseBuilder::begin(&mut out, ProtocolVersion::V4, 1).rows(&metadata, RowsMode::Full);
    rows.append_value(Some(b"half"));
    drop(rows);
    assert_eq!(out, b"others");
}

#[test]
fn a_paging_state_set_after_the_rows_stands_before_them() {
    let ty = model::CqlType::Text;
    let columns = [ColumnSpec { keyspace: "ks", table: "t", name: "c", ty: &ty }];
    for (mode, id) in
        [(RowsMode::Full, None), (RowsMode::Skip, None), (RowsMode::Changed(b"id"), Some(&b"id"[..]))]
    {
        let version = ProtocolVersion::V5;
        let metadata = RowsMetadata::new(version, &columns);
        let mut encoded = Vec::new();
        wire::writer::append_bytes(&mut encoded, Some(b"row2"));
        let mut out = Vec::new();
        let mut rows = ResponseBuilder::begin(&mut out, version, 1).rows(&metadata, mode);
        rows.append_value(Some(b"row1"));
        rows.end_row();
        rows.append_rows(1, &encoded);
        assert_eq!((rows.row_count(), rows.row_bytes()), (2, 16));
        rows.set_paging_state(b"after row2");
        assert_eq!(rows.row_bytes(), 16);
        rows.finish(None).unwrap();
        let (_, response) = decode_response(&out, &NONE);
        let ResponseBody::Rows(rows) = response.body else { panic!("not rows") };
        assert_eq!(rows.paging_state, Some(&b"after row2"[..]));
        assert_eq!(rows.new_metadata_id, id);
        assert_eq!(rows.columns.is_some(), mode != RowsMode::Skip);
        assert_eq!(rows.values().collect::<Vec<_>>(), [Some(&b"row1"[..]), Some(b"row2")]);
    }
}

#[test]
fn bodies_are_compressed_in_versions_3_and_4_only() {
    for version in ProtocolVersion::ALL {
        for algorithm in [Compression::Lz4, Compression::Snappy] {
            let mut out = Vec::new();
            let keyspace = "k".repeat(500);
            let compressor = &mut Compressor::default();
            ResponseBuilder::begin(&mut out, version, 1)
                .set_keyspace(&keyspace)
                .finish(Some((algorithm, compressor)))
                .unwrap();
            let frame = Frame::cut_direction(&out, MAX_FRAME_BYTES, Direction::Response).unwrap().unwrap();
            let is_compressed = frame.header.flags.contains(wire::Flags::COMPRESSED);
            assert_eq!(is_compressed, version < ProtocolVersion::V5);
            let mut body = frame.body.to_vec();
            if is_compressed {
                assert!(body.len() < 100);
                body.clear();
                algorithm.decompress(frame.body, MAX_FRAME_BYTES, &mut body).unwrap();
            }
            let response = client::decode(&frame.header, &body, &NONE).unwrap();
            assert!(matches!(response.body, ResponseBody::SetKeyspace(name) if name == keyspace));
        }
    }
}

#[test]
fn a_compressed_length_that_lies_costs_nothing() {
    let mut out = Vec::new();
    let lie = [0x0F, 0xFF, 0xFF, 0xFF, 0x10, b'a'];
    let error = Compression::Lz4.decompress(&lie, 1 << 30, &mut out).unwrap_err();
    assert_eq!(error.to_string(), "Provided frame does not appear to be lz4 compressed");
    assert_eq!(out.capacity(), 0);
    let error = Compression::Lz4.decompress(&lie, 1000, &mut out).unwrap_err();
    assert_eq!(error, ProtocolError::TooLarge { length: 0x0FFF_FFFF, limit: 1000 });
}

#[test]
fn extensions_change_what_clients_that_asked_for_them_see() {
    let columns = [];
    let prepared = Prepared {
        id: b"id",
        result_metadata_id: b"result",
        bind_columns: &columns,
        partition_key_indexes: &[],
        is_conditional: true,
        result: None,
    };
    let write = |extensions: &Extensions| {
        let mut out = Vec::new();
        let response = ResponseBuilder::begin(&mut out, ProtocolVersion::V4, 1);
        response.prepared(extensions, &prepared).finish(None).unwrap();
        out
    };
    let asked = Extensions { lwt_mark: true, use_metadata_id: true, rate_limit_error: true, ..NONE };
    for (extensions, flags, id) in [(NONE, 0, None), (asked, 0x8000_0000, Some(&b"result"[..]))] {
        let bytes = write(&extensions);
        let (_, response) = decode_response(&bytes, &extensions);
        let ResponseBody::Prepared(prepared) = response.body else { panic!("not prepared") };
        assert_eq!((prepared.bind_flags, prepared.result_metadata_id), (flags, id));
    }
    let kind = ErrorKind::RateLimit { is_write: true, rejected_by_coordinator: false };
    for (extensions, code, fields) in
        [(NONE, 0x2300, &[][..]), (asked, extensions::RATE_LIMIT_ERROR_CODE, &[1, 0])]
    {
        let mut out = Vec::new();
        let error = ErrorBody { message: "slow down", kind };
        let response = ResponseBuilder::begin(&mut out, ProtocolVersion::V4, 1);
        response.error(&extensions, &error).finish(None).unwrap();
        let (_, response) = decode_response(&out, &extensions);
        assert!(
            matches!(response.body, ResponseBody::Error { code: c, fields: f, .. } if c == code && f == fields)
        );
    }
    // With the id, EXECUTE of version 4 has the layout of version 5.
    let parameters = Parameters::at(Consistency::One);
    let execute =
        ClientRequest::Execute { id: b"id", result_metadata_id: b"result", parameters: &parameters };
    let mut connection = ClientConnection::new(ProtocolVersion::V4);
    connection.extensions = asked;
    let mut out = Vec::new();
    let options = RequestOptions::default();
    connection.append_request(&mut out, 1, &execute, &options, &mut Compressor::default()).unwrap();
    let frame = Frame::cut(&out, MAX_FRAME_BYTES).unwrap().unwrap();
    let decoded = request::decode(&frame.header, frame.body, &asked).unwrap();
    assert!(matches!(decoded.request, Request::Execute { result_metadata_id: Some(b"result"), .. }));
    assert!(request::decode(&frame.header, frame.body, &NONE).is_err());
}

#[test]
fn sharding_is_told_and_tablets_are_encoded_as_documented() {
    let info = ShardingInfo {
        shard: 3,
        shard_count: 12,
        partitioner: "org.apache.cassandra.dht.Murmur3Partitioner",
        ignore_msb: 12,
        shard_aware_port: Some(19042),
        shard_aware_port_tls: None,
    };
    let mut options = Vec::new();
    extensions::supported_options(&info, |key, value| options.push(format!("{key}={value}")));
    assert_eq!(
        options,
        [
            "SCYLLA_SHARD=3",
            "SCYLLA_NR_SHARDS=12",
            "SCYLLA_PARTITIONER=org.apache.cassandra.dht.Murmur3Partitioner",
            "SCYLLA_SHARDING_ALGORITHM=biased-token-round-robin",
            "SCYLLA_SHARDING_IGNORE_MSB=12",
            "SCYLLA_SHARD_AWARE_PORT=19042",
            "SCYLLA_LWT_ADD_METADATA_MARK=LWT_OPTIMIZATION_META_BIT_MASK=2147483648",
            "SCYLLA_RATE_LIMIT_ERROR=ERROR_CODE=17185",
            "TABLETS_ROUTING_V1=",
            "SCYLLA_USE_METADATA_ID=",
        ]
    );
    let mut out = Vec::new();
    extensions::append_tablet(&mut out, -2, 5, [([7; 16], 1)].into_iter());
    let read = extensions::read_tablet(&out).expect("a tablet");
    assert_eq!((read.first_token, read.last_token, read.replicas), (-2, 5, vec![([7; 16], 1)]));
    for end in 0..out.len() {
        assert_eq!(extensions::read_tablet(&out[..end]), None, "{end}");
    }
    let mut expected = b"\0\0\0\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFE\0\0\0\x08\0\0\0\0\0\0\0\x05".to_vec();
    expected.extend_from_slice(b"\0\0\0\x24\0\0\0\x01\0\0\0\x1C\0\0\0\x10");
    expected.extend_from_slice(&[7; 16]);
    expected.extend_from_slice(b"\0\0\0\x04\0\0\0\x01");
    assert_eq!(out, expected);
}

#[test]
fn a_large_envelope_above_the_limit_is_refused_and_the_next_one_taken() {
    let parameters = Parameters::at(Consistency::One);
    let query = "x".repeat(3 * PAYLOAD_BYTES_MAX);
    let large = request_frame(ProtocolVersion::V5, &ClientRequest::Query(&query, &parameters));
    let small = request_frame(ProtocolVersion::V5, &ClientRequest::Options);
    let mut segments = Vec::new();
    SegmentEncoder::new(SegmentFormat::Plain).append(&mut segments, &[large, small].concat());
    let mut decoder = SegmentDecoder::new(SegmentFormat::Plain, Direction::Request, 2 * PAYLOAD_BYTES_MAX);
    let mut rest = segments.as_slice();
    let (mut refused, mut taken) = (0, 0);
    while !rest.is_empty() {
        let consumed = match decoder.decode(rest).unwrap() {
            Decoded::Refused { consumed, error } => {
                assert_eq!(error.stream, 3);
                assert!(matches!(error.error, ProtocolError::TooLarge { .. }));
                refused += 1;
                consumed
            }
            Decoded::Partial { consumed } => consumed,
            Decoded::Envelopes { consumed, envelopes } => {
                let frame = Frame::cut(envelopes, MAX_FRAME_BYTES).unwrap().unwrap();
                assert_eq!(frame.header.opcode, Opcode::Options);
                assert_eq!(frame.header.frame_bytes(), HEADER_BYTES);
                taken += 1;
                consumed
            }
            Decoded::NeedMore => panic!("whole segments were given"),
        };
        assert_eq!(decoder.buffered_bytes(), 0);
        rest = &rest[consumed..];
    }
    assert_eq!((refused, taken), (1, 1));
}

#[test]
fn texts_a_client_made_too_long_are_cut_between_characters() {
    let alias = "é".repeat(40_000);
    let ty = model::CqlType::Int;
    let columns = [ColumnSpec { keyspace: "ks", table: "t", name: &alias, ty: &ty }];
    let mut out = Vec::new();
    let metadata = RowsMetadata::new(ProtocolVersion::V4, &columns);
    let response = ResponseBuilder::begin(&mut out, ProtocolVersion::V4, 1);
    response.rows(&metadata, RowsMode::Full).finish(None).unwrap();
    let frame = Frame::cut_direction(&out, 1 << 20, Direction::Response).unwrap().unwrap();
    let response = client::decode(&frame.header, frame.body, &NONE).unwrap();
    let ResponseBody::Rows(rows) = response.body else { panic!("not rows") };
    assert_eq!(rows.columns.unwrap()[0].name.len(), 65_534);
}

#[test]
fn an_execute_is_read_alike_with_and_without_room_for_other_requests() {
    let values: [&[u8]; 3] = [b"\0\x02\0\0\0\x02ab\xFF\xFF\xFF\xFE", b"\0\x01\0\0\0\0", b"\0\0"];
    let mut whole = 0;
    for version in [ProtocolVersion::V3, ProtocolVersion::V4, ProtocolVersion::V5] {
        for (value, paging) in values.iter().flat_map(|value| [(value, false), (value, true)]) {
            let mut body = b"\0\x02id".to_vec();
            if version >= ProtocolVersion::V5 {
                body.extend_from_slice(b"\0\x01m");
            }
            body.extend_from_slice(b"\0\x01");
            let flags = if paging { 0x25_u8 } else { 0x01 };
            body.extend(std::iter::repeat_n(0, if version >= ProtocolVersion::V5 { 3 } else { 0 }));
            body.push(flags);
            body.extend_from_slice(value);
            if paging {
                body.extend_from_slice(b"\0\0\0\x07\0\0\0\0\0\0\0\x09");
            }
            body.push(0xff);
            // Cut short, as it should be, and with a byte too many.
            for length in 0..=body.len() {
                let body = &body[..length];
                let flags = wire::Flags::default();
                let opcode = Opcode::Execute;
                let header = FrameHeader { version, flags, stream: 0, opcode, body_length: length as u32 };
                let mut given = Vec::new();
                let alone = request::decode_execute(&header, body, &NONE, |value| given.push(value));
                let any = request::decode(&header, body, &NONE);
                match (alone, any) {
                    (Ok(alone), Ok(any)) => {
                        let request::Execute { id, result_metadata_id, parameters } = alone;
                        let values: Vec<_> = parameters.values.iter().map(|(_, value)| value).collect();
                        assert_eq!(given, values);
                        let alone = Request::Execute { id, result_metadata_id, parameters };
                        assert_eq!(format!("{alone:?}"), format!("{:?}", any.request));
                        whole += 1;
                    }
                    (Err(alone), Err(any)) => assert_eq!(alone.to_string(), any.to_string()),
                    (alone, any) => panic!("{alone:?} and {any:?} of {body:?}"),
                }
            }
        }
    }
    assert_eq!(whole, 3 * 6 * 2, "each is whole at its length, and with a byte behind it");
}
