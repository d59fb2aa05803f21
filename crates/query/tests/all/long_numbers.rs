//! Numbers of very many digits: they are stored and read back unchanged, and more than linear work is refused
//! before it begins.

use crate::support::{Bound, Options, body, int, node, prepare, rows, run};
use query::Engine;

/// A varint of about so many digits.
fn varint(digits: usize) -> Vec<u8> {
    let mut value = vec![0x5a; digits * 415 / 1000];
    value[0] = 1;
    value
}

/// A decimal of about so many digits.
fn decimal(scale: i32, digits: usize) -> Vec<u8> {
    [scale.to_be_bytes().to_vec(), varint(digits)].concat()
}

async fn error(engine: &Engine, text: &str) -> String {
    match body(engine, text).await {
        Err(error) => error.to_string(),
        Ok(_) => panic!("{} was carried out", &text[..text.len().min(200)]),
    }
}

async fn table(engine: &Engine) {
    run(engine, "CREATE TABLE ks.n (k int PRIMARY KEY, v varint, d decimal, l list<varint>)").await;
    let insert = prepare(engine, "INSERT INTO n (k, v, d) VALUES (?, ?, ?)").await.unwrap();
    for (k, v, d) in [
        (1, varint(60_000), decimal(7, 9_000)),
        (2, varint(1_000_000), decimal(-7, 1_000_000)),
        (3, varint(50), decimal(i32::MAX, 3)),
        (4, varint(50), decimal(i32::MIN, 3)),
    ] {
        insert.execute(engine, &Options::values([int(k), Bound::Bytes(v), Bound::Bytes(d)])).await.unwrap();
    }
}

#[test]
fn json_inside_json_does_not_double_without_end() {
    let folder = tempfile::tempdir().unwrap();
    node(folder.path(), 1, |engine| async move {
        table(&engine).await;
        run(&engine, "CREATE TABLE texts (k int PRIMARY KEY, x text, b blob)").await;
        run(&engine, "INSERT INTO texts (k, x, b) VALUES (1, '\"', 0xff)").await;
        let nested =
            |depth: usize, inner: &str| format!("{}{inner}{}", "to_json(".repeat(depth), ")".repeat(depth));
        let at = |value: &str| format!("SELECT {value} FROM texts WHERE k = 1");
        assert_eq!(rows(&engine, &at(&nested(2, "x"))).await, [r#"'"\"\\\"\""'"#]);
        // Each level doubles the quotes.
        assert_eq!(rows(&engine, &at(&nested(10, "x"))).await[0].len(), 3_072);
        for inner in ["x", "b", "(text) '\"'"] {
            let found = error(&engine, &at(&nested(100, inner))).await;
            assert!(found.contains("longer than") || found.contains("too long to compute"), "{found}");
        }
        let json = format!("SELECT JSON {} FROM texts WHERE k = 1", nested(100, "x"));
        let found = error(&engine, &json).await;
        assert!(found.contains("longer than") || found.contains("too long to compute"), "{found}");
        // As in a term, which is computed before anything is stored.
        let insert = format!("INSERT INTO texts (k, x) VALUES (2, {})", nested(100, "(text) '\"'"));
        let found = error(&engine, &insert).await;
        assert!(found.contains("longer than") || found.contains("too long to compute"), "{found}");
    });
}

#[test]
fn arithmetic_that_is_too_much_for_one_row_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    node(folder.path(), 1, |engine| async move {
        table(&engine).await;
        const TOO_LONG: &str = "too long to compute with";
        assert_eq!(rows(&engine, "SELECT v * 2 - v - v FROM n WHERE k = 1").await, ["0"]);
        assert_eq!(rows(&engine, "SELECT v * v - v * v FROM n WHERE k = 3").await, ["0"]);
        assert_eq!(rows(&engine, "SELECT k FROM n WHERE k = 1 AND v = 1 ALLOW FILTERING").await, [""; 0]);
        let many = vec!["v"; 400].join(" * ");
        for (text, problem) in [
            (format!("SELECT {many} FROM n WHERE k = 1"), TOO_LONG),
            (format!("SELECT {} FROM n WHERE k = 1", vec!["v * v"; 400].join(", ")), TOO_LONG),
            ("SELECT v / 3, v * v FROM n WHERE k = 2".to_owned(), TOO_LONG),
            ("SELECT d * d FROM n WHERE k = 2".to_owned(), TOO_LONG),
            ("SELECT d + 1 FROM n WHERE k = 2".to_owned(), TOO_LONG),
            ("SELECT d % 3 FROM n WHERE k = 2".to_owned(), TOO_LONG),
            ("SELECT exp(v) FROM n WHERE k = 1".to_owned(), TOO_LONG),
            ("SELECT round(d) FROM n WHERE k = 2".to_owned(), TOO_LONG),
            ("SELECT cast(v AS text) FROM n WHERE k = 2".to_owned(), TOO_LONG),
            ("SELECT cast(d AS double) FROM n WHERE k = 2".to_owned(), TOO_LONG),
            ("SELECT to_json(v) FROM n WHERE k = 2".to_owned(), TOO_LONG),
            ("SELECT JSON v FROM n WHERE k = 2".to_owned(), TOO_LONG),
            ("SELECT JSON d FROM n WHERE k = 2".to_owned(), TOO_LONG),
            ("SELECT sum(d) FROM n WHERE k = 2".to_owned(), "digits is not supported"),
            ("SELECT avg(d) FROM n WHERE k = 2".to_owned(), "digits is not supported"),
        ] {
            let found = error(&engine, &text).await;
            assert!(found.contains(problem), "{}: {found}", &text[..text.len().min(60)]);
        }
        // The effort for one row does not count for the next.
        let all = vec!["v * v"; 20].join(" - ");
        assert_eq!(rows(&engine, &format!("SELECT k, {all} FROM n WHERE k IN (3, 4)")).await.len(), 2);
        for _ in 0..20 {
            assert_eq!(rows(&engine, "SELECT v * v - v * v FROM n WHERE k = 3").await, ["0"]);
        }
        assert_eq!(rows(&engine, "SELECT count(v), max(k) FROM n").await, ["4 | 4"]);
        assert_eq!(rows(&engine, "SELECT d - d FROM n WHERE k = 3").await.len(), 1);
    });
}

#[test]
fn numbers_of_any_length_are_read_back_as_they_were_stored() {
    let folder = tempfile::tempdir().unwrap();
    node(folder.path(), 1, |engine| async move {
        table(&engine).await;
        let select = prepare(&engine, "SELECT v, d FROM n WHERE k = ?").await.unwrap();
        let found = select.execute(&engine, &Options::values([int(2)])).await.unwrap();
        for stored in [varint(1_000_000), decimal(-7, 1_000_000)] {
            assert!(found.windows(stored.len()).any(|bytes| bytes == stored));
        }
        let most = "7".repeat(20_000);
        let fraction = &most[..19_999];
        run(&engine, &format!("INSERT INTO n (k, v, d, l) VALUES (9, {most}, -0.{fraction}, [1, {most}])"))
            .await;
        assert_eq!(
            rows(&engine, "SELECT v, cast(v AS text) FROM n WHERE k = 9").await,
            [format!("{most} | '{most}'")]
        );
        run(&engine, &format!("INSERT INTO n JSON '{{\"k\": 10, \"v\": {most}, \"d\": \"{fraction}E5\"}}'"))
            .await;
        assert_eq!(rows(&engine, "SELECT v FROM n WHERE k = 10").await, [most]);
    });
}

#[test]
fn a_number_with_too_many_digits_is_not_read_from_text() {
    let folder = tempfile::tempdir().unwrap();
    node(folder.path(), 1, |engine| async move {
        table(&engine).await;
        for digits in [20_001, 3_000_000] {
            let many = "8".repeat(digits);
            for text in [
                format!("INSERT INTO n (k, v) VALUES (1, {many})"),
                format!("INSERT INTO n (k, v) VALUES (1, -{many})"),
                format!("INSERT INTO n (k, d) VALUES (1, {many}.5)"),
                format!("INSERT INTO n (k, d) VALUES (1, 0.{many})"),
                format!("INSERT INTO n (k, d) VALUES (1, {many}e-7)"),
                format!("INSERT INTO n (k, l) VALUES (1, [1, {many}])"),
                format!("SELECT k FROM n WHERE v = {many} ALLOW FILTERING"),
                format!("SELECT {many} FROM n"),
                format!("SELECT 0.{many} FROM n"),
                format!("UPDATE n SET v = {many} + 1 WHERE k = 1"),
                format!("INSERT INTO n JSON '{{\"k\": 1, \"v\": {many}}}'"),
                format!("INSERT INTO n JSON '{{\"k\": 1, \"v\": \"{many}\"}}'"),
                format!("INSERT INTO n JSON '{{\"k\": 1, \"d\": \"0.{many}\"}}'"),
                format!("INSERT INTO n (k, v) VALUES (1, from_json('{many}'))"),
            ] {
                error(&engine, &text).await;
            }
        }
        let found = error(&engine, &format!("INSERT INTO n (k, v) VALUES (1, {})", "8".repeat(30_000))).await;
        assert!(found.contains("a number of 30000 digits is too long to be read from text"), "{found}");
    });
}
