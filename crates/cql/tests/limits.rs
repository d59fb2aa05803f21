//! Texts made to exhaust a resource are answered with an error, and the parser numbers markers and folds text
//! correctly.

use cql::ast::{ConstantKind, Ident, Selectable, Selection, Statement, Term};
use cql::{
    BIND_MARKERS_MAX, CHAIN_LENGTH_MAX, NESTING_DEPTH_MAX, Position, TOKENS_MAX, parse_statement, parse_term,
    parse_type,
};

#[track_caller]
fn refused(text: &str, start: &str) {
    let error = parse_statement(text).expect_err("a limit").to_string();
    assert!(error.starts_with(start), "{error}");
}

/// Runs `check` with the stack a shard of the server has.
fn with_a_shards_stack(check: fn()) {
    std::thread::Builder::new().stack_size(8 << 20).spawn(check).unwrap().join().unwrap();
}

#[test]
fn nesting_is_refused_beyond_its_limit_however_it_is_written() {
    with_a_shards_stack(refuse_what_is_nested_too_deep);
}

#[test]
fn a_tuple_of_128_tuples_in_each_other_is_read() {
    with_a_shards_stack(|| {
        let nested = |open: &str, inner: &str, close: &str| {
            format!("{}{inner}{}", open.repeat(128), close.repeat(128))
        };
        parse_type(&format!("frozen<{}>", nested("tuple<", "int", ">"))).unwrap();
        parse_statement(&format!("INSERT INTO t (a) VALUES ({})", nested("(", "1", ")"))).unwrap();
    });
}

fn refuse_what_is_nested_too_deep() {
    const DEEP: usize = 20_000;
    let deep =
        |open: &str, inner: &str, close: &str| format!("{}{inner}{}", open.repeat(DEEP), close.repeat(DEEP));
    for (open, inner, close) in [
        ("(", "1", ")"),
        ("[", "1", "]"),
        ("{", "1", "}"),
        ("f(", "1", ")"),
        ("(int)", "1", ""),
        ("{a:", "1", "}"),
    ] {
        let value = deep(open, inner, close);
        refused(&format!("INSERT INTO t (a) VALUES ({value})"), "Nesting is too deep");
        refused(&format!("SELECT {value} FROM t"), "Nesting is too deep");
        refused(&format!("SELECT * FROM t WHERE a = {value}"), "Nesting is too deep");
    }
    refused(&format!("INSERT INTO t (a) VALUES ({})", deep("CAST(", "1", " AS int)")), "Nesting is too deep");
    refused(&format!("SELECT {} FROM t", deep("CAST(", "1", " AS int)")), "Nesting is too deep");
    refused(&format!("SELECT * FROM t WHERE {}", deep("(", "a = 1", ")")), "Nesting is too deep");
    refused(&format!("SELECT {} FROM t", deep("a[", "1", "]")), "line 1:8 mismatched input '['");
    refused(&format!("ALTER TABLE t ADD a {}", deep("list<", "int", ">")), "Nesting is too deep");
    assert!(parse_type(&deep("list<", "int", ">")).is_err());
}

#[test]
fn trials_do_not_multiply() {
    with_a_shards_stack(fail_every_trial);
}

fn fail_every_trial() {
    // Each opening starts a trial that fails at the end; nested trials must not each repeat the rest.
    for open in ["(a)[", "(a)(", "(a){", "(a)f(", "json ", "json distinct ", "(a)[(a)"] {
        assert!(parse_statement(&format!("SELECT {}", open.repeat(NESTING_DEPTH_MAX / 2))).is_err());
        assert!(parse_statement(&format!("SELECT {} FROM t", open.repeat(5_000))).is_err());
    }
}

#[test]
fn a_statement_of_too_many_tokens_is_refused_whatever_they_are() {
    let list = |count: usize| format!("SELECT {}a FROM t", "a,".repeat(count));
    assert!(parse_statement(&list((TOKENS_MAX - 4) / 2)).is_ok());
    for text in [
        list(TOKENS_MAX / 2),
        format!("SELECT a FROM t WHERE a IN ({}1)", "1,".repeat(TOKENS_MAX)),
        format!("BEGIN BATCH {} APPLY BATCH", "DELETE FROM t WHERE a=1;".repeat(TOKENS_MAX / 8)),
        format!("SELECT a FROM t{}", ";".repeat(TOKENS_MAX)),
    ] {
        let error = parse_statement(&text).expect_err("a limit");
        assert!(error.message.starts_with("Statement is too long"), "{error}");
    }
    assert!(parse_statement(&format!("SELECT a {}FROM t", "/**/ ".repeat(4 * TOKENS_MAX))).is_ok());
}

#[test]
fn chains_are_refused_beyond_their_limit() {
    let chain = |link: &str, length: usize| link.repeat(length);
    let term = |length| format!("INSERT INTO t (a) VALUES (1{})", chain(" + 1", length));
    assert!(parse_statement(&term(CHAIN_LENGTH_MAX)).is_ok());
    refused(&term(CHAIN_LENGTH_MAX + 1), "Expression is too long");
    refused(&format!("SELECT a{} FROM t", chain(" * a", 100_000)), "Expression is too long");
    refused(&format!("SELECT a{} FROM t", chain(".a", 100_000)), "Expression is too long");
    let batch = chain("UPDATE t SET a = 1 + 2 WHERE k = 1;", 2 * CHAIN_LENGTH_MAX);
    assert!(parse_statement(&format!("BEGIN BATCH {batch} APPLY BATCH")).is_ok());
}

#[test]
fn the_tallest_tree_prints_compares_and_drops() {
    let nested = format!("{}1{}", "[".repeat(40), "]".repeat(40));
    let text = format!("SELECT * FROM t WHERE a = {nested}{}", " + 1".repeat(CHAIN_LENGTH_MAX));
    let parsed = parse_statement(&text).expect("within the limits");
    assert_eq!(parsed.statement.to_string(), text);
    assert_eq!(parsed.clone(), parsed);
}

#[test]
fn bind_markers_are_counted() {
    let markers = |count: usize| format!("SELECT * FROM t WHERE a IN ({})", vec!["?"; count].join(","));
    let parsed = parse_statement(&markers(BIND_MARKERS_MAX)).expect("within the limit");
    assert_eq!(parsed.markers.len(), BIND_MARKERS_MAX);
    refused(&markers(BIND_MARKERS_MAX + 1), "Too many bind variables");
}

#[test]
fn markers_are_numbered_in_order_of_appearance() {
    let text =
        "UPDATE t USING TTL ? SET a = :A, b[?] = f(:\"B\", ?) WHERE k IN ? AND (c, d) > (?, :a) IF e = ?";
    let parsed = parse_statement(text).expect("valid");
    let names: Vec<_> = parsed.markers.iter().map(|name| name.as_ref().map(Ident::as_str)).collect();
    assert_eq!(names, [None, Some("a"), None, Some("B"), None, None, None, Some("a"), None]);
}

#[test]
fn markers_of_failed_trials_do_not_count() {
    let parsed = parse_statement("SELECT (a) AS x, json, ?, (int) ? FROM t WHERE k = ?").expect("valid");
    assert_eq!(parsed.markers.len(), 3);
    let Statement::Select(select) = parsed.statement else { panic!("a SELECT") };
    let Selection::Selectors(selectors) = select.selection else { panic!("selectors") };
    assert!(matches!(&selectors[2].expression, Selectable::BindMarker(marker) if marker.index == 0));
    assert!(matches!(&selectors[1].expression, Selectable::Column(column) if column.as_str() == "json"));
}

#[test]
fn names_fold_and_strings_unescape() {
    let parsed = parse_statement("USE MyKs").expect("valid").statement;
    assert_eq!(parsed, parse_statement("USE \"myks\"").expect("valid").statement);
    assert_ne!(parsed, parse_statement("USE \"MyKs\"").expect("valid").statement);
    assert_eq!(parse_statement("USE \"a\"\"b\"").expect("valid").statement.to_string(), "USE \"a\"\"b\"");
    assert_eq!(Ident::new("plain").to_string(), "plain");
    assert_eq!(Ident::new("Camel").to_string(), "\"Camel\"");
    let Ok(Term::Constant(constant)) = parse_term("'it''s'''") else { panic!("a constant") };
    assert_eq!((constant.kind, constant.text.as_str()), (ConstantKind::String, "it's'"));
}

#[test]
fn constants_are_told_apart() {
    for (text, kind) in [
        ("1", ConstantKind::Integer),
        ("-12", ConstantKind::Integer),
        ("1.", ConstantKind::Float),
        ("1e5", ConstantKind::Float),
        ("-NaN", ConstantKind::Float),
        ("infinity", ConstantKind::Float),
        ("True", ConstantKind::Boolean),
        ("0xff", ConstantKind::Hex),
        ("1h", ConstantKind::Duration),
        ("P1D", ConstantKind::Duration),
        ("12345678-1234-1234-1234-123456789012", ConstantKind::Uuid),
        ("$$a$$", ConstantKind::String),
        ("NULL", ConstantKind::Null),
    ] {
        let Ok(Term::Constant(constant)) = parse_term(text) else { panic!("{text}") };
        assert_eq!(constant.kind, kind, "{text}");
    }
}

#[test]
fn positions_count_lines_and_utf16_units() {
    let error = parse_statement("SELECT 'é𝄞' FROM t\n WHERE 'x'").expect_err("no relation");
    assert_eq!(error.position, Some(Position { line: 2, column: 7 }));
    let error = parse_statement("SELECT '𝄞' 5 FROM t").expect_err("no FROM");
    assert_eq!(error.position, Some(Position { line: 1, column: 12 }));
    assert_eq!(parse_statement("").expect_err("nothing").position, Some(Position::END));
}

/// Few assignments are compared with each other, more are looked up: both find the same.
#[test]
fn an_update_of_any_length_contradicts_itself_nowhere() {
    for count in [1, 2, 31, 32, 33, 200] {
        let others: String = (0..count).map(|at| format!("c{at}[0] = 1, u.f{at} = 1, ")).collect();
        let update = |last: &str| format!("UPDATE t SET {others}{last} WHERE k = 1");
        for fitting in ["c0[0] = 2", "c0 = c0 + {1}", "u.other = 1", "u2.f0 = 1", "last = 1"] {
            assert!(parse_statement(&update(fitting)).is_ok(), "{count} {fitting}");
        }
        for (column, contradicting) in [("c0", "c0 = {1}"), ("u", "u.f0 = 2"), ("u", "u = {f: 1}")] {
            let error = parse_statement(&update(contradicting)).expect_err(contradicting).to_string();
            assert!(error.contains(&format!("Multiple incompatible setting of column {column}")), "{error}");
        }
        let whole_first = format!("UPDATE t SET last = 1, {others}last[0] = 1 WHERE k = 1");
        assert!(parse_statement(&whole_first).is_err(), "{count}");
    }
}
