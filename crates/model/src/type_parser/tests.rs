//! Type texts parse to types that print the same, and mistakes are named.

use proptest::prelude::*;

use super::*;

fn no_udts(_: &str) -> Option<UserType> {
    None
}

fn known_udts(name: &str) -> Option<UserType> {
    let fields = vec![("tags".to_owned(), CqlType::Set { element: Box::new(CqlType::Text), frozen: false })];
    ["addr", "My Type", "list"].contains(&name).then(|| UserType {
        keyspace: "ks".into(),
        name: name.into(),
        fields,
        frozen: true,
    })
}

#[test]
fn native_names_are_read_in_any_case_and_printed_back() {
    for name in [
        "ascii",
        "bigint",
        "blob",
        "boolean",
        "counter",
        "date",
        "decimal",
        "double",
        "duration",
        "empty",
        "float",
        "inet",
        "int",
        "smallint",
        "text",
        "time",
        "timestamp",
        "timeuuid",
        "tinyint",
        "uuid",
        "varint",
    ] {
        assert_eq!(parse_type(name, &no_udts).unwrap().to_string(), name);
        assert_eq!(parse_type(&name.to_uppercase(), &no_udts).unwrap().to_string(), name);
    }
    assert_eq!(parse_type("varchar", &no_udts), Ok(CqlType::Text));
}

#[test]
fn stored_types_are_read() {
    for (text, printed) in [
        ("map<text, frozen<list<int>>>", "map<text, frozen<list<int>>>"),
        (" frozen < map<text,int> > ", "frozen<map<text, int>>"),
        ("frozen<list<list<int>>>", "frozen<list<frozen<list<int>>>>"),
        ("tuple<int, list<text>>", "frozen<tuple<int, frozen<list<text>>>>"),
        ("frozen<tuple<int>>", "frozen<tuple<int>>"),
        ("vector<float, 3>", "vector<float, 3>"),
        ("vector<frozen<addr>,3>", "vector<frozen<addr>, 3>"),
        ("addr", "addr"),
        ("frozen<\"My Type\">", "frozen<\"My Type\">"),
        ("frozen<\"list\">", "frozen<list>"),
        (
            "'org.apache.cassandra.db.marshal.LexicalUUIDType'",
            "'org.apache.cassandra.db.marshal.LexicalUUIDType'",
        ),
        ("'org.apache.cassandra.db.marshal.UTF8Type'", "text"),
    ] {
        assert_eq!(parse_type(text, &known_udts).unwrap().to_string(), printed, "{text}");
    }
}

#[test]
fn user_types_are_frozen_only_where_the_text_says_so() {
    let Ok(CqlType::Udt(plain)) = parse_type("addr", &known_udts) else { panic!("a user type") };
    let Ok(CqlType::Udt(frozen)) = parse_type("frozen<addr>", &known_udts) else { panic!("a user type") };
    assert!(!plain.frozen && plain.fields[0].1.is_multi_cell());
    assert!(frozen.frozen && !frozen.fields[0].1.is_multi_cell());
}

#[test]
fn what_is_not_a_type_is_refused() {
    for (text, message) in [
        ("", "type ``, byte 0: expected a type name"),
        ("list", "type `list`, byte 4: expected `<`"),
        ("list<int", "type `list<int`, byte 8: expected `>`"),
        ("map<int>", "type `map<int>`, byte 7: expected `,`"),
        ("int>", "type `int>`, byte 3: expected the end"),
        ("vector<int, 0>", "type `vector<int, 0>`, byte 12: expected a vector dimension above zero"),
        (
            "vector<int, 99999999999>",
            "type `vector<int, 99999999999>`, byte 12: expected a vector dimension above zero",
        ),
        (
            "vector<empty, 2>",
            "type `vector<empty, 2>`, byte 12: expected an element type whose values have bytes",
        ),
        ("nothing", "unknown type nothing"),
        ("\"Nothing", "type `\"Nothing`, byte 1: expected a closing quote"),
        ("frozen<int>", "frozen<> is only allowed on collections, tuples, and user-defined types (got int)"),
        ("list<set<int>>", "non-frozen set<int> is not allowed inside list"),
        ("map<int, addr>", "non-frozen addr is not allowed inside map"),
        ("'ListType('", "type class `ListType(`, byte 9: expected a class name"),
    ] {
        assert_eq!(parse_type(text, &known_udts).unwrap_err().to_string(), message, "{text}");
    }
    let deep = "frozen<list<".repeat(NESTING_MAX);
    assert_eq!(parse_type(&deep, &no_udts), Err(TypeParseError::TooDeep));
}

#[test]
fn identifiers_are_quoted_only_where_needed() {
    for (name, text) in [
        ("a_1", "a_1"),
        ("select", "\"select\""),
        ("keyspace", "\"keyspace\""),
        ("list", "list"),
        ("Upper", "\"Upper\""),
        ("1a", "\"1a\""),
        ("_a", "\"_a\""),
        ("", "\"\""),
        ("a\"b", "\"a\"\"b\""),
        ("é", "\"é\""),
    ] {
        assert_eq!(quote_identifier(name), text);
    }
    assert!(RESERVED_WORDS.is_sorted());
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "(list<|map<|frozen<|tuple<|vector<|int|addr|['\"<>, 0-9é]){0,10}") {
        let _ = parse_type(&text, &known_udts);
    }
}
