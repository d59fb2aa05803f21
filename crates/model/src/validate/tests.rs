//! Invalid values, with Cassandra's error messages.

use proptest::prelude::*;

use super::*;
use crate::type_parser::parse_type;
use crate::types::tests::any_type;

/// A type, bytes, and the message of Apache Cassandra 5.0.6 (`AbstractType.validate`), empty if the bytes are
/// valid.
const GOLDEN: [(&str, &str, &str); 136] = [
    ("ascii", "", ""),
    ("ascii", "61", ""),
    ("ascii", "6180", "Invalid byte for ascii: -128"),
    ("ascii", "ff", "Invalid byte for ascii: -1"),
    ("text", "", ""),
    ("text", "c3a9", ""),
    ("text", "ff", "String didn't validate."),
    ("text", "c3", "String didn't validate."),
    ("text", "f09f9880", ""),
    ("boolean", "", ""),
    ("boolean", "00", ""),
    ("boolean", "05", ""),
    ("boolean", "0000", "Expected 1 or 0 byte value (2)"),
    ("tinyint", "", "Expected 1 byte for a tinyint (0)"),
    ("tinyint", "00", ""),
    ("tinyint", "0000", "Expected 1 byte for a tinyint (2)"),
    ("smallint", "", "Expected 2 bytes for a smallint (0)"),
    ("smallint", "00", "Expected 2 bytes for a smallint (1)"),
    ("smallint", "0000", ""),
    ("int", "", ""),
    ("int", "00", "Expected 4 or 0 byte int (1)"),
    ("int", "00000000", ""),
    ("int", "0000000000000000", "Expected 4 or 0 byte int (8)"),
    ("bigint", "", ""),
    ("bigint", "00", "Expected 8 or 0 byte long (1)"),
    ("bigint", "0000000000000000", ""),
    ("counter", "", ""),
    ("counter", "00", "Expected 8 or 0 byte long (1)"),
    ("counter", "0000000000000000", ""),
    ("float", "", ""),
    ("float", "00", "Expected 4 or 0 byte value for a float (1)"),
    ("float", "00000000", ""),
    ("double", "", ""),
    ("double", "00", "Expected 8 or 0 byte value for a double (1)"),
    ("double", "0000000000000000", ""),
    ("date", "", "Expected 4 byte long for date (0)"),
    ("date", "00000000", ""),
    ("date", "0000", "Expected 4 byte long for date (2)"),
    ("time", "", "Expected 8 byte long for time (0)"),
    ("time", "0000000000000000", ""),
    ("time", "00", "Expected 8 byte long for time (1)"),
    ("timestamp", "", ""),
    ("timestamp", "0000000000000000", ""),
    ("timestamp", "00", "Expected 8 or 0 byte long for date (1)"),
    ("decimal", "", ""),
    ("decimal", "0000000000", ""),
    ("decimal", "000000", "Expected 0 or at least 4 bytes (3)"),
    ("varint", "", ""),
    ("varint", "00", ""),
    ("blob", "", ""),
    ("blob", "00", ""),
    ("duration", "", "Expected at least 3 bytes for a duration (0)"),
    ("duration", "0000", "Expected at least 3 bytes for a duration (2)"),
    ("duration", "000000", ""),
    ("duration", "020202", ""),
    ("duration", "010101", ""),
    (
        "duration",
        "020100",
        "The duration months, days and nanoseconds must be all of the same sign (1, -1, 0)",
    ),
    (
        "duration",
        "ffffffffffffffffff0000",
        "The duration months must be a 32 bits integer but was: -9223372036854775808",
    ),
    (
        "duration",
        "00ffffffffffffffffff00",
        "The duration days must be a 32 bits integer but was: -9223372036854775808",
    ),
    ("duration", "0000ffffffffffffffffff", ""),
    ("duration", "00000000", ""),
    ("uuid", "", ""),
    ("uuid", "00", "UUID should be 16 or 0 bytes (1)"),
    ("uuid", "0b2a0d385a3e4c518a0a6a0d7ae1d2a4", ""),
    ("timeuuid", "", ""),
    ("timeuuid", "00", "UUID should be 16 or 0 bytes (1)"),
    ("timeuuid", "138140001dd211b28080808080808080", ""),
    ("timeuuid", "438140001dd241b28080808080808080", "Invalid version for TimeUUID type: 0x4"),
    ("inet", "", ""),
    ("inet", "7f000001", ""),
    ("inet", "00000000000000000000000000000001", ""),
    ("inet", "7f0000", "Expected 4 or 16 byte inetaddress; got 7f0000"),
    ("empty", "", ""),
    ("empty", "00", "EmptyType only accept empty values"),
    ("list<int>", "", "Not enough bytes to read a list"),
    ("list<int>", "000000", "Not enough bytes to read a list"),
    ("list<int>", "00000000", ""),
    ("list<int>", "000000010000000400000001", ""),
    ("list<int>", "000000010000000100", "Expected 4 or 0 byte int (1)"),
    ("list<int>", "00000001000000040000000100", "Unexpected extraneous bytes after list value"),
    ("list<int>", "00000001", "Not enough bytes to read a list"),
    ("list<int>", "7fffffff", "Not enough bytes to read a list"),
    ("list<int>", "00000001ffffffff", "Null value read when not allowed"),
    ("list<int>", "000000020000000400000001", "Not enough bytes to read a list"),
    ("list<int>", "000000010000000900000001", "Not enough bytes to read a list"),
    ("set<int>", "", "Not enough bytes to read a set"),
    ("set<int>", "000000", "Not enough bytes to read a set"),
    ("set<int>", "00000000", ""),
    ("set<int>", "000000010000000400000001", ""),
    ("set<int>", "000000010000000100", "Expected 4 or 0 byte int (1)"),
    ("set<int>", "00000001000000040000000100", "Unexpected extraneous bytes after set value"),
    ("set<int>", "00000001", "Not enough bytes to read a set"),
    ("set<int>", "00000001ffffffff", "Null value read when not allowed"),
    ("map<int, text>", "", "Not enough bytes to read a map"),
    ("map<int, text>", "000000", "Not enough bytes to read a map"),
    ("map<int, text>", "00000000", ""),
    ("map<int, text>", "0000000100000004000000010000000161", ""),
    ("map<int, text>", "0000000100000001000000000161", "Expected 4 or 0 byte int (1)"),
    ("map<int, text>", "00000001000000040000000100000001ff", "String didn't validate."),
    ("map<int, text>", "000000010000000400000001000000016100", "Unexpected extraneous bytes after map value"),
    ("map<int, text>", "000000010000000400000001", "Not enough bytes to read a map"),
    ("map<int, text>", "000000010000000400000001ffffffff", "Null value read when not allowed"),
    ("frozen<tuple<int, text, frozen<list<int>>>>", "", ""),
    ("frozen<tuple<int, text, frozen<list<int>>>>", "0000000400000001", ""),
    ("frozen<tuple<int, text, frozen<list<int>>>>", "ffffffffffffffffffffffff", ""),
    ("frozen<tuple<int, text, frozen<list<int>>>>", "0000000100", "Expected 4 or 0 byte int (1)"),
    ("frozen<tuple<int, text, frozen<list<int>>>>", "000000040000000100000001ff", "String didn't validate."),
    ("frozen<tuple<int, text, frozen<list<int>>>>", "0000", "Not enough bytes to read size of 0th component"),
    ("frozen<tuple<int, text, frozen<list<int>>>>", "0000000400", "Not enough bytes to read 0th component"),
    (
        "frozen<tuple<int, text, frozen<list<int>>>>",
        "000000040000000100",
        "Not enough bytes to read size of 1th component",
    ),
    (
        "frozen<tuple<int, text, frozen<list<int>>>>",
        "0000000400000001ffffffff0000000c00000001000000040000000100",
        "Invalid remaining data after end of tuple value",
    ),
    (
        "frozen<tuple<int, text, frozen<list<int>>>>",
        "0000000400000001ffffffff00000000",
        "Not enough bytes to read a list",
    ),
    ("frozen<addr>", "", ""),
    ("frozen<addr>", "0000000178", ""),
    ("frozen<addr>", "00000001780000000400000001", ""),
    ("frozen<addr>", "ffffffffffffffff", ""),
    ("frozen<addr>", "00000001ff", "Failure validating the 0th field street; String didn't validate."),
    (
        "frozen<addr>",
        "00000001780000000100",
        "Failure validating the 1th field No; Expected 4 or 0 byte int (1)",
    ),
    ("frozen<addr>", "00", "Not enough bytes to read size of 0th field street"),
    ("frozen<addr>", "0000000400", "Not enough bytes to read 0th field street"),
    ("frozen<addr>", "000000016100", "Not enough bytes to read size of 1th field No"),
    ("frozen<addr>", "0000000178000000040000000100", "Invalid remaining data after end of UDT value"),
    (
        "frozen<list<frozen<addr>>>",
        "000000010000000a00000001780000000100",
        "Failure validating the 1th field No; Expected 4 or 0 byte int (1)",
    ),
    ("vector<float, 2>", "", "Invalid empty vector value"),
    ("vector<float, 2>", "00000000", "Not enough bytes to read a vector<float, 2>"),
    ("vector<float, 2>", "0000000000000000", ""),
    ("vector<float, 2>", "000000000000000000", "Unexpected 1 extraneous bytes after vector<float, 2> value"),
    (
        "vector<float, 2>",
        "0000000000000000000000",
        "Unexpected 3 extraneous bytes after vector<float, 2> value",
    ),
    ("vector<text, 2>", "", "Invalid empty vector value"),
    ("vector<text, 2>", "0000", ""),
    ("vector<text, 2>", "0161", "Not enough bytes to read a vector<text, 2>"),
    ("vector<text, 2>", "01610162", ""),
    ("vector<text, 2>", "0161016200", "Unexpected 1 extraneous bytes after vector<text, 2> value"),
    ("vector<text, 2>", "01ff00", "String didn't validate."),
    ("vector<tinyint, 2>", "01000101", ""),
    ("vector<tinyint, 2>", "0200000101", "Expected 1 byte for a tinyint (2)"),
];

fn address(name: &str) -> Option<UserType> {
    let fields = vec![("street".to_owned(), CqlType::Text), ("No".to_owned(), CqlType::Int)];
    (name == "addr").then(|| UserType { keyspace: "ks".into(), name: name.into(), fields, frozen: true })
}

fn check(ty: &str, hex: &str, expected: &str) {
    let value: Vec<u8> =
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
    let message = match validate(&parse_type(ty, &address).unwrap(), &value) {
        Ok(()) => String::new(),
        Err(error) => error.to_string(),
    };
    assert_eq!(message, expected, "{ty} {hex}");
}

#[test]
fn messages_are_cassandras() {
    for (ty, hex, message) in GOLDEN {
        check(ty, hex, message);
    }
}

#[test]
fn what_could_not_be_read_back_is_refused_where_cassandra_lets_it_pass() {
    check("text", "c080", "String didn't validate.");
    check("text", "eda080", "String didn't validate.");
    check("decimal", "00000000", "Expected 0 or at least 5 bytes for a decimal (4)");
    check("frozen<list<int>>", "ffffffff", "The data cannot be deserialized as a list");
    check("frozen<map<int, int>>", "80000000", "The data cannot be deserialized as a map");
    check("duration", "00ff00", "Not enough bytes to read a duration");
    check("vector<text, 2>", "05616100", "Not enough bytes to read a vector<text, 2>");
    check("timeuuid", "138140001dd241b28080808080808080", "Invalid version for TimeUUID type: 0x4");
}

#[test]
fn custom_classes_of_fixed_length_are_held_to_it() {
    for (class, valid, invalid, message) in [
        ("LexicalUUIDType", "138140001dd211b28080808080808080", "00", "UUID should be 16 or 0 bytes (1)"),
        ("DateType", "0000000000000000", "00", "Expected 8 or 0 byte long for date (1)"),
    ] {
        let ty = format!("'org.apache.cassandra.db.marshal.{class}'");
        check(&ty, "", "");
        check(&ty, valid, "");
        check(&ty, invalid, message);
    }
    check("'com.example.Opaque'", "00", "");
}

#[test]
fn an_error_keeps_only_the_beginning_of_a_large_value() {
    let error = validate(&CqlType::Inet, &vec![0xab; 1 << 20]).unwrap_err();
    assert_eq!(error.to_string(), format!("Expected 4 or 16 byte inetaddress; got {}", "ab".repeat(64)));
}

proptest! {
    #[test]
    fn any_bytes_are_valid_or_refused(ty in any_type(), value in prop::collection::vec(any::<u8>(), 0..80)) {
        let _ = validate(&ty, &value);
    }

    #[test]
    fn small_counts_and_lengths_are_valid_or_refused(
        ty in any_type(),
        value in prop::collection::vec(prop::sample::select(vec![0_u8, 0, 0, 1, 2, 4, 255]), 0..60),
    ) {
        let _ = validate(&ty, &value);
    }
}
