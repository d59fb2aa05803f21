//! Compares JSON with Cassandra 5's.

use model::types::UserType;

use super::*;

fn list(element: CqlType) -> CqlType {
    CqlType::List { element: Box::new(element), frozen: true }
}

fn map(key: CqlType, value: CqlType) -> CqlType {
    CqlType::Map { key: Box::new(key), value: Box::new(value), frozen: true }
}

fn udt() -> CqlType {
    CqlType::Udt(Box::new(UserType {
        keyspace: "ks".into(),
        name: "t".into(),
        fields: vec![("a".into(), CqlType::Int), ("Up b".into(), CqlType::Text)],
        frozen: true,
    }))
}

fn read(ty: &CqlType, text: &str) -> Result<Option<Vec<u8>>, String> {
    value(ty, &parse(text).map_err(|error| error.to_string())?, 0)
}

/// Checks that the value read from `text` is written as `expected`.
#[track_caller]
fn round(ty: CqlType, text: &str, expected: &str) {
    let bytes = read(&ty, text).unwrap_or_else(|error| panic!("{ty} from {text}: {error}"));
    if let Some(bytes) = &bytes {
        model::validate::validate(&ty, bytes).unwrap_or_else(|error| panic!("{ty} from {text}: {error}"));
    }
    let mut out = String::new();
    append(&ty, bytes.as_deref(), &mut out, TEXT_BYTES_MAX).unwrap();
    assert_eq!(out, expected, "{ty} from {text}");
}

#[track_caller]
fn refused(ty: CqlType, text: &str, expected: &str) {
    assert_eq!(read(&ty, text), Err(expected.to_owned()), "{ty} from {text}");
}

#[test]
fn values_are_read_and_written() {
    use CqlType as T;
    round(T::Int, "123", "123");
    round(T::Int, "\"-5\"", "-5");
    round(T::Int, "null", "null");
    round(T::Int, "\"\"", "\"\"");
    round(T::Bigint, " 9223372036854775807 ", "9223372036854775807");
    round(T::Varint, "123456789012345678901234567890", "123456789012345678901234567890");
    round(T::Tinyint, "\"7\"", "7");
    round(T::Decimal, "123.1230", "123.123");
    round(T::Decimal, "\"123.1230\"", "123.1230");
    round(T::Decimal, "-1.23E-12", "-1.23E-12");
    round(T::Double, "1e7", "1.0E7");
    round(T::Double, "1", "1.0");
    round(T::Double, "\"NaN\"", "null");
    round(T::Float, "123.5", "123.5");
    round(T::Boolean, "true", "true");
    round(T::Boolean, "\"FALSE\"", "false");
    round(T::Blob, "\"0xCAFE\"", "\"0xcafe\"");
    round(T::Text, r#""a\"\\\u00e9\ud83d\ude00\n\u001f/\/""#, "\"a\\\"\\\\é😀\\n\\u001F//\"");
    round(T::Ascii, "\"x\"", "\"x\"");
    round(T::Date, "\"1995-03-21\"", "\"1995-03-21\"");
    round(T::Time, "\"07:35:07.000111222\"", "\"07:35:07.000111222\"");
    round(T::Timestamp, "\"2011-02-03T04:05:06.789Z\"", "\"2011-02-03 04:05:06.789Z\"");
    round(T::Timestamp, "1296705906789", "\"2011-02-03 04:05:06.789Z\"");
    round(T::Duration, "\"P1Y2M3DT4H5M6S\"", "\"1y2mo3d4h5m6s\"");
    round(T::Inet, "\"127.0.0.1\"", "\"127.0.0.1\"");
    round(T::Inet, "\"::1\"", "\"0:0:0:0:0:0:0:1\"");
    round(T::Uuid, "\"6bddc89a-5644-11e4-97fc-56847afe9799\"", "\"6bddc89a-5644-11e4-97fc-56847afe9799\"");
}

#[test]
fn composed_values_are_read_and_written() {
    use CqlType as T;
    round(list(T::Int), "[1, \"2\" ,3]", "[1, 2, 3]");
    round(list(T::Int), "\"[1, 2]\"", "[1, 2]");
    round(list(list(T::Text)), "[[],[\"a\"]]", "[[], [\"a\"]]");
    let set = T::Set { element: Box::new(T::Int), frozen: true };
    round(set, "[3, 1, 3, 2]", "[1, 2, 3]");
    round(map(T::Int, T::Text), "{\"2\": \"b\", \"1\": \"a\", \"2\": \"c\"}", "{\"1\": \"a\", \"2\": \"c\"}");
    round(map(list(T::Int), T::Int), "{\"[1, 2]\": 1}", "{\"[1, 2]\": 1}");
    round(map(list(T::Text), T::Int), r#"{"[\"a\"]": 1}"#, r#"{"[\"a\"]": 1}"#);
    round(T::Tuple(vec![T::Int, T::Text]), "[1, null]", "[1, null]");
    round(T::Vector { element: Box::new(T::Float), dimension: 2 }, "[1, 2.5]", "[1.0, 2.5]");
    let quoted = r#"{"a": 1, "\"Up b\"": "x"}"#;
    round(udt(), r#"{"\"Up b\"": "x", "A": 1}"#, quoted);
    round(udt(), "{}", r#"{"a": null, "\"Up b\"": null}"#);
}

#[test]
fn what_is_no_value_is_refused_in_cassandras_words() {
    use CqlType as T;
    refused(T::Int, "true", "Expected an int value, but got a Boolean: true");
    refused(T::Int, "12345678901", "Expected an int value, but got a Long: 12345678901");
    refused(T::Int, "\"xyz\"", "Unable to make int from 'xyz'");
    refused(T::Int, "1.5", "Expected an int value, but got a Double: 1.5");
    refused(
        T::Bigint,
        "9223372036854775808",
        "Expected a bigint value, but got a BigInteger: 9223372036854775808",
    );
    refused(T::Smallint, "[]", "Expected a short value, but got a ArrayList: []");
    refused(T::Smallint, "32768", "Unable to make short from '32768'");
    refused(T::Ascii, "123", "Expected an ascii string, but got a Integer: 123");
    refused(T::Text, "{\"a\": [1, \"b\"]}", "Expected a UTF-8 string, but got a LinkedHashMap: {a=[1, b]}");
    refused(T::Decimal, "\"xyzz\"", "Value 'xyzz' is not a valid representation of a decimal value");
    refused(T::Varint, "\"1_0\"", "Value '1_0' is not a valid representation of a varint value");
    refused(T::Varint, "1.5", "Value '1.5' is not a valid representation of a varint value");
    refused(T::Double, "\"1_0\"", "Unable to make double from '1_0'");
    refused(T::Double, "\"inf\"", "Unable to make double from 'inf'");
    refused(T::Boolean, "123", "Expected a boolean value, but got a Integer: 123");
    refused(
        T::Blob,
        "\"xyzz\"",
        "Value 'xyzz' is not a valid blob representation: String representation of blob is missing 0x prefix: xyzz",
    );
    refused(
        T::Timestamp,
        "123",
        "Expected a long or a datestring representation of a timestamp value, but got a Integer: 123",
    );
    refused(list(T::Int), "[1, null]", "Invalid null element in list");
    refused(list(T::Int), "{}", "Expected a list, but got a LinkedHashMap: {}");
    refused(map(T::Int, T::Int), "{\"1\": null}", "Invalid null value in map");
    refused(T::Tuple(vec![T::Int]), "[1, 2]", "Tuple contains extra items (expected 1): [1, 2]");
    refused(T::Tuple(vec![T::Int]), "[]", "Tuple is missing items (expected 1): []");
    refused(
        T::Vector { element: Box::new(T::Int), dimension: 2 },
        "[1]",
        "List had incorrect size: expected 2 but given 1; [1]",
    );
    refused(udt(), "{\"b\": 1}", "Unknown field 'b' in value of user defined type t");
}

#[test]
fn text_that_is_no_json_is_refused() {
    for text in [
        "",
        "[",
        "[1",
        "[1,]",
        "{\"a\"}",
        "{a: 1}",
        "01",
        "1.",
        "-",
        "\"a",
        "\"\\x\"",
        "\"\\ud800\"",
        "nul",
        "\"\u{1}\"",
    ] {
        assert!(parse(text).is_err(), "{text}");
    }
    assert_eq!(parse("1 2").unwrap().to_string(), "1", "what follows is not looked at");
    let deep = "[".repeat(1_000_000);
    assert_eq!(parse(&deep).unwrap_err().problem, "arrays and objects nested too deep");
}

#[test]
fn an_object_gives_columns_their_values() {
    let schema: &[(&str, &CqlType)] = &[("k", &CqlType::Int), ("V", &CqlType::Int), ("w", &CqlType::Int)];
    let found = columns(r#"{"K": 1, "\"V\"": null}"#, schema, 0).unwrap();
    assert_eq!(found, [Some(Some(vec![0, 0, 0, 1])), Some(None), None]);
    let error = |text: &str| columns(text, schema, 0).unwrap_err().to_string();
    assert_eq!(error("null"), "Got null for INSERT JSON values");
    assert_eq!(error("{\"x\": 1}"), "JSON values map contains unrecognized column: x");
    assert_eq!(
        error("{\"k\": true}"),
        "Error decoding JSON value for k: Expected an int value, but got a Boolean: true"
    );
    assert!(error("[1]").starts_with("Could not decode JSON string as a map: "));
    assert!(error("{").ends_with("(String was: {)"));
}
