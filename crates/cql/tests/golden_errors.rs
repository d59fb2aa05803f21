//! Syntax errors compared with those of Apache Cassandra 5.0.6.
//!
//! `golden/syntax_errors.txt` has the answers of Cassandra's own parser. Positions must always be the same.
//! Texts must be the same except for entries marked as known to differ; a mark that is no longer needed fails
//! too.

use cql::{Position, parse_statement};

/// One entry: the statement, Cassandra's message, and whether our text must be the same.
struct Golden<'a> {
    statement: &'a str,
    message: &'a str,
    exact: bool,
}

fn golden(text: &str) -> Vec<Golden<'_>> {
    let entries = text.split("----\n").skip(1);
    entries.map(|entry| entry_of(entry).unwrap_or_else(|| panic!("malformed entry: {entry:?}"))).collect()
}

fn entry_of(entry: &str) -> Option<Golden<'_>> {
    let body = entry.strip_suffix('\n')?;
    let start = body.rfind('\n').map_or(0, |at| at + 1);
    let statement = body[..start].strip_suffix('\n')?;
    let (mark, message) = body[start..].split_once("> ")?;
    Some(Golden { statement, message, exact: mark == "=" })
}

/// The `line a:b ` a message starts with, if it has one.
fn position_in(message: &str) -> Option<Position> {
    let (place, _) = message.strip_prefix("line ")?.split_once(' ')?;
    let (line, column) = place.split_once(':')?;
    Some(Position { line: line.parse().ok()?, column: column.parse().ok()? })
}

#[test]
fn messages_are_those_of_cassandra() {
    let entries = golden(include_str!("golden/syntax_errors.txt"));
    assert!(entries.len() > 400, "the golden file has {} entries", entries.len());
    for Golden { statement, message, exact } in &entries {
        let error = parse_statement(statement).expect_err(statement);
        assert_eq!(error.position, position_in(message), "{statement}\n ours: {error}\n want: {message}");
        assert_eq!(error.to_string() == *message, *exact, "{statement}\n ours: {error}\n theirs: {message}");
    }
    let exact = entries.iter().filter(|entry| entry.exact).count();
    assert!(exact * 100 >= entries.len() * 98, "{exact} of {} texts are the same", entries.len());
}
