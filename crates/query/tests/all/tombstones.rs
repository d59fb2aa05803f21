//! Reads that pass tombstones: counted as by Cassandra, and paged past in any number.

use std::fmt::Write;

use crate::support::{Options, Rows, client, node_with, parameters, query, rows, run};
use query::guardrails::Threshold;
use query::{Engine, EngineConfig, QueryError, Response};

/// Pages a result may take before the test gives up.
const PAGES_MAX: usize = 2_000;

fn low(config: &mut EngineConfig) {
    config.guardrails.tombstones = Threshold { warn: Some(3), fail: Some(6) };
}

/// The warnings of a statement, or its error.
async fn said(engine: &Engine, statement: &str) -> Result<Vec<String>, QueryError> {
    let mut out = Response::default();
    engine.query(&client(), statement, &parameters(), &mut out).await?;
    Ok(out.warnings)
}

/// The number of tombstones in the warning of a read of `statement`.
async fn counted(engine: &Engine, statement: &str) -> Option<usize> {
    let warnings = said(engine, statement).await.unwrap();
    let text = warnings.first()?;
    let words: Vec<&str> = text.split(' ').collect();
    Some(words[5].parse().unwrap_or_else(|_| panic!("{text}")))
}

async fn thresholds(engine: Engine) {
    run(&engine, "CREATE TABLE t (k int, c int, v int, w list<int>, PRIMARY KEY (k, c))").await;
    let t = |k: i32, n: i32| format!("DELETE FROM t WHERE k = {k} AND c = {n}");
    for n in 0..3 {
        run(&engine, &t(0, n)).await;
    }
    run(&engine, "INSERT INTO t (k, c, v) VALUES (0, 9, 1)").await;
    assert_eq!(said(&engine, "SELECT * FROM t WHERE k = 0").await.unwrap(), [""; 0]);
    run(&engine, &t(0, 3)).await;
    let token = rows(&engine, "SELECT token(k) FROM t WHERE k = 0").await[0].clone();
    assert_eq!(
        said(&engine, "SELECT v FROM t WHERE k = 0 AND c >= 0 LIMIT 5").await.unwrap(),
        [format!(
            "Read 1 live rows and 4 tombstone cells for query SELECT * FROM ks.t WHERE k = 0 AND c >= 0 LIMIT 5 \
             ALLOW FILTERING; token {token} (see tombstone_warn_threshold)"
        )]
    );
    for n in 4..7 {
        run(&engine, &t(0, n)).await;
    }
    match said(&engine, "SELECT v FROM t WHERE k = 0").await {
        Err(error @ QueryError::TooManyTombstones { .. }) => assert_eq!(
            error.to_string(),
            "Operation failed - received 0 responses and 1 failures: READ_TOO_MANY_TOMBSTONES from /127.0.0.1:7000"
        ),
        other => panic!("{other:?}"),
    }
    // Tombstones outside a slice are not counted, nor are those behind the last wanted row.
    assert_eq!(said(&engine, "SELECT v FROM t WHERE k = 0 AND c > 6").await.unwrap(), [""; 0]);
    let backwards = "SELECT v FROM t WHERE k = 0 ORDER BY c DESC LIMIT 1";
    assert_eq!(said(&engine, backwards).await.unwrap(), [""; 0]);
    let whole = said(&engine, "SELECT count(*) FROM t").await;
    assert!(matches!(whole, Err(QueryError::TooManyTombstones { .. })), "{whole:?}");

    // Each dead cell counts; a row without any live data counts once.
    run(&engine, "INSERT INTO t (k, c, v, w) VALUES (1, 1, 1, [1, 2, 3, 4, 5])").await;
    assert_eq!(counted(&engine, "SELECT * FROM t WHERE k = 1").await, None);
    run(&engine, "DELETE v, w[0], w[1], w[2] FROM t WHERE k = 1 AND c = 1").await;
    assert_eq!(counted(&engine, "SELECT * FROM t WHERE k = 1").await, Some(4));
    run(&engine, "DELETE FROM t WHERE k = 1").await;
    assert_eq!(counted(&engine, "SELECT * FROM t WHERE k = 1").await, None);

    // A range counts at its start and at its end.
    run(&engine, "DELETE FROM t WHERE k = 2 AND c > 1 AND c < 5").await;
    run(&engine, "DELETE FROM t WHERE k = 2 AND c > 7 AND c < 9").await;
    assert_eq!(counted(&engine, "SELECT * FROM t WHERE k = 2").await, Some(4));

    // Tombstones past their grace period are on the way, but not counted.
    run(&engine, "ALTER TABLE t WITH gc_grace_seconds = 0").await;
    let now = engine.ambient().now_seconds() + 10;
    let mut out = Response::default();
    let later = wire::request::QueryParameters { now_in_seconds: Some(now), ..parameters() };
    engine.query(&client(), "SELECT v FROM t WHERE k = 0", &later, &mut out).await.unwrap();
    assert_eq!(out.warnings, [""; 0]);
}

#[test]
fn tombstones_are_counted_warned_of_and_refused() {
    let folder = tempfile::tempdir().unwrap();
    node_with(folder.path(), 1, low, thresholds);
}

/// All rows of a statement, the number of pages, and of those without rows.
async fn pages(engine: &Engine, statement: &str, page_size: i32) -> (Vec<String>, usize, usize) {
    let (mut all, mut empty, mut state) = (Vec::new(), 0, None);
    for count in 1..=PAGES_MAX {
        let options = Options { page_size: Some(page_size), paging_state: state, ..Options::default() };
        let page = Rows::parse(&query(engine, statement, &options).await.unwrap());
        empty += usize::from(page.rows.is_empty());
        all.extend(page.rows);
        state = page.paging_state;
        if state.is_none() {
            return (all, count, empty);
        }
    }
    panic!("{statement} does not end");
}

async fn delete_rows(engine: &Engine, table: &str, k: i32, from: i32, rows: i32) {
    for chunk in 0..rows / 1000 {
        let mut statement = format!("DELETE FROM {table} WHERE k = {k} AND c IN (");
        for c in 0..1000 {
            let sign = if c == 0 { "" } else { ", " };
            write!(statement, "{sign}{}", from + chunk * 1000 + c).unwrap();
        }
        statement.push(')');
        run(engine, &statement).await;
    }
}

/// Both rows around `dead` dead ones as one.
fn whole_group(dead: i32) -> String {
    format!("0 | 2 | {dead} | {} | -1", dead - 1)
}

/// Deletes `dead` rows of a partition and reads past them.
async fn run_of_dead(engine: Engine, dead: i32) {
    run(&engine, "CREATE TABLE t (k int, c int, v int, s int static, PRIMARY KEY (k, c))").await;
    delete_rows(&engine, "t", 0, 0, dead).await;
    for c in [-1, dead] {
        run(&engine, &format!("INSERT INTO t (k, c, v) VALUES (0, {c}, {c})")).await;
    }
    let (least, last) = ("-1".to_owned(), dead.to_string());
    let at_least = dead as usize / 10_000;
    for (statement, expected) in [
        ("SELECT c FROM t WHERE k = 0", vec![least.clone(), last.clone()]),
        ("SELECT c FROM t WHERE k = 0 ORDER BY c DESC", vec![last.clone(), least.clone()]),
        ("SELECT c FROM t WHERE k = 0 AND c > 5 LIMIT 3", vec![last.clone()]),
        ("SELECT c FROM t", vec![least, last]),
        // A group that is open at the end of a page continues on the next.
        ("SELECT k, count(*), max(c), sum(v), v FROM t WHERE k = 0 GROUP BY k", vec![whole_group(dead)]),
        ("SELECT k, count(*), max(c), sum(v), v FROM t GROUP BY k", vec![whole_group(dead)]),
        ("SELECT c, count(*) FROM t WHERE k = 0 GROUP BY k, c", vec!["-1 | 1".into(), format!("{dead} | 1")]),
    ] {
        let (all, count, empty) = pages(&engine, statement, 5000).await;
        assert_eq!(all, expected, "{statement}");
        assert!((at_least..=at_least * 11 / 10 + 2).contains(&count), "{statement}: {count} pages");
        assert!(empty + expected.len() >= count, "{statement}: {empty} of {count} pages are empty");
    }
    // Without pages there is an end to it.
    let whole = query(&engine, "SELECT c FROM t WHERE k = 0", &Options::default()).await;
    let refused = matches!(whole, Err(QueryError::TooManyTombstones { .. }));
    assert_eq!(refused, dead > 100_000, "{whole:?}");
    // A total over the table is read in bounded pieces.
    assert_eq!(rows(&engine, "SELECT count(*) FROM t").await, ["2"]);
}

#[test]
fn dead_rows_are_gone_past_page_by_page() {
    let folder = tempfile::tempdir().unwrap();
    node_with(folder.path(), 2, |_| {}, |engine| run_of_dead(engine, 40_000));
}

#[test]
#[ignore = "takes minutes without optimisation"]
fn a_million_dead_rows_are_gone_past_page_by_page() {
    for shards in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        node_with(folder.path(), shards, |_| {}, |engine| run_of_dead(engine, 1_000_000));
    }
}

fn short(config: &mut EngineConfig) {
    config.guardrails.tombstones_of_page = Some(50);
}

async fn small_pages(engine: Engine) {
    run(
        &engine,
        "CREATE TABLE t (k int, c int, v int, s int static, l list<int>, m map<text, int>, PRIMARY KEY (k, c))",
    )
    .await;
    run(
        &engine,
        "CREATE FUNCTION ks.join(s text, v int) CALLED ON NULL INPUT RETURNS text LANGUAGE lua \
         AS 'return s .. (v or 0) .. \".\"'",
    )
    .await;
    run(&engine, "CREATE AGGREGATE ks.all_of(int) SFUNC join STYPE text INITCOND '<'").await;
    // Partitions without rows, some with a static one; ranges instead of rows; living ones between.
    for k in 0..300 {
        run(&engine, &format!("DELETE FROM t WHERE k = {k}")).await;
    }
    for k in 300..306 {
        for c in 0..150 {
            let dead = if k % 2 == 0 {
                format!("DELETE FROM t WHERE k = {k} AND c = {c}")
            } else {
                format!("DELETE FROM t WHERE k = {k} AND c > {} AND c < {}", 3 * c, 3 * c + 2)
            };
            run(&engine, &dead).await;
        }
        if k % 3 == 0 {
            run(&engine, &format!("INSERT INTO t (k, s) VALUES ({k}, 1)")).await;
        }
        if k > 303 {
            run(&engine, &format!("INSERT INTO t (k, c, v, l, m) VALUES ({k}, -5, 7, [1, 2], {{'a': 1}})"))
                .await;
            run(&engine, &format!("INSERT INTO t (k, c, v) VALUES ({k}, 120, 2)")).await;
            run(&engine, &format!("INSERT INTO t (k, c, v) VALUES ({k}, 600, 2)")).await;
        }
    }
    for statement in [
        "SELECT k, c, s, v FROM t",
        "SELECT DISTINCT k, s FROM t",
        "SELECT k, c FROM t PER PARTITION LIMIT 1",
        "SELECT k, c FROM t WHERE v = 2 ALLOW FILTERING",
        "SELECT k, c, s FROM t WHERE k IN (1, 2, 300, 303, 304)",
        "SELECT k, c, s FROM t WHERE k = 300",
        "SELECT k, c, s FROM t WHERE k = 303",
        "SELECT k, c, s FROM t WHERE k = 303 ORDER BY c DESC",
        "SELECT k, c, s FROM t WHERE k = 305 ORDER BY c DESC",
        "SELECT k, c, s FROM t WHERE k = 305 AND c > 10",
        "SELECT k, c, s FROM t WHERE k = 305 LIMIT 1",
        "SELECT k, s, count(c) FROM t GROUP BY k",
        "SELECT k, c, s, l, m, count(c), min(c), max(v), sum(c), avg(v), all_of(v) FROM t GROUP BY k",
        "SELECT k, c, s, l, sum(v) FROM t GROUP BY k, c",
        "SELECT k, c, l, m, all_of(c) FROM t WHERE k = 305 GROUP BY k",
        "SELECT k, c, l, m, all_of(c) FROM t WHERE k = 305 GROUP BY k ORDER BY c DESC",
        "SELECT k, c, all_of(c) FROM t WHERE k IN (305, 304, 303) GROUP BY k PER PARTITION LIMIT 1",
        "SELECT k, c, all_of(c) FROM t GROUP BY k, c PER PARTITION LIMIT 2",
        "SELECT DISTINCT k, s, count(*) FROM t GROUP BY k",
        "SELECT count(*), sum(s) FROM t",
    ] {
        let expected = rows(&engine, statement).await;
        for page_size in [1, 2, 100] {
            let (all, count, _) = pages(&engine, statement, page_size).await;
            assert_eq!(all, expected, "{statement} in pages of {page_size}");
            if statement == "SELECT k, c, s, v FROM t" {
                assert!(count > 10, "{count} pages");
            }
        }
    }
}

#[test]
fn pages_end_inside_what_is_dead_and_go_on_there() {
    for shards in [1, 2, 3] {
        let folder = tempfile::tempdir().unwrap();
        node_with(folder.path(), shards, short, small_pages);
    }
}

async fn broken_states(engine: Engine) {
    run(&engine, "CREATE TABLE t (k int, c int, v int, s int static, l list<int>, PRIMARY KEY (k, c))").await;
    run(&engine, "INSERT INTO t (k, c, v, s, l) VALUES (0, -1, 5, 6, [7, 8])").await;
    for c in 0..200 {
        run(&engine, &format!("DELETE FROM t WHERE k = 0 AND c = {c}")).await;
    }
    let statement = "SELECT k, v, s, l, count(*), max(v), sum(v), avg(c) FROM t WHERE k = 0 GROUP BY k";
    let options = Options { page_size: Some(10), ..Options::default() };
    let page = Rows::parse(&query(&engine, statement, &options).await.unwrap());
    assert_eq!(page.rows, [""; 0]);
    let state = page.paging_state.expect("the page ends in what is dead");
    assert!(state.len() > 60, "the group travels: {} bytes", state.len());
    let mut refused = 0;
    for at in 0..state.len() {
        for bit in 0..8 {
            let mut other = state.clone();
            other[at] ^= 1 << bit;
            let options = Options { paging_state: Some(other), ..options.clone() };
            // Any bytes are answered.
            refused += usize::from(query(&engine, statement, &options).await.is_err());
        }
    }
    assert!(refused > state.len(), "{refused} of {} were refused", 8 * state.len());
    // Neither is it taken for that of another statement.
    for other in ["SELECT v FROM t WHERE k = 0", "SELECT k, max(l) FROM t WHERE k = 0 GROUP BY k"] {
        let options = Options { paging_state: Some(state.clone()), ..options.clone() };
        assert!(matches!(query(&engine, other, &options).await, Err(QueryError::Protocol(_))), "{other}");
    }
}

#[test]
fn a_group_that_comes_back_broken_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    node_with(folder.path(), 1, short, broken_states);
}
