//! Printed trees parse to the same trees: for generated trees of every statement, and for any arbitrary text
//! that parses.

#![allow(clippy::disallowed_types, reason = "proptest's macros share strategies by Arc")]

mod coverage;
mod roles;
mod schema;
mod selects;
mod terms;
mod writes;

use cql::ast::Statement;
use cql::{fuzzing, parse_statement};
use proptest::prelude::*;

/// `Debug` text without the possible differences between a made and a parsed tree: the markers' numbers,
/// which only the parser assigns, and whether a name had unnecessary quotes.
fn shape(statement: &Statement) -> String {
    let debug = format!("{statement:?}");
    let mut pieces = debug.split("index: ");
    let mut shape = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        shape.push_str("index: ");
        shape.push_str(piece.trim_start_matches(|character: char| character.is_ascii_digit()));
    }
    shape.replace("quoted: true", "quoted: _").replace("quoted: false", "quoted: _")
}

fn statement() -> BoxedStrategy<Statement> {
    prop_oneof![
        3 => selects::select().prop_map(Statement::Select),
        3 => writes::write(),
        4 => schema::schema_change(),
        2 => roles::role_change(),
    ]
    .boxed()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_statement_prints_to_text_that_reads_back(made in statement()) {
        let printed = made.to_string();
        let parsed = parse_statement(&printed).map_err(|error| {
            TestCaseError::fail(format!("{printed}\n{error}"))
        })?;
        prop_assert_eq!(shape(&made), shape(&parsed.statement), "{}", printed);
        prop_assert_eq!(parsed.statement.to_string(), printed);
        for (index, name) in parsed.markers.iter().enumerate() {
            let marker = format!("BindMarker {{ index: {index}, name: {name:?} }}");
            let count = format!("{:?}", parsed.statement).matches(&marker).count();
            prop_assert_eq!(count, 1, "{}", marker);
        }
    }

    #[test]
    fn arbitrary_text_never_panics(text in any::<String>()) {
        fuzzing::fuzz_parse(text.as_bytes());
    }

    #[test]
    fn arbitrary_tokens_never_panic(words in prop::collection::vec(word(), 0..40)) {
        fuzzing::fuzz_parse(words.concat().as_bytes());
    }

    #[test]
    fn damaged_statements_never_panic(made in statement(), cut in any::<prop::sample::Index>(), put in word()) {
        let printed = made.to_string();
        let places: Vec<usize> = printed.char_indices().map(|(at, _)| at).collect();
        let at = *cut.get(&places);
        fuzzing::fuzz_parse(&printed.as_bytes()[..at]);
        fuzzing::fuzz_parse(format!("{}{put}{}", &printed[..at], &printed[at..]).as_bytes());
        let next = printed[at..].chars().next().map_or(at, |character| at + character.len_utf8());
        fuzzing::fuzz_parse(format!("{}{}", &printed[..at], &printed[next..]).as_bytes());
    }
}

/// A word that the lexer accepts, or nearly.
fn word() -> BoxedStrategy<String> {
    const WORDS: &[&str] = &[
        "SELECT ",
        "* ",
        " FROM ",
        "t ",
        "a",
        ".",
        ",",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ":",
        "?",
        " = ",
        "<",
        " >= ",
        "!=",
        " WHERE ",
        " AND ",
        " IN ",
        "1",
        "-",
        "..",
        "1.5",
        "1e",
        "0x",
        "'x'",
        "'",
        "$$",
        "\"",
        "\"q\"",
        "/*",
        "--",
        "\n",
        " CREATE ",
        " TABLE ",
        " int ",
        " list<",
        " frozen<",
        ">",
        "INSERT INTO ",
        " VALUES ",
        " SET ",
        " UPDATE ",
        " DELETE ",
        "BEGIN BATCH ",
        " APPLY BATCH",
        ";",
        " token",
        " CAST(",
        " AS ",
        " json ",
        " distinct ",
        " LIMIT ",
        " NULL ",
        " NaN",
        "P1Y",
        "P0001-",
        "550e8400-e29b-41d4-a716-446655440000",
        "12345678-",
        " expr(",
        " NOT ",
        " µs",
    ];
    prop::sample::select(WORDS).prop_map(str::to_owned).boxed()
}
