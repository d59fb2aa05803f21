//! ERROR messages byte for byte: those of a Cassandra 5.0.6 for the same mistakes, and for errors that a
//! single healthy node does not meet, those of native_protocol_v3.spec to v5.spec §9.

use wire::consistency::Consistency;
use wire::frame::HEADER_BYTES;

use super::*;

const OWN: &str = "127.0.32.1:7000";

/// Checks that the body is the same in all `versions`.
fn check(versions: &[ProtocolVersion], error: &QueryError, expected: &[u8]) {
    check_with(versions, &Extensions::default(), error, expected);
}

fn check_with(versions: &[ProtocolVersion], extensions: &Extensions, error: &QueryError, expected: &[u8]) {
    for version in versions {
        let mut out = Vec::new();
        let builder = ResponseBuilder::begin(&mut out, *version, 7);
        write(builder, extensions, OWN.parse().unwrap(), error).finish(None).unwrap();
        let body = &out[HEADER_BYTES..];
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        assert_eq!(text(body), text(expected), "{version:?} {error:?}");
    }
}

const ALL: [ProtocolVersion; 3] = ProtocolVersion::ALL;
const V3: &[ProtocolVersion] = &[ProtocolVersion::V3];
const V4: &[ProtocolVersion] = &[ProtocolVersion::V4];
const V5: &[ProtocolVersion] = &[ProtocolVersion::V5];
const BEFORE_V5: &[ProtocolVersion] = &[ProtocolVersion::V3, ProtocolVersion::V4];

/// Code, text and the fields after it.
fn body(code: u16, text: &str, fields: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0];
    bytes.extend(code.to_be_bytes());
    bytes.extend(string(text));
    bytes.extend(fields);
    bytes
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes(), text.as_bytes()].concat()
}

fn hex(digits: &str) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap() as u8;
    digits.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

#[test]
fn what_cassandra_sent_is_sent_here() {
    let exists = |table: &str, message: &str| QueryError::AlreadyExists {
        keyspace: "err".into(),
        table: table.into(),
        message: message.into(),
    };
    let keyspace = exists("", "Cannot add existing keyspace \"err\"");
    check(
        &ALL,
        &keyspace,
        &hex(
            "00002400002243616e6e6f7420616464206578697374696e67206b6579737061636520226572722200036572720000",
        ),
    );
    let table = exists("t", "Cannot add already existing table \"t\" to keyspace \"err\"");
    check(
        &ALL,
        &table,
        &hex(
            "00002400003743616e6e6f742061646420616c7265616479206578697374696e67207461626c652022742220746f206b657973706163652022657272220003657272000174",
        ),
    );
    let unavailable = |consistency, required| QueryError::Unavailable { consistency, required, alive: 1 };
    check(
        &ALL,
        &unavailable(Consistency::Quorum, 2),
        &hex(
            "00001000002743616e6e6f74206163686965766520636f6e73697374656e6379206c6576656c2051554f52554d00040000000200000001",
        ),
    );
    check(
        &ALL,
        &unavailable(Consistency::EachQuorum, 2),
        &hex(
            "00001000002c43616e6e6f74206163686965766520636f6e73697374656e6379206c6576656c20454143485f51554f52554d00070000000200000001",
        ),
    );
    let failure = QueryError::FunctionFailure {
        keyspace: "err".into(),
        function: "boom".into(),
        arguments: vec!["int".into(), "list<int>".into()],
        message: "java.lang.RuntimeException: boom".into(),
    };
    check(
        &ALL[1..],
        &failure,
        &hex(
            "0000140000206a6176612e6c616e672e52756e74696d65457863657074696f6e3a20626f6f6d00036572720004626f6f6d00020003696e7400096c6973743c696e743e",
        ),
    );
    check(
        V3,
        &failure,
        &hex(
            "0000220000384552524f522046554e4354494f4e5f4641494c5552453a206a6176612e6c616e672e52756e74696d65457863657074696f6e3a20626f6f6d",
        ),
    );
}

#[test]
fn an_unknown_statement_is_named_by_its_id() {
    let error = QueryError::Unprepared { id: b"0123456789abcdef".to_vec() };
    check(
        &ALL,
        &error,
        &hex(
            "0000250000ed50726570617265642071756572792077697468204944203330333133323333333433353336333733383339363136323633363436353636206e6f7420666f756e6420286569746865722074686520717565727920776173206e6f74207072657061726564206f6e207468697320686f737420286d617962652074686520686f737420686173206265656e207265737461727465643f29206f7220796f75206861766520707265706172656420746f6f206d616e79207175657269657320616e6420697420686173206265656e20657669637465642066726f6d2074686520696e7465726e616c20636163686529001030313233343536373839616263646566",
        ),
    );
}

#[test]
fn timeouts_say_who_answered() {
    let write = QueryError::WriteTimeout {
        consistency: Consistency::Quorum,
        received: 1,
        required: 2,
        write_type: WriteType::BatchLog,
    };
    let text = "Operation timed out - received only 1 responses.";
    let counts = [0, 4, 0, 0, 0, 1, 0, 0, 0, 2];
    check(&ALL, &write, &body(0x1100, text, &[&counts[..], &string("BATCH_LOG")].concat()));
    let read = QueryError::ReadTimeout {
        consistency: Consistency::Quorum,
        received: 1,
        required: 2,
        data_present: true,
    };
    check(&ALL, &read, &body(0x1200, text, &[&counts[..], &[1]].concat()));
    let cas = QueryError::CasTimeout { consistency: Consistency::Serial, received: 1, required: 2 };
    let counts = [0, 8, 0, 0, 0, 1, 0, 0, 0, 2];
    check(BEFORE_V5, &cas, &body(0x1100, text, &[&counts[..], &string("CAS")].concat()));
    let contended = "CAS operation timed out: received 1 of 2 required responses after 0 contention retries";
    check(V5, &cas, &body(0x1100, contended, &[&counts[..], &string("CAS"), &[0, 0]].concat()));
    let unknown = QueryError::CasUnknown { consistency: Consistency::Serial, received: 1, required: 2 };
    check(BEFORE_V5, &unknown, &body(0x1100, text, &[&counts[..], &string("CAS")].concat()));
    let accepted = "CAS operation result is unknown - proposal accepted by 1 but not a quorum.";
    check(V5, &unknown, &body(0x1700, accepted, &counts));
}

#[test]
fn failures_say_who_failed_and_why() {
    let write = QueryError::WriteFailure {
        consistency: Consistency::One,
        received: 0,
        required: 1,
        failures: vec![FailedReplica { address: None, reason: FailureReason::Unknown }],
        write_type: WriteType::Simple,
    };
    let read = QueryError::ReadFailure {
        consistency: Consistency::One,
        received: 0,
        required: 1,
        failures: vec![FailedReplica { address: None, reason: FailureReason::Unknown }],
        data_present: false,
    };
    let tombstones = QueryError::TooManyTombstones {
        consistency: Consistency::One,
        required: 1,
        address: OWN.parse().unwrap(),
    };
    let counts = [0, 1, 0, 0, 0, 0, 0, 0, 0, 1];
    let timed_out = "Operation timed out - received only 0 responses.";
    check(V3, &write, &body(0x1100, timed_out, &[&counts[..], &string("SIMPLE")].concat()));
    check(V3, &read, &body(0x1200, timed_out, &[&counts[..], &[0]].concat()));
    check(V3, &tombstones, &body(0x1200, timed_out, &[&counts[..], &[0]].concat()));
    let text = |reason: &str| {
        format!("Operation failed - received 0 responses and 1 failures: {reason} from /{OWN}")
    };
    let one = [0, 0, 0, 1];
    let (unknown, too_many) = (text("UNKNOWN"), text("READ_TOO_MANY_TOMBSTONES"));
    check(V4, &write, &body(0x1500, &unknown, &[&counts[..], &one, &string("SIMPLE")].concat()));
    check(V4, &read, &body(0x1300, &unknown, &[&counts[..], &one, &[0]].concat()));
    check(V4, &tombstones, &body(0x1300, &too_many, &[&counts[..], &one, &[0]].concat()));
    let own = |reason: u8| [4, 127, 0, 32, 1, 0, reason];
    check(V5, &write, &body(0x1500, &unknown, &[&counts[..], &one, &own(0), &string("SIMPLE")].concat()));
    check(V5, &read, &body(0x1300, &unknown, &[&counts[..], &one, &own(0), &[0]].concat()));
    check(V5, &tombstones, &body(0x1300, &too_many, &[&counts[..], &one, &own(1), &[0]].concat()));
    let down =
        FailedReplica { address: Some("10.0.0.2:7000".parse().unwrap()), reason: FailureReason::NodeDown };
    let late = FailedReplica { address: None, reason: FailureReason::Timeout };
    let (consistency, write_type) = (Consistency::One, WriteType::Simple);
    let two = QueryError::WriteFailure {
        consistency,
        received: 0,
        required: 1,
        failures: vec![down, late],
        write_type,
    };
    let text = format!(
        "Operation failed - received 0 responses and 2 failures: NODE_DOWN from /10.0.0.2:7000, TIMEOUT from /{OWN}"
    );
    let reasons = [&[0, 0, 0, 2, 4, 10, 0, 0, 2, 0, 5][..], &own(2)].concat();
    check(V5, &two, &body(0x1500, &text, &[&counts[..], &reasons, &string("SIMPLE")].concat()));
}

#[test]
fn too_much_of_one_partition_is_an_error_of_its_own_for_those_who_know_it() {
    let text = "Per-partition rate limit reached for writes in table ks.t, rejected by replicas".to_owned();
    let error = QueryError::RateLimited { message: text.clone(), is_write: true, by_coordinator: false };
    check(&ALL, &error, &body(0x2300, &text, &[]));
    let extensions = Extensions { rate_limit_error: true, ..Extensions::default() };
    check_with(&ALL, &extensions, &error, &body(0x4321, &text, &[1, 0]));
}
