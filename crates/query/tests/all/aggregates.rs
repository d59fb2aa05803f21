//! Aggregates and groups over more rows than one fetch takes, on several shards at once.

use crate::support::{self, node, rows, run};
use query::Engine;

/// Rows of each partition, and partitions: one partition is longer than a fetch, all of them several.
const ROWS: usize = 12_000;
const BATCH: usize = 100;

async fn fill(engine: &Engine) {
    run(engine, "CREATE TABLE t (k int, c int, v int, s int static, d decimal, PRIMARY KEY (k, c))").await;
    for (k, count) in [(1, ROWS), (2, 50), (3, ROWS / 2), (4, 1)] {
        for from in (0..count).step_by(BATCH) {
            let to = count.min(from + BATCH);
            let writes: Vec<String> = (from..to)
                .map(|c| format!("INSERT INTO t (k, c, v, d) VALUES ({k}, {c}, {}, {c}.5)", c % 7))
                .collect();
            run(engine, &format!("BEGIN UNLOGGED BATCH {}; APPLY BATCH", writes.join("; "))).await;
        }
    }
    run(engine, "INSERT INTO t (k, s) VALUES (5, 9)").await;
}

async fn totals(engine: Engine) {
    fill(&engine).await;
    let all = ROWS + 50 + ROWS / 2 + 1;
    let sevenths = |count: usize| (0..count).map(|c| c % 7).sum::<usize>();
    let sum: usize = [ROWS, 50, ROWS / 2, 1].into_iter().map(sevenths).sum();
    for (statement, expected) in [
        ("SELECT count(*) FROM t", format!("{}", all + 1)),
        ("SELECT count(v), sum(v), min(c), max(c) FROM t", format!("{all} | {sum} | 0 | {}", ROWS - 1)),
        ("SELECT avg(c), count(s) FROM t WHERE k = 1", format!("{} | 0", (ROWS - 1) / 2)),
        ("SELECT count(*) FROM t WHERE v = 3 ALLOW FILTERING", {
            let hits = |count: usize| (0..count).filter(|c| c % 7 == 3).count();
            format!("{}", hits(ROWS) + hits(50) + hits(ROWS / 2))
        }),
        ("SELECT count(*) FROM t WHERE c >= 6000 ALLOW FILTERING", format!("{}", ROWS - 6000)),
        ("SELECT cast(avg(d) AS text) FROM t WHERE k = 2", "'25.0'".to_owned()),
        ("SELECT count(*) FROM t WHERE k = 99", "0".to_owned()),
        ("SELECT count(*) FROM t WHERE token(k) > 9223372036854775806", "0".to_owned()),
    ] {
        assert_eq!(rows(&engine, statement).await, [expected], "{statement}");
    }
    let mut groups = rows(&engine, "SELECT k, count(*), max(c) FROM t GROUP BY k").await;
    groups.sort();
    let expected = [
        format!("1 | {ROWS} | {}", ROWS - 1),
        "2 | 50 | 49".into(),
        format!("3 | {} | {}", ROWS / 2, ROWS / 2 - 1),
    ];
    assert_eq!(groups[..3], expected);
    assert_eq!(groups[3..], ["4 | 1 | 0", "5 | 1 | null"]);
    let filtered = "SELECT k, count(*) FROM t WHERE v = 3 AND c > 11000 GROUP BY k ALLOW FILTERING";
    assert_eq!(
        rows(&engine, filtered).await,
        [format!("1 | {}", (11_001..ROWS).filter(|c| c % 7 == 3).count())]
    );
    // The first row in token order gives the values that are not aggregates.
    let first = rows(&engine, "SELECT k FROM t LIMIT 1").await;
    let mixed = rows(&engine, "SELECT k, count(*) FROM t").await;
    assert_eq!(mixed, [format!("{} | {}", first[0], all + 1)]);
}

#[test]
fn totals_are_right_on_any_number_of_shards() {
    for shards in [1, 3] {
        let directory = tempfile::tempdir().unwrap();
        node(directory.path(), shards, totals);
    }
}

/// Rows of types whose sums wrap, are inexact, or grow; and a table without any live data.
async fn every_type(engine: Engine) -> Vec<Vec<String>> {
    run(
        &engine,
        "CREATE TABLE n (k int PRIMARY KEY, ti tinyint, si smallint, i int, b bigint, f float, d double, de decimal, \
         vi varint, t text)",
    )
    .await;
    run(&engine, "CREATE TABLE empty (k int PRIMARY KEY, i int, d double, t text)").await;
    run(&engine, "CREATE TABLE counted (k int PRIMARY KEY, c counter)").await;
    for k in 0..60_i32 {
        let sign = if k % 3 == 0 { "-" } else { "" };
        run(
            &engine,
            &format!(
                "INSERT INTO n (k, ti, si, i, b, f, d, de, vi, t) VALUES ({k}, {sign}120, {sign}32000, {sign}2147483000, \
                 {sign}9223372036854775000, {sign}{k}.5, {sign}{k}.25, {sign}{k}.125, {sign}99999999999999999999999{k}, \
                 't{k}')"
            ),
        )
        .await;
        run(&engine, &format!("UPDATE counted SET c = c + {k} WHERE k = {k}")).await;
    }
    for k in 60..70 {
        run(&engine, &format!("INSERT INTO n (k) VALUES ({k})")).await;
        run(&engine, &format!("DELETE FROM empty WHERE k = {k}")).await;
    }
    let mut answers = Vec::new();
    for function in ["count", "min", "max", "sum", "avg"] {
        for column in ["k", "ti", "si", "i", "b", "f", "d", "de", "vi"] {
            answers.push(rows(&engine, &format!("SELECT {function}({column}) FROM n")).await);
        }
        for column in ["i", "d"] {
            answers.push(rows(&engine, &format!("SELECT {function}({column}) FROM empty")).await);
        }
        answers.push(rows(&engine, &format!("SELECT {function}(c) FROM counted")).await);
    }
    for statement in [
        "SELECT count(*), count(i), min(t), max(t), sum(i) + 1, avg(si) FROM n",
        "SELECT JSON count(*), max(t) FROM n",
        "SELECT count(*) FROM empty",
        "SELECT sum(i), count(*) FROM n WHERE k > 30 ALLOW FILTERING",
        "SELECT count(*) FROM n WHERE token(k) > 0",
        "SELECT count(*), sum(b) FROM n LIMIT 1",
    ] {
        answers.push(rows(&engine, statement).await);
    }
    answers
}

#[test]
fn totals_of_every_type_are_the_same_on_any_number_of_shards() {
    let answers: Vec<_> = [1, 2, 3]
        .into_iter()
        .map(|shards| {
            let directory = tempfile::tempdir().unwrap();
            node(directory.path(), shards, every_type)
        })
        .collect();
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0], answers[2]);
    // Sums wrap in their type.
    for sum in ["96", "-15360", "-12960", "-16160"] {
        assert!(answers[0].contains(&vec![sum.to_owned()]), "{sum}: {:?}", answers[0]);
    }
}

#[test]
fn a_shard_that_meets_too_many_tombstones_ends_the_total() {
    for shards in [1, 3] {
        let directory = tempfile::tempdir().unwrap();
        let adjust = |config: &mut query::EngineConfig| {
            config.guardrails.tombstones = query::guardrails::Threshold { warn: Some(20), fail: Some(40) };
        };
        support::node_with(directory.path(), shards, adjust, |engine| async move {
            run(&engine, "CREATE TABLE t (k int, c int, PRIMARY KEY (k, c))").await;
            for c in 0..41 {
                run(&engine, &format!("DELETE FROM t WHERE k = 1 AND c = {c}")).await;
            }
            let refused = support::body(&engine, "SELECT count(*) FROM t").await.unwrap_err();
            assert!(matches!(refused, query::QueryError::TooManyTombstones { .. }), "{refused}");
            // The tombstones of another partition do not matter.
            assert_eq!(rows(&engine, "SELECT count(*) FROM t WHERE k = 2").await, ["0"]);
        });
    }
}
