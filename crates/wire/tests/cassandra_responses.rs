//! Response bodies are byte for byte those that Cassandra's own codecs write for the same response.

mod support;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use model::CqlType;
use model::types::UserType;
use support::{Golden, parse};
use wire::client::{self, ResponseBody};
use wire::error::{ErrorBody, ErrorKind, FailureReason, PlainError, WriteType};
use wire::event::{Event, SchemaChange, SchemaChangeKind, SchemaTarget};
use wire::frame::{Direction, HEADER_BYTES};
use wire::response::{CompleteResponse, EVENT_STREAM, Prepared};
use wire::rows::RowsMode;
use wire::{ColumnSpec, Consistency, Extensions, Frame, ProtocolVersion, ResponseBuilder, RowsMetadata};

const ID: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
const METADATA_ID: [u8; 16] = [16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31];
const NO_EXTENSIONS: Extensions = Extensions {
    lwt_mark: false,
    rate_limit_error: false,
    tablets_routing_v1: false,
    use_metadata_id: false,
};
const TWO_FAILURES: [(IpAddr, FailureReason); 2] = [
    (IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), FailureReason::Timeout),
    (IpAddr::V6(Ipv6Addr::LOCALHOST), FailureReason::ReadTooManyTombstones),
];

fn all_types() -> Vec<CqlType> {
    let text = || Box::new(CqlType::Text);
    let durations = CqlType::List { element: Box::new(CqlType::Duration), frozen: true };
    vec![
        CqlType::Ascii,
        CqlType::Bigint,
        CqlType::Blob,
        CqlType::Boolean,
        CqlType::Counter,
        CqlType::Decimal,
        CqlType::Double,
        CqlType::Float,
        CqlType::Int,
        CqlType::Timestamp,
        CqlType::Uuid,
        CqlType::Text,
        CqlType::Varint,
        CqlType::Timeuuid,
        CqlType::Inet,
        CqlType::Date,
        CqlType::Time,
        CqlType::Smallint,
        CqlType::Tinyint,
        CqlType::Duration,
        CqlType::Empty,
        CqlType::List { element: Box::new(CqlType::Int), frozen: false },
        CqlType::Set { element: text(), frozen: true },
        CqlType::Map { key: text(), value: Box::new(durations), frozen: false },
        CqlType::Tuple(vec![CqlType::Int, CqlType::Date]),
        CqlType::Udt(Box::new(UserType {
            keyspace: "ks".to_owned(),
            name: "u".to_owned(),
            fields: vec![("a".to_owned(), CqlType::Int), ("b".to_owned(), CqlType::Text)],
            frozen: false,
        })),
        CqlType::Vector { element: Box::new(CqlType::Float), dimension: 3 },
    ]
}

const fn column<'a>(table: &'a str, name: &'a str, ty: &'a CqlType) -> ColumnSpec<'a> {
    ColumnSpec { keyspace: "ks", table, name, ty }
}

const K: ColumnSpec<'static> = column("t", "k", &CqlType::Text);
const V: ColumnSpec<'static> = column("t", "v", &CqlType::Int);
const OTHER: ColumnSpec<'static> = column("other", "x", &CqlType::Int);

/// The message Cassandra made up for this exception: the first string of the body.
fn golden_message(golden: &Golden) -> String {
    let length = usize::from(u16::from_be_bytes([golden.bytes[4], golden.bytes[5]]));
    String::from_utf8(golden.bytes[6..6 + length].to_vec()).expect("a message is UTF-8")
}

fn error_kind(name: &str) -> Option<ErrorKind<'static>> {
    let consistency = Consistency::LocalQuorum;
    let (received, block_for) = (1, 2);
    let failures = &TWO_FAILURES;
    Some(match name {
        "server" => ErrorKind::Plain(PlainError::Server),
        "protocol" => ErrorKind::Plain(PlainError::Protocol),
        "credentials" => ErrorKind::Plain(PlainError::BadCredentials),
        "overloaded" => ErrorKind::Plain(PlainError::Overloaded),
        "truncate" => ErrorKind::Plain(PlainError::Truncate),
        "syntax" => ErrorKind::Plain(PlainError::Syntax),
        "unauthorized" => ErrorKind::Plain(PlainError::Unauthorized),
        "invalid" => ErrorKind::Plain(PlainError::Invalid),
        "config" => ErrorKind::Plain(PlainError::Config),
        "cdc" => ErrorKind::Plain(PlainError::CdcWriteFailure),
        "unavailable" => ErrorKind::Unavailable { consistency, required: 3, alive: 1 },
        "write_timeout" => {
            let write_type = WriteType::BatchLog;
            ErrorKind::WriteTimeout { consistency, received, block_for, write_type, contentions: 0 }
        }
        "cas_timeout" => ErrorKind::WriteTimeout {
            consistency: Consistency::Serial,
            received,
            block_for,
            write_type: WriteType::Cas,
            contentions: 7,
        },
        "read_timeout" => ErrorKind::ReadTimeout { consistency, received, block_for, data_present: true },
        "read_failure" => {
            ErrorKind::ReadFailure { consistency, received, block_for, failures, data_present: false }
        }
        "write_failure" => {
            let write_type = WriteType::Simple;
            ErrorKind::WriteFailure { consistency, received, block_for, failures, write_type }
        }
        "cas_unknown" => ErrorKind::CasWriteUnknown { consistency, received, block_for },
        "exists_keyspace" => ErrorKind::AlreadyExists { keyspace: "ks", table: "" },
        "exists_table" => ErrorKind::AlreadyExists { keyspace: "ks", table: "t" },
        "unprepared" => ErrorKind::Unprepared { id: &ID },
        "function" => {
            ErrorKind::FunctionFailure { keyspace: "ks", function: "f", argument_types: &["int", "text"] }
        }
        _ => return None,
    })
}

fn two_rows(response: ResponseBuilder<'_>, columns: &[ColumnSpec<'_>], mode: RowsMode<'_>) {
    let metadata = RowsMetadata::new(response.version(), columns);
    let mut rows = response.rows(&metadata, mode);
    rows.append_value(Some(b"a"));
    rows.append_value_with(|out| out.extend_from_slice(&1_i32.to_be_bytes()));
    rows.end_row();
    rows.append_value(Some(b""));
    rows.append_value(None);
    rows.end_row();
    rows.finish(None).unwrap();
}

/// Writes the response that goes by this name.
fn write(golden: &Golden, out: &mut Vec<u8>) {
    let version = golden.version;
    let stream = if golden.name.starts_with("event") { EVENT_STREAM } else { 7 };
    let response = ResponseBuilder::begin(out, version, stream);
    let node = |address: IpAddr| SocketAddr::new(address, 9042);
    let change = |kind, target| SchemaChange { kind, keyspace: "ks", target };
    let finish = |response: CompleteResponse<'_>| response.finish(None).unwrap();
    if let Some(kind) = golden.name.strip_prefix("error_") {
        let message = golden_message(golden);
        let kind = error_kind(kind).unwrap_or_else(|| panic!("no error for {}", golden.name));
        return finish(response.error(&NO_EXTENSIONS, &ErrorBody { message: &message, kind }));
    }
    match golden.name.as_str() {
        "ready" => finish(response.ready()),
        "authenticate" => {
            finish(response.authenticate("org.apache.cassandra.auth.PasswordAuthenticator"));
        }
        "auth_success" => finish(response.auth_success(None)),
        "auth_challenge" => finish(response.auth_challenge(Some(&[1, 2, 3]))),
        "supported" => {
            let options = [
                ("COMPRESSION", vec!["snappy".to_owned(), "lz4".to_owned()]),
                ("CQL_VERSION", vec!["3.4.7".to_owned()]),
            ];
            finish(response.supported(options.iter().map(|(key, values)| (*key, values.as_slice()))));
        }
        "event_up" => finish(response.event(&Event::NodeUp(node(IpAddr::V4(Ipv4Addr::LOCALHOST))))),
        "event_new" => finish(response.event(&Event::NewNode(node(IpAddr::V6(Ipv6Addr::LOCALHOST))))),
        "event_schema" => {
            let change = change(SchemaChangeKind::Dropped, SchemaTarget::Keyspace);
            finish(response.event(&Event::Schema(change)));
        }
        "schema_table" => {
            finish(response.schema_change(&change(SchemaChangeKind::Updated, SchemaTarget::Table("t"))));
        }
        "schema_type" => {
            finish(response.schema_change(&change(SchemaChangeKind::Created, SchemaTarget::Type("u"))));
        }
        "schema_function" => {
            let target = SchemaTarget::Function("f", &["int", "text"]);
            finish(response.schema_change(&change(SchemaChangeKind::Created, target)));
        }
        "void" => finish(response.void()),
        "set_keyspace" => finish(response.set_keyspace("ks")),
        "rows_types" => {
            let types = all_types();
            let names: Vec<String> = (0..types.len()).map(|index| format!("c{index}")).collect();
            let columns: Vec<_> = types.iter().zip(&names).map(|(ty, name)| column("t", name, ty)).collect();
            let metadata = RowsMetadata::new(version, &columns);
            response.rows(&metadata, RowsMode::Full).finish(None).unwrap();
        }
        "rows_two" => two_rows(response, &[K, V], RowsMode::Full),
        "rows_skip" => two_rows(response, &[K, V], RowsMode::Skip),
        "rows_tables" => two_rows(response, &[K, OTHER], RowsMode::Full),
        "rows_changed" => two_rows(response, &[K, V], RowsMode::Changed(&METADATA_ID)),
        name => {
            let (binds, indexes, columns): (&[_], &[u16], Option<&[_]>) = match name {
                "prepared_select" => (&[K, V], &[0], Some(&[K, V])),
                "prepared_insert" => (&[K, V], &[0], None),
                "prepared_nothing" => (&[], &[], Some(&[K])),
                _ => panic!("no response for {name}"),
            };
            let result = columns.map(|columns| RowsMetadata::new(version, columns));
            let prepared = Prepared {
                id: &ID,
                result_metadata_id: &METADATA_ID,
                bind_columns: binds,
                partition_key_indexes: indexes,
                is_conditional: false,
                result: result.as_ref(),
            };
            finish(response.prepared(&NO_EXTENSIONS, &prepared));
        }
    }
}

fn goldens() -> Vec<Golden> {
    parse(include_str!("golden/server_frames.txt"))
}

#[test]
fn every_response_is_byte_for_byte_cassandras() {
    let mut names = BTreeSet::new();
    for golden in goldens() {
        let mut out = Vec::new();
        write(&golden, &mut out);
        let frame = Frame::cut_direction(&out, 1 << 20, Direction::Response).unwrap().expect("whole");
        let opcode: u8 = golden.fields[0].parse().unwrap();
        assert_eq!(frame.header.opcode.code(), opcode, "{} {}", golden.name, golden.version);
        assert_eq!(frame.body, golden.bytes, "{} {}", golden.name, golden.version);
        assert_eq!(out.len(), HEADER_BYTES + golden.bytes.len());
        names.insert(golden.name);
    }
    assert_eq!(names.len(), 42, "{names:?}");
}

#[test]
fn our_client_reads_every_response_and_refuses_it_cut_anywhere() {
    for golden in goldens() {
        let mut out = Vec::new();
        write(&golden, &mut out);
        let frame = Frame::cut_direction(&out, 1 << 20, Direction::Response).unwrap().expect("whole");
        let response = client::decode(&frame.header, frame.body, &NO_EXTENSIONS).unwrap();
        match (golden.name.as_str(), response.body) {
            ("rows_types", ResponseBody::Rows(rows)) => {
                let columns = rows.columns.expect("metadata was sent");
                let types: Vec<CqlType> = columns.into_iter().map(|column| column.ty).collect();
                let frozen: Vec<CqlType> = all_types().into_iter().map(CqlType::freeze).collect();
                assert_eq!(types, frozen);
            }
            ("rows_two" | "rows_skip" | "rows_changed", ResponseBody::Rows(rows)) => {
                let values: Vec<_> = rows.values().collect();
                assert_eq!(values, [Some(&b"a"[..]), Some(&[0, 0, 0, 1]), Some(b""), None]);
            }
            ("rows_tables", ResponseBody::Rows(rows)) => {
                assert_eq!(rows.columns.expect("metadata was sent")[1].table, "other");
            }
            ("prepared_select", ResponseBody::Prepared(prepared)) => {
                assert_eq!(prepared.id, ID);
                let has_indexes = golden.version >= ProtocolVersion::V4;
                assert_eq!(prepared.partition_key_indexes, if has_indexes { vec![0] } else { vec![] });
                assert_eq!(prepared.result_columns.map(|columns| columns.len()), Some(2));
            }
            (name, ResponseBody::Error { message, .. }) => {
                assert!(name.starts_with("error_"));
                assert_eq!(message, golden_message(&golden));
            }
            _ => {}
        }
        // The fields of an error are kept as they are: a shorter list of them is no shorter message.
        if !golden.name.starts_with("error_") {
            for length in 0..frame.body.len() {
                let cut = client::decode(&frame.header, &frame.body[..length], &NO_EXTENSIONS);
                assert!(cut.is_err(), "{} {} cut at {length}", golden.name, golden.version);
            }
        }
    }
}
